//! `farshell server`: looking at the server, and stopping it.

use crate::args::{ServerCommand, StatusArgs, StopArgs};
use crate::output::{self, Outcome, Stop, Style, code, notice};
use crate::{reach, times};
use farshell_api::environment::RemoveRequest;
use farshell_api::server::{ServerStatus, StopRequest};
use farshell_client::Client;
use farshell_client::home::Files;
use farshell_engine::{Error, Kind};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

const STOPPING: &str = "stopping the server";
/// How long a server may take to end once it was told to.
const ENDING: Duration = Duration::from_secs(30);
/// How long one that was asked, or sent TERM, may take before it is sent KILL.
const ASKED: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(10);

pub(crate) fn run(command: &ServerCommand) -> Outcome {
    match command {
        ServerCommand::Status(args) => output::told(args.json, status(args)),
        ServerCommand::Stop(args) => output::told(args.json, stop(args)),
    }
}

fn status(args: &StatusArgs) -> Outcome {
    let home = reach::home()?;
    let found = crate::runtime()?.block_on(async {
        match Client::connect(&home).await {
            Ok(client) => client.any_status().await.map(Some),
            Err(error) if error.kind == "not_found" => Ok(None),
            Err(error) => Err(error),
        }
    })?;
    let Some(mut status) = found else {
        if args.json {
            output::print_json(&json!({"running": false}))?;
        } else {
            output::print("no server runs; the next command starts one\n")?;
        }
        return Ok(code::NO);
    };
    if args.json {
        if let Value::Object(fields) = &mut status {
            fields.insert("running".into(), true.into());
        }
        output::print_json(&status)?;
    } else {
        output::print(&text(&status, Style::stdout()))?;
    }
    Ok(0)
}

/// What there is to say, also about a server of another version.
fn text(value: &Value, style: Style) -> String {
    let Ok(status) = serde_json::from_value::<ServerStatus>(value.clone()) else {
        return format!("{value:#}\n");
    };
    let mut text = format!(
        "{}, release {}, API {}, up {}\n",
        style.bold(&format!("server {}", status.pid)),
        status.version,
        status.api_version,
        times::span(status.uptime * 1000)
    );
    let mut line = |label: &str, rest: &str| text.push_str(&format!("  {label:<8}{rest}\n"));
    line("home", &status.home);
    line("socket", &status.socket);
    for address in &status.listen {
        line("listens", address);
    }
    let counts = &status.counts;
    line(
        "alive",
        &format!(
            "{}, {}, {}, {}",
            output::count(counts.environments, "environment"),
            output::count(counts.foreground, "foreground command"),
            output::count(counts.background, "background process"),
            output::count(counts.connections, "connection"),
        ),
    );
    if let Some(seconds) = status.ends_in {
        line("ends", &format!("in {} if nothing happens", times::span(seconds * 1000)));
    }
    if status.version != env!("CARGO_PKG_VERSION") {
        line(
            "note",
            &format!(
                "this program is release {}; after `farshell server stop` the next command starts that",
                env!("CARGO_PKG_VERSION")
            ),
        );
    }
    for warning in &status.warnings {
        text.push_str(&format!("  {} {warning}\n", style.yellow("warning:")));
    }
    text
}

fn stop(args: &StopArgs) -> Outcome {
    let home = reach::home()?;
    let files = Files::of(&home);
    let server = Server { pid: files.pid(), files: files.clone() };
    let stopped = crate::runtime()?.block_on(async {
        if args.remove_environments && !args.force {
            // Before it is told to end: a place may need long to be put away.
            remove_all(&files, args.json).await?;
        }
        let asked = ask(&files, args.remove_environments);
        if args.force {
            // It has its chance, however it uses it.
            let asked = timeout(ASKED, asked).await;
            if matches!(asked, Ok(Ok(false))) && !server.is_there() {
                return Ok(false);
            }
            if matches!(asked, Ok(Ok(_))) && server.is_gone_within(ASKED).await {
                return Ok(true);
            }
            return server.kill().await.map(|()| true);
        }
        // One that listens no more, or not yet, is there all the same.
        if !asked.await? && !server.is_there() {
            return Ok(false);
        }
        if server.is_gone_within(ENDING).await {
            return Ok(true);
        }
        let message = format!("it has not ended within {} s", ENDING.as_secs());
        Err(Error::new(Kind::TimedOut, STOPPING, message)
            .with_hint("`farshell server stop --force` kills it; nothing is lost by that")
            .into())
    })?;
    if args.json {
        output::print_json(&json!({"stopped": stopped}))?;
    } else if !stopped {
        notice("no server runs");
    }
    Ok(0)
}

/// Ends all environments, and says what became of them. What failed is tried once more by the server when it ends.
async fn remove_all(files: &Files, quiet: bool) -> Result<(), Stop> {
    let client = match Client::connect(&files.home).await {
        Ok(client) => client,
        Err(error) if error.kind == "not_found" => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let all = RemoveRequest { all: true, force: true, ..RemoveRequest::default() };
    let result =
        crate::progress::told("removing environments", async { Ok::<_, Stop>(client.remove(&all).await?) })
            .await?;
    if !quiet {
        crate::env::tell(&result, "ended");
    }
    Ok(())
}

/// Asks it to stop. False if there is none.
async fn ask(files: &Files, remove_environments: bool) -> Result<bool, Stop> {
    let client = match Client::connect(&files.home).await {
        Ok(client) => client,
        Err(error) if error.kind == "not_found" => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    match client.stop(&StopRequest { remove_environments }).await {
        Ok(_) => Ok(true),
        // It may have ended before it answered.
        Err(error) if error.kind == "disconnected" => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// The server that is to stop, and not the next one: a client that waits for a command starts that at once.
struct Server {
    files: Files,
    /// What its lock says.
    pid: Option<u32>,
}

impl Server {
    /// Whether it has the home. The number is only as good as the lock that is held together with it.
    fn is_there(&self) -> bool {
        let Ok(file) = std::fs::File::open(self.files.lock()) else { return false };
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
            && self.files.pid() == self.pid
    }

    async fn is_gone_within(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        while self.is_there() {
            if Instant::now() >= deadline {
                return false;
            }
            sleep(LOOK).await;
        }
        true
    }

    async fn kill(&self) -> Result<(), Stop> {
        for (signal, patience) in [(Signal::TERM, ASKED), (Signal::KILL, ENDING)] {
            let pid = self.pid.and_then(|pid| Pid::from_raw(pid.cast_signed()));
            let Some(pid) = pid.filter(|_| self.is_there()) else { break };
            let _ = kill_process(pid, signal);
            if self.is_gone_within(patience).await {
                return Ok(());
            }
        }
        match self.is_there() {
            true => Err(Error::new(Kind::System, STOPPING, "it can't be killed").into()),
            false => Ok(()),
        }
    }
}
