//! Every state that a sandbox may be found in.

use crate::rig::{Heard, Rig};
use farshell_daytona::client::State;
use farshell_engine::Kind;
use farshell_engine::backend::Backend;
use std::sync::Arc;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn whatever_changes_by_itself_is_waited_for() {
    let Some(rig) = Rig::new() else { return };
    let id = rig.place().await.identity().id;
    let states = [
        "creating",
        "pending_build",
        "building_snapshot",
        "pulling_snapshot",
        "starting",
        "stopping",
        "resizing",
        "restoring",
        "resuming",
        "pausing",
        "snapshotting",
        "forking",
        "unknown",
        "a-state-of-next-year",
    ];
    for state in states {
        rig.post(&format!("/emulator/state/{id}/{state}"), "");
        let heard = Arc::new(Heard::default());
        let waiting = {
            let (backend, spec, heard) = (rig.backend(), rig.spec(), Arc::clone(&heard));
            tokio::spawn(
                async move { backend.provision(&spec, &*heard).await.map(|place| place.identity().id) },
            )
        };
        while heard.0.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(!waiting.is_finished(), "{state}");
        rig.post(&format!("/emulator/state/{id}/started"), "");
        assert_eq!(waiting.await.unwrap().unwrap(), id, "{state}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_going_down_is_waited_for_and_started() {
    let Some(rig) = Rig::new() else { return };
    let id = rig.place().await.identity().id;
    rig.faults(r#"[{"kind":"slow","ms":2000}]"#);
    rig.client().stop(&id).await.unwrap();
    assert_eq!(rig.sandbox().await.state, State::Stopping);
    assert_eq!(rig.place().await.identity().id, id);
    rig.place().await.suspend().await.unwrap();
    rig.client().archive(&id).await.unwrap();
    assert_eq!(rig.sandbox().await.state, State::Archiving);
    assert_eq!(rig.place().await.identity().id, id);
    assert_eq!(rig.sandbox().await.state, State::Started);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_paused_is_resumed() {
    let Some(rig) = Rig::new() else { return };
    let id = rig.place().await.identity().id;
    rig.post(&format!("/emulator/state/{id}/paused"), "");
    assert!(rig.backend().find(&rig.spec()).await.unwrap().unwrap().sleeps());
    rig.faults(r#"[{"kind":"slow","ms":300}]"#);
    let heard = Heard::default();
    assert_eq!(rig.backend().provision(&rig.spec(), &heard).await.unwrap().identity().id, id);
    assert_eq!(heard.0.lock().unwrap()[0], "the sandbox is paused");
    assert_eq!(rig.sandbox().await.state, State::Started);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_being_deleted_makes_room() {
    let Some(rig) = Rig::new() else { return };
    let id = rig.place().await.identity().id;
    rig.faults(r#"[{"kind":"slow","ms":200}]"#);
    rig.client().delete(&id).await.unwrap();
    let next = rig.place().await.identity().id;
    assert_ne!(next, id);
    // One whose name is not free yet.
    rig.post(&format!("/emulator/state/{next}/destroying"), "");
    assert!(rig.backend().find(&rig.spec()).await.unwrap().is_none());
    let (backend, spec) = (rig.backend(), rig.spec());
    let waiting =
        tokio::spawn(async move { backend.provision(&spec, &()).await.map(|place| place.identity().id) });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!waiting.is_finished());
    assert_eq!(rig.sandboxes().await.len(), 0, "nothing is made while the name is taken");
    rig.post(&format!("/emulator/state/{next}/started"), "");
    assert_eq!(waiting.await.unwrap().unwrap(), next);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_recovered_from_or_said_and_nothing_is_deleted() {
    let Some(rig) = Rig::new() else { return };
    let id = rig.place().await.identity().id;
    rig.place().await.suspend().await.unwrap();
    rig.faults(r#"[{"kind":"start-error","recoverable":true}]"#);
    assert_eq!(rig.place().await.identity().id, id);
    rig.place().await.suspend().await.unwrap();
    rig.faults(r#"[{"kind":"start-error"}]"#);
    let error = rig.backend().provision(&rig.spec(), &()).await.unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable);
    assert!(error.message.contains("could not start the sandbox"), "{error}");
    assert_eq!((rig.sandbox().await.id, rig.sandbox().await.state), (id, State::Error));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_can_not_be_built_is_said_and_leaves_nothing() {
    let Some(rig) = Rig::new() else { return };
    rig.faults(r#"[{"kind":"build-failed"}]"#);
    let error = rig.backend().provision(&rig.spec(), &()).await.unwrap_err();
    assert!(error.message.contains("can't build a sandbox from debian:12"), "{error}");
    assert!(rig.client().get("hermes-default").await.unwrap().is_none());
    rig.place().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_was_deleted_is_an_error_and_not_another_one() {
    let Some(rig) = Rig::new() else { return };
    let place = rig.place().await;
    rig.client().delete(&place.identity().id).await.unwrap();
    let error = place.connect().await.unwrap_err();
    assert_eq!(
        (error.kind, error.message.as_str()),
        (Kind::Unavailable, "sandbox hermes-default was deleted")
    );
    assert_eq!(place.epitaph().unwrap(), "sandbox hermes-default was deleted");
    assert!(rig.client().get("hermes-default").await.unwrap().is_none());
    place.destroy().await.unwrap();
}
