//! Connections: bytes in, frames out, and who may send next.
//!
//! Answers go out at once. Data is never queued: a call that has data is asked for the next piece only when
//! everything before it has left, so an answer waits behind at most one data frame.

mod readers;

use crate::daemon::Daemon;
use crate::filecalls::FileCall;
use crate::reactor::{Interest, Token};
use farshell_protocol::flow::decode_credit;
use farshell_protocol::frame::{self, Decoder, Kind};
use farshell_protocol::hello::{Hello, OutpostIdentity};
use farshell_protocol::message::{from_bytes, to_bytes};
use farshell_protocol::process::Killed;
use farshell_protocol::{ErrorKind, Event, Failure, ProcessId, Reply};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::pipe::SpliceFlags;
use std::collections::{HashMap, VecDeque};
use std::io::IoSlice;
use std::os::fd::OwnedFd;

pub(crate) use readers::{AttachCall, MOST_BEHIND, Passing};

/// Answers that a client does not fetch: with more than this waiting, its requests are not read.
const MOST_WAITING: usize = 8 << 20;
/// Bytes taken from a connection before others get their turn.
const TURN: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Conn {
    key: u32,
    stream: OwnedFd,
    decoder: Decoder,
    greeted: bool,
    /// Frames that did not fit into the socket.
    out: Vec<u8>,
    out_at: usize,
    pub calls: HashMap<u32, Call>,
    /// Calls that may have data to send.
    ready: VecDeque<u32>,
    closed: bool,
    /// The client sends nothing more: its end is behind what is left to be read.
    closing: bool,
    /// Requests wait in the socket until the client has fetched its answers.
    throttled: bool,
    /// What the socket's buffer holds.
    buffer: usize,
    /// It was full, and is watched for room.
    full: bool,
    /// Processes whose output stays in their pipes until something happens here.
    stalled: Vec<u32>,
}

/// A call that was not answered at once.
#[derive(Debug)]
pub(crate) enum Call {
    Attach(AttachCall),
    Kill { waiting: Vec<u32>, results: Vec<(ProcessId, Killed)> },
    Stdin,
    File(FileCall),
}

impl Conn {
    pub(crate) fn new(key: u32, stream: OwnedFd) -> Self {
        Self {
            key,
            buffer: rustix::net::sockopt::socket_send_buffer_size(&stream).unwrap_or(0),
            stalled: Vec::new(),
            full: false,
            stream,
            decoder: Decoder::new(),
            greeted: false,
            out: Vec::new(),
            out_at: 0,
            calls: HashMap::new(),
            ready: VecDeque::new(),
            closed: false,
            closing: false,
            throttled: false,
        }
    }

    pub(crate) fn greet(&mut self, identity: &OutpostIdentity) {
        self.frame(Kind::Hello, 0, &to_bytes(&Hello::outpost(identity.clone())));
    }

    fn waiting(&self) -> usize {
        self.out.len() - self.out_at
    }

    pub(crate) fn frame(&mut self, kind: Kind, call: u32, payload: &[u8]) {
        if self.closed {
            return;
        }
        if payload.len() > frame::MAX_PAYLOAD {
            let failure = Failure::new(ErrorKind::Exhausted, "the answer is too long for one message");
            let payload = to_bytes(&Err::<Reply, Failure>(failure));
            return frame::encode(&mut self.out, Kind::Response, call, &payload);
        }
        frame::encode(&mut self.out, kind, call, payload);
    }

    pub(crate) fn reply(&mut self, call: u32, reply: &Result<Reply, Failure>) {
        self.frame(Kind::Response, call, &to_bytes(reply));
    }

    pub(crate) fn event(&mut self, call: u32, event: &Event) {
        self.frame(Kind::Event, call, &to_bytes(event));
    }

    /// Sends a data frame of two parts without copying it, if nothing is in its way.
    fn data(&mut self, call: u32, head: &[u8], bytes: &[u8]) {
        let header = frame::header(Kind::Data, call, head.len() + bytes.len());
        let mut parts = [IoSlice::new(&header), IoSlice::new(head), IoSlice::new(bytes)];
        let sent = if self.waiting() == 0 { self.write(&mut parts) } else { 0 };
        let mut skip = sent;
        for part in [&header[..], head, bytes] {
            let from = skip.min(part.len());
            self.out.extend_from_slice(&part[from..]);
            skip -= from;
        }
    }

    /// Sends a data frame whose body waits in a pipe, without copying it. The pipe holds at least `len` bytes.
    /// False if the frame could not be begun; then nothing has happened.
    fn pass_on(&mut self, call: u32, head: &[u8], pipe: &OwnedFd, len: usize) -> bool {
        let header = frame::header(Kind::Data, call, head.len() + len);
        let begun = [&header, head].concat();
        // A few bytes into an empty socket are taken whole or not at all.
        if self.waiting() > 0 || rustix::net::send(&self.stream, &begun, SendFlags::MORE) != Ok(begun.len()) {
            return false;
        }
        let mut left = len;
        while left > 0 {
            let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
            match rustix::pipe::splice(pipe, None, &self.stream, None, left, flags) {
                Ok(n) if n > 0 => left -= n,
                Err(Errno::INTR) => {}
                // The socket is full: the rest is kept until it has room. A socket that is gone shows later.
                _ => break,
            }
        }
        let from = self.out.len();
        self.out.resize(from + left, 0);
        let mut at = from;
        while at < self.out.len() {
            match rustix::io::read(pipe, &mut self.out[at..]) {
                Ok(n) if n > 0 => at += n,
                Err(Errno::INTR) => {}
                _ => {
                    // The bytes were there a moment ago, and nobody else reads this pipe.
                    self.closed = true;
                    break;
                }
            }
        }
        true
    }

    fn write(&mut self, parts: &mut [IoSlice<'_>]) -> usize {
        loop {
            match rustix::io::writev(&self.stream, parts) {
                Ok(n) => return n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return 0,
                Err(_) => {
                    self.closed = true;
                    return 0;
                }
            }
        }
    }

    /// Writes what waits. True if all of it has left.
    fn flush(&mut self) -> bool {
        while self.waiting() > 0 && !self.closed {
            match rustix::io::write(&self.stream, &self.out[self.out_at..]) {
                Ok(n) => self.out_at += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return false,
                Err(_) => self.closed = true,
            }
        }
        self.out.clear();
        self.out_at = 0;
        if self.out.capacity() > 1 << 20 {
            self.out = Vec::new();
        }
        !self.closed
    }

    pub(crate) fn is_ready(&mut self, call: u32) {
        if !self.ready.contains(&call) {
            self.ready.push_back(call);
        }
    }
}

/// A frame without its borrow of the decoder.
struct Incoming {
    kind: Kind,
    call: u32,
    payload: Vec<u8>,
}

impl Daemon {
    /// The socket has bytes, or room, or has gone.
    pub(crate) fn conn_ready(&mut self, key: u32) {
        self.receive(key);
        self.pump(key);
        let stalled = self.conns.get_mut(&key).map(|conn| std::mem::take(&mut conn.stalled));
        for process in stalled.into_iter().flatten() {
            self.maybe_resume(process);
        }
        // Not before the calls have ended that filled it: they will fill it again.
        let at_rest = |conn: &&mut Conn| conn.full && conn.calls.is_empty() && conn.waiting() == 0;
        if let Some(conn) = self.conns.get_mut(&key).filter(at_rest) {
            conn.full = self.reactor.change(&conn.stream, Token::Conn(key), Interest::Socket).is_err();
        }
    }

    /// The socket is full: it has to be heard of when it no longer is.
    fn watch_for_room(&mut self, key: u32) {
        if let Some(conn) = self.conns.get_mut(&key).filter(|conn| !conn.full) {
            match self.reactor.change(&conn.stream, Token::Conn(key), Interest::FullSocket) {
                Ok(()) => conn.full = true,
                Err(_) => conn.closed = true,
            }
        }
    }

    pub(crate) fn conn_is_closing(&mut self, key: u32) {
        if let Some(conn) = self.conns.get_mut(&key) {
            conn.closing = true;
        }
    }

    fn receive(&mut self, key: u32) {
        let mut taken = 0;
        loop {
            let Some(conn) = self.conns.get_mut(&key) else { return };
            if conn.closed {
                return;
            }
            if conn.waiting() > MOST_WAITING {
                conn.throttled = true;
                return;
            }
            let want = conn.decoder.missing().clamp(16 << 10, 256 << 10);
            let space = conn.decoder.space(want);
            let room = space.len();
            let n = match rustix::io::read(&conn.stream, space) {
                Ok(0) => {
                    conn.closed = true;
                    return;
                }
                Ok(n) => n,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    conn.closed = true;
                    return;
                }
            };
            conn.decoder.filled(n);
            taken += n;
            self.frames(key);
            // More would be told, but not the end, if that is there already.
            if n < room && !self.conns.get(&key).is_some_and(|conn| conn.closing) {
                return;
            }
            if taken >= TURN {
                self.backlog.push_back(Token::Conn(key));
                return;
            }
        }
    }

    fn frames(&mut self, key: u32) {
        loop {
            let Some(conn) = self.conns.get_mut(&key) else { return };
            if conn.closed {
                return;
            }
            let incoming = match conn.decoder.next_frame() {
                Ok(Some(f)) => Incoming { kind: f.kind, call: f.call, payload: f.payload.to_vec() },
                Ok(None) => return,
                Err(error) => return self.break_off(key, &error.to_string()),
            };
            self.frame(key, &incoming);
        }
    }

    fn frame(&mut self, key: u32, frame: &Incoming) {
        let Some(conn) = self.conns.get_mut(&key) else { return };
        if !conn.greeted {
            if frame.kind != Kind::Hello {
                return self.break_off(key, "the first frame must be a hello");
            }
            return match from_bytes::<Hello>(&frame.payload) {
                Ok(hello) => match Hello::engine().agree(&hello) {
                    Ok(_) => conn.greeted = true,
                    Err(error) => self.break_off(key, &error.to_string()),
                },
                Err(error) => self.break_off(key, &error.to_string()),
            };
        }
        match frame.kind {
            Kind::Request => {
                if conn.calls.contains_key(&frame.call) {
                    return self.break_off(key, "a call id was used twice");
                }
                match from_bytes(&frame.payload) {
                    Ok(request) => self.request(key, frame.call, request),
                    Err(error) => {
                        // The frame was whole, so the next one will be found: only this call has failed.
                        let failure = Failure::new(ErrorKind::Protocol, error.to_string());
                        conn.reply(frame.call, &Err(failure));
                    }
                }
            }
            Kind::Data => {
                if let Some(Call::File(call)) = conn.calls.get(&frame.call) {
                    call.upload(&frame.payload);
                }
            }
            Kind::End => {
                if let Some(Call::File(call)) = conn.calls.get(&frame.call) {
                    call.end_of_upload();
                }
            }
            Kind::Credit => {
                let Some(bytes) = decode_credit(&frame.payload) else {
                    return self.break_off(key, "malformed credit");
                };
                match conn.calls.get_mut(&frame.call) {
                    Some(Call::Attach(call)) => {
                        call.credit.grant(bytes);
                        conn.is_ready(frame.call);
                    }
                    Some(Call::File(call)) => call.grant(bytes),
                    // The call may have ended while the grant was on its way.
                    _ => {}
                }
            }
            Kind::Cancel => self.drop_call(key, frame.call),
            Kind::Goodbye => conn.closed = true,
            Kind::Hello | Kind::Response | Kind::Event => {
                self.break_off(key, "a frame that only an outpost sends");
            }
        }
    }

    /// The peer does not keep to the protocol.
    fn break_off(&mut self, key: u32, why: &str) {
        if let Some(conn) = self.conns.get_mut(&key) {
            conn.frame(Kind::Goodbye, 0, &to_bytes(&Failure::new(ErrorKind::Protocol, why)));
            conn.flush();
            conn.closed = true;
        }
    }

    pub(crate) fn say_goodbye(&mut self, key: u32) {
        if let Some(conn) = self.conns.get_mut(&key) {
            let failure = Failure::new(ErrorKind::ShuttingDown, "the outpost has ended");
            conn.frame(Kind::Goodbye, 0, &to_bytes(&failure));
            conn.flush();
        }
    }

    pub(crate) fn reply(&mut self, key: u32, call: u32, reply: &Result<Reply, Failure>) {
        if let Some(conn) = self.conns.get_mut(&key) {
            conn.reply(call, reply);
        }
        self.pump(key);
    }

    /// Sends whatever can be sent now.
    pub(crate) fn pump(&mut self, key: u32) {
        loop {
            let Some(conn) = self.conns.get_mut(&key) else { return };
            let flushed = conn.flush();
            if conn.closed {
                return self.drop_conn(key);
            }
            if !flushed {
                return self.watch_for_room(key);
            }
            if std::mem::take(&mut conn.throttled) {
                self.backlog.push_back(Token::Conn(key));
            }
            let Some(call) = conn.ready.pop_front() else { return };
            self.produce(key, call);
        }
    }

    /// The answer of this call is no longer wanted.
    fn drop_call(&mut self, key: u32, call: u32) {
        let Some(conn) = self.conns.get_mut(&key) else { return };
        conn.ready.retain(|c| *c != call);
        match conn.calls.remove(&call) {
            Some(Call::Attach(attach)) => {
                if let Some(process) = self.procs.get_mut(&attach.process) {
                    process.readers.retain(|reader| *reader != (key, call));
                }
                self.maybe_resume(attach.process);
            }
            Some(Call::File(file)) => file.cancel(),
            _ => {}
        }
    }

    fn drop_conn(&mut self, key: u32) {
        let Some(conn) = self.conns.get(&key) else { return };
        debug_assert_eq!(conn.key, key);
        for call in conn.calls.keys().copied().collect::<Vec<_>>() {
            self.drop_call(key, call);
        }
        self.conns.remove(&key);
        self.abandon_queued_of(key);
        self.maybe_idle();
    }
}
