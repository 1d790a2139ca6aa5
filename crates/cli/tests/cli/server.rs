//! The server behind it all: started by whoever needs it, killed at any moment, and never missed.

use crate::rig::{PATIENCE, World, fine, finish, said, wait_until};
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[test]
fn it_is_started_shown_and_stopped() {
    let world = World::new();
    assert_eq!(world.call(&["server", "status"]).code, 1);
    assert_eq!(world.call(&["server", "status", "--json"]), said("{\"running\":false}\n", "", 1));
    assert_eq!(world.call(&["server", "stop"]), fine(""));
    world.run("true");
    let status = world.json(&["server", "status", "--json"]);
    assert_eq!(
        (&status["running"], &status["version"], &status["counts"]["environments"]),
        (&json!(true), &json!(env!("CARGO_PKG_VERSION")), &json!(1))
    );
    assert!(status["pid"].is_u64() && status["uptime"].is_u64(), "{status}");
    let text = world.call(&["server", "status"]).stdout;
    assert!(
        text.starts_with(&format!("server {}", status["pid"])) && text.contains("1 environment"),
        "{text}"
    );
    let object = world.json(&["doctor", "--json"]);
    assert_eq!(object["server"]["pid"], status["pid"]);
    let doctor = world.call(&["doctor"]).stdout;
    assert!(doctor.contains(&format!("ok: pid {}, release", status["pid"])), "{doctor}");
    assert_eq!(world.json(&["server", "stop", "--json"]), json!({"stopped": true}));
    assert_eq!(world.server(), None);
    assert!(world.call(&["doctor"]).stdout.contains("ok: none runs"));
}

#[test]
fn state_outlives_the_server() {
    let world = World::new();
    world.run("cd /usr; export A=1");
    let id = world.background(
        &[],
        &format!("while ! [ -e {0}/go ]; do sleep 0.05; done; echo done; exit 5", world.work().display()),
    );
    assert_eq!(world.call(&["server", "stop"]), fine(""));
    assert_eq!(world.run("echo $PWD $A"), fine("/usr 1\n"));
    world.kill_server();
    assert_eq!(world.run("echo $PWD $A"), fine("/usr 1\n"));
    std::fs::write(world.work().join("go"), "").unwrap();
    assert_eq!(world.call(&["wait", &id]), said("", "", 5));
    assert_eq!(world.call(&["logs", &id]), fine("done\n"));
}

#[test]
fn fifty_clients_start_one_server() {
    let world = World::new();
    let children: Vec<_> = (0..50)
        .map(|i| {
            let session = format!("s{}", i % 5);
            world.command(&["run", "--session", &session, &format!("echo {i}")]).spawn().unwrap()
        })
        .collect();
    for (i, child) in children.into_iter().enumerate() {
        assert_eq!(finish(child), fine(&format!("{i}\n")));
    }
    let events = world.json(&["events", "--json"]);
    let starts = events["events"].as_array().unwrap().iter().filter(|e| e["kind"] == "server_started");
    assert_eq!(starts.count(), 1, "{events}");
    let environments = world.json(&["env", "list", "--json"]);
    assert_eq!(environments["environments"].as_array().unwrap().len(), 1, "{environments}");
}

#[test]
fn a_second_server_refuses() {
    let world = World::new();
    world.run("true");
    let pid = world.server().unwrap();
    for mode in ["--foreground", "--daemon"] {
        let second = world.call(&["serve", mode]);
        assert_eq!((second.code, second.stdout.as_str()), (1, ""), "{second:?}");
        assert!(second.stderr.contains(&format!("pid {pid}")), "{second:?}");
    }
    assert_eq!(world.server(), Some(pid));
}

#[test]
fn one_in_the_foreground_serves_and_ends_with_a_signal() {
    use rustix::process::{Pid, Signal, kill_process};
    let world = World::new();
    let child = world.command(&["serve"]).stdout(Stdio::null()).spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    wait_until("the server", || world.server() == Some(pid));
    assert_eq!(world.run("echo x"), fine("x\n"));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(finish(child).code, 0);
    assert_eq!(world.run("echo x"), fine("x\n"));
}

#[test]
fn one_that_is_not_needed_ends() {
    let world = World::new().with("FARSHELL_SERVER_IDLE", "0.3");
    world.run("true");
    let pid = world.server().unwrap();
    assert_eq!(world.call(&["env", "rm", "--all"]), fine(""));
    // To ask it would be something to do for it.
    wait_until("its end", || !std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert_eq!(world.server(), None);
    assert_eq!(world.run("echo x"), fine("x\n"));
}

#[test]
fn nothing_of_the_caller_is_held_by_the_server() {
    let world = World::new();
    // A shell that waits for the end of everything that was started under it.
    let script = format!("{} run 'echo x' 3>&1 | cat", env!("CARGO_BIN_EXE_farshell"));
    let mut command = world.command(&[]);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &script]).env_clear().current_dir(world.work());
    shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let start = Instant::now();
    assert_eq!(finish(shell.spawn().unwrap()), fine("x\n"));
    assert!(start.elapsed() < Duration::from_secs(20));
    command.arg("--version");
}

/// Lines that come slowly, so that there is time to kill servers between them.
const SLOW: &str = "for i in $(seq 1 200); do echo line $i; echo err $i >&2; sleep 0.01; done; exit 9";

#[test]
fn output_is_whole_when_the_server_is_killed() {
    let world = World::new();
    world.run("true");
    let mut child = world.command(&["run", SLOW]).spawn().unwrap();
    let json = world.command(&["run", "--session", "other", "--json", SLOW]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut seen = Vec::new();
    for _ in 0..4 {
        for _ in 0..20 {
            seen.push(lines.next().unwrap().unwrap());
        }
        world.kill_server();
    }
    seen.extend(lines.map(Result::unwrap));
    let expected = |word: &str| -> Vec<String> { (1..=200).map(|i| format!("{word} {i}")).collect() };
    assert_eq!(seen, expected("line"));
    let ended = finish(child);
    let errors: Vec<&str> = ended.stderr.lines().collect();
    assert_eq!((errors, ended.code), (expected("err").iter().map(String::as_str).collect(), 9));
    let json = finish(json);
    let object = json.json();
    assert_eq!((json.code, &object["exit_code"], &object["stdout_bytes"]), (9, &json!(9), &json!(1692)));
    assert_eq!(object["stdout"], json!(expected("line").join("\n") + "\n"));
}

#[test]
fn much_output_is_whole_when_the_server_is_killed() {
    let world = World::new();
    world.run("true");
    let mut child = world.command(&["run", "seq 1 300000"]).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let (mut all, mut piece, mut kills) = (Vec::new(), vec![0; 64 << 10], 0);
    loop {
        match stdout.read(&mut piece).unwrap() {
            0 => break,
            n => all.extend_from_slice(&piece[..n]),
        }
        if all.len() / 400_000 > kills {
            kills = all.len() / 400_000;
            world.kill_server();
        }
    }
    let expected: String = (1..=300_000).map(|i| format!("{i}\n")).collect();
    assert!(all == expected.as_bytes(), "{} of {} bytes", all.len(), expected.len());
    assert_eq!(finish(child).code, 0);
    assert!(kills > 1);
}

#[test]
fn those_who_wait_are_not_disturbed_when_the_server_is_killed() {
    let world = World::new();
    let id = world.background(&[], &format!("{SLOW} {}", "# in the background"));
    let logs = [&["logs", "-f", id.as_str()][..], &["logs", "-f", "--stdout", &id]];
    let logs = logs.map(|args| world.command(args).spawn().unwrap());
    let wait = world.command(&["wait", &id]).spawn().unwrap();
    let mut events = world.command(&["events", "-f", "--json"]).spawn().unwrap();
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(300));
        world.kill_server();
    }
    assert_eq!(finish(wait), said("", "", 9));
    for logs in logs {
        let logs = finish(logs);
        let lines: Vec<&str> = logs.stdout.lines().filter(|line| line.starts_with("line")).collect();
        let expected: Vec<String> = (1..=200).map(|i| format!("line {i}")).collect();
        assert_eq!(
            (lines, logs.stderr.as_str(), logs.code),
            (expected.iter().map(String::as_str).collect(), "", 0)
        );
    }
    let mut lines = BufReader::new(events.stdout.take().unwrap()).lines().map(Result::unwrap);
    let completed = |line: &String| line.contains("process_completed");
    assert!(lines.any(|line| completed(&line)), "it is told");
    // Time for a second one, which there is not.
    std::thread::sleep(Duration::from_millis(300));
    rustix::process::kill_process(rustix::process::Pid::from_child(&events), rustix::process::Signal::INT)
        .unwrap();
    assert_eq!(lines.filter(completed).collect::<Vec<_>>(), Vec::<String>::new());
    assert_eq!(finish(events).stderr, "");
}

#[test]
fn input_arrives_once_when_the_server_is_killed() {
    let world = World::new();
    world.run("true");
    let mut child = world
        .command(&["run", "--stdin", "-", "while read -r l; do echo \"got $l\"; done; echo end"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for i in 0..40 {
        writeln!(stdin, "{i}").unwrap();
        if i % 10 == 5 {
            world.kill_server();
        }
        assert_eq!(lines.next().unwrap().unwrap(), format!("got {i}"));
    }
    drop(stdin);
    assert_eq!(lines.next().unwrap().unwrap(), "end");
    assert_eq!(finish(child).code, 0);
}

#[test]
fn a_command_runs_once_however_often_the_server_is_killed() {
    let world = World::new();
    world.run("true");
    // A client gives up after a few servers that did not live until it was served.
    let least = (world.cold_call() * 2).max(Duration::from_millis(150));
    let (stop, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut pause, mut before, mut in_vain) = (3, 0, 0);
            while !stop.load(Ordering::Relaxed) {
                // Different moments of a command's life.
                pause = (pause * 7 + 11) % 151;
                std::thread::sleep((least + Duration::from_millis(pause)) * (in_vain + 1));
                world.kill_server();
                let now = done.load(Ordering::Relaxed);
                in_vain = if now == before { in_vain + 1 } else { 0 };
                before = now;
            }
        });
        for i in 0..30 {
            let ran = world.run(&format!("echo {i} >> ran; echo {i}"));
            assert_eq!(ran, fine(&format!("{i}\n")));
            done.fetch_add(1, Ordering::Relaxed);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let ran = std::fs::read_to_string(world.work().join("ran")).unwrap();
    assert_eq!(ran, (0..30).map(|i| format!("{i}\n")).collect::<String>());
}

#[test]
fn a_stopped_server_is_replaced_under_a_running_command() {
    let world = World::new();
    world.run("true");
    let mut child = world.command(&["run", SLOW]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "line 1");
    assert_eq!(world.call(&["server", "stop"]).code, 0);
    assert_eq!(lines.map(Result::unwrap).count(), 199);
    assert_eq!(finish(child).code, 9);
}

#[test]
fn a_server_of_another_version_is_told() {
    let world = World::new();
    let dir = world.hermes().join("farshell/server");
    std::fs::create_dir_all(&dir).unwrap();
    let listener = UnixListener::bind(dir.join("sock")).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 65536];
            let n = stream.read(&mut request).unwrap();
            let body = if request[..n].starts_with(b"GET /v1/server ") {
                r#"{"pid":4711,"version":"9.9.9","api_version":99}"#
            } else {
                r#"{"error":{"kind":"protocol","operation":"x","message":"y","retry":"never"}}"#
            };
            let answer = format!(
                "HTTP/1.1 409 Conflict\r\nfarshell-api-version: 99\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    let expected = said(
        "",
        "farshell: talking to the server: the server (pid 4711, version 9.9.9) speaks API 99, this client 1\n\
         hint: stop it with `farshell server stop`: what runs goes on, and the next call starts a server of this \
         version\n",
        125,
    );
    assert_eq!(world.run("touch ran"), expected);
    assert_eq!(world.call(&["ps"]), expected);
    assert!(!world.work().join("ran").exists());
    std::fs::remove_dir_all(world.hermes().join("farshell")).unwrap();
}

#[test]
fn a_server_that_hangs_is_told() {
    let world = World::new();
    let dir = world.hermes().join("farshell/server");
    std::fs::create_dir_all(&dir).unwrap();
    let _listener = UnixListener::bind(dir.join("sock")).unwrap();
    let start = Instant::now();
    let children = [&["run", "touch ran"][..], &["ps"], &["server", "status"], &["server", "stop"]]
        .map(|args| world.command(args).spawn().unwrap());
    for child in children {
        let hung = finish(child);
        assert_eq!((hung.code, hung.stdout.as_str()), (125, ""), "{hung:?}");
        assert!(hung.stderr.contains("does not answer within 10 s"), "{hung:?}");
    }
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    assert!(!world.work().join("ran").exists());
    std::fs::remove_dir_all(world.hermes().join("farshell")).unwrap();
}

#[test]
fn one_that_is_stopped_is_killed_by_force() {
    use rustix::process::{Pid, Signal, kill_process};
    let world = World::new();
    world.run("export A=1");
    let pid = world.server().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::STOP).unwrap();
    assert_eq!(world.call(&["server", "stop", "--force"]).code, 0);
    assert_eq!(world.run("echo $A"), fine("1\n"));
    assert_ne!(world.server(), Some(pid));
}

#[test]
fn a_server_that_can_not_start_says_why() {
    let world = World::new().with("FARSHELL_SERVER_IDLE", "soon");
    let failed = world.run("touch ran");
    assert_eq!(
        failed,
        said(
            "",
            "farshell: starting the server: FARSHELL_SERVER_IDLE is \"soon\", which is not a \
             number of seconds\nhint: its log is HERMES/farshell/server/log\n"
                .replace("HERMES", world.hermes().to_str().unwrap())
                .as_str(),
            125,
        )
    );
    std::fs::remove_dir_all(world.hermes().join("farshell")).unwrap();
}

#[test]
fn it_listens_where_it_is_told_to() {
    let world = World::new();
    let refused = world.call(&["serve", "--daemon", "--listen", "0.0.0.0:0"]);
    assert_eq!(refused.code, 125, "{refused:?}");
    assert!(refused.stderr.contains("TLS"), "{refused:?}");
    assert_eq!(world.call(&["serve", "--daemon", "--listen", "127.0.0.1:0"]), fine(""));
    let status = world.json(&["server", "status", "--json"]);
    assert!(status["listen"][0].as_str().unwrap().starts_with("127.0.0.1:"), "{status}");
    assert!(world.hermes().join("farshell/server/token").exists());
}

#[test]
fn warm_calls_are_quick() {
    let world = World::new();
    world.run("true");
    let mut times: Vec<Duration> = (0..20)
        .map(|_| {
            let start = Instant::now();
            assert_eq!(world.run("true").code, 0);
            start.elapsed()
        })
        .collect();
    times.sort();
    // A machine that runs all tests at once is slow; a design that polls or starts servers is never quick.
    assert!(times[0] < Duration::from_millis(500), "{times:?}");
}
