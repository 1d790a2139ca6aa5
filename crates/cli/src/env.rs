//! `farshell env`: environments as a whole.

use crate::args::{EnvCommand, EnvListArgs, EnvNameArgs, EnvRemoveArgs};
use crate::output::{self, Outcome, Stop, Style, code, notice, plain};
use crate::table::{Cell, Table};
use crate::{reach, times};
use farshell_api::environment::{
    Environment, EnvironmentList, EnvironmentState, RemoveRequest, RemoveResult,
};
use farshell_client::Client;
use farshell_engine::{Error, Kind};

pub(crate) fn run(command: &EnvCommand) -> Outcome {
    match command {
        EnvCommand::List(args) => output::told(args.json, list(args)),
        EnvCommand::Show(args) => output::told(args.json, show(args)),
        EnvCommand::Stop(args) => output::told(args.json, remove(args, How::Stop, false)),
        EnvCommand::Rm { which, files, forget } => {
            let how = if *files { How::WithFiles } else { How::Remove };
            output::told(which.json, remove(which, how, *forget))
        }
    }
}

/// What becomes of an environment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Stop,
    Remove,
    /// And what would outlive it.
    WithFiles,
}

fn list(args: &EnvListArgs) -> Outcome {
    let environments =
        reach::ask("listing environments", |client| async move { Ok(client.environments().await?) })?;
    if args.json {
        output::print_json(&EnvironmentList { environments })?;
        return Ok(0);
    }
    if environments.is_empty() {
        notice("there is no environment; the first command makes one");
        return Ok(0);
    }
    let mut table =
        Table::new(&["ENVIRONMENT", "STATE", "SINCE", "RUNS", "USED", "ENDS IN", "PLACE", "TASKS"]);
    let now = times::now();
    for environment in &environments {
        table.row(vec![
            environment.key.as_str().into(),
            state(environment.state),
            since(environment, now).into(),
            runs(environment).into(),
            times::ago(environment.last_used_at, now).into(),
            ends_in(environment, now).into(),
            environment.place.as_ref().map_or_else(|| "-".into(), |place| plain(&place.name)).into(),
            environment.tasks.join(", ").into(),
        ]);
    }
    output::print(&table.render())?;
    Ok(0)
}

fn state(state: EnvironmentState) -> Cell {
    match state {
        EnvironmentState::Creating => Cell::painted("creating", Style::yellow),
        EnvironmentState::Ready => Cell::painted("ready", Style::green),
        EnvironmentState::Stopped => Cell::painted("stopped", Style::dim),
        EnvironmentState::Ending => Cell::painted("ending", Style::yellow),
        EnvironmentState::Failed => Cell::painted("failed", Style::red),
    }
}

/// When its place was made, while that is there and may cost something.
fn since(environment: &Environment, now: u64) -> String {
    match environment.state {
        EnvironmentState::Ready | EnvironmentState::Ending => times::ago(environment.created_at, now),
        _ => "-".into(),
    }
}

/// How long it stays if nobody uses it. Not counted while something runs in it.
fn ends_in(environment: &Environment, now: u64) -> String {
    match (environment.state, environment.expires_at) {
        (EnvironmentState::Ready, Some(at)) => times::span(at.saturating_sub(now)),
        _ => "-".into(),
    }
}

/// Foreground and background.
fn runs(environment: &Environment) -> String {
    match (environment.foreground, environment.background) {
        (0, 0) => "-".into(),
        (foreground, 0) => format!("{foreground} fg"),
        (0, background) => format!("{background} bg"),
        (foreground, background) => format!("{foreground} fg, {background} bg"),
    }
}

fn show(args: &EnvNameArgs) -> Outcome {
    let environment = reach::ask("looking at the environment", |client| async move {
        Ok(client.environment(&args.name).await?)
    })?;
    if args.json {
        output::print_json(&environment)?;
    } else {
        output::print(&text(&environment, Style::stdout()))?;
    }
    Ok(0)
}

fn text(environment: &Environment, style: Style) -> String {
    let now = times::now();
    let mut text = format!("{}\n", style.bold(&environment.key));
    let mut line = |label: &str, rest: &str| text.push_str(&format!("  {label:<10}{}\n", plain(rest)));
    let state = serde_json::to_value(environment.state).unwrap_or_default();
    line("state", state.as_str().unwrap_or_default());
    if let Some(note) = &environment.note {
        line("note", note);
    }
    if let Some(progress) = &environment.progress {
        line("now", &progress.message);
    }
    if let Some(place) = &environment.place {
        line("place", &format!("{} ({})", place.name, place.id));
    }
    if let Some(status) = &environment.status {
        line("now", status);
    }
    line("tasks", &environment.tasks.join(", "));
    line("runs", &runs(environment));
    line("created", &times::ago(environment.created_at, now));
    line("used", &times::ago(environment.last_used_at, now));
    let lifetime = format!("{} s", environment.lifetime_seconds);
    match environment.expires_at {
        Some(at) => line(
            "put away",
            &format!("in {} (after {lifetime} of silence)", times::span(at.saturating_sub(now))),
        ),
        None => line("put away", &format!("after {lifetime} of silence")),
    }
    for (name, value) in &environment.spec {
        line("spec", &format!("{name}: {value}"));
    }
    for (name, limit) in &environment.limits {
        let value = limit.value.as_ref().map_or_else(String::new, |value| format!("{value}, "));
        let note = limit.note.as_ref().map_or_else(String::new, |note| format!(" ({note})"));
        line("limit", &format!("{name}: {value}{}{note}", limit.support));
    }
    text
}

fn remove(args: &EnvRemoveArgs, how: How, forget: bool) -> Outcome {
    let (stop, files) = (how == How::Stop, how == How::WithFiles);
    let doing = match stop {
        true => "putting environments away",
        false => "removing environments; a place that does not answer is given up after some minutes",
    };
    let result = reach::ask_slowly(doing, |client| async move {
        let names = match args.all {
            true => Vec::new(),
            false => named(&client, args, how).await?,
        };
        let request = RemoveRequest { names, all: args.all, force: args.force || !stop, stop, files, forget };
        if !request.all && request.names.is_empty() {
            return Ok(RemoveResult::default());
        }
        Ok(client.remove(&request).await?)
    })?;
    if args.json {
        output::print_json(&result)?;
    } else {
        tell(&result, if stop { "put away" } else { "ended" });
        if result.removed.is_empty() && result.forgotten.is_empty() && result.failed.is_empty() {
            notice("there is no such environment");
        }
    }
    Ok(if result.failed.is_empty() { 0 } else { code::FAILED })
}

/// Says what has become of environments.
pub(crate) fn tell(result: &RemoveResult, done: &str) {
    for key in &result.removed {
        notice(&format!("environment {key} is {done}"));
    }
    for forgotten in &result.forgotten {
        let left = plain(&forgotten.left);
        output::tell(&format!("farshell: environment {} is forgotten, not ended: {left}\n", forgotten.key));
    }
    for kept in &result.kept {
        let (location, key) = (plain(&kept.location), &kept.key);
        output::tell(&format!(
            "farshell: the files of {key} are kept in {location}\nhint: `farshell env rm --files {key}` removes them\n"
        ));
    }
    for refusal in &result.failed {
        output::print_error(&refusal.error);
    }
}

/// The environments that are meant. There may be none.
async fn named(client: &Client, args: &EnvRemoveArgs, how: How) -> Result<Vec<String>, Stop> {
    let environments = client.environments().await?;
    let names = if args.names.is_empty() { vec!["default".to_owned()] } else { args.names.clone() };
    let mut keys: Vec<String> = Vec::new();
    for name in &names {
        let meant = |e: &&Environment| {
            (e.key == *name || e.tasks.contains(name))
                && args.backend.as_ref().is_none_or(|backend| e.backend == *backend)
        };
        let found: Vec<&Environment> = environments.iter().filter(meant).collect();
        if found.len() > 1 {
            let keys: Vec<&str> = found.iter().map(|e| e.key.as_str()).collect();
            let message = format!("{name} can be any of {}", keys.join(", "));
            return Err(Error::new(Kind::Invalid, "choosing the environment", message)
                .with_hint("name the environment as it is listed, or its backend with --backend")
                .into());
        }
        // What an environment has left can be removed when it is gone itself.
        if found.is_empty() && how == How::WithFiles {
            keys.push(match &args.backend {
                Some(backend) if !name.contains('/') => format!("{backend}/{name}"),
                _ => name.clone(),
            });
        }
        for environment in found {
            shared(environment, name, args.force)?;
            if !keys.contains(&environment.key) {
                keys.push(environment.key.clone());
            }
        }
    }
    Ok(keys)
}

/// What others use is not ended on behalf of one task alone.
fn shared(environment: &Environment, name: &str, force: bool) -> Result<(), Error> {
    let others: Vec<&str> =
        environment.tasks.iter().map(String::as_str).filter(|task| *task != name).collect();
    if force || environment.key == name || others.is_empty() {
        return Ok(());
    }
    let message = format!("{} is also used by {}", environment.key, others.join(", "));
    Err(Error::new(Kind::Busy, format!("ending the environment of {name}"), message)
        .with_hint("--force ends it for all of them; `isolation: task` gives each task its own"))
}
