//! All routes.

use crate::app::App;
use crate::files;
use crate::input::{At, Body, By, Query};
use crate::life::Phase;
use crate::mcp;
use crate::openapi;
use crate::refusal::Refusal;
use crate::route::{Manner, Route, Success};
use crate::stream;
use crate::tools;
use axum::Router;
use axum::http::{Method, Request, StatusCode};
use axum::routing::{MethodFilter, any, on};
use farshell_api::approval::{AnswerRequest, Answered, ApprovalList, ApprovalQuery};
use farshell_api::audit::{AuditList, AuditQuery, AuditReport};
use farshell_api::environment::{
    Environment, EnvironmentList, GcRequest, GcResult, RemoveRequest, RemoveResult,
};
use farshell_api::event::{AckRequest, EventList, EventQuery};
use farshell_api::process::{
    KillRequest, KillResult, LogPiece, LogQuery, Process, ProcessList, ProcessQuery, ResizeRequest, Screen,
    SignalRequest, StdinRequest, StdinResult, WaitRequest,
};
use farshell_api::run::{RunRequest, RunResult, StartRequest};
use farshell_api::server::{Done, ServerStatus, StopRequest};
use farshell_engine::client::new_process_id;
use farshell_engine::{Kind, Retry};
use std::future::Future;
use std::sync::Arc;

type Answer<T> = Result<T, Refusal>;

/// Where a command is to run can fail in these ways.
const PLACE: &[Kind] = &[
    Kind::NotFound,
    Kind::AlreadyExists,
    Kind::Busy,
    Kind::Denied,
    Kind::SpecChanged,
    Kind::IdentityChanged,
    Kind::Exhausted,
    Kind::TimedOut,
    Kind::Unavailable,
    Kind::NotStarted,
    Kind::UnknownOutcome,
];
/// There is no such process, or its outpost can't be asked.
const PROCESS: &[Kind] = &[Kind::NotFound, Kind::UnknownOutcome];

/// Every route there is.
pub(crate) fn table() -> Vec<Route> {
    use Manner::{Begin, Finish, Poll};
    vec![
        Route::new(
            Method::GET,
            ("/v1/server", "server"),
            "What the server is, and what it has to do",
            Finish,
            server,
        ),
        Route::new(
            Method::POST,
            ("/v1/server/stop", "stop_server"),
            "Stop the server; processes go on, and the next server finds them",
            Finish,
            stop,
        ),
        Route::new(
            Method::POST,
            ("/v1/run", "run"),
            "Run a command and wait for its end. Once begun, it goes on if the caller goes away",
            Begin,
            run,
        )
        .errors(PLACE),
        Route::new(
            Method::POST,
            ("/v1/processes", "start_process"),
            "Start a background process",
            Begin,
            start,
        )
        .created()
        .errors(PLACE),
        Route::new(
            Method::GET,
            ("/v1/processes", "list_processes"),
            "The background processes that run, or all that are remembered",
            Finish,
            processes,
        ),
        Route::new(Method::GET, ("/v1/processes/{id}", "get_process"), "A process", Finish, process)
            .errors(PROCESS),
        Route::new(
            Method::GET,
            ("/v1/processes/{id}/log", "read_log"),
            "A piece of a process's output, by offset or by line",
            Finish,
            log,
        )
        .errors(PROCESS),
        Route::new(
            Method::POST,
            ("/v1/processes/{id}/wait", "wait_process"),
            "Wait until a process has ended, but not longer than asked",
            Poll,
            wait,
        )
        .errors(PROCESS),
        Route::new(
            Method::POST,
            ("/v1/processes/{id}/stdin", "write_stdin"),
            "Send input to a process, or close its input. Answered when it is taken",
            Finish,
            stdin,
        )
        .errors(&[Kind::NotFound, Kind::Busy, Kind::UnknownOutcome]),
        Route::new(
            Method::POST,
            ("/v1/processes/{id}/kill", "kill_process"),
            "Kill a process with all that descends from it",
            Finish,
            kill,
        )
        .errors(PROCESS),
        Route::new(
            Method::POST,
            ("/v1/processes/{id}/signal", "signal_process"),
            "Send a signal to a process",
            Finish,
            signal,
        )
        .errors(PROCESS),
        Route::new(
            Method::POST,
            ("/v1/processes/{id}/resize", "resize_process"),
            "Change the size of a process's terminal",
            Finish,
            resize,
        )
        .errors(PROCESS),
        Route::new(
            Method::GET,
            ("/v1/processes/{id}/screen", "read_screen"),
            "What a person would see on a process's terminal now",
            Finish,
            screen,
        )
        .errors(PROCESS),
        Route::new(
            Method::GET,
            ("/v1/tools", "list_tools"),
            "The agent's tools, with the JSON schemas of their arguments and results",
            Finish,
            tools::list,
        ),
        Route::new(
            Method::POST,
            ("/v1/tools/{name}", "call_tool"),
            "Call a tool. It ends with its caller, and a foreground command with it",
            Begin,
            tools::call,
        )
        .errors(&[Kind::NotFound]),
        Route::new(
            Method::GET,
            ("/v1/environments", "list_environments"),
            "All environments",
            Finish,
            environments,
        ),
        Route::new(
            Method::GET,
            ("/v1/environments/{key}", "get_environment"),
            "An environment, by its key (the slash in it may stand as it is) or by a task's name",
            Finish,
            environment,
        )
        .errors(&[Kind::NotFound]),
        Route::new(
            Method::POST,
            ("/v1/environments/remove", "remove_environments"),
            "Remove environments, or put them away. The answer says for each that stays why",
            Finish,
            remove,
        )
        .errors(&[Kind::NotFound]),
        Route::new(
            Method::POST,
            ("/v1/gc", "gc"),
            "Find, and if asked remove, what no record claims and records of what is gone",
            Finish,
            gc,
        ),
        Route::new(
            Method::GET,
            ("/v1/events", "list_events"),
            "What happened; waits for the first event if asked to",
            Poll,
            events,
        ),
        Route::new(
            Method::POST,
            ("/v1/events/ack", "ack_events"),
            "Say that a consumer has seen all events up to a number",
            Finish,
            ack,
        ),
        Route::new(
            Method::GET,
            ("/v1/approvals", "list_approvals"),
            "What waits for a person's answer; waits for a change if asked to",
            Poll,
            approvals,
        ),
        Route::new(
            Method::POST,
            ("/v1/approvals/{id}", "answer_approval"),
            "Answer: once, session, always or deny. The first answer counts",
            Finish,
            answer,
        )
        .errors(&[Kind::NotFound, Kind::AlreadyExists]),
        Route::new(
            Method::GET,
            ("/v1/audit", "read_audit"),
            "What was asked for, decided, and what became of it; waits for the first line if asked to",
            Poll,
            audit,
        ),
        Route::new(
            Method::GET,
            ("/v1/audit/verify", "verify_audit"),
            "Whether the audit log is what was written",
            Poll,
            verify_audit,
        ),
        Route::new(
            Method::POST,
            ("/v1/files", "open_files"),
            "Open the files of an environment, which is made if it is not there",
            Finish,
            files::open,
        )
        .created()
        .errors(PLACE),
        Route::new(
            Method::POST,
            ("/v1/files/{id}/close", "close_files"),
            "Close files that are open; so is done after a minute of silence",
            Finish,
            files::close,
        ),
        Route::new(Method::GET, ("/v1/files/{id}/stat", "stat_file"), "What a path names", Poll, files::stat)
            .errors(files::ERRORS),
        Route::new(
            Method::GET,
            ("/v1/files/{id}/list", "list_files"),
            "The entries of a directory",
            Poll,
            files::list,
        )
        .errors(files::ERRORS),
        Route::new(
            Method::GET,
            ("/v1/files/{id}/hash", "hash_file"),
            "The SHA-256 of a file, or of its first bytes",
            Poll,
            files::hash,
        )
        .errors(files::ERRORS),
        files::read_route(
            ("/v1/files/{id}/content", "read_file"),
            "The bytes of a file, or a part of them, however many they are",
        ),
        files::write_route(
            ("/v1/files/{id}/content", "write_file"),
            "Write a file from the body, however large it is: all of it or nothing",
        ),
        Route::new(
            Method::POST,
            ("/v1/files/{id}/change", "change_file"),
            "Make a directory or a link, set modes and times, move, copy, remove",
            Finish,
            files::change,
        )
        .errors(files::ERRORS),
        stream::route(
            ("/v1/stream", "stream"),
            "A WebSocket: one process's output, input and terminal, live",
        ),
        mcp::route(
            ("/v1/mcp", "mcp"),
            "A stream of MCP messages, one a line, as `farshell mcp` passes them on; by HTTP they go to `/mcp`",
        ),
        openapi::route(("/v1/openapi.json", "openapi"), "This API as an OpenAPI 3.1 document"),
    ]
}

/// Serves a table.
pub(crate) fn router(app: &Arc<App>, table: Vec<Route>) -> Router {
    let mut router = Router::new();
    for route in table {
        let filter = match route.method {
            Method::POST => MethodFilter::POST,
            Method::PUT => MethodFilter::PUT,
            _ => MethodFilter::GET,
        };
        // A key has a slash in it, and may be written as it is.
        let path = route.path.replace("{key}", "{*key}");
        let (app, handler, success) = (Arc::clone(app), route.handler, Success(route.status));
        let serve = on(filter, move |mut request: Request<axum::body::Body>| {
            request.extensions_mut().insert(success);
            handler(Arc::clone(&app), request)
        });
        router = router.route(&path, serve);
    }
    let tools = Arc::clone(app);
    // A protocol of its own, which describes itself.
    router = router.route(mcp::PATH, any(move |request| mcp::http(Arc::clone(&tools), request)));
    let nothing = |request: Request<axum::body::Body>| async move {
        let message = format!("there is no {}", request.uri().path());
        Refusal::new(Kind::NotFound, "finding the route", message)
            .with_hint("GET /v1/openapi.json lists all routes")
            .response()
    };
    let method = |request: Request<axum::body::Body>| async move {
        let message = format!("{} can't be done to {}", request.method(), request.uri().path());
        Refusal::new(Kind::Invalid, "finding the route", message)
            .with_status(StatusCode::METHOD_NOT_ALLOWED)
            .response()
    };
    router.fallback(nothing).method_not_allowed_fallback(method)
}

/// For calls that can last: a server that stops does not wait for them, and what they do is done elsewhere.
async fn unless_stopping<T>(
    app: &App,
    left: Refusal,
    work: impl Future<Output = farshell_engine::Result<T>>,
) -> Answer<T> {
    tokio::select! {
        done = work => Ok(done?),
        () = app.life.reached(Phase::Stopping) => Err(left),
    }
}

const YES: Done = Done { ok: true };

async fn server(app: Arc<App>, (): ()) -> Answer<ServerStatus> {
    Ok(app.status().await?)
}

async fn stop(app: Arc<App>, Body(request): Body<StopRequest>) -> Answer<Done> {
    if request.remove_environments {
        let all = RemoveRequest { all: true, force: true, ..RemoveRequest::default() };
        let failed = app.keeper.remove(all).await?.failed;
        if !failed.is_empty() {
            let list: Vec<_> =
                failed.iter().map(|one| format!("{}: {}", one.key, one.error.message)).collect();
            return Err(Refusal::new(Kind::System, "removing all environments", list.join("; "))
                .with_hint("the server goes on; without `remove_environments` it stops and leaves them"));
        }
    }
    app.life.stop(request.remove_environments);
    Ok(YES)
}

async fn run(app: Arc<App>, (By(origin), Body(mut request)): (By, Body<RunRequest>)) -> Answer<RunResult> {
    let retry = if request.start.id.is_some() { Retry::Safe } else { Retry::Unsafe };
    // Known before it is sent, so that it can be named whatever happens.
    let id = request.start.id.get_or_insert_with(|| new_process_id().as_str().to_owned()).clone();
    let left = Refusal::new(
        Kind::Disconnected,
        format!("running {id}"),
        "the server is stopping; the command goes on if it had begun",
    )
    .with_hint("send the request again with this id: a command never runs twice under one")
    .with_retry(retry);
    let keeper = app.keeper.on_behalf(origin);
    unless_stopping(&app, left, Box::pin(keeper.run(request))).await
}

async fn start(app: Arc<App>, (By(origin), Body(request)): (By, Body<StartRequest>)) -> Answer<Process> {
    Ok(app.keeper.on_behalf(origin).start(request).await?)
}

async fn processes(app: Arc<App>, Query(query): Query<ProcessQuery>) -> Answer<ProcessList> {
    Ok(ProcessList { processes: app.keeper.processes(query).await? })
}

async fn process(app: Arc<App>, At(id): At) -> Answer<Process> {
    Ok(app.keeper.process(&id).await?)
}

async fn log(app: Arc<App>, (At(id), Query(query)): (At, Query<LogQuery>)) -> Answer<LogPiece> {
    Ok(app.keeper.log(&id, query).await?)
}

async fn wait(app: Arc<App>, (At(id), Body(request)): (At, Body<WaitRequest>)) -> Answer<Process> {
    Ok(app.keeper.wait(&id, request).await?)
}

async fn stdin(app: Arc<App>, (At(id), Body(request)): (At, Body<StdinRequest>)) -> Answer<StdinResult> {
    let retry = if request.offset.is_some() { Retry::Safe } else { Retry::Unsafe };
    let left = Refusal::new(
        Kind::Disconnected,
        format!("sending input to {id}"),
        "the server is stopping, and not all of it may have been taken",
    )
    .with_retry(retry);
    unless_stopping(&app, left, app.keeper.stdin(&id, request)).await
}

async fn kill(app: Arc<App>, (At(id), Body(request)): (At, Body<KillRequest>)) -> Answer<KillResult> {
    Ok(app.keeper.kill(&id, request).await?)
}

async fn signal(app: Arc<App>, (At(id), Body(request)): (At, Body<SignalRequest>)) -> Answer<Done> {
    app.keeper.signal(&id, request).await?;
    Ok(YES)
}

async fn resize(app: Arc<App>, (At(id), Body(size)): (At, Body<ResizeRequest>)) -> Answer<Done> {
    app.keeper.resize(&id, size).await?;
    Ok(YES)
}

async fn screen(app: Arc<App>, At(id): At) -> Answer<Screen> {
    Ok(app.keeper.screen(&id).await?)
}

async fn environments(app: Arc<App>, (): ()) -> Answer<EnvironmentList> {
    Ok(EnvironmentList { environments: app.keeper.environments().await? })
}

async fn environment(app: Arc<App>, At(key): At) -> Answer<Environment> {
    Ok(app.keeper.environment(&key).await?)
}

async fn remove(app: Arc<App>, Body(request): Body<RemoveRequest>) -> Answer<RemoveResult> {
    Ok(app.keeper.remove(request).await?)
}

async fn gc(app: Arc<App>, Body(request): Body<GcRequest>) -> Answer<GcResult> {
    Ok(app.keeper.gc(request).await?)
}

async fn events(app: Arc<App>, Query(query): Query<EventQuery>) -> Answer<EventList> {
    Ok(app.keeper.events(query).await?)
}

async fn ack(app: Arc<App>, Body(request): Body<AckRequest>) -> Answer<Done> {
    app.keeper.ack(request).await?;
    Ok(YES)
}

async fn approvals(app: Arc<App>, Query(query): Query<ApprovalQuery>) -> Answer<ApprovalList> {
    Ok(app.keeper.approvals(query).await?)
}

async fn answer(app: Arc<App>, (At(id), Body(request)): (At, Body<AnswerRequest>)) -> Answer<Answered> {
    Ok(app.keeper.answer(&id, request).await?)
}

async fn audit(app: Arc<App>, Query(query): Query<AuditQuery>) -> Answer<AuditList> {
    Ok(app.keeper.audit(query).await?)
}

async fn verify_audit(app: Arc<App>, (): ()) -> Answer<AuditReport> {
    Ok(app.keeper.verify_audit().await?)
}
