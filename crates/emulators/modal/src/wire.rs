//! What the emulator and the first process of a sandbox say to each other: a length, JSON, and open files beside it.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// What a sandbox stands on: an overlay over these.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Tree {
    /// Where, without the first slash: empty for the root itself.
    pub(crate) at: String,
    /// The topmost first.
    pub(crate) lower: Vec<PathBuf>,
    pub(crate) upper: PathBuf,
    pub(crate) work: PathBuf,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Setup {
    /// Where it is mounted, in the sandbox's own namespace.
    pub(crate) root: PathBuf,
    /// Lower directories may be relative to this one: so a hundred of them fit into one mount.
    pub(crate) layers: PathBuf,
    pub(crate) trees: Vec<Tree>,
    pub(crate) hostname: String,
    /// A control group in which all but the first process are, so that someone is awake who can thaw them.
    pub(crate) freezer: Option<PathBuf>,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Spawn {
    pub(crate) id: u64,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) workdir: String,
    pub(crate) terminal: Option<Terminal>,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Terminal {
    pub(crate) rows: u16,
    pub(crate) cols: u16,
}

/// To the first process. `Spawn` brings standard input, output and error, unless it is for a terminal.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum Order {
    Setup(Setup),
    Spawn(Spawn),
    /// The process group of that process.
    Kill(u64),
}

/// From the first process. `Started` brings the controlling side of a terminal, if there is one.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum Event {
    Ready,
    Failed(String),
    Started(u64),
    /// Nothing was started.
    Refused(u64, String),
    Exited(u64, Status),
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) enum Status {
    Code(i32),
    Signal(i32),
}

pub(crate) fn send(
    mut to: &UnixStream,
    message: &impl Serialize,
    files: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let body = serde_json::to_vec(message)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?.to_be_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::other("too many files beside a message"));
    }
    let sent = sendmsg(to.as_fd(), &[IoSlice::new(&length)], &mut beside, SendFlags::NOSIGNAL)?;
    to.write_all(&length[sent..])?;
    to.write_all(&body)
}

/// `None` at the end.
pub(crate) fn receive<T: DeserializeOwned>(mut from: &UnixStream) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut length = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        let into = &mut [IoSliceMut::new(&mut length)];
        match recvmsg(from.as_fd(), into, &mut beside, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(message) => break message.bytes,
        }
    };
    if got == 0 {
        return Ok(None);
    }
    let mut files = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = message {
            files.extend(some);
        }
    }
    from.read_exact(&mut length[got..])?;
    let mut body = vec![0; u32::from_be_bytes(length) as usize];
    from.read_exact(&mut body)?;
    Ok(Some((serde_json::from_slice(&body)?, files)))
}
