//! The outpost: Farshell's program inside a place.
//!
//! `daemon` owns sessions, processes and logs in a private directory and outlives its connections; `connect`
//! starts it if needed and joins standard input and output to it; `start` only makes sure that it is there; `join`
//! connects to one that something else runs, as a container does, and starts none. `open` and `clear` tend directories
//! for whoever prepares a place.

mod connect;
mod conns;
mod daemon;
mod filecalls;
mod files;
mod kill;
mod log;
mod memory;
mod once;
mod output;
mod process;
mod procs;
mod reactor;
mod requests;
mod session;
mod sessions;
mod shell;
mod shells;
mod spawn;
mod sys;
mod tend;
mod waiting;
mod words;
mod worker;

use connect::Speech;
use daemon::Door;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

const USAGE: &str = "usage: farshell-outpost start|connect --dir DIR [--lease SECONDS] [--text] [--quiet SECONDS] [--window BYTES]
       farshell-outpost daemon --dir DIR [--socket PATH] [--lease SECONDS]
       farshell-outpost join --dir DIR [--socket PATH] [--text]
       farshell-outpost open|clear DIR…
       farshell-outpost --version
";

fn main() {
    let code = match parse(std::env::args_os().skip(1)) {
        Some(Command::Version) => {
            let text = format!("farshell-outpost {}\n", env!("CARGO_PKG_VERSION"));
            let _ = std::io::stdout().write_all(text.as_bytes());
            0
        }
        Some(Command::Daemon { dir, lease, door }) => connect::daemon(&dir, lease, door),
        Some(Command::Start { dir, lease }) => finish(connect::start(&dir, lease)),
        Some(Command::Connect { dir, lease, speech }) => {
            finish(connect::bridge(&dir, &Door::Own, Some(lease), speech))
        }
        Some(Command::Tend { what, dirs }) => finish(dirs.iter().try_for_each(|dir| what(dir))),
        Some(Command::Join { dir, door, speech }) => finish(connect::bridge(&dir, &door, None, speech)),
        None => {
            let _ = std::io::stderr().write_all(USAGE.as_bytes());
            2
        }
    };
    std::process::exit(code);
}

fn finish(result: std::io::Result<()>) -> i32 {
    match result {
        Ok(()) => 0,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "farshell-outpost: {error}");
            1
        }
    }
}

enum Command {
    Version,
    Daemon { dir: PathBuf, lease: Duration, door: Door },
    Start { dir: PathBuf, lease: Duration },
    Connect { dir: PathBuf, lease: Duration, speech: Speech },
    Join { dir: PathBuf, door: Door, speech: Speech },
    Tend { what: fn(&Path) -> std::io::Result<()>, dirs: Vec<PathBuf> },
}

fn parse(mut args: impl Iterator<Item = OsString>) -> Option<Command> {
    let verb = args.next()?;
    if verb == "--version" {
        return Some(Command::Version);
    }
    match verb.to_str()? {
        "open" => return Some(Command::Tend { what: tend::open_up, dirs: args.map(Into::into).collect() }),
        "clear" => return Some(Command::Tend { what: tend::clear, dirs: args.map(Into::into).collect() }),
        _ => {}
    }
    let (mut dir, mut lease, mut door) = (None, Duration::from_secs(300), Door::Own);
    let mut speech = Speech::default();
    while let Some(arg) = args.next() {
        match arg.to_str()? {
            "--dir" => dir = Some(PathBuf::from(args.next()?)),
            "--lease" => lease = Duration::from_secs(args.next()?.to_str()?.parse().ok()?),
            "--text" => speech.text = true,
            "--window" => {
                speech.window = Some(args.next()?.to_str()?.parse().ok().filter(|bytes| *bytes > 0)?);
            }
            "--quiet" => speech.quiet = Some(Duration::from_secs(args.next()?.to_str()?.parse().ok()?)),
            "--socket" => door = Door::Shared(std::path::absolute(args.next()?).ok()?),
            _ => return None,
        }
    }
    let dir = std::path::absolute(dir?).ok()?;
    match verb.to_str()? {
        "daemon" => Some(Command::Daemon { dir, lease, door }),
        "join" => Some(Command::Join { dir, door, speech }),
        // These start a daemon of their own, which listens in its directory.
        "start" if door == Door::Own => Some(Command::Start { dir, lease }),
        "connect" if door == Door::Own => Some(Command::Connect { dir, lease, speech }),
        _ => None,
    }
}
