//! Sandboxes are made, found again, put away and removed.

use crate::rig::{Heard, Rig};
use farshell_daytona::client::{Create, Sandbox, State};
use farshell_engine::backend::Backend;
use farshell_engine::capture::Discard;
use farshell_engine::{Kind, RunOptions};
use farshell_protocol::SessionName;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_is_made_and_found_again_with_its_state() {
    let Some(rig) = Rig::new() else { return };
    let env = rig.open().await;
    assert_eq!(env.out("cd /tmp && x=1 && echo $x; id -u").await, "1\n0");
    let sandbox = rig.sandbox().await;
    assert_eq!(env.env.identity().id, sandbox.id);
    assert_eq!(sandbox.auto_stop_interval, Some(15.0));
    assert_eq!(sandbox.auto_delete_interval, Some(-1.0));
    assert_eq!(sandbox.labels["hermes_task_id"], "default");
    // Another process, or a server after a restart.
    let again = rig.open().await;
    assert_eq!(again.env.identity(), env.env.identity());
    assert_eq!(again.out("echo $x $PWD").await, "1 /tmp");
    let found = rig.backend().survey().await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].id.as_str(), found[0].alive), (sandbox.id.as_str(), true));
    assert_eq!(found[0].spec_hash, Some(rig.spec().hash("daytona")));
    env.env.destroy().await.unwrap();
    env.env.destroy().await.unwrap();
    assert!(rig.backend().find(&rig.spec()).await.unwrap().is_none());
    assert!(rig.backend().survey().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_put_away_or_archived_is_woken_with_its_files() {
    let Some(rig) = Rig::new() else { return };
    let env = rig.open().await;
    env.out("echo work > /workspace/x; echo home > ~/x").await;
    let id = env.env.identity();
    drop(env);
    let place = rig.backend().find(&rig.spec()).await.unwrap().unwrap();
    assert!(!place.sleeps());
    place.suspend().await.unwrap();
    place.suspend().await.unwrap();
    let place = rig.backend().find(&rig.spec()).await.unwrap().unwrap();
    assert!(place.sleeps() && !rig.backend().survey().await.unwrap()[0].alive);
    let again = rig.open().await;
    assert_eq!(again.env.identity(), id);
    assert_eq!(again.out("cat /workspace/x ~/x").await, "work\nhome");
    drop(again);
    place.suspend().await.unwrap();
    rig.client().archive(&id.id).await.unwrap();
    while rig.sandbox().await.state != State::Archived {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    rig.faults(r#"[{"kind":"slow","ms":3000}]"#);
    let heard = Arc::new(Heard::default());
    let waiting = {
        let (backend, spec, heard) = (rig.backend(), rig.spec(), Arc::clone(&heard));
        tokio::spawn(async move { backend.provision(&spec, &*heard).await.map(|place| place.identity()) })
    };
    while rig.sandbox().await.state != State::Restoring {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let other = Heard::default();
    assert_eq!(rig.backend().provision(&rig.spec(), &other).await.unwrap().identity(), id);
    assert_eq!(waiting.await.unwrap().unwrap(), id);
    assert_eq!(heard.0.lock().unwrap()[0], "the sandbox is archived: it is being restored");
    assert_eq!(other.0.lock().unwrap()[0], "restoring the sandbox from its archive");
    assert_eq!(rig.open().await.out("cat ~/x").await, "home");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_job_keeps_it_awake_and_a_crash_costs_nothing() {
    let Some(rig) = Rig::with(&["--minute-ms", "2500"]) else { return };
    let rig = rig.set(|config| config.settings.auto_stop_minutes = 2);
    let env = rig.open().await;
    assert_eq!(env.out("sleep 12; echo still here").await, "still here");
    // Whoever was connected is gone, as after a crash.
    env.env.outpost().disconnect();
    let stopped = async {
        while rig.sandbox().await.state != State::Stopped {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), stopped).await.unwrap();
    // The next command wakes it.
    assert_eq!(env.out("echo awake").await, "awake");
    assert_eq!(rig.sandboxes().await.len(), 1);
}

/// As if the open websocket counted for nothing, which is how much of Daytona's behaviour this depends on.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_job_keeps_it_awake_by_what_farshell_says() {
    let Some(rig) = Rig::with(&["--minute-ms", "80000"]) else { return };
    let rig = rig.set(|config| config.settings.auto_stop_minutes = 1);
    rig.faults(r#"[{"kind":"ws-quiet","count":100}]"#);
    let env = rig.open().await;
    let boot = env.out("echo $$").await;
    assert_eq!(env.out("sleep 100; echo still here").await, "still here");
    assert_eq!(env.out("echo $$").await, boot, "it was stopped in between");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_to_be_kept_is_deleted() {
    let Some(rig) = Rig::new() else { return };
    let rig = rig.set(|config| config.settings.container.persistent = false);
    let place = rig.place().await;
    assert_eq!(rig.sandbox().await.auto_delete_interval, Some(0.0));
    place.destroy().await.unwrap();
    assert!(rig.client().get("hermes-default").await.unwrap().is_none());
    // Also if it is Daytona that stops it.
    rig.place().await;
    rig.client().stop("hermes-default").await.unwrap();
    while rig.client().get("hermes-default").await.unwrap().is_some() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_settings_are_refused_and_nothing_is_lost() {
    let Some(rig) = Rig::new() else { return };
    let id = rig.place().await.identity().id;
    let mut spec = rig.spec();
    spec.settings.insert("daytona_image".into(), "alpine:3".into());
    let error = rig.backend().provision(&spec, &()).await.unwrap_err();
    assert_eq!(error.kind, Kind::SpecChanged);
    assert!(error.hint.unwrap().contains("farshell env rm"));
    assert_eq!(rig.sandbox().await.id, id);
}

#[tokio::test(flavor = "multi_thread")]
async fn region_and_timers_are_as_set_and_other_timers_make_no_other_sandbox() {
    let Some(rig) = Rig::new() else { return };
    let timers = |sandbox: &Sandbox| {
        (sandbox.auto_stop_interval, sandbox.auto_archive_interval, sandbox.auto_delete_interval)
    };
    let rig = rig.set(|config| {
        let settings = &mut config.settings;
        settings.target = Some("eu".into());
        (settings.auto_stop_minutes, settings.auto_archive_minutes, settings.auto_delete_minutes) =
            (5, 60, 120);
    });
    let id = rig.place().await.identity().id;
    let made = rig.sandbox().await;
    assert_eq!(made.target.as_deref(), Some("eu"));
    assert_eq!(timers(&made), (Some(5.0), Some(60.0), Some(120.0)));
    let rig = rig.set(|config| {
        let settings = &mut config.settings;
        (settings.auto_stop_minutes, settings.auto_archive_minutes, settings.auto_delete_minutes) =
            (33, 90, 0);
    });
    assert_eq!(rig.place().await.identity().id, id);
    let changed = rig.sandbox().await;
    assert_eq!(timers(&changed), (Some(33.0), Some(90.0), Some(-1.0)));
    assert_eq!(changed.target.as_deref(), Some("eu"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strangers_sandbox_is_left_alone_and_one_of_hermes_is_taken_over() {
    let Some(rig) = Rig::new() else { return };
    let id = rig.place().await.identity().id;
    let own = rig.config.home.clone();
    let other = own.with_file_name("other");
    let rig = rig.set(|config| config.home = other);
    let error = rig.backend().provision(&rig.spec(), &()).await.unwrap_err();
    assert_eq!(error.kind, Kind::AlreadyExists, "{error}");
    assert!(rig.backend().find(&rig.spec()).await.unwrap().is_none());
    assert!(rig.backend().survey().await.unwrap().is_empty());
    let rig = rig.set(|config| config.home = own);
    let found = rig.backend().survey().await.unwrap();
    assert_eq!(found[0].id, id);
    // What costs is stopped; the only files are for whoever names them.
    rig.backend().remove_found(&found[0]).await.unwrap();
    let asleep = rig.backend().find(&rig.spec()).await.unwrap().unwrap();
    assert!(asleep.sleeps() && asleep.holds_the_only_files() == Some(true));
    let kept = rig.backend().remove_found(&found[0]).await.unwrap_err();
    assert!(kept.hint.unwrap().contains("farshell env rm --files daytona/default"));
    asleep.destroy().await.unwrap();
    assert!(rig.backend().survey().await.unwrap().is_empty());

    let create = Create {
        name: Some("hermes-default".into()),
        build_info: Some(farshell_daytona::client::BuildInfo {
            dockerfile_content: "FROM debian:12\n".into(),
        }),
        labels: BTreeMap::from([("hermes_task_id".into(), "default".into()), ("mine".into(), "1".into())]),
        auto_stop_interval: Some(0),
        ..Create::default()
    };
    let made = rig.client().create(&create).await.unwrap().id;
    assert_eq!(rig.place().await.identity().id, made);
    let sandbox = rig.sandbox().await;
    assert_eq!((sandbox.labels["mine"].as_str(), sandbox.auto_stop_interval), ("1", Some(15.0)));
    assert_eq!(rig.backend().survey().await.unwrap()[0].id, made);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_make_one() {
    let Some(rig) = Rig::new() else { return };
    let all: Vec<_> = (0..8)
        .map(|_| {
            let (backend, spec) = (rig.backend(), rig.spec());
            tokio::spawn(async move { backend.provision(&spec, &()).await.map(|place| place.identity().id) })
        })
        .collect();
    let id = rig.place().await.identity().id;
    for one in all {
        assert_eq!(one.await.unwrap().unwrap(), id);
    }
    assert_eq!(rig.sandboxes().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_dies_on_the_way_leaves_one_that_is_found_again() {
    let Some(rig) = Rig::new() else { return };
    // At each step of making, starting and stopping.
    for round in 0..24_u64 {
        let (backend, spec) = (rig.backend(), rig.spec());
        let doomed = tokio::spawn(async move {
            let place = backend.provision(&spec, &()).await?;
            let _stream = place.connect().await?;
            place.suspend().await
        });
        tokio::time::sleep(Duration::from_millis(round * 17)).await;
        doomed.abort();
        let _ = doomed.await;
        let id = rig.place().await.identity().id;
        let all = rig.sandboxes().await;
        assert_eq!(
            all.iter().map(|sandbox| sandbox.id.as_str()).collect::<Vec<_>>(),
            [id.as_str()],
            "round {round}"
        );
    }
    assert_eq!(rig.open().await.out("echo fine").await, "fine");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_outpost_is_uploaded_once() {
    let Some(rig) = Rig::new() else { return };
    let env = rig.open().await;
    let stat = "stat -c '%i %Y' ~/.farshell/outpost-*";
    let first = env.out(stat).await;
    drop(env);
    rig.place().await.suspend().await.unwrap();
    let env = rig.open().await;
    assert_eq!(env.out(stat).await, first);
    // Somebody tidied up: it is put there again.
    env.out("rm -rf ~/.farshell/outpost-*").await;
    let pid = env.env.outpost().info().await.unwrap().identity.pid.to_string();
    let _ = env
        .env
        .run(
            &RunOptions::new(SessionName::new("main").unwrap(), format!("kill -9 {pid}; sleep 5")),
            &mut Discard,
        )
        .await;
    assert_eq!(rig.open().await.out("echo back").await, "back");
}
