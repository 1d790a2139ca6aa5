//! Sessions and the commands that wait for their shells: opened, queued, begun, ended, closed. The life of the shells
//! themselves is in `shells`.

use crate::daemon::Daemon;
use crate::kill::ticks_now;
use crate::process::{Process, Waiting};
use crate::reactor::{Alarm, Interest, Token};
use crate::session::{Given, Session, Stage, TRAPPED, first_state, one_shot_state};
use crate::shell::{Command, NamedPipe, Shell};
use crate::shells::FIRST_LOOK;
use crate::spawn::{check_command, check_dir, check_variables, no_shell, own_environment};
use crate::sys::{self};
use crate::words::{leaves_shell_alone, never_complains, starts_nothing};
use farshell_protocol::process::{End, OnBusy, Start, State, Stdin, View, What};
use farshell_protocol::session::{Mode, OpenSession, SessionInfo};
use farshell_protocol::{ErrorKind, Event, Failure, SessionName};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Commands that may wait for one session.
const MOST_QUEUED: usize = 1000;
/// Sessions at most: each is a process.
const MOST_SESSIONS: usize = 1024;
/// Builtins that the outpost's own lines use.
const NEEDED: &[&str] = &[".", "eval", "exec", "printf"];

impl Daemon {
    pub(crate) fn open_session(&mut self, open: OpenSession) -> Result<SessionInfo, Failure> {
        let shell = self.program.as_ref().ok_or_else(no_shell)?.name();
        if let Some(session) = self.sessions.get(&open.name) {
            return Ok(session.info(shell, false));
        }
        if self.sessions.len() >= MOST_SESSIONS {
            let text = format!("{MOST_SESSIONS} sessions are open, no more are allowed");
            return Err(Failure::new(ErrorKind::Exhausted, text));
        }
        let cwd = self.expand(open.cwd.as_deref().unwrap_or(b"~"));
        check_dir(&cwd)?;
        let mut vars: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        if !open.clear_env {
            vars.extend(own_environment());
        }
        vars.extend(open.env.into_iter().map(|(name, value)| (name.into_vec(), value.into_vec())));
        let session = Session {
            name: open.name.clone(),
            mode: open.mode,
            shell: None,
            stage: Stage::Preparing,
            current: None,
            queue: VecDeque::new(),
            cwd,
            last_status: 0,
            state: first_state(&vars, shell == "bash"),
            baseline: Vec::new(),
            init_files: open.init_files.iter().map(|f| self.expand(f)).collect(),
            names: None,
            pipes: None,
            false_starts: 0,
            commands: 0,
            restarts: 0,
            closing: false,
            unsaved: false,
            deferred: Vec::new(),
            given: Given::default(),
        };
        let info = session.info(shell, true);
        self.sessions.insert(open.name.clone(), session);
        self.prepare(&open.name);
        Ok(info)
    }

    pub(crate) fn session_infos(&self) -> Vec<SessionInfo> {
        let shell = self.program.as_ref().map_or("sh", |p| p.name());
        let mut infos: Vec<SessionInfo> = self.sessions.values().map(|s| s.info(shell, false)).collect();
        infos.sort_by(|a, b| a.name.cmp(&b.name));
        infos
    }

    pub(crate) fn close_session(&mut self, name: &SessionName) -> Result<(), Failure> {
        let Some(session) = self.sessions.get_mut(name) else {
            return Err(Failure::new(ErrorKind::NotFound, format!("no session {name} is open here")));
        };
        session.closing = true;
        let current = session.current;
        for key in session.queue.drain(..).collect::<Vec<_>>() {
            if let Some(process) = self.procs.get_mut(&key) {
                process.state = State::Abandoned;
                process.waiting = None;
            }
            self.retire(key);
            self.wake_readers(key);
        }
        match current {
            // The shell goes when the command has been killed.
            Some(key) => self.start_kill(key, Duration::from_millis(500)),
            None => self.remove_session(name),
        }
        Ok(())
    }

    pub(crate) fn remove_session(&mut self, name: &SessionName) {
        if let Some(session) = self.sessions.remove(name)
            && let Some(key) = session.shell
        {
            self.shell_owner.remove(&key);
            if let Some(shell) = self.shells.get(&key) {
                sys::kill_child(shell.pid, libc::SIGKILL);
            }
        }
    }

    /// The state that a process outside the session's shell would start from.
    pub(crate) fn current_state(&self, name: &SessionName) -> Vec<u8> {
        let Some(session) = self.sessions.get(name) else { return Vec::new() };
        let saved = session.shell.and_then(|key| self.shells.get(&key)).and_then(Shell::saved_state);
        match (saved, session.mode) {
            (Some((_, state)), Mode::Live) => state,
            _ => one_shot_state(session),
        }
    }

    pub(crate) fn fail_queue(&mut self, name: &SessionName, why: &str) {
        let Some(session) = self.sessions.get_mut(name) else { return };
        for key in session.queue.drain(..).collect::<Vec<_>>() {
            if let Some(process) = self.procs.get_mut(&key) {
                process.log.append(
                    farshell_protocol::process::Stream::Stderr,
                    format!("farshell: {why}\n").as_bytes(),
                );
                process.state = State::Abandoned;
                process.waiting = None;
            }
            self.retire(key);
            self.wake_readers(key);
        }
    }

    /// Queues a command for a session's shell, and begins it if the shell waits.
    pub(crate) fn start_in_session(
        &mut self,
        conn: u32,
        mut process: Process,
        start: Start,
    ) -> Result<(), Failure> {
        let What::Session { session: name, command, workdir, on_busy, merge_stderr } = start.what else {
            return Err(Failure::new(ErrorKind::Invalid, "not a session command"));
        };
        check_command(&command)?;
        let variables = start.variables.map(check_variables).transpose()?;
        if workdir.as_ref().is_some_and(|d| d.contains(&0)) {
            return Err(Failure::new(ErrorKind::Invalid, "a directory can't contain a NUL byte"));
        }
        let workdir = workdir.map(|dir| if dir.starts_with(b"~") { self.expand(&dir) } else { dir });
        let Some(session) = self.sessions.get_mut(&name) else {
            return Err(Failure::new(ErrorKind::NotFound, format!("no session {name} is open here")));
        };
        if session.closing || session.stage == Stage::Failed {
            return Err(Failure::new(
                ErrorKind::ShellFailed,
                format!("session {name} has no shell any more"),
            ));
        }
        let busy = session.current.is_some() || !session.queue.is_empty();
        if busy && (on_busy == OnBusy::Refuse || session.queue.len() >= MOST_QUEUED) {
            return Err(Failure::new(ErrorKind::Busy, format!("session {name} is running another command")));
        }
        let key = process.key;
        process.state = State::Queued;
        process.waiting = Some(Waiting {
            command,
            workdir,
            merge_stderr,
            stdin: start.stdin,
            variables,
            conn,
            queued: busy,
        });
        session.queue.push_back(key);
        self.by_id.insert(process.id.clone(), key);
        self.procs.insert(key, process);
        self.dispatch(&name);
        Ok(())
    }

    /// Begins the next command of a session, if its shell waits and there is one.
    pub(crate) fn dispatch(&mut self, name: &SessionName) {
        let Some(session) = self.sessions.get_mut(name) else { return };
        if session.stage != Stage::Ready {
            return;
        }
        let Some(key) = session.queue.pop_front() else { return };
        session.stage = Stage::Running;
        session.current = Some(key);
        if self.begin(name, key).is_err() {
            // The shell can't be reached (its command closed its input): it is dead or as good as dead, and has
            // not got the command.
            if let Some(session) = self.sessions.get_mut(name) {
                session.stage = Stage::Preparing;
                session.current = None;
                session.queue.push_front(key);
                if let Some(shell) = session.shell.and_then(|k| self.shells.get(&k)) {
                    sys::kill_child(shell.pid, libc::SIGKILL);
                }
            }
            self.back_to_queue(key);
        }
    }

    fn begin(&mut self, name: &SessionName, key: u32) -> io::Result<()> {
        let pipes = match self.sessions.get_mut(name).and_then(|s| s.pipes.take()) {
            Some(pipes) => pipes,
            None => self.new_pipes()?,
        };
        let Some(session) = self.sessions.get_mut(name) else { return Ok(()) };
        let Some(shell_key) = session.shell else { return Ok(()) };
        let Some(shell) = self.shells.get_mut(&shell_key) else { return Ok(()) };
        let Some(process) = self.procs.get_mut(&key) else { return Ok(()) };
        let Some(waiting) = &process.waiting else { return Ok(()) };
        let stdin = if waiting.stdin == Stdin::Pipe && process.stdin.fd.is_none() {
            let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
            rustix::io::ioctl_fionbio(&write, true)?;
            self.reactor.add(&write, Token::Input(key), Interest::WriteEdge)?;
            process.stdin.fd = Some(write);
            // Kept for the command's life: without a reader, a write before the shell has opened it would fail.
            Some(read)
        } else {
            None
        };
        let one_shot = session.mode == Mode::OneShot;
        let shadowed = |word: &str| session.names.as_ref().is_none_or(|names| names.contains(word));
        let variables =
            waiting.variables.as_ref().map_or_else(Vec::new, |variables| session.given.changes(variables));
        let save = !shell.bash || !variables.is_empty() || !leaves_shell_alone(&waiting.command, &shadowed);
        let careful = shell.bash
            && session.names.as_ref().is_none_or(|names| NEEDED.iter().any(|n| names.contains(*n)));
        let simple = stdin.is_none() && waiting.workdir.is_none();
        let plain = simple && !save && !careful && !one_shot && shell.knows(&pipes.1);
        process.leaves_nothing = plain && starts_nothing(&waiting.command);
        // A trap would print there as well.
        process.direct = process.leaves_nothing && never_complains(&waiting.command) && !shadowed(TRAPPED);
        if !process.leaves_nothing {
            process.tag = self.tags.mark(shell.pid);
        }
        process.since = ticks_now();
        process.started = Instant::now();
        process.kills_before = crate::memory::before(process.started);
        shell.run(&Command {
            text: &waiting.command,
            stdin: stdin.as_ref(),
            stdout: &pipes.1[0].read,
            stderr: (!waiting.merge_stderr).then_some(&pipes.1[1].read),
            workdir: waiting.workdir.as_deref(),
            variables: &variables,
            home: &session.cwd,
            last_status: session.last_status,
            save,
            one_shot,
            plain,
            direct: process.direct,
            careful,
        })?;
        if let Some(variables) = &waiting.variables {
            session.given.set(variables);
        }
        session.unsaved |= save;
        if save {
            // Until the new state has been read, any word may be a function.
            session.names = None;
        }
        let soon = process.leaves_nothing;
        process.state = State::Running;
        process.pid = shell.pid;
        process.shell = Some(shell_key);
        process.pipes = pipes.0;
        let [out, err] = pipes.1;
        process.outputs = [Some(out.read), Some(err.read)];
        process.writers = Some([out.write, err.write]);
        process.stdin_reader = stdin;
        self.pipe_owner.insert(pipes.0, key);
        let started = process.started;
        process.watchdog_alarm = Some(self.reactor.alarm(started + FIRST_LOOK, Alarm::Watchdog(key)));
        if let Some(timeout) = process.timeout {
            process.timeout_alarm = Some(self.reactor.alarm(started + timeout, Alarm::Timeout(key)));
        }
        let waited = waiting.queued;
        let has_input =
            process.stdin.fd.is_some() && (!process.stdin.pending.is_empty() || process.stdin.eof);
        let pid = process.pid;
        if waited {
            for (conn, call) in process.readers.clone() {
                if let Some(conn) = self.conns.get_mut(&conn) {
                    conn.event(call, &Event::Started { pid });
                }
                self.pump(conn);
            }
        }
        if has_input {
            self.input_ready(key);
        }
        if soon {
            self.stay_awake();
        }
        Ok(())
    }

    pub(crate) fn new_pipes(&mut self) -> io::Result<(u32, [NamedPipe; 2])> {
        let pair = [NamedPipe::new()?, NamedPipe::new()?];
        let pipes = self.key();
        for (i, pipe) in (0..).zip(&pair) {
            self.reactor.add(&pipe.read, Token::Output(pipes, i), Interest::ReadEdge)?;
        }
        Ok((pipes, pair))
    }

    /// Must a process that starts from this session's state wait until that is written down?
    pub(crate) fn must_wait_for_state(&self, name: &SessionName) -> bool {
        self.sessions.get(name).is_some_and(|s| s.unsaved && s.current.is_none() && s.stage != Stage::Failed)
    }

    pub(crate) fn start_deferred(&mut self, name: &SessionName) {
        let Some(session) = self.sessions.get_mut(name) else { return };
        for (conn, call, start) in std::mem::take(&mut session.deferred) {
            // Who has gone meanwhile has seen nothing start.
            if self.conns.contains_key(&conn) {
                self.request(conn, call, farshell_protocol::Request::Start(start));
            }
        }
    }

    /// The command that a session's shell was running has come to its end, and the shell (if it is given) goes on.
    pub(crate) fn command_ended(
        &mut self,
        name: &SessionName,
        shell: Option<u32>,
        end: End,
        cwd: Option<Vec<u8>>,
    ) {
        let Some(session) = self.sessions.get_mut(name) else { return };
        let Some(key) = session.current.take() else { return };
        let text = self.procs.get(&key).and_then(|p| p.waiting.as_ref()).map(|w| w.command.as_slice());
        let suspect = shell.is_some() && text.is_some_and(|text| may_have_hurt_bash(text, end));
        // A one-shot shell that ran its command is used up.
        let ran = self.procs.get(&key).is_some_and(|p| !p.workdir_failed);
        let one_shot = session.mode == Mode::OneShot && shell.is_some() && ran;
        session.stage = if one_shot { Stage::Leaving } else { Stage::Ready };
        self.finish_command(name, key, end, cwd);
        if suspect
            && let Some(process) = self.procs.get(&key)
            && complained_of_syntax(process)
            && let Some(session) = self.sessions.get_mut(name)
        {
            session.stage = Stage::Leaving;
        }
        let closing = self.sessions.get(name).is_some_and(|s| s.closing);
        if closing {
            self.remove_session(name);
        } else if shell.is_some() {
            self.dispatch(name);
        }
    }

    pub(crate) fn finish_command(&mut self, name: &SessionName, key: u32, end: End, cwd: Option<Vec<u8>>) {
        self.awake_until = None;
        let mut writers = None;
        if let Some(process) = self.procs.get_mut(&key) {
            // Who still holds the output without us is somebody whom the command left behind.
            writers = process.writers.take().filter(|_| process.leaves_nothing);
        }
        let open = if writers.is_some() {
            self.drain_own(key);
            [false; 2]
        } else {
            self.drain(key)
        };
        let Some(process) = self.procs.get_mut(&key) else { return };
        let own_dir = process.waiting.take().is_none_or(|w| w.workdir.is_none());
        process.stdin_reader = None;
        if let Some(session) = self.sessions.get_mut(name) {
            session.commands += 1;
            session.false_starts = 0;
            session.last_status = match end {
                End::Exited(code) => code,
                End::Signaled(signal) => 128 + signal,
            };
            if let (Some(cwd), true) = (cwd, own_dir) {
                session.cwd = cwd;
            }
            process.cwd = Some(session.cwd.clone());
        }
        let free = self.sessions.get(name).is_some_and(|s| s.pipes.is_none());
        let pipes = process.pipes;
        if free && open == [false; 2] {
            // The usual case. The answer goes out before the pipes are made ready for the next command.
            let outputs = std::mem::take(&mut process.outputs);
            self.pipe_owner.remove(&pipes);
            self.process_ended(key, end);
            let pair = match (outputs, writers) {
                ([Some(out), Some(err)], Some([o, e])) => {
                    Ok([NamedPipe { read: out, write: o }, NamedPipe { read: err, write: e }])
                }
                ([Some(out), Some(err)], None) => {
                    NamedPipe::again(out).and_then(|out| Ok([out, NamedPipe::again(err)?]))
                }
                _ => return,
            };
            if let (Some(session), Ok(pair)) = (self.sessions.get_mut(name), pair) {
                session.pipes = Some((pipes, pair));
            }
            return;
        }
        let mut given_back = None;
        if free && let [Some(out), Some(err)] = std::mem::take(&mut process.outputs) {
            given_back = take_back([out, err], open, &mut process.outputs).ok();
        } else {
            for (output, open) in process.outputs.iter_mut().zip(open) {
                if !open {
                    *output = None;
                }
            }
        }
        if !process.open() {
            self.pipe_owner.remove(&pipes);
        }
        if let Some(pair) = given_back {
            // A pipe that somebody still writes to keeps the old key; under its name there is a new one.
            let fresh = self.key();
            let watched = (0..).zip(&pair).all(|(i, pipe)| {
                self.reactor.remove(&pipe.read);
                self.reactor.add(&pipe.read, Token::Output(fresh, i), Interest::ReadEdge).is_ok()
            });
            if let (Some(session), true) = (self.sessions.get_mut(name), watched) {
                session.pipes = Some((fresh, pair));
            }
        }
        self.process_ended(key, end);
    }
}

/// bash 5.2 damages its own memory over a substitution that never ends (`echo "$("`) and dies some commands later.
/// After such a syntax error the session goes on in a fresh shell.
fn may_have_hurt_bash(text: &[u8], end: End) -> bool {
    let opens = |pair: &[u8]| matches!(pair, b"$(" | b"<(" | b">(");
    end == End::Exited(2) && (text.windows(2).any(opens) || text.contains(&b'`'))
}

/// Did the last lines look like bash's complaint? A wrong guess costs the shell's jobs, or a restart later on; it
/// changes nothing that is reported.
fn complained_of_syntax(process: &Process) -> bool {
    let total = process.log.total();
    let tail = process.log.piece(View::Arrival, total.saturating_sub(1024), 1024, false);
    [&b"unexpected EOF"[..], b"syntax error"]
        .iter()
        .any(|sign| tail.bytes.windows(sign.len()).any(|w| w == *sign))
}

/// The pipes of a command that has ended, for the next one. Those that are still `open`, because a process that it
/// left behind holds them, stay with the command (`kept`), and their names go to new ones.
fn take_back(
    pair: [OwnedFd; 2],
    open: [bool; 2],
    kept: &mut [Option<OwnedFd>; 2],
) -> io::Result<[NamedPipe; 2]> {
    let mut take = |i: usize, mut read: OwnedFd| {
        if !open[i] {
            return NamedPipe::again(read);
        }
        let (old, write) = NamedPipe::renew(&mut read)?;
        kept[i] = Some(old);
        Ok(NamedPipe { read, write })
    };
    let [out, err] = pair;
    Ok([take(0, out)?, take(1, err)?])
}
