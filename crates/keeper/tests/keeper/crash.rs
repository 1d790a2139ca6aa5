//! A keeper that dies, and the one after it: what it finds.

use crate::rig::{Life, PATIENCE, Rig, all_events, ended, events_of, until};
use farshell_api::environment::EnvironmentState;
use farshell_api::event::EventKind;
use farshell_api::process::{LogQuery, ProcessState, StdinRequest};
use farshell_api::run::StartRequest;
use farshell_engine::Kind;
use farshell_store::Store;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// Changes a record while no keeper has it.
pub(crate) fn edit_environment(rig: &Rig, change: impl FnOnce(&mut farshell_store::EnvironmentRow)) {
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let dir = rig.home().join("farshell");
        let store = loop {
            match Store::open(&dir).await {
                Ok((store, _)) => break store,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        let mut row = store.environments().await.unwrap().remove(0);
        change(&mut row);
        store.put_environment(row, None).await.unwrap();
        store.close().await.unwrap();
    });
}

#[test]
fn what_runs_is_found_and_what_ended_is_completed_once() {
    let rig = Rig::new();
    let life = Life::begin(&rig);
    let (runs, ends, fifo) = life.on(async {
        let keeper = &life.keeper;
        rig.says(keeper, "export A=kept").await;
        let runs =
            StartRequest { stdin: true, ..rig.command("echo begun; read line; echo got $line; exit 3") };
        let runs = keeper.start(runs).await.unwrap();
        let ends = keeper.start(rig.command("echo quick; sleep 0.5; exit 4")).await.unwrap();
        let done = keeper.start(rig.command("exit 5")).await.unwrap();
        ended(keeper, &done.id).await;
        until("it has begun", || async {
            !keeper.log(&runs.id, LogQuery::default()).await.unwrap().text.0.is_empty()
        })
        .await;
        (runs, ends, done)
    });
    life.die();
    assert_eq!(rig.outposts().len(), 1, "the outpost lives on");
    std::thread::sleep(Duration::from_millis(800));

    let life = Life::begin(&rig);
    life.on(async {
        let keeper = &life.keeper;
        let found = keeper.process(&runs.id).await.unwrap();
        assert_eq!(
            (found.state, found.pid, found.started_at),
            (ProcessState::Running, runs.pid, runs.started_at)
        );
        let ends = ended(keeper, &ends.id).await;
        assert_eq!((ends.state, ends.exit_code), (ProcessState::Ended, Some(4)));
        assert!((400..5000).contains(&ends.duration_ms), "{}", ends.duration_ms);
        assert_eq!(ends.ended_at, Some(ends.started_at.unwrap() + ends.duration_ms));
        assert_eq!(keeper.environment("default").await.unwrap().background, 1);

        let request = StdinRequest { data: "word".into(), submit: true, ..StdinRequest::default() };
        assert_eq!(keeper.stdin(&runs.id, request).await.unwrap().taken, 5);
        let runs = ended(keeper, &runs.id).await;
        assert_eq!(runs.exit_code, Some(3));
        let log = keeper.log(&runs.id, LogQuery { offset: Some(6), ..LogQuery::default() }).await.unwrap();
        assert_eq!(log.text.lossy(), "got word\n");
        assert_eq!(rig.says(keeper, "echo $A").await, "kept\n", "sessions live on");
        let completed = events_of(keeper, EventKind::ProcessCompleted).await;
        let mut told: Vec<_> = completed.iter().filter_map(|event| event.process_id.clone()).collect();
        told.sort();
        let mut all = [runs.id, ends.id, fifo.id];
        all.sort();
        assert_eq!(told, all);
        assert_eq!(events_of(keeper, EventKind::EnvironmentCreated).await.len(), 1);
    });
    life.end(rig);
}

#[test]
fn what_died_with_its_outpost_is_lost_once() {
    let rig = Rig::new();
    let life = Life::begin(&rig);
    let process = life.on(async { life.keeper.start(rig.command("sleep 1000")).await.unwrap() });
    life.die();
    rig.kill_outposts();
    for _ in 0..2 {
        let life = Life::begin(&rig);
        life.on(async {
            let process = ended(&life.keeper, &process.id).await;
            assert_eq!((process.state, process.exit_code), (ProcessState::Lost, None));
            let completed = events_of(&life.keeper, EventKind::ProcessCompleted).await;
            assert_eq!((completed.len(), &completed[0].data["state"]), (1, &"lost".into()));
        });
        life.die();
    }
    let life = Life::begin(&rig);
    life.on(async {
        let pid = process.pid.unwrap();
        until("what it left is swept", || async { !crate::rig::runs(pid) }).await;
        let environment = life.keeper.environment("default").await.unwrap();
        assert_eq!(environment.state, EnvironmentState::Ready);
    });
    life.end(rig);
}

#[test]
fn what_can_not_be_reached_is_not_given_up() {
    let rig = Rig::new();
    let life = Life::begin(&rig);
    let process = life.on(async { life.keeper.start(rig.command("sleep 1000")).await.unwrap() });
    life.die();
    rig.backends.broken.store(true, Ordering::SeqCst);
    let life = Life::begin(&rig);
    life.on(async {
        until("it is noticed", || async {
            life.keeper.environment("default").await.unwrap().state == EnvironmentState::Failed
        })
        .await;
        let known = life.keeper.process(&process.id).await.unwrap();
        assert_eq!(known.state, ProcessState::Running);
        assert_eq!(known.unreachable.unwrap(), "looking for the place: it is broken");
        let listed = life.keeper.processes(Default::default()).await.unwrap();
        assert_eq!(listed[0].unreachable.as_ref().unwrap(), "looking for the place: it is broken");
        assert_eq!(life.keeper.counts().await.unwrap().background, 1);
        let error = life.keeper.kill(&process.id, Default::default()).await.unwrap_err();
        assert_eq!(error.kind, Kind::Disconnected);
        let error = life.keeper.log(&process.id, LogQuery::default()).await.unwrap_err();
        assert_eq!(error.kind, Kind::Disconnected, "{error}");
        rig.backends.broken.store(false, Ordering::SeqCst);
        until("it is found again", || async {
            life.keeper.environment("default").await.unwrap().background == 1
        })
        .await;
        let environment = life.keeper.environment("default").await.unwrap();
        assert_eq!((environment.state, environment.note), (EnvironmentState::Ready, None));
        assert_eq!(life.keeper.kill(&process.id, Default::default()).await.unwrap().survivors, 0);
        assert_eq!(ended(&life.keeper, &process.id).await.state, ProcessState::Ended);
    });
    life.end(rig);
}

#[test]
fn one_that_was_recorded_and_not_started_is_told() {
    let rig = Rig::new();
    let life = Life::begin(&rig);
    let process = life.on(async {
        let process = life.keeper.start(rig.command("sleep 1000")).await.unwrap();
        life.keeper.close(false).await.unwrap();
        process
    });
    drop(life);
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let (store, _) = Store::open(&rig.home().join("farshell")).await.unwrap();
        let mut row = store.process(&process.id).await.unwrap().unwrap();
        row.process.id = "never".into();
        row.process.state = ProcessState::Starting;
        store.insert_process(row.clone(), None).await.unwrap();
        // One that had been sent to an outpost which is gone.
        row.process.id = "gone".into();
        row.instance = Some("another".into());
        store.insert_process(row.clone(), None).await.unwrap();
        // And one of an environment of which nothing is known.
        row.process.id = "nowhere".into();
        row.process.environment = "local/nowhere".into();
        store.insert_process(row, None).await.unwrap();
        store.close().await.unwrap();
    });
    let life = Life::begin(&rig);
    life.on(async {
        // Whoever asks once more, before that is found out, is told the same.
        let again = StartRequest { id: Some("never".into()), ..rig.command("sleep 1000") };
        assert_eq!(life.keeper.start(again).await.unwrap().state, ProcessState::NotStarted);
        assert_eq!(ended(&life.keeper, "never").await.state, ProcessState::NotStarted);
        assert_eq!(ended(&life.keeper, "gone").await.state, ProcessState::Lost);
        assert_eq!(ended(&life.keeper, "nowhere").await.state, ProcessState::Lost);
        let found = life.keeper.process(&process.id).await.unwrap();
        assert_eq!(found.state, ProcessState::Running);
        assert_eq!(events_of(&life.keeper, EventKind::ProcessCompleted).await.len(), 3);
    });
    life.end(rig);
}

#[test]
fn a_clock_that_jumped_neither_ends_nor_keeps() {
    for jump in [-86_400_000_i64, 86_400_000] {
        let rig = Rig::new();
        rig.config("terminal:\n  lifetime_seconds: 4\n");
        let life = Life::begin(&rig);
        life.on(async { rig.says(&life.keeper, "export A=1").await });
        life.die();
        edit_environment(&rig, |row| row.last_used_at = row.last_used_at.saturating_add_signed(jump));
        let life = Life::begin(&rig);
        life.on(async {
            assert_eq!(rig.says(&life.keeper, "echo $A").await, "1\n", "it was not ended at once");
            // The result comes a moment before its command has left.
            let expires_at = || async { life.keeper.environment("default").await.unwrap().expires_at };
            until("nothing runs in it", || async { expires_at().await.is_some() }).await;
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis()
                as u64;
            assert!(expires_at().await.unwrap() <= now + 4500, "nor will it stay for ever");
            until("it is gone", || async { life.keeper.environments().await.unwrap().is_empty() }).await;
        });
        life.end(rig);
    }
}

#[test]
fn an_environment_whose_end_was_interrupted_is_ended() {
    let rig = Rig::new();
    let life = Life::begin(&rig);
    life.on(async { rig.says(&life.keeper, "true").await });
    life.die();
    edit_environment(&rig, |row| row.state = EnvironmentState::Ending);
    let life = Life::begin(&rig);
    life.on(async {
        until("it is gone", || async { life.keeper.environments().await.unwrap().is_empty() }).await;
        until("its outpost, too", || async { rig.outposts().is_empty() }).await;
        assert_eq!(events_of(&life.keeper, EventKind::EnvironmentRemoved).await.len(), 1);
    });
    life.end(rig);
}

/// How many processes are enough to say something.
const MANY: usize = 15;

/// At any moment: of making, running, starting and ending.
#[test]
fn a_keeper_may_die_at_any_moment() {
    let rig = Rig::new();
    let (mut started, mut known): (Vec<String>, usize) = (Vec::new(), 0);
    let deadline = Instant::now() + PATIENCE;
    for round in 0_u64.. {
        // A slow machine needs more of them until enough has happened.
        if round >= 15 && (known > MANY || Instant::now() > deadline) {
            break;
        }
        let life = Life::begin(&rig);
        life.on(async {
            let keeper = life.keeper.clone();
            let work = async {
                for n in 0.. {
                    let id = format!("p-{round}-{n}");
                    started.push(id.clone());
                    let file = rig.home().join(&id);
                    let start =
                        StartRequest { id: Some(id), ..rig.command(&format!("echo x >>{}", file.display())) };
                    keeper.start(start).await.unwrap();
                    known += 1;
                    rig.says(&keeper, "echo ok").await;
                    if n % 5 == 4 {
                        crate::rig::remove_all(&keeper).await;
                    }
                }
            };
            let _ = tokio::time::timeout(Duration::from_millis(20 + round * 23), work).await;
        });
        life.die();
    }
    let life = Life::begin(&rig);
    life.on(async {
        let keeper = &life.keeper;
        until("all are finished", || async { keeper.counts().await.unwrap().background == 0 }).await;
        until("there is one outpost", || async { rig.outposts().len() <= 1 }).await;
        let completed = events_of(keeper, EventKind::ProcessCompleted).await;
        let mut told = std::collections::HashSet::new();
        for event in &completed {
            assert!(told.insert(event.process_id.clone().unwrap()), "{event:?} twice");
        }
        let mut ran = 0;
        for id in &started {
            let text = std::fs::read_to_string(rig.home().join(id)).unwrap_or_default();
            assert!(text.is_empty() || text == "x\n", "{id} ran twice");
            match keeper.process(id).await {
                Ok(process) => {
                    assert!(told.contains(id), "{id} has no event");
                    match process.state {
                        // Unless it was killed, with its environment.
                        ProcessState::Ended if process.exit_code == Some(0) => {
                            assert_eq!(text, "x\n", "{id}");
                        }
                        ProcessState::Ended => assert!(process.exit_code > Some(128), "{process:?}"),
                        ProcessState::NotStarted => assert_eq!(text, "", "{id}"),
                        ProcessState::Lost => {}
                        other => panic!("{id} is {other:?}"),
                    }
                    ran += 1;
                }
                Err(_) => assert_eq!(text, "", "{id} ran and is not recorded"),
            }
        }
        assert!(ran > MANY, "{ran}");
        assert!(all_events(keeper).await.len() > MANY);
    });
    life.end(rig);
}
