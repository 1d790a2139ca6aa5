//! An environment whose files are used by a tool.

use super::seen::Key;
use super::shield::{Shield, of_caller};
use crate::failure::Failure;
use crate::{Call, Tools};
use farshell_api::run::{Place, Target};
use farshell_config::Settings;
use farshell_config::choice::HomeMode;
use farshell_config::settings::Backend;
use farshell_engine::{Error, Kind};
use farshell_keeper::Files;
use farshell_policy::Redactor;
use farshell_protocol::file::{FileOp, FileReply, FileType, Stat, Version, Write};
use futures_util::future::join_all;
use serde_bytes::ByteBuf;
use std::path::Path;
use std::sync::Arc;

/// As many links as the kernel follows.
const MAX_LINKS: usize = 40;

/// The files of a call's environment.
#[derive(Debug)]
pub(crate) struct Room<'a> {
    pub(crate) tools: &'a Tools,
    pub(crate) call: &'a Call<'a>,
    pub(crate) target: Target,
    pub(crate) session: String,
    pub(crate) redactor: Arc<Redactor>,
    pub(crate) shield: Shield,
    /// The session's directory.
    pub(crate) cwd: String,
    home: Option<String>,
    files: Files,
}

/// A path as it was asked for, and what it really is.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    /// Absolute.
    pub(crate) path: String,
    /// The same without links.
    pub(crate) real: Vec<u8>,
    /// What is there.
    pub(crate) stat: Option<Stat>,
    /// Its directory is there.
    pub(crate) parent: bool,
}

impl Located {
    pub(crate) fn real(&self) -> String {
        String::from_utf8_lossy(&self.real).into_owned()
    }

    pub(crate) fn version(&self) -> Option<Version> {
        self.stat.as_ref().map(|stat| stat.version)
    }
}

impl<'a> Room<'a> {
    pub(crate) async fn open(
        tools: &'a Tools,
        call: &'a Call<'a>,
        session: Option<&str>,
        backend: Option<&str>,
    ) -> Result<Self, Failure> {
        let target = tools.target(call, backend)?;
        let settings = tools.keeper.settings(&target)?;
        let redactor = tools.keeper.redactor(&target)?;
        let session = session.unwrap_or(&call.session).to_owned();
        let keeper = tools.keeper(call);
        let told = |news: &farshell_engine::backend::News| call.observer.progress(news);
        let files = tokio::select! {
            biased;
            () = call.cancel.cancelled() => return Err(cancelled()),
            files = keeper.files(&target, &session, &told) => files?,
        };
        let at = |path: &'static str| FileOp::Stat { path: ByteBuf::from(path), follow: true };
        let session_name = || Some(files.session());
        let (cwd, home) = futures_util::future::join(
            files.outpost().file(session_name(), at(".")),
            files.outpost().file(session_name(), at("~")),
        )
        .await;
        let text = |reply: FileReply| match reply {
            FileReply::Stat(stat) => Some(String::from_utf8_lossy(&stat.path).into_owned()),
            _ => None,
        };
        // A directory that was removed is no reason not to find what has an absolute path.
        let cwd = match cwd {
            Ok(reply) => text(reply),
            Err(error) if error.kind == Kind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        let home = home.ok().and_then(text);
        let hermes = tools.keeper.home();
        let shield = Shield::new(&settings, &target, home.clone(), hermes);
        let home = own_home(&settings, &target, hermes).or(home);
        Ok(Self { tools, call, target, session, redactor, shield, cwd: cwd.unwrap_or_default(), home, files })
    }

    pub(crate) fn backend(&self) -> &'static str {
        self.files.backend()
    }

    pub(crate) fn place(&self) -> Place {
        self.files.place().clone()
    }

    pub(crate) fn files(&self) -> &Files {
        &self.files
    }

    pub(crate) fn key(&self, at: &Located) -> Key {
        (self.files.environment().to_owned(), self.target.task.clone(), at.real.clone())
    }

    /// Without a session: all paths are absolute here, so that what is not found is a file and nothing else.
    pub(crate) async fn op(&self, op: FileOp) -> Result<FileReply, Error> {
        self.files.outpost().file(None, op).await
    }

    /// A path as it was given, from the root on.
    fn rooted(&self, path: &str) -> Result<Vec<u8>, Failure> {
        let below = |base: &str, rest: &str| format!("{}/{rest}", base.trim_end_matches('/')).into_bytes();
        if path.starts_with('/') {
            return Ok(path.as_bytes().to_vec());
        }
        if let Some(rest) = path.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/')) {
            let home = self.home.as_deref();
            let home = home
                .ok_or_else(|| Failure::new(Kind::NotFound, format!("{path}: there is no home directory")))?;
            return Ok(below(home, rest.trim_start_matches('/')));
        }
        if self.cwd.is_empty() {
            let message =
                format!("{path}: the session's directory is not there any more; give an absolute path");
            return Err(Failure::new(Kind::NotFound, message));
        }
        Ok(below(&self.cwd, path))
    }

    /// What is at a path, without following a link at its end.
    async fn lstat(&self, path: &[u8]) -> Result<Option<Stat>, Error> {
        match self.op(FileOp::Stat { path: ByteBuf::from(path), follow: false }).await {
            Ok(FileReply::Stat(stat)) => Ok(Some(stat)),
            Ok(other) => Err(Error::new(Kind::Protocol, "looking at a file", format!("{other:?}"))),
            Err(error) if error.kind == Kind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The absolute path that is meant, whether or not it is there.
    async fn absolute(&self, path: &[u8]) -> Result<Vec<u8>, Error> {
        if let Some(stat) = self.lstat(path).await? {
            return Ok(stat.path.into_vec());
        }
        // What is there of it, as the outpost says; the rest has no links that a `..` could step over.
        let mut end = path.len();
        let mut whole = loop {
            end = path[..end].iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            if end == 0 {
                break Vec::new();
            }
            if let Some(stat) = self.lstat(&path[..end]).await? {
                break stat.path.into_vec();
            }
        };
        for part in path[end..].split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => whole.truncate(whole.iter().rposition(|byte| *byte == b'/').unwrap_or(0)),
                name => {
                    if whole.last() != Some(&b'/') {
                        whole.push(b'/');
                    }
                    whole.extend_from_slice(name);
                }
            }
        }
        if whole.is_empty() {
            whole.push(b'/');
        }
        Ok(whole)
    }

    /// Finds out what a path is.
    pub(crate) async fn locate(&self, path: &str) -> Result<Located, Failure> {
        if path.trim().is_empty() {
            return Err(Failure::argument("path", path, "it is the path of a file"));
        }
        if path.contains('\0') {
            return Err(Failure::argument("path", path, "it has a NUL byte in it"));
        }
        if path.len() > 1 && path.ends_with('/') {
            return Box::pin(self.locate(path.trim_end_matches('/'))).await;
        }
        let asked = self.absolute(&self.rooted(path)?).await?;
        let mut real = asked.clone();
        for _ in 0..MAX_LINKS {
            let ends = real.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
            let ends: Vec<usize> = ends.chain([real.len()]).collect();
            let stats = join_all(ends.iter().map(|end| self.lstat(&real[..*end]))).await;
            let link = ends.iter().zip(&stats).find_map(|(end, stat)| match stat {
                Ok(Some(stat)) if stat.kind == FileType::Symlink => Some((*end, stat.link.clone()?)),
                _ => None,
            });
            let Some((end, to)) = link else {
                let parent = stats.len() < 2 || matches!(&stats[stats.len() - 2], Ok(Some(_)));
                let stat = stats.into_iter().next_back().transpose()?.flatten();
                return Ok(Located {
                    path: String::from_utf8_lossy(&asked).into_owned(),
                    real,
                    stat,
                    parent,
                });
            };
            let mut next = match to.first() {
                Some(b'/') => to.into_vec(),
                _ => {
                    let directory = real[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
                    [&real[..directory], to.as_ref()].concat()
                }
            };
            next.extend_from_slice(&real[end..]);
            real = self.absolute(&next).await?;
        }
        Err(Failure::invalid(format!("{path}: too many symbolic links")))
    }

    /// Finds a file that is to be shown, and refuses one that must not be.
    pub(crate) async fn locate_to_read(&self, path: &str) -> Result<Located, Failure> {
        let at = self.locate(path).await?;
        let why = self.shield.refuses_read(&at.path).or_else(|| self.shield.refuses_read(&at.real()));
        match why {
            Some(why) => Err(refused(&format!("{} is not shown: {why}", at.path))),
            None => Ok(at),
        }
    }

    /// Finds a file that is to be written, and refuses one that must not be.
    pub(crate) async fn locate_to_write(&self, path: &str) -> Result<Located, Failure> {
        let at = self.locate(path).await?;
        let why = self.shield.refuses_write(&at.path).or_else(|| self.shield.refuses_write(&at.real()));
        match why {
            Some(why) => Err(refused(&format!("{} is protected: {why}", at.path))),
            None => Ok(at),
        }
    }

    /// A whole file, if it is not larger than `most`.
    pub(crate) async fn read(&self, at: &Located, most: u64) -> Result<(Vec<u8>, Version), Failure> {
        let mut stream = self.files.outpost().read_file(None, &at.real, 0, None).await?;
        let mut bytes = Vec::new();
        while let Some(piece) = stream.next().await? {
            bytes.extend_from_slice(&piece);
            if bytes.len() as u64 > most {
                let message = format!("{} is larger than {most} bytes: change it with a command", at.path);
                return Err(Failure::new(Kind::Exhausted, message));
            }
        }
        match stream.end {
            Some(end) if end.changed => {
                let message = format!("{} was changed while it was read: try again", at.path);
                Err(Failure::new(Kind::Stale, message))
            }
            Some(end) => Ok((bytes, end.stat.version)),
            None => Err(Failure::new(Kind::Protocol, format!("reading {} ended without an end", at.path))),
        }
    }

    /// Replaces or makes a file, all or nothing. It must still be what `at` says it was.
    pub(crate) async fn write(&self, at: &Located, bytes: &[u8], mode: Option<u32>) -> Result<Stat, Failure> {
        let write = Write {
            path: ByteBuf::from(at.real.clone()),
            mode,
            set_mode: mode.is_some(),
            parents: true,
            create_only: at.stat.is_none(),
            expect: at.version(),
        };
        let written = self.files.outpost().write_file(None, write, bytes).await;
        let (stat, _) = written.map_err(|error| match error.kind {
            Kind::Stale | Kind::AlreadyExists => {
                let message = format!(
                    "{} was changed by somebody else at this moment: nothing was written. Read it again",
                    at.path
                );
                Failure::new(Kind::Stale, message)
            }
            Kind::Disconnected | Kind::UnknownOutcome => {
                let mut failure = Failure::from(error);
                failure.error.push_str(
                    ". The file is the old one or the new one, never a part: read it before you write again",
                );
                failure
            }
            _ => error.into(),
        })?;
        self.tools.seen.set(self.key(at), stat.version);
        Ok(stat)
    }

    pub(crate) async fn remove(&self, at: &Located) -> Result<(), Failure> {
        let path = ByteBuf::from(at.real.clone());
        self.op(FileOp::Remove { path, recursive: false, missing_ok: false }).await?;
        self.tools.seen.forget(&self.key(at));
        Ok(())
    }

    /// A path as the model may use it: relative to the session's directory where that is shorter.
    pub(crate) fn shown(&self, path: &[u8]) -> String {
        let path = String::from_utf8_lossy(path);
        let below = path.strip_prefix(self.cwd.trim_end_matches('/')).and_then(|rest| rest.strip_prefix('/'));
        match below {
            Some(rest) if self.cwd.len() > 1 && !rest.is_empty() => rest.to_owned(),
            _ => path.into_owned(),
        }
    }
}

/// What `~` is to a session on this machine. Elsewhere the outpost knows.
fn own_home(settings: &Settings, target: &Target, hermes: &Path) -> Option<String> {
    let Backend::Local(local) = &settings.backend else { return None };
    let profile = hermes.join("home");
    let isolated = match local.home_mode {
        HomeMode::Real => false,
        HomeMode::Profile => true,
        HomeMode::Auto => profile.is_dir(),
    };
    if isolated { Some(profile.to_string_lossy().into_owned()) } else { of_caller(target, "HOME") }
}

pub(crate) fn refused(message: &str) -> Failure {
    Failure::new(Kind::PermissionDenied, message).status("blocked")
}

pub(crate) fn cancelled() -> Failure {
    Failure::new(Kind::NotStarted, "the call was cancelled: nothing was done").status("interrupted")
}
