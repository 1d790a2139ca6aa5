//! Commands that run the command given to them.

use super::flow::Input;
use super::output::Output;
use super::state::State;
use super::{Place, Walk};
use crate::value::Arg;

/// How a program finds the command in its arguments.
#[derive(Debug, Clone, Copy)]
struct Wrapper {
    names: &'static [&'static str],
    /// Options that take the next argument, as single letters.
    short: &'static str,
    /// Long options that take the next argument.
    long: &'static [&'static str],
    /// Options without a value. One that is in no list may take a value or not, and both are tried.
    flags: &'static str,
    /// Arguments in front of the command: the duration of `timeout`.
    operands: usize,
    /// `NAME=value` may stand in front of the command.
    assignments: bool,
    /// The arguments are joined and given to a shell.
    shell: bool,
}

const PLAIN: Wrapper =
    Wrapper { names: &[], short: "", long: &[], flags: "", operands: 0, assignments: false, shell: false };

#[rustfmt::skip]
const WRAPPERS: &[Wrapper] = &[
    Wrapper { names: &["sudo", "doas", "pkexec"], short: "ughpCrtTUDRac", long: &["--user", "--group", "--host", "--prompt", "--close-from", "--role", "--type", "--command-timeout", "--other-user", "--chdir", "--chroot"], flags: "AbBEeHiKklNnPSsVv", assignments: true, ..PLAIN },
    Wrapper { names: &["env"], short: "uC", long: &["--unset", "--chdir"], flags: "i0v", assignments: true, ..PLAIN },
    Wrapper { names: &["timeout", "gtimeout"], short: "sk", long: &["--signal", "--kill-after"], flags: "vfp", operands: 1, ..PLAIN },
    Wrapper { names: &["nice"], short: "n", long: &["--adjustment"], flags: "0123456789", ..PLAIN },
    Wrapper { names: &["ionice"], short: "cnpPu", long: &["--class", "--classdata"], flags: "t", ..PLAIN },
    Wrapper { names: &["chrt"], short: "TPD", flags: "abdfimoprRvV", operands: 1, ..PLAIN },
    Wrapper { names: &["taskset"], flags: "acp", operands: 1, ..PLAIN },
    Wrapper { names: &["numactl"], short: "NmpCi", long: &[], ..PLAIN },
    Wrapper { names: &["prlimit"], short: "p", ..PLAIN },
    Wrapper { names: &["stdbuf"], short: "ioe", long: &["--input", "--output", "--error"], ..PLAIN },
    Wrapper { names: &["nohup", "setsid", "builtin", "catchsegv", "linux32", "linux64", "proxychains", "proxychains4", "torsocks", "unbuffer", "eatmydata", "ltrace", "dbus-run-session", "then", "do", "else", "noglob", "nocorrect"], flags: "cfwqpv", ..PLAIN },
    Wrapper { names: &["faketime"], short: "m", flags: "f", operands: 1, ..PLAIN },
    Wrapper { names: &["setarch"], flags: "RBFILSTXZv", operands: 1, ..PLAIN },
    Wrapper { names: &["command"], flags: "p", ..PLAIN },
    Wrapper { names: &["exec"], short: "a", flags: "cl", ..PLAIN },
    Wrapper { names: &["time", "gtime"], short: "fo", long: &["--format", "--output"], flags: "pavqV", ..PLAIN },
    Wrapper { names: &["busybox", "toybox"], ..PLAIN },
    Wrapper { names: &["strace"], short: "eoOpsSuaEIPXb", flags: "cCdfFhiknqrtTvVwxyYzZ", ..PLAIN },
    Wrapper { names: &["valgrind", "gdbserver", "rr", "perf"], operands: 0, ..PLAIN },
    Wrapper { names: &["chroot"], long: &[], operands: 1, ..PLAIN },
    Wrapper { names: &["unshare"], short: "SGRw", long: &["--setuid", "--setgid", "--root", "--wd"], flags: "muinpUrfcCT", ..PLAIN },
    Wrapper { names: &["nsenter"], short: "tSG", long: &["--target"], flags: "amuinpUCrwFZ", ..PLAIN },
    Wrapper { names: &["systemd-run"], short: "pEuMHCt", long: &["--unit", "--property", "--description", "--slice", "--uid", "--gid", "--setenv", "--on-active", "--working-directory"], flags: "tPqGrdS", ..PLAIN },
    Wrapper { names: &["systemd-inhibit"], ..PLAIN },
    Wrapper { names: &["flock"], short: "wE", long: &["--timeout", "--wait"], flags: "nsxueoF", operands: 1, ..PLAIN },
    Wrapper { names: &["xvfb-run"], short: "enpsfw", flags: "al", ..PLAIN },
    Wrapper { names: &["capsh"], operands: 0, ..PLAIN },
    Wrapper { names: &["setpriv", "firejail", "bwrap", "proot", "fakeroot", "gosu-less"], ..PLAIN },
    Wrapper { names: &["gosu", "su-exec", "chpst", "setuidgid"], operands: 1, ..PLAIN },
    Wrapper { names: &["caffeinate"], short: "tw", flags: "disum", ..PLAIN },
    Wrapper { names: &["watch"], short: "nq", long: &["--interval"], flags: "bcdegprtwx", shell: true, ..PLAIN },
    Wrapper { names: &["entr"], flags: "acdnprsz", ..PLAIN },
    Wrapper { names: &["uv", "poetry", "pipenv", "pdm", "hatch", "rye", "bundle", "conda", "mamba", "micromamba", "pixi", "mise", "asdf", "direnv", "dotenv", "op", "doppler"], ..PLAIN },
    Wrapper { names: &["hyperfine"], short: "wmMrpsSciunL", flags: "Nh", shell: true, ..PLAIN },
    Wrapper { names: &["tmux", "screen"], ..PLAIN },
    Wrapper { names: &["daemonize", "start-stop-daemon"], ..PLAIN },
    Wrapper { names: &["rlwrap", "expect-less", "ccache", "sccache", "distcc", "parallel", "sem", "rush"], short: "jSaINnLCdE", long: &["--jobs", "--colsep", "--delay", "--joblog", "--arg-file"], flags: "kmXqtvu0", ..PLAIN },
];

/// Package and project runners: only behind this word comes a command.
const RUNNERS: &[(&str, &[&str])] = &[
    ("uv", &["run"]),
    ("poetry", &["run"]),
    ("pipenv", &["run"]),
    ("pdm", &["run"]),
    ("hatch", &["run"]),
    ("rye", &["run"]),
    ("bundle", &["exec"]),
    ("conda", &["run"]),
    ("mamba", &["run"]),
    ("micromamba", &["run"]),
    ("pixi", &["run", "exec"]),
    ("mise", &["exec", "x"]),
    ("asdf", &["exec"]),
    ("direnv", &["exec"]),
    ("dotenv", &["run"]),
    ("op", &["run"]),
    ("doppler", &["run"]),
    ("perf", &["record", "stat", "trace"]),
    (
        "tmux",
        &[
            "new-session",
            "new",
            "new-window",
            "neww",
            "split-window",
            "splitw",
            "respawn-pane",
            "run-shell",
            "run",
            "send-keys",
            "send",
        ],
    ),
];

/// Follows the command inside of `args`, if `program` runs one. `true`: that is all there is to say about it.
pub(super) fn follow(
    walk: &mut Walk<'_>,
    program: &str,
    args: &[Arg],
    state: &mut State,
    input: &Input,
) -> bool {
    let Some(wrapper) = WRAPPERS.iter().find(|wrapper| wrapper.names.contains(&program)) else {
        return false;
    };
    let mut start = 1;
    if let Some((_, words)) = RUNNERS.iter().find(|(name, _)| *name == program) {
        let Some(at) = args.iter().position(|arg| arg.literal().is_some_and(|text| words.contains(&text)))
        else {
            return false;
        };
        start = at + 1;
    }
    if program == "command" && args.get(1).is_some_and(|arg| matches!(arg.literal(), Some("-v" | "-V"))) {
        return false;
    }
    special(walk, program, args, state, input);
    let starts = commands(wrapper, args, start);
    if starts.is_empty() {
        if matches!(program, "parallel" | "sem" | "rush") && *input != Input::Inherited {
            walk.stdin_script(program, &mut state.clone(), input);
        }
        return false;
    }
    walk.carries();
    for start in starts {
        let inner = &args[start..];
        if inner.is_empty() {
            continue;
        }
        // `tmux new -d 'command line'`, `watch 'a | b'`: one argument that is a script.
        let script =
            inner.len() == 1 && inner[0].literal().is_some_and(|text| text.contains(char::is_whitespace));
        if wrapper.shell || script || matches!(program, "tmux" | "parallel" | "sem" | "rush") {
            let text = super::expand::joined(inner);
            walk.script(&text, &mut state.clone(), input, program);
        } else if matches!(program, "exec" | "command" | "builtin" | "time" | "noglob") {
            walk.by_program = true;
            walk.call(inner, state, input, true_if_env(program, args, start));
        } else {
            walk.by_program = true;
            walk.call(inner, &mut state.clone(), input, true_if_env(program, args, start));
        }
    }
    true
}

/// Whether variables were set in front of the inner command.
fn true_if_env(program: &str, args: &[Arg], start: usize) -> bool {
    matches!(program, "env" | "sudo" | "doas")
        && args[1..start]
            .iter()
            .any(|arg| arg.literal().is_none_or(|text| text.contains('=') && !text.starts_with('-')))
}

/// What some of them do besides.
fn special(walk: &mut Walk<'_>, program: &str, args: &[Arg], state: &mut State, input: &Input) {
    match program {
        "env" => {
            for option in ["-S", "--split-string"] {
                if let Some(text) = super::call::value_of(args, option) {
                    walk.script(&text, &mut state.clone(), input, "env -S");
                }
            }
            assignments(walk, args);
        }
        "sudo" | "doas" => assignments(walk, args),
        "flock" => {
            if let Some(text) =
                super::call::value_of(args, "-c").or_else(|| super::call::value_of(args, "--command"))
            {
                walk.script(&text, &mut state.clone(), input, "flock -c");
            }
        }
        "hyperfine" => {
            for arg in args.iter().skip(1).filter(|arg| !arg.prefix().starts_with('-')) {
                walk.script(arg, &mut state.clone(), &Input::Inherited, "hyperfine");
            }
        }
        "capsh" => {
            if let Some(at) = args.iter().position(|arg| arg.literal() == Some("--")) {
                let mut shell = vec![Arg::known("bash")];
                shell.extend_from_slice(&args[at + 1..]);
                walk.by_program = true;
                walk.call(&shell, &mut state.clone(), input, false);
            }
        }
        _ => {}
    }
}

fn assignments(walk: &mut Walk<'_>, args: &[Arg]) {
    for arg in args.iter().skip(1) {
        let Some((name, _)) = arg.prefix().split_once('=') else { continue };
        if name.starts_with('-') {
            continue;
        }
        let name = name.to_owned();
        let value = arg.skip(name.len() + 1);
        walk.assigned(&name, std::iter::once(&value));
    }
}

/// Where the inner command may begin.
fn commands(wrapper: &Wrapper, args: &[Arg], start: usize) -> Vec<usize> {
    // (position, operands still to be skipped)
    let mut work = vec![(start, wrapper.operands)];
    let mut found = Vec::new();
    let mut seen = Vec::new();
    while let Some((at, operands)) = work.pop() {
        if seen.contains(&(at, operands)) || seen.len() > 200 {
            continue;
        }
        seen.push((at, operands));
        let Some(arg) = args.get(at) else { continue };
        let text = arg.prefix();
        if arg.splits {
            // May be options, operands, or the beginning of the command.
            work.push((at + 1, operands));
            work.push((at + 1, operands.saturating_sub(1)));
            if operands == 0 {
                found.push(at);
            }
        } else if text == "--" && arg.literal().is_some() {
            work.push((at + 1, operands));
            if operands == 0 && at + 1 < args.len() {
                found.push(at + 1);
            }
        } else if text.len() > 1 && text.starts_with('-') {
            match takes_value(wrapper, text) {
                Some(true) => work.push((at + 2, operands)),
                Some(false) => work.push((at + 1, operands)),
                None => {
                    work.push((at + 1, operands));
                    work.push((at + 2, operands));
                }
            }
        } else if wrapper.assignments && is_assignment(text) {
            work.push((at + 1, operands));
        } else if operands > 0 {
            work.push((at + 1, operands - 1));
        } else {
            found.push(at);
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

fn is_assignment(text: &str) -> bool {
    text.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

/// Whether an option takes the next argument; `None` if that is not known.
fn takes_value(wrapper: &Wrapper, option: &str) -> Option<bool> {
    if let Some(long) = option.strip_prefix("--") {
        if long.contains('=') {
            return Some(false);
        }
        return if wrapper.long.contains(&option) { Some(true) } else { None };
    }
    let letters = &option[1..];
    for (at, letter) in letters.char_indices() {
        if wrapper.short.contains(letter) {
            return Some(at + letter.len_utf8() == letters.len());
        }
        if !wrapper.flags.contains(letter) {
            return None;
        }
    }
    Some(false)
}

/// `xargs`: the command with whatever is read as further arguments.
pub(super) fn xargs(walk: &mut Walk<'_>, args: &[Arg], state: &State, input: &Input) {
    const XARGS: Wrapper = Wrapper {
        short: "aEILnPsd",
        long: &[
            "--arg-file",
            "--delimiter",
            "--max-args",
            "--max-procs",
            "--max-chars",
            "--max-lines",
            "--replace",
        ],
        flags: "0prtxoiel",
        ..PLAIN
    };
    walk.carries();
    let replaced = ["-I", "--replace", "-i"].iter().find_map(|option| super::call::value_of(args, option));
    let marker = match &replaced {
        Some(arg) => arg.literal().filter(|text| !text.is_empty()).unwrap_or("{}").to_owned(),
        None => String::new(),
    };
    let Output { text: read, paths, .. } = input.output();
    for start in commands(&XARGS, args, 1) {
        let mut inner = args[start..].to_vec();
        if marker.is_empty() {
            match &read {
                Some(text) => inner.extend(
                    text.split(|c: char| c.is_whitespace() || c == '\0')
                        .filter(|word| !word.is_empty())
                        .take(64)
                        .map(Arg::known),
                ),
                None if !paths.is_empty() => inner.extend(paths.iter().map(|path| Arg::pattern_of(path))),
                None => {
                    let mut gap = Arg::unknown();
                    gap.splits = true;
                    inner.push(gap);
                }
            }
        } else {
            for arg in &mut inner {
                let text = arg.text();
                if text.contains(&marker) {
                    *arg = filled(&text, &marker, read.as_deref().map(str::trim_end));
                }
            }
        }
        if let (true, Some(text)) = (marker.is_empty(), &read) {
            // With other separators than blanks, all that is read may be one argument.
            let mut whole = args[start..].to_vec();
            whole.push(Arg::known(text.trim_end()));
            walk.by_program = true;
            walk.call(&whole, &mut state.clone(), &Input::Inherited, false);
        }
        walk.by_program = true;
        walk.call(&inner, &mut state.clone(), &Input::Inherited, false);
    }
}

/// `text` with `marker` replaced by what is known, or by a gap.
pub(super) fn filled(text: &str, marker: &str, by: Option<&str>) -> Arg {
    let mut arg = Arg::default();
    for (count, piece) in text.split(marker).enumerate() {
        if count > 0 {
            match by {
                Some(by) => arg.append(&Arg::known(by)),
                None => arg.append(&Arg::unknown()),
            }
        }
        arg.append(&Arg::known(piece));
    }
    arg
}

/// `ssh host command …`, `docker exec name command …`: a command that runs elsewhere.
pub(super) fn elsewhere(walk: &mut Walk<'_>, place: Place, run: impl FnOnce(&mut Walk<'_>)) {
    walk.carries();
    let outer = walk.place;
    // From a container there is no way back out, as far as this command says.
    if outer != Place::Container {
        walk.place = place;
    }
    run(walk);
    walk.place = outer;
}

/// The arguments behind the options of `ssh`: host and command.
pub(super) fn behind_options(
    args: &[Arg],
    short: &'static str,
    long: &'static [&'static str],
    flags: &'static str,
) -> Vec<usize> {
    let wrapper = Wrapper { short, long, flags, ..PLAIN };
    commands(&wrapper, args, 1)
}
