//! Changing settings: which file, which bytes, which mode, and what happens when things go wrong.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::thread;

use farshell_config::error::EditErrorKind;
use farshell_config::{Answer, Note, set, unset};

use crate::world::World;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn set_error(world: &World, key: &str, value: &str) -> String {
    world.plain(&set(&world.context, key, value).unwrap_err())
}

#[test]
fn a_first_setting_makes_a_private_file() {
    let world = World::new();
    let change = set(&world.context, "backend", "docker").unwrap();
    assert_eq!((change.key.as_str(), change.changed, change.notes.len()), ("terminal.backend", true, 0));
    assert_eq!(change.path, world.context.home.config_file());
    assert_eq!(world.config_text(), "terminal:\n  backend: docker\n");
    assert_eq!(mode(&world.context.home.config_file()), 0o600);
    // The home directory is made too.
    fs::remove_dir_all(world.context.home.root()).unwrap();
    set(&world.context, "SUDO_PASSWORD", "x").unwrap();
    assert_eq!(mode(world.context.home.root()), 0o700);
    assert_eq!(mode(&world.context.home.env_file()), 0o600);
}

#[test]
fn both_names_of_a_setting() {
    let world = World::new().yaml("# mine\nterminal:\n  timeout: 5 # short\n");
    set(&world.context, "timeout", "60").unwrap();
    set(&world.context, "terminal.lifetime_seconds", " 90 ").unwrap();
    assert_eq!(world.config_text(), "# mine\nterminal:\n  timeout: 60 # short\n  lifetime_seconds: 90\n");
    assert!(!set(&world.context, "timeout", "60").unwrap().changed);
}

#[test]
fn values_take_their_type() {
    let world = World::new();
    for (key, value) in [
        ("docker_network", "OFF"),
        ("container_cpu", "1.5"),
        ("docker_image", "python:3.11"),
        ("docker_volumes", "/a:/b,/c:/d:ro"),
        ("docker_forward_env", r#"["A", "B"]"#),
        ("docker_env", r#"{"N": 1, "LANG": "C"}"#),
        ("docker_env.EXTRA", "yes"),
        ("terminal.singularity_slurm.cpus", "4"),
        ("home_mode", "Isolated"),
        ("docker_extra_args", "[]"),
    ] {
        set(&world.context, key, value).unwrap();
    }
    assert_eq!(
        world.config_text(),
        "terminal:
  docker_network: false
  container_cpu: 1.5
  docker_image: python:3.11
  docker_volumes:
    - /a:/b
    - /c:/d:ro
  docker_forward_env:
    - A
    - B
  docker_env:
    \"N\": \"1\"
    LANG: C
    EXTRA: \"yes\"
  singularity_slurm:
    cpus: 4
  home_mode: profile
  docker_extra_args: []
"
    );
    world.resolve().unwrap();
}

#[test]
fn what_is_not_allowed_is_not_written() {
    let world = World::new().yaml("terminal: {}\n");
    assert_eq!(set_error(&world, "tiemout", "5"), "tiemout is not a setting; did you mean terminal.timeout?");
    assert_eq!(set_error(&world, "terminal.nothing", "5"), "terminal.nothing is not a setting");
    assert_eq!(
        set_error(&world, "TERMINAL_TIEMOUT", "5"),
        "TERMINAL_TIEMOUT is not a setting; did you mean TERMINAL_TIMEOUT?"
    );
    assert_eq!(set_error(&world, "terminal", "5"), "terminal is not a setting");
    assert_eq!(
        set_error(&world, "timeout", "soon"),
        r#"timeout: "soon" is not a whole number of seconds, at least 1"#
    );
    assert_eq!(
        set_error(&world, "timeout", ""),
        r#"timeout: "" is not a whole number of seconds, at least 1 (to go back to the default, unset it)"#
    );
    assert_eq!(
        set_error(&world, "backend", "dokcer"),
        r#"backend: "dokcer" is not one of local, docker, ssh, singularity, modal, daytona; did you mean docker?"#
    );
    assert_eq!(
        set_error(&world, "docker_env.a-b", "x"),
        r#"docker_env.a-b: "a-b" is not a map from variable names to texts"#
    );
    assert_eq!(
        set_error(&world, "TERMINAL_SSH_PORT", "0"),
        r#"TERMINAL_SSH_PORT: "0" is not a whole number from 1 to 65535"#
    );
    assert_eq!(world.config_text(), "terminal: {}\n");
    assert!(!world.context.home.env_file().exists());
}

#[test]
fn a_contradiction_is_not_written() {
    let world = World::new().yaml("terminal:\n  timeout: 500\n");
    assert_eq!(
        set_error(&world, "timeout", "900"),
        "timeout is not changed: terminal.timeout: 900 (the command line) is more than terminal.max_foreground_timeout: 600 (default); lower the first or raise the second"
    );
    assert!(set(&world.context, "max_foreground_timeout", "400").is_err());
    set(&world.context, "max_foreground_timeout", "900").unwrap();
    set(&world.context, "timeout", "900").unwrap();
    assert_eq!(world.config_text(), "terminal:\n  timeout: 900\n  max_foreground_timeout: 900\n");
}

#[test]
fn secrets_and_variables_go_to_the_env_file() {
    let world = World::new();
    for (key, value) in [
        ("sudo_password", "a b#c"),
        ("DAYTONA_API_KEY", "k"),
        ("MODAL_TOKEN_ID", "t"),
        ("TERMINAL_SSH_HOST", "h"),
        ("TERMINAL_SSH_KEY", "~/.ssh/id"),
    ] {
        let change = set(&world.context, key, value).unwrap();
        assert_eq!(change.path, world.context.home.env_file());
    }
    assert_eq!(
        world.env_text(),
        "SUDO_PASSWORD=\"a b#c\"\nDAYTONA_API_KEY=k\nMODAL_TOKEN_ID=t\nTERMINAL_SSH_HOST=h\nTERMINAL_SSH_KEY=~/.ssh/id\n"
    );
    assert!(!world.context.home.config_file().exists());
    assert_eq!(world.resolve().unwrap().settings.sudo_password.unwrap().reveal(), "a b#c");
    assert!(unset(&world.context, "sudo_password").unwrap().changed);
    assert!(unset(&world.context, "DAYTONA_API_KEY").unwrap().changed);
    assert!(!unset(&world.context, "DAYTONA_API_KEY").unwrap().changed);
    assert_eq!(world.env_text(), "MODAL_TOKEN_ID=t\nTERMINAL_SSH_HOST=h\nTERMINAL_SSH_KEY=~/.ssh/id\n");
}

#[test]
fn modes_are_kept_and_secrets_are_closed() {
    let world = World::new().yaml("a: 1\n").dotenv("A=1\n");
    let (config, env) = (world.context.home.config_file(), world.context.home.env_file());
    fs::set_permissions(&config, Permissions::from_mode(0o640)).unwrap();
    fs::set_permissions(&env, Permissions::from_mode(0o644)).unwrap();
    assert_eq!(set(&world.context, "timeout", "5").unwrap().notes, []);
    assert_eq!(mode(&config), 0o640);
    // Without a secret the file stays as open as it was.
    assert_eq!(set(&world.context, "TERMINAL_CWD", "/x").unwrap().notes, []);
    assert_eq!(mode(&env), 0o644);
    assert_eq!(set(&world.context, "X_TOKEN", "x").unwrap().notes, [Note::MadePrivate { from: 0o644 }]);
    assert_eq!(mode(&env), 0o600);
    let world = World::new().yaml("terminal:\n  sudo_password: x\n");
    fs::set_permissions(world.context.home.config_file(), Permissions::from_mode(0o644)).unwrap();
    assert_eq!(
        world.warnings(),
        ["~/config.yaml holds secrets and others can read it (mode 0644): run chmod 600 ~/config.yaml"]
    );
    assert_eq!(set(&world.context, "timeout", "5").unwrap().notes, [Note::MadePrivate { from: 0o644 }]);
    assert_eq!(mode(&world.context.home.config_file()), 0o600);
}

#[test]
fn a_broken_file_is_never_written() {
    for broken in
        ["terminal:\n  timeout: [5\n", "a: 1\na: 2\n", "a:\n\t- b\n", "- list\n", "terminal:\n  - list\n"]
    {
        let world = World::new().yaml(broken);
        let error = set(&world.context, "timeout", "5").unwrap_err();
        assert!(error.hint().is_some() && !error.is_retryable());
        assert!(unset(&world.context, "timeout").is_err() || broken.contains("- list"));
        assert_eq!(world.config_text(), broken);
    }
    let world = World::new().yaml("terminal:\n  timeout: 5\n timeout: 6\n");
    assert!(
        set_error(&world, "timeout", "7")
            .starts_with("timeout is not changed: can't read ~/config.yaml: line 3, column 2: ")
    );
    let world = World::new();
    let bytes = b"A=1\nB=\xff\n";
    fs::write(world.context.home.env_file(), bytes).unwrap();
    assert_eq!(
        set_error(&world, "sudo_password", "x"),
        "sudo_password is not changed: can't read ~/.env: line 2 is not UTF-8 text"
    );
    assert_eq!(fs::read(world.context.home.env_file()).unwrap(), bytes);
}

#[test]
fn what_needs_a_hand_says_what_to_write() {
    let text = "terminal:\n  docker_volumes:\n    # mine\n    - /a:/b # one\n";
    let world = World::new().yaml(text);
    let error = set(&world.context, "docker_volumes", "/x:/y").unwrap_err();
    assert_eq!(
        world.plain(&error),
        "docker_volumes is not changed: ~/config.yaml line 4: the value has comments inside, which would be lost"
    );
    assert_eq!(
        world.plain(&error.hint().unwrap()),
        r#"edit ~/config.yaml by hand: set terminal.docker_volumes to ["/x:/y"]"#
    );
    assert!(matches!(error.kind, EditErrorKind::ByHand { .. }));
    assert_eq!(world.config_text(), text);
}

#[test]
fn a_link_stays_a_link() {
    let world = World::new();
    let real = world.path("dotfiles.yaml");
    fs::write(&real, "a: 1 # c\n").unwrap();
    let link = world.context.home.config_file();
    symlink("../dotfiles.yaml", &link).unwrap();
    set(&world.context, "timeout", "5").unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(&real).unwrap(), "a: 1 # c\nterminal:\n  timeout: 5\n");
    // A link to a file that isn't there yet.
    let env = world.context.home.env_file();
    symlink(world.path("new/env"), &env).unwrap();
    set(&world.context, "TERMINAL_CWD", "/x").unwrap();
    assert!(fs::symlink_metadata(&env).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(world.path("new/env")).unwrap(), "TERMINAL_CWD=/x\n");
}

#[test]
fn marks_and_line_ends_stay() {
    let world = World::new().yaml("\u{feff}terminal:\r\n  timeout: 5 # c\r\n");
    assert_eq!(world.resolve().unwrap().settings.timeout.as_secs(), 5);
    set(&world.context, "timeout", "6").unwrap();
    set(&world.context, "cwd", "/x").unwrap();
    assert_eq!(world.config_text(), "\u{feff}terminal:\r\n  timeout: 6 # c\r\n  cwd: /x\r\n");
}

#[test]
fn removing() {
    let world = World::new()
        .yaml("# top\nterminal:\n  env_type: docker\n  timeout: 5 # c\n  backend: ssh\nmodel: x\n");
    assert!(unset(&world.context, "backend").unwrap().changed);
    assert!(unset(&world.context, "timeout").unwrap().changed);
    assert!(!unset(&world.context, "terminal.cwd").unwrap().changed);
    assert_eq!(world.config_text(), "# top\nterminal:\n  # c\nmodel: x\n");
    world.resolve().unwrap();
    let nowhere = World::new();
    assert!(!unset(&nowhere.context, "timeout").unwrap().changed);
    assert!(!nowhere.context.home.config_file().exists());
    assert_eq!(fs::read_dir(nowhere.context.home.root()).unwrap().count(), 0);
}

#[test]
fn keys_of_other_programs() {
    let world = World::new().yaml("approvals:\n  mode: smart # m\n");
    let change = set(&world.context, "approvals.cron_mode", "approve").unwrap();
    assert_eq!(change.notes, [Note::NotChecked]);
    unset(&world.context, "approvals.cron_mode").unwrap();
    for (key, value) in [
        ("tool_output.max_bytes", "1000"),
        ("security.redact_secrets", "false"),
        ("plugins.deny", r#"["rm *"]"#),
        ("agent.version", "3.10"),
        ("file_read_max_chars", "5"),
    ] {
        set(&world.context, key, value).unwrap();
    }
    assert_eq!(
        world.config_text(),
        "approvals:\n  mode: smart # m\ntool_output:\n  max_bytes: 1000\nsecurity:\n  redact_secrets: false\nplugins:\n  deny:\n    - \"rm *\"\nagent:\n  version: \"3.10\"\nfile_read_max_chars: 5\n"
    );
    let Answer::Other(Some(value)) = world.load().get("plugins.deny").unwrap() else { panic!() };
    assert_eq!(value.to_string(), r#"["rm *"]"#);
    unset(&world.context, "plugins.deny").unwrap();
    let Answer::Other(None) = world.load().get("plugins.deny").unwrap() else { panic!() };
    assert!(set(&world.context, "a..b", "1").is_err());
}

#[test]
fn what_may_run_is_checked_and_taken_to_the_letter() {
    let world = World::new().yaml("approvals:\n  mode: smart # m\n").env("MODE", "auto");
    set(&world.context, "approvals.mode", "Hands-Off").unwrap();
    set(&world.context, "approvals.deny", r#"["rm ${MODE}"]"#).unwrap();
    assert_eq!(world.config_text(), "approvals:\n  mode: auto # m\n  deny:\n    - \"rm ${MODE}\"\n");
    let approvals = world.resolve().unwrap().settings.approvals;
    assert_eq!(
        (approvals.mode.as_str(), approvals.deny.as_slice()),
        ("auto", &["rm ${MODE}".to_owned()][..])
    );
    for (key, value) in [
        ("approvals.mode", "${MODE}"),
        ("approvals.timeout", "0"),
        ("approvals.mod", "ask"),
        ("approvals.denny", "[]"),
        ("terminal.approvals.mode", "ask"),
        ("terminal.command_allowlist", "[]"),
    ] {
        assert!(set(&world.context, key, value).is_err(), "{key}");
    }
    // Entries are added one by one, and none twice.
    for entry in ["git push --force", "exactly:rm -r old*", "git push --force"] {
        farshell_config::add(&world.context, "command_allowlist", entry).unwrap();
    }
    let allowlist = world.resolve().unwrap().settings.approvals.allowlist;
    assert_eq!(allowlist, ["git push --force", "exactly:rm -r old*"]);
    assert!(farshell_config::add(&world.context, "approvals.mode", "x").is_err());
    // A slip in the file is an error: a list that nobody reads protects nobody.
    for text in [
        "approvals: {denny: [a]}",
        "approvals: off",
        "approvals: {mode: '${MODE}'}",
        "approvals: {mode: }\nterminal: {approvals.mode: ask}",
    ] {
        assert!(World::new().env("MODE", "auto").yaml(text).resolve().is_err(), "{text}");
    }
    let hermes = World::new().yaml("approvals: {mode: off, cron_mode: deny, mcp_reload_confirm: true}\n");
    assert_eq!(hermes.resolve().unwrap().settings.approvals.mode.as_str(), "auto");
}

#[test]
fn a_change_without_effect_says_so() {
    let world = World::new().env("TERMINAL_TIMEOUT", "9");
    let notes: Vec<String> =
        set(&world.context, "timeout", "5").unwrap().notes.iter().map(ToString::to_string).collect();
    assert_eq!(
        notes,
        ["it has no effect yet: TERMINAL_TIMEOUT in the environment is set and counts for more"]
    );
    let world = World::new().yaml("terminal:\n  timeout: 5\n");
    let notes: Vec<String> = set(&world.context, "TERMINAL_TIMEOUT", "7")
        .unwrap()
        .notes
        .iter()
        .map(|note| world.plain(note))
        .collect();
    assert_eq!(notes, ["it has no effect yet: ~/config.yaml line 2 is set and counts for more"]);
}

#[test]
fn changes_at_the_same_time_are_all_kept() {
    let world = World::new().yaml("# top\nterminal:\n  backend: local # b\n");
    let sets = |prefix: &str| {
        for n in 0..50 {
            set(&world.context, &format!("many.{prefix}{n}"), &n.to_string()).unwrap();
            set(&world.context, &format!("{prefix}{n}_TOKEN"), "x").unwrap();
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| sets("A"));
        scope.spawn(|| sets("B"));
    });
    let config = world.load();
    for prefix in ["A", "B"] {
        for n in 0..50 {
            assert!(
                matches!(config.get(&format!("many.{prefix}{n}")), Ok(Answer::Other(Some(value))) if value == n)
            );
            assert!(config.variable(&format!("{prefix}{n}_TOKEN")).is_some());
        }
    }
    assert!(world.config_text().starts_with("# top\nterminal:\n  backend: local # b\n"));
    let mut left: Vec<_> =
        fs::read_dir(world.context.home.root()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, [".config.yaml.lock", ".env", ".env.lock", "config.yaml"]);
}
