//! Sandboxes that end by themselves, and what is left of them.

use crate::rig::{Rig, until};
use farshell_engine::backend::Backend;
use farshell_engine::client::new_process_id;
use farshell_engine::{Kind, RunOptions};
use farshell_protocol::SessionName;
use farshell_protocol::process::{Start, State, Stdin, Surroundings, What};
use std::time::Duration;

fn background(command: &str) -> Start {
    Start {
        id: new_process_id(),
        what: What::Shell { command: command.into(), session: None, surroundings: Surroundings::default() },
        stdin: Stdin::Null,
        timeout_ms: None,
        grace_ms: 0,
        log_cap: 0,
        attach: None,
        variables: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_left_alone_sleeps_and_goes_on_where_it_was() {
    let Some(rig) = Rig::with(&["--second-ms", "100"]) else { return };
    // Seven and a half seconds.
    let rig = rig.set(|config| config.settings.idle_timeout = Duration::from_secs(75));
    let env = rig.open().await;
    env.out("echo kept > ~/kept").await;
    // Somebody holds it, and uses it no more.
    until(async || rig.running().await.is_empty()).await;
    let options = RunOptions::new(SessionName::new("main").unwrap(), "true");
    let error = env.0.run(&options, &mut farshell_engine::capture::Discard).await.unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable, "{error}");
    assert!(error.message.contains("was put to sleep because nothing ran in it"), "{error}");
    let found = rig.backend().find(&rig.spec()).await.unwrap().unwrap();
    assert!(found.sleeps());
    found.suspend().await.unwrap();
    let keepsake = found.keepsake().unwrap();
    assert!(keepsake.contains("that Modal took when the sandbox ended, and keeps until 20"), "{keepsake}");
    let again = rig.open().await;
    assert_ne!(again.id(), env.id());
    assert_eq!(again.out("cat ~/kept").await, "kept");
    // What Modal has saved is recorded for Hermes, too.
    assert!(rig.client().has_image(&rig.snapshot()).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_keeps_it_awake_and_then_it_sleeps() {
    let Some(rig) = Rig::with(&["--second-ms", "100"]) else { return };
    let rig = rig.set(|config| config.settings.idle_timeout = Duration::from_secs(50));
    let env = rig.open().await;
    // In the foreground, and silent, for longer than it may be idle.
    assert_eq!(env.out("sleep 8; echo still here").await, "still here");
    // In the background, which nobody follows.
    let start = background("sleep 9; echo done > ~/done");
    let id = start.id.clone();
    env.0.outpost().start(start).await.unwrap();
    until(async || {
        env.0.outpost().status(id.clone()).await.is_ok_and(|status| status.state != State::Running)
    })
    .await;
    assert_eq!(env.out("cat ~/done").await, "done");
    until(async || rig.running().await.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_nobody_uses_is_closed_and_the_session_goes_on() {
    let Some(rig) = Rig::new() else { return };
    let env = rig.open().await;
    assert_eq!(env.out("cd /usr; x=1; f() { echo f $x; }; echo $$ > /tmp/shell").await, "");
    for round in 0..3 {
        until(async || env.0.outpost().rests()).await;
        assert_eq!(
            env.out("f; pwd; [ $$ = $(cat /tmp/shell) ] && echo same").await,
            "f 1\n/usr\nsame",
            "{round}"
        );
    }
    // The bridge is gone, too, and not only the connection to it.
    until(async || {
        until(async || env.0.outpost().rests()).await;
        env.out("pgrep -fc 'outpost.*connect'").await == "1"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_dies_leaves_nothing_that_costs() {
    let Some(rig) = Rig::with(&["--second-ms", "100"]) else { return };
    let rig = rig.set(|config| config.settings.idle_timeout = Duration::from_secs(50));
    // Nobody says goodbye: the runtime in which the connection was is gone at once.
    let (backend, spec) = (rig.backend(), rig.spec());
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let stream = runtime
            .block_on(async move { backend.provision(&spec, &()).await.unwrap().connect().await.unwrap() });
        runtime.shutdown_background();
        std::mem::forget(stream);
    })
    .join()
    .unwrap();
    assert_eq!(rig.running().await.len(), 1);
    until(async || rig.running().await.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lifetime_that_is_over_is_said_and_costs_no_file() {
    let Some(rig) = Rig::with(&["--second-ms", "20"]) else { return };
    let rig = rig.set(|config| config.settings.timeout = Duration::from_secs(750));
    let env = rig.open().await;
    let options = RunOptions::new(SessionName::new("main").unwrap(), "echo kept > ~/kept; sleep 1000");
    let error = env.0.run(&options, &mut farshell_engine::capture::Discard).await.unwrap_err();
    assert_eq!(error.kind, Kind::UnknownOutcome, "{error}");
    assert!(error.message.contains("reached its lifetime"), "{error}");
    assert_eq!(rig.open().await.out("cat ~/kept").await, "kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_is_gone_is_an_error_that_offers_the_image() {
    let Some(rig) = Rig::new() else { return };
    rig.open().await.out("echo x > ~/x").await;
    rig.place().await.suspend().await.unwrap();
    rig.client().delete_image(&rig.snapshot()).await.unwrap();
    for _ in 0..2 {
        let error = rig.backend().provision(&rig.spec(), &()).await.unwrap_err();
        assert_eq!(error.kind, Kind::Unavailable, "{error}");
        assert!(error.message.contains("is gone: it has expired or was deleted"), "{error}");
        let hint = error.hint.unwrap();
        assert!(
            hint.contains("farshell env rm --files modal/default") && hint.contains("debian:12"),
            "{hint}"
        );
        assert!(rig.running().await.is_empty());
    }
    rig.backend().find(&rig.spec()).await.unwrap().unwrap().destroy().await.unwrap();
    assert_eq!(rig.open().await.out("ls ~/x 2>/dev/null | wc -l").await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_modal_could_not_save_is_said_once_and_the_last_snapshot_is_gone_on_from() {
    let Some(rig) = Rig::new() else { return };
    rig.open().await.out("echo old > ~/x").await;
    rig.place().await.suspend().await.unwrap();
    let env = rig.open().await;
    env.out("echo new > ~/x").await;
    rig.faults(r#"[{"kind":"exit-snapshot-error"}]"#);
    rig.client().terminate(&env.id()).await.unwrap();
    until(async || rig.running().await.is_empty()).await;
    let error = rig.backend().provision(&rig.spec(), &()).await.unwrap_err();
    assert!(error.message.contains("could not save its files"), "{error}");
    assert!(error.hint.unwrap().contains("its last snapshot im-"));
    assert_eq!(rig.open().await.out("cat ~/x").await, "old");
}
