//! What a sandbox that runs can be asked.

use super::http::{Http, address, join};
use super::socket::{self, Socket};
use super::{Again, ClientError, Executed, Fault, Upload, download, upload};
use bytes::Bytes;
use reqwest::{Method, Url};
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

pub(super) const USUAL: Duration = Duration::from_secs(30);
/// What a call may take beyond what the command may.
const MARGIN: Duration = Duration::from_secs(10);
/// How long a few megabytes may take on a slow line.
const UPLOAD: Duration = Duration::from_secs(300);

/// One sandbox's toolbox. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Toolbox {
    pub(super) http: Arc<Http>,
    base: Url,
}

#[derive(Debug, Deserialize)]
struct Dir {
    dir: String,
}

impl Toolbox {
    pub(crate) fn new(http: Arc<Http>, base: &str, id: &str) -> Result<Self, ClientError> {
        let base = join(&address(base)?, &[id])?;
        Ok(Self { http, base })
    }

    pub(super) fn url(&self, parts: &[&str]) -> Result<Url, ClientError> {
        join(&self.base, parts)
    }

    /// Runs a command to its end, for at most `limit`. It is fed to a shell, and its output comes at the end.
    ///
    /// # Errors
    /// After [`super::Fault::Lost`] it may have run, or run still.
    pub async fn execute(&self, command: &str, limit: Duration) -> Result<Executed, ClientError> {
        let body = json!({ "command": command, "timeout": limit.as_secs().max(1) });
        let url = self.url(&["process", "execute"])?;
        self.http
            .json("running a command", Method::POST, url, Some(&body), Again::IfNotSent, limit + MARGIN)
            .await
    }

    /// # Errors
    /// As any request.
    pub async fn home(&self) -> Result<String, ClientError> {
        let url = self.url(&["user-home-dir"])?;
        let dir: Dir = self
            .http
            .json("asking for the home directory", Method::GET, url, None, Again::Freely, USUAL)
            .await?;
        Ok(dir.dir)
    }

    /// Writes files, and the directories they are in.
    ///
    /// # Errors
    /// Some may be written.
    pub async fn upload(&self, files: &[Upload]) -> Result<(), ClientError> {
        let url = self.url(&["files", "bulk-upload"])?;
        let form = upload::form(files);
        self.http.send_bytes("uploading files", Method::POST, url, Some(form), Again::Freely, UPLOAD).await?;
        Ok(())
    }

    /// A file's content.
    ///
    /// # Errors
    /// 404 if there is none; one that is larger than [`super::MOST`].
    pub async fn download(&self, path: &str) -> Result<Bytes, ClientError> {
        let mut url = self.url(&["files", "download"])?;
        url.query_pairs_mut().append_pair("path", path);
        self.http.send("downloading a file", Method::GET, url, None, Again::Freely, UPLOAD).await
    }

    /// The contents of files, in this order. One that can't be read does not keep the others from coming.
    ///
    /// # Errors
    /// As any request; together they are larger than [`super::MOST`].
    pub async fn download_all(&self, paths: &[&str]) -> Result<Vec<Result<Bytes, Fault>>, ClientError> {
        let url = self.url(&["files", "bulk-download"])?;
        let body = json!({ "paths": paths });
        let answer = self
            .http
            .send("downloading files", Method::POST, url, Some(&body), Again::Freely, UPLOAD)
            .await?;
        download::parts(&answer)
    }

    /// Makes a terminal with a shell in it.
    ///
    /// # Errors
    /// 409 if there is one of this id.
    pub async fn create_pty(&self, id: &str) -> Result<(), ClientError> {
        let url = self.url(&["process", "pty"])?;
        let body = json!({ "id": id, "cols": 200, "rows": 50 });
        self.http.send("making a terminal", Method::POST, url, Some(&body), Again::IfNotSent, USUAL).await?;
        Ok(())
    }

    /// Ends a terminal and what runs in it.
    ///
    /// # Errors
    /// 404 if there is none.
    pub async fn delete_pty(&self, id: &str) -> Result<(), ClientError> {
        let url = self.url(&["process", "pty", id])?;
        self.http.send("removing a terminal", Method::DELETE, url, None, Again::Freely, USUAL).await?;
        Ok(())
    }

    /// Connects to a terminal. Whoever goes away leaves it running.
    ///
    /// # Errors
    /// The upgrade was refused.
    pub async fn connect_pty(&self, id: &str) -> Result<Socket, ClientError> {
        let url = self.url(&["process", "pty", id, "connect"])?;
        tokio::time::timeout(USUAL, socket::open(&self.http, &url))
            .await
            .unwrap_or_else(|_| Err(ClientError::new("connecting to a terminal", Fault::TimedOut)))
    }
}
