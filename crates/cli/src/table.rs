//! Tables that fit the terminal.

use crate::output::Style;
use std::io::{IsTerminal, stdout};
use unicode_width::UnicodeWidthStr;

/// Between two columns.
const GAP: usize = 2;
/// The column that gives way is never narrower.
const NARROWEST: usize = 12;

/// Rows under a head. The last column is cut where the terminal is too narrow.
#[derive(Debug)]
pub(crate) struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    paint: fn(Style, &str) -> String,
}

impl Cell {
    pub(crate) fn painted(text: impl Into<String>, paint: fn(Style, &str) -> String) -> Self {
        Self { text: text.into(), paint }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), paint: |_, text| text.to_owned() }
    }
}

impl Table {
    pub(crate) fn new(head: &[&'static str]) -> Self {
        Self { head: head.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// For standard output.
    pub(crate) fn render(&self) -> String {
        self.fit(width(), Style::stdout())
    }

    fn fit(&self, width: Option<usize>, style: Style) -> String {
        let columns = self.head.len();
        let mut widths: Vec<usize> = self.head.iter().map(|name| name.width()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.width());
            }
        }
        let before: usize = widths[..columns - 1].iter().map(|width| width + GAP).sum();
        let last = width.map_or(usize::MAX, |width| width.saturating_sub(before).max(NARROWEST));
        let mut text = String::new();
        let head: Vec<Cell> = self.head.iter().map(|name| Cell::painted(*name, Style::dim)).collect();
        for row in std::iter::once(&head).chain(&self.rows) {
            for (at, cell) in row.iter().enumerate() {
                if at + 1 == columns {
                    text.push_str(&(cell.paint)(style, &cut(&cell.text, last)));
                } else {
                    text.push_str(&(cell.paint)(style, &cell.text));
                    text.push_str(&" ".repeat(widths[at] - cell.text.width() + GAP));
                }
            }
            // An empty last cell leaves nothing behind.
            text.truncate(text.trim_end_matches(' ').len());
            text.push('\n');
        }
        text
    }
}

/// Columns of the terminal that standard output is, if it is one.
pub(crate) fn width() -> Option<usize> {
    if !stdout().is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// At most so many columns, with a mark where something is missing.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.width() <= most {
        return text.to_owned();
    }
    let mut out = String::new();
    for c in text.chars() {
        let mut longer = out.clone();
        longer.push(c);
        if longer.width() + 1 > most {
            break;
        }
        out = longer;
    }
    out + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_column_gives_way() {
        let mut table = Table::new(&["ID", "COMMAND"]);
        table.row(vec!["proc_1".into(), "echo a long command line".into()]);
        table.row(vec!["p".into(), "".into()]);
        let style = Style::plain();
        assert_eq!(table.fit(None, style), "ID      COMMAND\nproc_1  echo a long command line\np\n");
        assert_eq!(table.fit(Some(22), style), "ID      COMMAND\nproc_1  echo a long c…\np\n");
        // However narrow it is, something is shown.
        assert_eq!(table.fit(Some(5), style), "ID      COMMAND\nproc_1  echo a long…\np\n");
    }

    #[test]
    fn wide_characters_count_twice() {
        assert_eq!(cut("漢字漢字", 5), "漢字…");
        assert_eq!(cut("漢字", 4), "漢字");
    }
}
