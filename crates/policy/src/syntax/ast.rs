//! What a parsed script is made of. Only what the analysis asks for is kept: which commands may run, in which
//! order, with which words, and what is connected to what.

use std::cell::OnceCell;
use std::rc::Rc;

/// A piece of script.
#[derive(Debug, Clone)]
pub(crate) enum Node {
    Simple(Box<Simple>),
    /// `a | b`
    Pipeline(Vec<Node>),
    /// `a; b`
    Sequence(Vec<Node>),
    /// `a && b && c`: each runs if the one before it succeeded.
    And(Vec<Node>),
    /// Each of these may run or not: what stands after `||`, in the arms of `if` and `case`.
    Maybe(Vec<Node>),
    /// `for` (with a name and words), `while`, `until`: runs any number of times.
    Loop {
        name: Option<String>,
        words: Vec<Word>,
        body: Box<Node>,
    },
    /// Runs in a process of its own: `( … )`, a part of a pipeline.
    Subshell(Box<Node>),
    Background(Box<Node>),
    Redirected(Box<Node>, Vec<Redirect>),
    Function {
        name: String,
        body: Rc<Node>,
    },
    /// Words that are expanded and not run: of `case`, `[[ … ]]`, `(( … ))`.
    Words(Vec<Word>),
}

/// Assignments, words and redirections.
#[derive(Debug, Clone, Default)]
pub(crate) struct Simple {
    pub(crate) assignments: Vec<Assignment>,
    pub(crate) words: Vec<Word>,
    pub(crate) redirects: Vec<Redirect>,
    /// As it was written.
    pub(crate) text: String,
}

#[derive(Debug, Clone)]
pub(crate) struct Assignment {
    pub(crate) name: String,
    /// `name[…]=`
    pub(crate) index: Option<Word>,
    /// `name+=`
    pub(crate) append: bool,
    pub(crate) value: Assigned,
}

#[derive(Debug, Clone)]
pub(crate) enum Assigned {
    Scalar(Word),
    Array(Vec<Word>),
}

#[derive(Debug, Clone)]
pub(crate) struct Redirect {
    pub(crate) kind: RedirectKind,
    /// The file, the text of a here-string; empty for a here-document.
    pub(crate) target: Word,
}

#[derive(Debug, Clone)]
pub(crate) enum RedirectKind {
    Read,
    /// `>`, `>|`, `&>`, `<>`, `>&file`: the file is created or changed.
    Write,
    /// `>>`, `&>>`
    Append,
    /// `2>&1`, `<&3`
    Duplicate,
    HereString,
    /// Filled in when the parser has reached the body, which stands below the line.
    HereDocument(Rc<OnceCell<Word>>),
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Word {
    pub(crate) parts: Vec<Part>,
}

#[derive(Debug, Clone)]
pub(crate) enum Part {
    /// Unquoted text without meaning of its own.
    Text(String),
    /// What a quote or a backslash protected.
    Quoted(String),
    /// An unquoted `*`, `?` or `[`.
    Glob(char),
    /// An unquoted `{`, `,` or `}`: brace expansion, if they pair.
    Brace(char),
    /// `~` or `~name` where it means a home directory.
    Tilde(String),
    Parameter(Box<Parameter>),
    /// `$( … )` and backticks.
    Command {
        body: Rc<Node>,
        quoted: bool,
    },
    /// `<( … )` and `>( … )`
    Process {
        body: Rc<Node>,
        reads: bool,
    },
    /// `$(( … ))`: what is expanded in it.
    Arithmetic(Word),
}

#[derive(Debug, Clone)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) index: Option<Word>,
    /// `${!name}`
    pub(crate) indirect: bool,
    /// `${#name}`
    pub(crate) length: bool,
    /// What stands after the name: `:-`, `%`, … and its word.
    pub(crate) operator: Option<(String, Word)>,
    pub(crate) quoted: bool,
}

impl Word {
    /// The text, if the word is nothing but unquoted text: the only form that can be a keyword.
    pub(crate) fn bare(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Adds a character, growing the last part if it is of the same sort.
    pub(crate) fn push(&mut self, c: char, quoted: bool) {
        match (self.parts.last_mut(), quoted) {
            (Some(Part::Quoted(text)), true) | (Some(Part::Text(text)), false) => text.push(c),
            (_, true) => self.parts.push(Part::Quoted(c.into())),
            (_, false) => self.parts.push(Part::Text(c.into())),
        }
    }
}
