//! Commands whose caller waits for the end.

use crate::rig::{Rig, ended, events_of, until, whole};
use farshell_api::event::EventKind;
use farshell_api::process::{LogQuery, ProcessQuery, ProcessState};
use farshell_api::run::{OnBusy, OnTimeout, RunRequest, StartRequest};
use farshell_engine::Kind;
use farshell_keeper::Keeper;
use std::time::{Duration, Instant};

async fn is(keeper: &Keeper, id: &str, state: ProcessState) -> bool {
    keeper.process(id).await.is_ok_and(|process| process.state == state)
}

#[tokio::test]
async fn a_result_says_everything() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let request = StartRequest { id: Some("mine".into()), ..rig.command("echo out; echo err >&2; exit 7") };
    let result = keeper.run(whole(request.clone())).await.unwrap();
    assert_eq!((result.stdout.as_str(), result.stderr.as_str(), result.exit_code), ("out\n", "err\n", 7));
    assert_eq!((result.stdout_bytes, result.stderr_bytes, result.truncated), (4, 4, false));
    assert_eq!(
        (result.backend.as_str(), result.task.as_str(), result.session.as_str()),
        ("local", "default", "default")
    );
    assert_eq!((result.process_id.as_str(), result.encoding.as_str()), ("mine", "utf-8"));
    assert_eq!(result.cwd.as_deref(), rig.home().to_str());
    assert!(!result.place.id.is_empty() && !result.backgrounded && !result.timed_out);
    // The same id is the same command, and another command is refused.
    let again = keeper.run(whole(request)).await.unwrap();
    assert_eq!((again.stdout.as_str(), again.exit_code), ("out\n", 7));
    let other = StartRequest { id: Some("mine".into()), ..rig.command("echo other") };
    assert_eq!(keeper.run(whole(other)).await.unwrap_err().kind, Kind::AlreadyExists);
    rig.end(keeper).await;
}

#[tokio::test]
async fn exit_codes_stand_for_what_happened() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let result =
        keeper.run(whole(StartRequest { timeout: Some(0.3), ..rig.command("sleep 1000") })).await.unwrap();
    assert_eq!((result.exit_code, result.timed_out, result.survivors), (124, true, 0));
    assert!(result.killed >= 1);
    let result = rig.run(&keeper, "exec sh -c 'kill -9 $$'").await;
    assert_eq!(
        (result.exit_code, result.signal, result.signal_name.as_deref()),
        (137, Some(9), Some("SIGKILL"))
    );
    let nowhere = StartRequest { workdir: Some("/does/not/exist".into()), ..rig.command("true") };
    let result = keeper.run(whole(nowhere)).await.unwrap();
    assert_eq!((result.exit_code, result.workdir_failed), (126, true));
    rig.end(keeper).await;
}

#[tokio::test]
async fn input_and_output_have_bounds() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let text = "x".repeat(1 << 20);
    let request =
        RunRequest { input: Some(text.as_str().into()), max_output: 1000, ..rig.request("cat; echo end") };
    let result = keeper.run(request).await.unwrap();
    assert_eq!(result.stdout_bytes, (1 << 20) + 4);
    assert!(result.truncated && result.stdout.len() < 2000 && result.stdout.ends_with("xxend\n"));
    let request = RunRequest { input: Some("".into()), ..rig.request("cat") };
    assert_eq!(keeper.run(request).await.unwrap().exit_code, 0);
    // A command that does not read its input is not waited for.
    let request = RunRequest { input: Some(text.as_str().into()), ..rig.request("true") };
    assert_eq!(keeper.run(request).await.unwrap().exit_code, 0);
    let request = RunRequest { max_output: usize::MAX, ..rig.request("true") };
    assert_eq!(keeper.run(request).await.unwrap_err().operation, "reading max_output");
    let request = whole(StartRequest { timeout: Some(601.0), ..rig.command("true") });
    assert_eq!(keeper.run(request).await.unwrap_err().operation, "reading timeout");
    rig.end(keeper).await;
}

#[tokio::test]
async fn a_busy_session_is_waited_for_or_not() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    rig.says(&keeper, "true").await;
    let gate = rig.gate("gate");
    let first = {
        let start = rig.command(&format!("{}; echo first", gate.wait()));
        let (keeper, start) = (keeper.clone(), StartRequest { id: Some("first".into()), ..start });
        tokio::spawn(async move { keeper.run(whole(start)).await.unwrap().stdout })
    };
    until("it runs", || is(&keeper, "first", ProcessState::Running)).await;
    let refuse = StartRequest { on_busy: OnBusy::Refuse, ..rig.command("true") };
    assert_eq!(keeper.run(whole(refuse)).await.unwrap_err().kind, Kind::Busy);
    // One that waits can be seen, and given up.
    let queued = {
        let start = StartRequest { id: Some("queued".into()), ..rig.command("echo never") };
        let keeper = keeper.clone();
        tokio::spawn(async move { keeper.run(whole(start)).await })
    };
    until("it waits", || is(&keeper, "queued", ProcessState::Queued)).await;
    let list = keeper.processes(ProcessQuery::default()).await.unwrap();
    assert_eq!(list.len(), 2);
    assert!(list.iter().all(|process| !process.background));
    keeper.signal("queued", farshell_api::process::SignalRequest { signal: "INT".into() }).await.unwrap();
    assert_eq!(queued.await.unwrap().unwrap_err().kind, Kind::NotStarted);
    gate.open();
    assert_eq!(first.await.unwrap(), "first\n");
    rig.end(keeper).await;
}

#[tokio::test]
async fn a_running_one_is_known_by_its_id() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let start = StartRequest {
        id: Some("fore".into()),
        stdin: true,
        ..rig.command("read line; echo got $line; sleep 1000")
    };
    let running = {
        let keeper = keeper.clone();
        tokio::spawn(async move { keeper.run(whole(start)).await })
    };
    until("it runs", || is(&keeper, "fore", ProcessState::Running)).await;
    let request =
        farshell_api::process::StdinRequest { data: "hello".into(), submit: true, ..Default::default() };
    assert_eq!(keeper.stdin("fore", request).await.unwrap().taken, 6);
    until("it has answered", || async {
        keeper.log("fore", LogQuery::default()).await.unwrap().text.0 == b"got hello\n"
    })
    .await;
    let killed = keeper.kill("fore", Default::default()).await.unwrap();
    assert!(killed.killed >= 1 && killed.survivors == 0 && !killed.had_ended);
    let result = running.await.unwrap().unwrap();
    assert!(result.exit_code > 128 && result.survivors == 0, "{result:?}");
    let process = keeper.process("fore").await.unwrap();
    let found = (process.state, process.background, process.exit_code);
    assert_eq!(found, (ProcessState::Ended, false, Some(result.exit_code)));
    assert_eq!(keeper.processes(ProcessQuery::default()).await.unwrap(), []);
    assert_eq!(keeper.process("nobody").await.unwrap_err().kind, Kind::NotFound);
    rig.end(keeper).await;
}

#[tokio::test]
async fn when_its_time_is_up_it_can_go_on_in_the_background() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    rig.says(&keeper, "true").await;
    let gate = rig.gate("gate");
    let start = StartRequest {
        id: Some("long".into()),
        timeout: Some(3.0),
        on_timeout: OnTimeout::Background,
        notify_on_complete: true,
        ..rig.command(&format!("echo before; {}; echo after; exit 3", gate.wait()))
    };
    let begun = Instant::now();
    let result = keeper.run(whole(start.clone())).await.unwrap();
    assert!(begun.elapsed() > Duration::from_millis(2900), "{:?}", begun.elapsed());
    assert!(result.backgrounded && result.timed_out);
    assert_eq!((result.stdout.as_str(), result.exit_code, result.killed), ("before\n", 124, 0));
    let process = keeper.process("long").await.unwrap();
    assert_eq!((process.background, process.state), (true, ProcessState::Running));
    assert_eq!(keeper.environment("default").await.unwrap().background, 1);
    gate.open();
    let process = ended(&keeper, "long").await;
    assert_eq!((process.exit_code, process.stdout_bytes), (Some(3), 13));
    let completed = events_of(&keeper, EventKind::ProcessCompleted).await;
    assert_eq!(completed.len(), 1);
    assert_eq!(completed[0].data["notify_on_complete"], true);
    assert_eq!(completed[0].data["output_tail"], "before\nafter\n");
    // One that is fast enough is an ordinary command.
    let quick = StartRequest { id: None, timeout: Some(20.0), notify_on_complete: false, ..start };
    let quick = StartRequest { command: "echo quick".into(), ..quick };
    let result = keeper.run(whole(quick)).await.unwrap();
    assert_eq!((result.stdout.as_str(), result.exit_code, result.backgrounded), ("quick\n", 0, false));
    assert_eq!(events_of(&keeper, EventKind::ProcessCompleted).await.len(), 1);
    rig.end(keeper).await;
}

#[tokio::test]
async fn it_goes_on_in_the_background_also_without_its_caller() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    rig.says(&keeper, "true").await;
    let start = StartRequest {
        id: Some("left".into()),
        timeout: Some(4.0),
        on_timeout: OnTimeout::Background,
        ..rig.command("sleep 1000")
    };
    tokio::select! {
        ended = keeper.run(whole(start)) => panic!("{ended:?}"),
        () = until("it runs", || is(&keeper, "left", ProcessState::Running)) => {}
    }
    assert!(!keeper.process("left").await.unwrap().background);
    until("its time is up", || async { keeper.process("left").await.unwrap().background }).await;
    let process = keeper.process("left").await.unwrap();
    assert_eq!(process.state, ProcessState::Running);
    assert!(process.duration_ms > 3900, "{}", process.duration_ms);
    keeper.kill("left", Default::default()).await.unwrap();
    assert_eq!(events_of(&keeper, EventKind::ProcessCompleted).await.len(), 1);
    rig.end(keeper).await;
}

#[tokio::test]
async fn the_time_in_the_queue_does_not_count() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    rig.says(&keeper, "true").await;
    let gate = rig.gate("gate");
    let first = {
        let (keeper, start) = (keeper.clone(), rig.command(&gate.wait()));
        let start = StartRequest { id: Some("first".into()), ..start };
        tokio::spawn(async move { keeper.run(whole(start)).await.unwrap() })
    };
    until("it runs", || is(&keeper, "first", ProcessState::Running)).await;
    let start = StartRequest {
        id: Some("second".into()),
        timeout: Some(3.0),
        on_timeout: OnTimeout::Background,
        ..rig.command("echo done")
    };
    let opening = async {
        until("it waits", || is(&keeper, "second", ProcessState::Queued)).await;
        tokio::time::sleep(Duration::from_millis(3500)).await;
        gate.open();
    };
    let (result, ()) = tokio::join!(keeper.run(whole(start)), opening);
    let result = result.unwrap();
    assert_eq!((result.stdout.as_str(), result.backgrounded), ("done\n", false));
    first.await.unwrap();
    rig.end(keeper).await;
}

/// As of a prompt that asks the network, or a tool that waits for a lock.
#[tokio::test]
async fn start_files_that_wait_are_named() {
    let rig = Rig::new();
    std::fs::write(rig.home().join(".bashrc"), "sleep 1000\n").unwrap();
    let keeper = rig.open().await;
    let first = rig.run(&keeper, "echo hi").await;
    assert_eq!(first.stdout, "hi\n");
    let note = first.note.unwrap();
    assert!(note.contains("start files") && note.contains("left out in the end"), "{note}");
    assert_eq!(rig.run(&keeper, "echo again").await.note, None, "once");
    rig.end(keeper).await;
}
