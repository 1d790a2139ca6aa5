//! Farshell's own: what an agent would use to decide about itself.

use super::paths;
use crate::analysis::{State, Walk};
use crate::value::Arg;

/// Subcommands of `farshell` that only look. `run` is none of them: it may be told of another home, with other rules.
#[rustfmt::skip]
const LOOKING: &[&str] = &[
    "ps", "logs", "wait", "events", "audit", "doctor", "completions", "help", "tools",
];
/// The same of those that have subcommands of their own.
const LOOKING_INSIDE: &[(&str, &[&str])] = &[
    ("config", &["get", "list", "explain", "path", "paths"]),
    ("env", &["list", "ls", "show", "inspect"]),
    ("server", &["status"]),
];
/// Programs that can talk to a Unix socket.
const TALKERS: &[&str] = &["curl", "nc", "ncat", "netcat", "socat", "wget", "http", "https", "xh"];
/// Where the server listens, below any home.
const SERVER: &str = "/farshell/server";

const WHY: &str = "the agent would decide about itself";

/// Whether a path is one of Farshell's settings, secrets or records.
pub(super) fn holds(path: &str, walk: &Walk<'_>) -> bool {
    let Some(inside) = below_home(path, walk) else { return false };
    matches!(inside, "" | "config.yaml" | ".env" | "farshell") || inside.starts_with("farshell/")
}

/// Whether it is one that opens doors.
pub(super) fn is_secret(path: &str, walk: &Walk<'_>) -> bool {
    below_home(path, walk).is_some_and(|inside| inside == ".env" || inside.starts_with("farshell/server/"))
        || path.contains("/.hermes/farshell/server/")
}

fn below_home<'a>(path: &'a str, walk: &Walk<'_>) -> Option<&'a str> {
    let home = walk.context.farshell_home.as_deref()?.trim_end_matches('/');
    let rest = path.strip_prefix(home).filter(|_| !home.is_empty())?;
    if rest.is_empty() { Some("") } else { rest.strip_prefix('/') }
}

pub(super) fn written(walk: &mut Walk<'_>, shown: &str) {
    walk.risk("farshell-itself", "changes Farshell's own settings or records", shown, WHY);
}

/// Commands that steer Farshell, or talk to it behind its back.
pub(super) fn apply(walk: &mut Walk<'_>, program: &str, args: &[Arg], state: &State) {
    if program == "farshell" {
        steers(walk, args);
    }
    if TALKERS.contains(&program) {
        let talks = |arg: &Arg| {
            let text = arg.text();
            let path =
                text.split([':', ',', '=']).find(|part| part.contains('/')).unwrap_or(&text).to_owned();
            let own = |path: &Option<String>| path.as_ref().is_some_and(|path| holds(path, walk));
            text.contains(SERVER) || paths::resolve(&path, state).iter().any(own)
        };
        if let Some(arg) = args.iter().find(|arg| talks(arg)) {
            let shown = format!("{program} {}", arg.shown());
            walk.risk("farshell-itself", "talks to Farshell's server", &shown, WHY);
        }
    }
}

fn steers(walk: &mut Walk<'_>, args: &[Arg]) {
    let mut words = args.iter().filter(|arg| !arg.prefix().starts_with('-'));
    let first = words.next();
    let second = words.next();
    let asks = args.iter().any(|arg| matches!(arg.literal(), Some("--help" | "-h" | "--version" | "-V")));
    let harmless = match (first.map(Arg::literal), second.and_then(Arg::literal)) {
        (None, _) => true,
        (Some(None), _) => false,
        (Some(Some(word)), second) => {
            LOOKING.contains(&word)
                || LOOKING_INSIDE.iter().any(|(name, inside)| {
                    *name == word && second.is_some_and(|second| inside.contains(&second))
                })
        }
    };
    if !harmless && !asks {
        let shown: Vec<String> = args.iter().take(3).map(Arg::shown).collect();
        let shown = format!("farshell {}", shown.join(" "));
        walk.risk("farshell-itself", "steers the program that runs the agent", &shown, WHY);
    }
}
