//! Files that last, and files that are shared.

use crate::rig::Rig;
use farshell_config::volume::Volume;
use farshell_engine::Kind;
use farshell_engine::backend::Backend;

#[tokio::test(flavor = "multi_thread")]
async fn kept_files_outlive_the_container_and_are_removed_when_asked() {
    let Some(rig) = Rig::new() else { return };
    let env = rig.open().await;
    env.out("echo work > /workspace/x; echo home > /root/x; echo layer > /opt/x").await;
    env.env.destroy().await.unwrap();
    let again = rig.open().await;
    assert_eq!(again.out("cat /workspace/x /root/x; ls /opt").await, "work\nhome");
    let (backend, spec) = (rig.backend(), rig.spec("default"));
    let kept = rig.config.settings.sandbox_dir.join("docker/default");
    assert_eq!(backend.kept_files(&spec).await, Some(kept.display().to_string()));
    assert_eq!(std::fs::read_to_string(kept.join("workspace/x")).unwrap(), "work\n");
    again.env.destroy().await.unwrap();
    backend.remove_files(&spec).await.unwrap();
    backend.remove_files(&spec).await.unwrap();
    assert_eq!((kept.exists(), backend.kept_files(&spec).await), (false, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_kept_is_gone_with_its_container() {
    let Some(rig) = Rig::new() else { return };
    let rig = rig.with(|s| s.container.persistent = false);
    let env = rig.open().await;
    env.out("echo work > /workspace/x; echo home > /root/x").await;
    let volumes = || {
        rig.docker(&[
            "volume",
            "ls",
            "-q",
            "--filter",
            &format!("label=farshell.owner={}", rig.home.path().display()),
        ])
    };
    assert_eq!(volumes().lines().count(), 1);
    let place = rig.backend().find(&rig.spec("default")).await.unwrap().unwrap();
    place.suspend().await.unwrap();
    assert!(rig.backend().survey().await.unwrap().is_empty());
    assert_eq!(volumes(), "");
    assert_eq!(rig.open().await.out("ls -A /workspace /root").await, "/root:\n\n/workspace:");
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_of_this_machine_are_shared_as_asked() {
    let Some(rig) = Rig::new() else { return };
    let shared = tempfile::tempdir().unwrap();
    std::fs::write(shared.path().join("x"), "outside\n").unwrap();
    let made = shared.path().join("made/by/farshell");
    let volume = |source: &std::path::Path, rest: &str| {
        Volume::parse(&format!("{}:{rest}", source.display())).unwrap()
    };
    let volumes = vec![
        volume(shared.path(), "/data:ro"),
        volume(shared.path(), "/workspace/projects"),
        volume(&made, "/made/"),
    ];
    let rig = rig.with(|s| s.volumes = volumes);
    let env = rig.open().await;
    assert_eq!(
        env.out("cat /data/x; echo inside > /workspace/projects/y; cat /data/y; touch /made/z").await,
        "outside\ninside"
    );
    assert!(env.run("touch /data/z").await.stderr.contains("Read-only"));
    assert_eq!(std::fs::read_to_string(shared.path().join("y")).unwrap(), "inside\n");
    assert!(made.join("z").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_start_directory_is_the_workspace_if_asked() {
    let Some(mut rig) = Rig::new() else { return };
    let start = tempfile::tempdir().unwrap();
    std::fs::write(start.path().join("x"), "here\n").unwrap();
    rig.config.start_dir = Some(start.path().into());
    let rig = rig.with(|s| s.mount_cwd_to_workspace = true);
    assert_eq!(rig.open().await.out("cat /workspace/x").await, "here");
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_shared_only_when_named_and_only_to_be_read() {
    let Some(mut rig) = Rig::new() else { return };
    std::fs::create_dir(rig.home.path().join("keys")).unwrap();
    std::fs::write(rig.home.path().join("keys/a"), "secret\n").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", rig.home.path().join("link")).unwrap();
    rig.config.credential_files = vec!["keys/a".into()];
    let env = rig.open().await;
    assert_eq!(env.out("cat /root/.hermes/keys/a").await, "secret");
    assert_ne!(env.run("echo x > /root/.hermes/keys/a").await.code(), 0);
    env.env.destroy().await.unwrap();
    for path in ["link", "../x", "/etc/passwd", "missing"] {
        rig.config.credential_files = vec![path.into()];
        let error = rig.backend().provision(&rig.spec("default"), &()).await.unwrap_err();
        assert_eq!(error.kind, Kind::Invalid, "{path}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_can_not_hide_the_outpost() {
    let Some(rig) = Rig::new() else { return };
    for target in ["/.farshell", "/.farshell/s", "/", "/a/../.farshell"] {
        let volume = Volume { source: "/tmp".into(), target: target.into(), options: Vec::new() };
        let rig = Rig::new().unwrap().with(|s| s.volumes = vec![volume]);
        let error = rig.backend().provision(&rig.spec("default"), &()).await.unwrap_err();
        assert_eq!(error.kind, Kind::Invalid, "{target}: {error}");
    }
    drop(rig);
}
