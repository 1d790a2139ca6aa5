//! What the way through the server costs.

use crate::rig::{World, request};
use farshell_api::run::RunRequest;
use farshell_keeper::{Keeper, Options};
use http_body_util::BodyExt;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

const ROUNDS: u32 = 500;

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// A measurement: `cargo nextest run -p farshell-server --run-ignored only speed --no-capture`.
#[tokio::test]
#[ignore = "measures"]
async fn the_way_through_the_server() {
    let world = World::new();
    std::fs::write(world.path("home/config.yaml"), "terminal:\n  persistent_shell: true\n").unwrap();
    let body = json!({"start": {"command": "true"}});
    let inside = {
        let options = Options { home: world.path("home"), backends: Arc::new(crate::rig::LocalOnly) };
        let keeper = Keeper::open(options).await.unwrap();
        let request: RunRequest = serde_json::from_value(body.clone()).unwrap();
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            keeper.run(request.clone()).await.unwrap();
            times.push(begun.elapsed());
        }
        keeper.close(false).await.unwrap();
        median(times)
    };
    let _server = world.start();
    let io = hyper_util::rt::TokioIo::new(world.connect().await);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let request = request("POST", "/v1/run", &[], body.to_string());
        let response = sender.send_request(request).await.unwrap();
        assert!(response.status().is_success());
        response.into_body().collect().await.unwrap();
        times.push(begun.elapsed());
    }
    let kept = median(times);
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        world.post("/v1/run", body.clone()).await.ok();
        times.push(begun.elapsed());
    }
    let fresh = median(times);
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let mut stream = world.stream(body.clone()).await;
        stream.opened().await;
        stream.follow(crate::rig::Followed::default()).await.ended();
        times.push(begun.elapsed());
    }
    let stream = median(times);
    println!("in process {inside:?}, kept connection {kept:?}, new connection {fresh:?}, stream {stream:?}");
}
