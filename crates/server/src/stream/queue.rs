//! Messages on their way to a client: in order, and never more of them than fit into little memory.

use axum::extract::ws::Message;
use farshell_api::stream::{OUTPUT_HEADER, ServerMessage};
use farshell_engine::backend::BoxFuture;
use farshell_engine::capture::Sink;
use farshell_protocol::process::{Chunk, Stream};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// With so many bytes waiting, whoever brings output has to wait too.
const FULL: usize = 128 << 10;
/// With so many answers waiting, nothing more is taken from a client that does not read them.
const ANSWERS: usize = 256;

/// Any number of writers, one reader.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    inner: Mutex<Inner>,
    /// There is something to read, or will not be any more.
    ready: Notify,
    /// Something was taken out.
    room: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    messages: VecDeque<Message>,
    bytes: usize,
    texts: usize,
    ended: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message, in whatever state the queue is. After its end it goes nowhere.
    pub(crate) fn push(&self, message: Message) {
        let mut inner = self.lock();
        if inner.ended {
            return;
        }
        inner.bytes += size(&message);
        inner.texts += usize::from(matches!(message, Message::Text(_)));
        inner.messages.push_back(message);
        drop(inner);
        self.ready.notify_one();
    }

    pub(crate) fn say(&self, message: &ServerMessage) {
        // A message of ours that is no JSON would be a fault in its type.
        if let Ok(text) = serde_json::to_string(message) {
            self.push(Message::Text(text.into()));
        }
    }

    /// The last message has been added; writers need not wait for room any more.
    pub(crate) fn end(&self) {
        self.lock().ended = true;
        self.ready.notify_one();
        self.room.notify_waiters();
    }

    /// Nobody is there to read what is left.
    pub(crate) fn abandon(&self) {
        self.end();
        let mut inner = self.lock();
        (inner.bytes, inner.texts) = (0, 0);
        inner.messages.clear();
    }

    /// The next message; `None` after the last one.
    pub(crate) async fn next(&self) -> Option<Message> {
        loop {
            let ended = match self.pop() {
                Ok(message) => return Some(message),
                Err(ended) => ended,
            };
            if ended {
                return None;
            }
            self.ready.notified().await;
        }
    }

    /// The next message if there is one now.
    pub(crate) fn now(&self) -> Option<Message> {
        self.pop().ok()
    }

    fn pop(&self) -> Result<Message, bool> {
        let mut inner = self.lock();
        let Some(message) = inner.messages.pop_front() else { return Err(inner.ended) };
        inner.bytes -= size(&message);
        inner.texts -= usize::from(matches!(message, Message::Text(_)));
        drop(inner);
        self.room.notify_waiters();
        Ok(message)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().messages.is_empty()
    }

    fn is_full(&self) -> bool {
        let inner = self.lock();
        !inner.ended && inner.bytes >= FULL
    }

    /// May the client be given more to answer?
    pub(crate) fn takes_answers(&self) -> bool {
        let inner = self.lock();
        inner.ended || inner.texts < ANSWERS
    }

    /// Waits until that is so.
    pub(crate) async fn answers(&self) {
        self.wait(Self::takes_answers).await;
    }

    async fn wait(&self, enough: impl Fn(&Self) -> bool) {
        loop {
            let mut taken = std::pin::pin!(self.room.notified());
            // Listening before looking: nothing happens in between unnoticed.
            taken.as_mut().enable();
            if enough(self) {
                return;
            }
            taken.await;
        }
    }
}

fn size(message: &Message) -> usize {
    match message {
        Message::Text(text) => text.len(),
        Message::Binary(bytes) | Message::Ping(bytes) | Message::Pong(bytes) => bytes.len(),
        Message::Close(_) => 0,
    }
}

/// Output becomes messages; a full queue makes its sender wait.
#[derive(Debug)]
pub(crate) struct ToClient(pub(crate) Arc<Queue>);

impl Sink for ToClient {
    fn chunk(&mut self, chunk: Chunk<'_>) {
        let mut bytes = Vec::with_capacity(OUTPUT_HEADER + chunk.bytes.len());
        bytes.push(match chunk.stream {
            Stream::Stdout => 1,
            Stream::Stderr => 2,
        });
        bytes.extend_from_slice(&chunk.offset.to_le_bytes());
        bytes.extend_from_slice(chunk.bytes);
        self.0.push(Message::Binary(bytes.into()));
    }

    fn room(&mut self) -> Option<BoxFuture<'_, ()>> {
        self.0.is_full().then(|| Box::pin(self.0.wait(|queue| !queue.is_full())) as BoxFuture<'_, ()>)
    }

    fn gap(&mut self, from: u64, to: u64) {
        self.0.say(&ServerMessage::Gap { from, to });
    }

    fn started(&mut self, pid: u32) {
        self.0.say(&ServerMessage::Started { pid });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn chunk(bytes: &[u8]) -> Chunk<'_> {
        Chunk { stream: Stream::Stderr, stream_offset: 7, offset: 258, bytes }
    }

    #[tokio::test]
    async fn output_has_its_head() {
        let queue = Arc::new(Queue::default());
        ToClient(Arc::clone(&queue)).chunk(chunk(b"ab"));
        let message = queue.next().await.unwrap();
        assert_eq!(message, Message::Binary(vec![2, 2, 1, 0, 0, 0, 0, 0, 0, b'a', b'b'].into()));
    }

    #[tokio::test]
    async fn a_full_queue_makes_its_writer_wait_until_the_reader_has_read() {
        let queue = Arc::new(Queue::default());
        let mut sink = ToClient(Arc::clone(&queue));
        sink.chunk(chunk(&[0; 1000]));
        assert!(sink.room().is_none());
        sink.chunk(chunk(&vec![0; FULL]));
        let waited = tokio::time::timeout(Duration::from_millis(20), sink.room().unwrap()).await;
        assert!(waited.is_err());
        let reader = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            queue.next().await.unwrap();
            queue.next().await.unwrap();
        };
        tokio::join!(sink.room().unwrap(), reader);
        assert!(sink.room().is_none());
    }

    #[tokio::test]
    async fn nobody_waits_for_a_reader_who_has_gone() {
        let queue = Arc::new(Queue::default());
        let mut sink = ToClient(Arc::clone(&queue));
        sink.chunk(chunk(&vec![0; FULL]));
        let room = sink.room().unwrap();
        queue.end();
        tokio::time::timeout(Duration::from_secs(1), room).await.unwrap();
        sink.chunk(chunk(&vec![0; FULL]));
        assert!(sink.room().is_none());
        // What was there before the end is still to be read, and nothing after it.
        assert!(queue.next().await.is_some());
        assert!(queue.next().await.is_none());
    }

    #[tokio::test]
    async fn answers_have_a_limit_of_their_own() {
        let queue = Queue::default();
        queue.push(Message::Binary(vec![0; FULL * 2].into()));
        assert!(queue.takes_answers());
        for _ in 0..ANSWERS {
            queue.say(&ServerMessage::Stdin { taken: 1 });
        }
        assert!(!queue.takes_answers());
        queue.next().await.unwrap();
        queue.next().await.unwrap();
        tokio::time::timeout(Duration::from_secs(1), queue.answers()).await.unwrap();
    }
}
