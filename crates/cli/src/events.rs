//! `farshell events`: what happened, and what happens.

use crate::args::EventsArgs;
use crate::output::{self, Outcome, Stop, Style, plain};
use crate::signals::Interrupts;
use crate::{reach, times};
use farshell_api::event::{AckRequest, Event, EventKind, EventList, EventQuery};
use farshell_client::Client;
use serde_json::Value;

/// Seconds that one call waits for something to happen.
const WAIT: f64 = 300.0;

pub(crate) fn run(args: &EventsArgs) -> Outcome {
    let outcome = crate::runtime().map_err(Stop::from).and_then(|runtime| {
        runtime.block_on(async {
            let mut interrupts = Interrupts::listen()?;
            tokio::select! {
                shown = show(args) => shown,
                _ = interrupts.next() => Ok(interrupts.code()),
            }
        })
    });
    output::told(args.json, outcome)
}

async fn show(args: &EventsArgs) -> Outcome {
    let client = reach::server().await?;
    let mut query = EventQuery {
        after: args.after,
        consumer: args.consumer.clone(),
        task: args.task.clone(),
        ..EventQuery::default()
    };
    // All that there is, in one object: a program can't be given half of it.
    let mut all: Option<EventList> = None;
    loop {
        let list = client.events(&query).await?;
        let last = list.events.last().map(|event| event.seq);
        if let (true, Some(after)) = (query.wait.is_none(), args.after)
            && after < list.pruned
        {
            output::notice(&format!("events up to {} are no longer kept", list.pruned));
        }
        if args.json && !args.follow {
            match &mut all {
                Some(all) => {
                    all.events.extend(list.events);
                    all.last = list.last;
                }
                None => all = Some(list),
            }
        } else {
            for event in &list.events {
                if args.json {
                    output::print_json_line(event)?;
                } else {
                    output::print(&line(event, times::now(), Style::stdout()))?;
                }
            }
            acknowledge(&client, args, last).await?;
        }
        match last {
            Some(seq) => query.after = Some(seq),
            None if !args.follow => break,
            None => {
                if query.consumer.is_none() {
                    query.after.get_or_insert(0);
                }
                query.wait = Some(WAIT);
            }
        }
    }
    if let Some(all) = all {
        output::print_json(&all)?;
        acknowledge(&client, args, all.events.last().map(|event| event.seq)).await?;
    }
    Ok(0)
}

/// After it was printed: what was not seen is shown again.
async fn acknowledge(client: &Client, args: &EventsArgs, seq: Option<u64>) -> Result<(), Stop> {
    if let (true, Some(consumer), Some(seq)) = (args.ack, &args.consumer, seq) {
        client.ack(&AckRequest { consumer: consumer.clone(), seq }).await?;
    }
    Ok(())
}

fn line(event: &Event, now: u64, style: Style) -> String {
    let about = event.process_id.as_deref().or(event.environment.as_deref()).unwrap_or("-");
    let kind = serde_json::to_value(event.kind).unwrap_or_default();
    let kind = kind.as_str().unwrap_or_default().replace('_', " ");
    let detail = crate::table::cut(&plain(&detail(event)), 200);
    let text = format!(
        "{}  {:>8}  {kind}  {about}  {detail}",
        style.dim(&format!("{:>5}", event.seq)),
        times::ago(event.at, now),
    );
    format!("{}\n", text.trim_end())
}

fn detail(event: &Event) -> String {
    let text = |name: &str| event.data.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let number = |name: &str| event.data.get(name).and_then(Value::as_i64);
    match event.kind {
        EventKind::ProcessCompleted => {
            let how = match (number("exit_code"), text("state")) {
                (Some(code), _) => format!("exit {code}"),
                (None, state) => state.replace('_', " "),
            };
            format!("{how}  {}", text("command"))
        }
        EventKind::WatchMatched => format!("{:?} in {}", text("pattern"), text("line")),
        EventKind::WatchDisabled => {
            format!("after {} matches", number("matches").unwrap_or_default())
        }
        EventKind::EnvironmentFailed => text("error"),
        EventKind::EnvironmentRecreated => text("difference"),
        EventKind::ProcessStarted => text("command"),
        EventKind::ApprovalRequested => {
            event.data.pointer("/approval/command").and_then(Value::as_str).unwrap_or_default().to_owned()
        }
        EventKind::ApprovalAnswered => format!("{} by {}", text("decision"), text("decided_by")),
        EventKind::EnvironmentCreated
        | EventKind::EnvironmentStopped
        | EventKind::EnvironmentRemoved
        | EventKind::ServerStarted
        | EventKind::ServerStopped => String::new(),
    }
}
