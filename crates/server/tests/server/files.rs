//! The files of an environment.

use crate::rig::{World, ask_on, request};
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;

struct Files<'a> {
    world: &'a World,
    id: String,
}

impl<'a> Files<'a> {
    async fn open(world: &'a World) -> Self {
        let opened = world.post("/v1/files", json!({})).await.ok();
        assert_eq!(
            (opened["backend"].as_str(), opened["environment"].as_str()),
            (Some("local"), Some("local/default"))
        );
        Self { world, id: opened["id"].as_str().unwrap().to_owned() }
    }

    async fn ask(&self, method: &str, what: &str, body: impl Into<bytes::Bytes>) -> crate::rig::Answer {
        let path = format!("/v1/files/{}/{what}", self.id);
        ask_on(self.world.connect().await, request(method, &path, &[], body)).await.unwrap()
    }

    async fn get(&self, what: &str) -> Value {
        self.ask("GET", what, "").await.ok()
    }

    async fn change(&self, change: Value) -> Value {
        self.ask("POST", "change", change.to_string()).await.ok()
    }
}

#[tokio::test]
async fn files_are_written_read_listed_and_changed() {
    let world = World::new();
    let _server = world.start();
    let dir = world.path("files");
    std::fs::create_dir(&dir).unwrap();
    let at = |name: &str| format!("{}/{name}", dir.display());
    let files = Files::open(&world).await;
    // More than a JSON body may have.
    let large = "0123456789".repeat(2_000_000);
    let written =
        files.ask("PUT", &format!("content?parents=true&path={}", at("new/large")), large.clone()).await.ok();
    assert_eq!(
        (written["created"].as_bool(), written["stat"]["size"].as_u64()),
        (Some(true), Some(20_000_000))
    );
    assert_eq!(std::fs::read_to_string(dir.join("new/large")).unwrap(), large);
    let read = files.get(&format!("content?path={}", at("new/large"))).await;
    assert_eq!(read.as_str().map(str::len), Some(20_000_000));
    let part = files.ask("GET", &format!("content?offset=3&len=4&path={}", at("new/large")), "").await;
    assert_eq!(part.headers["content-type"], "application/octet-stream");
    assert_eq!(part.ok(), json!(3456));

    std::fs::write(dir.join(std::ffi::OsStr::from_bytes(b"\xff")), "odd").unwrap();
    let list = files.get(&format!("list?path={}", at(""))).await;
    let names: Vec<&Value> = list["entries"].as_array().unwrap().iter().map(|entry| &entry["name"]).collect();
    assert_eq!(names, [&json!("new"), &json!({"base64": "/w=="})]);
    assert_eq!(files.get(&format!("content?path={}", at("%FF"))).await, json!("odd"));
    let hash = files.get(&format!("hash?limit=2&path={}", at("new/large"))).await;
    // Of "01".
    assert_eq!(hash["sha256"], "938db8c9f82c8cb58d3f3ef4fd250036a48d26a712753d2fde5abd03a85cabf4");

    files.change(json!({"path": at("link"), "change": {"link": {"to": "new/large"}}})).await;
    let stat = |follow: bool| format!("stat?follow={follow}&path={}", at("link"));
    assert_eq!(files.get(&stat(false)).await["link"], "new/large");
    assert_eq!(files.get(&stat(true)).await["size"], 20_000_000);
    files.change(json!({"path": at("new/large"), "change": {"set": {"mode": 0o600, "mtime_ns": 5}}})).await;
    assert_eq!(files.get(&stat(true)).await["mtime_ns"], 5);
    files.change(json!({"path": at("new"), "change": {"move": {"to": at("old")}}})).await;
    files.change(json!({"path": at("old"), "change": {"remove": {"recursive": true}}})).await;
    files.change(json!({"path": at("made/deep"), "change": {"make_dir": {"parents": true}}})).await;
    files.change(json!({"path": at("made"), "change": "sync"})).await;
    assert!(!dir.join("new").exists() && !dir.join("old").exists() && dir.join("made/deep").is_dir());
}

#[tokio::test]
async fn nothing_leads_out_of_a_root() {
    let world = World::new();
    let _server = world.start();
    let (inside, outside) = (world.path("in"), world.path("out"));
    std::fs::create_dir(&inside).unwrap();
    std::fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
    let files = Files::open(&world).await;
    let root = format!("root={}", inside.display());
    for path in ["link/x", "../out/x", "/etc/passwd", "link"] {
        let read = files.ask("GET", &format!("content?{root}&path={path}"), "").await.refused();
        assert_eq!((read.0, read.1.as_str()), (400, "invalid"), "{path}: {}", read.2);
    }
    for path in ["link/x", "../out/x", "a/../../out/x"] {
        let write = files.ask("PUT", &format!("content?{root}&path={path}"), "x").await.refused();
        assert_eq!(write.0, 400, "{path}: {}", write.2);
    }
    let put =
        files.ask("PUT", &format!("content?{root}&path=link&mode=384&mtime_ns=1000000001"), "x").await.ok();
    assert_eq!(
        (put["stat"]["mode"].as_u64(), put["stat"]["mtime_ns"].as_i64()),
        (Some(0o600), Some(1_000_000_001))
    );
    assert!(!inside.join("link").is_symlink());
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
}

#[tokio::test]
async fn what_goes_wrong_has_its_status() {
    let world = World::new();
    let _server = world.start();
    let dir = world.path("files");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("file"), "x").unwrap();
    let files = Files::open(&world).await;
    let at = |name: &str| format!("path={}/{name}", dir.display());
    let refused = |method: &'static str, what: String| {
        let files = &files;
        async move {
            let (status, kind, _) = files.ask(method, &what, "").await.refused();
            (status, kind)
        }
    };
    assert_eq!(refused("GET", format!("content?{}", at("missing"))).await, (404, "not_found".into()));
    assert_eq!(refused("GET", format!("content?mtime_ns=7&{}", at("file"))).await, (409, "stale".into()));
    assert_eq!(
        refused("PUT", format!("content?create_only=true&{}", at("file"))).await,
        (409, "already_exists".into())
    );
    assert_eq!(refused("PUT", format!("content?part=0&{}", at("file"))).await, (400, "invalid".into()));
    assert_eq!(refused("GET", "stat".into()).await, (400, "invalid".into()));
    assert_eq!(refused("GET", format!("stat?flow=1&{}", at("file"))).await, (400, "invalid".into()));
    let body = json!({"root": "/", "path": "x", "change": {"move": {"to": "y"}}});
    let (status, ..) = files.ask("POST", "change", body.to_string()).await.refused();
    assert_eq!(status, 400);
    // A large body that can't be used still gets its answer.
    let (status, kind, _) =
        files.ask("PUT", &format!("content?path={}", dir.display()), vec![0; 8 << 20]).await.refused();
    assert_eq!((status, kind.as_str()), (400, "invalid"));

    files.ask("POST", "close", "").await.ok();
    let (status, kind, message) = files.ask("GET", &format!("stat?{}", at("file")), "").await.refused();
    assert_eq!((status, kind.as_str()), (404, "not_found"), "{message}");
}

/// What was decided about files, and by whom.
async fn decided(world: &World) -> Vec<(String, String)> {
    let lines = world.get("/v1/audit").await.ok()["lines"].as_array().unwrap().clone();
    let text = |line: &Value, name: &str| line[name].as_str().unwrap_or_default().to_owned();
    let decided = lines.iter().filter(|line| line["step"] == "decided");
    decided.map(|line| (text(line, "decision"), text(line, "decided_by"))).collect()
}

#[tokio::test]
async fn changes_pass_the_gate() {
    let world = World::new();
    std::fs::write(world.path("home/config.yaml"), "approvals: {mode: unattended, deny: ['*top-secret*']}\n")
        .unwrap();
    let _server = world.start();
    std::fs::create_dir(world.path("files")).unwrap();
    let files = Files::open(&world).await;
    let at = |name: &str| world.path(name).display().to_string();
    let home = world.path("").display().to_string();
    let root = home.trim_end_matches('/');
    for what in [
        format!("content?parents=true&path={}", at(".ssh/authorized_keys")),
        "content?parents=true&path=~/.ssh/authorized_keys".to_owned(),
        format!("content?root={root}&path=.bashrc"),
        format!("content?path={}", at("home/config.yaml")),
        "content?path=/etc/farshell-was-here".to_owned(),
        format!("content?path={}", at("files/top-secret")),
    ] {
        let (status, kind, message) = files.ask("PUT", &what, "x").await.refused();
        assert_eq!((status, kind.as_str()), (403, "denied"), "{what}: {message}");
    }
    for change in [
        json!({"path": "/usr", "change": {"remove": {"recursive": true}}}),
        json!({"path": at("files"), "change": {"move": {"to": "/etc/cron.d/x"}}}),
        json!({"path": at(".ssh"), "change": {"make_dir": {"parents": true}}}),
    ] {
        let (status, kind, message) = files.ask("POST", "change", change.to_string()).await.refused();
        assert_eq!((status, kind.as_str()), (403, "denied"), "{change}: {message}");
    }
    assert!(!world.path(".ssh").exists() && !world.path(".bashrc").exists() && world.path("files").is_dir());
    let denied = decided(&world).await;
    assert!(denied.len() == 9 && denied.iter().all(|(decision, _)| decision == "deny"), "{denied:?}");
    // What nobody minds is done, and of a copy of many files the first is written down.
    let files = Files::open(&world).await;
    for name in ["one", "two", "three"] {
        files.ask("PUT", &format!("content?path={}", at(&format!("files/{name}"))), name).await.ok();
    }
    assert_eq!(std::fs::read_dir(world.path("files")).unwrap().count(), 3);
    assert_eq!(decided(&world).await.len(), denied.len() + 1);
}

#[tokio::test]
async fn who_types_a_copy_is_not_asked_again() {
    let world = World::new();
    let _server = world.start();
    let files = Files::open(&world).await;
    let path =
        format!("/v1/files/{}/content?parents=true&path={}", files.id, world.path(".ssh/config").display());
    let typed = request("PUT", &path, &[("user-agent", "farshell/test")], "x");
    ask_on(world.connect().await, typed).await.unwrap().ok();
    assert_eq!(std::fs::read_to_string(world.path(".ssh/config")).unwrap(), "x");
    assert_eq!(decided(&world).await, [("allow".to_owned(), "person:typed".to_owned())]);
}
