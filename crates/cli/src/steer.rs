//! `farshell wait`, `send`, `kill` and `signal`: what can be done to a process.

use crate::args::{KillArgs, SendArgs, SignalArgs, WaitArgs};
use crate::input::Source;
use crate::output::{self, Outcome, Stop, code, notice};
use crate::{ids, reach};
use farshell_api::process::{
    KillRequest, KillResult, Process, ProcessState, SignalRequest, StdinRequest, WaitRequest,
};
use farshell_client::Client;
use farshell_engine::{Error, Kind};
use serde_json::{Value, json};
use std::os::unix::ffi::OsStringExt;
use std::time::{Duration, Instant};

/// The longest wait that one call may ask for.
const LONGEST_WAIT: f64 = 600.0;

pub(crate) fn wait(args: &WaitArgs) -> Outcome {
    let outcome = crate::runtime().map_err(Stop::from).and_then(|runtime| {
        let process = runtime.block_on(async {
            let client = reach::server().await?;
            let id = ids::whole(&client, &args.id).await?;
            wait_for(&client, &id, args.timeout).await
        })?;
        if args.json {
            output::print_json(&process)?;
        }
        waited(&process, args.json)
    });
    output::told(args.json, outcome)
}

async fn wait_for(client: &Client, id: &str, timeout: Option<f64>) -> Result<Process, Stop> {
    let time = match timeout {
        None => None,
        Some(seconds) => Some(Duration::try_from_secs_f64(seconds).map_err(|_| {
            output::invalid("reading --timeout", format!("{seconds} is not a number of seconds"))
        })?),
    };
    let start = Instant::now();
    loop {
        let left = time.map(|time| time.saturating_sub(start.elapsed()).as_secs_f64());
        let timeout = Some(left.unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT));
        let process = client.wait(id, &WaitRequest { timeout }).await?;
        let over =
            !matches!(process.state, ProcessState::Starting | ProcessState::Queued | ProcessState::Running);
        if over || time.is_some_and(|time| start.elapsed() >= time) {
            return Ok(process);
        }
    }
}

fn waited(process: &Process, json: bool) -> Outcome {
    let why = |text: &str| process.note.clone().unwrap_or_else(|| text.to_owned());
    let what = format!("waiting for {}", process.id);
    let error = match process.state {
        ProcessState::Ended => return Ok(process.exit_code.unwrap_or(code::FAILED)),
        ProcessState::Starting | ProcessState::Queued | ProcessState::Running => {
            notice(&format!("{} goes on", process.id));
            return Ok(code::TIMED_OUT);
        }
        ProcessState::NotStarted => Error::new(Kind::NotStarted, what, why("it never began")),
        ProcessState::Lost => Error::new(Kind::UnknownOutcome, what, why("its outpost is gone")),
    };
    // The object has said it already.
    if json { Ok(code::FAILED) } else { Err(error.into()) }
}

pub(crate) fn send(args: &SendArgs) -> Outcome {
    let taken = crate::runtime().map_err(Stop::from).and_then(|runtime| {
        runtime.block_on(async {
            let client = reach::server().await?;
            let id = ids::whole(&client, &args.id).await?;
            if args.stdin {
                send_stdin(&client, &id, args.eof).await
            } else {
                send_text(&client, &id, args).await
            }
        })
    });
    let outcome = taken.and_then(|taken| {
        if args.json {
            output::print_json(&json!({"taken": taken}))?;
        }
        Ok(0)
    });
    output::told(args.json, outcome)
}

async fn send_text(client: &Client, id: &str, args: &SendArgs) -> Result<u64, Stop> {
    let data = args.text.clone().map(OsStringExt::into_vec).unwrap_or_default();
    // Closing the input alone is not a line.
    let submit = !args.no_enter && (args.text.is_some() || !args.eof);
    let request = StdinRequest { data: data.into(), submit, eof: args.eof, offset: None };
    Ok(client.stdin(id, &request).await?.taken)
}

async fn send_stdin(client: &Client, id: &str, eof: bool) -> Result<u64, Stop> {
    let (mut pieces, name) = Source::ours()?.read()?;
    let mut taken = 0;
    while let Some(piece) = pieces.recv().await {
        let data = piece.map_err(|e| Error::io(format!("reading {name}"), e))?;
        let last = data.is_empty();
        if last && !eof {
            break;
        }
        let request = StdinRequest { data: data.into(), submit: false, eof: last, offset: None };
        taken = client.stdin(id, &request).await?.taken;
        if last {
            break;
        }
    }
    Ok(taken)
}

pub(crate) fn kill(args: &KillArgs) -> Outcome {
    let results = crate::runtime().map_err(Stop::from).and_then(|runtime| {
        runtime.block_on(async {
            let client = reach::server().await?;
            let mut whole = Vec::new();
            // A slip in one of them kills none.
            for id in &args.ids {
                whole.push(ids::whole(&client, id).await?);
            }
            let mut results = Vec::new();
            for id in whole {
                let killed = client.kill(&id, &KillRequest { grace: args.grace }).await;
                results.push((id, killed));
            }
            Ok(results)
        })
    });
    output::told(args.json, results.and_then(|results| killed(args, &results)))
}

fn killed(args: &KillArgs, results: &[(String, farshell_client::Result<KillResult>)]) -> Outcome {
    let failed = results.iter().any(|(_, result)| result.as_ref().map_or(true, |kill| kill.survivors > 0));
    if args.json {
        let list: Vec<Value> = results
            .iter()
            .map(|(id, result)| match result {
                Ok(kill) => json!({
                    "id": id, "killed": kill.killed, "survivors": kill.survivors, "had_ended": kill.had_ended,
                }),
                Err(error) => json!({"id": id, "error": output::error_json(error)["error"]}),
            })
            .collect();
        output::print_json(&json!({"processes": list}))?;
        return Ok(if failed { code::FAILED } else { 0 });
    }
    for (id, result) in results {
        match result {
            Ok(kill) if kill.survivors > 0 => output::tell(&format!(
                "farshell: {id}: {} could not be killed\n",
                output::count(kill.survivors, "process")
            )),
            Ok(kill) if kill.had_ended => notice(&format!("{id} had ended before")),
            Ok(kill) => notice(&format!("{id}: killed {}", output::count(kill.killed, "process"))),
            Err(error) => output::print_error(error),
        }
    }
    Ok(if failed { code::FAILED } else { 0 })
}

pub(crate) fn signal(args: &SignalArgs) -> Outcome {
    let outcome = reach::ask("sending the signal", |client| async move {
        let id = ids::whole(&client, &args.id).await?;
        client.signal(&id, &SignalRequest { signal: args.signal.clone() }).await?;
        if args.json {
            output::print_json(&json!({"ok": true}))?;
        }
        Ok(0)
    });
    output::told(args.json, outcome)
}
