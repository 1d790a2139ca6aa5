//! The agent's tools, called by hand.

use crate::args::{ToolArgs, ToolsArgs};
use crate::output::{self, Outcome, Stop};
use crate::reach;
use crate::table::Table;
use farshell_api::tool::{ToolCall, ToolList};
use farshell_engine::Error;
use serde_json::{Map, Value};
use std::io::Read;

/// The exit code of a call that could not do what was asked.
const COULD_NOT: i32 = 1;

pub(crate) fn list(args: &ToolsArgs) -> Outcome {
    output::told(args.json, all(args))
}

fn all(args: &ToolsArgs) -> Outcome {
    let tools = reach::ask("listing tools", |client| async move { Ok(client.tools().await?) })?;
    if args.json {
        output::print_json(&ToolList { tools })?;
        return Ok(0);
    }
    let mut table = Table::new(&["TOOL", "ARGUMENTS", "WHAT IT DOES"]);
    for tool in &tools {
        let arguments = tool.input_schema["properties"].as_object();
        let arguments: Vec<_> = arguments.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        let what = tool.description.split(". ").next().unwrap_or_default();
        table.row(vec![tool.name.as_str().into(), arguments.join(" ").into(), what.into()]);
    }
    output::print(&table.render())?;
    Ok(0)
}

/// Answers in JSON, errors included: it is called by programs as much as by people.
pub(crate) fn call(args: &ToolArgs) -> Outcome {
    output::told(true, one(args))
}

fn one(args: &ToolArgs) -> Outcome {
    let call = ToolCall {
        arguments: arguments(args.arguments.as_deref())?,
        target: reach::target(&args.target.task, args.target.backend.as_deref())?,
        session: args.session.clone(),
    };
    let answer =
        reach::ask("calling the tool", |client| async move { Ok(client.tool(&args.name, &call).await?) })?;
    output::print_json(&answer.result)?;
    Ok(if answer.failed { COULD_NOT } else { 0 })
}

fn arguments(given: Option<&str>) -> Result<Map<String, Value>, Stop> {
    let text = match given {
        None => return Ok(Map::new()),
        Some("-") => {
            let mut text = String::new();
            let read = std::io::stdin().read_to_string(&mut text);
            read.map_err(|error| Error::io("reading the arguments from standard input", error))?;
            text
        }
        Some(text) => text.to_owned(),
    };
    match serde_json::from_str(&text) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(_) => Err(output::invalid("reading the arguments", "they are a JSON object").into()),
        Err(error) => {
            Err(output::invalid("reading the arguments", format!("they are no JSON: {error}")).into())
        }
    }
}
