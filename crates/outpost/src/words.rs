//! Words: how text is quoted for a shell, and what can be known of a command by looking at it.

/// Quotes for any POSIX shell.
pub(crate) fn quote(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'\'');
    for part in text.split_inclusive(|b| *b == b'\'') {
        match part.split_last() {
            Some((b'\'', before)) => {
                out.extend_from_slice(before);
                out.extend_from_slice(b"'\\''");
            }
            _ => out.extend_from_slice(part),
        }
    }
    out.push(b'\'');
}

/// Does running this text leave the shell as it was? Only plain words count, and only if the first names
/// neither a builtin that changes something nor one of the functions and aliases given. Everything that is
/// not understood changes the shell.
pub(crate) fn leaves_shell_alone(text: &[u8], shadowed: &dyn Fn(&str) -> bool) -> bool {
    let Ok(text) = std::str::from_utf8(text) else { return false };
    if !text.bytes().all(|b| {
        b.is_ascii_alphanumeric() || matches!(b, b' ' | b'_' | b'-' | b'.' | b'/' | b',' | b'+' | b'@' | b':')
    }) {
        return false;
    }
    let Some(first) = text.split(' ').find(|w| !w.is_empty()) else { return true };
    !CHANGES.contains(&first) && !shadowed(first)
}

/// The command may set a trap.
pub(crate) fn mentions_trap(text: &[u8]) -> bool {
    text.windows(4).any(|w| w == b"trap")
}

/// The command is one line with a `|` in it, and nothing in that can reach beyond its end. One that is not whole is an error
/// of syntax also where another line follows.
pub(crate) fn is_pipeline(text: &[u8]) -> bool {
    let (mut depth, mut found, mut before) = (0, false, 0);
    for &byte in text {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b'|' => found = true,
            _ => {}
        }
        if depth < 0 || byte == b'\n' || (byte == b'<' && before == b'<') {
            return false;
        }
        before = byte;
    }
    found && before != b'\\'
}

/// Plain commands up to this size are written into the line that the shell reads byte by byte.
pub(crate) const MOST_PLAIN: usize = 100;

/// A plain command of these words starts no process, so it leaves none behind.
pub(crate) fn starts_nothing(text: &[u8]) -> bool {
    let first = text.split(|b| *b == b' ').find(|w| !w.is_empty()).unwrap_or_default();
    [&b"true"[..], b"false", b":", b"echo", b"pwd", b"test", b"type"].contains(&first)
}

/// A plain command of these words has nothing to say but on its standard output.
pub(crate) fn never_complains(text: &[u8]) -> bool {
    if text.len() > MOST_PLAIN {
        return false;
    }
    let first = text.split(|b| *b == b' ').find(|w| !w.is_empty());
    matches!(first, Some(b"true" | b"false" | b":" | b"echo"))
}

/// Builtins and keywords of bash that can change the shell, or run something that can.
const CHANGES: &[&str] = &[
    ".",
    "alias",
    "bg",
    "bind",
    "break",
    "builtin",
    "caller",
    "case",
    "cd",
    "command",
    "compgen",
    "complete",
    "compopt",
    "continue",
    "coproc",
    "declare",
    "dirs",
    "disown",
    "do",
    "done",
    "elif",
    "else",
    "enable",
    "esac",
    "eval",
    "exec",
    "exit",
    "export",
    "fc",
    "fg",
    "fi",
    "for",
    "function",
    "getopts",
    "hash",
    "help",
    "history",
    "if",
    "in",
    "jobs",
    "kill",
    "let",
    "local",
    "logout",
    "mapfile",
    "popd",
    "printf",
    "pushd",
    "read",
    "readarray",
    "readonly",
    "return",
    "select",
    "set",
    "shift",
    "shopt",
    "source",
    "suspend",
    "then",
    "time",
    "times",
    "trap",
    "typeset",
    "ulimit",
    "umask",
    "unalias",
    "unset",
    "until",
    "wait",
    "while",
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn quoting_survives_any_text() {
        for text in ["", "a", "'", "''", "a'b", "'a", "a'", "$x `y` \"z\" \\ \n \t"] {
            let mut quoted = Vec::new();
            quote(&mut quoted, text.as_bytes());
            let mut script = b"printf %s ".to_vec();
            script.extend(&quoted);
            let script = std::ffi::OsStr::from_bytes(&script);
            let out = std::process::Command::new("sh").arg("-c").arg(script).output().unwrap();
            assert_eq!(out.stdout, text.as_bytes());
        }
    }

    #[test]
    fn only_plain_harmless_words_leave_the_shell_alone() {
        let none = |_: &str| false;
        for text in ["true", "ls -la /tmp", "/bin/true", "git status", "", "  echo hi "] {
            assert!(leaves_shell_alone(text.as_bytes(), &none), "{text}");
        }
        for text in [
            "cd /",
            "a=1",
            "true; x=1",
            "f() { :; }",
            "export A",
            "echo $(x=1)",
            "true &",
            ". x",
            "echo 'a'",
            "x\ncd /",
        ] {
            assert!(!leaves_shell_alone(text.as_bytes(), &none), "{text}");
        }
        assert!(!leaves_shell_alone(b"ls -l", &|name| name == "ls"));
    }
}
