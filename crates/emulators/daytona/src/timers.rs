//! What happens to sandboxes that nobody uses: they are stopped, archived, deleted.

use crate::world::World;
use std::sync::Arc;
use std::time::Duration;

/// Works until it is dropped.
pub(crate) async fn run(world: Arc<World>) {
    let minute = world.options.minute;
    loop {
        tokio::time::sleep((minute / 20).clamp(Duration::from_millis(5), Duration::from_secs(1))).await;
        let span = |minutes: i64| minute * u32::try_from(minutes).unwrap_or(u32::MAX);
        let (mut stop, mut archive, mut delete) = (Vec::new(), Vec::new(), Vec::new());
        for sandbox in world.lock().values() {
            let id = || sandbox.id.clone();
            match sandbox.state {
                "started"
                    if sandbox.auto_stop > 0
                        && sandbox.last_activity.elapsed() >= span(sandbox.auto_stop) =>
                {
                    stop.push(id());
                }
                "stopped" | "archived"
                    if sandbox.auto_delete > 0 && sandbox.since.elapsed() >= span(sandbox.auto_delete) =>
                {
                    delete.push(id());
                }
                "stopped" if sandbox.since.elapsed() >= span(archive_after(sandbox.auto_archive)) => {
                    archive.push(id());
                }
                _ => {}
            }
        }
        stop.into_iter().for_each(|id| world.stop(id));
        archive.into_iter().for_each(|id| world.archive(id));
        delete.into_iter().for_each(|id| world.destroy(id));
    }
}

/// 0 means the longest there is.
fn archive_after(minutes: i64) -> i64 {
    if minutes <= 0 { 43_200 } else { minutes.min(43_200) }
}
