//! The backends of this build. A new one is a line in [`AVAILABLE`] and an arm in [`open`].

use farshell_config::{BackendKind, Settings, settings};
use farshell_engine::{Backend, Error, Kind};
use std::path::Path;

/// The backends that this build can serve.
pub(crate) const AVAILABLE: &[BackendKind] = &[BackendKind::Local];

/// The selected backend. There is no other one that could stand in for it.
pub(crate) fn open(settings: &Settings, home: &Path) -> Result<Box<dyn Backend>, Error> {
    match &settings.backend {
        settings::Backend::Local(_) => Ok(Box::new(local(home))),
        other => Err(not_in_this_build(other.kind())),
    }
}

/// The local backend, which needs no settings of its own.
pub(crate) fn local(home: &Path) -> farshell_local::Local {
    // Apart from what Hermes keeps in the same directory.
    farshell_local::Local::new(farshell_local::Config { home: home.join("farshell") })
}

/// Why a backend that has a name can't be had.
pub(crate) fn not_in_this_build(kind: BackendKind) -> Error {
    let available: Vec<&str> = AVAILABLE.iter().map(|kind| kind.as_str()).collect();
    Error::new(
        Kind::Unavailable,
        "choosing the backend",
        format!("backend {kind} is not part of this build yet; available: {}", available.join(", ")),
    )
    .with_hint("nothing was run, here or elsewhere; choose an available backend with --backend or `farshell config set backend NAME`")
}
