//! Files of the place, over the same connection.

use super::connection::{Call, Incoming};
use super::{Outpost, odd};
use crate::error::{Error, Kind, Result};
use farshell_protocol::file::{
    Below, BelowOp, Entry, FileEvent, FileOp, FileReply, FileRequest, Search, Searched, Stat, Write,
};
use farshell_protocol::{Event, Reply, Request, SessionName};
use serde_bytes::ByteBuf;

/// A file that is being read.
#[derive(Debug)]
pub struct FileStream {
    call: Call,
    what: String,
    /// What the outpost said at the end.
    pub end: Option<Download>,
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
    /// The next piece, `None` at the end.
    ///
    /// # Errors
    /// The file can't be read (any further).
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        if self.end.is_some() {
            return Ok(None);
        }
        loop {
            match self.call.next().await? {
                Incoming::Data(bytes) => {
                    self.call.consumed(bytes.len());
                    return Ok(Some(bytes));
                }
                Incoming::Response(Ok(Reply::File(FileReply::Read { stat, bytes, changed }))) => {
                    self.end = Some(Download { stat, bytes, changed });
                    return Ok(None);
                }
                Incoming::Response(Ok(other)) => return Err(odd(&self.what, &other)),
                Incoming::Response(Err(failure)) => return Err(Error::failure(&self.what, &failure)),
                Incoming::Event(_) | Incoming::Credit(_) => {}
            }
        }
    }
}

/// A file that is being written. Dropped before it is finished, it never appears.
#[derive(Debug)]
pub struct FileUpload {
    call: Call,
    what: String,
}

impl FileUpload {
    /// The next bytes; waits until there is room for them.
    ///
    /// # Errors
    /// The file can't be written, or the connection was lost: nothing has its name.
    pub async fn push(&mut self, bytes: &[u8]) -> Result<()> {
        match self.call.upload(bytes).await? {
            None => Ok(()),
            Some(answer) => self.written(answer).map(drop),
        }
    }

    /// All bytes were pushed. Gives the file, and whether there was none before.
    ///
    /// # Errors
    /// Nothing was changed, unless the connection was lost: then the file is the old or the new one.
    pub async fn finish(mut self) -> Result<(Stat, bool)> {
        self.call.end_upload()?;
        loop {
            if let Incoming::Response(answer) = self.call.next().await? {
                return self.written(answer);
            }
        }
    }

    fn written(
        &self,
        answer: std::result::Result<Reply, farshell_protocol::Failure>,
    ) -> Result<(Stat, bool)> {
        match answer {
            Ok(Reply::File(FileReply::Written { stat, created })) => Ok((stat, created)),
            Ok(other) => Err(odd(&self.what, &other)),
            Err(failure) => Err(Error::failure(&self.what, &failure)),
        }
    }
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
    async fn file_call(&self, session: Option<SessionName>, op: FileOp) -> Result<Call> {
        self.connection().await?.call(&Request::File(FileRequest { session, op }))
    }

    /// One file operation whose answer is all there is.
    ///
    /// # Errors
    /// It failed, or the connection was lost before the answer.
    pub async fn file(&self, session: Option<SessionName>, op: FileOp) -> Result<FileReply> {
        let what = "a file operation";
        match self.file_call(session, op).await?.response().await? {
            Ok(Reply::File(reply)) => Ok(reply),
            Ok(other) => Err(odd(what, &other)),
            Err(failure) => Err(Error::failure(what, &failure)),
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
        let call = self.file_call(session, op).await?;
        Ok(FileStream { call, what: format!("reading {}", shown(path)), end: None })
    }

    /// Replaces a file by these bytes, all or nothing.
    ///
    /// # Errors
    /// Nothing was changed, unless the connection was lost: then the file is the old or the new one.
    pub async fn write_file(
        &self,
        session: Option<SessionName>,
        write: Write,
        mut bytes: &[u8],
    ) -> Result<(Stat, bool)> {
        let what = format!("writing {}", shown(&write.path));
        let mut call = self.file_call(session, FileOp::Write(write)).await?;
        let mut early = None;
        while !bytes.is_empty() && early.is_none() {
            let (now, later) = bytes.split_at(bytes.len().min(256 << 10));
            early = call.upload(now).await?;
            bytes = later;
        }
        let answer = match early {
            Some(answer) => answer,
            None => {
                call.end_upload()?;
                call.response().await?
            }
        };
        match answer {
            Ok(Reply::File(FileReply::Written { stat, created })) => Ok((stat, created)),
            Ok(other) => Err(odd(&what, &other)),
            Err(failure) => Err(Error::failure(what, &failure)),
        }
    }

    /// Begins to replace a file, all or nothing.
    ///
    /// # Errors
    /// The outpost can't be reached; whether the file can be written shows later.
    pub async fn upload(&self, session: Option<SessionName>, write: Write) -> Result<FileUpload> {
        let what = format!("writing {}", shown(&write.path));
        Ok(FileUpload { call: self.file_call(session, FileOp::Write(write)).await?, what })
    }

    /// Something below a directory whose answer is all there is.
    ///
    /// # Errors
    /// It failed, or the connection was lost before the answer.
    pub async fn below(&self, session: Option<SessionName>, below: Below) -> Result<FileReply> {
        let what = doing(&below);
        match self.file_call(session, FileOp::Below(below)).await?.response().await? {
            Ok(Reply::File(reply)) => Ok(reply),
            Ok(other) => Err(odd(&what, &other)),
            Err(failure) => Err(Error::failure(what, &failure)),
        }
    }

    /// As [`Outpost::read_file`], or the hash of a file, below a directory.
    ///
    /// # Errors
    /// The outpost can't be reached; whether the file can be read shows with the first piece.
    pub async fn read_below(&self, session: Option<SessionName>, below: Below) -> Result<FileStream> {
        let what = doing(&below);
        Ok(FileStream { call: self.file_call(session, FileOp::Below(below)).await?, what, end: None })
    }

    /// As [`Outpost::upload`], below a directory.
    ///
    /// # Errors
    /// The outpost can't be reached; whether the file can be written shows later.
    pub async fn put_below(&self, session: Option<SessionName>, below: Below) -> Result<FileUpload> {
        let what = doing(&below);
        Ok(FileUpload { call: self.file_call(session, FileOp::Below(below)).await?, what })
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
        let reply = self
            .collect(what, session, op, |event| {
                if let FileEvent::Entries(more) = event {
                    entries.extend(more);
                }
            })
            .await?;
        match reply {
            FileReply::Listed { truncated, .. } => Ok((entries, truncated)),
            other => Err(Error::new(Kind::Protocol, what, format!("an answer of another kind: {other:?}"))),
        }
    }

    /// Searches; each find is handed over as it comes.
    ///
    /// # Errors
    /// The pattern is not valid, or the path can't be read.
    pub async fn search(
        &self,
        session: Option<SessionName>,
        search: Search,
        found: impl FnMut(FileEvent),
    ) -> Result<Searched> {
        let what = format!("searching {}", shown(&search.path));
        match self.collect(&what, session, FileOp::Search(search), found).await? {
            FileReply::Searched(searched) => Ok(searched),
            other => Err(Error::new(Kind::Protocol, what, format!("an answer of another kind: {other:?}"))),
        }
    }

    async fn collect(
        &self,
        what: &str,
        session: Option<SessionName>,
        op: FileOp,
        mut each: impl FnMut(FileEvent),
    ) -> Result<FileReply> {
        let mut call = self.file_call(session, op).await?;
        loop {
            match call.next().await? {
                Incoming::Event(Event::File(event)) => each(event),
                Incoming::Response(Ok(Reply::File(reply))) => return Ok(reply),
                Incoming::Response(Ok(other)) => return Err(odd(what, &other)),
                Incoming::Response(Err(failure)) => return Err(Error::failure(what, &failure)),
                Incoming::Event(_) | Incoming::Data(_) | Incoming::Credit(_) => {}
            }
        }
    }
}
