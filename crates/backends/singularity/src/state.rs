//! What is noted about an instance, beside its socket and out of its reach.

use crate::layout::Layout;
use crate::limits::Limits;
use crate::processes::Family;
use farshell_engine::machine::Machine;
use farshell_engine::{Error, Kind, Result};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const NAME: &str = "state.json";

/// The note.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    /// Random: the instance's identity, for as long as its layer is there.
    pub(crate) id: String,
    pub(crate) task: String,
    /// The home that it was made for.
    pub(crate) owner: String,
    /// What it was made from.
    pub(crate) spec: String,
    /// Seconds since 1970.
    pub(crate) made: u64,
    /// Where its files are, and whether they outlive it.
    pub(crate) files: PathBuf,
    pub(crate) persistent: bool,
    /// Where it was started last, and as what.
    pub(crate) machine: Machine,
    pub(crate) family: Family,
    pub(crate) limits: Limits,
    /// The job that it is, wherever that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) job: Option<JobNote>,
}

/// What is noted about a Slurm job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobNote {
    /// Absent until Slurm has said it.
    pub(crate) id: Option<u32>,
    /// Random: by this it is known in the queue, and knows that it is still wanted.
    pub(crate) mark: String,
    /// The directory of its node in which its outpost listens.
    pub(crate) door: String,
    /// Its outpost was heard of.
    #[serde(default)]
    pub(crate) answered: bool,
}

impl State {
    /// What is noted. `None`: there is no instance.
    pub(crate) fn read(private: &Path) -> Result<Option<Self>> {
        let path = private.join(NAME);
        let fail = |error| Error::io(format!("reading {}", path.display()), error);
        match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| {
                fail(io::Error::new(io::ErrorKind::InvalidData, error)).with_hint(format!(
                    "remove {}; what is kept of the environment's files lies elsewhere",
                    private.display()
                ))
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(fail(error)),
        }
    }

    /// Notes it, whole or not at all.
    pub(crate) fn write(&self, layout: &Layout) -> Result<()> {
        let path = layout.private.join(NAME);
        let temp = layout.private.join(format!(".{NAME}"));
        let write = || {
            let text = serde_json::to_vec(self)?;
            let mut file = std::fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&temp)?;
            file.write_all(&text)?;
            std::fs::rename(&temp, &path)
        };
        write().map_err(|e| Error::io(format!("writing {}", path.display()), e))
    }

    /// It was started on another machine, which alone can tell what became of it.
    pub(crate) fn elsewhere(&self) -> Option<&str> {
        // Jobs can be asked about from everywhere, and one that was put away runs nowhere: then it is a question of whether
        // its files are to be seen from here.
        let bound = self.job.is_none() && (self.family.parent.is_some() || !self.files.exists());
        (bound && self.machine.host != Machine::this().host && !self.is_here())
            .then_some(self.machine.host.as_str())
    }

    /// What is noted about processes is about those of this machine, since it was started. Its name may have changed; but
    /// machines that are containers of one kernel have different names and do not see each other's.
    pub(crate) fn is_here(&self) -> bool {
        let this = Machine::this();
        self.machine.boot == this.boot && (self.machine.host == this.host || self.family.alive())
    }

    /// It runs here and now.
    pub(crate) fn alive(&self) -> bool {
        self.is_here() && self.family.alive()
    }

    /// Refuses to touch what another machine may be using.
    pub(crate) fn check_here(&self, private: &Path) -> Result<()> {
        let Some(host) = self.elsewhere() else { return Ok(()) };
        let message =
            format!("its instance was started on {host}, and its files can't be used from two machines");
        Err(Error::new(Kind::Unavailable, format!("preparing the environment of task {}", self.task), message)
            .with_hint(format!(
                "end it there with `farshell env rm`, or use another task here; if {host} is gone for good, remove {}",
                private.display()
            )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_back_and_knows_its_machine() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout {
            name: "n".into(),
            owner: "o".into(),
            private: dir.path().into(),
            files: dir.path().join("files"),
            kept: dir.path().join("files"),
        };
        assert_eq!(State::read(dir.path()).unwrap(), None);
        let mut state = State {
            id: "1".into(),
            task: "t".into(),
            owner: "o".into(),
            spec: "s".into(),
            made: 7,
            files: layout.files.clone(),
            persistent: true,
            machine: Machine::this(),
            family: Family::of(std::process::id()).unwrap(),
            limits: Limits::default(),
            job: None,
        };
        state.write(&layout).unwrap();
        assert_eq!(State::read(dir.path()).unwrap(), Some(state.clone()));
        assert!(state.alive() && state.check_here(dir.path()).is_ok());
        // After a restart of the machine the numbers mean nothing.
        state.machine.boot = "earlier".into();
        assert!(!state.alive() && state.check_here(dir.path()).is_ok());
        let refused =
            |state: &State| state.check_here(dir.path()).is_err_and(|e| e.message.contains("login2"));
        state.machine.host = "login2".into();
        assert!(!state.alive() && refused(&state));
        // The machine was given another name.
        state.machine.boot = Machine::this().boot;
        assert!(state.alive() && !refused(&state));
        // In a container beside this one, perhaps.
        state.family.parent = state.family.parent.map(|p| crate::processes::Process { started: 1, ..p });
        assert!(!state.alive() && refused(&state));
        // What was put away runs nowhere, but its files may be on that machine's own disk.
        state.machine.boot = "another".into();
        state.family = Family::default();
        assert!(refused(&state));
        std::fs::create_dir(&state.files).unwrap();
        assert!(!refused(&state) && !state.alive());
        std::fs::write(dir.path().join(NAME), "{").unwrap();
        assert!(State::read(dir.path()).is_err());
    }
}
