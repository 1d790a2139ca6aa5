//! The stream to an instance on a node: `srun` in the same job, and the outpost's bridge at its other end.

use super::control::Control;
use super::script::{BEAT, bridge};
use crate::error::plain;
use crate::layout::random;
use crate::state::JobNote;
use farshell_engine::backend::ByteStream;
use farshell_engine::{Error, Kind, Result};
use rustix::process::{Pid, Signal};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::Child;
use tokio::sync::oneshot;

const WHAT: &str = "connecting to the instance";
/// How much of what `srun` said is kept.
const LOG: usize = 8 << 10;
/// How long it may take to end by itself when nobody listens any more.
const END: Duration = Duration::from_secs(10);
/// What the names of the files begin with that say that somebody listens.
const BEATS: &str = "beat-";

/// Opens a stream to the outpost of a job that runs, and waits until it answers.
pub(crate) async fn open(
    control: Control<'_>,
    job: u32,
    note: &JobNote,
    outpost: &Path,
    private: &Path,
    patience: Duration,
) -> Result<ByteStream> {
    let beat = Beat::new(private)?;
    let mut command = control.command("srun")?;
    command.arg(format!("--jobid={job}"));
    // Beside what the job already runs, with whatever that has, without a terminal's or a library's set-up. Without
    // `unbuffered` only whole lines are passed on.
    command.args(["--overlap", "--nodes=1", "--ntasks=1", "--mem=0", "--mpi=none"]);
    command.args(["--unbuffered", "--quiet", "--chdir=/", "--job-name=farshell-stream"]);
    command.args(["/bin/sh", "-c", &bridge(BEAT), "sh", &note.door]).arg(outpost).arg(&beat.path);
    command.stdin(Stdio::piped()).process_group(0).kill_on_drop(false);
    let mut child = command.spawn().map_err(|e| Error::io(WHAT, e))?;
    let log = Arc::new(Mutex::new(String::new()));
    let (Some(stdin), Some(mut stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(Error::new(Kind::System, WHAT, "srun has no standard input and output"));
    };
    let drained = child.stderr.take().map(|stderr| tokio::spawn(drain(stderr, Arc::clone(&log))));
    let (over, dropped) = oneshot::channel();
    // Ends with the stream, also if whoever waits for the first byte goes away.
    tokio::spawn(reap(child, dropped, beat));
    let mut rest = vec![0; 4096];
    let first = tokio::time::timeout(patience, stdout.read(&mut rest)).await;
    match first {
        Ok(Ok(n)) if n > 0 => {
            rest.truncate(n);
            // Dropped with the stream: `srun` has to end then.
            Ok(ByteStream::after(rest, stdout, stdin, over))
        }
        Err(_) => {
            let message = format!("no answer from the node of Slurm job {job} in {} s", patience.as_secs());
            Err(Error::new(Kind::TimedOut, WHAT, message)
                .with_hint("`scontrol show job` and `scontrol show node` say more"))
        }
        Ok(_) => {
            if let Some(drained) = drained {
                let _ = tokio::time::timeout(Duration::from_secs(1), drained).await;
            }
            let said = plain(&log.lock().unwrap_or_else(PoisonError::into_inner));
            let message = match said.is_empty() {
                true => "srun ended without a word".to_owned(),
                false => said,
            };
            Err(Error::new(Kind::Disconnected, WHAT, message))
        }
    }
}

async fn drain(mut stderr: tokio::process::ChildStderr, log: Arc<Mutex<String>>) {
    let mut buf = [0; 4096];
    while let Ok(n @ 1..) = stderr.read(&mut buf).await {
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        if log.len() < LOG {
            log.push_str(&String::from_utf8_lossy(&buf[..n]));
        }
    }
}

/// The file that tells the other end that somebody listens.
struct Beat {
    path: PathBuf,
    count: u64,
}

impl Beat {
    fn new(private: &Path) -> Result<Self> {
        let mut beat = Self { path: private.join(format!("{BEATS}{}", random()?)), count: 0 };
        let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beat.path);
        made.and_then(|_| beat.beat())
            .map_err(|e| Error::io(format!("writing {}", beat.path.display()), e))?;
        Ok(beat)
    }

    /// Another number in the place of the last one, and as long: whoever reads it at this moment finds one of them.
    fn beat(&mut self) -> io::Result<()> {
        self.count += 1;
        // Opened anew each time: another machine sees it when it was closed.
        let mut file = std::fs::OpenOptions::new().write(true).open(&self.path)?;
        file.write_all(format!("{:020}\n", self.count).as_bytes())
    }
}

/// Removes those of streams that were cut off. The caller knows that there is no job.
pub(crate) fn clear_beats(private: &Path) {
    for entry in std::fs::read_dir(private).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(BEATS) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

impl Drop for Beat {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Waits for the end. `srun` ends by itself when its input does, and takes the bridge with it. One that does not is asked
/// to, which ends what it runs on the node, and killed.
async fn reap(mut child: Child, mut dropped: oneshot::Receiver<()>, mut beat: Beat) {
    loop {
        tokio::select! {
            _ = child.wait() => return,
            _ = &mut dropped => break,
            () = tokio::time::sleep(BEAT) => drop(beat.beat()),
        }
    }
    if tokio::time::timeout(END, child.wait()).await.is_ok() {
        return;
    }
    if let Some(pid) = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, Signal::TERM);
    }
    if tokio::time::timeout(END, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn whoever_reads_a_beat_always_finds_a_number() {
        let dir = tempfile::tempdir().unwrap();
        let mut beat = Beat::new(dir.path()).unwrap();
        let (path, over) = (beat.path.clone(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let text = std::fs::read_to_string(&path).unwrap();
                    assert!(text.len() == 21 && text.trim().parse::<u64>().is_ok(), "{text:?}");
                }
            });
            for _ in 0..20_000 {
                beat.beat().unwrap();
            }
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "00000000000000020001\n");
        // One that was cleared away does not come back.
        std::fs::write(dir.path().join("log"), "").unwrap();
        clear_beats(dir.path());
        assert!(beat.beat().is_err() && !path.exists() && dir.path().join("log").exists());
    }
}
