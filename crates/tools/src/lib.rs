//! What an AI agent calls: terminal, process, read_file, write_file, patch, search_files, execute_code.
//!
//! # The way of a call
//! 1. The arguments are read strictly (`arguments`): an unknown field, a wrong type, a number out of range are errors
//!    that name the field, the value and what is right.
//! 2. The tool asks the keeper, which judges (policy, approvals), enters the environment and acts.
//! 3. What came back is shaped for a model: text without escape sequences and secrets, cut in the middle with the
//!    offsets of what is left out (`text`), and notes on what a model gets wrong (`terminal::notes`).
//!
//! A call always has a result. Bad arguments, a denial, a place that is gone are results with an `error` that says
//! what to do next.
//!
//! | module | question |
//! |---|---|
//! | `arguments`, `circumstances`, `schema`, `failure` | what is asked, by whom, what may be asked, what went wrong? |
//! | `terminal`, `process`, `attended` | what runs? |
//! | `code` | what calls tools itself: execute_code |
//! | `files` | what is in the place: read_file, write_file, patch, search_files |
//! | `text` | how is output shown? |

mod arguments;
mod attended;
mod circumstances;
mod code;
mod failure;
mod files;
mod process;
mod schema;
mod terminal;
mod text;

use failure::{Failure, Outcome};
use farshell_api::approval::Approval;
use farshell_api::run::Target;
use farshell_engine::backend::{BoxFuture, News};
use farshell_keeper::{Keeper, Origin};
use schemars::JsonSchema;
use serde_json::Value;
use std::sync::{Arc, LazyLock};
pub use tokio_util::sync::CancellationToken;

/// All tools of one server.
#[derive(Clone, Debug)]
pub struct Tools {
    keeper: Keeper,
    /// What was read, and when: so that a file that somebody else has changed is noticed.
    seen: Arc<files::Seen>,
    stays: Stays,
}

/// Whether the server goes on.
#[derive(Clone)]
struct Stays(Arc<dyn Fn() -> bool + Send + Sync>);

impl std::fmt::Debug for Stays {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stays")
    }
}

/// What a model and a client are told about a tool.
#[derive(Clone, Debug)]
pub struct Tool {
    pub name: &'static str,
    pub title: &'static str,
    /// Written for a model.
    pub description: &'static str,
    /// JSON schema of the arguments.
    pub input: Value,
    /// JSON schema of the result.
    pub output: Value,
    pub hints: Hints,
}

impl Tool {
    /// With the schemas of what it takes and gives.
    fn new<I: JsonSchema, O: JsonSchema>(
        (name, title): (&'static str, &'static str),
        description: &'static str,
        hints: Hints,
    ) -> Self {
        Self { name, title, description, input: schema::input::<I>(), output: schema::output::<O>(), hints }
    }
}

/// What a client may assume of a tool, as MCP names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hints {
    pub read_only: bool,
    pub destructive: bool,
    pub idempotent: bool,
    pub open_world: bool,
}

/// One call's circumstances.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// Task, backend and caller.
    pub target: Target,
    /// The session, unless the arguments name another one.
    pub session: String,
    /// In whose name.
    pub origin: Origin,
    /// Cancelled: the foreground command is killed with all it started, and nothing else.
    pub cancel: CancellationToken,
    pub observer: &'a dyn Observer,
}

/// Told what happens while a call lasts.
pub trait Observer: Send + Sync + std::fmt::Debug {
    /// Something takes long: a place is being made, an image pulled.
    fn progress(&self, news: &News) {
        let _ = news;
    }

    /// A person is asked, and the call waits for the answer.
    fn approval(&self, approval: &Approval) {
        let _ = approval;
    }

    /// The command has printed.
    fn output(&self, bytes_so_far: u64, last_line: &str) {
        let _ = (bytes_so_far, last_line);
    }
}

/// Nobody is told anything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nobody;

impl Observer for Nobody {}

/// A tool's result.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// A JSON object as the tool's output schema describes it.
    pub result: Value,
    /// The tool could not do what was asked. A command that exits with another code than 0 is no failure of the tool.
    pub failed: bool,
}

/// All tools there are.
#[must_use]
pub fn catalogue() -> &'static [Tool] {
    static CATALOGUE: LazyLock<Vec<Tool>> = LazyLock::new(|| {
        let mut tools = vec![terminal::tool(), process::tool()];
        tools.extend(files::tools());
        tools.push(code::tool());
        tools
    });
    &CATALOGUE
}

impl Tools {
    #[must_use]
    pub fn new(keeper: Keeper) -> Self {
        Self { keeper, seen: Arc::default(), stays: Stays(Arc::new(|| true)) }
    }

    /// The same tools in a server that may end: a call that is dropped because of that kills nothing.
    #[must_use]
    pub fn while_it(mut self, stays: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.stays = Stays(Arc::new(stays));
        self
    }

    /// Calls a tool. Dropped, it is as if it were cancelled.
    pub async fn call(&self, name: &str, arguments: Value, call: Call<'_>) -> Answer {
        let work: BoxFuture<'_, Outcome> = match name {
            "terminal" => Box::pin(terminal::call(self, arguments, &call)),
            "process" => Box::pin(process::call(self, arguments, &call)),
            "read_file" => Box::pin(files::read::call(self, arguments, &call)),
            "write_file" => Box::pin(files::write::call(self, arguments, &call)),
            "patch" => Box::pin(files::patch::call(self, arguments, &call)),
            "search_files" => Box::pin(files::search::call(self, arguments, &call)),
            "execute_code" => Box::pin(code::call(self, arguments, &call)),
            _ => {
                let names: Vec<_> = catalogue().iter().map(|tool| tool.name).collect();
                let message = format!("there is no tool {name:?}; the tools are {}", names.join(", "));
                return Failure::invalid(message).answer();
            }
        };
        work.await.unwrap_or_else(Failure::answer)
    }
}
