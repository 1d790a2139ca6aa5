//! Follows a command to its end: output, input and signals, side by side.
//!
//! | signal | what happens |
//! |---|---|
//! | first `INT` | the command is interrupted; its session stays |
//! | second `INT` | the command is killed at once |
//! | `TERM`, `HUP`, `QUIT` | the command is asked to end, then killed, and we end as if the signal had ended us |

use crate::ask::Asking;
use crate::input::Source;
use crate::load;
use crate::output::{Stop, api_error, notice};
use crate::password::Prompting;
use crate::progress::Progress;
use crate::signals::{INT, Interrupts};
use crate::writer::{Broken, Writer, Written};
use bytes::Bytes;
use farshell_api::ApiError;
use farshell_api::process::{Process, ProcessState};
use farshell_api::run::StartRequest;
use farshell_client::stream::Stream;
use farshell_client::{Client, Control, Output, Streaming, Update};
use farshell_engine::capture::{Capture, Sink as _};
use farshell_engine::{Error, Kind};
use farshell_protocol::process::{self, Chunk};
use std::io::IsTerminal;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// How long a command may wait for its session before a person is told why nothing happens.
const TELL_QUEUED: Duration = Duration::from_millis(700);
/// An interrupted command that has not ended by then may need the second Ctrl-C.
const STILL_THERE: Duration = Duration::from_millis(1500);
/// How long a kill may take, on top of its grace.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a reader who does not read may keep us from ending after a kill.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Time for a last message to be sent.
const PARTING: Duration = Duration::from_millis(200);
/// How often, and how far apart, a command is signalled that is only just being started.
const LOOKS: u32 = 100;
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// What becomes of output.
#[derive(Debug)]
pub(crate) enum Sink {
    Streams(Writer),
    Capture(Box<Capture>),
}

impl Sink {
    pub(crate) fn streams() -> Self {
        Self::Streams(Writer::default())
    }

    pub(crate) fn line_begun(&self) -> bool {
        matches!(self, Self::Streams(writer) if writer.line_begun())
    }

    fn has_room(&self) -> bool {
        match self {
            Self::Streams(writer) => writer.has_room(),
            Self::Capture(_) => true,
        }
    }

    fn close(&mut self) {
        if let Self::Streams(writer) = self {
            writer.close();
        }
    }

    async fn work(&mut self, closed: bool) -> Result<Written, Broken> {
        match self {
            Self::Streams(writer) => writer.work().await,
            Self::Capture(_) if closed => Ok(Written::All),
            Self::Capture(_) => std::future::pending().await,
        }
    }

    fn output(&mut self, output: Output) -> Result<(), Error> {
        match self {
            Self::Streams(writer) => writer.write(output.stream, output.bytes),
            Self::Capture(capture) => {
                let stream = match output.stream {
                    Stream::Stdout => process::Stream::Stdout,
                    Stream::Stderr => process::Stream::Stderr,
                };
                capture.chunk(Chunk {
                    stream,
                    offset: output.offset,
                    stream_offset: 0,
                    bytes: &output.bytes,
                });
                Ok(())
            }
        }
    }

    fn gap(&mut self, from: u64, to: u64) -> Result<(), Error> {
        match self {
            Self::Streams(writer) => {
                // Lost output is told to everybody, not only at a terminal.
                let lost = to.saturating_sub(from);
                let text = format!("\nfarshell: {lost} bytes of output are lost (offsets {from} to {to})\n");
                writer.write(Stream::Stderr, Bytes::from(text))
            }
            Self::Capture(capture) => {
                capture.gap(from, to);
                Ok(())
            }
        }
    }
}

/// How it came to its end.
#[derive(Debug)]
pub(crate) enum Ended {
    Process(Box<Process>),
    /// It goes on in the background.
    Detached(Box<Process>, String),
    /// By a signal to us, before anything is known of the command.
    Interrupted,
}

/// A command on its way.
#[derive(Debug)]
pub(crate) struct Follow {
    client: Client,
    session: String,
    streaming: Streaming,
    control: Control,
    pub(crate) interrupts: Interrupts,
    pub(crate) sink: Sink,
    progress: Progress,
    /// What somebody has to say yes to first.
    asking: Asking,
    /// What a sudo of it wants.
    prompting: Prompting,
    opened: bool,
    ended: Option<Ended>,
    /// What we end with, whatever becomes of the command.
    verdict: Option<Stop>,
    /// Output is not wanted any more.
    discard: bool,
    /// Signals that the command was not ready for.
    looks: u32,
    /// We leave before it has begun.
    parting: bool,
    alarms: Alarms,
}

/// Moments at which something is due.
#[derive(Debug, Default)]
struct Alarms {
    /// To say why nothing happens.
    queued: Option<Instant>,
    /// To mention the second Ctrl-C.
    still_there: Option<Instant>,
    /// To stop waiting for a reader.
    stuck: Option<Instant>,
    /// To leave.
    leave: Option<Instant>,
}

impl Follow {
    pub(crate) fn new(client: Client, request: StartRequest, interrupts: Interrupts, sink: Sink) -> Self {
        let session = request.session.clone();
        let streaming = Streaming::start(&client, request);
        let control = streaming.control();
        let told = std::io::stderr().is_terminal();
        let queued = told.then(|| Instant::now() + TELL_QUEUED);
        Self {
            client,
            session,
            streaming,
            control,
            interrupts,
            sink,
            progress: Progress::new("preparing the environment"),
            asking: Asking::default(),
            prompting: Prompting::default(),
            opened: false,
            ended: None,
            verdict: None,
            discard: false,
            looks: 0,
            parting: false,
            alarms: Alarms { queued, ..Alarms::default() },
        }
    }

    pub(crate) async fn until_end(&mut self, input: Option<Source>) -> Result<Ended, Stop> {
        let control = self.control.clone();
        let mut feeding = input.is_some();
        let feed = async {
            match input {
                Some(input) => input.feed(&control).await,
                None => Ok(()),
            }
        };
        let mut feed = std::pin::pin!(feed);
        loop {
            let over = self.ended.is_some();
            if over && self.discard {
                return self.outcome();
            }
            let alarm = self.alarms.next();
            tokio::select! {
                // A reader who is gone counts first.
                biased;
                written = self.sink.work(over), if !self.discard => match written {
                    Ok(Written::Room) => self.alarms.stuck = self.patience(),
                    Ok(Written::All) => return self.outcome(),
                    Err(why) => self.give_up(why),
                },
                signal = self.interrupts.next() => self.signalled(signal),
                () = sleep_until(alarm.unwrap_or_else(Instant::now)), if alarm.is_some() => {
                    if self.rung() {
                        return self.outcome();
                    }
                }
                fed = &mut feed, if feeding => {
                    feeding = false;
                    if let Err(error) = fed {
                        // A command that got half of its input must not go on as if that were all.
                        self.verdict.get_or_insert(error.into());
                        self.kill(None);
                    }
                }
                () = self.progress.turn() => {}
                answer = self.asking.answer() => self.asking.send(&self.client, answer).await,
                () = self.prompting.answer(&control) => {}
                update = self.streaming.next(), if !over && (self.discard || self.sink.has_room()) => {
                    match update {
                        Ok(update) => self.update(update)?,
                        Err(error) => self.failed(error)?,
                    }
                }
            }
        }
    }

    fn outcome(&mut self) -> Result<Ended, Stop> {
        self.progress.over();
        match self.verdict.take() {
            Some(stop) => Err(stop),
            None => Ok(self.ended.take().unwrap_or(Ended::Interrupted)),
        }
    }

    fn update(&mut self, update: Update) -> Result<(), Stop> {
        if !matches!(update, Update::Progress { .. }) {
            self.progress.over();
        }
        match update {
            Update::Progress { message, part } => self.progress.say(&message, part),
            Update::Approval(approval) => self.asking.put(*approval),
            Update::Opened(_) => {
                self.asking.over();
                self.open();
            }
            Update::Password { id, again } => self.prompting.put(id, again, &self.control),
            Update::Started(_) => self.alarms.queued = None,
            Update::Output(output) => {
                self.alarms.queued = None;
                if !self.discard {
                    self.sink.output(output)?;
                }
            }
            Update::Gap { from, to } => {
                if !self.discard {
                    self.sink.gap(from, to)?;
                }
            }
            Update::Refused { request, error } => {
                if request == "signal" {
                    self.not_signalled(&error);
                }
            }
            Update::Screen { .. } | Update::Resumed => {}
            Update::Ended(process) => match process.state {
                ProcessState::Ended => self.end(Ended::Process(process)),
                ProcessState::NotStarted if self.interrupts.any() => self.end(Ended::Interrupted),
                _ => return Err(no_end(&process).into()),
            },
            Update::Detached { process, reason } => self.end(Ended::Detached(process, reason)),
        }
        Ok(())
    }

    /// The command's story is over; what it printed may still be on its way.
    fn end(&mut self, ended: Ended) {
        self.ended = Some(ended);
        self.prompting.over();
        self.sink.close();
        self.alarms = Alarms { stuck: self.patience(), ..Alarms::default() };
    }

    /// The stream has failed. After a signal that may be what was asked for.
    fn failed(&mut self, error: ApiError) -> Result<(), Stop> {
        let wanted = self.interrupts.any() && (!self.opened || error.kind == Kind::NotStarted.name());
        match self.verdict.take() {
            Some(stop) => Err(stop),
            None if wanted => {
                self.end(Ended::Interrupted);
                Ok(())
            }
            None => Err(error.into()),
        }
    }

    fn signalled(&mut self, signal: i32) {
        if self.ended.is_some() {
            // Only a reader keeps us.
            self.alarms.stuck = self.patience();
            return;
        }
        if self.asking.open() {
            // Who does not wait for the answer does not start it.
            crate::output::tell("\n");
            self.asking.over();
            self.kill(Some(Duration::ZERO));
            self.alarms.leave = Some(Instant::now() + LAST_WORDS);
            return;
        }
        match (signal, self.interrupts.killed()) {
            (INT, false) => self.interrupt(),
            (INT, true) => self.kill(Some(Duration::ZERO)),
            _ => self.kill(None),
        }
        if !self.opened {
            // Its place is being made, and it has not begun. Who is gone before that does not start it.
            self.alarms.leave = Some(Instant::now() + LAST_WORDS);
        }
    }

    /// It can be steered from here on. A signal may have come before.
    fn open(&mut self) {
        self.opened = true;
        if self.interrupts.killed() {
            self.alarms.leave = Some(Instant::now() + configured_grace() + PATIENCE);
        } else {
            self.alarms.leave = None;
        }
    }

    fn interrupt(&mut self) {
        self.control.signal("INT");
        self.alarms.still_there = Some(Instant::now() + STILL_THERE);
    }

    /// Kills the command. Without a grace of its own it has the one of the settings.
    fn kill(&mut self, grace: Option<Duration>) {
        self.control.kill(grace.map(|grace| grace.as_secs_f64()));
        let grace = grace.unwrap_or_else(configured_grace);
        self.alarms.still_there = None;
        self.alarms.leave = Some(Instant::now() + grace + PATIENCE);
        self.alarms.stuck = self.patience();
    }

    /// Until when a reader who does not read is waited for, once the command has to end.
    fn patience(&self) -> Option<Instant> {
        let waits = self.ended.is_some() || !self.sink.has_room();
        (waits && self.interrupts.killed()).then(|| Instant::now() + LAST_WORDS)
    }

    /// It was only just being started, or waits for its session; or it has ended meanwhile.
    fn not_signalled(&mut self, error: &ApiError) {
        let (control, client) = (self.control.clone(), self.client.clone());
        let id = self.streaming.id().to_owned();
        self.looks += 1;
        let again = error.kind == Kind::NotFound.name() && self.looks < LOOKS;
        tokio::spawn(async move {
            let queued = async { client.process(&id).await.is_ok_and(|p| p.state == ProcessState::Queued) };
            if again {
                sleep(BETWEEN_LOOKS).await;
                control.signal("INT");
            } else if queued.await {
                // Nothing of it is lost.
                control.kill(Some(0.0));
            }
        });
    }

    /// Output can't be delivered: the command goes, and then we.
    fn give_up(&mut self, why: Broken) {
        self.discard = true;
        self.verdict.get_or_insert(match why {
            Broken::NoReader => Stop::BrokenPipe,
            Broken::Failed { stream, error } => Error::io(format!("writing to standard {stream}"), error)
                .with_hint("the command was killed")
                .into(),
        });
        if self.ended.is_none() {
            self.kill(None);
        }
    }

    /// Does what is due. True if it is time to leave.
    fn rung(&mut self) -> bool {
        let now = Instant::now();
        let due = |alarm: &mut Option<Instant>| alarm.take_if(|at| *at <= now).is_some();
        if due(&mut self.alarms.queued) {
            self.tell_queued();
        }
        if due(&mut self.alarms.still_there) {
            notice("interrupted, and the command goes on; Ctrl-C again kills it");
        }
        if due(&mut self.alarms.stuck) {
            self.discard = true;
        }
        if !due(&mut self.alarms.leave) {
            return false;
        }
        if self.opened {
            notice(&format!("{} may still run: its outpost does not answer", self.streaming.id()));
        } else if !std::mem::replace(&mut self.parting, true) {
            // In case that it begins at this very moment.
            self.control.kill(Some(0.0));
            self.alarms.leave = Some(now + PARTING);
            return false;
        }
        true
    }

    /// Says why nothing happens, if the session runs another command.
    fn tell_queued(&mut self) {
        if !self.opened {
            self.alarms.queued = Some(Instant::now() + TELL_QUEUED);
            return;
        }
        let (client, session) = (self.client.clone(), self.session.clone());
        let id = self.streaming.id().to_owned();
        tokio::spawn(async move {
            if client.process(&id).await.is_ok_and(|process| process.state == ProcessState::Queued) {
                notice(&format!(
                    "waiting: session {session} runs another command (--session NAME uses another one)"
                ));
            }
        });
    }
}

impl Alarms {
    fn next(&self) -> Option<Instant> {
        [self.queued, self.still_there, self.stuck, self.leave].into_iter().flatten().min()
    }
}

/// The pause between asking a command to end and killing it.
fn configured_grace() -> Duration {
    let settings = load::config(None).and_then(|config| load::settings(&config));
    settings.map_or(Duration::from_secs(2), |settings| settings.term_grace)
}

/// It never began, or nobody can say how it ended.
fn no_end(process: &Process) -> ApiError {
    let what = format!("running {}", process.id);
    let why = |text: &str| process.note.clone().unwrap_or_else(|| text.to_owned());
    api_error(match process.state {
        ProcessState::NotStarted => Error::new(Kind::NotStarted, what, why("it never began")),
        _ => Error::new(Kind::UnknownOutcome, what, why("its outpost is gone"))
            .with_hint("check in the place whether the command took effect before you run it again"),
    })
}
