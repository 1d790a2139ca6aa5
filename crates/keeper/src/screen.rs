//! What a person would see on a process's terminal: its output, replayed on a terminal that is only in memory.

use crate::Inner;
use crate::logs::read_from;
use crate::processes::{Known, Reached};
use farshell_api::process::Screen;
use farshell_api::run::Size;
use farshell_engine::{Error, Kind, Result};
use std::num::NonZero;

/// Output that is replayed: full-screen programs redraw all of it far more often.
const REPLAYED: u64 = 4 << 20;
/// The size of a terminal of which nobody knows it any more.
const USUAL: Size = Size { rows: 24, cols: 80 };

/// A terminal as it looks.
#[derive(Debug)]
pub(crate) struct Drawn {
    pub(crate) screen: Screen,
    /// What makes an empty terminal look like it.
    pub(crate) redraw: Vec<u8>,
}

/// Keeps the title that a program sets.
#[derive(Debug, Default)]
struct Title(String);

impl vt100::Callbacks for Title {
    fn set_window_title(&mut self, _: &mut vt100::Screen, title: &[u8]) {
        self.0 = crate::result::head(&String::from_utf8_lossy(title), 1000).to_owned();
    }
}

impl Inner {
    pub(crate) async fn screen(&self, id: &str) -> Result<Screen> {
        let known = self.known(id).await?;
        let reached = self.reach(&known).await;
        let reached = reached
            .ok_or_else(|| crate::processes::gone(id, "its environment is gone, and its screen with it"))?;
        Ok(self.drawn(&known, &reached).await?.screen)
    }

    pub(crate) async fn drawn(&self, known: &Known, reached: &Reached) -> Result<Drawn> {
        let process = known.process();
        if !process.pty {
            let message = "it has no terminal";
            return Err(Error::new(Kind::Invalid, format!("drawing the screen of {}", process.id), message)
                .with_hint("`farshell logs` shows what it printed"));
        }
        let size = self.size_of(known);
        let total = reached.live.outpost.status(reached.id.clone()).await?.output.total();
        let (offset, bytes) = read_from(reached, total.saturating_sub(REPLAYED), REPLAYED * 2).await?;
        // Output is anything at all, and whoever reads it here must not take the keeper down.
        let drawing = tokio::task::spawn_blocking(move || draw(size, &bytes, offset));
        drawing.await.map_err(|_| {
            let message = "its output can't be replayed";
            Error::new(Kind::System, format!("drawing the screen of {}", process.id), message)
        })
    }

    fn size_of(&self, known: &Known) -> Size {
        let now = self.unfinished_of(&known.process().id).and_then(|unfinished| unfinished.size());
        let then = match known {
            Known::Background(row) => {
                row.detail.get("size").and_then(|size| serde_json::from_value(size.clone()).ok())
            }
            Known::Foreground(foreground) => foreground.size(),
        };
        now.or(then).unwrap_or(USUAL)
    }
}

fn draw(size: Size, bytes: &[u8], offset: u64) -> Drawn {
    let at_least_one = |n: u16| NonZero::new(n).unwrap_or(NonZero::<u16>::MIN);
    let (rows, cols) = (at_least_one(size.rows), at_least_one(size.cols));
    let mut parser = vt100::Parser::new_with_callbacks(rows, cols, 0, Title::default());
    parser.process(bytes);
    let screen = parser.screen();
    let (row, column) = screen.cursor_position();
    let alternate = screen.alternate_screen();
    let mut redraw = Vec::new();
    if alternate {
        redraw.extend_from_slice(b"\x1b[?1049h");
    }
    redraw.extend_from_slice(screen.state_formatted().as_bytes());
    Drawn {
        screen: Screen {
            size,
            lines: screen.rows(0, size.cols).map(|line| line.trim_end().to_owned()).collect(),
            cursor: [row, column],
            title: parser.callbacks().0.clone(),
            alternate,
            offset,
        },
        redraw,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_drawn_and_can_be_drawn_again() {
        let size = Size { rows: 4, cols: 10 };
        let output = b"one\r\n\x1b[31mtwo\x1b[0m\x1b]0;a title\x07\x1b[4;3Hx\x1b[?1049h\x1b[2J\x1b[4;4Hfull";
        let drawn = draw(size, output, 50);
        assert_eq!(drawn.screen.title, "a title");
        assert!(drawn.screen.alternate);
        assert_eq!((drawn.screen.offset, drawn.screen.lines[3].as_str()), (50, "   full"));
        let again = draw(size, &drawn.redraw, 50);
        assert_eq!(again.screen.lines, drawn.screen.lines);
        assert_eq!(again.screen.cursor, drawn.screen.cursor);
        assert!(again.screen.alternate);
    }
}
