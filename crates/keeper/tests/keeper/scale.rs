//! Many at once.

use crate::rig::{Rig, events_of, until, whole};
use farshell_api::event::{EventKind, EventQuery};
use farshell_api::process::{ProcessQuery, ProcessState};
use farshell_api::run::StartRequest;
use std::collections::HashSet;
use std::io::Write;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_sessions_at_once() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let live = rig.target_with("default", &[("TERMINAL_LOCAL_PERSISTENT", "true")]);
    for round in 0..2 {
        let runs: Vec<_> = (0..200)
            .map(|n| {
                let command = if round == 0 { format!("v={n}; echo $v") } else { "echo $v".to_owned() };
                let start = StartRequest {
                    target: live.clone(),
                    session: format!("s{n}"),
                    ..StartRequest::new(command)
                };
                let keeper = keeper.clone();
                tokio::spawn(async move { keeper.run(whole(start)).await.unwrap().stdout })
            })
            .collect();
        for (n, run) in runs.into_iter().enumerate() {
            assert_eq!(run.await.unwrap(), format!("{n}\n"));
        }
    }
    assert_eq!(rig.outposts().len(), 1);
    rig.end(keeper).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_background_processes() {
    const COUNT: usize = 1000;
    let rig = Rig::new();
    let keeper = rig.open().await;
    rig.says(&keeper, "true").await;
    let gate = rig.home().join("gate");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &gate, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    // Open in both directions it never comes to an end.
    let mut opener = std::fs::File::options().read(true).write(true).open(&gate).unwrap();
    let mut ids = HashSet::new();
    for n in 0..COUNT {
        // Each waits for its line, and then all end at once.
        let command = format!("read x <{}; exit {}", gate.display(), n % 7);
        ids.insert(keeper.start(rig.command(&command)).await.unwrap().id);
    }
    assert_eq!(ids.len(), COUNT);
    assert_eq!(keeper.counts().await.unwrap().background, COUNT as u32);
    let list = keeper.processes(ProcessQuery::default()).await.unwrap();
    assert_eq!(list.len(), COUNT);
    assert!(list.iter().all(|process| process.state == ProcessState::Running));
    opener.write_all(&[b'\n'; COUNT]).unwrap();
    until("all have ended", || async { keeper.counts().await.unwrap().background == 0 }).await;

    let completed = events_of(&keeper, EventKind::ProcessCompleted).await;
    let told: HashSet<String> = completed.iter().filter_map(|event| event.process_id.clone()).collect();
    assert_eq!((completed.len(), told), (COUNT, ids));
    let all = keeper.processes(ProcessQuery { task: None, all: true }).await.unwrap();
    assert!(
        all.iter().all(|process| process.state == ProcessState::Ended),
        "{:?}",
        all.iter().find(|p| p.state != ProcessState::Ended)
    );
    let last = keeper.events(EventQuery { limit: Some(1), ..EventQuery::default() }).await.unwrap().last;
    assert_eq!(last, keeper.counts().await.unwrap().last_event);
    rig.end(keeper).await;
}
