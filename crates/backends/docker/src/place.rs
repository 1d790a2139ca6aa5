//! [`Place`] in a container.
//!
//! # From a container to a stream
//! 1. The socket in the shared directory, if there is one that answers. This is all that a running container needs:
//!    the engine is not asked.
//! 2. Otherwise the engine is: a stopped container is started, a paused one goes on, one that is gone is an error.
//! 3. Then the socket again, once it appears. Where the engine does not really share files with this machine, though
//!    it takes their names, there never is one: then, and where nothing is shared, the stream is an exec.

use crate::describe::{epitaph, reason};
use crate::engine::{Container, Engine};
use crate::error::{hint_for, is_status, is_unreachable, refusal};
use crate::layout::{Layout, SOCKET, Way};
use crate::stream::Output;
use crate::survey;
use bollard::models::ExecConfig;
use bollard::query_parameters::{StartContainerOptions, StopContainerOptions};
use farshell_engine::backend::{BoxFuture, ByteStream, Identity, Limit, Place};
use farshell_engine::shared::{dial, is_hostile};
use farshell_engine::{Error, Kind, Result};
use farshell_protocol::frame::MARKER;
use hyper_util::rt::TokioIo;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::Instant;

const WHAT: &str = "connecting to the container";
/// How long a container may take until its outpost listens. Starting takes a fifth of a second on an idle machine.
const START: Duration = Duration::from_secs(30);
/// How long a socket may take to appear next to a container that runs, before an exec is tried.
const APPEAR: Duration = Duration::from_secs(5);
/// An outpost greets whoever connects at once. One that does not is paused, or so busy that asking costs nothing.
const GREET: Duration = Duration::from_millis(300);
/// How often a container may be found going down: two seconds, with the pauses between.
const ROUNDS: u32 = 40;
/// How much of what an engine says in the place of an outpost is kept.
const COMPLAINT: u64 = 1000;
/// How long a container may take to end what runs in it.
const STOP: Duration = Duration::from_secs(15);
/// Output that an exec brings is read in pieces of this size.
const PIECE: usize = 256 << 10;

/// One container.
#[derive(Debug)]
pub(crate) struct DockerPlace {
    engine: Arc<Engine>,
    layout: Layout,
    id: String,
    way: Way,
    arch: String,
    /// It was found put away.
    asleep: bool,
    /// It has run since.
    woken: AtomicBool,
    /// The container is removed by the engine when it stops.
    ephemeral: bool,
    limits: Vec<Limit>,
    /// The shared directory has no socket that can be used, ever.
    no_socket: AtomicBool,
    gone: AtomicBool,
    epitaph: Mutex<Option<String>>,
}

impl DockerPlace {
    pub(crate) fn new(
        engine: Arc<Engine>,
        layout: Layout,
        container: &Container,
        limits: Vec<Limit>,
    ) -> Self {
        let way = container.label(crate::layout::WAY).and_then(Way::parse).unwrap_or(Way::Uploaded);
        Self {
            engine,
            layout,
            id: container.id.clone(),
            way,
            arch: container.label(crate::layout::ARCH).unwrap_or(std::env::consts::ARCH).to_owned(),
            asleep: !matches!(container.state.status.as_str(), "running" | "paused" | "restarting"),
            woken: AtomicBool::new(false),
            ephemeral: container.host_config.auto_remove,
            limits,
            no_socket: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            epitaph: Mutex::new(None),
        }
    }

    fn short(&self) -> &str {
        self.id.get(..12).unwrap_or(&self.id)
    }

    fn uses_socket(&self) -> bool {
        self.way == Way::Shared && !self.no_socket.load(Ordering::Relaxed)
    }

    fn note(&self, epitaph: String) {
        *self.epitaph.lock().unwrap_or_else(PoisonError::into_inner) = Some(epitaph);
    }

    /// The engine knows it no more.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    fn was_removed(&self) -> Error {
        self.gone.store(true, Ordering::Relaxed);
        let text = format!("the container {} was removed", self.short());
        self.note(text.clone());
        Error::new(Kind::Unavailable, WHAT, text)
    }

    /// Looks at the container. An engine that can't be asked is no sign that it is gone.
    async fn look(&self) -> Result<Container> {
        match self.engine.container(&self.id).await {
            Ok(Some(container)) => Ok(container),
            Ok(None) => Err(self.was_removed()),
            Err(mut error) => {
                error.kind = Kind::Disconnected;
                Err(error)
            }
        }
    }

    /// Says what is wrong with a request about a container that runs. An engine that can't be asked, or fails, is no
    /// sign that it does not.
    fn failed(&self, operation: impl Into<String>, error: bollard::errors::Error) -> Error {
        out_of_reach(self.engine.explain(operation, error))
    }

    /// Makes the container run. True if it did not. `known` is what it was found to be a moment ago.
    pub(crate) async fn wake(&self, mut known: Option<&Container>) -> Result<bool> {
        let deadline = Instant::now() + START;
        let mut started = false;
        loop {
            let container = match known.take() {
                Some(container) => container,
                None => &self.look().await?,
            };
            match container.state.status.as_str() {
                "running" => {
                    self.woken.store(true, Ordering::Relaxed);
                    return Ok(started);
                }
                "paused" => match self.engine.api.unpause_container(&self.id).await {
                    Ok(()) => {}
                    Err(error) if gone_or_changing(&error) => {}
                    Err(error) => return Err(self.failed("letting the container go on", error)),
                },
                "exited" | "stopped" if started => return Err(self.stopped_at_once(container).await),
                "created" | "exited" | "configured" | "stopped" => {
                    // The end of one that was found put away is no news.
                    let news = !self.asleep || self.woken.load(Ordering::Relaxed);
                    if container.state.status != "created" && news {
                        self.note(epitaph(container));
                    }
                    started = true;
                    if self.start().await? {
                        self.woken.store(true, Ordering::Relaxed);
                        return Ok(true);
                    }
                }
                "dead" => {
                    let message = format!("container {} is dead: {}", self.short(), reason(&container.state));
                    return Err(Error::new(Kind::Unavailable, WHAT, message));
                }
                // Being restarted, stopped or removed: what comes of it shows soon.
                other if Instant::now() >= deadline => {
                    let message = format!("container {} stays {other:?}", self.short());
                    return Err(Error::new(Kind::Unavailable, WHAT, message));
                }
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// False: somebody else did something to it, and another look tells what.
    async fn start(&self) -> Result<bool> {
        if self.way == Way::Shared {
            self.layout.make_shared()?;
        }
        match self.engine.api.start_container(&self.id, None::<StartContainerOptions>).await {
            Ok(()) => Ok(true),
            Err(error) if gone_or_changing(&error) => Ok(false),
            Err(error) => {
                let away = is_unreachable(&error);
                let mut error = self.engine.explain(format!("starting container {}", self.short()), error);
                error.kind = match error.kind {
                    _ if away => Kind::Disconnected,
                    // Neither is final.
                    kind @ (Kind::Exhausted | Kind::TimedOut | Kind::Disconnected) => kind,
                    // Whatever the engine has against it: it does not run, and can't.
                    _ => Kind::Unavailable,
                };
                Err(error)
            }
        }
    }

    async fn stopped_at_once(&self, container: &Container) -> Error {
        let said = survey::last_words(&self.engine, &self.id).await;
        let mut message =
            format!("the container {} stopped at once: {}", self.short(), reason(&container.state));
        if !said.is_empty() {
            message = format!("{message}: {said}");
        }
        let hint = hint_for(&message);
        let error = Error::new(Kind::Unavailable, WHAT, message);
        match hint {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    }

    /// One try at the socket. `None`: nobody answers.
    async fn knock(&self) -> Result<Option<UnixStream>> {
        match dial(&self.layout.socket_dir(), SOCKET).await {
            Ok(stream) => {
                let greeted = tokio::time::timeout(GREET, stream.readable()).await.is_ok();
                Ok(greeted.then_some(stream))
            }
            Err(error) if is_hostile(&error) => Err(Error::new(Kind::Unavailable, WHAT, error.to_string())
                .with_hint("remove the environment: what is kept of its files stays")),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(Error::io(WHAT, error)
                .with_hint("something in the container changed the rights of the outpost's socket")),
            Err(_) => Ok(None),
        }
    }

    /// A stream through the socket, once there is one. What is wrong with the container is found out meanwhile.
    async fn by_socket(&self) -> Result<Waited> {
        let deadline = Instant::now() + APPEAR;
        let mut pause = Duration::from_micros(500);
        let mut look = Instant::now() + Duration::from_millis(50);
        loop {
            if let Some(stream) = self.knock().await? {
                return Ok(Waited::Reached(stream));
            }
            if Instant::now() >= look {
                look = Instant::now() + Duration::from_millis(250);
                let container = self.look().await?;
                match container.state.status.as_str() {
                    "running" | "restarting" => {}
                    _ => return Ok(Waited::Stopped(Box::new(container))),
                }
            }
            if Instant::now() >= deadline {
                return Ok(Waited::NoSocket);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }

    /// A stream by an exec, or why there was none at this moment.
    async fn by_exec(&self) -> Result<std::result::Result<ByteStream, String>> {
        let mut command = vec![Way::program(&self.arch), "join".into()];
        command.extend(self.way.door());
        let options = ExecConfig {
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            cmd: Some(command),
            working_dir: Some("/".into()),
            ..ExecConfig::default()
        };
        let exec = match self.engine.api.create_exec(&self.id, options).await {
            Ok(exec) => exec,
            Err(error) => return down(self.failed("opening a stream into the container", error)),
        };
        let stream = match self.engine.start_exec(&exec.id).await {
            Ok(stream) => TokioIo::new(stream),
            Err(error) => return down(error),
        };
        let (read, write) = tokio::io::split(stream);
        let mut read = Output::new(BufReader::with_capacity(PIECE, read));
        // An outpost greets at once. An engine that could not run the exec after all says so in its place.
        let mut first = [0];
        match tokio::time::timeout(START, read.read(&mut first)).await {
            Ok(Ok(1)) if first[0] == MARKER => {}
            Ok(Ok(1)) => {
                let mut said = first.to_vec();
                let mut rest = read.take(COMPLAINT);
                let _ = tokio::time::timeout(Duration::from_secs(1), rest.read_to_end(&mut said)).await;
                return Ok(Err(String::from_utf8_lossy(&said).trim().to_owned()));
            }
            Ok(Ok(_)) => return Ok(Err("the outpost did not answer".into())),
            Ok(Err(error)) => return Ok(Err(error.to_string())),
            Err(_) => return Ok(Err("the outpost did not answer in time".into())),
        }
        Ok(Ok(ByteStream::after(first.to_vec(), read, write, ())))
    }

    async fn open(&self) -> Result<ByteStream> {
        if self.uses_socket()
            && let Some(stream) = self.knock().await?
        {
            return ByteStream::of_socket(stream);
        }
        let mut rounds = ROUNDS;
        loop {
            rounds -= 1;
            let started = self.wake(None).await?;
            if self.uses_socket() {
                match self.by_socket().await? {
                    Waited::Reached(stream) => return ByteStream::of_socket(stream),
                    Waited::Stopped(container) if started || rounds == 0 => {
                        return Err(self.stopped_at_once(&container).await);
                    }
                    // It was going down as we looked.
                    Waited::Stopped(_) => continue,
                    Waited::NoSocket => {}
                }
            }
            match self.by_exec().await? {
                Ok(stream) => {
                    self.no_socket.store(true, Ordering::Relaxed);
                    return Ok(stream);
                }
                Err(said) if rounds == 0 => return Err(Error::new(Kind::Unavailable, WHAT, said)),
                // It was going down as we looked.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }
}

/// An exec that was refused because the container does not run, or not at the moment.
fn down(error: Error) -> Result<std::result::Result<ByteStream, String>> {
    let said = error.message.to_lowercase();
    let changed = ["not running", "is paused", "no such container"];
    if error.kind == Kind::Busy || changed.iter().any(|text| said.contains(text)) {
        return Ok(Err(error.message));
    }
    Err(out_of_reach(error))
}

/// What an engine that is not there or fails leaves unsaid of a container: whether it runs.
fn out_of_reach(mut error: Error) -> Error {
    if error.kind == Kind::Unavailable {
        error.kind = Kind::Disconnected;
    }
    error
}

/// What waiting for the socket came to.
enum Waited {
    Reached(UnixStream),
    /// The container does not run any more, or not at the moment.
    Stopped(Box<Container>),
    /// The container runs, and there is no socket that answers.
    NoSocket,
}

impl Place for DockerPlace {
    fn identity(&self) -> Identity {
        Identity { name: self.short().to_owned(), id: self.id.clone() }
    }

    fn connect(&self) -> BoxFuture<'_, Result<ByteStream>> {
        Box::pin(self.open())
    }

    fn destroy(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            survey::remove(&self.engine, &self.id).await?;
            self.layout.remove_shared();
            Ok(())
        })
    }

    fn suspend(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            if self.ephemeral {
                return self.destroy().await;
            }
            let options = StopContainerOptions {
                t: Some(i32::try_from(STOP.as_secs()).unwrap_or(i32::MAX)),
                ..StopContainerOptions::default()
            };
            match self.engine.api.stop_container(&self.id, Some(options)).await {
                Ok(()) => Ok(()),
                Err(error) if is_status(&error, 404) => Ok(()),
                Err(error) => Err(self.engine.explain(format!("stopping container {}", self.short()), error)),
            }
        })
    }

    fn limits(&self) -> Vec<Limit> {
        self.limits.clone()
    }

    fn sleeps(&self) -> bool {
        self.asleep
    }

    fn epitaph(&self) -> Option<String> {
        self.epitaph.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The container is not what it was a moment ago.
fn gone_or_changing(error: &bollard::errors::Error) -> bool {
    refusal(error).is_some_and(|(status, message)| {
        status == 404 && message.to_lowercase().contains("no such container")
            || status == 409
            || message.contains("is not paused")
            || message.contains("marked for removal")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_fails_is_no_sign_of_a_containers_end() {
        let said = |kind, message: &str| match down(Error::new(kind, "x", message)) {
            Ok(Ok(_)) => unreachable!("an error is no stream"),
            Ok(Err(said)) => said,
            Err(error) => format!("{}: {}", error.kind.name(), error.message),
        };
        assert_eq!(said(Kind::Unavailable, "containerd is away"), "disconnected: containerd is away");
        assert_eq!(said(Kind::PermissionDenied, "no"), "permission_denied: no");
        // Another look tells what it is now.
        for message in ["Container x is not running", "Container x is paused", "No such container: x"] {
            assert_eq!(said(Kind::NotFound, message), message);
        }
        assert_eq!(said(Kind::Busy, "marked for removal"), "marked for removal");
    }
}
