//! What the tests of this module share.

use super::{Call, Context, Gone};
use farshell_protocol::file::FileEvent;
use std::path::{Path, PathBuf};

/// A directory with a home and a working directory of its own.
pub(super) struct Scene {
    _dir: tempfile::TempDir,
    pub(super) context: Context,
}

impl Scene {
    pub(super) fn new() -> Self {
        Self::under(&std::env::temp_dir())
    }

    pub(super) fn under(dir: &Path) -> Self {
        let dir = tempfile::tempdir_in(dir).unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        let context = Context { home: root.join("home"), cwd: root.join("cwd") };
        std::fs::create_dir(&context.home).unwrap();
        std::fs::create_dir(&context.cwd).unwrap();
        Self { _dir: dir, context }
    }

    /// A path below the working directory.
    pub(super) fn path(&self, relative: &str) -> PathBuf {
        self.context.cwd.join(relative)
    }

    pub(super) fn file(&self, relative: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(relative);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Names in the working directory, sorted.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(&self.context.cwd)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

/// A caller that keeps what it gets and plays what it was told to.
#[derive(Default)]
pub(super) struct Caller {
    pub(super) sent: Vec<Vec<u8>>,
    pub(super) events: Vec<FileEvent>,
    pub(super) upload: std::collections::VecDeque<Vec<u8>>,
    /// Cut off where the upload ends, instead of an orderly end.
    pub(super) broken: bool,
    pub(super) cancelled: bool,
    /// Runs when the upload has ended, before that is said.
    pub(super) at_end: Option<Box<dyn FnOnce()>>,
    /// Runs at each `send`.
    pub(super) at_send: Option<Box<dyn FnMut()>>,
    /// Takes this many events and then is gone.
    pub(super) patience: Option<usize>,
}

impl Caller {
    pub(super) fn uploading(pieces: &[&[u8]]) -> Self {
        Self { upload: pieces.iter().map(|piece| piece.to_vec()).collect(), ..Self::default() }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.sent.concat()
    }
}

impl Call for Caller {
    fn send(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        if let Some(hook) = &mut self.at_send {
            hook();
        }
        assert!(bytes.len() <= farshell_protocol::frame::MAX_DATA);
        self.sent.push(bytes.to_vec());
        Ok(())
    }

    fn event(&mut self, event: FileEvent) -> Result<(), Gone> {
        let size = farshell_protocol::message::to_bytes(&event).len();
        assert!(size <= farshell_protocol::frame::MAX_DATA, "an event of {size} bytes");
        if self.patience.is_some_and(|patience| self.events.len() >= patience) {
            return Err(Gone);
        }
        self.events.push(event);
        Ok(())
    }

    fn receive(&mut self) -> Result<Option<Vec<u8>>, Gone> {
        if let Some(piece) = self.upload.pop_front() {
            return Ok(Some(piece));
        }
        if let Some(hook) = self.at_end.take() {
            hook();
        }
        if self.broken { Err(Gone) } else { Ok(None) }
    }

    fn cancelled(&self) -> bool {
        self.cancelled
    }
}

pub(super) fn mkfifo(path: &Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}

/// The superuser is never denied anything, so tests of denial can't run as root.
pub(super) fn skipped_as_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if root {
        println!("{test}: skipped, because uid 0 passes every permission check");
    }
    root
}
