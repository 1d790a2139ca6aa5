//! Redirections and here-documents.

use super::ast::{Part, Redirect, RedirectKind, Word};
use super::parser::{Parser, Result};
use std::cell::OnceCell;
use std::rc::Rc;

/// A here-document whose body has not been reached yet.
pub(super) struct Pending {
    delimiter: String,
    expands: bool,
    strip_tabs: bool,
    body: Rc<OnceCell<Word>>,
}

impl Parser<'_> {
    pub(super) fn redirect(&mut self) -> Result<Option<Redirect>> {
        let start = self.at;
        self.peek();
        // A descriptor's number or `{name}` directly in front of the operator.
        if self.peek() == Some(b'{') {
            self.at += 1;
            while let Some(b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'0'..=b'9') = self.peek() {
                self.at += 1;
                self.step()?;
            }
            if !self.accept("}") || !matches!(self.peek(), Some(b'<' | b'>')) {
                self.at = start;
                return Ok(None);
            }
        } else {
            while let Some(b'0'..=b'9') = self.peek() {
                self.at += 1;
                self.step()?;
            }
        }
        let numbered = self.at != start;
        if !matches!(self.peek(), Some(b'<' | b'>' | b'&')) {
            self.at = start;
            return Ok(None);
        }
        if self.looking_at("<(").is_some() || self.looking_at(">(").is_some() {
            self.at = start;
            return Ok(None);
        }
        let operators = ["<<<", "<<-", "<<", "<>", "<&", "<", ">>", ">&", ">|", ">", "&>>", "&>"];
        let Some(operator) = operators.iter().find(|operator| {
            (!numbered || !operator.starts_with('&')) && self.looking_at(operator).is_some()
        }) else {
            self.at = start;
            return Ok(None);
        };
        self.accept(operator);
        self.skip_blanks_in_redirect()?;
        if let "<<" | "<<-" = *operator {
            return self.here_delimiter(*operator == "<<-").map(Some);
        }
        let target = self.word()?;
        if target.parts.is_empty() {
            return Err(self.syntax());
        }
        let descriptor =
            target.bare().is_some_and(|text| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-'));
        let kind = match *operator {
            "<" => RedirectKind::Read,
            "<<<" => RedirectKind::HereString,
            "<&" => RedirectKind::Duplicate,
            ">&" if descriptor => RedirectKind::Duplicate,
            ">>" | "&>>" => RedirectKind::Append,
            _ => RedirectKind::Write,
        };
        Ok(Some(Redirect { kind, target }))
    }

    /// No comment begins between an operator and its word.
    fn skip_blanks_in_redirect(&mut self) -> Result<()> {
        while let Some(b' ' | b'\t') = self.peek() {
            self.step()?;
            self.at += 1;
        }
        Ok(())
    }

    fn here_delimiter(&mut self, strip_tabs: bool) -> Result<Redirect> {
        let start = self.at;
        let word = self.word()?;
        if word.parts.is_empty() {
            return Err(self.syntax());
        }
        let raw = self.text.get(start..self.at).unwrap_or_default();
        let expands = !raw.contains(['\'', '"', '\\']);
        let mut delimiter = String::new();
        for part in &word.parts {
            match part {
                Part::Text(text) | Part::Quoted(text) => delimiter.push_str(text),
                Part::Glob(c) | Part::Brace(c) => delimiter.push(*c),
                Part::Tilde(name) => {
                    delimiter.push('~');
                    delimiter.push_str(name);
                }
                // Bash takes `$x` literally here. Nobody writes that.
                _ => return Err(self.syntax()),
            }
        }
        let body = Rc::new(OnceCell::new());
        self.pending.push(Pending { delimiter, expands, strip_tabs, body: Rc::clone(&body) });
        Ok(Redirect { kind: RedirectKind::HereDocument(body), target: Word::default() })
    }

    pub(super) fn here_document(&mut self, pending: &Pending) -> Result<()> {
        let mut body = String::new();
        loop {
            self.step()?;
            if self.at >= self.bytes.len() {
                // Bash takes the end of the text for the end of the document, with a warning.
                break;
            }
            let mut line = String::new();
            loop {
                let rest = self.text.get(self.at..).unwrap_or_default();
                let end = rest.find('\n').unwrap_or(rest.len());
                let piece = &rest[..end];
                self.at = (self.at + end + 1).min(self.bytes.len());
                let backslashes = piece.bytes().rev().take_while(|&byte| byte == b'\\').count();
                if pending.expands && backslashes % 2 == 1 && end < rest.len() {
                    line.push_str(&piece[..piece.len() - 1]);
                    self.step()?;
                } else {
                    line.push_str(piece);
                    break;
                }
            }
            let line = if pending.strip_tabs { line.trim_start_matches('\t') } else { &line };
            if line == pending.delimiter {
                break;
            }
            body.push_str(line);
            body.push('\n');
        }
        let word = if pending.expands {
            super::word::here_body(&body, self.depth())?
        } else {
            let mut word = Word::default();
            for c in body.chars() {
                word.push(c, true);
            }
            word
        };
        // Each document is read once.
        let _ = pending.body.set(word);
        Ok(())
    }
}
