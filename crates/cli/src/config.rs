//! `farshell config`: settings, where they come from, and how they are changed.

use crate::args::{ConfigCommand, KeyArgs};
use crate::load;
use crate::output::{self, Outcome, Style, code};
use farshell_config::{Answer, Change, Entry, Explanation, Step, value::Value};
use farshell_engine::Error;
use serde_json::{Value as Json, json};
use std::io::Read;

pub(crate) fn run(command: ConfigCommand) -> Outcome {
    match command {
        ConfigCommand::Get { key } => get(&key),
        ConfigCommand::Set { key, value } => {
            let value = if value == "-" { from_stdin()? } else { value };
            changed(
                &farshell_config::set(&load::context(None)?, &key, &value).map_err(load::not_changed)?,
                "set",
            )
        }
        ConfigCommand::Unset { key } => {
            changed(&farshell_config::unset(&load::context(None)?, &key).map_err(load::not_changed)?, "unset")
        }
        ConfigCommand::List { all, json, backend } => list(all, json, backend.as_deref()),
        ConfigCommand::Path { json } => path(json),
        ConfigCommand::Explain { key } => explain(&key),
    }
}

/// A value that was not typed, without the line end after it.
fn from_stdin() -> Result<String, Error> {
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|e| Error::io("reading the value from standard input", e))?;
    let value = text.strip_suffix('\n').unwrap_or(&text);
    Ok(value.strip_suffix('\r').unwrap_or(value).to_owned())
}

fn get(args: &KeyArgs) -> Outcome {
    let config = load::config(args.backend.as_deref())?;
    let (value, entry) = match config.get(&args.key).map_err(load::unknown_key)? {
        Answer::Setting(entry) => (entry.value.as_ref().map(Value::to_json), Some(entry)),
        Answer::Other(value) => (value, None),
    };
    let problem = entry.as_ref().and_then(|entry| entry.problem.as_ref());
    if args.json {
        output::print_json(&match &entry {
            Some(entry) => entry_json(entry),
            None => json!({"key": args.key, "value": value}),
        })?;
    } else if let Some(value) = &value {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        output::print(&format!("{text}\n"))?;
    }
    if let Some(problem) = problem {
        return Err(output::invalid("checking the setting", problem.to_string()).into());
    }
    if value.is_none() {
        output::notice(&format!("{} is not set", args.key));
        return Ok(code::NO);
    }
    Ok(0)
}

fn changed(change: &Change, done: &str) -> Outcome {
    let what = if change.changed { done } else { "unchanged" };
    let mut text = format!("{what}: {} in {}\n", change.key, change.path.display());
    let style = Style::stdout();
    for note in &change.notes {
        text.push_str(&format!("{} {note}\n", style.yellow("note:")));
    }
    output::print(&text)?;
    Ok(0)
}

fn list(all: bool, json: bool, backend: Option<&str>) -> Outcome {
    let config = load::config(backend)?;
    let entries: Vec<Entry> = config.list().into_iter().filter(|entry| all || entry.matters).collect();
    if json {
        output::print_json(&entries.iter().map(entry_json).collect::<Json>())?;
        return Ok(0);
    }
    let style = Style::stdout();
    let rows: Vec<[String; 3]> = entries
        .iter()
        .map(|entry| {
            let value = entry.value.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
            [entry.setting.key.to_owned(), value, entry.source.to_string()]
        })
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    // One long value must not push all sources out of sight.
    let (keys, values) = (width(0), width(1).min(40));
    let mut text = String::new();
    for (row, entry) in rows.iter().zip(&entries) {
        let [key, value, source] = row;
        let source = if source == "default" { style.dim(source) } else { source.clone() };
        text.push_str(&format!("{}  {value:values$}  {source}\n", style.bold(&format!("{key:keys$}"))));
        if let Some(problem) = &entry.problem {
            text.push_str(&format!("{}  {} {problem}\n", " ".repeat(keys), style.red("problem:")));
        }
    }
    output::print(&text)?;
    Ok(0)
}

fn path(json: bool) -> Outcome {
    let paths = load_paths()?;
    if json {
        output::print_json(&json!({"home": paths.home, "config": paths.config, "env": paths.env}))?;
    } else {
        let there = |path: &std::path::Path| if path.exists() { "" } else { "  (not there)" };
        output::print(&format!(
            "{}{}\n{}{}\n",
            paths.config.display(),
            there(&paths.config),
            paths.env.display(),
            there(&paths.env)
        ))?;
    }
    Ok(0)
}

/// The paths can be told however broken the files are.
fn load_paths() -> Result<farshell_config::Paths, Error> {
    let home = load::context(None)?.home;
    Ok(farshell_config::Paths {
        home: home.root().to_owned(),
        config: home.config_file(),
        env: home.env_file(),
    })
}

fn explain(args: &KeyArgs) -> Outcome {
    let config = load::config(args.backend.as_deref())?;
    let explanation = config.explain(&args.key).map_err(load::unknown_key)?;
    if args.json {
        output::print_json(&explanation_json(&explanation))?;
    } else {
        output::print(&explanation_text(&explanation, Style::stdout()))?;
    }
    Ok(0)
}

fn explanation_text(explanation: &Explanation, style: Style) -> String {
    let setting = explanation.setting;
    let value = explanation.steps.first().map_or("not set", |step| step.value.as_str());
    let mut text = format!("{} = {value}\n", style.bold(&setting.path()));
    let mut line = |label: &str, rest: &str| text.push_str(&format!("  {label:<11}{rest}\n"));
    for (rank, step) in explanation.steps.iter().enumerate() {
        match rank {
            0 => line("from", &step.source.to_string()),
            _ => line("overrides", &format!("{} ({})", step.value, step.source)),
        }
        if let Some(problem) = &step.problem {
            line(if rank == 0 { "problem" } else { "" }, &problem.to_string());
        }
    }
    line("meaning", setting.help);
    line("variables", &setting.variables().collect::<Vec<_>>().join(", "));
    if !explanation.matters {
        line("note", &format!("the selected backend, {}, does not use it", explanation.backend));
    }
    text
}

fn entry_json(entry: &Entry) -> Json {
    json!({
        "key": entry.setting.path(),
        "value": entry.value.as_ref().map(Value::to_json),
        "source": entry.source.to_string(),
        "problem": entry.problem.as_ref().map(ToString::to_string),
        "matters": entry.matters,
    })
}

fn explanation_json(explanation: &Explanation) -> Json {
    let step = |step: &Step| {
        json!({
            "value": step.value,
            "source": step.source.to_string(),
            "problem": step.problem.as_ref().map(ToString::to_string),
        })
    };
    json!({
        "key": explanation.setting.path(),
        "value": explanation.steps.first().map(|step| &step.value),
        "source": explanation.steps.first().map(|step| step.source.to_string()),
        "overrides": explanation.steps.iter().skip(1).map(step).collect::<Json>(),
        "problem": explanation.steps.first().and_then(|step| step.problem.as_ref()).map(ToString::to_string),
        "meaning": explanation.setting.help,
        "variables": explanation.setting.variables().collect::<Vec<_>>(),
        "backend": explanation.backend.as_str(),
        "matters": explanation.matters,
    })
}
