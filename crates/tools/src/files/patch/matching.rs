//! Where in a file a piece of text is that a model remembers, not always to the letter.
//!
//! Nine matchers, from the strictest to the loosest. The first that finds something decides. If it finds several and
//! only one is wanted, the shape of the indentation may still choose among those; if it does not, it is said where they
//! are.

use super::lines::{Lines, indent, similar};
use std::ops::Range;

/// A way to find text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Matcher {
    Exact,
    LineTrimmed,
    WhitespaceNormalised,
    IndentationFlexible,
    EscapeNormalised,
    TrimmedBoundary,
    UnicodeNormalised,
    BlockAnchor,
    ContextAware,
}

pub(crate) const ALL: [Matcher; 9] = [
    Matcher::Exact,
    Matcher::LineTrimmed,
    Matcher::WhitespaceNormalised,
    Matcher::IndentationFlexible,
    Matcher::EscapeNormalised,
    Matcher::TrimmedBoundary,
    Matcher::UnicodeNormalised,
    Matcher::BlockAnchor,
    Matcher::ContextAware,
];

/// What was found: where, and by whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) matcher: Matcher,
    /// In order, none touching another.
    pub(crate) ranges: Vec<Range<usize>>,
}

/// Why nothing can be replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotOne {
    Nowhere,
    /// Where it begins each time, as line numbers from 1.
    Several {
        lines: Vec<usize>,
    },
}

/// How alike the inner lines of a block must be that is held by its first and last line: if there is one such block,
/// and if there are several.
const ONE_BLOCK: f64 = 0.5;
const SOME_BLOCKS: f64 = 0.7;
/// How alike a line must be to count as the same.
const SAME_LINE: f64 = 0.8;
/// Comparisons of lines that one search may cost: a second at the very worst.
const MOST_COMPARED: usize = 400_000;

impl Matcher {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::LineTrimmed => "line_trimmed",
            Self::WhitespaceNormalised => "whitespace_normalised",
            Self::IndentationFlexible => "indentation_flexible",
            Self::EscapeNormalised => "escape_normalised",
            Self::TrimmedBoundary => "trimmed_boundary",
            Self::UnicodeNormalised => "unicode_normalised",
            Self::BlockAnchor => "block_anchor",
            Self::ContextAware => "context_aware",
        }
    }

    /// All places of `old` in `text` that this matcher sees.
    pub(crate) fn find(self, text: &str, old: &str) -> Vec<Range<usize>> {
        if old.trim().is_empty() && self != Self::Exact {
            return Vec::new();
        }
        match self {
            Self::Exact => exact(text, old),
            Self::LineTrimmed => by_line(text, old, |file, old| file.trim() == old.trim()),
            Self::WhitespaceNormalised => mapped(text, old, blanks),
            Self::IndentationFlexible => indentation(text, old),
            Self::EscapeNormalised => match unescaped(old) {
                Some(plain) => exact(text, &plain),
                None => Vec::new(),
            },
            Self::TrimmedBoundary => match old.trim() {
                trimmed if trimmed.len() < old.len() => exact(text, trimmed),
                _ => Vec::new(),
            },
            Self::UnicodeNormalised => mapped(text, old, ascii),
            Self::BlockAnchor => anchored(text, old),
            Self::ContextAware => in_context(text, old),
        }
    }
}

/// Finds `old` in `text`: one place, or with `all` as many as there are.
///
/// # Errors
/// It is not there, or several times.
pub(crate) fn find(text: &str, old: &str, all: bool) -> Result<Found, NotOne> {
    find_with(&ALL, text, old, all)
}

pub(crate) fn find_with(matchers: &[Matcher], text: &str, old: &str, all: bool) -> Result<Found, NotOne> {
    let mut several: Vec<Range<usize>> = Vec::new();
    for matcher in matchers {
        if !several.is_empty() && *matcher != Matcher::IndentationFlexible {
            continue;
        }
        let ranges = matcher.find(text, old);
        let wanted = match (several.is_empty(), ranges.len()) {
            (_, 0) => continue,
            (true, 1) => true,
            (true, _) => all,
            // It chooses among what was found before, and finds nothing else.
            (false, 1) => several.iter().any(|range| near(range, &ranges[0])),
            (false, _) => false,
        };
        if wanted {
            return Ok(Found { matcher: *matcher, ranges });
        }
        if several.is_empty() {
            several = ranges;
        }
    }
    match several.is_empty() {
        true => Err(NotOne::Nowhere),
        false => {
            let line = |range: &Range<usize>| text[..range.start].matches('\n').count() + 1;
            Err(NotOne::Several { lines: several.iter().map(line).collect() })
        }
    }
}

fn near(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

fn exact(text: &str, old: &str) -> Vec<Range<usize>> {
    match old.is_empty() {
        true => Vec::new(),
        false => text.match_indices(old).map(|(at, found)| at..at + found.len()).collect(),
    }
}

/// Whole lines, one by one alike.
fn by_line(text: &str, old: &str, same: impl Fn(&str, &str) -> bool) -> Vec<Range<usize>> {
    let (file, old) = (Lines::new(text), Lines::new(old));
    let count = old.len();
    let mut found = Vec::new();
    let mut at = 0;
    while at + count <= file.len() {
        if (0..count).all(|n| same(file.get(at + n), old.get(n))) {
            found.push(file.span(at, count, old.ends));
            at += count;
        } else {
            at += 1;
        }
    }
    found
}

/// Lines whose indentation differs by the same amount everywhere.
fn indentation(text: &str, old: &str) -> Vec<Range<usize>> {
    let (file, wanted) = (Lines::new(text), Lines::new(old));
    let flat = |lines: &Lines<'_>, from: usize, count: usize| -> Vec<String> {
        let some = (from..from + count).map(|n| lines.get(n)).filter(|line| !line.trim().is_empty());
        let least = some.map(|line| indent(line).len()).min().unwrap_or(0);
        let cut =
            |line: &str| line.get(least.min(indent(line).len())..).unwrap_or_default().trim_end().to_owned();
        (from..from + count).map(|n| cut(lines.get(n))).collect()
    };
    let count = wanted.len();
    let shape = flat(&wanted, 0, count);
    let first = wanted.get(0).trim();
    (0..(file.len() + 1).saturating_sub(count))
        .filter(|at| file.get(*at).trim() == first && flat(&file, *at, count) == shape)
        .map(|at| file.span(at, count, wanted.ends))
        .collect()
}

/// Finds in a simplified text, and says where that is in the real one.
fn mapped(text: &str, old: &str, simplify: fn(&str) -> (String, Vec<usize>)) -> Vec<Range<usize>> {
    let (simple_text, places) = simplify(text);
    let (simple_old, _) = simplify(old);
    if simple_old.trim().is_empty() {
        return Vec::new();
    }
    simple_text
        .match_indices(&simple_old)
        // Not from or to the middle of what one character stands for.
        .filter(|(at, _)| *at == 0 || places[*at] > places[*at - 1])
        .map(|(at, found)| places[at]..places[at + found.len()])
        .filter(|range| !range.is_empty())
        .collect()
}

/// Runs of blanks as one. A blank before a line's end is nothing.
fn blanks(text: &str) -> (String, Vec<usize>) {
    let mut simple = String::with_capacity(text.len());
    let mut places = Vec::with_capacity(text.len() + 1);
    let mut at = 0;
    let bytes = text.as_bytes();
    while at < bytes.len() {
        let run = bytes[at..].iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r')).count();
        if run > 0 {
            let end = at + run;
            if end < bytes.len() && bytes[end] != b'\n' {
                simple.push(' ');
                places.push(at);
            }
            at = end;
            continue;
        }
        let width = text[at..].chars().next().map_or(1, char::len_utf8);
        simple.push_str(&text[at..at + width]);
        places.extend(at..at + width);
        at += width;
    }
    places.push(text.len());
    (simple, places)
}

/// Typographic characters as those of a keyboard.
fn ascii(text: &str) -> (String, Vec<usize>) {
    let mut simple = String::with_capacity(text.len());
    let mut places = Vec::with_capacity(text.len() + 1);
    for (at, c) in text.char_indices() {
        let plain: &str = match c {
            '\u{2018}' | '\u{2019}' | '\u{201a}' | '\u{201b}' | '\u{2032}' => "'",
            '\u{201c}' | '\u{201d}' | '\u{201e}' | '\u{201f}' | '\u{2033}' => "\"",
            '\u{2010}'..='\u{2015}' | '\u{2212}' => "-",
            '\u{2026}' => "...",
            '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => " ",
            '\u{200b}' | '\u{feff}' => "",
            other => {
                simple.push(other);
                places.extend(at..at + other.len_utf8());
                continue;
            }
        };
        simple.push_str(plain);
        // A match that ends within what one character stands for ends before it.
        places.extend(std::iter::repeat_n(at, plain.len()));
    }
    places.push(text.len());
    (simple, places)
}

/// What text means that was escaped once too often; `None` if it was not.
pub(crate) fn unescaped(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    let mut changed = false;
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        let mut ahead = chars.clone();
        let plain = match ahead.next() {
            Some('n') => '\n',
            Some('t') => '\t',
            Some('r') => '\r',
            Some(quote @ ('"' | '\'' | '`' | '\\')) => quote,
            _ => {
                out.push('\\');
                continue;
            }
        };
        chars = ahead;
        out.push(plain);
        changed = true;
    }
    changed.then_some(out)
}

/// Blocks between two lines that are known: the first and the last.
fn anchored(text: &str, old: &str) -> Vec<Range<usize>> {
    let (file, old) = (Lines::new(text), Lines::new(old));
    let count = old.len();
    if count < 3 {
        return Vec::new();
    }
    let (first, last) = (old.get(0).trim(), old.get(count - 1).trim());
    if first.is_empty() || last.is_empty() {
        return Vec::new();
    }
    let mut compared = 0;
    let mut blocks: Vec<(Range<usize>, f64)> = Vec::new();
    for start in (0..file.len()).filter(|at| file.get(*at).trim() == first) {
        // A block that lost or gained half of its lines is another one.
        let (least, most) = (2.max(count / 2 + 1), count + count / 2);
        let ends =
            (start + least - 1..file.len().min(start + most)).filter(|end| file.get(*end).trim() == last);
        let mut best: Option<(Range<usize>, f64)> = None;
        for end in ends {
            let score = inner_likeness(&file, start, end, &old, &mut compared);
            if compared > MOST_COMPARED {
                return Vec::new();
            }
            if best.as_ref().is_none_or(|(_, known)| score > *known) {
                best = Some((file.span(start, end + 1 - start, old.ends), score));
            }
        }
        blocks.extend(best);
    }
    let least = if blocks.len() == 1 { ONE_BLOCK } else { SOME_BLOCKS };
    let kept: Vec<_> =
        blocks.into_iter().filter(|(_, score)| *score >= least).map(|(range, _)| range).collect();
    apart(kept)
}

fn inner_likeness(file: &Lines<'_>, start: usize, end: usize, old: &Lines<'_>, compared: &mut usize) -> f64 {
    let (inside, wanted) = (end - start - 1, old.len() - 2);
    let both = inside.max(wanted);
    if both == 0 {
        return 1.0;
    }
    let pairs = inside.min(wanted);
    *compared += pairs;
    let sum: f64 = (1..=pairs).map(|n| similar(file.get(start + n).trim(), old.get(n).trim())).sum();
    sum / to_f64(both)
}

/// As many lines in the same order, of which more than half are nearly the same, and at least two. Half would do for a
/// block of which only the first and the last line are there, and everything between is another one.
fn in_context(text: &str, old: &str) -> Vec<Range<usize>> {
    let (file, old) = (Lines::new(text), Lines::new(old));
    let count = old.len();
    // A single line that is nearly the same is another line; a bracket is in every file.
    let telling: Vec<usize> = (0..count).filter(|n| old.get(*n).trim().len() >= 4).collect();
    if count < 2 || telling.len() < 2 || file.len() < count {
        return Vec::new();
    }
    if (file.len() - count + 1).saturating_mul(telling.len()) > MOST_COMPARED {
        return Vec::new();
    }
    let needed = (telling.len() / 2 + 1).max(2);
    let mut best = (0, 0.0);
    let mut found: Vec<Range<usize>> = Vec::new();
    for at in 0..=file.len() - count {
        let (mut alike, mut sum) = (0, 0.0);
        for (done, n) in telling.iter().enumerate() {
            if alike + (telling.len() - done) < needed {
                break;
            }
            let likeness = similar(file.get(at + n).trim(), old.get(*n).trim());
            alike += usize::from(likeness >= SAME_LINE);
            sum += likeness;
        }
        if alike < needed {
            continue;
        }
        let score = (alike, sum);
        if score.0 > best.0 || (score.0 == best.0 && score.1 > best.1 + 1e-9) {
            best = score;
            found.clear();
        } else if score.0 < best.0 || score.1 < best.1 - 1e-9 {
            continue;
        }
        found.push(file.span(at, count, old.ends));
    }
    apart(found)
}

/// Without those that overlap one before.
fn apart(ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    let mut kept: Vec<Range<usize>> = Vec::new();
    for range in ranges {
        if kept.last().is_none_or(|last| last.end <= range.start) {
            kept.push(range);
        }
    }
    kept
}

fn to_f64(n: usize) -> f64 {
    f64::from(u32::try_from(n).unwrap_or(u32::MAX))
}

#[cfg(test)]
#[path = "matching_tests.rs"]
mod tests;
