//! Sandboxes with a GPU: of Modal's first kind, and used as all others are.

use crate::rig::{Heard, Rig, until};
use farshell_engine::Kind;
use farshell_engine::backend::Backend;
use std::time::Duration;

fn with_gpu(options: &[&str]) -> Option<Rig> {
    Some(Rig::with(options)?.set(|config| config.settings.gpu = Some("h100:2".into())))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_is_asked_for_and_the_sandbox_is_one_as_any_other() {
    let Some(rig) = with_gpu(&["--start-ms", "700"]) else { return };
    let env = rig.open().await;
    assert_eq!(env.out("cd /usr; x=1; echo here; echo work > ~/file").await, "here");
    let seen = rig.sandboxes();
    assert_eq!(
        (seen.len(), seen[0]["gpu"].as_str(), seen[0]["second"].as_bool(), seen[0]["phase"].as_str()),
        (1, Some("H100:2"), Some(false), Some("running"))
    );
    // Found again: by its id, by its name, by its tags.
    assert_eq!(rig.open().await.out("echo $x $PWD").await, "1 /usr");
    std::fs::remove_file(rig.config.home.join("run/modal/default.json")).unwrap();
    assert_eq!(rig.open().await.id(), env.id());
    let found = rig.backend().survey().await.unwrap();
    assert_eq!((found.len(), found[0].id.clone(), found[0].alive), (1, env.id(), true));
    // A router that moves, a token that expires.
    rig.faults(r#"[{"kind":"expired-jwt"}]"#);
    rig.post("/emulator/move-router", "");
    assert_eq!(env.out("echo $x").await, "1");
    // Put away, and ended by Modal: its files are there again.
    rig.place().await.suspend().await.unwrap();
    let again = rig.open().await;
    assert_eq!(again.out("cat ~/file; echo more >> ~/file").await, "work");
    rig.client().terminate(&again.id()).await.unwrap();
    until(async || rig.running().await.is_empty()).await;
    assert_eq!(rig.open().await.out("cat ~/file").await, "work\nmore");
    rig.place().await.destroy().await.unwrap();
    assert_eq!((rig.running().await.len(), rig.images().len()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_left_alone_sleeps() {
    let Some(rig) = with_gpu(&["--second-ms", "100"]) else { return };
    let rig = rig.set(|config| config.settings.idle_timeout = Duration::from_secs(75));
    rig.open().await.out("echo kept > ~/kept").await;
    until(async || rig.running().await.is_empty()).await;
    assert_eq!(rig.open().await.out("cat ~/kept").await, "kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_wait_for_a_machine_is_told_and_one_that_never_begins_is_an_error_once() {
    let Some(rig) = with_gpu(&[]) else { return };
    rig.faults(r#"[{"kind":"start-error"}]"#);
    let error = rig.backend().provision(&rig.spec(), &()).await.unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable, "{error}");
    assert!(error.message.contains("could not be started"), "{error}");
    // Nobody waits: it does not begin to cost later.
    rig.faults(r#"[{"kind":"slow-start","ms":600000}]"#);
    let (backend, spec) = (rig.backend(), rig.spec());
    let heard = Leaving::default();
    let error = backend.provision(&spec, &heard).await.unwrap_err();
    assert!(error.message.contains("nobody waits for it any more"), "{error}");
    assert!(heard.heard.0.lock().unwrap().iter().any(|said| said.contains("machine with such a GPU")));
    until(async || rig.running().await.is_empty()).await;
    rig.faults("[]");
    assert_eq!(rig.open().await.out("echo here").await, "here");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_in_use_is_not_ended_because_somebody_goes_away() {
    let Some(rig) = with_gpu(&[]) else { return };
    let env = rig.open().await;
    env.out("echo work > ~/file; x=1").await;
    let (backend, spec) = (rig.backend(), rig.spec());
    rig.faults(r#"[{"kind":"slow","rpc":"SandboxGetTaskId","ms":2000,"count":2}]"#);
    let leaving = Leaving::default();
    leaving.gone.notify_one();
    assert_eq!(backend.provision(&spec, &leaving).await.unwrap().identity().id, env.id());
    rig.faults("[]");
    assert_eq!(env.out("echo $x; cat ~/file").await, "1\nwork");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_somebody_else_has_made_is_not_ended_while_it_waits() {
    let Some(rig) = with_gpu(&[]) else { return };
    rig.faults(r#"[{"kind":"slow-start","ms":600000}]"#);
    let (backend, spec) = (rig.backend(), rig.spec());
    let died = tokio::spawn(async move { backend.provision(&spec, &()).await.map(drop) });
    until(async || rig.running().await.len() == 1).await;
    let record = rig.config.home.join("run/modal/default.json");
    let recorded = || std::fs::read_to_string(&record).unwrap_or_default();
    let id = rig.running().await[0].id.clone();
    until(async || recorded().contains(&id)).await;
    died.abort();
    let _ = died.await;
    let before = recorded();
    let error = rig.backend().provision(&rig.spec(), &Leaving::default()).await.unwrap_err();
    assert!(error.message.contains("nobody waits for it any more"), "{error}");
    let running: Vec<String> = rig.running().await.into_iter().map(|one| one.id).collect();
    assert_eq!((running, recorded()), (vec![id], before));
}

/// Goes away as soon as it is told that it has to wait.
#[derive(Debug, Default)]
struct Leaving {
    heard: Heard,
    gone: tokio::sync::Notify,
}

impl farshell_engine::backend::Progress for Leaving {
    fn say(&self, news: &farshell_engine::backend::News) {
        self.heard.say(news);
        if news.message.contains("waiting for a machine") {
            self.gone.notify_one();
        }
    }

    fn gone(&self) -> farshell_engine::backend::BoxFuture<'_, ()> {
        Box::pin(self.gone.notified())
    }
}
