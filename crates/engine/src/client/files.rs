//! Files of the place, over the same connection.

use super::asking::Asking;
use super::connection::{Call, Incoming, lost};
use super::{Outpost, odd};
use crate::error::{Error, Kind, Result};
use farshell_protocol::file::{
    Below, BelowOp, Entry, FileEvent, FileOp, FileReply, FileRequest, Search, Searched, Stat, Write,
};
use farshell_protocol::{Event, Failure, Reply, SessionName};
use serde_bytes::ByteBuf;
use std::hash::{DefaultHasher, Hasher};

/// A file that is being read.
///
/// If the connection is lost on the way, it is read once more, and goes on behind the bytes that were given already, if
/// they are still the same.
#[derive(Debug)]
pub struct FileStream {
    asking: Asking,
    call: Call,
    given: Sum,
    /// What was read again of the bytes that were given.
    again: Option<Sum>,
    /// What the outpost said at the end.
    pub end: Option<Download>,
}

/// Some bytes, as far as has to be known to recognise them.
#[derive(Clone, Debug, Default)]
struct Sum {
    bytes: u64,
    hash: DefaultHasher,
}

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.hash.write(bytes);
    }

    fn is(&self, other: &Self) -> bool {
        self.bytes == other.bytes && self.hash.finish() == other.hash.finish()
    }
}

/// How a read ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Download {
    pub stat: Stat,
    pub bytes: u64,
    /// It was changed while it was read.
    pub changed: bool,
}

impl FileStream {
    async fn begin(mut asking: Asking) -> Result<Self> {
        let call = asking.call().await?;
        Ok(Self { asking, call, given: Sum::default(), again: None, end: None })
    }

    /// The next piece, `None` at the end.
    ///
    /// # Errors
    /// The file can't be read (any further).
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        if self.end.is_some() {
            return Ok(None);
        }
        loop {
            match self.call.next().await {
                Ok(Incoming::Data(bytes)) => {
                    self.call.consumed(bytes.len());
                    if let Some(bytes) = self.fresh(bytes)? {
                        return Ok(Some(bytes));
                    }
                }
                Ok(Incoming::Response(Ok(Reply::File(FileReply::Read { stat, bytes, changed })))) => {
                    if self.again.is_some() {
                        return Err(self.another_file());
                    }
                    self.end = Some(Download { stat, bytes, changed });
                    return Ok(None);
                }
                Ok(Incoming::Response(Ok(other))) => return Err(odd(self.asking.what(), &other)),
                Ok(Incoming::Response(Err(failure))) => {
                    if !self.asking.not_yet(&failure).await? {
                        return Err(Error::failure(self.asking.what(), &failure));
                    }
                    self.call = self.asking.call().await?;
                }
                Ok(Incoming::Event(..) | Incoming::Credit(_)) => {}
                Err(error) => {
                    self.asking.lost(error)?;
                    self.call = self.asking.call().await?;
                    self.again = (self.given.bytes > 0).then(Sum::default);
                }
            }
        }
    }

    /// What of these bytes was not given before.
    fn fresh(&mut self, mut bytes: Vec<u8>) -> Result<Option<Vec<u8>>> {
        if let Some(again) = &mut self.again {
            let left = usize::try_from(self.given.bytes - again.bytes).unwrap_or(usize::MAX);
            let known = bytes.drain(..left.min(bytes.len()));
            again.add(known.as_slice());
            drop(known);
            if again.bytes < self.given.bytes {
                return Ok(None);
            }
            if !again.is(&self.given) {
                return Err(self.another_file());
            }
            self.again = None;
        }
        if bytes.is_empty() {
            return Ok(None);
        }
        // What was given before is no progress, however often it comes.
        self.asking.goes_on();
        self.given.add(&bytes);
        Ok(Some(bytes))
    }

    fn another_file(&self) -> Error {
        let mut error = lost("and the file has been changed since");
        error.operation = self.asking.what().to_owned();
        error
    }
}

/// A file that is being written. Dropped before it is finished, it never appears.
#[derive(Debug)]
pub struct FileUpload {
    asking: Asking,
    call: Call,
}

impl FileUpload {
    async fn begin(mut asking: Asking) -> Result<Self> {
        let call = asking.call().await?;
        Ok(Self { asking, call })
    }

    /// The next bytes; waits until there is room for them.
    ///
    /// # Errors
    /// The file can't be written, or the connection was lost: nothing has its name.
    pub async fn push(&mut self, bytes: &[u8]) -> Result<()> {
        match self.call.upload(bytes).await? {
            None => Ok(()),
            Some(answer) => written(self.asking.what(), answer).map(drop),
        }
    }

    /// All bytes were pushed. Gives the file, and whether there was none before.
    ///
    /// # Errors
    /// Nothing was changed, unless it is [`Kind::UnknownOutcome`]: then the file is the old or the new one.
    pub async fn finish(self) -> Result<(Stat, bool)> {
        let Self { mut asking, call } = self;
        asking.asks();
        let mut answer = match call.end_upload() {
            Ok(()) => call.response().await,
            Err(error) => Err(error),
        };
        // The bytes are no longer here: all that can be asked is what became of them.
        asking.only_look();
        loop {
            match answer {
                Ok(Ok(Reply::File(FileReply::Stat(_)))) => {
                    let mut error = lost("nothing was written");
                    error.operation = asking.what().to_owned();
                    return Err(error);
                }
                Ok(Err(failure)) if asking.not_yet(&failure).await? => {}
                Ok(answer) => return written(asking.what(), answer),
                Err(error) => asking.lost(error)?,
            }
            answer = asking.call().await?.response().await;
        }
    }
}

fn written(what: &str, answer: std::result::Result<Reply, Failure>) -> Result<(Stat, bool)> {
    match answer {
        Ok(Reply::File(FileReply::Written { stat, created })) => Ok((stat, created)),
        Ok(other) => Err(odd(what, &other)),
        Err(failure) => Err(Error::failure(what, &failure)),
    }
}

/// Sends all of it. Gives what the outpost answers, which may be before it has all.
async fn send_all(
    asking: &mut Asking,
    mut call: Call,
    bytes: &[u8],
) -> Result<std::result::Result<Reply, Failure>> {
    if let Some(answer) = call.upload(bytes).await? {
        return Ok(answer);
    }
    asking.asks();
    call.end_upload()?;
    call.response().await
}

fn shown(path: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(path))
}

/// What is done, for errors.
fn doing(below: &Below) -> String {
    let verb = match below.op {
        BelowOp::Stat => "looking at",
        BelowOp::List => "listing",
        BelowOp::Read => "reading",
        BelowOp::Hash => "hashing",
        BelowOp::Put => "writing",
        BelowOp::MakeDir => "making directory",
        BelowOp::Link => "making link",
        BelowOp::Set => "setting the mode and time of",
        BelowOp::Remove => "removing",
        BelowOp::Sync => "syncing",
    };
    let mut path = below.root.to_vec();
    if !below.path.is_empty() {
        path.push(b'/');
        path.extend_from_slice(&below.path);
    }
    format!("{verb} {}", shown(&path))
}

impl Outpost {
    fn asking(&self, what: &str, session: Option<SessionName>, op: FileOp) -> Asking {
        Asking::file(self, what.to_owned(), FileRequest { session, op, once: 0 })
    }

    /// One file operation whose answer is all there is.
    ///
    /// # Errors
    /// It failed; [`Kind::UnknownOutcome`] if nobody can say whether it was done.
    pub async fn file(&self, session: Option<SessionName>, op: FileOp) -> Result<FileReply> {
        self.answered("a file operation", session, op).await
    }

    async fn answered(&self, what: &str, session: Option<SessionName>, op: FileOp) -> Result<FileReply> {
        match self.asking(what, session, op).answer().await? {
            Reply::File(reply) => Ok(reply),
            other => Err(odd(what, &other)),
        }
    }

    /// Reads a range of a file, `len` bytes or to its end.
    ///
    /// # Errors
    /// The outpost can't be reached; whether the file can be read shows with the first piece.
    pub async fn read_file(
        &self,
        session: Option<SessionName>,
        path: &[u8],
        offset: u64,
        len: Option<u64>,
    ) -> Result<FileStream> {
        let op = FileOp::Read { path: ByteBuf::from(path), offset, len };
        FileStream::begin(self.asking(&format!("reading {}", shown(path)), session, op)).await
    }

    /// Replaces a file by these bytes, all or nothing.
    ///
    /// # Errors
    /// Nothing was changed, unless it is [`Kind::UnknownOutcome`]: then the file is the old or the new one.
    pub async fn write_file(
        &self,
        session: Option<SessionName>,
        write: Write,
        bytes: &[u8],
    ) -> Result<(Stat, bool)> {
        let what = format!("writing {}", shown(&write.path));
        let mut asking = self.asking(&what, session, FileOp::Write(write));
        loop {
            let call = asking.call().await?;
            match send_all(&mut asking, call, bytes).await {
                Ok(Err(failure)) if asking.not_yet(&failure).await? => {}
                Ok(answer) => return written(&what, answer),
                Err(error) => asking.lost(error)?,
            }
        }
    }

    /// Begins to replace a file, all or nothing.
    ///
    /// # Errors
    /// The outpost can't be reached; whether the file can be written shows later.
    pub async fn upload(&self, session: Option<SessionName>, write: Write) -> Result<FileUpload> {
        let what = format!("writing {}", shown(&write.path));
        FileUpload::begin(self.asking(&what, session, FileOp::Write(write))).await
    }

    /// Something below a directory whose answer is all there is.
    ///
    /// # Errors
    /// It failed; [`Kind::UnknownOutcome`] if nobody can say whether it was done.
    pub async fn below(&self, session: Option<SessionName>, below: Below) -> Result<FileReply> {
        self.answered(&doing(&below), session, FileOp::Below(below)).await
    }

    /// As [`Outpost::read_file`], or the hash of a file, below a directory.
    ///
    /// # Errors
    /// The outpost can't be reached; whether the file can be read shows with the first piece.
    pub async fn read_below(&self, session: Option<SessionName>, below: Below) -> Result<FileStream> {
        let what = doing(&below);
        FileStream::begin(self.asking(&what, session, FileOp::Below(below))).await
    }

    /// As [`Outpost::upload`], below a directory.
    ///
    /// # Errors
    /// The outpost can't be reached; whether the file can be written shows later.
    pub async fn put_below(&self, session: Option<SessionName>, below: Below) -> Result<FileUpload> {
        let what = doing(&below);
        FileUpload::begin(self.asking(&what, session, FileOp::Below(below))).await
    }

    /// As [`Outpost::list_dir`], below a directory.
    ///
    /// # Errors
    /// It can't be read.
    pub async fn list_below(&self, session: Option<SessionName>, below: Below) -> Result<(Vec<Entry>, bool)> {
        let what = doing(&below);
        self.list(&what, session, FileOp::Below(below)).await
    }

    /// The entries of a directory, sorted by name; `limit` at most.
    ///
    /// # Errors
    /// It can't be read.
    pub async fn list_dir(
        &self,
        session: Option<SessionName>,
        path: &[u8],
        limit: u64,
    ) -> Result<(Vec<Entry>, bool)> {
        let what = format!("listing {}", shown(path));
        self.list(&what, session, FileOp::List { path: ByteBuf::from(path), limit }).await
    }

    async fn list(&self, what: &str, session: Option<SessionName>, op: FileOp) -> Result<(Vec<Entry>, bool)> {
        let mut entries = Vec::new();
        let mut asking = self.asking(what, session, op);
        let reply = loop {
            entries.clear();
            let collected = collect(asking.call().await?, what, |event| {
                if let FileEvent::Entries(more) = event {
                    entries.extend(more);
                }
            });
            match collected.await {
                Ok(Err(failure)) if asking.not_yet(&failure).await? => {}
                Ok(Err(failure)) => return Err(Error::failure(what, &failure)),
                Ok(Ok(reply)) => break reply,
                Err(error) => asking.lost(error)?,
            }
        };
        match reply {
            FileReply::Listed { truncated, .. } => Ok((entries, truncated)),
            other => Err(Error::new(Kind::Protocol, what, format!("an answer of another kind: {other:?}"))),
        }
    }

    /// Searches; each find is handed over as it comes.
    ///
    /// # Errors
    /// The pattern is not valid, or the path can't be read; [`Kind::Disconnected`] also if the connection was lost when
    /// something had been handed over already.
    pub async fn search(
        &self,
        session: Option<SessionName>,
        search: Search,
        mut found: impl FnMut(FileEvent),
    ) -> Result<Searched> {
        let what = format!("searching {}", shown(&search.path));
        let mut asking = self.asking(&what, session, FileOp::Search(search));
        let mut some = false;
        let reply = loop {
            let collected = collect(asking.call().await?, &what, |event| {
                some = true;
                found(event);
            });
            match collected.await {
                Ok(Err(failure)) if asking.not_yet(&failure).await? => {}
                Ok(Err(failure)) => return Err(Error::failure(what, &failure)),
                Ok(Ok(reply)) => break reply,
                // Another search could find other things.
                Err(error) if some => return Err(error),
                Err(error) => asking.lost(error)?,
            }
        };
        match reply {
            FileReply::Searched(searched) => Ok(searched),
            other => Err(Error::new(Kind::Protocol, what, format!("an answer of another kind: {other:?}"))),
        }
    }
}

/// Hands out what comes, up to the answer.
async fn collect(
    mut call: Call,
    what: &str,
    mut each: impl FnMut(FileEvent),
) -> Result<std::result::Result<FileReply, Failure>> {
    loop {
        match call.next().await? {
            Incoming::Event(Event::File(event), _) => each(event),
            Incoming::Response(Ok(Reply::File(reply))) => return Ok(Ok(reply)),
            Incoming::Response(Ok(other)) => return Err(odd(what, &other)),
            Incoming::Response(Err(failure)) => return Ok(Err(failure)),
            Incoming::Event(..) | Incoming::Data(_) | Incoming::Credit(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_recognised_however_they_are_cut() {
        let bytes: Vec<u8> = (0..=255).cycle().take(10_000).collect();
        let sum = |bytes: &[u8], piece: usize| {
            let mut sum = Sum::default();
            bytes.chunks(piece).for_each(|piece| sum.add(piece));
            sum
        };
        let whole = sum(&bytes, bytes.len());
        for piece in [1, 3, 8, 13, 4096] {
            assert!(sum(&bytes, piece).is(&whole), "{piece}");
        }
        assert!(!sum(&bytes[1..], 8).is(&whole));
        assert!(!sum(&[&bytes[1..], &[1]].concat(), 8).is(&whole));
    }
}
