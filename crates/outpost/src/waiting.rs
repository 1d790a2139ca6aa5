//! Does a process wait for input on its terminal? The kernel shows it: who is in the foreground, in which system
//! call, and whether the terminal echoes.

use farshell_protocol::process::WaitingFor;
use rustix::termios::LocalModes;
use std::os::fd::{AsFd, BorrowedFd};

/// What the foreground of this terminal (the outpost's side of it) is waiting for.
pub(crate) fn waiting_for(terminal: BorrowedFd<'_>) -> Option<WaitingFor> {
    let modes = rustix::termios::tcgetattr(terminal).ok()?.local_modes;
    // A program that takes single keys does its own echo; one that takes lines and shows none asks for a secret.
    // It may belong to another user (sudo), so that nothing else can be seen of it.
    if modes.contains(LocalModes::ICANON) && !modes.contains(LocalModes::ECHO) {
        return Some(WaitingFor::Secret);
    }
    let group = rustix::termios::tcgetpgrp(terminal.as_fd()).ok()?.as_raw_nonzero().get();
    let leader = u32::try_from(group).ok()?;
    let waits = reads_terminal(leader) || members(group).any(|pid| pid != leader && reads_terminal(pid));
    waits.then_some(WaitingFor::Input)
}

/// The processes of a group.
fn members(group: i32) -> impl Iterator<Item = u32> {
    std::fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(move |entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name may hold anything; what follows it is state, parent, group.
        let rest = stat.get(stat.rfind(')')? + 1..)?;
        (rest.split_ascii_whitespace().nth(2)?.parse() == Ok(group)).then_some(pid)
    })
}

/// Is it in a call that ends only when its terminal has something to read?
fn reads_terminal(pid: u32) -> bool {
    let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/syscall")) else { return false };
    let mut fields = text.split_ascii_whitespace();
    // `running` if it is in none.
    let Some(number) = fields.next().and_then(|f| f.parse::<libc::c_long>().ok()) else { return false };
    let args: Vec<u64> =
        fields.filter_map(|f| u64::from_str_radix(f.trim_start_matches("0x"), 16).ok()).collect();
    let arg = |n: usize| args.get(n).copied().unwrap_or_default();
    let terminal = |fd: u64| {
        std::fs::read_link(format!("/proc/{pid}/fd/{fd}"))
            .is_ok_and(|path| path.starts_with("/dev/pts") || path == std::path::Path::new("/dev/tty"))
    };
    match number {
        libc::SYS_read | libc::SYS_readv | libc::SYS_splice => terminal(arg(0)),
        // So does busybox copy its input.
        libc::SYS_sendfile => terminal(arg(1)),
        // Which descriptors it waits for is in its memory; that it waits without end, and could read, is here.
        libc::SYS_pselect6 => arg(4) == 0 && terminal(0),
        libc::SYS_ppoll => arg(2) == 0 && terminal(0),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_select => arg(4) == 0 && terminal(0),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll => arg(2) & 0xffff_ffff == 0xffff_ffff && terminal(0),
        _ => false,
    }
}
