//! `farshell run`: one command, followed to its end.
//!
//! 1. The plan says where, what and how ([`crate::plan`]).
//! 2. A thread of its own waits for signals ([`interrupt`]), so that Ctrl-C works while our output is blocked.
//! 3. Output goes to where it belongs ([`stream`]) or is collected for one object ([`report`]).
//! 4. Input is sent as it arrives ([`input`]).
//! 5. The end becomes an exit code ([`ending`]).

mod ending;
mod input;
mod interrupt;
mod report;
mod stream;

use crate::args::RunArgs;
use crate::output::{self, Outcome, Stop, code, notice};
use crate::plan::{Report, RunPlan};
use farshell_engine::capture::{Capture, Sink};
use farshell_engine::{Environment, Error, Kind};
use farshell_protocol::ProcessId;
use farshell_protocol::process::{State, Status};
use interrupt::Interrupts;
use std::time::Duration;
use stream::{Broken, Streams};

/// How long a command may wait for its session before a person is told why nothing happens.
const TELL_QUEUED: Duration = Duration::from_millis(700);

pub(crate) fn run(args: RunArgs) -> Outcome {
    let json = args.json;
    match run_plan(args) {
        Err(Stop::Failed(error)) if json => {
            output::print_json(&output::error_json(&error))?;
            Ok(code::FAILED)
        }
        other => other,
    }
}

fn run_plan(args: RunArgs) -> Outcome {
    let plan = RunPlan::new(args)?;
    let input = plan.input.as_ref().map(input::Source::open).transpose()?;
    let runtime = crate::runtime()?;
    let interrupts =
        Interrupts::listen(plan.environment.clone(), plan.options.id.clone(), plan.options.grace)?;
    let outcome = runtime.block_on(follow(&plan, input, &interrupts));
    // The outcome is settled, so a signal can't take it back.
    interrupts.over();
    outcome
}

async fn follow(plan: &RunPlan, input: Option<input::Source>, interrupts: &Interrupts) -> Outcome {
    let environment = &plan.environment;
    let env = Environment::open(&*environment.backend, &environment.spec, plan.sessions.clone()).await?;
    let id = &plan.options.id;
    interrupts.ready()?;
    match plan.report {
        Report::Stream => {
            let mut streams = Streams::open().map_err(|e| Error::io("opening standard output", e))?;
            let broken = streams.trouble();
            let ended = attended(&env, plan, input, &mut streams);
            let status = tokio::select! {
                // A reader who is gone counts first.
                biased;
                why = broken.wait() => return Err(given_up(&env, id, plan.options.grace, why).await),
                ended = ended => ended,
            };
            let Some(status) = settle(status, interrupts)? else { return Ok(interrupts.code()) };
            if let Some(why) = broken.take() {
                return Err(given_up(&env, id, plan.options.grace, why).await);
            }
            ending::tell(&status, plan.options.timeout, streams.line_begun());
            Ok(ending::code(&status, interrupts))
        }
        Report::Json { limit } => {
            let mut capture = Capture::new(limit);
            let ended = attended(&env, plan, input, &mut capture).await;
            let Some(status) = settle(ended, interrupts)? else { return Ok(interrupts.code()) };
            let code = ending::code(&status, interrupts);
            output::print_json(&report::object(&env, &plan.options, &status, &capture, code))?;
            Ok(code)
        }
    }
}

/// A command that was interrupted before it began has no status, and that is no failure.
fn settle(ended: Result<Status, Error>, interrupts: &Interrupts) -> Result<Option<Status>, Stop> {
    match ended {
        Ok(status) => Ok(Some(status)),
        Err(error) if error.kind == Kind::NotStarted && interrupts.any() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Runs the command, feeds it, and tells a person if it has to wait.
async fn attended(
    env: &Environment,
    plan: &RunPlan,
    input: Option<input::Source>,
    sink: &mut dyn Sink,
) -> Result<Status, Error> {
    let run = env.run(&plan.options, sink);
    let id = &plan.options.id;
    let feed = async {
        if let Some(input) = input {
            input.feed(env.outpost(), id).await?;
        }
        Ok::<(), Error>(())
    };
    let watch = tell_queued(env, plan);
    let (mut run, mut feed, mut watch) = (std::pin::pin!(run), std::pin::pin!(feed), std::pin::pin!(watch));
    let (mut feeding, mut watching) = (true, true);
    loop {
        tokio::select! {
            biased;
            ended = &mut run => return ended,
            fed = &mut feed, if feeding => {
                feeding = false;
                if let Err(error) = fed {
                    // A command that got half of its input must not go on as if that were all.
                    let _ = env.outpost().kill(vec![id.clone()], plan.options.grace).await;
                    return Err(error);
                }
            }
            () = &mut watch, if watching => watching = false,
        }
    }
}

/// Says why nothing happens, if the session runs another command.
async fn tell_queued(env: &Environment, plan: &RunPlan) {
    tokio::time::sleep(TELL_QUEUED).await;
    if let Ok(status) = env.outpost().status(plan.options.id.clone()).await
        && status.state == State::Queued
    {
        let session = &plan.options.session;
        notice(&format!("waiting: session {session} runs another command (--session NAME uses another one)"));
    }
}

/// Ends a command whose output can't be delivered.
async fn given_up(env: &Environment, id: &ProcessId, grace: Duration, why: Broken) -> Stop {
    let _ = env.outpost().kill(vec![id.clone()], grace).await;
    match why {
        Broken::NoReader => Stop::BrokenPipe,
        Broken::Failed { stream, error } => Stop::Failed(
            Error::io(format!("writing to standard {stream}"), error).with_hint("the command was killed"),
        ),
    }
}
