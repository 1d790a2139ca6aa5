//! The backends of this build. A new one is a line in [`AVAILABLE`] and an arm in [`Registry::open`].

use farshell_config::{BackendKind, Settings, settings};
use farshell_engine::{Backend, Error, Kind};
use farshell_keeper::Backends;
use std::path::Path;
use std::sync::Arc;

/// The backends that this build can serve.
pub(crate) const AVAILABLE: &[BackendKind] = &[BackendKind::Local];

/// What the server opens backends with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registry;

impl Backends for Registry {
    fn open(&self, settings: &Settings, home: &Path) -> Result<Arc<dyn Backend>, Error> {
        match &settings.backend {
            settings::Backend::Local(_) => Ok(Arc::new(local(home))),
            other => Err(not_in_this_build(other.kind())),
        }
    }

    fn refuse(&self, kind: BackendKind) -> Option<Error> {
        (!AVAILABLE.contains(&kind)).then(|| not_in_this_build(kind))
    }

    fn all(&self, home: &Path) -> Vec<Arc<dyn Backend>> {
        vec![Arc::new(local(home))]
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
