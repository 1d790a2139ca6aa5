//! `farshell audit`: what was asked for, what was decided, and what became of it.

use crate::args::AuditArgs;
use crate::output::{self, Outcome, Stop, Style, plain};
use crate::signals::Interrupts;
use crate::table::cut;
use crate::{reach, times};
use farshell_api::audit::{AuditLine, AuditOutcome, AuditQuery, AuditReport, Step};
use std::time::Duration;

/// Seconds that one call waits for something to happen.
const WAIT: f64 = 300.0;
/// Lines that are shown if nobody says how many.
const SOME: u32 = 50;
/// As many as there can be in one answer.
const MOST: u32 = 10_000;

pub(crate) fn run(args: &AuditArgs) -> Outcome {
    let outcome = crate::runtime().map_err(Stop::from).and_then(|runtime| {
        runtime.block_on(async {
            let mut interrupts = Interrupts::listen()?;
            tokio::select! {
                shown = async { if args.verify { verify(args).await } else { show(args).await } } => shown,
                _ = interrupts.next() => Ok(interrupts.code()),
            }
        })
    });
    output::told(args.json, outcome)
}

async fn show(args: &AuditArgs) -> Outcome {
    let client = reach::server().await?;
    let since = args.since.map(|since| times::now().saturating_sub(millis(since.into())));
    let limit = args.lines.unwrap_or(if since.is_some() { MOST } else { SOME });
    let mut query =
        AuditQuery { after: None, since, task: args.task.clone(), limit: Some(limit), wait: None };
    loop {
        let list = client.audit(&query).await?;
        if args.json && !args.follow {
            output::print_json(&list)?;
            return Ok(0);
        }
        for line in &list.lines {
            if args.json {
                output::print_json_line(line)?;
            } else {
                output::print(&shown(line, times::now(), Style::stdout()))?;
            }
        }
        if !args.follow {
            if list.lines.is_empty() {
                output::notice("nothing is recorded");
            }
            return Ok(0);
        }
        let seen = list.lines.last().map(|line| line.seq).or(query.after);
        query = AuditQuery {
            after: Some(seen.unwrap_or(list.last)),
            since: None,
            limit: Some(MOST),
            wait: Some(WAIT),
            ..query
        };
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn shown(line: &AuditLine, now: u64, style: Style) -> String {
    let about = line.process_id.as_deref().or(line.approval.as_deref()).unwrap_or("-");
    let (what, detail) = match line.step {
        Step::Opened => (style.dim("server started"), String::new()),
        Step::Torn => (style.yellow("torn"), "the line before was cut off".into()),
        Step::Gap => {
            (style.red("gap"), format!("{} lines could not be written", line.lost.unwrap_or_default()))
        }
        Step::Asked => (style.yellow("asked"), command(line)),
        Step::Decided => {
            let by = line.decided_by.as_deref().unwrap_or("-");
            let by = style.dim(&format!("by {}", plain(by)));
            let what = match line.decision.as_deref() {
                Some("allow") => style.green("allowed"),
                _ => style.red("denied"),
            };
            (format!("{what} {by}"), command(line))
        }
        Step::Ended => ("ended".to_owned(), line.outcome.as_ref().map(ended).unwrap_or_default()),
    };
    let text = format!(
        "{}  {:>8}  {}  {}  {what}  {}",
        style.dim(&format!("{:>5}", line.seq)),
        times::ago(line.at, now),
        plain(line.environment.as_deref().unwrap_or("-")),
        plain(about),
        cut(&plain(&detail), 200)
    );
    format!("{}\n", text.trim_end())
}

fn command(line: &AuditLine) -> String {
    let rules = if line.rules.is_empty() { String::new() } else { format!("[{}] ", line.rules.join(", ")) };
    format!("{rules}{}", line.command.as_deref().unwrap_or_default())
}

fn ended(outcome: &AuditOutcome) -> String {
    let mut text = match outcome.exit_code {
        Some(code) => format!("exit {code}"),
        None => outcome.state.replace('_', " "),
    };
    if outcome.timed_out {
        text.push_str(", timed out");
    }
    if let Some(signal) = outcome.signal {
        text.push_str(&format!(", signal {signal}"));
    }
    if outcome.killed > 0 {
        text.push_str(&format!(", {} killed", output::count(outcome.killed, "process")));
    }
    if let Some(error) = &outcome.error {
        text.push_str(&format!(": {error}"));
    }
    text
}

async fn verify(args: &AuditArgs) -> Outcome {
    let report = reach::server().await?.verify_audit().await?;
    let code = if report.sound { 0 } else { output::code::NO };
    if args.json {
        output::print_json(&report)?;
    } else {
        output::print(&verdict(&report, Style::stdout()))?;
    }
    Ok(code)
}

fn verdict(report: &AuditReport, style: Style) -> String {
    let mut text = String::new();
    for fault in &report.faults {
        text.push_str(&format!(
            "{}  {} line {}: {}\n",
            style.red("fault"),
            fault.file,
            fault.line,
            fault.what
        ));
    }
    for note in &report.notes {
        text.push_str(&format!(
            "{}  {} line {}: {}\n",
            style.yellow("note"),
            note.file,
            note.line,
            note.what
        ));
    }
    let lines =
        format!("lines {} to {} in {}", report.first, report.last, output::count(report.files, "file"));
    let verdict = match report.sound {
        true => style.green("the audit log is what was written"),
        false => style.red("the audit log is not what was written"),
    };
    text + &format!("{verdict}: {lines}\n")
}
