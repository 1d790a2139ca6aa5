//! A process's output, input and terminal, live.

use crate::foreground::{Finished, Job, begun_and_lost, with_epitaph};
use crate::gate::{Cleared, Permit};
use crate::processes::{Known, RECOVERY, Reached, gone, once_there};
use crate::progress::{Observer, Progress, told};
use crate::promotion::was_promoted;
use crate::request::{Plan, Way, check_size, invalid};
use crate::{Control, Inner, Origin, Stream, StreamEnd, signals};
use farshell_api::process::{KillResult, Process};
use farshell_api::run::{Size, StartRequest};
use farshell_api::stream::{AttachTo, Open};
use farshell_engine::backend::News;
use farshell_engine::capture::Sink;
use farshell_engine::{Error, Kind, Result};
use farshell_protocol::ProcessId;
use farshell_protocol::process::{Attach, State};
use farshell_store::finished;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How long the end of a process is waited for to be recorded.
const RECORDED: Duration = Duration::from_secs(10);
/// Pause before input is offered again to a process that has enough of it.
const BUSY: Duration = Duration::from_millis(20);

/// Why a stream ends before its process.
const PROMOTED: &str = "it reached its timeout and goes on in the background";

/// What a stream will do.
#[derive(Debug)]
pub(crate) enum Work {
    Start(Box<Job>),
    Attach {
        known: Known,
        reached: Reached,
        attach: Attach,
    },
    /// There is nothing left to be followed.
    Over {
        from: u64,
    },
    /// It has become a background process.
    Promoted,
}

impl Inner {
    pub(crate) async fn stream(
        self: &Arc<Self>,
        open: Open,
        by: &Origin,
        observer: &dyn Observer,
    ) -> Result<Stream> {
        let progress: Progress<'_> = &|news| observer.progress(news);
        match (open.start, open.attach) {
            (Some(start), None) => {
                let plan = Plan::new(*start, Way::Stream)?;
                if !plan.background {
                    let cleared = self.clear(&plan, by, observer).await?;
                    return self.stream_cleared(plan, cleared, observer).await;
                }
                let inner = Arc::clone(self);
                let id = plan.id.as_str().to_owned();
                if self.started_before(&plan).await?.is_some() {
                    return self.attach(AttachTo::start_of(id)).await;
                }
                let cleared = self.clear(&plan, by, observer).await?;
                // On a task of its own: a caller who goes away does not leave it half started.
                let (news, heard) = watch::channel(None);
                let starting = self.common.tasks.spawn(async move {
                    let say = |told: &News| drop(news.send_replace(Some(told.clone())));
                    inner.start_background(plan, cleared, &say).await
                });
                told(starting, "starting the process", Some(heard), progress).await??;
                self.attach(AttachTo::start_of(id)).await
            }
            (None, Some(attach)) => self.attach(attach).await,
            _ => Err(invalid("open", "exactly one of start and attach is needed")),
        }
    }

    async fn stream_cleared(
        self: &Arc<Self>,
        plan: Plan,
        cleared: Cleared,
        observer: &dyn Observer,
    ) -> Result<Stream> {
        let job = self.job(plan, cleared, observer).await?;
        let process = job.foreground.process();
        let instance = Some(job.foreground.instance.clone());
        Ok(self.opened(process, 0, instance, None, Work::Start(Box::new(job))))
    }

    pub(crate) async fn stream_permitted(
        self: &Arc<Self>,
        permit: Permit,
        start: StartRequest,
        observer: &dyn Observer,
    ) -> Result<Stream> {
        let plan = Plan::new(start, Way::Beside)?;
        let resolved = self.resolver.resolve(&plan.request.target)?;
        let wanted = resolved.wanted(&plan.request.target.task)?;
        let session =
            crate::sessions::outpost_name(wanted.shared, wanted.task.as_str(), &plan.request.session)?;
        let start = plan.start(&resolved, session)?;
        let cleared = Cleared { resolved, wanted, start, sudo: false, audited: permit.audited };
        self.stream_cleared(plan, cleared, observer).await
    }

    fn opened(
        self: &Arc<Self>,
        process: Process,
        stdin_taken: u64,
        instance: Option<String>,
        screen: Option<(Vec<u8>, u64)>,
        work: Work,
    ) -> Stream {
        Stream {
            process,
            stdin_taken,
            instance,
            screen,
            inner: Arc::clone(self),
            work,
            over: watch::Sender::new(false),
        }
    }

    async fn attach(self: &Arc<Self>, to: AttachTo) -> Result<Stream> {
        if let Some(size) = to.size {
            check_size("size", size)?;
        }
        let known = match self.known(&to.id).await {
            Err(error) if error.kind == Kind::NotFound && to.target.is_some() => self.asked_for(&to).await?,
            other => other?,
        };
        // Whoever ran it comes back when its time was up already.
        if let Known::Background(row) = &known
            && to.target.is_some()
            && was_promoted(row)
            && !finished(row.process.state)
        {
            return Ok(self.opened(row.process.clone(), 0, None, None, Work::Promoted));
        }
        let reached = self.reach(&known).await;
        let process = self.process(&to.id).await?;
        let Some(reached) = reached else {
            return match (finished(process.state), process.background) {
                (true, true) => Ok(self.opened(process, 0, None, None, Work::Over { from: to.from })),
                (_, true) => Err(Error::new(
                    Kind::Disconnected,
                    format!("following {}", to.id),
                    "its environment can't be reached now",
                )),
                (_, false) => Err(lost(&to.id)),
            };
        };
        let instance = reached.live.instance();
        if to.instance.as_ref().is_some_and(|expected| *expected != instance) {
            return Err(lost(&to.id));
        }
        if let Some(size) = to.size.filter(|_| process.pty && !finished(process.state)) {
            // One that ends at this moment has no terminal any more.
            let _ = self.resize_reached(&known, &reached, size).await;
        }
        let (screen, from) = match to.screen && process.pty {
            true => {
                let drawn = self.drawn(&known, &reached).await?;
                (Some((drawn.redraw, drawn.screen.offset)), drawn.screen.offset)
            }
            false => (None, to.from),
        };
        let taken = reached.live.outpost.stdin(reached.id.clone(), 0, Vec::new(), false).await;
        let taken = match taken {
            Ok(taken) => taken,
            // Its log went to make room for others.
            Err(error) if error.kind == Kind::NotFound && finished(process.state) && process.background => {
                return Ok(self.opened(process, 0, None, None, Work::Over { from }));
            }
            Err(error) => return Err(error),
        };
        let attach = Attach { from, lossless: !process.background, until_closed: to.until_closed };
        Ok(self.opened(process, taken, Some(instance), screen, Work::Attach { known, reached, attach }))
    }

    /// A foreground command of an earlier keeper, found by the environment in which it was started.
    async fn asked_for(self: &Arc<Self>, to: &AttachTo) -> Result<Known> {
        let target = to.target.clone().unwrap_or_default();
        let id = ProcessId::new(to.id.as_str()).map_err(|e| invalid("id", e.to_string()))?;
        let wanted = self.resolver.resolve(&target)?.wanted(&target.task)?;
        // An environment that is not there is not made to be asked.
        let missing = || match to.instance {
            Some(_) => lost(&to.id),
            None => gone(&to.id, "its environment is not there"),
        };
        let slot = self.environments.find(&wanted.key).ok_or_else(missing)?;
        let live = match slot.live() {
            Some(live) => live,
            None => {
                // It is being found again. What takes longer is another one that is made.
                let _life = tokio::time::timeout(RECOVERY, slot.life.lock()).await.map_err(|_| missing())?;
                slot.live().ok_or_else(missing)?
            }
        };
        if to.instance.as_ref().is_some_and(|expected| *expected != live.instance()) {
            return Err(lost(&to.id));
        }
        // The recovery that was waited for may have found it, and made a background process of it.
        if let Ok(known) = self.known(&to.id).await {
            return Ok(known);
        }
        let status = live.outpost.status(id).await?;
        let entered = slot.adopt(&live, false);
        match self.adopt_foreground(&status, &target.task, entered) {
            Some(foreground) => Ok(Known::Foreground(foreground)),
            None => self.known(&to.id).await,
        }
    }
}

fn lost(id: &str) -> Error {
    Error::new(
        Kind::UnknownOutcome,
        format!("following {id}"),
        "the outcome is unknown: the outpost that had it is gone",
    )
    .with_hint("check in the place whether the command took effect before you run it again")
}

impl Stream {
    /// To be used while [`Stream::follow`] runs.
    #[must_use]
    pub fn control(&self) -> Control {
        let reached = match &self.work {
            Work::Start(job) => Some(Reached {
                id: job.plan.id.clone(),
                slot: Arc::clone(&job.entered.slot),
                live: Arc::clone(&job.entered.live),
            }),
            Work::Attach { reached, .. } => Some(reached.clone()),
            Work::Over { .. } | Work::Promoted => None,
        };
        let known = match &self.work {
            Work::Start(job) => Some(Known::Foreground(Arc::clone(&job.foreground))),
            Work::Attach { known, .. } => Some(known.clone()),
            Work::Over { .. } | Work::Promoted => None,
        };
        Control {
            inner: Arc::clone(&self.inner),
            to: reached.zip(known).map(|(reached, known)| Box::new((reached, known))),
            over: self.over.subscribe(),
        }
    }

    /// Starts the process if the stream was opened for that, and follows it to its end.
    ///
    /// Dropped on the way, it leaves the process running.
    pub async fn follow(self, sink: &mut dyn Sink) -> Result<StreamEnd> {
        let Self { process, inner, work, over, .. } = self;
        // Seen by its controls also if this is dropped.
        let _over = Over(over);
        let _call = inner.common.alive.token();
        match work {
            Work::Start(job) => match inner.foreground(*job, sink).await? {
                Finished::Ended(process) => Ok(StreamEnd::Ended(process)),
                Finished::Promoted(process) => Ok(StreamEnd::Detached(process, PROMOTED.into())),
            },
            Work::Attach { known, reached, attach } => {
                inner.follow_attached(known, reached, attach, sink).await
            }
            Work::Promoted => Ok(StreamEnd::Detached(process, PROMOTED.into())),
            Work::Over { from } => {
                let total = process.stdout_bytes.saturating_add(process.stderr_bytes);
                if from < total {
                    sink.gap(from, total);
                }
                Ok(StreamEnd::Ended(process))
            }
        }
    }
}

impl Inner {
    async fn follow_attached(
        &self,
        known: Known,
        reached: Reached,
        attach: Attach,
        sink: &mut dyn Sink,
    ) -> Result<StreamEnd> {
        let follow = reached.live.outpost.attach(reached.id.clone(), attach, sink);
        let ended = match &known {
            Known::Foreground(foreground) => tokio::select! {
                biased;
                ended = follow => ended,
                process = foreground.promotion() => return Ok(StreamEnd::Detached(process, PROMOTED.into())),
            },
            Known::Background(_) => follow.await,
        };
        match (known, ended) {
            (Known::Foreground(_), Ok(status)) if status.state == State::Abandoned => {
                let message = "the command was still waiting for its session when it was given up";
                Err(Error::new(Kind::NotStarted, format!("following {}", reached.id), message))
            }
            (Known::Foreground(foreground), Ok(status)) => Ok(StreamEnd::Ended(foreground.update(&status))),
            (Known::Foreground(_), Err(error)) => Err(with_epitaph(begun_and_lost(error), &reached.live)),
            (Known::Background(row), ended) => {
                // How it ended is what is recorded of that.
                if let Some(unfinished) = self.unfinished_of(&row.process.id) {
                    let _ = tokio::time::timeout(RECORDED, unfinished.done()).await;
                }
                let process = self.process(&row.process.id).await?;
                match ended {
                    Err(error) if !finished(process.state) => Err(error),
                    _ => Ok(StreamEnd::Ended(process)),
                }
            }
        }
    }
}

/// Says that a stream is over when it is dropped.
struct Over(watch::Sender<bool>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

impl Control {
    fn reached(&self) -> Result<&Reached> {
        match &self.to {
            Some(to) => Ok(&to.0),
            None => Err(Error::new(Kind::Invalid, "steering a process", "it has ended")),
        }
    }

    /// Sends input at an offset; returns all that was taken so far.
    pub async fn stdin(&self, offset: u64, bytes: Vec<u8>, eof: bool) -> Result<u64> {
        let reached = self.reached()?;
        let outpost = &reached.live.outpost;
        let send = || outpost.stdin(reached.id.clone(), offset, bytes.clone(), eof);
        let sending = async {
            loop {
                match once_there(&self.over, send).await {
                    Err(error) if error.kind == Kind::Busy => tokio::time::sleep(BUSY).await,
                    other => return other,
                }
            }
        };
        let mut over = self.over.clone();
        let over = async move { drop(over.wait_for(|over| *over).await) };
        tokio::select! {
            biased;
            taken = sending => taken,
            () = over => outpost.stdin(reached.id.clone(), 0, Vec::new(), false).await,
        }
    }

    pub async fn signal(&self, signal: &str) -> Result<()> {
        let signal = signals::number(signal)?;
        let reached = self.reached()?;
        once_there(&self.over, || reached.signal(signal)).await
    }

    pub async fn resize(&self, size: Size) -> Result<()> {
        check_size("size", size)?;
        let Some(to) = &self.to else { return self.reached().map(drop) };
        let (reached, known) = &**to;
        once_there(&self.over, || self.inner.resize_reached(known, reached, size)).await
    }

    /// Kills it with all that descends from it. `grace`: seconds between TERM and KILL, the configured ones if
    /// absent.
    pub async fn kill(&self, grace: Option<f64>) -> Result<KillResult> {
        let reached = self.reached()?;
        once_there(&self.over, || reached.kill(grace)).await
    }
}
