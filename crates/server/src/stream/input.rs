//! Input on its way to a process, in the order in which it came.

use super::queue::Queue;
use crate::refusal::api_error;
use bytes::Bytes;
use farshell_api::stream::ServerMessage;
use farshell_keeper::Control;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// With so many bytes waiting, nothing more is read from the client.
const FULL: usize = 256 << 10;
/// What a piece costs besides its bytes.
const PIECE: usize = 64;
/// A piece of input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// All bytes before it.
    pub(crate) offset: u64,
    pub(crate) bytes: Bytes,
    pub(crate) eof: bool,
}

/// Pieces that the process has not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    inner: Mutex<Inner>,
    ready: Notify,
    /// Something was taken out.
    pub(crate) room: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    pieces: VecDeque<Piece>,
    bytes: usize,
    /// No more will come.
    ended: bool,
    /// The process takes none.
    refused: bool,
}

impl Inputs {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, piece: Piece) {
        let mut inner = self.lock();
        if !inner.refused {
            inner.bytes += piece.bytes.len() + PIECE;
            inner.pieces.push_back(piece);
            self.ready.notify_one();
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.lock().bytes >= FULL
    }

    pub(crate) fn end(&self) {
        self.lock().ended = true;
        self.ready.notify_one();
    }

    fn refuse(&self) {
        let mut inner = self.lock();
        inner.refused = true;
        inner.pieces.clear();
        inner.bytes = 0;
        drop(inner);
        self.room.notify_one();
    }

    async fn next(&self) -> Option<Piece> {
        loop {
            {
                let inner = self.lock();
                if let Some(piece) = inner.pieces.front() {
                    return Some(piece.clone());
                }
                if inner.ended {
                    return None;
                }
            }
            self.ready.notified().await;
        }
    }

    /// The first piece is done with. Until then it counts.
    fn done(&self) {
        let mut inner = self.lock();
        if let Some(piece) = inner.pieces.pop_front() {
            inner.bytes -= piece.bytes.len() + PIECE;
        }
        drop(inner);
        self.room.notify_one();
    }
}

/// Sends everything that comes, and says what was taken. What came before the client went away is still sent.
pub(crate) async fn feed(inputs: Arc<Inputs>, control: Control, queue: Arc<Queue>) {
    while let Some(piece) = inputs.next().await {
        // Comes back when it is taken, when the process takes no more, or when the stream is over.
        match control.stdin(piece.offset, piece.bytes.to_vec(), piece.eof).await {
            Ok(taken) => {
                inputs.done();
                queue.answers().await;
                queue.say(&ServerMessage::Stdin { taken });
            }
            Err(error) => {
                inputs.refuse();
                queue.say(&ServerMessage::Refused { request: "stdin".into(), error: api_error(error) });
                return;
            }
        }
    }
}
