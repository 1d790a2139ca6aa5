//! A private root for the sandboxes of emulators: what the first process of a sandbox mounts before anything runs in it.
//!
//! [`namespaces`] starts that first process; with it everything in the sandbox ends, and no mount of it is ever seen
//! outside.

mod root;

pub use root::{bind_read_only, devices, host_links, private, proc, skeleton};

use std::process::Command;

/// A command that runs this same program, with arguments to come, as the first process of namespaces of its own.
///
/// Killing `unshare` kills that process; so does the end of whoever started it, if it ends with its input.
///
/// # Errors
/// This program has no path.
pub fn namespaces(extra: &[&str]) -> std::io::Result<Command> {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child=SIGKILL", "--propagation", "private"]);
    if !rustix::process::getuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(extra).arg("--").arg(std::env::current_exe()?);
    Ok(command)
}
