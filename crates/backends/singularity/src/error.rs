//! What it means when Apptainer fails, for the reader.

use farshell_engine::{Error, Kind};

/// How much of what it said is shown.
const WORDS: usize = 600;

/// Text of a program, fit to be shown: without colours and control characters, on one line, and short.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut chars = text.trim().chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => {
                if chars.next_if_eq(&'[').is_some() {
                    while chars.next().is_some_and(|c| !c.is_ascii_alphabetic()) {}
                }
            }
            '\n' => plain.push_str("; "),
            c if c.is_control() => {}
            c => plain.push(c),
        }
    }
    plain.chars().take(WORDS).collect()
}

/// The lines that say why, out of all that it said.
pub(crate) fn why(log: &str) -> String {
    let lines: Vec<&str> = log.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let fatal = |line: &&&str| line.contains("FATAL:") || line.contains("ERROR:");
    let mut told: Vec<&str> = lines.iter().filter(fatal).copied().collect();
    if told.is_empty() {
        let noise = |line: &&&str| !line.contains("INFO:") && !line.contains("DEBUG:");
        told = lines.iter().filter(noise).copied().collect();
    }
    let told: Vec<&str> = told.iter().rev().take(3).rev().copied().collect();
    let told = plain(&told.join("\n"));
    told.replace("FATAL:", "").replace("ERROR:", "").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// It refused because it can have no control groups.
pub(crate) fn is_about_control_groups(log: &str) -> bool {
    why(log).to_lowercase().contains("cgroup")
}

/// What to do about it.
struct Known {
    /// Any of these in what was said, in lower case.
    signs: &'static [&'static str],
    kind: Kind,
    hint: &'static str,
}

const KNOWN: &[Known] = &[
    Known {
        signs: &[
            "user namespace",
            "operation not permitted (os error 1) while creating",
            "newuidmap",
            "subuid",
        ],
        kind: Kind::Unavailable,
        hint: "ask the administrator of this machine: \"please allow unprivileged user namespaces (sysctl \
               user.max_user_namespaces=15000; on Ubuntu an AppArmor profile for apptainer), or install apptainer-suid\"",
    },
    Known {
        signs: &["/dev/fuse", "fusermount", "fuse: "],
        kind: Kind::Unavailable,
        hint: "ask the administrator of this machine: \"please make /dev/fuse accessible to users (chmod 666 /dev/fuse, \
               modprobe fuse)\", or use a sandbox directory as singularity_image",
    },
    Known {
        signs: &["no space left on device", "disk quota exceeded"],
        kind: Kind::Exhausted,
        hint: "make room, or set scratch_dir (TERMINAL_SCRATCH_DIR) to a larger file system",
    },
    Known {
        signs: &["overlay", "upperdir", "xattr"],
        kind: Kind::Unavailable,
        hint: "the file system of the scratch directory may not carry overlays (NFS, Lustre): set scratch_dir to a local \
               one, or container_persistent to false",
    },
    Known {
        signs: &["unauthorized", "authentication required", "denied: requested access", "403 forbidden"],
        kind: Kind::PermissionDenied,
        hint: "check the image's name; for a private one: `apptainer registry login`, or APPTAINER_DOCKER_USERNAME and \
               APPTAINER_DOCKER_PASSWORD",
    },
    Known {
        signs: &["manifest unknown", "not found", "name unknown"],
        kind: Kind::NotFound,
        hint: "check singularity_image",
    },
    Known {
        signs: &[
            "no such host",
            "connection refused",
            "i/o timeout",
            "network is unreachable",
            "tls handshake",
        ],
        kind: Kind::Unavailable,
        hint: "the registry can't be reached from here; build the image elsewhere (`apptainer pull`) and set \
               singularity_image to the file",
    },
];

/// What it said as an error.
pub(crate) fn explain(operation: impl Into<String>, log: &str, otherwise: &str) -> Error {
    let why = why(log);
    let lower = why.to_lowercase();
    let known = KNOWN.iter().find(|known| known.signs.iter().any(|sign| lower.contains(sign)));
    let message = if why.is_empty() { otherwise.to_owned() } else { why };
    match known {
        Some(known) => Error::new(known.kind, operation, message).with_hint(known.hint),
        None => Error::new(Kind::Unavailable, operation, message)
            .with_hint("`farshell doctor singularity` looks closer"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_found_in_the_noise() {
        let log = "INFO:    gocryptfs not found\n\u{1b}[31mFATAL:   \u{1b}[0mcontainer creation failed: while \
                   applying cgroups config: cannot use cgroups\n";
        assert_eq!(why(log), "container creation failed: while applying cgroups config: cannot use cgroups");
        assert!(is_about_control_groups(log));
        assert_eq!(why("INFO: a\nfarshell-outpost: listening: no\n"), "farshell-outpost: listening: no");
        assert_eq!(why("INFO: a\n"), "");
    }

    #[test]
    fn each_known_trouble_has_its_kind_and_hint() {
        for (log, kind, hint) in [
            (
                "FATAL: while extracting: failed to open /dev/fuse: permission denied",
                Kind::Unavailable,
                "/dev/fuse",
            ),
            (
                "FATAL: Unable to create user namespace: not allowed to create user namespace",
                Kind::Unavailable,
                "administrator",
            ),
            ("FATAL: write x: no space left on device", Kind::Exhausted, "scratch_dir"),
            (
                "FATAL: conveyor failed: reading manifest: manifest unknown",
                Kind::NotFound,
                "singularity_image",
            ),
            ("FATAL: something new", Kind::Unavailable, "doctor"),
        ] {
            let error = explain("starting", log, "it ended");
            assert_eq!(error.kind, kind, "{log}");
            assert!(error.hint.unwrap().contains(hint), "{log}");
        }
        assert_eq!(explain("starting", "", "it ended").message, "it ended");
    }
}
