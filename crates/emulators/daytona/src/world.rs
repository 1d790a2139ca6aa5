//! All sandboxes, and how their states change.

use crate::faults::Faults;
use crate::options::Options;
use crate::reply::Refusal;
use crate::root::Root;
use crate::sandbox::Sandbox;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::broadcast;

/// How often the directory of a sandbox that is gone is tried to be removed: two seconds are ages for a kill.
const REMOVALS: u32 = 100;

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) options: Options,
    pub(crate) faults: Faults,
    /// `http://127.0.0.1:1234`
    pub(crate) origin: OnceLock<String>,
    /// How many there were, of clients.
    pub(crate) requests: AtomicU64,
    pub(crate) events: broadcast::Sender<String>,
    sandboxes: Mutex<BTreeMap<String, Sandbox>>,
    /// What a list still shows: taken when something changed, shown once the lag is over.
    lists: Mutex<Vec<(Instant, Vec<Value>)>>,
}

impl World {
    pub(crate) fn new(options: Options) -> Arc<Self> {
        Arc::new(Self {
            faults: Faults::new(options.faults.clone(), options.storm),
            options,
            origin: OnceLock::new(),
            requests: AtomicU64::new(0),
            events: broadcast::channel(256).0,
            sandboxes: Mutex::default(),
            lists: Mutex::new(vec![(Instant::now(), Vec::new())]),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Sandbox>> {
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn toolbox_url(&self) -> String {
        format!("{}/toolbox", self.origin.get().map_or("", String::as_str))
    }

    /// By id or name.
    pub(crate) fn with<T>(
        &self,
        key: &str,
        change: impl FnOnce(&mut Sandbox) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let mut all = self.lock();
        let id = match all.contains_key(key) {
            true => Some(key.to_owned()),
            false => all.values().find(|sandbox| sandbox.name == key).map(|sandbox| sandbox.id.clone()),
        };
        let gone = |sandbox: &Sandbox| sandbox.state == "error" && sandbox.desired == "destroyed";
        match id.and_then(|id| all.get_mut(&id)).filter(|sandbox| !gone(sandbox)) {
            Some(sandbox) => change(sandbox),
            None => Err(Refusal::new(404, format!("Sandbox with ID or name {key} not found"))),
        }
    }

    /// Puts a sandbox into another state, and says so.
    pub(crate) fn set(&self, id: &str, state: &'static str, desired: &'static str) {
        let event = {
            let mut all = self.lock();
            let Some(sandbox) = all.get_mut(id) else { return };
            let old = std::mem::replace(&mut sandbox.state, state);
            sandbox.desired = desired;
            sandbox.since = Instant::now();
            sandbox.updated = SystemTime::now();
            let dto = sandbox.dto(&self.toolbox_url());
            json!(["sandbox.state.updated", { "sandbox": dto, "oldState": old, "newState": state }])
        };
        self.changed();
        let _ = self.events.send(event.to_string());
    }

    /// The list has changed, and is seen to after its lag.
    pub(crate) fn changed(&self) {
        let toolbox = self.toolbox_url();
        let now: Vec<Value> = self.lock().values().map(|sandbox| sandbox.item(&toolbox).into()).collect();
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        lists.push((Instant::now() + self.faults.list_lag(), now));
    }

    /// What a list shows now.
    pub(crate) fn listed(&self) -> Vec<Value> {
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        while lists.len() > 1 && lists.get(1).is_some_and(|(at, _)| *at <= now) {
            lists.remove(0);
        }
        lists.first().map(|(_, list)| list.clone()).unwrap_or_default()
    }

    async fn pause(&self) {
        tokio::time::sleep(self.options.delay + self.faults.slow()).await;
    }

    /// From nothing to started, by way of these states.
    pub(crate) fn create(self: &Arc<Self>, id: String, by: &'static [&'static str]) {
        let world = Arc::clone(self);
        tokio::spawn(async move {
            for state in by {
                world.pause().await;
                world.set(&id, state, "started");
            }
            world.pause().await;
            if world.faults.take("build-failed", "").is_some() {
                world.fail(&id, "build_failed", "the image could not be built");
            } else {
                world.bring_up(&id).await;
            }
        });
    }

    /// Starts one that was put away, by way of this state.
    pub(crate) fn start(self: &Arc<Self>, id: String, by: &'static str) {
        self.set(&id, by, "started");
        let world = Arc::clone(self);
        tokio::spawn(async move {
            world.pause().await;
            if by == "restoring" {
                world.pause().await;
            }
            world.bring_up(&id).await;
        });
    }

    async fn bring_up(&self, id: &str) {
        let found = self
            .lock()
            .get(id)
            .map(|sandbox| (sandbox.dir.clone(), sandbox.name.clone(), sandbox.env.clone()));
        let Some((dir, name, env)) = found else { return };
        if let Some(fault) = self.faults.take("start-error", "") {
            self.fail(id, "error", "the runner could not start the sandbox");
            if let Some(sandbox) = self.lock().get_mut(id) {
                sandbox.recoverable = fault.recoverable;
            }
            return;
        }
        match Root::start(&dir, &name, &env).await {
            Ok(root) => {
                let unwanted = match self.lock().get_mut(id) {
                    Some(sandbox) if sandbox.desired == "started" => {
                        sandbox.root = Some(root);
                        sandbox.error = None;
                        sandbox.recoverable = false;
                        sandbox.token = random(8);
                        sandbox.active();
                        None
                    }
                    _ => Some(root),
                };
                match unwanted {
                    Some(root) => root.stop().await,
                    None => self.set(id, "started", "started"),
                }
            }
            Err(error) => self.fail(id, "error", &error.to_string()),
        }
    }

    pub(crate) fn fail(&self, id: &str, state: &'static str, why: &str) {
        if let Some(sandbox) = self.lock().get_mut(id) {
            sandbox.error = Some(why.to_owned());
        }
        self.set(id, state, "started");
    }

    async fn take_down(&self, id: &str) {
        let root = self.lock().get_mut(id).and_then(|sandbox| sandbox.root.take());
        if let Some(root) = root {
            root.stop().await;
        }
    }

    pub(crate) fn stop(self: &Arc<Self>, id: String) {
        if self.lock().get(&id).is_some_and(Sandbox::is_ephemeral) {
            return self.destroy(id);
        }
        self.set(&id, "stopping", "stopped");
        let world = Arc::clone(self);
        tokio::spawn(async move {
            world.take_down(&id).await;
            world.pause().await;
            world.set(&id, "stopped", "stopped");
        });
    }

    pub(crate) fn archive(self: &Arc<Self>, id: String) {
        self.set(&id, "archiving", "archived");
        let world = Arc::clone(self);
        tokio::spawn(async move {
            world.pause().await;
            world.pause().await;
            // A start in between has cancelled it.
            if world.lock().get(&id).is_some_and(|sandbox| sandbox.state == "archiving") {
                world.set(&id, "archived", "archived");
            }
        });
    }

    pub(crate) fn resize(self: &Arc<Self>, id: String) {
        let Some(before) = self.lock().get(&id).map(|sandbox| (sandbox.state, sandbox.desired)) else {
            return;
        };
        self.set(&id, "resizing", "resized");
        let world = Arc::clone(self);
        tokio::spawn(async move {
            world.pause().await;
            world.set(&id, before.0, before.1);
        });
    }

    pub(crate) fn destroy(self: &Arc<Self>, id: String) {
        if let Some(sandbox) = self.lock().get_mut(&id) {
            // The name is free at once.
            sandbox.name = format!("DESTROYED_{}_{}", sandbox.name, random(4));
        }
        self.set(&id, "destroying", "destroyed");
        let world = Arc::clone(self);
        tokio::spawn(async move {
            world.take_down(&id).await;
            world.pause().await;
            // Who is told that it is gone finds nothing of it. What still writes there is being killed, and may be in the
            // way for a moment.
            let dir = world.lock().get(&id).map(|sandbox| sandbox.dir.clone());
            for _ in 0..REMOVALS {
                match &dir {
                    Some(dir) if tokio::fs::remove_dir_all(dir).await.is_err() && dir.exists() => {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    _ => break,
                }
            }
            world.set(&id, "destroyed", "destroyed");
            world.lock().remove(&id);
            world.changed();
        });
    }

    /// Ends everything, at the end of the emulator.
    pub(crate) async fn end(&self) {
        let ids: Vec<String> = self.lock().keys().cloned().collect();
        for id in ids {
            self.take_down(&id).await;
        }
    }
}

/// Random digits in hex.
pub(crate) fn random(bytes: usize) -> String {
    let mut all = vec![0; bytes];
    let _ = getrandom::fill(&mut all);
    all.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A random id, as Daytona's are.
pub(crate) fn uuid() -> String {
    let hex = random(16);
    format!("{}-{}-4{}-a{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..])
}
