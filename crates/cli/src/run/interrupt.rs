//! Signals that reach us and are meant for the command.
//!
//! | signal | what happens |
//! |---|---|
//! | first `INT` | the command is interrupted; its session stays |
//! | second `INT` | the command is killed at once |
//! | `TERM`, `HUP`, `QUIT` | the command is asked to end, then killed, and we end as if the signal had ended us |
//!
//! They are waited for on a thread with a runtime and a connection of its own: the main thread may be blocked in
//! a write to somebody who does not read, and Ctrl-C must work just then.

use crate::output::{code, notice};
use crate::plan::EnvironmentPlan;
use farshell_engine::environment::SessionDefaults;
use farshell_engine::{Environment, Error, Kind};
use farshell_protocol::ProcessId;
use farshell_protocol::process::State;
use farshell_protocol::session::Mode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{sleep, timeout};

/// The number of `INT`.
const INT: i32 = 2;
/// How long the outpost may take to answer, on top of the grace of a kill.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the main thread may take to end after its command has.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// An interrupted command that has not ended by then may need the second Ctrl-C.
const STILL_THERE: Duration = Duration::from_millis(1500);
/// How often, and how far apart, a command is looked for that is only just being sent.
const LOOKS: u32 = 100;
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Interrupts {
    seen: Arc<Seen>,
    ready: Receiver<std::io::Result<()>>,
}

/// What both threads know.
#[derive(Debug, Default)]
struct Seen {
    count: AtomicU32,
    /// The last signal, 0 if there was none.
    last: AtomicI32,
    /// The main thread has its outcome.
    over: AtomicBool,
}

impl Interrupts {
    /// Begins to listen, on behalf of a command that is about to be sent.
    pub(crate) fn listen(plan: EnvironmentPlan, id: ProcessId, grace: Duration) -> Result<Self, Error> {
        let seen = Arc::new(Seen::default());
        let (sender, ready) = sync_channel(1);
        let listener = Listener { plan, id, grace, seen: Arc::clone(&seen) };
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || listener.run(&sender))
            .map_err(|e| Error::io("starting a thread", e))?;
        Ok(Self { seen, ready })
    }

    /// Returns when no signal is missed any more. Called once.
    pub(crate) fn ready(&self) -> Result<(), Error> {
        match self.ready.recv() {
            Ok(listening) => listening.map_err(|e| Error::io("listening for signals", e)),
            Err(_) => Err(Error::new(Kind::System, "listening for signals", "the thread ended")),
        }
    }

    /// The outcome is settled: signals change nothing any more.
    pub(crate) fn over(&self) {
        self.seen.over.store(true, Ordering::SeqCst);
    }

    pub(crate) fn any(&self) -> bool {
        self.signal().is_some()
    }

    /// The last signal that came.
    pub(crate) fn signal(&self) -> Option<i32> {
        Some(self.seen.last.load(Ordering::SeqCst)).filter(|signal| *signal != 0)
    }

    /// More than an interruption was asked for.
    pub(crate) fn killed(&self) -> bool {
        self.signal().is_some_and(|signal| signal != INT) || self.seen.count.load(Ordering::SeqCst) > 1
    }

    /// The exit code that the signals ask for.
    pub(crate) fn code(&self) -> i32 {
        code::signal(self.signal().unwrap_or(INT))
    }
}

#[derive(Clone, Debug)]
struct Listener {
    plan: EnvironmentPlan,
    id: ProcessId,
    grace: Duration,
    seen: Arc<Seen>,
}

impl Listener {
    fn run(self, ready: &SyncSender<std::io::Result<()>>) {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            // The receiver waits for exactly one message.
            Err(error) => return drop(ready.send(Err(error))),
        };
        runtime.block_on(async {
            match Signals::listen() {
                Ok(signals) => {
                    let _ = ready.send(Ok(()));
                    self.attend(signals).await;
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        });
    }

    async fn attend(self, mut signals: Signals) {
        loop {
            let signal = signals.next().await;
            if self.seen.over.load(Ordering::SeqCst) {
                continue;
            }
            self.seen.last.store(signal, Ordering::SeqCst);
            let before = self.seen.count.fetch_add(1, Ordering::SeqCst);
            // On tasks of their own, so that the next signal is heard meanwhile.
            drop(match (signal, before) {
                (INT, 0) => tokio::spawn(self.clone().interrupt()),
                (INT, _) => tokio::spawn(self.clone().kill(Duration::ZERO, signal)),
                _ => tokio::spawn(self.clone().kill(self.grace, signal)),
            });
        }
    }

    async fn environment(&self) -> Result<Environment, Error> {
        // No session is opened here, so what it would begin with does not matter.
        Environment::open(&*self.plan.backend, &self.plan.spec, SessionDefaults::plain(Mode::OneShot)).await
    }

    async fn interrupt(self) {
        let Ok(env) = self.environment().await else { return };
        let outpost = env.outpost();
        for _ in 0..LOOKS {
            match outpost.signal(self.id.clone(), INT).await {
                Ok(()) => return self.mention_the_second().await,
                Err(error) if error.kind == Kind::NotFound => sleep(BETWEEN_LOOKS).await,
                Err(_) => {
                    // It waits for its session, and then nothing is lost; or it has just ended.
                    let status = outpost.status(self.id.clone()).await;
                    if status.is_ok_and(|status| status.state == State::Queued) {
                        let _ = outpost.kill(vec![self.id.clone()], Duration::ZERO).await;
                    }
                    return;
                }
            }
        }
        // It was not even sent.
        self.leave(INT).await;
    }

    async fn mention_the_second(self) {
        sleep(STILL_THERE).await;
        if !self.seen.over.load(Ordering::SeqCst) {
            notice("interrupted, and the command goes on; Ctrl-C again kills it");
        }
    }

    async fn kill(self, grace: Duration, signal: i32) {
        let kill = async { self.environment().await?.outpost().kill(vec![self.id.clone()], grace).await };
        match timeout(grace + PATIENCE, kill).await {
            // Unknown there: it was never sent, and will not be.
            Ok(Ok(_)) => {}
            Ok(Err(error)) if error.kind == Kind::NotFound => {}
            _ => notice(&format!("{} may still run: its outpost does not answer", self.id)),
        }
        self.leave(signal).await;
    }

    /// Ends this process, after the main thread had its chance to.
    async fn leave(&self, signal: i32) {
        sleep(LAST_WORDS).await;
        if !self.seen.over.load(Ordering::SeqCst) {
            std::process::exit(code::signal(signal));
        }
    }
}

/// The signals we listen to.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    quit: Signal,
    /// Absent under `nohup`.
    hangup: Option<Signal>,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            quit: signal(SignalKind::quit())?,
            hangup: if hangup_is_ignored() { None } else { Some(signal(SignalKind::hangup())?) },
        })
    }

    async fn next(&mut self) -> i32 {
        let hangup = async {
            match &mut self.hangup {
                Some(signal) => signal.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => INT,
            _ = self.terminate.recv() => 15,
            _ = self.quit.recv() => 3,
            _ = hangup => 1,
        }
    }
}

fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}
