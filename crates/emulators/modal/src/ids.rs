//! Ids of the shapes that Modal's have; its clients tell the two kinds of sandbox apart by them.

use std::time::{SystemTime, UNIX_EPOCH};

const LETTERS: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const CROCKFORD: &[u8] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let _ = getrandom::fill(&mut bytes);
    bytes
}

/// `ap-` and the like, with 22 letters or digits. A sandbox of the first kind is known by that length.
pub(crate) fn short(prefix: &str) -> String {
    let letters = random::<22>().map(|byte| char::from(LETTERS[usize::from(byte) % LETTERS.len()]));
    format!("{prefix}-{}", letters.iter().collect::<String>())
}

/// With a ULID: the time in milliseconds, then chance.
pub(crate) fn long(prefix: &str) -> String {
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let mut number = (millis << 80) | (u128::from_be_bytes(random()) >> 48);
    let mut letters = [0; 26];
    for letter in letters.iter_mut().rev() {
        *letter = CROCKFORD[(number & 31) as usize];
        number >>= 5;
    }
    format!("{prefix}-{}", letters.map(char::from).iter().collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::{long, short};

    #[test]
    fn shapes_tell_the_kinds_apart() {
        let first = short("sb");
        assert!(first.len() == 25 && first[3..].bytes().all(|byte| byte.is_ascii_alphanumeric()), "{first}");
        let second = long("sb");
        assert!(second.len() == 29 && second.starts_with("sb-0"), "{second}");
        assert_ne!(long("sb"), second);
        assert_ne!(short("sb"), first);
    }
}
