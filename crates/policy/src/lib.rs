//! What a command may do, decided before it runs. No I/O: the server asks, and acts.
//!
//! # From text to decision
//! 1. [`analyse`]: the text is parsed as bash parses it and followed through everything that hides a command in a
//!    command; the [`Verdict`] says how bad it is and why.
//! 2. [`Policy::decide`]: mode, deny list and allowlist make a [`Decision`] of it: allow, ask, deny.
//! 3. [`Redactor`]: what the command printed is shown without the secrets in it.
//!
//! # Who owns what
//! - [`syntax`](self): the grammar of bash, text to nodes.
//! - `analysis`: the walk over the nodes. `value`: words with gaps.
//! - `rules`: the table of rules, and what paths stand for.
//! - `lists`: the user's deny list and allowlist. `decide`: the modes.
//! - `redact`: secrets in output. `outline`: a script at a glance, for notes about it.
//!
//! # What it is not
//! No sandbox. A program that is called does what it likes, and the analysis sees the words of a command, not the
//! files behind them: a script that was written an hour ago, a symbolic link, a Makefile. It is there so that a
//! mistake is seen by a person first. Who needs a wall chooses a backend that has one.

mod analysis;
mod context;
mod decide;
mod lists;
mod outline;
mod redact;
mod rules;
mod syntax;
mod value;
mod verdict;

pub use analysis::{Analysis, MAX_TEXT, analyse};
pub use context::{BackendKind, Context};
pub use decide::{Decision, Mode, Policy, Unattended, UnknownMode};
pub use lists::{Allow, Deny, Scope};
pub use outline::{Outline, outline};
pub use redact::{Redactor, Stream};
pub use rules::{RuleInfo, all as rules};
pub use verdict::{Level, Reason, Verdict};
