//! What a case works with: an environment of its own, and short ways to use it.

use crate::case::{Done, Failure, check_eq};
use crate::subject::Subject;
use farshell_engine::backend::{Spec, TaskName};
use farshell_engine::capture::Capture;
use farshell_engine::client::new_process_id;
use farshell_engine::environment::SessionDefaults;
use farshell_engine::{Environment, Outpost, RunOptions};
use farshell_protocol::file::FileOp;
use farshell_protocol::process::{End, Start, State, Status, Surroundings, What};
use farshell_protocol::session::{Mode, OpenSession};
use farshell_protocol::{ProcessId, SessionName};
use serde_bytes::ByteBuf;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Set in everything that a case starts, so that survivors are found.
pub(crate) const MARK: &str = "FARSHELL_CASE";

/// A lease that no case outlives. What a killed test run leaves ends with it.
pub(crate) const LEASE: Duration = Duration::from_secs(300);

/// A case's environment.
#[derive(Debug)]
pub struct Env {
    pub(crate) subject: &'static dyn Subject,
    pub(crate) home: PathBuf,
    pub(crate) task: TaskName,
    pub(crate) mode: Mode,
    /// Digits that nothing else on the machine has in its arguments.
    pub(crate) mark: String,
    /// A directory in the place, for this case alone; sessions start in it.
    pub(crate) dir: String,
    pub(crate) environment: Environment,
}

/// A command that ended.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub status: Status,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub took: Duration,
}

impl Ran {
    /// As a shell would say it in `$?`.
    pub(crate) fn code(&self) -> i32 {
        code(&self.status)
    }

    pub(crate) fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub(crate) fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

/// As a shell would say it in `$?`; -1 for what has not ended.
pub(crate) fn code(status: &Status) -> i32 {
    match status.state {
        State::Ended(End::Exited(code)) => code,
        State::Ended(End::Signaled(signal)) => 128 + signal,
        State::Queued | State::Running | State::Abandoned => -1,
    }
}

/// What a subject is asked for.
pub(crate) fn spec(subject: &dyn Subject, task: TaskName, lease: Duration) -> Spec {
    Spec { task, lease, settings: subject.settings() }
}

impl Env {
    pub(crate) async fn open(
        subject: &'static dyn Subject,
        mode: Mode,
        home: &Path,
        mark: String,
    ) -> Result<Self, Failure> {
        let task = TaskName::new(format!("case{mark}"))?;
        let dir = format!("{}/farshell-case{mark}", subject.scratch());
        let defaults = SessionDefaults {
            env: vec![pair(MARK, &mark)],
            cwd: Some(dir.clone().into_bytes()),
            ..SessionDefaults::plain(mode)
        };
        let backend = subject.backend(home);
        let spec = spec(subject, task.clone(), LEASE);
        let environment = Environment::open(&*backend, &spec, defaults).await?;
        let path = ByteBuf::from(dir.as_bytes());
        environment.outpost().file(None, FileOp::MakeDir { path, parents: true, mode: Some(0o755) }).await?;
        Ok(Self { subject, home: home.to_owned(), task, mode, mark, dir, environment })
    }

    /// The same task opened once more, as a second client would.
    pub(crate) async fn again(&self, lease: Duration) -> Result<Environment, Failure> {
        let backend = self.subject.backend(&self.home);
        let spec = spec(self.subject, self.task.clone(), lease);
        let defaults = SessionDefaults {
            env: vec![pair(MARK, &self.mark)],
            cwd: Some(self.dir.clone().into_bytes()),
            ..SessionDefaults::plain(self.mode)
        };
        Ok(Environment::open(&*backend, &spec, defaults).await?)
    }

    pub(crate) fn outpost(&self) -> &Outpost {
        self.environment.outpost()
    }

    /// A path in the case's directory.
    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.dir)
    }

    /// A command that sleeps for ever and can be found again.
    pub(crate) fn nap(&self, number: u32) -> String {
        format!("sleep {}{number:02}", self.mark)
    }

    /// How many of this case's [`Env::nap`]s there are in the place.
    pub(crate) async fn naps(&self) -> Result<usize, Failure> {
        // The brackets keep the search from finding itself, and the headers of `head` keep the processes apart. Three
        // programs, however many processes there are: one for each takes seconds on a busy machine.
        let command = format!(
            "head -c 300 /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c '^[s]leep {}'",
            self.mark
        );
        let ran = self.own(self.shell(&command)).await?;
        Ok(ran.out().trim().parse()?)
    }

    /// Waits until there are that many.
    pub(crate) async fn await_naps(&self, count: usize) -> Done {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let found = self.naps().await?;
            if found == count {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Failure::new(format!("{count} sleeping processes expected, {found} found")));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What the place's shell calls itself.
    pub(crate) fn shell_name(&self) -> &'static str {
        if self.subject.bash() { "bash" } else { "sh" }
    }

    pub(crate) fn session(&self) -> SessionName {
        named("main")
    }

    /// A command for the case's session.
    pub(crate) fn command(&self, command: impl Into<Vec<u8>>) -> RunOptions {
        RunOptions::new(self.session(), command)
    }

    /// Runs a command in the case's session.
    pub(crate) async fn run(&self, command: impl Into<Vec<u8>>) -> Result<Ran, Failure> {
        self.run_with(&self.command(command)).await
    }

    pub(crate) async fn run_with(&self, options: &RunOptions) -> Result<Ran, Failure> {
        let begun = Instant::now();
        let mut capture = Capture::unlimited();
        let status = self.environment.run(options, &mut capture).await?;
        Ok(ran(status, &capture, begun))
    }

    /// Runs what starts this many [`Env::nap`]s before its time is up. A machine that is too slow to show them by then
    /// gets more time, so that a fast one need not wait.
    pub(crate) async fn timed_with_naps<F: Future<Output = Result<Ran, Failure>>>(
        &self,
        count: usize,
        run: impl Fn(Duration) -> F,
    ) -> Result<Ran, Failure> {
        for limit in [4, 12, 36].map(Duration::from_secs) {
            let (ran, seen) = tokio::join!(run(limit), tokio::time::timeout(limit, self.await_naps(count)));
            match seen {
                Ok(seen) => return seen.and(ran),
                Err(_) => drop(ran?),
            }
        }
        Err(Failure::new(format!("{count} sleeping processes were never seen at once")))
    }

    /// Runs a command with a time limit and half a second of grace.
    pub(crate) async fn timed(&self, command: &str, limit: Duration) -> Result<Ran, Failure> {
        let options =
            RunOptions { timeout: Some(limit), grace: Duration::from_millis(500), ..self.command(command) };
        self.run_with(&options).await
    }

    /// Runs a command that must succeed with this on stdout and nothing on stderr.
    pub(crate) async fn says(&self, command: &str, stdout: &str) -> Done {
        self.gives(command, 0, stdout, "").await
    }

    /// Runs a command that must end like this.
    pub(crate) async fn gives(&self, command: &str, code: i32, stdout: &str, stderr: &str) -> Done {
        let ran = self.run(command).await?;
        let found = (ran.code(), ran.out(), ran.err());
        check_eq!(found, (code, stdout.to_owned(), stderr.to_owned()), "{command:?}");
        Ok(())
    }

    /// A shell command of its own, outside of all sessions.
    pub(crate) fn shell(&self, command: &str) -> Start {
        let surroundings = self.surroundings();
        process(What::Shell { command: command.as_bytes().to_vec(), session: None, surroundings })
    }

    /// A program, without a shell.
    pub(crate) fn exec(&self, argv: &[&[u8]]) -> Start {
        let argv = argv.iter().map(|arg| ByteBuf::from(*arg)).collect();
        process(What::Exec { argv, surroundings: self.surroundings() })
    }

    /// The case's directory, and its mark.
    pub(crate) fn surroundings(&self) -> Surroundings {
        Surroundings {
            env: vec![pair(MARK, &self.mark)],
            cwd: Some(self.dir.clone().into_bytes()),
            ..Surroundings::default()
        }
    }

    /// Runs a process of its own to its end.
    pub(crate) async fn own(&self, start: Start) -> Result<Ran, Failure> {
        let begun = Instant::now();
        let mut capture = Capture::unlimited();
        let status = self.outpost().run(start, &mut capture).await?;
        Ok(ran(status, &capture, begun))
    }

    /// What a new session of this case begins with.
    pub(crate) fn opening(&self, name: &str) -> OpenSession {
        OpenSession {
            name: named(name),
            mode: self.mode,
            env: vec![pair(MARK, &self.mark)],
            clear_env: false,
            cwd: Some(self.dir.clone().into_bytes()),
            init_files: Vec::new(),
        }
    }

    /// Waits until a process has ended, without following its output.
    pub(crate) async fn ended(&self, id: &ProcessId) -> Result<Status, Failure> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let status = self.outpost().status(id.clone()).await?;
            if matches!(status.state, State::Ended(_) | State::Abandoned) {
                return Ok(status);
            }
            if Instant::now() > deadline {
                return Err(Failure::new(format!("{id} is still {:?} after 60 s", status.state)));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until a file of the case has this content.
    pub(crate) async fn await_file(&self, name: &str, content: &str) -> Done {
        let deadline = Instant::now() + Duration::from_secs(60);
        let path = self.path(name);
        loop {
            let found = self.own(self.exec(&[b"cat", path.as_bytes()])).await?.out();
            if found == content {
                return Ok(());
            }
            if Instant::now() > deadline {
                check_eq!(found, content, "{path} after 60 s");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Kills the outpost itself, from within the place, and returns when another one has taken its place.
    pub(crate) async fn kill_outpost(&self) -> Done {
        let before = self.outpost().info().await?.identity;
        let start = self.exec(&[b"kill", b"-9", before.pid.to_string().as_bytes()]);
        // Its answer may come or not.
        let _ = self.outpost().start(start).await;
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.outpost().info().await?.identity.instance == before.instance {
            if Instant::now() > deadline {
                return Err(Failure::new("the outpost survived kill -9 for 60 s"));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}

fn ran(status: Status, capture: &Capture, begun: Instant) -> Ran {
    let (stdout, stderr) = (capture.stdout.to_bytes(), capture.stderr.to_bytes());
    Ran { status, stdout, stderr, took: begun.elapsed() }
}

/// A process with nothing special about it.
pub(crate) fn process(what: What) -> Start {
    Start { grace_ms: 500, ..Start::new(new_process_id(), what) }
}

/// A session name that is known to be one.
pub(crate) fn named(name: &str) -> SessionName {
    SessionName::new(name).unwrap_or_else(|error| unreachable!("{error}"))
}

fn pair(name: &str, value: &str) -> (ByteBuf, ByteBuf) {
    (ByteBuf::from(name), ByteBuf::from(value))
}
