//! A host that is away for a while, and settings that name another one.

use crate::copies::kill_masters;
use crate::rig::{Said, World, wait_until};
use crate::{says, world};
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::time::Duration;

/// A world whose way to the host is a script that can be cut.
struct Line {
    world: World,
    script: PathBuf,
}

impl Line {
    fn new() -> Option<Self> {
        let world = world()?;
        let script = world.file("line", "");
        let file = world.hermes().join("config.yaml");
        let config = std::fs::read_to_string(&file).unwrap();
        let options = format!("ssh_options: [\"ProxyCommand=bash {} %h %p\", ", script.display());
        std::fs::write(&file, config.replace("ssh_options: [", &options)).unwrap();
        let line = Self { world, script };
        line.mend();
        Some(line)
    }

    fn mend(&self) {
        let text = "exec 3<>/dev/tcp/$1/$2 || exit 255\ncat <&3 &\nexec cat >&3\n";
        std::fs::write(&self.script, text).unwrap();
    }

    /// From here on there is no such host, in the words of ssh.
    fn cut(&self) {
        let said = "ssh: Could not resolve hostname host: Name or service not known";
        std::fs::write(&self.script, format!("echo '{said}' >&2\nexit 255\n")).unwrap();
        kill_masters(&self.world);
    }

    /// A call that may wait for longer than others.
    fn patiently(&self, args: &[&str]) -> Said {
        let output = self.world.command(args).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let code = output.status.code().unwrap();
        Said { stdout: text(output.stdout), stderr: text(output.stderr), code }
    }
}

#[test]
fn what_runs_on_a_host_that_is_away_is_neither_lost_nor_removed_unless_it_is_forgotten() {
    let Some(line) = Line::new() else { return };
    let world = &line.world;
    let process = world.background(&[], "echo here; sleep 1000");
    line.cut();
    let ps = || line.patiently(&["ps", "--json"]).json()["processes"][0].clone();
    wait_until("it is noticed", || ps()["unreachable"].is_string());
    assert_eq!(ps()["state"], "running");
    let refused = line.patiently(&["env", "rm"]);
    assert_eq!((refused.stdout.as_str(), refused.code), ("", 125), "{refused:?}");
    assert!(refused.stderr.contains("`farshell env rm --forget ssh/default`"), "{refused:?}");
    line.mend();
    assert_eq!(line.patiently(&["logs", &process]).stdout, "here\n");
    let known = ps();
    assert_eq!((known["state"].as_str(), known["unreachable"].as_str()), (Some("running"), None), "{known}");
    line.cut();
    let forgotten = line.patiently(&["env", "rm", "--forget"]);
    assert_eq!((forgotten.stdout.as_str(), forgotten.code), ("", 0), "{forgotten:?}");
    assert!(forgotten.stderr.contains("environment ssh/default is forgotten, not ended"), "{forgotten:?}");
    assert_eq!(world.json(&["env", "list", "--json"])["environments"], serde_json::json!([]));
    line.mend();
    // What is there is found by the next command, and ended with it.
    let ran = line.patiently(&["run", "pgrep -fx 'sleep 1000' >/dev/null && echo runs"]);
    assert_eq!((ran.stdout.as_str(), ran.code), ("runs\n", 0), "{ran:?}");
    let removed = line.patiently(&["env", "rm"]);
    assert_eq!(removed.code, 0, "{removed:?}");
}

/// The line is cut for longer than an environment is kept that nobody uses, and the command ends meanwhile.
#[test]
fn a_command_that_ends_while_the_line_is_cut_is_told_whole_and_its_session_goes_on() {
    let Some(line) = Line::new() else { return };
    let world = line.world.with("TERMINAL_LIFETIME_SECONDS", "5");
    let line = Line { world, ..line };
    says(&line.world, "cd /tmp; export A=1; f() { echo f; }");
    let mut running =
        line.world.command(&["run", "echo begun; sleep 2; echo ended; exit 7"]).spawn().unwrap();
    let mut output = BufReader::new(running.stdout.take().unwrap());
    let mut text = String::new();
    output.read_line(&mut text).unwrap();
    line.cut();
    std::thread::sleep(Duration::from_secs(15));
    line.mend();
    output.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), running.wait().unwrap().code()), ("begun\nended\n", Some(7)));
    assert_eq!(says(&line.world, "f; echo $A $PWD"), "f\n1 /tmp\n");
    assert_eq!(line.patiently(&["env", "rm"]).code, 0);
}

#[test]
fn a_session_outlives_a_server_that_was_killed_long_ago() {
    let Some(world) = world() else { return };
    let world = world.with("TERMINAL_LIFETIME_SECONDS", "5");
    says(&world, "cd /tmp; export A=1; f() { echo f; }");
    world.kill_server();
    std::thread::sleep(Duration::from_secs(10));
    assert_eq!(says(&world, "f; echo $A $PWD"), "f\n1 /tmp\n");
    assert_eq!(world.call(&["env", "rm"]).code, 0);
}

#[test]
fn a_server_that_starts_asks_the_host_on_which_it_was_and_not_the_one_that_is_named_now() {
    let Some(world) = world() else { return };
    let process = world.background(&[], "echo here; sleep 1000");
    world.kill_server();
    let file = world.hermes().join("config.yaml");
    let config = std::fs::read_to_string(&file).unwrap();
    let (before, after) = config.split_once("ssh_host: ").unwrap();
    let (_, after) = after.split_once('\n').unwrap();
    std::fs::write(&file, format!("{before}ssh_host: nowhere.invalid\n{after}")).unwrap();
    let log = world.call(&["logs", &process]);
    assert_eq!((log.stdout.as_str(), log.code), ("here\n", 0), "{log:?}");
    let removed = world.call(&["env", "rm"]);
    assert_eq!(removed.code, 0, "{removed:?}");
    let known = world.json(&["ps", "--all", "--json"])["processes"][0].clone();
    assert_eq!((known["state"].as_str(), known["unreachable"].as_str()), (Some("ended"), None), "{known}");
    let nowhere = world.run("true");
    assert!(nowhere.code == 125 && nowhere.stderr.contains("nowhere.invalid"), "{nowhere:?}");
}
