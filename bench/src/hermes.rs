//! A peer's side: Hermes Agent's own environment, on this machine, in a container or on a host, in a Python process that
//! lives as long as the benchmark.
//!
//! It is what `pip install hermes-agent` gives; nothing of it is part of this project.

use crate::ssh::Host;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Takes a command a line, answers with nanoseconds and exit code. The time is taken next to the call, so that this
/// pipe costs Hermes nothing.
const SCRIPT: &str = r#"
import os, sys, time
answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)
image = os.environ.get("BENCH_IMAGE")
if image:
    from tools.environments.docker import DockerEnvironment
    env = DockerEnvironment(image=image, cwd="/root", timeout=60, persist_across_processes=False)
elif "BENCH_HOST" in os.environ:
    from tools.environments.ssh import SSHEnvironment
    user, host, port, key = os.environ["BENCH_HOST"].split("\n")
    env = SSHEnvironment(host=host, user=user, port=int(port), key_path=key)
elif "BENCH_SIF" in os.environ:
    from tools.environments.singularity import SingularityEnvironment
    env = SingularityEnvironment(image=os.environ["BENCH_SIF"], cwd="/root", timeout=60)
else:
    from tools.environments.local import LocalEnvironment
    env = LocalEnvironment(cwd=os.environ["HERMES_HOME"], timeout=60)
env.execute("true")
print("ready", file=answers)
for line in sys.stdin:
    begin = time.perf_counter_ns()
    result = env.execute(line.rstrip("\n"))
    print(time.perf_counter_ns() - begin, result["returncode"], file=answers)
env.cleanup()
"#;

/// The Python process.
#[derive(Debug)]
pub struct Hermes {
    child: Child,
    /// Until the end.
    stdin: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    _home: tempfile::TempDir,
}

impl Hermes {
    /// Starts it with a Python in which `hermes-agent` is installed.
    ///
    /// # Errors
    /// It is not installed there.
    pub fn start(python: &Path) -> Result<Self> {
        Self::begin(python, |command| command)
    }

    /// The same with its commands in a container.
    ///
    /// # Errors
    /// It is not installed there, or can't use the engine.
    pub fn start_in_docker(python: &Path, engine: &str, image: &str) -> Result<Self> {
        Self::begin(python, |command| command.env("BENCH_IMAGE", image).env("DOCKER_HOST", engine))
    }

    /// The same with its commands on a host.
    ///
    /// # Errors
    /// It is not installed there, or can't enter the host.
    pub fn start_by_ssh(python: &Path, host: &Host) -> Result<Self> {
        let Host { user, host, port, key } = host;
        let value = format!("{user}\n{host}\n{port}\n{}", key.display());
        Self::begin(python, |command| command.env("BENCH_HOST", value))
    }

    /// The same with its commands in an instance of Apptainer.
    ///
    /// # Errors
    /// It is not installed there, or can't start one.
    pub fn start_in_instance(python: &Path, program: &Path, image: &Path) -> Result<Self> {
        // It takes what it finds.
        let mut path = program.parent().ok_or("the program must be a path")?.as_os_str().to_owned();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        Self::begin(python, |command| command.env("BENCH_SIF", image).env("PATH", path))
    }

    fn begin(python: &Path, where_to: impl FnOnce(&mut Command) -> &mut Command) -> Result<Self> {
        let home = tempfile::tempdir()?;
        let mut command = Command::new(python);
        let mut child = where_to(&mut command)
            .args(["-c", SCRIPT])
            .env("HERMES_HOME", home.path())
            .env("HERMES_DISABLE_LAZY_INSTALLS", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("{}: {e}", python.display()))?;
        let stdin = Some(child.stdin.take().ok_or("no stdin")?);
        let answers = BufReader::new(child.stdout.take().ok_or("no stdout")?);
        let mut hermes = Self { child, stdin, answers, _home: home };
        if hermes.line()? != "ready" {
            return Err(format!("{} has no hermes-agent: pip install hermes-agent", python.display()).into());
        }
        Ok(hermes)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    /// One command that must succeed.
    ///
    /// # Errors
    /// It failed.
    pub fn run(&mut self, command: &str) -> Result<Duration> {
        writeln!(self.stdin.as_mut().ok_or("no stdin")?, "{command}")?;
        let line = self.line()?;
        match line.split_once(' ') {
            Some((time, "0")) => Ok(Duration::from_nanos(time.parse()?)),
            _ => Err(format!("hermes: {command}: {line:?}").into()),
        }
    }
}

impl Drop for Hermes {
    fn drop(&mut self) {
        // At the end of its input it removes what it made. It gets some time for that.
        self.stdin.take();
        for _ in 0..300 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
