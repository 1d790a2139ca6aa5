//! What is wrong with settings, and how it is said.

use crate::resolve::{docker, settings};
use crate::world::World;
use farshell_config::{BackendKind, Config};

#[test]
fn booleans_are_never_guessed() {
    for (text, expected) in [
        ("true", true),
        ("YES", true),
        ("On", true),
        ("1", true),
        ("False", false),
        ("no", false),
        ("off", false),
        ("0", false),
    ] {
        let world = World::new().given("backend", "docker").env("TERMINAL_DOCKER_NETWORK", text);
        assert_eq!(docker(&world).network, expected, "{text}");
        let world = World::new().yaml(&format!("terminal:\n  backend: docker\n  docker_network: {text}\n"));
        assert_eq!(docker(&world).network, expected, "{text}");
    }
    let world = World::new().given("backend", "docker").env("TERMINAL_DOCKER_NETWORK", "ture");
    assert_eq!(
        world.error(),
        r#"terminal.docker_network: "ture" is not a yes or no (true, false, yes, no, on, off, 1, 0) (TERMINAL_DOCKER_NETWORK in the environment)"#
    );
}

#[test]
fn errors_name_key_value_source_and_choices() {
    let error = |yaml: &str| World::new().yaml(yaml).error();
    assert_eq!(
        error("# top\nterminal:\n  backend: dokcer\n"),
        r#"terminal.backend: "dokcer" is not one of local, docker, ssh, singularity, modal, daytona (~/config.yaml line 3); did you mean docker?"#
    );
    assert_eq!(
        error("terminal:\n  tiemout: 5\n"),
        "terminal.tiemout is not a setting (~/config.yaml line 2); did you mean terminal.timeout?"
    );
    assert_eq!(error("terminal:\n  colour: 5\n"), "terminal.colour is not a setting (~/config.yaml line 2)");
    assert_eq!(
        error("terminal:\n  timeout: soon\n"),
        r#"terminal.timeout: "soon" is not a whole number of seconds, at least 1 (~/config.yaml line 2)"#
    );
    assert_eq!(
        error("terminal:\n  timeout: [1, 2]\n"),
        r#"terminal.timeout: ["1","2"] is not a whole number of seconds, at least 1 (~/config.yaml line 2)"#
    );
    assert_eq!(
        error("terminal: {backend: ssh, ssh_host: h, ssh_user: u, ssh_port: 70000}\n"),
        r#"terminal.ssh_port: "70000" is not a whole number from 1 to 65535 (~/config.yaml line 1)"#
    );
    assert_eq!(error("terminal: docker\n"), "terminal is not a map of settings (~/config.yaml line 1)");
    assert_eq!(
        World::new().dotenv("\nTERMINAL_TIMEOUT=0\n").error(),
        r#"terminal.timeout: "0" is not a whole number of seconds, at least 1 (TERMINAL_TIMEOUT in ~/.env line 2)"#
    );
    assert_eq!(
        World::new().given("tmeout", "5").error(),
        "terminal.tmeout is not a setting (the command line); did you mean terminal.timeout?"
    );
    assert_eq!(
        World::new().yaml("terminal:\n  timeout: 900\n").error(),
        "terminal.timeout: 900 (~/config.yaml line 2) is more than terminal.max_foreground_timeout: 600 (default); lower the first or raise the second"
    );
    assert_eq!(
        settings(&World::new().yaml("terminal: {timeout: 900, max_foreground_timeout: 900}"))
            .timeout
            .as_secs(),
        900
    );
}

#[test]
fn all_errors_at_once() {
    let world = World::new()
        .yaml("terminal:\n  backend: ssh\n  tiemout: 1\n  ssh_port: x\n  ssh_host: -oProxyCommand=evil\n")
        .env("TERMINAL_LIFETIME_SECONDS", "-5");
    assert_eq!(
        world.error(),
        "5 settings can't be used:
  terminal.tiemout is not a setting (~/config.yaml line 3); did you mean terminal.timeout?
  terminal.lifetime_seconds: \"-5\" is not a whole number of seconds, at least 1 (TERMINAL_LIFETIME_SECONDS in the environment)
  terminal.ssh_host: \"-oProxyCommand=evil\" is not one word without blanks that doesn't start with '-' (~/config.yaml line 5)
  terminal.ssh_port: \"x\" is not a whole number from 1 to 65535 (~/config.yaml line 4)
  terminal.ssh_user is not set, and the ssh backend needs it: set terminal.ssh_user in config.yaml or the variable TERMINAL_SSH_USER"
    );
}

#[test]
fn ssh_without_host_and_user() {
    assert_eq!(
        World::new().env("TERMINAL_ENV", "ssh").error(),
        "2 settings can't be used:
  terminal.ssh_host is not set, and the ssh backend needs it: set terminal.ssh_host in config.yaml or the variable TERMINAL_SSH_HOST
  terminal.ssh_user is not set, and the ssh backend needs it: set terminal.ssh_user in config.yaml or the variable TERMINAL_SSH_USER"
    );
}

#[test]
fn numbers_have_ranges() {
    for (key, bad) in [
        ("timeout", "0"),
        ("timeout", "1.5"),
        ("timeout", "1_000"),
        ("timeout", "99999999999999999999"),
        ("lifetime_seconds", "0"),
        ("container_cpu", "-1"),
        ("container_cpu", "nan"),
        ("container_cpu", "inf"),
        ("container_memory", "-1"),
        ("container_memory", "5g"),
        ("docker_pids_limit", "-1"),
        ("daemon_term_grace_seconds", "-0.1"),
        ("log_cap_mb", "0"),
    ] {
        let world = World::new().given("backend", "docker").given(key, bad);
        assert!(
            world.error().starts_with(&format!("terminal.{key}: \"{bad}\" is not ")),
            "{}",
            world.error()
        );
    }
    for bad in ["0", "65536", "-22", "ssh"] {
        let world = World::new()
            .given("backend", "ssh")
            .given("ssh_host", "h")
            .given("ssh_user", "u")
            .given("ssh_port", bad);
        assert!(world.resolve().is_err(), "{bad}");
    }
    let world = World::new().yaml("terminal:\n  backend: docker\n  timeout: 60.0\n  container_cpu: 0.5\n  container_memory: 0\n  docker_pids_limit: 0\n");
    assert_eq!(settings(&world).timeout.as_secs(), 60);
    assert_eq!(docker(&world).container.cpu, Some(0.5));
    assert_eq!(docker(&world).container.memory_mb, None);
    assert_eq!(docker(&world).pids_limit, None);
}

#[test]
fn other_backends_do_not_break_the_selected_one() {
    let broken = "terminal:\n  ssh_port: x\n  docker_network: maybe\n  container_cpu: lots\n  modal_mode: odd\n  singularity_slurm: 5\n";
    let world = World::new().yaml(broken).env("TERMINAL_DOCKER_VOLUMES", "[broken");
    assert_eq!(settings(&world).backend.kind(), BackendKind::Local);
    let warnings = world.warnings();
    assert_eq!(warnings.len(), 6, "{warnings:#?}");
    assert_eq!(
        warnings[0],
        r#"not usable if its backend is selected: terminal.container_cpu: "lots" is not a number of cores from 0 to 4096 (~/config.yaml line 4)"#
    );
    assert!(world.given("backend", "docker").resolve().is_err());
}

#[test]
fn an_overridden_mistake_is_only_a_warning() {
    let world = World::new().yaml("terminal:\n  timeout: soon\n").env("TERMINAL_TIMEOUT", "7");
    assert_eq!(settings(&world).timeout.as_secs(), 7);
    assert_eq!(
        world.warnings(),
        [
            r#"overridden and not usable: terminal.timeout: "soon" is not a whole number of seconds, at least 1 (~/config.yaml line 2)"#
        ]
    );
}

#[test]
fn unknown_variables_are_warnings() {
    let world = World::new()
        .env("TERMINAL_EMULATOR", "xterm")
        .env("TERMINAL_TIEMOUT", "5")
        .dotenv("TERMINAL_DOKCER_IMAGE=x\nOTHER=1\n");
    assert_eq!(
        world.warnings(),
        [
            "TERMINAL_EMULATOR in the environment is not a variable of Farshell's",
            "TERMINAL_TIEMOUT in the environment is not a variable of Farshell's; did you mean TERMINAL_TIMEOUT?",
            "TERMINAL_DOKCER_IMAGE in ~/.env line 1 is not a variable of Farshell's; did you mean TERMINAL_DOCKER_IMAGE?",
        ]
    );
}

#[test]
fn broken_files() {
    let world = World::new().yaml("a: 1\nterminal:\n  timeout: [5\n");
    let error = Config::load(world.context.clone()).unwrap_err();
    assert_eq!(
        world.plain(&error),
        "can't read ~/config.yaml: line 3, column 12: unclosed bracket '['\n    2 | terminal:\n    3 |   timeout: [5\n      |            ^"
    );
    assert_eq!(error.hint(), "correct line 3 of the file; it is not changed until it can be read");
    let message = |yaml: &str| {
        let world = World::new().yaml(yaml);
        world.plain(&Config::load(world.context.clone()).unwrap_err())
    };
    assert_eq!(message("- a\n"), "can't read ~/config.yaml: it is not a map of keys and values at the top");
    assert!(
        message("a: 1\na: 2\n").contains("line 2, column 1: duplicate mapping key: a"),
        "{}",
        message("a: 1\na: 2\n")
    );
    let world = World::new();
    std::fs::write(world.context.home.config_file(), b"a: 1\nb: \xff\n").unwrap();
    assert_eq!(
        world.plain(&Config::load(world.context.clone()).unwrap_err()),
        "can't read ~/config.yaml: line 2 is not UTF-8 text"
    );
    let world = World::new();
    std::fs::create_dir(world.context.home.config_file()).unwrap();
    assert_eq!(
        world.plain(&Config::load(world.context.clone()).unwrap_err()),
        "can't read ~/config.yaml: not a regular file"
    );
}

#[test]
fn unknown_keys_of_questions() {
    let config = World::new().load();
    assert_eq!(
        config.explain("tiemout").unwrap_err().to_string(),
        "tiemout is not a setting; did you mean terminal.timeout?"
    );
    assert_eq!(
        config.get("terminal.dcoker_image").unwrap_err().to_string(),
        "terminal.dcoker_image is not a setting; did you mean terminal.docker_image?"
    );
    assert_eq!(
        config.get("TERMINAL_TIMEOUTS").unwrap_err().to_string(),
        "TERMINAL_TIMEOUTS is not a setting; did you mean TERMINAL_TIMEOUT?"
    );
}
