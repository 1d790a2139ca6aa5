//! Many files in one request.

use super::absolute;
use crate::reply::{answer, empty};
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Multipart, Query, Request};
use axum::http::HeaderValue;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io;

const BOUNDARY: &str = "DAYTONA-FILE-BOUNDARY";

fn write(path: &str, bytes: &[u8]) -> io::Result<()> {
    let path = absolute(path);
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::write(path, bytes)
}

/// The text between the brackets of `files[0].path` is only a key.
pub(super) async fn upload(mut form: Multipart) -> Response {
    let (mut paths, mut done, mut errors) = (HashMap::new(), Vec::new(), Vec::new());
    loop {
        let field = match form.next_field().await {
            Ok(Some(field)) => field,
            Ok(None) => break,
            Err(error) => {
                errors.push(error.to_string());
                break;
            }
        };
        let name = field.name().unwrap_or_default().to_owned();
        let Some((key, kind)) = name.strip_prefix("files[").and_then(|rest| rest.split_once("].")) else {
            continue;
        };
        let bytes = match field.bytes().await {
            Ok(bytes) => bytes,
            Err(error) => {
                errors.push(format!("file[{key}]: {error}"));
                break;
            }
        };
        match (kind, paths.get(key)) {
            ("path", _) => drop(paths.insert(key.to_owned(), String::from_utf8_lossy(&bytes).into_owned())),
            (_, None) => errors.push(format!("file[{key}]: missing .path metadata")),
            (_, Some(path)) => match write(path, &bytes) {
                Ok(()) => done.push(json!({ "path": path, "bytes": bytes.len() })),
                Err(error) => errors.push(format!("{path}: {error}")),
            },
        }
    }
    match errors.is_empty() {
        true => answer(200, &json!({ "files": done })),
        false => answer(400, &json!({ "errors": errors, "files": done })),
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct At {
    path: String,
}

pub(super) async fn upload_one(Query(at): Query<At>, request: Request) -> Response {
    let multipart = request
        .headers()
        .get("content-type")
        .is_some_and(|kind| kind.as_bytes().starts_with(b"multipart/form-data"));
    let bytes: Option<Bytes> = if multipart {
        match Multipart::from_request(request, &()).await {
            Ok(mut form) => match form.next_field().await {
                Ok(Some(field)) => field.bytes().await.ok(),
                _ => None,
            },
            Err(_) => None,
        }
    } else {
        axum::body::to_bytes(request.into_body(), usize::MAX).await.ok()
    };
    match bytes.map(|bytes| write(&at.path, &bytes)) {
        Some(Ok(())) => empty(200),
        _ => empty(400),
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Paths {
    paths: Vec<String>,
}

pub(super) async fn download(Json(wish): Json<Paths>) -> Response {
    let mut body = Vec::new();
    for path in &wish.paths {
        let (name, kind, bytes) = match std::fs::read(absolute(path)) {
            Ok(bytes) => ("file", "application/octet-stream", bytes),
            Err(error) => ("error", "application/json", failure(path, &error).to_string().into_bytes()),
        };
        let encoded: String = path
            .bytes()
            .map(|byte| {
                if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
                    char::from(byte).to_string()
                } else {
                    format!("%{byte:02X}")
                }
            })
            .collect();
        body.extend_from_slice(
            format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"")
                .as_bytes(),
        );
        for c in path.chars() {
            match c {
                '\\' | '"' => body.extend_from_slice(&[b'\\', c as u8]),
                c => body.push(u8::try_from(u32::from(c)).unwrap_or(b'?')),
            }
        }
        body.extend_from_slice(
            format!(
                "\"; filename*=utf-8''{encoded}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
                bytes.len()
            )
            .as_bytes(),
        );
        body.extend_from_slice(&bytes);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
    let mut response = Response::new(Body::from(body));
    if let Ok(kind) = HeaderValue::from_str(&format!("multipart/form-data; boundary={BOUNDARY}")) {
        response.headers_mut().insert("content-type", kind);
    }
    response
}

fn failure(path: &str, error: &io::Error) -> Value {
    let (status, code) = match error.kind() {
        io::ErrorKind::NotFound => (404, "FILE_NOT_FOUND"),
        io::ErrorKind::PermissionDenied => (403, "FILE_ACCESS_DENIED"),
        io::ErrorKind::IsADirectory => (400, "INVALID_FILE_PATH"),
        _ => (500, "FILE_READ_FAILED"),
    };
    json!({ "statusCode": status, "message": format!("{path}: {error}"), "code": code, "source": "DAYTONA_DAEMON" })
}
