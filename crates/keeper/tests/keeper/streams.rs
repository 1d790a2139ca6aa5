//! Processes followed live.

use crate::rig::{Rig, Shared, ended, leave_at, until};
use farshell_api::process::ProcessState;
use farshell_api::run::{OnTimeout, Size, StartRequest};
use farshell_api::stream::{AttachTo, Open};
use farshell_engine::Kind;
use farshell_engine::capture::Capture;
use farshell_keeper::{Keeper, StreamEnd};

fn start(start: StartRequest) -> Open {
    Open { start: Some(Box::new(start)), attach: None }
}

fn attach(id: &str) -> AttachTo {
    AttachTo {
        id: id.into(),
        target: None,
        instance: None,
        from: 0,
        screen: false,
        until_closed: false,
        size: None,
    }
}

fn to(attach: AttachTo) -> Open {
    Open { start: None, attach: Some(attach) }
}

/// What a server with many tasks needs.
fn _futures_can_be_sent(keeper: &'static Keeper, control: &'static farshell_keeper::Control) {
    fn sent(_: impl Future + Send) {}
    sent(keeper.stream(to(attach("x")), &()));
    sent(async { keeper.stream(to(attach("x")), &()).await.unwrap().follow(&mut Shared::default()).await });
    sent(keeper.idle_for(std::time::Duration::ZERO));
    sent(keeper.wait("x", Default::default()));
    sent(keeper.processes(Default::default()));
    sent(keeper.stdin("x", Default::default()));
    sent(keeper.screen("x"));
    sent(keeper.close(true));
    sent(control.stdin(0, Vec::new(), true));
    sent(control.signal("INT"));
    sent(control.resize(Size { rows: 1, cols: 1 }));
    sent(control.kill(None));
}

async fn follow(keeper: &Keeper, open: Open) -> (StreamEnd, String) {
    let stream = keeper.stream(open, &()).await.unwrap();
    let mut capture = Capture::unlimited();
    let end = stream.follow(&mut capture).await.unwrap();
    (end, String::from_utf8(capture.output.to_bytes()).unwrap())
}

#[tokio::test]
async fn a_command_with_input() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let command = StartRequest { stdin: true, id: Some("s".into()), ..rig.command("cat; exit 4") };
    let stream = keeper.stream(start(command), &()).await.unwrap();
    assert_eq!((stream.process.state, stream.process.id.as_str()), (ProcessState::Starting, "s"));
    assert!(stream.instance.is_some());
    let control = stream.control();
    let mut capture = Capture::unlimited();
    let feed = async {
        // It comes before the start does.
        assert_eq!(control.stdin(0, b"abc".to_vec(), false).await.unwrap(), 3);
        assert_eq!(control.stdin(3, b"def".to_vec(), true).await.unwrap(), 6);
    };
    let (end, ()) = tokio::join!(stream.follow(&mut capture), feed);
    let StreamEnd::Ended(process) = end.unwrap() else { panic!() };
    assert_eq!((process.exit_code, process.background), (Some(4), false));
    assert_eq!(capture.stdout.to_bytes(), b"abcdef");
    rig.end(keeper).await;
}

#[tokio::test]
async fn it_can_be_killed_and_signalled() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    for (kill, code) in [(true, 128 + 9), (false, 128 + 2)] {
        let stream = keeper.stream(start(rig.command("echo begun; sleep 1000")), &()).await.unwrap();
        let control = stream.control();
        let sink = Shared::default();
        let mut output = sink.clone();
        let stop = async {
            until("it runs", || async { sink.text() == "begun\n" }).await;
            match kill {
                true => assert_eq!(control.kill(Some(0.0)).await.unwrap().survivors, 0),
                false => control.signal("INT").await.unwrap(),
            }
        };
        let (end, ()) = tokio::join!(stream.follow(&mut output), stop);
        let StreamEnd::Ended(process) = end.unwrap() else { panic!() };
        assert_eq!(process.exit_code, Some(code));
    }
    rig.end(keeper).await;
}

#[tokio::test]
async fn a_kill_that_comes_with_the_start_is_not_lost() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    for n in 0..40 {
        let session = format!("s{n}");
        let command = StartRequest { session, timeout: Some(20.0), ..rig.command("echo begun; sleep 1000") };
        let stream = keeper.stream(start(command), &()).await.unwrap();
        let control = stream.control();
        let mut output = Shared::default();
        let (end, killed) = tokio::join!(stream.follow(&mut output), control.kill(Some(0.0)));
        assert_eq!(killed.unwrap().survivors, 0);
        match end {
            Ok(StreamEnd::Ended(process)) => {
                assert_eq!((process.exit_code, process.timed_out), (Some(137), false));
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => assert_eq!(error.kind, Kind::NotStarted),
        }
    }
    rig.end(keeper).await;
}

#[tokio::test]
async fn a_stream_that_breaks_goes_on_at_the_byte() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let gate = rig.gate("gate");
    let text = format!("echo 1; echo 2; {}; for i in 3 4 5 6; do echo $i; sleep 0.02; done", gate.wait());
    let command = StartRequest { id: Some("s".into()), ..rig.command(&text) };
    let stream = keeper.stream(start(command), &()).await.unwrap();
    let instance = stream.instance.clone();
    leave_at("1\n2\n", stream).await;
    assert_eq!(keeper.counts().await.unwrap().foreground, 1, "it goes on");
    let again = AttachTo { from: 4, instance, target: Some(rig.target("default")), ..attach("s") };
    let ((end, rest), ()) = tokio::join!(follow(&keeper, to(again)), async { gate.open() });
    assert_eq!(rest, "3\n4\n5\n6\n");
    assert!(matches!(end, StreamEnd::Ended(process) if process.exit_code == Some(0)));
    until("it is forgotten", || async { keeper.counts().await.unwrap().foreground == 0 }).await;
    rig.end(keeper).await;
}

#[tokio::test]
async fn what_is_not_there_is_told_apart() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let kind = |attach: AttachTo| {
        let keeper = keeper.clone();
        async move { keeper.stream(to(attach), &()).await.unwrap_err().kind }
    };
    let target = || Some(rig.target("default"));
    assert_eq!(kind(attach("x")).await, Kind::NotFound);
    assert_eq!(kind(AttachTo { target: target(), ..attach("x") }).await, Kind::NotFound);
    let instance = Some("another".to_owned());
    assert_eq!(
        kind(AttachTo { target: target(), instance: instance.clone(), ..attach("x") }).await,
        Kind::UnknownOutcome
    );
    rig.says(&keeper, "true").await;
    assert_eq!(kind(AttachTo { target: target(), ..attach("x") }).await, Kind::NotFound);
    assert_eq!(kind(AttachTo { target: target(), instance, ..attach("x") }).await, Kind::UnknownOutcome);
    let neither = Open { start: None, attach: None };
    assert_eq!(keeper.stream(neither, &()).await.unwrap_err().kind, Kind::Invalid);

    let stream = keeper.stream(start(rig.command("true")), &()).await.unwrap();
    let (id, instance) = (stream.process.id.clone(), stream.instance.clone());
    drop(stream);
    // It was opened and never followed, so its start never arrived.
    let again = AttachTo { target: target(), instance, ..attach(&id) };
    assert_eq!(kind(again).await, Kind::NotFound);
    rig.end(keeper).await;
}

#[tokio::test]
async fn one_that_has_not_begun_can_be_killed_by_its_id() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    for _ in 0..5 {
        let command = StartRequest { timeout: Some(20.0), ..rig.command("sleep 1000") };
        let stream = keeper.stream(start(command), &()).await.unwrap();
        let id = stream.process.id.clone();
        let kill = {
            let keeper = keeper.clone();
            tokio::spawn(async move { keeper.kill(&id, Default::default()).await })
        };
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        let mut output = Shared::default();
        match stream.follow(&mut output).await {
            Ok(StreamEnd::Ended(process)) => assert!(!process.timed_out && process.exit_code > Some(128)),
            Ok(other) => panic!("{other:?}"),
            Err(error) => assert_eq!(error.kind, Kind::NotStarted),
        }
        assert_eq!(kill.await.unwrap().unwrap().survivors, 0);
    }
    rig.end(keeper).await;
}

#[tokio::test]
async fn a_background_process_is_followed_by_many() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let command = StartRequest {
        background: true,
        ..rig.command("for i in 1 2 3; do echo $i; sleep 0.2; done; exit 9")
    };
    let stream = keeper.stream(start(command), &()).await.unwrap();
    let id = stream.process.id.clone();
    assert!(stream.process.background);
    let followers: Vec<_> = (0..5)
        .map(|_| {
            let (keeper, id) = (keeper.clone(), id.clone());
            tokio::spawn(async move { follow(&keeper, to(attach(&id))).await })
        })
        .collect();
    for follower in followers {
        let (end, text) = follower.await.unwrap();
        assert_eq!(text, "1\n2\n3\n");
        assert!(matches!(end, StreamEnd::Ended(process) if process.exit_code == Some(9)));
    }
    drop(stream);
    // Also when it is over, from anywhere.
    let (_, text) = follow(&keeper, to(AttachTo { from: 4, ..attach(&id) })).await;
    assert_eq!(text, "3\n");
    crate::rig::remove_all(&keeper).await;
    let stream = keeper.stream(to(attach(&id)), &()).await.unwrap();
    let mut capture = Capture::unlimited();
    let end = stream.follow(&mut capture).await.unwrap();
    assert!(matches!(end, StreamEnd::Ended(process) if process.exit_code == Some(9)));
    assert_eq!(capture.gaps, [(0, 6)], "its log is gone, and that is said");
    rig.end(keeper).await;
}

#[tokio::test]
async fn a_stream_ends_when_its_command_is_made_a_background_process() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let gate = rig.gate("gate");
    let command = StartRequest {
        id: Some("p".into()),
        timeout: Some(0.4),
        on_timeout: OnTimeout::Background,
        ..rig.command(&format!("echo a; {}; echo b", gate.wait()))
    };
    let (end, text) = follow(&keeper, start(command)).await;
    let StreamEnd::Detached(process, reason) = end else { panic!("{end:?}") };
    assert!(process.background && reason.contains("timeout"), "{reason}");
    gate.open();
    let (end, rest) = follow(&keeper, to(AttachTo { from: text.len() as u64, ..attach("p") })).await;
    assert_eq!(text + &rest, "a\nb\n");
    assert!(matches!(end, StreamEnd::Ended(process) if process.exit_code == Some(0)));
    rig.end(keeper).await;
}

#[tokio::test]
async fn a_terminal_is_left_and_found_again() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let size = Size { rows: 8, cols: 30 };
    let script = "printf '\\033[?1049h\\033[2J\\033[3;5Hhello'; read x; printf '\\033[?1049l'; echo $x";
    let command = StartRequest { background: true, pty: Some(size), ..rig.command(script) };
    let process = keeper.start(command).await.unwrap();
    until("it has drawn", || async { keeper.screen(&process.id).await.unwrap().alternate }).await;
    let again = AttachTo { screen: true, size: Some(Size { rows: 9, cols: 31 }), ..attach(&process.id) };
    let stream = keeper.stream(to(again), &()).await.unwrap();
    let (redraw, offset) = stream.screen.clone().unwrap();
    assert!(String::from_utf8_lossy(&redraw).contains("hello"));
    assert!(offset > 0);
    assert_eq!(keeper.screen(&process.id).await.unwrap().size, Size { rows: 9, cols: 31 });
    let control = stream.control();
    let sink = Shared::default();
    let mut output = sink.clone();
    let taken = stream.stdin_taken;
    let feed = async { control.stdin(taken, b"word\r".to_vec(), false).await.unwrap() };
    let (end, _) = tokio::join!(stream.follow(&mut output), feed);
    assert!(matches!(end.unwrap(), StreamEnd::Ended(process) if process.exit_code == Some(0)));
    assert!(sink.text().ends_with("word\r\n") && !sink.text().contains("hello"), "{:?}", sink.text());
    ended(&keeper, &process.id).await;
    rig.end(keeper).await;
}
