//! What is to be sent, and what has to be sent again after a connection was lost.

use bytes::Bytes;
use farshell_api::run::Size;
use farshell_api::stream::{ClientMessage, INPUT_HEADER};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio_tungstenite::tungstenite::Message;

/// Most input in one message.
pub(crate) const PIECE: usize = 64 << 10;
/// Most input that waits to be taken. Less than a socket holds, so that a kill is never stuck behind it.
const WINDOW: u64 = 128 << 10;

#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    state: Mutex<State>,
    /// There may be something to send.
    work: Notify,
    /// There may be room for more input.
    room: Notify,
}

#[derive(Debug, Default)]
struct State {
    messages: VecDeque<ClientMessage>,
    /// Input that was not taken yet, each piece with its offset.
    pieces: VecDeque<(u64, Bytes)>,
    /// All input up to here was taken.
    taken: u64,
    /// All up to here was sent on this connection.
    sent: u64,
    /// All there is.
    end: u64,
    eof: bool,
    eof_sent: bool,
    /// The server has said how much input was taken, on this connection.
    opened: bool,
    /// A kill that was asked for, and may have been lost.
    kill: Option<Option<f64>>,
    size: Option<Size>,
    over: bool,
}

impl Outgoing {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds input when there is room. False if it is not wanted any more.
    pub(crate) async fn input(&self, piece: Bytes) -> bool {
        loop {
            let room = self.room.notified();
            let mut room = std::pin::pin!(room);
            room.as_mut().enable();
            {
                let mut state = self.state();
                if state.over {
                    return false;
                }
                if state.end - state.taken + piece.len() as u64 <= WINDOW {
                    let offset = state.end;
                    state.end += piece.len() as u64;
                    state.pieces.push_back((offset, piece));
                    break;
                }
            }
            room.await;
        }
        self.work.notify_one();
        true
    }

    pub(crate) fn eof(&self) {
        self.state().eof = true;
        self.work.notify_one();
    }

    pub(crate) fn message(&self, message: ClientMessage) {
        {
            let mut state = self.state();
            match &message {
                ClientMessage::Kill { grace } => state.kill = Some(*grace),
                ClientMessage::Resize { size } => state.size = Some(*size),
                _ => {}
            }
            state.messages.push_back(message);
        }
        self.work.notify_one();
    }

    /// The size that the terminal was last given.
    pub(crate) fn size(&self) -> Option<Size> {
        self.state().size
    }

    /// A new connection, on which nothing was sent yet.
    pub(crate) fn connected(&self) {
        let mut state = self.state();
        state.opened = false;
        state.eof_sent = false;
    }

    /// The server says how much input was taken before. `again`: it is not the first to be asked.
    pub(crate) fn opened(&self, taken: u64, again: bool) {
        if !again {
            self.begin_after(taken);
        }
        self.taken(taken);
        {
            let mut state = self.state();
            state.opened = true;
            state.sent = state.taken;
            let waits = state.messages.iter().any(|message| matches!(message, ClientMessage::Kill { .. }));
            if let (true, false, Some(grace)) = (again, waits, state.kill) {
                state.messages.push_back(ClientMessage::Kill { grace });
            }
        }
        self.work.notify_one();
    }

    /// Somebody else has sent this much before us.
    fn begin_after(&self, others: u64) {
        let mut state = self.state();
        state.taken += others;
        state.end += others;
        state.pieces.iter_mut().for_each(|(offset, _)| *offset += others);
    }

    /// Input up to here need not be kept any more.
    pub(crate) fn taken(&self, taken: u64) {
        {
            let mut state = self.state();
            // More than there is can't have been taken.
            state.taken = state.taken.max(taken.min(state.end));
            while let Some((offset, piece)) = state.pieces.front()
                && offset + piece.len() as u64 <= state.taken
            {
                state.pieces.pop_front();
            }
        }
        self.room.notify_waiters();
    }

    /// Nobody sends any more.
    pub(crate) fn over(&self) {
        self.state().over = true;
        self.room.notify_waiters();
    }

    /// Waits for something to send.
    pub(crate) async fn next(&self) -> Message {
        loop {
            if let Some(message) = self.take() {
                return message;
            }
            self.work.notified().await;
        }
    }

    fn take(&self) -> Option<Message> {
        let mut state = self.state();
        if let Some(message) = state.messages.pop_front() {
            return Some(text(&message));
        }
        if !state.opened {
            return None;
        }
        let sent = state.sent;
        let piece = state.pieces.iter().find(|(offset, piece)| offset + piece.len() as u64 > sent);
        if let Some((offset, piece)) = piece {
            let skip = usize::try_from(sent.saturating_sub(*offset)).unwrap_or(piece.len());
            let mut data = Vec::with_capacity(INPUT_HEADER + piece.len() - skip);
            data.extend_from_slice(&(offset + skip as u64).to_le_bytes());
            data.extend_from_slice(&piece[skip..]);
            state.sent = offset + piece.len() as u64;
            return Some(Message::binary(data));
        }
        if state.eof && !state.eof_sent {
            state.eof_sent = true;
            return Some(text(&ClientMessage::Eof { offset: state.end }));
        }
        None
    }
}

pub(crate) fn text(message: &impl serde::Serialize) -> Message {
    // The types of the API have nothing that JSON can't say.
    Message::text(serde_json::to_string(message).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn input(offset: u64, bytes: &[u8]) -> Option<Message> {
        Some(Message::binary([&offset.to_le_bytes()[..], bytes].concat()))
    }

    fn eof(offset: u64) -> Option<Message> {
        Some(text(&ClientMessage::Eof { offset }))
    }

    #[tokio::test]
    async fn what_was_not_taken_is_sent_again() {
        let outgoing = Outgoing::default();
        outgoing.input("hello ".into()).await;
        outgoing.input("world".into()).await;
        outgoing.eof();
        // Nothing is sent before the server has said where to begin.
        assert_eq!(outgoing.take(), None);
        outgoing.opened(0, false);
        assert_eq!(outgoing.take(), input(0, b"hello "));
        outgoing.taken(6);
        assert_eq!(outgoing.take(), input(6, b"world"));
        assert_eq!((outgoing.take(), outgoing.take()), (eof(11), None));

        outgoing.connected();
        assert_eq!(outgoing.take(), None);
        outgoing.opened(8, true);
        assert_eq!(outgoing.take(), input(8, b"rld"));
        assert_eq!((outgoing.take(), outgoing.take()), (eof(11), None));
        outgoing.taken(11);
        assert_eq!(outgoing.take(), None);
    }

    #[tokio::test]
    async fn input_comes_after_that_of_others() {
        let outgoing = Outgoing::default();
        outgoing.input("mine".into()).await;
        outgoing.opened(100, false);
        assert_eq!(outgoing.take(), input(100, b"mine"));
        outgoing.taken(104);
        outgoing.input("more".into()).await;
        assert_eq!(outgoing.take(), input(104, b"more"));
        outgoing.connected();
        outgoing.opened(106, true);
        assert_eq!(outgoing.take(), input(106, b"re"));
    }

    #[tokio::test]
    async fn input_waits_for_room() {
        let outgoing = Outgoing::default();
        for _ in 0..2 {
            assert!(outgoing.input(vec![0; PIECE].into()).await);
        }
        {
            let more = outgoing.input("x".into());
            tokio::pin!(more);
            assert_eq!(more.as_mut().now_or_never(), None);
            outgoing.opened(0, false);
            outgoing.take();
            outgoing.taken(PIECE as u64);
            assert!(more.await);
        }
        let more = outgoing.input(vec![0; PIECE].into());
        tokio::pin!(more);
        assert_eq!(more.as_mut().now_or_never(), None);
        outgoing.over();
        assert!(!more.await);
    }

    #[test]
    fn a_kill_is_not_forgotten() {
        let outgoing = Outgoing::default();
        let kill = || Some(text(&ClientMessage::Kill { grace: Some(0.0) }));
        outgoing.message(ClientMessage::Kill { grace: Some(0.0) });
        outgoing.message(ClientMessage::Resize { size: Size { rows: 5, cols: 9 } });
        assert_eq!(outgoing.take(), kill());
        outgoing.take();
        outgoing.connected();
        outgoing.opened(0, true);
        assert_eq!((outgoing.take(), outgoing.take()), (kill(), None));
        assert_eq!(outgoing.size(), Some(Size { rows: 5, cols: 9 }));
    }
}
