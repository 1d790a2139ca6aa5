//! One method for each route.

use crate::Result;
use crate::client::{Call, Client, Repeat};
use farshell_api::approval::{AnswerRequest, Answered, ApprovalList, ApprovalQuery};
use farshell_api::audit::{AuditList, AuditQuery, AuditReport};
use farshell_api::environment::{
    Environment, EnvironmentList, GcRequest, GcResult, RemoveRequest, RemoveResult,
};
use farshell_api::event::{AckRequest, EventList, EventQuery};
use farshell_api::process::{
    KillRequest, KillResult, LogPiece, LogQuery, Process, ProcessList, ProcessQuery, ProcessState, Screen,
    SignalRequest, StdinRequest, StdinResult, WaitRequest,
};
use farshell_api::run::{RunRequest, RunResult, Size, StartRequest};
use farshell_api::server::{Done, ServerStatus, StopRequest};
use farshell_api::tool::{ToolCall, ToolInfo, ToolList, ToolResult};
use serde::Serialize;
use serde_json::Value;
use std::fmt::Write;

/// How often a background process is started under a new id.
const STARTS: u32 = 5;

/// All fail with the server's own error, or if there is no server and none can be started.
impl Client {
    pub async fn status(&self) -> Result<ServerStatus> {
        self.call(Call::get("/v1/server")).await
    }

    /// Whatever a server of any version says about itself.
    pub async fn any_status(&self) -> Result<Value> {
        self.call(Call { any_version: true, ..Call::get("/v1/server") }).await
    }

    /// Also a server of another version.
    pub async fn stop(&self, request: &StopRequest) -> Result<Done> {
        let call = Call::post("/v1/server/stop", request, Repeat::Safe)?;
        self.call(Call { any_version: true, ..call }).await
    }

    pub async fn openapi(&self) -> Result<Value> {
        self.call(Call::get("/v1/openapi.json")).await
    }

    /// A foreground command. With an id of the caller's it is safe to repeat.
    pub async fn run(&self, request: &RunRequest) -> Result<RunResult> {
        let mut request = request.clone();
        request.start.id.get_or_insert_with(crate::new_process_id);
        // The answer may be lost together with the only one who knows whether it began.
        self.call(Call::post("/v1/run", &request, Repeat::Never)?).await
    }

    /// A background process. It has an id in any case, so that a repeated request starts nothing.
    ///
    /// A server that was killed between the record and the start leaves an id that is known never to have begun, and
    /// never will. If the id was chosen here, another one is tried.
    pub async fn start(&self, request: &StartRequest) -> Result<Process> {
        self.start_as(request, &|_| {}).await
    }

    /// The same; each id that is tried is told.
    pub async fn start_as(&self, request: &StartRequest, told: &dyn Fn(&str)) -> Result<Process> {
        let mut attempts = if request.id.is_some() { 1 } else { STARTS };
        let mut request = request.clone();
        loop {
            told(request.id.get_or_insert_with(crate::new_process_id));
            let process: Process = self.call(Call::post("/v1/processes", &request, Repeat::Safe)?).await?;
            attempts -= 1;
            if process.state != ProcessState::NotStarted {
                return Ok(process);
            }
            if attempts == 0 {
                let why = process.note.unwrap_or_else(|| "it never began".into());
                return Err(crate::error::error("not_started", &format!("starting {}", process.id), why));
            }
            request.id = None;
        }
    }

    pub async fn processes(&self, query: &ProcessQuery) -> Result<Vec<Process>> {
        let list: ProcessList = self.call(Call::get(with_query("/v1/processes", query))).await?;
        Ok(list.processes)
    }

    pub async fn process(&self, id: &str) -> Result<Process> {
        self.call(Call::get(process_path(id, ""))).await
    }

    pub async fn log(&self, id: &str, query: &LogQuery) -> Result<LogPiece> {
        self.call(Call::get(with_query(&process_path(id, "/log"), query))).await
    }

    pub async fn wait(&self, id: &str, request: &WaitRequest) -> Result<Process> {
        self.call(Call::post(process_path(id, "/wait"), request, Repeat::Safe)?).await
    }

    pub async fn stdin(&self, id: &str, request: &StdinRequest) -> Result<StdinResult> {
        let repeat = if request.offset.is_some() { Repeat::Safe } else { Repeat::Never };
        self.call(Call::post(process_path(id, "/stdin"), request, repeat)?).await
    }

    pub async fn kill(&self, id: &str, request: &KillRequest) -> Result<KillResult> {
        self.call(Call::post(process_path(id, "/kill"), request, Repeat::Safe)?).await
    }

    pub async fn signal(&self, id: &str, request: &SignalRequest) -> Result<Done> {
        self.call(Call::post(process_path(id, "/signal"), request, Repeat::Never)?).await
    }

    pub async fn resize(&self, id: &str, size: Size) -> Result<Done> {
        self.call(Call::post(process_path(id, "/resize"), &size, Repeat::Safe)?).await
    }

    pub async fn screen(&self, id: &str) -> Result<Screen> {
        self.call(Call::get(process_path(id, "/screen"))).await
    }

    pub async fn tools(&self) -> Result<Vec<ToolInfo>> {
        let list: ToolList = self.call(Call::get("/v1/tools")).await?;
        Ok(list.tools)
    }

    /// Never repeated: what a tool does may be done.
    pub async fn tool(&self, name: &str, call: &ToolCall) -> Result<ToolResult> {
        self.call(Call::post(format!("/v1/tools/{}", encoded(name)), call, Repeat::Never)?).await
    }

    pub async fn environments(&self) -> Result<Vec<Environment>> {
        let list: EnvironmentList = self.call(Call::get("/v1/environments")).await?;
        Ok(list.environments)
    }

    /// By key or task.
    pub async fn environment(&self, name: &str) -> Result<Environment> {
        self.call(Call::get(format!("/v1/environments/{}", encoded(name)))).await
    }

    pub async fn remove(&self, request: &RemoveRequest) -> Result<RemoveResult> {
        self.call(Call::post("/v1/environments/remove", request, Repeat::Safe)?).await
    }

    pub async fn gc(&self, request: &GcRequest) -> Result<GcResult> {
        self.call(Call::post("/v1/gc", request, Repeat::Safe)?).await
    }

    pub async fn events(&self, query: &EventQuery) -> Result<EventList> {
        self.call(Call::get(with_query("/v1/events", query))).await
    }

    pub async fn approvals(&self, query: &ApprovalQuery) -> Result<ApprovalList> {
        self.call(Call::get(with_query("/v1/approvals", query))).await
    }

    pub async fn answer(&self, id: &str, request: &AnswerRequest) -> Result<Answered> {
        let path = format!("/v1/approvals/{}", encoded(id));
        // Sent twice, the second is told that there was a first.
        self.call(Call::post(path, request, Repeat::Never)?).await
    }

    pub async fn audit(&self, query: &AuditQuery) -> Result<AuditList> {
        self.call(Call::get(with_query("/v1/audit", query))).await
    }

    pub async fn verify_audit(&self) -> Result<AuditReport> {
        self.call(Call::get("/v1/audit/verify")).await
    }

    pub async fn ack(&self, request: &AckRequest) -> Result<Done> {
        self.call(Call::post("/v1/events/ack", request, Repeat::Safe)?).await
    }
}

fn process_path(id: &str, rest: &str) -> String {
    format!("/v1/processes/{}{rest}", encoded(id))
}

/// A path with the fields of a flat struct as its query.
fn with_query(path: &str, query: &impl Serialize) -> String {
    let mut text = path.to_owned();
    query_of(&mut text, '?', query);
    text
}

/// Appends the fields of a flat struct.
pub(crate) fn query_of(text: &mut String, mut mark: char, query: &impl Serialize) {
    let Ok(Value::Object(fields)) = serde_json::to_value(query) else { return };
    for (name, value) in fields {
        let value = match value {
            Value::Null => continue,
            Value::String(value) => value,
            other => other.to_string(),
        };
        text.push(mark);
        text.push_str(&format!("{name}={}", encoded(&value)));
        mark = '&';
    }
}

/// Percent-encoded, so that it is one part of a path or query.
fn encoded(text: &str) -> String {
    encoded_bytes(text.as_bytes())
}

pub(crate) fn encoded_bytes(bytes: &[u8]) -> String {
    let mut out = String::new();
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use farshell_api::process::View;

    #[test]
    fn queries_have_what_is_set() {
        let query = ProcessQuery { task: Some("a b/ü".into()), all: true };
        assert_eq!(with_query("/p", &query), "/p?task=a%20b%2F%C3%BC&all=true");
        let query = LogQuery { view: View::Stderr, offset: Some(-5), ..LogQuery::default() };
        assert_eq!(with_query("/p", &query), "/p?view=stderr&offset=-5");
        assert_eq!(with_query("/p", &EventQuery::default()), "/p");
        assert_eq!(process_path("../x?", "/log"), "/v1/processes/..%2Fx%3F/log");
    }
}
