//! The life of a session's shells.
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
use crate::reactor::{Alarm, Interest, Token};
use crate::session::{Stage, one_shot_state, shadowing_names};
use crate::shell::{Report, Shell, Takeover};
use crate::sys::{self, Change};
use farshell_protocol::SessionName;
use farshell_protocol::process::{End, State, Stream};
use farshell_protocol::session::Mode;
use std::io;
use std::time::{Duration, Instant};

/// A shell that is not ready by then (a start file that waits for input) is given up.
const SHELL_START: Duration = Duration::from_secs(20);
/// Shells that may die in a row without running anything.
const FALSE_STARTS: u32 = 5;
/// Where a shell is born, within the outpost's directory; its key follows.
pub(crate) const SHELL_DIR: &str = "shell-";
/// First look whether a silent shell has lost its way; later looks are further and further apart.
pub(crate) const FIRST_LOOK: Duration = Duration::from_secs(1);

impl Daemon {
    /// Starts the shell that the next session, or the next command, will find ready.
    pub(crate) fn start_spare(&mut self) {
        self.want_spare = false;
        if self.spare.is_none() {
            self.spare = self.start_shell().ok();
        }
    }

    fn start_shell(&mut self) -> io::Result<u32> {
        let Some(program) = self.program.clone() else { return Err(io::ErrorKind::NotFound.into()) };
        let key = self.key();
        self.tags.mark_self();
        let shell = Shell::start(&program, self.dir.join(format!("{SHELL_DIR}{key}")))?;
        self.give_limits(shell.pid);
        self.reactor.add(&shell.reports.read, Token::Shell(key), Interest::ReadEdge)?;
        self.children().insert(shell.pid, Child::Shell(key));
        self.shells.insert(key, shell);
        Ok(key)
    }

    /// Gives a session a shell and lets it take over the session's state.
    pub(crate) fn prepare(&mut self, name: &SessionName) {
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
            Report::End { status, cwd, pipe, leaving: false, .. } => {
                if let Some(process) = session.current.and_then(|key| self.procs.get_mut(&key)) {
                    process.pipe = pipe;
                }
                self.command_ended(&name, Some(key), End::Exited(status), Some(cwd));
            }
            Report::Said { bytes, status, cwd } => {
                if let Some(process) = session.current {
                    self.said(process, Stream::Stdout, &bytes);
                }
                self.command_ended(&name, Some(key), End::Exited(status), Some(cwd));
            }
            Report::NoDir { .. } => {
                if let Some(process) = session.current.and_then(|key| self.procs.get_mut(&key)) {
                    process.workdir_failed = true;
                }
                self.command_ended(&name, Some(key), End::Exited(126), None);
            }
            Report::Saved { number: 0 } => {
                let first = self.shells.get(&key).and_then(Shell::first_state);
                if let (Some(session), Some(state)) = (self.sessions.get_mut(&name), first) {
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

    pub(crate) fn back_to_queue(&mut self, key: u32) {
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
