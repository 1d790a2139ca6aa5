//! `farshell gc`: what crashes left behind, shown and then removed.

use crate::args::GcArgs;
use crate::output::{self, Outcome, Stop, code, notice, plain};
use crate::reach;
use crate::table::Table;
use farshell_api::environment::{GcRequest, GcResult};
use std::io::{BufRead, IsTerminal, stdin};

pub(crate) fn run(args: &GcArgs) -> Outcome {
    output::told(args.json, collect(args))
}

fn collect(args: &GcArgs) -> Outcome {
    let look = |remove| {
        reach::ask("looking for what is left", move |client| async move {
            Ok(client.gc(&GcRequest { remove }).await?)
        })
    };
    let found = look(false)?;
    if args.json {
        let result = if args.yes && !found.found.is_empty() { look(true)? } else { found };
        output::print_json(&result)?;
        return Ok(verdict(&result));
    }
    if found.found.is_empty() {
        notice("nothing is left behind");
        return Ok(0);
    }
    output::print(&listed(&found))?;
    if !args.yes && !asked(found.found.len())? {
        return Ok(0);
    }
    let result = look(true)?;
    for item in result.found.iter().filter(|item| item.error.is_some()) {
        let why = item.error.as_deref().unwrap_or_default();
        output::tell(&format!("farshell: {} {} stays: {}\n", item.kind, plain(&item.name), plain(why)));
    }
    Ok(verdict(&result))
}

fn verdict(result: &GcResult) -> i32 {
    if result.found.iter().any(|item| item.error.is_some()) { code::FAILED } else { 0 }
}

fn listed(result: &GcResult) -> String {
    let mut table = Table::new(&["BACKEND", "KIND", "NAME", "WHY"]);
    for item in &result.found {
        table.row(vec![
            item.backend.as_str().into(),
            item.kind.as_str().into(),
            plain(&item.name).into(),
            plain(&item.why).into(),
        ]);
    }
    table.render()
}

/// Asks a person. A program has to say it beforehand.
fn asked(n: usize) -> Result<bool, Stop> {
    if !stdin().is_terminal() {
        output::tell("farshell: nothing was removed; --yes removes it\n");
        return Ok(false);
    }
    let what = output::count(u32::try_from(n).unwrap_or(u32::MAX), "thing");
    output::tell(&format!("Remove {what}? [y/N] "));
    let mut answer = String::new();
    stdin().lock().read_line(&mut answer).map_err(|e| farshell_engine::Error::io("reading the answer", e))?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
