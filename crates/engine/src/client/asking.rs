//! Requests whose answer may get lost: which of them are asked again, and how.
//!
//! What only looks is asked again as it is. What changes something has a number under which the outpost does it once
//! and remembers what it answered ([`farshell_protocol::once`]), so it is asked again as well, of the same outpost. If
//! that is gone, or can't be reached, or does not know such numbers, nobody can say whether it was done:
//! [`Kind::UnknownOutcome`].

use super::connection::Call;
use super::{MOST_LOST, Outpost};
use crate::error::{Error, Kind, Result};
use farshell_protocol::file::{BelowOp, FileOp, FileRequest};
use farshell_protocol::hello::KNOWS_ONCE;
use farshell_protocol::{ErrorKind, Failure, ProcessId, Reply, Request, once};
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// The pause before the outpost is asked once more that is still about to call an older attempt off, and how long that
/// may take it.
const CALLED_OFF: Duration = Duration::from_millis(20);
const MOST_CALLED_OFF: Duration = Duration::from_secs(60);

const HINT: &str =
    "it may have been done, or may still arrive and be done: look in the place before you ask for it again";

/// A request, until it is answered.
#[derive(Debug)]
pub(super) struct Asking {
    outpost: Outpost,
    what: String,
    request: Request,
    /// The outpost that was asked first.
    instance: Option<String>,
    /// It may have been heard.
    sent: bool,
    /// When that was last possible. By the clock on the wall as well, which goes on while this machine sleeps.
    asked: (Instant, SystemTime),
    lost: u32,
    /// Since when an older attempt is being called off.
    waits: Option<Instant>,
}

/// Does it change nothing?
fn looks(op: &FileOp) -> bool {
    match op {
        FileOp::Stat { .. } | FileOp::Read { .. } | FileOp::List { .. } | FileOp::Search(_) => true,
        FileOp::Below(below) => {
            matches!(below.op, BelowOp::Stat | BelowOp::List | BelowOp::Read | BelowOp::Hash | BelowOp::Sync)
        }
        FileOp::Write(_)
        | FileOp::MakeDir { .. }
        | FileOp::Remove { .. }
        | FileOp::Move { .. }
        | FileOp::Copy { .. } => false,
    }
}

fn number(request: &mut Request) -> Option<&mut u64> {
    match request {
        Request::File(FileRequest { once, .. }) | Request::Signal { once, .. } => Some(once),
        _ => None,
    }
    .filter(|once| **once != 0)
}

fn new_number() -> u64 {
    once::first(crate::random::number())
}

impl Asking {
    pub(super) fn file(outpost: &Outpost, what: String, mut request: FileRequest) -> Self {
        request.once = if looks(&request.op) { 0 } else { new_number() };
        Self::new(outpost, what, Request::File(request))
    }

    pub(super) fn signal(outpost: &Outpost, what: String, id: ProcessId, signal: i32) -> Self {
        Self::new(outpost, what, Request::Signal { id, signal, once: new_number() })
    }

    fn new(outpost: &Outpost, what: String, request: Request) -> Self {
        let outpost = outpost.clone();
        let asked = (Instant::now(), SystemTime::now());
        Self { outpost, what, request, instance: None, sent: false, asked, lost: 0, waits: None }
    }

    pub(super) fn what(&self) -> &str {
        &self.what
    }

    /// The call, on whatever connection there is.
    pub(super) async fn call(&mut self) -> Result<Call> {
        loop {
            let connection =
                if self.sent { self.outpost.reconnect().await } else { self.outpost.connection().await };
            let connection = connection.map_err(|error| self.given_up(error))?;
            let numbered = number(&mut self.request).is_some();
            let instance = &connection.identity.instance;
            if numbered && self.sent {
                if self.instance.as_ref() != Some(instance) {
                    return Err(self.unknown("the outpost that was asked is gone"));
                }
                if connection.version < KNOWS_ONCE {
                    return Err(self.unknown("the outpost is of an older release, which can't tell"));
                }
                let (asked, on_the_wall) = self.asked;
                if asked.elapsed().max(on_the_wall.elapsed().unwrap_or_default()) > once::REMEMBERED / 2 {
                    return Err(
                        self.unknown("it was asked so long ago that the outpost may have forgotten it")
                    );
                }
            }
            self.instance = Some(instance.clone());
            self.asks();
            match connection.call(&self.request) {
                Err(error) if error.kind == Kind::Disconnected => self.lost(error)?,
                other => {
                    self.sent = true;
                    return other;
                }
            }
        }
    }

    /// From now on the outpost may have all it needs to do it.
    pub(super) fn asks(&mut self) {
        self.asked = (Instant::now(), SystemTime::now());
    }

    /// An attempt was lost: may there be another?
    pub(super) fn lost(&mut self, error: Error) -> Result<()> {
        if error.kind != Kind::Disconnected {
            return Err(error);
        }
        self.sent = true;
        self.lost += 1;
        if self.lost > MOST_LOST || !self.count() {
            return Err(self.given_up(error));
        }
        Ok(())
    }

    /// There is progress: the losses before it no longer count.
    pub(super) fn goes_on(&mut self) {
        self.lost = 0;
        self.waits = None;
    }

    /// An attempt was answered: is there to be another, because an older one is not over, or what was lost keeps the
    /// outpost busy?
    pub(super) async fn not_yet(&mut self, failure: &Failure) -> Result<bool> {
        match failure.kind {
            ErrorKind::Forgotten => return Err(self.unknown(&failure.message)),
            ErrorKind::CalledOff | ErrorKind::Busy if self.lost > 0 => {}
            _ => return Ok(false),
        }
        if self.waits.get_or_insert_with(Instant::now).elapsed() > MOST_CALLED_OFF || !self.count() {
            if failure.kind == ErrorKind::CalledOff {
                return Err(self.unknown("an attempt whose connection was lost is still under way"));
            }
            // What is busy has not begun this attempt, nor an older one.
            return Ok(false);
        }
        tokio::time::sleep(CALLED_OFF).await;
        Ok(true)
    }

    /// What is done to the end with the same number: nothing. Then the request was not done, and never will be.
    pub(super) fn only_look(&mut self) {
        if let Request::File(request) = &mut self.request {
            // Not in a session, which may be closed by now.
            request.session = None;
            request.op = FileOp::Stat { path: b"/".to_vec().into(), follow: false };
        }
    }

    /// The answer to a request that has nothing but an answer.
    pub(super) async fn answer(mut self) -> Result<Reply> {
        loop {
            match self.call().await?.response().await {
                Ok(Ok(reply)) => return Ok(reply),
                Ok(Err(failure)) => {
                    if !self.not_yet(&failure).await? {
                        return Err(Error::failure(self.what, &failure));
                    }
                }
                Err(error) => self.lost(error)?,
            }
        }
    }

    /// The next attempt has the next number.
    fn count(&mut self) -> bool {
        match number(&mut self.request) {
            None => true,
            Some(number) => match once::next(*number) {
                Some(next) => {
                    *number = next;
                    true
                }
                None => false,
            },
        }
    }

    /// The error of the last attempt, or what it means.
    fn given_up(&mut self, error: Error) -> Error {
        if self.sent && number(&mut self.request).is_some() {
            let mut unknown = self.unknown(&error.to_string());
            if let (Some(first), Some(then)) = (&error.hint, &mut unknown.hint) {
                *then = format!("{first}; {then}");
            }
            unknown.with_source(error)
        } else {
            error
        }
    }

    fn unknown(&self, why: &str) -> Error {
        let message = format!("the outcome is unknown: {why}; it was not done again");
        Error::new(Kind::UnknownOutcome, self.what.clone(), message).with_hint(HINT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{BoxFuture, ByteStream, Identity, Place};
    use crate::client::hostile::greeting;
    use farshell_protocol::Kind as FrameKind;
    use farshell_protocol::frame::{self, Decoder};
    use farshell_protocol::message::to_bytes;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    /// What comes after a first connection that is lost with its request.
    #[derive(Clone, Copy, Debug)]
    enum Then {
        Refuses(ErrorKind),
        Unreachable,
        /// The same outpost, but only after this time.
        ComesBack(Duration),
    }

    #[derive(Debug)]
    struct Fake {
        then: Then,
        connections: AtomicU32,
        requests: Arc<AtomicU32>,
    }

    impl Place for Fake {
        fn identity(&self) -> Identity {
            Identity { name: "fake".into(), id: "fake".into() }
        }

        fn connect(&self) -> BoxFuture<'_, Result<ByteStream>> {
            Box::pin(async {
                let first = self.connections.fetch_add(1, Ordering::SeqCst) == 0;
                let refuses = match self.then {
                    _ if first => None,
                    Then::Refuses(kind) => Some(kind),
                    Then::Unreachable => {
                        return Err(Error::new(Kind::Unavailable, "connecting", "it is off")
                            .with_hint("switch it on"));
                    }
                    Then::ComesBack(pause) => {
                        tokio::time::sleep(pause).await;
                        Some(ErrorKind::NotFound)
                    }
                };
                let (ours, theirs) = tokio::io::duplex(1 << 16);
                tokio::spawn(serve(theirs, refuses, Arc::clone(&self.requests)));
                let (read, write) = tokio::io::split(ours);
                Ok(ByteStream { read: Box::new(read), write: Box::new(write) })
            })
        }

        fn destroy(&self) -> BoxFuture<'_, Result<()>> {
            Box::pin(async { Ok(()) })
        }
    }

    /// Refuses each request, or ends with the first.
    async fn serve(mut stream: DuplexStream, refuses: Option<ErrorKind>, requests: Arc<AtomicU32>) {
        let mut decoder = Decoder::new();
        while let Ok(len @ 1..) = stream.read(decoder.space(4096)).await {
            decoder.filled(len);
            while let Some(frame) = decoder.next_frame().unwrap() {
                let mut out = Vec::new();
                if frame.kind == FrameKind::Hello {
                    out = greeting();
                } else if frame.kind == FrameKind::Request {
                    requests.fetch_add(1, Ordering::SeqCst);
                    let Some(kind) = refuses else { return };
                    let answer = Err::<Reply, _>(Failure::new(kind, "no"));
                    frame::encode(&mut out, FrameKind::Response, frame.call, &to_bytes(&answer));
                }
                stream.write_all(&out).await.unwrap();
            }
        }
    }

    /// The error of a look or a change, and how many requests there were.
    async fn asked(then: Then, look: bool) -> (Error, u32) {
        let requests = Arc::new(AtomicU32::new(0));
        let place = Fake { then, connections: AtomicU32::new(0), requests: Arc::clone(&requests) };
        let path = b"/a".to_vec().into();
        let op = if look {
            FileOp::Stat { path, follow: false }
        } else {
            FileOp::MakeDir { path, parents: false, mode: None }
        };
        let request = FileRequest { session: None, op, once: 0 };
        let asking = Asking::file(&Outpost::new(Arc::new(place)), "asking".into(), request);
        (asking.answer().await.unwrap_err(), requests.load(Ordering::SeqCst))
    }

    #[tokio::test(start_paused = true)]
    async fn only_an_attempt_that_is_not_over_leaves_the_outcome_unknown() {
        for (kind, look, expected, patient) in [
            (ErrorKind::CalledOff, false, Kind::UnknownOutcome, true),
            (ErrorKind::Busy, false, Kind::Busy, true),
            (ErrorKind::Busy, true, Kind::Busy, true),
            (ErrorKind::Forgotten, false, Kind::UnknownOutcome, false),
            (ErrorKind::NotFound, false, Kind::NotFound, false),
        ] {
            let (error, requests) = asked(Then::Refuses(kind), look).await;
            assert_eq!((error.kind, requests > 100), (expected, patient), "{kind:?}: {error}, {requests}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_unknown_outcome_says_why_the_place_cant_be_reached() {
        let (error, requests) = asked(Then::Unreachable, false).await;
        assert_eq!((error.kind, requests), (Kind::UnknownOutcome, 1));
        assert_eq!(error.hint.as_deref(), Some(format!("switch it on; {HINT}").as_str()));
        let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<Error>());
        assert_eq!(source.map(|source| source.kind), Some(Kind::Unavailable));
        // What only looks needs no explanation.
        assert_eq!(asked(Then::Unreachable, true).await.0.kind, Kind::Unavailable);
    }

    #[tokio::test(start_paused = true)]
    async fn an_outpost_that_may_have_forgotten_is_not_asked_again() {
        let soon = Duration::from_secs(60);
        let (error, requests) = asked(Then::ComesBack(soon), false).await;
        assert_eq!((error.kind, requests), (Kind::NotFound, 2));
        let late = once::REMEMBERED / 2 + soon;
        let (error, requests) = asked(Then::ComesBack(late), false).await;
        assert_eq!((error.kind, requests), (Kind::UnknownOutcome, 1));
        let (error, requests) = asked(Then::ComesBack(late), true).await;
        assert_eq!((error.kind, requests), (Kind::NotFound, 2));
    }
}
