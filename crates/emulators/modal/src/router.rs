//! The command router: processes in a sandbox, their streams, and snapshots of its file system.

use crate::calls::Kill;
use crate::client::variables;
use crate::jwt::Claims;
use crate::life;
use crate::log::Log;
use crate::process::{Process, Wish, Wrote};
use crate::refuse;
use crate::sandbox::Sandbox;
use crate::wire::Status as Ended;
use crate::world::World;
use farshell_modal_proto::router::task_command_router_server::TaskCommandRouter;
use farshell_modal_proto::router::*;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use std::sync::Arc;
use std::time::Duration;
use tonic::{Extensions, Request, Response, Status, Streaming};

/// All arguments together.
const ARGUMENTS: usize = 131_072;
/// One write of input, unless it is a stream.
const ONE_WRITE: usize = 16 << 20;
/// How much of an entrypoint's output is kept.
const KEPT: u64 = 1 << 20;

#[derive(Clone, Debug)]
pub(crate) struct Router(pub(crate) Arc<World>);

type Reply<T> = Result<Response<T>, Status>;

impl Router {
    /// The sandbox of a task, if the caller may.
    fn sandbox(&self, extensions: &Extensions, task: &str) -> Result<Arc<Sandbox>, Status> {
        let sandbox = self.0.task(task)?;
        match extensions.get::<Claims>() {
            Some(claims) if claims.sub == task => Ok(sandbox),
            _ => Err(Status::permission_denied(format!("the token is not for task {task}"))),
        }
    }

    async fn exec(
        &self,
        extensions: &Extensions,
        task: &str,
        id: &str,
    ) -> Result<(Arc<Sandbox>, Arc<Process>), Status> {
        let sandbox = self.sandbox(extensions, task)?;
        let process = sandbox.exec(id)?;
        Ok((sandbox, process))
    }

    /// A stream of a log from an offset on, which a fault may cut.
    fn stream<T: Send + 'static>(
        &self,
        extensions: &Extensions,
        rpc: &str,
        log: Arc<Log>,
        offset: u64,
        make: impl Fn(Vec<u8>, u64) -> T + Send + Sync + 'static,
    ) -> BoxStream<'static, Result<T, Status>> {
        let cut = self.0.faults.take(&["cut", "cut-connection"], rpc);
        let kill = extensions.get::<Kill>().cloned();
        let left = cut.as_ref().map_or(u64::MAX, |fault| fault.bytes);
        let drop_all = cut.is_some_and(|fault| fault.kind == "cut-connection");
        let make = Arc::new(make);
        stream::unfold(Some((offset, left)), move |state| {
            let (log, kill, make) = (Arc::clone(&log), kill.clone(), Arc::clone(&make));
            async move {
                let (at, left) = state?;
                if left == 0 {
                    if drop_all && let Some(kill) = kill {
                        kill.0.notify_one();
                        std::future::pending::<()>().await;
                    }
                    return Some((Err(Status::unavailable("the stream was cut")), None));
                }
                match log.read(at, left).await {
                    Ok(None) => None,
                    Ok(Some(bytes)) => {
                        let count = bytes.len() as u64;
                        Some((Ok(make(bytes, at)), Some((at + count, left.saturating_sub(count)))))
                    }
                    Err(error) => Some((Err(Status::internal(error.to_string())), None)),
                }
            }
        })
        .boxed()
    }
}

#[tonic::async_trait]
impl TaskCommandRouter for Router {
    async fn task_exec_start(&self, request: Request<TaskExecStartRequest>) -> Reply<TaskExecStartResponse> {
        let sandbox = self.sandbox(request.extensions(), &request.get_ref().task_id)?;
        let wish = request.into_inner();
        sandbox.touch();
        let cell = sandbox.exec_cell(&wish.exec_id);
        let id = wish.exec_id.clone();
        let started = cell.get_or_try_init(|| start(&self.0, &sandbox, wish)).await.map(|_| ());
        if started.is_err() {
            sandbox.forget_exec(&id);
        }
        started.map(|()| Response::new(TaskExecStartResponse {}))
    }

    type TaskExecStdioReadStream = BoxStream<'static, Result<TaskExecStdioReadResponse, Status>>;

    async fn task_exec_stdio_read(
        &self,
        request: Request<TaskExecStdioReadRequest>,
    ) -> Reply<Self::TaskExecStdioReadStream> {
        let wish = request.get_ref();
        let (_, process) = self.exec(request.extensions(), &wish.task_id, &wish.exec_id).await?;
        let log = match wish.file_descriptor() {
            TaskExecStdioFileDescriptor::Stdout => &process.stdout,
            TaskExecStdioFileDescriptor::Stderr => &process.stderr,
        };
        let make = |bytes: Vec<u8>, _| TaskExecStdioReadResponse { data: bytes.into() };
        let log = Arc::clone(log);
        Ok(Response::new(self.stream(request.extensions(), "TaskExecStdioRead", log, wish.offset, make)))
    }

    async fn task_exec_stdin_write(
        &self,
        request: Request<TaskExecStdinWriteRequest>,
    ) -> Reply<TaskExecStdinWriteResponse> {
        let wish = request.get_ref();
        if wish.data.len() > ONE_WRITE {
            return Err(Status::invalid_argument("more than 16 MiB in one write"));
        }
        let (sandbox, process) = self.exec(request.extensions(), &wish.task_id, &wish.exec_id).await?;
        sandbox.touch();
        let wrote = process.write(wish.offset, &wish.data, wish.eof).await;
        sandbox.touch();
        written(&wrote)?;
        Ok(Response::new(TaskExecStdinWriteResponse {}))
    }

    async fn task_exec_stdin_write_stream(
        &self,
        request: Request<Streaming<TaskExecStdinWriteStreamRequest>>,
    ) -> Reply<TaskExecStdinWriteStreamResponse> {
        use task_exec_stdin_write_stream_request::Payload;
        let (_, extensions, mut messages) = request.into_parts();
        let mut next =
            async || Ok::<_, Status>(messages.message().await?.and_then(|message| message.payload));
        let Some(Payload::Start(start)) = next().await? else {
            return Err(Status::invalid_argument("the first message is to be start"));
        };
        let (sandbox, process) = self.exec(&extensions, &start.task_id, &start.exec_id).await?;
        let (accepted, closed) = process.input_status().await;
        if start.offset != accepted || closed {
            let why =
                format!("stdin is at offset {accepted}, {}", if closed { "and closed" } else { "open" });
            return Err(Status::failed_precondition(why));
        }
        let mut at = accepted;
        loop {
            sandbox.touch();
            match next().await? {
                Some(Payload::Data(data)) => {
                    written(&process.write(at, &data, false).await)?;
                    at += data.len() as u64;
                }
                Some(Payload::End(_)) => {
                    written(&process.write(at, b"", true).await)?;
                    return Ok(Response::new(TaskExecStdinWriteStreamResponse {}));
                }
                Some(Payload::Start(_)) => return Err(Status::invalid_argument("a second start")),
                // Only `end` closes it.
                None => return Ok(Response::new(TaskExecStdinWriteStreamResponse {})),
            }
        }
    }

    async fn task_exec_stdin_status(
        &self,
        request: Request<TaskExecStdinStatusRequest>,
    ) -> Reply<TaskExecStdinStatusResponse> {
        let wish = request.get_ref();
        let (_, process) = self.exec(request.extensions(), &wish.task_id, &wish.exec_id).await?;
        let (num_bytes_written, closed) = process.input_status().await;
        Ok(Response::new(TaskExecStdinStatusResponse { num_bytes_written, closed }))
    }

    async fn task_exec_wait(&self, request: Request<TaskExecWaitRequest>) -> Reply<TaskExecWaitResponse> {
        use task_exec_wait_response::ExitStatus;
        let wish = request.get_ref();
        let (_, process) = self.exec(request.extensions(), &wish.task_id, &wish.exec_id).await?;
        let status = process.wait().await;
        // What ended with its sandbox has no status of its own.
        if process.is_lost() {
            return Err(refuse::no_task(&wish.task_id));
        }
        let exit_status = Some(match status {
            Ended::Code(code) => ExitStatus::Code(code),
            Ended::Signal(signal) => ExitStatus::Signal(signal),
        });
        Ok(Response::new(TaskExecWaitResponse { exit_status }))
    }

    async fn task_exec_poll(&self, request: Request<TaskExecPollRequest>) -> Reply<TaskExecPollResponse> {
        use task_exec_poll_response::ExitStatus;
        let wish = request.get_ref();
        let (_, process) = self.exec(request.extensions(), &wish.task_id, &wish.exec_id).await?;
        let exit_status = process.status().map(|status| match status {
            Ended::Code(code) => ExitStatus::Code(code),
            Ended::Signal(signal) => ExitStatus::Signal(signal),
        });
        Ok(Response::new(TaskExecPollResponse { exit_status }))
    }

    type SandboxStdioReadV2Stream = BoxStream<'static, Result<SandboxStdioReadV2Response, Status>>;

    async fn sandbox_stdio_read_v2(
        &self,
        request: Request<SandboxStdioReadV2Request>,
    ) -> Reply<Self::SandboxStdioReadV2Stream> {
        let wish = request.get_ref();
        let sandbox = self.sandbox(request.extensions(), &wish.task_id)?;
        let place = sandbox.place().await?;
        let log = match (&place.main, wish.file_descriptor()) {
            (Some(main), SandboxStdioFileDescriptor::Stdout) => Arc::clone(&main.stdout),
            (Some(main), SandboxStdioFileDescriptor::Stderr) => Arc::clone(&main.stderr),
            (None, _) => Arc::new(Log::empty()),
        };
        // Older output is no longer there; the answers say where they begin.
        let offset = wish.offset.max(log.state().0.saturating_sub(KEPT));
        let make = |bytes: Vec<u8>, starting_offset| SandboxStdioReadV2Response {
            data: bytes.into(),
            starting_offset,
        };
        Ok(Response::new(self.stream(request.extensions(), "SandboxStdioReadV2", log, offset, make)))
    }

    async fn sandbox_stdin_write_v2(
        &self,
        request: Request<SandboxStdinWriteV2Request>,
    ) -> Reply<SandboxStdinWriteV2Response> {
        let wish = request.get_ref();
        let sandbox = self.sandbox(request.extensions(), &wish.task_id)?;
        sandbox.touch();
        let place = sandbox.place().await?;
        let main =
            place.main.as_ref().ok_or_else(|| Status::failed_precondition("there is no entrypoint"))?;
        written(&main.write(wish.offset, &wish.data, wish.eof).await)?;
        Ok(Response::new(SandboxStdinWriteV2Response {}))
    }

    async fn task_snapshot_filesystem(
        &self,
        request: Request<TaskSnapshotFilesystemRequest>,
    ) -> Reply<TaskSnapshotFilesystemResponse> {
        let wish = request.get_ref();
        let sandbox = self.sandbox(request.extensions(), &wish.task_id)?;
        let ttl = match wish.ttl_seconds {
            Some(-1) => None,
            Some(secs) if secs > 0 => Some(u32::try_from(secs).unwrap_or(u32::MAX)),
            _ => return Err(Status::invalid_argument("ttl_seconds must be positive, or -1 for ever")),
        };
        if wish.customer_supplied_encryption_key.is_some() {
            return Err(refuse::not_served("TaskSnapshotFilesystem.customer_supplied_encryption_key"));
        }
        if wish.snapshot_id.is_empty() {
            return Err(Status::invalid_argument("snapshot_id is needed"));
        }
        // Modal names what keeps a sandbox from being idle: processes, input and tunnels. This is none of them.
        sandbox.place().await?;
        let cell = Arc::clone(self.0.book().snapshots.entry(wish.snapshot_id.clone()).or_default());
        let take = || async {
            tokio::time::sleep(self.0.faults.delay("slow-snapshot", "")).await;
            self.0.snapshot(&sandbox, ttl).await
        };
        let taken = cell.get_or_try_init(take).await;
        let image_id = taken.map_err(|error| Status::internal(format!("no snapshot: {error}")))?.clone();
        Ok(Response::new(TaskSnapshotFilesystemResponse { image_id }))
    }
}

fn written(wrote: &Wrote) -> Result<(), Status> {
    match wrote {
        Wrote::All => Ok(()),
        Wrote::Gap(accepted) => Err(Status::failed_precondition(format!("stdin is at offset {accepted}"))),
        Wrote::Closed => Err(Status::failed_precondition("stdin is closed, or the process has exited")),
        Wrote::Evicted => Err(Status::aborted("another call asked for the status of stdin")),
    }
}

async fn start(
    world: &Arc<World>,
    sandbox: &Arc<Sandbox>,
    wish: TaskExecStartRequest,
) -> Result<Arc<Process>, Status> {
    let length: usize = wish.command_args.iter().map(String::len).sum();
    if length > ARGUMENTS {
        return Err(Status::invalid_argument(format!(
            "the arguments are {length} bytes, more than {ARGUMENTS}"
        )));
    }
    if wish.command_args.is_empty() || wish.command_args.iter().any(|word| word.contains('\0')) {
        return Err(Status::invalid_argument("a command needs arguments, without zero bytes"));
    }
    if wish.exec_id.is_empty() {
        return Err(Status::invalid_argument("exec_id is needed"));
    }
    if !wish.container_id.is_empty() {
        return Err(refuse::not_served("TaskExecStart.container_id"));
    }
    let (stdout, stderr) = (wish.stdout_config(), wish.stderr_config());
    if stderr == TaskExecStderrConfig::Stdout {
        return Err(refuse::not_served("TaskExecStart.stderr_config STDOUT"));
    }
    let place = sandbox.place().await?;
    let pty = wish.pty_info.filter(|pty| pty.enabled);
    let mut own = variables(world, &wish.secret_ids, &wish.secret_sources, wish.env)?;
    if let Some(pty) = &pty {
        let names = [
            ("TERM", &pty.env_term),
            ("COLORTERM", &pty.env_colorterm),
            ("TERM_PROGRAM", &pty.env_term_program),
        ];
        let said = names.into_iter().filter(|(_, value)| !value.is_empty());
        own.extend(said.map(|(name, value)| (name.to_owned(), value.clone())));
    }
    let process = Process::start(
        &place.root,
        &sandbox.dir,
        Wish {
            args: wish.command_args,
            env: life::environment(sandbox, &own),
            workdir: wish.workdir.filter(|dir| !dir.is_empty()).unwrap_or_else(|| life::workdir(sandbox)),
            terminal: pty.as_ref().map(life::terminal),
            keep_stdout: stdout == TaskExecStdoutConfig::Pipe || pty.is_some(),
            keep_stderr: stderr == TaskExecStderrConfig::Pipe,
        },
    )
    .await
    .map_err(|error| Status::failed_precondition(format!("the process could not be started: {error}")))?;
    if let Some(secs) = wish.timeout_secs.filter(|secs| *secs > 0) {
        let (root, process) = (Arc::clone(&place.root), Arc::clone(&process));
        // In real seconds: clients have a clock of their own beside it.
        tokio::spawn(async move {
            let patience = Duration::from_secs(u64::from(secs));
            if tokio::time::timeout(patience, process.wait()).await.is_err() {
                root.kill(process.number);
            }
        });
    }
    Ok(process)
}
