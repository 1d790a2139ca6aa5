//! An environment that is made for a benchmark and removed with everything it kept.

use crate::ours::Ours;
use farshell_engine::backend::Backend;
use farshell_engine::capture::Discard;
use farshell_engine::client::new_process_id;
use farshell_protocol::process::{Attach, Start, Stdin, Surroundings, What};
use std::error::Error;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// An environment, and the backend that made it.
#[derive(Debug)]
pub struct Contained {
    pub ours: Ours,
    backend: Box<dyn Backend>,
}

impl Contained {
    #[must_use]
    pub fn new(ours: Ours, backend: Box<dyn Backend>) -> Self {
        Self { ours, backend }
    }

    /// A process in the background, until it is known to run. It is killed afterwards.
    ///
    /// # Errors
    /// It can't be started.
    pub async fn background(&self) -> Result<Duration> {
        let start = program(&["sleep", "1000"], Stdin::Null);
        let (id, outpost) = (start.id.clone(), self.ours.outpost());
        let begin = Instant::now();
        outpost.start(start).await?;
        let took = begin.elapsed();
        outpost.kill(vec![id], Duration::ZERO).await?;
        Ok(took)
    }

    /// From the end of a process's input, which is its own end, to the news of it.
    ///
    /// # Errors
    /// It can't be started.
    pub async fn exit(&self) -> Result<Duration> {
        let start = program(&["cat"], Stdin::Pipe);
        let (id, outpost) = (start.id.clone(), self.ours.outpost());
        outpost.start(start).await?;
        tokio::time::sleep(Duration::from_millis(20)).await;
        let begin = Instant::now();
        let mut sink = Discard;
        let (sent, ended) = tokio::join!(
            outpost.stdin(id.clone(), 0, Vec::new(), true),
            outpost.attach(id.clone(), Attach::end_only(), &mut sink)
        );
        let took = begin.elapsed();
        sent?;
        ended?;
        Ok(took)
    }

    /// # Errors
    /// It can't be removed.
    pub async fn remove(self) -> Result<()> {
        let spec = self.ours.spec().clone();
        self.ours.close().await?;
        Ok(self.backend.remove_files(&spec).await?)
    }
}

fn program(argv: &[&str], stdin: Stdin) -> Start {
    let argv = argv.iter().map(|a| serde_bytes::ByteBuf::from(a.as_bytes())).collect();
    let what = What::Exec { argv, surroundings: Surroundings::default() };
    Start { stdin, ..Start::new(new_process_id(), what) }
}
