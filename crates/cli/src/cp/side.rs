//! One side of a copy: a directory here or in an environment, and what can be done below it. Both keep the same rules,
//! see [`farshell_beneath`]: names and links below the directory never lead out of it.

use super::operand::join;
use bytes::Bytes;
use farshell_api::file::{Change, FileChange, FileEntry, FileKind, FileQuery, ReadQuery, WriteQuery};
use farshell_api::{ApiError, Text};
use farshell_beneath::{Put, Root, mtime_ns, names};
use farshell_client::files::{At, Files, Reading, Writing};
use farshell_engine::Error;
use rustix::fs::{AtFlags, FileType, Stat};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) type Result<T> = std::result::Result<T, ApiError>;

/// Bytes that are read here at a time.
const PIECE: usize = 256 << 10;

#[derive(Clone, Debug)]
pub(super) enum Side {
    Here { root: Arc<Root>, path: PathBuf },
    There { files: Files, root: Vec<u8> },
}

/// How a file is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    pub(super) mode: u32,
    pub(super) mtime_ns: i64,
    /// Goes on after so many bytes, and keeps what has come if it is cut off.
    pub(super) part: Option<u64>,
}

impl Side {
    pub(super) fn here(path: &Path) -> Result<Self> {
        let root =
            Root::open(path).map_err(|error| trouble("entering", path.as_os_str().as_bytes(), error))?;
        Ok(Self::Here { root: Arc::new(root), path: path.to_owned() })
    }

    /// Where the directory is, if both sides are on this machine.
    pub(super) async fn real(&self) -> Result<PathBuf> {
        let path = match self {
            Self::Here { path, .. } => path.clone(),
            Self::There { files, root } => {
                let query = FileQuery { follow: true, ..FileQuery::default() };
                let stat = super::file::persist(|| files.stat(At::anywhere(root), &query)).await?;
                PathBuf::from(std::ffi::OsString::from_vec(stat.path.0))
            }
        };
        std::fs::canonicalize(&path).map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            trouble("looking at", path.as_os_str().as_bytes(), errno)
        })
    }

    /// For people.
    pub(super) fn show(&self, path: &[u8]) -> String {
        let (mark, root) = match self {
            Self::Here { path, .. } => ("", path.as_os_str().as_bytes()),
            Self::There { root, .. } => (":", &root[..]),
        };
        let whole = if root == b"/" { [b"/", path].concat() } else { join(root, path) };
        crate::output::plain(&format!("{mark}{}", String::from_utf8_lossy(&whole)))
    }

    fn fail(&self, doing: &'static str, path: &[u8]) -> impl FnOnce(Errno) -> ApiError {
        let shown = self.show(path);
        move |error| trouble(doing, shown.as_bytes(), error)
    }

    /// The entries of a directory.
    pub(super) async fn list(&self, path: &[u8]) -> Result<Vec<FileEntry>> {
        match self {
            Self::Here { root, .. } => {
                let fail = |error| self.fail("listing", path)(error);
                let (dir, names) = names(root.dir(path).map_err(fail)?).map_err(fail)?;
                let dir = dir.fd().map_err(fail)?;
                let mut entries = Vec::with_capacity(names.len());
                for name in names {
                    let Ok(stat) = rustix::fs::statat(dir, &name, AtFlags::SYMLINK_NOFOLLOW) else {
                        continue;
                    };
                    let link = || rustix::fs::readlinkat(dir, &name, Vec::new()).ok();
                    let link = link().filter(|_| kind(&stat) == FileKind::Symlink);
                    entries.push(entry(name.clone().into_vec(), &stat, link.map(|link| link.into_bytes())));
                }
                Ok(entries)
            }
            Self::There { files, root } => {
                let list = files.list(At::below(root, path), &FileQuery::default()).await?;
                if list.truncated {
                    let message = format!("it has more than {} entries", list.entries.len());
                    return Err(error("exhausted", "listing", message));
                }
                Ok(list.entries)
            }
        }
    }

    /// What is there, if anything is.
    pub(super) async fn look(&self, path: &[u8]) -> Result<Option<FileEntry>> {
        match self {
            Self::Here { root, .. } => {
                let fail = |error| self.fail("looking at", path)(error);
                if path.is_empty() {
                    let dir = root.dir(path).map_err(fail)?;
                    return Ok(Some(entry(Vec::new(), &rustix::fs::fstat(dir).map_err(fail)?, None)));
                }
                let spot = match root.spot(path) {
                    Err(Errno::NOENT) => return Ok(None),
                    spot => spot.map_err(fail)?,
                };
                let stat = spot.lstat().map_err(fail)?;
                let link = spot.read_link().ok();
                Ok(stat.map(|stat| entry(path.to_vec(), &stat, link)))
            }
            Self::There { files, root } => {
                match files.stat(At::below(root, path), &FileQuery::default()).await {
                    Ok(stat) => Ok(Some(FileEntry {
                        name: Text(path.to_vec()),
                        kind: stat.kind,
                        mode: stat.mode,
                        size: stat.size,
                        mtime_ns: stat.mtime_ns,
                        link: stat.link,
                    })),
                    Err(error) if error.kind == "not_found" => Ok(None),
                    Err(error) => Err(error),
                }
            }
        }
    }

    /// The SHA-256 of a file's first bytes, and how many there were.
    pub(super) async fn hash(&self, path: &[u8], len: u64) -> Result<(String, u64)> {
        match self {
            Self::Here { root, .. } => {
                let (file, _) =
                    root.spot(path).and_then(|spot| spot.open()).map_err(self.fail("reading", path))?;
                let hashed = tokio::task::spawn_blocking(move || hash(file, len)).await;
                let hashed = hashed.map_err(|e| error("system", "hashing", e.to_string()))?;
                hashed.map_err(|e| io("reading", &self.show(path), e))
            }
            Self::There { files, root } => {
                let query = FileQuery { limit: Some(len), ..FileQuery::default() };
                let hash = files.hash(At::below(root, path), &query).await?;
                Ok((hash.sha256, hash.bytes))
            }
        }
    }

    /// Opens a file that is still the one that was seen.
    pub(super) async fn read(&self, path: &[u8], offset: u64, seen: &FileEntry) -> Result<Source> {
        match self {
            Self::Here { root, .. } => {
                let (mut file, _) =
                    root.spot(path).and_then(|spot| spot.open()).map_err(self.fail("reading", path))?;
                let shown = self.show(path);
                file.seek(SeekFrom::Start(offset)).map_err(|e| io("reading", &shown, e))?;
                Ok(Source::Here { file, shown, seen: (seen.size, seen.mtime_ns) })
            }
            Self::There { files, root } => {
                let query = ReadQuery { offset, len: None, mtime_ns: Some(seen.mtime_ns) };
                Ok(Source::There(files.read(At::below(root, path), &query).await?))
            }
        }
    }

    pub(super) async fn put(&self, path: &[u8], manner: Manner) -> Result<Sink> {
        match self {
            Self::Here { root, .. } => {
                let spot = root.spot(path).map_err(self.fail("writing", path))?;
                let put = match manner.part {
                    Some(offset) => spot.go_on(offset),
                    None => spot.put(),
                };
                let put = put.map_err(self.fail("writing", path))?;
                Ok(Sink::Here { put, manner, shown: self.show(path) })
            }
            Self::There { files, root } => {
                let query = WriteQuery {
                    mode: Some(manner.mode),
                    mtime_ns: Some(manner.mtime_ns),
                    part: manner.part,
                    ..WriteQuery::default()
                };
                Ok(Sink::There(Box::new(files.write(At::below(root, path), &query).await?)))
            }
        }
    }

    pub(super) async fn make_dir(&self, path: &[u8]) -> Result<()> {
        match self {
            Self::Here { root, .. } => root
                .spot(path)
                .and_then(|spot| spot.make_dir())
                .map(drop)
                .map_err(self.fail("making directory", path)),
            Self::There { .. } => self.change(path, Change::MakeDir { parents: false, mode: None }).await,
        }
    }

    pub(super) async fn link(&self, path: &[u8], to: &[u8], mtime_ns: i64) -> Result<()> {
        match self {
            Self::Here { root, .. } => root
                .spot(path)
                .and_then(|spot| spot.link(to, Some(mtime_ns)))
                .map_err(self.fail("making link", path)),
            Self::There { .. } => {
                let (to, mtime_ns) = (Text(to.to_vec()), Some(mtime_ns));
                self.change(path, Change::Link { to, mtime_ns }).await
            }
        }
    }

    pub(super) async fn set(&self, path: &[u8], mode: u32, mtime_ns: i64) -> Result<()> {
        let (mode, mtime_ns) = (Some(mode), Some(mtime_ns));
        match self {
            Self::Here { root, .. } => {
                root.set(path, mode, mtime_ns).map_err(self.fail("setting the mode and time of", path))
            }
            Self::There { .. } => self.change(path, Change::Set { mode, mtime_ns }).await,
        }
    }

    pub(super) async fn remove(&self, path: &[u8]) -> Result<()> {
        match self {
            Self::Here { root, .. } => {
                root.spot(path).and_then(|spot| spot.remove()).map_err(self.fail("removing", path))
            }
            Self::There { .. } => {
                self.change(path, Change::Remove { recursive: true, missing_ok: true }).await
            }
        }
    }

    /// What was written is on the disk when this returns.
    pub(super) async fn sync(&self) -> Result<()> {
        match self {
            Self::Here { root, path } => {
                let root = Arc::clone(root);
                let synced = tokio::task::spawn_blocking(move || root.sync()).await;
                let synced = synced.map_err(|e| error("system", "syncing", e.to_string()))?;
                synced.map_err(|e| trouble("syncing", path.as_os_str().as_bytes(), e))
            }
            Self::There { .. } => self.change(b"", Change::Sync).await,
        }
    }

    async fn change(&self, path: &[u8], change: Change) -> Result<()> {
        let Self::There { files, root } = self else { return Ok(()) };
        let change = FileChange { root: Some(Text(root.clone())), path: Text(path.to_vec()), change };
        files.change(&change).await.map(drop)
    }
}

/// A file that is being read.
#[derive(Debug)]
pub(super) enum Source {
    Here { file: File, shown: String, seen: (u64, i64) },
    There(Reading),
}

impl Source {
    /// The next bytes, `None` at the end. An error if it is not the file any more that was seen.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>> {
        match self {
            Self::Here { file, shown, seen } => {
                let mut buffer = vec![0; PIECE];
                let got = file.read(&mut buffer).map_err(|e| io("reading", shown, e))?;
                if got > 0 {
                    buffer.truncate(got);
                    return Ok(Some(buffer.into()));
                }
                let now = rustix::fs::fstat(&*file).map_err(|e| trouble("reading", shown.as_bytes(), e))?;
                if (u64::try_from(now.st_size).unwrap_or(0), mtime_ns(&now)) != *seen {
                    let message = "it changed while it was copied";
                    return Err(error("stale", &format!("reading {shown}"), message));
                }
                Ok(None)
            }
            Self::There(reading) => reading.next().await,
        }
    }
}

/// A file that is being written.
#[derive(Debug)]
pub(super) enum Sink {
    Here { put: Put, manner: Manner, shown: String },
    There(Box<Writing>),
}

impl Sink {
    pub(super) async fn push(&mut self, bytes: Bytes) -> Result<()> {
        match self {
            Self::Here { put, shown, .. } => put.write(&bytes).map_err(|e| io("writing", shown, e)),
            Self::There(writing) => writing.push(bytes).await,
        }
    }

    pub(super) async fn finish(self) -> Result<()> {
        match self {
            Self::Here { put, manner, shown } => put
                .finish(manner.mode, Some(manner.mtime_ns))
                .map(drop)
                .map_err(|e| trouble("writing", shown.as_bytes(), e)),
            Self::There(writing) => writing.finish().await.map(drop),
        }
    }
}

fn hash(file: File, len: u64) -> std::io::Result<(String, u64)> {
    let (mut hash, mut bytes) = (Sha256::new(), 0);
    let mut reader = file.take(len);
    let mut buffer = vec![0; PIECE];
    loop {
        match reader.read(&mut buffer)? {
            0 => break,
            got => {
                hash.update(&buffer[..got]);
                bytes += got as u64;
            }
        }
    }
    Ok((hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect(), bytes))
}

pub(super) fn entry(name: Vec<u8>, stat: &Stat, link: Option<Vec<u8>>) -> FileEntry {
    FileEntry {
        name: Text(name),
        kind: kind(stat),
        mode: stat.st_mode & 0o7777,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mtime_ns: mtime_ns(stat),
        link: link.map(Text),
    }
}

fn kind(stat: &Stat) -> FileKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Dir,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice => FileKind::CharDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::Unknown => FileKind::Unknown,
    }
}

pub(super) fn error(kind: &str, operation: &str, message: impl Into<String>) -> ApiError {
    ApiError {
        kind: kind.into(),
        operation: operation.into(),
        message: message.into(),
        hint: None,
        retry: "never".into(),
    }
}

fn io(doing: &str, shown: &str, error: std::io::Error) -> ApiError {
    crate::output::api_error(Error::io(format!("{doing} {shown}"), error))
}

/// An error of the system on this side.
pub(super) fn trouble(doing: &str, path: &[u8], errno: Errno) -> ApiError {
    let shown = String::from_utf8_lossy(path).into_owned();
    let mut failed = io(doing, &shown, errno.into());
    match errno {
        Errno::AGAIN => failed.kind = "busy".into(),
        Errno::STALE => failed.kind = "stale".into(),
        Errno::LOOP => failed.message = "a link is in the way, and links are not followed there".into(),
        Errno::NOTDIR => failed.message = "something that is no directory is in the way".into(),
        _ => {}
    }
    failed
}
