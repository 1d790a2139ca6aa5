//! Words: quotes, expansions, and what has a meaning when it is not quoted.

use super::ast::{Node, Parameter, Part, Word};
use super::parser::{Parser, Result, Trouble, parse_at};
use std::rc::Rc;

/// Where a word ends, and what quotes mean in it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// At a blank or an operator.
    Blank,
    /// At this byte: the word of `${x:-…}`, a subscript. `quoted`: it stands in double quotes.
    Byte { end: u8, quoted: bool },
    /// At a `"`.
    Quote,
    /// At the `))` (or `]`) of an arithmetic expression.
    Arithmetic(u8),
    /// At the end of the text: the body of a here-document.
    End,
}

/// The body of a here-document, in which expansions happen and quotes mean nothing.
pub(super) fn here_body(text: &str, depth: u32) -> Result<Word> {
    let mut parser = Parser::new(text, depth);
    let mut word = Word::default();
    parser.nested(|this| this.fill(&mut word, Until::End))?;
    Ok(word)
}

/// Text that a shell may expand later (a prompt, a value in arithmetic): its expansions. `None`: it has none, or
/// it can't be read as such.
pub(crate) fn expandable(text: &str) -> Option<Word> {
    if !text.contains("$(") && !text.contains('`') {
        return None;
    }
    here_body(text, 0).ok()
}

impl Parser<'_> {
    /// A word of a command; empty if there is none.
    pub(super) fn word(&mut self) -> Result<Word> {
        let mut word = Word::default();
        self.word_into(&mut word)?;
        Ok(word)
    }

    pub(super) fn word_into(&mut self, word: &mut Word) -> Result<()> {
        if word.parts.is_empty() {
            self.tilde(word)?;
        }
        self.fill(word, Until::Blank)
    }

    /// The value of an assignment: a `~` also counts behind a colon.
    pub(super) fn assigned_word(&mut self) -> Result<Word> {
        self.word()
    }

    /// Up to `end`, which is left to the caller.
    pub(super) fn word_until(&mut self, end: u8, quoted: bool) -> Result<Word> {
        let mut word = Word::default();
        self.fill(&mut word, Until::Byte { end, quoted })?;
        Ok(word)
    }

    fn tilde(&mut self, word: &mut Word) -> Result<()> {
        if self.peek() != Some(b'~') {
            return Ok(());
        }
        let start = self.at;
        self.at += 1;
        let mut name = String::new();
        while let Some(byte @ (b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'+')) =
            self.peek()
        {
            name.push(byte.into());
            self.at += 1;
            self.step()?;
        }
        match self.peek() {
            None
            | Some(b'/' | b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b')' | b'(' | b'<' | b'>' | b':') => {
                word.parts.push(Part::Tilde(name));
            }
            // `~"x"`, `~$x`: no home directory.
            _ => self.at = start,
        }
        Ok(())
    }

    fn fill(&mut self, word: &mut Word, until: Until) -> Result<()> {
        // Parentheses that were opened inside an arithmetic expression.
        let mut open = 0u32;
        let in_quotes = matches!(until, Until::Quote | Until::End | Until::Byte { quoted: true, .. });
        loop {
            self.step()?;
            let Some(byte) = self.peek() else {
                return if matches!(until, Until::Blank | Until::End) { Ok(()) } else { Err(self.syntax()) };
            };
            match until {
                Until::Blank => match byte {
                    b'<' | b'>' if self.looking_at("<(").is_some() || self.looking_at(">(").is_some() => {
                        let reads = byte == b'<';
                        self.at = self.looking_at(if reads { "<(" } else { ">(" }).unwrap_or(self.at);
                        let body = Rc::new(self.parenthesised()?);
                        word.parts.push(Part::Process { body, reads });
                        continue;
                    }
                    b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'(' | b')' | b'<' | b'>' => return Ok(()),
                    _ => {}
                },
                Until::Byte { end, .. } if byte == end => return Ok(()),
                Until::Quote if byte == b'"' => return Ok(()),
                Until::Arithmetic(end) if byte == end && open == 0 => return Ok(()),
                Until::Arithmetic(_) if byte == b'(' => open += 1,
                Until::Arithmetic(_) if byte == b')' => {
                    open = open.checked_sub(1).ok_or(self.syntax())?;
                }
                _ => {}
            }
            match byte {
                b'\\' => self.escaped(word, until)?,
                b'$' => {
                    self.at += 1;
                    self.dollar(word, in_quotes)?;
                }
                b'`' => self.backticks(word, in_quotes)?,
                b'"' if until == Until::End => self.literal(word, true)?,
                b'"' => {
                    self.at += 1;
                    self.double_quoted(word)?;
                }
                b'\'' if !in_quotes => self.single_quoted(word)?,
                _ if in_quotes => self.literal(word, true)?,
                b'*' | b'?' | b'[' if until == Until::Blank => {
                    self.at += 1;
                    word.parts.push(Part::Glob(byte.into()));
                }
                b'{' | b',' | b'}' if until == Until::Blank => {
                    self.at += 1;
                    word.parts.push(Part::Brace(byte.into()));
                }
                _ => self.literal(word, false)?,
            }
        }
    }

    fn literal(&mut self, word: &mut Word, quoted: bool) -> Result<()> {
        if let Some(c) = self.take_raw()? {
            word.push(c, quoted);
        }
        Ok(())
    }

    fn escaped(&mut self, word: &mut Word, until: Until) -> Result<()> {
        self.at += 1;
        let Some(next) = self.raw() else {
            word.push('\\', true);
            return Ok(());
        };
        let special = match until {
            Until::Quote | Until::Byte { quoted: true, .. } => {
                matches!(next, '$' | '`' | '"' | '\\') || (until != Until::Quote && next == '}')
            }
            Until::End => matches!(next, '$' | '`' | '\\'),
            Until::Blank | Until::Byte { .. } | Until::Arithmetic(_) => true,
        };
        if special {
            self.take_raw()?;
            word.push(next, true);
        } else {
            word.push('\\', true);
        }
        Ok(())
    }

    fn single_quoted(&mut self, word: &mut Word) -> Result<()> {
        self.at += 1;
        let rest = self.text.get(self.at..).unwrap_or_default();
        let end = rest.find('\'').ok_or(self.syntax())?;
        self.at += end + 1;
        word.parts.push(Part::Quoted(rest[..end].to_owned()));
        Ok(())
    }

    fn double_quoted(&mut self, word: &mut Word) -> Result<()> {
        // Also `""` makes a word.
        word.parts.push(Part::Quoted(String::new()));
        self.nested(|this| this.fill(word, Until::Quote))?;
        self.expect("\"")
    }

    fn backticks(&mut self, word: &mut Word, quoted: bool) -> Result<()> {
        self.at += 1;
        let mut inner = String::new();
        loop {
            match self.take_raw()?.ok_or(self.syntax())? {
                '`' => break,
                '\\' => match self.take_raw()?.ok_or(self.syntax())? {
                    c @ ('`' | '\\' | '$') => inner.push(c),
                    '"' if quoted => inner.push('"'),
                    '\n' => {}
                    c => {
                        inner.push('\\');
                        inner.push(c);
                    }
                },
                c => inner.push(c),
            }
        }
        let depth = self.depth();
        let parsed = self.nested(|_| {
            let parsed = parse_at(&inner, depth + 1);
            match parsed.trouble {
                None => Ok(parsed.node),
                Some(trouble) => Err(trouble),
            }
        });
        let body = parsed.map_err(|trouble| match trouble {
            Trouble::Syntax(_) => self.syntax(),
            Trouble::TooDeep => Trouble::TooDeep,
        })?;
        word.parts.push(Part::Command { body: Rc::new(body), quoted });
        Ok(())
    }

    /// What comes behind an opening parenthesis: commands up to the closing one.
    pub(super) fn parenthesised(&mut self) -> Result<Node> {
        let outer = std::mem::take(&mut self.pending);
        let node = self.list(&[")"])?;
        self.expect(")")?;
        // A here-document that begins behind the parenthesis: bash takes lines from outside of it.
        if !self.pending.is_empty() {
            return Err(self.syntax());
        }
        self.pending = outer;
        Ok(node)
    }

    fn dollar(&mut self, word: &mut Word, quoted: bool) -> Result<()> {
        let Some(byte) = self.peek() else {
            word.push('$', true);
            return Ok(());
        };
        match byte {
            b'(' => {
                if let Some(after) = self.looking_at("((") {
                    let start = self.at;
                    self.at = after;
                    if let Some(inner) = self.arithmetic()? {
                        word.parts.push(Part::Arithmetic(inner));
                        return Ok(());
                    }
                    self.at = start;
                }
                self.at += 1;
                let body = Rc::new(self.parenthesised()?);
                word.parts.push(Part::Command { body, quoted });
            }
            b'[' => {
                self.at += 1;
                let mut inner = Word::default();
                self.nested(|this| this.fill(&mut inner, Until::Arithmetic(b']')))?;
                self.expect("]")?;
                word.parts.push(Part::Arithmetic(inner));
            }
            b'{' => {
                self.at += 1;
                self.nested(|this| this.braced(word, quoted))?;
            }
            b'\'' if !quoted => {
                self.at += 1;
                self.ansi_quoted(word)?;
            }
            b'"' if !quoted => {
                self.at += 1;
                self.double_quoted(word)?;
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                let name = self.name()?;
                word.parts.push(parameter(name, quoted));
            }
            b'0'..=b'9' | b'@' | b'*' | b'#' | b'?' | b'-' | b'$' | b'!' => {
                self.at += 1;
                word.parts.push(parameter(char::from(byte).into(), quoted));
            }
            _ => word.push('$', true),
        }
        Ok(())
    }

    /// Behind `((`: the expression up to `))`, or `None` if these are two parentheses for commands.
    pub(super) fn arithmetic(&mut self) -> Result<Option<Word>> {
        let mut inner = Word::default();
        match self.nested(|this| this.fill(&mut inner, Until::Arithmetic(b')'))) {
            Ok(()) => Ok(self.accept("))").then_some(inner)),
            Err(Trouble::Syntax(_)) => Ok(None),
            Err(trouble) => Err(trouble),
        }
    }

    fn name(&mut self) -> Result<String> {
        let mut name = String::new();
        while let Some(byte @ (b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_')) = self.peek() {
            name.push(byte.into());
            self.at += 1;
            self.step()?;
        }
        Ok(name)
    }

    /// Behind `${`.
    fn braced(&mut self, word: &mut Word, quoted: bool) -> Result<()> {
        if matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'|')) {
            // `${ commands; }` of newer versions.
            self.accept("|");
            let body = Rc::new(self.list(&["}"])?);
            self.expect("}")?;
            word.parts.push(Part::Command { body, quoted });
            return Ok(());
        }
        let mut found = Parameter {
            name: String::new(),
            index: None,
            indirect: false,
            length: false,
            operator: None,
            quoted,
        };
        if self.looking_at("#}").is_none() && self.accept("#") {
            found.length = true;
        } else if self.looking_at("!}").is_none() && self.accept("!") {
            found.indirect = true;
        }
        found.name = self.name()?;
        if found.name.is_empty() {
            match self.peek() {
                Some(byte @ (b'@' | b'*' | b'#' | b'?' | b'-' | b'$' | b'!')) => {
                    self.at += 1;
                    found.name.push(byte.into());
                }
                // `${#:-x}` and the like: the mark was the name.
                _ if found.length => {
                    found.length = false;
                    found.name.push('#');
                }
                _ if found.indirect => {
                    found.indirect = false;
                    found.name.push('!');
                }
                _ => return Err(self.syntax()),
            }
        }
        if self.peek() == Some(b'[') {
            self.at += 1;
            found.index = Some(self.nested(|this| this.word_until(b']', false))?);
            self.expect("]")?;
        }
        let operators = [":-", ":=", ":+", ":?", "##", "%%", "//", "/#", "/%", "^^", ",,"];
        let mut operator = String::new();
        for candidate in operators {
            if self.accept(candidate) {
                operator = candidate.into();
                break;
            }
        }
        if operator.is_empty() {
            match self.peek() {
                Some(b'}') => {
                    self.at += 1;
                    word.parts.push(Part::Parameter(Box::new(found)));
                    return Ok(());
                }
                Some(
                    byte
                    @ (b'-' | b'=' | b'+' | b'?' | b'#' | b'%' | b'/' | b'^' | b',' | b':' | b'@' | b'*'),
                ) => {
                    self.at += 1;
                    operator.push(byte.into());
                }
                _ => return Err(self.syntax()),
            }
        }
        // In double quotes, single quotes keep their meaning in patterns only.
        let pattern = operator.starts_with(['#', '%', '/', '^', ',']);
        let argument = self.word_until(b'}', quoted && !pattern)?;
        self.expect("}")?;
        found.operator = Some((operator, argument));
        word.parts.push(Part::Parameter(Box::new(found)));
        Ok(())
    }

    /// Behind `$'`.
    fn ansi_quoted(&mut self, word: &mut Word) -> Result<()> {
        let mut bytes = Vec::new();
        loop {
            let c = self.take_raw()?.ok_or(self.syntax())?;
            if c == '\'' {
                break;
            }
            if c != '\\' {
                push(&mut bytes, c);
                continue;
            }
            let c = self.take_raw()?.ok_or(self.syntax())?;
            match c {
                'a' => bytes.push(7),
                'b' => bytes.push(8),
                'e' | 'E' => bytes.push(27),
                'f' => bytes.push(12),
                'n' => bytes.push(b'\n'),
                'r' => bytes.push(b'\r'),
                't' => bytes.push(b'\t'),
                'v' => bytes.push(11),
                '\\' | '\'' | '"' | '?' => push(&mut bytes, c),
                '0'..='7' => {
                    self.at -= 1;
                    let value = self.digits(3, 8)?;
                    bytes.push(value as u8);
                }
                'x' => {
                    let value = self.digits(2, 16)?;
                    bytes.push(value as u8);
                }
                'u' | 'U' => {
                    let value = self.digits(if c == 'u' { 4 } else { 8 }, 16)?;
                    push(&mut bytes, char::from_u32(value).unwrap_or('\u{fffd}'));
                }
                'c' => {
                    let control = self.take_raw()?.ok_or(self.syntax())?;
                    bytes.push((control as u32 & 0x1f) as u8);
                }
                _ => {
                    bytes.push(b'\\');
                    push(&mut bytes, c);
                }
            }
        }
        // A zero byte ends the string.
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        word.parts.push(Part::Quoted(String::from_utf8_lossy(&bytes[..end]).into_owned()));
        Ok(())
    }

    fn digits(&mut self, most: usize, radix: u32) -> Result<u32> {
        let mut value = 0u32;
        for _ in 0..most {
            let Some(digit) = self.raw().and_then(|c| c.to_digit(radix)) else { break };
            value = value.wrapping_mul(radix).wrapping_add(digit);
            self.take_raw()?;
        }
        Ok(value)
    }
}

fn parameter(name: String, quoted: bool) -> Part {
    Part::Parameter(Box::new(Parameter {
        name,
        index: None,
        indirect: false,
        length: false,
        operator: None,
        quoted,
    }))
}

fn push(bytes: &mut Vec<u8>, c: char) {
    bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}
