//! `read_file`.

use super::content::{is_binary, numbered};
use super::{Located, Room};
use crate::failure::{Failure, Outcome, answer};
use crate::terminal::is_false;
use crate::text::first;
use crate::{Call, Hints, Tool, Tools, arguments};
use farshell_api::run::Place;
use farshell_engine::Kind;
use farshell_protocol::file::{FileType, Version};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

const DESCRIPTION: &str = "Read a text file. Each line is shown as `NUMBER|text`: the number and the bar are not part of \
the file. Shows 500 lines from the first one unless told otherwise (at most 2000); `truncated` and `hint` say how to go \
on. Known secrets are shown as «redacted:NAME»: that mark is not what stands in the file, and can't be written back. \
Not for binary files and pictures. Use this rather than cat, head, tail or sed.";

/// Lines if nothing is said, and at most.
const LINES: u64 = 500;
const MOST_LINES: u64 = 2000;
/// Characters of one line, and of all.
const LINE: usize = 2000;
const CHARACTERS: usize = 100_000;
/// Bytes after what is shown that are read to count lines.
const COUNTED: u64 = 64 << 20;
/// Bytes that are looked at to tell text from something else.
const SNIFF: usize = 8192;

const IMAGES: &[&str] = &["png", "jpg", "jpeg", "gif", "webp", "bmp", "ico", "tif", "tiff", "avif", "heic"];

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Absolute, relative to the session's directory, or from the home directory with `~/`.
    path: String,
    /// The first line to show, from 1.
    #[serde(default)]
    #[schemars(range(min = 1))]
    offset: Option<i64>,
    /// How many lines, at most 2000.
    #[serde(default)]
    #[schemars(range(min = 1, max = 2000))]
    limit: Option<i64>,
    /// The session whose directory relative paths start from.
    #[serde(default)]
    session: Option<String>,
    /// Another place than the configured one; only configured names are possible.
    #[serde(default)]
    backend: Option<String>,
}

#[derive(Debug, Default, Serialize, JsonSchema)]
struct Result {
    /// `NUMBER|text` for each line.
    content: String,
    path: String,
    /// Absent if the file is so large that its lines were not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    total_lines: Option<u64>,
    /// Bytes.
    file_size: u64,
    /// There is more of the file than is shown.
    truncated: bool,
    /// How to go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// `characters`: the answer would have become too long.
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated_by: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
    /// Some bytes are no UTF-8 and shown as �.
    #[serde(skip_serializing_if = "is_false")]
    lossy: bool,
    #[serde(skip_serializing_if = "is_false")]
    is_binary: bool,
    #[serde(skip_serializing_if = "is_false")]
    is_image: bool,
    /// The file is not there, but these are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    similar_files: Vec<String>,
    backend: String,
    place: Place,
}

pub(crate) fn tool() -> Tool {
    let hints = Hints { read_only: true, destructive: false, idempotent: true, open_world: false };
    Tool::new::<Arguments, Result>(("read_file", "Read a file"), DESCRIPTION, hints)
}

pub(crate) async fn call(tools: &Tools, arguments: Value, call: &Call<'_>) -> Outcome {
    let arguments: Arguments = arguments::read("read_file", arguments)?;
    let offset = match arguments.offset.unwrap_or(1) {
        offset @ 1.. => offset.unsigned_abs(),
        offset => return Err(Failure::argument("offset", offset, "it is a line number from 1 on")),
    };
    let limit = match arguments.limit {
        None => LINES,
        Some(limit @ 1..) if limit.unsigned_abs() <= MOST_LINES => limit.unsigned_abs(),
        Some(limit) => {
            return Err(Failure::argument("limit", limit, "it is a number of lines from 1 to 2000"));
        }
    };
    let room = Room::open(tools, call, arguments.session.as_deref(), arguments.backend.as_deref()).await?;
    let at = room.locate_to_read(&arguments.path).await?;
    let name = at.path.rsplit('/').next().unwrap_or_default().to_owned();
    match &at.stat {
        None => return Err(missing(&room, &at, &name).await),
        Some(stat) if stat.kind == FileType::Dir => {
            let message =
                format!("{} is a directory: search_files(target=\"files\", path=…) lists files", at.path);
            return Err(Failure::invalid(message));
        }
        Some(stat) if stat.kind != FileType::File => {
            return Err(Failure::invalid(format!("{} is a {:?}, not a file", at.path, stat.kind)));
        }
        Some(_) => {}
    }
    let extension = name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    if extension.as_deref().is_some_and(|extension| IMAGES.contains(&extension)) {
        return Err(not_text(&at, "a picture").with("is_image", true));
    }
    let (window, version) = window(&room, &at, offset, limit).await?;
    tools.seen.set(room.key(&at), version);
    let size = version.size;
    answer(&window.result(&room, &at, size))
}

fn not_text(at: &Located, what: &str) -> Failure {
    let size = at.stat.as_ref().map_or(0, |stat| stat.size);
    Failure::invalid(format!("{} is {what}, not text", at.path))
        .with("is_binary", true)
        .with("file_size", size)
}

/// Names in the same directory that may have been meant.
async fn missing(room: &Room<'_>, at: &Located, name: &str) -> Failure {
    let failure =
        Failure::new(Kind::NotFound, format!("there is no file {}", at.path)).with("path", at.path.as_str());
    let Some(parent) =
        at.real.iter().rposition(|byte| *byte == b'/').map(|end| at.real[..end.max(1)].to_vec())
    else {
        return failure;
    };
    let Ok((entries, _)) = room.files().outpost().list_dir(None, &parent, 5000).await else { return failure };
    let lower = name.to_lowercase();
    let mut names: Vec<(f64, String)> = entries
        .iter()
        .filter_map(|entry| {
            let entry = String::from_utf8_lossy(&entry.name).into_owned();
            let other = entry.to_lowercase();
            let likeness = match other.contains(&lower) || lower.contains(&other) {
                true => 0.9,
                false => strsim::normalized_levenshtein(&other, &lower),
            };
            (likeness >= 0.6).then_some((likeness, entry))
        })
        .collect();
    names.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let directory = room.shown(&parent);
    let similar: Vec<Value> = names
        .into_iter()
        .take(5)
        .map(|(_, name)| {
            Value::from(if directory == room.cwd {
                name
            } else {
                format!("{}/{name}", directory.trim_end_matches('/'))
            })
        })
        .collect();
    if similar.is_empty() { failure } else { failure.with("similar_files", similar) }
}

/// The lines that are shown, collected as the file passes by.
#[derive(Debug)]
struct Window {
    first: u64,
    limit: u64,
    lines: Vec<String>,
    characters: usize,
    /// Whole lines that have passed.
    passed: u64,
    /// The line that has begun; of a long one only the beginning.
    begun: Vec<u8>,
    /// Something of it has come.
    open: bool,
    lossy: bool,
    full: bool,
    counted: bool,
}

async fn window(
    room: &Room<'_>,
    at: &Located,
    first: u64,
    limit: u64,
) -> std::result::Result<(Window, Version), Failure> {
    let mut stream = room.files().outpost().read_file(None, &at.real, 0, None).await?;
    let mut window = Window {
        first,
        limit,
        lines: Vec::new(),
        characters: 0,
        passed: 0,
        begun: Vec::new(),
        open: false,
        lossy: false,
        full: false,
        counted: true,
    };
    let mut beginning = true;
    let mut extra = 0;
    while let Some(mut piece) = stream.next().await? {
        if room.call.cancel.is_cancelled() {
            return Err(super::room::cancelled());
        }
        if beginning {
            beginning = false;
            if is_binary(&piece[..piece.len().min(SNIFF)]) {
                return Err(not_text(at, "a binary file"));
            }
            if piece.starts_with(b"\xef\xbb\xbf") {
                piece.drain(..3);
            }
        }
        if window.full {
            extra += piece.len() as u64;
        }
        window.push(&piece);
        if extra > COUNTED {
            window.counted = false;
            break;
        }
    }
    window.end();
    let stat = stream.end.map(|end| end.stat).or_else(|| at.stat.clone());
    let version = stat.map(|stat| stat.version);
    let version = version.ok_or_else(|| Failure::new(Kind::Protocol, "the file's version is not known"))?;
    Ok((window, version))
}

impl Window {
    fn push(&mut self, piece: &[u8]) {
        for line in piece.split_inclusive(|byte| *byte == b'\n') {
            let (line, ended) = match line.strip_suffix(b"\n") {
                Some(line) => (line, true),
                None => (line, false),
            };
            if self.wanted() {
                // Enough for any line that is shown, however its characters are written.
                let room = (LINE * 4 + 8).saturating_sub(self.begun.len());
                self.begun.extend_from_slice(&line[..line.len().min(room)]);
            }
            self.open = true;
            if ended {
                self.take();
            }
        }
    }

    fn wanted(&self) -> bool {
        !self.full && self.passed + 1 >= self.first
    }

    /// A line is whole.
    fn take(&mut self) {
        if self.wanted() {
            let bytes = self.begun.strip_suffix(b"\r").unwrap_or(&self.begun);
            let text = String::from_utf8_lossy(bytes);
            self.lossy |= matches!(text, std::borrow::Cow::Owned(_)) && bytes.len() <= LINE * 4;
            let shown = match first(&text, LINE) {
                short if short.len() < text.len() => {
                    format!("{short}… [line cut: longer than {LINE} characters]")
                }
                whole => whole.to_owned(),
            };
            let length = shown.chars().count() + 8;
            if self.characters + length > CHARACTERS && !self.lines.is_empty() {
                self.full = true;
            } else {
                self.characters += length;
                self.lines.push(shown);
                self.full = self.lines.len() as u64 >= self.limit;
            }
        }
        self.begun.clear();
        self.passed += 1;
        self.open = false;
    }

    fn end(&mut self) {
        if self.open {
            self.take();
        }
    }

    fn result(&self, room: &Room<'_>, at: &Located, size: u64) -> Result {
        let shown = self.lines.len() as u64;
        let next = self.first + shown;
        let truncated = !self.counted || next <= self.passed;
        let by_characters = truncated && shown < self.limit;
        let total = match self.counted {
            true => format!("{} lines", self.passed),
            false => "many lines".to_owned(),
        };
        let hint = match (shown, truncated) {
            (0, _) if self.passed > 0 => Some(format!("the file has {total}: give an offset up to that")),
            (0, _) => Some("the file is empty".to_owned()),
            (_, true) => {
                Some(format!("lines {} to {} of {total}; go on with offset={next}", self.first, next - 1))
            }
            (_, false) => None,
        };
        let content = numbered(self.first, self.lines.iter().map(String::as_str));
        Result {
            content: room.redactor.redact(&content).into_owned(),
            path: at.path.clone(),
            total_lines: self.counted.then_some(self.passed),
            file_size: size,
            truncated,
            hint,
            truncated_by: by_characters.then_some("characters"),
            next_offset: (truncated && shown > 0).then_some(next),
            lossy: self.lossy,
            backend: room.backend().to_owned(),
            place: room.place(),
            ..Result::default()
        }
    }
}
