//! Images: built, looked at, deleted.

use super::Reply;
use crate::images::{Image, State};
use crate::refuse;
use crate::world::World;
use farshell_modal_proto::client::*;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tonic::{Response, Status};

pub(super) fn get_or_create(
    world: &Arc<World>,
    wish: ImageGetOrCreateRequest,
) -> Reply<ImageGetOrCreateResponse> {
    let image = match wish.existing_image_id.as_str() {
        "" => {
            let recipe = wish.image.unwrap_or_default();
            world.images.get_or_build(world, recipe, wish.force_build || wish.ignore_cache)
        }
        id => world.images.find(id).ok_or_else(|| refuse::no_image(id))?,
    };
    // Unset means that one has to wait for it.
    let result = image.result();
    let metadata = result.as_ref().map(|_| image.metadata());
    let result = Some(result.unwrap_or_default());
    Ok(Response::new(ImageGetOrCreateResponse { image_id: image.id.clone(), result, metadata }))
}

/// What building says, and how it ended; after a while it breaks off, and clients ask again from there.
pub(super) fn join(
    world: &World,
    wish: &ImageJoinStreamingRequest,
) -> Reply<BoxStream<'static, Result<ImageJoinStreamingResponse, Status>>> {
    let image = world.images.find(&wish.image_id).ok_or_else(|| refuse::no_image(&wish.image_id))?;
    let seen: usize = wish.last_entry_id.parse().unwrap_or(0);
    let patience = Duration::try_from_secs_f32(wish.timeout).unwrap_or(Duration::from_secs(55));
    let all = stream::once(async move {
        let mut state = image.state.subscribe();
        let waiting = state.wait_for(|state| !matches!(state, State::Building));
        let _ = tokio::time::timeout(patience, waiting).await;
        stream::iter(entries(&image, seen).into_iter().map(Ok))
    });
    Ok(Response::new(all.flatten().boxed()))
}

fn entries(image: &Image, seen: usize) -> Vec<ImageJoinStreamingResponse> {
    let result = image.result();
    let lines = image.lines.lock().unwrap_or_else(PoisonError::into_inner);
    let mut all: Vec<_> = lines
        .iter()
        .enumerate()
        .skip(seen)
        .map(|(number, line)| ImageJoinStreamingResponse {
            task_logs: vec![TaskLogs {
                data: line.clone(),
                timestamp: crate::world::now(),
                file_descriptor: FileDescriptor::Stdout as i32,
            }],
            entry_id: (number + 1).to_string(),
            ..Default::default()
        })
        .collect();
    if result.is_some() {
        let metadata = Some(image.metadata());
        all.push(ImageJoinStreamingResponse { result, metadata, eof: true, ..Default::default() });
    }
    all
}

pub(super) fn from_id(world: &World, wish: ImageFromIdRequest) -> Reply<ImageFromIdResponse> {
    let image = world.images.find(&wish.image_id).ok_or_else(|| refuse::no_image(&wish.image_id))?;
    let metadata = Some(image.metadata());
    Ok(Response::new(ImageFromIdResponse { image_id: wish.image_id, metadata }))
}

/// Sandboxes that stand on it go on.
pub(super) fn delete(world: &World, wish: &ImageDeleteRequest) -> Reply<()> {
    match world.images.remove(&wish.image_id) {
        true => Ok(Response::new(())),
        false => Err(refuse::no_image(&wish.image_id)),
    }
}
