//! What may run, and what did, from the command line.

use crate::rig::{PATIENCE, World, finish};
use crate::terminals::Tmux;
use std::time::{Duration, Instant};

/// Asks, and leaves a trace if it runs.
const RISKY: &str = "touch ran; git push --force 2>/dev/null; true";

/// The one that waits.
fn waiting(world: &World) -> String {
    let list = world.json(&["approvals", "--wait", "30", "--json"]);
    list["approvals"][0]["id"].as_str().unwrap_or_else(|| panic!("nothing waits: {list}")).to_owned()
}

fn ran(world: &World) -> bool {
    world.work().join("ran").exists()
}

#[test]
fn without_a_terminal_somebody_else_answers() {
    let world = World::new();
    // Not yet: it is said how.
    let run = world.command(&["run", RISKY]).spawn().unwrap();
    let id = waiting(&world);
    assert!(!ran(&world));
    let said = world.call(&["approve", &id[5..9], "--reason", "fine"]);
    assert_eq!((said.code, said.stdout.as_str()), (0, ""), "{said:?}");
    let said = finish(run);
    assert_eq!((said.code, said.stdout.as_str()), (0, ""));
    assert!(said.stderr.contains(&format!("`farshell approve {id}`")), "{}", said.stderr);
    assert!(said.stderr.contains("[git-force-push]"), "{}", said.stderr);
    assert!(ran(&world));
    // A second answer is told that there was one.
    let said = world.call(&["approve", &id]);
    assert_eq!(said.code, 125);
    assert!(said.stderr.contains("it was answered before: once"), "{}", said.stderr);
    assert!(world.call(&["approve"]).stderr.contains("nothing waits for an answer"));
}

#[test]
fn a_denial_has_an_exit_code_and_an_error_of_its_own() {
    let world = World::new();
    let run = world.command(&["run", "--json", RISKY]).spawn().unwrap();
    let id = waiting(&world);
    assert_eq!(world.call(&["approve", "--deny", "--reason", "never on Fridays", &id]).code, 0);
    let said = finish(run);
    assert_eq!(said.code, 126);
    let error = &said.json()["error"];
    assert_eq!((&error["kind"], &error["retry"]), (&"denied".into(), &"never".into()));
    assert_eq!(error["message"], "the user said no: never on Fridays");
    // What no mode allows is not asked about.
    let said = world.run("mkfs.ext4 /dev/sda");
    assert_eq!(said.code, 126);
    assert!(
        said.stderr.contains("[make-filesystem]") && said.stderr.contains("hint: don't rephrase it"),
        "{said:?}"
    );
    let said = world.call(&["run", "--background", "rm -rf /"]);
    assert_eq!(said.code, 126, "{said:?}");
    assert!(
        !ran(&world) && world.json(&["env", "list", "--json"])["environments"].as_array().unwrap().is_empty()
    );
}

#[test]
fn who_is_killed_while_asking_has_not_run_anything() {
    let world = World::new();
    // The caller.
    let mut run = world.command(&["run", RISKY]).spawn().unwrap();
    let id = waiting(&world);
    run.kill().unwrap();
    run.wait().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !world.json(&["approvals", "--json"])["approvals"].as_array().unwrap().is_empty() {
        assert!(Instant::now() < deadline, "it still waits");
        std::thread::sleep(Duration::from_millis(10));
    }
    let said = world.call(&["approve", &id]);
    assert!(said.stderr.contains("whoever asked has gone"), "{said:?}");
    // The server: the next one asks again, and it runs once.
    let run = world.command(&["run", RISKY]).spawn().unwrap();
    let first = waiting(&world);
    let server = rustix::process::Pid::from_raw(world.server().unwrap()).unwrap();
    rustix::process::kill_process(server, rustix::process::Signal::KILL).unwrap();
    let second = waiting(&world);
    assert!(first != second && !ran(&world));
    assert_eq!(world.call(&["approve", &second]).code, 0);
    assert_eq!(finish(run).code, 0);
    assert!(ran(&world));
    let report = world.json(&["audit", "--verify", "--json"]);
    assert_eq!(report["sound"], true, "{report}");
}

#[test]
fn a_person_is_asked_at_the_terminal() {
    let world = World::new();
    let Some(tmux) = Tmux::start(&world, 100, 30) else { return };
    let question = "[o]nce, this [s]ession, [a]lways, [d]eny?";
    tmux.type_line(&format!("farshell run '{RISKY}' && echo do''ne"));
    tmux.until("the question", |screen| screen.contains(question) && screen.contains("git-force-push"));
    assert!(!ran(&world));
    tmux.type_line("what?");
    tmux.until("the question again", |screen| screen.matches(question).count() == 2);
    tmux.type_line("o");
    tmux.until("the end", |screen| screen.contains("done"));
    assert!(ran(&world));
    std::fs::remove_file(world.work().join("ran")).unwrap();
    // No.
    tmux.type_line(&format!("clear; echo tu''rn1; farshell run '{RISKY}'; echo co''de $?"));
    tmux.until("the question", |screen| screen.contains("turn1") && screen.contains(question));
    tmux.type_line("d");
    tmux.until("the denial", |screen| screen.contains("the user said no") && screen.contains("code 126"));
    // Ctrl-C.
    tmux.type_line(&format!("clear; echo tu''rn2; farshell run '{RISKY}'; echo co''de $?"));
    tmux.until("the question", |screen| screen.contains("turn2") && screen.contains(question));
    tmux.keys(&["C-c"]);
    tmux.until("the end", |screen| screen.contains("code 130"));
    // In the background, and on a terminal.
    tmux.type_line(&format!("clear; echo tu''rn3; farshell run --background '{RISKY}'; echo co''de $?"));
    tmux.until("the question", |screen| screen.contains("turn3") && screen.contains(question));
    tmux.type_line("d");
    tmux.until("the denial", |screen| screen.contains("code 126"));
    assert!(!ran(&world));
    tmux.type_line(&format!("clear; echo tu''rn4; farshell run --pty '{RISKY}'; echo co''de $?"));
    tmux.until("the question", |screen| screen.contains("turn4") && screen.contains(question));
    // Somebody else may be faster.
    assert_eq!(world.call(&["approve"]).code, 0);
    tmux.until("the end", |screen| screen.contains("code 0"));
    assert!(ran(&world));
    let decided: Vec<_> = world.json(&["audit", "--json"])["lines"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|line| line["step"] == "decided")
        .map(|line| line["decided_by"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(decided, ["person:once", "person:deny", "withdrawn", "person:deny", "person:once"]);
    drop(tmux);
}

#[test]
fn the_audit_log_is_read_and_checked() {
    let world = World::new();
    assert_eq!(world.run("echo one").code, 0);
    assert_eq!(world.call(&["run", "--task", "other", "exit 3"]).code, 3);
    let said = world.call(&["audit"]);
    assert!(said.stdout.contains("echo one") && said.stdout.contains("exit 3"), "{said:?}");
    let lines = |args: &[&str]| world.json(args)["lines"].as_array().unwrap().clone();
    let all = lines(&["audit", "--json"]);
    let line = all.iter().find(|line| line["command"] == "echo one").unwrap();
    assert_eq!((&line["surface"], &line["decision"]), (&"cli".into(), &"allow".into()));
    assert!(line["client"].as_str().unwrap().starts_with("farshell/"), "{line}");
    assert!(lines(&["audit", "--task", "other", "--json"]).iter().all(|line| line["task"] == "other"));
    assert!(lines(&["audit", "--since", "1h", "-n", "2", "--json"]).len() == 2);
    let said = world.call(&["audit", "--verify"]);
    assert_eq!(said.code, 0, "{said:?}");
    // A line is changed behind its back.
    let dir = world.hermes().join("farshell/audit");
    let file = std::fs::read_dir(dir).unwrap().next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("echo one", "echo two")).unwrap();
    let said = world.call(&["audit", "--verify"]);
    assert_eq!(said.code, 1);
    assert!(said.stdout.contains("the line was changed"), "{said:?}");
}

#[test]
fn credentials_stay_here_unless_they_are_named() {
    let names = [
        "OPENAI_API_KEY",
        "GITHUB_TOKEN",
        "SUDO_PASSWORD",
        "MODAL_TOKEN_SECRET",
        "DAYTONA_API_KEY",
        "HERMES_TOKEN",
    ];
    let mut world = World::new().with("TERMINAL_ENV_PASSTHROUGH", "GITHUB_TOKEN").with("HARMLESS", "seen");
    for name in names {
        world = world.with(name, "v4lue-0f-a-secret");
    }
    let said = world.run("env | cut -d= -f1 | sort");
    let seen: Vec<&str> = said.stdout.lines().collect();
    assert!(seen.contains(&"HARMLESS") && seen.contains(&"GITHUB_TOKEN"), "{seen:?}");
    for name in names.iter().filter(|name| **name != "GITHUB_TOKEN") {
        assert!(!seen.contains(name), "{name}: {seen:?}");
    }
    assert!(!seen.iter().any(|name| name.starts_with("TERMINAL_")), "{seen:?}");
}

#[test]
fn a_password_is_typed_unseen() {
    // What stands for sudo has to look like it: a process of root's. The real one is tested with the keeper.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let world = World::new();
    std::fs::write(world.hermes().join("config.yaml"), "approvals: {mode: auto}\n").unwrap();
    let script = "#!/bin/sh\nfor i in 1 2 3; do\np=$(\"$SUDO_ASKPASS\" prompt) || exit 1\n\
                  [ \"$p\" = 's3cret word' ] && echo op''ened && exit\ndone\n";
    let sudo = world.file("sudo", script);
    std::fs::set_permissions(&sudo, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let Some(tmux) = Tmux::start(&world, 100, 24) else { return };
    let path = format!("PATH={}:$PATH", sudo.parent().unwrap().display());
    tmux.type_line(&format!("farshell run '{path}; sudo make install'; echo co''de $?"));
    tmux.until("the question", |screen| screen.contains("sudo wants your password"));
    tmux.type_line("mistyped");
    tmux.until("the second question", |screen| screen.contains("that was wrong"));
    tmux.type_line("s3cret word");
    let screen = tmux.until("the end", |screen| screen.contains("code 0"));
    assert!(
        screen.contains("opened") && !screen.contains("s3cret") && !screen.contains("mistyped"),
        "{screen}"
    );
    // What is typed afterwards is seen.
    tmux.type_line(&format!(
        "clear; farshell run '{path}; sudo x'; echo co''de $?; stty -a | grep -o ' echo '"
    ));
    // Not the question of before.
    tmux.until("the question", |screen| {
        screen.contains("sudo wants your password") && !screen.contains("opened")
    });
    tmux.keys(&["Enter"]);
    let screen = tmux.until("the end", |screen| screen.contains("code 1") && screen.contains(" echo"));
    assert!(screen.contains("no password was given"), "{screen}");
    // Nobody is there to be asked.
    let said = world.run(&format!("{path}; sudo x"));
    assert_eq!(said.code, 1);
    assert!(said.stderr.contains("farshell config set SUDO_PASSWORD"), "{said:?}");
    drop(tmux);
    let mut found = vec![world.hermes()];
    while let Some(path) = found.pop() {
        if path.is_dir() {
            found.extend(std::fs::read_dir(&path).unwrap().flatten().map(|entry| entry.path()));
        } else if path.is_file()
            && let Ok(bytes) = std::fs::read(&path)
        {
            // A pipe would have to be waited for.
            assert!(!bytes.windows(6).any(|w| w == b"s3cret"), "{}", path.display());
        }
    }
}
