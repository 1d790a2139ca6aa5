//! The behaviours, by theme.

use crate::case::Case;

mod abuse;
mod cwd;
mod endings;
mod files;
mod kill;
mod lease;
mod logs;
mod one_shot;
mod output;
mod processes;
mod resume;
mod sessions;
mod state;
mod stdin;
mod terminals;

/// All cases.
pub(crate) fn all() -> impl Iterator<Item = &'static Case> {
    [
        state::CASES,
        one_shot::CASES,
        endings::CASES,
        output::CASES,
        stdin::CASES,
        cwd::CASES,
        kill::CASES,
        sessions::CASES,
        processes::CASES,
        terminals::CASES,
        logs::CASES,
        files::CASES,
        resume::CASES,
        lease::CASES,
        abuse::CASES,
    ]
    .into_iter()
    .flatten()
}
