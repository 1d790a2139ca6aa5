//! What a terminal showed: all lines that went over its screen, as an emulator draws them.

use farshell_api::run::Size;
use std::num::NonZero;
use vt100::capture::{
    BasicFormattedCaptureRange, BasicFormattedCaptureState, RowContents, basic_formatted_to_plain,
};

/// Keeps rows as they leave the screen.
#[derive(Default)]
struct Rows {
    text: String,
    state: BasicFormattedCaptureState,
}

impl vt100::Callbacks for Rows {
    fn on_scroll(&mut self, contents: RowContents<'_>, alternate_screen: bool) {
        // What a full-screen program scrolls is no line of output.
        if !alternate_screen {
            // Writing to a string does not fail.
            let _ = contents.write_formatted_basic(&mut self.text, &mut self.state);
        }
    }
}

/// All lines of a terminal's output. A full-screen program that is still there is shown as it looks.
pub(crate) fn lines(size: Size, bytes: &[u8]) -> String {
    let at_least_one = |n: u16| NonZero::new(n).unwrap_or(NonZero::<u16>::MIN);
    let (rows, cols) = (at_least_one(size.rows), at_least_one(size.cols));
    let mut parser = vt100::Parser::new_with_callbacks(rows, cols, 0, Rows::default());
    parser.process(bytes);
    let mut captured = std::mem::take(parser.callbacks_mut());
    let rest = BasicFormattedCaptureRange::Full(&mut captured.state);
    let _ = parser.screen().write_contents_formatted_basic(&mut captured.text, rest);
    let text: String = basic_formatted_to_plain(&captured.text).collect();
    let trimmed: Vec<_> = text.lines().map(str::trim_end).collect();
    trimmed.join("\n").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SMALL: Size = Size { rows: 3, cols: 10 };

    #[test]
    fn lines_that_left_the_screen_are_there() {
        assert_eq!(lines(SMALL, b"one\r\ntwo\r\nthree\r\nfour\r\nfive\r\n"), "one\ntwo\nthree\nfour\nfive");
    }

    #[test]
    fn what_was_drawn_over_is_not() {
        assert_eq!(lines(SMALL, b"10%\r50%\r100%\r\ndone\x1b[2K\rall\r\n"), "100%\nall");
        assert_eq!(lines(SMALL, b"\x1b[31mred\x1b[0m \x1b[1mbold"), "red bold");
    }

    #[test]
    fn a_long_line_is_one_line() {
        assert_eq!(lines(SMALL, b"0123456789abcdef\r\nx"), "0123456789abcdef\nx");
    }

    #[test]
    fn a_full_screen_program_is_shown_as_it_looks() {
        assert_eq!(lines(SMALL, b"before\r\n\x1b[?1049h\x1b[2J\x1b[Hediting"), "editing");
        assert_eq!(lines(SMALL, b"before\r\n\x1b[?1049h\x1b[Hediting\x1b[?1049lafter"), "before\nafter");
    }

    proptest! {
        #[test]
        fn no_output_brings_it_down(bytes in proptest::collection::vec(
            prop_oneof![Just(0x1bu8), Just(b'['), Just(b';'), Just(b'H'), Just(b'9'), any::<u8>()], 0..400)) {
            lines(SMALL, &bytes);
        }
    }
}
