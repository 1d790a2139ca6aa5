//! Much at once, and then nothing at all.

use crate::rig::World;
use std::process::Command;
use std::time::Duration;

const PROCESSES: usize = 1000;
const SESSIONS: usize = 200;
/// What the server may take, in KiB.
const MOST_MEMORY: u64 = 100 << 10;

fn peak(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Does each of `0..count` on eight threads.
fn all(count: usize, work: impl Fn(usize) + Sync) {
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if n >= count {
                        return;
                    }
                    work(n);
                }
            });
        }
    });
}

#[test]
fn a_thousand_processes_and_two_hundred_sessions_and_an_idle_server() {
    let world = World::new();
    world.run("true");
    let pid = world.server().unwrap();
    all(PROCESSES, |_| {
        world.background(&[], "sleep 1000");
    });
    assert_eq!(world.json(&["server", "status", "--json"])["counts"]["background"], PROCESSES);

    // All sessions at the same time: each has a command that ends when the last one has begun.
    let gate = world.file("gate", "");
    let ready = world.work().join("ready");
    std::fs::create_dir(&ready).unwrap();
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..SESSIONS)
            .map(|n| {
                let (world, gate, ready) = (&world, &gate, &ready);
                scope.spawn(move || {
                    let command = format!(
                        "v={n}; : >{}/$v; while [ -e {} ]; do sleep 0.1; done; echo $v",
                        ready.display(),
                        gate.display()
                    );
                    world.call(&["run", "--session", &format!("s{n}"), &command])
                })
            })
            .collect();
        let begun = || std::fs::read_dir(&ready).unwrap().count();
        for _ in 0..1200 {
            if begun() == SESSIONS {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(begun(), SESSIONS, "all sessions run at the same time");
        let status = world.json(&["server", "status", "--json"]);
        assert_eq!(status["counts"]["foreground"], SESSIONS, "{status}");
        std::fs::remove_file(&gate).unwrap();
        for (n, call) in calls.into_iter().enumerate() {
            let said = call.join().unwrap();
            assert_eq!((said.code, said.stdout), (0, format!("{n}\n")), "{}", said.stderr);
        }
    });
    let peak = peak(pid);
    assert!(peak < MOST_MEMORY, "the server took {peak} KiB");

    is_idle(pid);

    let removed = world.json(&["env", "rm", "--all", "--force", "--json"]);
    assert_eq!(removed["failed"], serde_json::json!([]), "{removed}");
    assert_eq!(world.server(), Some(pid), "it was one server all the time");
}

/// Nothing happens in a server of which nobody wants anything.
fn is_idle(pid: i32) {
    if Command::new("strace").arg("-V").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "strace is missing");
        eprintln!("skipped: no strace, so wake-ups of the idle server are not counted");
        return;
    }
    // What the last call left to do is done by then.
    std::thread::sleep(Duration::from_secs(2));
    let trace = tempfile::NamedTempFile::new().unwrap();
    let mut strace = Command::new("timeout")
        .args(["--signal=INT", "10", "strace", "-f", "-qq", "-o"])
        .arg(trace.path())
        .args(["-p", &pid.to_string()])
        .spawn()
        .unwrap();
    strace.wait().unwrap();
    let text = std::fs::read_to_string(trace.path()).unwrap();
    // One line for each call that a thread was waiting in; what is interrupted by the tracer's coming and going is
    // not the server's doing.
    let busy: Vec<&str> =
        text.lines().filter(|l| !l.contains("restart_syscall") && !l.contains("detached")).collect();
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().count();
    assert!(busy.len() <= 2 * threads, "{} calls in ten idle seconds:\n{text:.2000}", busy.len());
}
