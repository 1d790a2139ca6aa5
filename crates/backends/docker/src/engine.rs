//! One engine and what is asked of it.
//!
//! What is only looked at is read into types of our own, with the few fields that are needed: engines differ in the
//! rest, and a state that a later one invents must not make a container unreadable.

use crate::config::Config;
use crate::dial::{Body, Transport};
use crate::endpoint::Endpoint;
use crate::error::{explain, is_status};
use bollard::ClientVersion;
use bollard::errors::Error as Api;
use bytes::Bytes;
use farshell_engine::{Error, Result};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long an answer may take to begin. Making and starting containers takes long on slow disks.
const PATIENCE: u64 = 180;
/// How long an answer may take that needs no work.
const LOOK: Duration = Duration::from_secs(30);
/// Answers that are only looked at are shorter.
const MOST: usize = 16 << 20;

pub(crate) struct Engine {
    pub(crate) api: bollard::Docker,
    pub(crate) endpoint: Endpoint,
    transport: Arc<Transport>,
    config: Config,
    /// It was found not to see this machine's files.
    elsewhere: AtomicBool,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Engine({})", self.endpoint.address)
    }
}

/// A container, as far as it matters here.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Container {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) state: State,
    #[serde(default)]
    pub(crate) config: ContainerConfig,
    #[serde(default)]
    pub(crate) host_config: HostConfig,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct State {
    #[serde(default)]
    pub(crate) status: String,
    #[serde(default, rename = "OOMKilled")]
    pub(crate) oom_killed: bool,
    #[serde(default)]
    pub(crate) exit_code: i64,
    #[serde(default)]
    pub(crate) error: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ContainerConfig {
    #[serde(default)]
    pub(crate) labels: Option<HashMap<String, String>>,
    #[serde(default)]
    pub(crate) user: Option<String>,
    /// Where an image wants volumes.
    #[serde(default)]
    pub(crate) volumes: Option<BTreeMap<String, IgnoredAny>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct HostConfig {
    #[serde(default)]
    pub(crate) nano_cpus: Option<i64>,
    #[serde(default)]
    pub(crate) cpu_quota: Option<i64>,
    #[serde(default)]
    pub(crate) memory: Option<i64>,
    #[serde(default)]
    pub(crate) memory_swap: Option<i64>,
    #[serde(default)]
    pub(crate) pids_limit: Option<i64>,
    #[serde(default)]
    pub(crate) storage_opt: Option<HashMap<String, String>>,
    #[serde(default)]
    pub(crate) auto_remove: bool,
}

impl Container {
    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        self.config.labels.as_ref()?.get(name).map(String::as_str)
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Image {
    #[serde(default)]
    pub(crate) config: Option<ContainerConfig>,
}

/// A container in a list.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Listed {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) names: Vec<String>,
    #[serde(default)]
    pub(crate) labels: Option<HashMap<String, String>>,
    #[serde(default)]
    pub(crate) created: i64,
    #[serde(default)]
    pub(crate) state: String,
}

/// A volume in a list.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Volume {
    pub(crate) name: String,
    #[serde(default)]
    labels: Option<HashMap<String, String>>,
}

impl Volume {
    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        self.labels.as_ref()?.get(name).map(String::as_str)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Volumes {
    #[serde(default)]
    volumes: Option<Vec<Volume>>,
}

/// What an engine says of itself.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Info {
    #[serde(default)]
    pub(crate) server_version: Option<String>,
    #[serde(default)]
    pub(crate) driver: Option<String>,
    #[serde(default)]
    pub(crate) memory_limit: Option<bool>,
    #[serde(default)]
    pub(crate) swap_limit: Option<bool>,
    #[serde(default)]
    pub(crate) cpu_cfs_quota: Option<bool>,
    #[serde(default)]
    pub(crate) pids_limit: Option<bool>,
    #[serde(default)]
    pub(crate) architecture: Option<String>,
    #[serde(default, rename = "NCPU")]
    pub(crate) cpus: Option<u64>,
    #[serde(default)]
    pub(crate) operating_system: Option<String>,
    #[serde(default)]
    pub(crate) driver_status: Vec<Vec<String>>,
}

#[derive(Deserialize)]
struct Refusal {
    message: String,
}

impl Engine {
    /// Reaches the engine that the configuration means, and agrees on a version with it.
    pub(crate) async fn reach(config: &Config) -> Result<Self> {
        let endpoint = Endpoint::resolve(config)?;
        let transport = Arc::new(Transport::new(endpoint.clone(), config.environment.clone()));
        let what = "reaching the Docker engine";
        let fail = |error| explain(what, error, config, &endpoint);
        let answer = timed(transport.request(request("GET", "/_ping", Bytes::new()).map_err(fail)?));
        let answer = answer.await.map_err(fail)?;
        let Some(version) = transport.agree(&answer) else {
            let message = format!("what answers at {} is no Docker engine", endpoint.address);
            return Err(Error::new(farshell_engine::Kind::Protocol, what, message)
                .with_hint(format!("the address comes from {}", endpoint.source)));
        };
        let requests = Arc::clone(&transport);
        let api = bollard::Docker::connect_with_custom_transport(
            move |request| {
                let transport = Arc::clone(&requests);
                async move { transport.request(request).await }
            },
            Some("http://docker"),
            PATIENCE,
            &ClientVersion { major_version: version.major, minor_version: version.minor },
        )
        .map_err(fail)?;
        Ok(Self { api, endpoint, transport, config: config.clone(), elsewhere: AtomicBool::new(false) })
    }

    /// Its containers can share directories with this machine, as far as is known.
    pub(crate) fn shares_files(&self) -> bool {
        self.endpoint.may_be_here() && !self.elsewhere.load(Ordering::Relaxed)
    }

    pub(crate) fn note_elsewhere(&self) {
        self.elsewhere.store(true, Ordering::Relaxed);
    }

    pub(crate) fn explain(&self, operation: impl Into<String>, error: Api) -> Error {
        explain(operation, error, &self.config, &self.endpoint)
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> std::result::Result<T, Api> {
        let request = request("GET", path, Bytes::new())?;
        timed(async {
            let answer = self.transport.request(request).await?;
            let status = answer.status();
            let bytes = body(answer.into_body()).await?;
            if status.is_success() {
                return Ok(serde_json::from_slice(&bytes)?);
            }
            let message = serde_json::from_slice(&bytes)
                .map_or_else(|_| String::from_utf8_lossy(&bytes).into_owned(), |r: Refusal| r.message);
            Err(Api::DockerResponseServerError { status_code: status.as_u16(), message })
        })
        .await
    }

    /// The container of this name or id.
    pub(crate) async fn container(&self, name: &str) -> Result<Option<Container>> {
        match self.get(&format!("/containers/{name}/json")).await {
            Ok(container) => Ok(Some(container)),
            Err(error) if is_status(&error, 404) => Ok(None),
            Err(error) => Err(self.explain(format!("looking at container {name}"), error)),
        }
    }

    pub(crate) async fn image(&self, name: &str) -> Result<Option<Image>> {
        match self.get(&format!("/images/{}/json", escape_path(name))).await {
            Ok(image) => Ok(Some(image)),
            Err(error) if is_status(&error, 404) => Ok(None),
            Err(error) => Err(self.explain(format!("looking at image {name}"), error)),
        }
    }

    /// All containers with this label, whether they run or not.
    pub(crate) async fn labelled(&self, label: &str, value: &str) -> Result<Vec<Listed>> {
        let filter = serde_json::json!({ "label": [format!("{label}={value}")] }).to_string();
        let path = format!("/containers/json?all=true&filters={}", escape(&filter));
        self.get(&path).await.map_err(|e| self.explain("listing containers", e))
    }

    /// The volumes with this label that no container uses.
    pub(crate) async fn unused_volumes(&self, label: &str, value: &str) -> Result<Vec<Volume>> {
        let filter = serde_json::json!({ "dangling": ["true"], "label": [format!("{label}={value}")] });
        let path = format!("/volumes?filters={}", escape(&filter.to_string()));
        let listed: Volumes = self.get(&path).await.map_err(|e| self.explain("listing volumes", e))?;
        Ok(listed.volumes.unwrap_or_default())
    }

    pub(crate) async fn info(&self) -> Result<Info> {
        self.get("/info").await.map_err(|e| self.explain("asking the engine about itself", e))
    }

    /// Starts an exec and takes over its connection.
    pub(crate) async fn start_exec(&self, id: &str) -> Result<Upgraded> {
        let what = "opening a stream into the container";
        let fail = |error| self.explain(what, error);
        let path = format!("/exec/{id}/start");
        let mut request =
            request("POST", &path, Bytes::from_static(br#"{"Detach":false,"Tty":false}"#)).map_err(fail)?;
        let headers = request.headers_mut();
        for (name, value) in
            [("connection", "Upgrade"), ("upgrade", "tcp"), ("content-type", "application/json")]
        {
            headers.insert(name, hyper::header::HeaderValue::from_static(value));
        }
        let answer = timed(self.transport.upgrade(request)).await.map_err(fail)?;
        let status = answer.status();
        if status != hyper::StatusCode::SWITCHING_PROTOCOLS && status != hyper::StatusCode::OK {
            let bytes = body(answer.into_body()).await.map_err(fail)?;
            let message = serde_json::from_slice(&bytes)
                .map_or_else(|_| String::from_utf8_lossy(&bytes).into_owned(), |r: Refusal| r.message);
            return Err(fail(Api::DockerResponseServerError { status_code: status.as_u16(), message }));
        }
        hyper::upgrade::on(answer).await.map_err(|e| fail(e.into()))
    }
}

async fn timed<T>(work: impl Future<Output = std::result::Result<T, Api>>) -> std::result::Result<T, Api> {
    tokio::time::timeout(LOOK, work).await.unwrap_or(Err(Api::RequestTimeoutError))
}

fn request(method: &str, path: &str, body: Bytes) -> std::result::Result<Request<Body>, Api> {
    Ok(Request::builder().method(method).uri(path).body(Body::Left(Full::new(body)))?)
}

async fn body(mut body: Incoming) -> std::result::Result<Vec<u8>, Api> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Some(data) = frame?.data_ref() {
            bytes.extend_from_slice(data);
        }
        if bytes.len() > MOST {
            return Err(std::io::Error::other("the answer is too long").into());
        }
    }
    Ok(bytes)
}

/// For a path: an image's name keeps what parts it has.
fn escape_path(name: &str) -> String {
    name.split('/').map(escape).collect::<Vec<_>>().join("/")
}

/// For a query: everything but what is plain is escaped.
fn escape(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}
