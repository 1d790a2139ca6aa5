//! The narrow waist: what a kind of place has to offer.
//!
//! A backend does two things and no more: it *provisions a place*, and the place *opens a byte stream to the
//! outpost inside it*. Shells, processes, logs, files and kills are the outpost's business and mean the same
//! everywhere. A new backend is a crate with these two implementations.

use crate::error::{Error, Kind, Result};
pub use farshell_protocol::TaskName;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use tokio::io::{AsyncRead, AsyncWrite};

/// A future that a trait object can return.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A kind of place.
pub trait Backend: Send + Sync + std::fmt::Debug {
    /// The name by which configuration and results call it: `local`, `docker`, …
    fn name(&self) -> &'static str;

    /// What it can and what it can't enforce. Checked before anything is started.
    fn capabilities(&self) -> Capabilities;

    /// Finds the task's place or makes it. Two calls for one task and one spec give the same place, also when
    /// they run at the same time or in two processes. What takes long is told to `progress`.
    ///
    /// # Errors
    /// The place can't be had. There is no fall-back to another backend, ever.
    fn provision<'a>(
        &'a self,
        spec: &'a Spec,
        progress: &'a dyn Progress,
    ) -> BoxFuture<'a, Result<Box<dyn Place>>>;

    /// Finds the task's place if it is there, and makes, starts and changes nothing. `None` is sure: there is none.
    ///
    /// # Errors
    /// It can't be told.
    fn find<'a>(&'a self, spec: &'a Spec) -> BoxFuture<'a, Result<Option<Box<dyn Place>>>>;

    /// As [`Backend::find`], for a place that is known as `was`. Where a place is met and not made (the host that a name leads
    /// to), another one that answers in its stead says nothing about it: that is an error, and never `None`.
    ///
    /// # Errors
    /// It can't be told; [`Kind::IdentityChanged`] if another place answers.
    fn find_again<'a>(
        &'a self,
        spec: &'a Spec,
        was: &'a Identity,
    ) -> BoxFuture<'a, Result<Option<Box<dyn Place>>>> {
        let _ = was;
        self.find(spec)
    }

    /// As [`Backend::provision`], for a place that is known as `was` and was not ended. Where a place is met and not made,
    /// nothing is started on another one that answers in its stead.
    ///
    /// # Errors
    /// As [`Backend::provision`]; [`Kind::IdentityChanged`] if another place answers.
    fn provision_again<'a>(
        &'a self,
        spec: &'a Spec,
        was: &'a Identity,
        progress: &'a dyn Progress,
    ) -> BoxFuture<'a, Result<Box<dyn Place>>> {
        let _ = was;
        self.provision(spec, progress)
    }

    /// Can it serve here and now? Each finding says what is wrong and what to do.
    fn check(&self) -> BoxFuture<'_, Vec<Finding>>;

    /// What it holds of ours, whether or not anybody remembers it. Nothing is started or changed.
    ///
    /// # Errors
    /// It can't be asked.
    fn survey(&self) -> BoxFuture<'_, Result<Vec<Found>>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Where the files of a task are that outlive its place, for people: a directory, or names of volumes. `None` if
    /// none are kept, or none are there.
    fn kept_files<'a>(&'a self, spec: &'a Spec) -> BoxFuture<'a, Option<String>> {
        let _ = spec;
        Box::pin(async { None })
    }

    /// Removes those files. The place is gone already. If there are none, that is no error.
    ///
    /// # Errors
    /// Some may be left.
    fn remove_files<'a>(&'a self, spec: &'a Spec) -> BoxFuture<'a, Result<()>> {
        let _ = spec;
        Box::pin(async { Ok(()) })
    }

    /// The line to its places can break for hours while what runs in them goes on, as when a laptop is closed, and an outpost
    /// that waits for its owner costs nobody anything. Such an outpost outlives its owner's silence for longer than others.
    fn can_be_cut_off(&self) -> bool {
        false
    }

    /// Somebody calls who has this backend's settings and variables. What is done later on behalf of places that were
    /// made for earlier callers may go by the newer variables: the agent of a new login, say. Asks nobody.
    fn called(&self) {}

    /// Ends and removes something that [`Backend::survey`] found. If it is gone already, that is no error.
    ///
    /// # Errors
    /// It may still be there.
    fn remove_found<'a>(&'a self, found: &'a Found) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let message = format!("backend {} has nothing of this name", self.name());
            Err(Error::new(Kind::NotFound, format!("removing {}", found.name), message))
        })
    }
}

/// Something of ours that a backend holds: a place, or what is left of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Unique within the backend.
    pub name: String,
    /// Where it is, exactly.
    pub id: String,
    /// The task whose place it is. Absent for what is left of a place that nobody can use again.
    pub task: Option<TaskName>,
    /// The home whose keeper made it.
    pub owner: String,
    /// What it was made from, where that was written on it.
    pub spec_hash: Option<String>,
    /// How long it has been there, where that can be told.
    pub age: Option<std::time::Duration>,
    /// Its outpost runs. One that does ends by itself when its lease is over.
    pub alive: bool,
}

/// One provisioned place.
pub trait Place: Send + Sync + std::fmt::Debug {
    /// What this place is. If two identities differ, they are two places.
    fn identity(&self) -> Identity;

    /// Opens a byte stream to the place's outpost, starting that if it does not run. May be called again
    /// after a stream broke, and while others are open. Where starting it means to wait in a queue, the place is gone
    /// instead: whoever provisions it anew is told about the wait.
    ///
    /// # Errors
    /// The place is gone or can't be reached; the kind says which, and whether a retry can help.
    fn connect(&self) -> BoxFuture<'_, Result<ByteStream>>;

    /// Ends everything in it and removes it, except for the files that the spec calls persistent. If it is gone
    /// already, that is no error.
    ///
    /// # Errors
    /// It may still be there, and may still cost money.
    fn destroy(&self) -> BoxFuture<'_, Result<()>>;

    /// Ends everything in it, and keeps what a later [`Backend::provision`] with the same spec finds again: a stopped
    /// container, a sandbox that sleeps. A place that can't be kept is destroyed.
    ///
    /// # Errors
    /// It may still run, and may still cost money.
    fn suspend(&self) -> BoxFuture<'_, Result<()>> {
        self.destroy()
    }

    /// How long [`Place::suspend`] may take: more than all of its own waits together, or what it does is cut in the middle.
    fn suspend_limit(&self) -> std::time::Duration {
        std::time::Duration::from_secs(600)
    }

    /// Whether [`Place::destroy`] deletes files that were to be kept, and that are nowhere else. `None`: what the settings say
    /// from which it was made.
    fn holds_the_only_files(&self) -> Option<bool> {
        None
    }

    /// What is to be known of what was kept, for people: until when, say. Known once it was put away.
    fn keepsake(&self) -> Option<String> {
        None
    }

    /// The limits that hold in this very place, for people. Empty: what [`Backend::capabilities`] says.
    fn limits(&self) -> Vec<Limit> {
        Vec::new()
    }

    /// It was found put away: nothing runs in it, and connecting would wake it.
    fn sleeps(&self) -> bool {
        false
    }

    /// Whoever is connected keeps it awake, and that costs: a connection that nobody has used for this long is closed as long
    /// as nothing runs in the place, and the next request makes another. `None`: a connection costs nothing.
    fn rests_after(&self) -> Option<std::time::Duration> {
        None
    }

    /// Somebody else may put it to sleep, or it may end by itself, at any time, and what is kept of it is found again: what
    /// its sessions would leave is noted soon after each command.
    fn ends_unasked(&self) -> bool {
        self.rests_after().is_some()
    }

    /// It was made for this call from what was kept of the task's last place: all files of that are in it, although its
    /// identity is another one.
    fn goes_on(&self) -> bool {
        false
    }

    /// What is to be said of it at this moment, for people: `Slurm job 12 on n1, 58 min left`. Asks nobody.
    fn status(&self) -> Option<String> {
        None
    }

    /// What whoever serves the place wants people to be told, each text once: it is shown with a result. Asks nobody.
    fn word(&self) -> Option<String> {
        None
    }

    /// Why the outpost that was here before is gone, as far as the place can tell: `the container ran out of memory and
    /// was killed`. Known once [`Place::connect`] has found that out.
    fn epitaph(&self) -> Option<String> {
        None
    }
}

/// Is told what takes long while a place is made.
pub trait Progress: Send + Sync {
    fn say(&self, news: &News);

    /// Ends when nobody wants the place any more: who waited has gone, or somebody removes it. Only what waits for others
    /// to make room (a queue) is given up then: what is half made is finished.
    fn gone(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

/// For those who don't care.
impl Progress for () {
    fn say(&self, _: &News) {}
}

/// What is being done, for people. The last one counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// `pulling debian:12`
    pub message: String,
    /// How much of it is done, of how much, in bytes.
    pub part: Option<(u64, u64)>,
}

/// How one limit is kept in a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// `cpu`, `memory`, `disk` or `processes`
    pub name: &'static str,
    /// `2 cores`, `5120 MB`, `no limit`
    pub value: String,
    pub support: Support,
    /// Why it is not enforced, in words.
    pub note: Option<String>,
}

/// Both directions of a connection.
pub struct ByteStream {
    pub read: Box<dyn AsyncRead + Send + Unpin>,
    pub write: Box<dyn AsyncWrite + Send + Unpin>,
}

impl std::fmt::Debug for ByteStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ByteStream")
    }
}

/// What a backend is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    pub task: TaskName,
    /// How long the place outlives the silence of its owner.
    pub lease: std::time::Duration,
    /// Everything that makes one place different from another: image, mounts, limits. Compared as a whole.
    pub settings: BTreeMap<String, String>,
}

impl Spec {
    /// Differs whenever the settings do.
    #[must_use]
    pub fn hash(&self, backend: &str) -> String {
        settings_hash(backend, &self.settings)
    }
}

/// One text for all settings of a [`Spec`], to be written on what is made from them.
#[must_use]
pub fn settings_hash(backend: &str, settings: &BTreeMap<String, String>) -> String {
    let mut hasher = Sha256::new();
    let mut add = |text: &str| {
        // The length keeps two texts apart from one.
        hasher.update((text.len() as u64).to_le_bytes());
        hasher.update(text);
    };
    add(backend);
    for (key, value) in settings {
        add(key);
        add(value);
    }
    hasher.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

/// What a place is: every result names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Short and readable: a host name, a container's short id.
    pub name: String,
    /// Exact: differs whenever the place does.
    pub id: String,
}

/// What a backend can do. A setting that it can't enforce is refused or reported, never dropped in silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    pub limits_cpu: Support,
    pub limits_memory: Support,
    pub limits_disk: Support,
    pub limits_processes: Support,
    /// Commands can't see the host's files and processes.
    pub isolates: bool,
    /// Files that are to be kept survive the place's end. Where they don't, no place is ended because its settings changed.
    pub persists_files: bool,
    /// The place can be put to sleep and woken.
    pub suspends: bool,
}

/// How well a limit is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    Enforced,
    Approximated,
    NotEnforced,
}

impl Support {
    /// Stable name, for output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Enforced => "enforced",
            Self::Approximated => "approximated",
            Self::NotEnforced => "not enforced",
        }
    }
}

/// Something that a check of a backend found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    /// What was found.
    pub what: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Good,
    /// It works, but not as well as it could.
    Warning,
    /// It does not work.
    Problem,
}

impl Finding {
    pub fn good(what: impl Into<String>) -> Self {
        Self { severity: Severity::Good, what: what.into(), hint: None }
    }

    pub fn warning(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, what: what.into(), hint: Some(hint.into()) }
    }

    pub fn problem(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { severity: Severity::Problem, what: what.into(), hint: Some(hint.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_of_all_of_it() {
        let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        let base = settings_hash("local", &map(&[("a", "1"), ("b", "2")]));
        assert_eq!(base.len(), 64);
        assert_eq!(base, settings_hash("local", &map(&[("b", "2"), ("a", "1")])));
        for (backend, other) in [
            ("docker", map(&[("a", "1"), ("b", "2")])),
            ("local", map(&[("a", "1"), ("b", "3")])),
            ("local", map(&[("a", "1b"), ("", "2")])),
            ("local", map(&[("a", "1")])),
        ] {
            assert_ne!(base, settings_hash(backend, &other));
        }
    }
}
