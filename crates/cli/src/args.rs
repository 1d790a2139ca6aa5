//! What was typed. What it means is [`crate::plan`]'s business.

use clap::{Args, Parser, Subcommand, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  farshell run 'make test'                      run a command where the settings say
  farshell run 'cd src; export DEBUG=1'         directory and exports last ...
  farshell run 'pwd; echo $DEBUG'               ... until the next call
  farshell run --json --timeout 10 'sleep 60'   one JSON object, exit code 124
  farshell config set backend docker            where commands run from now on
  farshell doctor                               which backends can serve, and what to do

Settings: ~/.hermes/config.yaml, see `farshell config list`.";

/// Paragraphs are one line each: they are wrapped to the terminal's width.
const RUN_AFTER: &str = "\
One argument is a command line for the shell; several are words that arrive as they are given:
  farshell run 'ls *.rs | wc -l'
  farshell run ls -l 'a file'
  farshell run -- --odd-name

Input:
  echo hello | farshell run --stdin - 'tr a-z A-Z'
  farshell run --stdin data.csv 'wc -l'

State: directory and exported variables last from call to call within a task and a session; with \
`persistent_shell: true` so does everything else. A session begins in the directory and with the variables of \
the call that opens it, and it is put away after `lifetime_seconds` of silence.

Ctrl-C interrupts the command and leaves its session as it is; a second one kills the command.

Exit code: the command's own, or
  124    the time was up          128+n  signal n ended the command
  125    Farshell itself failed   141    nobody reads the output any more
  126    the workdir can't be entered";

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
    /// Show and change settings.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Say which backends can serve here and, where one can't, why and what to do.
    Doctor(DoctorArgs),
    /// Look after environments.
    #[command(subcommand)]
    Env(EnvCommand),
    /// Print a completion script for a shell.
    #[command(
        after_help = "Example:\n  farshell completions bash > ~/.local/share/bash-completion/completions/farshell"
    )]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Args)]
#[command(after_help = RUN_AFTER)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) environment: EnvironmentArgs,

    /// Session whose state the command sees and changes.
    #[arg(short, long, value_name = "NAME", default_value = "default")]
    pub(crate) session: String,

    /// Seconds after which the command is killed with all it started; fractions are allowed.
    #[arg(short = 'T', long, value_name = "SECONDS", allow_hyphen_values = true)]
    pub(crate) timeout: Option<String>,

    /// Directory for this command only; a relative one starts from the session's.
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) workdir: Option<OsString>,

    /// File that the command reads, or `-` for what comes in here. Without it, the command reads nothing.
    #[arg(short = 'i', long, value_name = "FILE", allow_hyphen_values = true, value_hint = ValueHint::FilePath)]
    pub(crate) stdin: Option<PathBuf>,

    /// Print one JSON object at the end instead of the output itself.
    #[arg(long)]
    pub(crate) json: bool,

    /// With --json: bytes kept of each stream, two fifths from its beginning and three from its end.
    #[arg(long, value_name = "BYTES", default_value_t = 50_000, requires = "json")]
    pub(crate) max_output: usize,

    /// The command.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Which environment.
#[derive(Debug, Args)]
pub(crate) struct EnvironmentArgs {
    /// Where to run: local, docker, ssh, singularity, modal or daytona. Without it, what the settings say.
    #[arg(short, long, value_name = "NAME")]
    pub(crate) backend: Option<String>,

    /// Task whose environment is used.
    #[arg(short, long, value_name = "NAME", default_value = "default")]
    pub(crate) task: String,
}

#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  farshell config set timeout 300
  farshell config set docker_volumes '[\"~/data:/data:ro\"]'
  farshell config set SUDO_PASSWORD -      reads the value from standard input
  farshell config explain backend")]
pub(crate) enum ConfigCommand {
    /// Print a setting's value.
    Get {
        #[command(flatten)]
        key: KeyArgs,
    },
    /// Change a setting; comments and order of the file stay as they are.
    Set {
        /// Setting, such as timeout or terminal.timeout.
        key: String,
        /// Its value; lists and maps as JSON. `-` reads it from standard input, which keeps secrets out of sight.
        #[arg(allow_hyphen_values = true)]
        value: String,
    },
    /// Remove a setting, so that the default counts again.
    Unset {
        /// Setting, such as timeout or terminal.timeout.
        key: String,
    },
    /// Show the settings that matter for the selected backend, with where each came from.
    List {
        /// Also those of other backends.
        #[arg(short, long)]
        all: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// As if this backend were selected.
        #[arg(short, long, value_name = "NAME")]
        backend: Option<String>,
    },
    /// Show which files settings are read from.
    Path {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show where a setting's value came from, and what it overrides.
    Explain {
        #[command(flatten)]
        key: KeyArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// Setting, such as timeout or terminal.timeout.
    pub(crate) key: String,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// As if this backend were selected.
    #[arg(short, long, value_name = "NAME")]
    pub(crate) backend: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0 if the selected backend can serve, otherwise 1.")]
pub(crate) struct DoctorArgs {
    /// Backends to look at; all of them if none is named.
    #[arg(value_name = "BACKEND")]
    pub(crate) backends: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EnvCommand {
    /// End a task's environment: its sessions, and everything that runs in it.
    #[command(visible_alias = "stop")]
    Rm {
        /// The task.
        #[arg(default_value = "default")]
        task: String,
        /// Where it runs. Without it, what the settings say.
        #[arg(short, long, value_name = "NAME")]
        backend: Option<String>,
    },
}
