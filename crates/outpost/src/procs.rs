//! The life of a process: begin, output, input, end, and what is kept of it.

use crate::conns::{Call, MOST_BEHIND, Passing};
use crate::daemon::{Child, Daemon, READ};
use crate::kill::{Target, ticks_now};
use crate::process::Process;
use crate::reactor::{Alarm, Interest, Token};
use crate::session::{VariableChange, change_variables};
use crate::shell;
use crate::sys::{self, Change, Spawn, Stdio};
use crate::words::quote;
use farshell_protocol::process::{End, Killed, Start, State, Stdin, Stream, Surroundings, What};
use farshell_protocol::{ErrorKind, Failure, Reply};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

/// Finished processes that are kept.
const MOST_FINISHED: usize = 1024;
/// Log bytes of finished processes that are kept, in memory and on disk.
const MOST_LOG_MEMORY: usize = 4 << 20;
const MOST_LOG_DISK: u64 = 1 << 30;
/// Ids that are remembered after their record is gone.
const MOST_SPENT: usize = 100_000;
/// Output read from one pipe before others get their turn.
const TURN: usize = 4 << 20;
/// A pipe of the usual size that holds this much is busy, and gets the other size.
const FULL_PIPE: usize = 60 << 10;
const BUSY_PIPE: usize = 1 << 20;
/// Commands up to this size are passed as an argument.
const MOST_ARGUMENT: usize = 64 << 10;

impl Daemon {
    /// Starts a process that is not part of a session's shell.
    pub(crate) fn start_own(&mut self, mut process: Process, start: Start) -> Result<(), Failure> {
        let (argv, surroundings) = match start.what {
            What::Exec { argv, surroundings } => {
                (argv.into_iter().map(serde_bytes::ByteBuf::into_vec).collect::<Vec<_>>(), surroundings)
            }
            What::Shell { command, session, mut surroundings } => {
                let given = start.variables.map(check_variables).transpose()?;
                let known = session.as_ref().and_then(|name| self.sessions.get(name));
                let changes = match (known, &given) {
                    (Some(session), Some(given)) => session.given.changes(given),
                    _ => Vec::new(),
                };
                if session.is_none() {
                    let given = given.into_iter().flatten();
                    surroundings.env.extend(given.map(|(name, value)| (name.into(), value.into())));
                }
                let argv =
                    self.shell_argv(&mut process, &command, session.as_ref(), &surroundings, &changes)?;
                (argv, surroundings)
            }
            What::Session { .. } => return Err(Failure::new(ErrorKind::Invalid, "not a process of its own")),
        };
        let Some(program) = argv.first().cloned() else {
            return Err(Failure::new(ErrorKind::Invalid, "an empty argument list"));
        };
        let session_cwd = process.cwd.take();
        let cwd = match surroundings.cwd.as_deref().or(session_cwd.as_deref()) {
            Some(dir) => self.expand(dir),
            None => self.home.as_os_str().as_bytes().to_vec(),
        };
        check_dir(&cwd)?;
        let env = self.environment(&surroundings)?;
        let argv: Vec<CString> = argv.into_iter().map(c_string).collect::<Result<_, _>>()?;
        let cwd_c = c_string(cwd.clone())?;

        let failed = |error: io::Error| spawn_failure(&program, &error);
        let spawn = |stdio| {
            let program = OsStr::from_bytes(&program);
            sys::spawn(&Spawn { program, argv: &argv, env: &env, stdio, cwd: Some(&cwd_c) }).map_err(failed)
        };
        let tag = self.tags.next();
        process.tag = self.tags.mark_self(tag).then_some(tag);
        process.since = ticks_now();
        process.started = Instant::now();
        let pid = if let Some(size) = surroundings.pty {
            let (master, slave, name) = open_terminal().map_err(failed)?;
            crate::requests::set_size(&slave, size).map_err(failed)?;
            let stdio = [Stdio::Path(&name); 3];
            let pid = spawn(stdio)?;
            // A terminal's input and output are one descriptor.
            process.stdin.fd = master.try_clone().ok();
            process.outputs[0] = Some(master);
            process.pty = true;
            pid
        } else {
            let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
                .map_err(|e| failed(e.into()))?;
            let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|e| failed(e.into()));
            let (out_read, out_write) = pipe()?;
            let (err_read, err_write) = pipe()?;
            let (in_read, in_write) = pipe()?;
            for fd in [&out_read, &err_read, &in_write] {
                rustix::io::ioctl_fionbio(fd, true).map_err(|e| failed(e.into()))?;
            }
            let stdin = if start.stdin == Stdin::Pipe { in_read.as_fd() } else { null.as_fd() };
            let stderr = if surroundings.merge_stderr { out_write.as_fd() } else { err_write.as_fd() };
            let stdio = [Stdio::Fd(stdin), Stdio::Fd(out_write.as_fd()), Stdio::Fd(stderr)];
            let pid = spawn(stdio)?;
            process.outputs = [Some(out_read), (!surroundings.merge_stderr).then_some(err_read)];
            if start.stdin == Stdin::Pipe {
                process.stdin.fd = Some(in_write);
            }
            pid
        };
        self.give_limits(pid);
        process.pid = pid;
        process.cwd = Some(cwd);
        process.pipes = self.key();
        let key = process.key;
        for (i, fd) in (0..).zip(&process.outputs) {
            if let Some(fd) = fd {
                let _ = self.reactor.add(fd, Token::Output(process.pipes, i), Interest::ReadEdge);
            }
        }
        if let Some(fd) = &process.stdin.fd {
            let _ = self.reactor.add(fd, Token::Input(key), Interest::WriteEdge);
        }
        self.pipe_owner.insert(process.pipes, key);
        self.children.insert(pid, Child::Process(key));
        if let Some(timeout) = process.timeout {
            process.timeout_alarm = Some(self.reactor.alarm(process.started + timeout, Alarm::Timeout(key)));
        }
        self.by_id.insert(process.id.clone(), key);
        self.procs.insert(key, process);
        Ok(())
    }

    /// The words that run a command in a shell of its own, from a session's state if one is given.
    fn shell_argv(
        &mut self,
        process: &mut Process,
        command: &[u8],
        session: Option<&farshell_protocol::SessionName>,
        surroundings: &Surroundings,
        changes: &[VariableChange],
    ) -> Result<Vec<Vec<u8>>, Failure> {
        check_command(command)?;
        let Some(program) = self.program.clone() else { return Err(no_shell()) };
        let mut argv: Vec<Vec<u8>> = vec![program.path.as_os_str().as_bytes().to_vec()];
        if program.bash {
            argv.extend([b"--noprofile".to_vec(), b"--norc".to_vec()]);
        }
        argv.push(b"-c".to_vec());
        let state = match session {
            Some(name) => {
                let session = self.sessions.get(name).ok_or_else(|| {
                    Failure::new(ErrorKind::NotFound, format!("no session {name} is open here"))
                })?;
                process.cwd = Some(session.cwd.clone());
                Some(self.current_state(name))
            }
            None => None,
        };
        if state.is_none() && command.len() <= MOST_ARGUMENT {
            argv.push(command.to_vec());
            return Ok(argv);
        }
        let failed = |error: io::Error| spawn_failure(b"shell", &error);
        let mut script = Vec::new();
        let mut words = String::new();
        if let Some(state) = &state {
            let (before, after) = shell::takeover(program.bash);
            let file = shell::script_file(state).map_err(failed)?;
            words = format!("{before}\n. {} 2>/dev/null\n", shell::name_of(&file));
            process.scripts.push(file);
            script.extend_from_slice(after.as_bytes());
            change_variables(&mut script, changes, program.bash);
            for (name, value) in &surroundings.env {
                if is_variable_name(name) {
                    script.extend_from_slice(b"export ");
                    script.extend_from_slice(name);
                    script.push(b'=');
                    quote(&mut script, value);
                    script.push(b'\n');
                }
            }
        }
        script.extend_from_slice(b"__farshell=");
        quote(&mut script, command);
        script.push(b'\n');
        let file = shell::script_file(&script).map_err(failed)?;
        argv.push(format!("{words}. {}; eval \"$__farshell\"", shell::name_of(&file)).into_bytes());
        process.scripts.push(file);
        Ok(argv)
    }

    /// Children get the limit on open files that they would have had without us.
    pub(crate) fn give_limits(&self, pid: u32) {
        let pid = rustix::process::Pid::from_raw(pid.cast_signed());
        let _ = rustix::process::prlimit(pid, rustix::process::Resource::Nofile, self.nofile);
    }

    fn environment(&self, surroundings: &Surroundings) -> Result<Vec<CString>, Failure> {
        let mut vars: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        if !surroundings.clear_env {
            vars.extend(own_environment());
        }
        if surroundings.pty.is_some() {
            vars.retain(|(name, _)| name != b"TERM");
            vars.push((b"TERM".to_vec(), b"xterm-256color".to_vec()));
        }
        for (name, value) in &surroundings.env {
            vars.retain(|(known, _)| known != name.as_slice());
            vars.push((name.to_vec(), value.to_vec()));
        }
        vars.into_iter().map(|(name, value)| c_string([name, value].join(&b'='))).collect()
    }

    /// `~` and paths relative to the home directory.
    pub(crate) fn expand(&self, path: &[u8]) -> Vec<u8> {
        let home = self.home.as_os_str().as_bytes();
        match path {
            b"" | b"~" => home.to_vec(),
            [b'~', b'/', rest @ ..] => [home, rest].join(&b'/'),
            [b'/', ..] => path.to_vec(),
            _ => [home, path].join(&b'/'),
        }
    }

    /// A pipe of this pair has something to say.
    pub(crate) fn output_ready(&mut self, pipes: u32, stream: u8) {
        let Some(key) = self.pipe_owner.get(&pipes).copied() else { return };
        self.read_output(key, stream, TURN, false);
        // A reader that was woken may have fallen behind; the rest is pushed when its socket has room.
        self.pump_readers(key);
    }

    fn pump_readers(&mut self, key: u32) {
        let Some(process) = self.procs.get(&key) else { return };
        for (conn, _) in process.readers.clone() {
            self.pump(conn);
        }
    }

    /// Reads at most `most` bytes. False once nobody can write to the pipe any more.
    fn read_output(&mut self, key: u32, stream: u8, most: usize, regardless: bool) -> bool {
        let mut done = 0;
        if most >= READ {
            self.widen(key, stream);
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let open = loop {
            if !regardless && self.behind(key) > MOST_BEHIND {
                if let Some(process) = self.procs.get_mut(&key) {
                    process.paused = true;
                }
                break true;
            }
            if most - done >= READ {
                std::mem::swap(&mut buffer, &mut self.buffer);
                let passed = self.pass_on(key, stream);
                std::mem::swap(&mut buffer, &mut self.buffer);
                match passed {
                    Passing::Moved(bytes) => {
                        done += bytes;
                        continue;
                    }
                    Passing::Later if !regardless => {
                        if let Some(process) = self.procs.get_mut(&key) {
                            process.paused = true;
                        }
                        break true;
                    }
                    Passing::Later | Passing::No => {}
                }
            }
            let Some(process) = self.procs.get_mut(&key) else { break false };
            let Some(fd) = &process.outputs[stream as usize] else { break false };
            if done >= most {
                if !regardless {
                    self.backlog.push_back(Token::Output(process.pipes, stream));
                }
                break true;
            }
            let want = READ.min(most - done);
            let n = match rustix::io::read(fd, &mut buffer[..want]) {
                Ok(0) => break false,
                Ok(n) => n,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => break true,
                // A terminal whose last user has gone.
                Err(_) => break false,
            };
            let name = if stream == 0 { Stream::Stdout } else { Stream::Stderr };
            let offset = process.log.total_of(name);
            process.log.append(name, &buffer[..n]);
            self.deliver(key, name, offset, &buffer[..n]);
            done += n;
        };
        self.buffer = buffer;
        if !open {
            self.output_closed(key, stream);
        }
        open
    }

    /// Gives a pipe that was found full a larger size, so that writer and reader meet less often.
    fn widen(&mut self, key: u32, stream: u8) {
        let Some(process) = self.procs.get_mut(&key) else { return };
        let Some(fd) = process.outputs[stream as usize].as_ref().filter(|_| !process.pty) else { return };
        if !process.wide[stream as usize] && sys::pipe_fill(fd.as_fd()) >= FULL_PIPE {
            process.wide[stream as usize] = true;
            let _ = rustix::pipe::fcntl_setpipe_size(fd, BUSY_PIPE);
        }
    }

    /// Nobody can write to this output any more, for now: a session's next command may open the pipe again.
    fn output_closed(&mut self, key: u32, stream: u8) {
        let Some(process) = self.procs.get_mut(&key) else { return };
        if process.shell.is_some() && !process.ended() && process.end_held.is_none() {
            return;
        }
        if process.outputs[stream as usize].take().is_none() {
            return;
        }
        if !process.open() {
            self.pipe_owner.remove(&process.pipes);
            if process.ended() && process.end_held.is_none() {
                self.wake_readers(key);
            }
        }
    }

    /// What the process has printed before this moment, however much a background child adds meanwhile.
    pub(crate) fn drain(&mut self, key: u32) -> [bool; 2] {
        let mut open = [false; 2];
        for stream in 0..2_u8 {
            let Some(process) = self.procs.get(&key) else { return open };
            let Some(fd) = &process.outputs[stream as usize] else { continue };
            // One byte more than there can be finds out whether anybody still holds the pipe.
            let unknown = process.pty || process.leaves_nothing;
            let most = if unknown { BUSY_PIPE } else { sys::pipe_size(fd.as_fd()) + 1 };
            open[stream as usize] = self.read_output(key, stream, most, true);
        }
        open
    }

    /// The same for pipes that we hold open ourselves, so that there is nothing to find out but what is in them.
    pub(crate) fn drain_own(&mut self, key: u32) {
        for stream in 0..2_u8 {
            let Some(process) = self.procs.get(&key) else { return };
            let Some(fd) = &process.outputs[stream as usize] else { continue };
            let fill = sys::pipe_fill(fd.as_fd());
            if fill > 0 {
                self.read_output(key, stream, fill, true);
            }
        }
    }

    /// Readers have caught up: the process may go on.
    pub(crate) fn maybe_resume(&mut self, key: u32) {
        let Some(process) = self.procs.get(&key) else { return };
        if !process.paused || self.behind(key) > MOST_BEHIND / 2 {
            return;
        }
        let pipes = process.pipes;
        if let Some(process) = self.procs.get_mut(&key) {
            process.paused = false;
        }
        self.backlog.extend([Token::Output(pipes, 0), Token::Output(pipes, 1)]);
    }

    /// There is input to write, or room for it.
    pub(crate) fn input_ready(&mut self, key: u32) {
        let Some(process) = self.procs.get_mut(&key) else { return };
        let input = &mut process.stdin;
        let Some(fd) = &input.fd else { return };
        let mut failed = false;
        while !input.pending.is_empty() {
            match rustix::io::write(fd, &input.pending) {
                Ok(n) => drop(input.pending.drain(..n)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    // The process does not want any more; that is its right.
                    failed = true;
                    break;
                }
            }
        }
        if failed {
            input.pending.clear();
        }
        if input.eof || failed {
            if process.pty && !failed {
                // End of file on a terminal is a character.
                let _ = rustix::io::write(fd, &[4]);
            }
            input.eof = true;
            input.fd = None;
        }
        let taken = input.taken;
        for (conn, call) in std::mem::take(&mut input.callers) {
            if let Some(state) = self.conns.get_mut(&conn) {
                state.calls.remove(&call);
            }
            self.reply(conn, call, &Ok(Reply::Stdin { taken }));
        }
    }

    pub(crate) fn process_died(&mut self, key: u32, change: Change) {
        self.drain(key);
        let Some(process) = self.procs.get_mut(&key) else { return };
        let (end, usage) = match change {
            Change::Exited { code, usage } => (End::Exited(code), usage),
            Change::Signaled { signal, usage } => (End::Signaled(signal), usage),
            Change::Stopped => return,
        };
        process.usage = Some(usage);
        process.scripts.clear();
        self.process_ended(key, end);
    }

    /// It has ended. If a kill is under way, that is told when the kill is through.
    pub(crate) fn process_ended(&mut self, key: u32, end: End) {
        let Some(process) = self.procs.get_mut(&key) else { return };
        process.end(end);
        // 128 + 9 is a shell's word for what was killed.
        let killed = matches!(end, End::Signaled(libc::SIGKILL) | End::Exited(137));
        process.out_of_memory = killed && crate::memory::ran_out();
        process.stdin.fd = None;
        process.stdin.pending.clear();
        process.stdin.eof = true;
        let callers = std::mem::take(&mut process.stdin.callers);
        for alarm in [process.timeout_alarm.take(), process.watchdog_alarm.take()].into_iter().flatten() {
            self.reactor.cancel(alarm);
        }
        if process.killing {
            process.end_held = Some(end);
        }
        let held = process.killing;
        let taken = process.stdin.taken;
        for (conn, call) in callers {
            if let Some(state) = self.conns.get_mut(&conn) {
                state.calls.remove(&call);
            }
            self.reply(conn, call, &Ok(Reply::Stdin { taken }));
        }
        if !held {
            self.retire(key);
            self.wake_readers(key);
        }
    }

    pub(crate) fn time_is_up(&mut self, key: u32) {
        let Some(process) = self.procs.get_mut(&key) else { return };
        process.timeout_alarm = None;
        if process.ended() {
            return;
        }
        process.timed_out = true;
        let grace = process.grace;
        self.start_kill(key, grace);
    }

    pub(crate) fn target(&self, process: &Process, first: i32, grace: Duration) -> Target {
        Target {
            key: process.key,
            tag: process.tag,
            root: process.pid,
            shell: process.session.is_some(),
            running: !process.ended(),
            since: process.since,
            grace,
            first,
        }
    }

    pub(crate) fn start_kill(&mut self, key: u32, grace: Duration) {
        let Some(process) = self.procs.get(&key) else { return };
        if process.killing {
            return;
        }
        let target = self.target(process, libc::SIGTERM, grace);
        if let Some(process) = self.procs.get_mut(&key) {
            process.killing = true;
            process.unwanted = true;
        }
        // The killer lives as long as the daemon.
        let _ = self.killer.send(target);
    }

    pub(crate) fn kill_outcomes(&mut self) {
        // Whoever was killed may still have to be waited for.
        while let Ok(outcome) = self.outcomes.try_recv() {
            let key = outcome.key;
            let Some(process) = self.procs.get_mut(&key) else { continue };
            process.killing = false;
            let before = process.killed.unwrap_or_default();
            let killed = Killed { killed: before.killed + outcome.killed.killed, left: outcome.killed.left };
            process.killed = Some(killed);
            let id = process.id.clone();
            if process.end_held.take().is_some() {
                self.retire(key);
                self.wake_readers(key);
            }
            self.answer_kills(key, &id, killed);
        }
    }

    fn answer_kills(&mut self, key: u32, id: &farshell_protocol::ProcessId, killed: Killed) {
        let mut done = Vec::new();
        for (conn, state) in &mut self.conns {
            for (call, kind) in &mut state.calls {
                if let Call::Kill { waiting, results } = kind
                    && waiting.contains(&key)
                {
                    waiting.retain(|k| *k != key);
                    results.push((id.clone(), killed));
                    if waiting.is_empty() {
                        done.push((*conn, *call, std::mem::take(results)));
                    }
                }
            }
        }
        for (conn, call, results) in done {
            if let Some(state) = self.conns.get_mut(&conn) {
                state.calls.remove(&call);
            }
            self.reply(conn, call, &Ok(Reply::Killed(results)));
        }
    }

    /// Takes an ended process into the records, and makes room for it.
    pub(crate) fn retire(&mut self, key: u32) {
        let Some(process) = self.procs.get(&key) else { return };
        self.log_memory += process.log.memory();
        self.log_disk += process.log.disk();
        self.finished.push_back(key);
        self.maybe_idle();
        if self.log_memory > MOST_LOG_MEMORY {
            self.spill_finished();
        }
        let mut looked = 0;
        while (self.finished.len() > MOST_FINISHED || self.log_disk > MOST_LOG_DISK)
            && looked < self.finished.len()
        {
            let Some(oldest) = self.finished.pop_front() else { return };
            // To drop an output that is still written to would kill the writer.
            let keep = self.procs.get(&oldest).is_some_and(|p| p.open() || !p.readers.is_empty());
            if keep {
                self.finished.push_back(oldest);
                looked += 1;
            } else {
                self.evict(oldest);
            }
        }
    }

    fn spill_finished(&mut self) {
        for key in &self.finished {
            if let Some(process) = self.procs.get_mut(key) {
                let _ = process.log.spill();
            }
        }
        let all = || self.finished.iter().filter_map(|key| self.procs.get(key));
        let (memory, disk) = (all().map(|p| p.log.memory()).sum(), all().map(|p| p.log.disk()).sum());
        (self.log_memory, self.log_disk) = (memory, disk);
    }

    /// Forgets a finished process, but not that its id was used.
    pub(crate) fn evict(&mut self, key: u32) {
        let Some(process) = self.procs.remove(&key) else { return };
        self.log_memory = self.log_memory.saturating_sub(process.log.memory());
        self.log_disk = self.log_disk.saturating_sub(process.log.disk());
        self.by_id.remove(&process.id);
        self.pipe_owner.remove(&process.pipes);
        self.spend(process.id);
    }

    /// No process is started under this id.
    pub(crate) fn spend(&mut self, id: farshell_protocol::ProcessId) {
        if self.spent.insert(id.clone()) {
            self.spent_order.push_back(id);
        }
        if self.spent_order.len() > MOST_SPENT
            && let Some(oldest) = self.spent_order.pop_front()
        {
            self.spent.remove(&oldest);
        }
    }

    /// A command that is waiting for its session goes with the connection that sent it: it has not begun, and
    /// its sender will find that out when it asks.
    pub(crate) fn abandon_queued_of(&mut self, conn: u32) {
        let keys: Vec<u32> = self
            .procs
            .values()
            .filter(|p| p.state == State::Queued && p.waiting.as_ref().is_some_and(|w| w.conn == conn))
            .map(|p| p.key)
            .collect();
        for key in keys {
            // As if it had never been sent: its sender may send it again, under the same id.
            if self.abandon(key) && self.procs.get(&key).is_some_and(|p| p.readers.is_empty()) {
                self.finished.retain(|k| *k != key);
                if let Some(process) = self.procs.remove(&key) {
                    self.by_id.remove(&process.id);
                }
            }
        }
    }

    pub(crate) fn wake_reader(&mut self, conn: u32, call: u32) {
        if let Some(state) = self.conns.get_mut(&conn) {
            state.is_ready(call);
        }
        self.pump(conn);
    }
}

pub(crate) fn own_environment() -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    std::env::vars_os().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
}

pub(crate) fn is_variable_name(name: &[u8]) -> bool {
    let first = |b: &u8| b.is_ascii_alphabetic() || *b == b'_';
    name.first().is_some_and(first) && name.iter().all(|b| first(b) || b.is_ascii_digit())
}

pub(crate) fn check_command(command: &[u8]) -> Result<(), Failure> {
    if command.contains(&0) {
        return Err(Failure::new(ErrorKind::Invalid, "a command can't contain a NUL byte"));
    }
    Ok(())
}

/// A name and a value.
pub(crate) type Variable = (Vec<u8>, Vec<u8>);

/// # Errors
/// One of them can't be a variable.
pub(crate) fn check_variables(
    variables: Vec<(serde_bytes::ByteBuf, serde_bytes::ByteBuf)>,
) -> Result<Vec<Variable>, Failure> {
    let sound = |(name, value): &(serde_bytes::ByteBuf, serde_bytes::ByteBuf)| {
        is_variable_name(name) && !value.contains(&0)
    };
    // Neither names nor values are told: the latter may be secret.
    if !variables.iter().all(sound) {
        return Err(Failure::new(ErrorKind::Invalid, "a variable has no proper name, or a NUL byte in it"));
    }
    Ok(variables.into_iter().map(|(name, value)| (name.into_vec(), value.into_vec())).collect())
}

pub(crate) fn no_shell() -> Failure {
    Failure::new(ErrorKind::ShellFailed, "this place has neither bash nor sh")
}

fn c_string(bytes: Vec<u8>) -> Result<CString, Failure> {
    CString::new(bytes).map_err(|_| Failure::new(ErrorKind::Invalid, "arguments can't contain a NUL byte"))
}

/// Can this directory be entered?
pub(crate) fn check_dir(dir: &[u8]) -> Result<(), Failure> {
    let shown = String::from_utf8_lossy(dir).into_owned();
    let explain = |error: io::Error| {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
            _ => ErrorKind::Invalid,
        };
        Failure { kind, message: format!("can't enter {shown:?}: {error}"), errno: error.raw_os_error() }
    };
    let path = OsStr::from_bytes(dir);
    let meta = std::fs::metadata(path).map_err(explain)?;
    if !meta.is_dir() {
        return Err(explain(io::Error::from_raw_os_error(libc::ENOTDIR)));
    }
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).map_err(|e| explain(e.into()))
}

fn spawn_failure(program: &[u8], error: &io::Error) -> Failure {
    let kind = match error.raw_os_error() {
        Some(libc::ENOENT) => ErrorKind::NotFound,
        Some(libc::EACCES | libc::EPERM) => ErrorKind::PermissionDenied,
        Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE) => ErrorKind::Exhausted,
        _ => ErrorKind::System,
    };
    let message = format!("can't start {:?}: {error}", String::from_utf8_lossy(program));
    Failure { kind, message, errno: error.raw_os_error() }
}

/// A new terminal: our end, its other end, and the other end's name.
fn open_terminal() -> io::Result<(OwnedFd, OwnedFd, CString)> {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?;
    let slave =
        rustix::fs::open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::ioctl_fionbio(&master, true)?;
    Ok((master, slave, name))
}
