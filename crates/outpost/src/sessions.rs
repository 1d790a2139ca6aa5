//! The life of a session and its shell.
//!
//! ```text
//!            spare shell ─┐
//!                         v         command          end
//!  open ──> Preparing ──restored──> Ready ──────> Running ──> Ready            (live)
//!              ^                                     │
//!              │            state written            │ exit, exec, killed …
//!              └──────────────────────── Leaving <───┘                        (one-shot: always)
//! ```
//! The shell of a session may end with any command. The session goes on with a new one, which takes over the
//! newest state that was written completely.

use crate::daemon::{Child, Daemon};
use crate::kill::ticks_now;
use crate::process::{Process, Waiting};
use crate::procs::{check_command, check_dir, check_variables, is_variable_name, no_shell, own_environment};
use crate::reactor::{Alarm, Interest, Token};
use crate::session::{Given, Session, Stage, exported_names, shadowing_names};
use crate::shell::{Command, NamedPipe, Report, Shell, Takeover};
use crate::sys::{self, Change};
use crate::words::{leaves_shell_alone, quote, starts_nothing};
use farshell_protocol::process::{End, OnBusy, Start, State, Stdin, View, What};
use farshell_protocol::session::{Mode, OpenSession, SessionInfo};
use farshell_protocol::{ErrorKind, Event, Failure, SessionName};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// A shell that is not ready by then (a start file that waits for input) is given up.
const SHELL_START: Duration = Duration::from_secs(20);
/// Shells that may die in a row without running anything.
const FALSE_STARTS: u32 = 5;
/// Commands that may wait for one session.
const MOST_QUEUED: usize = 1000;
/// Sessions at most: each is a process.
const MOST_SESSIONS: usize = 1024;
/// Where a shell is born, within the outpost's directory; its key follows.
pub(crate) const SHELL_DIR: &str = "shell-";
/// Builtins that the outpost's own lines use.
const NEEDED: &[&str] = &[".", "eval", "exec", "printf"];
/// First look whether a silent shell has lost its way; later looks are further and further apart.
const FIRST_LOOK: Duration = Duration::from_secs(1);

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

    fn remove_session(&mut self, name: &SessionName) {
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

    /// Starts the shell that the next session, or the next command, will find ready.
    pub(crate) fn start_spare(&mut self) {
        self.want_spare = false;
        if self.spare.is_none() {
            self.spare = self.start_shell().ok();
        }
    }

    fn start_shell(&mut self) -> io::Result<u32> {
        crate::memory::watch();
        let Some(program) = self.program.clone() else { return Err(io::ErrorKind::NotFound.into()) };
        let key = self.key();
        let tag = self.tags.next();
        self.tags.mark_self(tag);
        let shell = Shell::start(&program, self.dir.join(format!("{SHELL_DIR}{key}")))?;
        self.give_limits(shell.pid);
        self.reactor.add(&shell.reports.read, Token::Shell(key), Interest::ReadEdge)?;
        self.children.insert(shell.pid, Child::Shell(key));
        self.shells.insert(key, shell);
        Ok(key)
    }

    /// Gives a session a shell and lets it take over the session's state.
    fn prepare(&mut self, name: &SessionName) {
        let spare = self.spare.take().filter(|key| self.shells.contains_key(key));
        let found = match spare {
            Some(key) => Ok(key),
            None => self.start_shell(),
        };
        // One-shot sessions use one up with every command.
        self.want_spare = true;
        let missing = self.sessions.get(name).is_some_and(|s| s.pipes.is_none());
        let pipes = if missing { self.new_pipes().ok() } else { None };
        let Some(session) = self.sessions.get_mut(name) else { return };
        session.pipes = session.pipes.take().or(pipes);
        match found {
            Ok(key) => {
                session.shell = Some(key);
                session.stage = Stage::Preparing;
                session.names = None;
                self.shell_owner.insert(key, name.clone());
                self.reactor.alarm(Instant::now() + SHELL_START, Alarm::ShellStart(key));
                if self.ready_shells.contains(&key) {
                    self.restore(key);
                }
            }
            Err(error) => {
                session.stage = Stage::Failed;
                self.fail_queue(name, &format!("no shell can be started: {error}"));
            }
        }
    }

    fn restore(&mut self, key: u32) {
        let Some(name) = self.shell_owner.get(&key).cloned() else { return };
        let (Some(session), Some(shell)) = (self.sessions.get(&name), self.shells.get_mut(&key)) else {
            return;
        };
        let one_shot = session.mode == Mode::OneShot;
        let state = if one_shot { one_shot_state(session) } else { session.state.clone() };
        let takeover = Takeover {
            state: &state,
            cwd: &session.cwd,
            init_files: &session.init_files,
            one_shot,
            pipes: session.pipes.as_ref().map(|(_, pair)| pair),
        };
        if shell.restore(&takeover).is_err() {
            sys::kill_child(shell.pid, libc::SIGKILL);
        }
    }

    fn fail_queue(&mut self, name: &SessionName, why: &str) {
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
    fn dispatch(&mut self, name: &SessionName) {
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
        if !process.leaves_nothing {
            let tag = self.tags.next();
            process.tag = self.tags.mark(shell.pid, tag).then_some(tag);
        }
        process.since = ticks_now();
        process.started = Instant::now();
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

    fn new_pipes(&mut self) -> io::Result<(u32, [NamedPipe; 2])> {
        let pair = [NamedPipe::new()?, NamedPipe::new()?];
        let pipes = self.key();
        for (i, pipe) in (0..).zip(&pair) {
            self.reactor.add(&pipe.read, Token::Output(pipes, i), Interest::ReadEdge)?;
        }
        Ok((pipes, pair))
    }

    /// A shell has said something.
    pub(crate) fn shell_reports(&mut self, key: u32) {
        let Some(shell) = self.shells.get_mut(&key) else { return };
        for report in shell.reports() {
            self.shell_report(key, report);
        }
    }

    fn shell_report(&mut self, key: u32, report: Report) {
        if matches!(report, Report::Ready { .. }) {
            self.ready_shells.insert(key);
            if self.shell_owner.contains_key(&key) {
                self.restore(key);
            }
            return;
        }
        let Some(name) = self.shell_owner.get(&key).cloned() else { return };
        let saved = matches!(report, Report::Saved { .. });
        let number = self.shells.get(&key).map_or(0, |s| s.number);
        let Some(session) = self.sessions.get_mut(&name) else { return };
        match report {
            Report::Ready { .. } => {}
            Report::Restored { cwd } => {
                session.stage = Stage::Ready;
                session.cwd = cwd;
                if session.init_files.is_empty() {
                    session.names = shadowing_names(&session.state);
                }
                self.dispatch(&name);
            }
            Report::End { number: n, .. } | Report::NoDir { number: n } if n != number => {}
            // How a shell ends is for the kernel to say: it may have been a signal.
            Report::End { cwd, leaving: true, .. } => {
                session.stage = Stage::Leaving;
                if let Some(process) = session.current.take() {
                    self.leaving.insert(key, (name.clone(), process, cwd));
                }
            }
            Report::End { status, cwd, leaving: false, .. } => {
                self.command_ended(&name, Some(key), End::Exited(status), Some(cwd));
            }
            Report::NoDir { .. } => {
                if let Some(process) = session.current.and_then(|key| self.procs.get_mut(&key)) {
                    process.workdir_failed = true;
                }
                self.command_ended(&name, Some(key), End::Exited(126), None);
            }
            Report::Saved { number: 0 } => {
                let saved = self.shells.get(&key).and_then(Shell::saved_state);
                if let (Some(session), Some((0, state))) = (self.sessions.get_mut(&name), saved) {
                    session.init_files.clear();
                    if session.mode == Mode::OneShot {
                        session.baseline.clone_from(&state);
                    }
                    if session.names.is_none() {
                        session.names = shadowing_names(&state);
                    }
                    session.state = state;
                }
            }
            Report::Saved { number: n } => {
                session.unsaved &= n != number;
                let leaving = session.stage == Stage::Leaving;
                if leaving {
                    self.next_shell(&name, key);
                } else if n == number && session.mode == Mode::Live {
                    let saved = self.shells.get(&key).and_then(Shell::saved_state);
                    if let (Some(session), Some((_, state))) = (self.sessions.get_mut(&name), saved) {
                        session.names = shadowing_names(&state);
                    }
                }
            }
        }
        if saved {
            self.start_deferred(&name);
        }
    }

    /// Must a process that starts from this session's state wait until that is written down?
    pub(crate) fn must_wait_for_state(&self, name: &SessionName) -> bool {
        self.sessions.get(name).is_some_and(|s| s.unsaved && s.current.is_none() && s.stage != Stage::Failed)
    }

    fn start_deferred(&mut self, name: &SessionName) {
        let Some(session) = self.sessions.get_mut(name) else { return };
        for (conn, call, start) in std::mem::take(&mut session.deferred) {
            // Who has gone meanwhile has seen nothing start.
            if self.conns.contains_key(&conn) {
                self.request(conn, call, farshell_protocol::Request::Start(start));
            }
        }
    }

    /// The command that a session's shell was running has come to its end, and the shell (if it is given) goes on.
    fn command_ended(&mut self, name: &SessionName, shell: Option<u32>, end: End, cwd: Option<Vec<u8>>) {
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

    fn finish_command(&mut self, name: &SessionName, key: u32, end: End, cwd: Option<Vec<u8>>) {
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

    /// A shell that leaves has written its state down: its successor can begin.
    fn next_shell(&mut self, name: &SessionName, old: u32) {
        self.take_state(name, old);
        self.shell_owner.remove(&old);
        if !self.leaving.contains_key(&old)
            && self.sessions.get(name).is_some_and(|s| s.mode == Mode::Live)
            && let Some(shell) = self.shells.get(&old)
        {
            // It would not leave by itself.
            sys::kill_child(shell.pid, libc::SIGKILL);
        }
        let cwd = self.leaving.get(&old).and_then(|(_, process, cwd)| {
            let process = self.procs.get(process)?;
            process.waiting.as_ref().is_none_or(|w| w.workdir.is_none()).then(|| cwd.clone())
        });
        if let Some(session) = self.sessions.get_mut(name) {
            session.shell = None;
            session.unsaved = false;
            session.restarts += u64::from(session.mode == Mode::Live);
            if let Some(cwd) = cwd {
                session.cwd = cwd;
            }
            if session.closing {
                return self.remove_session(name);
            }
        }
        self.prepare(name);
    }

    /// Takes over what a shell has written down. True if that includes its last command.
    fn take_state(&mut self, name: &SessionName, old: u32) -> bool {
        let Some(shell) = self.shells.get(&old) else { return false };
        let number = shell.number;
        let saved = shell.saved_state();
        let kept = saved.as_ref().map_or(number == 0, |(saved, _)| *saved == number);
        let Some(session) = self.sessions.get_mut(name) else { return kept };
        if session.unsaved && !kept {
            session.given.doubt();
        }
        if let Some((saved, state)) = saved {
            session.state = state;
            if saved > 0 || session.mode == Mode::Live {
                session.init_files.clear();
            }
        }
        kept
    }

    pub(crate) fn shell_died(&mut self, key: u32, change: Change) {
        // What it said with its last breath counts.
        self.shell_reports(key);
        self.ready_shells.remove(&key);
        if self.spare == Some(key) {
            self.spare = None;
        }
        let end = match change {
            Change::Exited { code, .. } => End::Exited(code),
            Change::Signaled { signal, .. } => End::Signaled(signal),
            Change::Stopped => return,
        };
        if let Some((name, process, cwd)) = self.leaving.remove(&key) {
            let live = self.sessions.get(&name).is_some_and(|s| s.mode == Mode::Live);
            if let Some(process) = self.procs.get_mut(&process) {
                process.shell_restarted = live;
            }
            // If its successor is at work already, this is old news for the session.
            let current = self.shell_owner.contains_key(&key);
            self.finish_command(&name, process, end, current.then_some(cwd));
        }
        let Some(name) = self.shell_owner.remove(&key) else {
            self.shells.remove(&key);
            return;
        };
        let current = self.sessions.get(&name).and_then(|session| session.current);
        let unwanted = current.and_then(|key| self.procs.get(&key)).is_some_and(|process| process.unwanted);
        let taken = unwanted || self.shells.get(&key).is_some_and(Shell::took_command);
        let kept = self.take_state(&name, key);
        self.shells.remove(&key);
        if let Some(session) = self.sessions.get_mut(&name) {
            session.unsaved = false;
        }
        self.start_deferred(&name);
        let Some(session) = self.sessions.get_mut(&name) else { return };
        session.shell = None;
        session.restarts += u64::from(session.mode == Mode::Live);
        match (session.stage, session.current) {
            (Stage::Running, Some(current)) if !taken => {
                // It died before it took the command, which therefore has not begun.
                session.current = None;
                session.queue.push_front(current);
                session.false_starts += 1;
                self.back_to_queue(current);
            }
            (Stage::Running, Some(current)) => {
                let live = session.mode == Mode::Live;
                if let Some(process) = self.procs.get_mut(&current) {
                    process.state_lost = !kept;
                    process.shell_restarted = live;
                }
                self.command_ended(&name, None, end, None);
            }
            (Stage::Preparing, _) => session.false_starts += 1,
            _ => {}
        }
        let Some(session) = self.sessions.get_mut(&name) else { return };
        if session.closing {
            return self.remove_session(&name);
        }
        if session.false_starts > 1 {
            // Perhaps a start file ends the shell: better a shell without it than none.
            session.init_files.clear();
        }
        if session.false_starts > FALSE_STARTS {
            session.stage = Stage::Failed;
            return self.fail_queue(&name, "the session's shell can't be started: it dies at once");
        }
        self.prepare(&name);
    }

    fn back_to_queue(&mut self, key: u32) {
        let Some(process) = self.procs.get_mut(&key) else { return };
        for alarm in [process.timeout_alarm.take(), process.watchdog_alarm.take()].into_iter().flatten() {
            self.reactor.cancel(alarm);
        }
        process.state = State::Queued;
        process.shell = None;
        process.stdin.fd = None;
        process.stdin_reader = None;
        self.pipe_owner.remove(&process.pipes);
        process.outputs = [None, None];
        process.writers = None;
    }

    pub(crate) fn shell_start_is_late(&mut self, key: u32) {
        let Some(name) = self.shell_owner.get(&key) else { return };
        let Some(session) = self.sessions.get_mut(name) else { return };
        if session.stage == Stage::Preparing && session.shell == Some(key) {
            session.init_files.clear();
            if let Some(shell) = self.shells.get(&key) {
                sys::kill_child(shell.pid, libc::SIGKILL);
            }
        }
    }

    /// A command is silent for a while. That is its right, unless the shell waits for the next one.
    pub(crate) fn watch_shell(&mut self, key: u32) {
        let Some(process) = self.procs.get_mut(&key) else { return };
        process.watchdog_alarm = None;
        if process.ended() {
            return;
        }
        let Some(shell) = process.shell.and_then(|key| self.shells.get(&key)) else { return };
        if shell.lost() {
            sys::kill_child(shell.pid, libc::SIGKILL);
            return;
        }
        let age = process.started.elapsed();
        let next = Instant::now() + age.clamp(FIRST_LOOK, Duration::from_secs(60));
        process.watchdog_alarm = Some(self.reactor.alarm(next, Alarm::Watchdog(key)));
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

/// What a session's first shell sources: nothing but variables.
fn first_state(vars: &[(Vec<u8>, Vec<u8>)], bash: bool) -> Vec<u8> {
    let mut state = Vec::new();
    for (name, value) in vars {
        if is_variable_name(name) {
            // The shell keeps these itself.
            if [&b"_"[..], b"SHLVL", b"PWD", b"OLDPWD"].contains(&name.as_slice()) {
                continue;
            }
            state.extend_from_slice(b"export ");
            state.extend_from_slice(name);
            state.push(b'=');
            quote(&mut state, value);
            state.push(b'\n');
        } else if let (true, Some(name)) = (bash, exported_function(name)) {
            state.extend_from_slice(name);
            state.push(b' ');
            state.extend_from_slice(value);
            state.extend_from_slice(b"\nexport -f ");
            state.extend_from_slice(name);
            state.push(b'\n');
        }
    }
    state
}

/// bash passes functions to its children as variables with such names.
fn exported_function(name: &[u8]) -> Option<&[u8]> {
    let name = name.strip_prefix(b"BASH_FUNC_")?.strip_suffix(b"%%")?;
    is_variable_name(name).then_some(name)
}

/// What each shell of a one-shot session sources: functions and aliases of the init files, and the exported
/// variables as the last command left them.
fn one_shot_state(session: &Session) -> Vec<u8> {
    if session.baseline.is_empty() || session.baseline == session.state {
        return session.state.clone();
    }
    let mut state = session.baseline.clone();
    let now = exported_names(&session.state);
    for name in exported_names(&session.baseline).difference(&now) {
        state.extend_from_slice(b"unset ");
        state.extend_from_slice(name);
        state.push(b'\n');
    }
    state.extend_from_slice(&session.state);
    state
}
