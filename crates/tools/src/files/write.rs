//! `write_file`.

use super::content::{Content, looks_numbered};
use super::room::refused;
use super::syntax::Language;
use super::{Located, Room};
use crate::failure::{Failure, Outcome, answer};
use crate::terminal::is_false;
use crate::{Call, Hints, Tool, Tools, arguments};
use farshell_api::approval::Subject;
use farshell_api::audit::AuditOutcome;
use farshell_api::run::Place;
use farshell_engine::Kind;
use farshell_keeper::{Deed, Permit};
use farshell_protocol::file::FileType;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

const DESCRIPTION: &str = "Write a whole file, and make its directories if need be. All or nothing: a reader sees the \
old file or the new one. Line ends (CR LF), byte order mark and mode of a file that was there are kept. JSON, YAML and \
TOML that does not parse is refused. For a change in a larger file use patch.";

/// The largest file that is written, or read to see how it was written.
pub(crate) const MOST: u64 = 16 << 20;
/// What a secret is shown as, and must not be written as.
pub(crate) const MARK: &str = "«redacted:";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Absolute, relative to the session's directory, or from the home directory with `~/`.
    path: String,
    /// The whole new content, as it is to stand in the file (without line numbers).
    content: String,
    /// Taken for the sake of Hermes; it has no meaning here.
    #[serde(default)]
    #[serde(rename = "cross_profile")]
    _cross_profile: bool,
    /// The session whose directory relative paths start from.
    #[serde(default)]
    session: Option<String>,
    /// Another place than the configured one; only configured names are possible.
    #[serde(default)]
    backend: Option<String>,
}

#[derive(Debug, Default, Serialize, JsonSchema)]
struct Result {
    bytes_written: usize,
    /// Directories had to be made.
    #[serde(skip_serializing_if = "is_false")]
    dirs_created: bool,
    /// The file that was written, links followed.
    resolved_path: String,
    files_modified: Vec<String>,
    /// There was none before.
    #[serde(skip_serializing_if = "is_false")]
    created: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    lint: Option<Lint>,
    /// The file had been changed by somebody else since it was last read here; or it is not what it is called.
    #[serde(rename = "_warning", skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
    backend: String,
    place: Place,
}

/// What a check of the language says.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Lint {
    /// `ok` or `error`.
    pub(crate) status: &'static str,
    pub(crate) language: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
}

pub(crate) fn tool() -> Tool {
    let hints = Hints { read_only: false, destructive: true, idempotent: true, open_world: false };
    Tool::new::<Arguments, Result>(("write_file", "Write a file"), DESCRIPTION, hints)
}

pub(crate) async fn call(tools: &Tools, arguments: Value, call: &Call<'_>) -> Outcome {
    let arguments: Arguments = arguments::read("write_file", arguments)?;
    if arguments.content.len() as u64 > MOST {
        let message = format!("content has {} bytes, and {MOST} are the most", arguments.content.len());
        return Err(Failure::invalid(message));
    }
    if looks_numbered(&arguments.content) {
        return Err(Failure::invalid(
            "content has the line numbers (`12|…`) that read_file shows, which are not part of the file: leave them out",
        ));
    }
    let room = Room::open(tools, call, arguments.session.as_deref(), arguments.backend.as_deref()).await?;
    let at = room.locate_to_write(&arguments.path).await?;
    check_kind(&at)?;
    let old = match &at.stat {
        Some(stat) if stat.size <= MOST => {
            let (bytes, version) = room.read(&at, MOST).await?;
            // What was looked at and what was read are one.
            if Some(version) != at.version() {
                let message = format!("{} is being changed by somebody else: try again", at.path);
                return Err(Failure::new(Kind::Stale, message));
            }
            Content::decode(&bytes)
        }
        _ => Content::default(),
    };
    check_mark(&arguments.content, &old.text)?;
    let (lint, warning) = gate(&at.path, &arguments.content, at.stat.is_some().then_some(old.text.as_str()))?;
    let changed = room.tools.seen.get(&room.key(&at)).is_some_and(|seen| Some(seen) != at.version());
    let bytes = Content { stray: false, ..old }.encode(&arguments.content);
    let permit = permit(&room, &at.path).await?;
    let written = room.write(&at, &bytes, None).await;
    finish(permit, written.as_ref().err());
    written?;
    let changed = changed.then(|| {
        "the file had been changed by somebody else since it was last read here; what they wrote is gone"
            .to_owned()
    });
    answer(&Result {
        bytes_written: bytes.len(),
        dirs_created: !at.parent,
        resolved_path: at.real(),
        files_modified: vec![at.path.clone()],
        created: at.stat.is_none(),
        lint,
        warning: changed.or(warning),
        backend: room.backend().to_owned(),
        place: room.place(),
    })
}

/// Only files are written, and only where a file can be.
pub(crate) fn check_kind(at: &Located) -> std::result::Result<(), Failure> {
    match at.stat.as_ref().map(|stat| stat.kind) {
        None | Some(FileType::File) => Ok(()),
        Some(FileType::Dir) => Err(Failure::invalid(format!("{} is a directory", at.path))),
        Some(other) => Err(Failure::invalid(format!("{} is a {other:?}, not a file", at.path))),
    }
}

/// A mark that stands for a secret would take the secret's place.
pub(crate) fn check_mark(new: &str, old: &str) -> std::result::Result<(), Failure> {
    match new.contains(MARK) && !old.contains(MARK) {
        true => Err(refused(
            "the text has a mark `«redacted:…»` in it, which is how a secret is shown and not what stands in the file: \
             nothing was written. Change only the lines around it (patch), or write the value with a command",
        )),
        false => Ok(()),
    }
}

/// Refuses what is not what it is called, unless it was not before.
fn gate(
    path: &str,
    new: &str,
    old: Option<&str>,
) -> std::result::Result<(Option<Lint>, Option<String>), Failure> {
    let Some(language) = Language::of(path) else { return Ok((None, None)) };
    let name = language.name();
    let Some(problem) = language.problem(new) else {
        return Ok((Some(Lint { status: "ok", language: name, message: None }), None));
    };
    if old.is_none_or(|old| language.problem(old).is_none()) {
        return Err(Failure::invalid(format!("nothing was written: content is no valid {name}: {problem}"))
            .with("lint", serde_json::json!({"status": "error", "language": name, "message": problem})));
    }
    let warning = format!("the file was no valid {name}, and still is none: {problem}");
    Ok((Some(Lint { status: "error", language: name, message: Some(problem) }), Some(warning)))
}

/// Asks for leave to write.
pub(crate) async fn permit(room: &Room<'_>, what: &str) -> std::result::Result<Permit, Failure> {
    let told = room.call.told();
    let keeper = room.tools.keeper(room.call);
    let deed = Deed {
        target: &room.target,
        session: &room.session,
        subject: Subject::FileWrite,
        text: what,
        workdir: None,
        process: None,
        typed: false,
        repeated: false,
    };
    tokio::select! {
        biased;
        () = room.call.cancel.cancelled() => Err(super::room::cancelled()),
        permit = keeper.permit(deed, &told) => permit.map_err(|error| {
            let denied = error.kind == Kind::Denied;
            let failure = Failure::from(error);
            if denied { failure.status("blocked") } else { failure }
        }),
    }
}

/// Says how it went, for the record.
pub(crate) fn finish(permit: Permit, failure: Option<&Failure>) {
    permit.ended(match failure {
        None => AuditOutcome { state: "ended".to_owned(), ..AuditOutcome::default() },
        Some(failure) => AuditOutcome {
            state: "failed".to_owned(),
            error: Some(failure.error.clone()),
            ..AuditOutcome::default()
        },
    });
}
