//! How environments end: when nobody uses them, and when somebody wants it.

use crate::rig::{PATIENCE, Rig, ended, events_of, until, whole};
use farshell_api::environment::{EnvironmentState, RemoveRequest};
use farshell_api::event::EventKind;
use farshell_api::process::ProcessState;
use farshell_api::run::StartRequest;
use farshell_engine::Kind;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const SHORT: &str = "terminal:\n  lifetime_seconds: 1\n";

#[tokio::test]
async fn one_that_is_not_used_is_put_away_and_made_again() {
    let rig = Rig::new();
    rig.config(SHORT);
    let keeper = rig.open().await;
    rig.says(&keeper, "export A=1").await;
    let used = Instant::now();
    until("the environment is gone", || async { keeper.environments().await.unwrap().is_empty() }).await;
    assert!(used.elapsed() >= Duration::from_millis(950), "after {:?}", used.elapsed());
    until("the outpost is gone", || async { rig.outposts().is_empty() }).await;
    assert!(!rig.run_dir("default").exists());
    let removed = events_of(&keeper, EventKind::EnvironmentRemoved).await;
    assert_eq!(removed.len(), 1);
    assert_eq!(removed[0].data["reason"], "idle");
    assert_eq!(rig.says(&keeper, "echo $A").await, "\n", "the next call makes it anew");
    rig.end(keeper).await;
}

#[tokio::test]
async fn what_runs_keeps_it() {
    let rig = Rig::new();
    rig.config("terminal:\n  lifetime_seconds: 3\n");
    let keeper = rig.open().await;
    let (background, foreground) = (rig.gate("background"), rig.gate("foreground"));
    let process = keeper.start(rig.command(&format!("{}; echo done", background.wait()))).await.unwrap();
    let environment = keeper.environment("default").await.unwrap();
    assert_eq!((environment.background, environment.expires_at), (1, None));
    let long = keeper.run(rig.request(&format!("{}; echo fine", foreground.wait())));
    let during = async {
        // Longer than the lifetime.
        tokio::time::sleep(Duration::from_secs(4)).await;
        let environment = keeper.environment("default").await.unwrap();
        assert_eq!((environment.foreground, environment.state), (1, EnvironmentState::Ready));
        foreground.open();
    };
    let (long, ()) = tokio::join!(long, during);
    assert_eq!(long.unwrap().stdout, "fine\n");
    background.open();
    let process = ended(&keeper, &process.id).await;
    assert_eq!((process.state, process.exit_code), (ProcessState::Ended, Some(0)));
    assert_eq!(keeper.environments().await.unwrap().len(), 1, "its last use was a moment ago");
    until("the environment is gone", || async { keeper.environments().await.unwrap().is_empty() }).await;
    rig.end(keeper).await;
}

#[tokio::test]
async fn a_caller_who_goes_away_leaves_his_command_running() {
    let rig = Rig::new();
    rig.config(SHORT);
    let keeper = rig.open().await;
    rig.says(&keeper, "true").await;
    let (begun, gate, file) = (rig.home().join("begun"), rig.gate("gate"), rig.home().join("done"));
    let text = format!("touch {}; {}; echo x >{}", begun.display(), gate.wait(), file.display());
    tokio::select! {
        ended = keeper.run(rig.request(&text)) => panic!("{ended:?}"),
        () = until("it runs", || async { begun.exists() }) => {}
    }
    // Longer than the lifetime.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(keeper.counts().await.unwrap().foreground, 1);
    gate.open();
    until("the command has ended", || async { file.exists() }).await;
    until("the environment is gone", || async { keeper.environments().await.unwrap().is_empty() }).await;
    rig.end(keeper).await;
}

/// Calls come again and again at the very moment at which the environment is put away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_and_the_reaper_do_not_meet() {
    let rig = Rig::new();
    rig.config(SHORT);
    let keeper = rig.open().await;
    let callers: Vec<_> = (0..4)
        .map(|caller: u64| {
            let (keeper, command) = (keeper.clone(), rig.command("echo ok"));
            tokio::spawn(async move {
                for round in 0..12 {
                    let start = StartRequest { session: format!("c{caller}"), ..command.clone() };
                    let result = keeper.run(whole(start)).await.unwrap();
                    assert_eq!((result.exit_code, result.stdout.as_str()), (0, "ok\n"));
                    // Around the lifetime, a little before and a little after.
                    let wait = 980 + (round * 7 + caller * 3) % 40;
                    tokio::time::sleep(Duration::from_millis(wait)).await;
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    until("the environment is gone", || async { keeper.environments().await.unwrap().is_empty() }).await;
    until("the outpost is gone", || async { rig.outposts().is_empty() }).await;
    let created = events_of(&keeper, EventKind::EnvironmentCreated).await.len();
    let removed = events_of(&keeper, EventKind::EnvironmentRemoved).await.len();
    assert_eq!(created, removed);
    rig.end(keeper).await;
}

/// The same for removals, which come at any moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_and_removals_do_not_meet() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let caller = {
        let (keeper, request) = (keeper.clone(), rig.request("echo ok"));
        tokio::spawn(async move {
            for n in 0..200 {
                let result = keeper.run(request.clone()).await.unwrap();
                assert_eq!((result.exit_code, result.stdout.as_str()), (0, "ok\n"));
                tokio::time::sleep(Duration::from_millis(n % 5)).await;
            }
        })
    };
    let mut removed = 0;
    while !caller.is_finished() {
        // Not by force: a command that runs stands in the way.
        let all = RemoveRequest { all: true, ..RemoveRequest::default() };
        removed += keeper.remove(all).await.unwrap().removed.len();
        tokio::time::sleep(Duration::from_millis(7)).await;
    }
    caller.await.unwrap();
    assert!(removed > 1, "{removed}");
    rig.end(keeper).await;
}

#[tokio::test]
async fn removal_is_refused_while_something_runs_and_done_by_force() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    // A kill that comes before the trap, or before the command has begun, has another outcome.
    let (deaf, begun) = (rig.home().join("deaf"), rig.home().join("begun"));
    let command = format!("trap '' TERM; >'{}'; sleep 1000 & wait; sleep 1000", deaf.display());
    let process = keeper.start(rig.command(&command)).await.unwrap();
    let running = {
        let (keeper, request) = (keeper.clone(), rig.request(&format!(">'{}'; sleep 1000", begun.display())));
        tokio::spawn(async move { keeper.run(request).await })
    };
    until("both run", || async { deaf.exists() && begun.exists() }).await;
    let by_name = |force| RemoveRequest { names: vec!["default".into()], force, ..RemoveRequest::default() };
    let refused = keeper.remove(by_name(false)).await.unwrap();
    assert_eq!(refused.removed, Vec::<String>::new());
    assert_eq!(refused.failed[0].error.kind, "busy");
    assert_eq!(keeper.environment("default").await.unwrap().background, 1);

    let removed = keeper.remove(by_name(true)).await.unwrap();
    assert_eq!((removed.removed, removed.failed), (vec!["local/default".to_owned()], vec![]));
    let result = running.await.unwrap().unwrap();
    assert!(result.exit_code > 128 && result.survivors == 0, "{result:?}");
    let process = ended(&keeper, &process.id).await;
    assert_eq!((process.state, process.signal), (ProcessState::Ended, Some(9)));
    assert_eq!(events_of(&keeper, EventKind::ProcessCompleted).await.len(), 1);
    assert_eq!(keeper.remove(by_name(true)).await.unwrap().failed[0].error.kind, "not_found");
    let nothing = RemoveRequest::default();
    assert_eq!(keeper.remove(nothing).await.unwrap_err().kind, Kind::Invalid);
    rig.nothing_left();
    rig.end(keeper).await;
}

#[tokio::test]
async fn one_can_be_put_away() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    rig.says(&keeper, "true").await;
    let stop = RemoveRequest { names: vec!["default".into()], stop: true, ..RemoveRequest::default() };
    assert_eq!(keeper.remove(stop).await.unwrap().removed, ["local/default"]);
    assert_eq!(events_of(&keeper, EventKind::EnvironmentStopped).await.len(), 1);
    rig.nothing_left();
    rig.end(keeper).await;
}

#[tokio::test]
async fn the_longest_lifetime_is_no_trouble() {
    let rig = Rig::new();
    rig.config("terminal:\n  lifetime_seconds: 1000000000\n");
    let keeper = rig.open().await;
    assert_eq!(rig.says(&keeper, "echo ok").await, "ok\n");
    assert!(keeper.environment("default").await.unwrap().expires_at.is_some());
    rig.end(keeper).await;
}

#[tokio::test]
async fn a_command_whose_outpost_dies_has_an_unknown_outcome() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    rig.says(&keeper, "true").await;
    let running = {
        let (keeper, request) = (keeper.clone(), rig.request("sleep 1000"));
        tokio::spawn(async move { keeper.run(request).await })
    };
    until("it runs", || async { keeper.counts().await.unwrap().foreground == 1 }).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    rig.kill_outposts();
    assert_eq!(running.await.unwrap().unwrap_err().kind, Kind::UnknownOutcome);
    assert_eq!(keeper.counts().await.unwrap().foreground, 0);
    assert_eq!(rig.says(&keeper, "echo ok").await, "ok\n");
    rig.end(keeper).await;
}

#[tokio::test]
async fn one_that_can_not_be_reached_fails_and_comes_back() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    rig.says(&keeper, "true").await;
    rig.backends.unreachable.store(true, Ordering::SeqCst);
    rig.kill_outposts();
    // Whoever is sent a command at this very moment waits for half a minute.
    tokio::time::sleep(Duration::from_millis(200)).await;
    until("it is noticed", || async {
        let _ = keeper.run(rig.request("true")).await;
        keeper.environment("default").await.unwrap().state == EnvironmentState::Failed
    })
    .await;
    let environment = keeper.environment("default").await.unwrap();
    assert_eq!(environment.foreground, 0);
    assert!(environment.note.unwrap().contains("out of reach"));
    rig.backends.unreachable.store(false, Ordering::SeqCst);
    assert_eq!(rig.says(&keeper, "echo ok").await, "ok\n");
    assert_eq!(keeper.environment("default").await.unwrap().state, EnvironmentState::Ready);
    rig.end(keeper).await;
}

#[tokio::test]
async fn closing_can_remove_everything() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let process = keeper.start(rig.command("sleep 1000")).await.unwrap();
    keeper.close(true).await.unwrap();
    rig.nothing_left();
    let keeper = rig.open().await;
    assert_eq!(keeper.environments().await.unwrap(), []);
    assert_eq!(keeper.process(&process.id).await.unwrap().state, ProcessState::Ended);
    rig.end(keeper).await;
}

#[tokio::test]
async fn an_outpost_whose_directory_was_taken_away_is_ended() {
    let rig = Rig::new();
    rig.config(SHORT);
    let keeper = rig.open().await;
    rig.says(&keeper, "true").await;
    std::fs::rename(rig.home().join("farshell/run"), rig.home().join("away")).unwrap();
    assert_eq!(rig.outposts().len(), 1);
    until("the outpost is gone", || async { rig.outposts().is_empty() }).await;
    until("the environment, too", || async { keeper.environments().await.unwrap().is_empty() }).await;
    rig.end(keeper).await;
}

#[tokio::test]
async fn silence_is_noticed() {
    let rig = Rig::new();
    rig.config(SHORT);
    let keeper = rig.open().await;
    rig.says(&keeper, "true").await;
    let begun = Instant::now();
    tokio::time::timeout(PATIENCE, keeper.idle_for(Duration::from_millis(500))).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(1400), "{:?}", begun.elapsed());
    assert_eq!(keeper.environments().await.unwrap(), []);
    assert_eq!(keeper.counts().await.unwrap().environments, 0);
    rig.end(keeper).await;
}

#[tokio::test]
async fn an_outpost_that_was_killed_is_replaced_and_that_is_said() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    rig.says(&keeper, "export A=1").await;
    let process = keeper.start(rig.command("sleep 1000")).await.unwrap();
    rig.kill_outposts();
    let lost = ended(&keeper, &process.id).await;
    assert_eq!(lost.state, ProcessState::Lost);
    assert!(lost.note.unwrap().contains("is gone"));
    let completed = events_of(&keeper, EventKind::ProcessCompleted).await;
    assert_eq!(completed.len(), 1);
    assert_eq!(completed[0].data["state"], "lost");
    assert_eq!(rig.says(&keeper, "echo $A").await, "\n", "a session begins anew");
    let environment = keeper.environment("default").await.unwrap();
    assert_eq!((environment.state, environment.background), (EnvironmentState::Ready, 0));
    assert!(environment.note.unwrap().contains("lost"));
    assert!(keeper.kill(&process.id, Default::default()).await.unwrap().had_ended);
    rig.end(keeper).await;
}
