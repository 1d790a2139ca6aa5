//! Search, on the libraries that ripgrep is made of.
//!
//! The calling thread walks the tree in order of names and cuts what it finds into numbered batches. Helper
//! threads search the batches in whatever order they come to them. The calling thread gives out the results in
//! the order of the numbers, so that the same tree gives the same answer each time, results stream while the
//! search goes on, and a search with a limit ends as soon as the limit is reached.
//!
//! | file | owns |
//! |---|---|
//! | `plan` | what was asked for, checked: the regular expression, the globs, the walk |
//! | `pool` | batches, helpers, and the bound on results that wait for their turn |
//! | `content` | one file: which lines match |
//! | `output` | limits, caps, events |
//!
//! The libraries' own parallel walk is not used: it gives no order, and it panics where no thread can be made,
//! which in a place with few processes left would end the outpost and all that runs in it. Here a search that
//! gets no helper does the work itself.

mod content;
mod output;
mod plan;
mod pool;

use super::failure::{failed, invalid};
use super::path::Named;
use super::stat::{it_is, kind};
use super::{Call, Context, Gone};
use farshell_protocol::Failure;
use farshell_protocol::file::{FileReply, FileType, Search, Searched};
use output::{Next, Output};
use plan::{Plan, Task};
use pool::{Batch, Pool};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Bytes of results that one search gives, and that wait at one time for their turn to be given.
const MAX_RESULT_BYTES: usize = 16 << 20;
/// Files in a batch, once a search has shown to be a long one.
const BATCH_FILES: u64 = 64;
/// Batches of the same size before the next are one file bigger: the first are small, so that a few big files
/// are searched side by side.
const BATCH_GROWTH: u64 = 8;
/// Batches that are open at one time, for each helper.
const WINDOW: u64 = 8;
/// More would not help: helpers wait for the same disk, and others work in the place too.
const MAX_HELPERS: usize = 8;
/// How long a caller that has gone can stay unnoticed.
const LOOK: Duration = Duration::from_millis(20);
const MAX_ERRORS: usize = 20;

pub(super) fn serve(context: &Context, search: &Search, call: &mut dyn Call) -> Result<FileReply, Failure> {
    let named = Named::new(context, &search.path)?;
    let path = named.path.as_path();
    let stat = rustix::fs::stat(path).map_err(|error| failed("search", path, error))?;
    let mut plan = Plan::new(search, path)?;
    if kind(&stat) == FileType::File
        && let Task::Content(content) = &mut plan.task
    {
        content.tell_binary();
    }
    let walk: Box<dyn Iterator<Item = Result<PathBuf, String>>> = match kind(&stat) {
        FileType::Dir => Box::new(plan.walk(path)),
        FileType::File if named.slash => return Err(failed("search", path, rustix::io::Errno::NOTDIR)),
        // A file that was named outright is searched whatever the globs and ignore files say.
        FileType::File => Box::new(std::iter::once(Ok(path.to_owned()))),
        other => return Err(invalid("search", path, it_is(other))),
    };
    let helpers =
        rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count() as usize).clamp(1, MAX_HELPERS);
    let deadline =
        search.timeout_ms.and_then(|timeout| Instant::now().checked_add(Duration::from_millis(timeout)));
    let searched = run(&plan, walk, Terms { helpers, deadline }, call)?;
    Ok(FileReply::Searched(searched))
}

#[derive(Clone, Copy)]
struct Terms {
    helpers: usize,
    deadline: Option<Instant>,
}

fn run(
    plan: &Plan,
    mut walk: Box<dyn Iterator<Item = Result<PathBuf, String>> + '_>,
    terms: Terms,
    call: &mut dyn Call,
) -> Result<Searched, Gone> {
    let pool = Pool::new(plan, terms.deadline);
    let mut output = Output::new(plan);
    std::thread::scope(|scope| {
        // Whichever way this ends, the helpers must end with it, or the scope would wait for them for ever.
        let _closer = pool.closer();
        let mut helpers = 0;
        let mut made = 0;
        let mut given = 0;
        let mut walking = true;
        loop {
            if call.cancelled() {
                return Err(Gone);
            }
            if terms.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                output.searched.timed_out = true;
                break;
            }
            while let Some(done) = pool.take(given) {
                given += 1;
                if output.give(done, call)? == Next::Stop {
                    return output.finish(call);
                }
            }
            if walking && made < given + WINDOW * (helpers as u64).max(1) {
                let files = (1 + made / BATCH_GROWTH).min(BATCH_FILES);
                let (batch, more) = next_batch(&mut *walk, made, files, &mut output);
                walking = more;
                // One more for each batch until there are enough: a small search needs no threads.
                if helpers < terms.helpers
                    && std::thread::Builder::new().spawn_scoped(scope, || pool.help()).is_ok()
                {
                    helpers += 1;
                }
                made += 1;
                if helpers == 0 {
                    pool.work_off(batch);
                } else {
                    pool.push(batch);
                }
            } else if given < made {
                pool.wait(given, LOOK);
            } else if !walking {
                return output.finish(call);
            }
        }
        // Out of time: what was found counts, also where an earlier batch is missing.
        pool.stop();
        for done in pool.drain() {
            if output.give(done, call)? == Next::Stop {
                break;
            }
        }
        output.finish(call)
    })
}

/// The next files of the walk, and whether there may be more.
fn next_batch(
    walk: &mut dyn Iterator<Item = Result<PathBuf, String>>,
    number: u64,
    files: u64,
    output: &mut Output<'_>,
) -> (Batch, bool) {
    let mut batch = Batch { number, files: Vec::new() };
    while (batch.files.len() as u64) < files {
        match walk.next() {
            Some(Ok(path)) => batch.files.push(path),
            Some(Err(error)) => output.error(error),
            None => return (batch, false),
        }
    }
    (batch, true)
}

#[cfg(test)]
mod tests;
