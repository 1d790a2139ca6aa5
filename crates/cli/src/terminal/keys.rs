//! The keys that leave a process running.

use crate::output::invalid;
use farshell_engine::Error;

/// Keys, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    bytes: Vec<u8>,
    text: String,
}

impl Keys {
    /// `ctrl-],d`
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let wrong = |what: String| {
            invalid("reading --detach-key", what).with_hint(
                "keys are ctrl-a to ctrl-z, ctrl-[ \\ ] ^ _ @ or characters, with commas between: ctrl-],d",
            )
        };
        let mut bytes = Vec::new();
        for key in text.split(',') {
            let control =
                key.strip_prefix("ctrl-").or_else(|| key.strip_prefix('^').filter(|k| !k.is_empty()));
            let byte = match (control.map(str::as_bytes), key.as_bytes()) {
                (Some(&[c]), _) if (b'@'..=b'_').contains(&c.to_ascii_uppercase()) => {
                    c.to_ascii_uppercase() & 0x1f
                }
                (None, &[c]) if c.is_ascii_graphic() || c == b' ' => c,
                _ => return Err(wrong(format!("{key:?} is not a key"))),
            };
            bytes.push(byte);
        }
        // A key that is typed all the time would make the terminal useless.
        if bytes[0] >= 0x20 {
            return Err(wrong(format!("{text:?} does not begin with a ctrl- key")));
        }
        Ok(Self { bytes, text: text.replace(',', " ") })
    }
}

impl std::fmt::Display for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// Looks for the keys in what is typed.
#[derive(Debug)]
pub(crate) struct Matcher {
    keys: Option<Keys>,
    /// How many of them were pressed, and are held back.
    pressed: usize,
}

impl Matcher {
    pub(crate) fn new(keys: Option<Keys>) -> Self {
        Self { keys, pressed: 0 }
    }

    /// There is a way out.
    pub(crate) fn leaves(&self) -> bool {
        self.keys.is_some()
    }

    /// What is to be passed on, and whether all keys were pressed. The first of them pressed twice is itself.
    pub(crate) fn typed(&mut self, typed: &[u8]) -> (Vec<u8>, bool) {
        let Some(keys) = &self.keys else { return (typed.to_vec(), false) };
        let keys = keys.bytes.as_slice();
        let mut forward = Vec::new();
        for byte in typed {
            if *byte == keys[self.pressed] {
                self.pressed += 1;
                if self.pressed == keys.len() {
                    return (forward, true);
                }
                continue;
            }
            let pressed = std::mem::take(&mut self.pressed);
            forward.extend_from_slice(&keys[..pressed]);
            match *byte == keys[0] {
                true if pressed == 1 => {}
                true => self.pressed = 1,
                false => forward.push(*byte),
            }
        }
        (forward, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_names() {
        let bytes = |text: &str| Keys::parse(text).map(|keys| keys.bytes).ok();
        assert_eq!(bytes("ctrl-],d"), Some(vec![0x1d, b'd']));
        assert_eq!(bytes("ctrl-p,ctrl-q"), Some(vec![0x10, 0x11]));
        assert_eq!(bytes("^A"), Some(vec![0x01]));
        for wrong in ["", "d", "ctrl-", "ctrl-]d", "ctrl-],", "ctrl-é", "d,ctrl-]"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
        assert_eq!(Keys::parse("ctrl-],d").unwrap().to_string(), "ctrl-] d");
    }

    #[test]
    fn other_keys_are_passed_on() {
        let mut matcher = Matcher::new(Some(Keys::parse("ctrl-],d").unwrap()));
        assert_eq!(matcher.typed(b"abc"), (b"abc".to_vec(), false));
        // Held back until it is clear what is meant.
        assert_eq!(matcher.typed(b"x\x1d"), (b"x".to_vec(), false));
        assert_eq!(matcher.typed(b"y"), (b"\x1dy".to_vec(), false));
        assert_eq!(matcher.typed(b"\x1d\x1dd"), (b"\x1dd".to_vec(), false));
        assert_eq!(matcher.typed(b"z\x1d"), (b"z".to_vec(), false));
        assert_eq!(matcher.typed(b"dz"), (Vec::new(), true));
        assert_eq!(Matcher::new(None).typed(b"\x1dd"), (b"\x1dd".to_vec(), false));
    }
}
