//! A keeper that dies, and the one after it: what goes on.

use crate::rig::{Life, PATIENCE, Rig, ended, events_of, leave_at, until, whole};
use farshell_api::event::EventKind;
use farshell_api::process::{LogQuery, ProcessState, StdinRequest};
use farshell_api::run::{OnTimeout, Size, StartRequest, Target};
use farshell_api::stream::{AttachTo, Open};
use farshell_engine::capture::Capture;
use farshell_keeper::StreamEnd;
use farshell_store::Store;
use std::time::Duration;
use tokio::runtime::Runtime;

#[test]
fn a_foreground_command_is_found_by_its_target_and_keeps_its_environment() {
    let rig = Rig::new();
    rig.config("terminal:\n  lifetime_seconds: 1\n");
    let gate = rig.gate("gate");
    let life = Life::begin(&rig);
    let instance = life.on(async {
        let text = format!("echo a; {}; echo b; exit 6", gate.wait());
        let start = StartRequest { id: Some("fore".into()), ..rig.command(&text) };
        let stream =
            life.keeper.stream(Open { start: Some(Box::new(start)), attach: None }, &()).await.unwrap();
        let instance = stream.instance.clone();
        leave_at("a\n", stream).await;
        instance
    });
    life.die();
    let life = Life::begin(&rig);
    life.on(async {
        // Longer than the lifetime: what runs keeps the environment, though nobody has asked for it yet.
        tokio::time::sleep(Duration::from_millis(2000)).await;
        assert_eq!(life.keeper.environment("default").await.unwrap().foreground, 1);
        gate.open();
        let attach = AttachTo {
            id: "fore".into(),
            target: Some(rig.target("default")),
            instance,
            from: 2,
            screen: false,
            until_closed: false,
            size: None,
        };
        let stream = life.keeper.stream(Open { start: None, attach: Some(attach) }, &()).await.unwrap();
        let mut capture = Capture::unlimited();
        let end = stream.follow(&mut capture).await.unwrap();
        assert_eq!(capture.output.to_bytes(), b"b\n");
        assert!(matches!(end, StreamEnd::Ended(process) if process.exit_code == Some(6)));
    });
    life.end(rig);
}

/// A command that is to go on in the background when its time is up.
fn promised(rig: &Rig, timeout: f64) -> StartRequest {
    StartRequest {
        id: Some("promised".into()),
        timeout: Some(timeout),
        on_timeout: OnTimeout::Background,
        ..rig.command("echo a; sleep 1000")
    }
}

/// Starts it, and leaves when it has begun. Gives the outpost that has it.
async fn left_at_once(life: &Life, start: StartRequest) -> Option<String> {
    let stream = life.keeper.stream(Open { start: Some(Box::new(start)), attach: None }, &()).await.unwrap();
    let instance = stream.instance.clone();
    leave_at("a\n", stream).await;
    instance
}

fn follow_promised(target: Option<Target>, instance: &Option<String>, from: u64) -> Open {
    let attach = AttachTo {
        id: "promised".into(),
        target,
        instance: instance.clone(),
        from,
        screen: false,
        until_closed: false,
        size: None,
    };
    Open { start: None, attach: Some(attach) }
}

#[test]
fn a_promise_to_go_on_in_the_background_is_kept() {
    let rig = Rig::new();
    let life = Life::begin(&rig);
    let instance = life.on(async {
        let start = StartRequest { notify_on_complete: true, ..promised(&rig, 6.0) };
        left_at_once(&life, start).await
    });
    life.die();
    let life = Life::begin(&rig);
    life.on(async {
        let follow = || async {
            let open = follow_promised(Some(rig.target("default")), &instance, 2);
            let stream = life.keeper.stream(open, &()).await.unwrap();
            assert!(!stream.process.background);
            let mut capture = Capture::unlimited();
            let end = tokio::time::timeout(PATIENCE, stream.follow(&mut capture)).await.unwrap().unwrap();
            let StreamEnd::Detached(process, _) = end else { panic!("{end:?}") };
            assert!(process.background && process.notify_on_complete);
            assert_eq!(process.command.lossy(), "echo a; sleep 1000");
        };
        // All come at once, while the keeper itself finds what runs: all follow the same one, and hear of it.
        tokio::join!(follow(), follow(), follow(), follow());
        let found = life.keeper.process("promised").await.unwrap();
        assert_eq!((found.state, found.background), (ProcessState::Running, true));
        assert!(found.duration_ms > 5900, "{}", found.duration_ms);
    });
    life.die();
    let life = Life::begin(&rig);
    life.on(async {
        assert_eq!(life.keeper.kill("promised", Default::default()).await.unwrap().survivors, 0);
        assert_eq!(ended(&life.keeper, "promised").await.state, ProcessState::Ended);
        assert_eq!(events_of(&life.keeper, EventKind::ProcessCompleted).await.len(), 1);
    });
    life.end(rig);
}

/// Whoever ran it comes back when its time was up before.
#[test]
fn one_who_comes_late_is_told_that_it_goes_on_in_the_background() {
    let rig = Rig::new();
    let life = Life::begin(&rig);
    let instance = life.on(left_at_once(&life, promised(&rig, 1.0)));
    life.die();
    let life = Life::begin(&rig);
    life.on(async {
        until("its time is up", || async {
            life.keeper.process("promised").await.is_ok_and(|process| process.background)
        })
        .await;
        let open = follow_promised(Some(rig.target("default")), &instance, 0);
        let stream = life.keeper.stream(open, &()).await.unwrap();
        let end =
            tokio::time::timeout(PATIENCE, stream.follow(&mut Capture::unlimited())).await.unwrap().unwrap();
        assert!(matches!(&end, StreamEnd::Detached(process, _) if process.background), "{end:?}");
        // Whoever only wants to see it follows it.
        let stream = life.keeper.stream(follow_promised(None, &instance, 0), &()).await.unwrap();
        leave_at("a\n", stream).await;
        assert_eq!(life.keeper.kill("promised", Default::default()).await.unwrap().survivors, 0);
    });
    life.end(rig);
}

/// A call whose connection was lost is made again under its id.
#[tokio::test]
async fn both_calls_of_one_id_are_told_that_it_goes_on_in_the_background() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let run = async |wait| {
        tokio::time::sleep(Duration::from_millis(wait)).await;
        keeper.run(whole(promised(&rig, 2.0))).await.unwrap()
    };
    let (first, second) = tokio::join!(run(0), run(500));
    assert_eq!((first.stdout.as_str(), second.stdout.as_str()), ("a\n", "a\n"));
    assert_eq!((first.backgrounded, second.backgrounded), (true, true));
    assert_eq!(keeper.kill("promised", Default::default()).await.unwrap().survivors, 0);
    let twice = ended(&keeper, "promised").await;
    assert_eq!((twice.background, twice.state), (true, ProcessState::Ended));
    assert_eq!(events_of(&keeper, EventKind::ProcessCompleted).await.len(), 1);
    rig.end(keeper).await;
}

#[test]
fn a_watch_goes_on_where_it_was() {
    let rig = Rig::new();
    let life = Life::begin(&rig);
    let gate = rig.home().join("gate");
    let process = life.on(async {
        let command = format!(
            "echo hit 1; while [ ! -e {0} ]; do sleep 0.02; done; echo hit 2; echo more; sleep 1000",
            gate.display()
        );
        let start = StartRequest { watch_patterns: vec!["hit".into()], ..rig.command(&command) };
        let process = life.keeper.start(start).await.unwrap();
        until("it is told", || async { events_of(&life.keeper, EventKind::WatchMatched).await.len() == 1 })
            .await;
        process
    });
    life.die();
    std::fs::write(&gate, "").unwrap();
    std::thread::sleep(Duration::from_millis(200));
    // The window of the first match is still open, so the second one is held back.
    let life = Life::begin(&rig);
    life.on(async {
        until("it was searched", || async {
            life.keeper.log(&process.id, LogQuery::default()).await.unwrap().text.lossy().contains("more")
        })
        .await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(events_of(&life.keeper, EventKind::WatchMatched).await.len(), 1);
    });
    life.die();
    // Long after: what was found and not told comes now, and what was told does not come again.
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let store = loop {
            match Store::open(&rig.home().join("farshell")).await {
                Ok((store, _)) => break store,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        let row = store.process(&process.id).await.unwrap().unwrap();
        assert_eq!(row.watch_offset, 6, "after the first line");
        let mut state = row.watch_state.clone();
        state["window"] = (state["window"].as_u64().unwrap() - 20_000).into();
        assert!(store.set_watch(&process.id, row.watch_offset, state, Vec::new()).await.unwrap());
        store.close().await.unwrap();
    });
    let life = Life::begin(&rig);
    life.on(async {
        until("it is told", || async { events_of(&life.keeper, EventKind::WatchMatched).await.len() == 2 })
            .await;
        let told = events_of(&life.keeper, EventKind::WatchMatched).await;
        let lines: Vec<_> = told.iter().map(|event| (&event.data["line"], &event.data["offset"])).collect();
        assert_eq!(lines, [(&"hit 1".into(), &0.into()), (&"hit 2".into(), &6.into())]);
    });
    life.end(rig);
}

#[test]
fn a_terminal_survives_too() {
    let rig = Rig::new();
    let life = Life::begin(&rig);
    let process = life.on(async {
        let start = StartRequest {
            pty: Some(Size { rows: 5, cols: 20 }),
            ..rig.command("echo hello; read x; echo $x")
        };
        let process = life.keeper.start(start).await.unwrap();
        until("it prints", || async { life.keeper.screen(&process.id).await.unwrap().lines[0] == "hello" })
            .await;
        process
    });
    life.die();
    let life = Life::begin(&rig);
    life.on(async {
        let screen = life.keeper.screen(&process.id).await.unwrap();
        assert_eq!((screen.size, screen.lines[0].as_str()), (Size { rows: 5, cols: 20 }, "hello"));
        let request = StdinRequest { data: "bye".into(), submit: true, ..StdinRequest::default() };
        life.keeper.stdin(&process.id, request).await.unwrap();
        assert_eq!(ended(&life.keeper, &process.id).await.exit_code, Some(0));
        // A foreground command works as before.
        assert_eq!(life.keeper.run(whole(rig.command("echo ok"))).await.unwrap().stdout, "ok\n");
    });
    life.end(rig);
}

#[test]
fn output_goes_on_at_the_byte() {
    let rig = Rig::new();
    let life = Life::begin(&rig);
    let process = life.on(async {
        rig.says(&life.keeper, "true").await;
        let start = rig.command("i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i+1)); sleep 0.005; done");
        life.keeper.start(start).await.unwrap()
    });
    life.die();
    let mut text = Vec::new();
    for _ in 0..4 {
        let life = Life::begin(&rig);
        life.on(async {
            let attach = AttachTo {
                id: process.id.clone(),
                target: None,
                instance: None,
                from: text.len() as u64,
                screen: false,
                until_closed: false,
                size: None,
            };
            let stream = life.keeper.stream(Open { start: None, attach: Some(attach) }, &()).await.unwrap();
            let mut capture = Capture::unlimited();
            let _ = tokio::time::timeout(Duration::from_millis(300), stream.follow(&mut capture)).await;
            text.extend(capture.output.to_bytes());
        });
        life.die();
    }
    let life = Life::begin(&rig);
    life.on(async {
        ended(&life.keeper, &process.id).await;
        let log = life.keeper.log(&process.id, LogQuery::default()).await.unwrap();
        text.extend_from_slice(&log.text.0[text.len()..]);
        let expected: String = (0..300).map(|i| format!("line {i}\n")).collect();
        assert_eq!(String::from_utf8(text).unwrap(), expected);
        assert_eq!(events_of(&life.keeper, EventKind::ProcessCompleted).await.len(), 1);
        assert_eq!(events_of(&life.keeper, EventKind::ProcessStarted).await.len(), 1);
    });
    life.end(rig);
}
