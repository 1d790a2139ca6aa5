//! Background processes: started, seen, read, waited for.

use crate::rig::{Rig, all_events, ended, events_of, until};
use farshell_api::event::{AckRequest, EventKind, EventQuery};
use farshell_api::process::{LogQuery, ProcessQuery, ProcessState, View, WaitRequest};
use farshell_api::run::StartRequest;
use farshell_engine::Kind;
use std::time::{Duration, Instant};

#[tokio::test]
async fn from_start_to_end() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    rig.says(&keeper, "export FROM=session; mkdir sub; cd sub").await;
    let gate = rig.gate("gate");
    let text = format!("echo $FROM; basename $PWD; echo err >&2; {}; exit 5", gate.wait());
    let process = keeper.start(rig.command(&text)).await.unwrap();
    let begun = Instant::now();
    assert!(process.background && process.id.starts_with("proc_"));
    assert_eq!((process.state, process.exit_code), (ProcessState::Running, None));
    assert!(process.pid.is_some() && process.started_at.is_some());

    let list = keeper.processes(ProcessQuery::default()).await.unwrap();
    assert_eq!(list.len(), 1);
    assert_eq!((list[0].id.as_str(), list[0].state), (process.id.as_str(), ProcessState::Running));
    assert_eq!(keeper.counts().await.unwrap().background, 1);
    let none = ProcessQuery { task: Some("other".into()), all: true };
    assert_eq!(keeper.processes(none).await.unwrap(), []);

    let short = keeper.wait(&process.id, WaitRequest { timeout: Some(0.05) }).await.unwrap();
    assert_eq!(short.state, ProcessState::Running, "the wait is over before the process");
    tokio::time::sleep(Duration::from_secs(1).saturating_sub(begun.elapsed())).await;
    gate.open();
    let done = ended(&keeper, &process.id).await;
    assert_eq!((done.state, done.exit_code), (ProcessState::Ended, Some(5)));
    assert_eq!((done.stdout_bytes, done.stderr_bytes), (12, 4));
    assert!(done.duration_ms >= 900 && done.ended_at.unwrap() >= done.started_at.unwrap() + 900);
    assert_eq!(done, keeper.process(&process.id).await.unwrap());
    assert_eq!(keeper.processes(ProcessQuery::default()).await.unwrap(), []);
    assert_eq!(keeper.processes(ProcessQuery { task: None, all: true }).await.unwrap(), [done]);

    let completed = events_of(&keeper, EventKind::ProcessCompleted).await;
    assert_eq!(completed.len(), 1);
    let event = &completed[0];
    assert_eq!(
        (event.process_id.as_deref(), event.task.as_deref()),
        (Some(process.id.as_str()), Some("default"))
    );
    assert_eq!((&event.data["state"], &event.data["exit_code"]), (&"ended".into(), &5.into()));
    assert!(event.data["output_tail"].as_str().unwrap().contains("session\nsub\n"));
    assert_eq!(events_of(&keeper, EventKind::ProcessStarted).await.len(), 1);
    assert_eq!(rig.says(&keeper, "basename $PWD").await, "sub\n", "the session is as it was");
    rig.end(keeper).await;
}

#[tokio::test]
async fn a_repeated_start_starts_nothing() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let file = rig.home().join("count");
    let start =
        StartRequest { id: Some("once".into()), ..rig.command(&format!("echo x >>{}", file.display())) };
    let starts: Vec<_> = (0..20)
        .map(|_| {
            let (keeper, start) = (keeper.clone(), start.clone());
            tokio::spawn(async move { keeper.start(start).await.unwrap().id })
        })
        .collect();
    for start in starts {
        assert_eq!(start.await.unwrap(), "once");
    }
    ended(&keeper, "once").await;
    assert_eq!(keeper.start(start).await.unwrap().state, ProcessState::Ended);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "x\n");
    let other = StartRequest { id: Some("once".into()), ..rig.command("other") };
    assert_eq!(keeper.start(other).await.unwrap_err().kind, Kind::AlreadyExists);
    assert_eq!(events_of(&keeper, EventKind::ProcessCompleted).await.len(), 1);
    rig.end(keeper).await;
}

#[tokio::test]
async fn one_that_can_not_start_is_told_to_its_caller_and_in_an_event() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let start = StartRequest {
        id: Some("no".into()),
        workdir: Some("/does/not/exist".into()),
        ..rig.command("true")
    };
    let error = keeper.start(start).await.unwrap_err();
    assert!(error.message.contains("/does/not/exist"), "{error}");
    let process = keeper.process("no").await.unwrap();
    assert_eq!((process.state, process.exit_code), (ProcessState::NotStarted, None));
    let completed = events_of(&keeper, EventKind::ProcessCompleted).await;
    assert_eq!((completed.len(), &completed[0].data["state"]), (1, &"not_started".into()));
    assert_eq!(keeper.counts().await.unwrap().background, 0);
    assert_eq!(keeper.environment("default").await.unwrap().background, 0);
    rig.end(keeper).await;
}

#[tokio::test]
async fn a_timeout_ends_it() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let process =
        keeper.start(StartRequest { timeout: Some(0.3), ..rig.command("sleep 1000") }).await.unwrap();
    let process = ended(&keeper, &process.id).await;
    assert_eq!((process.exit_code, process.timed_out, process.survivors), (Some(124), true, 0));
    rig.end(keeper).await;
}

#[tokio::test]
async fn logs_by_offset_and_by_line() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let process = keeper.start(rig.command("seq 1 1000; echo err >&2; printf rest")).await.unwrap();
    ended(&keeper, &process.id).await;
    let read = |query: LogQuery| keeper.log(&process.id, query);
    let stdout = LogQuery { view: View::Stdout, ..LogQuery::default() };
    let total = 3893 + 4;

    let piece = read(LogQuery { offset: Some(2), len: Some(4), ..stdout.clone() }).await.unwrap();
    assert_eq!(
        (piece.text.lossy().as_ref(), piece.offset, piece.next, piece.total, piece.eof),
        ("2\n3\n", 2, 6, total, false)
    );
    let piece = read(LogQuery { offset: Some(-4), ..stdout.clone() }).await.unwrap();
    assert_eq!((piece.text.lossy().as_ref(), piece.next, piece.eof), ("rest", total, true));
    let piece = read(LogQuery { offset: Some(-1_000_000), len: Some(2), ..stdout.clone() }).await.unwrap();
    assert_eq!((piece.text.lossy().as_ref(), piece.offset), ("1\n", 0));
    let piece = read(LogQuery { offset: Some(1 << 40), ..stdout.clone() }).await.unwrap();
    assert_eq!((piece.text.0.len(), piece.offset, piece.next), (0, total, total));
    let piece = read(LogQuery { view: View::Stderr, ..LogQuery::default() }).await.unwrap();
    assert_eq!(piece.text.lossy(), "err\n");

    let piece = read(LogQuery { line: Some(10), lines: Some(2), ..stdout.clone() }).await.unwrap();
    assert_eq!(
        (piece.text.lossy().as_ref(), piece.line, piece.total_lines),
        ("11\n12\n", Some(10), Some(1000))
    );
    let piece = read(LogQuery { line: Some(-2), ..stdout.clone() }).await.unwrap();
    assert_eq!((piece.text.lossy().as_ref(), piece.line, piece.eof), ("1000\nrest", Some(999), true));
    let piece = read(LogQuery { lines: Some(1), ..stdout.clone() }).await.unwrap();
    assert_eq!((piece.text.lossy().as_ref(), piece.next), ("1\n", 2));
    let piece = read(LogQuery { line: Some(5000), ..stdout.clone() }).await.unwrap();
    assert_eq!((piece.text.0.len(), piece.line), (0, Some(1001)));
    let both = LogQuery { line: Some(1), offset: Some(1), ..stdout };
    assert_eq!(read(both).await.unwrap_err().kind, Kind::Invalid);
    assert_eq!(keeper.log("nobody", LogQuery::default()).await.unwrap_err().kind, Kind::NotFound);
    rig.end(keeper).await;
}

#[tokio::test]
async fn lines_of_a_huge_log() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let process = keeper.start(rig.command("seq 1 1000000")).await.unwrap();
    ended(&keeper, &process.id).await;
    let query = LogQuery { line: Some(999_000), lines: Some(1), ..LogQuery::default() };
    let piece = keeper.log(&process.id, query).await.unwrap();
    assert_eq!((piece.text.lossy().as_ref(), piece.total_lines), ("999001\n", Some(1_000_000)));
    let query = LogQuery { line: Some(-1000), lines: Some(2), ..LogQuery::default() };
    let piece = keeper.log(&process.id, query).await.unwrap();
    assert_eq!((piece.text.lossy().as_ref(), piece.line), ("999001\n999002\n", Some(999_000)));
    let query = LogQuery { line: Some(0), lines: Some(100_000), ..LogQuery::default() };
    assert!(keeper.log(&process.id, query).await.unwrap().text.0.len() <= 1 << 20);
    rig.end(keeper).await;
}

#[tokio::test]
async fn an_environment_takes_its_logs_with_it() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let process = keeper.start(rig.command("echo x")).await.unwrap();
    ended(&keeper, &process.id).await;
    crate::rig::remove_all(&keeper).await;
    let error = keeper.log(&process.id, LogQuery::default()).await.unwrap_err();
    assert_eq!(error.kind, Kind::NotFound);
    rig.says(&keeper, "true").await;
    let error = keeper.log(&process.id, LogQuery::default()).await.unwrap_err();
    assert_eq!(error.kind, Kind::NotFound, "the new environment has another outpost");
    assert_eq!(keeper.process(&process.id).await.unwrap().exit_code, Some(0), "its record stays");
    rig.end(keeper).await;
}

#[tokio::test]
async fn events_are_waited_for_and_acknowledged() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    rig.says(&keeper, "true").await;
    let last = keeper.counts().await.unwrap().last_event;
    let query = EventQuery { after: Some(last), wait: Some(0.05), ..EventQuery::default() };
    assert_eq!(keeper.events(query.clone()).await.unwrap().events, [], "the time is up");
    let waiting = {
        let keeper = keeper.clone();
        let query = EventQuery { wait: Some(60.0), task: Some("default".into()), ..query };
        tokio::spawn(async move { keeper.events(query).await.unwrap() })
    };
    tokio::time::sleep(Duration::from_millis(50)).await;
    let process = keeper.start(rig.command("true")).await.unwrap();
    let list = waiting.await.unwrap();
    assert_eq!(list.events[0].process_id.as_deref(), Some(process.id.as_str()));
    ended(&keeper, &process.id).await;

    let mine = || EventQuery { consumer: Some("me".into()), ..EventQuery::default() };
    let unseen = keeper.events(mine()).await.unwrap();
    assert_eq!(unseen.events.len(), all_events(&keeper).await.len());
    let middle = unseen.events[1].seq;
    keeper.ack(AckRequest { consumer: "me".into(), seq: middle }).await.unwrap();
    let rest = keeper.events(mine()).await.unwrap().events;
    assert!(rest.iter().all(|event| event.seq > middle) && rest.len() == unseen.events.len() - 2);
    let too_far = AckRequest { consumer: "me".into(), seq: 1 << 40 };
    assert_eq!(keeper.ack(too_far).await.unwrap_err().kind, Kind::Invalid);
    keeper.close(false).await.unwrap();
    let keeper = rig.open().await;
    assert_eq!(keeper.events(mine()).await.unwrap().events[0].seq, rest[0].seq, "it lasts");
    rig.end(keeper).await;
}

#[tokio::test]
async fn an_event_of_the_end_comes_after_its_process_is_seen_to_have_ended() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    for _ in 0..20 {
        let process = keeper.start(rig.command("exit 1")).await.unwrap();
        until("it has ended", || async {
            keeper.process(&process.id).await.unwrap().state == ProcessState::Ended
        })
        .await;
        let told = events_of(&keeper, EventKind::ProcessCompleted).await;
        assert!(told.iter().any(|event| event.process_id.as_deref() == Some(process.id.as_str())));
    }
    rig.end(keeper).await;
}
