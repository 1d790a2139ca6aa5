//! Leave to change files. It is asked for where all leave is asked for: in the keeper.

use super::handles::Handle;
use super::paths::Paths;
use crate::app::App;
use crate::refusal::Refusal;
use farshell_api::approval::{Subject, Surface};
use farshell_api::audit::AuditOutcome;
use farshell_keeper::{Deed, Origin, Permit};
use std::sync::Arc;

/// What is about to happen to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Write,
    /// With all that is in it.
    RemoveAll,
}

/// # Errors
/// The policy or a person does not allow it.
pub(super) async fn leave(
    app: &Arc<App>,
    handle: &Handle,
    by: &Origin,
    change: Change,
    paths: &Paths,
) -> Result<Permit, Refusal> {
    let path = whole(paths);
    let (subject, text) = match change {
        Change::Write => (Subject::FileWrite, path),
        Change::RemoveAll => (Subject::Command, format!("rm -rf -- {}", quoted(&path))),
    };
    let deed = Deed {
        target: &handle.target,
        session: &handle.session_name,
        subject,
        text: &text,
        workdir: None,
        process: None,
        // Nobody but a person calls `farshell cp`; what a model runs is judged as a command before it comes here.
        typed: by.surface == Surface::Cli,
        repeated: handle.used_before(),
    };
    Ok(app.keeper.on_behalf(by.clone()).permit(deed, &()).await?)
}

/// What became of it, for the audit log.
pub(super) fn finish<T>(permit: Permit, done: &Result<T, Refusal>) {
    permit.ended(match done {
        Ok(_) => AuditOutcome { state: "ended".to_owned(), ..AuditOutcome::default() },
        Err(refusal) => AuditOutcome::of_error(&refusal.error),
    });
}

/// The path as the place will take it: absolute, from the home directory, or from the session's.
fn whole(paths: &Paths) -> String {
    let path = String::from_utf8_lossy(&paths.path);
    match &paths.root {
        None => path.into_owned(),
        Some(root) if paths.path.is_empty() => String::from_utf8_lossy(root).into_owned(),
        Some(root) => format!("{}/{path}", String::from_utf8_lossy(root).trim_end_matches('/')),
    }
}

fn quoted(path: &str) -> String {
    let (home, rest) = match path.strip_prefix("~/") {
        Some(rest) => ("~/", rest),
        None => ("", path),
    };
    format!("{home}'{}'", rest.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use farshell_engine::Kind;

    #[test]
    fn what_nobody_can_say_the_end_of_is_not_called_failed() {
        let kinds = [Kind::UnknownOutcome, Kind::Disconnected, Kind::NotStarted, Kind::Denied, Kind::System];
        let states = kinds.map(|kind| {
            let outcome = AuditOutcome::of_error(&Refusal::new(kind, "writing", "why").error);
            (outcome.state, outcome.error)
        });
        let expected = ["lost", "lost", "not_started", "failed", "failed"];
        assert_eq!(states, expected.map(|state| (state.to_owned(), Some("why".to_owned()))));
    }

    #[test]
    fn paths_are_told_as_the_place_takes_them() {
        let paths = |root: Option<&str>, path: &str| Paths { root: root.map(Into::into), path: path.into() };
        assert_eq!(whole(&paths(None, "~/.ssh/x")), "~/.ssh/x");
        assert_eq!(whole(&paths(Some("/etc/"), "passwd")), "/etc/passwd");
        assert_eq!(whole(&paths(Some("/"), "etc")), "/etc");
        assert_eq!(whole(&paths(Some("~"), ".ssh/x")), "~/.ssh/x");
        assert_eq!(whole(&paths(Some("/a"), "")), "/a");
        assert_eq!(quoted("~/it's"), "~/'it'\\''s'");
    }
}
