//! One session as the outpost keeps it.

use crate::shell::NamedPipe;
use crate::spawn::is_variable_name;
use crate::words::quote;
use farshell_protocol::SessionName;
use farshell_protocol::process::Start;
use farshell_protocol::session::{Mode, SessionInfo};
use std::collections::{HashSet, VecDeque};

#[derive(Debug)]
pub(crate) struct Session {
    pub name: SessionName,
    pub mode: Mode,
    /// The shell that runs or will run its next command.
    pub shell: Option<u32>,
    pub stage: Stage,
    /// The process that runs.
    pub current: Option<u32>,
    pub queue: VecDeque<u32>,
    /// Where the next command begins.
    pub cwd: Vec<u8>,
    /// `$?` for the next command.
    pub last_status: i32,
    /// What a new shell has to source to become this session.
    pub state: Vec<u8>,
    /// For one-shot sessions: functions and aliases of the init files, which each new shell gets first.
    pub baseline: Vec<u8>,
    /// Sourced by the first shell only.
    pub init_files: Vec<Vec<u8>>,
    /// Functions and aliases of the shell, `None` if that isn't known at the moment.
    pub names: Option<HashSet<String>>,
    /// A fresh pair of pipes, or the pair of the last command, which nobody holds any more.
    pub pipes: Option<(u32, [NamedPipe; 2])>,
    /// Shells in a row that died before they ran anything.
    pub false_starts: u32,
    pub commands: u64,
    pub restarts: u64,
    pub closing: bool,
    /// The state that the last command left has not been written down yet.
    pub unsaved: bool,
    /// Requests to start a process from this session's state, which wait for that.
    pub deferred: Vec<(u32, u32, Start)>,
    /// The caller's variables that commands have brought along.
    pub given: Given,
}

/// Variables of the caller's world that a session was given, as the last command brought them.
#[derive(Debug, Default)]
pub(crate) struct Given {
    last: Vec<(Vec<u8>, Vec<u8>)>,
    /// The shell has them. One that took over a state from before the last command may not.
    sure: bool,
}

/// A variable and its new value; `None` unsets it.
pub(crate) type VariableChange = (Vec<u8>, Option<Vec<u8>>);

impl Given {
    /// What has to be done to the shell so that it has these.
    pub(crate) fn changes(&self, now: &[(Vec<u8>, Vec<u8>)]) -> Vec<VariableChange> {
        let gone = self.last.iter().filter(|(name, _)| !now.iter().any(|(kept, _)| kept == name));
        let fresh = now.iter().filter(|variable| !self.sure || !self.last.contains(variable));
        gone.map(|(name, _)| (name.clone(), None))
            .chain(fresh.map(|(name, value)| (name.clone(), Some(value.clone()))))
            .collect()
    }

    /// The shell has these from now on.
    pub(crate) fn set(&mut self, now: &[(Vec<u8>, Vec<u8>)]) {
        self.last = now.to_vec();
        self.sure = true;
    }

    /// The shell may not have them any more.
    pub(crate) fn doubt(&mut self) {
        self.sure = false;
    }
}

/// The lines that change variables, whatever functions the shell has, and also if one is read-only.
pub(crate) fn change_variables(script: &mut Vec<u8>, changes: &[VariableChange], bash: bool) {
    // `command` keeps a refused change from ending a plain sh.
    let word: &[u8] = if bash { b"builtin " } else { b"command " };
    for (name, value) in changes {
        script.extend_from_slice(word);
        match value {
            Some(value) => {
                script.extend_from_slice(b"export ");
                script.extend_from_slice(name);
                script.push(b'=');
                quote(script, value);
            }
            None => {
                script.extend_from_slice(b"unset ");
                script.extend_from_slice(name);
            }
        }
        script.extend_from_slice(b" 2>/dev/null\n");
    }
}

/// Where a session's shell is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// There is none, or it is still taking over the session's state.
    Preparing,
    /// It waits for a command.
    Ready,
    /// It runs one.
    Running,
    /// One-shot: the command ended, the shell still writes its state down.
    Leaving,
    /// No shell can be started; commands fail at once.
    Failed,
}

impl Session {
    pub(crate) fn info(&self, shell: &str, created: bool) -> SessionInfo {
        SessionInfo {
            name: self.name.clone(),
            mode: self.mode,
            created,
            shell: shell.to_owned(),
            cwd: self.cwd.clone(),
            busy: self.current.is_some(),
            queued: self.queue.len() as u32,
            commands: self.commands,
            restarts: self.restarts,
        }
    }
}

/// Among the names: a trap may run at any time. No word is this.
pub(crate) const TRAPPED: &str = "trap --";

/// The names of functions and aliases in a state. A value that spans lines may look like one: then a name too
/// many is known, which only costs a state written more often. `None` if a trap may run with any command, or if
/// commands are traced: then each has to be run in the way that shows nothing of ours.
pub(crate) fn shadowing_names(state: &[u8]) -> Option<HashSet<String>> {
    let mut names = HashSet::new();
    for line in state.split(|b| *b == b'\n') {
        if let Some(rest) = line.strip_prefix(b"alias ") {
            let rest = rest.strip_prefix(b"-- ").unwrap_or(rest);
            let end = rest.iter().position(|b| *b == b'=').unwrap_or(rest.len());
            names.insert(String::from_utf8_lossy(&rest[..end]).into_owned());
        } else if let Some(name) = line.strip_suffix(b" () ").or_else(|| line.strip_suffix(b" ()")) {
            let name = name.strip_prefix(b"function ").unwrap_or(name);
            names.insert(String::from_utf8_lossy(name).into_owned());
        } else if [&b"' DEBUG"[..], b"' ERR", b"' RETURN"].iter().any(|t| line.ends_with(t)) {
            return None;
        } else if sets_trap(line) {
            names.insert(TRAPPED.to_owned());
        } else if let Some(options) = line.strip_prefix(b"__farshell_o=") {
            let traced = |option: &[u8]| options.windows(option.len()).any(|w| w == option);
            if traced(b"xtrace") || traced(b"verbose") {
                return None;
            }
        }
    }
    Some(names)
}

/// The end of a line that sets a trap on a signal, other than those that every shell of ours has.
fn sets_trap(line: &[u8]) -> bool {
    let Some(at) = line.windows(5).rposition(|w| w == b"' SIG") else { return false };
    let signal = &line[at + 2..];
    !signal.contains(&b' ') && ![&b"SIGRTMAX-2"[..], b"SIGRTMAX-1"].contains(&signal)
}

/// Variables that a state exports.
pub(crate) fn exported_names(state: &[u8]) -> HashSet<Vec<u8>> {
    let mut names = HashSet::new();
    for line in state.split(|b| *b == b'\n') {
        let rest = match line.strip_prefix(b"declare -") {
            Some(rest) => {
                let Some(space) = rest.iter().position(|b| *b == b' ') else { continue };
                if !rest[..space].contains(&b'x') {
                    continue;
                }
                &rest[space + 1..]
            }
            None => match line.strip_prefix(b"export ") {
                Some(rest) => rest,
                None => continue,
            },
        };
        let end = rest.iter().position(|b| *b == b'=').unwrap_or(rest.len());
        if !rest[..end].is_empty() && rest[..end].iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_') {
            names.insert(rest[..end].to_vec());
        }
    }
    names
}

/// What a session's first shell sources: nothing but variables.
pub(crate) fn first_state(vars: &[(Vec<u8>, Vec<u8>)], bash: bool) -> Vec<u8> {
    let mut state = Vec::new();
    for (name, value) in vars {
        if is_variable_name(name) {
            // The shell keeps these itself.
            if [&b"_"[..], b"SHLVL", b"PWD", b"OLDPWD"].contains(&name.as_slice()) {
                continue;
            }
            state.extend_from_slice(b"export ");
            state.extend_from_slice(name);
            state.push(b'=');
            quote(&mut state, value);
            state.push(b'\n');
        } else if let (true, Some(name)) = (bash, exported_function(name)) {
            state.extend_from_slice(name);
            state.push(b' ');
            state.extend_from_slice(value);
            state.extend_from_slice(b"\nexport -f ");
            state.extend_from_slice(name);
            state.push(b'\n');
        }
    }
    state
}

/// bash passes functions to its children as variables with such names.
fn exported_function(name: &[u8]) -> Option<&[u8]> {
    let name = name.strip_prefix(b"BASH_FUNC_")?.strip_suffix(b"%%")?;
    is_variable_name(name).then_some(name)
}

/// What each shell of a one-shot session sources: functions and aliases of the init files, and the exported
/// variables as the last command left them.
pub(crate) fn one_shot_state(session: &Session) -> Vec<u8> {
    if session.baseline.is_empty() || session.baseline == session.state {
        return session.state.clone();
    }
    let mut state = session.baseline.clone();
    let now = exported_names(&session.state);
    for name in exported_names(&session.baseline).difference(&now) {
        state.extend_from_slice(b"unset ");
        state.extend_from_slice(name);
        state.push(b'\n');
    }
    state.extend_from_slice(&session.state);
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_functions_and_aliases_are_found() {
        let state = b"declare -x A=\"1\"\nf () \n{ \n    echo\n}\nalias ll='ls -l'\nalias -- -='cd -'\n";
        let names = shadowing_names(state).unwrap();
        assert_eq!(names, ["f", "ll", "-"].map(str::to_owned).into());
        assert!(shadowing_names(b"trap -- 'echo x' DEBUG\n").is_none());
        assert!(shadowing_names(b"trap -- 'exit 1' EXIT\n").is_some());
        assert!(!shadowing_names(b"trap -- 'exit 137' SIGRTMAX-2\n").unwrap().contains(TRAPPED));
        for trap in [&b"trap -- 'echo x' SIGUSR1\n"[..], b"trap -- 'echo\n x' SIGCHLD\n"] {
            assert!(shadowing_names(trap).unwrap().contains(TRAPPED));
        }
    }

    #[test]
    fn exported_variables_are_found() {
        let state =
            b"declare -x A=\"1\"\ndeclare -- b=\"2\"\ndeclare -irx C=\"3\"\nexport D='4'\ndeclare -x E\n";
        let expected: HashSet<Vec<u8>> = ["A", "C", "D", "E"].map(|s| s.as_bytes().to_vec()).into();
        assert_eq!(exported_names(state), expected);
    }
}
