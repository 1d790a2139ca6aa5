//! The files of an environment. Many calls can be under way at once, and each survives the server: whoever answers
//! next opens the files anew.

use crate::body::Out;
use crate::calls::{encoded_bytes, query_of};
use crate::client::{Call, Client, Repeat, refused};
use crate::error::{Result, disconnected, protocol};
use bytes::Bytes;
use farshell_api::ApiError;
use farshell_api::file::{
    FileChange, FileHash, FileList, FileQuery, FileStat, FileWritten, OpenFiles, OpenedFiles, ReadQuery,
    WriteQuery,
};
use farshell_api::server::Done;
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Pieces of a file that wait to be sent.
const PIECES: usize = 4;

/// Which file: below a root, or wherever it is.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    pub root: Option<&'a [u8]>,
    pub path: &'a [u8],
}

impl<'a> At<'a> {
    #[must_use]
    pub fn anywhere(path: &'a [u8]) -> Self {
        Self { root: None, path }
    }

    #[must_use]
    pub fn below(root: &'a [u8], path: &'a [u8]) -> Self {
        Self { root: Some(root), path }
    }
}

/// Files that are open.
#[derive(Clone, Debug)]
pub struct Files {
    client: Client,
    request: Arc<OpenFiles>,
    opened: Arc<Mutex<OpenedFiles>>,
}

/// All fail with the server's own error. What goes wrong on the way is `disconnected`.
impl Files {
    /// Opens the files of an environment, which is made if it is not there.
    pub async fn open(client: &Client, request: OpenFiles) -> Result<Self> {
        let opened = open(client, &request).await?;
        let opened = Arc::new(Mutex::new(opened));
        Ok(Self { client: client.clone(), request: Arc::new(request), opened })
    }

    /// Whose files they are.
    #[must_use]
    pub fn opened(&self) -> OpenedFiles {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub async fn close(&self) -> Result<Done> {
        let path = format!("/v1/files/{}/close", self.opened().id);
        self.client.call(Call::post(path, &(), Repeat::Safe)?).await
    }

    pub async fn stat(&self, at: At<'_>, query: &FileQuery) -> Result<FileStat> {
        self.ask("stat", at, query).await
    }

    pub async fn list(&self, at: At<'_>, query: &FileQuery) -> Result<FileList> {
        self.ask("list", at, query).await
    }

    pub async fn hash(&self, at: At<'_>, query: &FileQuery) -> Result<FileHash> {
        self.ask("hash", at, query).await
    }

    /// All changes can be made twice.
    pub async fn change(&self, change: &FileChange) -> Result<Done> {
        loop {
            let id = self.opened().id;
            let call = Call::post(format!("/v1/files/{id}/change"), change, Repeat::Safe)?;
            match self.client.call(call).await {
                Err(error) if is_closed(&error) => self.reopen(&id).await?,
                other => return other,
            }
        }
    }

    async fn ask<R: DeserializeOwned>(&self, what: &str, at: At<'_>, query: &impl Serialize) -> Result<R> {
        loop {
            let id = self.opened().id;
            let call = Call::get(located(&id, what, at, query));
            match self.client.call(call).await {
                Err(error) if is_closed(&error) => self.reopen(&id).await?,
                other => return other,
            }
        }
    }

    /// Reads a file. What can't be read shows here, or is cut off.
    pub async fn read(&self, at: At<'_>, query: &ReadQuery) -> Result<Reading> {
        loop {
            let id = self.opened().id;
            let path = located(&id, "content", at, query);
            let response = self.client.respond(&Method::GET, &path, Out::whole(Bytes::new())).await?;
            match failed(response).await {
                Ok(body) => return Ok(Reading { body }),
                Err(error) if is_closed(&error) => self.reopen(&id).await?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Begins to write a file. Nothing of it is there until [`Writing::finish`] says so.
    pub async fn write(&self, at: At<'_>, query: &WriteQuery) -> Result<Writing> {
        let id = self.opened().id;
        let path = located(&id, "content", at, query);
        let (pieces, body) = mpsc::channel(PIECES);
        let client = self.client.clone();
        let answer = tokio::spawn(async move {
            let response = client.respond(&Method::PUT, &path, Out::Pieces(body)).await?;
            let body = failed(response).await?;
            let bytes = body.collect().await.map_err(|e| disconnected(e.to_string()))?.to_bytes();
            serde_json::from_slice(&bytes).map_err(|e| protocol(format!("not understood: {e}")))
        });
        Ok(Writing { files: self.clone(), id, pieces, answer: Some(answer) })
    }

    /// Opens them again, unless somebody else just has.
    async fn reopen(&self, old: &str) -> Result<()> {
        if self.opened().id != old {
            return Ok(());
        }
        let opened = open(&self.client, &self.request).await?;
        let mut known = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if known.id == old {
            *known = opened;
        }
        Ok(())
    }
}

async fn open(client: &Client, request: &OpenFiles) -> Result<OpenedFiles> {
    client.call(Call::post("/v1/files", request, Repeat::Safe)?).await
}

/// The server has ended since, or we were silent for long.
fn is_closed(error: &ApiError) -> bool {
    error.kind == "not_found" && error.operation == "looking for open files"
}

fn located(id: &str, what: &str, at: At<'_>, query: &impl Serialize) -> String {
    let mut text = format!("/v1/files/{id}/{what}?path={}", encoded_bytes(at.path));
    if let Some(root) = at.root {
        text.push_str(&format!("&root={}", encoded_bytes(root)));
    }
    query_of(&mut text, '&', query);
    text
}

async fn failed(response: hyper::Response<Incoming>) -> Result<Incoming> {
    let (head, body) = response.into_parts();
    if head.status.is_success() {
        return Ok(body);
    }
    let body = body.collect().await.map_err(|e| disconnected(e.to_string()))?.to_bytes();
    Err(refused(head.status, &body))
}

/// A file that is being read.
#[derive(Debug)]
pub struct Reading {
    body: Incoming,
}

impl Reading {
    /// The next bytes, `None` at the end.
    ///
    /// # Errors
    /// It was cut off: the file changed, or the way to it was lost.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(disconnected(format!("the file is cut off: {error}"))),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }
}

/// A file that is being written. Dropped before it is finished, it never appears.
#[derive(Debug)]
pub struct Writing {
    files: Files,
    id: String,
    pieces: mpsc::Sender<Option<Bytes>>,
    answer: Option<JoinHandle<Result<FileWritten>>>,
}

impl Writing {
    /// The next bytes; waits until there is room for them.
    ///
    /// # Errors
    /// The file can't be written.
    pub async fn push(&mut self, bytes: Bytes) -> Result<()> {
        if self.pieces.send(Some(bytes)).await.is_ok() {
            return Ok(());
        }
        // Nobody takes any more: the answer is there.
        match self.answered().await {
            Err(error) => Err(error),
            Ok(_) => Err(protocol("the server said that the file is whole, and it is not")),
        }
    }

    /// All bytes were pushed.
    ///
    /// # Errors
    /// Nothing was changed, unless the way there was lost: then the file is the old or the new one.
    pub async fn finish(mut self) -> Result<FileWritten> {
        // If nobody takes it, the answer says why.
        let _ = self.pieces.send(None).await;
        self.answered().await
    }

    async fn answered(&mut self) -> Result<FileWritten> {
        let Some(answer) = self.answer.take() else { return Err(disconnected("it was answered before")) };
        let answer = answer.await.map_err(|e| disconnected(e.to_string()))?;
        if let Err(error) = &answer
            && is_closed(error)
        {
            // What was sent is lost, but the next attempt finds the files open.
            self.files.reopen(&self.id).await?;
            return Err(disconnected("the files were closed meanwhile"));
        }
        answer
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        // The body is cut off with the channel.
        if let Some(answer) = self.answer.take() {
            answer.abort();
        }
    }
}
