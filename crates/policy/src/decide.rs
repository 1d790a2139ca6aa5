//! The modes: what becomes of a verdict.

use crate::analysis::{Analysis, Call, analyse};
use crate::context::Context;
use crate::lists::{Allow, Deny};
use crate::verdict::{Level, Reason, Verdict};
use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

/// How much a person wants to be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// Work Along: every command needs an answer.
    Ask,
    /// Run It Yourself: risky ones do.
    #[default]
    Smart,
    /// Hands-Off: none does. The hard list and the deny list hold.
    Auto,
    /// Autopilot: nobody is there. What would be asked about is denied, but for the rules that the user excepted.
    Unattended,
}

impl Mode {
    /// All words for a mode, ours first. Hermes' own `manual` asks about flagged commands only, which is our `smart`.
    pub const WORDS: &[(&str, Mode)] = &[
        ("ask", Mode::Ask),
        ("smart", Mode::Smart),
        ("auto", Mode::Auto),
        ("unattended", Mode::Unattended),
        ("work along", Mode::Ask),
        ("run it yourself", Mode::Smart),
        ("hands off", Mode::Auto),
        ("autopilot", Mode::Unattended),
        ("ask all", Mode::Ask),
        ("dangerous", Mode::Smart),
        ("ask dangerous", Mode::Smart),
        ("manual", Mode::Smart),
        ("never ask", Mode::Auto),
        ("off", Mode::Auto),
        ("false", Mode::Auto),
        ("yolo", Mode::Auto),
        ("cron", Mode::Unattended),
    ];
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ask => "ask",
            Self::Smart => "smart",
            Self::Auto => "auto",
            Self::Unattended => "unattended",
        })
    }
}

/// A word that names no mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown approval mode `{0}`: choose ask (Work Along), smart (Run It Yourself), auto (Hands-Off) or unattended (Autopilot)"
)]
pub struct UnknownMode(pub String);

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        let plain: String = text.trim().to_lowercase().replace(['-', '_'], " ");
        let plain = plain.split_whitespace().collect::<Vec<_>>().join(" ");
        let found = Self::WORDS.iter().find(|(word, _)| *word == plain || word.replace(' ', "") == plain);
        found.map(|(_, mode)| *mode).ok_or_else(|| UnknownMode(text.to_owned()))
    }
}

/// What is to happen to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    Allow,
    /// A person has to say yes. Without reasons: because the mode asks about everything.
    Ask {
        reasons: Vec<Reason>,
    },
    Deny {
        reasons: Vec<Reason>,
    },
}

/// What nobody is there to answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Unattended {
    /// Rules whose objections do not count when nobody is there.
    pub allow: HashSet<String>,
}

/// What the user has decided in advance.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    pub mode: Mode,
    pub deny: Vec<Deny>,
    pub allow: Vec<Allow>,
    pub unattended: Unattended,
}

impl Policy {
    pub fn new(mode: Mode) -> Self {
        Self { mode, ..Self::default() }
    }

    /// Decides about `text`, and says what was thought of it.
    ///
    /// In this order: the deny list, everywhere; the hard list, where the place is not isolated; an isolated place
    /// allows the rest; then the allowlist and the mode.
    pub fn decide(&self, text: &str, context: &Context) -> (Decision, Verdict) {
        let analysis = analyse(text, context);
        let decision = self.decision(text, context, &analysis);
        (decision, analysis.verdict)
    }

    /// Decides about a program of another language, which `interpreter` would run.
    pub fn decide_code(&self, interpreter: &str, code: &str, context: &Context) -> (Decision, Verdict) {
        self.decide(&format!("{interpreter} -c {}", quoted(code)), context)
    }

    /// Decides about a file that is written. A path may begin with `~/`, which is the home directory.
    pub fn decide_write(&self, path: &str, context: &Context) -> (Decision, Verdict) {
        let path = match path.strip_prefix("~/") {
            Some(rest) => format!("~/{}", quoted(rest)),
            None => quoted(path),
        };
        self.decide(&format!(": > {path}"), context)
    }

    /// The same in another mode, with more on the allowlist; `None` if that is no difference.
    pub fn with(&self, mode: Mode, more: impl IntoIterator<Item = Allow>) -> Option<Self> {
        let mut more = more.into_iter().peekable();
        if mode == self.mode && more.peek().is_none() {
            return None;
        }
        let mut policy = Self { mode, ..self.clone() };
        policy.allow.extend(more);
        Some(policy)
    }

    fn decision(&self, text: &str, context: &Context, analysis: &Analysis) -> Decision {
        let denied: Vec<Reason> = self
            .deny
            .iter()
            .filter_map(|entry| {
                let piece = entry.denies(text, analysis)?;
                Some(Reason {
                    rule: "deny-list",
                    level: Level::Forbidden,
                    what: format!("the deny list has `{}`", entry.text()),
                    piece: crate::analysis::shortened(&piece),
                    why: "the user has forbidden it",
                    call: None,
                })
            })
            .collect();
        if !denied.is_empty() {
            return Decision::Deny { reasons: denied };
        }
        let verdict = &analysis.verdict;
        // A deny list can't be kept if the command can't be followed.
        let unfollowed = |reason: &&Reason| reason.rule == "too-complex";
        if context.is_isolated() {
            let hidden: Vec<Reason> = verdict.reasons.iter().filter(unfollowed).cloned().collect();
            if !self.deny.is_empty() && !hidden.is_empty() {
                return Decision::Deny { reasons: hidden };
            }
            return Decision::Allow;
        }
        let forbidden: Vec<Reason> =
            verdict.reasons.iter().filter(|reason| reason.level == Level::Forbidden).cloned().collect();
        if !forbidden.is_empty() {
            return Decision::Deny { reasons: forbidden };
        }
        if self.mode == Mode::Auto || self.allow.iter().any(|entry| entry.is(text)) {
            return Decision::Allow;
        }
        let open: Vec<Reason> =
            verdict.reasons.iter().filter(|reason| !self.covered(reason, analysis)).cloned().collect();
        match self.mode {
            Mode::Auto => Decision::Allow,
            Mode::Smart if open.is_empty() => Decision::Allow,
            Mode::Smart => Decision::Ask { reasons: open },
            Mode::Ask if open.is_empty() && self.all_covered(analysis) => Decision::Allow,
            Mode::Ask => Decision::Ask { reasons: open },
            Mode::Unattended => {
                let left: Vec<Reason> =
                    open.into_iter().filter(|reason| !self.unattended.allow.contains(reason.rule)).collect();
                if left.is_empty() { Decision::Allow } else { Decision::Deny { reasons: left } }
            }
        }
    }

    fn covered(&self, reason: &Reason, analysis: &Analysis) -> bool {
        if self.allow.iter().any(|entry| entry.covers_rule(reason.rule)) {
            return true;
        }
        let call = reason.call.and_then(|at| analysis.calls.get(at));
        call.is_some_and(|call| self.allow.iter().any(|entry| entry.covers(call)))
    }

    /// Whether each command in it is on the allowlist.
    fn all_covered(&self, analysis: &Analysis) -> bool {
        let covered = |call: &Call| self.allow.iter().any(|entry| entry.covers(call));
        !analysis.calls.is_empty() && !analysis.writes && analysis.calls.iter().all(covered)
    }
}

/// As one word of the shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
