//! What an instance sees of this machine: nothing that was not named.

use crate::rig::{Rig, var};
use farshell_config::volume::Volume;
use farshell_engine::Kind;
use farshell_engine::backend::Backend;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

#[tokio::test(flavor = "multi_thread")]
async fn no_variable_of_the_host_is_seen_anywhere() {
    let Some(mut rig) = Rig::new() else { return };
    for name in [
        "SECRET_TOKEN",
        "APPTAINERENV_LEAK",
        "SINGULARITYENV_LEAK",
        "APPTAINER_BIND",
        "APPTAINER_DOCKER_PASSWORD",
    ] {
        rig.config.environment.insert(name.into(), "hunter2,/etc:/leak".into());
    }
    let env = rig.open().await;
    let all = env.out("cat /proc/[0-9]*/environ | tr '\\0' '\\n'; env").await;
    assert!(!all.contains("hunter2") && !all.contains("LEAK"), "{all}");
    assert_eq!(
        env.out("echo ${PS1-unset} ${PROMPT_COMMAND-unset}; ls -d /leak 2>/dev/null || true").await,
        "unset unset"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn no_process_and_no_file_of_the_host_is_seen() {
    let Some(rig) = Rig::new() else { return };
    let secret = rig.home.path().join("secret");
    std::fs::write(&secret, "hunter2").unwrap();
    let env = rig.open().await;
    assert_eq!(env.out("cat /proc/1/comm").await, "appinit");
    assert_ne!(env.run(&format!("ls -d /proc/{}", std::process::id())).await.code(), 0);
    // This user's home, the directory the test runs in, temporary files, and what the backend itself keeps.
    for path in [secret, std::env::var("HOME").unwrap().into(), std::env::temp_dir(), rig.config.home.clone()]
    {
        if path == std::path::Path::new("/root") || path == std::path::Path::new("/tmp") {
            continue;
        }
        assert_ne!(env.run(&format!("ls -d '{}'", path.display())).await.code(), 0, "{}", path.display());
    }
    assert_eq!(
        env.out("ls -A ~ /workspace /tmp /var/tmp /home").await,
        "/home:\n\n/root:\n\n/tmp:\n\n/var/tmp:\n\n/workspace:"
    );
    for name in ["pid", "ipc", "mnt", "user"] {
        let outside = std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap();
        let inside = env.out(&format!("readlink /proc/self/ns/{name}")).await;
        assert_ne!(inside, outside.to_string_lossy(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_image_and_the_outposts_program_can_not_be_changed_from_inside() {
    for variable in ["FARSHELL_TEST_SIF", "FARSHELL_TEST_SANDBOX"] {
        let Some(image) = var(variable) else { return };
        let rig = Rig::on(&image).unwrap();
        let env = rig.open().await;
        for command in ["touch /.farshell/b/x", "rm /.farshell/b/farshell-outpost", "echo x > /etc/hosts"] {
            assert_ne!(env.run(command).await.code(), 0, "{command}");
        }
        env.out("echo mine > /mine").await;
        env.env.destroy().await.unwrap();
        assert!(!std::path::Path::new(&image).join("mine").exists());
        assert_eq!(rig.open().await.out("ls /mine 2>/dev/null || true").await, "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_are_shared_as_asked() {
    let Some(rig) = Rig::new() else { return };
    let shared = tempfile::tempdir().unwrap();
    std::fs::write(shared.path().join("x"), "outside\n").unwrap();
    let volume = |rest: &str| Volume::parse(&format!("{}:{rest}", shared.path().display())).unwrap();
    let rig =
        rig.with(|s| s.bind = vec![volume("/data:ro"), volume("/workspace/projects/a"), volume("/root/b")]);
    let env = rig.open().await;
    assert_eq!(
        env.out("cat /data/x ~/b/x; echo inside > /workspace/projects/a/y; cat /data/y").await,
        "outside\noutside\ninside"
    );
    assert!(env.run("touch /data/z").await.stderr.contains("Read-only"));
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_shared_only_when_named_and_only_to_be_read() {
    let Some(mut rig) = Rig::new() else { return };
    let root = rig.config.credential_root.clone();
    std::fs::create_dir_all(root.join("keys")).unwrap();
    std::fs::write(root.join("keys/a"), "secret\n").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", root.join("link")).unwrap();
    rig.config.credential_files = vec!["keys/a".into()];
    let env = rig.open().await;
    assert_eq!(env.out("cat /root/.hermes/keys/a").await, "secret");
    assert_ne!(env.run("echo x > /root/.hermes/keys/a").await.code(), 0);
    env.env.destroy().await.unwrap();
    for path in ["link", "../x", "/etc/passwd", "missing"] {
        rig.config.credential_files = vec![path.into()];
        let error = rig.refusal().await;
        assert_eq!(error.kind, Kind::Invalid, "{path}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_instance_puts_in_the_place_of_the_socket_is_not_used() {
    let Some(rig) = Rig::new() else { return };
    let env = rig.open().await;
    env.out("true").await;
    let trap = rig.home.path().join("trap");
    let listener = UnixListener::bind(&trap).unwrap();
    listener.set_nonblocking(true).unwrap();
    for (what, named) in [
        (format!("ln -s {} /.farshell/s/sock", trap.display()), "symbolic link"),
        ("mkdir /.farshell/s/sock".into(), "a directory"),
        ("echo > /.farshell/s/sock".into(), "a file"),
    ] {
        env.out(&format!("rm -rf /.farshell/s/sock; {what}")).await;
        let error = rig.open().await.try_run("true").await.unwrap_err();
        assert_eq!(error.kind, Kind::Unavailable, "{what}: {error}");
        assert!(error.message.contains(named), "{what}: {error}");
    }
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    env.env.destroy().await.unwrap();
    rig.open().await.out("true").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_else_on_this_machine_gets_to_the_files() {
    let Some(rig) = Rig::busybox() else { return };
    rig.open().await.out("true").await;
    for dir in [rig.private(), rig.files()] {
        let mode = std::fs::metadata(&dir).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o700, "{}", dir.display());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn extra_arguments_reach_the_instance_and_others_are_refused() {
    let Some(rig) = Rig::busybox() else { return };
    let args = ["--uts", "--hostname", "box", "--net", "--network=none"];
    let rig = rig.with(|s| s.extra_args = args.map(Into::into).into());
    let env = rig.open().await;
    assert_eq!(env.out("hostname; grep : /proc/net/dev | grep -v ' lo:' || true").await, "box");
    let rig = rig.with(|s| s.extra_args = vec!["--bind=/:/host".into()]);
    assert!(rig.refusal().await.message.contains("--bind"));
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_names_of_homes_are_refused_and_odd_ones_work() {
    let Some(rig) = Rig::busybox() else { return };
    for name in ["a:b", "a,b:ro", "a\"b"] {
        let mut config = rig.config.clone();
        config.home = rig.home.path().join(name);
        let backend = farshell_singularity::Singularity::new(config);
        let error = backend.provision(&rig.spec("default"), &()).await.unwrap_err();
        assert_eq!(error.kind, Kind::Invalid, "{name}: {error}");
        assert!(error.hint.is_some());
    }
    let mut rig = rig;
    rig.config.home = rig.home.path().join("with blank $(touch x) 'quote; ü");
    assert_eq!(rig.open_task("a.b_c-d").await.out("echo fine").await, "fine");
}
