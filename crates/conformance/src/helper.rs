//! This program as a client of its own: a second process that follows a command, writes down each byte it
//! got, and can be killed at any moment.

use crate::case::{Done, Failure};
use crate::env::{Env, spec};
use crate::subject::subjects;
use farshell_engine::Environment;
use farshell_engine::backend::TaskName;
use farshell_engine::capture::Sink;
use farshell_engine::environment::SessionDefaults;
use farshell_protocol::ProcessId;
use farshell_protocol::process::{Chunk, Start, Stdin, Surroundings, What};
use farshell_protocol::session::Mode;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

const SUBJECT: &str = "FARSHELL_HELPER_SUBJECT";
const HOME: &str = "FARSHELL_HELPER_HOME";
const TASK: &str = "FARSHELL_HELPER_TASK";
const ID: &str = "FARSHELL_HELPER_ID";
const COMMAND: &str = "FARSHELL_HELPER_COMMAND";
const FILE: &str = "FARSHELL_HELPER_FILE";
const WHAT: &str = "FARSHELL_HELPER_WHAT";

/// What the helper does with the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Writes them to the file.
    Bytes,
    /// Counts them, and writes how many there were and by how many KiB its own memory grew.
    Count,
}

/// Starts the helper.
pub(crate) fn spawn(
    env: &Env,
    id: &ProcessId,
    command: &str,
    file: &Path,
    keep: Keep,
) -> Result<Child, Failure> {
    let child = Command::new(std::env::current_exe()?)
        .env(SUBJECT, env.subject.name())
        .env(HOME, &env.home)
        .env(TASK, env.task.as_str())
        .env(ID, id.as_str())
        .env(COMMAND, command)
        .env(FILE, file)
        .env(WHAT, if keep == Keep::Count { "count" } else { "bytes" })
        .stdin(Stdio::null())
        .spawn()?;
    Ok(child)
}

/// The process that the helper starts.
pub(crate) fn start(id: ProcessId, command: &str) -> Start {
    Start {
        id,
        what: What::Shell {
            command: command.as_bytes().to_vec(),
            session: None,
            surroundings: Surroundings::default(),
        },
        stdin: Stdin::Null,
        timeout_ms: None,
        grace_ms: 500,
        log_cap: 0,
        attach: None,
        variables: None,
    }
}

/// Runs as the helper if the environment says so.
pub(crate) fn run() -> Option<ExitCode> {
    let subject = std::env::var(SUBJECT).ok()?;
    match follow(&subject) {
        Ok(()) => Some(ExitCode::SUCCESS),
        Err(failure) => {
            let _ = writeln!(std::io::stderr(), "{failure}");
            Some(ExitCode::FAILURE)
        }
    }
}

struct ToFile(File);

impl Sink for ToFile {
    fn chunk(&mut self, chunk: Chunk<'_>) {
        // A write that fails shows as a hole in the file.
        let _ = self.0.write_all(chunk.bytes);
    }
}

struct Count(u64);

impl Sink for Count {
    fn chunk(&mut self, chunk: Chunk<'_>) {
        self.0 += chunk.bytes.len() as u64;
    }
}

fn follow(subject: &str) -> Done {
    let var = |name| std::env::var(name).map_err(|_| Failure::new(format!("{name} is not set")));
    let subject = subjects()
        .iter()
        .find(|s| s.name() == subject)
        .ok_or_else(|| Failure::new(format!("no subject {subject}")))?;
    let (home, task) = (var(HOME)?, TaskName::new(var(TASK)?)?);
    let start = start(ProcessId::new(var(ID)?)?, &var(COMMAND)?);
    let mut file = File::create(var(FILE)?)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let spec = spec(*subject, task, Duration::from_secs(300));
        let backend = subject.backend(Path::new(&home));
        let environment = Environment::open(&*backend, &spec, SessionDefaults::plain(Mode::Live)).await?;
        if var(WHAT)? == "bytes" {
            environment.outpost().run(start, &mut ToFile(file)).await?;
            return Ok(());
        }
        environment.outpost().ping().await?;
        let before = peak("self")?;
        let mut count = Count(0);
        environment.outpost().run(start, &mut count).await?;
        write!(file, "{} {}", count.0, peak("self")? - before)?;
        Ok(())
    })
}

/// The most memory that a process ever had, in KiB.
fn peak(pid: &str) -> Result<u64, Failure> {
    peak_of(&std::fs::read_to_string(format!("/proc/{pid}/status"))?)
}

/// The same, from the text of `/proc/<pid>/status`.
pub(crate) fn peak_of(status: &str) -> Result<u64, Failure> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    number.ok_or_else(|| Failure::new("no VmHWM in the status"))
}
