//! Instances are made, found again, put away and removed.

use crate::rig::{Env, Rig, eventually, lives};
use farshell_engine::Kind;
use farshell_engine::backend::Backend;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_is_made_and_found_again_with_its_state() {
    let Some(rig) = Rig::new() else { return };
    let env = rig.open().await;
    assert_eq!(env.out("cd /tmp && x=1 && echo $x; echo $HOME; cat /proc/1/comm").await, "1\n/root\nappinit");
    // Another process, or a server after a restart.
    let again = rig.open().await;
    assert_eq!(again.id(), env.id());
    assert_eq!(again.out("echo $x $PWD").await, "1 /tmp");
    let found = rig.backend().survey().await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].id.as_str(), found[0].alive), (env.id().as_str(), true));
    assert_eq!(found[0].spec_hash, Some(rig.spec("default").hash("singularity")));
    assert_eq!(found[0].task.as_ref().map(|t| t.as_str()), Some("default"));
    let (parent, others) = rig.family();
    assert!(others.len() >= 2, "init and file systems: {others:?}");
    env.env.destroy().await.unwrap();
    env.env.destroy().await.unwrap();
    assert!(!lives(parent) && others.iter().all(|pid| !lives(*pid)));
    assert!(rig.backend().survey().await.unwrap().is_empty());
    assert!(rig.find().await.is_none());
    assert!(rig.noted().is_empty(), "{:?}", rig.noted());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_put_away_is_woken_with_all_its_files() {
    let Some(rig) = Rig::new() else { return };
    let env = rig.open().await;
    env.out("echo layer > /x; echo work > /workspace/x; echo home > ~/x; echo tmp > /tmp/x; sleep 1000 &")
        .await;
    let (parent, others) = rig.family();
    let place = rig.find().await.unwrap();
    assert!(!place.sleeps());
    place.suspend().await.unwrap();
    assert!(!lives(parent) && others.iter().all(|pid| !lives(*pid)));
    assert!(rig.find().await.unwrap().sleeps() && !rig.backend().survey().await.unwrap()[0].alive);
    let again = rig.open().await;
    assert_eq!(again.id(), env.id());
    assert_eq!(again.out("cat /x /workspace/x ~/x; ls /tmp").await, "layer\nwork\nhome");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_kept_is_gone_when_it_is_put_away() {
    let Some(rig) = Rig::busybox() else { return };
    let rig = rig.with(|s| s.container.persistent = false);
    let env = rig.open().await;
    env.out("echo layer > /x; echo work > /workspace/x; echo home > ~/x").await;
    let files = rig.files();
    rig.find().await.unwrap().suspend().await.unwrap();
    assert!(!files.exists() && rig.noted().is_empty());
    let again = rig.open().await;
    assert_ne!(again.id(), env.id());
    assert_eq!(again.out("ls -A /workspace ~; ls /x 2>/dev/null || true").await, "/root:\n\n/workspace:");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_runs_out_ends_the_instance_and_leaves_no_process() {
    let Some(rig) = Rig::new() else { return };
    let mut spec = rig.spec("default");
    spec.lease = Duration::from_secs(1);
    let env = Env::open(&rig.backend(), &spec).await;
    env.out("echo kept > /workspace/x").await;
    let (parent, others) = rig.family();
    drop(env);
    eventually("the instance ends", || !lives(parent) && others.iter().all(|pid| !lives(*pid))).await;
    assert!(!rig.backend().survey().await.unwrap()[0].alive);
    assert_eq!(rig.open().await.out("cat /workspace/x").await, "kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_get_the_same_instance() {
    let Some(rig) = Rig::busybox() else { return };
    let opened: Vec<_> = (0..6)
        .map(|_| {
            // Each as a process of its own would.
            let (backend, spec) = (rig.backend(), rig.spec("default"));
            tokio::spawn(async move { Env::open(&backend, &spec).await })
        })
        .collect();
    let mut ids = Vec::new();
    for env in opened {
        let env = env.await.unwrap();
        env.out("true").await;
        ids.push(env.id());
    }
    ids.dedup();
    assert_eq!(ids.len(), 1);
    assert_eq!(rig.backend().survey().await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_tasks_at_once_do_not_see_each_other() {
    let Some(rig) = Rig::busybox() else { return };
    let (a, b) = tokio::join!(rig.open_task("a"), rig.open_task("b"));
    assert_ne!(a.id(), b.id());
    a.out("echo a > /workspace/x; echo a > ~/x; echo a > /tmp/x; echo a > /x").await;
    assert_eq!(
        b.out("ls /workspace ~ /tmp; ls /x 2>/dev/null || true").await,
        "/root:\n\n/tmp:\n\n/workspace:"
    );
    a.env.destroy().await.unwrap();
    assert_eq!(b.out("echo alive").await, "alive");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_settings_replace_an_instance_that_has_ended_and_refuse_one_that_runs() {
    let Some(rig) = Rig::busybox() else { return };
    let env = rig.open().await;
    env.out("echo kept > /workspace/x; echo gone > /x").await;
    let mut other = rig.spec("default");
    other.settings.insert("changed".into(), "yes".into());
    let error = rig.backend().provision(&other, &()).await.unwrap_err();
    assert_eq!(error.kind, Kind::SpecChanged, "{error}");
    rig.find().await.unwrap().suspend().await.unwrap();
    let again = Env::open(&rig.backend(), &other).await;
    assert_ne!(again.id(), env.id());
    assert_eq!(again.out("cat /workspace/x; ls /x 2>/dev/null || true").await, "kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_tries_the_image() {
    let Some(rig) = Rig::new() else { return };
    let findings = rig.backend().check().await;
    let bad: Vec<_> =
        findings.iter().filter(|f| f.severity == farshell_engine::backend::Severity::Problem).collect();
    assert!(bad.is_empty(), "{bad:?}");
    assert!(findings.iter().any(|finding| finding.what.starts_with("the outpost runs in")), "{findings:?}");
    let rig = rig.with(|s| s.image = "/etc/passwd".into());
    let findings = rig.backend().check().await;
    assert!(
        findings.iter().any(|f| f.severity == farshell_engine::backend::Severity::Problem),
        "{findings:?}"
    );
}
