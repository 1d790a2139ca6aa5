//! Subcommands about processes.

use clap::Args;

/// Of every subcommand that takes an id.
const IDS: &str =
    "An id may be shortened as long as it is clear which one is meant: `3f2a` for `proc_3f2a…`.";

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  farshell ps                     what runs
  farshell ps --all --task build  and what has ended, of one task
  farshell ps --json | jq -r '.processes[].id'")]
pub(crate) struct PsArgs {
    /// Also those that have ended.
    #[arg(short, long)]
    pub(crate) all: bool,

    /// Only those of this task.
    #[arg(short, long, value_name = "NAME")]
    pub(crate) task: Option<String>,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  farshell logs proc_3f2a          everything (an id may be shortened)
  farshell logs -n 20 -f 3f2a      the last 20 lines, and what comes
  farshell logs --stderr 3f2a      one stream
  farshell logs --since 4096 3f2a  from an offset; negative: so many bytes from the end

Offsets count the bytes of what is shown: of both streams in arrival order, or of the one that is asked for. \
With --json one piece of at most a megabyte is printed; `next` is the offset of the one after it.")]
pub(crate) struct LogsArgs {
    /// The process.
    pub(crate) id: String,

    /// Go on until the process has ended.
    #[arg(short, long)]
    pub(crate) follow: bool,

    /// First byte.
    #[arg(long, value_name = "OFFSET", allow_hyphen_values = true, conflicts_with = "lines")]
    pub(crate) since: Option<i64>,

    /// Only standard output.
    #[arg(long, conflicts_with = "stderr")]
    pub(crate) stdout: bool,

    /// Only standard error.
    #[arg(long)]
    pub(crate) stderr: bool,

    /// Only the last so many lines.
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) lines: Option<u32>,

    /// Print JSON: one object, with --follow one on each line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Exit code: that of the process, as with `run`. 124 if the wait's own time was up: the process goes on, and --json \
tells that (`state` is not `ended`) from a process that itself exited with 124. 125 if the process is lost or never \
began.

Example:
  farshell wait --timeout 30 3f2a || farshell logs -n 50 3f2a")]
pub(crate) struct WaitArgs {
    /// The process.
    pub(crate) id: String,

    /// Seconds to wait; for ever if absent.
    #[arg(short = 'T', long, value_name = "SECONDS")]
    pub(crate) timeout: Option<f64>,

    /// Print the process as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  farshell send 3f2a yes                 the word and Enter
  farshell send 3f2a                     Enter
  farshell send --no-enter 3f2a $'\\x03'  Ctrl-C, to what runs on a terminal
  farshell send --stdin 3f2a < data      what comes in here, as it is
  farshell send --eof 3f2a               no more input")]
pub(crate) struct SendArgs {
    /// The process.
    pub(crate) id: String,

    /// What is sent, followed by Enter.
    #[arg(allow_hyphen_values = true, conflicts_with = "stdin")]
    pub(crate) text: Option<std::ffi::OsString>,

    /// No Enter after the text.
    #[arg(long)]
    pub(crate) no_enter: bool,

    /// Close its input afterwards.
    #[arg(long)]
    pub(crate) eof: bool,

    /// Send what comes in here, without an Enter after it.
    #[arg(long)]
    pub(crate) stdin: bool,

    /// Print JSON: how much input the process has taken in all.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  farshell kill 3f2a 77b0
  farshell kill --grace 0 3f2a   at once

{IDS}"))]
pub(crate) struct KillArgs {
    /// The processes.
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<String>,

    /// Seconds between asking and killing; what the settings say if absent.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) grace: Option<f64>,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = format!("\
Example:
  farshell signal 3f2a HUP

{IDS}"))]
pub(crate) struct SignalArgs {
    /// The process.
    pub(crate) id: String,

    /// INT, SIGINT or 2.
    pub(crate) signal: String,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = format!("\
The screen is drawn as the process left it, and follows this terminal's size. The detach keys leave the process \
running. Exit code: that of the process; 0 after detaching.

Examples:
  farshell attach 3f2a
  farshell attach --detach-key ctrl-p,ctrl-q 3f2a

{IDS}"))]
pub(crate) struct AttachArgs {
    /// The process.
    pub(crate) id: String,

    /// Keys that leave the process running: `ctrl-x`, or characters, with a comma between two.
    #[arg(long, value_name = "KEYS", default_value = "ctrl-],d")]
    pub(crate) detach_key: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The shell starts from the session's directory and variables and leaves the session as it is. Exit code: the \
shell's own; 0 after detaching.

Examples:
  farshell shell                 ctrl-] d leaves it running, `farshell attach ID` comes back
  farshell shell --task build")]
pub(crate) struct ShellArgs {
    #[command(flatten)]
    pub(crate) target: super::TargetArgs,

    /// Session whose state the shell starts from.
    #[arg(short, long, value_name = "NAME", default_value = "default")]
    pub(crate) session: String,

    /// Keys that leave the shell running: `ctrl-x`, or characters, with a comma between two.
    #[arg(long, value_name = "KEYS", default_value = "ctrl-],d")]
    pub(crate) detach_key: String,
}
