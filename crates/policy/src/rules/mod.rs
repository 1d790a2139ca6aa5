//! What speaks against a command: a table, and the checks that need more than words.
//!
//! - `table`: the rules, each with examples that it must and must not hit.
//! - `checks`: what `rm`, `dd`, `mv`, … do to which path.
//! - `own`: Farshell itself.
//! - `paths`: what a path stands for, by the `names` in it.

pub(crate) mod checks;
mod names;
mod own;
pub(crate) mod paths;
pub(crate) mod table;

use crate::analysis::{Place, State, Walk};
use crate::value::Arg;
use crate::verdict::Level;
use table::{RULES, Rule, When};

/// A rule of the table, for documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleInfo {
    pub id: &'static str,
    pub level: Level,
    pub what: &'static str,
    pub why: &'static str,
}

/// All rules of the table.
pub fn all() -> impl Iterator<Item = RuleInfo> {
    RULES.iter().map(|rule| RuleInfo { id: rule.id, level: rule.level, what: rule.what, why: rule.why })
}

/// Names that the rules and the walk know: what a pattern in the place of a command may turn out to be.
pub(crate) fn programs() -> impl Iterator<Item = &'static str> {
    const FOLLOWED: &[&str] = &[
        "bash", "sh", "zsh", "dash", "python3", "perl", "ruby", "node", "find", "xargs", "ssh", "su", "curl",
        "wget", "busybox", "eval", "env",
    ];
    let named = RULES.iter().flat_map(|rule| rule.programs.iter().copied());
    named.chain(checks::PROGRAMS.iter().copied()).chain(FOLLOWED.iter().copied())
}

/// Asks all rules about a call of `program`.
pub(crate) fn apply(walk: &mut Walk<'_>, program: &str, args: &[Arg], state: &State) {
    let before = walk.reasons.len();
    let rest = args.get(1..).unwrap_or_default();
    for rule in RULES {
        let named = rule.programs.contains(&program)
            || (rule.prefix && rule.programs.iter().any(|name| program.starts_with(name)));
        if named && rule.when.holds(rest) {
            hit(walk, rule, program, args);
        }
    }
    checks::apply(walk, program, rest, state);
    own::apply(walk, program, rest, state);
    // What happens in a container of the command's own making is not the end of the machine.
    if walk.place == Place::Container {
        for reason in &mut walk.reasons[before..] {
            reason.level = reason.level.min(Level::Risky);
        }
    }
}

/// The same for a program that is only guessed: what counts is what its arguments alone give away.
pub(crate) fn apply_certain(walk: &mut Walk<'_>, program: &str, args: &[Arg], state: &State) {
    if matches!(program, "rm" | "dd" | "shred" | "chmod") {
        let before = walk.reasons.len();
        let rest = args.get(1..).unwrap_or_default();
        if program == "rm" && !checks::has(rest, &["-r", "-R", "--recursive"]) {
            return;
        }
        if program == "chmod" && !checks::has(rest, &["-R", "--recursive"]) {
            return;
        }
        checks::apply(walk, program, rest, state);
        let certain: Vec<_> =
            walk.reasons.drain(before..).filter(|reason| reason.level == Level::Forbidden).collect();
        walk.reasons.extend(certain);
    }
}

fn hit(walk: &mut Walk<'_>, rule: &Rule, program: &str, args: &[Arg]) {
    let mut shown = program.to_owned();
    for arg in args.iter().skip(1) {
        shown.push(' ');
        shown.push_str(&arg.shown());
    }
    walk.reason(rule.id, rule.level, rule.what, &shown, rule.why);
}

/// SQL that throws data away, in arguments or in what is read.
pub(crate) fn sql(walk: &mut Walk<'_>, args: &[Arg], input: &crate::analysis::Output) {
    let mut texts: Vec<String> = args.iter().map(Arg::text).collect();
    texts.extend(input.text.clone());
    for text in texts {
        for statement in text.split(';') {
            let upper = statement.to_uppercase();
            let words: Vec<&str> = upper.split_whitespace().collect();
            let drops = words.windows(2).any(|pair| {
                matches!(
                    pair,
                    ["DROP", "TABLE" | "DATABASE" | "SCHEMA" | "USER" | "ROLE" | "VIEW" | "INDEX"]
                        | ["TRUNCATE", _]
                )
            });
            let deletes =
                words.windows(2).any(|pair| pair == ["DELETE", "FROM"]) && !words.contains(&"WHERE");
            if drops || deletes {
                walk.risk("sql-destroy", "deletes data from a database", statement, "it can't be undone");
            }
        }
    }
}

impl When {
    fn holds(&self, args: &[Arg]) -> bool {
        match self {
            Self::Always => true,
            Self::Given => checks::operands(args).next().is_some(),
            Self::Has(options) => checks::has(args, options),
            Self::HasNone(options) => !checks::has(args, options),
            Self::Unless(options) => {
                args.is_empty()
                    || !args.iter().all(|arg| arg.literal().is_some_and(|arg| options.contains(&arg)))
            }
            Self::Sub(words) => checks::subcommand(args, words),
            Self::SubHas(words, options) => checks::subcommand(args, words) && checks::has(args, options),
            Self::SubHasNone(words, options) => {
                checks::subcommand(args, words) && !checks::has(args, options)
            }
            Self::Operand(words) => {
                checks::operands(args).any(|arg| words.iter().any(|word| could(arg, word)))
            }
            Self::Subs(list) => list.iter().any(|words| checks::subcommand(args, words)),
        }
    }
}

fn could(arg: &Arg, word: &str) -> bool {
    arg.literal() == Some(word) || (arg.has_glob() && !arg.is_unknown() && arg.could_be(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BackendKind, Context, analyse};

    fn rules_hit(command: &str) -> Vec<&'static str> {
        let context = Context::new(BackendKind::Local).with_cwd("/home/dev/project").with_home("/home/dev");
        analyse(command, &context).verdict.reasons.iter().map(|reason| reason.rule).collect()
    }

    /// Each rule hits its own examples and leaves the others alone.
    #[test]
    fn rules_hit_their_examples() {
        for rule in RULES {
            for command in rule.hits {
                assert!(
                    rules_hit(command).contains(&rule.id),
                    "{} must hit {command:?}: {:?}",
                    rule.id,
                    rules_hit(command)
                );
            }
            for command in rule.misses {
                assert!(!rules_hit(command).contains(&rule.id), "{} must not hit {command:?}", rule.id);
            }
        }
    }

    /// What a person reads: lower-case fragments, no full stop.
    #[test]
    fn rules_are_worded_alike() {
        for rule in RULES {
            for text in [rule.what, rule.why] {
                assert!(text.starts_with(char::is_lowercase) && !text.ends_with('.'), "{}: {text}", rule.id);
            }
            assert!(rule.id.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{}", rule.id);
        }
    }
}
