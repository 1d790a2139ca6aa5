//! What each request means.

use crate::conns::{AttachCall, Call};
use crate::daemon::Daemon;
use crate::kill::{self, SHELL_INT, SHELL_TERM};
use crate::log::Cursor;
use crate::process::Process;
use crate::reactor::Alarm;
use crate::sys;
use farshell_protocol::frame::Kind;
use farshell_protocol::message::Info;
use farshell_protocol::process::{Attach, Kill, Killed, Size, Start, State, View, What};
use farshell_protocol::{ErrorKind, Failure, ProcessId, Reply, Request};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

/// Most bytes of a log in one answer.
const MOST_LOG: u32 = 1 << 20;
/// Input that is taken for a process that does not read.
const MOST_INPUT: usize = 1 << 20;

pub(crate) fn not_found(id: &ProcessId) -> Failure {
    Failure::new(ErrorKind::NotFound, format!("no process {id} is known here"))
}

/// How often those are looked for whom a signal came too early for, and the pause between two looks.
const LOOKS: u8 = 12;
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

impl Daemon {
    pub(crate) fn request(&mut self, conn: u32, call: u32, request: Request) {
        // `None`: answered already, or later.
        let answer = match request {
            Request::Ping => Some(Ok(Reply::Done)),
            Request::Info => Some(Ok(Reply::Info(self.info()))),
            Request::OpenSession(open) => Some(self.open_session(open).map(Reply::Session)),
            Request::CloseSession { name } => Some(self.close_session(&name).map(|()| Reply::Done)),
            Request::Sessions => Some(Ok(Reply::Sessions(self.session_infos()))),
            Request::Start(start) => self.start(conn, call, start),
            Request::Attach { id, attach } => match self.by_id.get(&id) {
                Some(key) => self.attach(conn, call, *key, attach),
                None => Some(Err(not_found(&id))),
            },
            Request::Status { id } => Some(self.find(&id).map(|p| Reply::Status(Box::new(p.described())))),
            Request::Forbid { id } => {
                if !self.by_id.contains_key(&id) {
                    self.spend(id.clone());
                }
                Some(self.find(&id).map(|p| Reply::Status(Box::new(p.described()))))
            }
            Request::Processes => {
                let mut all: Vec<&Process> = self.procs.values().collect();
                all.sort_by_key(|p| p.key);
                Some(Ok(Reply::Processes(all.into_iter().map(Process::described).collect())))
            }
            Request::ReadLog { id, view, offset, len } => Some(self.read_log(&id, view, offset, len)),
            Request::Stdin { id, offset, bytes, eof } => self.stdin(conn, call, &id, offset, &bytes, eof),
            Request::Signal { id, signal, once } => self.unless_known(conn, call, once, |daemon| {
                let answer = daemon.send_signal(&id, signal).map(|()| Reply::Done);
                daemon.once.end(once, &answer, Instant::now());
                Some(answer)
            }),
            Request::Kill(kill) => self.kill(conn, call, &kill),
            Request::Resize { id, size } => Some(self.resize(&id, size).map(|()| Reply::Done)),
            Request::Forget { id } => Some(self.forget(&id).map(|()| Reply::Done)),
            Request::SetLease { seconds } => {
                self.set_lease(Duration::from_secs(seconds));
                Some(Ok(Reply::Done))
            }
            Request::Shutdown => {
                self.ending = true;
                Some(Ok(Reply::Done))
            }
            Request::File(request) => {
                self.unless_known(conn, call, request.once, |daemon| daemon.file_request(conn, call, request))
            }
        };
        if let Some(answer) = answer {
            self.reply(conn, call, &answer);
        }
    }

    /// Does what must not be done twice, unless that is known to be done or under way. From here on the attempt is known,
    /// also if it is refused: an older one that comes late is not made in its stead.
    fn unless_known(
        &mut self,
        conn: u32,
        call: u32,
        once: u64,
        attempt: impl FnOnce(&mut Self) -> Option<Result<Reply, Failure>>,
    ) -> Option<Result<Reply, Failure>> {
        match self.once.attempt(once, Instant::now()) {
            None => attempt(self),
            Some(Err(failure)) => Some(Err(failure)),
            Some(Ok(reply)) => {
                self.conns.get_mut(&conn)?.frame(Kind::Response, call, &reply);
                self.pump(conn);
                None
            }
        }
    }

    fn find(&self, id: &ProcessId) -> Result<&Process, Failure> {
        self.by_id.get(id).and_then(|key| self.procs.get(key)).ok_or_else(|| not_found(id))
    }

    fn info(&self) -> Info {
        let running = self.procs.values().filter(|p| !p.ended()).count() as u32;
        Info {
            identity: self.identity.clone(),
            release: env!("CARGO_PKG_VERSION").into(),
            dir: self.dir.to_string_lossy().into_owned(),
            uptime_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            lease_seconds: self.lease.as_secs(),
            sessions: self.sessions.len() as u32,
            running,
            finished: self.procs.len() as u32 - running,
            arch: std::env::consts::ARCH.into(),
            tagging: self.tags.working(),
        }
    }

    fn start(&mut self, conn: u32, call: u32, start: Start) -> Option<Result<Reply, Failure>> {
        let mut hasher = DefaultHasher::new();
        (&start.what, start.stdin).hash(&mut hasher);
        let fingerprint = hasher.finish();
        let known = self.by_id.get(&start.id).copied();
        if let Some(process) = known.and_then(|key| self.procs.get(&key)) {
            if process.fingerprint != fingerprint {
                let text = format!("process id {} was used for another command", start.id);
                return Some(Err(Failure::new(ErrorKind::AlreadyExists, text)));
            }
            let key = process.key;
            return match start.attach {
                Some(attach) => self.attach(conn, call, key, attach),
                None => Some(Ok(Reply::Status(Box::new(process.status())))),
            };
        }
        if self.spent.contains(&start.id) {
            let text = format!(
                "process id {} was used before and its record is gone, or nobody wants it any more",
                start.id
            );
            return Some(Err(Failure::new(ErrorKind::AlreadyExists, text)));
        }
        if self.ending {
            return Some(Err(Failure::new(ErrorKind::ShuttingDown, "the outpost is ending")));
        }
        if let What::Shell { session: Some(name), .. } = &start.what
            && self.must_wait_for_state(name)
            && let Some(session) = self.sessions.get_mut(&name.clone())
        {
            session.deferred.push((conn, call, start));
            return None;
        }
        let attach = start.attach;
        let key = self.key();
        let process = Process::new(key, &start, &self.logs, fingerprint);
        let started = match start.what {
            What::Session { .. } => self.start_in_session(conn, process, start),
            What::Shell { .. } | What::Exec { .. } => self.start_own(process, start),
        };
        if let Err(failure) = started {
            return Some(Err(failure));
        }
        match attach {
            Some(attach) => self.attach(conn, call, key, attach),
            None => self.procs.get(&key).map(|p| Ok(Reply::Status(Box::new(p.status())))),
        }
    }

    fn attach(&mut self, conn: u32, call: u32, key: u32, attach: Attach) -> Option<Result<Reply, Failure>> {
        let process = self.procs.get_mut(&key)?;
        let ended = process.ended();
        let end_at = ended.then(|| process.log.total());
        process.readers.push((conn, call));
        let state = Call::Attach(AttachCall {
            process: key,
            cursor: Cursor::at(attach.from),
            credit: farshell_protocol::flow::Credit::default(),
            lossless: attach.lossless,
            until_closed: attach.until_closed,
            end_at,
        });
        let nothing_yet = !ended && attach.from >= process.log.total();
        self.conns.get_mut(&conn)?.calls.insert(call, state);
        if !nothing_yet {
            self.wake_reader(conn, call);
        }
        None
    }

    fn read_log(&self, id: &ProcessId, view: View, offset: u64, len: u32) -> Result<Reply, Failure> {
        let process = self.find(id)?;
        let len = len.min(MOST_LOG) as usize;
        Ok(Reply::Log(process.log.piece(view, offset, len, process.open() || !process.ended())))
    }

    fn stdin(
        &mut self,
        conn: u32,
        call: u32,
        id: &ProcessId,
        offset: u64,
        bytes: &[u8],
        eof: bool,
    ) -> Option<Result<Reply, Failure>> {
        let key = match self.find(id) {
            Ok(process) => process.key,
            Err(failure) => return Some(Err(failure)),
        };
        let process = self.procs.get_mut(&key)?;
        let ended = process.ended();
        let input = &mut process.stdin;
        if offset > input.taken {
            let text =
                format!("input offset {offset} leaves a hole: {} bytes were taken so far", input.taken);
            return Some(Err(Failure::new(ErrorKind::Invalid, text)));
        }
        // What was taken before is not taken again, so a request may be repeated after a lost answer.
        let skip = usize::try_from(input.taken - offset).unwrap_or(usize::MAX).min(bytes.len());
        let fresh = &bytes[skip..];
        if fresh.is_empty() && (!eof || input.eof) {
            return Some(Ok(Reply::Stdin { taken: input.taken }));
        }
        if input.eof || ended || (input.fd.is_none() && process.waiting.is_none()) {
            let why = if ended { "the process has ended" } else { "its input is closed" };
            return Some(Err(Failure::new(
                ErrorKind::Invalid,
                format!("no input can be sent to {id}: {why}"),
            )));
        }
        if input.pending.len() > MOST_INPUT {
            let text = format!("{id} does not read its input and a megabyte of it is waiting already");
            return Some(Err(Failure::new(ErrorKind::Busy, text)));
        }
        input.pending.extend_from_slice(fresh);
        input.taken += fresh.len() as u64;
        input.eof |= eof;
        input.callers.push((conn, call));
        self.conns.get_mut(&conn)?.calls.insert(call, Call::Stdin);
        self.input_ready(key);
        None
    }

    fn send_signal(&mut self, id: &ProcessId, signal: i32) -> Result<(), Failure> {
        if !(1..=64).contains(&signal) {
            return Err(Failure::new(ErrorKind::Invalid, format!("there is no signal {signal}")));
        }
        let process = self.find(id)?;
        if process.ended() || process.pid == 0 {
            return Err(Failure::new(ErrorKind::Invalid, format!("{id} does not run")));
        }
        if process.shell.is_none() {
            if !signal_group(process.pid, signal) {
                sys::kill_child(process.pid, signal);
            }
            return Ok(());
        }
        // The shell is asked to give the command up before its children go, so that it doesn't go on to the
        // next one in the line.
        match signal {
            libc::SIGINT => sys::kill_child(process.pid, SHELL_INT),
            libc::SIGTERM | libc::SIGKILL | libc::SIGHUP | libc::SIGQUIT => {
                sys::kill_child(process.pid, SHELL_TERM);
            }
            _ => {}
        }
        let target = self.target(process, libc::SIGTERM, Duration::ZERO);
        let reached = kill::signal_members(&target, signal);
        if matches!(signal, libc::SIGINT | libc::SIGTERM | libc::SIGKILL | libc::SIGHUP | libc::SIGQUIT) {
            let key = process.key;
            if let Some(process) = self.procs.get_mut(&key) {
                process.unwanted = true;
            }
            self.look_for_latecomers(key, signal, LOOKS, reached);
        }
        Ok(())
    }

    /// A shell that was about to start somebody when the signal came acts on it only when that one has ended. So
    /// for a moment whom it starts is told too.
    fn look_for_latecomers(&mut self, process: u32, signal: i32, looks: u8, reached: kill::Reached) {
        if looks > 0 {
            let alarm = Alarm::Signal { process, signal, looks: looks - 1, reached };
            self.reactor.alarm(Instant::now() + BETWEEN_LOOKS, alarm);
        }
    }

    pub(crate) fn signal_latecomers(&mut self, key: u32, signal: i32, looks: u8, mut reached: kill::Reached) {
        let Some(process) = self.procs.get(&key).filter(|p| !p.ended() && p.end_held.is_none()) else {
            return;
        };
        let target = self.target(process, libc::SIGTERM, Duration::ZERO);
        kill::signal_latecomers(&target, signal, &mut reached);
        self.look_for_latecomers(key, signal, looks, reached);
    }

    fn kill(&mut self, conn: u32, call: u32, kill: &Kill) -> Option<Result<Reply, Failure>> {
        let mut keys = Vec::new();
        for id in &kill.ids {
            match self.by_id.get(id) {
                Some(key) => keys.push(*key),
                None => return Some(Err(not_found(id))),
            }
        }
        let mut waiting = Vec::new();
        let mut results = Vec::new();
        for (id, key) in kill.ids.iter().zip(keys) {
            if self.abandon(key) {
                results.push((id.clone(), Killed::default()));
            } else {
                self.start_kill(key, Duration::from_millis(kill.grace_ms));
                waiting.push(key);
            }
        }
        if waiting.is_empty() {
            return Some(Ok(Reply::Killed(results)));
        }
        self.conns.get_mut(&conn)?.calls.insert(call, Call::Kill { waiting, results });
        None
    }

    fn resize(&mut self, id: &ProcessId, size: Size) -> Result<(), Failure> {
        let process = self.find(id)?;
        let Some(terminal) = process.outputs[0].as_ref().filter(|_| process.pty) else {
            return Err(Failure::new(ErrorKind::Invalid, format!("{id} has no terminal")));
        };
        set_size(terminal, size).map_err(|e| Failure::new(ErrorKind::System, format!("resizing failed: {e}")))
    }

    fn forget(&mut self, id: &ProcessId) -> Result<(), Failure> {
        let process = self.find(id)?;
        if !process.ended() || process.open() {
            return Err(Failure::new(ErrorKind::Busy, format!("{id} still runs or is still written to")));
        }
        let key = process.key;
        self.finished.retain(|k| *k != key);
        self.evict(key);
        Ok(())
    }

    /// A queued command that never runs. True if it was one.
    pub(crate) fn abandon(&mut self, key: u32) -> bool {
        let Some(process) = self.procs.get_mut(&key) else { return false };
        if process.state != State::Queued {
            return false;
        }
        process.state = State::Abandoned;
        process.waiting = None;
        if let Some(session) = process.session.clone().and_then(|name| self.sessions.get_mut(&name)) {
            session.queue.retain(|k| *k != key);
        }
        self.retire(key);
        self.wake_readers(key);
        true
    }
}

fn signal_group(pid: u32, signal: i32) -> bool {
    let group = rustix::process::Pid::from_raw(pid.cast_signed());
    match (group, rustix::process::Signal::from_named_raw(signal)) {
        (Some(group), Some(signal)) => rustix::process::kill_process_group(group, signal).is_ok(),
        _ => false,
    }
}

pub(crate) fn set_size(terminal: impl std::os::fd::AsFd, size: Size) -> std::io::Result<()> {
    let size = rustix::termios::Winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(rustix::termios::tcsetwinsize(terminal, size)?)
}
