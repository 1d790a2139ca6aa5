//! What a client sees.

use crate::attend::{attend, failed};
use crate::running::{Asked, Running};
use crate::suspended::Waiting;
use crate::{Shared, ask, resources};
use axum::http::request::Parts;
use farshell_api::approval::Surface;
use farshell_api::mcp::McpOpen;
use farshell_keeper::Origin;
use farshell_tools::catalogue;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, Implementation, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams,
    ReadResourceResponse, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler};
use serde_json::Value;
use std::sync::{Arc, LazyLock};
use tokio_util::sync::CancellationToken;

/// Written for a model.
const INSTRUCTIONS: &str = "\
Farshell runs commands in one environment: this machine, a container or another host, as its user has configured. \
Every result names the backend and the place. The directory and exported variables last from one terminal call to the next.
Use read_file, write_file, patch and search_files for files, and terminal for everything else. Start what does not end by \
itself with background=true, and look after it with process. Many calls with a loop or a condition between them are one \
script: execute_code. Long output is cut in the middle: process (action log) has all of it.
A command may need a person's approval, and then takes longer. If it is denied, don't try it in other words: say what you need \
and why.";

/// The tools as the protocol describes them.
static TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| catalogue().iter().map(tool).collect());

fn tool(tool: &farshell_tools::Tool) -> Tool {
    let object = |schema: &Value| Arc::new(schema.as_object().cloned().unwrap_or_default());
    let hints = tool.hints;
    Tool::new(tool.name, tool.description, object(&tool.input))
        .with_title(tool.title)
        .with_raw_output_schema(object(&tool.output))
        .with_annotations(
            ToolAnnotations::with_title(tool.title)
                .read_only(hints.read_only)
                .destructive(hints.destructive)
                .idempotent(hints.idempotent)
                .open_world(hints.open_world),
        )
}

/// One client, or one request of one that stands alone.
#[derive(Clone, Debug)]
pub(crate) struct Handler {
    shared: Arc<Shared>,
    /// Where a stream's client stands. Requests by HTTP say it themselves.
    open: Option<Arc<McpOpen>>,
    /// The stream is over.
    gone: CancellationToken,
}

/// Where a request comes from.
struct Visit {
    open: Arc<McpOpen>,
    /// The HTTP session, if there is one.
    session: Option<String>,
}

impl Handler {
    pub(crate) fn of_stream(shared: Arc<Shared>, open: McpOpen, gone: CancellationToken) -> Self {
        Self { shared, open: Some(Arc::new(open)), gone }
    }

    pub(crate) fn of_http(shared: Arc<Shared>) -> Self {
        Self { shared, open: None, gone: CancellationToken::new() }
    }

    fn visit(&self, context: &RequestContext<RoleServer>) -> Visit {
        if let Some(open) = &self.open {
            return Visit { open: Arc::clone(open), session: None };
        }
        let parts = context.extensions.get::<Parts>();
        let open = parts.and_then(|parts| parts.extensions.get::<Arc<McpOpen>>().cloned());
        let session = parts.and_then(crate::http::session);
        Visit { open: open.unwrap_or_default(), session }
    }

    /// The tool's task: begun now, or waiting for the answer that comes with this request.
    async fn running(
        &self,
        request: CallToolRequestParams,
        visit: &Visit,
        context: &RequestContext<RoleServer>,
    ) -> Option<Running> {
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let asked = Asked { tool: request.name.into_owned(), arguments };
        let Some(handle) = request.request_state else {
            let at = (visit.open.target.clone(), visit.open.session.clone());
            let cancel = self.gone.child_token();
            return Some(Running::begin(&self.shared, asked, origin(context), at, cancel));
        };
        let Waiting { running, approval } = self.shared.suspended.resume(&handle, &asked)?;
        let answers = request.input_responses.unwrap_or_default();
        if let Some(answer) = ask::answer_of(answers.get(ask::ANSWER)) {
            self.shared.answered(&approval, &running.origin, answer).await;
        }
        Some(running)
    }
}

/// In whose name something is asked for.
fn origin(context: &RequestContext<RoleServer>) -> Origin {
    /// Of a name that a client gives itself.
    const MOST: usize = 100;
    let client = context.client_info().map(|client| {
        let named = format!("{} {}", client.name, client.version);
        named.chars().filter(|c| !c.is_control()).take(MOST).collect()
    });
    Origin { surface: Surface::Mcp, client }
}

/// Somebody waits, for as long as this lives.
struct Open<'a>(&'a Shared);

impl<'a> Open<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.open.send_modify(|open| *open += 1);
        Self(shared)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.send_modify(|open| *open -= 1);
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().build();
        let us = Implementation::new("farshell", self.shared.version.clone());
        ServerConfig::new(capabilities).with_server_info(us).with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = self.shared.tools.catalogue(&self.visit(&context).open.target);
        Ok(ListToolsResult::with_all_items(tools.iter().map(tool).collect()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        TOOLS.iter().find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let shared = &self.shared;
        let _open = Open::new(shared);
        let visit = self.visit(&context);
        let Some(running) = self.running(request, &visit, &context).await else {
            return Ok(failed(
                "this call does not wait for an answer any more: its time was up, or the server was replaced. It has not been \
                 done, or was cancelled; call the tool again if it is still wanted",
            )
            .into());
        };
        let absent = async {
            match &visit.session {
                Some(session) => shared.presence.absent(session).await,
                None => std::future::pending().await,
            }
        };
        attend(shared, running, &context, absent).await
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        resources::list(&self.shared, &self.visit(&context).open).await
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(resources::templates())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let open = self.visit(&context).open;
        Ok(resources::read(&self.shared, &open, origin(&context), &request.uri).await?.into())
    }
}
