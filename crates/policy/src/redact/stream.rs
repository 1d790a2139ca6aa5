//! Redaction of text that comes in pieces: a secret may be cut anywhere.

use super::{MAX_SECRET, Redactor, private_key_at, shape_hits};

/// Lines up to this length are waited for.
const MAX_LINE: usize = 8 * 1024;

/// Text that comes in pieces, of which some is held back.
///
/// Whole lines are given out, as far as no secret reaches over their end: a known value of several words, a private
/// key that is still open. Of a line that has no end for long, what ends at a blank is given out. At most 48 KiB are
/// held back; a secret of 16 KiB and more may then be cut, which is the price for bounded memory.
#[derive(Debug)]
pub struct Stream<'r> {
    redactor: &'r Redactor,
    held: String,
}

impl<'r> Stream<'r> {
    pub(super) fn new(redactor: &'r Redactor) -> Self {
        Self { redactor, held: String::new() }
    }

    /// Takes a piece, and gives what can be shown.
    pub fn push(&mut self, piece: &str) -> String {
        let before = self.held.len();
        self.held.push_str(piece);
        // Nothing new can be cut without a new line or a long one.
        if !piece.contains('\n') && self.held.len() < MAX_LINE && before > 0 {
            return String::new();
        }
        let cut = self.cut();
        if cut == 0 {
            return String::new();
        }
        let rest = self.held.split_off(cut);
        let ready = std::mem::replace(&mut self.held, rest);
        self.redactor.redact(&ready).into_owned()
    }

    /// Gives out what is held back, when a person waits for it (a prompt has no newline). A secret of which only a
    /// part has come is shown in that part, so this is for silence, not for every piece.
    pub fn flush(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        self.redactor.redact(&held).into_owned()
    }

    /// The rest, when nothing more comes.
    pub fn finish(mut self) -> String {
        self.flush()
    }

    /// How much is held back at the moment.
    pub fn pending(&self) -> usize {
        self.held.len()
    }

    /// Up to where the text can be given out.
    fn cut(&self) -> usize {
        let held = self.held.as_str();
        let line = held.rfind('\n').map_or(0, |at| at + 1);
        let cut = self.before_secrets(line);
        if cut > 0 || held.len() <= MAX_LINE {
            return cut;
        }
        // A long line: at a blank, with room behind it for a token that has begun.
        let room = self.boundary(held.len().saturating_sub(MAX_LINE / 2));
        let blank = held[..room].rfind([' ', '\t']).map_or(0, |at| at + 1);
        let cut = self.before_secrets(blank);
        if cut > 0 || held.len() <= 2 * MAX_SECRET {
            return cut;
        }
        let forced = self.boundary(held.len() - MAX_SECRET);
        match self.before_secrets(forced) {
            0 => forced,
            cut => cut,
        }
    }

    fn boundary(&self, mut at: usize) -> usize {
        while !self.held.is_char_boundary(at) {
            at -= 1;
        }
        at
    }

    /// Moves a cut to the front of what must not be cut.
    fn before_secrets(&self, mut cut: usize) -> usize {
        if cut == 0 {
            return 0;
        }
        let held = self.held.as_str();
        if let Some(begin) = private_key_at(held, cut) {
            cut = begin;
        }
        if let Some(values) = &self.redactor.values {
            // A value that goes over the cut, or one that may do so once more has come.
            let from = self.boundary(cut.saturating_sub(self.redactor.longest));
            let over = values
                .find_iter(&held[from..])
                .map(|found| (from + found.start(), from + found.end()))
                .find(|(start, end)| *start < cut && *end > cut);
            if let Some((start, _)) = over {
                cut = start;
            }
        }
        let over = shape_hits(held).into_iter().filter(|(start, end, _)| *start < cut && *end > cut);
        over.map(|(start, _, _)| start).min().unwrap_or(cut)
    }
}
