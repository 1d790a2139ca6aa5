//! A process under the eyes of its caller: what is told of it, and what becomes of it when nobody waits any more.

use crate::text::{Output, first, plain};
use crate::{Call, Observer, Stays, Tools};
use farshell_engine::capture::Sink;
use farshell_keeper::Control;
use farshell_policy::Redactor;
use farshell_protocol::process::Chunk;
use std::time::{Duration, Instant};

/// How often a caller is told that output has come.
const NEWS: Duration = Duration::from_millis(250);
/// Bytes of input in one message: far below what a message may hold.
pub(crate) const PIECE: usize = 256 << 10;
/// How long the end of a command that was killed is waited for.
pub(crate) const KILLED: Duration = Duration::from_secs(30);

/// Keeps output, and tells the caller about it.
#[derive(Debug)]
pub(crate) struct Watching<'a> {
    pub(crate) output: Output,
    observer: &'a dyn Observer,
    redactor: &'a Redactor,
    told: Option<Instant>,
}

impl<'a> Watching<'a> {
    pub(crate) fn new(observer: &'a dyn Observer, redactor: &'a Redactor) -> Self {
        Self { output: Output::default(), observer, redactor, told: None }
    }
}

impl Sink for Watching<'_> {
    fn chunk(&mut self, chunk: Chunk<'_>) {
        self.output.push(chunk.bytes);
        if self.told.is_none_or(|told| told.elapsed() >= NEWS) {
            self.told = Some(Instant::now());
            let text = plain(&chunk.bytes[chunk.bytes.len().saturating_sub(2000)..], usize::MAX).0;
            let line = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().trim();
            self.observer.output(self.output.total(), first(&self.redactor.redact(line), 200));
        }
    }
}

/// Kills the command if the one who waits for it goes away. A server that ends leaves it running, as it leaves all
/// others.
#[derive(Debug)]
pub(crate) struct Unattended<'a>(Option<Control>, &'a Stays);

impl<'a> Unattended<'a> {
    pub(crate) fn new(control: Control, tools: &'a Tools) -> Self {
        Self(Some(control), &tools.stays)
    }

    /// It has ended, and nobody needs to be killed any more.
    pub(crate) fn over(mut self) {
        self.0 = None;
    }
}

impl Drop for Unattended<'_> {
    fn drop(&mut self) {
        if let (Some(control), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current())
            && self.1.0()
        {
            runtime.spawn(async move { control.kill(None).await });
        }
    }
}

/// Waits until somebody wants no more of it. A server that ends loses all its clients, which says nothing.
pub(crate) async fn wanted_no_more(tools: &Tools, call: &Call<'_>) {
    call.cancel.cancelled().await;
    if !tools.stays.0() {
        std::future::pending::<()>().await;
    }
}
