//! `farshell run`.

use clap::{Args, ValueEnum, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

/// Paragraphs are one line each: they are wrapped to the terminal's width.
const AFTER: &str = "\
One argument is a command line for the shell; several are words that arrive as they are given:
  farshell run 'ls *.rs | wc -l'
  farshell run ls -l 'a file'
  farshell run -- --odd-name

Input:
  echo hello | farshell run --stdin - 'tr a-z A-Z'
  farshell run --stdin data.csv 'wc -l'

In the background (prints the process's id; it starts from the session's state and leaves it alone):
  id=$(farshell run --background --notify --watch 'listening on' 'npm start')
  farshell logs -f $id
  farshell run --timeout 60 --on-timeout background 'make all'

State: directory and exported variables last from call to call within a task and a session; with \
`persistent_shell: true` so does everything else. A session begins in the directory and with the variables of \
the call that opens it, and it is put away after `lifetime_seconds` of silence.

Ctrl-C interrupts the command and leaves its session as it is; a second one kills the command.

Exit code: the command's own, or
  124    the time was up          128+n  signal n ended the command
  125    Farshell itself failed   141    nobody reads the output any more
  126    the workdir can't be entered";

const MCP: &str = "\
The client's directory and variables count as those of a call. Each client should have a task or a session of its own if \
what one does to directory and variables must not reach another.

Examples:
  claude mcp add farshell -- farshell mcp
  codex mcp add farshell -- farshell mcp --backend docker
  code --add-mcp '{\"name\":\"farshell\",\"command\":\"farshell\",\"args\":[\"mcp\"]}'";

#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,

    /// Session whose state the command sees and changes.
    #[arg(short, long, value_name = "NAME", default_value = "default")]
    pub(crate) session: String,

    /// Seconds after which the command is killed with all it started; fractions are allowed.
    #[arg(short = 'T', long, value_name = "SECONDS", allow_hyphen_values = true)]
    pub(crate) timeout: Option<String>,

    /// What happens when the time is up.
    #[arg(long, value_name = "ACTION", default_value = "kill", conflicts_with = "background")]
    pub(crate) on_timeout: TimeoutAction,

    /// Directory for this command only; a relative one starts from the session's.
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) workdir: Option<OsString>,

    /// File that the command reads, or `-` for what comes in here. Without it, the command reads nothing.
    #[arg(short = 'i', long, value_name = "FILE", allow_hyphen_values = true, value_hint = ValueHint::FilePath)]
    #[arg(conflicts_with = "background")]
    pub(crate) stdin: Option<PathBuf>,

    /// Print one JSON object at the end instead of the output itself.
    #[arg(long)]
    pub(crate) json: bool,

    /// With --json: bytes kept of each stream, two fifths from its beginning and three from its end.
    #[arg(long, value_name = "BYTES", default_value_t = 50_000, requires = "json")]
    pub(crate) max_output: usize,

    /// Start it, print its id and return. It has no time limit unless one is given.
    #[arg(long, visible_alias = "bg")]
    pub(crate) background: bool,

    /// Run it on a terminal: of this one's size, or 24 by 80.
    #[arg(long)]
    pub(crate) pty: bool,

    /// Mark the event of its end as one that asks for attention.
    #[arg(long)]
    pub(crate) notify: bool,

    /// In the background: an event when a line of output contains this text. May be given more than once.
    #[arg(long, value_name = "PATTERN", requires = "background")]
    pub(crate) watch: Vec<String>,

    /// The command.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Which environment.
#[derive(Debug, Args)]
pub(crate) struct TargetArgs {
    /// Where to run: local, docker, ssh, singularity, modal or daytona. Without it, what the settings say.
    #[arg(short, long, value_name = "NAME")]
    pub(crate) backend: Option<String>,

    /// Task whose environment is used.
    #[arg(short, long, value_name = "NAME", default_value = "default")]
    pub(crate) task: String,
}

/// `farshell mcp`.
#[derive(Debug, Args)]
#[command(after_help = MCP)]
pub(crate) struct McpArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,

    /// Session of calls that name none.
    #[arg(short, long, value_name = "NAME", default_value = "default")]
    pub(crate) session: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TimeoutAction {
    /// It is killed with all it started.
    Kill,
    /// It goes on as a background process; the exit code is 124.
    Background,
}
