//! Help, version, completions, and what is said about a slip.

use crate::rig::World;

#[test]
fn help_has_examples() {
    let world = World::new();
    let help = world.call(&["--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (0, ""));
    for text in ["Examples:", "farshell run 'make test'", "farshell doctor"] {
        assert!(help.stdout.contains(text), "{}", help.stdout);
    }
    let run = world.call(&["run", "--help"]);
    for text in ["farshell run ls -l 'a file'", "--stdin -", "124", "125", "126", "128+n"] {
        assert!(run.stdout.contains(text), "{}", run.stdout);
    }
    assert!(!help.stdout.contains('\x1b') && !run.stdout.contains('\x1b'));
}

#[test]
fn every_subcommand_has_an_example() {
    let world = World::new();
    for words in [
        &["run"][..],
        &["shell"],
        &["cp"],
        &["ps"],
        &["logs"],
        &["wait"],
        &["send"],
        &["kill"],
        &["signal"],
        &["attach"],
        &["env"],
        &["events"],
        &["gc"],
        &["serve"],
        &["server"],
        &["config"],
        &["completions"],
    ] {
        let help = world.call(&[words, &["--help"]].concat());
        assert_eq!((help.code, help.stderr.as_str()), (0, ""), "{words:?}");
        assert!(help.stdout.contains(&format!("farshell {}", words[0])), "{words:?}: {}", help.stdout);
        assert!(help.stdout.contains("Example") || words[0] == "run", "{words:?}: {}", help.stdout);
    }
    // No help needs a server.
    assert!(!world.hermes().join("farshell").exists());
}

#[test]
fn version_short_and_long() {
    let world = World::new();
    let first = format!("farshell {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(world.call(&["-V"]), crate::rig::fine(&first));
    let long = world.call(&["--version"]).stdout;
    assert!(
        long.starts_with(&first) && long.contains("\nprotocol ") && long.contains("\noutpost "),
        "{long}"
    );
}

#[test]
fn completions_for_shells() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = world.call(&["completions", shell]);
        assert_eq!(script.code, 0);
        assert!(script.stdout.contains("farshell") && script.stdout.contains("workdir"), "{shell}");
    }
}

#[test]
fn a_slip_in_run_is_125_and_runs_nothing() {
    let world = World::new();
    let slip = world.call(&["run", "--jsn", "touch ran"]);
    assert_eq!((slip.code, slip.stdout.as_str()), (125, ""));
    assert!(slip.stderr.contains("'--json'"), "{}", slip.stderr);
    assert_eq!(world.call(&["run"]).code, 125);
    assert_eq!(world.call(&["rnu", "true"]).code, 2);
    assert_eq!(world.call(&[]).code, 2);
    assert!(!world.work().join("ran").exists());
}
