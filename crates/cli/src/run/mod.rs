//! `farshell run`: one command, followed to its end.
//!
//! 1. What was typed becomes a request ([`request`]).
//! 2. The server starts the command; its output comes as it is printed, and goes to where it belongs or is
//!    collected for one object ([`follow`]).
//! 3. Signals that reach us are meant for the command.
//! 4. The end becomes an exit code ([`ending`]).

mod ending;
mod follow;
pub(crate) mod request;

use crate::args::RunArgs;
use crate::ask::Asking;
use crate::input::Source;
use crate::output::{self, Outcome, Stop, code};
use crate::progress::Progress;
use crate::reach;
use crate::signals::Interrupts;
use crate::terminal::{self, End, Typist};
use farshell_api::ApiError;
use farshell_api::approval::{Approval, ApprovalQuery};
use farshell_api::process::Process;
use farshell_api::run::StartRequest;
use farshell_client::{Client, Streaming, Update};
use farshell_engine::capture::Capture;
use follow::{Ended, Follow, Sink};
use serde_json::Value;
use std::cell::RefCell;
use std::time::Duration;

/// How often it is asked what a start in the background waits for.
const LOOK: Duration = Duration::from_millis(500);

pub(crate) fn run(args: &RunArgs) -> Outcome {
    output::told(args.json, run_request(args).map_err(named_as_typed))
}

/// The server names the fields of a request; a person has typed options.
fn named_as_typed(stop: Stop) -> Stop {
    match stop {
        Stop::Failed(mut error) if error.operation == "reading timeout" => {
            error.operation = "reading --timeout".into();
            Stop::Failed(error)
        }
        other => other,
    }
}

fn run_request(args: &RunArgs) -> Outcome {
    let request = request::build(args)?;
    let input = args.stdin.as_deref().map(Source::open).transpose()?;
    crate::runtime()?.block_on(async {
        if args.background {
            return background(args, &request).await;
        }
        let mut interrupts = Interrupts::listen()?;
        let client = tokio::select! {
            client = reach::server() => client?,
            // Nothing was sent yet.
            _ = interrupts.next() => return Ok(interrupts.code()),
        };
        if args.pty && !args.json && input.is_none() && terminal::is_one() {
            let mut streaming = Streaming::start(&client, request);
            // The terminal is still a person's: there may be a question.
            tokio::select! {
                opened = opened(&client, &mut streaming) => opened?,
                _ = interrupts.next() => return Ok(interrupts.code()),
            }
            drop(interrupts);
            let typist = Typist::Alone(streaming.control());
            let end = terminal::follow(streaming, typist, None).await?;
            if let End::Backgrounded { process, reason } = &end {
                goes_on(process, reason, false);
            }
            return Ok(end.code());
        }
        foreground(args, client, request, input, interrupts).await
    })
}

async fn background(args: &RunArgs, request: &StartRequest) -> Outcome {
    let client = reach::server().await?;
    let process = started(&client, request).await?;
    if args.json {
        output::print_json(&process)?;
    } else {
        output::print(&format!("{}\n", process.id))?;
    }
    Ok(0)
}

/// Waits until it is started, and shows what is done for its environment if that takes long.
async fn started(client: &Client, request: &StartRequest) -> farshell_client::Result<Process> {
    let task = request.target.task.as_str();
    let mut shown = Progress::new("starting");
    let id = RefCell::new(String::new());
    let next_id = |next: &str| next.clone_into(&mut id.borrow_mut());
    let mut start = std::pin::pin!(client.start_as(request, &next_id));
    let all = ApprovalQuery::default();
    let (mut asking, mut asked): (Asking, Option<String>) = Default::default();
    let mut looks = tokio::time::interval(LOOK);
    looks.tick().await;
    loop {
        tokio::select! {
            biased;
            process = &mut start => return process,
            () = shown.turn() => {}
            answer = asking.answer() => asking.send(client, answer).await,
            _ = looks.tick() => {
                let environment = tokio::select! {
                    biased;
                    process = &mut start => return process,
                    environment = client.environment(task) => environment.ok(),
                };
                let mine = |approval: &Approval| {
                    approval.process_id.as_deref() == Some(id.borrow().as_str())
                        && asked.as_ref() != Some(&approval.id)
                };
                let waiting = tokio::select! {
                    biased;
                    process = &mut start => return process,
                    waiting = client.approvals(&all) => waiting.ok(),
                };
                if let Some(approval) = waiting.and_then(|list| list.approvals.into_iter().find(mine)) {
                    shown.over();
                    asked = Some(approval.id.clone());
                    asking.put(approval);
                }
                if let Some(news) = environment.and_then(|environment| environment.progress) {
                    shown.say(&news.message, news.done.zip(news.total));
                }
            }
        }
    }
}

/// Waits until a process is there to be typed to; answers what is asked before.
async fn opened(client: &Client, streaming: &mut Streaming) -> Result<(), Stop> {
    let mut asking = Asking::default();
    loop {
        tokio::select! {
            update = streaming.next() => match update? {
                Update::Opened(_) => return Ok(()),
                Update::Approval(approval) => asking.put(*approval),
                _ => {}
            },
            answer = asking.answer() => asking.send(client, answer).await,
        }
    }
}

async fn foreground(
    args: &RunArgs,
    client: Client,
    mut request: StartRequest,
    input: Option<Source>,
    interrupts: Interrupts,
) -> Outcome {
    let (session, timeout) = (request.session.clone(), request.timeout);
    let sink = match args.json {
        true => Sink::Capture(Box::new(Capture::new(args.max_output))),
        false => Sink::streams(),
    };
    // Where the command reads what is typed, a password can't be told from that.
    request.passwords =
        args.stdin.as_deref().is_none_or(|path| path.as_os_str() != "-") && crate::ask::somebody();
    let mut follow = Follow::new(client, request, interrupts, sink);
    let ended = follow.until_end(input).await?;
    let interrupts = &follow.interrupts;
    match (ended, &follow.sink) {
        (Ended::Interrupted, _) => Ok(interrupts.code()),
        (Ended::Process(process), Sink::Capture(capture)) => {
            let code = ending::code(&process, interrupts);
            output::print_json(&report(&process, &session, capture, false, code)?)?;
            Ok(code)
        }
        (Ended::Process(process), sink) => {
            ending::tell(&process, timeout, sink.line_begun());
            Ok(ending::code(&process, interrupts))
        }
        (Ended::Detached(process, _), Sink::Capture(capture)) => {
            output::print_json(&report(&process, &session, capture, true, code::TIMED_OUT)?)?;
            Ok(code::TIMED_OUT)
        }
        (Ended::Detached(process, reason), sink) => {
            goes_on(&process, &reason, sink.line_begun());
            Ok(code::TIMED_OUT)
        }
    }
}

/// The object that `--json` prints.
fn report(
    process: &Process,
    session: &str,
    capture: &Capture,
    backgrounded: bool,
    code: i32,
) -> Result<Value, ApiError> {
    let mut result = farshell_keeper::run_result(process, session, capture, backgrounded);
    result.exit_code = code;
    let mut object = serde_json::to_value(result)
        .map_err(|e| output::api_error(output::invalid("making the JSON object", e.to_string())))?;
    if let (Value::Object(fields), false) = (&mut object, backgrounded) {
        fields.shift_remove("backgrounded");
    }
    Ok(object)
}

/// Who is told by the exit code that the time was up has to know that the command was not killed.
fn goes_on(process: &Process, reason: &str, line_begun: bool) {
    let line = if line_begun { "\n" } else { "" };
    output::tell(&format!(
        "{line}farshell: {reason}\nhint: `farshell logs -f {0}` follows it, `farshell kill {0}` ends it\n",
        process.id
    ));
}
