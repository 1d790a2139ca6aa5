//! Making sandboxes, with all that is refused.

use super::{Answer, Shared};
use crate::reply::Refusal;
use crate::sandbox::Sandbox;
use crate::world::{random, uuid};
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Instant, SystemTime};

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Wish {
    name: Option<String>,
    snapshot: Option<String>,
    user: Option<String>,
    env: Option<BTreeMap<String, String>>,
    labels: Option<BTreeMap<String, String>>,
    public: Option<bool>,
    network_block_all: Option<bool>,
    network_allow_list: Option<String>,
    target: Option<String>,
    cpu: Option<i64>,
    memory: Option<i64>,
    disk: Option<i64>,
    auto_stop_interval: Option<i64>,
    auto_archive_interval: Option<i64>,
    auto_delete_interval: Option<i64>,
    volumes: Option<Value>,
    build_info: Option<BuildInfo>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BuildInfo {
    dockerfile_content: String,
}

pub(super) fn limits(cpu: i64, memory: i64, disk: i64) -> Result<(), Refusal> {
    let tail = "\nTo increase the limit, contact support.";
    let over = if cpu > 4 {
        format!("CPU request {cpu} exceeds maximum allowed per sandbox (4).")
    } else if memory > 8 {
        format!("Memory request {memory}GB exceeds maximum allowed per sandbox (8GB).")
    } else if disk > 10 {
        format!("Disk request {disk}GB exceeds maximum allowed per sandbox (10GB).")
    } else {
        return Ok(());
    };
    Err(Refusal::new(400, over + tail))
}

pub(super) fn allow_list(list: &str) -> Result<(), Refusal> {
    let parts: Vec<&str> = list.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    let is_network = |part: &&str| {
        part.split_once('/').is_some_and(|(address, bits)| {
            address.parse::<std::net::Ipv4Addr>().is_ok() && bits.parse::<u8>().is_ok_and(|bits| bits <= 32)
        })
    };
    match parts.len() <= 10 && parts.iter().all(is_network) {
        true => Ok(()),
        false => Err(Refusal::new(400, "Invalid network allow list")),
    }
}

pub(super) async fn create(State(world): Shared, headers: HeaderMap, Json(wish): Json<Wish>) -> Answer {
    let refuse = |text: &str| Err(Refusal::new(400, text));
    if wish.build_info.is_some() && wish.snapshot.is_some() {
        return refuse("Cannot specify a snapshot when using a build info entry");
    }
    let sized = wish.cpu.is_some() || wish.memory.is_some() || wish.disk.is_some();
    if wish.build_info.is_none() && sized {
        return refuse("Cannot specify Sandbox resources when using a snapshot");
    }
    if let Some(snapshot) = wish.snapshot.as_deref().filter(|name| !name.starts_with("daytona")) {
        return refuse(&format!(
            "Snapshot {snapshot} not found. Did you add it through the Daytona Dashboard?"
        ));
    }
    let (cpu, memory, disk) = (wish.cpu.unwrap_or(1), wish.memory.unwrap_or(1), wish.disk.unwrap_or(3));
    limits(cpu, memory, disk)?;
    if let Some(list) = &wish.network_allow_list {
        allow_list(list)?;
    }
    let id = uuid();
    let name = wish.name.filter(|name| !name.is_empty()).unwrap_or_else(|| id.clone());
    if name.chars().any(|c| c.is_control() || c == '<') || name.contains("://") {
        return refuse("name must not contain HTML tags, URLs or control characters");
    }
    let built = wish.build_info.is_some();
    let named = headers.get("x-daytona-organization-id").and_then(|value| value.to_str().ok());
    let now = SystemTime::now();
    let sandbox = Sandbox {
        dir: world.options.dir.join(random(4)),
        state: if built { "pending_build" } else { "creating" },
        desired: "started",
        // A key has one, and says so to nobody.
        organization: named.unwrap_or("org-emulated").to_owned(),
        error: None,
        recoverable: false,
        user: wish.user.unwrap_or_else(|| "daytona".into()),
        env: wish.env.unwrap_or_default(),
        labels: wish.labels.unwrap_or_default(),
        public: wish.public.unwrap_or(false),
        block_all: wish.network_block_all.unwrap_or(false),
        allow_list: wish.network_allow_list,
        target: wish.target.unwrap_or_else(|| "us".into()),
        cpu,
        memory,
        disk,
        snapshot: if built {
            None
        } else {
            Some(wish.snapshot.unwrap_or_else(|| "daytonaio/sandbox:0.5.0".into()))
        },
        dockerfile: wish.build_info.map(|info| info.dockerfile_content),
        volumes: wish.volumes.unwrap_or_else(|| json!([])),
        auto_stop: wish.auto_stop_interval.unwrap_or(15),
        auto_archive: wish.auto_archive_interval.unwrap_or(10_080),
        auto_delete: wish.auto_delete_interval.unwrap_or(-1),
        created: now,
        updated: now,
        last_activity: Instant::now(),
        last_activity_at: now,
        since: Instant::now(),
        token: random(8),
        root: None,
        id: id.clone(),
        name: name.clone(),
    };
    let dto = sandbox.dto(&world.toolbox_url());
    {
        let mut all = world.lock();
        if all.values().any(|other| other.name == name) {
            return Err(Refusal::new(409, format!("Sandbox with name {name} already exists")));
        }
        all.insert(id.clone(), sandbox);
    }
    world.changed();
    let _ = world.events.send(json!(["sandbox.created", dto]).to_string());
    world.create(id, if built { &["building_snapshot", "creating"] } else { &[] });
    Ok(Json(dto))
}
