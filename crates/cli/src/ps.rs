//! `farshell ps`: processes at a glance.

use crate::args::PsArgs;
use crate::output::{self, Outcome, Style, plain};
use crate::table::{Cell, Table};
use crate::{reach, times};
use farshell_api::process::{Process, ProcessList, ProcessQuery, ProcessState, WaitingFor};

pub(crate) fn run(args: &PsArgs) -> Outcome {
    output::told(args.json, list(args))
}

fn list(args: &PsArgs) -> Outcome {
    let query = ProcessQuery { task: args.task.clone(), all: args.all };
    let processes =
        reach::ask("listing processes", |client| async move { Ok(client.processes(&query).await?) })?;
    if args.json {
        output::print_json(&ProcessList { processes })?;
        return Ok(0);
    }
    if processes.is_empty() {
        let more = if args.all { "" } else { "; --all shows those that have ended" };
        output::notice(&format!("no process runs{more}"));
        return Ok(0);
    }
    let mut table = Table::new(&["ID", "TASK", "STATE", "TIME", "COMMAND"]);
    let now = times::now();
    for process in &processes {
        table.row(vec![
            process.id.as_str().into(),
            process.task.as_str().into(),
            state(process),
            time(process, now).into(),
            plain(process.command.lossy().trim()).into(),
        ]);
    }
    output::print(&table.render())?;
    Ok(0)
}

/// In one or two words.
pub(crate) fn state(process: &Process) -> Cell {
    if process.unreachable.is_some() {
        return Cell::painted("unreachable", Style::yellow);
    }
    match (process.state, process.waiting_for) {
        (ProcessState::Starting, _) => Cell::painted("starting", Style::yellow),
        (ProcessState::Queued, _) => Cell::painted("queued", Style::yellow),
        (ProcessState::Running, Some(WaitingFor::Input)) => Cell::painted("wants input", Style::yellow),
        (ProcessState::Running, Some(WaitingFor::Secret)) => Cell::painted("wants secret", Style::yellow),
        (ProcessState::Running, None) => Cell::painted("running", Style::green),
        (ProcessState::NotStarted, _) => Cell::painted("never began", Style::red),
        (ProcessState::Lost, _) => Cell::painted("lost", Style::red),
        (ProcessState::Ended, _) if process.timed_out => Cell::painted("timed out", Style::red),
        (ProcessState::Ended, _) => match (&process.signal_name, process.exit_code) {
            (Some(name), _) => Cell::painted(name.as_str(), Style::red),
            (None, Some(0)) => Cell::painted("exit 0", Style::dim),
            (None, Some(code)) => Cell::painted(format!("exit {code}"), Style::red),
            (None, None) => Cell::painted("ended", Style::dim),
        },
    }
}

/// How long it has been running, or when it ended.
fn time(process: &Process, now: u64) -> String {
    match (process.started_at, process.ended_at) {
        (_, Some(ended)) => times::ago(ended, now),
        (Some(started), None) => times::span(now.saturating_sub(started)),
        (None, None) => "-".into(),
    }
}
