//! `farshell mcp`: a client's pipes, connected to the server. Standard output is the client's.

use crate::args::McpArgs;
use crate::output::{Outcome, Stop, notice};
use crate::reach;
use farshell_api::mcp::McpOpen;
use farshell_client::{Client, Starter};
use farshell_engine::Error;
use std::io::{self, IsTerminal};

pub(crate) fn run(args: &McpArgs) -> Outcome {
    let target = reach::target(&args.target.task, args.target.backend.as_deref())?;
    let open = McpOpen { target, session: args.session.clone() };
    let home = reach::home()?;
    if io::stdin().is_terminal() {
        notice(
            "this speaks MCP with a client, one message a line; `farshell mcp --help` says how to add it to one",
        );
    }
    crate::runtime()?.block_on(async {
        // A server that can't be started is an answer to the client's first request.
        let client = Client::at(&home, Starter::this_program());
        let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
        match farshell_client::bridge::bridge(&client, &open, input, output).await {
            Ok(()) => Ok(0),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Stop::BrokenPipe),
            Err(error) => Err(Error::io("talking to the MCP client", error).into()),
        }
    })
}
