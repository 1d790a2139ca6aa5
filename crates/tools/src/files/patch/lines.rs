//! Text as lines with their places.

use std::ops::Range;

/// Lines of a text, without their ends.
#[derive(Debug)]
pub(crate) struct Lines<'t> {
    text: &'t str,
    places: Vec<Range<usize>>,
    /// The text ends with a line's end.
    pub(crate) ends: bool,
}

impl<'t> Lines<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        let ends = text.ends_with('\n');
        let body = text.strip_suffix('\n').unwrap_or(text);
        let mut places = Vec::new();
        let mut at = 0;
        for line in body.split('\n') {
            places.push(at..at + line.len());
            at += line.len() + 1;
        }
        Self { text, places, ends }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn get(&self, n: usize) -> &'t str {
        self.places.get(n).map_or("", |place| &self.text[place.clone()])
    }

    /// Where so many lines are; with the end of the last one, if that is wanted and there is one.
    pub(crate) fn span(&self, from: usize, count: usize, with_end: bool) -> Range<usize> {
        let start = self.places.get(from).map_or(self.text.len(), |place| place.start);
        let end = self.places.get(from + count - 1).map_or(self.text.len(), |place| place.end);
        let more = usize::from(with_end && self.text[end..].starts_with('\n'));
        start..end + more
    }
}

/// The blanks a line begins with.
pub(crate) fn indent(line: &str) -> &str {
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// How alike two lines are, from 0 to 1.
pub(crate) fn similar(a: &str, b: &str) -> f64 {
    if a == b {
        return 1.0;
    }
    let (short, long) = if a.len() < b.len() { (a.len(), b.len()) } else { (b.len(), a.len()) };
    // Where the lengths alone say no, and where the comparison would cost more than it is worth.
    if short * 4 < long || long > 2000 {
        return 0.0;
    }
    strsim::normalized_levenshtein(a, b)
}

/// `new` with the indentation that the file has where `old` was found with another one.
pub(crate) fn reindented(new: &str, old: &str, found: &str) -> String {
    let first =
        |text: &str| text.lines().find(|line| !line.trim().is_empty()).map(|line| indent(line).to_owned());
    let (Some(given), Some(real)) = (first(old), first(found)) else { return new.to_owned() };
    if given == real {
        return new.to_owned();
    }
    let mut out = String::with_capacity(new.len());
    for line in new.split_inclusive('\n') {
        match line.strip_prefix(given.as_str()) {
            _ if line.trim().is_empty() => out.push_str(line),
            Some(rest) => {
                out.push_str(&real);
                out.push_str(rest);
            }
            // Further out than where it began.
            None => {
                let own = indent(line);
                let keep = real.len().saturating_sub(given.len() - own.len().min(given.len()));
                out.push_str(real.get(..keep).unwrap_or_default());
                out.push_str(&line[own.len()..]);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_lines() {
        let lines = Lines::new("a\nbb\n\nc");
        assert_eq!((lines.len(), lines.get(1), lines.ends), (4, "bb", false));
        assert_eq!(lines.span(1, 2, false), 2..5);
        assert_eq!(lines.span(1, 1, true), 2..5);
        assert_eq!(lines.span(3, 1, true), 6..7);
        assert_eq!(Lines::new("").len(), 1);
    }

    #[test]
    fn indentation_follows_the_file() {
        assert_eq!(reindented("if x:\n    y\n", "if x:\n", "    if x:\n"), "    if x:\n        y\n");
        assert_eq!(
            reindented("        a\n    b\n", "        a\n", "\t\ta\n"),
            "\t\ta\n    b\n".replace("    b", "b")
        );
        assert_eq!(reindented("  a\n\n  b", "  a", "      a"), "      a\n\n      b");
        assert_eq!(reindented("a", "a", "a"), "a");
    }
}
