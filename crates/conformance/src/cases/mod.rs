//! The behaviours, by theme.

use crate::case::Case;

mod cwd;
mod endings;
mod kill;
mod one_shot;
mod output;
mod state;
mod stdin;

/// All cases.
pub(crate) fn all() -> impl Iterator<Item = &'static Case> {
    [state::CASES, endings::CASES, output::CASES, stdin::CASES, kill::CASES, cwd::CASES, one_shot::CASES]
        .into_iter()
        .flatten()
}
