//! Lists, pipelines and simple commands.

use super::ast::{Assigned, Assignment, Node, Simple, Word};
use super::redirect::Pending;

/// Levels of nesting. Bash has no limit; a person stays far below ten.
const MAX_DEPTH: u32 = 60;
/// Steps for each byte of input: an attempt that is given up is made again in another way, which may happen in
/// an attempt that is given up in turn.
const STEPS_PER_BYTE: usize = 50;

/// Why a text could not be parsed to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// No bash that we understand, from this byte on.
    Syntax(usize),
    /// More levels or more steps than the parser takes.
    TooDeep,
}

pub(super) type Result<T> = std::result::Result<T, Trouble>;

/// What could be made of a text.
#[derive(Debug)]
pub(crate) struct Parsed {
    /// Whole lines in front of the trouble, or everything.
    pub(crate) node: Node,
    pub(crate) trouble: Option<Trouble>,
    /// Where the first line begins that is not part of `node`.
    pub(crate) rest: usize,
}

pub(crate) fn parse(text: &str) -> Parsed {
    parse_at(text, 0)
}

/// Parses `text` as something that stands inside `depth` levels.
pub(super) fn parse_at(text: &str, depth: u32) -> Parsed {
    let mut parser = Parser::new(text, depth);
    let mut nodes = Vec::new();
    let mut rest = 0;
    loop {
        let outcome = parser.line();
        match outcome {
            Ok(Some(node)) => {
                nodes.push(node);
                rest = parser.at;
            }
            Ok(None) => return Parsed { node: Node::Sequence(nodes), trouble: None, rest: text.len() },
            Err(trouble) => return Parsed { node: Node::Sequence(nodes), trouble: Some(trouble), rest },
        }
    }
}

pub(super) struct Parser<'a> {
    pub(super) text: &'a str,
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
    depth: u32,
    steps: usize,
    pub(super) pending: Vec<Pending>,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str, depth: u32) -> Self {
        let steps = text.len().saturating_mul(STEPS_PER_BYTE).saturating_add(10_000);
        Self { text, bytes: text.as_bytes(), at: 0, depth, steps, pending: Vec::new() }
    }

    // ---- characters ----

    /// `at`, with the line continuations that stand there skipped.
    fn continued(&self, mut at: usize) -> usize {
        while self.bytes.get(at) == Some(&b'\\') && self.bytes.get(at + 1) == Some(&b'\n') {
            at += 2;
        }
        at
    }

    pub(super) fn peek(&mut self) -> Option<u8> {
        self.at = self.continued(self.at);
        self.bytes.get(self.at).copied()
    }

    /// The byte at the position as it is: inside single quotes a backslash is one.
    pub(super) fn raw(&self) -> Option<char> {
        self.text.get(self.at..).and_then(|rest| rest.chars().next())
    }

    pub(super) fn take_raw(&mut self) -> Result<Option<char>> {
        self.step()?;
        let c = self.raw();
        self.at += c.map_or(0, char::len_utf8);
        Ok(c)
    }

    pub(super) fn step(&mut self) -> Result<()> {
        self.steps = self.steps.checked_sub(1).ok_or(Trouble::TooDeep)?;
        Ok(())
    }

    /// Where `expected` ends, if it stands here; continuations may stand between its characters.
    pub(super) fn looking_at(&self, expected: &str) -> Option<usize> {
        let mut at = self.at;
        for byte in expected.bytes() {
            at = self.continued(at);
            if self.bytes.get(at) != Some(&byte) {
                return None;
            }
            at += 1;
        }
        Some(at)
    }

    pub(super) fn accept(&mut self, expected: &str) -> bool {
        match self.looking_at(expected) {
            Some(end) => {
                self.at = end;
                true
            }
            None => false,
        }
    }

    pub(super) fn expect(&mut self, expected: &str) -> Result<()> {
        if self.accept(expected) { Ok(()) } else { Err(self.syntax()) }
    }

    pub(super) fn syntax(&self) -> Trouble {
        Trouble::Syntax(self.at)
    }

    /// Runs `inner` one level deeper.
    pub(super) fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.step()?;
        self.depth += 1;
        let outcome = if self.depth > MAX_DEPTH { Err(Trouble::TooDeep) } else { inner(self) };
        self.depth -= 1;
        outcome
    }

    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    // ---- space between tokens ----

    pub(super) fn skip_blanks(&mut self) -> Result<()> {
        while let Some(b' ' | b'\t') = self.peek() {
            self.step()?;
            self.at += 1;
        }
        if self.peek() == Some(b'#') {
            while self.bytes.get(self.at).is_some_and(|&byte| byte != b'\n') {
                self.at += 1;
            }
        }
        Ok(())
    }

    pub(super) fn skip_newlines(&mut self) -> Result<()> {
        loop {
            self.skip_blanks()?;
            if self.peek() != Some(b'\n') {
                return Ok(());
            }
            self.newline()?;
        }
    }

    /// Takes a newline, and the here-documents that begin behind it.
    pub(super) fn newline(&mut self) -> Result<()> {
        self.step()?;
        self.at += 1;
        for pending in std::mem::take(&mut self.pending) {
            self.here_document(&pending)?;
        }
        Ok(())
    }

    // ---- lists ----

    /// One line of the script, as bash reads and runs it; `None` at the end.
    fn line(&mut self) -> Result<Option<Node>> {
        self.skip_newlines()?;
        if self.peek().is_none() {
            return Ok(None);
        }
        let mut nodes = Vec::new();
        loop {
            nodes.push(self.and_or()?);
            self.skip_blanks()?;
            let background = self.separator(&mut nodes)?;
            self.skip_blanks()?;
            match self.peek() {
                None => break,
                Some(b'\n') => {
                    self.newline()?;
                    break;
                }
                Some(_) if background.is_none() => return Err(self.syntax()),
                Some(_) => {}
            }
        }
        for pending in std::mem::take(&mut self.pending) {
            self.here_document(&pending)?;
        }
        Ok(Some(Node::Sequence(nodes)))
    }

    /// Takes `;` or `&` (which puts the last node into the background), if there is one.
    fn separator(&mut self, nodes: &mut Vec<Node>) -> Result<Option<()>> {
        self.skip_blanks()?;
        if self.looking_at(";;").is_some() || self.looking_at(";&").is_some() {
            return Ok(None);
        }
        if self.accept(";") {
            return Ok(Some(()));
        }
        if self.looking_at("&&").is_none() && self.accept("&") {
            if let Some(node) = nodes.pop() {
                nodes.push(Node::Background(Box::new(node)));
            }
            return Ok(Some(()));
        }
        Ok(None)
    }

    /// Commands up to one of `ends` at the place of a command, which is left to the caller.
    pub(super) fn list(&mut self, ends: &[&str]) -> Result<Node> {
        self.nested(|this| {
            let mut nodes = Vec::new();
            loop {
                this.skip_newlines()?;
                if this.at_end_of(ends) {
                    return Ok(Node::Sequence(nodes));
                }
                nodes.push(this.and_or()?);
                this.skip_blanks()?;
                if this.separator(&mut nodes)?.is_some() {
                    continue;
                }
                if this.peek() == Some(b'\n') {
                    continue;
                }
                if this.at_end_of(ends) {
                    return Ok(Node::Sequence(nodes));
                }
                return Err(this.syntax());
            }
        })
    }

    /// Like [`Self::list`], with at least one command in it, as bash wants between keywords.
    pub(super) fn full_list(&mut self, ends: &[&str]) -> Result<Node> {
        match self.list(ends)? {
            Node::Sequence(nodes) if nodes.is_empty() => Err(self.syntax()),
            node => Ok(node),
        }
    }

    fn at_end_of(&mut self, ends: &[&str]) -> bool {
        self.peek();
        ends.iter().any(|end| match *end {
            ")" | ";;" | ";&" => self.looking_at(end).is_some(),
            word => self.keyword() == Some(word),
        })
    }

    fn and_or(&mut self) -> Result<Node> {
        self.nested(|this| {
            let mut segments = vec![(true, this.pipeline()?)];
            loop {
                this.skip_blanks()?;
                let and = this.accept("&&");
                if !and && !this.accept("||") {
                    break;
                }
                this.skip_newlines()?;
                segments.push((and, this.pipeline()?));
            }
            // `a && b && c || d`: runs of `&&` nest, what comes after `||` may run or not.
            let mut whole = Vec::new();
            let mut run: Vec<Node> = Vec::new();
            for (and, node) in segments {
                if !and {
                    whole.push(std::mem::take(&mut run));
                }
                run.push(node);
            }
            whole.push(run);
            let mut nodes = whole.into_iter().map(chain);
            let first = nodes.next().ok_or(this.syntax())?;
            let rest: Vec<_> = nodes.map(|node| Node::Maybe(vec![node])).collect();
            if rest.is_empty() {
                return Ok(first);
            }
            let mut all = vec![first];
            all.extend(rest);
            Ok(Node::Sequence(all))
        })
    }

    fn pipeline(&mut self) -> Result<Node> {
        self.skip_blanks()?;
        loop {
            match self.keyword() {
                Some("time") => {
                    self.accept("time");
                    self.skip_blanks()?;
                    while matches!(self.keyword(), Some("-p" | "--")) {
                        self.at += 2;
                        self.skip_blanks()?;
                    }
                    // `time` alone is a command.
                    if matches!(self.peek(), None | Some(b'\n' | b';' | b'&' | b')')) {
                        return Ok(Node::Sequence(Vec::new()));
                    }
                }
                Some("!") => {
                    self.accept("!");
                    self.skip_blanks()?;
                    // `!` alone is a command.
                    if matches!(self.peek(), None | Some(b'\n' | b';' | b'&')) {
                        return Ok(Node::Sequence(Vec::new()));
                    }
                }
                _ => break,
            }
            self.step()?;
        }
        let first = self.command()?;
        let mut parts = vec![first];
        loop {
            self.skip_blanks()?;
            if self.looking_at("||").is_some() {
                break;
            }
            if !self.accept("|&") && !self.accept("|") {
                break;
            }
            self.skip_newlines()?;
            // Bash takes `!` and `time` behind a bar too.
            let part = if matches!(self.keyword(), Some("!" | "time")) {
                self.nested(Self::pipeline)?
            } else {
                self.command()?
            };
            parts.push(part);
        }
        match (parts.len(), parts.pop()) {
            (1, Some(only)) => Ok(only),
            (_, Some(last)) => {
                parts.push(last);
                Ok(Node::Pipeline(parts))
            }
            _ => Err(self.syntax()),
        }
    }

    // ---- commands ----

    fn command(&mut self) -> Result<Node> {
        self.nested(|this| {
            this.skip_blanks()?;
            let Some(node) = this.compound()? else { return this.simple() };
            let mut redirects = Vec::new();
            loop {
                this.skip_blanks()?;
                match this.redirect()? {
                    Some(redirect) => redirects.push(redirect),
                    None => break,
                }
            }
            if redirects.is_empty() { Ok(node) } else { Ok(Node::Redirected(Box::new(node), redirects)) }
        })
    }

    pub(super) fn simple(&mut self) -> Result<Node> {
        let start = self.at;
        let mut simple = Simple::default();
        let mut end = start;
        loop {
            self.step()?;
            self.skip_blanks()?;
            if let Some(redirect) = self.redirect()? {
                simple.redirects.push(redirect);
                end = self.at;
                continue;
            }
            match self.peek() {
                None | Some(b'\n' | b';' | b'&' | b'|' | b')') => break,
                Some(b'(') => {
                    let name = match (simple.words.as_slice(), simple.assignments.as_slice()) {
                        ([word], []) if simple.redirects.is_empty() => word.bare().map(str::to_owned),
                        _ => None,
                    };
                    let name = name.ok_or(self.syntax())?;
                    self.at += 1;
                    self.skip_blanks()?;
                    self.expect(")")?;
                    return self.function_body(name);
                }
                Some(_) => {}
            }
            // Declarations take assignments as their arguments.
            let declares = simple.words.first().and_then(Word::bare).is_some_and(|name| {
                matches!(
                    name,
                    "declare" | "typeset" | "local" | "export" | "readonly" | "alias" | "eval" | "let"
                )
            });
            if simple.words.is_empty() || declares {
                match self.assignment(declares)? {
                    Ok(assignment) if simple.words.is_empty() => simple.assignments.push(assignment),
                    Ok(Assignment { name, value: Assigned::Array(words), append, index }) => {
                        // Kept as an assignment of the command: `declare -a a=(…)`.
                        simple.assignments.push(Assignment {
                            name,
                            index,
                            append,
                            value: Assigned::Array(words),
                        });
                    }
                    Ok(_) => return Err(self.syntax()),
                    Err(word) if word.parts.is_empty() => return Err(self.syntax()),
                    Err(word) => simple.words.push(word),
                }
            } else {
                let word = self.word()?;
                if word.parts.is_empty() {
                    return Err(self.syntax());
                }
                simple.words.push(word);
            }
            end = self.at;
        }
        if simple.words.is_empty() && simple.assignments.is_empty() && simple.redirects.is_empty() {
            return Err(self.syntax());
        }
        simple.text = self.text.get(start..end).unwrap_or_default().to_owned();
        Ok(Node::Simple(Box::new(simple)))
    }
}

/// A run of commands with `&&` between them.
fn chain(mut run: Vec<Node>) -> Node {
    match (run.len(), run.pop()) {
        (1, Some(only)) => only,
        (_, last) => {
            run.extend(last);
            Node::And(run)
        }
    }
}
