//! `farshell cp`.

use super::run::TargetArgs;
use clap::{Args, ValueHint};
use std::ffi::OsString;

const AFTER: &str = "\
Paths in the environment have a colon before them; a task may stand before the colon. Everything else is on this \
machine (a name with a colon in it is written ./a:b), and `-` is what comes in or goes out here.

Examples:
  farshell cp data.csv :                    into the session's directory
  farshell cp ./src :/workspace/src         a directory; the two are alike afterwards
  farshell cp a.txt b.txt build:/tmp/       several files, into the environment of task build
  farshell cp :results ./results            back again
  farshell cp -b docker -t build :/var/log/ ./logs/
  echo hello | farshell cp - :greeting      one file
  farshell cp :/etc/os-release - | head

Where it goes: a file goes to DST, or into it if DST is a directory. A directory becomes DST itself, so that the same \
command can be given again; with a slash at the end of DST it is copied into it. Missing directories are made.

What is there already (by size and time, or with --checksum by content) is not copied again. A large file that was cut \
off goes on where it stopped, if what is there is the beginning of it. So after whatever went wrong: the same \
command again.

Modes and times are kept, set-id bits and owners are not. Links inside of a directory are copied as links and never \
followed; a link that is given as SRC is followed. Pipes, sockets and devices are left out, and that is said. \
A file that can't be copied is named, and the rest is copied.

Exit code: 0 if everything is there, 1 if something could not be copied, 125 if Farshell itself failed.";

#[derive(Debug, Args)]
#[command(after_help = AFTER, override_usage = "farshell cp [OPTIONS] SRC... DST")]
pub(crate) struct CpArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,

    /// Session from whose directory relative paths in the environment start.
    #[arg(short, long, value_name = "NAME", default_value = "default")]
    pub(crate) session: String,

    /// Compare contents instead of times.
    #[arg(short, long)]
    pub(crate) checksum: bool,

    /// Remove what is in a target directory and not in its source.
    #[arg(long)]
    pub(crate) delete: bool,

    /// Print one JSON object at the end.
    #[arg(long)]
    pub(crate) json: bool,

    /// What is copied, and last where it goes.
    #[arg(required = true, num_args = 2.., value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) paths: Vec<OsString>,
}
