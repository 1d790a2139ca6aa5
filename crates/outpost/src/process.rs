//! One process as the outpost keeps it.

use crate::kill::Tag;
use crate::log::Log;
use crate::reactor::AlarmKey;
use farshell_protocol::process::{End, Killed, Start, State, Status, Stdin, Usage, What};
use farshell_protocol::{ProcessId, SessionName};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The end of a log must hold what a reader who must get everything can be behind: a pipe and a bit.
const LEAST_LOG_CAP: u64 = 4 << 20;
/// Bytes of a command that lists show.
const TITLE: usize = 200;

#[derive(Debug)]
pub(crate) struct Process {
    pub key: u32,
    pub id: ProcessId,
    /// What was asked for, to tell a repeated start from a different one under the same id.
    pub fingerprint: u64,
    pub title: String,
    pub state: State,
    /// The session whose shell runs it.
    pub session: Option<SessionName>,
    /// That shell.
    pub shell: Option<u32>,
    pub pid: u32,
    pub tag: Option<Tag>,
    /// Ticks since boot when it began.
    pub since: u64,
    pub started: Instant,
    pub elapsed: Option<Duration>,
    /// Under which the outpost finds it when its output is readable.
    pub pipes: u32,
    /// Reading ends of its output; the first is the terminal if it has one.
    pub outputs: [Option<OwnedFd>; 2],
    /// Our own writing ends, while a session's shell runs it.
    pub writers: Option<[OwnedFd; 2]>,
    /// A command that starts no process: nobody can hold its output when it has ended.
    pub leaves_nothing: bool,
    /// And it prints where its shell reports, so its pipes stay empty.
    pub direct: bool,
    /// Its pipes were given a larger size.
    pub wide: [bool; 2],
    pub pty: bool,
    /// Reading waits until a slow reader, who must get everything, has caught up.
    pub paused: bool,
    pub log: Log,
    pub stdin: Input,
    /// The reading end of a session command's input, which the shell opens by name.
    pub stdin_reader: Option<OwnedFd>,
    /// Calls that follow the output.
    pub readers: Vec<(u32, u32)>,
    pub cwd: Option<Vec<u8>>,
    pub usage: Option<Usage>,
    pub timeout: Option<Duration>,
    pub grace: Duration,
    pub timed_out: bool,
    pub workdir_failed: bool,
    /// See [`Status::pipe`].
    pub pipe: u64,
    pub killing: bool,
    /// Somebody wants it to end: it must not be given to another shell if its own dies before it begins.
    pub unwanted: bool,
    pub killed: Option<Killed>,
    pub shell_restarted: bool,
    pub state_lost: bool,
    pub out_of_memory: bool,
    /// What the kernel had killed for want of memory when it began.
    pub kills_before: Option<u64>,
    pub timeout_alarm: Option<AlarmKey>,
    pub watchdog_alarm: Option<AlarmKey>,
    /// How it ended, while the kill that made it end is still counting.
    pub end_held: Option<End>,
    /// What its shell sources at the start.
    pub scripts: Vec<std::fs::File>,
    /// For a session command that has not begun.
    pub waiting: Option<Waiting>,
}

/// What a queued session command needs to begin.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub command: Vec<u8>,
    pub workdir: Option<Vec<u8>>,
    pub merge_stderr: bool,
    pub stdin: Stdin,
    /// What the session is to be given, see [`Start::variables`].
    pub variables: Option<Vec<(Vec<u8>, Vec<u8>)>>,
    /// The call that asked; if its connection goes before the command's turn, the command never runs.
    pub conn: u32,
    /// It had to wait for its turn.
    pub queued: bool,
}

/// A process's standard input.
#[derive(Debug, Default)]
pub(crate) struct Input {
    /// The writing end, until the end of file.
    pub fd: Option<OwnedFd>,
    /// Bytes taken from callers, whether or not the process has read them.
    pub taken: u64,
    /// Taken and not yet written.
    pub pending: Vec<u8>,
    pub eof: bool,
    /// Calls to be answered when `pending` is written.
    pub callers: Vec<(u32, u32)>,
}

impl Process {
    pub(crate) fn new(key: u32, start: &Start, log_dir: &std::path::Path, fingerprint: u64) -> Self {
        let cap = match start.log_cap {
            0 => farshell_protocol::process::DEFAULT_LOG_CAP,
            cap => cap.max(LEAST_LOG_CAP),
        };
        let log: PathBuf = log_dir.join(format!("{}-{key}", start.id));
        let (title, session) = match &start.what {
            What::Session { command, session, .. } => (title(command), Some(session.clone())),
            What::Shell { command, .. } => (title(command), None),
            What::Exec { argv, .. } => {
                (title(&argv.iter().map(|a| a.as_slice()).collect::<Vec<_>>().join(&b' ')), None)
            }
        };
        let started = Instant::now();
        Self {
            key,
            id: start.id.clone(),
            fingerprint,
            title,
            state: State::Running,
            session,
            shell: None,
            pid: 0,
            tag: None,
            since: 0,
            started,
            elapsed: None,
            pipes: 0,
            outputs: [None, None],
            writers: None,
            leaves_nothing: false,
            direct: false,
            wide: [false; 2],
            pty: false,
            paused: false,
            log: Log::new(log, cap),
            stdin: Input::default(),
            stdin_reader: None,
            readers: Vec::new(),
            cwd: None,
            usage: None,
            timeout: start.timeout_ms.map(Duration::from_millis),
            grace: Duration::from_millis(start.grace_ms),
            timed_out: false,
            workdir_failed: false,
            pipe: 0,
            killing: false,
            unwanted: false,
            killed: None,
            shell_restarted: false,
            state_lost: false,
            out_of_memory: false,
            kills_before: crate::memory::before(started),
            timeout_alarm: None,
            watchdog_alarm: None,
            end_held: None,
            scripts: Vec::new(),
            waiting: None,
        }
    }

    pub(crate) fn ended(&self) -> bool {
        matches!(self.state, State::Ended(_) | State::Abandoned)
    }

    pub(crate) fn end(&mut self, end: End) {
        self.state = State::Ended(end);
        self.elapsed = Some(self.started.elapsed());
    }

    /// Somebody can still write to its output.
    pub(crate) fn open(&self) -> bool {
        self.outputs.iter().any(Option::is_some)
    }

    pub(crate) fn status(&self) -> Status {
        Status {
            id: self.id.clone(),
            state: self.state,
            pid: self.pid,
            session: self.session.clone(),
            output: self.log.status(self.open()),
            cwd: self.cwd.clone(),
            elapsed_us: u64::try_from(self.elapsed.unwrap_or_else(|| self.started.elapsed()).as_micros())
                .unwrap_or(u64::MAX),
            usage: self.usage,
            timed_out: self.timed_out,
            workdir_failed: self.workdir_failed,
            kill: self.killed,
            shell_restarted: self.shell_restarted,
            state_lost: self.state_lost,
            out_of_memory: self.out_of_memory,
            waiting_for: None,
            pipe: self.pipe,
            title: String::new(),
        }
    }

    /// The same with what takes time or space to say.
    pub(crate) fn described(&self) -> Status {
        let mut status = self.status();
        status.title.clone_from(&self.title);
        if let (true, State::Running, Some(terminal)) = (self.pty, self.state, &self.outputs[0]) {
            status.waiting_for = crate::waiting::waiting_for(terminal.as_fd());
        }
        status
    }
}

fn title(command: &[u8]) -> String {
    let text = String::from_utf8_lossy(&command[..command.len().min(TITLE * 4)]);
    text.chars().take(TITLE).collect()
}
