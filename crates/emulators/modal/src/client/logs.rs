//! Input and output of the entrypoint, for sandboxes of the first kind.

use super::{FIRST, Reply};
use crate::process::Wrote;
use crate::world::World;
use farshell_modal_proto::client::*;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use std::time::Duration;
use tokio::time::Instant;
use tonic::{Response, Status};

/// Entries are named by the offset that they end at. When the time is up it breaks off without an end.
pub(super) async fn read(
    world: &World,
    wish: SandboxGetLogsRequest,
) -> Reply<BoxStream<'static, Result<TaskLogsBatch, Status>>> {
    let sandbox = world.sandbox(&wish.sandbox_id, FIRST)?;
    let descriptor = wish.file_descriptor();
    let patience = Duration::try_from_secs_f32(wish.timeout).unwrap_or(Duration::from_secs(55));
    let until = Instant::now() + patience.min(Duration::from_secs(600));
    let offset: u64 = wish.last_entry_id.parse().unwrap_or(0);
    let log = async move {
        let mut phase = sandbox.phase.subscribe();
        let _ = phase.wait_for(|phase| *phase != crate::sandbox::Phase::Starting).await;
        let main = sandbox.place.get().and_then(|place| place.main.clone());
        let log = main.map(|main| match descriptor {
            FileDescriptor::Stderr => main.stderr.clone(),
            _ => main.stdout.clone(),
        });
        match log {
            Some(log) => log,
            // Without an entrypoint there is nothing to read until it ends.
            None => {
                let ended = |phase: &crate::sandbox::Phase| matches!(phase, crate::sandbox::Phase::Ended(_));
                let _ = phase.wait_for(ended).await;
                crate::log::Log::empty().into()
            }
        }
    };
    let Ok(log) = tokio::time::timeout_at(until, log).await else {
        return Ok(Response::new(stream::empty().boxed()));
    };
    let all = stream::unfold(Some(offset), move |at| {
        let log = log.clone();
        async move {
            let at = at?;
            match tokio::time::timeout_at(until, log.read(at, u64::MAX)).await {
                Err(_) => None,
                Ok(Err(error)) => Some((Err(Status::internal(error.to_string())), None)),
                Ok(Ok(None)) => Some((Ok(TaskLogsBatch { eof: true, ..Default::default() }), None)),
                Ok(Ok(Some(bytes))) => {
                    let whole = whole(&bytes);
                    let at = at + whole as u64;
                    let item = TaskLogs {
                        data: String::from_utf8_lossy(&bytes[..whole]).into_owned(),
                        timestamp: crate::world::now(),
                        file_descriptor: descriptor as i32,
                    };
                    let batch =
                        TaskLogsBatch { items: vec![item], entry_id: at.to_string(), ..Default::default() };
                    Some((Ok(batch), Some(at)))
                }
            }
        }
    });
    Ok(Response::new(all.boxed()))
}

/// How much of it can be text: a character that has only begun waits for its rest, unless nothing else is there.
fn whole(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => error.valid_up_to(),
        _ => bytes.len(),
    }
}

/// Messages are counted, not bytes.
pub(super) async fn write(world: &World, wish: SandboxStdinWriteRequest) -> Reply<SandboxStdinWriteResponse> {
    let sandbox = world.sandbox(&wish.sandbox_id, FIRST)?;
    sandbox.touch();
    let place = sandbox.place().await?;
    let main = place.main.as_ref().ok_or_else(|| Status::failed_precondition("there is no entrypoint"))?;
    match main.write_message(u64::from(wish.index), &wish.input, wish.eof).await {
        Wrote::All => Ok(Response::new(SandboxStdinWriteResponse {})),
        Wrote::Gap(seen) => Err(Status::failed_precondition(format!("the last index was {seen}"))),
        Wrote::Closed | Wrote::Evicted => Err(Status::failed_precondition("the sandbox's stdin is closed")),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_character_is_cut() {
        assert_eq!(super::whole("aé".as_bytes()), 3);
        assert_eq!(super::whole(&"aé".as_bytes()[..2]), 1);
        assert_eq!(super::whole(b"a\xffb"), 3);
        assert_eq!(super::whole(&"é".as_bytes()[..1]), 1);
    }
}
