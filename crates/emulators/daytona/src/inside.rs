//! The first process of a sandbox: it makes the private root, starts the daemon, and waits for whatever ends.
//!
//! Programs are this machine's, read-only. Everything that is written stays in the sandbox's own directory.

use farshell_emulator_inside as inside;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// The daemon's socket, as seen from inside without the first slash.
pub const SOCKET: &str = ".daytona/sock";
const PROGRAM: &str = ".daytona/daemon";

/// `init ROOT [NAME=VALUE…]`
///
/// # Errors
/// The root can't be made.
pub fn run(args: &[String]) -> io::Result<()> {
    let (root, env) = args.split_first().ok_or_else(|| io::Error::other("init needs a directory"))?;
    let root = Path::new(root);
    make(root)?;
    rustix::process::chroot(root)?;
    std::env::set_current_dir("/root")?;
    let _ = std::fs::remove_file(Path::new("/").join(SOCKET));
    let mut daemon = Command::new(Path::new("/").join(PROGRAM));
    daemon.args(["daemon", &format!("/{SOCKET}")]).env_clear();
    daemon.envs([
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        ("HOME", "/root"),
        ("SHELL", "/bin/bash"),
        ("LANG", "C.UTF-8"),
    ]);
    daemon.envs(env.iter().filter_map(|pair| pair.split_once('=')));
    // The daemon says that it is ready to whoever waits for us.
    daemon.stdin(Stdio::null()).spawn()?;
    // Whoever made the sandbox holds the other end. With us, everything in here ends.
    std::thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    // Orphans become ours.
    loop {
        match rustix::process::wait(rustix::process::WaitOptions::empty()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            // Nobody is left, not even the daemon: a sandbox stays started, as the real ones do.
            Err(_) => std::thread::sleep(std::time::Duration::from_secs(1)),
        }
    }
}

fn make(root: &Path) -> io::Result<()> {
    inside::private()?;
    inside::skeleton(root, &[(".daytona", 0o755), ("workspace", 0o755)])?;
    inside::host_links(root, inside::bind_read_only)?;
    inside::proc(root)?;
    inside::devices(&root.join("dev"))?;
    let program = root.join(PROGRAM);
    std::fs::write(&program, b"")?;
    inside::bind_read_only(&std::env::current_exe()?, &program)
}

/// Says to whoever started the sandbox that its daemon listens.
pub(crate) fn say_ready() {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "ready").and_then(|()| out.flush());
}
