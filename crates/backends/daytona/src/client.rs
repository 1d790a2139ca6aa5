//! A client of Daytona's API, of use without the rest: the control plane here, a sandbox's toolbox in [`Toolbox`].
//!
//! # What it promises
//! - The key goes into a header, to the API's own address and to the toolbox that the API names, and nowhere else:
//!   redirects are not followed, and plain http is for this machine only.
//! - What may be asked twice is asked again when a server is away for a moment: lookups, and changes that are the
//!   same when made twice. Making a sandbox is one of them as long as it has a name, since names are unique. A command is
//!   sent again only if nothing of it was sent.
//! - Every wait ends, and no answer is kept that is larger than [`MOST`].
//!
//! # What can't be known
//! When a connection breaks after a request was sent, whether that was carried out: [`Fault::Lost`].
//!
//! | file | owns |
//! |---|---|
//! | `access.rs` | where the API is, and who asks |
//! | `http.rs`, `tls.rs` | requests, and when they are made again |
//! | `error.rs` | what went wrong, out of all shapes in which Daytona says so |
//! | `model.rs` | what goes over the wire |
//! | `toolbox.rs`, `upload.rs` | commands and files of a sandbox |
//! | `socket.rs` | terminals |

mod access;
mod download;
mod error;
mod http;
mod model;
mod sessions;
mod socket;
mod tls;
mod toolbox;
mod upload;

pub use access::Access;
pub use error::{ClientError, Fault};
pub use http::{Again, MOST};
#[cfg(test)]
pub(crate) use model::STATES;
pub use model::{BuildInfo, Create, Executed, Preview, Resources, Sandbox, State};
pub use sessions::{SessionCommand, SessionLogs};
pub use socket::{Close, Said, Socket};
pub use toolbox::Toolbox;
pub use upload::Upload;

use http::Http;
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long the API may take for most things.
const USUAL: Duration = Duration::from_secs(30);
/// Creating and starting wait for the sandbox on the other side, for half a minute.
const LONG: Duration = Duration::from_secs(90);
/// Sandboxes of one page.
const PAGE: usize = 100;
/// Pages that are looked at.
const PAGES: usize = 100;

type Result<T> = std::result::Result<T, ClientError>;

/// Daytona, as one user or organisation. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    http: Arc<Http>,
}

/// What happens to a sandbox by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interval {
    /// Without activity, it is stopped.
    Stop,
    /// Stopped, it is archived.
    Archive,
    /// Stopped, it is deleted.
    Delete,
}

impl Interval {
    fn path(self) -> &'static str {
        match self {
            Self::Stop => "autostop",
            Self::Archive => "autoarchive",
            Self::Delete => "autodelete",
        }
    }
}

impl Client {
    /// # Errors
    /// The address or the key can't be one.
    pub fn new(access: &Access) -> Result<Self> {
        Ok(Self { http: Arc::new(Http::new(access)?) })
    }

    /// The host that is asked, for people.
    #[must_use]
    pub fn host(&self) -> String {
        self.http.base.host_str().unwrap_or_default().to_owned()
    }

    async fn sandbox(
        &self,
        what: &str,
        method: Method,
        path: &[&str],
        body: Option<&Value>,
        limit: Duration,
    ) -> Result<Sandbox> {
        let url = self.http.api(path)?;
        self.http.json(what, method, url, body, Again::Freely, limit).await
    }

    /// By id or name.
    ///
    /// # Errors
    /// It can't be told whether there is one.
    pub async fn get(&self, key: &str) -> Result<Option<Sandbox>> {
        match self.sandbox("looking at the sandbox", Method::GET, &["sandbox", key], None, USUAL).await {
            Ok(sandbox) => Ok(Some(sandbox)),
            Err(error) if error.status() == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a sandbox. The state in the answer is of no use. One that is made again because the answer was lost is
    /// refused with 409 if there is one of its name by then.
    ///
    /// # Errors
    /// It may be there all the same: look for its name.
    pub async fn create(&self, create: &Create) -> Result<Sandbox> {
        let what = "making a sandbox";
        let body = serde_json::to_value(create)
            .map_err(|e| ClientError::new(what, Fault::Malformed(e.to_string())))?;
        let again = if create.name.is_some() { Again::Freely } else { Again::IfNotSent };
        let url = self.http.api(&["sandbox"])?;
        self.http.json(what, Method::POST, url, Some(&body), again, LONG).await
    }

    /// # Errors
    /// 409 while its state changes, 400 if it can't be started.
    pub async fn start(&self, key: &str) -> Result<Sandbox> {
        self.sandbox("starting the sandbox", Method::POST, &["sandbox", key, "start"], None, LONG).await
    }

    /// # Errors
    /// 409 while its state changes, 400 if it does not run.
    pub async fn stop(&self, key: &str) -> Result<Sandbox> {
        self.sandbox("stopping the sandbox", Method::POST, &["sandbox", key, "stop"], None, USUAL).await
    }

    /// # Errors
    /// 400 if it is not stopped.
    pub async fn archive(&self, key: &str) -> Result<Sandbox> {
        self.sandbox("archiving the sandbox", Method::POST, &["sandbox", key, "archive"], None, USUAL).await
    }

    /// # Errors
    /// 400 if it is not in an error that can be recovered from.
    pub async fn recover(&self, key: &str) -> Result<Sandbox> {
        self.sandbox("recovering the sandbox", Method::POST, &["sandbox", key, "recover"], None, LONG).await
    }

    /// # Errors
    /// 400 if it can't be changed that way, 403 or 404 where this is not available.
    pub async fn resize(&self, key: &str, to: Resources) -> Result<Sandbox> {
        let body = serde_json::to_value(to).unwrap_or_default();
        self.sandbox("resizing the sandbox", Method::POST, &["sandbox", key, "resize"], Some(&body), USUAL)
            .await
    }

    /// False if there is none.
    ///
    /// # Errors
    /// 409 while its state changes.
    pub async fn delete(&self, key: &str) -> Result<bool> {
        let url = self.http.api(&["sandbox", key])?;
        match self.http.send("deleting the sandbox", Method::DELETE, url, None, Again::Freely, USUAL).await {
            Ok(_) => Ok(true),
            Err(error) if error.status() == Some(404) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Replaces all labels.
    ///
    /// # Errors
    /// As any request.
    pub async fn set_labels(&self, key: &str, labels: &BTreeMap<String, String>) -> Result<()> {
        let url = self.http.api(&["sandbox", key, "labels"])?;
        let body = json!({ "labels": labels });
        self.http.send("labelling the sandbox", Method::PUT, url, Some(&body), Again::Freely, USUAL).await?;
        Ok(())
    }

    /// # Errors
    /// As any request.
    pub async fn set_interval(&self, key: &str, interval: Interval, minutes: i64) -> Result<()> {
        let url = self.http.api(&["sandbox", key, interval.path(), &minutes.to_string()])?;
        self.http
            .send("setting an interval of the sandbox", Method::POST, url, None, Again::Freely, USUAL)
            .await?;
        Ok(())
    }

    /// Somebody needs it: its timers begin anew.
    ///
    /// # Errors
    /// As any request.
    pub async fn touch(&self, id: &str) -> Result<()> {
        let url = self.http.api(&["sandbox", id, "last-activity"])?;
        self.http.send("keeping the sandbox awake", Method::POST, url, None, Again::IfNotSent, USUAL).await?;
        Ok(())
    }

    /// The address under which a port of the sandbox is reached.
    ///
    /// # Errors
    /// As any request.
    pub async fn preview(&self, key: &str, port: u16) -> Result<Preview> {
        let url = self.http.api(&["sandbox", key, "ports", &port.to_string(), "preview-url"])?;
        self.http.json("asking for a preview", Method::GET, url, None, Again::Freely, USUAL).await
    }

    /// All sandboxes with these labels. Right in the long run: one that was just made may be missing, one that was just
    /// deleted may be there.
    ///
    /// # Errors
    /// As any request.
    pub async fn list(
        &self,
        labels: &BTreeMap<String, String>,
        limit: Option<usize>,
    ) -> Result<Vec<Sandbox>> {
        let mut all = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..PAGES {
            let mut url = self.http.api(&["sandbox"])?;
            {
                let mut query = url.query_pairs_mut();
                query.append_pair("limit", &limit.unwrap_or(PAGE).clamp(1, PAGE).to_string());
                if !labels.is_empty() {
                    query.append_pair("labels", &json!(labels).to_string());
                }
                if let Some(cursor) = &cursor {
                    query.append_pair("cursor", cursor);
                }
            }
            let page: model::Page =
                self.http.json("listing sandboxes", Method::GET, url, None, Again::Freely, USUAL).await?;
            let before = all.len();
            all.extend(page.items);
            let next = page.next_cursor.filter(|next| !next.is_empty());
            // A server that goes round in circles is left.
            if next.is_none() || next == cursor || limit.is_some() || all.len() == before {
                break;
            }
            cursor = next;
        }
        Ok(all)
    }

    /// The toolbox of a sandbox that runs.
    ///
    /// # Errors
    /// The API names none, or one that the key must not go to.
    pub async fn toolbox(&self, sandbox: &Sandbox) -> Result<Toolbox> {
        let base = match sandbox.toolbox_proxy_url.as_deref().filter(|url| !url.is_empty()) {
            Some(base) => base.to_owned(),
            None => {
                let url = self.http.api(&["sandbox", &sandbox.id, "toolbox-proxy-url"])?;
                let named: model::Named = self
                    .http
                    .json("asking for the toolbox", Method::GET, url, None, Again::Freely, USUAL)
                    .await?;
                named.url
            }
        };
        Toolbox::new(Arc::clone(&self.http), &base, &sandbox.id)
    }
}
