//! Jobs that have to wait.

use crate::cluster::{Blocker, Listener, all_jobs, in_time, jobs, narrow, rig};
use crate::rig::Rig;
use farshell_engine::backend::{Backend, Place};
use farshell_engine::{Kind, Result};
use std::sync::Arc;
use tokio::task::JoinHandle;

/// A home whose jobs go to a node with room for one, which somebody else has.
async fn crowded() -> Option<(Rig, Blocker)> {
    let rig = rig(|slurm| slurm.partition = Some("narrow".into()))?;
    let blocker = Blocker::on("narrow");
    in_time("somebody else's job runs", || blocker.runs()).await;
    Some((rig, blocker))
}

/// Asks for a place as a process of its own would, and waits until it is in the queue.
async fn asks(rig: &Rig) -> (JoinHandle<Result<Box<dyn Place>>>, Arc<Listener>) {
    let listener = Arc::new(Listener::new());
    let (backend, spec, told) = (rig.backend(), rig.spec("default"), Arc::clone(&listener));
    let asking = tokio::spawn(async move { backend.provision(&spec, &*told).await });
    in_time("it is told that it waits", || listener.heard("is queued in partition narrow")).await;
    (asking, listener)
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_is_told_why_and_gets_in_when_there_is_room() {
    let _only = narrow().await;
    let Some((rig, blocker)) = crowded().await else { return };
    let (asking, listener) = asks(&rig).await;
    in_time("the reason is told", || listener.heard("Resources (it waits until a node has room)")).await;
    assert!(listener.heard("it is the next one"), "{:?}", listener.all());
    let found = rig.find().await.unwrap();
    assert!(!found.sleeps() && found.status().unwrap().contains("is queued"), "{:?}", found.status());
    let error = found.connect().await.unwrap_err();
    assert!(error.kind == Kind::Busy && error.message.contains("is queued"), "{error}");
    assert!(rig.backend().survey().await.unwrap()[0].alive);
    drop(blocker);
    let place = asking.await.unwrap().unwrap();
    assert!(place.status().unwrap().contains("on n3"), "{:?}", place.status());
    assert_eq!(rig.open().await.out("echo in").await, "in");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_who_goes_away_takes_the_job_back() {
    let _only = narrow().await;
    let Some((rig, _blocker)) = crowded().await else { return };
    let (first, one) = asks(&rig).await;
    let (second, _two) = asks(&rig).await;
    let name = rig.private().file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!(jobs(&rig).len(), 1);
    one.go();
    let error = first.await.unwrap().unwrap_err();
    assert_eq!(error.kind, Kind::NotStarted, "{error}");
    assert_eq!(jobs(&rig).len(), 1, "somebody else still waits");
    // Without a word, as whoever is dropped goes.
    second.abort();
    in_time("the job is taken back", || !all_jobs().iter().any(|(other, _)| *other == name)).await;
    in_time("nothing is left", || rig.noted().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_removed_while_it_waits_leaves_the_queue() {
    let _only = narrow().await;
    let Some((rig, _blocker)) = crowded().await else { return };
    let (asking, _) = asks(&rig).await;
    rig.find().await.unwrap().destroy().await.unwrap();
    assert!(jobs(&rig).is_empty() && rig.noted().is_empty());
    let error = asking.await.unwrap().unwrap_err();
    assert!(error.message.contains("did not get to run") && error.message.contains("cancelled"), "{error}");
    assert!(rig.noted().is_empty(), "{:?}", rig.noted());
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_goes_away_leaves_the_job_to_another_who_waits_for_it() {
    let _only = narrow().await;
    let Some((rig, blocker)) = crowded().await else { return };
    let (asking, _) = asks(&rig).await;
    let before = jobs(&rig);
    // As another process of the home would.
    let (again, _) = asks(&rig).await;
    asking.abort();
    let _ = asking.await;
    drop(blocker);
    again.await.unwrap().unwrap();
    assert_eq!(jobs(&rig)[0].0, before[0].0);
}
