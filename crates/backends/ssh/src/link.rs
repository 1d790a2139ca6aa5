//! One connection to the host: a master of `ssh` behind a control socket.
//!
//! It is found by its socket, also by the next process; whoever finds none makes one, and a lock on a file sees to it
//! that only one does. It belongs to nobody: it ends five minutes after its last use, or when its line is dead.

use crate::attempts::Attempts;
use crate::config::Config;
use crate::error::{explain, turned_away};
use crate::options;
use crate::script::Script;
use crate::session::{Session, Unfit};
use crate::{callers, client};
use farshell_engine::{Error, Kind, Result};
use rustix::fs::FlockOperation;
use std::collections::HashMap;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, PoisonError};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// How long a login may take: somebody may have to touch a key.
const LOGIN: Duration = Duration::from_secs(120);
/// How long a host that turns us away is tried again. One that is overrun takes some at random.
const KNOCK: Duration = Duration::from_secs(30);
/// How long a master may take to answer what needs no network.
const LOCAL: Duration = Duration::from_secs(10);
/// How long a master that is there is trusted before it is asked whether it still works. With the time it then has, one
/// that hangs is given up after 15 seconds.
const DOUBT: Duration = Duration::from_secs(5);
/// Logins that this process makes at one time to one host: a stock sshd takes ten before it turns some away, and others
/// log in too.
const LOGINS: usize = 4;
/// Sessions that are used at one time on one connection. A stock sshd allows ten.
const SESSIONS: usize = 4;

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) config: Arc<Config>,
    /// The master's socket.
    control: PathBuf,
    /// Names what belongs to these settings.
    key: String,
    logins: Attempts,
    /// Uploads of the outpost: the tasks of this process do it once.
    pub(crate) uploads: Attempts,
    pub(crate) sessions: Arc<Semaphore>,
    few_sessions: AtomicBool,
    /// The host does not connect us to sockets.
    forwards_nothing: AtomicBool,
}

impl Link {
    pub(crate) fn new(config: Arc<Config>, key: String, control: PathBuf) -> Self {
        Self {
            config,
            control,
            key,
            logins: Attempts::default(),
            uploads: Attempts::default(),
            sessions: Arc::new(Semaphore::new(SESSIONS)),
            few_sessions: AtomicBool::new(false),
            forwards_nothing: AtomicBool::new(false),
        }
    }

    /// A path next to the control socket.
    fn beside(&self, end: &str) -> PathBuf {
        let mut path = self.control.clone().into_os_string();
        path.push(end);
        path.into()
    }

    /// The local end of a forwarded socket: one for each directory on the host. As long as there is room for: two that meet
    /// under one name would lead a task to another's outpost.
    pub(crate) fn local(&self, dir: &str) -> PathBuf {
        use sha2::{Digest, Sha256};
        self.beside(&format!("-{}.s", crate::room::hex(&Sha256::digest(dir)[..8])))
    }

    /// Some master listens.
    pub(crate) async fn answers(&self) -> bool {
        match UnixStream::connect(&self.control).await {
            Ok(_) => true,
            // Many are at its door: it is there, and busy.
            Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
        }
    }

    /// Makes sure that there is a master.
    pub(crate) async fn up(&self) -> Result<()> {
        if self.answers().await {
            return Ok(());
        }
        let attempt = self.logins.begin().await;
        if self.answers().await {
            return Ok(());
        }
        let config = callers::for_login(&self.key, &self.config).await;
        attempt.make(&config, self.log_in(&config)).await
    }

    async fn log_in(&self, config: &Arc<Config>) -> Result<()> {
        let _only_here = self.lock().await?;
        if self.answers().await {
            return Ok(());
        }
        self.make(config).await
    }

    /// The lock among processes.
    async fn lock(&self) -> Result<std::fs::File> {
        let path = self.beside(".lock");
        let what = || format!("locking {}", path.display());
        let file = std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        let file = file.map_err(|e| Error::io(what(), e))?;
        let deadline = Instant::now() + LOGIN;
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(file),
                Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) if Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    let message = "another process has been logging in for two minutes";
                    return Err(Error::new(Kind::TimedOut, what(), message)
                        .with_hint("does it wait for a key to be touched, or for a password?"));
                }
                Err(error) => return Err(Error::io(what(), error.into())),
            }
        }
    }

    async fn make(&self, config: &Config) -> Result<()> {
        let what = format!("connecting to {}", config.destination());
        let file = self.beside(".conf");
        write(&file, &options::file(config)).map_err(|e| Error::io(what.clone(), e))?;
        let args = options::master(config, &file, &self.control);
        let logins = logins(config);
        let begun = Instant::now();
        loop {
            // What a killed master left would keep the new one from listening.
            let _ = std::fs::remove_file(&self.control);
            let outcome = {
                let _turn = logins.acquire().await;
                tokio::select! {
                    outcome = client::run(config, &what, &args, LOGIN) => outcome?,
                    // Somebody else's: a process that was killed while it logged in leaves a login behind, which
                    // becomes a master too. Ours is not needed any more.
                    () = self.found() => return Ok(()),
                }
            };
            let Some((status, said)) = outcome else {
                let message = format!("the login was not done after {} s", LOGIN.as_secs());
                return Err(Error::new(Kind::TimedOut, what, message)
                    .with_hint("does it wait for a key to be touched, or for a password?"));
            };
            if status.success() {
                return if self.answers().await { Ok(()) } else { Err(self.no_socket(&what, &said)) };
            }
            if !turned_away(&said) || begun.elapsed() > KNOCK {
                return Err(explain(config, &said));
            }
            tokio::time::sleep(jitter(begun.elapsed())).await;
        }
    }

    /// Waits until a master listens that is not the one which is being made: that one would be done by now.
    async fn found(&self) {
        let mut seen = 0;
        while seen < 4 {
            tokio::time::sleep(Duration::from_millis(500)).await;
            seen = if self.answers().await { seen + 1 } else { 0 };
        }
    }

    /// Ends when the master that is there now is not to be waited for: it takes connections and answers nothing, not even
    /// what needs no network, or somebody else has found that out. It is given up then.
    pub(crate) async fn stuck(&self) {
        let which = || std::fs::metadata(&self.control).ok().map(|meta| (meta.dev(), meta.ino()));
        let mut args = options::through(&self.control);
        args.extend(["-O".into(), "check".into(), "--".into(), OsString::from(&self.config.settings.host)]);
        let this = which();
        loop {
            tokio::time::sleep(DOUBT).await;
            if which() != this {
                return;
            }
            if matches!(client::run(&self.config, "talking to ssh", &args, LOCAL).await, Ok(None)) {
                // Should it ever go on, it ends like any other that nobody uses.
                if which() == this {
                    let _ = std::fs::remove_file(&self.control);
                }
                return;
            }
        }
    }

    fn no_socket(&self, what: &str, said: &str) -> Error {
        let dir = self.control.parent().unwrap_or(Path::new("/")).display();
        let message = format!("ssh did not listen in {dir}: {}", crate::error::plain(said));
        Error::new(Kind::Unavailable, what, message)
            .with_hint("set XDG_RUNTIME_DIR to a directory of yours in which sockets can be made")
    }

    /// Runs a script on the host. What else is to be sent follows it.
    pub(crate) async fn session(&self, script: &Script) -> std::result::Result<Session, Unfit> {
        let mut args = options::through(&self.control);
        args.extend([
            "-T".into(),
            "--".into(),
            OsString::from(&self.config.settings.host),
            script.command().into(),
        ]);
        tokio::select! {
            session = Session::open(&self.config, &args, script) => session,
            () = self.stuck() => Err(Unfit::Gone("the process that keeps the connection does not answer".into())),
        }
    }

    /// Has connections to a local socket lead to a socket on the host. Done already: that is fine.
    pub(crate) async fn forward(&self, local: &Path, remote: &str) -> Result<()> {
        let what = format!("forwarding a socket to {}", self.config.destination());
        let (status, said) = self.control("forward", local, remote).await?;
        if status {
            return Ok(());
        }
        Err(Error::new(Kind::Disconnected, what, crate::error::plain(&said)))
    }

    pub(crate) async fn cancel(&self, local: &Path, remote: &str) {
        if local.exists() {
            let _ = self.control("cancel", local, remote).await;
            let _ = std::fs::remove_file(local);
        }
    }

    async fn control(&self, verb: &str, local: &Path, remote: &str) -> Result<(bool, String)> {
        let mut args = options::through(&self.control);
        let mut pair = local.to_owned().into_os_string();
        pair.push(":");
        pair.push(remote);
        args.extend(["-O".into(), verb.into(), "-L".into(), pair, "--".into()]);
        args.push(OsString::from(&self.config.settings.host));
        let outcome = client::run(&self.config, "talking to ssh", &args, LOCAL).await?;
        Ok(outcome.map_or((false, "ssh does not answer".into()), |(status, said)| (status.success(), said)))
    }

    /// The host allows fewer sessions than are used at one time: from now on there is one.
    pub(crate) fn has_few_sessions(&self) {
        if !self.few_sessions.swap(true, Ordering::Relaxed) {
            self.sessions.forget_permits(SESSIONS - 1);
        }
    }

    /// A session reached what a forwarded socket did not.
    pub(crate) fn has_no_forwarding(&self) {
        self.forwards_nothing.store(true, Ordering::Relaxed);
    }

    pub(crate) fn forwards(&self) -> bool {
        !self.forwards_nothing.load(Ordering::Relaxed)
    }
}

/// By host and port.
type Turns = HashMap<(String, u16), Arc<Semaphore>>;

/// The turns of those who log in to one host.
fn logins(config: &Config) -> Arc<Semaphore> {
    static ALL: LazyLock<std::sync::Mutex<Turns>> = LazyLock::new(std::sync::Mutex::default);
    let host = (config.settings.host.clone(), config.settings.port);
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(all.entry(host).or_insert_with(|| Arc::new(Semaphore::new(LOGINS))))
}

/// Writes a file whole, since another process may read it at this moment.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    if std::fs::read_to_string(path).is_ok_and(|there| there == text) {
        return Ok(());
    }
    let mut temp = path.to_owned().into_os_string();
    temp.push(format!(".{}", std::process::id()));
    let mut file =
        std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temp)?;
    file.write_all(text.as_bytes())?;
    std::fs::rename(&temp, path)
}

/// A pause of 0.2 to 1.2 seconds, longer as time goes by: those who were turned away together come back one by one.
fn jitter(waited: Duration) -> Duration {
    let mut random = [0_u8; 2];
    let _ = getrandom::fill(&mut random);
    let spread = 200 + u64::from(u16::from_le_bytes(random)) % 1000;
    Duration::from_millis(spread) + waited / 10
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room::{ADDRESS, NAMES};

    #[test]
    fn the_longest_names_of_sockets_fit() {
        let dir = format!("/{}", "d".repeat(ADDRESS - NAMES - 1));
        let config = Arc::new(crate::config::sample());
        let key = crate::room::key(&config);
        let link = Link::new(config, key.clone(), Path::new(&dir).join(format!("{key}-15")));
        assert!(link.local("/x").as_os_str().len() <= ADDRESS);
        // While it binds, `ssh` adds a dot and sixteen letters.
        assert!(link.control.as_os_str().len() + 17 <= ADDRESS);
    }
}
