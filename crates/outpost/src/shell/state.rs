//! A shell's state as it is written down, and how another shell takes it over.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// A state that was written completely, with the number of the command it follows.
pub(super) fn whole_state(file: &File) -> Option<(u64, Vec<u8>)> {
    let len = usize::try_from(file.metadata().ok()?.len()).ok()?;
    let mut text = vec![0; len];
    file.read_exact_at(&mut text, 0).ok()?;
    let first = text.split(|b| *b == b'\n').next()?;
    let number = std::str::from_utf8(first.strip_prefix(b"#begin ")?).ok()?.parse::<u64>().ok()?;
    text.ends_with(format!("#end {number}\n").as_bytes()).then_some((number, text))
}

/// Sets the options that the state names and unsets those it doesn't. Before, `__farshell_b` and
/// `__farshell_o` hold this shell's own; the state, if it has any, replaces them.
pub(super) const BASH_OPTIONS: &str = r#"
__farshell_f() {
  builtin local IFS=: o
  builtin set -f
  for o in $BASHOPTS; do [[ :$__farshell_b: == *:$o:* ]] || builtin shopt -u "$o"; done
  for o in $__farshell_b; do builtin shopt -s "$o"; done
  for o in $SHELLOPTS; do [[ :$__farshell_o:noglob: == *:$o:* ]] || builtin set +o "$o"; done
  for o in $__farshell_o; do
    case $o in errexit|noexec|onecmd|noglob) ;; *) builtin set -o "$o" ;; esac
  done
  [[ :$__farshell_o: == *:noglob:* ]] || builtin set +f
} 2>/dev/null
__farshell_f 2>/dev/null
builtin unset -f __farshell_f
builtin unset __farshell_b __farshell_o
"#;

/// What another shell sources before and after a session's state to take it over, for a process that starts from it.
/// The state itself has to be sourced with its complaints (about variables that can't be set) thrown away.
pub(crate) fn takeover(bash: bool) -> (&'static str, String) {
    if !bash {
        return ("", String::new());
    }
    // The traps of the session's shell are its own.
    ("__farshell_b=$BASHOPTS __farshell_o=$SHELLOPTS", format!("{BASH_OPTIONS}builtin trap - EXIT 62 63\n"))
}
