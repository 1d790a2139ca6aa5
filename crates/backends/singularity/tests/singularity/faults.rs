//! Instances that are killed from outside, servers that are killed while they start one, images that go away.

use crate::rig::{Env, Rig, eventually, kill, lives};
use farshell_engine::Kind;
use farshell_engine::backend::Backend;

/// Process 1 of the instance.
fn init(others: &[u32]) -> u32 {
    let is_init = |pid: &&u32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "appinit")
    };
    *others.iter().find(is_init).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_whose_parent_was_killed_leaves_nothing_and_comes_again() {
    let Some(rig) = Rig::new() else { return };
    let env = rig.open().await;
    env.out("echo kept > /workspace/x; echo kept > /x").await;
    let (parent, others) = rig.family();
    let init = init(&others);
    kill(parent);
    eventually("what runs inside ends with it", || !lives(parent) && !lives(init)).await;
    // Its file systems would stay for ever.
    assert_eq!(env.out("cat /workspace/x /x").await, "kept\nkept");
    assert!(others.iter().all(|pid| !lives(*pid)), "{others:?}");
    assert_ne!(rig.family().0, parent);
    assert_eq!(rig.open().await.id(), env.id());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_whose_inside_was_killed_comes_again_and_says_why() {
    let Some(rig) = Rig::new() else { return };
    let place = rig.backend().provision(&rig.spec("default"), &()).await.unwrap();
    drop(place.connect().await.unwrap());
    assert_eq!(place.epitaph(), None);
    let (parent, others) = rig.family();
    kill(init(&others));
    eventually("all of it ends", || !lives(parent) && others.iter().all(|pid| !lives(*pid))).await;
    drop(place.connect().await.unwrap());
    assert_eq!(place.epitaph().as_deref(), Some("the instance was killed"));
    place.destroy().await.unwrap();
    let error = place.connect().await.unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable, "{error}");
    assert!(error.message.contains("was removed"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_interrupted_while_it_starts_leaves_one_that_is_found() {
    let Some(rig) = Rig::new() else { return };
    let (backend, spec) = (rig.backend(), rig.spec("default"));
    let starting = tokio::spawn(async move { backend.provision(&spec, &()).await.map(|_| ()) });
    eventually("it is noted", || rig.noted().iter().any(|path| path.join("state.json").exists())).await;
    starting.abort();
    let env = rig.open().await;
    assert_eq!(env.out("echo fine").await, "fine");
    let (parent, others) = rig.family();
    assert!(others.len() >= 2, "{others:?}");
    env.env.destroy().await.unwrap();
    assert!(!lives(parent) && others.iter().all(|pid| !lives(*pid)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_goes_away_is_named_and_its_files_stay() {
    let Some(rig) = Rig::new() else { return };
    let image = rig.home.path().join("image.sif");
    std::os::unix::fs::symlink(&rig.config.settings.image, &image).unwrap();
    let rig = rig.with(|s| s.image = image.display().to_string());
    let env = rig.open().await;
    env.out("echo kept > /workspace/x").await;
    rig.find().await.unwrap().suspend().await.unwrap();
    let aside = rig.home.path().join("aside.sif");
    std::fs::rename(&image, &aside).unwrap();
    let error = env.try_run("true").await.unwrap_err();
    assert_eq!(error.kind, Kind::NotFound, "{error}");
    assert!(error.to_string().contains("image.sif") && error.hint.is_some(), "{error}");
    assert_eq!(rig.refusal().await.kind, Kind::NotFound);
    std::fs::rename(&aside, &image).unwrap();
    assert_eq!(env.out("cat /workspace/x").await, "kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_image_leaves_nothing() {
    let Some(rig) = Rig::new() else { return };
    let rig = rig.with(|s| s.image = "/etc/passwd".into());
    let error = rig.refusal().await;
    assert_eq!(
        (error.kind, error.operation.as_str()),
        (Kind::Unavailable, "starting the instance"),
        "{error}"
    );
    assert!(rig.noted().is_empty(), "{:?}", rig.noted());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_an_earlier_start_of_the_machine_is_started_again_and_nobody_is_killed() {
    let Some(rig) = Rig::busybox() else { return };
    let env = rig.open().await;
    env.out("echo kept > /workspace/x").await;
    rig.find().await.unwrap().suspend().await.unwrap();
    // The numbers of that start mean other processes now: this one, for example.
    let path = rig.private().join("state.json");
    let mut state: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let mut stranger = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", stranger.id())).unwrap();
    let started: u64 = stat.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap().parse().unwrap();
    let process = serde_json::json!({"pid": stranger.id(), "started": started});
    state["family"] = serde_json::json!({"parent": process, "others": [process]});
    state["machine"]["boot"] = "an earlier one".into();
    std::fs::write(&path, state.to_string()).unwrap();
    assert!(!rig.backend().survey().await.unwrap()[0].alive);
    assert_eq!(rig.open().await.out("cat /workspace/x").await, "kept");
    assert!(lives(stranger.id()));
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_on_another_machine_is_left_alone_until_it_is_put_away() {
    let Some(rig) = Rig::busybox() else { return };
    let env = rig.open().await;
    env.out("echo kept > /workspace/x").await;
    let path = rig.private().join("state.json");
    let read = || serde_json::from_slice::<serde_json::Value>(&std::fs::read(&path).unwrap()).unwrap();
    let before = read();
    let moved = |mut state: serde_json::Value| {
        state["machine"] = serde_json::json!({"host": "login2", "boot": "another"});
        std::fs::write(&path, state.to_string()).unwrap();
    };
    moved(before.clone());
    let error = rig.refusal().await;
    assert!(error.message.contains("login2") && error.hint.is_some(), "{error}");
    assert!(rig.backend().find(&rig.spec("default")).await.is_err());
    assert!(rig.backend().survey().await.unwrap().is_empty());
    std::fs::write(&path, before.to_string()).unwrap();
    rig.find().await.unwrap().suspend().await.unwrap();
    moved(read());
    assert_eq!(rig.backend().survey().await.unwrap().len(), 1);
    let again = rig.open().await;
    assert_eq!((again.id(), again.out("cat /workspace/x").await), (env.id(), "kept".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_home_that_was_copied_does_not_end_the_instances_of_the_other() {
    let Some(rig) = Rig::busybox() else { return };
    let env: Env = rig.open().await;
    env.out("true").await;
    let copy = rig.home.path().join("copy");
    let status =
        std::process::Command::new("cp").arg("-a").arg(&rig.config.home).arg(&copy).status().unwrap();
    assert!(status.success());
    let mut config = rig.config.clone();
    config.home = copy;
    let backend = farshell_singularity::Singularity::new(config);
    assert!(backend.survey().await.unwrap().is_empty());
    assert!(backend.find(&rig.spec("default")).await.unwrap().is_none());
    assert_eq!(env.out("echo alive").await, "alive");
}
