//! What was typed. What it means is the business of each subcommand.

mod admin;
mod cp;
mod gate;
mod process;
mod run;
mod tool;

pub(crate) use admin::{
    ConfigCommand, DoctorArgs, EnvCommand, EnvListArgs, EnvNameArgs, EnvRemoveArgs, EventsArgs, GcArgs,
    KeyArgs, ServeArgs, ServerCommand, StatusArgs, StopArgs,
};
pub(crate) use cp::CpArgs;
pub(crate) use gate::{ApprovalsArgs, ApproveArgs, AuditArgs};
pub(crate) use process::{AttachArgs, KillArgs, LogsArgs, PsArgs, SendArgs, ShellArgs, SignalArgs, WaitArgs};
pub(crate) use run::{McpArgs, RunArgs, TargetArgs, TimeoutAction};
pub(crate) use tool::{ToolArgs, ToolsArgs};

use clap::{Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  farshell run 'make test'                      run a command where the settings say
  farshell run 'cd src; export DEBUG=1'         directory and exports last ...
  farshell run 'pwd; echo $DEBUG'               ... until the next call
  farshell run --json --timeout 10 'sleep 60'   one JSON object, exit code 124
  farshell run --background 'npm start'         prints an id; see ps, logs, wait, send, kill
  farshell shell                                an interactive shell; ctrl-] d leaves it running
  farshell cp ./src :/workspace/src             a directory to where commands run
  farshell config set backend docker            where commands run from now on
  farshell doctor                               which backends can serve, and what to do

Settings: ~/.hermes/config.yaml, see `farshell config list`.";

/// One terminal for AI agents, in any place.
#[derive(Debug, Parser)]
#[command(name = "farshell", disable_version_flag = true, after_help = EXAMPLES, arg_required_else_help = true)]
#[command(max_term_width = 110, subcommand_required = false)]
pub(crate) struct Cli {
    /// Print the version.
    #[arg(short = 'V', exclusive = true)]
    pub(crate) version: bool,

    /// Print the version, the protocol's, and the outposts that this build carries.
    #[arg(long = "version", exclusive = true)]
    pub(crate) long_version: bool,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command.
    Run(RunArgs),
    /// Open an interactive shell in a task's environment.
    Shell(ShellArgs),
    /// Copy files and directories to an environment, or from it.
    Cp(CpArgs),
    /// List processes.
    Ps(PsArgs),
    /// Print what a process printed.
    Logs(LogsArgs),
    /// Wait for a process, and exit with its code.
    Wait(WaitArgs),
    /// Send input to a process.
    Send(SendArgs),
    /// Kill processes with all that they started.
    Kill(KillArgs),
    /// Send a signal to a process.
    Signal(SignalArgs),
    /// Connect this terminal to that of a process.
    Attach(AttachArgs),
    /// Answer a command that waits for approval.
    Approve(ApproveArgs),
    /// Show what waits for approval.
    Approvals(ApprovalsArgs),
    /// Show what was asked for, what was decided, and what became of it.
    Audit(AuditArgs),
    /// Look after environments.
    #[command(subcommand)]
    Env(EnvCommand),
    /// Show what happened: processes that ended, environments that came and went.
    Events(EventsArgs),
    /// Call one of the agent's tools.
    Tool(ToolArgs),
    /// List the agent's tools.
    Tools(ToolsArgs),
    /// Remove what was left behind by crashes: shows it first.
    Gc(GcArgs),
    /// Be an MCP server on standard input and output, for clients that start one.
    Mcp(McpArgs),
    /// Be the server.
    Serve(ServeArgs),
    /// Look at the server, and stop it.
    #[command(subcommand)]
    Server(ServerCommand),
    /// Show and change settings.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Say which backends can serve here and, where one can't, why and what to do.
    Doctor(DoctorArgs),
    /// Print a completion script for a shell.
    #[command(
        after_help = "Example:\n  farshell completions bash > ~/.local/share/bash-completion/completions/farshell"
    )]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}
