//! One script, from the gate to its end.

use super::calls::{Caller, Quiet, Reply};
use super::frames::{Found, Frames, LONGEST, Message};
use super::result::{Seen, Why};
use super::{Arguments, start};
use crate::attended::{KILLED, PIECE, Unattended, Watching, wanted_no_more};
use crate::failure::{Failure, Outcome};
use crate::text::Output;
use crate::{Call, Tools};
use farshell_api::approval::Subject;
use farshell_api::run::{StartRequest, Target};
use farshell_engine::backend::BoxFuture;
use farshell_engine::capture::Sink;
use farshell_engine::{Error, Kind};
use farshell_keeper::{Control, Deed, Stream, StreamEnd};
use farshell_protocol::process::{Chunk, Stream as Pipe};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Seconds that a script may take unless told otherwise.
const TIMEOUT: f64 = 300.0;
/// Characters of standard error that are shown.
const MOST_STDERR: usize = 10_000;
/// How long a script's end may be overdue. One that calls and takes no answers holds up the news of its end, too.
const OVERDUE: Duration = Duration::from_secs(5);
/// Messages that are not dealt with yet, calls that are not answered among them. More of them wait in the place.
const MOST_WAITING: usize = 64;

pub(super) async fn run(tools: &Tools, arguments: &Arguments, call: &Call<'_>) -> Outcome {
    let target = tools.target(call, arguments.backend.as_deref())?;
    let timeout = timeout(tools, arguments, &target)?;
    let session = arguments.session.as_deref().unwrap_or(&call.session);
    let redactor = tools.keeper.redactor(&target)?;
    let (id, mark) = (start::new_id(), start::new_mark()?);
    let opened = tokio::select! {
        biased;
        () = call.cancel.cancelled() => return Err(cancelled_before()),
        opened = open(tools, arguments, call, &target, session, timeout, &id) => opened?,
    };
    let control = opened.control();
    let unattended = Unattended::new(control.clone(), tools);
    let (tell, mut heard) = mpsc::unbounded_channel();
    let waiting = watch::Sender::new(Waiting::default());
    let mut sink = Script {
        stdout: Watching::new(call.observer, &redactor),
        stderr: Output::showing(MOST_STDERR),
        frames: Frames::new(&mark),
        faulty: false,
        tell,
        waiting: &waiting,
    };
    let (inner, quiet) = (call.cancel.child_token(), Quiet(call.observer));
    let caller =
        Caller { tools, target: &target, session, origin: &call.origin, cancel: &inner, observer: &quiet };
    let mut script = Running::new(&caller, &control, &waiting);
    script.send(Reply { line: start::input(&mark, &arguments.code), weight: 0 });
    let (ended, why) = {
        let mut follow = std::pin::pin!(opened.follow(&mut sink));
        let mut unwanted = std::pin::pin!(wanted_no_more(tools, call));
        let late = Duration::try_from_secs_f64(timeout).unwrap_or_default() + OVERDUE;
        let mut late = std::pin::pin!(tokio::time::sleep(late));
        let why = loop {
            tokio::select! {
                biased;
                ended = &mut follow => break Err(ended),
                () = &mut unwanted => break Ok(Why::Cancelled),
                () = &mut late => break Ok(Why::Late),
                Some(told) = heard.recv() => {
                    if let Err(fault) = script.heard(told) {
                        break Ok(Why::Fault(fault));
                    }
                }
                () = script.go_on() => {}
            }
        };
        // What it has begun ends with it, and nothing more is begun.
        inner.cancel();
        heard.close();
        waiting.send_modify(|waiting| waiting.closed = true);
        match why {
            Err(ended) => {
                script.settle().await;
                (ended, Why::Itself)
            }
            Ok(why) => {
                let killing = async {
                    let _ = control.kill(None).await;
                    follow.await
                };
                let (ended, ()) = tokio::join!(tokio::time::timeout(KILLED, killing), script.settle());
                let what = format!("cancelling {id}");
                let left = "it was killed, and its end has not been seen";
                (ended.unwrap_or_else(|_| Err(Error::new(Kind::UnknownOutcome, what, left))), why)
            }
        }
    };
    unattended.over();
    let Running { made, mut said, .. } = script;
    let Script { stdout, mut stderr, mut frames, .. } = sink;
    frames.finish(|rest| stderr.push(rest));
    while let Ok(Ok(message)) = heard.try_recv().map(|told| told.map(|(message, _)| message)) {
        said.note(message);
    }
    let seen = Seen {
        stdout: &stdout.output,
        stderr: &stderr,
        redactor: &redactor,
        said,
        made,
        why,
        timeout,
        id: &id,
    };
    match ended {
        Ok(StreamEnd::Ended(process) | StreamEnd::Detached(process, _)) => seen.outcome(&process),
        Err(error) => Err(seen.lost(error)),
    }
}

/// How long it may take.
fn timeout(tools: &Tools, arguments: &Arguments, target: &Target) -> Result<f64, Failure> {
    let most = tools.keeper.settings(target)?.max_foreground_timeout.as_secs_f64();
    match arguments.timeout {
        None => Ok(TIMEOUT.min(most)),
        Some(timeout) if timeout <= most => Ok(timeout),
        Some(timeout) => {
            let right = format!("at most {most} s are possible (max_foreground_timeout)");
            Err(Failure::argument("timeout", timeout, &right))
        }
    }
}

/// Asks for leave, and brings the script to where it can begin.
async fn open(
    tools: &Tools,
    arguments: &Arguments,
    call: &Call<'_>,
    target: &Target,
    session: &str,
    timeout: f64,
    id: &str,
) -> Result<Stream, Failure> {
    let (keeper, told) = (tools.keeper(call), call.told());
    let deed = Deed {
        target,
        session,
        subject: Subject::Code,
        text: &arguments.code,
        workdir: arguments.workdir.as_deref(),
        process: Some(id),
        typed: false,
        repeated: false,
    };
    let permit = keeper.permit(deed, &told).await?;
    let start = StartRequest {
        id: Some(id.to_owned()),
        target: target.clone(),
        session: session.to_owned(),
        timeout: Some(timeout),
        stdin: true,
        ..StartRequest::new(start::command(arguments.workdir.as_deref()))
    };
    Ok(keeper.stream_permitted(permit, start, &told).await?)
}

fn cancelled_before() -> Failure {
    Failure::new(Kind::NotStarted, "the call was cancelled before the script began: nothing was run")
        .status("interrupted")
        .with("exit_code", 130)
}

/// What the harness has told besides calls.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// The script has begun.
    pub(super) ready: bool,
    pub(super) raised: Option<String>,
}

impl Said {
    fn note(&mut self, message: Message) {
        match message {
            Message::Ready(_) => self.ready = true,
            Message::Raised(what) => self.raised = Some(what),
            Message::Call(_) => {}
        }
    }
}

/// Messages that are not dealt with yet.
#[derive(Debug, Default)]
struct Waiting {
    messages: usize,
    bytes: usize,
    /// Nobody answers any more.
    closed: bool,
}

impl Waiting {
    fn has_room(&self) -> bool {
        self.closed || (self.messages < MOST_WAITING && self.bytes < LONGEST)
    }

    fn one_less(&mut self, bytes: usize) {
        self.messages = self.messages.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// A message and its length, or what came instead of one.
type Told = Result<(Message, usize), String>;

/// Takes what a script prints.
#[derive(Debug)]
struct Script<'a> {
    stdout: Watching<'a>,
    stderr: Output,
    frames: Frames,
    /// There was something that is no message. What follows can't be told apart.
    faulty: bool,
    tell: mpsc::UnboundedSender<Told>,
    waiting: &'a watch::Sender<Waiting>,
}

impl Sink for Script<'_> {
    fn chunk(&mut self, chunk: Chunk<'_>) {
        let Self { stdout, stderr, frames, faulty, tell, waiting } = self;
        match chunk.stream {
            Pipe::Stdout => stdout.chunk(chunk),
            Pipe::Stderr if *faulty => {}
            Pipe::Stderr => {
                let pushed = frames.push(chunk.bytes, |found| match found {
                    Found::Message(message, len) => {
                        waiting.send_modify(|waiting| {
                            waiting.messages += 1;
                            waiting.bytes += len;
                        });
                        let _ = tell.send(Ok((message, len)));
                    }
                    Found::Text(text) => stderr.push(text),
                });
                if let Err(fault) = pushed {
                    *faulty = true;
                    let _ = tell.send(Err(fault));
                }
            }
        }
    }

    fn room(&mut self) -> Option<BoxFuture<'_, ()>> {
        let mut waiting = self.waiting.subscribe();
        let full = !waiting.borrow().has_room();
        full.then(|| -> BoxFuture<'_, ()> {
            Box::pin(async move { drop(waiting.wait_for(Waiting::has_room).await) })
        })
    }
}

/// A script that runs: its calls, and the answers on their way to it.
struct Running<'a> {
    caller: &'a Caller<'a>,
    control: &'a Control,
    waiting: &'a watch::Sender<Waiting>,
    calls: FuturesUnordered<BoxFuture<'a, Reply>>,
    answers: VecDeque<Reply>,
    /// The answer that is being written.
    writing: Option<BoxFuture<'a, usize>>,
    /// Bytes of input so far.
    sent: u64,
    /// Calls so far.
    made: u32,
    said: Said,
}

impl<'a> Running<'a> {
    fn new(caller: &'a Caller<'a>, control: &'a Control, waiting: &'a watch::Sender<Waiting>) -> Self {
        Self {
            caller,
            control,
            waiting,
            calls: FuturesUnordered::new(),
            answers: VecDeque::new(),
            writing: None,
            sent: 0,
            made: 0,
            said: Said::default(),
        }
    }

    fn send(&mut self, reply: Reply) {
        self.answers.push_back(reply);
    }

    /// # Errors
    /// The harness would not say this.
    fn heard(&mut self, told: Told) -> Result<(), String> {
        match told? {
            (Message::Call(asked), weight) => {
                self.calls.push(self.caller.call(asked, weight, &mut self.made));
            }
            (message, weight) => {
                self.said.note(message);
                self.waiting.send_modify(|waiting| waiting.one_less(weight));
            }
        }
        Ok(())
    }

    /// One step of what is under way; never, if nothing is.
    async fn go_on(&mut self) {
        if self.writing.is_none()
            && let Some(Reply { line, weight }) = self.answers.pop_front()
        {
            let at = self.sent;
            self.sent += line.len() as u64;
            let control = self.control;
            self.writing = Some(Box::pin(async move {
                write(control, at, &line).await;
                weight
            }));
        }
        let Self { writing, calls, .. } = self;
        let written = async {
            match writing {
                Some(writing) => writing.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            weight = written => {
                self.writing = None;
                self.waiting.send_modify(|waiting| waiting.one_less(weight));
            }
            Some(reply) = calls.next() => self.send(reply),
        }
    }

    /// Waits for the end of what the script has called and that was cancelled with it.
    async fn settle(&mut self) {
        let calls = std::mem::take(&mut self.calls);
        let _ = tokio::time::timeout(KILLED, calls.count()).await;
    }
}

/// Sends input. A script that takes none has no use for it.
async fn write(control: &Control, at: u64, bytes: &[u8]) {
    let mut sent = 0;
    for piece in bytes.chunks(PIECE) {
        if control.stdin(at + sent, piece.to_vec(), false).await.is_err() {
            return;
        }
        sent += piece.len() as u64;
    }
}
