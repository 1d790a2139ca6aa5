//! The agent's tools, over HTTP.

use crate::app::App;
use crate::input::{At, Body, By};
use crate::life::Phase;
use crate::refusal::Refusal;
use farshell_api::run::Target;
use farshell_api::tool::{ToolCall, ToolInfo, ToolList, ToolResult};
use farshell_engine::{Kind, Retry};
use farshell_tools::{Call, CancellationToken, Nobody, Tool, catalogue};
use serde_json::{Map, Value};
use std::sync::Arc;

pub(crate) async fn list(app: Arc<App>, (): ()) -> Result<ToolList, Refusal> {
    Ok(ToolList { tools: app.tools.catalogue(&Target::default()).iter().map(info).collect() })
}

fn info(tool: &Tool) -> ToolInfo {
    ToolInfo {
        name: tool.name.to_owned(),
        title: tool.title.to_owned(),
        description: tool.description.to_owned(),
        input_schema: tool.input.clone(),
        output_schema: tool.output.clone(),
        read_only: tool.hints.read_only,
        destructive: tool.hints.destructive,
        idempotent: tool.hints.idempotent,
        open_world: tool.hints.open_world,
    }
}

/// Ends with its caller, and a foreground command with it.
pub(crate) async fn call(
    app: Arc<App>,
    ((By(origin), At(name)), Body(request)): ((By, At), Body<ToolCall>),
) -> Result<ToolResult, Refusal> {
    if !catalogue().iter().any(|tool| tool.name == name) {
        return Err(Refusal::new(Kind::NotFound, "finding the tool", format!("there is no tool {name:?}"))
            .with_hint("GET /v1/tools lists all tools"));
    }
    let call = Call {
        target: request.target,
        session: request.session,
        origin,
        cancel: CancellationToken::new(),
        observer: &Nobody,
    };
    let answer = tokio::select! {
        answer = app.tools.call(&name, Value::Object(request.arguments), call) => answer,
        () = app.life.reached(Phase::Stopping) => {
            let message = "the server is stopping: a foreground command goes on, and a write is done or not";
            return Err(Refusal::new(Kind::Disconnected, format!("calling {name}"), message).with_retry(Retry::Unsafe));
        }
    };
    let result = match answer.result {
        Value::Object(result) => result,
        _ => Map::new(),
    };
    Ok(ToolResult { result, failed: answer.failed })
}
