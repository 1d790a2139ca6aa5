//! `farshell config`.

use crate::rig::{World, fine, finish, said};
use serde_json::json;

#[test]
fn set_get_explain_unset() {
    let world = World::new();
    let file = world.hermes().join("config.yaml");
    std::fs::write(&file, "# mine\nterminal:\n  cwd: /usr # here\n").unwrap();
    let shown = file.display();
    assert_eq!(world.call(&["config", "get", "timeout"]), fine("180\n"));
    assert_eq!(
        world.call(&["config", "set", "timeout", "300"]),
        fine(&format!("set: terminal.timeout in {shown}\n"))
    );
    assert_eq!(
        world.call(&["config", "set", "timeout", "300"]),
        fine(&format!("unchanged: terminal.timeout in {shown}\n"))
    );
    assert_eq!(world.call(&["config", "get", "terminal.timeout"]), fine("300\n"));
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        "# mine\nterminal:\n  cwd: /usr # here\n  timeout: 300\n"
    );
    assert_eq!(
        world.call(&["config", "explain", "timeout"]),
        fine(&format!(
            "terminal.timeout = 300\n  \
         from       {shown} line 4\n  \
         overrides  180 (default)\n  \
         meaning    how long a foreground command may take unless the call says otherwise\n  \
         variables  TERMINAL_TIMEOUT\n"
        ))
    );
    let mut command = world.command(&["config", "explain", "timeout", "--json"]);
    let explained = finish(command.env("TERMINAL_TIMEOUT", "30").spawn().unwrap());
    assert_eq!(
        explained.json(),
        json!({
            "key": "terminal.timeout",
            "value": "30",
            "source": "TERMINAL_TIMEOUT in the environment",
            "overrides": [
                {"value": "300", "source": format!("{shown} line 4"), "problem": null},
                {"value": "180", "source": "default", "problem": null},
            ],
            "problem": null,
            "meaning": "how long a foreground command may take unless the call says otherwise",
            "variables": ["TERMINAL_TIMEOUT"],
            "backend": "local",
            "matters": true,
        })
    );
    assert_eq!(
        world.call(&["config", "unset", "timeout"]),
        fine(&format!("unset: terminal.timeout in {shown}\n"))
    );
    assert_eq!(world.call(&["config", "get", "timeout"]), fine("180\n"));
}

#[test]
fn a_change_that_has_no_effect_says_so() {
    let world = World::new().with("TERMINAL_TIMEOUT", "30");
    let file = world.hermes().join("config.yaml");
    assert_eq!(
        world.call(&["config", "set", "timeout", "300"]),
        fine(&format!(
            "set: terminal.timeout in {}\nnote: it has no effect yet: TERMINAL_TIMEOUT in the environment is set and counts for more\n",
            file.display()
        ))
    );
}

#[test]
fn what_is_wrong_is_refused() {
    let world = World::new();
    assert_eq!(
        world.call(&["config", "set", "timeout", "-5"]),
        said(
            "",
            "farshell: changing a setting: timeout: \"-5\" is not a whole number of seconds, at least 1\n",
            125,
        )
    );
    assert_eq!(
        world.call(&["config", "set", "tiemout", "5"]),
        said(
            "",
            "farshell: changing a setting: tiemout is not a setting; did you mean terminal.timeout?\n\
         hint: `farshell config list` shows every setting\n",
            125,
        )
    );
    assert_eq!(
        world.call(&["config", "get", "tiemout"]),
        said(
            "",
            "farshell: looking up a setting: tiemout is not a setting; did you mean terminal.timeout?\n\
         hint: `farshell config list --all` shows every setting\n",
            125,
        )
    );
    assert_eq!(world.call(&["config", "get", "ssh_host"]), said("", "", 1));
    assert!(!world.hermes().join("config.yaml").exists());
}

#[test]
fn a_secret_comes_by_standard_input_and_is_never_shown() {
    let world = World::new();
    let set = world.call_with_input(&["config", "set", "SUDO_PASSWORD", "-"], b"hunter2\n");
    assert_eq!(set, fine(&format!("set: SUDO_PASSWORD in {}\n", world.hermes().join(".env").display())));
    assert_eq!(std::fs::read_to_string(world.hermes().join(".env")).unwrap(), "SUDO_PASSWORD=hunter2\n");
    assert_eq!(world.call(&["config", "get", "sudo_password"]), fine("********\n"));
    for args in [
        &["config", "list", "--all"][..],
        &["config", "list", "--json"],
        &["config", "explain", "sudo_password"],
        &["doctor"],
    ] {
        let shown = world.call(args);
        assert!(!shown.stdout.contains("hunter2") && !shown.stderr.contains("hunter2"), "{args:?}");
    }
}

#[test]
fn a_list_shows_what_matters() {
    let world = World::new().with("TERMINAL_TIMEOUT", "30");
    let list = world.call(&["config", "list"]);
    assert_eq!(list.code, 0);
    let line = |key: &str| list.stdout.lines().find(|line| line.split_whitespace().next() == Some(key));
    let words = |key: &str| line(key).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    assert_eq!(words("timeout").unwrap(), "timeout 30 TERMINAL_TIMEOUT in the environment");
    assert_eq!(words("lifetime_seconds").unwrap(), "lifetime_seconds 300 default");
    assert_eq!(words("docker_image"), None);
    assert!(world.call(&["config", "list", "--all"]).stdout.contains("docker_image"));
    assert!(world.call(&["config", "list", "--backend", "docker"]).stdout.contains("docker_image"));
    let json = world.call(&["config", "list", "--json"]).json();
    let timeout = json.as_array().unwrap().iter().find(|entry| entry["key"] == "terminal.timeout").unwrap();
    assert_eq!(
        *timeout,
        json!({
            "key": "terminal.timeout", "value": 30, "source": "TERMINAL_TIMEOUT in the environment", "problem": null, "matters": true,
        })
    );
}

#[test]
fn paths_are_told_however_broken_the_files_are() {
    let world = World::new();
    let (config, env) = (world.hermes().join("config.yaml"), world.hermes().join(".env"));
    std::fs::write(&config, "terminal: [\n").unwrap();
    assert_eq!(
        world.call(&["config", "path"]),
        fine(&format!("{}\n{}  (not there)\n", config.display(), env.display()))
    );
    let broken = world.run("touch ran");
    assert_eq!((broken.code, broken.stdout.as_str()), (125, ""));
    let start = format!("farshell: reading the settings: can't read {}: line ", config.display());
    assert!(broken.stderr.starts_with(&start), "{}", broken.stderr);
    assert!(!world.work().join("ran").exists());
}

#[test]
fn a_list_into_a_closed_pipe_is_no_panic() {
    let world = World::new();
    for args in [&["config", "list", "--all"][..], &["--help"], &["completions", "bash"], &["doctor"]] {
        let mut child = world.command(args).spawn().unwrap();
        drop(child.stdout.take());
        let said = finish(child);
        // Whether the pipe was closed in time is a matter of luck.
        assert!([0, 141].contains(&said.code) && said.stderr.is_empty(), "{args:?}: {said:?}");
    }
}
