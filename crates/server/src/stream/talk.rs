//! The conversation with a client.

use super::input::{Inputs, Piece, feed};
use super::open::{Following, Opening};
use super::passwords::Mailbox;
use super::queue::Queue;
use super::{DONE, Ending, FAILED, MAX_MESSAGE, MAX_WORDS, MISTAKE, RESTART, TOO_LARGE};
use crate::app::{App, unless_closed};
use crate::connection::Peer;
use crate::gate::Door;
use crate::input::parse;
use crate::life::Phase;
use crate::refusal::{Refusal, api_error};
use axum::extract::ws::{Message, Utf8Bytes, WebSocket};
use bytes::Bytes;
use farshell_api::ApiError;
use farshell_api::stream::{ClientMessage, INPUT_HEADER, Open, ServerMessage};
use farshell_engine::{Error, Kind};
use farshell_keeper::{Control, Origin, StreamEnd};
use futures_util::StreamExt;
use futures_util::stream::SplitStream;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, MissedTickBehavior};

const WHAT: &str = "reading a message of the stream";
/// Time for the first message.
const FIRST: Duration = Duration::from_secs(30);
/// Between signs of life.
const PING: Duration = Duration::from_secs(30);
/// Over TCP, one who has said nothing for so long, and was asked, is not there any more. On a Unix socket the kernel
/// says so, and silence only means that the client is busy or stopped.
const SILENCE: Duration = Duration::from_secs(90);
/// Kills, signals and resizes under way at one time.
const ACTIONS: usize = 64;

/// Talks until the end. `None` if the client is gone.
pub(super) async fn talk(
    reader: &mut SplitStream<WebSocket>,
    queue: &Arc<Queue>,
    app: &Arc<App>,
    peer: &Peer,
    origin: Origin,
) -> Option<Ending> {
    let first = tokio::select! {
        first = tokio::time::timeout(FIRST, reader.next()) => first,
        () = app.life.reached(Phase::Stopping) => return Some(RESTART),
    };
    let open = match first {
        Ok(first) => match heard(first) {
            Heard::Text(text) => read_open(&text),
            Heard::Binary(_) => Err(mistake("the first message must be text")),
            Heard::Nothing => Err(mistake("the first message must say what to open")),
            Heard::TooLarge => return Some(TOO_LARGE),
            Heard::Gone => return None,
        },
        Err(_) => Err(mistake(format!("nothing was opened within {} seconds", FIRST.as_secs()))),
    };
    let open = match open {
        Ok(open) => open,
        Err(refusal) => return Some(fail(queue, *refusal.error)),
    };
    let takes_input = open.start.as_ref().is_none_or(|start| start.stdin || start.pty.is_some());
    let mut talk = Talk {
        queue: Arc::clone(queue),
        app: Arc::clone(app),
        inputs: Arc::default(),
        takes_input,
        early: Vec::new(),
        control: None,
        actions: JoinSet::new(),
        mailbox: Mailbox::new(Arc::clone(queue)),
        pulse: Pulse::new(matches!(peer.door, Door::Tcp(_))),
    };
    talk.converse(reader, open, origin).await
}

/// The state of a conversation.
struct Talk {
    queue: Arc<Queue>,
    app: Arc<App>,
    inputs: Arc<Inputs>,
    /// Without it, input is a misunderstanding.
    takes_input: bool,
    /// What was asked for before the process was there.
    early: Vec<ClientMessage>,
    control: Option<Control>,
    actions: JoinSet<Option<()>>,
    mailbox: Arc<Mailbox>,
    pulse: Pulse,
}

/// What a message leads to.
enum Next {
    GoOn,
    End(Option<Ending>),
}

impl Drop for Talk {
    /// What the client asked for is done, also if it did not wait for it.
    fn drop(&mut self) {
        self.actions.detach_all();
        self.inputs.end();
        self.mailbox.close();
    }
}

impl Talk {
    async fn converse(
        &mut self,
        reader: &mut SplitStream<WebSocket>,
        open: Open,
        origin: Origin,
    ) -> Option<Ending> {
        let starts = open.start.is_some();
        let mut opening = Opening::begin(&self.app, origin, open, Arc::clone(&self.queue), &self.mailbox);
        let stream = loop {
            let app = Arc::clone(&self.app);
            tokio::select! {
                opened = opening.opened() => match opened {
                    Ok(stream) => break stream,
                    Err(error) => return Some(fail(&self.queue, error)),
                },
                message = reader.next(), if self.listens() => {
                    match self.hear(message) {
                        Next::GoOn => {}
                        Next::End(ending) => return ending,
                    }
                    if self.early.iter().any(|message| matches!(message, ClientMessage::Kill { .. })) {
                        let message = "it was killed before it began";
                        let error = Error::new(Kind::NotStarted, "opening the stream", message);
                        return Some(fail(&self.queue, api_error(error)));
                    }
                }
                () = self.queue.answers(), if !self.queue.takes_answers() => {}
                () = app.life.reached(Phase::Stopping) => return Some(RESTART),
                alive = self.pulse.beat(&self.queue) => if !alive { return None },
            }
        };
        self.queue.say(&ServerMessage::Opened {
            process: Box::new(stream.process.clone()),
            stdin_taken: stream.stdin_taken,
            instance: stream.instance.clone(),
        });
        if let Some((data, offset)) = &stream.screen {
            self.queue.say(&ServerMessage::Screen { data: data.clone().into(), offset: *offset });
        }
        let control = stream.control();
        let mut following = Following::begin(&self.app, stream, starts, Arc::clone(&self.queue));
        self.app.apart(feed(Arc::clone(&self.inputs), control.clone(), Arc::clone(&self.queue)));
        self.control = Some(control);
        for message in std::mem::take(&mut self.early) {
            self.act(message);
        }
        loop {
            let app = Arc::clone(&self.app);
            tokio::select! {
                ended = following.ended() => return Some(self.over(ended)),
                message = reader.next(), if self.listens() => {
                    if let Next::End(ending) = self.hear(message) {
                        return ending;
                    }
                }
                // These only make room for more.
                () = self.inputs.room.notified() => {}
                Some(_) = self.actions.join_next() => {}
                () = self.queue.answers(), if !self.queue.takes_answers() => {}
                () = app.life.reached(Phase::Stopping) => {
                    following.stop();
                    return Some(RESTART);
                }
                alive = self.pulse.beat(&self.queue) => if !alive { return None },
            }
        }
    }

    /// Is there room for what the client might say?
    fn listens(&self) -> bool {
        !self.inputs.is_full()
            && self.actions.len() < ACTIONS
            && self.early.len() < ACTIONS
            && self.queue.takes_answers()
    }

    fn hear(&mut self, message: Option<Result<Message, axum::Error>>) -> Next {
        self.pulse.heard();
        match heard(message) {
            Heard::Text(text) => match parse::<ClientMessage>(text.as_bytes()) {
                Ok(ClientMessage::Eof { offset }) => {
                    self.input(Piece { offset, bytes: Bytes::new(), eof: true });
                }
                Ok(ClientMessage::Password { id, password }) => self.mailbox.answer(id, password),
                Ok(message) => self.act(message),
                Err(refusal) => return Next::End(Some(fail(&self.queue, *refusal.error))),
            },
            Heard::Binary(bytes) => match bytes.split_first_chunk::<INPUT_HEADER>() {
                Some((offset, rest)) if !rest.is_empty() => {
                    let offset = u64::from_le_bytes(*offset);
                    self.input(Piece { offset, bytes: bytes.slice(INPUT_HEADER..), eof: false });
                }
                _ => {
                    let refusal = mistake("input has eight bytes of offset, and at least one after them");
                    return Next::End(Some(fail(&self.queue, *refusal.error)));
                }
            },
            Heard::Nothing => {}
            Heard::TooLarge => return Next::End(Some(TOO_LARGE)),
            Heard::Gone => return Next::End(None),
        }
        Next::GoOn
    }

    fn input(&self, piece: Piece) {
        if self.takes_input {
            self.inputs.push(piece);
        } else {
            let error = Error::new(Kind::Invalid, "sending input", "the process has none")
                .with_hint("start it with `stdin` or on a terminal");
            self.queue.say(&ServerMessage::Refused { request: "stdin".into(), error: api_error(error) });
        }
    }

    /// Does what was asked, beside everything else.
    fn act(&mut self, message: ClientMessage) {
        let Some(control) = self.control.clone() else { return self.early.push(message) };
        let queue = Arc::clone(&self.queue);
        self.actions.spawn(unless_closed(Arc::clone(&self.app.life), async move {
            let (request, done) = match message {
                ClientMessage::Eof { .. } | ClientMessage::Password { .. } => return,
                ClientMessage::Resize { size } => ("resize", control.resize(size).await),
                ClientMessage::Signal { signal } => ("signal", control.signal(&signal).await),
                ClientMessage::Kill { grace } => ("kill", control.kill(grace).await.map(drop)),
            };
            if let Err(error) = done {
                queue.say(&ServerMessage::Refused { request: request.into(), error: api_error(error) });
            }
        }));
    }

    fn over(&self, ended: Result<StreamEnd, ApiError>) -> Ending {
        let message = match ended {
            Ok(StreamEnd::Ended(process)) => ServerMessage::Ended { process: Box::new(process) },
            Ok(StreamEnd::Detached(process, reason)) => {
                ServerMessage::Detached { process: Box::new(process), reason }
            }
            Err(error) => return fail(&self.queue, error),
        };
        self.queue.say(&message);
        DONE
    }
}

/// Signs of life, in both directions.
struct Pulse {
    ticks: Interval,
    heard: Instant,
    /// Silence means that nobody is there.
    mortal: bool,
}

impl Pulse {
    fn new(mortal: bool) -> Self {
        let now = Instant::now();
        let mut ticks = tokio::time::interval_at(now + PING, PING);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { ticks, heard: now, mortal }
    }

    fn heard(&mut self) {
        self.heard = Instant::now();
    }

    /// The next beat. False if nobody is there.
    async fn beat(&mut self, queue: &Queue) -> bool {
        self.ticks.tick().await;
        // One who does not read what is there already would not read this either.
        if queue.is_empty() {
            if self.mortal && self.heard.elapsed() >= SILENCE {
                return false;
            }
            queue.push(Message::Ping(Bytes::new()));
        }
        true
    }
}

/// What came from the client.
enum Heard {
    Text(Utf8Bytes),
    Binary(Bytes),
    Nothing,
    TooLarge,
    Gone,
}

fn heard(message: Option<Result<Message, axum::Error>>) -> Heard {
    match message {
        Some(Ok(Message::Text(text))) if text.len() > MAX_WORDS => Heard::TooLarge,
        Some(Ok(Message::Binary(bytes))) if bytes.len() > MAX_MESSAGE => Heard::TooLarge,
        Some(Ok(Message::Text(text))) => Heard::Text(text),
        Some(Ok(Message::Binary(bytes))) => Heard::Binary(bytes),
        Some(Ok(Message::Ping(_) | Message::Pong(_))) => Heard::Nothing,
        Some(Ok(Message::Close(_))) | None => Heard::Gone,
        Some(Err(error)) => {
            use tokio_tungstenite::tungstenite::Error as Inner;
            match error.into_inner().downcast_ref::<Inner>() {
                Some(Inner::Capacity(_)) => Heard::TooLarge,
                _ => Heard::Gone,
            }
        }
    }
}

fn read_open(text: &str) -> Result<Open, Refusal> {
    let open: Open = parse(text.as_bytes())?;
    if open.start.is_some() == open.attach.is_some() {
        return Err(mistake("exactly one of `start` and `attach` is needed"));
    }
    Ok(open)
}

fn mistake(message: impl Into<String>) -> Refusal {
    Refusal::new(Kind::Invalid, WHAT, message)
}

/// Says what is wrong, and ends.
fn fail(queue: &Queue, error: ApiError) -> Ending {
    let ending = if error.kind == Kind::Invalid.name() { MISTAKE } else { FAILED };
    queue.say(&ServerMessage::Error { error });
    ending
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_does_not_answer_over_tcp_is_not_there() {
        let queue = Queue::default();
        for (mortal, beats) in [(true, Some(3)), (false, None)] {
            let begun = Instant::now();
            let mut pulse = Pulse::new(mortal);
            let mut count = 0;
            let dead = loop {
                count += 1;
                if !pulse.beat(&queue).await {
                    break Some(count);
                }
                assert_eq!(queue.next().await, Some(Message::Ping(Bytes::new())));
                if count == 20 {
                    break None;
                }
            };
            assert_eq!(dead, beats);
            assert_eq!(begun.elapsed(), PING * count);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_answers_or_has_something_to_read_lives() {
        let queue = Queue::default();
        let mut pulse = Pulse::new(true);
        for _ in 0..10 {
            assert!(pulse.beat(&queue).await);
            assert!(queue.now().is_some());
            pulse.heard();
        }
        queue.push(Message::Binary(Bytes::from_static(b"unread")));
        for _ in 0..10 {
            assert!(pulse.beat(&queue).await);
        }
        assert!(queue.now().is_some());
        assert!(queue.is_empty(), "no ping was put behind it");
    }
}
