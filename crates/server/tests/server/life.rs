//! Start, end, and everything that can go wrong between them.

use crate::rig::{PATIENCE, World, ask_on, eventually, request};
use rustix::process::Signal;
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::net::UnixStream;

/// Less than what a server gives to calls that are under way.
pub(crate) const AT_ONCE: Duration = Duration::from_millis(4500);

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn only_the_owner_can_reach_it() {
    let world = World::new();
    let server = world.start();
    let paths = world.paths();
    assert_eq!([mode(&paths.dir), mode(&paths.socket), mode(&paths.lock)], [0o700, 0o600, 0o600]);
    assert_eq!(mode(&world.path("home/farshell")), 0o700);
    assert!(!paths.token.exists());
    assert_eq!(std::fs::read_to_string(&paths.lock).unwrap().trim(), server.pid().to_string());
}

/// Whatever became of the modes: the kernel says who is there.
#[test]
fn another_user_is_refused() {
    use std::os::unix::process::CommandExt;
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let world = World::new();
    let _server = world.start();
    let paths = world.paths();
    for path in
        [&world.path(""), &world.path("home"), &world.path("home/farshell"), &paths.dir, &paths.socket]
    {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let curl = |uid| {
        let mut curl = std::process::Command::new("curl");
        curl.args(["-s", "http://localhost/v1/server", "--unix-socket"]).arg(&paths.socket).uid(uid);
        curl.output().unwrap()
    };
    assert!(curl(0).status.success());
    let stranger = curl(65_534);
    assert!(!stranger.status.success() && stranger.stdout.is_empty(), "{stranger:?}");
    assert!(world.said().contains("refused a connection of user 65534"), "{}", world.said());
}

#[test]
fn a_home_has_one_server() {
    let world = World::new();
    let mut first = world.start();
    let failure = world.try_start().err().unwrap();
    assert_eq!(failure.kind, "already_exists");
    assert!(failure.text.contains(&format!("(pid {})", first.pid())), "{failure:?}");
    first.kill();
    // What it left is no obstacle.
    assert!(world.paths().socket.exists());
    let second = world.start();
    assert_ne!(second.pid(), first.pid());
}

#[tokio::test]
async fn of_many_that_start_at_once_one_serves() {
    let world = World::new();
    let (mut servers, mut failures) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        let starts: Vec<_> = (0..12).map(|_| scope.spawn(|| world.try_start())).collect();
        for start in starts {
            match start.join().unwrap() {
                Ok(server) => servers.push(server),
                Err(failure) => failures.push(failure),
            }
        }
    });
    assert_eq!((servers.len(), failures.len()), (1, 11));
    let expected = format!("(pid {}) serves this home already", servers[0].pid());
    for failure in failures {
        assert_eq!(failure.kind, "already_exists");
        assert!(failure.text.ends_with(&expected), "{failure:?}");
    }
    world.get("/v1/server").await.ok();
}

#[tokio::test]
async fn it_stops_when_it_is_told_to() {
    for how in ["request", "TERM", "INT", "HUP"] {
        let world = World::new();
        let mut server = world.start();
        // A connection that is open and idle is no obstacle.
        let _open = world.connect().await;
        match how {
            "request" => assert_eq!(world.post("/v1/server/stop", json!({})).await.ok(), json!({"ok": true})),
            "TERM" => server.signal(Signal::TERM),
            "INT" => server.signal(Signal::INT),
            _ => server.signal(Signal::HUP),
        }
        let begun = Instant::now();
        assert_eq!(server.ended().await, 0, "{how}");
        assert!(begun.elapsed() < AT_ONCE, "{how} took {:?}", begun.elapsed());
        assert!(!world.paths().socket.exists());
        assert_eq!(std::fs::read_to_string(world.paths().lock).unwrap(), "");
        let said = world.said();
        assert!(said.contains("started: version 0.0.test") && said.contains("stopped"), "{said}");
    }
}

#[tokio::test]
async fn what_waits_is_answered_at_once_when_it_stops() {
    let world = World::new();
    let mut server = world.start();
    world.post("/v1/processes", json!({"id": "proc_sleeps", "command": "exec sleep 1000"})).await.ok();
    let last = world.get("/v1/events").await.ok()["last"].as_u64().unwrap();
    let started = |name: &str| world.path(&format!("started-{name}"));
    let stop = async {
        for name in ["named", "unnamed"] {
            eventually("the command runs", || started(name).exists()).await;
        }
        // Time for those who only wait.
        tokio::time::sleep(Duration::from_millis(300)).await;
        world.post("/v1/server/stop", json!({})).await.ok();
        Instant::now()
    };
    let events = format!("/v1/events?after={last}&wait=60");
    let sleeps = |name: &str| format!("touch {}; exec sleep 60", started(name).display());
    let named = json!({"id": "proc_named", "command": sleeps("named"), "session": "proc_named"});
    let (wait, events, named, unnamed, stopped) = tokio::join!(
        world.post("/v1/processes/proc_sleeps/wait", json!({"timeout": 60})),
        world.get(&events),
        world.post("/v1/run", json!({"start": named})),
        world.post("/v1/run", json!({"start": {"command": sleeps("unnamed")}})),
        stop,
    );
    assert_eq!(server.ended().await, 0);
    assert!(stopped.elapsed() < AT_ONCE, "{:?}", stopped.elapsed());
    for (answer, retry) in [(wait, "safe"), (events, "safe"), (named, "safe"), (unnamed, "unsafe")] {
        assert_eq!(answer.body["error"]["retry"], retry, "{answer:?}");
        let (status, kind, _) = answer.refused();
        assert_eq!((status, kind.as_str()), (503, "disconnected"));
    }
    // The process has not noticed.
    let _next = world.start();
    assert_eq!(world.get("/v1/processes/proc_sleeps").await.ok()["state"], "running");
}

#[tokio::test]
async fn it_removes_environments_if_it_is_asked_to() {
    let world = World::new();
    let mut server = world.start();
    world.run("true").await;
    let places = || {
        let names = std::fs::read_dir(world.path("home/farshell/run")).unwrap().flatten();
        names.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.')).count()
    };
    assert_eq!(places(), 1);
    world.post("/v1/server/stop", json!({"remove_environments": true})).await.ok();
    assert_eq!(server.ended().await, 0);
    assert_eq!(places(), 0);
}

#[tokio::test]
async fn it_ends_when_there_is_nothing_to_do() {
    let world = World::new().with("idle", json!(2));
    let mut server = world.start();
    assert!(server.status.ends_in.is_some_and(|seconds| seconds <= 2), "{:?}", server.status.ends_in);
    // Not while somebody is connected.
    let open = world.connect().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!server.has_ended());
    drop(open);
    let begun = Instant::now();
    assert_eq!(server.ended().await, 0);
    assert!(begun.elapsed() > Duration::from_millis(1500), "{:?}", begun.elapsed());
    assert!(!world.paths().socket.exists());
    assert!(world.said().contains("stopping: nothing to do"));
}

#[tokio::test]
async fn it_does_not_end_while_something_is_alive() {
    let world = World::new().with("idle", json!(2));
    let mut server = world.start();
    world.post("/v1/processes", json!({"id": "proc_lives", "command": "exec sleep 1000"})).await.ok();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!server.has_ended());
    let removed = world.post("/v1/environments/remove", json!({"all": true, "force": true})).await.ok();
    assert_eq!(removed["failed"], json!([]));
    assert_eq!(server.ended().await, 0);
}

/// A caller finds nobody, or is served; never is a door opened and then closed on him.
#[tokio::test]
async fn nobody_is_lost_between_two_lives() {
    let world = World::new().with("idle", json!(0.02));
    let (mut served, mut refused, mut lives) = (0, 0, 0);
    let begun = Instant::now();
    // A slow machine needs longer until enough has happened.
    while lives < 12 || ((served <= 10 || refused <= 5) && begun.elapsed() < PATIENCE) {
        let mut server = world.start();
        lives += 1;
        let mut pause = Duration::from_millis(1);
        while !server.has_ended() {
            let callers = (0..4).map(|n| {
                let world = &world;
                async move {
                    tokio::time::sleep(pause + Duration::from_millis(n * 5)).await;
                    let Ok(stream) = UnixStream::connect(world.paths().socket).await else { return false };
                    ask_on(stream, request("GET", "/v1/server", &[], "")).await.unwrap().ok();
                    true
                }
            });
            for answered in futures_util::future::join_all(callers).await {
                if answered { served += 1 } else { refused += 1 }
            }
            pause = (pause + Duration::from_millis(4)).min(Duration::from_millis(24));
        }
    }
    assert!(served > 10 && refused > 5, "{served} served, {refused} refused, {lives} lives");
}

/// Callers who come while it stops are told to ask the next one.
#[tokio::test]
async fn nobody_is_dropped_while_it_stops() {
    for _ in 0..10 {
        let world = World::new();
        let mut server = world.start();
        let calls = (0..20).map(|n: u64| {
            let world = &world;
            async move {
                tokio::time::sleep(Duration::from_micros(n * 300)).await;
                let Ok(stream) = UnixStream::connect(world.paths().socket).await else { return };
                let answer = ask_on(stream, request("GET", "/v1/server", &[], "")).await.unwrap();
                assert!([200, 503].contains(&answer.status.as_u16()), "{answer:?}");
                if answer.status == 503 {
                    assert_eq!(answer.body["error"]["retry"], "safe");
                }
            }
        });
        let stop = async {
            tokio::time::sleep(Duration::from_millis(2)).await;
            server.signal(Signal::TERM);
        };
        tokio::join!(futures_util::future::join_all(calls), stop);
        assert_eq!(server.ended().await, 0);
    }
}

#[tokio::test]
async fn a_killed_server_has_lost_nothing() {
    let world = World::new();
    let mut server = world.start();
    world
        .post("/v1/processes", json!({"id": "proc_outlives", "command": "echo before; exec sleep 1000"}))
        .await
        .ok();
    server.kill();
    let _next = world.start();
    let process = world.get("/v1/processes/proc_outlives").await.ok();
    assert_eq!(process["state"], "running");
    let deadline = Instant::now() + PATIENCE;
    while world.get("/v1/processes/proc_outlives/log").await.ok()["text"] != "before\n" {
        assert!(Instant::now() < deadline, "what it printed is in its log");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn it_ends_with_its_home() {
    let world = World::new();
    let mut server = world.start();
    // What happens in its directory otherwise is no reason.
    std::fs::write(world.paths().dir.join("other"), "").unwrap();
    std::fs::remove_file(world.paths().dir.join("other")).unwrap();
    world.get("/v1/server").await.ok();
    assert!(!server.has_ended());
    std::fs::remove_dir_all(world.path("home")).unwrap();
    server.ended().await;
    let said = world.said();
    assert!(said.contains("stopping: its home was removed") && said.contains("stopped"), "{said}");
}

/// No timer, no poll: the process sleeps.
#[tokio::test]
async fn an_idle_server_does_nothing() {
    let world = World::new().with("idle", json!(600));
    let server = world.start();
    world.post("/v1/processes", json!({"id": "proc_quiet", "command": "exec sleep 1000"})).await.ok();
    let switches = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
        tasks
            .flatten()
            .map(|task| std::fs::read_to_string(task.path().join("status")).unwrap_or_default())
            .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
            .filter(|line| line.starts_with("voluntary_ctxt_switches"))
            .map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap())
            .sum::<u64>()
    };
    // Start-up has its own echoes, which a slow machine has for longer.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut woken = Vec::new();
    while woken.last() != Some(&0) && woken.len() < 5 {
        let before = switches();
        tokio::time::sleep(Duration::from_secs(5)).await;
        woken.push(switches() - before);
    }
    assert_eq!(woken.last(), Some(&0), "{woken:?}");
}

#[tokio::test]
async fn a_long_path_is_no_obstacle() {
    let mut world = World::new();
    let deep = world.path(&"d".repeat(150));
    std::fs::create_dir(&deep).unwrap();
    world.set("home", json!(deep));
    let _server = world.start();
    let dir = std::fs::File::open(deep.join("farshell/server")).unwrap();
    let short = format!("/proc/self/fd/{}/sock", std::os::fd::AsRawFd::as_raw_fd(&dir));
    let stream = UnixStream::connect(short).await.unwrap();
    let status = ask_on(stream, request("GET", "/v1/server", &[], "")).await.unwrap().ok();
    assert_eq!(status["socket"], json!(deep.join("farshell/server/sock")));
}

#[tokio::test]
async fn the_socket_is_served_while_connections_wait() {
    let world = World::new();
    let _server = world.start();
    let mut open = Vec::new();
    for _ in 0..200 {
        open.push(world.connect().await);
    }
    world.counts(201).await;
}
