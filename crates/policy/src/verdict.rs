//! What is thought of a command, and why.

use serde::Serialize;
use std::fmt;

/// How bad a command is, whatever the mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Nothing speaks against it.
    Safe,
    /// A person should look at it first: it can lose data, reaches beyond the task, or can't be understood.
    Risky,
    /// It destroys the machine or the account that it runs on. No mode allows it there.
    Forbidden,
}

/// One thing that speaks against a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// The rule's name, stable: allowlists and audit logs use it.
    pub rule: &'static str,
    pub level: Level,
    /// What the command does, in a few words.
    pub what: String,
    /// The part of the command that is meant, as it was understood.
    pub piece: String,
    /// Why that is a reason to stop.
    pub why: &'static str,
    /// The call that is meant, by its place in [`Analysis::calls`](crate::Analysis); none for what no entry of
    /// an allowlist can cover, such as a redirection.
    #[serde(skip)]
    pub(crate) call: Option<usize>,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (`{}`): {} [{}]", self.what, self.piece, self.why, self.rule)
    }
}

/// The worst of the reasons, and all of them, worst first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    pub level: Level,
    pub reasons: Vec<Reason>,
}

impl Verdict {
    pub(crate) fn new(mut reasons: Vec<Reason>) -> Self {
        reasons.sort_by_key(|reason| std::cmp::Reverse(reason.level));
        let level = reasons.first().map_or(Level::Safe, |reason| reason.level);
        Self { level, reasons }
    }
}
