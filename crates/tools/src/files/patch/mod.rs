//! `patch`: changes in files, by what stands there rather than by line numbers.

mod lines;
mod matching;
mod replace;
mod stage;
mod v4a;

use super::Room;
use super::content::{looks_numbered, shown};
use super::syntax::Language;
use super::write::{Lint, check_mark, finish, permit};
use crate::failure::{Failure, Outcome, answer};
use crate::text::first;
use crate::{Call, Hints, Tool, Tools, arguments};
use farshell_api::run::Place;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stage::Stage;
use v4a::Change;

const DESCRIPTION: &str = "Change files. mode=\"replace\": put new_string in the place of old_string in one file; \
old_string is given as it stands in the file (without line numbers), with enough lines around it to be there only once, \
or with replace_all. Small differences in blanks, indentation and quotes are forgiven. mode=\"patch\": several changes \
in several files at once, all or none, in V4A format: `*** Begin Patch`, then `*** Update File: PATH` with hunks (`@@ \
LINE ABOVE @@`, then lines with ' ' kept, '-' removed, '+' added), `*** Add File: PATH` ('+' lines), `*** Delete File: \
PATH`, `*** Move File: FROM -> TO`, then `*** End Patch`. Returns a unified diff.";

/// Characters of the diff that are shown.
const DIFF: usize = 30_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Mode {
    #[default]
    Replace,
    Patch,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    #[serde(default)]
    mode: Mode,
    /// replace: the file.
    #[serde(default)]
    path: Option<String>,
    /// replace: the text to replace.
    #[serde(default)]
    old_string: Option<String>,
    /// replace: what to put there; empty to remove it.
    #[serde(default)]
    new_string: Option<String>,
    /// replace: everywhere, not only where it stands once.
    #[serde(default)]
    replace_all: bool,
    /// patch: the patch, in V4A format.
    #[serde(default)]
    patch: Option<String>,
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
    success: bool,
    /// What was changed, as a unified diff.
    diff: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    files_modified: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    files_created: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    files_deleted: Vec<String>,
    /// replace: how old_string was found, if not to the letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    matched_by: Option<&'static str>,
    /// replace: how many times it was replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    replacements: Option<usize>,
    /// Files that are no longer what they are called.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lint: Vec<Lint>,
    #[serde(rename = "_warning", skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
    #[serde(rename = "_hint", skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    backend: String,
    place: Place,
}

pub(crate) fn tool() -> Tool {
    let hints = Hints { read_only: false, destructive: true, idempotent: false, open_world: false };
    Tool::new::<Arguments, Result>(("patch", "Change files"), DESCRIPTION, hints)
}

pub(crate) async fn call(tools: &Tools, arguments: Value, call: &Call<'_>) -> Outcome {
    let arguments: Arguments = arguments::read("patch", arguments)?;
    let given = asked(&arguments)?;
    let room = Room::open(tools, call, arguments.session.as_deref(), arguments.backend.as_deref()).await?;
    let mut stage = Stage::new(&room);
    let done = match given {
        Asked::Replace { path, old, new, all } => replace(&mut stage, path, old, new, all).await,
        Asked::Patch(patch) => several(&mut stage, patch).await,
    };
    let done = done.map_err(|failure| failure.with("success", false))?;
    apply(&room, stage, done).await.map_err(|failure| failure.with("success", false))
}

enum Asked<'a> {
    Replace { path: &'a str, old: &'a str, new: &'a str, all: bool },
    Patch(&'a str),
}

fn asked(arguments: &Arguments) -> std::result::Result<Asked<'_>, Failure> {
    let needed = |field: &str, mode: &str| {
        Failure::invalid(format!("argument `{field}` is required with mode={mode:?}"))
    };
    match arguments.mode {
        Mode::Patch => match (&arguments.patch, &arguments.path, &arguments.old_string) {
            (Some(patch), None, None) => Ok(Asked::Patch(patch)),
            (Some(_), ..) => Err(Failure::invalid(
                "with mode=\"patch\" the patch names its files: `path`, `old_string` and `new_string` are for mode=\"replace\"",
            )),
            (None, ..) => Err(needed("patch", "patch")),
        },
        Mode::Replace => {
            if arguments.patch.is_some() {
                return Err(Failure::invalid("argument `patch` is for mode=\"patch\": say mode=\"patch\""));
            }
            let path = arguments.path.as_deref().ok_or_else(|| needed("path", "replace"))?;
            let old = arguments.old_string.as_deref().ok_or_else(|| needed("old_string", "replace"))?;
            let new = arguments.new_string.as_deref().ok_or_else(|| needed("new_string", "replace"))?;
            if looks_numbered(old) || looks_numbered(new) {
                return Err(Failure::invalid(
                    "old_string or new_string has the line numbers (`12|…`) that read_file shows, which are not part of the file: leave them out",
                ));
            }
            Ok(Asked::Replace { path, old, new, all: arguments.replace_all })
        }
    }
}

/// What is said besides the diff.
#[derive(Debug, Default)]
struct Done {
    matched_by: Option<&'static str>,
    replacements: Option<usize>,
}

async fn replace(
    stage: &mut Stage<'_>,
    path: &str,
    old: &str,
    new: &str,
    all: bool,
) -> std::result::Result<Done, Failure> {
    let at = stage.take(path).await?;
    let text = stage.text(at)?.to_owned();
    check_mark(new, &text)?;
    let (old, new) = (old.replace("\r\n", "\n"), new.replace("\r\n", "\n"));
    // A file with mixed line ends has them in its text; one that ends all lines alike has not.
    let marked = old.contains(super::write::MARK);
    // It may take a while, and others want to be served.
    let replaced = tokio::task::spawn_blocking(move || replace::replace(&text, &old, &new, all)).await;
    let replaced =
        replaced.map_err(|error| Failure::new(farshell_engine::Kind::System, error.to_string()))?;
    let replaced = replaced.map_err(|why| {
        let hint = match marked {
            true => {
                ". A mark `«redacted:…»` is not what stands in the file: leave its line out of old_string"
            }
            false => "",
        };
        Failure::invalid(format!("{path}: {why}{hint}; nothing was changed"))
    })?;
    stage.put(at, Some(replaced.text));
    let exact = replaced.matcher == matching::Matcher::Exact;
    Ok(Done { matched_by: (!exact).then(|| replaced.matcher.name()), replacements: Some(replaced.count) })
}

async fn several(stage: &mut Stage<'_>, patch: &str) -> std::result::Result<Done, Failure> {
    let changes = v4a::parse(patch).map_err(|why| Failure::invalid(format!("{why}; nothing was changed")))?;
    let failed = |path: &str, why: String| Failure::invalid(format!("{path}: {why}; nothing was changed"));
    for change in changes {
        match change {
            Change::Add { path, text } => {
                let at = stage.take(&path).await?;
                if stage.exists(at) {
                    return Err(failed(
                        &path,
                        "it is there already: update it, or delete it first".to_owned(),
                    ));
                }
                check_mark(&text, "")?;
                stage.put(at, Some(text));
            }
            Change::Delete { path } => {
                let at = stage.take(&path).await?;
                stage.text(at)?;
                stage.put(at, None);
            }
            Change::Move { path, to } => {
                let from = stage.take(&path).await?;
                stage.text(from)?;
                let to_at = stage.take(&to).await?;
                stage.rename(from, to_at)?;
            }
            Change::Update { path, to, hunks } => {
                let at = stage.take(&path).await?;
                let text = stage.text(at)?.to_owned();
                let new = match hunks.is_empty() {
                    true => text,
                    false => {
                        let old = text.clone();
                        let new = tokio::task::spawn_blocking(move || v4a::apply(&old, &hunks)).await;
                        let new = new.map_err(|error| {
                            Failure::new(farshell_engine::Kind::System, error.to_string())
                        })?;
                        let new = new.map_err(|why| failed(&path, why))?;
                        check_mark(&new, &text)?;
                        new
                    }
                };
                stage.put(at, Some(new));
                if let Some(to) = to {
                    let to_at = stage.take(&to).await?;
                    stage.rename(at, to_at)?;
                }
            }
        }
    }
    Ok(Done::default())
}

/// Writes what was decided, and tells what that was.
async fn apply(room: &Room<'_>, stage: Stage<'_>, done: Done) -> Outcome {
    let paths = stage.changed();
    let Some(first_path) = paths.first() else {
        return Err(Failure::invalid("nothing would change"));
    };
    let what = match paths.len() {
        1 => first_path.clone(),
        n => format!("{first_path} (+{} more)", n - 1),
    };
    let diff = diff(&stage);
    let (lint, mut warning) = lint(&stage);
    let stale = stage.stale();
    let permit = permit(room, &what).await?;
    let (created, modified, deleted) = (stage.created(), stage.modified(), stage.deleted());
    let applied = stage.apply().await;
    finish(permit, applied.as_ref().err());
    applied?;
    if !stale.is_empty() {
        warning = Some(format!(
            "changed by somebody else since it was last read here (the change was made in what is there now): {}",
            stale.join(", ")
        ));
    }
    let shown_diff = room.redactor.redact(&diff);
    let cut = first(&shown_diff, DIFF);
    let hint =
        (cut.len() < shown_diff.len()).then(|| "the diff is cut: read the files to see all of it".to_owned());
    answer(&Result {
        success: true,
        diff: cut.to_owned(),
        files_modified: modified,
        files_created: created,
        files_deleted: deleted,
        matched_by: done.matched_by,
        replacements: done.replacements,
        lint,
        warning,
        hint,
        backend: room.backend().to_owned(),
        place: room.place(),
    })
}

fn diff(stage: &Stage<'_>) -> String {
    let mut diff = String::new();
    for (path, old, new) in stage.pairs() {
        let name = |there: bool, side: char| match there {
            true => format!("{side}/{}", path.trim_start_matches('/')),
            false => "/dev/null".to_owned(),
        };
        let (before, after) = (name(old.is_some(), 'a'), name(new.is_some(), 'b'));
        let (old, new) = (shown(old.unwrap_or_default()), shown(new.unwrap_or_default()));
        // A comparison of huge files that have nothing in common ends, too.
        let compared = similar::TextDiff::configure()
            .timeout(std::time::Duration::from_secs(2))
            .diff_lines(old.as_str(), new.as_str());
        diff.push_str(&compared.unified_diff().context_radius(3).header(&before, &after).to_string());
    }
    diff
}

/// Files that were what they are called, and would be no longer.
fn lint(stage: &Stage<'_>) -> (Vec<Lint>, Option<String>) {
    let mut lints = Vec::new();
    let mut warning = None;
    for (path, old, new) in stage.pairs() {
        let (Some(language), Some(new)) = (Language::of(path), new) else { continue };
        let before = old.and_then(|old| language.problem(old));
        if let (None, Some(problem)) = (before, language.problem(new)) {
            let message = format!("{path} is no valid {} any more: {problem}", language.name());
            lints.push(Lint { status: "error", language: language.name(), message: Some(message.clone()) });
            warning.get_or_insert(message);
        }
    }
    (lints, warning)
}
