//! Assignments in front of a command.

use super::ast::{Assigned, Assignment, Part, Word};
use super::parser::{Parser, Result};

impl Parser<'_> {
    /// An assignment, or else the word that stands here. `arrays_only`: scalars are left as words.
    pub(super) fn assignment(&mut self, arrays_only: bool) -> Result<std::result::Result<Assignment, Word>> {
        let start = self.at;
        let mut name = String::new();
        while let Some(byte @ (b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'0'..=b'9')) = self.peek() {
            if name.is_empty() && byte.is_ascii_digit() {
                break;
            }
            name.push(byte.into());
            self.at += 1;
            self.step()?;
        }
        let mut index = None;
        if !name.is_empty() && self.peek() == Some(b'[') {
            // What was parsed as a subscript stays parsed if it turns out to be none: parsing it again at every
            // level would double the work with each.
            self.at += 1;
            let subscript = self.nested(|this| this.word_until(b']', false))?;
            if self.peek() == Some(b']') {
                self.at += 1;
            } else {
                return Err(self.syntax());
            }
            if self.looking_at("=").is_none() && self.looking_at("+=").is_none() {
                let mut word = Word::default();
                for c in name.chars() {
                    word.push(c, false);
                }
                word.parts.push(Part::Glob('['));
                word.parts.extend(subscript.parts);
                word.push(']', false);
                self.word_into(&mut word)?;
                return Ok(Err(word));
            }
            index = Some(subscript);
        }
        let append = !name.is_empty() && self.accept("+=");
        if name.is_empty() || (!append && !self.accept("=")) {
            self.at = start;
            return Ok(Err(self.word()?));
        }
        if self.peek() == Some(b'(') {
            self.at += 1;
            let words = self.nested(Self::array)?;
            return Ok(Ok(Assignment { name, index, append, value: Assigned::Array(words) }));
        }
        if arrays_only {
            self.at = start;
            return Ok(Err(self.word()?));
        }
        let value = Assigned::Scalar(self.assigned_word()?);
        Ok(Ok(Assignment { name, index, append, value }))
    }

    fn array(&mut self) -> Result<Vec<Word>> {
        let mut words = Vec::new();
        loop {
            self.skip_newlines()?;
            if self.accept(")") {
                return Ok(words);
            }
            let word = self.word()?;
            if word.parts.is_empty() {
                return Err(self.syntax());
            }
            words.push(word);
        }
    }
}
