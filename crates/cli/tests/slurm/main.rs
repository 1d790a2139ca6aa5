//! The program with commands in Slurm jobs, as a user meets it.
//!
//! The cluster is the one that `FARSHELL_TEST_SLURM` names: see `scripts/rig`.
#![expect(clippy::unwrap_used, reason = "a test that can't set up its world fails by saying so")]

#[path = "../cli/rig.rs"]
#[expect(dead_code, reason = "these tests use a part of it")]
mod rig;

use rig::{World, finish};
use rustix::process::Signal;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A world whose commands run in jobs. Nothing if there is no Slurm, and that is said.
fn world(partition: &str) -> Option<World> {
    let variable = |name: &str| farshell_testing::var(name, "slurm");
    let (conf, program) = (variable("FARSHELL_TEST_SLURM")?, variable("FARSHELL_TEST_APPTAINER")?);
    let image = variable("FARSHELL_TEST_SIF")?;
    let world = World::new().with("TERMINAL_ENV", "singularity").with("SLURM_CONF", &conf);
    let config = format!(
        "terminal:\n  singularity_binary: {program}\n  singularity_image: {image}\n  singularity_slurm:\n    partition: \
         {partition}\n    time: '30'\n    memory: 500M\n"
    );
    std::fs::write(world.hermes().join("config.yaml"), config).unwrap();
    Some(world)
}

fn slurm(program: &str, args: &[&str]) -> String {
    let conf = std::env::var("FARSHELL_TEST_SLURM").unwrap();
    let output = Command::new(program).args(args).env("SLURM_CONF", conf).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// The jobs of a partition that wait or run, without those of tests.
fn jobs(partition: &str) -> Vec<String> {
    let said = slurm("squeue", &["-h", "--me", "-p", partition, "-o", "%A %j"]);
    let ours = said.lines().filter(|line| line.contains(" farshell-"));
    ours.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

fn says(world: &World, command: &str) -> String {
    let said = world.run(command);
    assert_eq!(said.code, 0, "{command}: {said:?}");
    said.stdout
}

fn signal(child: &std::process::Child, signal: Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Slurm takes its time, and more of it on a busy machine.
fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(150);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// One at a time: the partition has room for one job. This is for `cargo test`; nextest, which gives each test a process
/// of its own, has a group for those that are called after the queue.
static NARROW: Mutex<()> = Mutex::new(());

/// A job of somebody else's that leaves no room.
fn blocker() -> String {
    let id = slurm("sbatch", &["--parsable", "-p", "narrow", "-o", "/dev/null", "--wrap", "sleep 1000"]);
    wait_until("somebody else's job runs", || slurm("squeue", &["-h", "-j", &id, "-o", "%T"]) == "RUNNING");
    id
}

/// A command that waits in the queue.
fn waiting(world: &World, command: &str) -> std::process::Child {
    let progress = || {
        let list = world.json(&["env", "list", "--json"]);
        list["environments"][0]["progress"]["message"].as_str().unwrap_or_default().to_owned()
    };
    let waiting = world.command(&["run", command]).spawn().unwrap();
    wait_until("it is shown as queued", || progress().contains("is queued in partition narrow"));
    waiting
}

#[test]
fn state_carries_over_calls_and_servers_and_the_job_is_shown_and_ended_from_outside() {
    let Some(world) = world("wide") else { return };
    assert_eq!(says(&world, "pwd; cd /workspace; export A=1; f() { echo f; }; echo kept > file"), "/root\n");
    assert_eq!(says(&world, "f; echo $A $PWD; cat file"), "f\n1 /workspace\nkept\n");
    let all = jobs("wide");
    assert_eq!(all.len(), 1, "{all:?}");
    let shown = world.call(&["env", "show"]).stdout;
    assert!(shown.contains(&format!("Slurm job {} on n", all[0])) && shown.contains(" min left"), "{shown}");
    assert!(shown.contains("memory: 500M"), "{shown}");
    let sleeper = world.background(&[], "echo begun; sleep 1; echo ended; exit 4");
    world.kill_server();
    assert_eq!(says(&world, "f; echo $A"), "f\n1\n", "the shell is still the same");
    assert_eq!(world.call(&["wait", &sleeper]).code, 4);
    // What somebody else ends is said to whoever it interrupts, and to whoever asks.
    let running = world.command(&["run", "touch begun; sleep 1000"]).spawn().unwrap();
    // The session is busy: looked at from outside.
    let tasks = world.hermes().join("sandboxes/singularity/tasks");
    let files = std::fs::read_dir(tasks).unwrap().next().unwrap().unwrap().path();
    wait_until("the command has begun", || files.join("workspace/begun").exists());
    slurm("scancel", &[&all[0]]);
    let said = finish(running);
    assert!(said.code != 0 && said.stderr.contains("cancelled (scancel)"), "{said:?}");
    let back = world.call(&["run", "--json", "cat /workspace/file; echo ${A-unset}"]).json();
    assert_eq!(back["stdout"], "kept\nunset\n", "{back}");
    assert!(back["note"].as_str().unwrap().contains("cancelled (scancel)"), "{back}");
    assert_eq!(world.call(&["env", "rm", "--files"]).code, 0);
    assert!(jobs("wide").is_empty());
}

#[test]
fn a_job_that_nobody_uses_is_given_back_and_its_files_are_there_in_the_next() {
    let Some(world) = world("frail") else { return };
    let world = world.with("TERMINAL_LIFETIME_SECONDS", "1");
    says(&world, "echo kept > /workspace/file");
    wait_until("its node is given back", || jobs("frail").is_empty());
    assert_eq!(world.json(&["env", "list", "--json"])["environments"].as_array().unwrap().len(), 1);
    assert_eq!(says(&world, "cat /workspace/file"), "kept\n");
    assert_eq!(world.call(&["env", "rm", "--files"]).code, 0);
    assert!(jobs("frail").is_empty());
}

#[test]
fn a_server_that_is_killed_leaves_its_job_in_the_queue_for_the_next() {
    let Some(world) = world("narrow") else { return };
    let _only = NARROW.lock().unwrap_or_else(PoisonError::into_inner);
    let blocker = blocker();
    let mut lost = waiting(&world, "echo lost");
    let before = jobs("narrow");
    assert_eq!(before.len(), 1);
    // Whoever waits would start another server, and be the one who finds it.
    signal(&lost, Signal::STOP);
    world.kill_server();
    lost.kill().unwrap();
    lost.wait().unwrap();
    let again = waiting(&world, "echo again");
    assert_eq!(jobs("narrow"), before);
    slurm("scancel", &[&blocker]);
    let said = finish(again);
    assert_eq!((said.stdout.as_str(), said.code), ("again\n", 0), "{said:?}");
    assert_eq!(jobs("narrow"), before);
    assert_eq!(world.call(&["env", "rm", "--files"]).code, 0);
    assert!(jobs("narrow").is_empty());
}

#[test]
fn who_waits_in_the_queue_is_told_and_can_go_away() {
    let Some(world) = world("narrow") else { return };
    let _only = NARROW.lock().unwrap_or_else(PoisonError::into_inner);
    let blocker = blocker();
    let first = waiting(&world, "echo in");
    assert_eq!(jobs("narrow").len(), 1);
    signal(&first, Signal::INT);
    let said = finish(first);
    assert!(said.code != 0 && said.stdout.is_empty(), "{said:?}");
    wait_until("its job has left the queue", || jobs("narrow").is_empty());
    let second = waiting(&world, "echo in");
    assert_eq!(world.call(&["env", "rm"]).code, 0);
    let said = finish(second);
    assert!(said.code != 0 && said.stderr.contains("out of the queue"), "{said:?}");
    assert!(jobs("narrow").is_empty());
    let third = waiting(&world, "echo in");
    slurm("scancel", &[&blocker]);
    let said = finish(third);
    assert_eq!((said.stdout.as_str(), said.code), ("in\n", 0), "{said:?}");
    assert_eq!(world.call(&["env", "rm", "--files"]).code, 0);
    assert!(jobs("narrow").is_empty());
}

#[test]
fn what_is_wrong_is_said_with_what_to_do_and_nothing_is_run_elsewhere() {
    let Some(world) = world("nowhere") else { return };
    let said = world.run("touch ran");
    assert_eq!((said.stdout.as_str(), said.code), ("", 125), "{said:?}");
    assert!(said.stderr.contains("partition") && said.stderr.contains("hint:"), "{said:?}");
    let hostile = [("TERMINAL_SINGULARITY_SLURM", r#"{"partition": "x\n#SBATCH --wrap=id"}"#)];
    let said = finish(world.command(&["run", "touch ran"]).envs(hostile).spawn().unwrap());
    assert!(said.code == 125 && said.stderr.contains("singularity_slurm"), "{said:?}");
    let none = [("PATH", "/nowhere")];
    let said = finish(world.command(&["run", "touch ran"]).envs(none).spawn().unwrap());
    assert!(said.code == 125 && said.stderr.contains("sbatch is not in PATH"), "{said:?}");
    assert!(!world.work().join("ran").exists());
}
