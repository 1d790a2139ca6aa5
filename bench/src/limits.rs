//! The least that things cost on this machine, with nothing but the standard library in between.
//!
//! Each probe checks what it measured (the exit status, the number of bytes), so that a limit is never the
//! time of a failure. A probe leaves no process behind, also when it fails.

use std::error::Error;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Reads are this large, and so is the pipe where the system allows it.
const BUFFER: usize = 256 << 10;

/// Runs its argument with no stdin, then says status and directory. The marker needs no care here: nobody
/// prints it by accident in a benchmark.
const PROLOGUE: &[u8] = b"__run() { eval \"$1\" </dev/null; printf '\\001%d %s\\001\\n' $? \"$PWD\"; }\n";
const MARKER: u8 = 1;

/// A bare bash at the end of a pipe: a command costs one write, one read and what bash does.
#[derive(Debug)]
pub struct Shell {
    stdin: ChildStdin,
    output: io::PipeReader,
    reply: Vec<u8>,
    // Last, so that the pipes are closed before it is waited for.
    _process: Killed,
}

impl Shell {
    /// Starts it and waits until it answers.
    ///
    /// # Errors
    /// There is no bash, or it does not answer.
    pub fn start() -> Result<Self> {
        Self::of(Command::new("bash").args(["--norc", "--noprofile"]))
    }

    /// The same for a bash that something else leads to.
    ///
    /// # Errors
    /// As [`Shell::start`].
    pub fn of(command: &mut Command) -> Result<Self> {
        let (output, writer) = io::pipe()?;
        command.stdin(Stdio::piped()).stdout(writer.try_clone()?).stderr(writer);
        let mut process = Killed::spawn(command)?;
        // Its writing ends are the child's alone from now on.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let stdin = process.child.stdin.take().ok_or("bash has no stdin")?;
        let mut shell = Self { stdin, output, reply: vec![0; BUFFER], _process: process };
        shell.stdin.write_all(PROLOGUE)?;
        shell.run("true")?;
        Ok(shell)
    }

    /// One command that must succeed.
    ///
    /// # Errors
    /// It failed, or the shell is gone.
    pub fn run(&mut self, command: &str) -> Result<Duration> {
        let line = format!("__run '{}'\n", command.replace('\'', r"'\''"));
        let start = Instant::now();
        self.stdin.write_all(line.as_bytes())?;
        self.finish(start)
    }

    /// One command that goes through a file: bash reads its stdin a byte at a time, which is slow for long
    /// commands. Writing the file counts.
    ///
    /// # Errors
    /// As [`Shell::run`].
    pub fn run_from_file(&mut self, command: &str, file: &Path) -> Result<Duration> {
        let line = format!("__run '. {}'\n", file.display());
        let start = Instant::now();
        std::fs::write(file, command)?;
        self.stdin.write_all(line.as_bytes())?;
        self.finish(start)
    }

    fn finish(&mut self, start: Instant) -> Result<Duration> {
        let mut len = 0;
        while !self.reply[..len].ends_with(&[MARKER, b'\n']) {
            let n = self.output.read(&mut self.reply[len..])?;
            if n == 0 {
                return Err(format!("bash ended: {:?}", String::from_utf8_lossy(&self.reply[..len])).into());
            }
            len += n;
        }
        let elapsed = start.elapsed();
        let reply = &self.reply[..len];
        let status = reply.iter().position(|&byte| byte == MARKER).map(|at| &reply[at + 1..]);
        if !status.is_some_and(|status| status.starts_with(b"0 /")) {
            return Err(format!("bash said {:?}", String::from_utf8_lossy(reply)).into());
        }
        Ok(elapsed)
    }
}

/// A child that is killed with its process group and reaped when nobody needs it any more.
#[derive(Debug)]
struct Killed {
    child: Child,
    reaped: bool,
}

impl Killed {
    fn spawn(command: &mut Command) -> io::Result<Self> {
        Ok(Self { child: command.process_group(0).spawn()?, reaped: false })
    }

    fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait()?;
        self.reaped = true;
        Ok(status)
    }

    /// Only before it is reaped: afterwards the number may be somebody else's.
    fn kill(&self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            // A group without living members is as good as killed.
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill();
            let _ = self.wait();
        }
    }
}

/// A fresh bash for one command, its output read to the end: what a terminal without a lasting shell pays.
///
/// # Errors
/// It could not be started or failed.
pub fn fresh_shell(script: &str) -> Result<Duration> {
    let start = Instant::now();
    let (mut output, writer) = io::pipe()?;
    let mut command = Command::new("bash");
    command.args(["-c", script]).stdin(Stdio::null());
    command.stdout(writer.try_clone()?).stderr(writer);
    let mut process = Killed::spawn(&mut command)?;
    // It holds the other end of the pipe.
    drop(command);
    let mut text = Vec::new();
    output.read_to_end(&mut text)?;
    let status = process.wait()?;
    let elapsed = start.elapsed();
    if !status.success() {
        return Err(format!("{script}: {status}: {:?}", String::from_utf8_lossy(&text)).into());
    }
    Ok(elapsed)
}

/// Starts `count` processes that do nothing, each in a group of its own, then kills and reaps them all: the
/// time of the start and the time of the kill.
///
/// # Errors
/// A process could not be started or was not killed.
pub fn many_processes(count: usize) -> Result<[Duration; 2]> {
    let mut processes = Vec::with_capacity(count);
    let start = Instant::now();
    for _ in 0..count {
        let mut command = Command::new("sleep");
        command.arg("1000").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        processes.push(Killed::spawn(&mut command)?);
    }
    let started = start.elapsed();
    let start = Instant::now();
    for process in &processes {
        process.kill();
    }
    for process in &mut processes {
        let status = process.wait()?;
        if status.success() {
            return Err("a process ended before it was killed".into());
        }
    }
    Ok([started, start.elapsed()])
}

/// Reads all output of a script from a bare pipe and throws it away.
///
/// # Errors
/// It failed, or did not print `bytes` bytes.
pub fn output(script: &str, bytes: u64) -> Result<Duration> {
    let mut buffer = vec![0; BUFFER];
    let (mut output, writer) = io::pipe()?;
    // A system that does not allow it leaves the pipe as it is.
    let _ = rustix::pipe::fcntl_setpipe_size(&writer, BUFFER);
    let mut command = Command::new("bash");
    command.args(["-c", script]).stdin(Stdio::null()).stdout(writer);
    let start = Instant::now();
    let mut process = Killed::spawn(&mut command)?;
    drop(command);
    let mut total = 0;
    loop {
        match output.read(&mut buffer)? {
            0 => break,
            n => total += n as u64,
        }
    }
    let status = process.wait()?;
    let elapsed = start.elapsed();
    if total != bytes || !status.success() {
        return Err(format!("{script}: {status} after {total} of {bytes} bytes").into());
    }
    Ok(elapsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_keeps_its_state_and_its_failures_are_seen() {
        let mut shell = Shell::start().unwrap();
        shell.run("cd / && x='it'\\''s'").unwrap();
        shell.run("[ \"$PWD$x\" = \"/it's\" ]").unwrap();
        shell.run("seq 1000").unwrap();
        assert!(shell.run("false").unwrap_err().to_string().contains("1 /"));
        assert!(shell.run("exit 3").unwrap_err().to_string().starts_with("bash ended"));
    }

    #[test]
    fn long_commands_go_through_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut shell = Shell::start().unwrap();
        shell.run_from_file(&format!("x={}", "y".repeat(10_000)), file.path()).unwrap();
        shell.run("[ ${#x} = 10000 ]").unwrap();
    }

    #[test]
    fn background_commands_do_not_hold_the_shell_and_do_not_outlive_it() {
        let mut shell = Shell::start().unwrap();
        assert!(shell.run("sleep 600 & sleeper=$!").unwrap() < Duration::from_secs(60));
        let file = tempfile::NamedTempFile::new().unwrap();
        shell.run(&format!("echo $sleeper >{}", file.path().display())).unwrap();
        let pid = std::fs::read_to_string(file.path()).unwrap();
        drop(shell);
        // Killed, but the kernel may still be at it, and somebody else reaps it.
        let deadline = Instant::now() + Duration::from_secs(20);
        let gone = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ") || stat.contains(") X ")
        };
        while !gone() {
            assert!(Instant::now() < deadline, "process {pid} lives on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn the_others_measure_what_they_say() {
        fresh_shell("true").unwrap();
        assert!(fresh_shell("echo no >&2; exit 7").unwrap_err().to_string().contains("no"));
        many_processes(20).unwrap();
        output("head -c 3000000 /dev/zero", 3_000_000).unwrap();
        assert!(output("head -c 3000000 /dev/zero", 3_000_001).is_err());
    }
}
