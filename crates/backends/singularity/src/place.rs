//! [`Place`] in an instance.
//!
//! # From an instance to a stream
//! 1. The socket in the shared directory, if there is one that answers. This is all that a running instance needs.
//! 2. Otherwise what is noted is looked at: one that is just starting is waited for, one that has ended is started
//!    again with its files, one that was removed is an error.

use crate::config::Config;
use crate::layout::{Layout, remove};
use crate::slurm;
use crate::socket::{dial, trouble};
use crate::start::{Ending, Seen, Starter};
use crate::state::State;
use farshell_engine::backend::{BoxFuture, ByteStream, Identity, Limit, Place, Spec};
use farshell_engine::lock::Lock;
use farshell_engine::{Error, Kind, Result};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::Instant;

const WHAT: &str = "connecting to the instance";
/// How long others may be starting, ending or removing the instance: as long as unpacking an image takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(900);
/// How long an instance that runs may take until its outpost answers.
const ANSWER: Duration = Duration::from_secs(60);
/// An outpost greets whoever connects at once. One that does not is stopped, or very busy.
const GREET: Duration = Duration::from_secs(5);

/// One instance.
#[derive(Debug)]
pub(crate) struct SingularityPlace {
    starter: Starter,
    spec_hash: String,
    id: String,
    limits: Mutex<Vec<Limit>>,
    /// It did not run when it was found.
    asleep: bool,
    ending: Ending,
    /// It was seen running.
    ran: Mutex<bool>,
    epitaph: Mutex<Option<String>>,
}

impl SingularityPlace {
    pub(crate) fn new(starter: Starter, spec: &Spec, state: &State, ending: Ending) -> Self {
        let alive = state.alive();
        Self {
            starter,
            spec_hash: spec.hash("singularity"),
            id: state.id.clone(),
            limits: Mutex::new(state.limits.told()),
            asleep: !alive,
            ending,
            ran: Mutex::new(alive),
            epitaph: Mutex::new(None),
        }
    }

    fn layout(&self) -> &Layout {
        &self.starter.layout
    }

    fn short(&self) -> &str {
        self.id.get(..12).unwrap_or(&self.id)
    }

    pub(crate) async fn lock(layout: &Layout) -> Result<Lock> {
        Lock::take(&layout.lock(), PATIENCE, || ()).await
    }

    /// What is noted about this very instance. `None`: it is gone, or another has taken its place.
    fn noted(&self) -> Result<Option<State>> {
        Ok(State::read(&self.layout().private)?.filter(|state| state.id == self.id))
    }

    /// One try at the socket. `None`: nobody answers.
    async fn knock(&self) -> Result<Option<UnixStream>> {
        match dial(&self.layout().socket_dir()).await {
            Ok(stream) => {
                let greeted = tokio::time::timeout(GREET, stream.readable()).await.is_ok();
                Ok(greeted.then_some(stream))
            }
            Err(error) => trouble(WHAT, error).map_or(Ok(None), Err),
        }
    }

    /// Makes it run. The stream, if it answers.
    async fn wake(&self) -> Result<Option<UnixStream>> {
        let _lock = Self::lock(self.layout()).await?;
        let Some(mut state) = self.noted()? else {
            let message = format!("the instance {} was removed", self.short());
            self.note(message.clone());
            return Err(Error::new(Kind::Unavailable, WHAT, message));
        };
        state.check_here(&self.layout().private)?;
        if state.alive() {
            let deadline = Instant::now() + ANSWER;
            while state.alive() && Instant::now() < deadline {
                if let Some(stream) = self.knock().await? {
                    self.seen(&mut state)?;
                    return Ok(Some(stream));
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            if state.alive() {
                let message = format!("the outpost in instance {} does not answer", self.short());
                return Err(Error::new(Kind::Disconnected, WHAT, message).with_hint(
                    "if it stays like this, remove the environment: what is kept of its files stays",
                ));
            }
        }
        if state.spec != self.spec_hash {
            let message = "the instance has ended, and the settings have changed since it was made";
            return Err(Error::new(Kind::SpecChanged, WHAT, message));
        }
        if *self.ran.lock().unwrap_or_else(PoisonError::into_inner) {
            self.note(epitaph(self.ending().await));
        }
        // What is left of one whose parent was killed.
        finish(&self.starter.config, self.layout(), &mut state).await?;
        self.starter.start(&mut state, &self.ending, &()).await?;
        self.seen(&mut state)?;
        self.knock().await
    }

    /// How it ended. Its processes are gone; whoever waits for them is told a moment later.
    async fn ending(&self) -> Option<ExitStatus> {
        let deadline = Instant::now() + GREET;
        loop {
            let seen = *self.ending.lock().unwrap_or_else(PoisonError::into_inner);
            match seen {
                Seen::Ended(status) => return status,
                Seen::Runs if Instant::now() < deadline => tokio::time::sleep(Duration::from_millis(2)).await,
                Seen::Nothing | Seen::Runs => return None,
            }
        }
    }

    /// It runs: notes what belongs to it, if whoever started it could not.
    fn seen(&self, state: &mut State) -> Result<()> {
        *self.ran.lock().unwrap_or_else(PoisonError::into_inner) = true;
        if state.family.others.is_empty() {
            state.family.look();
            state.write(self.layout())?;
        }
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner) = state.limits.told();
        Ok(())
    }

    fn note(&self, epitaph: String) {
        *self.epitaph.lock().unwrap_or_else(PoisonError::into_inner) = Some(epitaph);
    }

    async fn open(&self) -> Result<ByteStream> {
        let deadline = Instant::now() + ANSWER;
        loop {
            let stream = match self.knock().await? {
                Some(stream) => Some(stream),
                None => self.wake().await?,
            };
            if let Some(stream) = stream {
                *self.ran.lock().unwrap_or_else(PoisonError::into_inner) = true;
                return ByteStream::of_socket(stream);
            }
            if Instant::now() >= deadline {
                let message = format!("the instance {} ends as often as it is started", self.short());
                return Err(Error::new(Kind::Unavailable, WHAT, message));
            }
        }
    }
}

/// Ends all processes of an instance.
pub(crate) async fn finish(config: &Config, layout: &Layout, state: &mut State) -> Result<()> {
    slurm::end(config, layout, state).await?;
    if state.is_here() && !state.family.end().await {
        let message = "its processes do not end, although they were killed";
        return Err(Error::new(
            Kind::TimedOut,
            format!("ending the instance of task {}", state.task),
            message,
        )
        .with_hint("a file system that does not answer may hold them"));
    }
    state.family = crate::processes::Family::default();
    Ok(())
}

/// One of its files where they are, which other settings may have elsewhere by now.
fn own(state: &State, path: &Path) -> PathBuf {
    state.files.join(path.file_name().unwrap_or_default())
}

/// Ends an instance and removes it, except for the files that are kept. The lock is held, and goes with it.
pub(crate) async fn destroy(config: &Config, layout: &Layout, mut state: State, lock: Lock) -> Result<()> {
    state.check_here(&layout.private)?;
    finish(config, layout, &mut state).await?;
    if state.persistent {
        // Other settings may mean another image, on which the layer would make no sense.
        remove(&own(&state, &layout.layer()))?;
        remove(&own(&state, &layout.tmp()))?;
    } else {
        remove(&state.files)?;
    }
    remove(&layout.private)?;
    lock.remove();
    Ok(())
}

/// Ends and removes the instance of this identity, if it is there.
pub(crate) async fn destroy_noted(starter: &Starter, id: &str) -> Result<()> {
    let layout = &starter.layout;
    let lock = SingularityPlace::lock(layout).await?;
    match State::read(&layout.private)? {
        Some(state) if state.id == id => destroy(&starter.config, layout, state, lock).await,
        Some(_) => Ok(()),
        None => {
            lock.remove();
            Ok(())
        }
    }
}

/// Ends the instance of this identity, if it is there, and keeps what is to be kept.
pub(crate) async fn suspend_noted(starter: &Starter, id: &str) -> Result<()> {
    let (config, layout) = (&*starter.config, &starter.layout);
    let lock = SingularityPlace::lock(layout).await?;
    let Some(mut state) = State::read(&layout.private)?.filter(|state| state.id == id) else { return Ok(()) };
    if !state.persistent {
        return destroy(config, layout, state, lock).await;
    }
    state.check_here(&layout.private)?;
    finish(config, layout, &mut state).await?;
    remove(&own(&state, &layout.tmp()))?;
    remove(&layout.socket_dir())?;
    state.write(layout)
}

/// How an instance came to its end, as far as that was seen.
fn epitaph(status: Option<ExitStatus>) -> String {
    let how = match status.map(|status| (status.code(), status.signal())) {
        Some((_, Some(9)) | (Some(137), _)) => "was killed".to_owned(),
        Some((_, Some(signal))) => format!("was ended by signal {signal}"),
        Some((Some(code), _)) if code != 0 => format!("ended with exit code {code}"),
        _ => "has ended".to_owned(),
    };
    format!("the instance {how}")
}

impl Place for SingularityPlace {
    fn identity(&self) -> Identity {
        Identity { name: self.short().to_owned(), id: self.id.clone() }
    }

    fn connect(&self) -> BoxFuture<'_, Result<ByteStream>> {
        Box::pin(self.open())
    }

    fn destroy(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(destroy_noted(&self.starter, &self.id))
    }

    fn suspend(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(suspend_noted(&self.starter, &self.id))
    }

    fn limits(&self) -> Vec<Limit> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn sleeps(&self) -> bool {
        self.asleep
    }

    fn epitaph(&self) -> Option<String> {
        self.epitaph.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// For those who have seen no end yet.
pub(crate) fn no_ending() -> Ending {
    Arc::new(Mutex::new(Seen::Nothing))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Singularity;
    use crate::config::sample;
    use farshell_engine::backend::TaskName;

    #[tokio::test]
    async fn an_instance_that_keeps_nothing_leaves_what_was_kept_before() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = sample();
        config.home = dir.path().join("h");
        config.settings.scratch_dir = Some(dir.path().join("s"));
        let spec = Spec {
            task: TaskName::new("t").unwrap(),
            lease: Duration::from_secs(1),
            settings: std::collections::BTreeMap::new(),
        };
        let kept = Layout::new(&config, &spec.task).unwrap().workspace().join("x");
        std::fs::create_dir_all(kept.parent().unwrap()).unwrap();
        std::fs::write(&kept, "kept").unwrap();
        config.settings.container.persistent = false;
        let layout = Layout::new(&config, &spec.task).unwrap();
        let left = layout.workspace().join("left");
        std::fs::create_dir_all(&left).unwrap();
        std::fs::create_dir_all(&layout.private).unwrap();
        let backend = Singularity::new(config);
        let state = backend.new_state(&layout, &spec, "s".into()).unwrap();
        assert!(!left.exists(), "it begins with nothing");
        std::fs::create_dir_all(layout.workspace()).unwrap();
        // As after a start that failed, or a job that was taken out of the queue.
        let lock = SingularityPlace::lock(&layout).await.unwrap();
        destroy(&backend.config, &layout, state, lock).await.unwrap();
        assert!(!layout.files.exists() && !layout.private.exists());
        assert_eq!(std::fs::read_to_string(&kept).unwrap(), "kept");
    }

    #[test]
    fn how_instances_end() {
        for (raw, expected) in [
            (Some(9), "was killed"),
            (Some(137 << 8), "was killed"),
            (Some(15), "was ended by signal 15"),
            (Some(255 << 8), "ended with exit code 255"),
            (Some(0), "has ended"),
            (None, "has ended"),
        ] {
            assert_eq!(epitaph(raw.map(ExitStatus::from_raw)), format!("the instance {expected}"));
        }
    }
}
