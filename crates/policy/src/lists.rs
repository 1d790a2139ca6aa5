//! The user's own lists: what never runs, and what runs without being asked about.

use crate::analysis::{Analysis, Call, analyse};
use crate::context::{BackendKind, Context};
use crate::value::{Arg, GAP, Pattern};
use serde::{Deserialize, Serialize};

/// An entry of the deny list.
///
/// It is compared, without regard to case, with the text of the whole command and with every command that was found
/// in it, at whatever depth: `git push` denies `git push origin main`, `cd x && /usr/bin/git push`, and
/// `bash -c 'git push'`, and not `echo git push`. `*` stands for anything. Where a command has gaps, an entry that
/// may fit fits; in code of other languages, an entry that appears anywhere fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deny {
    text: String,
    whole: Pattern,
    words: Vec<String>,
}

impl Deny {
    /// `None` for an entry that is empty.
    pub fn new(text: &str) -> Option<Self> {
        let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
        if words.is_empty() {
            return None;
        }
        Some(Self { text: text.trim().to_owned(), whole: Pattern::new(&words.join(" ")), words })
    }

    /// As the user wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The part of the command that it denies.
    pub(crate) fn denies(&self, text: &str, analysis: &Analysis) -> Option<String> {
        let plain = text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
        if self.whole.matches(&plain) {
            return Some(text.trim().to_owned());
        }
        for call in &analysis.calls {
            if self.denies_call(call) {
                return Some(call.args.iter().map(Arg::shown).collect::<Vec<_>>().join(" "));
            }
        }
        let inside = Pattern::new(&format!("*{}*", self.words.join(" ")));
        analysis
            .code
            .iter()
            .find(|code| {
                inside.matches(&code.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase())
            })
            .cloned()
    }

    fn denies_call(&self, call: &Call) -> bool {
        let Some((first, rest)) = call.args.split_first() else { return false };
        let first = first.text().to_lowercase();
        let base = first.rsplit('/').next().unwrap_or(&first).to_owned();
        let tail: Vec<String> = rest.iter().map(|arg| arg.text().to_lowercase()).collect();
        [first, base].iter().any(|name| {
            let mut words = vec![name.clone()];
            words.extend(tail.iter().cloned());
            let joined = words.join(" ");
            let gaps = joined.contains(GAP) || rest.iter().any(|arg| arg.has_glob());
            self.whole.matches(&joined)
                || begins_with(&words, &self.words)
                || (!gaps && self.without_options(&words))
        })
    }

    /// `git push` also denies `git -C x push`: options between the words do not help.
    fn without_options(&self, words: &[String]) -> bool {
        if self.words.iter().any(|word| word.starts_with('-') || word.contains('*')) || self.words.len() < 2 {
            return false;
        }
        let mut wanted = self.words.iter().peekable();
        let mut after_option = false;
        for word in words {
            match wanted.peek() {
                None => return true,
                Some(next) if *next == word => {
                    wanted.next();
                    after_option = false;
                }
                Some(_) if word.starts_with('-') => after_option = true,
                // What an option takes.
                Some(_) if after_option => after_option = false,
                Some(_) => return false,
            }
        }
        wanted.peek().is_none()
    }
}

/// Whether `words`, some of which have gaps, may begin with what `pattern` says.
fn begins_with(words: &[String], pattern: &[String]) -> bool {
    if words.len() < pattern.len() {
        // A gap may be several words.
        let gap = words.iter().position(|word| word.contains(GAP));
        return gap
            .is_some_and(|gap| words[..gap].iter().zip(pattern).all(|(word, pattern)| fits(word, pattern)));
    }
    words.iter().zip(pattern).all(|(word, pattern)| fits(word, pattern))
}

fn fits(word: &str, pattern: &str) -> bool {
    if word.contains(GAP) || word.contains(['*', '?', '[']) {
        return Pattern::new(word).matches(pattern) || Pattern::new(pattern).matches(word);
    }
    Pattern::new(pattern).matches(word)
}

const EXACTLY: &str = "exactly:";
const RULE: &str = "rule:";

/// How long an answer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    Once,
    Session,
    Always,
}

/// An entry of the allowlist.
///
/// Four forms:
/// - a command as it is: `make && ./deploy.sh`. It allows that text and no other;
/// - one plain command: `git push origin *`. It covers that command wherever it stands; `*` in a word stands for any
///   text in that word, and as the last word for any further arguments. It covers neither other commands beside it
///   nor redirections, nor variables set in front of it;
/// - `exactly:rm -r old*`: that text and no other, whatever is in it;
/// - `rule:git-force-push`: whatever that rule objects to.
///
/// Nothing on it allows what the hard list or a deny list forbids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allow {
    pub text: String,
    pub scope: Scope,
}

impl Allow {
    pub fn new(text: impl Into<String>, scope: Scope) -> Self {
        Self { text: text.into(), scope }
    }

    /// What a person said yes to, and no more than that: a `*` in it is no wildcard.
    pub fn exactly(command: &str) -> Self {
        let command = command.trim();
        let taken = command.contains('*') || [EXACTLY, RULE].iter().any(|form| command.starts_with(form));
        let text = if taken { format!("{EXACTLY}{command}") } else { command.to_owned() };
        Self::new(text, Scope::Always)
    }

    /// Whether it is this very text.
    pub(crate) fn is(&self, text: &str) -> bool {
        let own = self.text.trim();
        own.strip_prefix(EXACTLY).unwrap_or(own).trim() == text.trim()
    }

    pub(crate) fn covers_rule(&self, rule: &str) -> bool {
        self.text.trim().strip_prefix(RULE) == Some(rule)
    }

    pub(crate) fn covers(&self, call: &Call) -> bool {
        if call.assigns || call.args.iter().any(|arg| arg.is_unknown() || arg.has_glob()) {
            return false;
        }
        if self.text.trim_start().starts_with(EXACTLY) {
            return false;
        }
        let Some(pattern) = plain_words(&self.text) else { return false };
        let words: Vec<&str> = call.args.iter().filter_map(Arg::literal).collect();
        let (fixed, open) = match pattern.split_last() {
            Some((last, fixed)) if last == "*" && !fixed.is_empty() => (fixed, true),
            _ => (pattern.as_slice(), false),
        };
        // A `*` may stand for arguments, never for the program.
        let length = if open { words.len() >= fixed.len() } else { words.len() == fixed.len() };
        length
            && fixed.first().is_some_and(|name| words.first() == Some(&name.as_str()))
            && fixed.iter().zip(&words).skip(1).all(|(pattern, word)| Pattern::new(pattern).matches(word))
    }
}

/// The words of an entry that is one plain command without operators; `None` for others.
fn plain_words(text: &str) -> Option<Vec<String>> {
    let context = Context::new(BackendKind::Local);
    let analysis = analyse(text, &context);
    match analysis.calls.as_slice() {
        [only] if !only.assigns && !only.args.iter().any(Arg::is_unknown) => {
            let unreadable = analysis.verdict.reasons.iter().any(|reason| reason.rule == "unreadable");
            let operators = text.contains(['>', '<', '|', ';', '&', '`', '\n', '(', '{']);
            (!unreadable && !operators).then(|| only.args.iter().map(Arg::text).collect())
        }
        // `sudo apt update` is a call inside a call: its outer words are the entry.
        [outer, ..]
            if outer.carries && !text.contains(['>', '<', '|', ';', '&', '`', '\n', '(', '{', '$']) =>
        {
            Some(outer.args.iter().map(Arg::text).collect())
        }
        _ => None,
    }
}
