//! Notices that the home was removed: nobody can find a server there any more, and another one may begin.

use crate::lock::Lock;
use crate::paths::Directory;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;

/// The kernel tells; nothing is polled.
#[derive(Debug)]
pub(crate) struct Watch {
    /// No pipe, but read like one. Absent where the kernel has none to give: then a home that is removed goes
    /// unnoticed.
    changes: Option<Receiver>,
}

impl Watch {
    pub(crate) fn new(directory: &Directory) -> Self {
        let changes = || {
            let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
            let lost = WatchFlags::DELETE | WatchFlags::MOVED_FROM;
            inotify::add_watch(&fd, &directory.paths.dir, lost).ok()?;
            Receiver::from_owned_fd_unchecked(fd).ok()
        };
        Self { changes: changes() }
    }

    /// Returns when the lock is no longer where it was taken.
    pub(crate) async fn gone(&mut self, directory: &Directory, lock: &Lock) {
        let Some(changes) = &mut self.changes else { return std::future::pending().await };
        // What changed does not matter; it is only looked at whether the lock is there.
        let mut events = [0; 1024];
        while changes.read(&mut events).await.is_ok_and(|count| count > 0) {
            if !lock.is_in(directory) {
                return;
            }
        }
        std::future::pending::<()>().await;
    }
}
