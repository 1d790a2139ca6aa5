//! Files, one at a time. Errors here have no body.

use super::absolute;
use crate::reply::{answer, civil, empty, timestamp};
use axum::Json;
use axum::body::Body;
use axum::extract::Query;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

#[derive(Debug, Deserialize)]
pub(super) struct At {
    #[serde(default)]
    path: String,
    #[serde(default)]
    pattern: String,
    mode: Option<String>,
    owner: Option<String>,
    group: Option<String>,
    recursive: Option<bool>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Rename {
    source: String,
    destination: String,
}

fn refused(error: &io::Error) -> Response {
    empty(match error.kind() {
        io::ErrorKind::NotFound => 404,
        io::ErrorKind::PermissionDenied => 403,
        _ => 400,
    })
}

fn info_of(path: &Path) -> io::Result<Value> {
    let meta = std::fs::metadata(path)?;
    let mode = meta.permissions().mode() & 0o7777;
    let letters: String = (0..9)
        .rev()
        .map(|bit| if mode >> bit & 1 == 1 { ['x', 'w', 'r'][bit as usize % 3] } else { '-' })
        .collect();
    let modified = meta.modified()?;
    let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (date, time) = civil(since.as_secs());
    Ok(json!({
        "name": path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_else(|| "/".into()),
        "path": path.to_string_lossy(),
        "size": meta.len(),
        "mode": format!("{}{letters}", if meta.is_dir() { 'd' } else { '-' }),
        "modTime": format!("{date} {time}.{} +0000 UTC", since.subsec_millis()),
        "modifiedAt": timestamp(modified),
        "isDir": meta.is_dir(),
        "owner": meta.uid().to_string(),
        "group": meta.gid().to_string(),
        "permissions": format!("{mode:04o}"),
    }))
}

pub(super) async fn info(Query(at): Query<At>) -> Response {
    match info_of(&absolute(&at.path)) {
        Ok(info) => answer(200, &info),
        Err(error) => refused(&error),
    }
}

pub(super) async fn list(Query(at): Query<At>) -> Response {
    let dir = absolute(if at.path.is_empty() { "." } else { &at.path });
    match std::fs::read_dir(dir) {
        Ok(entries) => {
            let mut all: Vec<Value> =
                entries.flatten().filter_map(|entry| info_of(&entry.path()).ok()).collect();
            all.sort_by_key(|info| info["name"].as_str().map(str::to_owned));
            answer(200, &json!(all))
        }
        Err(error) => refused(&error),
    }
}

pub(super) async fn folder(Query(at): Query<At>) -> Response {
    let dir = absolute(&at.path);
    let mode = at.mode.as_deref().and_then(|mode| u32::from_str_radix(mode, 8).ok()).unwrap_or(0o755);
    let made = std::fs::create_dir_all(&dir)
        .and_then(|()| std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(mode)));
    match made {
        Ok(()) => empty(201),
        Err(error) => refused(&error),
    }
}

pub(super) async fn remove(Query(at): Query<At>) -> Response {
    let path = absolute(&at.path);
    let removed = match std::fs::symlink_metadata(&path) {
        Ok(meta) if meta.is_dir() && at.recursive == Some(true) => std::fs::remove_dir_all(&path),
        Ok(meta) if meta.is_dir() => return empty(400),
        Ok(_) => std::fs::remove_file(&path),
        Err(error) => Err(error),
    };
    match removed {
        Ok(()) => empty(204),
        Err(error) => refused(&error),
    }
}

pub(super) async fn rename(Query(wish): Query<Rename>) -> Response {
    let (from, to) = (absolute(&wish.source), absolute(&wish.destination));
    if to.exists() {
        return empty(409);
    }
    match std::fs::rename(from, to) {
        Ok(()) => empty(200),
        Err(error) => refused(&error),
    }
}

pub(super) async fn permissions(Query(at): Query<At>) -> Response {
    let path = absolute(&at.path);
    let change = || -> io::Result<()> {
        if let Some(mode) = at.mode.as_deref().and_then(|mode| u32::from_str_radix(mode, 8).ok()) {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))?;
        }
        let number = |text: &Option<String>| match text.as_deref() {
            None | Some("") => None,
            Some("root") => Some(0),
            Some(text) => text.parse().ok(),
        };
        std::os::unix::fs::chown(&path, number(&at.owner), number(&at.group))
    };
    match change() {
        Ok(()) => empty(200),
        Err(error) => refused(&error),
    }
}

pub(super) async fn download(Query(at): Query<At>, headers: HeaderMap) -> Response {
    let bytes = match std::fs::read(absolute(&at.path)) {
        Ok(bytes) => bytes,
        Err(error) => return refused(&error),
    };
    let range =
        headers.get("range").and_then(|value| value.to_str().ok()?.strip_prefix("bytes=")?.split_once('-'));
    let Some((first, last)) = range else { return Response::new(Body::from(bytes)) };
    let end = last.parse().map_or(bytes.len(), |last: usize| bytes.len().min(last.saturating_add(1)));
    match first.parse::<usize>().ok().filter(|first| *first < end) {
        Some(first) => {
            let mut response = Response::new(Body::from(bytes[first..end].to_vec()));
            *response.status_mut() = axum::http::StatusCode::PARTIAL_CONTENT;
            response
        }
        None => empty(416),
    }
}

/// All files below a directory, links not followed.
fn below(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => dirs.push(entry.path()),
                Ok(kind) if kind.is_file() => all.push(entry.path()),
                _ => {}
            }
        }
    }
    all.sort();
    all
}

pub(super) async fn grep(Query(at): Query<At>) -> Response {
    let start = absolute(&at.path);
    let files = if start.is_file() { vec![start] } else { below(&start) };
    let mut found = Vec::new();
    for file in files {
        // What is not text is skipped.
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        for (number, line) in text.lines().enumerate().filter(|(_, line)| line.contains(&at.pattern)) {
            found.push(json!({ "file": file.to_string_lossy(), "line": number + 1, "content": line }));
        }
    }
    answer(200, &json!(found))
}

/// `*` and `?` on the last part of the path.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => {
            fits(rest, name) || name.split_first().is_some_and(|(_, tail)| fits(pattern, tail))
        }
        (Some((b'?', rest)), Some((_, tail))) => fits(rest, tail),
        (Some((a, rest)), Some((b, tail))) if a == b => fits(rest, tail),
        _ => false,
    }
}

pub(super) async fn glob(Query(at): Query<At>) -> Response {
    let name =
        |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut files = below(&absolute(&at.path));
    files.retain(|path| fits(at.pattern.as_bytes(), name(path).as_bytes()));
    let files: Vec<String> = files.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    answer(200, &json!({ "files": files }))
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Replace {
    files: Vec<String>,
    pattern: String,
    new_value: String,
}

pub(super) async fn replace(Json(wish): Json<Replace>) -> Response {
    let one = |file: &String| {
        let path = absolute(file);
        let done = std::fs::read_to_string(&path)
            .and_then(|text| std::fs::write(&path, text.replace(&wish.pattern, &wish.new_value)));
        match done {
            Ok(()) => json!({ "file": file, "success": true }),
            Err(error) => json!({ "file": file, "success": false, "error": error.to_string() }),
        }
    };
    answer(200, &Value::Array(wish.files.iter().map(one).collect()))
}
