//! Signals that reach us and are meant for the command.

use crate::output::code;
use farshell_engine::Error;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The number of `INT`.
pub(crate) const INT: i32 = 2;

/// The signals that we listen to, and what came.
#[derive(Debug)]
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    quit: Signal,
    /// Absent under `nohup`.
    hangup: Option<Signal>,
    count: u32,
    /// The last signal, 0 if there was none.
    last: i32,
}

impl Interrupts {
    /// From now on no signal is missed.
    pub(crate) fn listen() -> Result<Self, Error> {
        let listen = |kind| signal(kind).map_err(|e| Error::io("listening for signals", e));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            quit: listen(SignalKind::quit())?,
            hangup: if hangup_is_ignored() { None } else { Some(listen(SignalKind::hangup())?) },
            count: 0,
            last: 0,
        })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) -> i32 {
        let hangup = async {
            match &mut self.hangup {
                Some(signal) => signal.recv().await,
                None => std::future::pending().await,
            }
        };
        let signal = tokio::select! {
            _ = self.interrupt.recv() => INT,
            _ = self.terminate.recv() => 15,
            _ = self.quit.recv() => 3,
            _ = hangup => 1,
        };
        self.count += 1;
        self.last = signal;
        signal
    }

    pub(crate) fn any(&self) -> bool {
        self.count > 0
    }

    /// More than an interruption was asked for.
    pub(crate) fn killed(&self) -> bool {
        self.any() && (self.last != INT || self.count > 1)
    }

    /// The exit code that the signals ask for.
    pub(crate) fn code(&self) -> i32 {
        code::signal(if self.any() { self.last } else { INT })
    }
}

fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}
