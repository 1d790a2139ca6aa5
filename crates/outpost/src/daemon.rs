//! The daemon: one thread that owns everything, and the loop in which it waits.
//!
//! | file | owns |
//! |---|---|
//! | `daemon.rs` | the loop, the lease, the end |
//! | `conns.rs` | connections: bytes in, frames out, who may send next |
//! | `requests.rs` | what each request means |
//! | `spawn.rs`, `output.rs`, `procs.rs` | the life of a process: its beginning, what it says, its end |
//! | `sessions.rs`, `shells.rs` | the life of a session and its shells |
//! | `filecalls.rs` | file requests, on threads of their own |

use crate::conns::Conn;
use crate::filecalls::FileCalls;
use crate::kill::{self, Outcome, Tags, Target};
use crate::once::Once;
use crate::process::Process;
use crate::reactor::{Alarm, Interest, Reactor, Token};
use crate::session::Session;
use crate::shell::{Program, Shell};
use crate::shells::SHELL_DIR;
use crate::sys;
use crate::worker::Waker;
use farshell_protocol::hello::OutpostIdentity;
use farshell_protocol::{ProcessId, SessionName};
use rustix::fs::{FlockOperation, Mode};
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Names inside the outpost's directory.
pub(crate) const SOCKET: &str = "sock";
const LOCK: &str = "lock";
const LOGS: &str = "logs";
/// Tells the next outpost which processes this one would have killed at its end.
const TAGS: &str = "tags";
/// What the daemon itself has to complain about.
pub(crate) const MESSAGES: &str = "outpost.log";

/// Output is read in pieces of this size: one data frame each.
pub(crate) const READ: usize = farshell_protocol::frame::MAX_DATA - farshell_protocol::process::CHUNK_HEADER;

/// Whose child a pid is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Child {
    Shell(u32),
    Process(u32),
}

/// What the outpost has started and not buried. The killer looks at it too.
pub(crate) type Children = Arc<Mutex<HashMap<u32, Child>>>;

pub(crate) struct Daemon {
    pub dir: PathBuf,
    door: Door,
    pub logs: PathBuf,
    pub home: PathBuf,
    pub identity: OutpostIdentity,
    pub started: Instant,
    pub lease: Duration,
    /// Since when nobody is connected and nothing runs.
    idle_since: Option<Instant>,
    pub ending: bool,
    pub reactor: Reactor,
    listener: UnixListener,
    signals: OwnedFd,
    pub waker: Waker,
    /// Held for as long as the daemon lives.
    _lock: File,
    pub tags: Tags,
    pub program: Option<Program>,
    /// The limit on open files that children get, which is not ours.
    pub nofile: rustix::process::Rlimit,
    next_key: u32,
    pub conns: HashMap<u32, Conn>,
    pub procs: HashMap<u32, Process>,
    pub by_id: HashMap<ProcessId, u32>,
    /// Finished processes, oldest first.
    pub finished: VecDeque<u32>,
    /// Ids whose records are gone: they are never used again.
    pub spent: HashSet<ProcessId>,
    pub spent_order: VecDeque<ProcessId>,
    pub log_memory: usize,
    pub log_disk: u64,
    /// Which process a pair of output pipes belongs to.
    pub pipe_owner: HashMap<u32, u32>,
    pub sessions: HashMap<SessionName, Session>,
    pub shells: HashMap<u32, Shell>,
    pub shell_owner: HashMap<u32, SessionName>,
    /// Commands that ended their shell, by that shell: session, process and last directory. They are told to have
    /// ended when the shell has.
    pub leaving: HashMap<u32, (SessionName, u32, Vec<u8>)>,
    /// A shell that was started ahead of time, and whether it has said that it is ready.
    pub spare: Option<u32>,
    pub ready_shells: HashSet<u32>,
    pub want_spare: bool,
    /// Until then the next report is waited for without falling asleep.
    pub awake_until: Option<Instant>,
    /// Another processor can go on while this one waits.
    several_processors: bool,
    pub children: Children,
    pub killer: Sender<Target>,
    pub outcomes: Receiver<Outcome>,
    pub files: FileCalls,
    pub once: Once,
    pub buffer: Vec<u8>,
    /// A pipe through which copies of output go to the log.
    pub copies: (OwnedFd, OwnedFd),
    /// Sources that had more to read than their turn allows.
    pub backlog: VecDeque<Token>,
}

/// How long the report of a builtin that starts nothing is waited for awake. It takes a few microseconds once the
/// shell runs; waking a sleeping processor takes tens of them.
const AWAKE: Duration = Duration::from_micros(150);

/// Where a daemon listens, and to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// In its own directory, which is private: to this user and root.
    Own,
    /// At this path, in a directory that is shared with the machine around the place: to this user, and to whoever
    /// gets there from outside. The directory is private there, so that is the place's owner.
    Shared(PathBuf),
}

impl Door {
    /// The socket's directory and name.
    pub(crate) fn place<'a>(&'a self, dir: &'a Path) -> (&'a Path, &'a OsStr) {
        match self {
            Self::Own => (dir, OsStr::new(SOCKET)),
            Self::Shared(path) => {
                (path.parent().unwrap_or(Path::new("/")), path.file_name().unwrap_or(OsStr::new(SOCKET)))
            }
        }
    }

    fn admits(&self, peer: sys::Peer) -> bool {
        match self {
            Self::Own => peer.uid == sys::uid() || peer.uid == 0,
            // A process that this pid namespace can't name is outside. Those inside have a number, whatever
            // namespaces they make.
            Self::Shared(_) => peer.pid == 0 || peer.uid == sys::uid(),
        }
    }
}

/// Why a daemon did not start.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// There is one already.
    Running,
    Io(&'static str, io::Error),
}

impl Daemon {
    pub(crate) fn new(dir: &Path, lease: Duration, door: Door) -> Result<Self, Refusal> {
        let fail = |what| move |error| Refusal::Io(what, error);
        private_dir(dir).map_err(fail("preparing the outpost's directory"))?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(dir.join(LOCK))
            .map_err(fail("opening the lock"))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(Refusal::Running),
            Err(error) => return Err(Refusal::Io("locking", error.into())),
        }
        // An ending daemon removes its lock: a lock on a file that is gone guards nothing.
        let same = |a: &std::fs::Metadata, b: &std::fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
        if !matches!((lock.metadata(), std::fs::metadata(dir.join(LOCK))), (Ok(a), Ok(b)) if same(&a, &b)) {
            return Err(Refusal::Running);
        }
        // Whatever an earlier daemon left belongs to nobody any more.
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_name().as_encoded_bytes().starts_with(SHELL_DIR.as_bytes()) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
        if let Some(first) =
            std::fs::read_to_string(dir.join(TAGS)).ok().and_then(|text| text.trim().parse().ok())
        {
            kill::kill_tagged(first);
        }
        let tags = Tags::new();
        std::fs::write(dir.join(TAGS), tags.first.to_string()).map_err(fail("noting the tags"))?;
        let logs = dir.join(LOGS);
        let _ = std::fs::remove_dir_all(&logs);
        private_dir(&logs).map_err(fail("preparing the log directory"))?;
        let listener = listen(dir, &door).map_err(fail("listening"))?;
        let signals = sys::signals().map_err(fail("taking over signals"))?;
        rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1))
            .map_err(|e| Refusal::Io("becoming the reaper of orphans", e.into()))?;
        let nofile = raise_nofile();
        let waker = Waker::new().map_err(fail("making an event descriptor"))?;
        let copies =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK)
                .map_err(|e| Refusal::Io("making a pipe", e.into()))?;
        let _ = rustix::pipe::fcntl_setpipe_size(&copies.1, 2 * READ);
        let reactor = Reactor::new().map_err(fail("making an event queue"))?;
        for (fd, token) in [
            (listener.as_fd(), Token::Listener),
            (signals.as_fd(), Token::Signals),
            (waker.as_fd(), Token::Workers),
        ] {
            reactor.add(fd, token, Interest::Read).map_err(fail("watching descriptors"))?;
        }
        let (killer, targets) = channel();
        let (results, outcomes) = channel();
        let kill_waker = waker.clone();
        std::thread::Builder::new()
            .name("killer".into())
            .spawn(move || kill::run(&targets, &results, &kill_waker))
            .map_err(fail("starting a thread"))?;
        let mut daemon = Self {
            logs,
            home: home(),
            identity: identity(),
            started: Instant::now(),
            lease,
            idle_since: None,
            ending: false,
            reactor,
            listener,
            signals,
            files: FileCalls::new(waker.clone()),
            once: Once::default(),
            waker,
            _lock: lock,
            tags,
            program: Program::find(),
            nofile,
            next_key: 0,
            conns: HashMap::new(),
            procs: HashMap::new(),
            by_id: HashMap::new(),
            finished: VecDeque::new(),
            spent: HashSet::new(),
            spent_order: VecDeque::new(),
            log_memory: 0,
            log_disk: 0,
            pipe_owner: HashMap::new(),
            sessions: HashMap::new(),
            shells: HashMap::new(),
            shell_owner: HashMap::new(),
            leaving: HashMap::new(),
            spare: None,
            ready_shells: HashSet::new(),
            want_spare: true,
            awake_until: None,
            several_processors: std::thread::available_parallelism().is_ok_and(|n| n.get() > 1),
            children: Children::default(),
            killer,
            outcomes,
            buffer: vec![0; READ],
            copies,
            backlog: VecDeque::new(),
            dir: dir.to_owned(),
            door,
        };
        daemon.reactor.alarm(Instant::now() + lease, Alarm::Lease);
        Ok(daemon)
    }

    /// A command was given to a shell that ends as soon as it is read.
    pub(crate) fn stay_awake(&mut self) {
        if self.several_processors {
            self.awake_until = Some(Instant::now() + AWAKE);
        }
    }

    /// Is the end of a command so near that falling asleep would take longer?
    fn awake(&mut self) -> bool {
        let awake = self.awake_until.is_some_and(|until| Instant::now() < until);
        if !awake {
            self.awake_until = None;
        }
        awake
    }

    /// Serves until the lease has run out or somebody asks for the end.
    pub(crate) fn run(mut self) {
        let mut tokens = Vec::new();
        let mut alarms = Vec::new();
        while !self.ending {
            let busy = !self.backlog.is_empty() || self.want_spare;
            let busy = busy || self.awake();
            self.reactor.wait(busy, &mut tokens, &mut alarms);
            if tokens.is_empty() && self.backlog.is_empty() && self.want_spare {
                // Started only when there is nothing better to do.
                self.start_spare();
            }
            tokens.extend(self.backlog.drain(..));
            for token in tokens.drain(..) {
                self.handle(token);
            }
            for alarm in alarms.drain(..) {
                self.ring(alarm);
            }
        }
        self.end();
    }

    fn handle(&mut self, token: Token) {
        match token {
            Token::Listener => self.accept(),
            Token::Signals => self.signal(),
            Token::Workers => {
                self.waker.clear();
                self.kill_outcomes();
                self.file_results();
            }
            Token::Closing(key) => self.conn_is_closing(key),
            Token::Conn(key) => self.conn_ready(key),
            Token::Output(pipes, stream) => self.output_ready(pipes, stream),
            Token::Input(key) => self.input_ready(key),
            Token::Shell(key) => self.shell_reports(key),
        }
    }

    fn ring(&mut self, alarm: Alarm) {
        match alarm {
            Alarm::Timeout(key) => self.time_is_up(key),
            Alarm::ShellStart(key) => self.shell_start_is_late(key),
            Alarm::Watchdog(key) => self.watch_shell(key),
            Alarm::Signal { process, signal, looks, reached } => {
                self.signal_latecomers(process, signal, looks, reached);
            }
            Alarm::Lease => self.check_lease(),
        }
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            let key = self.key();
            // A private directory keeps others out already; this holds even if somebody opened it up.
            if !sys::peer(stream.as_fd()).is_ok_and(|peer| self.door.admits(peer))
                || stream.set_nonblocking(true).is_err()
            {
                continue;
            }
            // Room for a whole data frame, so that it leaves in one go.
            let _ = rustix::net::sockopt::set_socket_send_buffer_size(&stream, 2 * READ);
            if self.reactor.add(&stream, Token::Conn(key), Interest::Socket).is_err() {
                continue;
            }
            let mut conn = Conn::new(key, OwnedFd::from(stream));
            conn.greet(&self.identity);
            self.conns.insert(key, conn);
            self.idle_since = None;
            self.pump(key);
        }
    }

    fn signal(&mut self) {
        for signal in sys::read_signals(&self.signals) {
            match signal {
                libc::SIGTERM | libc::SIGINT => self.ending = true,
                _ => self.reap(),
            }
        }
    }

    pub(crate) fn children(&self) -> MutexGuard<'_, HashMap<u32, Child>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of every child that ended, known or adopted.
    fn reap(&mut self) {
        while let Some((pid, change)) = sys::next_child() {
            let child = self.children().get(&pid).copied();
            match (child, change) {
                // A session's shell that stops itself would keep its session for ever.
                (Some(Child::Shell(_)), sys::Change::Stopped) => sys::kill_child(pid, libc::SIGCONT),
                (_, sys::Change::Stopped) | (None, _) => {}
                (Some(child), change) => {
                    self.children().remove(&pid);
                    match child {
                        Child::Shell(key) => self.shell_died(key, change),
                        Child::Process(key) => self.process_died(key, change),
                    }
                }
            }
        }
    }

    /// A number that names one thing for the life of this daemon.
    pub(crate) fn key(&mut self) -> u32 {
        self.next_key = self.next_key.wrapping_add(1);
        self.next_key
    }

    /// Takes note that the lease may have begun to run: somebody left, or something ended.
    pub(crate) fn maybe_idle(&mut self) {
        if self.conns.is_empty() && self.idle_since.is_none() {
            let now = Instant::now();
            self.idle_since = Some(now);
            self.reactor.alarm(now + self.lease, Alarm::Lease);
        }
    }

    fn check_lease(&mut self) {
        if !self.conns.is_empty() {
            self.idle_since = None;
            return;
        }
        let now = Instant::now();
        let since = *self.idle_since.get_or_insert(self.started);
        if now.saturating_duration_since(since) + Duration::from_millis(1) < self.lease {
            self.reactor.alarm(since + self.lease, Alarm::Lease);
            return;
        }
        let shells: HashSet<u32> = self.shells.values().map(|s| s.pid).collect();
        let running = self.procs.values().any(|p| !p.ended());
        if running || kill::has_descendants_besides(&shells) {
            // Something still runs: the silence counts from when it is found ended.
            self.idle_since = Some(now);
            self.reactor.alarm(now + self.lease.max(Duration::from_secs(1)), Alarm::Lease);
            return;
        }
        self.ending = true;
    }

    pub(crate) fn set_lease(&mut self, lease: Duration) {
        self.lease = lease;
        if let Some(since) = self.idle_since {
            self.reactor.alarm(since + lease, Alarm::Lease);
        }
    }

    /// Nothing survives, nothing is left on disk.
    fn end(mut self) {
        // From here on nobody finds this outpost any more: who connects now starts another.
        let (dir, name) = self.door.place(&self.dir);
        let _ = std::fs::remove_file(dir.join(name));
        for key in self.conns.keys().copied().collect::<Vec<_>>() {
            self.say_goodbye(key);
        }
        kill::kill_all_descendants(Duration::from_secs(10));
        self.procs.clear();
        self.shells.clear();
        let _ = std::fs::remove_dir_all(&self.logs);
        for name in [TAGS, MESSAGES] {
            let _ = std::fs::remove_file(self.dir.join(name));
        }
        let _ = std::fs::remove_file(self.dir.join(LOCK));
        let _ = std::fs::remove_dir(&self.dir);
    }
}

/// Makes a directory that is ours alone, or makes sure that it is.
pub(crate) fn private_dir(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().recursive(true).mode(0o700).create(dir) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let meta = std::fs::symlink_metadata(dir)?;
    if !meta.is_dir() || meta.uid() != sys::uid() {
        let text = format!("{} is not a directory of this user", dir.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    if meta.mode() & 0o077 != 0 {
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Binds by a path relative to the directory, which may be longer than a socket's address can be.
fn listen(dir: &Path, door: &Door) -> io::Result<UnixListener> {
    let (dir, name) = door.place(dir);
    let _ = std::fs::remove_file(dir.join(name));
    std::env::set_current_dir(dir)?;
    // The owner outside can be any user here.
    let mask = if *door == Door::Own { 0o177 } else { 0o111 };
    let mask = rustix::process::umask(Mode::from_raw_mode(mask));
    let listener = UnixListener::bind(name);
    rustix::process::umask(mask);
    std::env::set_current_dir("/")?;
    let listener = listener?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The outpost needs a few descriptors for each process; its children keep the limit they would have had.
fn raise_nofile() -> rustix::process::Rlimit {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let before = getrlimit(Resource::Nofile);
    let wanted = before.maximum.map_or(1 << 20, |most| most.min(1 << 20));
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: before.maximum });
    before
}

fn home() -> PathBuf {
    match std::env::var_os("HOME") {
        Some(home) if Path::new(&home).is_absolute() => PathBuf::from(home),
        _ => PathBuf::from("/"),
    }
}

fn identity() -> OutpostIdentity {
    // Installed under its hash, see the backends: the name of the directory is what it was installed as.
    let build = std::env::current_exe()
        .ok()
        .and_then(|exe| Some(exe.parent()?.file_name()?.to_string_lossy().into_owned()));
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    OutpostIdentity {
        instance: format!("{}{}", crate::shell::token(), crate::shell::token()),
        boot: boot.trim().to_owned(),
        pid: std::process::id(),
        build: build.unwrap_or_default(),
        hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
    }
}
