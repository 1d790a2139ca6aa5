//! What nobody claims.

use crate::rig::{Rig, ended, until};
use farshell_api::environment::{EnvironmentState, GcRequest};
use farshell_engine::Outpost;
use farshell_engine::backend::{Backend, Spec, TaskName};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Kills an outpost, and waits until nobody listens on its socket: a child that it was just about to start may hold
/// that for a moment.
async fn kill(rig: &Rig, task: &str, outpost: &Outpost) {
    let pid = outpost.identity().await.unwrap().pid;
    crate::rig::signal(pid, rustix::process::Signal::KILL);
    until("it is dead", || async { !crate::rig::runs(pid) }).await;
    let socket = rig.run_dir(task).join("sock");
    until("nobody listens", || async { std::os::unix::net::UnixStream::connect(&socket).is_err() }).await;
}

/// An outpost in this home of which the keeper knows nothing.
async fn stray(rig: &Rig, task: &str) -> Outpost {
    let local = farshell_local::Local::new(farshell_local::Config { home: rig.home().join("farshell") });
    let task = TaskName::new(task).unwrap();
    let spec = Spec { task, lease: Duration::from_secs(300), settings: Default::default() };
    let outpost = Outpost::new(Arc::from(local.provision(&spec, &()).await.unwrap()));
    outpost.ping().await.unwrap();
    outpost
}

#[tokio::test]
async fn what_no_record_claims_is_listed_and_removed_and_nothing_else() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let process = keeper.start(rig.command("sleep 1000")).await.unwrap();
    let strays = [stray(&rig, "stray").await, stray(&rig, "dead").await];
    kill(&rig, "dead", &strays[1]).await;
    strays[0].disconnect();
    assert_eq!(rig.outposts().len(), 2);

    let listed = keeper.gc(GcRequest { remove: false }).await.unwrap();
    assert!(!listed.removed);
    let shown: Vec<_> =
        listed.found.iter().map(|i| (i.backend.as_str(), i.kind.as_str(), i.error.clone())).collect();
    assert_eq!(shown, [("local", "place", None), ("local", "outpost", None)]);
    assert!(listed.found[0].name.starts_with("dead-") && listed.found[1].name.starts_with("stray-"));
    assert_eq!(rig.outposts().len(), 2, "nothing was removed");

    let removed = keeper.gc(GcRequest { remove: true }).await.unwrap();
    assert_eq!((removed.found.len(), removed.removed), (2, true));
    assert!(removed.found.iter().all(|item| item.error.is_none()), "{removed:?}");
    until("one is left", || async { rig.outposts().len() == 1 }).await;
    assert_eq!(keeper.gc(GcRequest { remove: true }).await.unwrap().found, []);
    let process = keeper.process(&process.id).await.unwrap();
    assert_eq!(process.exit_code, None, "what is claimed goes on");
    rig.end(keeper).await;
}

#[tokio::test]
async fn a_new_keeper_sweeps_what_is_dead_and_spares_what_lives() {
    let rig = Rig::new();
    let outposts = [stray(&rig, "lives").await, stray(&rig, "dead").await];
    kill(&rig, "dead", &outposts[1]).await;
    let keeper = rig.open().await;
    until("it is swept", || async { !rig.run_dir("dead").exists() }).await;
    assert!(rig.run_dir("lives").exists());
    assert_eq!(rig.outposts().len(), 1);
    keeper.gc(GcRequest { remove: true }).await.unwrap();
    rig.end(keeper).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_being_made_is_not_taken_for_a_stray() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    for _ in 0..15 {
        let calls = {
            let (keeper, request) = (keeper.clone(), rig.request("echo ok"));
            tokio::spawn(async move { keeper.run(request).await.unwrap().stdout })
        };
        while !calls.is_finished() {
            keeper.gc(GcRequest { remove: true }).await.unwrap();
        }
        assert_eq!(calls.await.unwrap(), "ok\n");
        crate::rig::remove_all(&keeper).await;
    }
    rig.end(keeper).await;
}

#[tokio::test]
async fn a_record_without_a_place_is_found() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    rig.backends.broken.store(true, Ordering::SeqCst);
    keeper.run(rig.request("true")).await.unwrap_err();
    let found = keeper.gc(GcRequest { remove: false }).await.unwrap().found;
    assert_eq!((found.len(), found[0].kind.as_str(), found[0].name.as_str()), (1, "record", "local/default"));
    assert_eq!(keeper.environment("default").await.unwrap().state, EnvironmentState::Failed);
    keeper.gc(GcRequest { remove: true }).await.unwrap();
    assert_eq!(keeper.environments().await.unwrap(), []);
    rig.backends.broken.store(false, Ordering::SeqCst);
    let process = keeper.start(rig.command("true")).await.unwrap();
    ended(&keeper, &process.id).await;
    rig.end(keeper).await;
}
