//! An engine on a host that is reached by ssh, with a real daemon there.

use crate::rig::{Rig, root, var};
use farshell_engine::Kind;
use farshell_engine::backend::Backend;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A host of the test's own, on which `docker` finds the rig's engine.
struct Host {
    name: String,
    address: String,
    /// Holds an `ssh` that knows the rig's key: the real one looks for keys in the home that the system knows.
    bin: tempfile::TempDir,
}

impl Host {
    /// The lines come first in the daemon's configuration.
    fn start(name: &str, lines: &[&str]) -> Option<Self> {
        let (hosts, key) = (var("FARSHELL_TEST_SSHDS").filter(|_| root())?, var("FARSHELL_TEST_SSH_KEY")?);
        let name = format!("{name}-{}", std::process::id());
        let mut host = Self { address: String::new(), name, bin: tempfile::tempdir().unwrap() };
        host.command("start", lines);
        let address = PathBuf::from(hosts).join(&host.name).join("address");
        host.address = std::fs::read_to_string(address).unwrap().trim().to_owned();
        let ssh = real_ssh();
        let known = host.bin.path().join("known_hosts");
        host.ssh(&format!(
            "exec {} -F none -i {key} -oUserKnownHostsFile={} -oStrictHostKeyChecking=accept-new \"$@\"",
            ssh.display(),
            known.display()
        ));
        Some(host)
    }

    fn ssh(&self, script: &str) {
        let path = self.bin.path().join("ssh");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn command(&self, action: &str, args: &[&str]) {
        let Some(program) = var("FARSHELL_TEST_SSHD") else { return };
        // Start files of this machine's root are not read: what they do, and what is left of them if a line is cut while they
        // do it, is not what is tested. The daemon takes the first such line only.
        let quiet = |line: &&str| match line.starts_with("SetEnv") {
            true => format!("{line} SHLVL=2"),
            false => (*line).to_owned(),
        };
        let args = args.iter().map(quiet);
        let output = Command::new(program).args([&self.name, action]).args(args).output().unwrap();
        assert!(output.status.success(), "{action}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// The processes that hold a connection to the host.
    fn dialers(&self) -> Vec<String> {
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let dials = |entry: &std::fs::DirEntry| {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            line.contains(&format!(" {} ", self.address)) && line.contains("dial-stdio")
        };
        entries.filter(dials).map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    fn rig(&self, user: &str) -> Option<Rig> {
        let mut rig = Rig::on(&format!("ssh://{user}@{}:2222", self.address), &var("FARSHELL_TEST_IMAGE")?)?;
        let path = format!("{}:{}", self.bin.path().display(), rig.config.environment["PATH"]);
        rig.config.environment.insert("PATH".into(), path);
        Some(rig)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(program) = var("FARSHELL_TEST_SSHD") {
            let _ = Command::new(program).args([&self.name, "remove"]).output();
        }
    }
}

fn real_ssh() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join("ssh")).find(|program| program.is_file());
    found.unwrap_or_else(|| Path::new("/usr/bin/ssh").into())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_behind_ssh_serves() {
    let Some(engine) = var("FARSHELL_TEST_DOCKER") else { return };
    let line = format!("SetEnv DOCKER_HOST={engine}");
    let Some(host) = Host::start("engine", &[&line]) else { return };
    let Some(rig) = host.rig("root") else { return };
    let env = rig.open().await;
    assert_eq!(env.out("x=1; echo kept > /workspace/x; echo $x").await, "1");
    let much = env.run("head -c 20m /dev/zero").await;
    assert_eq!((much.stdout.len(), much.code()), (20 << 20, 0));
    // A new connection, the same shell.
    env.env.outpost().disconnect();
    assert_eq!(env.out("echo $x").await, "1");
    // The line is lost while a command runs: it is found again, with all its output.
    let cut = env.run("echo begun; sleep 2; echo ended");
    let cutter = async {
        tokio::time::sleep(std::time::Duration::from_millis(700)).await;
        host.command("kill", &[]);
        host.command("start", &[]);
    };
    let (ran, ()) = tokio::join!(cut, cutter);
    assert_eq!((ran.stdout.as_str(), ran.code()), ("begun\nended", 0));
    let (backend, spec) = (rig.backend(), rig.spec("default"));
    backend.find(&spec).await.unwrap().unwrap().suspend().await.unwrap();
    assert!(!backend.survey().await.unwrap()[0].alive);
    let again = rig.open().await;
    assert_eq!(
        (again.id(), again.out("cat /workspace/x; echo ${x-unset}").await),
        (env.id(), "kept\nunset".into())
    );
    again.env.destroy().await.unwrap();
    backend.remove_files(&spec).await.unwrap();
    assert_eq!(backend.survey().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_line_is_given_up_and_the_command_found_again() {
    let Some(engine) = var("FARSHELL_TEST_DOCKER") else { return };
    let line = format!("SetEnv DOCKER_HOST={engine}");
    let Some(host) = Host::start("dead", &[&line]) else { return };
    let Some(rig) = host.rig("root") else { return };
    let env = rig.open().await;
    // The stream is there before anything happens to the line.
    env.out("true").await;
    let run = env.run("echo begun; sleep 3; echo ended");
    let cutter = async {
        tokio::time::sleep(std::time::Duration::from_millis(1000)).await;
        let before = host.dialers();
        assert!(!before.is_empty());
        host.command("line", &["cut"]);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        // Until the first has noticed: who is not helped in time is told that the line is lost, and the command goes on.
        while before.iter().all(|pid| host.dialers().contains(pid)) {
            assert!(std::time::Instant::now() < deadline, "nobody notices that the line is dead");
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
        host.command("line", &[]);
    };
    let (ran, ()) = tokio::join!(run, cutter);
    assert_eq!((ran.stdout.as_str(), ran.code()), ("begun\nended", 0));
    env.env.destroy().await.unwrap();
    rig.backend().remove_files(&rig.spec("default")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_on_the_way_by_ssh_is_told() {
    let (Some(engine), Some(user)) = (var("FARSHELL_TEST_DOCKER"), var("FARSHELL_TEST_SSH_USER")) else {
        return;
    };
    let line = format!("SetEnv DOCKER_HOST={engine}");
    let Some(host) = Host::start("way", &[&line]) else { return };
    let ask = |rig: Rig| async move { rig.backend().find(&rig.spec("default")).await.unwrap_err() };
    // A user who may not use the engine there.
    let error = ask(host.rig(&user).unwrap()).await;
    assert!(error.message.contains("permission denied"), "{error}");
    // Nobody whom the host knows.
    let error = ask(host.rig("nobody-at-all").unwrap()).await;
    assert!(error.message.contains("Permission denied (publickey"), "{error}");
    assert_eq!(error.kind, Kind::Unavailable);
    let expected = format!(
        "`ssh {} docker version` has to work without a question: the docker program is needed there",
        host.address
    );
    assert_eq!(error.hint.as_deref(), Some(&*expected));
    // No docker program there.
    host.command("stop", &[]);
    host.command("start", &["SetEnv PATH=/nowhere"]);
    let error = ask(host.rig("root").unwrap()).await;
    assert!(error.message.contains("docker: command not found"), "{error}");
    assert_eq!(error.hint.as_deref(), Some(&*expected));
    // No engine there, and no host.
    host.command("stop", &[]);
    host.command("start", &["SetEnv DOCKER_HOST=unix:///nowhere/docker.sock"]);
    let error = ask(host.rig("root").unwrap()).await;
    assert!(error.message.contains("/nowhere/docker.sock"), "{error}");
    host.command("stop", &[]);
    let error = ask(host.rig("root").unwrap()).await;
    assert!(error.message.contains("Connection refused"), "{error}");
}
