//! What a case is, and how it fails.

use crate::Env;
use farshell_engine::backend::BoxFuture;
use farshell_protocol::session::Mode;
use std::time::Duration;

/// The outcome of a case, or of a step of it.
pub type Done = Result<(), Failure>;

/// A promise was not kept.
#[derive(Debug)]
pub struct Failure(String);

impl Failure {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// One behaviour.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub name: &'static str,
    pub theme: &'static str,
    pub modes: Modes,
    pub deadline: Duration,
    pub needs: Need,
    pub run: for<'a> fn(&'a Env) -> BoxFuture<'a, Done>,
}

/// In which kind of session a case is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Modes {
    Live,
    OneShot,
    /// Once in each.
    Both,
    /// It is not about sessions: once, and its name says no mode.
    Any,
}

impl Modes {
    /// The runs of a case: the part of the name, and the mode.
    pub(crate) fn runs(self) -> &'static [(&'static str, Mode)] {
        match self {
            Self::Live => &[("live::", Mode::Live)],
            Self::OneShot => &[("one_shot::", Mode::OneShot)],
            Self::Both => &[("live::", Mode::Live), ("one_shot::", Mode::OneShot)],
            Self::Any => &[("", Mode::Live)],
        }
    }
}

/// What a subject must have for a case to make sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Nothing,
    /// A socket on this machine.
    Socket,
    /// Whoever connects starts an outpost that has ended.
    Wake,
    /// A shell that is bash: what the case is about is no part of any other.
    Bash,
}

/// Time for a case that names none. Generous: the machine may be busy with other cases.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// The list of a theme: `Modes: name, name @ seconds, name needs Socket;`
macro_rules! cases {
    ($($modes:ident: $($name:ident $(@ $seconds:literal)? $(needs $need:ident)?),+ $(,)?;)+) => {
        pub(crate) const CASES: &[$crate::case::Case] = &[$($(
            $crate::case::Case {
                name: stringify!($name),
                theme: module_path!(),
                modes: $crate::case::Modes::$modes,
                deadline: $crate::case::cases!(@deadline $($seconds)?),
                needs: $crate::case::cases!(@need $($need)?),
                run: |env| Box::pin($name(env)),
            },
        )+)+];
    };
    (@deadline) => { $crate::case::DEADLINE };
    (@deadline $seconds:literal) => { std::time::Duration::from_secs($seconds) };
    (@need) => { $crate::case::Need::Nothing };
    (@need $need:ident) => { $crate::case::Need::$need };
}

/// Fails the case unless the condition holds.
macro_rules! check {
    ($condition:expr, $($why:tt)+) => {
        if !$condition {
            return Err($crate::case::Failure::new(format!(
                "{} ({}:{})", format_args!($($why)+), file!(), line!()
            )));
        }
    };
}

/// Fails the case unless both are equal. Bytes are shown as text.
macro_rules! check_eq {
    ($found:expr, $expected:expr, $($what:tt)+) => {
        match (&$found, &$expected) {
            (found, expected) => {
                if found != expected {
                    return Err($crate::case::Failure::new(format!(
                        "{} ({}:{})\n expected: {}\n found:    {}",
                        format_args!($($what)+), file!(), line!(),
                        $crate::case::Shown::shown(expected), $crate::case::Shown::shown(found),
                    )));
                }
            }
        }
    };
}

pub(crate) use {cases, check, check_eq};

/// How a value stands in a failure: bytes as text, and not too long.
pub(crate) trait Shown {
    fn shown(&self) -> String;
}

impl<T: std::fmt::Debug> Shown for T {
    fn shown(&self) -> String {
        shorten(format!("{self:?}"))
    }
}

fn shorten(text: String) -> String {
    const MAX: usize = 2000;
    if text.len() <= MAX {
        return text;
    }
    let head: String = text.chars().take(MAX / 2).collect();
    let tail: Vec<char> = text.chars().rev().take(MAX / 2).collect();
    format!("{head} … {} … {}", text.len(), tail.into_iter().rev().collect::<String>())
}
