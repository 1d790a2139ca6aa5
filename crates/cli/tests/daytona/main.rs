//! The program with commands in sandboxes of an emulated Daytona, as a user meets it.
//!
//! The emulator is the program that `FARSHELL_TEST_DAYTONA_BIN` names: see `scripts/rig`.
#![expect(clippy::unwrap_used, reason = "a test that can't set up its world fails by saying so")]

#[path = "../cli/rig.rs"]
#[expect(dead_code, reason = "these tests use a part of it")]
mod rig;

use rig::World;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// A world whose commands run in a Daytona of its own.
struct Daytona {
    world: Option<World>,
    emulator: Child,
    /// `127.0.0.1:1234`
    address: String,
    _dir: tempfile::TempDir,
}

impl Drop for Daytona {
    fn drop(&mut self) {
        // The server first: it would miss its sandboxes.
        drop(self.world.take());
        drop(self.emulator.stdin.take());
        let _ = self.emulator.wait();
    }
}

impl Daytona {
    /// Nothing if there is no emulator, and that is said. Where tests must run, it is a failure.
    fn new() -> Option<Self> {
        let program = farshell_testing::var("FARSHELL_TEST_DAYTONA_BIN", "daytona")?;
        let dir = tempfile::tempdir().unwrap();
        let mut emulator = Command::new(program)
            .args(["--delay-ms", "20", "--dir"])
            .arg(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut url = String::new();
        BufReader::new(emulator.stdout.take().unwrap()).read_line(&mut url).unwrap();
        let url = url.trim();
        let world = World::new()
            .with("TERMINAL_ENV", "daytona")
            .with("DAYTONA_API_URL", url)
            .with("TERMINAL_DAYTONA_IMAGE", "debian:12")
            // As much as there is: nothing has to be said about it.
            .with("TERMINAL_CONTAINER_DISK", "10240");
        std::fs::write(world.hermes().join(".env"), "DAYTONA_API_KEY=dtn_test\n").unwrap();
        let address = url.trim_start_matches("http://").trim_end_matches("/api").to_owned();
        Some(Self { world: Some(world), emulator, address, _dir: dir })
    }

    fn world(&self) -> &World {
        self.world.as_ref().unwrap()
    }

    fn says(&self, command: &str) -> String {
        let said = self.world().run(command);
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{command}: {said:?}");
        said.stdout
    }

    fn get(&self, path: &str) -> String {
        self.ask("GET", path, "")
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer dtn_test\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    fn requests(&self) -> u64 {
        self.get("/emulator/requests").parse().unwrap()
    }

    /// Stops the sandbox as a person at app.daytona.io does, or Daytona itself.
    fn stop_outside(&self) {
        self.ask("POST", "/api/sandbox/hermes-default/stop", "");
        rig::wait_until("its stop", || self.sandboxes().iter().all(|(_, state)| state == "stopped"));
    }

    /// The ids and states of all sandboxes.
    fn sandboxes(&self) -> Vec<(String, String)> {
        let list: Value = serde_json::from_str(&self.get("/api/sandbox")).unwrap();
        let text = |sandbox: &Value, name: &str| sandbox[name].as_str().unwrap().to_owned();
        list["items"].as_array().unwrap().iter().map(|one| (text(one, "id"), text(one, "state"))).collect()
    }
}

#[test]
fn a_sandbox_is_put_away_and_woken_with_what_its_session_had() {
    let Some(daytona) = Daytona::new() else { return };
    let world = daytona.world();
    let said = world.call(&["doctor", "daytona"]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
    assert_eq!(
        daytona.says("cd /workspace; echo kept > file; export A=1; echo ${DAYTONA_API_KEY-unset}"),
        "unset\n"
    );
    let result = world.call(&["run", "--json", "exit 3"]).json();
    assert_eq!((result["backend"].as_str(), result["exit_code"].as_i64()), (Some("daytona"), Some(3)));
    let sleeper = world.background(&[], "echo begun; sleep 1; echo ended; exit 4");
    world.kill_server();
    assert_eq!(daytona.says("echo $A"), "1\n", "the shell is still the same");
    assert_eq!(world.call(&["wait", &sleeper]).code, 4);
    assert_eq!(world.call(&["logs", &sleeper]).stdout, "begun\nended\n");
    let before = daytona.sandboxes();
    assert_eq!(world.call(&["env", "stop"]).code, 0);
    assert_eq!(daytona.sandboxes(), [(before[0].0.clone(), "stopped".to_owned())]);
    let back = world.call(&["run", "--json", "cat file; echo $A $PWD"]).json();
    assert_eq!(back["stdout"], "kept\n1 /workspace\n");
    assert_eq!(back["shell_restarted"], true);
    assert!(back["note"].as_str().unwrap().contains("as they were"), "{back}");
    assert_eq!(daytona.sandboxes(), before);
    // Nobody loses files who does not say so.
    let said = world.call(&["env", "rm"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.stderr.contains("the files of daytona/default are kept"), "{said:?}");
    assert_eq!(daytona.sandboxes(), [(before[0].0.clone(), "stopped".to_owned())]);
    assert_eq!(world.call(&["env", "rm", "--files"]).code, 0);
    assert_eq!(daytona.sandboxes(), []);
}

/// Whether a file of the server's state has this text.
fn is_written(world: &World, text: &str) -> bool {
    let files = std::fs::read_dir(world.hermes().join("farshell")).unwrap().flatten();
    files.filter(|file| file.file_name().to_string_lossy().starts_with("state.db")).any(|file| {
        let bytes = std::fs::read(file.path()).unwrap_or_default();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    })
}

#[test]
fn a_stop_from_outside_is_told_and_costs_no_directory_and_no_variable() {
    let Some(daytona) = Daytona::new() else { return };
    let world = daytona.world();
    daytona.says("cd /workspace; echo kept > file; export A=x$((40000 + 1)); b=2");
    let before = daytona.sandboxes();
    // It is noted a moment after the command, and no command has it in its text.
    rig::wait_until("the note", || is_written(world, "x40001"));
    daytona.stop_outside();
    // Whoever comes first may find out by an error.
    world.call(&["run", "-s", "first", "true"]);
    let look = "cat file; echo $A ${b-unset} $PWD";
    let back = world.call(&["run", "--json", look]).json();
    assert_eq!(back["stdout"], "kept\nx40001 unset /workspace\n");
    assert_eq!(
        back["note"],
        "the session began anew: sandbox hermes-default was stopped; its directory and exported variables are as they were"
    );
    assert_eq!(back["shell_restarted"], true);
    // By a server that ends a moment after the command, and one that begins when the sandbox sleeps.
    daytona.says("cd /usr; export A=last");
    assert_eq!(world.call(&["server", "stop"]).code, 0);
    daytona.stop_outside();
    let back = world.call(&["run", "--json", "echo $A $PWD"]).json();
    assert_eq!(back["stdout"], "last /usr\n");
    assert_eq!(
        back["note"],
        "the session began anew: its place was stopped while no server ran; its directory and exported variables are as they were"
    );
    assert_eq!(daytona.sandboxes(), before);
}

#[test]
fn a_disk_that_is_smaller_than_asked_for_is_told_when_the_sandbox_is_made() {
    let Some(mut daytona) = Daytona::new() else { return };
    daytona.world = daytona.world.take().map(|world| world.with("TERMINAL_CONTAINER_DISK", "20480"));
    let world = daytona.world();
    let run = || world.call(&["run", "--json", "true"]).json();
    assert_eq!(run()["note"], "container_disk is 20480 MB, and a sandbox has at most 10 GiB: it gets that");
    assert_eq!(run()["note"], Value::Null, "once is enough");
    world.kill_server();
    assert_eq!(run()["note"], Value::Null, "it is the same sandbox");
}

#[test]
fn changed_settings_cost_no_file() {
    let Some(daytona) = Daytona::new() else { return };
    let world = daytona.world();
    daytona.says("echo work > /workspace/file");
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
            assert!(said.stderr.contains("farshell env rm --files daytona/default"), "{said:?}");
            std::fs::remove_file(&config).unwrap();
        }
        assert_eq!(daytona.says("cat /workspace/file"), "work\n");
    }
}

#[test]
fn a_server_that_is_killed_at_any_step_leaves_one_sandbox() {
    let Some(daytona) = Daytona::new() else { return };
    let world = daytona.world();
    // While one is made; while one that sleeps is woken.
    for fresh in [true, false] {
        for step in 1.. {
            let put_away = if fresh { "rm" } else { "stop" };
            world.call(&["env", put_away, "daytona/default"]);
            let before = daytona.requests();
            let mut running = world.command(&["run", "echo there"]).spawn().unwrap();
            let mut done = false;
            rig::wait_until("the step", || {
                done = running.try_wait().unwrap().is_some();
                done || daytona.requests() >= before + step
            });
            world.kill_server();
            let said = rig::finish(running);
            let all = daytona.sandboxes();
            assert!(all.len() <= 1, "step {step}: {all:?}");
            assert_eq!(daytona.says("echo here"), "here\n", "step {step}, after {said:?}");
            let now = daytona.sandboxes();
            assert_eq!(now.len(), 1, "step {step}: {now:?}");
            // The one that was there is the one that is used.
            assert!(all.is_empty() || all[0].0 == now[0].0, "step {step}: {all:?}, {now:?}");
            if done {
                assert!(step > 5, "{step}");
                break;
            }
        }
    }
}

#[test]
fn a_server_that_is_killed_while_it_puts_away_or_removes_loses_no_file_and_leaves_nothing() {
    let Some(daytona) = Daytona::new() else { return };
    let world = daytona.world();
    for verb in ["stop", "rm"] {
        let ends: &[_] = if verb == "stop" { &["env", "stop"] } else { &["env", "rm", "--files"] };
        for step in 1.. {
            assert_eq!(daytona.says(&format!("echo {step} > /workspace/file; echo there")), "there\n");
            let all = daytona.sandboxes();
            let before = daytona.requests();
            let mut ending = world.command(ends).spawn().unwrap();
            let mut done = false;
            rig::wait_until("the step", || {
                done = ending.try_wait().unwrap().is_some();
                done || daytona.requests() >= before + step
            });
            world.kill_server();
            let said = rig::finish(ending);
            if verb == "stop" {
                assert_eq!(daytona.says("cat /workspace/file"), format!("{step}\n"), "after {said:?}");
                let now = daytona.sandboxes();
                assert_eq!(now, [(all[0].0.clone(), "started".to_owned())], "step {step}, after {said:?}");
            } else {
                let again = world.call(&["env", "rm", "--files", "daytona/default"]);
                assert_eq!(daytona.sandboxes(), [], "step {step}, after {said:?} and {again:?}");
            }
            if done {
                assert!(step > 2, "{step}");
                break;
            }
        }
    }
}

#[test]
fn a_copy_goes_on_where_a_websocket_was_closed() {
    let Some(daytona) = Daytona::new() else { return };
    let world = daytona.world();
    let bytes: Vec<u8> = (0..16_u32 << 20).map(|n| u8::try_from((n / 89 + n % 251) % 256).unwrap()).collect();
    std::fs::write(world.work().join("big"), &bytes).unwrap();
    daytona.says("mkdir /workspace/there");
    let closing = r#"[{"kind":"ws-close","path":"/connect","ms":200,"count":4}]"#;
    for copy in [["cp", "big", ":/workspace/there/"], ["cp", ":/workspace/there/big", "back"]] {
        daytona.ask("POST", "/emulator/faults", closing);
        // Those that are open now stay.
        world.kill_server();
        let said = world.call(&copy);
        assert_eq!(said.code, 0, "{copy:?}: {said:?}");
        let left: Value = serde_json::from_str(&daytona.get("/emulator/faults")).unwrap();
        assert!(left[0]["count"].as_u64().unwrap() < 3, "one was enough: {left}");
    }
    daytona.ask("POST", "/emulator/faults", "[]");
    assert!(std::fs::read(world.work().join("back")).unwrap() == bytes, "the bytes are the same");
    assert_eq!(daytona.says("ls -A /workspace/there"), "big\n");
}

#[test]
fn an_idle_sandbox_is_put_away_and_a_silent_job_keeps_it_awake() {
    let Some(daytona) = Daytona::new() else { return };
    let world = daytona.world();
    std::fs::write(world.hermes().join("config.yaml"), "terminal:\n  lifetime_seconds: 1\n").unwrap();
    let state = || daytona.sandboxes().into_iter().map(|(_, state)| state).collect::<Vec<_>>();
    let job = world.background(&[], "sleep 6; exit 7");
    assert_eq!(state(), ["started"]);
    // Nobody asks for anything meanwhile, and still the job comes to its end.
    rig::wait_until("its rest", || state() == ["stopped"]);
    assert_eq!(world.call(&["wait", &job]).code, 7);
    assert_eq!(state(), ["stopped"], "who asks how a job ended does not wake it");
    assert_eq!(daytona.says("echo awake"), "awake\n");
}

#[test]
fn credentials_are_put_there_for_their_owner_only() {
    let Some(mut daytona) = Daytona::new() else { return };
    daytona.world =
        daytona.world.take().map(|world| world.with("TERMINAL_CREDENTIAL_FILES", "[\"keys/token\"]"));
    let keys = daytona.world().hermes().join("keys");
    std::fs::create_dir(&keys).unwrap();
    std::fs::write(keys.join("token"), "s3cr3t").unwrap();
    let look = "cat ~/.hermes/keys/token; stat -c ' %a' ~/.hermes/keys/token";
    assert_eq!(daytona.says(look), "s3cr3t 600\n");
    // What is another one tomorrow is put there when the sandbox is woken.
    assert_eq!(daytona.world().call(&["env", "stop"]).code, 0);
    std::fs::write(keys.join("token"), "n3w").unwrap();
    assert_eq!(daytona.world().run(look).stdout, "n3w 600\n");
}
