//! `search_files`.

use super::Room;
use crate::failure::{Failure, Outcome, answer};
use crate::terminal::is_false;
use crate::text::first;
use crate::{Call, Hints, Tool, Tools, arguments};
use farshell_api::run::Place;
use farshell_protocol::file::{FileEvent, IgnoreCase, Line, Search, Searched, Target, Want};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use serde_json::Value;
use std::fmt::Write;

const DESCRIPTION: &str = "Search in files, as ripgrep does (files that .gitignore excludes, hidden and binary ones are \
passed over). target=\"content\": lines that match the regular expression `pattern`; output_mode content, files_only or \
count. target=\"files\": files whose path matches the glob `pattern`, newest first. Use offset to go on. Use this rather \
than grep, rg, find or ls.";

/// Results if nothing is said, and at most.
const LIMIT: u64 = 50;
const MOST: u64 = 1000;
const FURTHEST: u64 = 100_000;
/// Characters of a line.
const LINE: usize = 500;
/// How long a search may take.
const TIMEOUT_MS: u64 = 60_000;
/// Lines around a match, at most.
const CONTEXT: i64 = 20;
/// So many matches and more are given as text: a model reads that with less effort.
const AS_TEXT: usize = 5;
/// Characters of all.
const CHARACTERS: usize = 60_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum What {
    #[default]
    #[serde(alias = "grep")]
    Content,
    #[serde(alias = "find")]
    Files,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum OutputMode {
    #[default]
    Content,
    FilesOnly,
    Count,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// content: a regular expression (Rust's, as ripgrep has them). files: a glob such as `*.py` or `src/**/test_*`, or a
    /// part of a name.
    pattern: String,
    /// `content` (lines in files) or `files` (names).
    #[serde(default)]
    target: What,
    /// Directory or file to search in; the session's directory if absent.
    #[serde(default)]
    path: Option<String>,
    /// content: only in files whose path matches this glob; `!` excludes.
    #[serde(default)]
    file_glob: Option<String>,
    /// How many results, at most 1000.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<i64>,
    /// How many results to pass over.
    #[serde(default)]
    #[schemars(range(min = 0))]
    offset: Option<i64>,
    /// content: lines, only the files, or how many lines in each file.
    #[serde(default)]
    output_mode: OutputMode,
    /// content: lines to show around each match, at most 20.
    #[serde(default)]
    #[schemars(range(min = 0, max = 20))]
    context: Option<i64>,
    /// The session whose directory relative paths start from.
    #[serde(default)]
    session: Option<String>,
    /// Another place than the configured one; only configured names are possible.
    #[serde(default)]
    backend: Option<String>,
}

#[derive(Debug, Default, Serialize, JsonSchema)]
struct Result {
    /// Results up to the end of what is shown; there are more if `truncated`.
    total_count: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    matches: Vec<Match>,
    /// Many matches as text, by file.
    #[serde(skip_serializing_if = "Option::is_none")]
    matches_text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    matches_format: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    counts: Option<serde_json::Map<String, Value>>,
    truncated: bool,
    /// `search_timeout`: what was found in a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// Results in files that hold secrets are not shown.
    #[serde(rename = "_omitted", skip_serializing_if = "Option::is_none")]
    omitted: Option<String>,
    /// What could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<String>,
    backend: String,
    place: Place,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
struct Match {
    path: String,
    line: u64,
    content: String,
    /// A line around a match, not one itself.
    #[serde(skip_serializing_if = "is_false")]
    context: bool,
}

pub(crate) fn tool() -> Tool {
    let hints = Hints { read_only: true, destructive: false, idempotent: true, open_world: false };
    Tool::new::<Arguments, Result>(("search_files", "Search files"), DESCRIPTION, hints)
}

pub(crate) async fn call(tools: &Tools, arguments: Value, call: &Call<'_>) -> Outcome {
    let arguments: Arguments = arguments::read("search_files", arguments)?;
    let limit = ranged("limit", arguments.limit, 1, MOST, LIMIT)?;
    let offset = ranged("offset", arguments.offset, 0, FURTHEST, 0)?;
    let context = ranged("context", arguments.context, 0, CONTEXT.unsigned_abs(), 0)?;
    if arguments.pattern.is_empty() {
        return Err(Failure::argument(
            "pattern",
            "",
            "it is what to look for; for all files give `*` with target=\"files\"",
        ));
    }
    let room = Room::open(tools, call, arguments.session.as_deref(), arguments.backend.as_deref()).await?;
    let asked = arguments.path.as_deref().unwrap_or(".");
    let at = room.locate(asked).await?;
    if at.stat.is_none() {
        return Err(Failure::new(farshell_engine::Kind::NotFound, format!("there is no {}", at.path)));
    }
    let search = Search {
        path: ByteBuf::from(at.real.clone()),
        target: target(&arguments, context),
        globs: arguments.file_glob.iter().cloned().collect(),
        no_ignore: false,
        // A name that begins with a dot is asked for by writing the dot.
        hidden: arguments.target == What::Files
            && arguments.pattern.split('/').any(|part| part.starts_with('.')),
        // One more, to know whether there are more.
        limit: offset + limit + 1,
        timeout_ms: Some(TIMEOUT_MS),
    };
    let mut page = Page::new(&room, offset, limit);
    let searching = room.files().outpost().search(None, search, |event| page.take(event));
    let searched = tokio::select! {
        biased;
        () = call.cancel.cancelled() => return Err(super::room::cancelled()),
        searched = searching => searched?,
    };
    answer(&page.result(&arguments, searched))
}

fn ranged(
    field: &str,
    given: Option<i64>,
    least: u64,
    most: u64,
    usual: u64,
) -> std::result::Result<u64, Failure> {
    match given {
        None => Ok(usual),
        Some(given) => match u64::try_from(given) {
            Ok(given) if (least..=most).contains(&given) => Ok(given),
            _ => {
                Err(Failure::argument(field, given, &format!("it is a whole number from {least} to {most}")))
            }
        },
    }
}

fn target(arguments: &Arguments, context: u64) -> Target {
    match arguments.target {
        What::Files => {
            let pattern = arguments.pattern.as_str();
            let glob = match pattern.contains(['*', '?', '[', '{']) {
                true => pattern.to_owned(),
                // A part of a name.
                false => format!("*{pattern}*"),
            };
            Target::Files { glob: Some(glob).filter(|glob| glob != "*") }
        }
        What::Content => Target::Content {
            pattern: arguments.pattern.clone(),
            literal: false,
            ignore_case: IgnoreCase::No,
            context: u32::try_from(context).unwrap_or(0),
            multiline: arguments.pattern.contains("\\n"),
            want: match arguments.output_mode {
                OutputMode::Content => Want::Lines,
                OutputMode::FilesOnly => Want::Files,
                OutputMode::Count => Want::Counts,
            },
        },
    }
}

/// The results that are shown, of all that pass by.
struct Page<'a> {
    room: &'a Room<'a>,
    offset: u64,
    limit: u64,
    /// Results so far.
    seen: u64,
    omitted: u64,
    lines: Vec<Match>,
    files: Vec<String>,
    counts: serde_json::Map<String, Value>,
}

impl<'a> Page<'a> {
    fn new(room: &'a Room<'a>, offset: u64, limit: u64) -> Self {
        Self {
            room,
            offset,
            limit,
            seen: 0,
            omitted: 0,
            lines: Vec::new(),
            files: Vec::new(),
            counts: serde_json::Map::new(),
        }
    }

    /// Counts a result; whether it is on this page.
    fn next(&mut self) -> bool {
        self.seen += 1;
        self.seen > self.offset && self.seen <= self.offset + self.limit
    }

    fn secret(&mut self, path: &[u8], results: u64) -> bool {
        let secret = self.room.shield.refuses_read(&String::from_utf8_lossy(path)).is_some();
        if secret {
            self.omitted += results;
            self.seen += results;
        }
        secret
    }

    fn take(&mut self, event: FileEvent) {
        match event {
            FileEvent::Lines { path, lines } => {
                let results = lines.iter().filter(|line| line.matched).count() as u64;
                if !self.secret(&path, results) {
                    self.take_lines(&self.room.shown(&path), &lines);
                }
            }
            FileEvent::Files(files) => {
                for file in files {
                    if !self.secret(&file.path, 1) && self.next() {
                        self.files.push(self.room.shown(&file.path));
                    }
                }
            }
            FileEvent::Counts(counts) => {
                for (path, count) in counts {
                    if !self.secret(&path, 1) && self.next() {
                        self.counts.insert(self.room.shown(&path), Value::from(count));
                    }
                }
            }
            FileEvent::Entries(_) => {}
        }
    }

    /// Lines around a match go with it.
    fn take_lines(&mut self, path: &str, lines: &[Line]) {
        let on_page: Vec<Option<bool>> = lines.iter().map(|line| line.matched.then(|| self.next())).collect();
        for (n, line) in lines.iter().enumerate() {
            let shown = match on_page[n] {
                Some(shown) => shown,
                None => {
                    let after = on_page[n..].iter().flatten().next();
                    let before = on_page[..n].iter().rev().flatten().next();
                    after == Some(&true) || before == Some(&true)
                }
            };
            if !shown {
                continue;
            }
            let text = String::from_utf8_lossy(&line.text);
            let text = self.room.redactor.redact(text.trim_end());
            let cut = first(&text, LINE);
            let dots = if cut.len() < text.len() || line.cut { "…" } else { "" };
            self.lines.push(Match {
                path: path.to_owned(),
                line: line.number,
                content: format!("{cut}{dots}"),
                context: !line.matched,
            });
        }
    }

    fn result(self, arguments: &Arguments, searched: Searched) -> Result {
        let end = self.offset + self.limit;
        let more = self.seen > end;
        let mut result = Result {
            total_count: if more { end } else { self.seen },
            truncated: more || searched.truncated || searched.timed_out,
            limit_reason: searched.timed_out.then_some("search_timeout"),
            next_offset: more.then_some(end),
            omitted: (self.omitted > 0).then(|| {
                format!("{} results in files that hold secrets (.env, keys) are not shown", self.omitted)
            }),
            errors: searched.errors,
            backend: self.room.backend().to_owned(),
            place: self.room.place(),
            ..Result::default()
        };
        let mut hints = Vec::new();
        if more {
            hints.push(format!("there are more: go on with offset={end}"));
        }
        if searched.timed_out {
            hints.push("the search took longer than a minute: search in a smaller directory".to_owned());
        }
        if self.seen == 0 {
            hints.push(
                "nothing was found; files that .gitignore excludes and hidden ones are not searched"
                    .to_owned(),
            );
        }
        match (arguments.target, arguments.output_mode) {
            (What::Files, _) | (What::Content, OutputMode::FilesOnly) => result.files = Some(self.files),
            (What::Content, OutputMode::Count) => result.counts = Some(self.counts),
            (What::Content, OutputMode::Content) if self.lines.len() < AS_TEXT => result.matches = self.lines,
            (What::Content, OutputMode::Content) => {
                let (text, whole) = as_text(&self.lines);
                result.matches_text = Some(text);
                result.matches_format =
                    Some("path, then `line:content` for matches and `line-content` for lines around them");
                if !whole {
                    result.truncated = true;
                    hints.push("the answer would have become too long: ask for fewer results".to_owned());
                }
            }
        }
        result.hint = (!hints.is_empty()).then(|| hints.join("; "));
        result
    }
}

fn as_text(lines: &[Match]) -> (String, bool) {
    let mut text = String::new();
    let mut path = None;
    for line in lines {
        if text.len() > CHARACTERS {
            return (text, false);
        }
        if path != Some(&line.path) {
            if path.is_some() {
                text.push('\n');
            }
            text.push_str(&line.path);
            text.push('\n');
            path = Some(&line.path);
        }
        let mark = if line.context { '-' } else { ':' };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}{mark}{}", line.line, line.content);
    }
    (text.trim_end().to_owned(), true)
}
