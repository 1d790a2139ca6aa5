//! The program with commands on a real host, as a user meets it.
//!
//! The host is the one that `FARSHELL_TEST_SSH` names: see `scripts/rig`.
#![expect(clippy::unwrap_used, reason = "a test that can't set up its world fails by saying so")]

#[path = "../cli/rig.rs"]
#[expect(dead_code, reason = "these tests use a part of it")]
mod rig;

mod agents;
mod away;
mod copies;
mod nodes;

use rig::World;

/// A world whose commands run on the rig's host. Nothing if there is none, and that is said.
fn world() -> Option<World> {
    let variable = |name: &str| farshell_testing::var(&format!("FARSHELL_TEST_SSH{name}"), "ssh");
    let (host, port, user, key) = (variable("")?, variable("_PORT")?, variable("_USER")?, variable("_KEY")?);
    let world = World::new().with("TERMINAL_ENV", "ssh");
    let known = world.file("known_hosts", "");
    // The hosts that the user of this machine knows are left alone.
    let config = format!(
        "terminal:\n  ssh_host: {host}\n  ssh_port: {port}\n  ssh_user: {user}\n  ssh_key: {key}\n  ssh_options: [\"UserKnownHostsFile={}\", \"GlobalKnownHostsFile=/dev/null\"]\n",
        known.display()
    );
    std::fs::write(world.hermes().join("config.yaml"), config).unwrap();
    Some(world)
}

fn says(world: &World, command: &str) -> String {
    let said = world.run(command);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{command}: {said:?}");
    said.stdout
}

#[test]
fn state_lives_on_the_host_and_outlives_calls_connections_and_servers() {
    let Some(world) = world() else { return };
    let user = std::env::var("FARSHELL_TEST_SSH_USER").unwrap();
    assert_eq!(says(&world, "id -un; [ \"$PWD\" = \"$HOME\" ] && echo home"), format!("{user}\nhome\n"));
    says(&world, "cd /tmp; export A=1; f() { echo f; }");
    assert_eq!(says(&world, "f; echo $A $PWD"), "f\n1 /tmp\n");
    let result = world.call(&["run", "--json", "exit 3"]).json();
    assert_eq!((result["backend"].as_str(), result["exit_code"].as_i64()), (Some("ssh"), Some(3)));
    let sleeper = world.background(&[], "echo begun; sleep 1; echo ended; exit 4");
    world.kill_server();
    assert_eq!(says(&world, "f; echo $A"), "f\n1\n", "the shell is still the same");
    assert_eq!(world.call(&["server", "stop"]).code, 0);
    let waited = world.call(&["wait", &sleeper]);
    assert_eq!(waited.code, 4, "{waited:?}");
    assert_eq!(world.call(&["logs", &sleeper]).stdout, "begun\nended\n");
    let list = world.json(&["env", "list", "--json"]);
    assert_eq!(list["environments"][0]["backend"], "ssh");
    assert_eq!(world.call(&["env", "rm"]).code, 0);
    assert_eq!(says(&world, "echo ${A-unset}"), "unset\n");
}

#[test]
fn no_variable_of_this_machine_reaches_the_host_unless_it_is_named() {
    let Some(world) = world() else { return };
    let world = world.with("MINE", "secret").with("WANTED", "yes").with("TERMINAL_ENV_PASSTHROUGH", "WANTED");
    assert_eq!(says(&world, "echo ${MINE-unset} ${HERMES_HOME-unset} $WANTED"), "unset unset yes\n");
}

#[test]
fn what_is_wrong_is_said_with_what_to_do() {
    let Some(world) = world() else { return };
    let wrong = |variables: &[(&str, &str)]| {
        let mut command = world.command(&["run", "touch ran"]);
        let said = rig::finish(command.envs(variables.iter().copied()).spawn().unwrap());
        assert_eq!((said.stdout.as_str(), said.code), ("", 125), "{said:?}");
        said.stderr
    };
    let nobody = wrong(&[("TERMINAL_SSH_USER", "nobody-here")]);
    assert!(nobody.contains("hint:") && nobody.contains("nobody-here"), "{nobody}");
    let nowhere = wrong(&[("TERMINAL_SSH_HOST", "nowhere.invalid")]);
    assert!(nowhere.contains("hint:") && nowhere.contains("nowhere.invalid"), "{nowhere}");
}
