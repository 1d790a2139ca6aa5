//! An engine of the test's own, to be stopped, restarted or filled.

use crate::rig::{root, var};
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const IMAGE: &str = "farshell-test/busybox:1";

pub(crate) struct Own {
    pub(crate) host: String,
    pub(crate) dir: PathBuf,
    name: String,
}

impl Own {
    pub(crate) fn start(name: &str, args: &[&str]) -> Option<Self> {
        let own = Self::prepare(name)?;
        own.run(args)?;
        Some(own)
    }

    /// With a disk of that many MB. As root only.
    pub(crate) fn small(name: &str, megabytes: u32) -> Option<Self> {
        let own = Self::prepare(name)?;
        let data = own.dir.join("data");
        std::fs::create_dir(&data).unwrap();
        mount(&data, megabytes);
        own.run(&[])?;
        Some(own)
    }

    fn prepare(name: &str) -> Option<Self> {
        let dir = var("FARSHELL_TEST_ENGINES").filter(|_| root())?;
        let name = format!("{name}-{}", std::process::id());
        let dir = Path::new(&dir).join(&name);
        let own = Self { host: format!("unix://{}", dir.join("docker.sock").display()), dir, name };
        own.command("prepare", &[]);
        Some(own)
    }

    fn run(&self, args: &[&str]) -> Option<()> {
        self.command("start", args);
        let tar = var("FARSHELL_TEST_BUSYBOX_TAR")?;
        let import = Command::new("docker").args(["-H", &self.host, "import", &tar, IMAGE]).output().unwrap();
        assert!(import.status.success(), "{import:?}");
        Some(())
    }

    pub(crate) fn command(&self, what: &str, args: &[&str]) {
        let Some(program) = var("FARSHELL_TEST_ENGINE") else { return };
        let output = Command::new(program).arg(&self.name).arg(what).args(args).output().unwrap();
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(program) = var("FARSHELL_TEST_ENGINE") {
            let _ = Command::new(program).args([&self.name, "remove"]).output();
        }
    }
}

/// A small disk, until it is dropped.
pub(crate) struct Disk(PathBuf);

impl Disk {
    pub(crate) fn new(dir: &Path, megabytes: u32) -> Self {
        std::fs::create_dir(dir).unwrap();
        mount(dir, megabytes);
        Self(dir.into())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Mounts a file system of that size, in memory.
fn mount(dir: &Path, megabytes: u32) {
    let size = format!("size={megabytes}m");
    let done = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(dir).output().unwrap();
    assert!(done.status.success(), "{done:?}");
}
