//! What to do about a sandbox in each of its states.

use crate::client::State;
use std::time::Duration;

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It runs.
    Use,
    Start,
    Recover,
    /// It changes on its own; then it is looked at again.
    Wait,
    /// There is none, or will be none in a moment.
    Gone,
    /// It is about to go; its name may be taken still.
    WaitGone,
    /// Nothing was ever in it.
    NeverWas,
    /// It is there, and can't be used.
    Broken,
}

pub(crate) fn next(state: &State, recoverable: bool) -> Step {
    match state {
        State::Started => Step::Use,
        // A start during archiving calls that off.
        State::Stopped | State::Archived | State::Paused | State::Archiving => Step::Start,
        State::Error if recoverable => Step::Recover,
        State::Error => Step::Broken,
        State::BuildFailed => Step::NeverWas,
        State::Destroyed => Step::Gone,
        State::Destroying => Step::WaitGone,
        State::Creating
        | State::PendingBuild
        | State::BuildingSnapshot
        | State::PullingSnapshot
        | State::Starting
        | State::Restoring
        | State::Resuming
        | State::Stopping
        | State::Pausing
        | State::Resizing
        | State::Snapshotting
        | State::Forking
        | State::Unknown
        | State::Other(_) => Step::Wait,
    }
}

/// Nothing runs in it, and nothing will unless somebody asks for it. Whatever is not known may be hard at work.
pub(crate) fn sleeps(state: &State) -> bool {
    matches!(
        state,
        State::Stopped
            | State::Stopping
            | State::Archived
            | State::Archiving
            | State::Paused
            | State::Pausing
            | State::Error
            | State::BuildFailed
            | State::Destroyed
            | State::Destroying
    )
}

/// How long a sandbox may stay in a state.
pub(crate) fn patience(state: &State) -> Duration {
    let minutes = match state {
        // An image is built or fetched, or gigabytes come back from an archive.
        State::PendingBuild
        | State::BuildingSnapshot
        | State::PullingSnapshot
        | State::Creating
        | State::Restoring
        | State::Archiving
        | State::Snapshotting => 20,
        State::Unknown | State::Other(_) => 2,
        _ => 5,
    };
    Duration::from_secs(minutes * 60)
}

/// What is going on, for people.
pub(crate) fn news(state: &State, image: &str) -> String {
    match state {
        State::PendingBuild => format!("the image of {image} waits to be built"),
        State::BuildingSnapshot => format!("building the image of {image}"),
        State::PullingSnapshot => format!("fetching the image of {image}"),
        // Said before it is asked for: Daytona answers that when much of it is done.
        State::Archived => "the sandbox is archived: it is being restored".into(),
        State::Restoring => "restoring the sandbox from its archive".into(),
        State::Archiving => "calling off the archiving of the sandbox".into(),
        State::Other(name) => format!("the sandbox is in the state {name:?}"),
        other => format!("the sandbox is {}", other.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::STATES;

    #[test]
    fn there_is_something_to_do_in_every_state() {
        let of = |step: Step, recoverable| -> Vec<&str> {
            STATES
                .iter()
                .filter(|(_, state)| next(state, recoverable) == step)
                .map(|(name, _)| *name)
                .collect()
        };
        assert_eq!(of(Step::Use, false), ["started"]);
        assert_eq!(of(Step::Start, false), ["stopped", "archived", "archiving", "paused"]);
        assert_eq!(of(Step::Recover, true), ["error"]);
        assert_eq!(of(Step::Broken, false), ["error"]);
        assert_eq!(of(Step::NeverWas, false), ["build_failed"]);
        assert_eq!(of(Step::Gone, false), ["destroyed"]);
        assert_eq!(of(Step::WaitGone, false), ["destroying"]);
        assert_eq!(of(Step::Wait, false).len(), 13);
        assert_eq!(next(&State::Other("new".into()), true), Step::Wait);
    }
}
