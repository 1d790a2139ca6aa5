//! `kill -9` of the server in a loop, at moments of no particular kind.

use crate::rig::World;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const KILLS: usize = 100;
/// Between two kills at most, in milliseconds; one of three servers lives longer.
const LONGEST_LIFE: u64 = 400;

/// Numbers without a pattern, the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// The server's process, if there is one.
fn server(world: &World) -> Option<i32> {
    let text = std::fs::read_to_string(world.hermes().join("farshell/server/lock")).ok()?;
    let pid: i32 = text.trim().parse().ok()?;
    let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
    (line.contains("farshell") && line.contains("serve")).then_some(pid)
}

/// Processes that have something of this world in their command line.
fn left(world: &World) -> Vec<String> {
    let root = world.hermes();
    let root = root.to_str().unwrap();
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok())
        .filter(|line| line.contains(root))
        .map(|line| line.replace('\0', " "))
        .collect()
}

#[test]
fn a_server_that_is_killed_a_hundred_times_loses_nothing() {
    let world = World::new().with("TERMINAL_ISOLATION", "task");
    let over = AtomicBool::new(false);
    let ran = world.file("ran", "");
    let started = world.file("started", "");
    let cold = world.cold_call();
    let (mut kills, mut background) = (0, Vec::new());
    std::thread::scope(|scope| {
        let (world, over, ran, started) = (&world, &over, &ran, &started);
        let runners: Vec<_> =
            (0..3).map(|n| scope.spawn(move || run_again_and_again(world, over, ran, n))).collect();
        let starter = scope.spawn(move || start_again_and_again(world, over, started));
        let idler = scope.spawn(move || idle_again_and_again(world, over));

        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let deadline = Instant::now() + Duration::from_secs(600);
        while kills < KILLS && Instant::now() < deadline {
            let life = Duration::from_millis(random.below(LONGEST_LIFE));
            // A client gives up after a few servers that did not live until it was served.
            std::thread::sleep(if kills % 3 == 0 { life + cold * 4 } else { life });
            if let Some(pid) = server(world) {
                let pid = rustix::process::Pid::from_raw(pid).unwrap();
                kills +=
                    usize::from(rustix::process::kill_process(pid, rustix::process::Signal::KILL).is_ok());
            }
        }
        over.store(true, Ordering::Relaxed);
        let counts: Vec<usize> = runners.into_iter().map(|runner| runner.join().unwrap()).collect();
        background = starter.join().unwrap();
        let idled = idler.join().unwrap();
        assert!(counts.iter().all(|n| *n > 5), "the commands came to run: {counts:?}");
        assert!(idled > 2, "environments were reaped and made anew: {idled}");
        // Each command of each runner ran once.
        let mut expected: Vec<String> = counts
            .iter()
            .enumerate()
            .flat_map(|(n, count)| (0..*count).map(move |i| format!("{n}-{i}")))
            .collect();
        let mut found = lines(ran);
        expected.sort();
        found.sort();
        assert_eq!(found, expected, "every command ran once");
    });
    assert_eq!(kills, KILLS);

    // Every background process ran once, has its output and its exit code, and one event says so.
    let output: String = (1..=50).map(|n| format!("{n}\n")).collect();
    for id in &background {
        assert_eq!(world.call(&["wait", id]).code, 7, "{id}");
        assert_eq!(world.call(&["logs", id]).stdout, output, "{id}");
    }
    // Now that all have ended, all have written their line.
    let mut found = lines(&started);
    found.sort_by_key(|line| line.parse::<usize>().unwrap());
    let expected: Vec<String> = (0..background.len()).map(|i| i.to_string()).collect();
    assert_eq!(found, expected, "every background process was started once");
    let mut completed: HashMap<String, usize> = HashMap::new();
    let mut after = 0;
    loop {
        let list = world.json(&["events", "--json", "--after", &after.to_string()]);
        let events = list["events"].as_array().unwrap();
        for event in events.iter().filter(|event| event["kind"] == "process_completed") {
            // A start that a kill came before is recorded as that, and was made again under another id.
            if event["data"]["state"] == "not_started" {
                assert!(!background.iter().any(|id| event["process_id"] == *id), "{event}");
                continue;
            }
            assert_eq!(event["data"]["exit_code"], 7, "{event}");
            *completed.entry(event["process_id"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        let Some(last) = events.last() else { break };
        assert!(last["seq"].as_u64().unwrap() > after, "numbers only grow");
        after = last["seq"].as_u64().unwrap();
    }
    assert!(background.len() > 5, "{background:?}");
    assert_eq!(completed.len(), background.len());
    assert!(completed.values().all(|n| *n == 1), "{completed:?}");
    let status = world.json(&["server", "status", "--json"]);
    assert_eq!(status["warnings"], serde_json::json!([]), "{status}");

    world.json(&["env", "rm", "--all", "--force", "--json"]);
    world.call(&["server", "stop", "--force"]);
    let deadline = Instant::now() + Duration::from_secs(20);
    while !left(&world).is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(left(&world), Vec::<String>::new(), "processes are left");
}

/// Runs commands whose output is known. Gives their number.
fn run_again_and_again(world: &World, over: &AtomicBool, ran: &Path, n: usize) -> usize {
    let task = format!("run-{n}");
    let mut count = 0;
    while !over.load(Ordering::Relaxed) {
        let command = format!(
            "echo {n}-{count} >>{}; for k in $(seq 1 200); do echo {n}-{count}-$k; [ $((k % 40)) = 0 ] && sleep 0.03; done; exit 5",
            ran.display()
        );
        let said = world.call(&["run", "--task", &task, &command]);
        let expected: String = (1..=200).map(|k| format!("{n}-{count}-{k}\n")).collect();
        assert_eq!((said.code, said.stderr.as_str()), (5, ""), "{n}-{count}");
        assert_eq!(said.stdout, expected, "{n}-{count}");
        count += 1;
    }
    count
}

/// Starts background processes. Gives their ids.
fn start_again_and_again(world: &World, over: &AtomicBool, started: &Path) -> Vec<String> {
    let mut ids = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let command = format!("echo {} >>{}; sleep 0.2; seq 1 50; exit 7", ids.len(), started.display());
        let said = world.call(&["run", "--background", "--task", "background", &command]);
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{}", ids.len());
        ids.push(said.stdout.trim().to_owned());
        std::thread::sleep(Duration::from_millis(100));
    }
    ids
}

/// Uses an environment that is put away between its uses.
fn idle_again_and_again(world: &World, over: &AtomicBool) -> usize {
    let mut count = 0;
    while !over.load(Ordering::Relaxed) {
        let mut command = world.command(&["run", "--task", "idle", "echo hi"]);
        let said = crate::rig::finish(command.env("TERMINAL_LIFETIME_SECONDS", "1").spawn().unwrap());
        assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (0, "hi\n", ""), "{count}");
        count += 1;
        std::thread::sleep(Duration::from_millis(900 + 60 * (count as u64 % 6)));
    }
    count
}
