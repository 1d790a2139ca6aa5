//! The bytes of a file, in and out, in pieces: neither side holds more than a few of them.

use super::handles::Handle;
use super::leave::{self, finish, leave};
use super::paths::Paths;
use super::{ERRORS, below, cut_off, refuse_with_root, told};
use crate::app::App;
use crate::input::{At, By, Input, Query, Shape, read};
use crate::life::Phase;
use crate::refusal::{Refusal, json};
use crate::route::{Described, Route};
use axum::body::Body;
use axum::http::{HeaderValue, Method, Request, Response, StatusCode, header};
use bytes::{Bytes, BytesMut};
use farshell_api::file::{FileWritten, ReadQuery, WriteQuery};
use farshell_engine::Kind;
use farshell_engine::client::{Download, FileStream, FileUpload};
use farshell_protocol::file::{Below, BelowOp, Write};
use http_body_util::BodyExt;
use schemars::SchemaGenerator;
use serde_bytes::ByteBuf;
use serde_json::json as value;
use std::sync::Arc;
use std::time::Duration;

/// A file up to this size is answered in one piece, with a status that is true to its end.
const WHOLE: usize = 256 << 10;
/// So much of a body that can't be used is read all the same, in so much time: most clients look for an answer only
/// when they have sent everything.
const DRAINED: usize = 64 << 20;
const DRAINING: Duration = Duration::from_secs(5);

const BYTES: &str = "application/octet-stream";
const READING: &str = "reading a file";

type Reading = (At, (Paths, Query<ReadQuery>));
type Writing = (By, (At, (Paths, Query<WriteQuery>)));

/// `GET content`.
pub(crate) fn read_route((path, name): (&'static str, &'static str), summary: &'static str) -> Route {
    Route {
        method: Method::GET,
        path,
        name,
        summary,
        errors: ERRORS,
        status: StatusCode::OK,
        takes: Some("ReadQuery".into()),
        gives: "the bytes".into(),
        describe: |schemas| {
            let mut input = Shape::default();
            Reading::describe(schemas, &mut input);
            Described {
                input,
                output: Some(value!({"type": "string", "format": "binary"})),
                more: Vec::new(),
            }
        },
        handler: Arc::new(|app, request| {
            Box::pin(async move { serve_read(app, request).await.unwrap_or_else(Refusal::response) })
        }),
    }
}

/// `PUT content`.
pub(crate) fn write_route((path, name): (&'static str, &'static str), summary: &'static str) -> Route {
    Route {
        method: Method::PUT,
        path,
        name,
        summary,
        errors: ERRORS,
        status: StatusCode::OK,
        takes: Some("WriteQuery".into()),
        gives: "FileWritten".into(),
        describe: |schemas: &mut SchemaGenerator| {
            let mut input = Shape::default();
            Writing::describe(schemas, &mut input);
            let body = value!({
                "required": true,
                "content": {BYTES: {"schema": {"type": "string", "format": "binary"}}}
            });
            let output = Some(schemas.subschema_for::<FileWritten>().to_value());
            Described { input, output, more: vec![("requestBody", body)] }
        },
        handler: Arc::new(|app, request| Box::pin(serve_write(app, request))),
    }
}

async fn serve_read(app: Arc<App>, request: Request<Body>) -> Result<Response<Body>, Refusal> {
    let (At(id), (paths, Query(query))) = read::<Reading>(request).await?;
    let handle = app.files.find(&id)?;
    let session = Some(handle.session());
    let mut stream = match &paths.root {
        Some(root) => {
            let (offset, len) = (Some(query.offset), query.len);
            let below = Below { offset, len, ..below(BelowOp::Read, root, &paths.path) };
            handle.outpost().read_below(session, below).await?
        }
        None => handle.outpost().read_file(session, &paths.path, query.offset, query.len).await?,
    };
    let mut first = BytesMut::new();
    while first.len() <= WHOLE {
        match stream.next().await? {
            Some(piece) => first.extend_from_slice(&piece),
            None => {
                same(stream.end.as_ref(), query.mtime_ns)?;
                return Ok(bytes(Body::from(first.freeze())));
            }
        }
    }
    let rest = Rest { first: Some(first.freeze()), stream, mtime_ns: query.mtime_ns, app, _handle: handle };
    Ok(bytes(Body::from_stream(futures_util::stream::unfold(Some(rest), Rest::next))))
}

fn bytes(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(BYTES));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Whether what was read is what the caller wanted to read.
fn same(end: Option<&Download>, mtime_ns: Option<i64>) -> Result<(), Refusal> {
    let end = end.ok_or_else(cut_off)?;
    match mtime_ns {
        Some(time) if end.changed || end.stat.version.mtime_ns != time => {
            Err(Refusal::new(Kind::Stale, READING, "it is not the file any more that it was"))
        }
        _ => Ok(()),
    }
}

/// A file that is on its way out.
struct Rest {
    first: Option<Bytes>,
    stream: FileStream,
    mtime_ns: Option<i64>,
    app: Arc<App>,
    /// The environment is held to the last byte.
    _handle: Arc<Handle>,
}

impl Rest {
    /// The status is out, so what goes wrong now can only cut the answer off.
    async fn next(rest: Option<Self>) -> Option<(std::io::Result<Bytes>, Option<Self>)> {
        let mut rest = rest?;
        if let Some(first) = rest.first.take() {
            return Some((Ok(first), Some(rest)));
        }
        let piece = tokio::select! {
            piece = rest.stream.next() => piece.map_err(Refusal::from),
            () = rest.app.life.reached(Phase::Stopping) => Err(Refusal::stopping()),
        };
        let piece = match piece {
            Ok(Some(piece)) => return Some((Ok(piece.into()), Some(rest))),
            Ok(None) => same(rest.stream.end.as_ref(), rest.mtime_ns),
            Err(refusal) => Err(refusal),
        };
        piece.err().map(|refusal| (Err(std::io::Error::other(refusal.error.message)), None))
    }
}

async fn serve_write(app: Arc<App>, request: Request<Body>) -> Response<Body> {
    let (parts, mut body) = request.into_parts();
    let written = async {
        let (By(by), (At(id), (paths, Query(query)))) =
            read::<Writing>(Request::from_parts(parts, Body::empty())).await?;
        let handle = app.files.find(&id)?;
        let permit = leave(&app, &handle, &by, leave::Change::Write, &paths).await?;
        let writing = async {
            let upload = begin(&handle, paths, &query).await?;
            receive(upload, &mut body).await
        };
        // Dropped with its caller or its server, and then nothing is written.
        let written = tokio::select! {
            written = writing => written,
            () = app.life.reached(Phase::Stopping) => Err(Refusal::stopping()),
        };
        finish(permit, &written);
        written
    };
    match written.await {
        Ok(written) => json(StatusCode::OK, &written),
        Err(refusal) => {
            let _ = tokio::time::timeout(DRAINING, drain(&mut body)).await;
            refusal.response()
        }
    }
}

async fn begin(handle: &Handle, paths: Paths, query: &WriteQuery) -> Result<FileUpload, Refusal> {
    let session = Some(handle.session());
    let Some(root) = &paths.root else {
        if query.mtime_ns.is_some() || query.part.is_some() {
            let message = "`mtime_ns` and `part` need a root";
            return Err(Refusal::new(Kind::Invalid, "reading the request", message));
        }
        let write = Write {
            path: ByteBuf::from(paths.path),
            mode: query.mode,
            set_mode: false,
            parents: query.parents,
            create_only: query.create_only,
            expect: None,
        };
        return Ok(handle.outpost().upload(session, write).await?);
    };
    refuse_with_root("parents", query.parents)?;
    refuse_with_root("create_only", query.create_only)?;
    let put = Below {
        mode: query.mode,
        mtime_ns: query.mtime_ns,
        offset: query.part,
        ..below(BelowOp::Put, root, &paths.path)
    };
    Ok(handle.outpost().put_below(session, put).await?)
}

async fn receive(mut upload: FileUpload, body: &mut Body) -> Result<FileWritten, Refusal> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Refusal::new(Kind::Invalid, "reading the request", format!("the body is cut off: {error}"))
        })?;
        if let Ok(data) = frame.into_data() {
            upload.push(&data).await?;
        }
    }
    let (stat, created) = upload.finish().await?;
    Ok(FileWritten { stat: told(stat), created })
}

async fn drain(body: &mut Body) {
    let mut read = 0;
    while let Some(Ok(frame)) = body.frame().await {
        read += frame.data_ref().map_or(0, Bytes::len);
        if read > DRAINED {
            return;
        }
    }
}
