//! Input, signals, kills and terminals.

use crate::rig::{Rig, ended, runs, until};
use farshell_api::process::{
    KillRequest, LogQuery, Process, ProcessQuery, ProcessState, SignalRequest, StdinRequest, WaitingFor,
};
use farshell_api::run::{Size, StartRequest};
use farshell_engine::Kind;
use farshell_keeper::Keeper;
use std::time::Duration;

async fn log(keeper: &Keeper, id: &str) -> String {
    keeper.log(id, LogQuery::default()).await.unwrap().text.lossy().into_owned()
}

async fn prints(keeper: &Keeper, id: &str, text: &str) {
    until(text, || async { log(keeper, id).await.contains(text) }).await;
}

#[tokio::test]
async fn input_to_a_pipe() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let start = StartRequest { stdin: true, ..rig.command("cat; echo closed") };
    let process = keeper.start(start).await.unwrap();
    let send = |data: &str, submit, eof, offset| {
        keeper.stdin(&process.id, StdinRequest { data: data.into(), submit, eof, offset })
    };
    assert_eq!(send("one", false, false, None).await.unwrap().taken, 3);
    assert_eq!(send(" two", true, false, None).await.unwrap().taken, 8);
    assert_eq!(send("three\n", false, false, Some(8)).await.unwrap().taken, 14);
    assert_eq!(send("three\n", false, false, Some(8)).await.unwrap().taken, 14, "repeated, it adds nothing");
    assert_eq!(send("x", false, false, Some(20)).await.unwrap_err().kind, Kind::Invalid, "a hole");
    let many = (0..20).map(|_| send("m", false, false, None));
    let many: Vec<_> = many.collect();
    for sent in many {
        sent.await.unwrap();
    }
    assert_eq!(send("\n", false, true, None).await.unwrap().taken, 35);
    let done = ended(&keeper, &process.id).await;
    assert_eq!(done.exit_code, Some(0));
    assert_eq!(log(&keeper, &process.id).await, format!("one two\nthree\n{}\nclosed\n", "m".repeat(20)));
    assert_eq!(send("late", false, false, None).await.unwrap_err().kind, Kind::Invalid);
    let silent = keeper.start(rig.command("cat; sleep 1000")).await.unwrap();
    let request = StdinRequest { data: "x".into(), ..StdinRequest::default() };
    assert_eq!(keeper.stdin(&silent.id, request).await.unwrap_err().kind, Kind::Invalid, "it has no input");
    rig.end(keeper).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn input_from_many_at_once_is_all_taken() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let process =
        keeper.start(StartRequest { stdin: true, ..rig.command("sort | uniq -c | wc -l") }).await.unwrap();
    let senders: Vec<_> = (0..50)
        .map(|n| {
            let (keeper, id) = (keeper.clone(), process.id.clone());
            tokio::spawn(async move {
                let request =
                    StdinRequest { data: format!("{n}").into(), submit: true, ..Default::default() };
                keeper.stdin(&id, request).await.unwrap();
            })
        })
        .collect();
    for sender in senders {
        sender.await.unwrap();
    }
    keeper.stdin(&process.id, StdinRequest { eof: true, ..Default::default() }).await.unwrap();
    ended(&keeper, &process.id).await;
    assert_eq!(log(&keeper, &process.id).await.trim(), "50");
    rig.end(keeper).await;
}

#[tokio::test]
async fn signals_and_kills() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let process = keeper
        .start(rig.command("trap 'echo usr1' USR1; trap '' TERM; echo ready; (setsid sleep 1000 &); while :; do sleep 0.05; done"))
        .await
        .unwrap();
    prints(&keeper, &process.id, "ready").await;
    for signal in ["USR1", "SIGUSR1", "10"] {
        keeper.signal(&process.id, SignalRequest { signal: signal.into() }).await.unwrap();
    }
    prints(&keeper, &process.id, "usr1").await;
    let bad = SignalRequest { signal: "NOPE".into() };
    assert_eq!(keeper.signal(&process.id, bad).await.unwrap_err().operation, "reading signal");
    let bad = KillRequest { grace: Some(-1.0) };
    assert_eq!(keeper.kill(&process.id, bad).await.unwrap_err().operation, "reading grace");
    let killed = keeper.kill(&process.id, KillRequest { grace: Some(0.2) }).await.unwrap();
    assert!(killed.killed >= 2, "with what it started in a session of its own: {killed:?}");
    assert_eq!((killed.survivors, killed.had_ended), (0, false));
    let done = keeper.process(&process.id).await.unwrap();
    assert_eq!(
        (done.state, done.signal),
        (ProcessState::Ended, Some(9)),
        "it is recorded when the kill returns"
    );
    assert!(!runs(done.pid.unwrap()));
    let again = keeper.kill(&process.id, KillRequest::default()).await.unwrap();
    assert!(again.had_ended);
    let late = SignalRequest { signal: "INT".into() };
    assert!(keeper.signal(&process.id, late).await.is_err());
    assert_eq!(keeper.kill("nobody", KillRequest::default()).await.unwrap_err().kind, Kind::NotFound);
    rig.end(keeper).await;
}

#[tokio::test]
async fn terminals_have_a_size_and_a_screen() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let script = "trap 'stty size' WINCH; stty size; printf '\\033]0;my title\\007'; read line; echo got:$line; while :; do sleep 0.05; done";
    let start = StartRequest { pty: Some(Size { rows: 10, cols: 40 }), ..rig.command(script) };
    let process = keeper.start(start).await.unwrap();
    assert!(process.pty);
    prints(&keeper, &process.id, "10 40").await;
    let submit = StdinRequest { data: "hello".into(), submit: true, ..StdinRequest::default() };
    keeper.stdin(&process.id, submit).await.unwrap();
    prints(&keeper, &process.id, "got:hello").await;
    keeper.resize(&process.id, Size { rows: 20, cols: 50 }).await.unwrap();
    prints(&keeper, &process.id, "20 50").await;
    let screen = keeper.screen(&process.id).await.unwrap();
    assert_eq!(
        (screen.size, screen.title.as_str(), screen.alternate),
        (Size { rows: 20, cols: 50 }, "my title", false)
    );
    assert_eq!(screen.lines.len(), 20);
    assert_eq!(screen.lines[..4], ["10 40", "hello", "got:hello", "20 50"]);
    assert_eq!(screen.cursor, [4, 0]);
    assert_eq!(keeper.resize(&process.id, Size { rows: 0, cols: 1 }).await.unwrap_err().kind, Kind::Invalid);
    let plain = keeper.start(rig.command("sleep 1000")).await.unwrap();
    assert_eq!(keeper.screen(&plain.id).await.unwrap_err().kind, Kind::Invalid);
    assert_eq!(keeper.resize(&plain.id, Size { rows: 9, cols: 9 }).await.unwrap_err().kind, Kind::Invalid);
    rig.end(keeper).await;
}

#[tokio::test]
async fn one_that_waits_for_input_is_seen_to() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let script = "read a; stty -echo; read b; stty echo; sleep 1000";
    let start = StartRequest { pty: Some(Size { rows: 24, cols: 80 }), ..rig.command(script) };
    let process = keeper.start(start).await.unwrap();
    let enter = || StdinRequest { submit: true, ..StdinRequest::default() };
    for waiting in [WaitingFor::Input, WaitingFor::Secret] {
        until("it waits", || async {
            keeper.process(&process.id).await.unwrap().waiting_for == Some(waiting)
        })
        .await;
        let list = keeper.processes(Default::default()).await.unwrap();
        assert_eq!(list[0].waiting_for, Some(waiting));
        keeper.stdin(&process.id, enter()).await.unwrap();
    }
    until("it does not", || async { keeper.process(&process.id).await.unwrap().waiting_for.is_none() }).await;
    rig.end(keeper).await;
}

#[tokio::test]
async fn several_outposts_that_are_silent_cost_the_time_of_one() {
    use rustix::process::Signal;
    let rig = Rig::new();
    rig.config("terminal:\n  isolation: task\n");
    let keeper = rig.open().await;
    let tasks = ["a", "b", "c", "d"];
    for task in tasks {
        let start = StartRequest { target: rig.target(task), ..StartRequest::new("sleep 1000") };
        keeper.start(start).await.unwrap();
    }
    let outposts = rig.outposts();
    assert_eq!(outposts.len(), tasks.len());
    outposts.iter().for_each(|pid| crate::rig::signal(*pid, Signal::STOP));
    let begun = std::time::Instant::now();
    let list = keeper.processes(ProcessQuery::default()).await.unwrap();
    let took = begun.elapsed();
    outposts.iter().for_each(|pid| crate::rig::signal(*pid, Signal::CONT));
    let silent = |process: &&Process| process.unreachable.as_deref() == Some("no answer in 5 s");
    assert_eq!(list.iter().filter(silent).count(), tasks.len(), "{list:?}");
    // One after the other they are silent for 20.
    assert!(took < Duration::from_secs(15), "{took:?}");
    rig.end(keeper).await;
}
