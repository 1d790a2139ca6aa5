//! The life of the server: start, let callers in, end.

use crate::app::{About, App, now};
use crate::connection::{self, Peer};
use crate::gate::{Door, TcpDoor};
use crate::life::{Life, Phase};
use crate::lock::Lock;
use crate::log;
use crate::mcp;
use crate::paths::Directory;
use crate::routes::{router, table};
use crate::socket::Socket;
use crate::tls::Tls;
use crate::token::Token;
use crate::watch::Watch;
use axum::Router;
use farshell_api::server::ServerStatus;
use farshell_engine::{Error, Kind, Result};
use farshell_keeper::{Backends, Keeper, Options};
use farshell_mcp::Mcp;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

/// How long calls that are under way are waited for when the server stops.
const GRACE: Duration = Duration::from_secs(5);
/// How long connections may take to go after that.
const PARTING: Duration = Duration::from_secs(1);
/// Pause after no connection could be taken: descriptors have run out, say.
const BREATH: Duration = Duration::from_millis(100);
/// Connections over TCP at one time; strangers are among them until they have shown a token.
const MOST_TCP: usize = 256;
/// Time for TLS to agree on keys.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// What a server needs to know.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// `$HERMES_HOME`.
    pub home: PathBuf,
    pub backends: Arc<dyn Backends>,
    /// Addresses to listen on besides the Unix socket.
    pub listen: Vec<SocketAddr>,
    /// Ends by itself when nothing has been alive and nobody connected for so long.
    pub idle: Option<Duration>,
    /// For the addresses in `listen`; those that others can reach need it.
    pub tls: Option<Tls>,
    /// The release, for people.
    pub version: String,
}

/// The runtime that a server wants: one thread. What is worth a thread of its own (the database) has one, and a
/// command that has to go from thread to thread would wait longer than it saves.
///
/// # Errors
/// The system has no descriptors left.
pub fn runtime() -> Result<Runtime> {
    Builder::new_current_thread().enable_all().build().map_err(|e| Error::io("starting the runtime", e))
}

/// Serves a home until it is told to stop, or has nothing more to do. `ready` is called when callers can connect.
///
/// # Errors
/// Another server has this home ([`Kind::AlreadyExists`], with its pid), or it can't listen, or its state can't be
/// opened.
pub async fn serve(options: ServeOptions, ready: impl FnOnce(&ServerStatus)) -> Result<()> {
    // Before anything is touched.
    check(&options)?;
    let acceptor = options.tls.as_ref().map(Tls::acceptor).transpose()?;
    let directory = Directory::open(&options.home)?;
    let lock = Lock::take(&directory).await?;
    let mut signals = Signals::new()?;
    let listeners = listen(&options.listen).await?;
    let token = if listeners.is_empty() { None } else { Some(Arc::new(Token::open(&directory, &lock)?)) };
    let keeper_options = Options { home: options.home.clone(), backends: Arc::clone(&options.backends) };
    let keeper = Keeper::open(keeper_options).await?;
    let socket = Socket::bind(&directory, &lock)?;
    let about = About {
        version: options.version,
        home: options.home,
        socket: directory.paths.socket.clone(),
        listen: listeners.iter().map(|(address, _)| *address).collect(),
        idle: options.idle,
        started: Instant::now(),
        started_at: now(),
    };
    let life = Life::new();
    let tools = farshell_tools::Tools::new(keeper.clone()).while_it({
        let life = Arc::clone(&life);
        move || life.phase() < Phase::Stopping
    });
    let house = Arc::new(mcp::Home(Arc::clone(&life)));
    let mcp = Mcp::new(tools.clone(), keeper.clone(), house, about.version.clone());
    let app = Arc::new(App { keeper, tools, mcp, files: Default::default(), life, about });
    let porter = Porter { router: router(&app, table()), app: Arc::clone(&app) };
    for (address, listener) in listeners {
        let Some(token) = token.clone() else { continue };
        let door = Arc::new(TcpDoor { address, tls: acceptor.is_some(), token });
        tokio::spawn(porter.clone().accept_tcp(listener, door, acceptor.clone()));
    }
    let status = app.status().await?;
    log::line(format_args!("started: version {}, socket {}", status.version, status.socket));
    for address in &status.listen {
        log::line(format_args!("listening on {address}"));
    }
    for warning in &status.warnings {
        log::line(warning);
    }
    ready(&status);
    let why = porter.until_end(socket, &directory, &lock, &mut signals).await;
    match &why {
        Ok(why) => log::line(format_args!("stopping: {why}")),
        Err(error) => log::line(format_args!("stopping: {error}")),
    }
    app.life.advance(Phase::Stopping);
    app.keeper.stop_asking();
    let ended = end(&app).await.and(why.map(drop));
    // From here on another server may begin.
    drop(lock);
    match &ended {
        Ok(()) => log::line("stopped"),
        Err(error) => log::line(format_args!("stopped with an error: {error}")),
    }
    ended
}

/// Others must not be able to listen in, and nobody may hear the token.
fn check(options: &ServeOptions) -> Result<()> {
    let what = "preparing to listen";
    if let Some(address) = options.listen.iter().find(|address| !address.ip().is_loopback())
        && options.tls.is_none()
    {
        let message = format!("{address} can be reached from other machines, and TLS is not set up");
        return Err(Error::new(Kind::Invalid, what, message).with_hint(
            "give a certificate and its key, or listen on 127.0.0.1 and put a TLS proxy in front",
        ));
    }
    if options.tls.is_some() && options.listen.is_empty() {
        let message = "a certificate is given, but no address to listen on";
        return Err(Error::new(Kind::Invalid, what, message));
    }
    Ok(())
}

async fn listen(addresses: &[SocketAddr]) -> Result<Vec<(SocketAddr, TcpListener)>> {
    let mut listeners = Vec::new();
    for address in addresses {
        let io = |error| Error::io(format!("listening on {address}"), error);
        let listener = TcpListener::bind(address).await.map_err(io)?;
        listeners.push((listener.local_addr().map_err(io)?, listener));
    }
    Ok(listeners)
}

/// What ends a server from outside.
struct Signals {
    term: Signal,
    int: Signal,
    hup: Signal,
}

impl Signals {
    fn new() -> Result<Self> {
        let listen = |kind| signal(kind).map_err(|e| Error::io("listening to signals", e));
        Ok(Self {
            term: listen(SignalKind::terminate())?,
            int: listen(SignalKind::interrupt())?,
            hup: listen(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "TERM",
            _ = self.int.recv() => "INT",
            _ = self.hup.recv() => "HUP",
        }
    }
}

/// Takes connections.
#[derive(Clone, Debug)]
struct Porter {
    app: Arc<App>,
    router: Router,
}

impl Porter {
    /// Lets callers in until somebody or nothing wants the server any more. The socket is gone then.
    async fn until_end(
        &self,
        mut socket: Socket,
        directory: &Directory,
        lock: &Lock,
        signals: &mut Signals,
    ) -> Result<String> {
        let life = &self.app.life;
        let mut watch = Watch::new(directory);
        loop {
            let why = {
                let mut quiet = pin!(self.quiet());
                let mut troubled = false;
                let mut stopped = pin!(life.reached(Phase::Stopping));
                let mut gone = pin!(watch.gone(directory, lock));
                loop {
                    tokio::select! {
                        accepted = socket.accept() => match accepted {
                            Ok(stream) => {
                                troubled = false;
                                self.accept_unix(stream);
                            }
                            Err(error) => breathe(&mut troubled, &error).await,
                        },
                        () = &mut stopped => break Some("asked to".to_owned()),
                        () = &mut gone => break Some("its home was removed".to_owned()),
                        name = signals.next() => break Some(format!("signal {name}")),
                        // Somebody may have come in the same moment.
                        () = &mut quiet => match life.connections() {
                            0 => break None,
                            _ => quiet.set(self.quiet()),
                        },
                    }
                }
            };
            // Those at the door are answered in any case.
            if let Some(why) = why {
                // First, so that they are told to ask the next server.
                life.advance(Phase::Stopping);
                socket.close(directory).into_iter().for_each(|stream| self.accept_unix(stream));
                return Ok(why);
            }
            let waiting = socket.close(directory);
            if waiting.is_empty() {
                return Ok("nothing to do".into());
            }
            // Somebody came at the last moment: there is something to do.
            socket = Socket::bind(directory, lock)?;
            waiting.into_iter().for_each(|stream| self.accept_unix(stream));
        }
    }

    /// Returns when nothing was alive and nobody connected for long enough. Nothing ticks meanwhile.
    async fn quiet(&self) {
        let Some(idle) = self.app.about.idle else { return std::future::pending().await };
        let life = &self.app.life;
        loop {
            life.connected(false).await;
            let alone = async {
                tokio::join!(self.app.keeper.idle_for(idle), tokio::time::sleep(idle));
            };
            tokio::select! {
                () = alone => return,
                () = life.connected(true) => {}
            }
        }
    }

    fn accept_unix(&self, stream: UnixStream) {
        let ours = rustix::process::geteuid().as_raw();
        // The modes of the socket and its directory say the same; this holds if somebody has changed them.
        match stream.peer_cred() {
            Ok(who) if who.uid() == ours || who.uid() == 0 => {}
            Ok(who) => return log::line(format_args!("refused a connection of user {}", who.uid())),
            Err(error) => {
                return log::line(format_args!("refused a connection of nobody knows whom: {error}"));
            }
        }
        let peer = Peer::new(Door::Unix, &self.app.life);
        tokio::spawn(connection::serve(stream, Arc::clone(&self.app), self.router.clone(), peer));
    }

    async fn accept_tcp(self, listener: TcpListener, door: Arc<TcpDoor>, tls: Option<TlsAcceptor>) {
        let seats = Arc::new(Semaphore::new(MOST_TCP));
        let life = Arc::clone(&self.app.life);
        let accept = async {
            let mut troubled = false;
            loop {
                let Ok(seat) = Arc::clone(&seats).acquire_owned().await else { return };
                match listener.accept().await {
                    Ok((stream, _)) => {
                        troubled = false;
                        let (porter, door, tls) = (self.clone(), Arc::clone(&door), tls.clone());
                        tokio::spawn(async move {
                            porter.serve_tcp(stream, door, tls).await;
                            drop(seat);
                        });
                    }
                    Err(error) => breathe(&mut troubled, &error).await,
                }
            }
        };
        tokio::select! {
            () = accept => {}
            () = life.reached(Phase::Stopping) => {}
        }
    }

    async fn serve_tcp(self, stream: TcpStream, door: Arc<TcpDoor>, tls: Option<TlsAcceptor>) {
        let peer = Peer::new(Door::Tcp(door), &self.app.life);
        let _ = stream.set_nodelay(true);
        // A machine that has vanished does not say goodbye.
        let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
        let Self { app, router } = self;
        match tls {
            None => connection::serve(stream, app, router, peer).await,
            Some(tls) => {
                // Strangers and their faults are not worth a line in the log.
                if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
                    connection::serve(stream, app, router, peer).await;
                }
            }
        }
    }
}

/// After a connection could not be taken. The log hears of the first of many.
async fn breathe(troubled: &mut bool, error: &io::Error) {
    if !std::mem::replace(troubled, true) {
        log::line(format_args!("connections can't be taken: {error}"));
    }
    tokio::time::sleep(BREATH).await;
}

/// Long calls and streams have heard of it; short ones are finished, and then everything is let go in order.
async fn end(app: &App) -> Result<()> {
    let _ = tokio::time::timeout(GRACE, app.life.connected(false)).await;
    app.life.advance(Phase::Closed);
    if tokio::time::timeout(PARTING, app.life.connected(false)).await.is_err() {
        log::line(format_args!("{} connections were dropped", app.life.connections()));
    }
    app.keeper.close(app.life.removes_environments()).await
}
