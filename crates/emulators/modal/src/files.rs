//! Modal's file API is a program in every sandbox, which clients run with one argument of JSON. It is not really there:
//! whoever is asked to become it, in the root already, does what it would do.

use serde::Deserialize;
use serde_json::{Value, json};
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::UNIX_EPOCH;

pub(crate) const PROGRAM: &str = "/__modal/.bin/modal-sandbox-fs-tools";

#[derive(Debug, Deserialize)]
enum Wish {
    ReadFile {
        path: String,
    },
    WriteFile {
        path: String,
    },
    ListFiles {
        path: String,
    },
    Stat {
        path: String,
    },
    Remove {
        path: String,
        #[serde(default)]
        recursive: bool,
    },
    MakeDirectory {
        path: String,
        #[serde(default)]
        parents: bool,
    },
}

/// Its exit code.
pub(crate) fn run(wish: &str) -> i32 {
    let done = match serde_json::from_str(wish) {
        Ok(wish) => answer(wish),
        Err(error) => Err(refusal("NotSupported", &format!("the emulator does not serve this: {error}"))),
    };
    match done {
        Ok(()) => 0,
        Err(refusal) => {
            let _ = write!(io::stderr(), "{refusal}");
            1
        }
    }
}

fn answer(wish: Wish) -> Result<(), Value> {
    match wish {
        Wish::ReadFile { path } => {
            let mut file = File::open(&path).map_err(|error| why(&error))?;
            if file.metadata().is_ok_and(|meta| meta.is_dir()) {
                return Err(refusal("IsDirectory", "Path is a directory"));
            }
            io::copy(&mut file, &mut io::stdout()).map(drop).map_err(|error| why(&error))
        }
        Wish::WriteFile { path } => {
            if let Some(parent) = Path::new(&path).parent() {
                std::fs::create_dir_all(parent).map_err(|error| why(&error))?;
            }
            let mut file = File::create(&path).map_err(|error| why(&error))?;
            io::copy(&mut io::stdin(), &mut file).map(drop).map_err(|error| why(&error))
        }
        Wish::ListFiles { path } => {
            if std::fs::metadata(&path).map_err(|error| why(&error))?.is_file() {
                return Err(refusal("IsFile", "Path is a file"));
            }
            let mut all = Vec::new();
            for entry in std::fs::read_dir(&path).map_err(|error| why(&error))? {
                let at = entry.map_err(|error| why(&error))?.path();
                // What went meanwhile is not listed.
                if let Ok(meta) = std::fs::symlink_metadata(&at) {
                    all.push(info(&at, &meta));
                }
            }
            say(&all.into())
        }
        Wish::Stat { path } => {
            let meta = std::fs::symlink_metadata(&path).map_err(|error| why(&error))?;
            say(&info(Path::new(&path), &meta))
        }
        Wish::Remove { path, recursive } => {
            let meta = std::fs::symlink_metadata(&path).map_err(|error| why(&error))?;
            match (meta.is_dir(), recursive) {
                (true, true) => std::fs::remove_dir_all(&path),
                (true, false) => std::fs::remove_dir(&path),
                (false, _) => std::fs::remove_file(&path),
            }
            .map_err(|error| why(&error))
        }
        Wish::MakeDirectory { path, parents: true } => {
            std::fs::create_dir_all(&path).map_err(|error| why(&error))
        }
        Wish::MakeDirectory { path, parents: false } => {
            std::fs::create_dir(&path).map_err(|error| match error.kind() {
                ErrorKind::AlreadyExists => refusal("PathAlreadyExists", "Path already exists"),
                _ => why(&error),
            })
        }
    }
}

fn say(value: &Value) -> Result<(), Value> {
    io::stdout().write_all(value.to_string().as_bytes()).map_err(|error| why(&error))
}

fn refusal(kind: &str, message: &str) -> Value {
    json!({ "error_kind": kind, "message": message, "detail": "" })
}

fn why(error: &io::Error) -> Value {
    let kind = match error.kind() {
        ErrorKind::NotFound => "NotFound",
        ErrorKind::IsADirectory => "IsDirectory",
        ErrorKind::NotADirectory => "NotDirectory",
        ErrorKind::AlreadyExists => "AlreadyExists",
        ErrorKind::PermissionDenied => "PermissionDenied",
        ErrorKind::DirectoryNotEmpty => "DirectoryNotEmpty",
        _ => "Other",
    };
    refusal(kind, &error.to_string())
}

fn info(path: &Path, meta: &Metadata) -> Value {
    let mode = meta.permissions().mode();
    let letters: String = (0..9)
        .rev()
        .map(|bit| if mode >> bit & 1 == 1 { ['x', 'w', 'r'][bit as usize % 3] } else { '-' })
        .collect();
    let kind = match meta.file_type() {
        kind if kind.is_dir() => "directory",
        kind if kind.is_symlink() => "symlink",
        // Clients know no others.
        _ => "file",
    };
    let modified = meta.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    let target = std::fs::read_link(path).ok().map(|to| to.to_string_lossy().into_owned());
    json!({
        "name": path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
        "path": path.to_string_lossy(),
        "type": kind,
        "size": meta.len(),
        "mode": mode & 0o7777,
        "permissions": letters,
        "owner": meta.uid().to_string(),
        "group": meta.gid().to_string(),
        "modified_time": modified.as_secs_f64(),
        "symlink_target": target,
    })
}
