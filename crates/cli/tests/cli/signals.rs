//! Signals to farshell are about the command.

use crate::rig::{World, fine, finish, is_running, said, unique_sleep, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Read;
use std::process::Child;
use std::time::{Duration, Instant};

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// One more interrupt is enough, unless a slow machine has seen it and the one before as one. After a while it is repeated.
fn interrupt_until_it_ends(child: &mut Child) {
    let mut next = Instant::now();
    wait_until("the end", || {
        let ended = child.try_wait().unwrap().is_some();
        if !ended && Instant::now() >= next {
            send(child, Signal::INT);
            next = Instant::now() + Duration::from_secs(5);
        }
        ended
    });
}

/// Has it come so far that an interrupt does not end it as any program?
fn catches_interrupts(child: &Child) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
    u64::from_str_radix(caught, 16).unwrap() & (1 << (Signal::INT.as_raw() - 1)) != 0
}

fn begin(world: &World, command: &str, seconds: &str) -> Child {
    let child = world.command(&["run", command]).spawn().unwrap();
    wait_until("the command", || is_running(seconds));
    child
}

#[test]
fn an_interrupt_is_for_the_command_and_the_session_stays() {
    for persistent in ["true", "false"] {
        let world = World::new().with("TERMINAL_LOCAL_PERSISTENT", persistent);
        world.run("export KEPT=1; cd /usr");
        let seconds = unique_sleep();
        let child = begin(&world, &format!("echo a; sleep {seconds}; echo b"), &seconds);
        send(&child, Signal::INT);
        let interrupted = finish(child);
        assert_eq!((interrupted.code, interrupted.stdout.as_str()), (130, "a\n"), "{interrupted:?}");
        assert!(!is_running(&seconds));
        assert_eq!(world.run("echo $KEPT $PWD"), fine("1 /usr\n"));
    }
}

#[test]
fn a_second_interrupt_kills() {
    let world = World::new();
    let seconds = unique_sleep();
    let mut child = begin(&world, &format!("env --ignore-signal=INT,TERM sleep {seconds}"), &seconds);
    send(&child, Signal::INT);
    std::thread::sleep(Duration::from_millis(300));
    assert!(is_running(&seconds));
    interrupt_until_it_ends(&mut child);
    assert_eq!(finish(child).code, 130);
    assert!(!is_running(&seconds));
    assert_eq!(world.run("echo free"), fine("free\n"));
}

#[test]
fn a_termination_kills_the_command_too() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::QUIT, 131)] {
        let world = World::new();
        let seconds = unique_sleep();
        let child = begin(&world, &format!("sleep {seconds}"), &seconds);
        send(&child, signal);
        assert_eq!(finish(child).code, code);
        assert!(!is_running(&seconds));
    }
}

#[test]
fn a_waiting_command_is_given_up() {
    let world = World::new();
    let seconds = unique_sleep();
    let first = begin(&world, &format!("sleep {seconds}"), &seconds);
    let waiting = world.command(&["run", "touch ran"]).spawn().unwrap();
    wait_until("it listens to signals", || catches_interrupts(&waiting));
    std::thread::sleep(Duration::from_millis(300));
    send(&waiting, Signal::INT);
    assert_eq!(finish(waiting), said("", "", 130));
    send(&first, Signal::INT);
    assert_eq!(finish(first).code, 130);
    assert!(!world.work().join("ran").exists());
}

#[test]
fn an_interrupt_works_while_nobody_reads() {
    let world = World::new();
    let seconds = unique_sleep();
    let mut child = begin(&world, &format!("sleep {seconds} & yes"), &seconds);
    // Time for all buffers on the way to fill.
    std::thread::sleep(Duration::from_millis(300));
    send(&child, Signal::INT);
    std::thread::sleep(Duration::from_millis(100));
    interrupt_until_it_ends(&mut child);
    wait_until("the kill", || !is_running(&seconds));
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let mut some = [0; 2];
    child.stdout.take().unwrap().read_exact(&mut some).unwrap();
    assert_eq!(&some, b"y\n");
}
