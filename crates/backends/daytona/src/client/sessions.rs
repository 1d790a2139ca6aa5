//! Shells in a sandbox that last, with commands one after another. The backend has no use for them; who uses the client
//! alone may.
//!
//! Facts that a user has to know: a second command waits for the first, also if nobody does; `exit`, or `set -e` and a
//! failure, end the shell, and what was asked of it never ends. So commands are started here, and looked at.

use super::toolbox::USUAL;
use super::{Again, ClientError, Toolbox};
use reqwest::Method;
use serde::Deserialize;
use serde_json::json;

/// A command of a session.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SessionCommand {
    pub id: String,
    #[serde(default)]
    pub command: String,
    /// Absent while it runs.
    pub exit_code: Option<i32>,
}

/// What a command of a session has printed so far. A last newline that was missing is there, and NULs are not.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct SessionLogs {
    pub stdout: Option<String>,
    pub stderr: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Begun {
    cmd_id: String,
}

#[derive(Debug, Deserialize)]
struct Session {
    #[serde(default)]
    commands: Option<Vec<SessionCommand>>,
}

impl Toolbox {
    /// # Errors
    /// 409 if there is one of this id.
    pub async fn create_session(&self, id: &str) -> Result<(), ClientError> {
        let (url, body) = (self.url(&["process", "session"])?, json!({ "sessionId": id }));
        self.http
            .send("making a session", Method::POST, url, Some(&body), Again::IfNotSent, USUAL)
            .await
            .map(drop)
    }

    /// Starts a command, and says by what id it is known.
    ///
    /// # Errors
    /// After [`super::Fault::Lost`] it may have been started.
    pub async fn start_in_session(&self, id: &str, command: &str) -> Result<String, ClientError> {
        let url = self.url(&["process", "session", id, "exec"])?;
        let body = json!({ "command": command, "runAsync": true });
        let what = "starting a command of a session";
        let begun: Begun =
            self.http.json(what, Method::POST, url, Some(&body), Again::IfNotSent, USUAL).await?;
        Ok(begun.cmd_id)
    }

    /// The commands of a session, in any order.
    ///
    /// # Errors
    /// 404 if there is no such session.
    pub async fn session(&self, id: &str) -> Result<Vec<SessionCommand>, ClientError> {
        let url = self.url(&["process", "session", id])?;
        let what = "looking at a session";
        let session: Session = self.http.json(what, Method::GET, url, None, Again::Freely, USUAL).await?;
        Ok(session.commands.unwrap_or_default())
    }

    /// # Errors
    /// 404 if there is no such command.
    pub async fn session_command(&self, id: &str, command: &str) -> Result<SessionCommand, ClientError> {
        let url = self.url(&["process", "session", id, "command", command])?;
        self.http
            .json("looking at a command of a session", Method::GET, url, None, Again::Freely, USUAL)
            .await
    }

    /// # Errors
    /// 404 if there is no such command.
    pub async fn session_logs(&self, id: &str, command: &str) -> Result<SessionLogs, ClientError> {
        let url = self.url(&["process", "session", id, "command", command, "logs"])?;
        self.http.json("reading the output of a session", Method::GET, url, None, Again::Freely, USUAL).await
    }

    /// A line of input for a command that runs.
    ///
    /// # Errors
    /// 410 if it has ended. After [`super::Fault::Lost`] it may have been given.
    pub async fn session_input(&self, id: &str, command: &str, line: &str) -> Result<(), ClientError> {
        let url = self.url(&["process", "session", id, "command", command, "input"])?;
        let body = json!({ "data": line });
        self.http
            .send("giving input to a session", Method::POST, url, Some(&body), Again::IfNotSent, USUAL)
            .await
            .map(drop)
    }

    /// Ends a session and what runs in it, which may take five seconds.
    ///
    /// # Errors
    /// 404 if there is none.
    pub async fn delete_session(&self, id: &str) -> Result<(), ClientError> {
        let url = self.url(&["process", "session", id])?;
        self.http.send("removing a session", Method::DELETE, url, None, Again::Freely, USUAL).await.map(drop)
    }
}
