//! What is copied, and where it goes. What the caller names is trusted, so links in it are followed; what is found
//! below it is not.

use super::operand::{Operand, join, split};
use super::side::{Result, Side, entry, error, trouble};
use super::work::{Item, Pair};
use farshell_api::Text;
use farshell_api::file::{Change, FileChange, FileEntry, FileKind, FileQuery, FileStat};
use farshell_client::files::{At, Files};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// As many links as a kernel follows.
const MAX_LINKS: usize = 40;

/// Something that is copied.
struct From {
    side: Side,
    /// Empty if it is a directory: it is the side's root.
    path: Vec<u8>,
    /// What it is called where it is copied into a directory.
    name: Option<Vec<u8>>,
    entry: FileEntry,
}

/// What is to be done, and where.
pub(super) async fn items(files: &Files, from: &[Operand], to: &Operand) -> Result<(Vec<Item>, Side)> {
    if from.iter().chain([to]).any(|operand| *operand == Operand::Standard) {
        let message = "`-` stands for one file, alone on its side";
        return Err(error("invalid", "reading the paths", message));
    }
    let mut sources = Vec::new();
    for operand in from {
        sources.push(match (operand, to) {
            (Operand::Here(path), Operand::There { .. }) => here(path)?,
            (Operand::There { path, .. }, Operand::Here(_)) => there(files, path).await?,
            _ => return Err(crate::output::api_error(super::between())),
        });
    }
    let path: &[u8] = match to {
        Operand::Here(path) => path.as_os_str().as_bytes(),
        Operand::There { path, .. } => path,
        Operand::Standard => b"",
    };
    let end = End { files, here: matches!(to, Operand::Here(_)), path };
    let dir = end.is_dir().await?;
    let into = |source: &From| {
        sources.len() > 1 || path.ends_with(b"/") || (dir && source.entry.kind != FileKind::Dir)
    };
    let first = sources.first().ok_or_else(|| error("invalid", "reading the paths", "nothing to copy"))?;
    let side = match (into(first), first.entry.kind) {
        (true, _) | (false, FileKind::Dir) => end.side(path).await?,
        (false, _) => {
            let (before, _) = split(path).ok_or_else(|| nameless(path))?;
            end.side(before).await?
        }
    };
    if files.opened().backend == "local" {
        let inside = side.real().await?;
        for source in sources.iter().filter(|source| source.entry.kind == FileKind::Dir) {
            if inside.starts_with(source.side.real().await?) {
                let shown = source.side.show(b"");
                let message = format!("{shown} can't be copied into itself");
                return Err(error("invalid", "reading the paths", message));
            }
        }
    }
    let mut items = Vec::new();
    for source in &sources {
        let to = match (into(source), source.entry.kind) {
            (true, _) => source.name.clone().ok_or_else(|| nameless(&source.path))?,
            (false, FileKind::Dir) => Vec::new(),
            (false, _) => split(path).map(|(_, name)| name.to_vec()).unwrap_or_default(),
        };
        let pair = Arc::new(Pair { from: source.side.clone(), to: side.clone() });
        let target = super::file::persist(|| side.look(&to)).await?;
        let beside = part_of(&to);
        let part = match to.is_empty() {
            true => None,
            false => super::file::persist(|| side.look(&beside)).await?.map(|part| part.size),
        };
        items.push(Item {
            pair,
            from: source.path.clone(),
            to,
            source: Some(source.entry.clone()),
            target,
            part,
            parent: None,
        });
    }
    Ok((items, side))
}

fn part_of(name: &[u8]) -> Vec<u8> {
    farshell_beneath::part_name(name).as_bytes().to_vec()
}

fn nameless(path: &[u8]) -> farshell_api::ApiError {
    let shown = String::from_utf8_lossy(path).into_owned();
    error("invalid", "reading the paths", format!("{shown:?} has no name that it could be copied to"))
}

/// A file or directory of this machine.
fn here(path: &Path) -> Result<From> {
    let fail = |error: std::io::Error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        trouble("looking at", path.as_os_str().as_bytes(), errno)
    };
    let real = std::fs::canonicalize(path).map_err(fail)?;
    let stat = rustix::fs::stat(&real).map_err(|error| fail(error.into()))?;
    let name = match split(path.as_os_str().as_bytes()) {
        Some((_, name)) => Some(name.to_vec()),
        None => real.file_name().map(|name| name.as_bytes().to_vec()),
    };
    let entry = entry(Vec::new(), &stat, None);
    if entry.kind == FileKind::Dir {
        return Ok(From { side: Side::here(path)?, path: Vec::new(), name, entry });
    }
    let (Some(parent), Some(last)) = (real.parent(), real.file_name()) else {
        return Err(nameless(path.as_os_str().as_bytes()));
    };
    Ok(From { side: Side::here(parent)?, path: last.as_bytes().to_vec(), name, entry })
}

/// A file or directory of the environment.
async fn there(files: &Files, path: &[u8]) -> Result<From> {
    let mut at = path.to_vec();
    for _ in 0..MAX_LINKS {
        let query = FileQuery::default();
        let stat = super::file::persist(|| files.stat(At::anywhere(&at), &query)).await?;
        let named = split(path).map(|(_, name)| name.to_vec());
        let absolute = stat.path.0.clone();
        let name = named.or_else(|| split(&absolute).map(|(_, name)| name.to_vec()));
        match (stat.kind, &stat.link) {
            (FileKind::Symlink, Some(link)) => {
                at = match link.0.first() {
                    Some(b'/') => link.0.clone(),
                    _ => [split(&absolute).map_or(&b"/"[..], |(before, _)| before), b"/", &link.0].concat(),
                };
            }
            (FileKind::Dir, _) => {
                let side = Side::There { files: files.clone(), root: at };
                return Ok(From { side, path: Vec::new(), name, entry: told(stat) });
            }
            _ => {
                let (before, last) = split(&absolute).ok_or_else(|| nameless(&absolute))?;
                let side = Side::There { files: files.clone(), root: before.to_vec() };
                return Ok(From { side, path: last.to_vec(), name, entry: told(stat) });
            }
        }
    }
    Err(trouble("following", path, Errno::LOOP))
}

fn told(stat: FileStat) -> FileEntry {
    FileEntry {
        name: Text::default(),
        kind: stat.kind,
        mode: stat.mode,
        size: stat.size,
        mtime_ns: stat.mtime_ns,
        link: stat.link,
    }
}

/// Where it goes.
struct End<'a> {
    files: &'a Files,
    here: bool,
    path: &'a [u8],
}

impl End<'_> {
    async fn is_dir(&self) -> Result<bool> {
        if self.here {
            return Ok(Path::new(OsStr::from_bytes(self.path)).is_dir());
        }
        let query = FileQuery { follow: true, ..FileQuery::default() };
        match super::file::persist(|| self.files.stat(At::anywhere(self.path), &query)).await {
            Ok(stat) => Ok(stat.kind == FileKind::Dir),
            Err(error) if error.kind == "not_found" => Ok(false),
            // `file/` is no directory: that shows when it is used.
            Err(error) if error.kind == "invalid" => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The directory, made if it is not there.
    async fn side(&self, dir: &[u8]) -> Result<Side> {
        if self.here {
            let path = PathBuf::from(OsStr::from_bytes(dir));
            std::fs::create_dir_all(&path).map_err(|error| {
                trouble("making directory", dir, Errno::from_io_error(&error).unwrap_or(Errno::IO))
            })?;
            return Side::here(&path);
        }
        let change = FileChange {
            root: None,
            path: Text(dir.to_vec()),
            change: Change::MakeDir { parents: true, mode: None },
        };
        super::file::persist(|| self.files.change(&change)).await?;
        Ok(Side::There { files: self.files.clone(), root: join(dir, b"") })
    }
}
