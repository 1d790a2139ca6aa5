//! `/v1/stream`.

use crate::life::AT_ONCE;
use crate::rig::{Followed, Heard, World, eventually, start};
use farshell_api::process::ProcessState;
use farshell_api::stream::ServerMessage;
use futures_util::{SinkExt, StreamExt};
use serde_json::json;
use std::time::{Duration, Instant};
use tokio_tungstenite::tungstenite::Message;

fn error(followed: &Followed) -> (String, String) {
    match followed.messages.last() {
        Some(ServerMessage::Error { error }) => (error.kind.clone(), error.message.clone()),
        other => panic!("ended with {other:?}"),
    }
}

#[tokio::test]
async fn output_comes_apart_and_in_order() {
    let world = World::new();
    let _server = world.start();
    let mut stream = world.stream(start("echo one; echo two >&2; sleep 0.1; echo three; exit 7")).await;
    let process = stream.opened().await;
    assert_eq!(process.backend, "local");
    let followed = stream.follow(Followed::default()).await;
    assert_eq!((followed.text().as_str(), followed.stderr.as_slice()), ("one\nthree\n", &b"two\n"[..]));
    let ended = followed.ended();
    assert_eq!((ended.state, ended.exit_code, &ended.id), (ProcessState::Ended, Some(7), &process.id));
    assert_eq!(followed.code, Some(1000));
}

#[tokio::test]
async fn input_is_taken_by_offset_and_told() {
    let world = World::new();
    let _server = world.start();
    let mut stream = world.stream(json!({"start": {"command": "cat; echo end", "stdin": true}})).await;
    stream.opened().await;
    let mut followed = Followed::default();
    stream.input(0, b"hello ").await;
    stream.until(&mut followed, "hello ").await;
    // Half of it is known already.
    stream.input(3, b"lo world\n").await;
    stream.until(&mut followed, "world\n").await;
    stream.say(json!({"type": "eof", "offset": 12})).await;
    let followed = stream.follow(followed).await;
    assert_eq!(followed.text(), "hello world\nend\n");
    assert_eq!(followed.ended().exit_code, Some(0));
    let taken: Vec<_> = followed
        .messages
        .iter()
        .filter_map(|message| match message {
            ServerMessage::Stdin { taken } => Some(*taken),
            _ => None,
        })
        .collect();
    assert_eq!(taken, [6, 12, 12]);
}

#[tokio::test]
async fn much_input_passes_through() {
    let world = World::new();
    let _server = world.start();
    let open = json!({"start": {"command": "wc -c; true", "stdin": true}});
    let stream = world.stream(open).await;
    let (mut sender, mut receiver) = stream.socket.split();
    let send = async {
        let piece = vec![b'x'; 100_000];
        for n in 0..200_u64 {
            let message = [&(n * 100_000).to_le_bytes()[..], &piece].concat();
            sender.send(Message::Binary(message.into())).await.unwrap();
        }
        let eof = json!({"type": "eof", "offset": 20_000_000}).to_string();
        sender.send(Message::Text(eof.into())).await.unwrap();
    };
    let receive = async {
        let mut output = Vec::new();
        while let Some(Ok(message)) = receiver.next().await {
            if let Message::Binary(bytes) = message {
                output.extend_from_slice(&bytes[9..]);
            }
        }
        output
    };
    let ((), output) = tokio::join!(send, receive);
    assert_eq!(output, b"20000000\n");
}

#[tokio::test]
async fn a_process_is_killed_signalled_and_resized() {
    let world = World::new();
    let _server = world.start();
    let mut stream =
        world.stream(start("trap 'echo caught' USR1; echo up; while :; do sleep 0.05; done")).await;
    stream.opened().await;
    let mut followed = Followed::default();
    stream.until(&mut followed, "up\n").await;
    stream.say(json!({"type": "signal", "signal": "NOPE"})).await;
    stream.say(json!({"type": "kill", "grace": 0.2})).await;
    let followed = stream.follow(followed).await;
    // Between two sleeps there is only the shell, which ends by itself: nobody need be killed.
    assert!(matches!(followed.ended().exit_code, Some(137 | 143)), "{followed:?}");
    assert!(
        followed.messages.iter().any(|message| matches!(message,
            ServerMessage::Refused { request, error } if request == "signal" && error.kind == "invalid")),
        "{followed:?}"
    );
    assert_eq!(followed.code, Some(1000));

    let open =
        json!({"start": {"command": "stty size; read line; stty size", "pty": {"rows": 20, "cols": 70}}});
    let mut stream = world.stream(open).await;
    stream.opened().await;
    let mut followed = Followed::default();
    stream.until(&mut followed, "20 70").await;
    stream.say(json!({"type": "resize", "size": {"rows": 33, "cols": 99}})).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    stream.input(0, b"\r").await;
    let followed = stream.follow(followed).await;
    assert!(followed.text().contains("33 99"), "{followed:?}");
}

#[tokio::test]
async fn a_signal_reaches_the_command() {
    let world = World::new();
    let _server = world.start();
    let mut stream = world.stream(start("echo up; sleep 1000; echo after")).await;
    stream.opened().await;
    let mut followed = Followed::default();
    stream.until(&mut followed, "up\n").await;
    stream.say(json!({"type": "signal", "signal": "INT"})).await;
    let followed = stream.follow(followed).await;
    assert_eq!(followed.ended().exit_code, Some(130), "{followed:?}");
}

#[tokio::test]
async fn what_can_not_be_done_does_not_end_the_stream() {
    let world = World::new();
    let _server = world.start();
    let gate = world.path("gate");
    let command = format!("echo up; while ! [ -e {} ]; do sleep 0.02; done; echo done", gate.display());
    let mut stream = world.stream(start(&command)).await;
    stream.opened().await;
    let mut followed = Followed::default();
    stream.until(&mut followed, "up\n").await;
    stream.input(0, b"nobody reads this").await;
    stream.say(json!({"type": "resize", "size": {"rows": 1, "cols": 1}})).await;
    while followed.messages.iter().filter(|m| matches!(m, ServerMessage::Refused { .. })).count() < 2 {
        match stream.next().await {
            Heard::Said(message) => followed.messages.push(message),
            other => panic!("{other:?}"),
        }
    }
    std::fs::write(gate, "").unwrap();
    let followed = stream.follow(followed).await;
    assert_eq!(followed.text(), "up\ndone\n");
    let mut refused: Vec<_> = followed
        .messages
        .iter()
        .filter_map(|message| match message {
            ServerMessage::Refused { request, error } => Some((request.as_str(), error.kind.as_str())),
            _ => None,
        })
        .collect();
    refused.sort_unstable();
    assert_eq!(refused, [("resize", "invalid"), ("stdin", "invalid")]);
    followed.ended();
}

#[tokio::test]
async fn a_message_that_makes_no_sense_ends_the_stream_with_a_reason() {
    let world = World::new();
    let _server = world.start();
    for (open, part) in [
        (json!({}), "exactly one of `start` and `attach` is needed"),
        (json!({"start": {"command": "true"}, "attach": {"id": "proc_x"}}), "exactly one of"),
        (json!({"start": {"comand": "true"}}), "unknown field `comand`"),
        (json!([1]), "bad JSON"),
    ] {
        let followed = world.stream(open).await.follow(Followed::default()).await;
        let (kind, message) = error(&followed);
        assert_eq!(kind, "invalid");
        assert!(message.contains(part), "{message}");
        assert_eq!(followed.code, Some(1008));
    }
    let attach = json!({"attach": {"id": "proc_unknown", "target": {}}});
    let followed = world.stream(attach).await.follow(Followed::default()).await;
    assert_eq!(error(&followed).0, "not_found");
    assert_eq!(followed.code, Some(1011));

    for message in [Message::Text("{\"type\":\"dance\"}".into()), Message::Binary(vec![1, 2, 3].into())] {
        let mut stream = world.stream(start("echo up; exec sleep 1000")).await;
        let id = stream.opened().await.id;
        let mut followed = Followed::default();
        stream.until(&mut followed, "up\n").await;
        stream.socket.send(message).await.unwrap();
        let followed = stream.follow(followed).await;
        assert_eq!((error(&followed).0.as_str(), followed.code), ("invalid", Some(1008)));
        // The process goes on: that was not its fault.
        let killed = world.post(&format!("/v1/processes/{id}/kill"), json!({"grace": 0.1})).await.ok();
        assert_eq!(killed["had_ended"], false);
    }
}

#[tokio::test]
async fn a_message_that_is_too_large_ends_the_stream() {
    let world = World::new();
    let _server = world.start();
    for size in [(1 << 20) + 1, 3 << 20, 40 << 20] {
        let mut stream = world.stream(json!({"start": {"command": "echo up; cat", "stdin": true}})).await;
        let id = stream.opened().await.id;
        let mut followed = Followed::default();
        stream.until(&mut followed, "up\n").await;
        let _ = stream.socket.send(Message::Binary(vec![0; size].into())).await;
        let followed = stream.follow(followed).await;
        // Of one that is far too large the server does not hear the end, and the client perhaps not the reason.
        assert!(followed.code == Some(1009) || (followed.code.is_none() && size > 20 << 20), "{followed:?}");
        world.post(&format!("/v1/processes/{id}/kill"), json!({"grace": 0})).await.ok();
    }
}

#[tokio::test]
async fn a_slow_reader_slows_the_command_and_costs_no_memory() {
    const TOTAL: u64 = 200_000_000;
    let world = World::new();
    let server = world.start();
    world.run("true").await;
    let before = server.memory("VmRSS");
    let mark = world.path("printed");
    let command = format!("head -c {TOTAL} /dev/zero; touch {}", mark.display());
    let mut stream = world.stream(start(&command)).await;
    stream.opened().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!mark.exists(), "the command ran ahead of its reader");
    let stopped = server.memory("VmRSS");
    assert!(stopped < before + (8 << 10), "{before} KiB became {stopped}");
    // What is asked for beside the output is done all the same.
    assert_eq!(world.get("/v1/processes?all=true").await.status, 200);
    let (mut offset, mut sum) = (0, 0);
    let followed = loop {
        match stream.next().await {
            Heard::Output(1, at, bytes) => {
                assert_eq!(at, offset);
                offset += bytes.len() as u64;
                sum += bytes.iter().filter(|byte| **byte != 0).count();
            }
            Heard::Said(ServerMessage::Ended { process }) => break process,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((offset, sum, followed.exit_code), (TOTAL, 0, Some(0)));
    let peak = server.memory("VmHWM");
    assert!(peak < before + (16 << 10), "{before} KiB became {peak}");
}

#[tokio::test]
async fn a_kill_gets_through_while_output_is_blocked() {
    let world = World::new();
    let _server = world.start();
    let mut stream = world.stream(start("yes")).await;
    stream.opened().await;
    let mut followed = Followed::default();
    stream.until(&mut followed, "y\n").await;
    // Time for all buffers on the way to fill.
    tokio::time::sleep(Duration::from_millis(500)).await;
    stream.say(json!({"type": "kill", "grace": 0.1})).await;
    let followed = stream.follow(followed).await;
    assert!(followed.ended().killed > 0);
}

#[tokio::test]
async fn a_kill_gets_through_while_input_is_stuck() {
    let world = World::new();
    let server = world.start();
    world.run("true").await;
    let before = server.memory("VmRSS");
    let mut stream = world.stream(json!({"start": {"command": "echo up; sleep 1000", "stdin": true}})).await;
    stream.opened().await;
    let mut followed = Followed::default();
    stream.until(&mut followed, "up\n").await;
    for n in 0..2_u64 {
        stream.input(n * 100_000, &vec![b'x'; 100_000]).await;
    }
    stream.say(json!({"type": "kill", "grace": 0})).await;
    stream.follow(followed).await.ended();

    // One who sends on and on is not listened to any more, and costs nothing.
    let mut stream = world.stream(json!({"start": {"command": "sleep 1; wc -c", "stdin": true}})).await;
    stream.opened().await;
    let flood = async {
        for n in 0..100_u64 {
            stream.input(n * 500_000, &vec![b'x'; 500_000]).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_millis(800), flood).await.is_err());
    let after = server.memory("VmRSS");
    assert!(after < before + (12 << 10), "{before} KiB became {after}");
}

#[tokio::test]
async fn a_kill_by_one_who_does_not_stay_is_done() {
    let world = World::new();
    let _server = world.start();
    for round in 0..10 {
        let pid = world.path(&format!("pid{round}"));
        let mut stream = world.stream(start(&format!("echo $BASHPID > {}; yes", pid.display()))).await;
        let id = stream.opened().await.id;
        eventually("it runs", || pid.exists()).await;
        stream.say(json!({"type": "kill", "grace": 0})).await;
        drop(stream);
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let process = world.get(&format!("/v1/processes/{id}")).await.ok();
            if process["state"] == "ended" {
                break;
            }
            assert!(Instant::now() < deadline, "round {round}: {process}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test]
async fn a_client_that_vanishes_leaves_its_command_and_can_come_back() {
    let world = World::new();
    let _server = world.start();
    let target = json!({"task": "default"});
    let command = "for n in $(seq 200); do echo line $n; sleep 0.005; done";
    let open = json!({"start": {"id": "proc_resumed", "command": command, "target": target}});
    let mut stream = world.stream(open).await;
    stream.opened().await;
    let mut followed = Followed::default();
    stream.until(&mut followed, "line 20\n").await;
    drop(stream);
    assert_eq!(world.counts(1).await["foreground"], 1);
    for _ in 0..3 {
        let attach = json!({"attach": {"id": "proc_resumed", "target": target, "from": followed.offset}});
        let mut stream = world.stream(attach).await;
        stream.opened().await;
        let already = followed.text().lines().count();
        stream.until(&mut followed, &format!("line {}\n", already + 20)).await;
    }
    let attach = json!({"attach": {"id": "proc_resumed", "target": target, "from": followed.offset}});
    let mut stream = world.stream(attach).await;
    stream.opened().await;
    let followed = stream.follow(followed).await;
    let expected: String = (1..=200).map(|n| format!("line {n}\n")).collect();
    assert_eq!(followed.text(), expected);
    assert_eq!(followed.ended().exit_code, Some(0));
}

#[tokio::test]
async fn streams_end_with_the_server_and_go_on_with_the_next() {
    let world = World::new();
    let mut server = world.start();
    let target = json!({"task": "default"});
    let command = "for n in $(seq 100); do echo line $n; sleep 0.02; done";
    let open = json!({"start": {"id": "proc_moved", "command": command, "target": target}});
    let mut stream = world.stream(open).await;
    stream.opened().await;
    let mut followed = Followed::default();
    stream.until(&mut followed, "line 10\n").await;
    let begun = Instant::now();
    world.post("/v1/server/stop", json!({})).await.ok();
    let followed = stream.follow(followed).await;
    assert_eq!(followed.code, Some(1012));
    drop(stream);
    assert_eq!(server.ended().await, 0);
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    let _next = world.start();
    let attach = json!({"attach": {"id": "proc_moved", "target": target, "from": followed.offset}});
    let mut stream = world.stream(attach).await;
    stream.opened().await;
    let followed = stream.follow(followed).await;
    let expected: String = (1..=100).map(|n| format!("line {n}\n")).collect();
    assert_eq!(followed.text(), expected);
}

#[tokio::test]
async fn a_slow_reader_does_not_hold_up_the_end_of_the_server() {
    let world = World::new();
    let mut server = world.start();
    let mut stream = world.stream(start("yes")).await;
    let id = stream.opened().await.id;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let begun = Instant::now();
    world.post("/v1/server/stop", json!({})).await.ok();
    assert_eq!(server.ended().await, 0);
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    let _next = world.start();
    let attach = json!({"attach": {"id": id, "target": {}}});
    let mut stream = world.stream(attach).await;
    stream.opened().await;
    stream.say(json!({"type": "kill", "grace": 0})).await;
    drop(stream);
}

#[tokio::test]
async fn many_streams_at_once() {
    let world = World::new();
    let server = world.start();
    world.run("true").await;
    let before = server.memory("VmRSS");
    let streams = (0..50).map(|n| {
        let world = &world;
        async move {
            let open =
                json!({"start": {"command": format!("seq 20000; echo {n}"), "session": format!("s{n}")}});
            let mut stream = world.stream(open).await;
            stream.opened().await;
            let followed = stream.follow(Followed::default()).await;
            assert!(followed.text().ends_with(&format!("20000\n{n}\n")));
        }
    });
    futures_util::future::join_all(streams).await;
    let after = server.memory("VmHWM");
    assert!(after < before + (50 << 10), "{before} KiB became {after}");
}
