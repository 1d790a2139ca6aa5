//! What all requests share.

use crate::files::Handles;
use crate::life::{Life, Phase};
use farshell_api::server::ServerStatus;
use farshell_api::{API_VERSION, Millis};
use farshell_engine::Result;
use farshell_keeper::Keeper;
use farshell_mcp::Mcp;
use farshell_tools::Tools;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::task::JoinHandle;

#[derive(Debug)]
pub(crate) struct App {
    pub(crate) keeper: Keeper,
    pub(crate) tools: Tools,
    pub(crate) mcp: Mcp,
    pub(crate) files: Handles,
    pub(crate) life: Arc<Life>,
    pub(crate) about: About,
}

/// What the server knows of itself.
#[derive(Clone, Debug)]
pub(crate) struct About {
    pub(crate) version: String,
    pub(crate) home: PathBuf,
    pub(crate) socket: PathBuf,
    pub(crate) listen: Vec<SocketAddr>,
    pub(crate) idle: Option<Duration>,
    pub(crate) started: Instant,
    pub(crate) started_at: Millis,
}

impl App {
    /// Runs to its end even if nobody waits for it any more, unless the server ends. `None` then.
    pub(crate) fn apart<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<Option<T>> {
        apart(&self.life, work)
    }

    pub(crate) async fn status(&self) -> Result<ServerStatus> {
        let mut counts = self.keeper.counts().await?;
        counts.connections = self.life.connections();
        let alive = counts.environments > 0 || counts.foreground > 0 || counts.background > 0;
        let about = &self.about;
        Ok(ServerStatus {
            pid: std::process::id(),
            version: about.version.clone(),
            api_version: API_VERSION,
            uptime: about.started.elapsed().as_secs(),
            started_at: about.started_at,
            home: about.home.to_string_lossy().into_owned(),
            socket: about.socket.to_string_lossy().into_owned(),
            listen: about.listen.iter().map(ToString::to_string).collect(),
            counts,
            ends_in: about.idle.filter(|_| !alive).map(|idle| idle.as_secs()),
            warnings: self.keeper.warnings(),
        })
    }
}

pub(crate) fn apart<T: Send + 'static>(
    life: &Arc<Life>,
    work: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<Option<T>> {
    let life = Arc::clone(life);
    tokio::spawn(async move { unless_closed(life, work).await })
}

/// Ends with the server at the latest.
pub(crate) async fn unless_closed<T>(life: Arc<Life>, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        done = work => Some(done),
        () = life.reached(Phase::Closed) => None,
    }
}

pub(crate) fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
