//! One connection: frames out, frames in, calls in between.
//!
//! A frame is written by whoever sends it; what the stream does not take at once is left to a task, the writer.
//! Another task, the reader, hands each frame that comes to the call it belongs to. A call is a channel that ends
//! with the response, or with the reason why the connection did.

use crate::backend::ByteStream;
use crate::error::{Error, Kind, Result};
use farshell_protocol::flow::{Credit, INITIAL_CREDIT, Window, encode_credit};
use farshell_protocol::frame::{self, Decoder};
use farshell_protocol::hello::{Hello, OutpostIdentity};
use farshell_protocol::message::{from_bytes, to_bytes};
use farshell_protocol::{ErrorKind, Event, Failure, Kind as FrameKind, Reply, Request};
use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, mpsc};

/// How long the other side may take to say hello.
const HELLO: Duration = Duration::from_secs(30);
/// Frames of which more than this is missing are read without a detour.
const DIRECT: usize = 16 << 10;
/// Bytes asked of the stream at a time.
const READ: usize = 256 << 10;
/// What may wait for one call here before the outpost is at fault. Data is paid for, [`INITIAL_CREDIT`] at a time; lists and
/// matches of a search are not.
const MOST_DATA: usize = 4 * INITIAL_CREDIT as usize;
const MOST_EVENTS: usize = 64 << 20;

/// What arrives for a call.
#[derive(Debug)]
pub(crate) enum Incoming {
    Data(Vec<u8>),
    /// With its size.
    Event(Event, usize),
    Response(std::result::Result<Reply, Failure>),
    /// The outpost grants more upload.
    Credit(u64),
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub identity: OutpostIdentity,
    /// That of the messages both sides speak.
    pub version: u16,
    shared: Arc<Shared>,
    next: AtomicU32,
    tasks: [tokio::task::AbortHandle; 2],
}

struct Shared {
    state: Mutex<State>,
    out: Mutex<Outgoing>,
    /// There is something for the writer to do.
    left_over: Notify,
}

/// The way out.
struct Outgoing {
    stream: Box<dyn AsyncWrite + Send + Unpin>,
    /// What the stream did not take at once.
    waiting: VecDeque<u8>,
    /// The stream may still hold back what it took.
    unflushed: bool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("state", &self.state).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct State {
    calls: HashMap<u32, Receiving>,
    /// Why the connection ended.
    ended: Option<Ended>,
}

/// Where a call gets what comes for it.
#[derive(Debug)]
struct Receiving {
    to: mpsc::UnboundedSender<Incoming>,
    waiting: Arc<Waiting>,
}

/// Bytes that have come for a call and that nobody has dealt with.
#[derive(Debug, Default)]
struct Waiting {
    data: AtomicUsize,
    events: AtomicUsize,
}

/// Why a connection ended.
#[derive(Clone, Debug)]
pub(crate) enum Ended {
    /// It broke, or was closed. Another one may work.
    Lost(String),
    /// The other side does not keep to the protocol, and would not on another connection.
    Broken(String),
}

impl Ended {
    fn error(&self) -> Error {
        match self {
            Self::Lost(why) => lost(why),
            Self::Broken(why) => {
                let message = format!("it does not keep to the protocol: {why}");
                Error::new(Kind::Protocol, "talking to the outpost", message)
                    .with_hint("stop the environment so that the next call starts an outpost of this release")
            }
        }
    }
}

impl Outgoing {
    /// Writes as much as the stream takes now.
    fn push(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        while !self.waiting.is_empty() {
            let n = ready!(Pin::new(&mut self.stream).poll_write(cx, self.waiting.as_slices().0))?;
            if n == 0 {
                return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into()));
            }
            self.waiting.drain(..n);
        }
        if self.unflushed {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }
}

impl Shared {
    /// Sends a frame: at once, if nothing waits before it and the stream has room.
    fn send(&self, frame: &[u8]) -> Result<()> {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let first = out.waiting.is_empty() && !out.unflushed;
        out.unflushed = true;
        let mut rest = frame;
        if first {
            // Nobody is woken by this attempt: if the stream has no room, the writer tries again and waits for it.
            let mut cx = Context::from_waker(Waker::noop());
            while !rest.is_empty() {
                match Pin::new(&mut out.stream).poll_write(&mut cx, rest) {
                    Poll::Ready(Ok(n)) if n > 0 => rest = &rest[n..],
                    Poll::Pending => break,
                    Poll::Ready(Ok(_)) => return Err(self.broken("it takes no more bytes".into())),
                    Poll::Ready(Err(error)) => return Err(self.broken(error.to_string())),
                }
            }
            if rest.is_empty() && Pin::new(&mut out.stream).poll_flush(&mut cx).is_ready() {
                out.unflushed = false;
                return Ok(());
            }
        }
        out.waiting.extend(rest);
        drop(out);
        self.left_over.notify_one();
        Ok(())
    }

    fn broken(&self, why: String) -> Error {
        let error = lost(&why);
        self.end(Ended::Lost(why));
        error
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, why: Ended) {
        let mut state = self.lock();
        state.ended.get_or_insert(why);
        // Their receivers see the end of the channel.
        state.calls.clear();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}

impl Connection {
    /// Says hello on a fresh stream.
    pub(crate) async fn open(stream: ByteStream) -> Result<Self> {
        let ByteStream { mut read, mut write } = stream;
        let failed = |message: String| Error::new(Kind::Disconnected, "greeting the outpost", message);
        let mut hello = Vec::new();
        frame::encode(&mut hello, FrameKind::Hello, 0, &to_bytes(&Hello::engine()));
        let mut decoder = Decoder::new();
        let greeting = async {
            write.write_all(&hello).await.map_err(|e| failed(e.to_string()))?;
            write.flush().await.map_err(|e| failed(e.to_string()))?;
            loop {
                match decoder.next_frame() {
                    Ok(Some(f)) => return Ok((f.kind, f.payload.to_vec())),
                    Ok(None) => {}
                    Err(error) => {
                        return Err(Error::new(Kind::Protocol, "greeting the outpost", error.to_string())
                            .with_hint("something other than an outpost answered; a login banner or a wrapper may print text"));
                    }
                }
                let n = read.read(decoder.space(4096)).await.map_err(|e| failed(e.to_string()))?;
                if n == 0 {
                    return Err(failed("it closed the connection".into()));
                }
                decoder.filled(n);
            }
        };
        let (kind, payload) = tokio::time::timeout(HELLO, greeting).await.map_err(|_| {
            Error::new(Kind::TimedOut, "greeting the outpost", format!("no answer in {} s", HELLO.as_secs()))
        })??;
        let protocol = |message: String| Error::new(Kind::Protocol, "greeting the outpost", message);
        if kind != FrameKind::Hello {
            return Err(protocol("its first frame is not a hello".into()));
        }
        let theirs: Hello = from_bytes(&payload).map_err(|e| protocol(e.to_string()))?;
        let version = Hello::engine().agree(&theirs).map_err(|e| {
            protocol(e.to_string())
                .with_hint("stop the environment so that the next call starts an outpost of this release")
        })?;
        let identity = theirs.outpost.ok_or_else(|| protocol("the other side is not an outpost".into()))?;

        let out = Outgoing { stream: write, waiting: VecDeque::new(), unflushed: false };
        let shared =
            Arc::new(Shared { state: Mutex::default(), out: Mutex::new(out), left_over: Notify::new() });
        let writer = tokio::spawn(write_left_over(Arc::clone(&shared)));
        let reader = tokio::spawn(read_frames(read, decoder, Arc::clone(&shared)));
        let tasks = [writer.abort_handle(), reader.abort_handle()];
        Ok(Self { identity, version, shared, next: AtomicU32::new(1), tasks })
    }

    /// Ends it here and now; calls that are under way see that.
    pub(crate) fn close(&self) {
        for task in &self.tasks {
            task.abort();
        }
        self.shared.end(Ended::Lost("it was closed on this side".to_owned()));
        // Calls that are not dropped yet hold on to the rest, but the other side is to see the end now.
        let mut out = self.shared.out.lock().unwrap_or_else(PoisonError::into_inner);
        out.stream = Box::new(tokio::io::sink());
        out.waiting.clear();
    }

    /// How many calls were made, if none is under way.
    pub(crate) fn idle(&self) -> Option<u32> {
        self.shared.lock().calls.is_empty().then(|| self.next.load(Ordering::Relaxed))
    }

    /// Ends it, unless a call is under way. Whoever wants to make one from here on finds it closed.
    pub(crate) fn close_if_idle(&self) -> bool {
        {
            let mut state = self.shared.lock();
            if !state.calls.is_empty() {
                return false;
            }
            state.ended.get_or_insert_with(|| Ended::Lost("nobody used it".to_owned()));
        }
        self.close();
        true
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.shared.lock().ended.is_some()
    }

    /// A call that has nothing but an answer.
    pub(crate) async fn ask(&self, request: &Request) -> Result<std::result::Result<Reply, Failure>> {
        self.call(request)?.response().await
    }

    /// Opens a call.
    pub(crate) fn call(&self, request: &Request) -> Result<Call> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (to, incoming) = mpsc::unbounded_channel();
        let waiting = Arc::<Waiting>::default();
        let mut frame = vec![0; frame::HEADER];
        farshell_protocol::message::encode(&mut frame, request);
        let len = frame.len() - frame::HEADER;
        if len > frame::MAX_PAYLOAD {
            let message = format!("the request has {len} bytes, at most {} are possible", frame::MAX_PAYLOAD);
            return Err(Error::new(Kind::Invalid, "sending a request", message)
                .with_hint("write long text to a file in the place and name the file in the command"));
        }
        frame[..frame::HEADER].copy_from_slice(&frame::header(FrameKind::Request, id, len));
        {
            let mut state = self.shared.lock();
            if let Some(why) = &state.ended {
                return Err(why.error());
            }
            state.calls.insert(id, Receiving { to, waiting: Arc::clone(&waiting) });
        }
        let call = Call {
            id,
            incoming,
            waiting,
            shared: Arc::clone(&self.shared),
            credit: Credit::default(),
            window: Window::default(),
            finished: false,
        };
        self.shared.send(&frame)?;
        Ok(call)
    }
}

pub(crate) fn lost(why: &str) -> Error {
    Error::new(Kind::Disconnected, "talking to the outpost", format!("the connection was lost: {why}"))
}

/// A call under way. Dropped before its response, it tells the outpost that the answer is not wanted.
#[derive(Debug)]
pub(crate) struct Call {
    id: u32,
    incoming: mpsc::UnboundedReceiver<Incoming>,
    waiting: Arc<Waiting>,
    shared: Arc<Shared>,
    credit: Credit,
    window: Window,
    finished: bool,
}

impl Call {
    /// What comes next.
    pub(crate) async fn next(&mut self) -> Result<Incoming> {
        match self.incoming.recv().await {
            Some(incoming) => {
                self.finished |= matches!(incoming, Incoming::Response(_));
                if let Incoming::Event(_, size) = &incoming {
                    self.waiting.events.fetch_sub(*size, Ordering::Relaxed);
                }
                Ok(incoming)
            }
            None => {
                self.finished = true;
                let why = self.shared.lock().ended.clone();
                Err(why.map_or_else(|| lost("it was closed"), |why| why.error()))
            }
        }
    }

    /// Data of this size was dealt with: the outpost may send more.
    pub(crate) fn consumed(&mut self, bytes: usize) {
        self.waiting.data.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(grant) = self.window.consume(bytes) {
            let mut frame = Vec::new();
            frame::encode(&mut frame, FrameKind::Credit, self.id, &encode_credit(grant));
            // If the connection is gone, `next` says so.
            let _ = self.shared.send(&frame);
        }
    }

    /// The response, for calls that have nothing else to say.
    pub(crate) async fn response(mut self) -> Result<std::result::Result<Reply, Failure>> {
        loop {
            if let Incoming::Response(reply) = self.next().await? {
                return Ok(reply);
            }
        }
    }

    /// Sends a piece of an upload, waiting for credit. Gives the response if one came early (a failure).
    pub(crate) async fn upload(
        &mut self,
        bytes: &[u8],
    ) -> Result<Option<std::result::Result<Reply, Failure>>> {
        for piece in bytes.chunks(frame::MAX_DATA) {
            while self.credit.available() < piece.len() {
                match self.next().await? {
                    Incoming::Credit(bytes) => self.credit.grant(bytes),
                    Incoming::Response(reply) => return Ok(Some(reply)),
                    Incoming::Data(_) | Incoming::Event(..) => {}
                }
            }
            self.credit.spend(piece.len());
            let mut frame = Vec::new();
            frame::encode(&mut frame, FrameKind::Data, self.id, piece);
            self.shared.send(&frame)?;
        }
        Ok(None)
    }

    /// The upload is complete.
    pub(crate) fn end_upload(&self) -> Result<()> {
        self.shared.send(&frame::header(FrameKind::End, self.id, 0))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        self.shared.lock().calls.remove(&self.id);
        let _ = self.shared.send(&frame::header(FrameKind::Cancel, self.id, 0));
    }
}

/// Sends what could not be sent at once, as the stream gets room for it.
async fn write_left_over(shared: Arc<Shared>) {
    loop {
        shared.left_over.notified().await;
        let push = |cx: &mut Context<'_>| shared.out.lock().unwrap_or_else(PoisonError::into_inner).push(cx);
        if let Err(error) = std::future::poll_fn(push).await {
            return shared.end(Ended::Lost(error.to_string()));
        }
    }
}

async fn read_frames(
    mut stream: Box<dyn tokio::io::AsyncRead + Send + Unpin>,
    mut decoder: Decoder,
    shared: Arc<Shared>,
) {
    let why = loop {
        if let Err(why) = dispatch(&mut decoder, &shared) {
            break why;
        }
        // The rest of a large frame goes straight to where it belongs.
        if let Some(mut begun) = decoder.take_begun(DIRECT) {
            let read = async {
                while begun.payload.len() < begun.len {
                    let left = (begun.len - begun.payload.len()) as u64;
                    if (&mut stream).take(left).read_buf(&mut begun.payload).await? == 0 {
                        return Err(std::io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Ok::<(), std::io::Error>(())
            };
            if let Err(error) = read.await {
                break Ended::Lost(error.to_string());
            }
            if let Err(why) = deliver(begun.kind, begun.call, begun.payload, &shared) {
                break why;
            }
            continue;
        }
        let want = decoder.missing().clamp(16 << 10, READ);
        match stream.read(decoder.space(want)).await {
            Ok(0) => break Ended::Lost("the outpost closed it".to_owned()),
            Ok(n) => decoder.filled(n),
            Err(error) => break Ended::Lost(error.to_string()),
        }
    };
    shared.end(why);
}

/// Hands out all frames that are whole.
fn dispatch(decoder: &mut Decoder, shared: &Shared) -> std::result::Result<(), Ended> {
    while let Some(frame) = decoder.next_frame().map_err(malformed)? {
        deliver(frame.kind, frame.call, frame.payload.to_vec(), shared)?;
    }
    Ok(())
}

fn malformed(error: impl std::fmt::Display) -> Ended {
    Ended::Broken(error.to_string())
}

fn deliver(kind: FrameKind, call: u32, payload: Vec<u8>, shared: &Shared) -> std::result::Result<(), Ended> {
    let size = payload.len();
    let incoming = match kind {
        FrameKind::Data => Incoming::Data(payload),
        FrameKind::Event => Incoming::Event(from_bytes(&payload).map_err(malformed)?, size),
        FrameKind::Response => Incoming::Response(from_bytes(&payload).map_err(malformed)?),
        FrameKind::Credit => {
            let credit = farshell_protocol::flow::decode_credit(&payload);
            Incoming::Credit(credit.ok_or_else(|| malformed("malformed credit"))?)
        }
        FrameKind::Goodbye => {
            let failure: Failure = from_bytes(&payload).map_err(malformed)?;
            return Err(match failure.kind {
                ErrorKind::Protocol => Ended::Broken(failure.message),
                _ => Ended::Lost(failure.message),
            });
        }
        FrameKind::Hello | FrameKind::Request | FrameKind::End | FrameKind::Cancel => {
            return Err(malformed("the outpost sent a frame that only an engine sends"));
        }
    };
    let mut state = shared.lock();
    let last = matches!(incoming, Incoming::Response(_));
    // A call that was cancelled meanwhile has no entry any more.
    if let Some(Receiving { to, waiting }) = state.calls.get(&call) {
        let (count, most) = match kind {
            FrameKind::Data => (&waiting.data, MOST_DATA),
            _ => (&waiting.events, MOST_EVENTS),
        };
        if matches!(kind, FrameKind::Data | FrameKind::Event)
            && count.fetch_add(size, Ordering::Relaxed) + size > most
        {
            return Err(malformed("it sends more than it may"));
        }
        let _ = to.send(incoming);
    }
    if last {
        state.calls.remove(&call);
    }
    Ok(())
}
