//! Limits, caps and events.

use super::super::{Call, EVENT_BYTES, Gone};
use super::content::{Finding, LINE_BYTES};
use super::plan::{Plan, Task};
use super::pool::Done;
use super::{MAX_ERRORS, MAX_RESULT_BYTES};
use farshell_protocol::file::{FileEvent, Found, Line, Searched};
use serde_bytes::ByteBuf;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Encoded size of a found file without its path.
const FOUND_BYTES: usize = 48;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    GoOn,
    /// Nothing more can be given.
    Stop,
}

/// Gives out what is found, as far as it may.
pub(super) struct Output<'a> {
    plan: &'a Plan,
    pub(super) searched: Searched,
    /// Results given: lines or files.
    given: u64,
    bytes: usize,
    files: Vec<Found>,
    counts: Vec<(ByteBuf, u64)>,
    /// Encoded bytes in `files` or `counts`.
    waiting: usize,
    newest: Newest,
}

impl<'a> Output<'a> {
    pub(super) fn new(plan: &'a Plan) -> Self {
        Self {
            plan,
            searched: Searched::default(),
            given: 0,
            bytes: 0,
            files: Vec::new(),
            counts: Vec::new(),
            waiting: 0,
            newest: Newest::new(plan.limit),
        }
    }

    pub(super) fn error(&mut self, error: String) {
        if self.searched.errors.len() < MAX_ERRORS {
            self.searched.errors.push(error);
        }
    }

    pub(super) fn give(&mut self, done: Done, call: &mut dyn Call) -> Result<Next, Gone> {
        self.searched.files += done.searched;
        for error in done.errors {
            self.error(error);
        }
        for (path, finding) in done.found {
            let finding = match (finding, &self.plan.task) {
                (Finding::File(found), Task::Names) => {
                    self.newest.add(found);
                    continue;
                }
                (finding, _) => finding,
            };
            // Only here, when there is one more, is it known that the limit cut something off.
            if self.given >= self.plan.limit || self.bytes >= MAX_RESULT_BYTES {
                self.searched.truncated = true;
                return Ok(Next::Stop);
            }
            match finding {
                Finding::Lines(lines) => self.lines(&path, lines, call)?,
                Finding::Count(count) => {
                    self.given += 1;
                    self.searched.matches += count;
                    let path = ByteBuf::from(path.as_os_str().as_bytes());
                    self.account(path.len());
                    self.counts.push((path, count));
                }
                Finding::File(found) => {
                    self.given += 1;
                    self.searched.matches += 1;
                    self.account(found.path.len());
                    self.files.push(found);
                }
            }
            if self.waiting >= EVENT_BYTES {
                self.flush(call)?;
            }
            if self.searched.truncated {
                return Ok(Next::Stop);
            }
        }
        if done.full {
            self.searched.truncated = true;
            return Ok(Next::Stop);
        }
        Ok(Next::GoOn)
    }

    /// Gives what still waits.
    pub(super) fn finish(mut self, call: &mut dyn Call) -> Result<Searched, Gone> {
        if matches!(self.plan.task, Task::Names) {
            let (found, truncated) = std::mem::replace(&mut self.newest, Newest::new(0)).finish();
            self.searched.truncated |= truncated;
            self.searched.matches = found.len() as u64;
            for found in found {
                self.account(found.path.len());
                self.files.push(found);
                if self.waiting >= EVENT_BYTES {
                    self.flush(call)?;
                }
            }
        }
        self.flush(call)?;
        Ok(self.searched)
    }

    fn account(&mut self, path: usize) {
        self.bytes += path + FOUND_BYTES;
        self.waiting += path + FOUND_BYTES;
    }

    fn flush(&mut self, call: &mut dyn Call) -> Result<(), Gone> {
        self.waiting = 0;
        if !self.files.is_empty() {
            call.event(FileEvent::Files(std::mem::take(&mut self.files)))?;
        }
        if !self.counts.is_empty() {
            call.event(FileEvent::Counts(std::mem::take(&mut self.counts)))?;
        }
        Ok(())
    }

    /// The lines of one file, up to the limit and what stands around the last of them.
    fn lines(&mut self, path: &Path, lines: Vec<Line>, call: &mut dyn Call) -> Result<(), Gone> {
        let path = ByteBuf::from(path.as_os_str().as_bytes());
        let mut event = Vec::new();
        let mut size = path.len();
        let mut last = 0;
        for line in lines {
            let enough = self.given >= self.plan.limit || self.bytes >= MAX_RESULT_BYTES;
            if line.matched {
                if enough {
                    self.searched.truncated = true;
                    break;
                }
                self.given += 1;
                self.searched.matches += 1;
                last = line.number;
            } else if enough && line.number > last + self.plan.context {
                // It leads to a match that will not be given; go on to see that there is one.
                continue;
            }
            let bytes = line.text.len() + LINE_BYTES;
            self.bytes += bytes;
            size += bytes;
            event.push(line);
            if size >= EVENT_BYTES {
                size = path.len();
                call.event(FileEvent::Lines { path: path.clone(), lines: std::mem::take(&mut event) })?;
            }
        }
        if !event.is_empty() {
            call.event(FileEvent::Lines { path, lines: event })?;
        }
        Ok(())
    }
}

/// The newest files of all that were found.
struct Newest {
    found: Vec<Found>,
    limit: usize,
    bytes: usize,
    dropped: bool,
}

impl Newest {
    fn new(limit: u64) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Self { found: Vec::new(), limit, bytes: 0, dropped: false }
    }

    fn add(&mut self, found: Found) {
        self.bytes += found.path.len() + FOUND_BYTES;
        self.found.push(found);
        // Sorting at each doubling costs no more than one sort of everything would.
        if self.found.len() / 2 >= self.limit.max(1024) || self.bytes / 2 >= MAX_RESULT_BYTES {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.found.sort_unstable_by(|a, b| b.mtime_ns.cmp(&a.mtime_ns).then_with(|| a.path.cmp(&b.path)));
        let mut bytes = 0;
        let fitting = self.found.iter().take(self.limit).take_while(|found| {
            bytes += found.path.len() + FOUND_BYTES;
            bytes <= MAX_RESULT_BYTES
        });
        let keep = fitting.count();
        self.dropped |= keep < self.found.len();
        self.found.truncate(keep);
        self.bytes = self.found.iter().map(|found| found.path.len() + FOUND_BYTES).sum();
    }

    fn finish(mut self) -> (Vec<Found>, bool) {
        self.cut();
        (self.found, self.dropped)
    }
}
