//! The control plane: what `/api` answers.

mod create;
mod list;

use crate::faults::Fault;
use crate::reply::{Refusal, answer};
use crate::sandbox::Sandbox;
use crate::world::World;
use crate::{events, proxy};
use axum::extract::{Path, Query, Request, State};
use axum::http::HeaderMap;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, delete, get, post, put};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

type Shared = State<Arc<World>>;
type Answer = Result<Json<Value>, Refusal>;

/// How long a start waits for the sandbox before it answers.
const WAIT: Duration = Duration::from_secs(30);

pub(crate) fn router(world: Arc<World>) -> Router {
    let guarded = Router::new()
        .route("/sandbox", post(create::create).get(list::list))
        .route("/sandbox/paginated", get(list::paginated))
        .route("/sandbox/{id}", get(look).merge(delete(remove)))
        .route("/sandbox/{id}/start", post(start))
        .route("/sandbox/{id}/stop", post(stop))
        .route("/sandbox/{id}/archive", post(archive))
        .route("/sandbox/{id}/recover", post(recover))
        .route("/sandbox/{id}/resize", post(resize))
        .route("/sandbox/{id}/labels", put(labels))
        .route("/sandbox/{id}/autostop/{minutes}", post(auto_stop))
        .route("/sandbox/{id}/autoarchive/{minutes}", post(auto_archive))
        .route("/sandbox/{id}/autodelete/{minutes}", post(auto_delete))
        .route("/sandbox/{id}/last-activity", post(activity))
        .route("/sandbox/{id}/public/{public}", post(public))
        .route("/sandbox/{id}/network-settings", post(network))
        .route("/sandbox/{id}/ports/{port}/preview-url", get(preview))
        .route("/sandbox/{id}/toolbox-proxy-url", get(toolbox_url))
        .layer(middleware::from_fn_with_state(Arc::clone(&world), guard));
    let open = Router::new().route("/config", get(config)).route("/socket.io/", any(events::socket));
    Router::new()
        .nest("/api", guarded.merge(open))
        .route("/toolbox/{id}/{*rest}", any(proxy::forward))
        .route("/emulator/faults", post(arm).get(armed))
        .route("/emulator/requests", get(requests))
        .route("/emulator/state/{id}/{state}", post(force))
        .route("/emulator/kill-daemon/{id}", post(proxy::kill_daemon))
        .layer(axum::extract::DefaultBodyLimit::disable())
        .with_state(world)
}

/// The key is right.
pub(crate) fn is_known(world: &World, headers: &HeaderMap) -> bool {
    let given = headers.get("authorization").and_then(|value| value.to_str().ok());
    given.and_then(|value| value.strip_prefix("Bearer ")) == Some(world.options.key.as_str())
}

async fn guard(State(world): Shared, request: Request, next: Next) -> Response {
    if is_known(&world, request.headers()) {
        next.run(request).await
    } else {
        Refusal::new(401, "Invalid credentials").into_response()
    }
}

async fn requests(State(world): Shared) -> String {
    world.requests.load(Ordering::SeqCst).to_string()
}

async fn arm(State(world): Shared, Json(faults): Json<Vec<Fault>>) {
    world.faults.arm(faults);
}

async fn armed(State(world): Shared) -> Json<Vec<Fault>> {
    Json(world.faults.armed())
}

/// Shows a state that is hard to come by, until the next change.
async fn force(State(world): Shared, Path((id, state)): Path<(String, String)>) -> Answer {
    let known = [
        "unknown",
        "error",
        "paused",
        "forking",
        "snapshotting",
        "resuming",
        "pausing",
        "destroying",
        "creating",
        "started",
        "stopped",
        "pulling_snapshot",
        "building_snapshot",
        "pending_build",
        "restoring",
        "starting",
        "stopping",
        "resizing",
    ];
    // One of a kind that is newer than any client.
    let state = known.into_iter().find(|name| *name == state).unwrap_or("hibernating_in_space");
    let id = world.with(&id, |sandbox| {
        sandbox.error = (state == "error").then(|| "it was made to fail".to_owned());
        Ok(sandbox.id.clone())
    })?;
    world.set(&id, state, "started");
    show(&world, &id)
}

async fn config() -> Json<Value> {
    Json(json!({ "version": "0.190.0", "emulated": true }))
}

pub(crate) fn show(world: &World, id: &str) -> Answer {
    world.with(id, |sandbox| Ok(Json(sandbox.dto(&world.toolbox_url()))))
}

async fn look(State(world): Shared, Path(id): Path<String>) -> Answer {
    show(&world, &id)
}

fn settled(sandbox: &Sandbox) -> Result<(), Refusal> {
    if sandbox.is_changing() { Err(Refusal::new(409, "Sandbox state change in progress")) } else { Ok(()) }
}

async fn start(State(world): Shared, Path(id): Path<String>) -> Answer {
    let (id, by) = world.with(&id, |sandbox| {
        let by = match sandbox.state {
            "started" => None,
            "archived" => Some("restoring"),
            "stopped" | "archiving" => Some("starting"),
            "paused" => Some("resuming"),
            "error" | "build_failed" => return Err(Refusal::new(400, "Sandbox is in an errored state")),
            _ => {
                settled(sandbox)?;
                return Err(Refusal::new(400, "Sandbox is not in valid state"));
            }
        };
        // Nobody else may begin the same.
        if let Some(by) = by {
            sandbox.state = by;
        }
        Ok((sandbox.id.clone(), by))
    })?;
    if let Some(by) = by {
        world.start(id.clone(), by);
        let deadline = tokio::time::Instant::now() + WAIT;
        while tokio::time::Instant::now() < deadline
            && world.lock().get(&id).is_some_and(|sandbox| sandbox.is_changing())
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    show(&world, &id)
}

async fn stop(State(world): Shared, Path(id): Path<String>) -> Answer {
    let (id, dto) = world.with(&id, |sandbox| {
        settled(sandbox)?;
        if !matches!(sandbox.state, "started" | "paused") {
            return Err(Refusal::new(400, "Sandbox is not in a stoppable state"));
        }
        sandbox.state = "stopping";
        Ok((sandbox.id.clone(), sandbox.dto(&world.toolbox_url())))
    })?;
    world.stop(id);
    Ok(Json(dto))
}

async fn archive(State(world): Shared, Path(id): Path<String>) -> Answer {
    let id = world.with(&id, |sandbox| {
        settled(sandbox)?;
        if sandbox.is_ephemeral() {
            return Err(Refusal::new(400, "Ephemeral sandboxes cannot be archived"));
        }
        if sandbox.state != "stopped" {
            return Err(Refusal::new(400, "Sandbox is not stopped"));
        }
        sandbox.state = "archiving";
        Ok(sandbox.id.clone())
    })?;
    world.archive(id.clone());
    show(&world, &id)
}

async fn recover(State(world): Shared, Path(id): Path<String>) -> Answer {
    let id = world.with(&id, |sandbox| {
        if sandbox.state != "error" || !sandbox.recoverable {
            return Err(Refusal::new(400, "Sandbox is not in a recoverable state"));
        }
        sandbox.state = "starting";
        Ok(sandbox.id.clone())
    })?;
    world.start(id.clone(), "starting");
    show(&world, &id)
}

#[derive(Debug, Deserialize)]
struct Resize {
    cpu: Option<i64>,
    memory: Option<i64>,
    disk: Option<i64>,
}

async fn resize(State(world): Shared, Path(id): Path<String>, Json(wish): Json<Resize>) -> Answer {
    let id = world.with(&id, |sandbox| {
        settled(sandbox)?;
        let cpu = wish.cpu.unwrap_or(sandbox.cpu);
        let memory = wish.memory.unwrap_or(sandbox.memory);
        let disk = wish.disk.unwrap_or(sandbox.disk);
        let refuse = |text: &str| Err(Refusal::new(400, text));
        if (cpu, memory, disk) == (sandbox.cpu, sandbox.memory, sandbox.disk) {
            return refuse("No resource changes specified - sandbox is already at the desired configuration");
        }
        let runs = sandbox.state == "started";
        if disk < sandbox.disk {
            return refuse("Sandbox disk size cannot be decreased");
        }
        if runs && disk != sandbox.disk {
            return refuse("Disk resize can only be performed on a stopped sandbox");
        }
        if runs && (cpu < sandbox.cpu || memory < sandbox.memory) {
            return refuse("Sandbox must be in stopped state to decrease cpu or memory");
        }
        create::limits(cpu, memory, disk)?;
        (sandbox.cpu, sandbox.memory, sandbox.disk) = (cpu, memory, disk);
        Ok(sandbox.id.clone())
    })?;
    world.resize(id.clone());
    show(&world, &id)
}

async fn remove(State(world): Shared, Path(id): Path<String>) -> Answer {
    let (id, mut dto) = world.with(&id, |sandbox| {
        if sandbox.state != "pending_build" {
            settled(sandbox)?;
        }
        sandbox.state = "destroying";
        Ok((sandbox.id.clone(), sandbox.dto(&world.toolbox_url())))
    })?;
    dto["state"] = json!("destroying");
    world.destroy(id);
    Ok(Json(dto))
}

#[derive(Debug, Deserialize)]
struct Labels {
    labels: BTreeMap<String, String>,
}

async fn labels(State(world): Shared, Path(id): Path<String>, Json(new): Json<Labels>) -> Answer {
    let labels = world.with(&id, |sandbox| {
        sandbox.labels = new.labels;
        Ok(json!({ "labels": sandbox.labels }))
    })?;
    world.changed();
    Ok(Json(labels))
}

fn interval(world: &World, id: &str, minutes: &str, set: impl FnOnce(&mut Sandbox, i64)) -> Answer {
    let minutes: i64 =
        minutes.parse().map_err(|_| Refusal::new(400, "Validation failed (numeric string is expected)"))?;
    world.with(id, |sandbox| {
        set(sandbox, minutes);
        Ok(())
    })?;
    show(world, id)
}

async fn auto_stop(State(world): Shared, Path((id, minutes)): Path<(String, String)>) -> Answer {
    interval(&world, &id, &minutes, |sandbox, minutes| sandbox.auto_stop = minutes)
}

async fn auto_archive(State(world): Shared, Path((id, minutes)): Path<(String, String)>) -> Answer {
    interval(&world, &id, &minutes, |sandbox, minutes| sandbox.auto_archive = minutes)
}

async fn auto_delete(State(world): Shared, Path((id, minutes)): Path<(String, String)>) -> Answer {
    interval(&world, &id, &minutes, |sandbox, minutes| sandbox.auto_delete = minutes)
}

async fn activity(State(world): Shared, Path(id): Path<String>) -> Result<Response, Refusal> {
    world.with(&id, |sandbox| {
        sandbox.active();
        Ok(())
    })?;
    Ok(crate::reply::empty(201))
}

async fn public(State(world): Shared, Path((id, public)): Path<(String, bool)>) -> Answer {
    world.with(&id, |sandbox| {
        sandbox.public = public;
        Ok(())
    })?;
    show(&world, &id)
}

async fn network(State(world): Shared, Path(id): Path<String>, Json(wish): Json<Value>) -> Answer {
    world.with(&id, |sandbox| {
        if let Some(block) = wish.get("networkBlockAll").and_then(Value::as_bool) {
            sandbox.block_all = block;
        }
        if let Some(list) = wish.get("networkAllowList").and_then(Value::as_str) {
            create::allow_list(list)?;
            sandbox.allow_list = Some(list.to_owned());
        }
        Ok(())
    })?;
    show(&world, &id)
}

async fn preview(State(world): Shared, Path((id, port)): Path<(String, u16)>) -> Answer {
    world.with(&id, |sandbox| {
        let origin = world.origin.get().map_or("", String::as_str);
        let url = format!("{origin}/preview/{port}-{}", sandbox.id);
        Ok(Json(json!({ "sandboxId": sandbox.id, "url": url, "token": sandbox.token })))
    })
}

async fn toolbox_url(State(world): Shared, Path(id): Path<String>) -> Answer {
    world.with(&id, |_| Ok(Json(json!({ "url": world.toolbox_url() }))))
}

#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Pairs(pub(crate) Vec<(String, String)>);

impl Pairs {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

type Asked = Query<Pairs>;

/// An answer without a sandbox.
fn plain(status: u16, body: &Value) -> Response {
    answer(status, body)
}
