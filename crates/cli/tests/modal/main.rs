//! The program with commands in sandboxes of an emulated Modal, as a user meets it.
//!
//! The emulator is the program that `FARSHELL_TEST_MODAL_BIN` names: see `scripts/rig`.
#![expect(clippy::unwrap_used, reason = "a test that can't set up its world fails by saying so")]

#[path = "../cli/rig.rs"]
#[expect(dead_code, reason = "these tests use a part of it")]
mod rig;

use rig::World;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// A world whose commands run in a Modal of its own.
struct Modal {
    world: Option<World>,
    emulator: Child,
    /// Of its switches.
    switches: String,
    _dir: tempfile::TempDir,
}

impl Drop for Modal {
    fn drop(&mut self) {
        // The server first: it would miss its sandboxes.
        drop(self.world.take());
        drop(self.emulator.stdin.take());
        let _ = self.emulator.wait();
    }
}

impl Modal {
    /// Nothing if there is no emulator, and that is said. Where tests must run, it is a failure.
    fn new() -> Option<Self> {
        let program = farshell_testing::var("FARSHELL_TEST_MODAL_BIN", "modal")?;
        let dir = tempfile::tempdir().unwrap();
        // A second of Modal's lasts 20 milliseconds.
        let mut emulator = Command::new(program)
            .args(["--second-ms", "20", "--image", "debian:12=host", "--dir"])
            .arg(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(emulator.stdout.take().unwrap()).lines();
        let mut line = || said.next().unwrap().unwrap().trim().to_owned();
        let (url, switches) = (line(), line());
        let world = World::new()
            .with("TERMINAL_ENV", "modal")
            .with("MODAL_SERVER_URL", &url)
            .with("TERMINAL_MODAL_IMAGE", "debian:12");
        std::fs::write(world.hermes().join(".env"), "MODAL_TOKEN_ID=ak-test\nMODAL_TOKEN_SECRET=as-test\n")
            .unwrap();
        let switches = switches.trim_start_matches("http://").trim_end_matches('/').to_owned();
        Some(Self { world: Some(world), emulator, switches, _dir: dir })
    }

    /// Modal ends a sandbox after so many of its seconds without activity.
    fn idle(mut self, seconds: &str) -> Self {
        self.world = self.world.take().map(|world| world.with("TERMINAL_MODAL_IDLE_TIMEOUT", seconds));
        self
    }

    fn world(&self) -> &World {
        self.world.as_ref().unwrap()
    }

    fn says(&self, command: &str) -> String {
        let said = self.world().run(command);
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{command}: {said:?}");
        said.stdout
    }

    fn ask(&self, method: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.switches).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    fn requests(&self) -> u64 {
        let answer: Value = serde_json::from_str(&self.ask("GET", "/emulator/requests")).unwrap();
        answer["total"].as_u64().unwrap()
    }

    /// The ids and phases of all sandboxes that there ever were.
    fn sandboxes(&self) -> Vec<(String, String)> {
        let list: Value = serde_json::from_str(&self.ask("GET", "/emulator/sandboxes")).unwrap();
        let text = |sandbox: &Value, name: &str| sandbox[name].as_str().unwrap().to_owned();
        list.as_array().unwrap().iter().map(|one| (text(one, "id"), text(one, "phase"))).collect()
    }

    fn running(&self) -> Vec<String> {
        let all = self.sandboxes().into_iter();
        all.filter(|(_, phase)| phase == "running" || phase == "starting").map(|(id, _)| id).collect()
    }
}

#[test]
fn a_sandbox_that_is_left_alone_sleeps_and_is_woken_with_what_its_session_had() {
    let Some(modal) = Modal::new() else { return };
    let modal = modal.idle("100");
    let world = modal.world();
    let said = world.call(&["doctor", "modal"]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
    assert_eq!(
        modal.says(
            "mkdir -p /workspace; cd /workspace; echo kept > file; export A=1; echo ${MODAL_TOKEN_ID-unset}"
        ),
        "unset\n"
    );
    let result = world.call(&["run", "--json", "exit 3"]).json();
    assert_eq!((result["backend"].as_str(), result["exit_code"].as_i64()), (Some("modal"), Some(3)));
    let first = modal.running();
    assert_eq!((first.len(), result["place"]["id"].as_str()), (1, Some(first[0].as_str())), "{result}");
    let list = world.call(&["env", "list"]).stdout;
    assert!(list.contains("SINCE") && list.contains("modal/default") && list.contains("ready"), "{list}");
    assert!(world.call(&["env", "show", "modal/default"]).stdout.contains(&first[0]), "what runs is shown");
    // The server holds the environment, and nobody uses it.
    rig::wait_until("the sandbox sleeps", || modal.running().is_empty());
    assert_eq!(modal.sandboxes()[0].1, "GENERIC_STATUS_IDLE_TIMEOUT");
    let back = world.call(&["run", "--json", "cat file; echo $A $PWD"]).json();
    assert_eq!(back["stdout"], "kept\n1 /workspace\n", "{back}");
    assert_eq!(back["shell_restarted"], true);
    let note = back["note"].as_str().unwrap();
    assert!(
        note.contains("was put to sleep because nothing ran in it") && note.contains("as they were"),
        "{note}"
    );
    // And so it is after the server was killed while it slept.
    modal.says("export A=2; cd /usr");
    rig::wait_until("the sandbox sleeps", || modal.running().is_empty());
    world.kill_server();
    assert_eq!(world.call(&["run", "--json", "echo $A $PWD"]).json()["stdout"], "2 /usr\n");
    assert_eq!(world.call(&["env", "stop"]).code, 0);
    assert_eq!(modal.running().len(), 0);
    assert_eq!(modal.says("cat /workspace/file; echo $A $PWD"), "kept\n2 /usr\n");
    assert_eq!(world.call(&["env", "rm"]).code, 0);
    assert_eq!(modal.running().len(), 0);
    assert_eq!(std::fs::read_to_string(world.hermes().join("modal_snapshots.json")).unwrap(), "{}\n");
}

#[test]
fn a_job_keeps_it_awake_and_one_that_dies_with_it_is_reported() {
    let Some(modal) = Modal::new() else { return };
    let modal = modal.idle("100");
    let world = modal.world();
    // Silent for longer than a sandbox may be idle, and nobody follows it.
    let job = world.background(&[], "sleep 12; echo done > ~/done");
    assert_eq!(world.call(&["wait", &job]).code, 0);
    assert_eq!(modal.says("cat ~/done"), "done\n");
    let doomed = world.background(&[], "echo begun; sleep 1000");
    let running = modal.running();
    modal.ask("POST", &format!("/emulator/end/{}/GENERIC_STATUS_KERNEL_OOM_KILL", running[0]));
    rig::wait_until("it is reported", || {
        let all = world.call(&["ps", "--all", "--json"]).json();
        let all = all.as_array().cloned().or_else(|| all["processes"].as_array().cloned()).unwrap();
        all.iter().any(|one| one["id"] == doomed.as_str() && one["state"] == "lost")
    });
    assert_eq!(modal.says("cat ~/done"), "done\n", "files are as they were");
    assert_eq!(modal.running().len(), 1);
}

#[test]
fn changed_settings_cost_no_file() {
    let Some(modal) = Modal::new() else { return };
    let world = modal.world();
    modal.says("echo work > ~/file");
    let config = world.hermes().join("config.yaml");
    for asleep in [false, true] {
        if asleep {
            assert_eq!(world.call(&["env", "stop"]).code, 0);
        }
        // Also by a server that knows nothing of it.
        for forgotten in [false, true] {
            std::fs::write(&config, "terminal:\n  container_cpu: 2\n").unwrap();
            if forgotten {
                world.kill_server();
            }
            let said = world.run("true");
            assert_eq!(said.code, 125, "{said:?}");
            assert!(said.stderr.contains("container_cpu: 1 -> 2"), "{said:?}");
            assert!(said.stderr.contains("farshell env rm modal/default"), "{said:?}");
            std::fs::remove_file(&config).unwrap();
        }
        let said = world.call(&["run", "--json", "cat ~/file"]).json();
        assert_eq!(said["stdout"], "work\n", "{said}");
    }
}

#[test]
fn a_server_that_is_killed_at_any_step_leaves_one_sandbox() {
    let Some(modal) = Modal::new() else { return };
    let world = modal.world();
    // While one is made; while one that sleeps is brought back.
    for fresh in [true, false] {
        for step in 1.. {
            let put_away = if fresh { "rm" } else { "stop" };
            world.call(&["env", put_away, "modal/default"]);
            let before = modal.requests();
            let mut running = world.command(&["run", "echo there"]).spawn().unwrap();
            let mut done = false;
            rig::wait_until("the step", || {
                done = running.try_wait().unwrap().is_some();
                done || modal.requests() >= before + step
            });
            world.kill_server();
            let said = rig::finish(running);
            let all = modal.running();
            assert!(all.len() <= 1, "step {step}: {all:?}");
            assert_eq!(modal.says("echo here"), "here\n", "step {step}, after {said:?}");
            let now = modal.running();
            assert_eq!(now.len(), 1, "step {step}: {now:?}");
            // The one that was there is the one that is used.
            assert!(all.is_empty() || all == now, "step {step}: {all:?}, {now:?}");
            if done {
                assert!(step > 5, "{step}");
                break;
            }
        }
    }
}
