//! The stream of events that speeds up the waits of Daytona's own clients: Socket.IO, as far as they use it.

use crate::world::World;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const PING: Duration = Duration::from_secs(25);

pub(crate) async fn socket(State(world): State<Arc<World>>, upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(move |socket| async move {
        let _ = talk(&world, socket).await;
    })
}

async fn talk(world: &World, mut socket: WebSocket) -> Result<(), axum::Error> {
    let sid = crate::world::random(8);
    let hello = json!({ "sid": sid, "upgrades": [], "pingInterval": 25_000, "pingTimeout": 20_000, "maxPayload": 1_000_000 });
    socket.send(Message::text(format!("0{hello}"))).await?;
    let Some(Ok(Message::Text(first))) = socket.recv().await else { return Ok(()) };
    let auth: Value =
        first.strip_prefix("40").and_then(|rest| serde_json::from_str(rest).ok()).unwrap_or_default();
    if auth.get("token").and_then(Value::as_str) != Some(&world.options.key) {
        return socket.send(Message::text(r#"44{"message":"Unauthorized"}"#)).await;
    }
    let mut events = world.events.subscribe();
    socket.send(Message::text(format!("40{}", json!({ "sid": sid })))).await?;
    loop {
        tokio::select! {
            event = events.recv() => match event {
                Ok(event) => socket.send(Message::text(format!("42{event}"))).await?,
                Err(tokio::sync::broadcast::error::RecvError::Lagged(_)) => {}
                Err(_) => return Ok(()),
            },
            said = socket.recv() => if !matches!(said, Some(Ok(_))) { return Ok(()) },
            () = tokio::time::sleep(PING) => socket.send(Message::text("2")).await?,
        }
    }
}
