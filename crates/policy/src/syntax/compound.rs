//! Compound commands and functions.

use super::ast::{Node, Part, Word};
use super::parser::{Parser, Result};
use std::rc::Rc;

/// What can stand at the place of a command and is no command.
const KEYWORDS: &[&str] = &[
    "if", "then", "elif", "else", "fi", "for", "select", "while", "until", "do", "done", "case", "esac",
    "in", "function", "coproc", "time", "!", "{", "}", "[[", "-p", "--",
];

impl Parser<'_> {
    /// The keyword that stands here as a word of its own.
    pub(super) fn keyword(&mut self) -> Option<&'static str> {
        self.peek();
        KEYWORDS.iter().copied().find(|keyword| {
            let Some(end) = self.looking_at(keyword) else { return false };
            let at = std::mem::replace(&mut self.at, end);
            let next = self.peek();
            self.at = at;
            let delimited = matches!(
                next,
                None | Some(b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'(' | b')' | b'<' | b'>')
            );
            // With `extglob` off (the default), `!(` is `!` and a subshell.
            delimited && !(*keyword == "[[" && next == Some(b'('))
        })
    }

    fn expect_keyword(&mut self, keyword: &str) -> Result<()> {
        self.skip_newlines()?;
        if self.keyword() == Some(keyword) { self.expect(keyword) } else { Err(self.syntax()) }
    }

    pub(super) fn compound(&mut self) -> Result<Option<Node>> {
        if self.peek() == Some(b'(') {
            if let Some(after) = self.looking_at("((") {
                let start = self.at;
                self.at = after;
                if let Some(inner) = self.arithmetic()? {
                    return Ok(Some(Node::Words(vec![inner])));
                }
                self.at = start;
            }
            self.at += 1;
            let outer = std::mem::take(&mut self.pending);
            let body = self.full_list(&[")"])?;
            self.expect(")")?;
            let inner = std::mem::replace(&mut self.pending, outer);
            self.pending.extend(inner);
            return Ok(Some(Node::Subshell(Box::new(body))));
        }
        let Some(keyword) = self.keyword() else { return Ok(None) };
        let node = match keyword {
            "{" => {
                self.expect("{")?;
                let body = self.full_list(&["}"])?;
                self.expect("}")?;
                body
            }
            "if" => self.conditional()?,
            "while" | "until" => {
                self.expect(keyword)?;
                let condition = self.full_list(&["do"])?;
                let body = self.do_group()?;
                Node::Loop {
                    name: None,
                    words: Vec::new(),
                    body: Box::new(Node::Sequence(vec![condition, body])),
                }
            }
            "for" | "select" => {
                self.expect(keyword)?;
                self.iteration()?
            }
            "case" => self.case()?,
            "[[" => self.test()?,
            "function" => {
                self.expect("function")?;
                self.skip_blanks()?;
                let start = self.at;
                let word = self.word()?;
                if word.parts.is_empty() {
                    return Err(self.syntax());
                }
                let name = self.text.get(start..self.at).unwrap_or_default().to_owned();
                self.skip_blanks()?;
                if self.accept("(") {
                    self.skip_blanks()?;
                    self.expect(")")?;
                }
                self.function_body(name)?
            }
            "coproc" => {
                self.expect("coproc")?;
                self.skip_blanks()?;
                self.coprocess()?
            }
            // The others can't begin a command, but are ordinary words where bash does not look for them.
            "in" | "-p" | "--" => return Ok(None),
            _ => return Err(self.syntax()),
        };
        Ok(Some(node))
    }

    fn conditional(&mut self) -> Result<Node> {
        self.expect("if")?;
        let first = self.full_list(&["then"])?;
        let mut arms = Vec::new();
        loop {
            self.expect_keyword("then")?;
            arms.push(self.full_list(&["elif", "else", "fi"])?);
            match self.keyword() {
                Some("elif") => {
                    self.expect("elif")?;
                    arms.push(self.full_list(&["then"])?);
                }
                Some("else") => {
                    self.expect("else")?;
                    arms.push(self.full_list(&["fi"])?);
                    break;
                }
                _ => break,
            }
        }
        self.expect_keyword("fi")?;
        Ok(Node::Sequence(vec![first, Node::Maybe(arms)]))
    }

    fn do_group(&mut self) -> Result<Node> {
        self.skip_newlines()?;
        if self.keyword() == Some("{") {
            self.expect("{")?;
            let body = self.full_list(&["}"])?;
            self.expect("}")?;
            return Ok(body);
        }
        self.expect_keyword("do")?;
        let body = self.full_list(&["done"])?;
        self.expect("done")?;
        Ok(body)
    }

    fn iteration(&mut self) -> Result<Node> {
        self.skip_blanks()?;
        if self.accept("((") {
            let header = self.arithmetic()?.ok_or(self.syntax())?;
            self.skip_blanks()?;
            self.accept(";");
            let body = self.do_group()?;
            return Ok(Node::Loop { name: None, words: vec![header], body: Box::new(body) });
        }
        let variable = self.word()?;
        let Some(name) = variable.bare().map(str::to_owned) else { return Err(self.syntax()) };
        self.skip_newlines()?;
        let mut words = Vec::new();
        if self.keyword() == Some("in") {
            self.expect("in")?;
            loop {
                self.skip_blanks()?;
                let word = self.word()?;
                if word.parts.is_empty() {
                    break;
                }
                words.push(word);
            }
            if !matches!(self.peek(), Some(b';' | b'\n')) {
                return Err(self.syntax());
            }
        } else {
            words.push(self.all_arguments()?);
            self.skip_blanks()?;
        }
        self.accept(";");
        let body = self.do_group()?;
        Ok(Node::Loop { name: Some(name), words, body: Box::new(body) })
    }

    /// `"$@"`
    fn all_arguments(&mut self) -> Result<Word> {
        super::word::here_body("$@", self.depth())
    }

    fn case(&mut self) -> Result<Node> {
        self.expect("case")?;
        self.skip_blanks()?;
        let subject = self.word()?;
        if subject.parts.is_empty() {
            return Err(self.syntax());
        }
        let mut words = vec![subject];
        self.expect_keyword("in")?;
        let mut arms = Vec::new();
        loop {
            self.skip_newlines()?;
            if self.keyword() == Some("esac") {
                break;
            }
            self.accept("(");
            loop {
                self.skip_blanks()?;
                let pattern = self.word()?;
                if pattern.parts.is_empty() {
                    return Err(self.syntax());
                }
                words.push(pattern);
                self.skip_blanks()?;
                if self.accept("|") {
                    continue;
                }
                self.expect(")")?;
                break;
            }
            arms.push(self.list(&[";;", ";&", "esac"])?);
            if !self.accept(";;&") && !self.accept(";;") && !self.accept(";&") {
                break;
            }
        }
        self.expect_keyword("esac")?;
        // `;&` falls through: later arms see what earlier ones did.
        Ok(Node::Sequence(vec![Node::Words(words), Node::Maybe(arms)]))
    }

    /// `[[ … ]]`: only its words matter, and operators need not be told apart.
    fn test(&mut self) -> Result<Node> {
        self.expect("[[")?;
        let mut words = Vec::new();
        loop {
            self.step()?;
            while let Some(b' ' | b'\t' | b'\n') = self.peek() {
                if self.peek() == Some(b'\n') && !self.pending.is_empty() {
                    return Err(self.syntax());
                }
                self.step()?;
                self.at += 1;
            }
            if let Some(end) = self.looking_at("]]") {
                let at = std::mem::replace(&mut self.at, end);
                let next = self.peek();
                if matches!(next, None | Some(b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b')' | b'<' | b'>'))
                {
                    break;
                }
                self.at = at;
            }
            match self.peek() {
                None | Some(b';' | b'#') => return Err(self.syntax()),
                Some(b'(' | b')' | b'|' | b'&') => self.at += 1,
                Some(b'<' | b'>') if self.looking_at("<(").is_none() && self.looking_at(">(").is_none() => {
                    self.at += 1;
                }
                Some(_) => {
                    let word = self.word()?;
                    if word.parts.is_empty() {
                        return Err(self.syntax());
                    }
                    words.push(word);
                }
            }
        }
        if words.is_empty() {
            return Err(self.syntax());
        }
        Ok(Node::Words(words))
    }

    fn coprocess(&mut self) -> Result<Node> {
        let start = self.at;
        // `coproc NAME { … }`; else the word is the command.
        if self.keyword().is_none() && self.peek() != Some(b'(') {
            let word = self.word()?;
            self.skip_blanks()?;
            let named = matches!(word.parts.as_slice(), [Part::Text(_)])
                && (self.peek() == Some(b'(')
                    || self.keyword().is_some_and(|word| !matches!(word, "-p" | "--" | "in" | "!" | "time")));
            if !named {
                self.at = start;
            }
        }
        let body = self.nested(|this| match this.compound()? {
            Some(node) => Ok(node),
            None => this.simple(),
        })?;
        Ok(Node::Background(Box::new(body)))
    }

    /// Behind the parentheses of a function's head.
    pub(super) fn function_body(&mut self, name: String) -> Result<Node> {
        self.skip_newlines()?;
        let body = self.nested(|this| match this.compound() {
            Ok(Some(node)) => {
                let mut redirects = Vec::new();
                loop {
                    this.skip_blanks()?;
                    match this.redirect()? {
                        Some(redirect) => redirects.push(redirect),
                        None => break,
                    }
                }
                Ok(if redirects.is_empty() { node } else { Node::Redirected(Box::new(node), redirects) })
            }
            Ok(None) => Err(this.syntax()),
            Err(trouble) => Err(trouble),
        })?;
        Ok(Node::Function { name, body: Rc::new(body) })
    }
}
