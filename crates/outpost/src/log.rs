//! A process's output: kept in arrival order, addressed by offset, bounded in memory and on disk.
//!
//! The log is a sequence of records (stream, length, bytes), cut into segments. A small log is one segment in
//! memory; a larger one lives in files. When the files reach the cap, the oldest segment that is not part
//! of the head is dropped and its file used again for the newest: the beginning and the end stay, the middle
//! goes, and the status says which bytes are gone. Where no file can be written, the newest few megabytes stay.

use farshell_protocol::process::{LogPiece, OutputStatus, Stream, View};
use rustix::io::Errno;
use rustix::pipe::SpliceFlags;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A log up to this size makes no file. Small enough for a thousand of them.
const IN_MEMORY: usize = 16 << 10;
/// Segments that a full log consists of: what is dropped at a time is a thirty-second of the cap.
const SEGMENTS: u64 = 32;
/// The share of the cap that keeps the beginning.
const HEAD_SEGMENTS: usize = 8;
/// Where no file can be written (a full disk), the newest output is kept in memory, in segments of this size. Together
/// they hold more than a process can be ahead of a reader who must get everything: [`crate::conns::MOST_BEHIND`], what is
/// read at once, and two wide pipes that are drained as a command ends.
const WITHOUT_FILE: u64 = 256 << 10;
const MOST_WITHOUT_FILE: usize = 12;
/// Stream and length before each record's bytes.
const RECORD: usize = 5;

#[derive(Debug)]
pub(crate) struct Log {
    /// Where files go: this path with `.N` appended.
    base: PathBuf,
    segment_size: u64,
    segments: Vec<Segment>,
    files_made: u32,
    /// Bytes seen, by stream.
    totals: [u64; 2],
    /// Bytes that were stored once and dropped: `from..to` in arrival order.
    dropped: (u64, u64),
    error: Option<String>,
}

#[derive(Debug)]
struct Segment {
    store: Store,
    /// Bytes in the store, record headers included.
    used: u64,
    /// Offsets of the first byte: arrival order and by stream.
    base: u64,
    base_of: [u64; 2],
    /// Arrival offset after the last byte.
    end: u64,
}

#[derive(Debug)]
enum Store {
    Memory(Vec<u8>),
    File(File, PathBuf),
}

/// A place in the log, with a memory of where that was, so that reading on costs no search.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    /// Arrival offset of the next byte.
    pub offset: u64,
    hint: Option<Position>,
}

impl Cursor {
    pub(crate) fn at(offset: u64) -> Self {
        Self { offset, hint: None }
    }

    /// Moves over bytes that the reader got by other means.
    pub(crate) fn skip(&mut self, bytes: usize) {
        self.offset += bytes as u64;
        self.hint = None;
    }
}

/// A record boundary.
#[derive(Clone, Copy, Debug)]
struct Position {
    segment_base: u64,
    at: u64,
    offset: u64,
    of: [u64; 2],
}

/// What a read found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Piece {
        stream: Stream,
        offset: u64,
        stream_offset: u64,
        bytes: Vec<u8>,
    },
    /// These bytes are gone; the cursor stands behind them.
    Gap {
        from: u64,
        to: u64,
    },
    /// Nothing more for now.
    End,
}

fn index(stream: Stream) -> usize {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
    }
}

impl Log {
    pub(crate) fn new(base: PathBuf, cap: u64) -> Self {
        Self {
            base,
            segment_size: (cap / SEGMENTS).max(4 << 10),
            segments: Vec::new(),
            files_made: 0,
            totals: [0; 2],
            dropped: (0, 0),
            error: None,
        }
    }

    /// All bytes so far, in arrival order.
    pub(crate) fn total(&self) -> u64 {
        self.totals[0] + self.totals[1]
    }

    pub(crate) fn total_of(&self, stream: Stream) -> u64 {
        self.totals[index(stream)]
    }

    /// Bytes held in memory.
    pub(crate) fn memory(&self) -> usize {
        self.segments
            .iter()
            .map(|s| match &s.store {
                Store::Memory(buf) => buf.capacity(),
                Store::File(..) => 0,
            })
            .sum()
    }

    /// Bytes held on disk.
    pub(crate) fn disk(&self) -> u64 {
        self.segments.iter().filter(|s| matches!(s.store, Store::File(..))).map(|s| s.used).sum()
    }

    pub(crate) fn status(&self, open: bool) -> OutputStatus {
        let path = self.segments.iter().find_map(|s| match &s.store {
            Store::Memory(_) => None,
            Store::File(_, path) => Some(path.to_string_lossy().into_owned()),
        });
        OutputStatus {
            stdout: self.totals[0],
            stderr: self.totals[1],
            dropped_from: self.dropped.0,
            dropped_to: self.dropped.1,
            open,
            log_error: self.error.clone(),
            path,
        }
    }

    pub(crate) fn append(&mut self, stream: Stream, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            // A record never crosses a segment's end, and a segment never gets a record longer than itself.
            let size = if self.error.is_some() { WITHOUT_FILE } else { self.segment_size };
            let room = match self.segments.last() {
                Some(last) => size.saturating_sub(last.used + RECORD as u64),
                None => 0,
            };
            if room == 0 {
                self.new_segment();
                continue;
            }
            let (now, later) = rest.split_at(rest.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
            if let Err(error) = self.store(stream, now) {
                self.fail(&error);
                continue;
            }
            self.totals[index(stream)] += now.len() as u64;
            rest = later;
        }
    }

    fn store(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        let Some(last) = self.segments.last_mut() else { return Ok(()) };
        let mut header = [0; RECORD];
        header[0] = index(stream) as u8;
        header[1..].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        if let Store::Memory(buf) = &mut last.store {
            if buf.len() + RECORD + bytes.len() <= IN_MEMORY || self.error.is_some() {
                buf.extend_from_slice(&header);
                buf.extend_from_slice(bytes);
                last.used += (RECORD + bytes.len()) as u64;
                last.end += bytes.len() as u64;
                return Ok(());
            }
            self.spill()?;
        }
        let Some(last) = self.segments.last_mut() else { return Ok(()) };
        if let Store::File(file, _) = &last.store {
            write_both(file, last.used, &header, bytes)?;
            last.used += (RECORD + bytes.len()) as u64;
            last.end += bytes.len() as u64;
        }
        Ok(())
    }

    /// No file can be written: from here on the newest output is kept in memory.
    fn fail(&mut self, error: &io::Error) {
        self.error = Some(unwritable(error));
        if self.segments.last().is_some_and(|last| matches!(last.store, Store::File(..))) {
            self.new_segment();
        }
    }

    /// Drops what is in memory.
    pub(crate) fn forget(&mut self) {
        while let Some(at) = self.segments.iter().position(|s| matches!(s.store, Store::Memory(_))) {
            self.drop_segment(at);
        }
    }

    fn drop_segment(&mut self, at: usize) -> Store {
        let old = self.segments.remove(at);
        self.drop_bytes(old.base, old.end);
        old.store
    }

    fn drop_bytes(&mut self, from: u64, to: u64) {
        if self.dropped.0 == self.dropped.1 {
            self.dropped.0 = from;
        }
        self.dropped.1 = to;
    }

    /// A record of `len` bytes would go into a file as it is.
    pub(crate) fn can_splice(&self, len: usize) -> bool {
        self.error.is_none()
            && self.segments.last().is_some_and(|last| {
                matches!(last.store, Store::File(..))
                    && last.used + (RECORD + len) as u64 <= self.segment_size
            })
    }

    /// Appends a record of `len` bytes that wait in a pipe. To be called only if [`Log::can_splice`].
    pub(crate) fn splice(&mut self, stream: Stream, pipe: &OwnedFd, len: usize) {
        if let Some(last) = self.segments.last_mut()
            && let Store::File(file, _) = &last.store
        {
            let mut header = [0; RECORD];
            header[0] = index(stream) as u8;
            header[1..].copy_from_slice(&(len as u32).to_le_bytes());
            let written = file.write_all_at(&header, last.used).and_then(|()| {
                let mut at = last.used + RECORD as u64;
                let end = at + len as u64;
                while at < end {
                    let left = usize::try_from(end - at).unwrap_or(usize::MAX);
                    match rustix::pipe::splice(pipe, None, file, Some(&mut at), left, SpliceFlags::MOVE) {
                        Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                        Ok(_) | Err(Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                Ok(())
            });
            let before = self.totals[0] + self.totals[1];
            self.totals[index(stream)] += len as u64;
            match written {
                Ok(()) => {
                    last.used += (RECORD + len) as u64;
                    last.end += len as u64;
                }
                // Its reader has it; nobody else will.
                Err(error) => {
                    self.drop_bytes(before, before + len as u64);
                    self.fail(&error);
                }
            }
        }
    }

    /// Moves what is in memory to a file.
    pub(crate) fn spill(&mut self) -> io::Result<()> {
        for i in 0..self.segments.len() {
            let Store::Memory(buf) = &self.segments[i].store else { continue };
            if buf.is_empty() && i + 1 < self.segments.len() {
                continue;
            }
            let (file, path) = make_file(&self.base, self.files_made)?;
            if let Err(error) = file.write_all_at(buf, 0) {
                let _ = std::fs::remove_file(path);
                return Err(error);
            }
            self.files_made += 1;
            self.segments[i].store = Store::File(file, path);
        }
        Ok(())
    }

    fn new_segment(&mut self) {
        let base = self.total();
        let mut store = Store::Memory(Vec::new());
        if self.error.is_some() {
            let mut kept =
                self.segments.iter().enumerate().filter(|(_, s)| matches!(s.store, Store::Memory(_)));
            if let Some((oldest, _)) = kept.next()
                && kept.count() + 1 >= MOST_WITHOUT_FILE
            {
                self.drop_segment(oldest);
            }
        } else if !self.segments.is_empty() {
            match self.next_file() {
                Ok((file, path)) => store = Store::File(file, path),
                Err(error) => self.error = Some(unwritable(&error)),
            }
        }
        self.segments.push(Segment { store, used: 0, base, base_of: self.totals, end: base });
    }

    /// A file for the next segment: that of the oldest droppable one once the log is full.
    fn next_file(&mut self) -> io::Result<(File, PathBuf)> {
        if (self.segments.len() as u64) < SEGMENTS {
            let made = make_file(&self.base, self.files_made)?;
            self.files_made += 1;
            return Ok(made);
        }
        match self.drop_segment(HEAD_SEGMENTS) {
            Store::File(file, path) => Ok((file, path)),
            Store::Memory(_) => {
                let made = make_file(&self.base, self.files_made)?;
                self.files_made += 1;
                Ok(made)
            }
        }
    }

    /// Reads at most `max` bytes of one record.
    pub(crate) fn read(&self, cursor: &mut Cursor, max: usize) -> Read {
        if cursor.offset >= self.total() || max == 0 {
            return Read::End;
        }
        let Some(segment) = self.segment_at(cursor.offset) else {
            // Nothing is stored from here on: a log that could not be written.
            let from = std::mem::replace(&mut cursor.offset, self.total());
            return Read::Gap { from, to: cursor.offset };
        };
        if segment.base > cursor.offset {
            let from = std::mem::replace(&mut cursor.offset, segment.base);
            return Read::Gap { from, to: cursor.offset };
        }
        let mut position = match cursor.hint {
            Some(p) if p.segment_base == segment.base && p.offset <= cursor.offset => p,
            _ => Position { segment_base: segment.base, at: 0, offset: segment.base, of: segment.base_of },
        };
        while position.at < segment.used {
            let Some((stream, len)) = segment.record(position.at) else { break };
            let skip = cursor.offset - position.offset;
            if skip < len {
                let want = usize::try_from(len - skip).unwrap_or(usize::MAX).min(max);
                let mut bytes = vec![0; want];
                if segment.bytes(position.at + RECORD as u64 + skip, &mut bytes).is_err() {
                    break;
                }
                let offset = cursor.offset;
                let stream_offset = position.of[index(stream)] + skip;
                cursor.offset += want as u64;
                cursor.hint = Some(position);
                return Read::Piece { stream, offset, stream_offset, bytes };
            }
            position.at += RECORD as u64 + len;
            position.offset += len;
            position.of[index(stream)] += len;
        }
        // The segment could not be read to its end (somebody removed or cut the file).
        let from = cursor.offset;
        cursor.offset = segment.end.max(from + 1).min(self.total());
        cursor.hint = None;
        Read::Gap { from, to: cursor.offset }
    }

    /// The segment that holds `offset`, or the first one after it.
    fn segment_at(&self, offset: u64) -> Option<&Segment> {
        let at = self.segments.partition_point(|s| s.end <= offset);
        self.segments.get(at)
    }

    /// Up to `len` bytes of a view from `offset`, or from the first byte after it that is still there.
    pub(crate) fn piece(&self, view: View, offset: u64, len: usize, open: bool) -> LogPiece {
        let total = match view {
            View::Arrival => self.total(),
            View::Only(stream) => self.total_of(stream),
        };
        let mut piece = LogPiece { offset, bytes: Vec::new(), total, eof: false };
        let mut cursor = Cursor::at(match view {
            View::Arrival => offset,
            View::Only(stream) => {
                let of = index(stream);
                let after = self.segments.partition_point(|s| s.base_of[of] <= offset);
                self.segments.get(after.saturating_sub(1)).map_or(0, |s| s.base)
            }
        });
        while piece.bytes.len() < len {
            match self.read(&mut cursor, 256 << 10) {
                Read::End => break,
                Read::Gap { .. } if piece.bytes.is_empty() => {}
                // A piece has no holes in it: the next one starts behind the gap.
                Read::Gap { .. } => break,
                Read::Piece { stream, offset: arrival, stream_offset, bytes } => {
                    let first = match view {
                        View::Arrival => arrival,
                        View::Only(wanted) if wanted == stream => stream_offset,
                        View::Only(_) => continue,
                    };
                    let skip = usize::try_from(offset.saturating_sub(first)).unwrap_or(usize::MAX);
                    if skip >= bytes.len() {
                        continue;
                    }
                    if piece.bytes.is_empty() {
                        piece.offset = first + skip as u64;
                    } else if piece.offset + piece.bytes.len() as u64 != first {
                        break;
                    }
                    let room = len - piece.bytes.len();
                    piece.bytes.extend(bytes[skip..].iter().take(room));
                }
            }
        }
        piece.eof = !open && piece.offset + piece.bytes.len() as u64 >= total;
        piece
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        for segment in &self.segments {
            if let Store::File(_, path) = &segment.store {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

impl Segment {
    fn record(&self, at: u64) -> Option<(Stream, u64)> {
        let mut header = [0; RECORD];
        self.bytes(at, &mut header).ok()?;
        let stream = if header[0] == 0 { Stream::Stdout } else { Stream::Stderr };
        Some((stream, u64::from(u32::from_le_bytes([header[1], header[2], header[3], header[4]]))))
    }

    fn bytes(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        match &self.store {
            Store::File(file, _) => file.read_exact_at(out, at),
            Store::Memory(buf) => {
                let from = usize::try_from(at).unwrap_or(usize::MAX);
                let found = from.checked_add(out.len()).and_then(|to| buf.get(from..to));
                out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
        }
    }
}

fn unwritable(error: &io::Error) -> String {
    format!("the log could not be written: {error}")
}

fn make_file(base: &Path, number: u32) -> io::Result<(File, PathBuf)> {
    let mut name = base.as_os_str().to_owned();
    name.push(format!(".{number}"));
    let path = PathBuf::from(name);
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    Ok((file, path))
}

fn write_both(file: &File, at: u64, header: &[u8], bytes: &[u8]) -> io::Result<()> {
    let whole = header.len() + bytes.len();
    let parts = [io::IoSlice::new(header), io::IoSlice::new(bytes)];
    let done = loop {
        match rustix::io::pwritev(file, &parts, at) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    if done == whole {
        return Ok(());
    }
    // A short write is rare (the disk is nearly full): finish it plainly, or learn why not.
    let mut all = Vec::with_capacity(whole);
    all.extend_from_slice(header);
    all.extend_from_slice(bytes);
    file.write_all_at(&all[done..], at + done as u64)
}

#[cfg(test)]
mod tests;
