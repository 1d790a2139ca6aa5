//! One file: is it there already, can an earlier attempt be gone on with, and if not, all of it.

use super::side::{Manner, Result, error};
use super::tally::add;
use super::work::{Item, Work};
use farshell_api::ApiError;
use farshell_api::file::{FileEntry, FileKind};
use farshell_beneath::part_name;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// A file of this size or more keeps what has come of it if it is cut off. Smaller ones are sent again in the time in
/// which two hashes are compared.
const LARGE: u64 = 4 << 20;
/// Pauses before what failed on the way is tried again: over a minute in all, which a host needs to restart its
/// daemon, and a laptop to find its network.
const PAUSES: [u64; 9] = [50, 200, 1000, 2000, 5000, 10_000, 15_000, 20_000, 20_000];
/// How often a file that changes while it is copied is begun anew.
const CHANGES: u32 = 3;

/// Whether another attempt may succeed. What is done here can be done twice, so it does not matter whether it was done.
pub(super) fn is_passing(error: &ApiError) -> bool {
    matches!(error.kind.as_str(), "disconnected" | "unknown_outcome" | "timed_out" | "busy")
}

/// Does something that can be done twice until it succeeds, or there is no hope.
pub(super) async fn persist<T, F: Future<Output = Result<T>>>(mut attempt: impl FnMut() -> F) -> Result<T> {
    for pause in PAUSES {
        match attempt().await {
            Err(error) if is_passing(&error) => tokio::time::sleep(Duration::from_millis(pause)).await,
            other => return other,
        }
    }
    attempt().await
}

/// Whether the target is what the source is. Its mode and time are made so.
pub(super) async fn same_file(work: &Work, item: &Item, source: &FileEntry) -> Result<bool> {
    let Some(target) = &item.target else { return Ok(false) };
    if target.kind != FileKind::File || target.size != source.size {
        return Ok(false);
    }
    let same = match work.options.checksum {
        false => same_time(source.mtime_ns, target.mtime_ns),
        true => {
            let pair = &item.pair;
            let (ours, theirs) = tokio::join!(
                persist(|| pair.from.hash(&item.from, source.size)),
                persist(|| pair.to.hash(&item.to, source.size))
            );
            // A target that can't be read can be replaced.
            matches!((ours?, theirs), (ours, Ok(theirs)) if ours == theirs)
        }
    };
    if !same {
        return Ok(false);
    }
    let same_mode = target.mode & 0o1777 == source.mode & 0o1777;
    if !same_mode || !same_time(source.mtime_ns, target.mtime_ns) {
        persist(|| item.pair.to.set(&item.to, source.mode, source.mtime_ns)).await?;
    }
    Ok(true)
}

/// File systems know times to the nanosecond, to the microsecond, or to the second.
fn same_time(a: i64, b: i64) -> bool {
    [1_i64, 1_000, 1_000_000_000].iter().any(|unit| {
        let rounded = a % unit == 0 || b % unit == 0 || *unit == 1;
        rounded && a.div_euclid(*unit) == b.div_euclid(*unit)
    })
}

/// Copies a file, however often the way is lost.
pub(super) async fn copy_file(work: &Work, item: &Item, source: &FileEntry) -> Result<()> {
    let mut source = source.clone();
    let mut changes = 0;
    let mut part = item.part;
    let mut alone = false;
    let mut cut = false;
    let mut pauses = PAUSES.iter();
    loop {
        let error = match attempt(work, item, &source, part, alone).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        match error.kind.as_str() {
            // An attempt of ours that was cut off: the other side has not noticed yet.
            "busy" if cut && pauses.len() > 0 => pause(&mut pauses, error).await?,
            // Somebody else copies the same file. Whoever is last has the last word.
            "busy" if !alone && source.size >= LARGE => alone = true,
            // What is cut off may be a way that is lost, or a file that changed.
            "stale" | "disconnected" | "unknown_outcome" => {
                cut |= error.kind != "stale";
                let now = persist(|| item.pair.from.look(&item.from)).await?;
                let Some(now) = now.filter(|now| now.kind == FileKind::File) else { return Err(error) };
                if (now.size, now.mtime_ns) != (source.size, source.mtime_ns) {
                    changes += 1;
                    if changes > CHANGES {
                        return Err(stale());
                    }
                    source = now;
                } else if error.kind == "stale" && changes > CHANGES {
                    return Err(error);
                } else {
                    changes += u32::from(error.kind == "stale");
                    pause(&mut pauses, error).await?;
                }
            }
            _ if is_passing(&error) => pause(&mut pauses, error).await?,
            _ => return Err(error),
        }
        if source.size >= LARGE {
            let at = part_of(&item.to);
            part = persist(|| item.pair.to.look(&at)).await?.map(|part| part.size);
        }
    }
}

fn stale() -> ApiError {
    let mut failed = error("stale", "copying", "it changes faster than it can be copied");
    failed.hint = Some("copy it again when nobody writes it".into());
    failed
}

async fn pause(pauses: &mut std::slice::Iter<'_, u64>, error: ApiError) -> Result<()> {
    let Some(pause) = pauses.next() else { return Err(error) };
    tokio::time::sleep(Duration::from_millis(*pause)).await;
    Ok(())
}

/// Where what is not finished of a file is.
fn part_of(path: &[u8]) -> Vec<u8> {
    let at = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    [&path[..at], part_name(&path[at..]).as_bytes()].concat()
}

async fn attempt(work: &Work, item: &Item, source: &FileEntry, part: Option<u64>, alone: bool) -> Result<()> {
    let (pair, tally) = (&item.pair, &work.tally);
    let mut offset = 0;
    let resumable = source.size >= LARGE && !alone;
    if let Some(size) = part.filter(|size| resumable && *size > 0 && *size <= source.size) {
        let at = part_of(&item.to);
        let (ours, theirs) = tokio::join!(pair.from.hash(&item.from, size), pair.to.hash(&at, size));
        // What can't be compared is not gone on with.
        if matches!((&ours, &theirs), (Ok(ours), Ok(theirs)) if ours == theirs && ours.1 == size) {
            offset = size;
        }
    }
    let manner = Manner { mode: source.mode, mtime_ns: source.mtime_ns, part: resumable.then_some(offset) };
    let mut from = pair.from.read(&item.from, offset, source).await?;
    let mut to = pair.to.put(&item.to, manner).await?;
    let mut progress = Reached { tally, bytes: 0 };
    progress.reach(offset);
    while let Some(piece) = from.next().await? {
        let len = piece.len() as u64;
        to.push(piece).await?;
        progress.reach(len);
        add(&tally.bytes, len);
    }
    if progress.bytes != source.size {
        return Err(error("stale", "copying", "it has not the size any more that it had"));
    }
    to.finish().await?;
    add(&tally.resumed, offset);
    progress.bytes = 0;
    Ok(())
}

/// What an attempt has reached, taken back if it fails.
struct Reached<'a> {
    tally: &'a super::tally::Tally,
    bytes: u64,
}

impl Reached<'_> {
    fn reach(&mut self, bytes: u64) {
        self.bytes += bytes;
        add(&self.tally.done_bytes, bytes);
    }
}

impl Drop for Reached<'_> {
    fn drop(&mut self) {
        self.tally.done_bytes.fetch_sub(self.bytes, std::sync::atomic::Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_a_file_system_has_rounded_are_the_same() {
        assert!(same_time(1_700_000_000_123_456_789, 1_700_000_000_123_456_789));
        assert!(same_time(1_700_000_000_123_456_789, 1_700_000_000_123_456_000));
        assert!(same_time(1_700_000_000_000_000_000, 1_700_000_000_123_456_789));
        assert!(!same_time(1_700_000_000_123_456_788, 1_700_000_000_123_456_789));
        assert!(!same_time(1_700_000_001_000_000_000, 1_700_000_000_999_999_999));
        assert!(same_time(-1_000_000_000, -1));
    }

    #[test]
    fn a_part_is_beside_its_file() {
        assert!(part_of(b"a/b/c").starts_with(b"a/b/.farshell-part-"));
        assert!(part_of(b"c").starts_with(b".farshell-part-"));
        assert_ne!(part_of(b"c"), part_of(b"d"));
    }
}
