//! Files that are in a place and nowhere else: nothing that goes wrong deletes them, and nothing that is gone is passed over.

use crate::crash::edit_environment;
use crate::rig::{Life, Rig, until, whole};
use farshell_api::environment::{EnvironmentState, GcRequest, RemoveRequest};
use farshell_api::run::{RunResult, StartRequest};
use farshell_keeper::Keeper;
use std::sync::atomic::Ordering;

const DAYTONA: &[(&str, &str)] = &[("TERMINAL_ENV", "daytona")];

async fn run(rig: &Rig, keeper: &Keeper, command: &str) -> RunResult {
    let start = StartRequest { target: rig.target_with("default", DAYTONA), ..StartRequest::new(command) };
    keeper.run(whole(start)).await.unwrap()
}

async fn put_away(keeper: &Keeper) {
    let names = vec!["daytona/default".into()];
    keeper.remove(RemoveRequest { names, stop: true, ..RemoveRequest::default() }).await.unwrap();
}

async fn state(keeper: &Keeper) -> Option<EnvironmentState> {
    Some(keeper.environments().await.unwrap().first()?.state)
}

/// Places that were suspended, and destroyed.
fn ends(rig: &Rig) -> (usize, usize) {
    let story = &rig.backends.story;
    (story.suspended.load(Ordering::SeqCst), story.destroyed.load(Ordering::SeqCst))
}

#[test]
fn what_was_to_be_put_away_when_the_server_died_is_put_away_and_not_removed() {
    let rig = Rig::new();
    rig.backends.story.files_go.store(true, Ordering::SeqCst);
    let life = Life::begin(&rig);
    life.on(run(&rig, &life.keeper, "true"));
    life.die();
    edit_environment(&rig, |row| row.state = EnvironmentState::Ending);
    let life = Life::begin(&rig);
    life.on(until("it is put away", || async {
        state(&life.keeper).await == Some(EnvironmentState::Stopped)
    }));
    assert_eq!(ends(&rig), (1, 0));
    life.on(run(&rig, &life.keeper, "true"));
    life.die();
    // Somebody wanted it removed.
    edit_environment(&rig, |row| {
        row.state = EnvironmentState::Ending;
        row.note = Some("it is being removed".into());
    });
    let life = Life::begin(&rig);
    life.on(until("it is gone", || async { state(&life.keeper).await.is_none() }));
    assert_eq!(ends(&rig), (1, 1));
    life.end(rig);
}

#[test]
fn what_was_out_of_reach_is_not_taken_for_gone() {
    let rig = Rig::new();
    let life = Life::begin(&rig);
    life.on(run(&rig, &life.keeper, "true"));
    life.die();
    rig.backends.broken.store(true, Ordering::SeqCst);
    let life = Life::begin(&rig);
    life.on(async {
        until("it can't be found", || async { state(&life.keeper).await == Some(EnvironmentState::Failed) })
            .await;
        let gc = life.keeper.gc(GcRequest { remove: true }).await.unwrap();
        assert!(gc.found[0].error.as_ref().unwrap().contains("it is broken"), "{gc:?}");
        rig.backends.broken.store(false, Ordering::SeqCst);
        for _ in 0..2 {
            let gc = life.keeper.gc(GcRequest { remove: true }).await.unwrap();
            assert!(gc.found.is_empty(), "{gc:?}");
        }
        assert_eq!(ends(&rig), (0, 0));
        assert_eq!(run(&rig, &life.keeper, "echo here").await.stdout, "here\n");
    });
    life.end(rig);
}

#[tokio::test]
async fn a_place_that_somebody_has_replaced_is_told() {
    let rig = Rig::new();
    rig.backends.story.files_go.store(true, Ordering::SeqCst);
    let keeper = rig.open().await;
    run(&rig, &keeper, "cd /usr; export A=1").await;
    put_away(&keeper).await;
    rig.backends.story.generation.store(1, Ordering::SeqCst);
    let next = run(&rig, &keeper, "echo $A; pwd").await;
    assert!(!next.stdout.contains("/usr") && next.stdout.starts_with('\n'), "{next:?}");
    let note = next.note.unwrap();
    assert!(note.contains("held its files is gone"), "{note}");
    put_away(&keeper).await;
    let note = run(&rig, &keeper, "true").await.note.unwrap();
    assert!(note.contains("as they were"), "{note}");
    rig.end(keeper).await;
}

#[tokio::test]
async fn what_sleeps_already_is_not_woken_for_its_end() {
    let rig = Rig::new();
    rig.config("terminal:\n  lifetime_seconds: 2\n");
    let keeper = rig.open().await;
    run(&rig, &keeper, "true").await;
    let story = &rig.backends.story;
    story.sleeps.store(true, Ordering::SeqCst);
    let before = story.connected.load(Ordering::SeqCst);
    rig.kill_outposts();
    until("it is put away", || async { state(&keeper).await == Some(EnvironmentState::Stopped) }).await;
    assert_eq!(story.connected.load(Ordering::SeqCst), before, "nobody knocked");
    rig.end(keeper).await;
}
