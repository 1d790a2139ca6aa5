//! How output is shown to a model: as text, without escape sequences and secrets, and cut in the middle if it is long.

mod ansi;
mod screen;

pub(crate) use ansi::plain;
pub(crate) use screen::lines as terminal_lines;

use farshell_api::run::Size;
use farshell_engine::capture::HeadTail;
use farshell_policy::Redactor;

/// Characters of output that a model gets to see: two fifths from the beginning and three from the end.
pub(crate) const MOST: usize = 50_000;
/// Bytes of output that are kept for that. Escape sequences may be many times longer than the text.
const WINDOW: usize = 640 << 10;
/// A cut is moved to a line's end if there is one in the last so many characters.
const NEAR: usize = 4_000;

/// Output as it comes: its beginning, its end, and how much there was.
#[derive(Debug)]
pub(crate) struct Output {
    kept: HeadTail,
    newlines: u64,
    /// Characters that are shown.
    most: usize,
}

impl Default for Output {
    fn default() -> Self {
        Self::showing(MOST)
    }
}

/// Where what was left out can be read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rest<'a> {
    /// In the log of this process.
    Log(&'a str),
    Nowhere,
}

/// Output as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) text: String,
    pub(crate) omitted: Option<Omitted>,
}

/// What was left out, so that it can be read from the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Omitted {
    /// Bytes of the log, from and to.
    pub(crate) bytes: (u64, u64),
    /// Lines of the log, from and to, counted from 0; the last one may be left out in part.
    pub(crate) lines: (u64, u64),
    pub(crate) total_bytes: u64,
    pub(crate) total_lines: u64,
}

/// A cut through the text of some bytes.
struct Cut {
    /// Characters of text up to here (head), or from here (tail), in bytes of text.
    text: usize,
    /// The same place in the bytes.
    raw: usize,
}

impl Output {
    /// Of which so many characters will be shown.
    pub(crate) fn showing(most: usize) -> Self {
        Self { kept: HeadTail::new(WINDOW), newlines: 0, most }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.newlines += memchr::memchr_iter(b'\n', bytes).count() as u64;
        self.kept.push(bytes);
    }

    pub(crate) fn total(&self) -> u64 {
        self.kept.total()
    }

    /// What a model sees of it. `pty`: it went over a terminal of this size.
    pub(crate) fn shown(&self, redactor: &Redactor, pty: Option<Size>, rest: Rest<'_>) -> Shown {
        let text = |bytes: &[u8]| match pty {
            Some(size) => terminal_lines(size, bytes),
            None => plain(bytes, usize::MAX).0,
        };
        if !self.kept.truncated() {
            let bytes = self.kept.to_bytes();
            let whole = text(&bytes);
            if within(&whole, self.most) {
                return Shown { text: tidy(&redactor.redact(&whole)), omitted: None };
            }
            return self.cut(&bytes, &whole, &bytes, &whole, redactor, pty, rest);
        }
        let (head, tail) = (self.kept.head(), self.kept.tail());
        // The first line of the end may begin in the middle of anything.
        let start = memchr::memchr(b'\n', &tail[..tail.len().min(WINDOW / 4)]).map_or(0, |at| at + 1);
        let start = start + tail[start..].iter().take(3).take_while(|b| **b & 0xc0 == 0x80).count();
        let tail = &tail[start..];
        self.cut(head, &text(head), tail, &text(tail), redactor, pty, rest)
    }

    #[expect(clippy::too_many_arguments, reason = "two ends, each as bytes and as text")]
    fn cut(
        &self,
        head_bytes: &[u8],
        head: &str,
        tail_bytes: &[u8],
        tail: &str,
        redactor: &Redactor,
        pty: Option<Size>,
        rest: Rest<'_>,
    ) -> Shown {
        let raw = |bytes: &[u8], text: &str| match pty {
            // Where a line of a screen is in the output can't be said.
            Some(_) => None,
            None => Some(plain(bytes, text.chars().count()).1),
        };
        let shown = self.most / 5 * 2;
        let first = head_end(head, shown);
        let first = Cut { text: first, raw: raw(head_bytes, &head[..first]).unwrap_or(0) };
        let last = tail_start(tail, self.most - shown);
        let last = Cut { text: last, raw: raw(tail_bytes, &tail[..last]).unwrap_or(tail_bytes.len()) };
        let total = self.kept.total();
        let tail_from = total - tail_bytes.len() as u64;
        let count = |bytes: &[u8]| memchr::memchr_iter(b'\n', bytes).count() as u64;
        let (from, to) = (first.raw as u64, tail_from + last.raw as u64);
        let omitted = Omitted {
            bytes: (from, to),
            lines: (count(&head_bytes[..first.raw]), self.newlines - count(&tail_bytes[last.raw..])),
            total_bytes: total,
            total_lines: self.newlines,
        };
        let shown_head =
            common_start(&redactor.redact(&head[..first.text]), &redactor.redact(head)).to_owned();
        let shown_tail = common_end(&redactor.redact(&tail[last.text..]), &redactor.redact(tail)).to_owned();
        let notice = notice(&omitted, pty.is_some(), rest);
        let text = format!("{}\n\n{notice}\n\n{}", shown_head.trim_end(), tidy(&shown_tail));
        Shown { text, omitted: Some(omitted) }
    }
}

/// Says what is missing, and how to read it.
fn notice(omitted: &Omitted, pty: bool, rest: Rest<'_>) -> String {
    let Omitted { bytes: (from, to), lines: (first, last), total_bytes, total_lines } = omitted;
    let Rest::Log(id) = rest else {
        return format!("[... {} of {total_bytes} bytes are left out ...]", to.saturating_sub(*from));
    };
    if pty {
        return format!(
            "[... the middle of {total_bytes} bytes ({total_lines} lines) of output is left out; read it with \
             process(action=\"log\", session_id=\"{id}\", offset=LINE, limit=LINES) ...]"
        );
    }
    let left_out = to.saturating_sub(*from);
    let by_line = match last > first {
        true => format!("offset={first}, limit={}", (last - first).min(2000)),
        false => format!("byte_offset={from}"),
    };
    format!(
        "[... {left_out} of {total_bytes} bytes are left out: bytes {from} to {to}, lines {first} to {last} of \
         {total_lines}; read them with process(action=\"log\", session_id=\"{id}\", {by_line}) ...]"
    )
}

fn within(text: &str, most: usize) -> bool {
    text.len() <= most || text.chars().nth(most).is_none()
}

/// How far the beginning is shown.
fn head_end(text: &str, most: usize) -> usize {
    let Some((end, _)) = text.char_indices().nth(most) else { return text.len() };
    let near = text.floor_char_boundary(end.saturating_sub(NEAR));
    text[near..end].rfind('\n').map_or(end, |at| near + at + 1)
}

/// From where the end is shown.
fn tail_start(text: &str, most: usize) -> usize {
    let Some((start, _)) = text.char_indices().nth_back(most.saturating_sub(1)) else { return 0 };
    let near = text.floor_char_boundary((start + NEAR).min(text.len()));
    text[start..near].find('\n').map_or(start, |at| start + at + 1)
}

/// A secret that the cut went through differs from there on between the two: none of it is shown.
fn common_start<'t>(cut: &'t str, whole: &str) -> &'t str {
    let same = cut.bytes().zip(whole.bytes()).take_while(|(a, b)| a == b).count();
    &cut[..cut.floor_char_boundary(same)]
}

fn common_end<'t>(cut: &'t str, whole: &str) -> &'t str {
    let same = cut.bytes().rev().zip(whole.bytes().rev()).take_while(|(a, b)| a == b).count();
    &cut[cut.ceil_char_boundary(cut.len() - same)..]
}

fn tidy(text: &str) -> String {
    text.trim_end().to_owned()
}

/// The last so many characters, for previews.
pub(crate) fn last(text: &str, most: usize) -> &str {
    match most.checked_sub(1).and_then(|n| text.char_indices().nth_back(n)) {
        Some((start, _)) => &text[start..],
        None if most == 0 => "",
        None => text,
    }
}

/// The first so many characters.
pub(crate) fn first(text: &str, most: usize) -> &str {
    text.char_indices().nth(most).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests;
