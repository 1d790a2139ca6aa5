//! What a process has written so far, read by byte offset as often as one likes. It is in a file: memory does not grow
//! with it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use tokio::sync::watch;

/// As much as one answer of a stream carries.
const CHUNK: u64 = 64 << 10;

#[derive(Debug)]
pub(crate) struct Log {
    /// `None`: nobody keeps it.
    file: Option<File>,
    /// How long it is, and whether that is all.
    state: watch::Sender<(u64, bool)>,
}

impl Log {
    /// In a file without a name, in this directory.
    pub(crate) fn new(dir: &Path) -> io::Result<Self> {
        let path = dir.join(format!("log-{}", crate::ids::short("x")));
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(Self { file: Some(file), state: watch::Sender::new((0, false)) })
    }

    /// One that has ended, with nothing in it.
    pub(crate) fn empty() -> Self {
        Self { file: None, state: watch::Sender::new((0, true)) }
    }

    pub(crate) fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let (length, _) = *self.state.borrow();
        if let Some(file) = &self.file {
            file.write_all_at(bytes, length)?;
        }
        self.state.send_modify(|(length, _)| *length += bytes.len() as u64);
        Ok(())
    }

    pub(crate) fn end(&self) {
        self.state.send_modify(|(_, ended)| *ended = true);
    }

    pub(crate) fn state(&self) -> (u64, bool) {
        *self.state.borrow()
    }

    /// Bytes from this offset on, at most so many, as soon as there are some; `None` at the end.
    pub(crate) async fn read(&self, offset: u64, most: u64) -> io::Result<Option<Vec<u8>>> {
        let mut changes = self.state.subscribe();
        loop {
            let (length, ended) = *changes.borrow_and_update();
            if offset < length {
                let mut bytes = vec![0; usize::try_from((length - offset).min(CHUNK).min(most)).unwrap_or(0)];
                match &self.file {
                    Some(file) => file.read_exact_at(&mut bytes, offset)?,
                    None => return Ok(None),
                }
                return Ok(Some(bytes));
            }
            if ended || changes.changed().await.is_err() {
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Log;
    use std::sync::Arc;

    #[tokio::test]
    async fn any_offset_any_number_of_readers() {
        let dir = tempfile::tempdir().unwrap();
        let log = Arc::new(Log::new(dir.path()).unwrap());
        log.append(b"hello ").unwrap();
        let waiting = tokio::spawn({
            let log = Arc::clone(&log);
            async move { log.read(6, u64::MAX).await }
        });
        log.append(b"world").unwrap();
        assert_eq!(waiting.await.unwrap().unwrap().unwrap(), b"world");
        assert_eq!(log.read(3, u64::MAX).await.unwrap().unwrap(), b"lo world");
        log.end();
        assert_eq!(log.read(0, u64::MAX).await.unwrap().unwrap(), b"hello world");
        assert_eq!(log.read(11, u64::MAX).await.unwrap(), None);
        assert_eq!(log.read(99, u64::MAX).await.unwrap(), None);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
