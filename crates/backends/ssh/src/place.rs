//! [`Place`] on a host: a directory there with an outpost in it.
//!
//! # From a host to a stream
//! 1. The local end of the forwarded socket, if there is one that answers. This is all that a connection needs that is
//!    there. The directory on the host has machine and boot in its name, so that no other machine can answer there, also
//!    if it has the same files.
//! 2. Otherwise the host is asked: which machine it is, since when it runs, and to start the outpost if it does not.
//! 3. Then the socket is forwarded, or where the host forbids that, a session carries the stream.

use crate::host::{Facts, Host};
use crate::link::Link;
use crate::room::ADDRESS;
use crate::script::Wish;
use farshell_engine::backend::{BoxFuture, ByteStream, Identity, Place, TaskName};
use farshell_engine::{Error, Kind, Outpost, Result};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::Instant;

/// An outpost greets whoever connects at once. A connection whose line is dead is given up within this time.
const GREET: Duration = Duration::from_secs(30);
/// How long a host that was reached before is tried again while it can't be: its network, or its daemon, is restarted.
/// The engine tries several times.
const PATIENCE: Duration = Duration::from_secs(20);
/// The name of an outpost's socket in its directory.
const SOCKET: &str = "sock";

/// A task's outpost on a host.
#[derive(Clone, Debug)]
pub(crate) struct SshPlace {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    host: Host,
    task: TaskName,
    lease: Duration,
    identity: Identity,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    facts: Facts,
    /// The connection through which it was found, while that is of use.
    link: Option<Arc<Link>>,
    connected: bool,
    epitaph: Option<String>,
}

impl SshPlace {
    pub(crate) fn new(
        host: Host,
        task: TaskName,
        lease: Duration,
        facts: Facts,
        link: Option<Arc<Link>>,
    ) -> Self {
        let identity = facts.identity();
        let state = Mutex::new(State { facts, link, connected: false, epitaph: None });
        Self { inner: Arc::new(Inner { host, task, lease, identity, state }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The host is the same machine as before.
    fn check(&self, facts: &Facts) -> Result<()> {
        let Inner { host, task, identity, .. } = &*self.inner;
        facts.is_still(identity, task, &host.config)
    }

    /// Takes note of what a host says about itself, if it is the same as before.
    fn learn(&self, facts: &Facts, link: &Arc<Link>) -> Result<()> {
        self.check(facts)?;
        let mut state = self.state();
        if facts.boot != state.facts.boot && !facts.boot.is_empty() && !state.facts.boot.is_empty() {
            state.epitaph = Some(format!("the host {} was restarted", facts.name));
        }
        state.facts = facts.clone();
        state.link = Some(Arc::clone(link));
        Ok(())
    }

    /// A stream by what is known already.
    async fn known(&self) -> Option<ByteStream> {
        let (link, facts) = {
            let state = self.state();
            (state.link.clone()?, state.facts.clone())
        };
        if !self.inner.host.links.first().ok()?.forwards() {
            return if link.answers().await {
                self.inner.host.stream_again(&facts, self.inner.lease).await
            } else {
                None
            };
        }
        if let Some(stream) = greeted(&link, &facts.dir).await {
            return ByteStream::of_socket(stream).ok();
        }
        if link.answers().await {
            forwarded(&link, &facts.dir).await.and_then(|s| ByteStream::of_socket(s).ok())
        } else {
            None
        }
    }

    async fn open(&self) -> Result<ByteStream> {
        if let Some(stream) = self.known().await {
            return Ok(stream);
        }
        let Inner { host, task, lease, identity, .. } = &*self.inner;
        if host.links.first()?.forwards() {
            let (link, facts) = host.start(task, *lease, Some(identity), &()).await?;
            self.learn(&facts, &link)?;
            if let Some(stream) = forwarded(&link, &facts.dir).await {
                return ByteStream::of_socket(stream);
            }
        }
        let (link, facts, stream) = host.stream(task, *lease, identity).await?;
        self.learn(&facts, &link)?;
        // The outpost is there, and was not reached otherwise. If the connection was lost meanwhile, nothing is said
        // about what it can do.
        if link.answers().await && is_short(&facts.dir) && forwarded(&link, &facts.dir).await.is_none() {
            host.links.first()?.has_no_forwarding();
            link.cancel(&link.local(&facts.dir), &socket(&facts.dir)).await;
        }
        Ok(stream)
    }

    /// Opens a stream, and if the host was reached before, does not give up at once.
    ///
    /// A place that was there is never known to be gone: whoever can't reach it, for whatever reason, does not know what
    /// goes on in it. A name that can't be found may belong to a network that is not up at the moment.
    async fn open_patiently(&self) -> Result<ByteStream> {
        self.try_patiently().await.map_err(|mut error| {
            if error.kind == Kind::Unavailable {
                error.kind = Kind::Disconnected;
            }
            error
        })
    }

    async fn try_patiently(&self) -> Result<ByteStream> {
        let until = Instant::now() + PATIENCE;
        let mut pause = Duration::from_millis(100);
        loop {
            match self.open().await {
                Ok(stream) => {
                    self.state().connected = true;
                    return Ok(stream);
                }
                Err(error) if !self.state().connected => return Err(error),
                Err(error)
                    if !matches!(error.kind, Kind::Disconnected | Kind::TimedOut | Kind::Unavailable) =>
                {
                    return Err(error);
                }
                Err(mut error) if Instant::now() + pause >= until => {
                    error.kind = Kind::Disconnected;
                    return Err(error);
                }
                Err(_) => tokio::time::sleep(pause).await,
            }
            pause = (pause * 2).min(Duration::from_secs(3));
        }
    }

    async fn end(&self) -> Result<()> {
        let Inner { host, task, .. } = &*self.inner;
        let facts = host.look(task).await?;
        self.check(&facts)?;
        let (link, old) = {
            let state = self.state();
            (state.link.clone(), state.facts.dir.clone())
        };
        // No directory means nothing to end. A directory without an outpost is what a killed one left: a new one finds
        // what survived, and ends it.
        if facts.present {
            let outpost = Outpost::new(Arc::new(self.clone()));
            outpost.shutdown().await?;
            outpost.disconnect();
            // It removes its directory as its last act.
            let (_, answers) = host.ask("", &Wish::Wait { dir: &facts.dir }).await?;
            if answers.has("left") {
                let message = format!("{} is still there", facts.dir);
                return Err(Error::new(Kind::TimedOut, "removing the outpost", message)
                    .with_hint("try again; if it stays, look there for what keeps its files"));
            }
        }
        if let Some(link) = link {
            for dir in [&facts.dir, &old] {
                link.cancel(&link.local(dir), &socket(dir)).await;
            }
        }
        Ok(())
    }
}

fn socket(dir: &str) -> String {
    format!("{dir}/{SOCKET}")
}

/// Short enough for the address of a socket, and without what `ssh` takes for the end of a path.
fn is_short(dir: &str) -> bool {
    dir.len() + 1 + SOCKET.len() <= ADDRESS && !dir.contains([':', '[', ']', '%', '$'])
}

/// Has the outpost's socket forwarded, and connects to it.
async fn forwarded(link: &Link, dir: &str) -> Option<UnixStream> {
    if !is_short(dir) {
        return None;
    }
    let local = link.local(dir);
    link.forward(&local, &socket(dir)).await.ok()?;
    greeted(link, dir).await
}

/// A connection through the forwarded socket on which somebody has begun to speak.
async fn greeted(link: &Link, dir: &str) -> Option<UnixStream> {
    let stream = UnixStream::connect(link.local(dir)).await.ok()?;
    tokio::select! {
        readable = tokio::time::timeout(GREET, stream.readable()) => readable.ok()?.ok()?,
        () = link.stuck() => return None,
    }
    // The end is readable too.
    let mut byte = [std::mem::MaybeUninit::uninit(); 1];
    match rustix::net::recv(&stream, &mut byte, rustix::net::RecvFlags::PEEK) {
        Ok(((filled, _), _)) if !filled.is_empty() => Some(stream),
        _ => None,
    }
}

impl Place for SshPlace {
    fn identity(&self) -> Identity {
        self.inner.identity.clone()
    }

    fn connect(&self) -> BoxFuture<'_, Result<ByteStream>> {
        Box::pin(self.open_patiently())
    }

    fn destroy(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.end())
    }

    fn epitaph(&self) -> Option<String> {
        self.state().epitaph.clone()
    }
}
