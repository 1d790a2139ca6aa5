//! One sandbox as the control plane knows it.

use crate::reply::timestamp;
use crate::root::Root;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Instant, SystemTime};

#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(crate) id: String,
    pub(crate) name: String,
    /// Whose it is, by the header of who made it.
    pub(crate) organization: String,
    pub(crate) dir: PathBuf,
    pub(crate) state: &'static str,
    pub(crate) desired: &'static str,
    pub(crate) error: Option<String>,
    pub(crate) recoverable: bool,
    pub(crate) user: String,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) public: bool,
    pub(crate) block_all: bool,
    pub(crate) allow_list: Option<String>,
    pub(crate) target: String,
    pub(crate) cpu: i64,
    pub(crate) memory: i64,
    pub(crate) disk: i64,
    pub(crate) snapshot: Option<String>,
    pub(crate) dockerfile: Option<String>,
    pub(crate) volumes: Value,
    pub(crate) auto_stop: i64,
    pub(crate) auto_archive: i64,
    pub(crate) auto_delete: i64,
    pub(crate) created: SystemTime,
    pub(crate) updated: SystemTime,
    pub(crate) last_activity: Instant,
    pub(crate) last_activity_at: SystemTime,
    /// Since when it is in this state.
    pub(crate) since: Instant,
    /// Changes with each start.
    pub(crate) token: String,
    pub(crate) root: Option<Root>,
}

/// Changing on its own.
pub(crate) const CHANGING: &[&str] = &[
    "creating",
    "restoring",
    "destroying",
    "starting",
    "stopping",
    "pending_build",
    "building_snapshot",
    "pulling_snapshot",
    "archiving",
    "resizing",
    "snapshotting",
    "forking",
    "pausing",
    "resuming",
];

impl Sandbox {
    pub(crate) fn is_changing(&self) -> bool {
        CHANGING.contains(&self.state)
    }

    pub(crate) fn is_ephemeral(&self) -> bool {
        self.auto_delete == 0
    }

    pub(crate) fn active(&mut self) {
        self.last_activity = Instant::now();
        self.last_activity_at = SystemTime::now();
    }

    /// What a list says of it.
    pub(crate) fn item(&self, toolbox: &str) -> Map<String, Value> {
        let value = json!({
            "id": self.id, "organizationId": self.organization, "name": self.name, "user": self.user, "labels": self.labels,
            "public": self.public, "networkBlockAll": self.block_all, "target": self.target, "cpu": self.cpu, "gpu": 0,
            "memory": self.memory, "disk": self.disk, "state": self.state, "desiredState": self.desired,
            "backupState": if self.state == "archived" { "Completed" } else { "None" },
            "autoStopInterval": self.auto_stop, "autoArchiveInterval": self.auto_archive, "autoDeleteInterval": self.auto_delete,
            "createdAt": timestamp(self.created), "updatedAt": timestamp(self.updated),
            "lastActivityAt": timestamp(self.last_activity_at), "sandboxClass": "container",
            "daemonVersion": "0.190.0", "toolboxProxyUrl": toolbox, "kvm": false, "recoverable": self.recoverable,
        });
        let mut map = match value {
            Value::Object(map) => map,
            _ => Map::new(),
        };
        if let Some(snapshot) = &self.snapshot {
            map.insert("snapshot".into(), json!(snapshot));
        }
        if let Some(error) = &self.error {
            map.insert("errorReason".into(), json!(error));
        }
        map
    }

    pub(crate) fn dto(&self, toolbox: &str) -> Value {
        let mut map = self.item(toolbox);
        map.insert("env".into(), json!(self.env));
        map.insert("volumes".into(), self.volumes.clone());
        if let Some(text) = &self.dockerfile {
            let at = timestamp(self.created);
            map.insert(
                "buildInfo".into(),
                json!({ "dockerfileContent": text, "contextHashes": [], "createdAt": at, "updatedAt": at, "snapshotRef": "emulated" }),
            );
        }
        if let Some(list) = &self.allow_list {
            map.insert("networkAllowList".into(), json!(list));
        }
        Value::Object(map)
    }
}
