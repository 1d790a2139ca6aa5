//! Several files in one answer: parts between lines that are in none of them.

use super::{ClientError, Fault};
use bytes::Bytes;
use serde::Deserialize;

const WHAT: &str = "downloading files";

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Refusal {
    status_code: u16,
    message: String,
}

/// The parts, in the order in which they were asked for. One that could not be read says why.
pub(crate) fn parts(body: &Bytes) -> Result<Vec<Result<Bytes, Fault>>, ClientError> {
    let odd = |why: &str| ClientError::new(WHAT, Fault::Malformed(why.to_owned()));
    // The first line is the one between parts, too.
    let line = find(body, b"\r\n").map(|end| &body[..end]).filter(|line| line.starts_with(b"--"));
    let line = line.ok_or_else(|| odd("the answer has no parts"))?;
    let between = [b"\r\n", line].concat();
    let mut all = Vec::new();
    let mut at = line.len();
    loop {
        if body[at..].starts_with(b"--") {
            return Ok(all);
        }
        let rest = body.get(at + 2..).ok_or_else(|| odd("the answer ends in the middle"))?;
        let head = find(rest, b"\r\n\r\n").ok_or_else(|| odd("a part has no head"))?;
        let begin = at + 2 + head + 4;
        let end = begin + find(&body[begin..], &between).ok_or_else(|| odd("a part has no end"))?;
        let content = body.slice(begin..end);
        let refused = find(&rest[..head], b"name=\"error\"").is_some();
        all.push(if refused { Err(refusal(&content)) } else { Ok(content) });
        at = end + between.len();
    }
}

fn refusal(text: &[u8]) -> Fault {
    let Refusal { status_code, message } = serde_json::from_slice(text).unwrap_or_default();
    Fault::Refused { status: status_code, message, code: None }
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_told_apart_whatever_is_in_them() {
        let body = b"--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n--x\n\r\n--\r\n\r\n--x\r\n\
            Content-Disposition: form-data; name=\"error\"\r\n\r\n{\"statusCode\":404,\"message\":\"b: none\"}\r\n--x\r\n\
            Content-Disposition: form-data; name=\"file\"\r\n\r\n\r\n--x--\r\n";
        let parts = parts(&Bytes::from_static(body)).unwrap();
        assert_eq!(parts.len(), 3);
        assert_eq!(parts[0].as_ref().unwrap().as_ref(), b"--x\n\r\n--\r\n");
        assert!(matches!(parts[1].as_ref().unwrap_err(), Fault::Refused { status: 404, .. }));
        assert_eq!(parts[2].as_ref().unwrap().len(), 0);
        for bad in [&b""[..], b"x", b"--x", b"--x\r\n", b"--x\r\nhead\r\n\r\nbody", b"--x\r\nhead"] {
            assert!(super::parts(&Bytes::from_static(bad)).is_err(), "{bad:?}");
        }
    }
}
