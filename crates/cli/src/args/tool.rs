//! `farshell tool` and `farshell tools`.

use super::TargetArgs;
use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
The arguments are a JSON object, here or (`-`) on standard input; the answer is one too. Ctrl-C cancels the call: a \
foreground command is killed with all it started.

Examples:
  farshell tool terminal '{\"command\": \"make test\", \"timeout\": 60}'
  farshell tool read_file '{\"path\": \"src/main.rs\"}'
  farshell tool patch - < arguments.json

Exit code: 1 if the tool could not do what was asked (the answer has an `error`), 125 if Farshell itself failed.")]
pub(crate) struct ToolArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,

    /// Session whose state the call sees and changes.
    #[arg(short, long, value_name = "NAME", default_value = "default")]
    pub(crate) session: String,

    /// The tool: `farshell tools` lists them.
    pub(crate) name: String,

    /// Its arguments as JSON, or `-` for standard input. Without them, none.
    #[arg(value_name = "JSON", allow_hyphen_values = true)]
    pub(crate) arguments: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ToolsArgs {
    /// Print everything that a model is told, as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
