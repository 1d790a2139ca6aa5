//! What a process has switched on in the terminal, so that it can be switched off when we leave.

use std::collections::BTreeMap;

/// Modes that are on from the beginning: line wrap, a visible cursor.
const ON_AT_FIRST: [u16; 2] = [7, 25];
/// The screen of full-screen programs, under its three numbers.
const ALTERNATE: [u16; 3] = [47, 1047, 1049];
/// Digits and semicolons of one sequence that are looked at.
const LONGEST: usize = 64;

/// Watches output go by.
#[derive(Debug, Default)]
pub(crate) struct Modes {
    /// Those that are not as they were.
    changed: BTreeMap<u16, bool>,
    state: State,
    numbers: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    Escape,
    Bracket,
    Private,
}

impl Modes {
    pub(crate) fn see(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.state = match (self.state, byte) {
                (_, 0x1b) => State::Escape,
                (State::Escape, b'[') => State::Bracket,
                // Everything is as it was.
                (State::Escape, b'c') => {
                    self.changed.clear();
                    State::Text
                }
                (State::Bracket, b'?') => {
                    self.numbers.clear();
                    State::Private
                }
                (State::Private, b'0'..=b'9' | b';') if self.numbers.len() < LONGEST => {
                    self.numbers.push(char::from(*byte));
                    State::Private
                }
                (State::Private, b'h') => self.set(true),
                (State::Private, b'l') => self.set(false),
                _ => State::Text,
            };
        }
    }

    fn set(&mut self, on: bool) -> State {
        for number in self.numbers.split(';').filter_map(|text| text.parse::<u16>().ok()) {
            if on == ON_AT_FIRST.contains(&number) {
                self.changed.remove(&number);
            } else {
                self.changed.insert(number, on);
            }
        }
        State::Text
    }

    /// What makes the terminal as it was. `left`: the process goes on and did not tidy up.
    pub(crate) fn reset(&self, left: bool) -> String {
        let mut text = String::new();
        if left {
            // Colours, and the part of the screen that scrolls; the cursor stays where it is.
            text.push_str("\x1b[0m\x1b7\x1b[r\x1b8");
        }
        // The other screen last: the rest may belong to it.
        let (last, first): (Vec<_>, Vec<_>) =
            self.changed.iter().partition(|(number, _)| ALTERNATE.contains(number));
        for (number, on) in first.into_iter().chain(last) {
            text.push_str(&format!("\x1b[?{number}{}", if *on { 'l' } else { 'h' }));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_is_switched_off() {
        let mut modes = Modes::default();
        modes.see(b"text \x1b[1;31mred\x1b[?25h");
        assert_eq!(modes.reset(false), "");
        modes.see(b"\x1b[?1049h\x1b[?1h\x1b=\x1b[?2004h\x1b[?25");
        modes.see(b"l\x1b[?1000;1006h");
        assert_eq!(modes.reset(false), "\x1b[?1l\x1b[?25h\x1b[?1000l\x1b[?1006l\x1b[?2004l\x1b[?1049l");
        modes.see(b"\x1b[?1049l\x1b[?1l\x1b[?2004l\x1b[?25h\x1b[?1000;1006l");
        assert_eq!(modes.reset(false), "");
        modes.see(b"\x1b[?1049h\x1bc");
        assert_eq!(modes.reset(true), "\x1b[0m\x1b7\x1b[r\x1b8");
    }
}
