//! Files as one request has them: all paths first, then all contents.

use bytes::{BufMut, Bytes, BytesMut};

/// A file to be put into a sandbox.
#[derive(Clone, Debug)]
pub struct Upload {
    pub path: String,
    pub bytes: Bytes,
}

/// The body, and what kind it is.
pub(crate) fn form(files: &[Upload]) -> (String, Bytes) {
    let boundary = boundary();
    let mut body = BytesMut::new();
    for (at, file) in files.iter().enumerate() {
        let head = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"files[{at}].path\"\r\n\r\n{}\r\n",
            file.path
        );
        body.put(head.as_bytes());
    }
    for (at, file) in files.iter().enumerate() {
        // The path that counts is the field of that name.
        let head = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"files[{at}].file\"; filename=\"file{at}\"\r\nContent-Type: application/octet-stream\r\n\r\n"
        );
        body.put(head.as_bytes());
        body.put(file.bytes.clone());
        body.put(&b"\r\n"[..]);
    }
    body.put(format!("--{boundary}--\r\n").as_bytes());
    (format!("multipart/form-data; boundary={boundary}"), body.freeze())
}

/// A line that is in none of the files: random, so that nobody can write it into one beforehand.
fn boundary() -> String {
    format!("farshell-{}", farshell_engine::random::hex(16))
}
