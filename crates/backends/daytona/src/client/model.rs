//! What goes over the wire. Fields and states that are not known are no reason to fail.

use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// A sandbox, as the API describes it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Sandbox {
    #[serde(deserialize_with = "or_default")]
    pub id: String,
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    pub organization_id: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub state: State,
    #[serde(deserialize_with = "or_default")]
    pub labels: BTreeMap<String, String>,
    pub target: Option<String>,
    pub snapshot: Option<String>,
    pub cpu: Option<f64>,
    pub memory: Option<f64>,
    pub disk: Option<f64>,
    pub toolbox_proxy_url: Option<String>,
    pub error_reason: Option<String>,
    pub recoverable: Option<bool>,
    pub build_info: Option<BuildInfo>,
    pub auto_stop_interval: Option<f64>,
    pub auto_archive_interval: Option<f64>,
    pub auto_delete_interval: Option<f64>,
    pub created_at: Option<String>,
    pub updated_at: Option<String>,
    pub last_activity_at: Option<String>,
}

fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}

/// Those that can be read. What others have in the same organisation may be of kinds that this client does not know.
fn readable<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Sandbox>, D::Error> {
    let all: Vec<serde_json::Value> = or_default(from)?;
    Ok(all.into_iter().filter_map(|item| serde_json::from_value(item).ok()).collect())
}

/// What a sandbox is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    Creating,
    Restoring,
    Destroyed,
    Destroying,
    Started,
    Stopped,
    Starting,
    Stopping,
    Error,
    BuildFailed,
    PendingBuild,
    BuildingSnapshot,
    /// The server itself does not know.
    #[default]
    Unknown,
    PullingSnapshot,
    Archived,
    Archiving,
    Resizing,
    Snapshotting,
    Forking,
    Pausing,
    Paused,
    Resuming,
    /// One that is newer than this client.
    Other(String),
}

/// All that have a name here.
pub(crate) const STATES: &[(&str, State)] = &[
    ("creating", State::Creating),
    ("restoring", State::Restoring),
    ("destroyed", State::Destroyed),
    ("destroying", State::Destroying),
    ("started", State::Started),
    ("stopped", State::Stopped),
    ("starting", State::Starting),
    ("stopping", State::Stopping),
    ("error", State::Error),
    ("build_failed", State::BuildFailed),
    ("pending_build", State::PendingBuild),
    ("building_snapshot", State::BuildingSnapshot),
    ("unknown", State::Unknown),
    ("pulling_snapshot", State::PullingSnapshot),
    ("archived", State::Archived),
    ("archiving", State::Archiving),
    ("resizing", State::Resizing),
    ("snapshotting", State::Snapshotting),
    ("forking", State::Forking),
    ("pausing", State::Pausing),
    ("paused", State::Paused),
    ("resuming", State::Resuming),
];

impl State {
    /// As the API calls it.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Other(name) => name,
            known => STATES.iter().find(|(_, state)| state == known).map_or("unknown", |(name, _)| *name),
        }
    }
}

impl<'de> Deserialize<'de> for State {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        let known = STATES.iter().find(|(known, _)| *known == name).map(|(_, state)| state.clone());
        Ok(known.unwrap_or(Self::Other(name)))
    }
}

/// What a sandbox's image is made from.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BuildInfo {
    #[serde(deserialize_with = "or_default")]
    pub dockerfile_content: String,
}

/// Whole cores and gigabytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Resources {
    pub cpu: u32,
    pub memory: u32,
    pub disk: u32,
}

/// What a sandbox is to be.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Create {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build_info: Option<BuildInfo>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    pub env: BTreeMap<String, String>,
    pub labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_stop_interval: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_archive_interval: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_delete_interval: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Page {
    #[serde(deserialize_with = "readable")]
    pub(crate) items: Vec<Sandbox>,
    pub(crate) next_cursor: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Named {
    pub(crate) url: String,
}

/// How a port of a sandbox is reached. The token is not shown.
#[derive(Clone, Deserialize)]
pub struct Preview {
    pub url: String,
    #[serde(default)]
    pub token: String,
}

impl std::fmt::Debug for Preview {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Preview").field("url", &self.url).finish_non_exhaustive()
    }
}

/// How a command ended. A death by signal is -1.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "Answer")]
pub struct Executed {
    pub exit_code: i32,
    /// Both outputs, as they came.
    pub result: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    exit_code: Option<i32>,
    /// What it was called before.
    code: Option<i32>,
    result: Option<String>,
}

impl TryFrom<Answer> for Executed {
    type Error = &'static str;

    fn try_from(answer: Answer) -> Result<Self, Self::Error> {
        let exit_code = answer.exit_code.or(answer.code).ok_or("it has no exit code")?;
        Ok(Self { exit_code, result: answer.result.unwrap_or_default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_or_missing_is_no_reason_to_fail() {
        let text = r#"{"id":"a","name":"n","state":"dreaming","labels":null,"surprise":[1],"cpu":1,"autoStopInterval":15}"#;
        let sandbox: Sandbox = serde_json::from_str(text).unwrap();
        assert_eq!(sandbox.state, State::Other("dreaming".into()));
        assert_eq!(
            (sandbox.labels.len(), sandbox.cpu, sandbox.auto_stop_interval),
            (0, Some(1.0), Some(15.0))
        );
        let page = r#"{"items":[{"id":null,"name":null,"buildInfo":{"dockerfileContent":null}},{"labels":7},{"id":"b"}],"nextCursor":null}"#;
        let page: Page = serde_json::from_str(page).unwrap();
        assert_eq!(page.items.iter().map(|sandbox| sandbox.id.as_str()).collect::<Vec<_>>(), ["", "b"]);
        for (text, code) in [(r#"{"exitCode":3,"code":3,"result":null}"#, 3), (r#"{"code":-1}"#, -1)] {
            assert_eq!(serde_json::from_str::<Executed>(text).unwrap().exit_code, code);
        }
        assert!(serde_json::from_str::<Executed>(r#"{"result":"x"}"#).is_err());
        assert_eq!(serde_json::from_str::<Sandbox>("{}").unwrap().state, State::Unknown);
        assert_eq!(STATES.len(), 22);
        for (name, state) in STATES {
            let read: State = serde_json::from_str(&format!("{name:?}")).unwrap();
            assert_eq!((&read, read.name()), (state, *name));
        }
    }

    #[test]
    fn nothing_is_sent_that_was_not_asked_for() {
        let create = Create {
            name: Some("n".into()),
            build_info: Some(BuildInfo { dockerfile_content: "FROM a\n".into() }),
            resources: Some(Resources { cpu: 1, memory: 5, disk: 10 }),
            auto_stop_interval: Some(15),
            ..Create::default()
        };
        assert_eq!(
            serde_json::to_string(&create).unwrap(),
            r#"{"name":"n","buildInfo":{"dockerfileContent":"FROM a\n"},"cpu":1,"memory":5,"disk":10,"env":{},"labels":{},"autoStopInterval":15}"#
        );
    }
}
