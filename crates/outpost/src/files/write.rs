//! Atomic writes: a reader sees the old file or the new one, never a part, and neither a lost connection nor a
//! crash leaves anything in between.
//!
//! 1. The path's last links are followed, so that the file behind a link is replaced and the link stays.
//! 2. The data goes into a temporary file in the same directory.
//! 3. When all of it has come, the temporary gets mode and owner and is synced.
//! 4. The conditions of the request are checked, the temporary takes the name, the directory is synced.
//!
//! The new content is a new file: other hard links to the old one keep the old content, and extended
//! attributes are not carried over.

use super::failure::{failed, invalid};
use super::path::{Entry, Named};
use super::stat::{it_is, kind, mode, to_stat, version};
use super::temp::Temp;
use super::tree::MadeDirs;
use super::{Call, Context};
use farshell_protocol::file::{FileReply, FileType, Write};
use farshell_protocol::{ErrorKind, Failure};
use rustix::fs::{Mode, Stat};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// As many links as the kernel follows.
const MAX_LINKS: usize = 40;
/// Where `/proc` does not say (it is from Linux 4.7).
const USUAL_UMASK: u32 = 0o022;

pub(super) fn serve(context: &Context, write: &Write, call: &mut dyn Call) -> Result<FileReply, Failure> {
    let named = Named::new(context, &write.path)?;
    let mut made = MadeDirs::default();
    let target = find_target(context, &named, write, &mut made)?;
    // Also before the data comes: a write that can't succeed should not cost an upload.
    check(&target, write)?;

    let (temp, mut file) = Temp::file(&target).map_err(|error| no_temp(&target, error))?;
    let fail = |error: std::io::Error| failed("write", &target.path, error);
    while let Some(piece) = call.receive()? {
        std::io::Write::write_all(&mut file, &piece).map_err(fail)?;
    }

    let old = check(&target, write)?;
    dress(&file, old.as_ref(), write).map_err(|error| fail(error.into()))?;
    file.sync_all().map_err(fail)?;
    // The sync can take seconds. Between this look and the rename there are microseconds.
    let old = check(&target, write)?;
    temp.place(&target, !write.create_only).map_err(|error| match error {
        Errno::BUSY => {
            let mut failure =
                invalid("replace", &target.path, "it is a mount point, which can't be replaced atomically");
            failure.errno = Some(error.raw_os_error());
            failure
        }
        error => failed("write", &target.path, error),
    })?;
    made.keep();
    target.sync_dir().map_err(|error| fail(error.into()))?;

    let stat = rustix::fs::fstat(&file).map_err(|error| fail(error.into()))?;
    Ok(FileReply::Written { stat: to_stat(&named.path, &stat), created: old.is_none() })
}

/// The entry to replace: the one at the end of the chain of links that starts at the path.
fn find_target(
    context: &Context,
    named: &Named,
    write: &Write,
    made: &mut MadeDirs,
) -> Result<Entry, Failure> {
    let mut next = None;
    for _ in 0..MAX_LINKS {
        let current: &Named = next.as_ref().unwrap_or(named);
        if current.slash {
            return Err(invalid("write", &current.path, "a path that ends in `/` names a directory"));
        }
        if write.parents
            && let Some(parent) = current.path.parent()
        {
            made.make(parent)?;
        }
        let entry = current.entry("write")?;
        match entry.lstat().map_err(|error| failed("write", &entry.path, error))? {
            // With `create_only` a link is something that is there, as for O_EXCL.
            Some(stat) if kind(&stat) == FileType::Symlink && !write.create_only => {
                let link = entry.read_link().map_err(|error| failed("follow", &entry.path, error))?;
                let to = entry.path.parent().unwrap_or(Path::new("/")).join(link);
                next = Some(Named::new(context, to.as_os_str().as_bytes())?);
            }
            _ => return Ok(entry),
        }
    }
    Err(failed("write", &named.path, Errno::LOOP))
}

/// What is there now, if the request allows it to be replaced.
fn check(target: &Entry, write: &Write) -> Result<Option<Stat>, Failure> {
    let old = target.lstat().map_err(|error| failed("write", &target.path, error))?;
    if write.create_only && old.is_some() {
        return Err(failed("create", &target.path, Errno::EXIST));
    }
    if let Some(old) = &old
        && kind(old) != FileType::File
    {
        return Err(invalid("write", &target.path, it_is(kind(old))));
    }
    if let Some(expected) = &write.expect {
        let why = match &old {
            None => "it was removed since it was read",
            Some(old) if version(old) != *expected => "it was changed since it was read",
            Some(_) => return Ok(old),
        };
        let mut failure = invalid("write", &target.path, why);
        failure.kind = ErrorKind::Stale;
        return Err(failure);
    }
    Ok(old)
}

/// Mode and owner for the new file.
fn dress(file: &File, old: Option<&Stat>, write: &Write) -> Result<(), Errno> {
    let mut bits = match (old, write.mode) {
        (Some(old), None) => mode(old),
        (Some(old), Some(_)) if !write.set_mode => mode(old),
        (_, Some(asked)) => asked & 0o7777,
        (None, None) => 0o666 & !umask(),
    };
    if let Some(old) = old
        && !keep_owner(file, old)?
    {
        // Set-id bits were given to another owner's file; they may not lend ours.
        bits &= 0o1777;
    }
    // After the owner, whose change would clear the set-id bits.
    rustix::fs::fchmod(file, Mode::from_raw_mode(bits))
}

/// Gives the file the owner and group of another, as far as we may. Says whether both are the same now.
pub(super) fn keep_owner(file: impl AsFd, old: &Stat) -> Result<bool, Errno> {
    let file = file.as_fd();
    let now = rustix::fs::fstat(file)?;
    if (now.st_uid, now.st_gid) == (old.st_uid, old.st_gid) {
        return Ok(true);
    }
    let uid = rustix::fs::Uid::from_raw(old.st_uid);
    let gid = rustix::fs::Gid::from_raw(old.st_gid);
    match rustix::fs::fchown(file, Some(uid), Some(gid)) {
        Ok(()) => return Ok(true),
        // Not ours to give, not in this user namespace, or a file system without owners.
        Err(Errno::PERM | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {}
        Err(error) => return Err(error),
    }
    // The owner can still hand a file to a group of theirs.
    Ok(rustix::fs::fchown(file, None, Some(gid)).is_ok() && now.st_uid == old.st_uid)
}

/// The umask, without setting it to find out: that would race with every other thread that makes a file.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("Umask:"))
        .and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok())
        .unwrap_or(USUAL_UMASK)
}

fn no_temp(target: &Entry, error: Errno) -> Failure {
    let mut failure = failed("write", &target.path, error);
    if matches!(error, Errno::ACCESS | Errno::PERM | Errno::ROFS) {
        failure.message.push_str(
            ": the directory is not writable, and an atomic write has to make a temporary file there",
        );
    }
    failure
}

#[cfg(test)]
mod tests;
