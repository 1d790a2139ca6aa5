//! How a process of its own begins, and what is checked before.

use crate::daemon::{Child, Daemon};
use crate::kill::ticks_now;
use crate::process::Process;
use crate::reactor::{Alarm, Interest, Token};
use crate::session::{VariableChange, change_variables};
use crate::shell;
use crate::sys::{self, Spawn, Stdio};
use crate::words::quote;
use farshell_protocol::process::{Start, Stdin, Surroundings, What};
use farshell_protocol::{ErrorKind, Failure};
use rustix::fs::{Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Instant;

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
        let cwd = match (surroundings.cwd.as_deref(), session_cwd.as_deref()) {
            (Some(dir), Some(from)) if !matches!(dir, [] | [b'/' | b'~', ..]) => [from, dir].join(&b'/'),
            (Some(dir), _) | (None, Some(dir)) => self.expand(dir),
            (None, None) => self.home.as_os_str().as_bytes().to_vec(),
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
        process.tag = self.tags.mark_self();
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
        self.children().insert(pid, Child::Process(key));
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
