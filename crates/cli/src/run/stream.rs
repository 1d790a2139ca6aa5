//! Output to where it belongs, as it arrives.

use farshell_engine::capture::Sink;
use farshell_protocol::process::{Chunk, Stream};
use rustix::event::{PollFd, PollFlags, poll};
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// Our standard output and error, without buffers in between.
///
/// Writing blocks, and so a slow reader slows the command down instead of filling memory.
#[derive(Debug)]
pub(crate) struct Streams {
    out: File,
    err: File,
    trouble: Trouble,
}

/// Why output can't be delivered.
#[derive(Debug)]
pub(crate) enum Broken {
    /// Nobody reads it any more.
    NoReader,
    Failed {
        stream: &'static str,
        error: io::Error,
    },
}

/// Where the writer leaves the reason why it stopped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trouble {
    shared: Arc<(Mutex<Option<Broken>>, Notify)>,
}

impl Trouble {
    fn report(&self, why: Broken) {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        self.shared.1.notify_one();
    }

    pub(crate) fn take(&self) -> Option<Broken> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Waits for trouble.
    pub(crate) async fn wait(&self) -> Broken {
        loop {
            if let Some(why) = self.take() {
                return why;
            }
            self.shared.1.notified().await;
        }
    }
}
