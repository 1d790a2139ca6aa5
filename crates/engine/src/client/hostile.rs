//! Outposts that do not keep to the protocol: what they send is an error, and not a loop, nor memory.

use super::Outpost;
use crate::backend::{BoxFuture, ByteStream, Identity, Place};
use crate::capture::{Discard, Sink};
use crate::error::{Error, Kind, Result};
use farshell_protocol::Kind as FrameKind;
use farshell_protocol::frame::{self, Decoder};
use farshell_protocol::hello::{Hello, OutpostIdentity};
use farshell_protocol::message::{Failure, to_bytes};
use farshell_protocol::process::{Chunk, Start, Stream, Surroundings, What};
use farshell_protocol::{ErrorKind, ProcessId};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// What comes as the answer to the first request.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Nothing,
    Garbage,
    /// A whole frame whose content is none.
    Nonsense(FrameKind),
    Accusation,
    Flood,
}

#[derive(Debug)]
struct Fake {
    answer: Answer,
    connections: AtomicUsize,
    sent: Arc<AtomicUsize>,
}

impl Place for Fake {
    fn identity(&self) -> Identity {
        Identity { name: "fake".into(), id: "fake".into() }
    }

    fn connect(&self) -> BoxFuture<'_, Result<ByteStream>> {
        Box::pin(async {
            self.connections.fetch_add(1, Ordering::SeqCst);
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            tokio::spawn(serve(theirs, self.answer, Arc::clone(&self.sent)));
            let (read, write) = tokio::io::split(ours);
            Ok(ByteStream { read: Box::new(read), write: Box::new(write) })
        })
    }

    fn destroy(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

/// The hello of an outpost.
pub(super) fn greeting() -> Vec<u8> {
    let text = String::new;
    let (instance, boot, build, hostname) = (text(), text(), text(), text());
    let hello = Hello::outpost(OutpostIdentity { instance, boot, pid: 1, build, hostname });
    let mut out = Vec::new();
    frame::encode(&mut out, FrameKind::Hello, 0, &to_bytes(&hello));
    out
}

async fn serve(mut stream: DuplexStream, answer: Answer, sent: Arc<AtomicUsize>) {
    let mut decoder = Decoder::new();
    while let Ok(len @ 1..) = stream.read(decoder.space(4096)).await {
        decoder.filled(len);
        while let Some(frame) = decoder.next_frame().unwrap() {
            let mut out = Vec::new();
            match (frame.kind, answer) {
                (FrameKind::Hello, _) => out = greeting(),
                (FrameKind::Request, Answer::Nothing) => return,
                (FrameKind::Request, Answer::Garbage) => out = b"Last login: Tue Nov 17".to_vec(),
                (FrameKind::Request, Answer::Nonsense(kind)) => {
                    frame::encode(&mut out, kind, frame.call, b"\xc1\xc1\xc1");
                }
                (FrameKind::Request, Answer::Accusation) => {
                    let failure = Failure::new(ErrorKind::Protocol, "malformed credit");
                    frame::encode(&mut out, FrameKind::Goodbye, 0, &to_bytes(&failure));
                }
                (FrameKind::Request, Answer::Flood) => {
                    let (call, bytes) = (frame.call, vec![b'x'; 32 << 10]);
                    let mut offset = 0;
                    loop {
                        let chunk =
                            Chunk { stream: Stream::Stdout, offset, stream_offset: offset, bytes: &[] };
                        let payload = [&chunk.header()[..], &bytes].concat();
                        offset += bytes.len() as u64;
                        out.clear();
                        frame::encode(&mut out, FrameKind::Data, call, &payload);
                        if stream.write_all(&out).await.is_err() {
                            return;
                        }
                        sent.fetch_add(out.len(), Ordering::SeqCst);
                    }
                }
                _ => {}
            }
            stream.write_all(&out).await.unwrap();
        }
    }
}

fn place(answer: Answer) -> (Outpost, Arc<Fake>) {
    let place = Arc::new(Fake { answer, connections: AtomicUsize::new(0), sent: Arc::default() });
    (Outpost::new(Arc::clone(&place) as Arc<dyn Place>), place)
}

fn start() -> Start {
    let surroundings = Surroundings::default();
    Start::new(
        ProcessId::new("p").unwrap(),
        What::Shell { command: b"true".to_vec(), session: None, surroundings },
    )
}

/// One that takes nothing.
struct Stuck;

impl Sink for Stuck {
    fn chunk(&mut self, _: Chunk<'_>) {}

    fn room(&mut self) -> Option<BoxFuture<'_, ()>> {
        Some(Box::pin(std::future::pending()))
    }
}

#[tokio::test(start_paused = true)]
async fn what_can_not_be_read_is_an_error_of_the_protocol_at_once() {
    let nonsense =
        [FrameKind::Response, FrameKind::Event, FrameKind::Credit, FrameKind::Request, FrameKind::Goodbye];
    let answers = [Answer::Garbage, Answer::Accusation].into_iter().chain(nonsense.map(Answer::Nonsense));
    for answer in answers {
        let (outpost, fake) = place(answer);
        let said = |error: &Error| error.message.contains("does not keep to the protocol");
        let error = outpost.ping().await.unwrap_err();
        assert!(error.kind == Kind::Protocol && said(&error), "{answer:?}: {error}");
        assert_eq!(fake.connections.load(Ordering::SeqCst), 1, "{answer:?}");
        // What may have been begun is not known to have failed.
        let error = outpost.run(start(), &mut Discard).await.unwrap_err();
        assert!(error.kind == Kind::UnknownOutcome && said(&error), "{answer:?}: {error}");
        let error = outpost.start(start()).await.unwrap_err();
        assert!(error.kind == Kind::UnknownOutcome && said(&error), "{answer:?}: {error}");
        assert_eq!(fake.connections.load(Ordering::SeqCst), 3, "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_greets_and_goes_away_is_not_asked_without_a_pause() {
    let (outpost, fake) = place(Answer::Nothing);
    let run = tokio::time::timeout(Duration::from_secs(60), outpost.run(start(), &mut Discard)).await;
    assert!(run.is_err(), "it may still be there: {run:?}");
    let connections = fake.connections.load(Ordering::SeqCst);
    assert!((10..200).contains(&connections), "{connections}");
}

#[tokio::test(start_paused = true)]
async fn what_was_not_asked_for_is_not_kept() {
    let (outpost, fake) = place(Answer::Flood);
    let mut sink = Stuck;
    let run = tokio::time::timeout(Duration::from_secs(60), outpost.run(start(), &mut sink)).await;
    assert!(run.is_err());
    let sent = fake.sent.load(Ordering::SeqCst);
    assert!((1 << 20..5 << 20).contains(&sent), "{sent}");
    assert!(!outpost.is_connected());
}
