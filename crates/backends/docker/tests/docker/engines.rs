//! Engines of all kinds, and what it means when there is none.

use crate::rig::{Rig, root, var};
use farshell_engine::Kind;
use farshell_engine::backend::{Backend, Severity};
use sha2::{Digest, Sha256};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A rig whose engine is reached by TCP with TLS: it might be on another machine.
pub(crate) fn remote() -> Option<Rig> {
    let (host, certs) = (var("FARSHELL_TEST_DOCKER_TCP")?, var("FARSHELL_TEST_DOCKER_CERTS")?);
    let mut rig = Rig::on(&host, &var("FARSHELL_TEST_IMAGE")?)?;
    rig.config.environment.insert("DOCKER_TLS_VERIFY".into(), "1".into());
    rig.config.environment.insert("DOCKER_CERT_PATH".into(), certs);
    Some(rig)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_elsewhere_gets_the_outpost_and_keeps_files_in_volumes() {
    let Some(rig) = remote() else { return };
    let env = rig.open().await;
    assert_eq!(env.out("x=1; echo work > /workspace/x; echo home > /root/x; echo $x").await, "1");
    let bytes = env.run("head -c 5m /dev/zero").await;
    assert_eq!(bytes.stdout.len(), 5 << 20);
    // A new connection, the same shell.
    env.env.outpost().disconnect();
    assert_eq!(env.out("echo $x").await, "1");
    let mounts = env.out("cut -d' ' -f2 /proc/mounts").await;
    assert!(!mounts.contains("/.farshell/s"), "{mounts}");
    env.env.destroy().await.unwrap();
    let again = rig.open().await;
    assert_eq!(again.out("cat /workspace/x /root/x").await, "work\nhome");
    let (backend, spec) = (rig.backend(), rig.spec("default"));
    let kept = backend.kept_files(&spec).await.unwrap();
    assert!(kept.starts_with("volumes farshell-default-") && kept.contains("-workspace"), "{kept}");
    again.env.destroy().await.unwrap();
    backend.remove_files(&spec).await.unwrap();
    assert_eq!(backend.kept_files(&spec).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_on_an_engine_elsewhere_that_goes_down_is_started_again() {
    let Some(rig) = remote() else { return };
    let Some(near) = var("FARSHELL_TEST_DOCKER") else { return };
    let env = rig.open().await;
    env.out("echo kept > /workspace/x").await;
    for _ in 0..5 {
        // At once, so that the next one comes while it is going down.
        let killed = Command::new("docker").args(["-H", &near, "kill", &env.id()]).output().unwrap();
        assert!(killed.status.success());
        env.env.outpost().disconnect();
        assert_eq!(env.out("cat /workspace/x").await, "kept");
    }
    env.env.destroy().await.unwrap();
    rig.backend().remove_files(&rig.spec("default")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn users_other_than_root_can_write_on_an_engine_elsewhere() {
    let Some(image) = var("FARSHELL_TEST_IMAGE_USER") else { return };
    for read_only in [false, true] {
        let Some(rig) = remote() else { return };
        let rig = rig.with(|s| {
            s.image = image.clone();
            s.read_only = read_only;
        });
        let env = rig.open().await;
        assert_eq!(
            env.out("id -u; echo a > /workspace/x; echo b > /root/x; cat /workspace/x /root/x").await,
            "1000\na\nb"
        );
        env.env.destroy().await.unwrap();
        rig.backend().remove_files(&rig.spec("default")).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn podman_serves_as_well() {
    if !root() {
        return;
    }
    let (Some(host), Some(image)) = (var("FARSHELL_TEST_PODMAN"), var("FARSHELL_TEST_PODMAN_IMAGE")) else {
        return;
    };
    let rig = Rig::on(&host, &image).unwrap();
    let env = rig.open().await;
    assert_eq!(env.out("x=1; echo work > /workspace/x; echo $x").await, "1");
    let status = env.out("grep -E 'CapEff|NoNewPrivs' /proc/self/status | tr '\\n' ' '").await;
    assert!(status.contains("00000000000000cb") && status.contains("NoNewPrivs:\t1"), "{status}");
    let again = rig.open().await;
    assert_eq!((again.id(), again.out("echo $x").await), (env.id(), "1".into()));
    let backend = rig.backend();
    backend.find(&rig.spec("default")).await.unwrap().unwrap().suspend().await.unwrap();
    let woken = rig.open().await;
    assert_eq!((woken.id(), woken.out("cat /workspace/x").await), (env.id(), "work".into()));
    woken.env.destroy().await.unwrap();
    assert!(backend.survey().await.unwrap().is_empty());
    // The volumes that an image wants are made by us there, too.
    let Some(image) = var("FARSHELL_TEST_BUSYBOX_VOLUME") else { return };
    let rig = rig.with(|s| s.image = format!("localhost/{image}"));
    let env = rig.open().await;
    assert_eq!(env.out("ls /home; echo x > /data/x; stat -c %u /home/user").await, "user\n1000");
    env.env.destroy().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_context_names_the_engine() {
    let Some(host) = var("FARSHELL_TEST_DOCKER_TCP") else { return };
    let Some(mut rig) = remote() else { return };
    let docker = tempfile::tempdir().unwrap();
    let hash: String = Sha256::digest("lab").iter().map(|b| format!("{b:02x}")).collect();
    let meta = docker.path().join("contexts/meta").join(&hash);
    std::fs::create_dir_all(&meta).unwrap();
    let text = format!(
        r#"{{"Name":"lab","Metadata":{{}},"Endpoints":{{"docker":{{"Host":"{host}","SkipTLSVerify":false}}}}}}"#
    );
    std::fs::write(meta.join("meta.json"), text).unwrap();
    let tls = docker.path().join("contexts/tls").join(&hash).join("docker");
    std::fs::create_dir_all(&tls).unwrap();
    let certs = rig.config.environment["DOCKER_CERT_PATH"].clone();
    for name in ["ca.pem", "cert.pem", "key.pem"] {
        std::fs::copy(Path::new(&certs).join(name), tls.join(name)).unwrap();
    }
    std::fs::write(docker.path().join("config.json"), r#"{"currentContext":"lab"}"#).unwrap();
    for name in ["DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"] {
        rig.config.environment.remove(name);
    }
    rig.config.environment.insert("DOCKER_CONFIG".into(), docker.path().display().to_string());
    let findings = rig.backend().check().await;
    assert!(findings[0].what.contains(r#"context "lab""#), "{findings:?}");
    rig.config.environment.insert("DOCKER_CONTEXT".into(), "other".into());
    let error = rig.backend().find(&rig.spec("default")).await.unwrap_err();
    assert!(error.message.contains("other") && error.message.contains("known: lab"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_engine_no_server_and_no_permission_are_three_things() {
    let Some(mut rig) = Rig::on("unix:///nowhere", "image") else { return };
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("docker.sock");
    let ask = |rig: &Rig| {
        let (backend, spec) = (rig.backend(), rig.spec("default"));
        async move { backend.find(&spec).await.unwrap_err() }
    };
    rig.config.environment.insert("DOCKER_HOST".into(), format!("unix://{}", socket.display()));
    let error = ask(&rig).await;
    assert!(error.message.contains("is not running") && error.message.contains("DOCKER_HOST"), "{error}");
    assert_eq!(error.kind, Kind::Unavailable);
    drop(UnixListener::bind(&socket).unwrap());
    assert!(ask(&rig).await.message.contains("is not running"));
    if !Path::new("/var/run/docker.sock").exists() {
        rig.config.environment.clear();
        rig.config.environment.insert("PATH".into(), dir.path().display().to_string());
        let error = ask(&rig).await;
        assert!(error.message.contains("is not installed") && error.hint.is_some(), "{error}");
        std::fs::write(dir.path().join("dockerd"), "").unwrap();
        assert!(ask(&rig).await.message.contains("is not running"));
    }
    let findings = rig.backend().check().await;
    assert_eq!(findings.iter().map(|f| f.severity).collect::<Vec<_>>(), [Severity::Problem]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_engine_is_told() {
    let Some(mut rig) = Rig::on("unix:///nowhere", "image") else { return };
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("docker.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nOK");
        }
    });
    rig.config.environment.insert("DOCKER_HOST".into(), format!("unix://{}", socket.display()));
    let error = rig.backend().find(&rig.spec("default")).await.unwrap_err();
    assert_eq!(error.kind, Kind::Protocol, "{error}");
}

/// Set in the copy of this program that sees files of its own.
const HIDDEN: &str = "FARSHELL_TEST_HIDDEN";

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_that_leads_elsewhere_is_noticed() {
    let Some(host) = var("FARSHELL_TEST_DOCKER") else { return };
    let Some(image) = var("FARSHELL_TEST_BUSYBOX") else { return };
    if let Some(hidden) = std::env::var_os(HIDDEN) {
        let mut rig = Rig::on(&host, &image).unwrap();
        rig.config.home = hidden.into();
        rig.config.settings.sandbox_dir = rig.config.home.join("sandboxes");
        let env = rig.open().await;
        assert_eq!(env.out("x=1; echo kept > /workspace/x; echo $x").await, "1");
        let again = rig.open().await;
        assert_eq!((again.id(), again.out("echo $x").await), (env.id(), "1".into()));
        assert!(!rig.config.home.join("run/docker").join("x").exists());
        env.env.destroy().await.unwrap();
        rig.backend().remove_files(&rig.spec("default")).await.unwrap();
        return;
    }
    if !root() {
        return;
    }
    // The engine is on this machine and sees other files than this program: as good as another machine.
    let hidden = tempfile::tempdir().unwrap();
    let status = Command::new("unshare")
        .args(["-m", "--propagation", "private", "sh", "-c"])
        .arg(r#"mount -t tmpfs none "$0" && exec "$1" --exact engines::a_socket_that_leads_elsewhere_is_noticed"#)
        .arg(hidden.path())
        .arg(std::env::current_exe().unwrap())
        .env(HIDDEN, hidden.path())
        .status()
        .unwrap();
    assert!(status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_is_not_the_engines_is_refused() {
    let Some(mut rig) = remote() else { return };
    let other = tempfile::tempdir().unwrap();
    // A certificate of another authority: the machine's own, which did not sign the engine's.
    rig.config.environment.insert("DOCKER_CERT_PATH".into(), other.path().display().to_string());
    let error = rig.backend().find(&rig.spec("default")).await.unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable, "{error}");
    assert!(
        error.message.to_lowercase().contains("certificate") || error.message.contains("UnknownIssuer"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_tells_what_is_there() {
    let Some(rig) = Rig::new() else { return };
    let rig = rig.with(|s| s.container.disk_mb = Some(100));
    let findings = rig.backend().check().await;
    assert!(
        findings[0].what.starts_with("engine ") && findings[0].severity == Severity::Good,
        "{findings:?}"
    );
    assert!(findings.iter().all(|f| f.severity != Severity::Problem), "{findings:?}");
    assert!(
        findings.iter().any(|f| f.what.contains("container_disk (100 MB) is not enforced")),
        "{findings:?}"
    );
}

/// A way to an engine that can pretend to be an older one. Returns its address, and the switch.
fn pretender(engine: &str, dir: &Path) -> (String, Arc<AtomicBool>) {
    let (socket, real) = (dir.join("docker.sock"), engine.trim_start_matches("unix://").to_owned());
    let listener = UnixListener::bind(&socket).unwrap();
    let older = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&older);
    std::thread::spawn(move || {
        while let Ok((mut client, _)) = listener.accept() {
            let (real, older) = (real.clone(), Arc::clone(&older));
            std::thread::spawn(move || {
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && client.read(&mut byte).is_ok_and(|n| n == 1) {
                    head.extend(byte);
                }
                let text = String::from_utf8_lossy(&head).into_owned();
                if older.load(Ordering::Relaxed) && text.contains(" /v1.41/") {
                    let said = r#"{"message":"client version 1.41 is too new. Maximum supported API version is 1.40"}"#;
                    let answer = format!(
                        "HTTP/1.1 400 Bad Request\r\nApi-Version: 1.40\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{said}",
                        said.len()
                    );
                    let _ = client.write_all(answer.as_bytes());
                    return;
                }
                let mut server = UnixStream::connect(real).unwrap();
                // One request a connection: what comes next is looked at, too. An exec takes the connection over.
                let head = match text.contains("Upgrade") || text.contains("upgrade") {
                    true => text,
                    false => text.replacen("\r\n", "\r\nConnection: close\r\n", 1),
                };
                server.write_all(head.as_bytes()).unwrap();
                let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                });
                let mut answer = Vec::new();
                let mut part = [0; 4096];
                while let Ok(n) = server.read(&mut part) {
                    if n == 0 {
                        break;
                    }
                    let begins = answer.len() < 4;
                    answer.extend_from_slice(&part[..n.min(4)]);
                    let mut part = part[..n].to_vec();
                    if begins && older.load(Ordering::Relaxed) {
                        let text = String::from_utf8_lossy(&part).into_owned();
                        part = text.replacen("Api-Version: 1.41", "Api-Version: 1.40", 1).into_bytes();
                    }
                    if client.write_all(&part).is_err() {
                        break;
                    }
                }
                let _ = client.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    (format!("unix://{}", socket.display()), switch)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_was_replaced_by_another_version_is_spoken_to_in_that() {
    let (Some(engine), Some(image)) = (var("FARSHELL_TEST_DOCKER"), var("FARSHELL_TEST_BUSYBOX")) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let (address, older) = pretender(&engine, dir.path());
    let rig = Rig::on(&address, &image).unwrap();
    // The one that knew the engine before.
    let (backend, spec) = (rig.backend(), rig.spec("default"));
    backend.provision(&spec, &()).await.unwrap();
    older.store(true, Ordering::Relaxed);
    let place = backend.find(&spec).await.unwrap().unwrap();
    place.suspend().await.unwrap();
    assert!(!backend.survey().await.unwrap()[0].alive);
    place.connect().await.unwrap();
    place.destroy().await.unwrap();
    backend.provision(&spec, &()).await.unwrap();
    older.store(false, Ordering::Relaxed);
    backend.find(&spec).await.unwrap().unwrap().destroy().await.unwrap();
    assert_eq!(backend.survey().await.unwrap(), []);
}
