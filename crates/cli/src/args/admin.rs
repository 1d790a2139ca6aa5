//! Subcommands about the server, environments and settings.

use clap::{Args, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Any other subcommand starts the server if it does not run, and it ends by itself when nothing has been alive for a \
while. So this is for those who want to watch it, to keep it, or to reach it by TCP.

Examples:
  farshell serve                          here, until Ctrl-C
  farshell serve --daemon                 in the background; returns when it answers
  farshell serve --listen 127.0.0.1:7410  also by TCP, with the token in $HERMES_HOME/farshell/server/token

Exit code: 1 if another server has this home.")]
pub(crate) struct ServeArgs {
    /// Stay here: the default.
    #[arg(long, conflicts_with = "daemon")]
    pub(crate) foreground: bool,

    /// Go into the background; return when the server answers.
    #[arg(long)]
    pub(crate) daemon: bool,

    /// The server that `--daemon` starts: in a session of its own, reporting on standard output.
    #[arg(long, hide = true)]
    pub(crate) detached: bool,

    /// Also listen on this address. Every call needs the token then.
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Vec<SocketAddr>,

    /// With --listen: certificate chain (PEM). Needed for addresses that others can reach.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// With --listen: its private key (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  farshell server status
  farshell server stop          what runs goes on; the next call starts a server again")]
pub(crate) enum ServerCommand {
    /// Show whether a server runs. Exit code 1 if none does.
    Status(StatusArgs),
    /// Stop the server. What runs in environments goes on.
    Stop(StopArgs),
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// Remove all environments first.
    #[arg(long)]
    pub(crate) remove_environments: bool,

    /// Kill it if it does not answer. Nothing is lost by that.
    #[arg(long)]
    pub(crate) force: bool,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  farshell env list
  farshell env show build
  farshell env rm build        its sessions and all that runs in it are ended
  farshell env rm --files build        and the files that would outlive it are removed
  farshell env rm --forget build       also if its host is gone for good
  farshell env rm --all")]
pub(crate) enum EnvCommand {
    /// List environments.
    #[command(visible_alias = "ls")]
    List(EnvListArgs),
    /// Show one environment.
    Show(EnvNameArgs),
    /// Put environments away: files are kept, and the next call brings them back.
    Stop(EnvRemoveArgs),
    /// End environments: their sessions, and everything that runs in them.
    Rm {
        #[command(flatten)]
        which: EnvRemoveArgs,

        /// Remove also the files that would be there for the next one (`container_persistent`). Where they are in the place and
        /// nowhere else (modal, daytona), it is put away without this, and deleted with it.
        #[arg(long)]
        files: bool,

        /// Forget those whose place can't be reached. What is there is left to itself: its outpost ends when nothing has run
        /// in it for a while.
        #[arg(long)]
        forget: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct EnvListArgs {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct EnvNameArgs {
    /// Its task, or its key as `farshell env list` shows it.
    #[arg(default_value = "default")]
    pub(crate) name: String,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct EnvRemoveArgs {
    /// Tasks, or keys as `farshell env list` shows them; `default` if none is named.
    #[arg(value_name = "NAME", conflicts_with = "all")]
    pub(crate) names: Vec<String>,

    /// Where they run, if a task has environments in several places.
    #[arg(short, long, value_name = "NAME", conflicts_with = "all")]
    pub(crate) backend: Option<String>,

    /// All of them.
    #[arg(short, long)]
    pub(crate) all: bool,

    /// Also if other tasks use it, or (for `stop`) if something runs in it.
    #[arg(short, long)]
    pub(crate) force: bool,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  farshell events                                  what is remembered
  farshell events -f --json                        one JSON object on each line, as they come
  farshell events --consumer bot --ack             what this consumer has not seen, and now has")]
pub(crate) struct EventsArgs {
    /// Go on with what comes.
    #[arg(short, long)]
    pub(crate) follow: bool,

    /// Only those after this number.
    #[arg(long, value_name = "N")]
    pub(crate) after: Option<u64>,

    /// Only those that this consumer has not acknowledged.
    #[arg(long, value_name = "NAME")]
    pub(crate) consumer: Option<String>,

    /// Acknowledge what was printed, for the consumer.
    #[arg(long, requires = "consumer")]
    pub(crate) ack: bool,

    /// Only those of this task.
    #[arg(short, long, value_name = "NAME")]
    pub(crate) task: Option<String>,

    /// Print JSON: one object, with --follow one for each event on a line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Removes resources of ours that no record claims, and records whose resources are gone. What would be removed is shown \
first; at a terminal the question is asked, elsewhere nothing is removed without --yes.

Example:
  farshell gc --yes")]
pub(crate) struct GcArgs {
    /// Remove it without asking.
    #[arg(short, long)]
    pub(crate) yes: bool,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
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
