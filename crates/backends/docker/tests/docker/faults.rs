//! Containers that are killed, paused and removed by others, and engines that restart.

use crate::own::Own;
use crate::rig::{Rig, var};
use farshell_engine::backend::{Backend, Place};
use farshell_engine::capture::Capture;
use farshell_engine::client::new_process_id;
use farshell_engine::environment::SessionDefaults;
use farshell_engine::{Kind, Outpost};
use farshell_protocol::SessionName;
use farshell_protocol::process::{OnBusy, Start, What};
use farshell_protocol::session::Mode;
use std::sync::Arc;
use std::time::Duration;

async fn place(rig: &Rig) -> Arc<dyn Place> {
    Arc::from(rig.backend().provision(&rig.spec("default"), &()).await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_container_is_started_again_and_its_end_is_told() {
    let Some(rig) = Rig::new() else { return };
    let place = place(&rig).await;
    let outpost = Outpost::new(Arc::clone(&place));
    let before = outpost.identity().await.unwrap().instance;
    rig.docker(&["kill", &place.identity().id]);
    outpost.disconnect();
    let after = outpost.identity().await.unwrap().instance;
    assert_ne!(before, after);
    assert_eq!(place.epitaph().as_deref(), Some("the container was killed (exit code 137)"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_in_a_container_that_is_killed_is_not_run_again() {
    let Some(rig) = Rig::new() else { return };
    let env = rig.open().await;
    env.out("true").await;
    let id = env.id();
    let killer = tokio::task::spawn_blocking({
        let host = rig.config.environment["DOCKER_HOST"].clone();
        move || {
            std::thread::sleep(Duration::from_millis(500));
            std::process::Command::new("docker").args(["-H", &host, "kill", &id]).output().unwrap()
        }
    });
    let error = env.try_run("echo once >> /workspace/runs; sleep 30").await.unwrap_err();
    killer.await.unwrap();
    assert_eq!(error.kind, Kind::UnknownOutcome, "{error}");
    assert_eq!(env.out("cat /workspace/runs").await, "once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_container_is_told_and_made_anew_with_its_files() {
    let Some(rig) = Rig::new() else { return };
    let env = rig.open().await;
    env.out("echo kept > /workspace/x").await;
    rig.docker(&["rm", "-f", &env.id()]);
    let error = env.try_run("true").await.unwrap_err();
    assert!(matches!(error.kind, Kind::Unavailable | Kind::UnknownOutcome | Kind::NotStarted), "{error}");
    let error = env.try_run("true").await.unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable, "{error}");
    assert!(error.message.contains("was removed"), "{error}");
    let again = rig.open().await;
    assert_ne!(again.id(), env.id());
    assert_eq!(again.out("cat /workspace/x").await, "kept");
}

/// Names of volumes that nobody uses, out of a survey.
async fn left(rig: &Rig) -> Vec<String> {
    let found = rig.backend().survey().await.unwrap();
    found.iter().filter_map(|one| one.name.strip_prefix("volume ")).map(str::to_owned).collect()
}

/// All volumes of a home, used or not, kept or not.
fn volumes(rig: &Rig) -> Vec<String> {
    let owner = format!("label=farshell.owner={}", rig.home.path().display());
    let names = rig.docker(&["volume", "ls", "-q", "--filter", &owner]);
    let mut names: Vec<_> = names.lines().map(str::to_owned).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_of_a_container_that_somebody_removed_are_found() {
    let (Some(engine), Some(image)) = (var("FARSHELL_TEST_DOCKER"), var("FARSHELL_TEST_BUSYBOX_VOLUME"))
    else {
        return;
    };
    let rig = Rig::on(&engine, &image).unwrap();
    let env = rig.open().await;
    // The image's own volumes, with what the image has there.
    assert_eq!(env.out("ls /home; echo x > /data/x; stat -c %u /home/user").await, "user\n1000");
    assert_eq!((volumes(&rig).len(), left(&rig).await.len()), (3, 0));
    let old = volumes(&rig);
    rig.docker(&["rm", "-f", &env.id()]);
    let mut found = left(&rig).await;
    found.sort();
    assert_eq!(found, old);
    // Those of the container that takes its place are others, and in use.
    let again = rig.open().await;
    assert_eq!(again.out("ls /data").await, "");
    for one in rig.backend().survey().await.unwrap().iter().filter(|one| !one.alive) {
        assert_eq!(one.task, None, "nothing of the task's is touched");
        rig.backend().remove_found(one).await.unwrap();
        rig.backend().remove_found(one).await.unwrap();
    }
    assert_eq!((volumes(&rig).len(), left(&rig).await.len()), (3, 0));
    again.out("echo y > /data/y").await;
    again.env.destroy().await.unwrap();
    assert_eq!(volumes(&rig), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_that_are_kept_or_not_ours_are_never_found() {
    let Some(rig) = crate::engines::remote() else { return };
    let Some(near) = var("FARSHELL_TEST_DOCKER") else { return };
    let docker = |args: &[&str]| {
        let output = std::process::Command::new("docker").args(["-H", &near]).args(args).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let env = rig.open().await;
    env.out("echo kept > /workspace/x").await;
    let found = rig.backend().survey().await.unwrap();
    let owner = format!("farshell.owner={}", found[0].owner);
    // Somebody else's, and one that has a name: both with a task.
    let task = "farshell.task=default";
    let other = docker(&["volume", "create", "--label", "farshell.owner=/other", "--label", task]);
    let named = format!("mine-{}", std::process::id());
    docker(&["volume", "create", "--label", &owner, "--label", task, &named]);
    docker(&["rm", "-f", &env.id()]);
    let found = rig.backend().survey().await.unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    for name in [&other, &named] {
        let mut made_up = found[0].clone();
        made_up.id = format!("volume/{name}");
        rig.backend().remove_found(&made_up).await.unwrap();
    }
    rig.backend().remove_found(&found[0]).await.unwrap();
    assert_eq!(rig.backend().survey().await.unwrap(), []);
    docker(&["volume", "rm", &other, &named]);
    assert_eq!(rig.open().await.out("cat /workspace/x").await, "kept");
    rig.backend().find(&rig.spec("default")).await.unwrap().unwrap().destroy().await.unwrap();
    rig.backend().remove_files(&rig.spec("default")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_container_goes_on_when_it_is_needed() {
    let Some(rig) = Rig::new() else { return };
    let env = rig.open().await;
    env.out("x=1").await;
    rig.docker(&["pause", &env.id()]);
    // By somebody who comes new, and by somebody who comes back.
    let again = rig.open().await;
    assert_eq!(again.out("echo $x").await, "1");
    rig.docker(&["pause", &env.id()]);
    env.env.outpost().disconnect();
    assert_eq!(env.out("echo $x").await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_ran_out_of_memory_says_so() {
    let Some(rig) = Rig::new() else { return };
    let rig = rig.with(|s| s.container.memory_mb = Some(64));
    let place = place(&rig).await;
    let outpost = Outpost::new(Arc::clone(&place));
    // The hog takes the container down with it.
    let hog = "python3 -c \"
x = []
while True: x.append(bytearray(1 << 20))\"; kill -9 -1";
    let session = SessionName::new("main").unwrap();
    SessionDefaults::plain(Mode::Live).open(&outpost, &session).await.unwrap();
    let what = What::Session {
        session,
        command: hog.into(),
        workdir: None,
        on_busy: OnBusy::Wait,
        merge_stderr: false,
    };
    let error = outpost.run(Start::new(new_process_id(), what), &mut Capture::unlimited()).await.unwrap_err();
    assert_eq!(error.kind, Kind::UnknownOutcome, "{error}");
    let said = place.epitaph().unwrap_or_default();
    assert_eq!(said, "the container ran out of memory (its limit is 64 MB) and was killed");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_restarts_takes_its_containers_along_or_not() {
    for live_restore in [false, true] {
        let args: &[&str] = if live_restore { &["--live-restore"] } else { &[] };
        let Some(own) = Own::start(if live_restore { "live" } else { "plain" }, args) else { return };
        let rig = Rig::on(&own.host, "farshell-test/busybox:1").unwrap();
        let env = rig.open().await;
        env.out("x=1; echo kept > /workspace/x").await;
        own.command("stop", &[]);
        if live_restore {
            // No engine is needed for a command.
            assert_eq!(env.out("echo $x").await, "1");
        } else {
            let error = env.try_run("echo $x").await.unwrap_err();
            assert!(error.kind != Kind::Invalid, "{error}");
        }
        let error = rig.backend().find(&rig.spec("default")).await.unwrap_err();
        assert!(error.message.contains("Docker is not running"), "{error}");
        own.command("start", args);
        let again = rig.open().await;
        assert_eq!(again.id(), env.id());
        assert_eq!(
            again.out("echo $x; cat /workspace/x").await,
            if live_restore { "1\nkept" } else { "\nkept" }
        );
        drop(rig);
        drop(own);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_outlives_its_image() {
    let Some(own) = Own::start("image", &[]) else { return };
    let rig = Rig::on(&own.host, "farshell-test/busybox:1").unwrap();
    let env = rig.open().await;
    env.out("echo layer > /x").await;
    rig.backend().find(&rig.spec("default")).await.unwrap().unwrap().suspend().await.unwrap();
    rig.docker(&["rmi", "-f", "farshell-test/busybox:1"]);
    assert_eq!(rig.open().await.out("cat /x").await, "layer");
    drop(rig);
    drop(own);
}
