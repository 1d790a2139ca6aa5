//! File requests: each on a thread of its own, so that a slow disk or a large search delays nobody.

use crate::conns::Call;
use crate::daemon::Daemon;
use crate::files::{self, Context, Gone};
use crate::worker::Waker;
use farshell_protocol::file::{FileEvent, FileRequest};
use farshell_protocol::flow::{Credit, INITIAL_CREDIT, Window, encode_credit};
use farshell_protocol::frame::{Kind, MAX_DATA};
use farshell_protocol::message::to_bytes;
use farshell_protocol::{ErrorKind, Event, Failure, Reply};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// File requests that run at a time; more are refused, since each holds a thread.
const MOST_CALLS: usize = 64;

/// What a worker has for the event loop.
#[derive(Debug)]
enum Output {
    Frame(Kind, Vec<u8>),
    /// With the number of the request.
    Done(u64, Result<Reply, Failure>),
}

#[derive(Debug)]
pub(crate) struct FileCalls {
    waker: Waker,
    results: Receiver<(u32, u32, Output)>,
    sender: Sender<(u32, u32, Output)>,
    running: usize,
}

impl FileCalls {
    pub(crate) fn new(waker: Waker) -> Self {
        let (sender, results) = channel();
        Self { waker, results, sender, running: 0 }
    }
}

/// The event loop's side of a running file request.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileCall(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    credit: Credit,
    uploads: VecDeque<Vec<u8>>,
    upload_bytes: usize,
    ended: bool,
    cancelled: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A worker that panicked leaves a state that is as good as before.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FileCall {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.lock());
        self.0.changed.notify_all();
    }

    pub(crate) fn upload(&self, bytes: &[u8]) {
        self.change(|state| {
            state.upload_bytes += bytes.len();
            // A client that sends more than it was granted does not keep to the protocol.
            if state.upload_bytes as u64 > 2 * INITIAL_CREDIT + MAX_DATA as u64 {
                state.cancelled = true;
            } else {
                state.uploads.push_back(bytes.to_vec());
            }
        });
    }

    pub(crate) fn end_of_upload(&self) {
        self.change(|state| state.ended = true);
    }

    pub(crate) fn grant(&self, bytes: u64) {
        self.change(|state| state.credit.grant(bytes));
    }

    pub(crate) fn cancel(&self) {
        self.change(|state| state.cancelled = true);
    }

    #[cfg(test)]
    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.lock().cancelled
    }
}

/// The worker's side.
struct Worker {
    shared: Arc<Shared>,
    conn: u32,
    call: u32,
    sender: Sender<(u32, u32, Output)>,
    waker: Waker,
    window: Window,
}

impl Worker {
    fn emit(&self, output: Output) {
        let _ = self.sender.send((self.conn, self.call, output));
        self.waker.wake();
    }
}

impl files::Call for Worker {
    fn send(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        for piece in bytes.chunks(MAX_DATA) {
            let mut state = self.shared.lock();
            while state.credit.available() < piece.len() && !state.cancelled {
                state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.cancelled {
                return Err(Gone);
            }
            state.credit.spend(piece.len());
            drop(state);
            self.emit(Output::Frame(Kind::Data, piece.to_vec()));
        }
        Ok(())
    }

    fn event(&mut self, event: FileEvent) -> Result<(), Gone> {
        if self.cancelled() {
            return Err(Gone);
        }
        self.emit(Output::Frame(Kind::Event, to_bytes(&Event::File(event))));
        Ok(())
    }

    fn receive(&mut self) -> Result<Option<Vec<u8>>, Gone> {
        let mut state = self.shared.lock();
        loop {
            if state.cancelled {
                return Err(Gone);
            }
            if let Some(bytes) = state.uploads.pop_front() {
                state.upload_bytes -= bytes.len();
                drop(state);
                if let Some(grant) = self.window.consume(bytes.len()) {
                    self.emit(Output::Frame(Kind::Credit, encode_credit(grant).to_vec()));
                }
                return Ok(Some(bytes));
            }
            if state.ended {
                return Ok(None);
            }
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn cancelled(&self) -> bool {
        self.shared.lock().cancelled
    }
}

impl Daemon {
    pub(crate) fn file_request(
        &mut self,
        conn: u32,
        call: u32,
        request: FileRequest,
    ) -> Option<Result<Reply, Failure>> {
        let cwd = match &request.session {
            None => self.home.clone(),
            Some(name) => {
                let cwd = self.sessions.get(name).map(|session| session.cwd.clone());
                match self.once.cwd(request.once, cwd) {
                    Some(cwd) => PathBuf::from(OsString::from_vec(cwd)),
                    None => {
                        let text = format!("no session {name} is open here");
                        return Some(Err(Failure::new(ErrorKind::NotFound, text)));
                    }
                }
            }
        };
        if self.files.running >= MOST_CALLS {
            let text = format!("{MOST_CALLS} file requests are under way already");
            return Some(Err(Failure::new(ErrorKind::Busy, text)));
        }
        let context = Context { home: self.home.clone(), cwd };
        let shared = Arc::new(Shared::default());
        let mut worker = Worker {
            shared: Arc::clone(&shared),
            conn,
            call,
            sender: self.files.sender.clone(),
            waker: self.files.waker.clone(),
            window: Window::default(),
        };
        let thread = std::thread::Builder::new().name("files".into()).spawn(move || {
            let result = files::serve(&context, request.op, &mut worker).map(Reply::File);
            worker.emit(Output::Done(request.once, result));
        });
        if let Err(error) = thread {
            let text = format!("no thread can be started: {error}");
            return Some(Err(Failure::new(ErrorKind::Exhausted, text)));
        }
        self.files.running += 1;
        let running = FileCall(shared);
        self.once.under_way(request.once, &running);
        self.conns.get_mut(&conn)?.calls.insert(call, Call::File(running));
        None
    }

    pub(crate) fn file_results(&mut self) {
        while let Ok((conn, call, output)) = self.files.results.try_recv() {
            if let Output::Done(once, result) = &output {
                self.files.running -= 1;
                self.once.end(*once, result, Instant::now());
            }
            let Some(state) = self.conns.get_mut(&conn) else { continue };
            // A call that was cancelled is not heard of again.
            if !state.calls.contains_key(&call) {
                continue;
            }
            match output {
                Output::Frame(kind, payload) => state.frame(kind, call, &payload),
                Output::Done(_, result) => {
                    state.calls.remove(&call);
                    state.reply(call, &result);
                }
            }
            self.pump(conn);
        }
    }
}
