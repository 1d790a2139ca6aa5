//! The start of an instance.
//!
//! A process that was started and not yet noted would be lost if we were killed in between. So what is started first is
//! a shell that waits for a word on its standard input: it becomes `apptainer` when the note is written, and ends if we
//! are gone before.

use crate::arguments::Plan;
use crate::config::Config;
use crate::error::{explain, is_about_control_groups, why};
use crate::install::{install, outpost};
use crate::layout::{Layout, remove};
use crate::limits::{self, Keeper, Limits};
use crate::processes::Family;
use crate::program::{Program, variables};
use crate::socket::dial;
use crate::state::State;
use crate::{image, layout};
use farshell_engine::backend::{News, Progress};
use farshell_engine::machine::Machine;
use farshell_engine::{Error, Kind, Result};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio::time::Instant;

const WHAT: &str = "starting the instance";
/// How long an instance may take until its outpost listens. It takes half a second; without FUSE the image is unpacked
/// first, which takes minutes.
const START: Duration = Duration::from_secs(600);
/// How long making a file system in a file may take.
const FORMAT: Duration = Duration::from_secs(600);
/// How much of what was said is read for an error.
const LOG: usize = 64 << 10;

/// What was learned about control groups by asking for them.
static CONTROL_GROUPS: LazyLock<Mutex<ControlGroups>> = LazyLock::new(Mutex::default);

/// Apptainer and the image write into the same log, so that a refusal may be the image's words. It counts for the one
/// instance alone, and for none once a program is known to have control groups.
#[derive(Debug, Default)]
struct ControlGroups {
    /// Programs that have them.
    work: HashSet<PathBuf>,
    /// Why an instance has none, by its private directory.
    refused: HashMap<PathBuf, String>,
}

impl ControlGroups {
    /// False if that can't be the reason.
    fn refuse(&mut self, program: &Path, private: &Path, why: String) -> bool {
        let believed = !self.work.contains(program);
        if believed {
            self.refused.insert(private.to_owned(), why);
        }
        believed
    }
}

/// How the last instance of a place ended, where that is to be seen from here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Somebody else started it.
    #[default]
    Nothing,
    Runs,
    Ended(Option<ExitStatus>),
}

pub(crate) type Ending = Arc<Mutex<Seen>>;

/// What is needed to start an instance.
#[derive(Clone, Debug)]
pub(crate) struct Starter {
    pub(crate) config: Arc<Config>,
    pub(crate) layout: Layout,
    pub(crate) lease: Duration,
}

impl Starter {
    /// Starts it and notes it. The caller holds the lock, and knows that none runs.
    pub(crate) async fn start(
        &self,
        state: &mut State,
        ending: &Ending,
        progress: &dyn Progress,
    ) -> Result<()> {
        let config = &*self.config;
        let program = Program::find(config).await?;
        let image = image::ensure(config, progress).await?;
        let outpost = install(&config.home, outpost()?)?;
        layout::speakable(&outpost)?;
        progress
            .say(&News { message: format!("starting an instance of {}", config.settings.image), part: None });
        let mut keeper = self.keeper();
        loop {
            let plan = Plan {
                config,
                layout: &self.layout,
                program: &program,
                outpost: &outpost,
                image: &image,
                keeper: &keeper,
                sockets: &self.layout.socket_dir(),
                lease: self.lease,
            };
            plan.prepare()?;
            let args = plan.arguments()?;
            if let Some(args) = plan.disk()? {
                self.format(&program, &args).await?;
            }
            let known = || CONTROL_GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
            let Err(log) = self.run(&program, &args, state, ending).await? else {
                if keeper == Keeper::ControlGroups {
                    known().work.insert(program.path.clone());
                }
                state.limits = Limits::held(config, &self.layout, &keeper, state.family.inner());
                return state.write(&self.layout);
            };
            if keeper == Keeper::ControlGroups
                && is_about_control_groups(&log)
                && !state.limits.are_in_control_groups()
                && known().refuse(&program.path, &self.layout.private, why(&log))
            {
                keeper = self.keeper();
                continue;
            }
            return Err(explain(WHAT, &log, "it ended at once, and did not say why"));
        }
    }

    fn keeper(&self) -> Keeper {
        if limits::arguments(&self.config).is_empty() {
            let cores = self.config.settings.container.cpu.is_some();
            return Keeper::Processes(if cores { limits::NO_CPU } else { "no limit is set" }.into());
        }
        let known = CONTROL_GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = known.refused.get(&self.layout.private).map(String::as_str);
        match refused.or(limits::no_control_groups()) {
            Some(why) => Keeper::Processes(why.to_owned()),
            None => Keeper::ControlGroups,
        }
    }

    /// Makes the file that all files are in.
    pub(crate) async fn format(&self, program: &Program, args: &[String]) -> Result<()> {
        let what = "making the instance's disk";
        // Only one that is whole gets its name: whoever makes it may be killed at any moment.
        let new = self.layout.new_disk()?;
        let mut command = program.command(&self.config);
        command.args(args).arg(&new).current_dir("/");
        let output = match tokio::time::timeout(FORMAT, command.output()).await {
            Ok(output) => output.map_err(|e| Error::io(what, e))?,
            Err(_) => return Err(Error::new(Kind::TimedOut, what, "it takes too long")),
        };
        if output.status.success() {
            return std::fs::rename(&new, self.layout.disk()).map_err(|e| Error::io(what, e));
        }
        remove(&new)?;
        Err(explain(what, &String::from_utf8_lossy(&output.stderr), "apptainer could not make it"))
    }

    /// Starts the processes. What they said, if they ended before the outpost listened.
    async fn run(
        &self,
        program: &Program,
        args: &[String],
        state: &mut State,
        ending: &Ending,
    ) -> Result<std::result::Result<(), String>> {
        let log = self.layout.log();
        let file =
            std::fs::File::create(&log).map_err(|e| Error::io(format!("writing {}", log.display()), e))?;
        let second = file.try_clone().map_err(|e| Error::io(WHAT, e))?;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "read -r _ && exec \"$@\" </dev/null", "sh"]).arg(&program.path).args(args);
        command.env_clear().envs(variables(&self.config)).current_dir("/");
        // It outlives this process, and is not meant when somebody interrupts that.
        command.stdin(Stdio::piped()).stdout(file).stderr(second).process_group(0).kill_on_drop(false);
        let mut child = command.spawn().map_err(|e| Error::io(WHAT, e))?;
        let family = child.id().and_then(Family::of);
        let Some(family) = family else {
            let status = child.wait().await;
            return Err(Error::new(Kind::System, WHAT, format!("it ended before it began: {status:?}")));
        };
        state.machine = Machine::this();
        state.family = family;
        state.write(&self.layout)?;
        if let Some(mut go) = child.stdin.take() {
            let _ = go.write_all(b"go\n").await;
        }
        let up = self.await_outpost(&mut child, state).await;
        if up.is_err() {
            state.family.end().await;
        } else {
            state.family.look();
        }
        let (ending, own) = (Arc::clone(ending), state.family.clone());
        *ending.lock().unwrap_or_else(PoisonError::into_inner) = Seen::Runs;
        // Reaps it, whenever that is.
        let reaper = tokio::spawn(async move {
            let status = child.wait().await.ok();
            *ending.lock().unwrap_or_else(PoisonError::into_inner) = Seen::Ended(status);
        });
        match up {
            Ok(true) => Ok(Ok(())),
            Ok(false) => {
                let _ = reaper.await;
                // Of what it started, some may be left: the file systems of a parent that was killed.
                let mut own = own;
                own.end().await;
                Ok(Err(tail(&log)))
            }
            Err(error) => Err(error),
        }
    }

    /// Waits until the outpost listens. False: it has ended.
    async fn await_outpost(&self, child: &mut Child, state: &mut State) -> Result<bool> {
        let deadline = Instant::now() + START;
        let dir = self.layout.socket_dir();
        let mut pause = Duration::from_millis(1);
        loop {
            if dial(&dir).await.is_ok() {
                return Ok(true);
            }
            if child.try_wait().map_err(|e| Error::io(WHAT, e))?.is_some() {
                return Ok(false);
            }
            if Instant::now() >= deadline {
                state.family.look();
                let message = format!("its outpost does not listen after {} s", START.as_secs());
                return Err(Error::new(Kind::TimedOut, WHAT, message));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }
}

/// The end of what was said.
pub(crate) fn tail(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(&text[text.len().saturating_sub(LOG)..]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sample;
    use farshell_engine::backend::TaskName;

    #[test]
    fn what_an_image_says_costs_no_other_instance_its_control_groups() {
        let (program, other) = (Path::new("/usr/bin/apptainer"), Path::new("/opt/apptainer"));
        let mut known = ControlGroups::default();
        assert!(known.refuse(program, Path::new("/a"), "FATAL: cgroup".into()));
        assert_eq!(known.refused.keys().collect::<Vec<_>>(), [Path::new("/a")]);
        known.work.insert(program.into());
        assert!(!known.refuse(program, Path::new("/b"), "FATAL: cgroup".into()));
        assert!(known.refuse(other, Path::new("/c"), "FATAL: cgroup".into()));
        assert_eq!(known.refused.len(), 2);
    }

    #[tokio::test]
    async fn a_disk_that_is_not_whole_is_never_used() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = sample();
        config.home = dir.path().join("h");
        config.settings.scratch_dir = Some(dir.path().join("s"));
        let layout = Layout::new(&config, &TaskName::new("t").unwrap()).unwrap();
        std::fs::create_dir_all(&layout.files).unwrap();
        let path = dir.path().join("apptainer");
        let does = |text: &str| {
            std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        };
        let (product, version) = ("apptainer".into(), "1.4.5".into());
        let program = Program { path: path.clone(), product, version };
        let (lease, make) = (Duration::from_secs(1), ["make".to_owned()]);
        let starter = Starter { config: Arc::new(config), layout: layout.clone(), lease };
        let left = || {
            let names = std::fs::read_dir(&layout.files).unwrap().flatten().map(|entry| entry.file_name());
            names.map(|name| name.into_string().unwrap()).collect::<Vec<_>>()
        };
        does("echo half > \"$2\"; echo 'FATAL: no' >&2; exit 1");
        assert!(starter.format(&program, &make).await.unwrap_err().message.contains("no"));
        assert!(left().is_empty(), "{:?}", left());
        // Whoever asks for it goes away in the middle.
        does("echo half > \"$2\"; exec sleep 600");
        let begun = async {
            while left().is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            made = starter.format(&program, &make) => panic!("{made:?}"),
            () = begun => {}
        }
        assert!(left().len() == 1 && !layout.disk().exists(), "{:?}", left());
        does("echo whole > \"$2\"");
        starter.format(&program, &make).await.unwrap();
        assert_eq!(left(), ["disk.img"]);
        assert_eq!(std::fs::read_to_string(layout.disk()).unwrap(), "whole\n");
    }
}
