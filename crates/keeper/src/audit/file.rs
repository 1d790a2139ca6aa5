//! The files of the audit log: lines in a chain, added by one writer.

use farshell_api::audit::{AuditLine, AuditQuery, Step};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A file that has reached this is followed by another one. Small enough to be read whole.
#[cfg(not(test))]
const FULL: u64 = 8 << 20;
#[cfg(test)]
const FULL: u64 = 4 << 10;
/// Files that are kept.
#[cfg(not(test))]
const KEPT: usize = 32;
#[cfg(test)]
const KEPT: usize = 3;
/// What follows a line's body.
const CHAIN: &str = ",\"chain\":\"";

/// Who writes.
#[derive(Debug)]
pub(super) struct Log {
    dir: PathBuf,
    file: Option<File>,
    /// Bytes in the file.
    len: u64,
    last: u64,
    chain: String,
    /// Bytes of a line without an end, at the end of the file.
    torn: u64,
    lost: u64,
    trouble: Option<String>,
}

/// A line as it stands in its file.
pub(super) struct Link<'a> {
    body: &'a str,
    pub(super) chain: &'a str,
}

impl<'a> Link<'a> {
    pub(super) fn parse(line: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(line).ok()?;
        let (body, rest) = text.rsplit_once(CHAIN)?;
        let chain = rest.strip_suffix("\"}")?;
        (chain.len() == 64).then_some(Self { body, chain })
    }

    pub(super) fn follows(&self, before: &str) -> bool {
        link(before, self.body) == self.chain
    }
}

/// The hash of a line that stands after another one.
fn link(before: &str, body: &str) -> String {
    let hash = Sha256::new().chain_update(before).chain_update(body).finalize();
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn line(text: &[u8]) -> Option<AuditLine> {
    Link::parse(text)?;
    serde_json::from_slice(text).ok()
}

/// All files, the oldest first.
pub(super) fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "jsonl") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

impl Log {
    pub(super) fn open(dir: &Path) -> Self {
        let mut log = Self {
            dir: dir.to_owned(),
            file: None,
            len: 0,
            last: 0,
            chain: String::new(),
            torn: 0,
            lost: 0,
            trouble: None,
        };
        if let Err(error) = log.find_end() {
            log.trouble = Some(error.to_string());
        }
        log
    }

    pub(super) fn last(&self) -> u64 {
        self.last
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Looks for the last line there is.
    fn find_end(&mut self) -> Result<()> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        let files = files(&self.dir)?;
        for (back, path) in files.iter().rev().enumerate() {
            let mut bytes = Vec::new();
            File::open(path)?.read_to_end(&mut bytes)?;
            if back == 0 {
                let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                self.torn = (bytes.len() - whole) as u64;
                self.len = bytes.len() as u64;
                self.file = Some(append(path, false)?);
            }
            let last = bytes.split(|byte| *byte == b'\n').rev().find_map(line);
            if let Some(last) = last {
                (self.last, self.chain) = (last.seq, last.chain);
                break;
            }
        }
        Ok(())
    }

    /// Adds a line in one go.
    pub(super) fn write(&mut self, line: AuditLine) -> Result<()> {
        let written = self.try_write(line);
        match &written {
            Ok(()) => self.trouble = None,
            Err(error) => {
                self.lost += 1;
                self.trouble = Some(error.to_string());
            }
        }
        written
    }

    fn try_write(&mut self, line: AuditLine) -> Result<()> {
        let before = (self.last, self.chain.clone());
        let written = self.add(line);
        if written.is_err() {
            (self.last, self.chain) = before;
        }
        written
    }

    fn add(&mut self, line: AuditLine) -> Result<()> {
        if self.file.is_none() {
            self.find_end()?;
        }
        if self.torn > 0 {
            let mut text = vec![b'\n'];
            self.link(AuditLine { bytes: Some(self.torn), ..super::line(Step::Torn) }, &mut text)?;
            self.append(&text)?;
            self.torn = 0;
        }
        if self.file.is_none() || self.len >= FULL {
            self.next_file()?;
        }
        let (mut line, mut text) = (line, Vec::new());
        if self.len == 0 {
            line.follows = Some(self.chain.clone());
        }
        if self.lost > 0 {
            let follows = line.follows.take();
            let gap = AuditLine { lost: Some(self.lost), follows, ..super::line(Step::Gap) };
            self.link(gap, &mut text)?;
        }
        self.link(line, &mut text)?;
        self.append(&text)?;
        self.lost = 0;
        Ok(())
    }

    /// Makes a line the next one of the chain.
    fn link(&mut self, mut line: AuditLine, text: &mut Vec<u8>) -> Result<()> {
        line.seq = self.last + 1;
        line.chain = String::new();
        let body = serde_json::to_string(&line).map_err(Error::other)?;
        // It is put at the end, where it is looked for.
        let body = body.strip_suffix(",\"chain\":\"\"}").ok_or(ErrorKind::InvalidData)?;
        self.chain = link(&self.chain, body);
        self.last = line.seq;
        text.extend_from_slice(body.as_bytes());
        text.extend_from_slice(CHAIN.as_bytes());
        text.extend_from_slice(self.chain.as_bytes());
        text.extend_from_slice(b"\"}\n");
        Ok(())
    }

    fn append(&mut self, text: &[u8]) -> Result<()> {
        let Some(file) = &mut self.file else { return Err(ErrorKind::NotFound.into()) };
        let written = loop {
            match file.write(text) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        if written == text.len() {
            self.len += written as u64;
            return Ok(());
        }
        // The disk took only a part. If that can't be taken back, the end is looked for anew.
        if file.set_len(self.len).is_err() {
            self.file = None;
        }
        Err(ErrorKind::StorageFull.into())
    }

    fn next_file(&mut self) -> Result<()> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        let path = self.dir.join(format!("{:016}.jsonl", self.last + 1));
        self.file = Some(append(&path, true)?);
        (self.len, self.torn) = (0, 0);
        let files = files(&self.dir)?;
        for old in files.iter().take(files.len().saturating_sub(KEPT)) {
            // One that stays is one too many, and no more.
            let _ = std::fs::remove_file(old);
        }
        Ok(())
    }
}

fn append(path: &Path, new: bool) -> Result<File> {
    let mut options = File::options();
    options.append(true).mode(0o600).create_new(new);
    options.open(path)
}

/// The lines that are asked for: the first ones after a number, or the last ones.
pub(super) fn read(dir: &Path, query: &AuditQuery, limit: u32) -> Result<Vec<AuditLine>> {
    let limit = limit as usize;
    let wanted = |line: &AuditLine| {
        query.after.is_none_or(|after| line.seq > after)
            && query.since.is_none_or(|since| line.at >= since)
            && query.task.as_ref().is_none_or(|task| line.task.as_ref() == Some(task))
    };
    let files = files(dir)?;
    let mut found: Vec<AuditLine> = Vec::new();
    if let Some(after) = query.after {
        // A file is called after its first line.
        let first = |path: &PathBuf| path.file_stem()?.to_str()?.parse::<u64>().ok();
        let skip =
            files.iter().skip(1).filter(|path| first(path).is_some_and(|seq| seq <= after + 1)).count();
        for path in &files[skip..] {
            let bytes = kept(path)?;
            found.extend(bytes.split(|byte| *byte == b'\n').filter_map(line).filter(wanted).take(limit));
            if found.len() >= limit {
                break;
            }
        }
    } else {
        for path in files.iter().rev() {
            let bytes = kept(path)?;
            let lines = bytes.split(|byte| *byte == b'\n').rev().filter_map(line);
            let before = |line: &AuditLine| query.since.is_some_and(|since| line.at < since);
            let (mut over, room) = (false, limit - found.len());
            let lines = lines.inspect(|line| over |= before(line)).take_while(|line| !before(line));
            found.extend(lines.filter(wanted).take(room));
            if over || found.len() >= limit {
                break;
            }
        }
        found.reverse();
    }
    found.truncate(limit);
    Ok(found)
}

/// What a file holds: nothing, if it was removed to make room.
pub(super) fn kept(path: &Path) -> Result<Vec<u8>> {
    match std::fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}

#[cfg(test)]
mod tests;
