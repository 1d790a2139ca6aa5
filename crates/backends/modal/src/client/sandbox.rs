//! Sandboxes: made, found, looked at, ended.
//!
//! Modal has two kinds of them, each with calls of its own; those of the second end in `V2`. The second is the usual one: it
//! is made, and the way to it known, by one call. Only the first has GPUs. An id tells which kind it is.

use super::error::{ClientError, Fault, Result};
use super::{Client, Code, USUAL, With};
use farshell_modal_proto::client::generic_result::GenericStatus;
use farshell_modal_proto::client::sandbox_get_command_router_access_request::Target;
use farshell_modal_proto::client::sandbox_get_exit_snapshot_response::Outcome;
use farshell_modal_proto::client::{
    CommandRouterAccess, GenericResult, Sandbox, SandboxCreateRequest, SandboxCreateV2Request,
    SandboxGetCommandRouterAccessRequest, SandboxGetExitSnapshotRequest, SandboxGetFromNameRequest,
    SandboxGetTaskIdRequest, SandboxListRequest, SandboxTag, SandboxTagsGetRequest, SandboxTagsSetRequest,
    SandboxTerminateRequest, SandboxWaitRequest, TaskGetCommandRouterAccessRequest,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// Making one may wait for room.
const MAKE: Duration = Duration::from_secs(120);
/// A server holds a question back for this long at most, in seconds, and what is added for the way.
const HELD: f32 = 10.0;
const MARGIN: Duration = Duration::from_secs(5);
/// Pages of a list that are looked at.
const PAGES: usize = 1000;

/// Of which kind a sandbox is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    First,
    Second,
}

/// A sandbox that was made.
#[derive(Clone, Debug)]
pub struct Made {
    pub id: String,
    pub task: String,
    pub(crate) access: Option<CommandRouterAccess>,
}

/// One of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    pub id: String,
    pub name: String,
    /// Seconds since 1970.
    pub created_at: f64,
    pub tags: BTreeMap<String, String>,
    pub finished: bool,
}

/// How a sandbox ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub status: GenericStatus,
    pub exitcode: i32,
    /// Modal's own words.
    pub exception: String,
}

/// What there is of a sandbox that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExitSnapshot {
    /// The id of an image.
    Image(String),
    Pending,
    /// There is none, and Modal says why.
    None(String),
}

impl Ended {
    fn of(result: Option<GenericResult>) -> Option<Self> {
        let result = result.filter(|result| result.status() != GenericStatus::Unspecified)?;
        Some(Self { status: result.status(), exitcode: result.exitcode, exception: result.exception })
    }

    /// Whether anything has ever run in it.
    #[must_use]
    pub fn began(&self) -> bool {
        self.status != GenericStatus::InitFailure
    }

    /// For people.
    #[must_use]
    pub fn why(&self) -> String {
        let why = match self.status {
            GenericStatus::Unspecified => "ended",
            GenericStatus::Success => "ended by itself",
            GenericStatus::Failure => return format!("ended by itself with exit code {}", self.exitcode),
            GenericStatus::Terminated => "was terminated",
            GenericStatus::Timeout => "reached its lifetime (modal_timeout)",
            GenericStatus::InitFailure => "could not be started",
            GenericStatus::InternalFailure => "was ended by a failure of Modal's",
            GenericStatus::IdleTimeout => "was put to sleep because nothing ran in it",
            GenericStatus::MemoryManagerEviction | GenericStatus::MemoryThrashingEviction => {
                "was ended because its machine ran out of memory"
            }
            GenericStatus::KernelOomKill => "ran out of memory and was killed (container_memory)",
        };
        match self.exception.trim() {
            "" => why.to_owned(),
            more => format!("{why}: {more}"),
        }
    }
}

/// What is known of the task in which a sandbox runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    Task(String),
    /// It waits for room.
    NotYet,
    /// It ended before it had begun.
    Never(Ended),
}

/// Whether a sandbox is of the first kind: as Modal's own clients tell it.
fn first(id: &str) -> bool {
    let name = id.strip_prefix("sb-").unwrap_or_default();
    name.len() == 22 && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn tags(all: &BTreeMap<String, String>) -> Vec<SandboxTag> {
    all.iter().map(|(name, value)| SandboxTag { tag_name: name.clone(), tag_value: value.clone() }).collect()
}

fn untagged(all: Vec<SandboxTag>) -> BTreeMap<String, String> {
    all.into_iter().map(|tag| (tag.tag_name, tag.tag_value)).collect()
}

impl Client {
    /// Makes a sandbox, once for each `key`. One that asks for a GPU is of the first kind, and may not run for a while.
    ///
    /// # Errors
    /// [`Code::AlreadyExists`] if one of its name runs. After [`Fault::Lost`] it may be there all the same: look for its name.
    pub async fn create(
        &self,
        key: &str,
        app: &str,
        definition: Sandbox,
        labels: &BTreeMap<String, String>,
    ) -> Result<Made> {
        let what = "making a sandbox";
        let gpus = definition.resources.as_ref().and_then(|wish| wish.gpu_config.as_ref());
        let made = if gpus.is_some_and(|gpus| gpus.count > 0) {
            let (app_id, definition, tags) = (app.to_owned(), Some(definition), tags(labels));
            let request =
                SandboxCreateRequest { app_id, definition, tags, ..SandboxCreateRequest::default() };
            let answer = self
                .call_named(what, MAKE, With::Token, key, request, |mut wire, request| async move {
                    wire.sandbox_create(request).await
                })
                .await?;
            Made { id: answer.sandbox_id, task: String::new(), access: None }
        } else {
            let request = SandboxCreateV2Request {
                app_id: app.to_owned(),
                definition: Some(definition),
                tags: tags(labels),
                ..SandboxCreateV2Request::default()
            };
            let answer = self
                .call_named(what, MAKE, With::Token, key, request, |mut wire, request| async move {
                    wire.sandbox_create_v2(request).await
                })
                .await?;
            self.sandbox_tokens().keep(&answer.sandbox_id, &answer.sandbox_token);
            Made { id: answer.sandbox_id, task: answer.task_id, access: answer.command_router_access }
        };
        match made.id.is_empty() {
            false => Ok(made),
            true => Err(ClientError::new(what, Fault::Malformed("the sandbox has no id".into()))),
        }
    }

    /// How it ended; `None` if it has not. Waits for its end for at most ten seconds.
    ///
    /// # Errors
    /// [`Code::NotFound`]: there is no such sandbox.
    pub async fn ended(&self, id: &str, wait: Duration) -> Result<Option<Ended>> {
        let timeout = wait.as_secs_f32().min(HELD);
        let request = SandboxWaitRequest { sandbox_id: id.to_owned(), timeout };
        let limit = if wait.is_zero() { USUAL } else { Duration::from_secs_f32(timeout) + MARGIN };
        let first = first(id);
        let answer = self
            .call(
                "looking at the sandbox",
                limit,
                With::Sandbox(id),
                request,
                |mut wire, request| async move {
                    match first {
                        true => wire.sandbox_wait(request).await,
                        false => wire.sandbox_wait_v2(request).await,
                    }
                },
            )
            .await?;
        Ok(Ended::of(answer.result))
    }

    /// Ends a sandbox. It may take a moment longer. If it is gone already, that is no error.
    ///
    /// # Errors
    /// As any call.
    pub async fn terminate(&self, id: &str) -> Result<()> {
        let request = SandboxTerminateRequest { sandbox_id: id.to_owned() };
        let first = first(id);
        let asked = self
            .call("ending the sandbox", USUAL, With::Sandbox(id), request, |mut wire, request| async move {
                match first {
                    true => wire.sandbox_terminate(request).await,
                    false => wire.sandbox_terminate_v2(request).await,
                }
            })
            .await;
        match asked {
            Ok(_) => Ok(()),
            Err(error) if error.code() == Some(Code::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The one of this name that runs, in an app.
    ///
    /// # Errors
    /// It can't be told.
    pub async fn by_name(&self, app: &str, name: &str) -> Result<Option<String>> {
        let (second, first) =
            tokio::join!(self.by_name_of(app, name, Kind::Second), self.by_name_of(app, name, Kind::First));
        Ok(second?.or(first?))
    }

    async fn by_name_of(&self, app: &str, name: &str, kind: Kind) -> Result<Option<String>> {
        let request = SandboxGetFromNameRequest {
            sandbox_name: name.to_owned(),
            environment_name: self.environment().to_owned(),
            app_name: app.to_owned(),
            include_terminated: false,
        };
        let asked = self
            .call("looking for the sandbox", USUAL, With::Token, request, |mut wire, request| async move {
                match kind {
                    Kind::First => wire.sandbox_get_from_name(request).await,
                    Kind::Second => wire.sandbox_get_from_name_v2(request).await,
                }
            })
            .await;
        match asked {
            Ok(answer) => Ok(Some(answer.sandbox_id).filter(|id| !id.is_empty())),
            Err(error) if error.code() == Some(Code::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All sandboxes of an app that have these tags and run.
    ///
    /// # Errors
    /// As any call.
    pub async fn list(
        &self,
        app: &str,
        labels: &BTreeMap<String, String>,
        finished: bool,
    ) -> Result<Vec<Listed>> {
        let mut all = self.list_of(app, labels, finished, Kind::Second).await?;
        all.extend(self.list_of(app, labels, finished, Kind::First).await?);
        Ok(all)
    }

    async fn list_of(
        &self,
        app: &str,
        labels: &BTreeMap<String, String>,
        finished: bool,
        kind: Kind,
    ) -> Result<Vec<Listed>> {
        let mut all: Vec<Listed> = Vec::new();
        let mut before = 0.0;
        for _ in 0..PAGES {
            let request = SandboxListRequest {
                app_id: app.to_owned(),
                before_timestamp: before,
                environment_name: self.environment().to_owned(),
                include_finished: finished,
                tags: tags(labels),
            };
            let page = self
                .call("listing sandboxes", USUAL, With::Token, request, |mut wire, request| async move {
                    match kind {
                        Kind::First => wire.sandbox_list(request).await,
                        Kind::Second => wire.sandbox_list_v2(request).await,
                    }
                })
                .await?;
            let known = all.len();
            for info in page.sandboxes {
                before = if before == 0.0 { info.created_at } else { info.created_at.min(before) };
                if all.iter().any(|other| other.id == info.id) {
                    continue;
                }
                let result = info.task_info.and_then(|task| task.result);
                all.push(Listed {
                    id: info.id,
                    name: info.name,
                    created_at: info.created_at,
                    tags: untagged(info.tags),
                    finished: Ended::of(result).is_some(),
                });
            }
            // The last page, or a server that goes round in circles.
            if all.len() == known {
                break;
            }
        }
        Ok(all)
    }

    /// # Errors
    /// [`Code::NotFound`]: there is no such sandbox.
    pub async fn tags(&self, id: &str) -> Result<BTreeMap<String, String>> {
        let request = SandboxTagsGetRequest { sandbox_id: id.to_owned() };
        let first = first(id);
        let answer = self
            .call(
                "reading the sandbox's tags",
                USUAL,
                With::Sandbox(id),
                request,
                |mut wire, request| async move {
                    match first {
                        true => wire.sandbox_tags_get(request).await,
                        false => wire.sandbox_tags_get_v2(request).await,
                    }
                },
            )
            .await?;
        Ok(untagged(answer.tags))
    }

    /// Replaces all tags.
    ///
    /// # Errors
    /// As any call.
    pub async fn set_tags(&self, id: &str, labels: &BTreeMap<String, String>) -> Result<()> {
        let request = SandboxTagsSetRequest {
            environment_name: self.environment().to_owned(),
            sandbox_id: id.to_owned(),
            tags: tags(labels),
        };
        let first = first(id);
        self.call(
            "setting the sandbox's tags",
            USUAL,
            With::Sandbox(id),
            request,
            |mut wire, request| async move {
                match first {
                    true => wire.sandbox_tags_set(request).await,
                    false => wire.sandbox_tags_set_v2(request).await,
                }
            },
        )
        .await
    }

    /// What was kept of a sandbox that ended. Waits for at most ten seconds.
    ///
    /// # Errors
    /// [`Code::NotFound`]: there is no such sandbox; [`Code::InvalidArgument`]: it was not made to be kept.
    pub async fn exit_snapshot(&self, id: &str, wait: Duration) -> Result<ExitSnapshot> {
        let timeout = wait.as_secs_f32().min(HELD);
        let request = SandboxGetExitSnapshotRequest { sandbox_id: id.to_owned(), timeout };
        let first = first(id);
        let limit = Duration::from_secs_f32(timeout) + MARGIN;
        let answer = self
            .call(
                "looking for what the sandbox left",
                limit,
                With::Sandbox(id),
                request,
                |mut wire, request| async move {
                    match first {
                        true => wire.sandbox_get_exit_snapshot(request).await,
                        false => wire.sandbox_get_exit_snapshot_v2(request).await,
                    }
                },
            )
            .await?;
        Ok(match answer.outcome {
            Some(Outcome::Success(success)) => ExitSnapshot::Image(success.image_id),
            Some(Outcome::Error(error)) => ExitSnapshot::None(
                format!("{} {}", error.error_code().as_str_name(), error.message).trim().to_owned(),
            ),
            Some(Outcome::Pending(_)) | None => ExitSnapshot::Pending,
        })
    }

    /// The task in which a sandbox runs. Waits for it for at most ten seconds.
    pub(crate) async fn task(&self, id: &str) -> Result<Begun> {
        let request = SandboxGetTaskIdRequest {
            sandbox_id: id.to_owned(),
            timeout: Some(HELD),
            ..SandboxGetTaskIdRequest::default()
        };
        let limit = Duration::from_secs_f32(HELD) + MARGIN;
        let first = first(id);
        let answer = self
            .call(
                "looking for the sandbox's task",
                limit,
                With::Sandbox(id),
                request,
                |mut wire, request| async move {
                    match first {
                        true => wire.sandbox_get_task_id(request).await,
                        false => wire.sandbox_get_task_id_v2(request).await,
                    }
                },
            )
            .await?;
        Ok(match (answer.task_id.filter(|id| !id.is_empty()), Ended::of(answer.task_result)) {
            (Some(task), _) => Begun::Task(task),
            (None, Some(ended)) => Begun::Never(ended),
            (None, None) => Begun::NotYet,
        })
    }

    /// The way to a sandbox's own server.
    pub(crate) async fn router_access(&self, id: &str, task: &str) -> Result<CommandRouterAccess> {
        let what = "asking for the way to the sandbox";
        if first(id) {
            let request = TaskGetCommandRouterAccessRequest { task_id: task.to_owned() };
            let answer = self
                .call(what, USUAL, With::Token, request, |mut wire, request| async move {
                    wire.task_get_command_router_access(request).await
                })
                .await?;
            return Ok(CommandRouterAccess { jwt: answer.jwt, url: answer.url });
        }
        let request = SandboxGetCommandRouterAccessRequest { target: Some(Target::SandboxId(id.to_owned())) };
        let answer = self
            .call(what, USUAL, With::Sandbox(id), request, |mut wire, request| async move {
                wire.sandbox_get_command_router_access(request).await
            })
            .await?;
        Ok(CommandRouterAccess { jwt: answer.jwt, url: answer.url })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_tells_the_kind_of_its_sandbox() {
        assert!(first("sb-0123456789abcdefABCDEF"));
        for second in
            ["sb-01KZYJMJX1M83V9JYSMVJ61XBJ", "sb-0123456789abcdefABCDE", "sb-", "", "0123456789abcdefABCDEF"]
        {
            assert!(!first(second), "{second}");
        }
    }
}
