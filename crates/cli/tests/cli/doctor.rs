//! `farshell doctor`.

use crate::rig::{World, finish, said};
use serde_json::json;

#[test]
fn it_looks_at_all_six() {
    let world = World::new().with("DOCKER_HOST", "unix:///nowhere/docker.sock");
    let said = world.call(&["doctor", "--json"]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    let object = said.json();
    assert_eq!((&object["usable"], &object["selected"]), (&json!(true), &json!("local")));
    assert_eq!(object["settings"]["problems"], json!([]));
    let backends: Vec<(&str, bool, bool)> = object["backends"]
        .as_array()
        .unwrap()
        .iter()
        .map(|b| {
            (b["name"].as_str().unwrap(), b["selected"].as_bool().unwrap(), b["usable"].as_bool().unwrap())
        })
        .collect();
    assert_eq!(
        backends,
        [
            ("local", true, true),
            ("docker", false, false),
            ("ssh", false, false),
            ("singularity", false, false),
            ("modal", false, false),
            ("daytona", false, false),
        ]
    );
    for backend in object["backends"].as_array().unwrap() {
        for finding in backend["findings"].as_array().unwrap() {
            assert!(finding["severity"] == "good" || finding["hint"].is_string(), "{finding}");
        }
    }
}

#[test]
fn credentials_are_looked_for_and_not_shown() {
    // Nobody listens there.
    let world =
        World::new().with("DAYTONA_API_KEY", "hunter2").with("DAYTONA_API_URL", "http://127.0.0.1:1/api");
    let said = world.call(&["doctor", "daytona", "modal"]);
    assert_eq!(said.code, 0);
    assert!(said.stdout.contains("Daytona can't be reached"), "{}", said.stdout);
    assert!(said.stdout.contains("there is no token for Modal"), "{}", said.stdout);
    assert!(!said.stdout.contains("hunter2") && !said.stdout.contains("\nlocal"), "{}", said.stdout);
}

#[test]
fn a_selected_backend_that_cannot_serve_is_a_failure() {
    let world = World::new().with("DOCKER_HOST", "unix:///nowhere/docker.sock");
    let mut command = world.command(&["doctor", "--json"]);
    let said = finish(command.env("TERMINAL_ENV", "docker").spawn().unwrap());
    assert_eq!(
        (said.code, &said.json()["usable"], &said.json()["selected"]),
        (1, &json!(false), &json!("docker"))
    );
}

#[test]
fn settings_that_are_wrong_are_named() {
    let world = World::new().with("TERMINAL_TIMEOUT", "soon");
    let said = world.call(&["doctor"]);
    assert_eq!(said.code, 1);
    let expected = "  problem: terminal.timeout: \"soon\" is not a whole number of seconds, at least 1 (TERMINAL_TIMEOUT in the environment)\n";
    assert!(said.stdout.contains(expected), "{}", said.stdout);
}

#[test]
fn an_unknown_backend_names_the_six() {
    let world = World::new();
    assert_eq!(
        world.call(&["doctor", "dokcer"]),
        said(
            "",
            "farshell: choosing what to look at: \"dokcer\" is not one of local, docker, ssh, singularity, modal, daytona\n",
            125,
        )
    );
}
