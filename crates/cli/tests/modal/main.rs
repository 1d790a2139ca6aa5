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
use std::time::{Duration, Instant};

/// How long one may take with Modal's own clients.
const SNAPSHOT: Duration = Duration::from_secs(55);

/// A world whose commands run in a Modal of its own.
struct Modal {
    world: Option<World>,
    emulator: Child,
    /// Of its switches.
    switches: String,
    dir: tempfile::TempDir,
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
        Some(Self { world: Some(world), emulator, switches, dir })
    }

    /// Modal ends a sandbox after so many of its seconds without activity.
    fn idle(self, seconds: &str) -> Self {
        self.with("TERMINAL_MODAL_IDLE_TIMEOUT", seconds)
    }

    fn with(mut self, name: &str, value: &str) -> Self {
        self.world = self.world.take().map(|world| world.with(name, value));
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
        self.send(method, path, "")
    }

    fn post(&self, path: &str, body: &str) {
        self.send("POST", path, body);
    }

    fn send(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.switches).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
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
    // And so it is after the server was killed while it slept, and it was put away meanwhile.
    modal.says("export A=2; cd /usr");
    rig::wait_until("the sandbox sleeps", || modal.running().is_empty());
    world.kill_server();
    assert_eq!(world.call(&["env", "stop"]).code, 0);
    let shown = world.call(&["env", "show", "modal/default"]).stdout;
    assert!(shown.contains("keeps until 20"), "what Modal took has an end: {shown}");
    assert_eq!(world.call(&["run", "--json", "echo $A $PWD"]).json()["stdout"], "2 /usr\n");
    assert_eq!(world.call(&["env", "stop"]).code, 0);
    assert_eq!(modal.running().len(), 0);
    assert_eq!(modal.says("cat /workspace/file; echo $A $PWD"), "kept\n2 /usr\n");
    // Nobody loses files who does not say so.
    let said = world.call(&["env", "rm"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(
        said.stderr.contains("the files of modal/default are kept") && modal.running().is_empty(),
        "{said:?}"
    );
    assert_eq!(modal.says("cat /workspace/file"), "kept\n");
    assert_eq!(world.call(&["env", "rm", "--files"]).code, 0);
    assert_eq!(modal.running().len(), 0);
    assert_eq!(std::fs::read_to_string(world.hermes().join("modal_snapshots.json")).unwrap(), "{}\n");
}

/// Whatever ends a sandbox, and whoever is there to see it: what a session had comes back.
#[test]
fn a_session_comes_back_after_every_kind_of_sleep() {
    let Some(modal) = Modal::new() else { return };
    // A life of 20 seconds, of which a job that never ends lets no connection rest.
    let modal = modal.with("TERMINAL_MODAL_TIMEOUT", "1000").idle("100");
    let world = modal.world();
    let noted = |text: &str| rig::wait_until("it is noted", || recorded(world, text));
    let back = |expected: &str| {
        let back = world.call(&["run", "--json", "echo $A $PWD"]).json();
        assert_eq!(back["stdout"], expected, "{back}");
        assert!(back["note"].as_str().unwrap().contains("as they were"), "{back}");
    };
    modal.says("cd /usr; export A=x$((5000 + 1))");
    let job = world.background(&[], "sleep 1000");
    noted("x5001");
    rig::wait_until("its life is over", || modal.running().is_empty());
    assert_eq!(modal.sandboxes()[0].1, "GENERIC_STATUS_TIMEOUT");
    rig::wait_until("it is reported", || world.call(&["ps", "--all", "--json"]).stdout.contains("lost"));
    assert!(!world.call(&["wait", &job]).stdout.contains("running"));
    back("x5001 /usr\n");
    // The server is killed while the sandbox is awake, and the sandbox goes to sleep unseen.
    modal.says("cd /etc; export A=x$((5000 + 2))");
    noted("x5002");
    world.kill_server();
    rig::wait_until("it sleeps", || modal.running().is_empty());
    back("x5002 /etc\n");
    // In the middle of a command: as it was before that.
    modal.says("cd /var; export A=x$((5000 + 3))");
    noted("x5003");
    let running = world.command(&["run", "sleep 1000"]).spawn().unwrap();
    rig::wait_until("it runs", || !modal.running().is_empty() && busy(world));
    let id = modal.running()[0].clone();
    modal.ask("POST", &format!("/emulator/end/{id}/GENERIC_STATUS_MEMORY_MANAGER_EVICTION"));
    assert_eq!(rig::finish(running).code, 125);
    back("x5003 /var\n");
    assert_eq!(world.call(&["env", "stop"]).code, 0);
    back("x5003 /var\n");
}

fn busy(world: &World) -> bool {
    world.call(&["env", "show", "--json", "modal/default"]).stdout.contains("sleep 1000")
        || world.call(&["ps", "--all"]).stdout.contains("sleep 1000")
}

/// Whether the server's records have these bytes.
fn recorded(world: &World, text: &str) -> bool {
    let files = std::fs::read_dir(world.hermes().join("farshell")).unwrap().flatten();
    let mut databases = files.filter(|file| file.file_name().to_string_lossy().starts_with("state.db"));
    databases.any(|file| {
        let bytes = std::fs::read(file.path()).unwrap_or_default();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    })
}

#[test]
fn credentials_are_there_and_in_no_snapshot() {
    let Some(modal) = Modal::new() else { return };
    let modal = modal.with("TERMINAL_CREDENTIAL_FILES", "[\"keys/token\"]");
    let world = modal.world();
    std::fs::create_dir(world.hermes().join("keys")).unwrap();
    std::fs::write(world.hermes().join("keys/token"), "s3cr3t").unwrap();
    let look = "cat ~/.hermes/keys/token; stat -Lc ' %a' ~/.hermes/keys/token";
    assert_eq!(modal.says(look), "s3cr3t 600\n");
    // Another one tomorrow, in another sandbox.
    assert_eq!(world.call(&["env", "stop"]).code, 0);
    let layers = modal.dir.path().join("layers");
    let found = Command::new("grep").arg("-rl").arg("s3cr3t").arg(&layers).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "", "in no snapshot");
    std::fs::write(world.hermes().join("keys/token"), "n3w").unwrap();
    assert_eq!(world.run(look).stdout, "n3w 600\n");
    std::fs::remove_file(world.hermes().join("keys/token")).unwrap();
    assert_eq!(world.call(&["env", "stop"]).code, 0);
    let said = world.run("true");
    assert!(said.code == 125 && said.stderr.contains("credential_files"), "{said:?}");
}

#[test]
fn variables_that_are_forwarded_are_there_and_in_no_snapshot() {
    let Some(modal) = Modal::new() else { return };
    let modal = modal.with("TERMINAL_ENV_PASSTHROUGH", "[\"WORK_KEY\"]").with("WORK_KEY", "t0p-s3cr3t");
    assert_eq!(modal.says("echo ${#WORK_KEY}; echo here > ~/file"), "10\n");
    assert_eq!(modal.world().call(&["env", "stop"]).code, 0);
    let layers = modal.dir.path().join("layers");
    let has =
        |text: &str| Command::new("grep").arg("-rqa").arg(text).arg(&layers).status().unwrap().success();
    assert!(has("here") && !has("t0p-s3cr3t"), "in no snapshot");
    assert_eq!(modal.says("echo ${#WORK_KEY}; cat ~/file"), "10\nhere\n");
}

#[test]
fn gc_lists_and_ends_what_nobody_claims() {
    let Some(modal) = Modal::new() else { return };
    let world = modal.world();
    modal.says("echo kept > ~/file");
    assert_eq!(world.json(&["gc", "--json"])["found"], serde_json::json!([]), "it is claimed");
    let running = modal.running();
    // The server's records are lost, and with them what is known of the sandbox.
    world.kill_server();
    for file in std::fs::read_dir(world.hermes().join("farshell")).unwrap().flatten() {
        if file.file_name().to_string_lossy().starts_with("state.db") {
            std::fs::remove_file(file.path()).unwrap();
        }
    }
    let found = world.json(&["gc", "--json"]);
    let name = found["found"][0]["name"].as_str().unwrap();
    assert!(name.starts_with("hermes-") && name.ends_with("-default"), "{found}");
    assert_eq!(modal.running(), running, "it is only listed");
    let removed = world.json(&["gc", "--yes", "--json"]);
    let gone = &removed["found"][0];
    assert_eq!((gone["name"].as_str(), gone.get("error")), (Some(name), None), "{removed}");
    assert!(modal.running().is_empty());
    // The only files are for whoever names them.
    let stays = world.call(&["gc", "--yes"]);
    assert_eq!(stays.code, 125, "{stays:?}");
    assert!(stays.stderr.contains("`farshell env rm --files modal/default` deletes it"), "{stays:?}");
    assert_eq!(modal.says("cat ~/file"), "kept\n");
    world.call(&["env", "stop"]);
    assert_eq!(world.call(&["env", "rm", "--files", "modal/default"]).code, 0);
    assert_eq!(world.json(&["gc", "--json"])["found"], serde_json::json!([]));
}

#[test]
fn what_modal_says_is_shown_once() {
    let Some(modal) = Modal::new() else { return };
    modal.post(
        "/emulator/faults",
        r#"[{"kind":"warning","rpc":"SandboxCreateV2","text":"it is deprecated"}]"#,
    );
    let notes: Vec<Value> =
        (0..2).map(|_| modal.world().call(&["run", "--json", "echo"]).json()["note"].clone()).collect();
    assert_eq!(notes, [Value::from("Modal says: it is deprecated"), Value::Null]);
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
            assert!(said.stderr.contains("farshell env rm --files modal/default"), "{said:?}");
            std::fs::remove_file(&config).unwrap();
        }
        let said = world.call(&["run", "--json", "cat ~/file"]).json();
        assert_eq!(said["stdout"], "work\n", "{said}");
        // What has no effect on a sandbox keeps nobody out of it.
        std::fs::write(&config, "terminal:\n  modal_mode: direct\n  container_disk: 1000\n").unwrap();
        assert_eq!(modal.says("cat ~/file"), "work\n");
        std::fs::remove_file(&config).unwrap();
    }
}

#[test]
fn a_server_that_is_killed_at_any_step_leaves_one_sandbox() {
    let Some(modal) = Modal::new() else { return };
    let world = modal.world();
    // While one is made; while one that sleeps is brought back.
    for fresh in [true, false] {
        for step in 1.. {
            let put_away: &[_] = if fresh { &["env", "rm", "--files"] } else { &["env", "stop"] };
            world.call(put_away);
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

#[test]
fn a_server_that_is_to_remove_everything_keeps_the_only_files_and_says_so() {
    let Some(modal) = Modal::new() else { return };
    let world = modal.world();
    modal.says("echo kept > ~/file");
    // Longer than a server may take to end.
    modal.post("/emulator/faults", r#"[{"ms":40000,"kind":"slow-snapshot"}]"#);
    let said = world.call(&["server", "stop", "--remove-environments"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.stderr.contains("the files of modal/default are kept"), "{said:?}");
    assert!(modal.running().is_empty());
    assert_eq!(modal.says("cat ~/file"), "kept\n");
}

/// Modal's own clients give a snapshot 55 seconds, and lose one of many gigabytes. Here all of the ways to one take longer.
#[test]
fn a_long_snapshot_is_not_cut() {
    const SLOW: &str = r#"{"ms":60000,"kind":"#;
    let Some((by_hand, by_itself)) = Modal::new().zip(Modal::new()) else { return };
    // Both clocks of Modal's go on meanwhile.
    let by_hand = by_hand.idle("30000").with("TERMINAL_ISOLATION", "task");
    let by_itself = by_itself.idle("30000").with("TERMINAL_LIFETIME_SECONDS", "1");
    let run = |modal: &Modal, task: &str, command: &str| {
        // What takes long says so on the way.
        let said = modal.world().call(&["run", "--task", task, command]);
        assert_eq!(said.code, 0, "{task}: {said:?}");
        said.stdout
    };
    run(&by_hand, "stopped", "echo stopped > ~/file");
    let stopped = by_hand.running();
    run(&by_hand, "ended", "echo ended > ~/file");
    let ended = by_hand.running().into_iter().find(|id| !stopped.contains(id)).unwrap();
    by_itself.post("/emulator/faults", &format!(r#"[{SLOW}"slow-snapshot"}}]"#));
    by_hand.post("/emulator/faults", &format!(r#"[{SLOW}"slow-snapshot"}},{SLOW}"slow-exit-snapshot"}}]"#));
    by_hand.ask("POST", &format!("/emulator/end/{ended}/GENERIC_STATUS_KERNEL_OOM_KILL"));
    let begun = Instant::now();
    std::thread::scope(|all| {
        // Farshell's own, while the way to the sandbox moves: it is taken once.
        all.spawn(|| {
            let stopping = by_hand.world().command(&["env", "stop", "modal/stopped"]).spawn().unwrap();
            std::thread::sleep(Duration::from_secs(20));
            by_hand.ask("POST", "/emulator/move-router");
            let said = rig::finish(stopping);
            assert_eq!((said.code, begun.elapsed() > SNAPSHOT), (0, true), "{said:?}");
            let shown = by_hand.world().call(&["env", "show", "modal/stopped"]).stdout;
            assert!(!shown.contains("keeps until"), "it never expires: {shown}");
            assert_eq!(run(&by_hand, "stopped", "cat ~/file"), "stopped\n");
        });
        // What Modal takes when a sandbox ends otherwise.
        all.spawn(|| {
            let back = by_hand.world().call(&["run", "--task", "ended", "--json", "cat ~/file"]).json();
            assert_eq!((&back["stdout"], begun.elapsed() > SNAPSHOT), (&"ended\n".into(), true), "{back}");
        });
        // What is taken because nobody has used the environment for long.
        all.spawn(|| {
            run(&by_itself, "default", "echo idle > ~/file");
            while !by_itself.running().is_empty() {
                assert!(begun.elapsed() < 5 * SNAPSHOT, "it is not put away");
                std::thread::sleep(Duration::from_millis(100));
            }
            assert!(begun.elapsed() > SNAPSHOT);
            assert_eq!(run(&by_itself, "default", "cat ~/file"), "idle\n");
        });
    });
}
