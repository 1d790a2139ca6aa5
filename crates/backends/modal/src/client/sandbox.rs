//! Sandboxes: made, found, looked at, ended. Always of the second kind, whose calls end in `V2`.

use super::error::{ClientError, Fault, Result};
use super::{Client, Code, USUAL, With};
use farshell_modal_proto::client::generic_result::GenericStatus;
use farshell_modal_proto::client::sandbox_get_command_router_access_request::Target;
use farshell_modal_proto::client::sandbox_get_exit_snapshot_response::Outcome;
use farshell_modal_proto::client::{
    CommandRouterAccess, GenericResult, Sandbox, SandboxCreateV2Request,
    SandboxGetCommandRouterAccessRequest, SandboxGetExitSnapshotRequest, SandboxGetFromNameRequest,
    SandboxGetTaskIdRequest, SandboxListRequest, SandboxTag, SandboxTagsGetRequest, SandboxTagsSetRequest,
    SandboxTerminateRequest, SandboxWaitRequest,
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

fn tags(all: &BTreeMap<String, String>) -> Vec<SandboxTag> {
    all.iter().map(|(name, value)| SandboxTag { tag_name: name.clone(), tag_value: value.clone() }).collect()
}

fn untagged(all: Vec<SandboxTag>) -> BTreeMap<String, String> {
    all.into_iter().map(|tag| (tag.tag_name, tag.tag_value)).collect()
}

impl Client {
    /// Makes a sandbox, once for each `key`.
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
        if answer.sandbox_id.is_empty() {
            return Err(ClientError::new(what, Fault::Malformed("the sandbox has no id".into())));
        }
        Ok(Made { id: answer.sandbox_id, task: answer.task_id, access: answer.command_router_access })
    }

    /// How it ended; `None` if it has not. Waits for its end for at most ten seconds.
    ///
    /// # Errors
    /// [`Code::NotFound`]: there is no such sandbox.
    pub async fn ended(&self, id: &str, wait: Duration) -> Result<Option<Ended>> {
        let timeout = wait.as_secs_f32().min(HELD);
        let request = SandboxWaitRequest { sandbox_id: id.to_owned(), timeout };
        let limit = if wait.is_zero() { USUAL } else { Duration::from_secs_f32(timeout) + MARGIN };
        let answer = self
            .call("looking at the sandbox", limit, With::Token, request, |mut wire, request| async move {
                wire.sandbox_wait_v2(request).await
            })
            .await?;
        Ok(Ended::of(answer.result))
    }

    /// Ends a sandbox. It may take a moment longer. If it is gone already, that is no error.
    ///
    /// # Errors
    /// As any call.
    pub async fn terminate(&self, id: &str) -> Result<()> {
        let request = SandboxTerminateRequest { sandbox_id: id.to_owned() };
        let asked = self
            .call("ending the sandbox", USUAL, With::Token, request, |mut wire, request| async move {
                wire.sandbox_terminate_v2(request).await
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
        let request = SandboxGetFromNameRequest {
            sandbox_name: name.to_owned(),
            environment_name: self.environment().to_owned(),
            app_name: app.to_owned(),
            include_terminated: false,
        };
        let asked = self
            .call("looking for the sandbox", USUAL, With::Token, request, |mut wire, request| async move {
                wire.sandbox_get_from_name_v2(request).await
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
                    wire.sandbox_list_v2(request).await
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
        let answer = self
            .call("reading the sandbox's tags", USUAL, With::Token, request, |mut wire, request| async move {
                wire.sandbox_tags_get_v2(request).await
            })
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
        self.call("setting the sandbox's tags", USUAL, With::Token, request, |mut wire, request| async move {
            wire.sandbox_tags_set_v2(request).await
        })
        .await
    }

    /// What was kept of a sandbox that ended. Waits for at most ten seconds.
    ///
    /// # Errors
    /// [`Code::NotFound`]: there is no such sandbox; [`Code::InvalidArgument`]: it was not made to be kept.
    pub async fn exit_snapshot(&self, id: &str, wait: Duration) -> Result<ExitSnapshot> {
        let timeout = wait.as_secs_f32().min(HELD);
        let request = SandboxGetExitSnapshotRequest { sandbox_id: id.to_owned(), timeout };
        let limit = Duration::from_secs_f32(timeout) + MARGIN;
        let answer = self
            .call(
                "looking for what the sandbox left",
                limit,
                With::Token,
                request,
                |mut wire, request| async move { wire.sandbox_get_exit_snapshot_v2(request).await },
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

    /// The task in which a sandbox runs; `None` if it does not run yet, or no more.
    pub(crate) async fn task(&self, id: &str) -> Result<Option<String>> {
        let request = SandboxGetTaskIdRequest {
            sandbox_id: id.to_owned(),
            timeout: Some(HELD),
            ..SandboxGetTaskIdRequest::default()
        };
        let limit = Duration::from_secs_f32(HELD) + MARGIN;
        let answer = self
            .call(
                "looking for the sandbox's task",
                limit,
                With::Token,
                request,
                |mut wire, request| async move { wire.sandbox_get_task_id_v2(request).await },
            )
            .await?;
        Ok(answer.task_id.filter(|id| !id.is_empty()))
    }

    /// The way to a sandbox's own server.
    pub(crate) async fn router_access(&self, id: &str) -> Result<CommandRouterAccess> {
        let request = SandboxGetCommandRouterAccessRequest { target: Some(Target::SandboxId(id.to_owned())) };
        let answer = self
            .call(
                "asking for the way to the sandbox",
                USUAL,
                With::Token,
                request,
                |mut wire, request| async move { wire.sandbox_get_command_router_access(request).await },
            )
            .await?;
        Ok(CommandRouterAccess { jwt: answer.jwt, url: answer.url })
    }
}
