//! Readers of a process's output: what each gets next, straight from the pipe while it keeps up, and from the log when it
//! does not.

use super::{Call, Conn};
use crate::daemon::Daemon;
use crate::log::{Cursor, Read};
use farshell_protocol::flow::Credit;
use farshell_protocol::process::{CHUNK_HEADER, Chunk, Stream};
use farshell_protocol::{ErrorKind, Event, Failure, Reply};
use rustix::pipe::SpliceFlags;
use std::collections::HashMap;
use std::os::fd::AsFd;

/// Output of this size is passed on without being copied.
const WORTH_PASSING_ON: usize = 64 << 10;
/// How far a process may be ahead of a reader who must get everything, before it is slowed down. Not far: what
/// the reader gets while it keeps up comes straight from the pipe, what it gets later has to be read back.
pub(crate) const MOST_BEHIND: u64 = 256 << 10;

/// What became of much output that could be passed on without being copied.
pub(crate) enum Passing {
    Moved(usize),
    /// It stays where it is until its reader has room for it.
    Later,
    /// The ordinary way has to be taken.
    No,
}

#[derive(Debug)]
pub(crate) struct AttachCall {
    pub process: u32,
    pub cursor: Cursor,
    pub credit: Credit,
    pub lossless: bool,
    pub until_closed: bool,
    /// Where the output ended when the process did.
    pub end_at: Option<u64>,
}

impl Daemon {
    /// Sends the next piece of a call's data, if there is one and it is paid for.
    pub(super) fn produce(&mut self, key: u32, call: u32) {
        let Some(conn) = self.conns.get_mut(&key) else { return };
        let Some(Call::Attach(attach)) = conn.calls.get_mut(&call) else { return };
        let Some(process) = self.procs.get_mut(&attach.process) else {
            let failure = Failure::new(ErrorKind::NotFound, "the process's record is gone");
            conn.calls.remove(&call);
            return conn.reply(call, &Err(failure));
        };
        let stop = attach.end_at.filter(|_| !attach.until_closed);
        let left = stop.map_or(u64::MAX, |end| end.saturating_sub(attach.cursor.offset));
        let most = attach.credit.available().saturating_sub(CHUNK_HEADER).min(crate::daemon::READ);
        let most = most.min(usize::try_from(left).unwrap_or(usize::MAX));
        let finished = process.ended()
            && process.end_held.is_none()
            && (left == 0
                || (attach.cursor.offset >= process.log.total()
                    && (!attach.until_closed || !process.open())));
        if finished {
            let status = process.status();
            process.readers.retain(|reader| *reader != (key, call));
            conn.calls.remove(&call);
            return conn.reply(call, &Ok(Reply::Status(Box::new(status))));
        }
        match process.log.read(&mut attach.cursor, most) {
            Read::End => {}
            Read::Gap { from, to } => {
                conn.event(call, &Event::Gap { from, to });
                conn.is_ready(call);
            }
            Read::Piece { stream, offset, stream_offset, bytes } => {
                attach.credit.spend(bytes.len() + CHUNK_HEADER);
                let head = Chunk { stream, offset, stream_offset, bytes: &[] }.header();
                conn.data(call, &head, &bytes);
                conn.is_ready(call);
            }
        }
        let process = attach_process(&self.conns, key, call);
        if let Some(process) = process {
            self.maybe_resume(process);
        }
    }

    /// New output: readers who have everything before it get it without a detour through the log.
    pub(crate) fn deliver(&mut self, process: u32, stream: Stream, stream_offset: u64, bytes: &[u8]) {
        let Some(proc) = self.procs.get(&process) else { return };
        let offset = proc.log.total() - bytes.len() as u64;
        // Taken out and put back: readers change only through calls, none of which is made here.
        let readers = proc.readers.clone();
        for (key, call) in readers {
            let Some(conn) = self.conns.get_mut(&key) else { continue };
            let free = conn.waiting() == 0 && conn.ready.is_empty() && !conn.closed;
            let Some(Call::Attach(attach)) = conn.calls.get_mut(&call) else { continue };
            let paid = attach.credit.available() >= bytes.len() + CHUNK_HEADER;
            if free && paid && attach.cursor.offset == offset && bytes.len() <= crate::daemon::READ {
                attach.cursor.skip(bytes.len());
                attach.credit.spend(bytes.len() + CHUNK_HEADER);
                let head = Chunk { stream, offset, stream_offset, bytes: &[] }.header();
                conn.data(call, &head, bytes);
            } else {
                conn.is_ready(call);
                self.pump(key);
            }
        }
    }

    /// Moves much output at once from a pipe to its only reader and to the log, without copying it through this
    /// process.
    pub(crate) fn pass_on(&mut self, process: u32, index: u8) -> Passing {
        let Some(proc) = self.procs.get_mut(&process) else { return Passing::No };
        let (&[(key, call)], Some(fd), false) = (&proc.readers[..], &proc.outputs[index as usize], proc.pty)
        else {
            return Passing::No;
        };
        let waiting = crate::sys::pipe_fill(fd.as_fd()).min(crate::daemon::READ);
        if waiting < WORTH_PASSING_ON || !proc.log.can_splice(waiting) {
            return Passing::No;
        }
        let Some(conn) = self.conns.get_mut(&key).filter(|conn| !conn.closed) else { return Passing::No };
        let (backed_up, room) =
            (conn.waiting() > 0, crate::sys::socket_room(conn.stream.as_fd(), conn.buffer));
        let Some(Call::Attach(attach)) = conn.calls.get_mut(&call) else { return Passing::No };
        let offset = proc.log.total();
        if attach.cursor.offset != offset || !conn.ready.is_empty() {
            return Passing::No;
        }
        // What does not fit would have to be copied: it is left in the pipe, if its reader wants all of it. The socket
        // is heard of again when it has been emptied, or when more is granted.
        let most = waiting.min(room).min(attach.credit.available().saturating_sub(CHUNK_HEADER));
        if backed_up || most < WORTH_PASSING_ON {
            if !attach.lossless {
                return Passing::No;
            }
            conn.stalled.push(process);
            self.watch_for_room(key);
            return Passing::Later;
        }
        let Ok(len) = rustix::pipe::tee(fd, &self.copies.1, most, SpliceFlags::NONBLOCK) else {
            return Passing::No;
        };
        let stream = if index == 0 { Stream::Stdout } else { Stream::Stderr };
        let head = Chunk { stream, offset, stream_offset: proc.log.total_of(stream), bytes: &[] }.header();
        attach.cursor.skip(len);
        attach.credit.spend(len + CHUNK_HEADER);
        if !conn.pass_on(call, &head, fd, len) {
            // The copy is not needed; a pipe can only be emptied by reading it.
            let mut rest = len;
            while rest > 0
                && let Ok(n) = rustix::io::read(&self.copies.0, &mut self.buffer[..rest])
            {
                rest -= n;
            }
            if let Some(Call::Attach(attach)) = conn.calls.get_mut(&call) {
                attach.cursor = Cursor::at(offset);
                attach.credit.grant((len + CHUNK_HEADER) as u64);
            }
            return Passing::No;
        }
        proc.log.splice(stream, &self.copies.0, len);
        Passing::Moved(len)
    }

    /// Something changed for the readers of a process: it ended, or its output was closed.
    pub(crate) fn wake_readers(&mut self, process: u32) {
        let Some(proc) = self.procs.get(&process) else { return };
        let end = proc.ended().then(|| proc.log.total());
        let readers = proc.readers.clone();
        for (key, call) in readers {
            let Some(conn) = self.conns.get_mut(&key) else { continue };
            if let Some(Call::Attach(attach)) = conn.calls.get_mut(&call) {
                attach.end_at = attach.end_at.or(end);
                conn.is_ready(call);
            }
            self.pump(key);
        }
    }

    /// The largest distance between a process and a reader who must get everything.
    pub(crate) fn behind(&self, process: u32) -> u64 {
        let Some(proc) = self.procs.get(&process) else { return 0 };
        let total = proc.log.total();
        let of = |(key, call): &(u32, u32)| match self.conns.get(key)?.calls.get(call)? {
            Call::Attach(attach) if attach.lossless => Some(total.saturating_sub(attach.cursor.offset)),
            _ => None,
        };
        proc.readers.iter().filter_map(of).max().unwrap_or(0)
    }
}

fn attach_process(conns: &HashMap<u32, Conn>, key: u32, call: u32) -> Option<u32> {
    match conns.get(&key)?.calls.get(&call)? {
        Call::Attach(attach) => Some(attach.process),
        _ => None,
    }
}
