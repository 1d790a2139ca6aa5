//! What processes have printed, as resources: `farshell://process/ID/log`.

use crate::Shared;
use farshell_api::mcp::McpOpen;
use farshell_api::process::{Process, ProcessQuery};
use farshell_keeper::Origin;
use farshell_tools::{Call, CancellationToken, Nobody};
use rmcp::ErrorData;
use rmcp::model::{
    ListResourceTemplatesResult, ListResourcesResult, ReadResourceResult, Resource, ResourceContents,
    ResourceTemplate,
};
use serde_json::json;

const BEFORE: &str = "farshell://process/";
const AFTER: &str = "/log";
/// Lines of a log: what the tool gives at most, too.
const LINES: u32 = 5_000;
/// Processes in the list: the latest ones.
const LISTED: usize = 200;
/// Characters of a command in the list.
const TITLE: usize = 120;

pub(crate) async fn list(shared: &Shared, open: &McpOpen) -> Result<ListResourcesResult, ErrorData> {
    let failed = |error: farshell_engine::Error| ErrorData::internal_error(error.to_string(), None);
    let query = ProcessQuery { task: Some(open.target.task.clone()), all: true };
    let mut processes = shared.keeper.processes(query).await.map_err(failed)?;
    let redactor = shared.keeper.redactor(&open.target).map_err(failed)?;
    processes.sort_by_key(|process| std::cmp::Reverse(process.started_at));
    processes.truncate(LISTED);
    let resource = |process: &Process| {
        let command = redactor.redact(&process.command.lossy()).into_owned();
        let title: String = command.chars().take(TITLE).collect();
        Resource::new(format!("{BEFORE}{}{AFTER}", process.id), process.id.clone())
            .with_title(title)
            .with_description(format!("Output of a command on {}", process.backend))
            .with_mime_type("text/plain")
    };
    Ok(ListResourcesResult::with_all_items(processes.iter().map(resource).collect()))
}

pub(crate) fn templates() -> ListResourceTemplatesResult {
    let template = ResourceTemplate::new(format!("{BEFORE}{{session_id}}{AFTER}"), "process-log")
        .with_title("Output of a command")
        .with_description("The last lines that a command printed; session_id is in the result of terminal")
        .with_mime_type("text/plain");
    ListResourceTemplatesResult::with_all_items(vec![template])
}

/// The same text as the tool `process` gives: without escape sequences and secrets.
pub(crate) async fn read(
    shared: &Shared,
    open: &McpOpen,
    origin: Origin,
    uri: &str,
) -> Result<ReadResourceResult, ErrorData> {
    let id = uri.strip_prefix(BEFORE).and_then(|rest| rest.strip_suffix(AFTER));
    let Some(id) = id.filter(|id| !id.is_empty() && !id.contains('/')) else {
        let message = format!("there is no {uri}; resources are {BEFORE}ID{AFTER}");
        return Err(ErrorData::resource_not_found(message, None));
    };
    let call = Call {
        target: open.target.clone(),
        session: open.session.clone(),
        origin,
        cancel: CancellationToken::new(),
        observer: &Nobody,
    };
    let arguments = json!({"action": "log", "session_id": id, "limit": LINES});
    let answer = shared.tools.call("process", arguments, call).await;
    if answer.failed {
        let error = answer.result.get("error").and_then(|error| error.as_str()).unwrap_or("it can't be read");
        return Err(ErrorData::resource_not_found(error.to_owned(), None));
    }
    let text = answer.result.get("output").and_then(|output| output.as_str()).unwrap_or_default();
    Ok(ReadResourceResult::new(vec![ResourceContents::text(text, uri)]))
}
