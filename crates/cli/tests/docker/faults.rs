//! What others do to a container or an engine: the outcome is known or said to be unknown, and the next call works.

use crate::rig::{PATIENCE, finish, wait_until};
use crate::world::{Docker, needed};
use serde_json::Value;
use std::process::Command;
use std::time::Instant;

/// Has something happen while a command runs, and gives what the caller was told.
fn meanwhile(docker: &Docker, happens: impl FnOnce(&str)) -> Value {
    docker.says("echo kept > /workspace/file; export A=1; rm -f /workspace/begun");
    let running = docker.spawn(&["run", "--json", "echo x >> /workspace/begun; sleep 1000"]);
    docker.wait_for("begun");
    happens(&docker.container());
    let begun = Instant::now();
    let said = finish(running);
    assert!(begun.elapsed() < PATIENCE, "{said:?}");
    assert_eq!(said.code, 125, "{said:?}");
    said.json()["error"].clone()
}

/// The next call works, has the files, and says why the shell is another one. Nothing was run twice.
fn goes_on(docker: &Docker) -> String {
    let next = docker.json("cat /workspace/file /workspace/begun; echo ${A-unset}");
    assert_eq!(next["stdout"], "kept\nx\nunset\n", "{next}");
    assert_eq!((&next["shell_restarted"], &next["state_lost"]), (&true.into(), &true.into()));
    assert_eq!(docker.says("echo fine"), "fine\n");
    next["note"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_container_that_was_killed_is_started_again() {
    let Some(docker) = Docker::new() else { return };
    docker.says("true");
    let background = docker.world().background(&[], "sleep 1000");
    let error = meanwhile(&docker, |id| drop(docker.docker(&["kill", id])));
    assert_eq!(error["kind"], "unknown_outcome", "{error}");
    let note = goes_on(&docker);
    assert!(note.starts_with("the session began anew: ") && note.contains("137"), "{note}");
    let lost = docker.world().call(&["wait", "--json", &background]);
    assert_eq!((lost.code, lost.json()["state"].as_str().unwrap()), (125, "lost"), "{lost:?}");
    let events = docker.world().json(&["events", "--json"]);
    let completed = events["events"].as_array().unwrap().iter().filter(|e| e["kind"] == "process_completed");
    assert_eq!(completed.count(), 1);
}

#[test]
fn a_container_that_was_removed_is_made_again() {
    let Some(docker) = Docker::new() else { return };
    docker.says("true");
    let first = docker.container();
    let background = docker.world().background(&[], "sleep 1000");
    let error = meanwhile(&docker, |id| drop(docker.docker(&["rm", "-f", id])));
    assert_eq!(error["kind"], "unknown_outcome", "{error}");
    assert!(error["message"].as_str().unwrap().contains("removed"), "{error}");
    let note = goes_on(&docker);
    assert!(note.contains("removed"), "{note}");
    assert_ne!(docker.container(), first);
    let lost = docker.world().call(&["wait", "--json", &background]);
    assert!(lost.json()["note"].as_str().unwrap().contains("removed"), "{lost:?}");
    // Whoever removed it left its volume, which no record claims though the task has an environment.
    let old: Vec<_> = docker.unused_volumes();
    assert_eq!(old.len(), 1, "{old:?}");
    let found = docker.world().json(&["gc", "--json"]);
    assert_eq!(found["found"][0]["name"], format!("volume {}", old[0]), "{found}");
    assert_eq!(docker.unused_volumes(), old, "it is only listed");
    let removed = docker.world().json(&["gc", "--yes", "--json"]);
    assert_eq!(
        (&removed["found"][0]["name"], removed["found"][0].get("error")),
        (&found["found"][0]["name"], None)
    );
    assert_eq!(docker.unused_volumes(), Vec::<String>::new());
    assert_eq!(docker.world().json(&["gc", "--json"])["found"], serde_json::json!([]));
    assert_eq!(docker.says("echo fine"), "fine\n");
}

#[test]
fn a_paused_container_goes_on_where_it_was() {
    let Some(docker) = Docker::new() else { return };
    docker.says("true");
    let running =
        docker.spawn(&["run", "touch /workspace/begun; for i in 1 2 3 4; do echo $i; sleep 0.3; done"]);
    docker.wait_for("begun");
    let id = docker.container();
    docker.docker(&["pause", &id]);
    std::thread::sleep(std::time::Duration::from_secs(2));
    docker.docker(&["unpause", &id]);
    let said = finish(running);
    assert_eq!((said.stdout.as_str(), said.code), ("1\n2\n3\n4\n", 0), "{said:?}");
}

#[test]
fn a_hog_and_a_bomb_stay_inside() {
    let Some(docker) = Docker::new() else { return };
    docker.config("container_memory: 128\ndocker_pids_limit: 64\ntimeout: 20");
    docker.says("export A=1");
    let hog = docker.json("python3 -c 'x = bytearray(400 << 20)'; echo $?");
    assert_eq!(
        (&hog["stdout"], hog.get("note")),
        (&"137\n".into(), None),
        "the command dealt with it: {hog}"
    );
    let hog = docker.json("python3 -c 'x = bytearray(400 << 20)'");
    assert_eq!(hog["exit_code"], 137);
    assert!(hog["note"].as_str().unwrap().contains("ran out of memory"), "{hog}");
    let killed = docker.json("bash -c 'kill -9 $$'");
    assert_eq!(
        (&killed["exit_code"], killed.get("note")),
        (&137.into(), None),
        "that was somebody else: {killed}"
    );
    // One that deals with it leaves nothing behind that is held against the next.
    let dealt_with = docker.json("python3 -c 'x = bytearray(400 << 20)' || echo dealt with");
    assert_eq!(dealt_with["stdout"], "dealt with\n", "{dealt_with}");
    let killed = docker.json("bash -c 'kill -9 $$'");
    assert_eq!((&killed["exit_code"], killed.get("note")), (&137.into(), None), "{killed}");
    let bomb = docker.world().call(&[
        "run",
        "--json",
        "-T",
        "3",
        "bomb() { bomb | bomb & }; bomb 2>/dev/null; sleep 2; echo over",
    ]);
    let bomb = bomb.json();
    assert!(bomb["exit_code"].is_i64() || bomb["error"].is_object(), "{bomb}");
    wait_until("it is usable again", || docker.world().call(&["run", "echo fine"]).stdout == "fine\n");
}

#[test]
fn an_engine_that_restarts_takes_containers_with_it_or_not() {
    let (Some(engine), Some(engines)) = (needed("FARSHELL_TEST_ENGINE"), needed("FARSHELL_TEST_ENGINES"))
    else {
        return;
    };
    let Some(tar) = needed("FARSHELL_TEST_BUSYBOX_TAR") else { return };
    for live_restore in [false, true] {
        let name = format!("cli-{}-{live_restore}", std::process::id());
        let call = |verb: &[&str]| {
            let done = Command::new(&engine)
                .arg(&name)
                .args(verb)
                .env("FARSHELL_TEST_ENGINES", &engines)
                .output()
                .unwrap();
            assert!(done.status.success(), "{verb:?}: {}", String::from_utf8_lossy(&done.stderr));
        };
        let start: &[&str] = if live_restore { &["start", "--live-restore"] } else { &["start"] };
        call(start);
        let host = format!("unix://{engines}/{name}/docker.sock");
        let imported = Command::new("docker")
            .args(["-H", &host, "import", &tar, "farshell-test/busybox:1"])
            .output()
            .unwrap();
        assert!(imported.status.success());
        {
            let docker = Docker::on(&host, "farshell-test/busybox:1");
            if live_restore {
                docker.says("export A=1");
                let running = docker.spawn(&["run", "touch /workspace/begun; sleep 6; echo done"]);
                docker.wait_for("begun");
                call(&["stop"]);
                assert_eq!(
                    docker.says_in("other", "echo meanwhile"),
                    "meanwhile\n",
                    "no command needs the engine"
                );
                call(start);
                let said = finish(running);
                assert_eq!((said.stdout.as_str(), said.code), ("done\n", 0), "{said:?}");
                assert_eq!(docker.says("echo $A"), "1\n");
            } else {
                let error = meanwhile(&docker, |_| {
                    call(&["stop"]);
                    call(start);
                });
                assert_eq!(error["kind"], "unknown_outcome", "{error}");
                goes_on(&docker);
            }
        }
        call(&["remove"]);
    }
}
