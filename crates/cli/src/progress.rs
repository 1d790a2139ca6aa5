//! Something moves while something takes long: at a terminal a line that is drawn over, after a second. Elsewhere what
//! the server reports of it is a line now and then, so that a log shows why nothing happens.

use crate::output::Style;
use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Nobody is told of what takes less.
const PATIENCE: Duration = Duration::from_secs(1);
const TURN: Duration = Duration::from_millis(100);
/// Pauses between lines where there is no terminal.
const FIRST_LINE: Duration = Duration::from_secs(4);
const NEXT_LINE: Duration = Duration::from_secs(15);
/// Characters of a bar.
const BAR: usize = 24;
const WHEEL: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/// One line on standard error that says what is being done.
#[derive(Debug)]
pub(crate) struct Progress {
    text: String,
    /// How much is done, of how much.
    part: Option<(u64, u64)>,
    /// Absent if nobody would see it, or if it is over.
    next: Option<Instant>,
    turns: usize,
    /// When the next line is due, where there is no terminal.
    line: Option<Instant>,
}

impl Progress {
    pub(crate) fn new(text: &str) -> Self {
        let (terminal, now) = (stderr().is_terminal(), Instant::now());
        let next = terminal.then(|| now + PATIENCE);
        let line = (!terminal).then(|| now + FIRST_LINE);
        Self { text: text.into(), part: None, next, turns: 0, line }
    }

    pub(crate) fn say(&mut self, text: &str, part: Option<(u64, u64)>) {
        self.text = crate::output::plain(text);
        self.part = part.filter(|(_, total)| *total > 0);
        if self.line.is_some_and(|due| due <= Instant::now()) {
            self.line = Some(Instant::now() + NEXT_LINE);
            let part = self.part.map_or_else(String::new, |part| format!(": {}", megabytes(part)));
            crate::output::tell(&format!("farshell: {}{part}\n", self.text));
        }
    }

    /// Turns the wheel when it is time. Never returns once it is over.
    pub(crate) async fn turn(&mut self) {
        let Some(next) = self.next else { return std::future::pending().await };
        sleep_until(next).await;
        // A terminal that was never told its size says that it has none.
        let size = rustix::termios::tcgetwinsize(stderr()).ok().filter(|size| size.ws_col > 0);
        let width = size.map_or(80, |size| usize::from(size.ws_col));
        let text = match self.part {
            Some(part) => format!("{} {}", bar(part), self.text),
            None => self.text.clone(),
        };
        let text = crate::table::cut(&text, width.saturating_sub(3).max(1));
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

/// `█████████░░░ 37% 12.3 of 33.1 MB`
fn bar(part: (u64, u64)) -> String {
    let (done, total) = (part.0.min(part.1), part.1.max(1));
    let filled = usize::try_from(u128::from(done) * BAR as u128 / u128::from(total)).unwrap_or(BAR);
    let percent = u128::from(done) * 100 / u128::from(total);
    format!("{}{} {percent:>3}% {}", "█".repeat(filled), "░".repeat(BAR - filled), megabytes(part))
}

fn megabytes((done, total): (u64, u64)) -> String {
    // One digit after the point.
    let tenths = |bytes: u64| format!("{}.{}", bytes / 1_000_000, bytes % 1_000_000 / 100_000);
    format!("{} of {} MB", tenths(done.min(total)), tenths(total))
}

/// Waits for something, and shows that if it takes long.
pub(crate) async fn during<T>(text: &str, work: impl Future<Output = T>) -> T {
    shown(text, Duration::MAX, work).await
}

/// As [`during`], and elsewhere than at a terminal a line now and then.
pub(crate) async fn told<T>(text: &str, work: impl Future<Output = T>) -> T {
    shown(text, PATIENCE, work).await
}

async fn shown<T>(text: &str, pause: Duration, work: impl Future<Output = T>) -> T {
    let mut progress = Progress::new(text);
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = progress.turn() => {}
            () = tokio::time::sleep(pause) => progress.say(text, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_shows_how_much_is_done() {
        assert_eq!(bar((0, 1_000_000)), format!("{}   0% 0.0 of 1.0 MB", "░".repeat(24)));
        assert_eq!(
            bar((50_000_000, 100_000_000)),
            format!("{}{}  50% 50.0 of 100.0 MB", "█".repeat(12), "░".repeat(12))
        );
        // What a registry says of its layers need not be true.
        assert_eq!(bar((9, 3)), format!("{} 100% 0.0 of 0.0 MB", "█".repeat(24)));
        assert_eq!(bar((u64::MAX, u64::MAX)).chars().filter(|c| *c == '█').count(), BAR);
    }
}
