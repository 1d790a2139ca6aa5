//! Opening the database: alone, checked, and never at the cost of what is there.

use crate::error::{Error, Kind, Result};
use crate::schema;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, MAIN_DB, OpenFlags, ffi};
use std::ffi::OsString;
use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long somebody who is just going may take. The one before us may have been killed between a fork and its exec.
const PATIENCE: Duration = Duration::from_secs(1);

/// The database and what SQLite puts beside it.
const PARTS: [&str; 4] = ["", "-wal", "-journal", "-shm"];

pub(crate) struct Opened {
    pub(crate) connection: Connection,
    pub(crate) lock: File,
    pub(crate) warnings: Vec<String>,
    /// Set if events may have had numbers that are not known any more: new ones must be above this.
    pub(crate) numbers_lost: Option<u64>,
}

/// Opens what is at `path`, or begins it there. Closing it leaves the log as it is, until [`tidy_at_close`].
pub(crate) fn open(path: &Path) -> Result<Opened> {
    let lock = lock(&with(path, ".lock"))?;
    let mut warnings = Vec::new();
    let mut numbers_lost = None;
    let log = with(path, "-wal");
    if length(path)? == 0 && length(&log)? > 0 {
        // SQLite would take the database for a new one and delete the log.
        warnings.push(move_aside(path, "the file is gone or empty, but its log is not")?);
        numbers_lost = Some(now_ms());
    } else if damaged_log(&log)? {
        // SQLite would take the log for an empty one and write over it.
        let aside = name_aside(path)?;
        let aside_log = with(&aside, "-wal");
        std::fs::rename(&log, &aside_log)?;
        numbers_lost = Some(0);
        warnings.push(format!(
            "the newest changes of the server's state, {}, were damaged. They were moved to {}, and the state from \
             before them is used: environments, background processes and events that were recorded last may be \
             missing. Nothing was deleted, and what runs goes on.",
            log.display(),
            aside_log.display(),
        ));
    }
    // A log that is gone may have been on its way into the database.
    let connection = match prepare(path, numbers_lost.is_some()) {
        Err(error) if error.kind == Kind::Corrupt => {
            warnings.push(move_aside(path, &error.message)?);
            numbers_lost = Some(now_ms());
            prepare(path, false)
        }
        prepared => prepared,
    };
    let connection = connection.map_err(|error| explained(path, error))?;
    Ok(Opened { connection, lock, warnings, numbers_lost })
}

/// Only the holder looks at the files, and only the holder moves them.
fn lock(path: &Path) -> Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let start = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if start.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(TryLockError::WouldBlock) => {
                return Err(Error::new(Kind::Locked, "another process has it open")
                    .with_hint("`farshell server status` shows the server that runs"));
            }
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
    }
}

/// Opens the database, checks it and brings it to the newest version. [`Kind::Corrupt`] means that it must go aside.
fn prepare(path: &Path, thorough: bool) -> Result<Connection> {
    // Created here, because SQLite takes the mode from the umask. An existing file must not be opened and closed by
    // us: that would give back the locks of another connection in this process.
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(PATIENCE)?;
    // Until it is known to be sound and ours, closing it leaves everything as it is.
    tidy_at_close(&connection, false)?;
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    // Because of the file's mode, which is seen at once; or because of its format, which is seen when it is read.
    writable(&connection)?;
    schema::check(&connection)?;
    writable(&connection)?;
    sound(&connection, thorough)?;
    for part in PARTS {
        private(&with(path, part))?;
    }
    let mode: String = connection.query_row("PRAGMA journal_mode=WAL", (), |row| row.get(0))?;
    if mode != "wal" {
        return Err(Error::new(
            Kind::Io,
            format!("a write-ahead log is not possible (it stays with `{mode}`)"),
        ));
    }
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    // No files elsewhere, which might be full.
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // A log that grew once gives its room back.
    connection.query_row("PRAGMA journal_size_limit=4194304", (), |_| Ok(()))?;
    schema::migrate(&mut connection)?;
    // Takes the lock for good.
    connection.execute_batch("BEGIN IMMEDIATE; COMMIT")?;
    Ok(connection)
}

fn writable(connection: &Connection) -> Result<()> {
    if connection.is_readonly(MAIN_DB)? {
        return Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_READONLY), None).into());
    }
    Ok(())
}

/// Whether closing moves the log into the database.
pub(crate) fn tidy_at_close(connection: &Connection, tidy: bool) -> Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, !tidy)?;
    Ok(())
}

/// SQLite does not say why it can't open a file. Nobody else in this process has it open: we have the lock.
fn explained(path: &Path, error: Error) -> Error {
    if !error.is_cannot_open() {
        return error;
    }
    let refused = |path: PathBuf| match OpenOptions::new().read(true).write(true).open(path) {
        Err(refused) if refused.kind() != ErrorKind::NotFound => Some(refused.into()),
        _ => None,
    };
    PARTS.iter().map(|part| with(path, part)).find_map(refused).unwrap_or(error)
}

/// `thorough` also compares indexes with their tables.
fn sound(connection: &Connection, thorough: bool) -> Result<()> {
    let pragma = if thorough { "PRAGMA integrity_check(1)" } else { "PRAGMA quick_check(1)" };
    let found: String = connection.query_row(pragma, (), |row| row.get(0))?;
    if found == "ok" {
        return Ok(());
    }
    // A disk that fails to read says nothing about what is on it.
    let code = found.rsplit_once("error code=").and_then(|(_, code)| code.trim().parse::<i32>().ok());
    let kind =
        if code.is_some_and(|code| code & 0xff == ffi::SQLITE_IOERR) { Kind::Io } else { Kind::Corrupt };
    Err(Error::new(kind, found))
}

/// Takes the file away from group and others.
fn private(path: &Path) -> Result<()> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.permissions().mode() & 0o077 == 0 => Ok(()),
        Ok(_) => Ok(std::fs::set_permissions(path, Permissions::from_mode(0o600))?),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Is this a log that SQLite would not read? A short or empty header is none: so it looks when the machine lost power
/// while it was begun, and then nothing is in it.
fn damaged_log(log: &Path) -> Result<bool> {
    if length(log)? < 32 {
        return Ok(false);
    }
    let mut header = [0; 32];
    File::open(log)?.read_exact(&mut header)?;
    Ok(header != [0; 32] && !is_log_header(&header))
}

/// As told in "WAL File Format" of SQLite's file format.
fn is_log_header(header: &[u8; 32]) -> bool {
    let words = |decode: fn([u8; 4]) -> u32| {
        header.as_chunks::<4>().0.iter().map(move |bytes| decode(*bytes)).collect::<Vec<_>>()
    };
    let big = words(u32::from_be_bytes);
    let summed = match big.first() {
        Some(0x377f_0682) => words(u32::from_le_bytes),
        Some(0x377f_0683) => big.clone(),
        _ => return false,
    };
    let (mut first, mut second) = (0_u32, 0_u32);
    for pair in summed.as_chunks::<2>().0.iter().take(3) {
        first = first.wrapping_add(pair[0]).wrapping_add(second);
        second = second.wrapping_add(pair[1]).wrapping_add(first);
    }
    big.get(1) == Some(&3_007_000) && big.get(6..) == Some(&[first, second])
}

/// Moves the database with its parts aside, and says so.
fn move_aside(path: &Path, why: &str) -> Result<String> {
    let aside = name_aside(path)?;
    // The database first: without it the log alone is seen as what it is, should we die in between. The log first
    // would leave a database that looks sound and lacks its newest changes.
    for part in PARTS {
        match std::fs::rename(with(path, part), with(&aside, part)) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(format!(
        "the server's state, {}, was damaged ({why}). It was moved to {} and a new one was begun: environments, \
         background processes and events from before are not known any more. Nothing was deleted, and what runs goes \
         on.",
        path.display(),
        aside.display(),
    ))
}

/// A name that nobody has.
fn name_aside(path: &Path) -> Result<PathBuf> {
    let now = now_ms() / 1000;
    for n in 0_u32.. {
        let suffix = if n == 0 { format!(".corrupt-{now}") } else { format!(".corrupt-{now}-{n}") };
        let aside = with(path, &suffix);
        if PARTS.iter().map(|part| with(&aside, part)).all(|part| part.symlink_metadata().is_err()) {
            return Ok(aside);
        }
    }
    Err(Error::new(Kind::Io, "no name is left to move it to"))
}

fn with(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// 0 if there is none.
fn length(path: &Path) -> Result<u64> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(metadata.len()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error.into()),
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
