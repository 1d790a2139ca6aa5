//! The outpost: Farshell's program inside a place.
//!
//! `daemon` owns sessions, processes and logs in a private directory and outlives its connections; `connect`
//! starts it if needed and joins standard input and output to it; `start` only makes sure that it is there.

mod connect;
mod conns;
mod daemon;
mod filecalls;
mod files;
mod kill;
mod log;
mod process;
mod procs;
mod reactor;
mod requests;
mod session;
mod sessions;
mod shell;
mod sys;
mod waiting;
mod words;
mod worker;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

const USAGE: &str = "usage: farshell-outpost daemon|start|connect --dir DIR [--lease SECONDS] [--text]
       farshell-outpost --version
";

fn main() {
    let code = match parse(std::env::args_os().skip(1)) {
        Some(Command::Version) => {
            let text = format!("farshell-outpost {}\n", env!("CARGO_PKG_VERSION"));
            let _ = std::io::stdout().write_all(text.as_bytes());
            0
        }
        Some(Command::Daemon { dir, lease }) => connect::daemon(&dir, lease),
        Some(Command::Start { dir, lease }) => finish(connect::start(&dir, lease)),
        Some(Command::Connect { dir, lease, text }) => finish(connect::bridge(&dir, lease, text)),
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
    Daemon { dir: PathBuf, lease: Duration },
    Start { dir: PathBuf, lease: Duration },
    Connect { dir: PathBuf, lease: Duration, text: bool },
}

fn parse(mut args: impl Iterator<Item = OsString>) -> Option<Command> {
    let verb = args.next()?;
    if verb == "--version" {
        return Some(Command::Version);
    }
    let (mut dir, mut lease, mut text) = (None, Duration::from_secs(300), false);
    while let Some(arg) = args.next() {
        match arg.to_str()? {
            "--dir" => dir = Some(PathBuf::from(args.next()?)),
            "--lease" => lease = Duration::from_secs(args.next()?.to_str()?.parse().ok()?),
            "--text" => text = true,
            _ => return None,
        }
    }
    let dir = std::path::absolute(dir?).ok()?;
    match verb.to_str()? {
        "daemon" => Some(Command::Daemon { dir, lease }),
        "start" => Some(Command::Start { dir, lease }),
        "connect" => Some(Command::Connect { dir, lease, text }),
        _ => None,
    }
}
