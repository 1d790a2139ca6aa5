//! Requests and answers.

use crate::rig::{World, ask_on, eventually, request};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

#[tokio::test]
async fn a_command_runs() {
    let world = World::new();
    let server = world.start();
    let answer = world.post("/v1/run", json!({"start": {"command": "echo out; echo err >&2; exit 3"}})).await;
    assert_eq!(answer.headers["farshell-api-version"], "1");
    assert_eq!(answer.headers["content-type"], "application/json");
    let result = answer.ok();
    assert_eq!(
        [&result["stdout"], &result["stderr"], &result["exit_code"], &result["backend"]],
        [&json!("out\n"), &json!("err\n"), &json!(3), &json!("local")]
    );
    let result = world.post("/v1/run", json!({"start": {"command": "cat"}, "input": "fed"})).await.ok();
    assert_eq!(result["stdout"], "fed");

    let status = world.get("/v1/server").await.ok();
    assert_eq!(status["pid"], server.pid());
    assert_eq!(status["version"], "0.0.test");
    assert_eq!(status["api_version"], 1);
    assert_eq!(world.counts(1).await["environments"], 1);
    assert_eq!(status["listen"], json!([]));
}

#[tokio::test]
async fn the_same_id_never_runs_twice() {
    let world = World::new();
    let _server = world.start();
    let file = world.path("ran");
    let command = format!("echo ran >> {}", file.display());
    let body = json!({"start": {"id": "proc_once", "command": command}});
    let first = world.post("/v1/run", body.clone()).await.ok();
    assert_eq!(first["process_id"], "proc_once");
    let _ = world.post("/v1/run", body).await;
    assert_eq!(std::fs::read_to_string(file).unwrap(), "ran\n");
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_with_its_place() {
    let world = World::new();
    let _server = world.start();
    let refused = |method: &'static str, path: &'static str, body: &'static str| {
        let world = &world;
        async move { ask_on(world.connect().await, request(method, path, &[], body)).await.unwrap().refused() }
    };
    let (status, kind, message) = refused("POST", "/v1/run", "{\"start\": {\n  \"command\": tru}}").await;
    assert_eq!((status, kind.as_str()), (400, "invalid"));
    assert_eq!(message, "bad JSON: `start.command`: expected ident at line 2 column 17");
    let (status, _, message) =
        refused("POST", "/v1/run", r#"{"start": {"command": "x", "timout": 3}}"#).await;
    assert_eq!(status, 400);
    assert!(
        message.starts_with("bad JSON: `start.timout`: unknown field `timout`, expected one of"),
        "{message}"
    );
    let (status, _, message) = refused("GET", "/v1/processes?al=true", "").await;
    assert_eq!(
        (status, message.as_str()),
        (400, "the query: `al`: unknown parameter `al`, expected `task` or `all`")
    );
    let (status, _, message) = refused("GET", "/v1/server?x=1", "").await;
    assert_eq!((status, message.as_str()), (400, "the query: unknown parameter `x`, there are none here"));
    let (status, kind, message) = refused("GET", "/v1/nothing", "").await;
    assert_eq!((status, kind.as_str(), message.as_str()), (404, "not_found", "there is no /v1/nothing"));
    let (status, kind, _) = refused("GET", "/v1/processes/proc_none", "").await;
    assert_eq!((status, kind.as_str()), (404, "not_found"));
    let answer = world.ask("DELETE", "/v1/run", None).await;
    assert_eq!(answer.headers["allow"], "POST");
    let (status, kind, message) = answer.refused();
    assert_eq!((status, kind.as_str()), (405, "invalid"));
    assert_eq!(message, "DELETE can't be done to /v1/run");
    let (status, _, message) = refused("GET", "/v1/stream", "").await;
    assert!((400..=426).contains(&status), "{status} {message}");
}

#[tokio::test]
async fn a_large_body_is_refused_and_the_server_goes_on() {
    let world = World::new();
    let server = world.start();
    let before = server.memory("VmRSS");
    for size in [17 << 20, 40 << 20] {
        let body = vec![b' '; size];
        let answer = ask_on(world.connect().await, request("POST", "/v1/run", &[], body)).await.unwrap();
        let (status, kind, _) = answer.refused();
        assert_eq!((status, kind.as_str()), (413, "invalid"));
    }
    let head =
        "POST /v1/run HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 99999999999\r\n\r\n";
    let text = world.raw(head.as_bytes());
    assert!(text.starts_with("HTTP/1.1 413"), "{text}");
    assert_eq!(world.run("echo fine").await["stdout"], "fine\n");
    assert!(server.memory("VmRSS") < before + (48 << 10), "{before}");
}

#[tokio::test]
async fn garbage_is_answered_or_dropped_and_the_server_goes_on() {
    let world = World::new();
    let _server = world.start();
    for bytes in [
        &b"\0\xff\xfe\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/run HTTP/1.1\r\ncontent-length: x\r\n\r\n",
    ] {
        let text = world.raw(bytes);
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 4"), "{text}");
    }
    let long = format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "x".repeat(1 << 20));
    let text = world.raw(long.as_bytes());
    assert!(text.is_empty() || text.starts_with("HTTP/1.1 4"), "{text}");
    assert_eq!(world.run("echo fine").await["stdout"], "fine\n");
}

#[tokio::test]
async fn another_version_is_told_so_before_anything_happens() {
    let world = World::new();
    let server = world.start();
    let file = world.path("ran");
    let body = json!({"start": {"command": format!("touch {}", file.display())}}).to_string();
    let ask = |version: &'static str| {
        let request = request("POST", "/v1/run", &[("farshell-api-version", version)], body.clone());
        let world = &world;
        async move { ask_on(world.connect().await, request).await.unwrap() }
    };
    for version in ["2", "0", "x", ""] {
        let answer = ask(version).await;
        assert_eq!(answer.headers["farshell-api-version"], "1");
        let hint = answer.body["error"]["hint"].as_str().unwrap().to_owned();
        assert!(hint.starts_with("stop it with `farshell server stop`"), "{hint}");
        let expected = format!(
            "the server (pid {}, version 0.0.test) speaks API 1, this client {version}",
            server.pid()
        );
        assert_eq!(answer.refused(), (409, "protocol".into(), expected));
    }
    assert!(!file.exists());
    ask("1").await.ok();
    assert!(file.exists());
    // A WebSocket too, before it is one.
    let text = world.raw(b"GET /v1/stream HTTP/1.1\r\nhost: x\r\nconnection: upgrade, close\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nfarshell-api-version: 7\r\n\r\n");
    assert!(text.starts_with("HTTP/1.1 409"), "{text}");
}

#[tokio::test]
async fn a_web_page_is_not_served_on_the_socket() {
    let world = World::new();
    let _server = world.start();
    let request = request("GET", "/v1/server", &[("origin", "http://localhost")], "");
    let answer = ask_on(world.connect().await, request).await.unwrap();
    assert_eq!(answer.refused().0, 403);
}

#[tokio::test]
async fn a_caller_who_goes_away_leaves_the_command_running() {
    let world = World::new();
    let _server = world.start();
    world.run("true").await;
    let [begun, gate, file] = ["begun", "gate", "done"].map(|name| world.path(name));
    let command = format!(
        "touch {}; while ! [ -e {} ]; do sleep 0.02; done; touch {}",
        begun.display(),
        gate.display(),
        file.display()
    );
    let body = json!({"start": {"command": command}}).to_string();
    let head = format!("POST /v1/run HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    {
        use std::io::Write;
        let mut socket = std::os::unix::net::UnixStream::connect(world.paths().socket).unwrap();
        socket.write_all(head.as_bytes()).unwrap();
        eventually("the command runs", || begun.exists()).await;
    }
    // The caller's connection is gone, and its command is not.
    assert_eq!(world.counts(1).await["foreground"], 1);
    std::fs::write(gate, "").unwrap();
    eventually("the command went on", || file.exists()).await;
}

#[tokio::test]
async fn a_background_process_from_start_to_end() {
    let world = World::new();
    let _server = world.start();
    let answer = world
        .post("/v1/processes", json!({"id": "proc_bg", "command": "read line; echo \"got $line\"; exec sleep 1000", "stdin": true}))
        .await;
    assert_eq!(answer.status, 201);
    let process = answer.ok();
    assert_eq!([&process["id"], &process["background"]], [&json!("proc_bg"), &json!(true)]);
    let list = world.get("/v1/processes").await.ok();
    assert_eq!(list["processes"][0]["id"], "proc_bg");
    let taken =
        world.post("/v1/processes/proc_bg/stdin", json!({"data": "hello", "submit": true})).await.ok();
    assert_eq!(taken["taken"], 6);
    let deadline = Instant::now() + Duration::from_secs(10);
    let piece = loop {
        let piece = world.get("/v1/processes/proc_bg/log?view=stdout&offset=0").await.ok();
        if piece["text"] == "got hello\n" {
            break piece;
        }
        assert!(Instant::now() < deadline, "{piece}");
    };
    assert_eq!(piece["next"], 10);
    let still = world.post("/v1/processes/proc_bg/wait", json!({"timeout": 0.05})).await.ok();
    assert_eq!(still["state"], "running");
    let (status, kind, _) =
        world.post("/v1/processes/proc_bg/signal", json!({"signal": "NOPE"})).await.refused();
    assert_eq!((status, kind.as_str()), (400, "invalid"));
    let killed = world.post("/v1/processes/proc_bg/kill", json!({"grace": 0.1})).await.ok();
    assert_eq!([&killed["survivors"], &killed["had_ended"]], [&json!(0), &json!(false)]);
    let ended = world.ask("POST", "/v1/processes/proc_bg/wait", None).await.ok();
    assert_eq!(ended["state"], "ended");
    let events = world.get("/v1/events?after=0").await.ok();
    let kinds: Vec<_> = events["events"].as_array().unwrap().iter().map(|event| &event["kind"]).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == &json!("process_completed")).count(), 1, "{kinds:?}");
    let last = events["last"].as_u64().unwrap();
    world.post("/v1/events/ack", json!({"consumer": "test", "seq": last})).await.ok();
    let rest = world.get("/v1/events?consumer=test").await.ok();
    assert_eq!(rest["events"], json!([]));
}

#[tokio::test]
async fn a_long_poll_ends_with_the_event() {
    let world = World::new();
    let _server = world.start();
    world.run("true").await;
    let last = world.get("/v1/events").await.ok()["last"].as_u64().unwrap();
    let begun = Instant::now();
    let path = format!("/v1/events?after={last}&wait=20");
    let start = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        world.post("/v1/processes", json!({"command": "true"})).await.ok();
    };
    let (events, ()) = tokio::join!(world.get(&path), start);
    assert!(!events.ok()["events"].as_array().unwrap().is_empty());
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn an_environment_is_found_by_its_key() {
    let world = World::new();
    let _server = world.start();
    world.run("true").await;
    let list = world.get("/v1/environments").await.ok();
    let key = list["environments"][0]["key"].as_str().unwrap().to_owned();
    assert!(key.contains('/'));
    let plain = world.get(&format!("/v1/environments/{key}")).await.ok();
    let encoded = world.get(&format!("/v1/environments/{}", key.replace('/', "%2F"))).await.ok();
    assert_eq!([&plain["key"], &encoded["key"]], [&json!(key), &json!(key)]);
    assert_eq!(world.get("/v1/environments/nowhere/none").await.refused().0, 404);
    let removed = world.post("/v1/environments/remove", json!({"names": [key]})).await.ok();
    assert_eq!(removed["failed"], json!([]));
    assert_eq!(world.get("/v1/environments").await.ok()["environments"], json!([]));
    let gc = world.post("/v1/gc", json!({})).await.ok();
    assert_eq!(gc["removed"], false);
}

#[tokio::test]
async fn a_connection_serves_many_requests() {
    let world = World::new();
    let _server = world.start();
    let io = hyper_util::rt::TokioIo::new(world.connect().await);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    for n in 0..20 {
        let body = json!({"start": {"command": format!("echo {n}")}}).to_string();
        let response = sender.send_request(request("POST", "/v1/run", &[], body)).await.unwrap();
        let bytes = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
        let value: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(value["stdout"], format!("{n}\n"));
    }
}
