//! The V4A format: a patch over several files, by context rather than by line numbers.
//!
//! ```text
//! *** Begin Patch
//! *** Update File: src/a.py
//! @@ def f():
//!  context
//! -old
//! +new
//! *** Add File: b.txt
//! +line
//! *** Delete File: c.txt
//! *** Move File: d.txt -> e.txt
//! *** End Patch
//! ```

use super::lines::{Lines, reindented};
use super::matching::{ALL, Matcher, NotOne, find_with};

/// What is to be done to one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Add { path: String, text: String },
    Delete { path: String },
    Move { path: String, to: String },
    Update { path: String, to: Option<String>, hunks: Vec<Hunk> },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hunk {
    /// A line after which it is to be looked for.
    pub(crate) hint: Option<String>,
    pub(crate) lines: Vec<Line>,
    /// It stands at the end of the file.
    pub(crate) at_end: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Keep(String),
    Remove(String),
    Add(String),
}

/// Reads a patch.
///
/// # Errors
/// In words, with the number of the line.
pub(crate) fn parse(patch: &str) -> Result<Vec<Change>, String> {
    let patch = patch.replace("\r\n", "\n");
    let mut changes: Vec<Change> = Vec::new();
    let mut begun = false;
    for (number, line) in patch.lines().enumerate() {
        let number = number + 1;
        let wrong = |what: &str| Err(format!("line {number} of the patch: {what}: {line:?}"));
        let header = |name: &str| line.strip_prefix("*** ")?.trim().strip_prefix(name).map(str::trim);
        if line.trim() == "*** Begin Patch" {
            begun = true;
            continue;
        }
        if line.trim() == "*** End Patch" {
            return finished(changes);
        }
        if !begun {
            match line.trim().is_empty() {
                true => continue,
                false => return wrong("a patch begins with `*** Begin Patch`, not with"),
            }
        }
        if let Some(path) = header("Update File:") {
            changes.push(Change::Update { path: checked(path, number)?, to: None, hunks: Vec::new() });
        } else if let Some(path) = header("Add File:") {
            changes.push(Change::Add { path: checked(path, number)?, text: String::new() });
        } else if let Some(path) = header("Delete File:") {
            changes.push(Change::Delete { path: checked(path, number)? });
        } else if let Some(paths) = header("Move File:") {
            let Some((path, to)) = paths.split_once("->") else {
                return wrong("`*** Move File: FROM -> TO` is how a file is moved, not");
            };
            changes
                .push(Change::Move { path: checked(path.trim(), number)?, to: checked(to.trim(), number)? });
        } else if let Some(path) = header("Move to:") {
            match changes.last_mut() {
                Some(Change::Update { to, hunks, .. }) if hunks.is_empty() && to.is_none() => {
                    *to = Some(checked(path, number)?);
                }
                _ => return wrong("`*** Move to:` stands right below `*** Update File:`, not"),
            }
        } else if line.trim() == "*** End of File" {
            match changes.last_mut() {
                Some(Change::Update { hunks, .. }) if !hunks.is_empty() => {
                    hunks.iter_mut().next_back().into_iter().for_each(|hunk| hunk.at_end = true);
                }
                _ => return wrong("there is no hunk before"),
            }
        } else {
            if let Err(what) = body(&mut changes, line) {
                return wrong(&what);
            }
        }
    }
    match begun {
        // The last line is often forgotten, and nothing is unclear without it.
        true => finished(changes),
        false => Err("the patch is empty: it begins with `*** Begin Patch`".to_owned()),
    }
}

fn finished(changes: Vec<Change>) -> Result<Vec<Change>, String> {
    if changes.is_empty() {
        return Err("the patch has no file in it: `*** Update File: PATH` and its kin name them".to_owned());
    }
    for change in &changes {
        if let Change::Update { path, to: None, hunks } = change
            && !hunks.iter().any(|hunk| hunk.lines.iter().any(|line| !matches!(line, Line::Keep(_))))
        {
            return Err(format!("the patch changes nothing in {path}: its lines begin with + or -"));
        }
    }
    Ok(changes)
}

fn checked(path: &str, number: usize) -> Result<String, String> {
    if path.is_empty() {
        return Err(format!("line {number} of the patch names no file"));
    }
    if path.split('/').any(|part| part == "..") {
        return Err(format!("line {number} of the patch: {path:?} has a `..` in it; name the file without"));
    }
    Ok(path.to_owned())
}

/// A line that is no header.
fn body(changes: &mut [Change], line: &str) -> Result<(), String> {
    match changes.last_mut() {
        Some(Change::Add { text, .. }) => {
            let Some(line) = line.strip_prefix('+') else {
                return match line.trim().is_empty() {
                    true => Ok(()),
                    false => Err("the lines of an added file begin with +, not with".to_owned()),
                };
            };
            text.push_str(line);
            text.push('\n');
            Ok(())
        }
        Some(Change::Update { hunks, .. }) => {
            if let Some(hint) = line.strip_prefix("@@") {
                let hint = hint.trim().trim_end_matches("@@").trim();
                // `@@ -1,2 +1,3 @@` is how another format counts lines; here it says nothing.
                let counts =
                    hint.starts_with('-') && hint.contains('+') && !hint.contains(char::is_alphabetic);
                let hint = (!hint.is_empty() && !counts).then(|| hint.to_owned());
                hunks.push(Hunk { hint, ..Hunk::default() });
                return Ok(());
            }
            if hunks.is_empty() {
                hunks.push(Hunk::default());
            }
            let Some(hunk) = hunks.last_mut() else { return Ok(()) };
            let mut chars = line.chars();
            hunk.lines.push(match chars.next() {
                Some('+') => Line::Add(chars.as_str().to_owned()),
                Some('-') => Line::Remove(chars.as_str().to_owned()),
                Some(' ') => Line::Keep(chars.as_str().to_owned()),
                // Blanks at the end of lines get lost.
                None => Line::Keep(String::new()),
                Some(_) => {
                    return Err("a line of a hunk begins with a blank, + or -, not with".to_owned());
                }
            });
            Ok(())
        }
        Some(Change::Delete { .. } | Change::Move { .. }) if line.trim().is_empty() => Ok(()),
        Some(Change::Delete { .. } | Change::Move { .. }) => {
            Err("nothing stands below a file that is deleted or moved".to_owned())
        }
        None if line.trim().is_empty() => Ok(()),
        None => Err("a file is named first, with `*** Update File: PATH` or its kin, not".to_owned()),
    }
}

/// Applies the hunks of one file, one after the other.
///
/// # Errors
/// In words: which hunk does not fit, and why.
pub(crate) fn apply(text: &str, hunks: &[Hunk]) -> Result<String, String> {
    let ended = text.is_empty() || text.ends_with('\n');
    let mut work = if ended { text.to_owned() } else { format!("{text}\n") };
    let mut cursor = 0;
    for (n, hunk) in hunks.iter().enumerate() {
        let place = |what: String| format!("hunk {} of {}: {what}", n + 1, hunks.len());
        (work, cursor) = one(&work, cursor, hunk).map_err(place)?;
    }
    if !ended && work.ends_with('\n') {
        work.pop();
    }
    Ok(work)
}

/// One hunk: the new text, and from where the next one is looked for.
fn one(text: &str, cursor: usize, hunk: &Hunk) -> Result<(String, usize), String> {
    let pick = |which: fn(&Line) -> Option<&String>| -> String {
        hunk.lines.iter().filter_map(which).flat_map(|line| [line.as_str(), "\n"]).collect()
    };
    let old = pick(|line| match line {
        Line::Keep(line) | Line::Remove(line) => Some(line),
        Line::Add(_) => None,
    });
    let new = pick(|line| match line {
        Line::Keep(line) | Line::Add(line) => Some(line),
        Line::Remove(_) => None,
    });
    let from = match &hunk.hint {
        Some(hint) => after_hint(text, cursor, hint)?,
        None => cursor,
    };
    if old.is_empty() {
        let at = match (&hunk.hint, hunk.at_end || text.is_empty()) {
            (_, true) => text.len(),
            (Some(_), false) => from,
            (None, false) => {
                return Err(
                    "it only adds lines and does not say where: give lines around them, or `@@ LINE @@`"
                        .to_owned(),
                );
            }
        };
        return Ok((format!("{}{new}{}", &text[..at], &text[at..]), at + new.len()));
    }
    let rest = &text[from..];
    // In hunks a loose match is not worth its risk: there is context for more.
    let matchers = &ALL[..7];
    let found = match find_with(matchers, rest, &old, true) {
        Ok(found) => found,
        Err(NotOne::Nowhere | NotOne::Several { .. }) => {
            let before = find_with(matchers, text, &old, true).is_ok();
            let why = match before {
                true => {
                    "its lines are only found before the hunk above it, or before its hint: put hunks in the order of the file"
                }
                false => {
                    "its lines are not in the file as they are given: read the file again, and copy them as they are there"
                }
            };
            let close = super::replace::closest(text, &old).map_or_else(String::new, |(line, like)| {
                format!(" (the line most like its first one is line {line}: {like:?})")
            });
            return Err(format!("{why}{close}"));
        }
    };
    let range = match (found.ranges.len(), hunk.at_end, &hunk.hint) {
        (_, true, _) => found.ranges.last(),
        (1, ..) | (_, _, Some(_)) => found.ranges.first(),
        (count, false, None) => {
            let line = |at: usize| text[..from + at].matches('\n').count() + 1;
            let lines: Vec<_> =
                found.ranges.iter().take(10).map(|range| line(range.start).to_string()).collect();
            return Err(format!(
                "its lines are there {count} times (lines {}): give more lines around them, or `@@ LINE @@` with a line above them",
                lines.join(", ")
            ));
        }
    };
    let Some(range) = range else { return Err("its lines are not in the file".to_owned()) };
    let (start, end) = (from + range.start, from + range.end);
    let new = match found.matcher {
        Matcher::Exact | Matcher::UnicodeNormalised | Matcher::EscapeNormalised => new,
        Matcher::TrimmedBoundary => new.trim().to_owned(),
        _ => in_the_files_words(&text[start..end], hunk, &old, &new),
    };
    Ok((format!("{}{new}{}", &text[..start], &text[end..]), start + new.len()))
}

/// Lines that are kept stay as the file has them; those that are added get its indentation.
fn in_the_files_words(found: &str, hunk: &Hunk, old: &str, new: &str) -> String {
    let file = Lines::new(found);
    let kept = hunk.lines.iter().filter(|line| !matches!(line, Line::Add(_))).count();
    if file.len() != kept {
        return reindented(new, old, found);
    }
    let mut out = String::new();
    let mut at = 0;
    for line in &hunk.lines {
        match line {
            Line::Keep(_) => {
                out.push_str(file.get(at));
                at += 1;
            }
            Line::Remove(_) => {
                at += 1;
                continue;
            }
            Line::Add(line) => out.push_str(&reindented(line, old, found)),
        }
        out.push('\n');
    }
    out
}

/// The place below the line that a hint names.
fn after_hint(text: &str, cursor: usize, hint: &str) -> Result<usize, String> {
    let mut at = cursor;
    let mut loose = None;
    for line in text[cursor..].split_inclusive('\n') {
        at += line.len();
        if line.trim() == hint {
            return Ok(at);
        }
        if loose.is_none() && line.contains(hint) {
            loose = Some(at);
        }
    }
    loose.ok_or_else(|| format!("there is no line {hint:?} after the hunk above it"))
}

#[cfg(test)]
#[path = "v4a_tests.rs"]
mod tests;
