//! What tests ask for, over plain HTTP on an address of its own.

use crate::faults::Fault;
use crate::sandbox::{Phase, result};
use crate::serve::Moves;
use crate::world::World;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use farshell_modal_proto::client::generic_result::GenericStatus;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::oneshot;

type Shared = State<(Arc<World>, Moves)>;

pub(crate) fn router(world: Arc<World>, moves: Moves) -> Router {
    Router::new()
        .route("/emulator/faults", post(arm).get(armed))
        .route("/emulator/faults/happened", get(happened))
        .route("/emulator/requests", get(requests))
        .route("/emulator/sandboxes", get(sandboxes))
        .route("/emulator/snapshots", get(snapshots))
        .route("/emulator/latency/{ms}", post(latency))
        .route("/emulator/move-router", post(move_router))
        .route("/emulator/end/{id}/{status}", post(end))
        .with_state((world, moves))
}

async fn arm(State((world, _)): Shared, Json(faults): Json<Vec<Fault>>) {
    world.faults.arm(faults);
}

/// Those that have not happened yet.
async fn armed(State((world, _)): Shared) -> Json<Vec<Fault>> {
    Json(world.faults.left())
}

async fn happened(State((world, _)): Shared) -> Json<Value> {
    Json(json!(world.faults.happened()))
}

async fn requests(State((world, _)): Shared) -> Json<Value> {
    let calls = world.book().calls.clone();
    Json(json!({ "total": calls.values().sum::<u64>(), "calls": calls }))
}

async fn sandboxes(State((world, _)): Shared) -> Json<Value> {
    let all = world.book().sandboxes.clone();
    let list: Vec<Value> = all
        .iter()
        .map(|sandbox| {
            let phase = match &*sandbox.phase.borrow() {
                Phase::Starting => "starting".to_owned(),
                Phase::Running => "running".to_owned(),
                Phase::Ended(result) => result.status().as_str_name().to_owned(),
            };
            json!({ "id": sandbox.id, "task": sandbox.task, "second": sandbox.second, "phase": phase,
                "created": sandbox.created, "name": sandbox.definition.name,
                "gpu": crate::client::gpus(&sandbox.definition),
                "by_token": sandbox.by_token.load(Ordering::Relaxed) })
        })
        .collect();
    Json(list.into())
}

/// All that there are, by their ids.
async fn snapshots(State((world, _)): Shared) -> Json<Vec<String>> {
    Json(world.images.snapshots())
}

/// On connections that are made from now on.
async fn latency(State((world, _)): Shared, Path(ms): Path<u64>) {
    world.latency.send_replace(Duration::from_millis(ms));
}

async fn move_router(State((_, moves)): Shared) -> Result<Json<Value>, StatusCode> {
    let (answer, waiting) = oneshot::channel();
    moves.send(answer).await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    let url = waiting.await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    Ok(Json(json!({ "url": url })))
}

/// Ends a sandbox as Modal might: `GENERIC_STATUS_MEMORY_MANAGER_EVICTION` and the like.
async fn end(State((world, _)): Shared, Path((id, status)): Path<(String, String)>) -> StatusCode {
    let found = world.book().sandboxes.iter().find(|sandbox| sandbox.id == id).cloned();
    match (found, GenericStatus::from_str_name(&status)) {
        (Some(sandbox), Some(status)) => {
            sandbox.want(result(status, 137, "ended by the emulator's switch"));
            StatusCode::OK
        }
        (None, _) => StatusCode::NOT_FOUND,
        (_, None) => StatusCode::BAD_REQUEST,
    }
}
