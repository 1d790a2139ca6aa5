//! The cluster, as its users and its administrator see it.

use crate::rig::{Rig, var};
use farshell_config::settings::Slurm;
use farshell_engine::backend::{BoxFuture, News, Progress};
use std::io::Write;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;
use tokio::sync::{MutexGuard, watch};

/// One at a time: the partition has room for one job.
static NARROW: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
/// One at a time: its node is broken by tests.
static FRAIL: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

pub(crate) async fn narrow() -> MutexGuard<'static, ()> {
    NARROW.lock().await
}

pub(crate) async fn frail() -> MutexGuard<'static, ()> {
    FRAIL.lock().await
}

/// A home whose instances are jobs.
pub(crate) fn rig(change: impl FnOnce(&mut Slurm)) -> Option<Rig> {
    let conf = var("FARSHELL_TEST_SLURM")?;
    let mut slurm = Slurm { partition: Some("wide".into()), ..Slurm::default() };
    change(&mut slurm);
    let mut rig = Rig::busybox()?.with(|settings| settings.slurm = Some(slurm));
    rig.config.environment.insert("SLURM_CONF".into(), conf);
    Some(rig)
}

/// A program of Slurm's, as this user.
pub(crate) fn slurm(program: &str, args: &[&str]) -> String {
    let conf = var("FARSHELL_TEST_SLURM").unwrap();
    let run = || Command::new(program).args(args).env("SLURM_CONF", &conf).output().unwrap();
    let mut output = run();
    // A question that a busy controller does not answer in time is put again: it was not said that there are no jobs.
    for _ in 0..10 {
        let is_unknown = String::from_utf8_lossy(&output.stderr).contains("Invalid job id");
        if output.status.success() || is_unknown || program != "squeue" {
            break;
        }
        std::thread::sleep(Duration::from_secs(1));
        output = run();
    }
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// What the administrator, or bad luck, does: `down n4`.
pub(crate) fn happens(what: &str) {
    let path = var("FARSHELL_TEST_SLURM_CONTROL").unwrap();
    let mut pipe = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    writeln!(pipe, "{what}").unwrap();
}

/// The jobs of a home's tasks that wait or run: number, state, node, comment.
pub(crate) fn jobs(rig: &Rig) -> Vec<(u32, String, String, String)> {
    let names: Vec<String> = rig
        .noted()
        .iter()
        .filter(|path| path.is_dir())
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    if names.is_empty() {
        return Vec::new();
    }
    all_jobs().into_iter().filter(|(name, _)| names.contains(name)).map(|(_, job)| job).collect()
}

/// The same by name.
pub(crate) fn all_jobs() -> Vec<(String, (u32, String, String, String))> {
    let said = slurm("squeue", &["-h", "--me", "-o", "%j|%A|%T|%N|%k"]);
    let one = |line: &str| {
        let mut fields = line.splitn(5, '|').map(str::to_owned);
        let mut next = || fields.next().unwrap();
        (next(), (next().parse().unwrap(), next(), next(), next()))
    };
    said.lines().map(one).collect()
}

/// The only job.
pub(crate) fn job(rig: &Rig) -> u32 {
    let jobs = jobs(rig);
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    jobs[0].0
}

/// A job of somebody else's. It goes with this.
#[derive(Debug)]
pub(crate) struct Blocker(String);

impl Blocker {
    pub(crate) fn on(partition: &str) -> Self {
        let id = slurm("sbatch", &["--parsable", "-p", partition, "-o", "/dev/null", "--wrap", "sleep 1000"]);
        assert!(!id.is_empty());
        Self(id)
    }

    pub(crate) fn runs(&self) -> bool {
        slurm("squeue", &["-h", "-j", &self.0, "-o", "%T"]) == "RUNNING"
    }
}

impl Drop for Blocker {
    fn drop(&mut self) {
        slurm("scancel", &[&self.0]);
    }
}

/// Hears what is said, and goes away when it is told to.
#[derive(Debug)]
pub(crate) struct Listener {
    heard: Mutex<Vec<String>>,
    gone: watch::Sender<bool>,
}

impl Listener {
    pub(crate) fn new() -> Self {
        Self { heard: Mutex::default(), gone: watch::Sender::new(false) }
    }

    pub(crate) fn heard(&self, word: &str) -> bool {
        self.heard.lock().unwrap().iter().any(|news| news.contains(word))
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }

    pub(crate) fn go(&self) {
        self.gone.send_replace(true);
    }
}

impl Progress for Listener {
    fn say(&self, news: &News) {
        self.heard.lock().unwrap().push(news.message.clone());
    }

    fn gone(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let _ = self.gone.subscribe().wait_for(|gone| *gone).await;
        })
    }
}

/// Waits until something holds that takes Slurm a while.
pub(crate) async fn in_time(what: &str, holds: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(150);
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
