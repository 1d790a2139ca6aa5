//! One piece of text put in the place of another.

use super::lines::reindented;
use super::matching::{Found, Matcher, NotOne, find, unescaped};
use std::ops::Range;

/// A replacement that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replaced {
    pub(crate) text: String,
    pub(crate) matcher: Matcher,
    pub(crate) count: usize,
}

/// Line numbers that are told, at most.
const MOST_TOLD: usize = 10;

/// Replaces `old` by `new`.
///
/// # Errors
/// In words for a model: it is not there, it is there several times, nothing would change, or `new` has escapes that
/// do not belong there.
pub(crate) fn replace(text: &str, old: &str, new: &str, all: bool) -> Result<Replaced, String> {
    if old.is_empty() {
        return Err(
            "old_string is empty: give the text to replace, or use write_file for a whole file".to_owned()
        );
    }
    if old == new {
        return Err("old_string and new_string are the same: nothing would change".to_owned());
    }
    let found = find(text, old, all).map_err(|error| not_one(&error, text, old))?;
    let mut out = String::with_capacity(text.len() + new.len());
    let mut from = 0;
    for range in &found.ranges {
        let piece = &text[range.clone()];
        let new = fitted(&found, text, range, old, new);
        if let Some(escape) = added_escape(found.matcher, piece, old, &new) {
            return Err(format!(
                "new_string has {escape} where the file has none: it was escaped once too often. Send the text as it is to stand in the file"
            ));
        }
        out.push_str(&text[from..range.start]);
        out.push_str(&new);
        from = range.end;
    }
    out.push_str(&text[from..]);
    if out == text {
        return Err("the file has new_string there already: nothing would change".to_owned());
    }
    Ok(Replaced { text: out, matcher: found.matcher, count: found.ranges.len() })
}

/// The new text in the manner in which the old one was found.
fn fitted(found: &Found, text: &str, range: &Range<usize>, old: &str, new: &str) -> String {
    let piece = &text[range.clone()];
    let line_start = range.start == 0 || text[..range.start].ends_with('\n');
    let new = match found.matcher {
        Matcher::Exact | Matcher::UnicodeNormalised => return new.to_owned(),
        Matcher::EscapeNormalised => return unescaped(new).unwrap_or_else(|| new.to_owned()),
        Matcher::TrimmedBoundary => return boundary(old, new).to_owned(),
        Matcher::WhitespaceNormalised if !line_start => return new.to_owned(),
        Matcher::LineTrimmed
        | Matcher::WhitespaceNormalised
        | Matcher::IndentationFlexible
        | Matcher::BlockAnchor
        | Matcher::ContextAware => reindented(new, old, piece),
    };
    // Where lines end in CR LF they go on to.
    if piece.contains("\r\n") && !new.contains('\r') { new.replace('\n', "\r\n") } else { new }
}

/// `new` without the blanks around it that `old` has, too, and that are not in the file.
fn boundary<'n>(old: &str, new: &'n str) -> &'n str {
    let before = &old[..old.len() - old.trim_start().len()];
    let after = &old[old.trim_end().len()..];
    let new = new.strip_prefix(before).unwrap_or(new);
    new.strip_suffix(after).unwrap_or(new)
}

/// A backslash before a quote that is in both given texts and not in the file.
fn added_escape(matcher: Matcher, piece: &str, old: &str, new: &str) -> Option<&'static str> {
    if matcher == Matcher::Exact || matcher == Matcher::EscapeNormalised {
        return None;
    }
    ["\\\"", "\\'"]
        .into_iter()
        .find(|escape| old.contains(escape) && new.contains(escape) && !piece.contains(escape))
}

fn not_one(error: &NotOne, text: &str, old: &str) -> String {
    match error {
        NotOne::Several { lines } => {
            let told: Vec<_> = lines.iter().take(MOST_TOLD).map(ToString::to_string).collect();
            let more = if lines.len() > MOST_TOLD { ", …" } else { "" };
            format!(
                "old_string is there {} times (lines {}{more}): give more of the lines around it, or replace_all=true",
                lines.len(),
                told.join(", ")
            )
        }
        NotOne::Nowhere => {
            let close = closest(text, old);
            let close = close.map_or_else(String::new, |(line, like)| {
                format!(" The line most like its first one is line {line}: {like:?}.")
            });
            format!(
                "old_string is not in the file.{close} Read the file again, and copy the text as it is there"
            )
        }
    }
}

/// The line of the file that is most like the first telling line of `old`.
pub(crate) fn closest<'t>(text: &'t str, old: &str) -> Option<(usize, &'t str)> {
    let wanted = old.lines().map(str::trim).find(|line| line.len() >= 4)?;
    let mut best: Option<(usize, &str, f64)> = None;
    for (number, line) in text.lines().take(20_000).enumerate() {
        let likeness = super::lines::similar(line.trim(), wanted);
        if likeness >= 0.6 && best.is_none_or(|(_, _, known)| likeness > known) {
            best = Some((number + 1, line, likeness));
        }
    }
    best.map(|(number, line, _)| (number, crate::text::first(line, 200)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(text: &str, old: &str, new: &str) -> String {
        replace(text, old, new, false).unwrap().text
    }

    fn refused(text: &str, old: &str, new: &str) -> String {
        replace(text, old, new, false).unwrap_err()
    }

    #[test]
    fn new_text_fits_into_its_place() {
        assert_eq!(replaced("a b c", "b", "x"), "a x c");
        // Indented as the file is.
        assert_eq!(
            replaced("def f():\n    if a:\n        b\n", "if a:\n    b\n", "if a:\n    b\n    c\n"),
            "def f():\n    if a:\n        b\n        c\n"
        );
        assert_eq!(
            replaced("\tone\n\ttwo\n", "    one\n    two", "    one\n        more"),
            "\tone\n\t    more\n"
        );
        // Mixed line ends: those of the place.
        assert_eq!(replaced("a\r\n b\r\nc\n", "a\nb\n", "a\nx\ny\n"), "a\r\nx\r\ny\r\nc\n");
        // Escaped once too often, both of them.
        assert_eq!(replaced("say(\"hi\")\nend", "say(\\\"hi\\\")", "say(\\\"ho\\\")"), "say(\"ho\")\nend");
        // Blanks around it that are not in the file.
        assert_eq!(replaced("x = foo(1) + 2", "\n foo(1)\n", "\n foo(2)\n"), "x = foo(2) + 2");
        assert_eq!(replaced("“a” b", "\"a\" b", "c"), "c");
        assert_eq!(replace("x x x", "x", "y", true).unwrap().count, 3);
        assert_eq!(replaced("keep\ngone\nkeep\n", "gone\n", ""), "keep\nkeep\n");
    }

    #[test]
    fn what_can_not_be_done_is_said() {
        assert_eq!(
            refused("x\nx\ny", "x", "z"),
            "old_string is there 2 times (lines 1, 2): give more of the lines around it, or replace_all=true"
        );
        assert_eq!(
            refused("let value = compute();\n", "let values = compile();\nlet b = 1;", "c"),
            "old_string is not in the file. The line most like its first one is line 1: \"let value = compute();\". Read the file again, and copy the text as it is there"
        );
        assert!(refused("a", "", "b").starts_with("old_string is empty"));
        assert!(refused("a", "a", "a").contains("nothing would change"));
        assert!(
            refused(
                "  print('a', x)\n  more(1)\n",
                "print(\\'a\\', x)\nmore(2)",
                "print(\\'b\\', x)\nmore(3)"
            )
            .contains("escaped once too often")
        );
    }
}
