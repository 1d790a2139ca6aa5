//! What has been done, and what not.

use crate::output::print_error;
use crate::progress::Progress;
use farshell_api::ApiError;
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Failures that are listed; the rest is counted.
const LISTED: usize = 1000;

#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Regular files and links that were copied.
    pub(super) files: AtomicU64,
    /// Bytes that travelled.
    pub(super) bytes: AtomicU64,
    /// Bytes of files that were gone on with, which did not.
    pub(super) resumed: AtomicU64,
    pub(super) unchanged: AtomicU64,
    pub(super) skipped: AtomicU64,
    pub(super) deleted: AtomicU64,
    pub(super) failed: AtomicU64,
    /// What is known to be there to be copied, of which some is not yet.
    pub(super) known_files: AtomicU64,
    pub(super) known_bytes: AtomicU64,
    /// Of `known_bytes`.
    pub(super) done_bytes: AtomicU64,
    failures: Mutex<Vec<(String, ApiError)>>,
}

/// Adds to a counter.
pub(super) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Tally {
    /// Something could not be copied: it is named, and the rest goes on.
    pub(super) fn fail(&self, what: String, error: ApiError) {
        add(&self.failed, 1);
        // The line of progress is drawn anew in a moment.
        let at = if std::io::stderr().is_terminal() { "\r\x1b[K" } else { "" };
        crate::output::tell(at);
        print_error(&ApiError { operation: what.clone(), ..error.clone() });
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() < LISTED {
            failures.push((what, error));
        }
    }

    pub(super) fn any_failed(&self) -> bool {
        get(&self.failed) > 0
    }

    /// Whether anything was written.
    pub(super) fn changed(&self) -> bool {
        get(&self.files) + get(&self.deleted) > 0
    }

    pub(super) fn show(&self, progress: &mut Progress) {
        let files = get(&self.files) + get(&self.unchanged);
        let text = format!("{files} of {} files", get(&self.known_files).max(files));
        progress.say(&text, Some((get(&self.done_bytes), get(&self.known_bytes))));
    }

    pub(super) fn json(&self) -> Value {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let failures: Vec<Value> = failures
            .iter()
            .map(|(what, error)| json!({"path": what, "kind": error.kind, "message": error.message}))
            .collect();
        json!({
            "files": get(&self.files),
            "bytes": get(&self.bytes),
            "resumed_bytes": get(&self.resumed),
            "unchanged": get(&self.unchanged),
            "skipped": get(&self.skipped),
            "deleted": get(&self.deleted),
            "failed": get(&self.failed),
            "failures": failures,
        })
    }

    /// `copied 3 files (1.2 MB), 5 unchanged`
    pub(super) fn text(&self) -> String {
        let bytes = get(&self.bytes);
        let size = match bytes {
            0..1_000_000 => format!("{}.{} kB", bytes / 1000, bytes % 1000 / 100),
            _ => format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000),
        };
        let files = get(&self.files);
        let mut text = format!("copied {files} {} ({size})", if files == 1 { "file" } else { "files" });
        for (counter, word) in
            [(&self.unchanged, "unchanged"), (&self.skipped, "left out"), (&self.deleted, "deleted")]
        {
            if get(counter) > 0 {
                text.push_str(&format!(", {} {word}", get(counter)));
            }
        }
        text
    }
}
