//! Containers are made, found again, put away and removed.

use crate::rig::{Env, Rig, find, root, sockets, var};
use farshell_engine::Kind;
use farshell_engine::backend::Backend;
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_made_and_found_again_with_its_state() {
    let Some(rig) = Rig::new() else { return };
    let env = rig.open().await;
    assert_eq!(env.out("cd /tmp && x=1 && echo $x; id -u; cat /proc/1/comm").await, "1\n0\ndocker-init");
    // Another process, or a server after a restart.
    let again = rig.open().await;
    assert_eq!(again.id(), env.id());
    assert_eq!(again.out("echo $x $PWD").await, "1 /tmp");
    let found = rig.backend().survey().await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].id.as_str(), found[0].alive), (env.id().as_str(), true));
    assert_eq!(found[0].spec_hash, Some(rig.spec("default").hash("docker")));
    assert_eq!(found[0].task.as_ref().map(|t| t.as_str()), Some("default"));
    env.env.destroy().await.unwrap();
    env.env.destroy().await.unwrap();
    assert!(rig.backend().survey().await.unwrap().is_empty());
    assert!(find(&rig.backend(), &rig.spec("default")).await.is_none());
    assert!(sockets(rig.home.path()).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_put_away_is_woken_with_its_packages_and_files() {
    let Some(rig) = Rig::new() else { return };
    let env = rig.open().await;
    env.out("echo layer > /opt/x; echo work > /workspace/x; echo home > ~/x").await;
    let backend = rig.backend();
    let place = find(&backend, &rig.spec("default")).await.unwrap();
    assert!(!place.sleeps());
    place.suspend().await.unwrap();
    let place = find(&backend, &rig.spec("default")).await.unwrap();
    assert!(place.sleeps() && !backend.survey().await.unwrap()[0].alive);
    let again = rig.open().await;
    assert_eq!(again.id(), env.id());
    assert_eq!(again.out("cat /opt/x /workspace/x ~/x").await, "layer\nwork\nhome");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_runs_out_stops_the_container() {
    for persistent in [true, false] {
        let task = if persistent { "kept" } else { "gone" };
        let Some(rig) = Rig::busybox() else { return };
        let rig = rig.with(|s| s.container.persistent = persistent);
        let mut spec = rig.spec(task);
        spec.lease = Duration::from_secs(1);
        let env = Env::open(&rig.backend(), &spec).await;
        env.out("true").await;
        drop(env);
        let alive = async || -> Vec<bool> {
            rig.backend().survey().await.unwrap().iter().map(|found| found.alive).collect()
        };
        let expected = vec![false; usize::from(persistent)];
        let deadline = Instant::now() + Duration::from_secs(60);
        while alive().await != expected && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(alive().await, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_get_the_same_container() {
    let Some(rig) = Rig::busybox() else { return };
    let opened: Vec<_> = (0..8)
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

/// Set in copies of this program that open one task of one home.
const CROWD: &str = "FARSHELL_TEST_CROWD";

#[tokio::test(flavor = "multi_thread")]
async fn processes_at_once_get_one_container_and_leave_nothing_else() {
    if let Some(home) = std::env::var_os(CROWD) {
        let mut rig = Rig::on(&var("DOCKER_HOST").unwrap(), &var("FARSHELL_TEST_IMAGE").unwrap()).unwrap();
        rig.config.home = home.into();
        rig.config.settings.sandbox_dir = rig.config.home.join("sandboxes");
        let env = rig.open().await;
        env.out("echo x >> /workspace/crowd").await;
        eprintln!("container {}", env.id());
        // The container is the others', too.
        std::mem::forget(rig);
        return;
    }
    let (Some(docker), Some(podman)) = (var("FARSHELL_TEST_DOCKER"), var("FARSHELL_TEST_PODMAN")) else {
        return;
    };
    let (Some(near), Some(far)) = (var("FARSHELL_TEST_IMAGE"), var("FARSHELL_TEST_PODMAN_IMAGE")) else {
        return;
    };
    let mut engines = vec![(docker, near)];
    if root() {
        engines.push((podman, far));
    }
    for (host, image) in engines {
        let rig = Rig::on(&host, &image).unwrap();
        let crowd = |home: &std::path::Path| {
            std::process::Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "life::processes_at_once_get_one_container_and_leave_nothing_else",
                    "--nocapture",
                ])
                .envs([("DOCKER_HOST", &host), ("FARSHELL_TEST_IMAGE", &image)])
                .env(CROWD, home)
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::piped())
                .spawn()
                .unwrap()
        };
        let children: Vec<_> = (0..6).map(|_| crowd(rig.home.path())).collect();
        let mut ids = Vec::new();
        for child in children {
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{host}: {said}");
            ids.extend(said.lines().filter_map(|line| line.strip_prefix("container ")).map(str::to_owned));
        }
        assert_eq!(ids.len(), 6);
        ids.dedup();
        assert_eq!(ids.len(), 1, "{host}");
        let env = rig.open().await;
        assert_eq!(env.id(), ids[0]);
        assert_eq!(env.out("grep -c x /workspace/crowd").await, "6");
        let found = rig.backend().survey().await.unwrap();
        assert_eq!(found.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), [ids[0].as_str()], "{host}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_settings_replace_a_stopped_container_and_refuse_a_running_one() {
    let Some(rig) = Rig::busybox() else { return };
    let env = rig.open().await;
    env.out("echo kept > /workspace/x; echo gone > /etc/x").await;
    let mut other = rig.spec("default");
    other.settings.insert("changed".into(), "yes".into());
    let error = rig.backend().provision(&other, &()).await.unwrap_err();
    assert_eq!(error.kind, Kind::SpecChanged, "{error}");
    find(&rig.backend(), &other).await.unwrap().suspend().await.unwrap();
    let again = Env::open(&rig.backend(), &other).await;
    assert_ne!(again.id(), env.id());
    assert_eq!(again.out("cat /workspace/x; ls /etc/x 2>/dev/null || true").await, "kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_elses_container_of_our_name_is_left_alone() {
    let Some(rig) = Rig::busybox() else { return };
    let env = rig.open().await;
    let name = rig.docker(&["inspect", "-f", "{{.Name}}", &env.id()]);
    let name = name.trim_start_matches('/');
    env.env.destroy().await.unwrap();
    rig.docker(&["create", "--name", name, &rig.config.settings.image, "true"]);
    let error = rig.backend().provision(&rig.spec("default"), &()).await.unwrap_err();
    assert_eq!(error.kind, Kind::AlreadyExists, "{error}");
    assert!(error.message.contains(name) && error.hint.is_some());
    assert!(find(&rig.backend(), &rig.spec("default")).await.is_none());
    rig.docker(&["rm", name]);
}

#[tokio::test(flavor = "multi_thread")]
async fn images_with_a_user_of_their_own_or_an_entrypoint_that_fails() {
    let Some(engine) = var("FARSHELL_TEST_DOCKER") else { return };
    for (name, uid) in [
        ("FARSHELL_TEST_IMAGE_USER", "1000"),
        ("FARSHELL_TEST_BUSYBOX_USER", "1000"),
        ("FARSHELL_TEST_BUSYBOX_INIT", "0"),
        ("FARSHELL_TEST_BUSYBOX", "0"),
    ] {
        let Some(image) = var(name) else { return };
        for read_only in [false, true] {
            for persistent in [false, true] {
                let rig = Rig::on(&engine, &image).unwrap().with(|s| {
                    s.read_only = read_only;
                    s.container.persistent = persistent;
                });
                let env = rig.open().await;
                let what = format!("{name} read_only={read_only} persistent={persistent}");
                let said = env
                    .out("id -u; echo a > /workspace/x && echo b > /root/x && cat /workspace/x /root/x")
                    .await;
                assert_eq!(said, format!("{uid}\na\nb"), "{what}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_host_user_is_the_user_inside() {
    let Some(rig) = Rig::new() else { return };
    let rig = rig.with(|s| s.run_as_host_user = true);
    let env = rig.open().await;
    let uid = rustix::process::getuid().as_raw();
    assert_eq!(env.out("id -u; echo $HOME; echo x > ~/y && cat ~/y").await, format!("{uid}\n/root\nx"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_can_not_start_is_told_and_not_left() {
    let Some(rig) = Rig::busybox() else { return };
    let file = rig.home.path().join("file");
    std::fs::write(&file, "").unwrap();
    // Two things that engines find out only at the start, with different answers.
    for (args, words) in [
        (vec!["--device".to_owned(), "/dev/nothing-here".to_owned()], "/dev/nothing-here"),
        (vec!["--volume".to_owned(), format!("{}:/etc", file.display())], "not a directory"),
    ] {
        let mut config = rig.config.clone();
        config.settings.extra_args = args;
        let backend = farshell_docker::Docker::new(config);
        let error = backend.provision(&rig.spec("default"), &()).await.unwrap_err();
        assert_eq!(error.kind, Kind::Unavailable, "{error}");
        assert!(
            error.operation.starts_with("starting container") && error.message.contains(words),
            "{error}"
        );
        assert_eq!(backend.survey().await.unwrap(), []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_can_not_be_had_is_told_in_the_engines_words() {
    let Some(rig) = Rig::new() else { return };
    let rig = rig.with(|s| s.image = "127.0.0.1:9/nobody/nothing:1".into());
    let error = rig.backend().provision(&rig.spec("default"), &()).await.unwrap_err();
    assert_eq!(error.operation, "pulling image 127.0.0.1:9/nobody/nothing:1");
    assert!(error.message.contains("127.0.0.1:9") && error.hint.is_some(), "{error}");
    assert!(rig.backend().survey().await.unwrap().is_empty());
}
