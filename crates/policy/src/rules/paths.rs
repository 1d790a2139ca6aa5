//! What a path stands for: the machine, the user's account, the work at hand, or something that can be made again.

use super::names::{FILES, PRIVATE, REGENERATED, SECRETS, SYSTEM, SYSTEM_FILES, SYSTEM_INSIDE};
use super::own;
use crate::analysis::{State, Walk};
use crate::value::{Arg, GAP, Pattern};
use crate::verdict::Level;

/// The place of a command that we do not know, as the first component of a path.
const SOMEWHERE: &str = "\u{2}";

/// What a path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Root,
    /// A directory of the system, itself.
    System,
    /// Something in one.
    InSystem,
    /// Somebody's home directory, itself.
    Home,
    InHome,
    /// `/tmp`, itself.
    Temp,
    InTemp,
    /// The directory the command started in.
    Work,
    InWork,
    /// It begins with a gap.
    Unknown,
    Other,
}

/// The absolute forms that `path` may have, without `.` and `..`.
pub(crate) fn resolve(path: &str, state: &State) -> Vec<Option<String>> {
    absolute(path, state).into_iter().map(|path| (!path.starts_with("/\u{2}")).then_some(path)).collect()
}

fn absolute(path: &str, state: &State) -> Vec<String> {
    if path.starts_with('/') || path.starts_with('~') || path.starts_with(GAP) {
        return vec![normal(path)];
    }
    state
        .cwd
        .iter()
        .map(|place| match place {
            Some(place) => normal(&format!("{place}/{path}")),
            None => normal(&format!("/{SOMEWHERE}/{path}")),
        })
        .collect()
}

/// Without empty components, `.` and `..`. A path that begins with `~` or a gap keeps doing so.
fn normal(path: &str) -> String {
    let rooted = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let joined = parts.join("/");
    if rooted { format!("/{joined}") } else { joined }
}

/// Whether a component is a pattern for everything.
fn everything(part: &str) -> bool {
    part.contains(['*', '?']) && part.chars().all(|c| matches!(c, '*' | '?' | '.' | '[' | ']' | '!' | '^'))
        || part == "*"
        || (part.starts_with('[') && part.ends_with('*') && part.len() < 16)
}

/// The directory that is meant, and whether all that is in it is meant rather than itself.
fn whole(path: &str) -> (&str, bool) {
    match path.rsplit_once('/') {
        Some((parent, last)) if everything(last) => (if parent.is_empty() { "/" } else { parent }, true),
        None if everything(path) => ("", true),
        _ => (path, false),
    }
}

fn could_be(pattern: &str, name: &str) -> bool {
    if pattern.contains(['*', '?', '[']) { Pattern::new(pattern).matches(name) } else { pattern == name }
}

pub(crate) fn kind(path: &str, walk: &Walk<'_>) -> Kind {
    if path.starts_with(GAP) || path.is_empty() {
        return Kind::Unknown;
    }
    if path == "/" {
        return Kind::Root;
    }
    if let Some(rest) = path.strip_prefix('~') {
        return if rest.contains('/') { Kind::InHome } else { Kind::Home };
    }
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    if parts[0] == SOMEWHERE {
        return if parts.len() == 1 { Kind::Work } else { Kind::InWork };
    }
    let home = walk.context.home.as_deref().map(normal).filter(|home| home.len() > 1);
    let is_home = |path: &str| {
        home.as_deref() == Some(path)
            || path == "/root"
            || (parts.len() == 2 && matches!(parts[0], "home" | "Users") && !parts[1].starts_with(GAP))
    };
    let below =
        |path: &str, directory: &str| path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'));
    for temp in ["/tmp", "/var/tmp", "/dev/shm", "/private/tmp"] {
        if path == temp {
            return Kind::Temp;
        }
        if below(path, temp) {
            return Kind::InTemp;
        }
    }
    if is_home(path) {
        return Kind::Home;
    }
    if parts.len() == 1 {
        if parts[0].contains(GAP) {
            return Kind::Unknown;
        }
        if SYSTEM.iter().any(|name| could_be(parts[0], name)) {
            return Kind::System;
        }
    }
    if parts.len() == 2 && SYSTEM_INSIDE.iter().any(|name| could_be(&parts.join("/"), name)) {
        return Kind::System;
    }
    if let Some(cwd) = walk.context.cwd.as_deref().map(normal) {
        let shallow = cwd == "/" || SYSTEM.iter().any(|name| cwd == format!("/{name}"));
        if !shallow && path == cwd {
            return Kind::Work;
        }
        if !shallow && below(path, &cwd) {
            return Kind::InWork;
        }
    }
    let in_home = home.as_deref().is_some_and(|home| below(path, home))
        || below(path, "/root")
        || (parts.len() > 2 && matches!(parts[0], "home" | "Users"));
    if in_home {
        return Kind::InHome;
    }
    if SYSTEM.contains(&parts[0]) { Kind::InSystem } else { Kind::Other }
}

fn regenerated(path: &str) -> bool {
    let made = |part: &str| {
        REGENERATED.contains(&part)
            || part.ends_with(".egg-info")
            || part.ends_with(".pyc")
            || part.ends_with("-cache")
    };
    path.split('/').any(made)
}

/// `rm`, `shred`, `find -delete` and the like on `arg`.
pub(crate) fn delete(walk: &mut Walk<'_>, arg: &Arg, recursive: bool, state: &State) {
    let shown = arg.shown();
    for path in absolute(&arg.text(), state) {
        let (directory, all) = whole(&path);
        let base = directory.strip_prefix('/').unwrap_or(directory);
        if own::holds(directory, walk) {
            own::written(walk, &shown);
        }
        match kind(directory, walk) {
            kind @ (Kind::Root | Kind::System | Kind::Home) if recursive => {
                let (rule, what) = match kind {
                    Kind::Root => ("delete-root", "deletes everything on the machine"),
                    Kind::System => ("delete-system", "deletes a directory of the system"),
                    _ => ("delete-home", "deletes a home directory"),
                };
                walk.reason(rule, Level::Forbidden, what, &shown, "nothing brings it back");
            }
            Kind::Unknown => {
                walk.risk(
                    "delete-unknown",
                    "deletes what is only known when it runs",
                    &shown,
                    "if the variable is empty or wrong, it is something else",
                );
            }
            Kind::Temp if recursive || all => {
                walk.risk("delete-outside", "deletes all temporary files", &shown, "other programs use them");
            }
            Kind::Work if recursive || all => {
                walk.risk(
                    "delete-work",
                    "deletes everything in the working directory",
                    &shown,
                    "the work is gone if nobody else has it",
                );
            }
            Kind::InWork if recursive && !regenerated(last_two(base)) && !is_file(base) => {
                walk.risk(
                    "delete-tree",
                    "deletes a directory with all that is in it",
                    &shown,
                    "it can't be undone",
                );
            }
            Kind::InWork if base.contains("/.git/") || base.ends_with("/.git") => {
                walk.risk("delete-tree", "deletes the history of the work", &shown, "it can't be undone");
            }
            Kind::InWork | Kind::InTemp | Kind::Temp | Kind::Work => {}
            Kind::InHome if regenerated(base) => {}
            Kind::Root | Kind::System | Kind::Home | Kind::InSystem | Kind::InHome | Kind::Other => {
                walk.risk(
                    "delete-outside",
                    "deletes outside of the working directory",
                    &shown,
                    "it can't be undone",
                );
            }
        }
    }
}

fn is_file(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.rsplit_once('.').is_some_and(|(stem, ending)| !stem.is_empty() && FILES.contains(&ending))
}

/// Only the end of a path says what it is; `build` as the name of a project's parent means nothing.
fn last_two(path: &str) -> &str {
    let mut slashes = path.rmatch_indices('/').map(|(at, _)| at + 1);
    slashes.nth(1).map_or(path, |at| &path[at..])
}

/// Changes the owner, the mode or the place of a whole tree.
pub(crate) fn uproot(walk: &mut Walk<'_>, arg: &Arg, state: &State, what: &'static str) {
    let shown = arg.shown();
    for path in absolute(&arg.text(), state) {
        match kind(whole(&path).0, walk) {
            Kind::Root | Kind::System => walk.reason(
                "uproot-system",
                Level::Forbidden,
                what,
                &shown,
                "the machine does not work afterwards",
            ),
            Kind::Home => walk.risk("uproot-home", what, &shown, "programs and logins depend on it"),
            Kind::InSystem => walk.risk("change-system", what, &shown, "it changes the system"),
            _ => {}
        }
    }
}

/// A file is created or changed.
pub(crate) fn write(walk: &mut Walk<'_>, arg: &Arg, state: &State, via: &str) {
    let shown = format!("{via} {}", arg.shown());
    // Programs that edit the files of a list are everyday business; what is written whole is not.
    let blind = matches!(via, ">" | "dd of=" | "tee");
    if blind && arg.text().chars().all(|c| c == GAP) && arg.is_unknown() {
        walk.risk(
            "write-unknown",
            "writes to a file that is only known when it runs",
            &shown,
            "it could be a device or a file of the system",
        );
        return;
    }
    for path in absolute(&arg.text(), state) {
        if device(&path) {
            walk.reason(
                "write-device",
                Level::Forbidden,
                "writes over a disk",
                &shown,
                "the file systems on it are lost",
            );
            continue;
        }
        if path.starts_with("/dev/tcp/") || path.starts_with("/dev/udp/") {
            walk.risk(
                "network-redirect",
                "connects the command to the network",
                &shown,
                "it can hand the shell to somebody else",
            );
            continue;
        }
        if path == "/proc/sysrq-trigger" {
            walk.reason(
                "sysrq",
                Level::Forbidden,
                "gives the kernel an emergency command",
                &shown,
                "it stops the machine at once",
            );
            continue;
        }
        let harmless = [
            "/dev/null",
            "/dev/stdout",
            "/dev/stderr",
            "/dev/tty",
            "/dev/fd/",
            "/dev/pts/",
            "/dev/shm/",
            "/dev/full",
            "/dev/zero",
            "/proc/self/",
        ];
        if harmless.iter().any(|name| path.starts_with(name)) {
            continue;
        }
        if own::holds(&path, walk) {
            own::written(walk, &shown);
            continue;
        }
        if private(&path, walk) {
            walk.risk(
                "write-private",
                "changes credentials, or what runs at login",
                &shown,
                "it can give somebody else access",
            );
            continue;
        }
        let inside = |directory: &&str| {
            path.strip_prefix('/').is_some_and(|rest| {
                rest.strip_prefix(*directory).is_some_and(|rest| rest.starts_with('/') || rest.is_empty())
            })
        };
        let ours = matches!(kind(&path, walk), Kind::InTemp | Kind::InWork | Kind::Work | Kind::InHome);
        if !ours && SYSTEM_FILES.iter().any(inside) {
            walk.risk(
                "write-system",
                "changes a file of the system",
                &shown,
                "it outlives the task and affects every user",
            );
        }
        if path.ends_with("docker.sock") || path.contains("/.git/hooks/") {
            walk.risk(
                "write-private",
                "changes what other programs run",
                &shown,
                "it takes effect later, unseen",
            );
        }
    }
}

fn private(path: &str, walk: &Walk<'_>) -> bool {
    if path.ends_with("/authorized_keys") || path.contains("/.ssh/") {
        return true;
    }
    let home = walk.context.home.as_deref().map(normal);
    let inside = home.as_deref().and_then(|home| path.strip_prefix(home)).or_else(|| {
        let rest = path.strip_prefix("/root").or_else(|| path.strip_prefix('~'));
        rest.or_else(|| {
            path.strip_prefix("/home/")
                .or_else(|| path.strip_prefix("/Users/"))
                .and_then(|rest| rest.find('/').map(|at| &rest[at..]))
        })
        .or_else(|| path.strip_prefix(GAP))
    });
    let Some(inside) = inside.and_then(|rest| rest.strip_prefix('/')) else { return false };
    PRIVATE
        .iter()
        .any(|name| inside.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

/// A disk or a partition, or the memory of the machine.
pub(crate) fn device(path: &str) -> bool {
    let Some(name) = path.strip_prefix("/dev/") else { return false };
    if name.contains(['*', '?', '[']) {
        let known = [
            "sda",
            "sda1",
            "sdb",
            "sdc",
            "nvme0",
            "nvme0n1",
            "nvme0n1p1",
            "vda",
            "vda1",
            "hda",
            "xvda",
            "mmcblk0",
            "dm-0",
            "md0",
            "disk0",
        ];
        return known.iter().any(|known| Pattern::new(name).matches(known));
    }
    let digits = |prefix: &str| {
        name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let letters = |prefix: &str| {
        name.strip_prefix(prefix)
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()) || rest.starts_with(GAP))
    };
    letters("sd")
        || letters("hd")
        || letters("vd")
        || letters("xvd")
        || ["nvme", "mmcblk", "md", "dm-", "loop", "nbd", "disk", "rdisk", "sr", "zram", "pmem", "zd", "ram"]
            .iter()
            .any(|prefix| digits(prefix))
        || ["mapper/", "disk/", "md/", "zvol/", "block/"]
            .iter()
            .any(|prefix| name.starts_with(prefix) && name.len() > prefix.len())
        || matches!(name, "mem" | "kmem" | "port")
}

/// A file is read by something that shows or sends it.
pub(crate) fn read(walk: &mut Walk<'_>, arg: &Arg, state: &State, via: &str) {
    for path in absolute(arg.text().trim_start_matches('@'), state) {
        let key = path.rsplit_once("/.ssh/").is_some_and(|(_, name)| {
            (name.starts_with("id_")
                || name.ends_with("_key")
                || name.ends_with(".pem")
                || everything(name)
                || name.starts_with("id*"))
                && !name.ends_with(".pub")
        });
        let secret = key
            || own::is_secret(&path, walk)
            || ["/.ssh", "/.gnupg", "/.aws"].iter().any(|name| path.ends_with(name))
            || matches!(path.as_str(), "/etc/shadow" | "/etc/gshadow" | "/etc/sudoers")
            || (path.starts_with("/proc/") && path.ends_with("/environ") && !path.starts_with("/proc/self"))
            || path.contains("/.gnupg/private")
            || path.ends_with("/secring.gpg")
            || SECRETS.iter().any(|name| path.ends_with(&format!("/{name}")));
        if secret {
            walk.risk(
                "read-credentials",
                "reads credentials",
                &format!("{via} {}", arg.shown()),
                "they would be in the conversation from then on",
            );
        }
    }
}
