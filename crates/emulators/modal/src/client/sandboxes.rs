//! Sandboxes that are there: their ends, their lists, their snapshots.

use super::create::token;
use super::{FIRST, Reply, SECOND};
use crate::sandbox::{ExitSnapshot, Phase, Sandbox, result};
use crate::world::World;
use farshell_modal_proto::client::generic_result::GenericStatus;
use farshell_modal_proto::client::sandbox_get_exit_snapshot_response as exit;
use farshell_modal_proto::client::*;
use std::sync::Arc;
use std::time::Duration;
use tonic::{Response, Status};

/// As long as a call may wait, whatever it asks for.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

fn seconds(asked: f32) -> Duration {
    Duration::try_from_secs_f32(asked).unwrap_or(Duration::ZERO).min(LONGEST_WAIT)
}

pub(super) async fn task_id(
    world: &World,
    wish: SandboxGetTaskIdRequest,
    second: bool,
) -> Reply<SandboxGetTaskIdResponse> {
    let sandbox = world.sandbox(&wish.sandbox_id, second)?;
    // One of the first kind has no task before it runs.
    if !second {
        let mut phase = sandbox.phase.subscribe();
        let started = phase.wait_for(|phase| *phase != Phase::Starting);
        let _ = tokio::time::timeout(seconds(wish.timeout.unwrap_or(0.0)), started).await;
    }
    let known = second || sandbox.place.get().is_some();
    Ok(Response::new(SandboxGetTaskIdResponse {
        task_id: known.then(|| sandbox.task.clone()),
        task_result: sandbox.result(),
    }))
}

fn access(world: &World, sandbox: &Sandbox) -> Result<(String, String), Status> {
    match sandbox.result() {
        Some(_) => Err(Status::failed_precondition(format!("Sandbox {} has already completed", sandbox.id))),
        None => Ok((token(world, sandbox), world.router.borrow().clone())),
    }
}

fn with_task(world: &World, id: &str, second: bool) -> Result<Arc<Sandbox>, Status> {
    let book = world.book();
    let found = book.sandboxes.iter().find(|sandbox| sandbox.task == id && sandbox.second == second);
    found.cloned().ok_or_else(|| crate::refuse::no_task(id))
}

pub(super) fn access_second(
    world: &World,
    wish: SandboxGetCommandRouterAccessRequest,
) -> Reply<SandboxGetCommandRouterAccessResponse> {
    use sandbox_get_command_router_access_request::Target;
    let sandbox = match wish.target {
        Some(Target::SandboxId(id)) => world.sandbox(&id, SECOND)?,
        Some(Target::TaskId(id)) => with_task(world, &id, SECOND)?,
        None => return Err(Status::invalid_argument("sandbox_id or task_id is needed")),
    };
    let (jwt, url) = access(world, &sandbox)?;
    Ok(Response::new(SandboxGetCommandRouterAccessResponse { jwt, url }))
}

pub(super) fn access_first(
    world: &World,
    wish: &TaskGetCommandRouterAccessRequest,
) -> Reply<TaskGetCommandRouterAccessResponse> {
    let sandbox = with_task(world, &wish.task_id, FIRST)?;
    let (jwt, url) = access(world, &sandbox)?;
    Ok(Response::new(TaskGetCommandRouterAccessResponse { jwt, url }))
}

/// A result only once it has ended; for that one waits as long as is asked for.
pub(super) async fn wait(
    world: &World,
    wish: SandboxWaitRequest,
    second: bool,
) -> Reply<SandboxWaitResponse> {
    let sandbox = world.sandbox(&wish.sandbox_id, second)?;
    let mut phase = sandbox.phase.subscribe();
    let ended = phase.wait_for(|phase| matches!(phase, Phase::Ended(_)));
    let _ = tokio::time::timeout(seconds(wish.timeout), ended).await;
    Ok(Response::new(SandboxWaitResponse { result: sandbox.result(), metadata: Some(sandbox.metadata()) }))
}

pub(super) fn terminate(
    world: &World,
    wish: &SandboxTerminateRequest,
    second: bool,
) -> Reply<SandboxTerminateResponse> {
    let sandbox = world.sandbox(&wish.sandbox_id, second)?;
    let existing_result = sandbox.result();
    sandbox.want(result(GenericStatus::Terminated, 137, ""));
    Ok(Response::new(SandboxTerminateResponse { existing_result }))
}

/// The newest first; a page at a time, going on before the last of the page.
pub(super) fn list(world: &World, wish: &SandboxListRequest, second: bool) -> Reply<SandboxListResponse> {
    let before = if wish.before_timestamp > 0.0 { wish.before_timestamp } else { f64::INFINITY };
    let all: Vec<Arc<Sandbox>> = world.book().sandboxes.clone();
    let sandboxes = all
        .iter()
        .rev()
        .filter(|one| one.second == second && one.created < before)
        .filter(|one| wish.app_id.is_empty() || one.app == wish.app_id)
        .filter(|one| wish.include_finished || one.result().is_none())
        .filter(|one| {
            let tags = one.tags();
            wish.tags.iter().all(|tag| tags.contains(tag))
        })
        .take(world.options.page)
        .map(|one| one.info())
        .collect();
    Ok(Response::new(SandboxListResponse { sandboxes }))
}

pub(super) fn tags(
    world: &World,
    wish: &SandboxTagsGetRequest,
    second: bool,
) -> Reply<SandboxTagsGetResponse> {
    let tags = world.sandbox(&wish.sandbox_id, second)?.tags();
    Ok(Response::new(SandboxTagsGetResponse { tags }))
}

/// All at once: those that are not named are gone.
pub(super) fn set_tags(world: &World, wish: SandboxTagsSetRequest, second: bool) -> Reply<()> {
    world.sandbox(&wish.sandbox_id, second)?.set_tags(wish.tags);
    Ok(Response::new(()))
}

pub(super) fn from_name(
    world: &World,
    wish: &SandboxGetFromNameRequest,
    second: bool,
) -> Reply<SandboxGetFromNameResponse> {
    let book = world.book();
    let app = book.apps.get(&wish.app_name).cloned();
    let found = book.sandboxes.iter().rev().find(|one| {
        one.second == second
            && Some(&one.app) == app.as_ref()
            && one.definition.name.as_deref() == Some(&wish.sandbox_name)
            && (wish.include_terminated || one.result().is_none())
    });
    match found {
        Some(one) => Ok(Response::new(SandboxGetFromNameResponse {
            sandbox_id: one.id.clone(),
            metadata: Some(one.metadata()),
        })),
        None => Err(Status::not_found(format!(
            "Sandbox with name '{}' not found in app '{}'",
            wish.sandbox_name, wish.app_name
        ))),
    }
}

pub(super) async fn exit_snapshot(
    world: &World,
    wish: SandboxGetExitSnapshotRequest,
    second: bool,
) -> Reply<SandboxGetExitSnapshotResponse> {
    let sandbox = world.sandbox(&wish.sandbox_id, second)?;
    let mut state = sandbox.exit_snapshot.subscribe();
    let waiting = state.wait_for(|state| *state != ExitSnapshot::Pending);
    let patience = seconds(wish.timeout).min(Duration::from_secs(10));
    let now = match tokio::time::timeout(patience, waiting).await {
        Ok(Ok(state)) => state.clone(),
        _ => ExitSnapshot::Pending,
    };
    let outcome = match now {
        ExitSnapshot::Off => {
            return Err(Status::invalid_argument(format!(
                "Exit snapshots are not enabled for Sandbox {}",
                sandbox.id
            )));
        }
        ExitSnapshot::Pending => exit::Outcome::Pending(exit::Pending {}),
        ExitSnapshot::Taken(image_id) => exit::Outcome::Success(exit::Success { image_id }),
        ExitSnapshot::Failed(message) => {
            exit::Outcome::Error(exit::Error { error_code: exit::ErrorCode::Internal as i32, message })
        }
    };
    Ok(Response::new(SandboxGetExitSnapshotResponse { outcome: Some(outcome) }))
}

/// Of the first kind: it lasts for ever.
pub(super) async fn snapshot(
    world: &Arc<World>,
    wish: SandboxSnapshotFsRequest,
) -> Reply<SandboxSnapshotFsResponse> {
    let sandbox = world.sandbox(&wish.sandbox_id, FIRST)?;
    sandbox
        .place()
        .await
        .map_err(|_| Status::failed_precondition(format!("Sandbox {} has already completed", sandbox.id)))?;
    let taken = world.snapshot(&sandbox, None).await;
    let (image_id, outcome) = match taken {
        Ok(id) => (id, result(GenericStatus::Success, 0, "")),
        Err(error) => (String::new(), result(GenericStatus::InternalFailure, 1, &error.to_string())),
    };
    let image_metadata = world.images.find(&image_id).map(|image| image.metadata());
    Ok(Response::new(SandboxSnapshotFsResponse { image_id, result: Some(outcome), image_metadata }))
}
