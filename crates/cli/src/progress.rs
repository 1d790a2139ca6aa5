//! Something moves while something takes long: only at a terminal, only after a second.

use crate::output::Style;
use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Nobody is told of what takes less.
const PATIENCE: Duration = Duration::from_secs(1);
const TURN: Duration = Duration::from_millis(100);
const WHEEL: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/// One line on standard error that says what is being done.
#[derive(Debug)]
pub(crate) struct Progress {
    text: String,
    /// Absent if nobody would see it, or if it is over.
    next: Option<Instant>,
    turns: usize,
}

impl Progress {
    pub(crate) fn new(text: &str) -> Self {
        let next = stderr().is_terminal().then(|| Instant::now() + PATIENCE);
        Self { text: text.into(), next, turns: 0 }
    }

    pub(crate) fn say(&mut self, text: &str) {
        self.text = crate::output::plain(text);
    }

    /// Turns the wheel when it is time. Never returns once it is over.
    pub(crate) async fn turn(&mut self) {
        let Some(next) = self.next else { return std::future::pending().await };
        sleep_until(next).await;
        let width = rustix::termios::tcgetwinsize(stderr()).map_or(80, |size| usize::from(size.ws_col));
        let text = crate::table::cut(&self.text, width.saturating_sub(3).max(1));
        let wheel = WHEEL[self.turns % WHEEL.len()];
        let _ = write!(stderr(), "\r\x1b[K{wheel} {}", Style::stderr().dim(&text));
        self.turns += 1;
        self.next = Some(next + TURN);
    }

    /// Leaves no trace.
    pub(crate) fn over(&mut self) {
        if self.turns > 0 && self.next.is_some() {
            let _ = write!(stderr(), "\r\x1b[K");
        }
        self.next = None;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.over();
    }
}

/// Waits for something, and shows that if it takes long.
pub(crate) async fn during<T>(text: &str, work: impl Future<Output = T>) -> T {
    let mut progress = Progress::new(text);
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = progress.turn() => {}
        }
    }
}
