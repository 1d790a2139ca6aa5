//! The few things the kernel offers that the safe crates do not: the only module of Farshell with `unsafe`.
#![expect(unsafe_code, reason = "posix_spawn, wait4 and signal set-up have no safe wrapper that fits")]

use std::ffi::{CString, OsStr};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

/// How a child begins.
#[derive(Debug)]
pub(crate) struct Spawn<'a> {
    pub program: &'a OsStr,
    pub argv: &'a [CString],
    pub env: &'a [CString],
    /// Standard input, output and error.
    pub stdio: [Stdio<'a>; 3],
    pub cwd: Option<&'a CString>,
}

/// One of a child's standard descriptors.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stdio<'a> {
    Fd(BorrowedFd<'a>),
    /// Opened by the child itself, so that a session leader gets a terminal as its own.
    Path(&'a CString),
}

/// Starts a child in a session of its own, with default signal dispositions and nothing blocked.
///
/// `posix_spawn` rather than fork: it does not copy page tables, so it stays fast however much memory the
/// outpost holds.
pub(crate) fn spawn(spec: &Spawn<'_>) -> io::Result<u32> {
    let program = CString::new(spec.program.as_bytes())?;
    let argv = pointers(spec.argv);
    let env = pointers(spec.env);
    let mut actions = Actions::new()?;
    // Descriptors are first moved out of 0..3, so that no later step overwrites one that is still needed.
    let mut moved = Vec::with_capacity(3);
    for (target, stdio) in (0..).zip(spec.stdio) {
        match stdio {
            Stdio::Fd(fd) => {
                let high = rustix::io::fcntl_dupfd_cloexec(fd, 3)?;
                actions.dup2(high.as_raw_fd(), target)?;
                moved.push(high);
            }
            Stdio::Path(path) => actions.open(target, path)?,
        }
    }
    if let Some(cwd) = spec.cwd {
        actions.chdir(cwd)?;
    }
    actions.close_from(3)?;
    let attributes = Attributes::new()?;
    let mut pid = 0;
    // SAFETY: all pointers point to live, NUL-terminated data; both arrays end with a null pointer.
    let error = unsafe {
        libc::posix_spawnp(
            &raw mut pid,
            program.as_ptr(),
            &raw const actions.0,
            &raw const attributes.0,
            argv.as_ptr().cast(),
            env.as_ptr().cast(),
        )
    };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    Ok(pid.cast_unsigned())
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect()
}

fn check(error: libc::c_int) -> io::Result<()> {
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

struct Actions(libc::posix_spawn_file_actions_t);

impl Actions {
    fn new() -> io::Result<Self> {
        let mut raw = MaybeUninit::uninit();
        // SAFETY: init fills the structure, which is used only after it succeeded.
        unsafe {
            check(libc::posix_spawn_file_actions_init(raw.as_mut_ptr()))?;
            Ok(Self(raw.assume_init()))
        }
    }

    fn dup2(&mut self, from: RawFd, to: RawFd) -> io::Result<()> {
        // SAFETY: the structure is initialised.
        check(unsafe { libc::posix_spawn_file_actions_adddup2(&raw mut self.0, from, to) })
    }

    fn open(&mut self, fd: RawFd, path: &CString) -> io::Result<()> {
        // SAFETY: the structure is initialised; the library copies the path.
        check(unsafe {
            libc::posix_spawn_file_actions_addopen(&raw mut self.0, fd, path.as_ptr(), libc::O_RDWR, 0)
        })
    }

    fn chdir(&mut self, path: &CString) -> io::Result<()> {
        // SAFETY: the structure is initialised; the library copies the path.
        check(unsafe { libc::posix_spawn_file_actions_addchdir_np(&raw mut self.0, path.as_ptr()) })
    }

    /// Close-on-exec is not enough: the kernel lets the parent go on a moment before it closes those, and for
    /// that moment a child that has nothing to do with a command would be seen to hold its output open.
    fn close_from(&mut self, first: RawFd) -> io::Result<()> {
        #[cfg(target_env = "gnu")]
        // SAFETY: the structure is initialised.
        unsafe {
            check(libc::posix_spawn_file_actions_addclosefrom_np(&raw mut self.0, first))
        }
        #[cfg(not(target_env = "gnu"))]
        {
            for fd in open_descriptors(first) {
                // SAFETY: the structure is initialised; a number that is closed by then does no harm.
                check(unsafe { libc::posix_spawn_file_actions_addclose(&raw mut self.0, fd) })?;
            }
            Ok(())
        }
    }
}

impl Drop for Actions {
    fn drop(&mut self) {
        // SAFETY: the structure is initialised and not used again.
        unsafe { libc::posix_spawn_file_actions_destroy(&raw mut self.0) };
    }
}

struct Attributes(libc::posix_spawnattr_t);

impl Attributes {
    fn new() -> io::Result<Self> {
        let mut raw = MaybeUninit::uninit();
        // SAFETY: each structure is initialised before it is used.
        unsafe {
            check(libc::posix_spawnattr_init(raw.as_mut_ptr()))?;
            let mut this = Self(raw.assume_init());
            let mut all = MaybeUninit::uninit();
            let mut none = MaybeUninit::uninit();
            libc::sigfillset(all.as_mut_ptr());
            libc::sigemptyset(none.as_mut_ptr());
            check(libc::posix_spawnattr_setsigdefault(&raw mut this.0, all.as_ptr()))?;
            check(libc::posix_spawnattr_setsigmask(&raw mut this.0, none.as_ptr()))?;
            // The constants differ in type between C libraries.
            let flags = libc::POSIX_SPAWN_SETSIGDEF as libc::c_short
                | libc::POSIX_SPAWN_SETSIGMASK as libc::c_short
                | libc::POSIX_SPAWN_SETSID as libc::c_short;
            check(libc::posix_spawnattr_setflags(&raw mut this.0, flags))?;
            Ok(this)
        }
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: the structure is initialised and not used again.
        unsafe { libc::posix_spawnattr_destroy(&raw mut self.0) };
    }
}

/// What `wait4` had to say about a child.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Exited { code: i32, usage: farshell_protocol::process::Usage },
    Signaled { signal: i32, usage: farshell_protocol::process::Usage },
    Stopped,
}

/// The next child that changed, without waiting. `None` if there is none.
pub(crate) fn next_child() -> Option<(u32, Change)> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both pointers are valid for writes; rusage is plain data for which zero is valid.
    let (pid, usage) = unsafe {
        let pid = libc::wait4(-1, &raw mut status, libc::WNOHANG | libc::WUNTRACED, usage.as_mut_ptr());
        (pid, usage.assume_init())
    };
    if pid <= 0 {
        return None;
    }
    let micros = |t: libc::timeval| t.tv_sec.cast_unsigned() * 1_000_000 + t.tv_usec.cast_unsigned();
    let usage = farshell_protocol::process::Usage {
        user_us: micros(usage.ru_utime),
        system_us: micros(usage.ru_stime),
        max_rss_kib: usage.ru_maxrss.cast_unsigned(),
    };
    let change = if libc::WIFEXITED(status) {
        Change::Exited { code: libc::WEXITSTATUS(status), usage }
    } else if libc::WIFSIGNALED(status) {
        Change::Signaled { signal: libc::WTERMSIG(status), usage }
    } else {
        Change::Stopped
    };
    Some((pid.cast_unsigned(), change))
}

/// Blocks SIGCHLD and the ending signals, and gives a descriptor on which they arrive.
pub(crate) fn signals() -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised before use; the returned descriptor is ours.
    unsafe {
        let mut set = MaybeUninit::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        let mut set = set.assume_init();
        for signal in [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT] {
            libc::sigaddset(&raw mut set, signal);
        }
        check_errno(libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()))?;
        for signal in [libc::SIGPIPE, libc::SIGHUP] {
            libc::signal(signal, libc::SIG_IGN);
        }
        let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

fn check_errno(result: libc::c_int) -> io::Result<()> {
    check(result)
}

/// Numbers of the signals that have arrived.
pub(crate) fn read_signals(fd: &OwnedFd) -> Vec<i32> {
    let mut found = Vec::new();
    let mut buf = [0_u8; 128 * 8];
    while let Ok(n) = rustix::io::read(fd, &mut buf) {
        for info in buf[..n].chunks_exact(128) {
            found.push(i32::from_ne_bytes([info[0], info[1], info[2], info[3]]));
        }
        if n < buf.len() {
            break;
        }
    }
    found
}

/// Sends a signal by number, real-time ones included. To be used only for children that have not been
/// waited for, whose number can't have been given to another process.
pub(crate) fn kill_child(pid: u32, signal: i32) {
    // SAFETY: kill has no memory effects.
    unsafe { libc::kill(pid.cast_signed(), signal) };
}

/// Sends a signal through a pidfd, which can't hit another process that got the same number.
pub(crate) fn pidfd_signal(fd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    // SAFETY: a null siginfo and no flags are valid arguments.
    let result = unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), signal, ptr::null::<libc::siginfo_t>(), 0)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Closes every descriptor from this number on. Only for the very beginning, when none of them is ours.
pub(crate) fn close_from(first: RawFd) {
    // SAFETY: nothing in this process refers to these descriptors yet.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) };
    if closed == 0 {
        return;
    }
    // An old kernel.
    for fd in open_descriptors(first) {
        // SAFETY: as above; a number that is closed already does no harm.
        unsafe { libc::close(fd) };
    }
}

fn open_descriptors(first: RawFd) -> Vec<RawFd> {
    std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd >= first)
        .collect()
}

/// Bytes that wait in a pipe (asked of either end).
pub(crate) fn pipe_fill(fd: BorrowedFd<'_>) -> usize {
    let mut n: libc::c_int = 0;
    // SAFETY: FIONREAD writes one int.
    if unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONREAD, &raw mut n) } < 0 {
        return 0;
    }
    usize::try_from(n).unwrap_or(0)
}

/// Bytes that a socket still takes at once.
pub(crate) fn socket_room(fd: BorrowedFd<'_>, buffer: usize) -> usize {
    let mut queued: libc::c_int = 0;
    // SAFETY: TIOCOUTQ (for sockets also called SIOCOUTQ) writes one int.
    if unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut queued) } < 0 {
        return 0;
    }
    buffer.saturating_sub(usize::try_from(queued).unwrap_or(0))
}

/// Bytes that fit into a pipe.
pub(crate) fn pipe_size(fd: BorrowedFd<'_>) -> usize {
    rustix::pipe::fcntl_getpipe_size(fd).unwrap_or(64 << 10)
}

/// Who is at the other end of a socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// 0 if this pid namespace has no number for it.
    pub pid: libc::pid_t,
    pub uid: u32,
}

/// Not by way of rustix, whose process ids can't be 0.
pub(crate) fn peer(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let mut cred = libc::ucred { pid: -1, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `cred`, which is that long.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut cred).cast(),
            &raw mut len,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Peer { pid: cred.pid, uid: cred.uid })
}

/// This process's real user.
pub(crate) fn uid() -> u32 {
    rustix::process::getuid().as_raw()
}

/// Stands in for the C library's look-up of a user's record.
///
/// The standard library asks it for the home directory when `HOME` is not set. In a static program glibc
/// would answer by loading name service plugins of the place, which may be of another release or hostile, and
/// carries a dynamic loader and a resolver for that purpose. The outpost knows its home by other means.
///
/// # Safety
/// `result` must be valid for a write, as the C function's is.
#[unsafe(no_mangle)]
unsafe extern "C" fn getpwuid_r(
    _uid: libc::uid_t,
    _record: *mut libc::passwd,
    _buffer: *mut libc::c_char,
    _len: libc::size_t,
    result: *mut *mut libc::passwd,
) -> libc::c_int {
    // SAFETY: see above; "no such user" is a null result without an error.
    unsafe { *result = ptr::null_mut() };
    0
}
