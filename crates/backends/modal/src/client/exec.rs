//! Processes in a sandbox. Their output is kept there and read by byte offset, their input written by byte offset: a
//! connection that breaks costs nothing of either.

use super::error::{ClientError, Fault, Result, fault, passes};
use super::router::{Router, USUAL};
use super::{Code, key};
use bytes::Bytes;
use farshell_modal_proto::router::task_exec_wait_response::ExitStatus;
use farshell_modal_proto::router::{
    TaskExecStartRequest, TaskExecStderrConfig, TaskExecStdinWriteRequest, TaskExecStdioFileDescriptor,
    TaskExecStdioReadRequest, TaskExecStdioReadResponse, TaskExecStdoutConfig, TaskExecWaitRequest,
};
use std::time::Duration;
use tokio::time::Instant;
use tonic::Streaming;

/// The first process of a sandbox waits until that has begun.
const START: Duration = Duration::from_secs(120);
/// How long a server holds a question back.
const HELD: Duration = Duration::from_secs(60);
/// How long output can't be read before it is given up, and the longest pause between two attempts.
const PATIENCE: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_secs(1);
/// What goes into one write.
pub(crate) const PIECE: usize = 1 << 20;
/// The most that is kept of what a command says.
const MOST: usize = 64 << 10;

/// One process. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Exec {
    router: Router,
    id: String,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Exited(i32),
    Killed(i32),
}

/// A command that came to its end, and what it said (the beginning of it).
#[derive(Clone, Debug)]
pub struct Ran {
    pub end: End,
    pub stdout: String,
    pub stderr: String,
}

/// Output of a process, from its beginning.
#[derive(Debug)]
pub struct Output {
    exec: Exec,
    source: TaskExecStdioFileDescriptor,
    offset: u64,
    stream: Option<Streaming<TaskExecStdioReadResponse>>,
}

impl Exec {
    /// Starts a process, once, however often it has to be asked for. `limit` is how long it may run.
    ///
    /// # Errors
    /// It may run all the same.
    pub async fn start(router: &Router, command: &[&str], limit: Option<Duration>) -> Result<Self> {
        let exec = Self { router: router.clone(), id: key() };
        let request = TaskExecStartRequest {
            task_id: router.task().to_owned(),
            exec_id: exec.id.clone(),
            command_args: command.iter().map(|&word| word.to_owned()).collect(),
            stdout_config: TaskExecStdoutConfig::Pipe.into(),
            stderr_config: TaskExecStderrConfig::Pipe.into(),
            timeout_secs: limit.map(|limit| u32::try_from(limit.as_secs().max(1)).unwrap_or(u32::MAX)),
            ..TaskExecStartRequest::default()
        };
        router
            .call("starting a process in the sandbox", START, request, |mut wire, request| async move {
                wire.task_exec_start(request).await
            })
            .await?;
        Ok(exec)
    }

    #[must_use]
    pub fn stdout(&self) -> Output {
        self.output(TaskExecStdioFileDescriptor::Stdout)
    }

    #[must_use]
    pub fn stderr(&self) -> Output {
        self.output(TaskExecStdioFileDescriptor::Stderr)
    }

    fn output(&self, source: TaskExecStdioFileDescriptor) -> Output {
        Output { exec: self.clone(), source, offset: 0, stream: None }
    }

    /// Writes at an offset, of which everything before was written. The same may be written twice.
    ///
    /// # Errors
    /// [`Code::FailedPrecondition`]: the process has ended.
    pub async fn write(&self, offset: u64, data: Bytes, eof: bool) -> Result<()> {
        let request = TaskExecStdinWriteRequest {
            task_id: self.router.task().to_owned(),
            exec_id: self.id.clone(),
            offset,
            data,
            eof,
        };
        self.router
            .call("writing to a process in the sandbox", USUAL, request, |mut wire, request| async move {
                wire.task_exec_stdin_write(request).await
            })
            .await
            .map(|_| ())
    }

    /// Waits for the end of the process.
    ///
    /// # Errors
    /// [`Code::NotFound`]: the sandbox is gone. [`Fault::TimedOut`]: it runs still.
    pub async fn wait(&self, limit: Duration) -> Result<End> {
        let what = "waiting for a process in the sandbox";
        let deadline = Instant::now() + limit;
        loop {
            let request =
                TaskExecWaitRequest { task_id: self.router.task().to_owned(), exec_id: self.id.clone() };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ClientError::new(what, Fault::TimedOut));
            }
            let asking = self.router.stream(what, request, |mut wire, request| async move {
                tokio::time::timeout(left.min(HELD), wire.task_exec_wait(request))
                    .await
                    .unwrap_or_else(|_| Err(tonic::Status::deadline_exceeded("held back")))
            });
            // A server that throttles may ask for much more than that.
            let asked = tokio::time::timeout(left, asking)
                .await
                .unwrap_or_else(|_| Err(ClientError::new(what, Fault::TimedOut)));
            match asked.map(|answer| answer.exit_status) {
                Ok(Some(ExitStatus::Code(code))) => return Ok(End::Exited(code)),
                Ok(Some(ExitStatus::Signal(signal))) => return Ok(End::Killed(signal)),
                Ok(None) => {}
                Err(error) if passes(&error.fault) => {}
                Err(error) => return Err(error),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Runs a command to its end, with this input.
    ///
    /// # Errors
    /// It may have run, or run still.
    pub async fn run(router: &Router, command: &[&str], input: Bytes, limit: Duration) -> Result<Ran> {
        let exec = Self::start(router, command, Some(limit)).await?;
        let feeding = async {
            let mut offset = 0;
            loop {
                let piece = input.slice(offset..input.len().min(offset + PIECE));
                let end = offset + piece.len();
                match exec.write(offset as u64, piece, end == input.len()).await {
                    Ok(()) => {}
                    // Whatever it was, it did not want to hear more.
                    Err(error) if error.code() == Some(Code::FailedPrecondition) => return Ok(()),
                    Err(error) => return Err(error),
                }
                offset = end;
                if offset == input.len() {
                    return Ok(());
                }
            }
        };
        let ran = Box::pin(async {
            let (fed, stdout, stderr) = tokio::join!(feeding, exec.stdout().text(), exec.stderr().text());
            fed?;
            let end = exec.wait(limit).await?;
            Ok(Ran { end, stdout: stdout?, stderr: stderr? })
        });
        let late = || ClientError::new("running a command in the sandbox", Fault::TimedOut);
        tokio::time::timeout(limit + USUAL, Box::pin(ran)).await.unwrap_or_else(|_| Err(late()))
    }
}

impl Output {
    /// What comes next; nothing at its end. After a cut it goes on at the byte.
    ///
    /// # Errors
    /// It can't be read any more.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        let what = "reading from a process in the sandbox";
        let mut pause = Duration::from_millis(10);
        let mut trouble: Option<Instant> = None;
        // Of the stream that is open.
        let mut opened = Instant::now();
        loop {
            let was_open = self.stream.is_some();
            let failed = match &mut self.stream {
                Some(stream) => match stream.message().await {
                    Ok(Some(piece)) if piece.data.is_empty() => continue,
                    Ok(Some(piece)) => {
                        self.offset += piece.data.len() as u64;
                        return Ok(Some(piece.data));
                    }
                    Ok(None) => return Ok(None),
                    Err(status) => {
                        self.stream = None;
                        fault(&status)
                    }
                },
                None => match self.open(what).await {
                    Ok(stream) => {
                        self.stream = Some(stream);
                        opened = Instant::now();
                        continue;
                    }
                    Err(error) => error.fault,
                },
            };
            // One that was open for a while, silent as it was, was no trouble. What can't be opened is.
            if was_open && opened.elapsed() > PATIENCE {
                (trouble, pause) = (None, Duration::from_millis(10));
            }
            let since = *trouble.get_or_insert_with(Instant::now);
            let again =
                passes(&failed) || matches!(failed, Fault::Refused { code: Code::Unauthenticated, .. });
            if !again || since.elapsed() > PATIENCE {
                return Err(ClientError::new(what, failed));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST);
        }
    }

    async fn open(&self, what: &str) -> Result<Streaming<TaskExecStdioReadResponse>> {
        let request = TaskExecStdioReadRequest {
            task_id: self.exec.router.task().to_owned(),
            exec_id: self.exec.id.clone(),
            offset: self.offset,
            file_descriptor: self.source.into(),
        };
        let opening = self.exec.router.stream(what, request, |mut wire, request| async move {
            wire.task_exec_stdio_read(request).await
        });
        // A server that throttles may ask for much more than that.
        tokio::time::timeout(PATIENCE, opening)
            .await
            .unwrap_or_else(|_| Err(ClientError::new(what, Fault::TimedOut)))
    }

    /// All of it, of which the beginning is kept.
    async fn text(mut self) -> Result<String> {
        let mut all = Vec::new();
        while let Some(piece) = self.next().await? {
            let room = MOST.saturating_sub(all.len());
            all.extend_from_slice(&piece[..piece.len().min(room)]);
        }
        Ok(String::from_utf8_lossy(&all).into_owned())
    }
}
