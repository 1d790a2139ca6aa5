//! Connections: to the control plane, to the router with TLS and without, and to the switches.

use crate::calls::{Calls, Kill, Plane};
use crate::delay;
use crate::options::Options;
use crate::switches;
use crate::world::World;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::io::{self, Write};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{self, pki_types::PrivateKeyDer};

/// Enough that no stream waits for a window.
const WINDOW: u32 = 16 << 20;
/// Open files at most; what runs in sandboxes gets the same.
const FILES: u64 = 65_536;
/// How a TLS connection begins; one without begins with the P of HTTP/2's preface.
const HANDSHAKE: u8 = 0x16;

/// Asks for another port for the router; the answer is its address.
pub(crate) type Moves = mpsc::Sender<oneshot::Sender<String>>;

/// Serves until standard input ends.
///
/// # Errors
/// It can't listen.
pub fn run(options: Options) -> io::Result<()> {
    // Each process has files open for its input and output.
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let wish = rustix::process::Rlimit { current: Some(most.maximum.unwrap_or(FILES).min(FILES)), ..most };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, wish);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build()?;
    let served = runtime.block_on(serve(options));
    // A thread still waits for input, which may never come.
    runtime.shutdown_background();
    served
}

async fn serve(options: Options) -> io::Result<()> {
    let control = TcpListener::bind(&options.listen).await?;
    let switch = TcpListener::bind("127.0.0.1:0").await?;
    let addresses = (control.local_addr()?, switch.local_addr()?);
    let world = World::new(options)?;
    let calls = Calls::new(&world).map_err(io::Error::other)?;
    let tls = acceptor()?;
    let (moves, mut moving) = mpsc::channel(1);
    // Dropping the sender ends the listener and its connections.
    let forever = watch::Sender::new(());
    tokio::spawn(accept(
        control,
        Plane::Control,
        Arc::clone(&world),
        Arc::clone(&calls),
        tls.clone(),
        forever.subscribe(),
    ));
    let mut router = open_router(&world, &calls, &tls).await?;
    let switches = switches::router(Arc::clone(&world), moves);
    tokio::spawn(async move { axum::serve(switch, switches).await });
    {
        let mut out = io::stdout().lock();
        writeln!(out, "http://{}\nhttp://{}", addresses.0, addresses.1)?;
        out.flush()?;
    }
    let mut stdin = tokio::io::stdin();
    let mut rest = [0; 64];
    let ending = async { while stdin.read(&mut rest).await.is_ok_and(|n| n > 0) {} };
    tokio::pin!(ending);
    let mut term = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    loop {
        tokio::select! {
            () = &mut ending => break,
            _ = term.recv() => break,
            _ = interrupt.recv() => break,
            Some(answer) = moving.recv() => {
                let next = open_router(&world, &calls, &tls).await?;
                drop(std::mem::replace(&mut router, next));
                let _ = answer.send(world.router.borrow().clone());
            }
        }
    }
    world.end().await;
    Ok(())
}

/// Another port; the one before goes when what was returned for it is dropped.
async fn open_router(
    world: &Arc<World>,
    calls: &Arc<Calls>,
    tls: &TlsAcceptor,
) -> io::Result<watch::Sender<()>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    // Clients of some releases take nothing but https, and then speak without TLS to a server on loopback.
    world.router.send_replace(format!("https://{}", listener.local_addr()?));
    let life = watch::Sender::new(());
    let (world, calls) = (Arc::clone(world), Arc::clone(calls));
    tokio::spawn(accept(listener, Plane::Router, world, calls, tls.clone(), life.subscribe()));
    Ok(life)
}

async fn accept(
    listener: TcpListener,
    plane: Plane,
    world: Arc<World>,
    calls: Arc<Calls>,
    tls: TlsAcceptor,
    mut life: watch::Receiver<()>,
) {
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(_) => continue,
            },
            _ = life.changed() => return,
        };
        let _ = stream.set_nodelay(true);
        let (world, calls, tls, mut life) =
            (Arc::clone(&world), Arc::clone(&calls), tls.clone(), life.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = connection(stream, plane, &world, calls, &tls) => {}
                _ = life.changed() => {}
            }
        });
    }
}

async fn connection(stream: TcpStream, plane: Plane, world: &World, calls: Arc<Calls>, tls: &TlsAcceptor) {
    let mut first = [0];
    if stream.peek(&mut first).await.ok() != Some(1) {
        return;
    }
    let latency = *world.latency.borrow();
    if latency.is_zero() {
        either(stream, first[0], plane, calls, tls).await;
    } else {
        either(delay::far(stream, latency), first[0], plane, calls, tls).await;
    }
}

async fn either<S>(stream: S, first: u8, plane: Plane, calls: Arc<Calls>, tls: &TlsAcceptor)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    if first != HANDSHAKE {
        return speak(stream, plane, calls).await;
    }
    if let Ok(stream) = tls.accept(stream).await {
        speak(stream, plane, calls).await;
    }
}

async fn speak<S>(stream: S, plane: Plane, calls: Arc<Calls>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let kill = Kill(Arc::new(Notify::new()));
    let handle = kill.clone();
    let service =
        hyper::service::service_fn(move |request| Arc::clone(&calls).answer(plane, handle.clone(), request));
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW);
    tokio::select! {
        _ = builder.serve_connection(TokioIo::new(stream), service) => {}
        () = kill.0.notified() => {}
    }
}

/// A certificate of its own, which nobody else has signed.
fn acceptor() -> io::Result<TlsAcceptor> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()])
        .map_err(io::Error::other)?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(io::Error::other)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .map_err(io::Error::other)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
