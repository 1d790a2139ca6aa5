//! The program with commands in Apptainer's instances, as a user meets it.
//!
//! Apptainer is the one that `FARSHELL_TEST_APPTAINER` names: see `scripts/rig`.
#![expect(clippy::unwrap_used, reason = "a test that can't set up its world fails by saying so")]

#[path = "../cli/rig.rs"]
#[expect(dead_code, reason = "these tests use a part of it")]
mod rig;

use rig::{World, wait_until};

/// A world whose commands run in instances. Nothing if there is no Apptainer, and that is said.
fn world(lines: &[&str]) -> Option<World> {
    let variable = |name: &str| farshell_testing::var(name, "singularity");
    let (program, image) = (variable("FARSHELL_TEST_APPTAINER")?, variable("FARSHELL_TEST_SIF")?);
    let world = World::new().with("TERMINAL_ENV", "singularity");
    let mut config = format!("terminal:\n  singularity_binary: {program}\n  singularity_image: {image}\n");
    for line in lines {
        config.push_str(&format!("  {line}\n"));
    }
    std::fs::write(world.hermes().join("config.yaml"), config).unwrap();
    Some(world)
}

fn says(world: &World, command: &str) -> String {
    let said = world.run(command);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{command}: {said:?}");
    said.stdout
}

/// The environments of this world are gone, and nothing of their processes is left.
fn remove(world: &World) {
    assert_eq!(world.call(&["env", "rm", "--files"]).code, 0);
    let hermes = world.hermes().display().to_string();
    wait_until("no process of it is left", || {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let args = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
        !args.map(|args| String::from_utf8_lossy(&args).into_owned()).any(|args| {
            args.contains(&hermes) && (args.contains("fuse-overlayfs") || args.contains("apptainer"))
        })
    });
}

#[test]
fn state_and_files_carry_over_calls_and_servers() {
    let Some(world) = world(&[]) else { return };
    assert_eq!(says(&world, "pwd; cd /workspace; export A=1; f() { echo f; }; echo kept > file"), "/root\n");
    assert_eq!(says(&world, "f; echo $A $PWD; cat file"), "f\n1 /workspace\nkept\n");
    let result = world.call(&["run", "--json", "exit 3"]).json();
    assert_eq!((result["backend"].as_str(), result["exit_code"].as_i64()), (Some("singularity"), Some(3)));
    let place = result["place"]["id"].as_str().unwrap().to_owned();
    let sleeper = world.background(&[], "echo begun; sleep 1; echo ended; exit 4");
    world.kill_server();
    assert_eq!(says(&world, "f; echo $A"), "f\n1\n", "the shell is still the same");
    assert_eq!(world.call(&["server", "stop"]).code, 0);
    let waited = world.call(&["wait", &sleeper]);
    assert_eq!(waited.code, 4, "{waited:?}");
    assert_eq!(world.call(&["logs", &sleeper]).stdout, "begun\nended\n");
    let again = world.call(&["run", "--json", "true"]).json();
    assert_eq!(again["place"]["id"].as_str(), Some(place.as_str()));
    remove(&world);
}

#[test]
fn what_is_put_away_keeps_its_files_and_removal_says_what_stays() {
    let Some(world) = world(&[]) else { return };
    says(&world, "echo a > /workspace/file; echo b > ~/file; echo c > /file; export A=1");
    assert_eq!(world.call(&["env", "stop"]).code, 0);
    let list = world.json(&["env", "list", "--json"]);
    assert_eq!(list["environments"][0]["state"], "stopped");
    let back = world.call(&["run", "--json", "cat /workspace/file ~/file /file; echo ${A-unset}"]).json();
    assert_eq!(back["stdout"], "a\nb\nc\n1\n");
    assert_eq!(
        back["note"],
        "the session began anew: its environment was put away; its directory and exported variables are as they were"
    );
    let shown = world.call(&["env", "show"]).stdout;
    for word in ["cpu", "memory", "disk", "processes", "not enforced"] {
        assert!(shown.contains(word), "{word} in {shown}");
    }
    let said = world.call(&["env", "rm"]);
    assert!(said.code == 0 && said.stderr.contains("--files"), "{said:?}");
    assert_eq!(says(&world, "cat /workspace/file ~/file; ls /file 2>/dev/null || true"), "a\nb\n");
    remove(&world);
    assert_eq!(says(&world, "ls -A /workspace ~"), "/root:\n\n/workspace:\n");
    remove(&world);
}

#[test]
fn variables_travel_with_the_call_and_nothing_else_of_the_caller_does() {
    let Some(world) = world(&["singularity_env: {GREETING: hello}"]) else { return };
    let world = world.with("MINE", "secret").with("WANTED", "yes").with("TERMINAL_ENV_PASSTHROUGH", "WANTED");
    assert_eq!(
        says(&world, "echo $GREETING $WANTED ${MINE-unset} ${HERMES_HOME-unset}"),
        "hello yes unset unset\n"
    );
    let before = world.call(&["run", "--json", "true"]).json()["place"]["id"].clone();
    let changed = world
        .command(&["run", "--json", "echo $GREETING"])
        .env("TERMINAL_SINGULARITY_ENV", "GREETING=bye")
        .spawn();
    let changed = rig::finish(changed.unwrap()).json();
    assert_eq!((&changed["stdout"], &changed["place"]["id"]), (&"bye\n".into(), &before), "{changed}");
    assert_eq!(says(&world, "cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep -c secret || true"), "0\n");
    remove(&world);
}

#[test]
fn what_is_wrong_is_said_with_what_to_do_and_nothing_is_run_elsewhere() {
    let Some(world) = world(&[]) else { return };
    let wrong = |variables: &[(&str, &str)]| {
        let mut command = world.command(&["run", "touch ran"]);
        let said = rig::finish(command.envs(variables.iter().copied()).spawn().unwrap());
        assert_eq!((said.stdout.as_str(), said.code), ("", 125), "{said:?}");
        assert!(said.stderr.contains("hint:"), "{said:?}");
        said.stderr
    };
    assert!(wrong(&[("TERMINAL_SINGULARITY_IMAGE", "/nowhere/x.sif")]).contains("/nowhere/x.sif"));
    assert!(wrong(&[("TERMINAL_SINGULARITY_IMAGE", "python:3.11")]).contains("docker://python:3.11"));
    assert!(wrong(&[("TERMINAL_SINGULARITY_BINARY", "/nowhere/apptainer")]).contains("/nowhere/apptainer"));
    assert!(wrong(&[("TERMINAL_SINGULARITY_EXTRA_ARGS", "--no-pid")]).contains("--no-pid"));
    assert!(
        wrong(&[("TERMINAL_SINGULARITY_SLURM", "{\"partition\": \"a b\"}")]).contains("singularity_slurm")
    );
    assert!(!world.work().join("ran").exists());
}

#[test]
fn the_doctor_tries_it() {
    let Some(world) = world(&[]) else { return };
    let said = world.call(&["doctor", "singularity", "--json"]);
    let backend = &said.json()["backends"][0];
    assert_eq!((&backend["name"], &backend["usable"]), (&"singularity".into(), &true.into()), "{said:?}");
    assert!(said.stdout.contains("the outpost runs in"), "{said:?}");
}
