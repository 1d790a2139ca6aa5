//! Rules that look at what a program does to which path.

use super::paths;
use crate::analysis::{State, Walk};
use crate::value::Arg;
use crate::verdict::Level;

/// Programs that have a check here.
pub(crate) const PROGRAMS: &[&str] = &[
    "rm", "unlink", "shred", "srm", "rimraf", "chmod", "chown", "chgrp", "mv", "cp", "install", "ln",
    "rsync", "dd", "tee", "sponge", "sed", "perl", "truncate", "kill", "find", "tar", "unzip", "touch",
    "docker", "podman", "cat",
];
/// Programs that show, copy or send the files they are given.
const READERS: &[&str] = &[
    "cat", "tac", "less", "more", "head", "tail", "bat", "nl", "od", "xxd", "hexdump", "strings", "base64",
    "base32", "cp", "mv", "scp", "rsync", "tar", "zip", "gzip", "curl", "wget", "nc", "awk", "sed", "grep",
    "rg", "sort", "cut", "dd", "vim", "nano", "diff", "paste", "openssl", "jq", "yq", "source", "install",
    "ln", "python", "python3", "pr", "fold", "rev", "tr", "column", "uniq", "view", "most", "xclip",
    "pbcopy", "http", "aws", "gsutil", "rclone",
];
/// Options in front of a subcommand that take the next argument.
const GLOBAL_VALUES: &[&str] = &[
    "-C",
    "-c",
    "--git-dir",
    "--work-tree",
    "--namespace",
    "-n",
    "--context",
    "--kubeconfig",
    "-H",
    "--host",
    "--config",
    "-f",
    "--file",
    "-p",
    "--project-name",
    "--profile",
    "--region",
    "--project-directory",
    "-l",
    "--log-level",
    "-R",
    "--repo",
    "--manifest-path",
    "--prefix",
    "-w",
    "--workspace",
    "--filter",
    "--cwd",
    "-chdir",
];

/// The arguments that are no options.
pub(crate) fn operands(args: &[Arg]) -> impl Iterator<Item = &Arg> {
    let mut only_operands = false;
    args.iter().filter(move |arg| {
        if !only_operands && arg.literal() == Some("--") {
            only_operands = true;
            return false;
        }
        only_operands || !(arg.prefix().starts_with('-') && arg.text().len() > 1)
    })
}

/// Whether any of `options` is among the arguments. Words that are no options are looked for as they are.
pub(crate) fn has(args: &[Arg], options: &[&str]) -> bool {
    args.iter().take_while(|arg| arg.literal() != Some("--") || options.contains(&"--")).any(|arg| {
        let text = arg.text();
        options.iter().any(|option| is_option(&text, option))
    })
}

fn is_option(text: &str, option: &str) -> bool {
    if text == option {
        return true;
    }
    if option.starts_with("--") {
        let name = text.split('=').next().unwrap_or_default();
        // Most programs take an abbreviation that fits one option only.
        return name == option || (name.len() >= 5 && name.starts_with("--") && option.starts_with(name));
    }
    match option.strip_prefix('-') {
        // `-f` in `-xfv`; no letters are looked for in long options.
        Some(letter) if letter.len() == 1 => {
            text.starts_with('-')
                && !text.starts_with("--")
                && text.len() > 2
                && text[1..].bytes().all(|byte| byte.is_ascii_alphanumeric())
                && text[1..].contains(letter)
        }
        _ => false,
    }
}

/// Whether the operands begin with `words`, as in `git -C x push`.
pub(crate) fn subcommand(args: &[Arg], words: &str) -> bool {
    let mut wanted = words.split(' ');
    let Some(mut next) = wanted.next() else { return false };
    let mut at = 0;
    while let Some(arg) = args.get(at) {
        at += 1;
        let text = arg.text();
        if next.starts_with('-') {
            return has(&args[at - 1..], &[next])
                || args[at - 1..].iter().any(|arg| arg.text().starts_with(next));
        }
        if text.starts_with('-') && text.len() > 1 {
            if GLOBAL_VALUES.contains(&text.as_str()) {
                at += 1;
            }
            continue;
        }
        if text != next {
            return false;
        }
        match wanted.next() {
            Some(word) => next = word,
            None => return true,
        }
    }
    false
}

pub(crate) fn apply(walk: &mut Walk<'_>, program: &str, args: &[Arg], state: &State) {
    if READERS.contains(&program) {
        for arg in args.iter().filter(|arg| !arg.prefix().starts_with('-')) {
            paths::read(walk, arg, state, program);
        }
    }
    match program {
        "rm" | "grm" | "unlink" | "shred" | "srm" | "rimraf" | "del-cli" | "trash" | "rmdir" | "rd" => {
            remove(walk, program, args, state);
        }
        "chmod" | "chown" | "chgrp" | "setfacl" | "chattr" => mode(walk, program, args, state),
        "mv" | "cp" | "install" | "ln" | "rsync" | "scp" | "gcp" | "gmv" => {
            transfer(walk, program, args, state);
        }
        "dd" | "dcfldd" | "pv" | "ddrescue" => {
            for arg in args {
                if arg.prefix().starts_with("of=") {
                    paths::write(walk, &arg.skip(3), state, "dd of=");
                }
            }
            if program == "ddrescue" {
                for arg in operands(args).skip(1) {
                    paths::write(walk, arg, state, program);
                }
            }
        }
        "tee" | "sponge" | "truncate" | "touch" | "fallocate" | "mkswap" | "badblocks" => {
            if program == "badblocks" && !has(args, &["-w"]) {
                return;
            }
            for arg in operands(args) {
                paths::write(walk, arg, state, program);
            }
        }
        "sed" | "gsed" | "perl" | "ruby" => {
            let in_place = args.iter().any(|arg| {
                let text = arg.prefix();
                text.starts_with("--in-place")
                    || (text.starts_with('-')
                        && !text.starts_with("--")
                        && text.contains('i')
                        && !text.contains('I')
                        && text.len() < 12)
            });
            if in_place {
                for arg in operands(args) {
                    paths::write(walk, arg, state, "edit in place:");
                }
            }
        }
        "kill" => kill(walk, args),
        "find" | "gfind" => find_delete(walk, args, state),
        "tar" | "bsdtar" | "unzip" | "cpio" | "patch" => {
            for option in ["-C", "--directory", "-d", "-D"] {
                for pair in args.windows(2) {
                    if pair[0].literal() == Some(option) {
                        paths::write(walk, &pair[1], state, program);
                        root_only(walk, &pair[1], state, program);
                    }
                }
            }
        }
        "curl" | "wget" => {
            for pair in args.windows(2) {
                let option = pair[0].prefix();
                let cluster = option.starts_with('-') && !option.starts_with("--");
                if matches!(option, "--output" | "--output-document" | "--directory-prefix")
                    || (cluster && (option.ends_with('o') || option.ends_with('O') && program == "wget"))
                {
                    paths::write(walk, &pair[1], state, program);
                }
                if matches!(
                    option,
                    "-d" | "--data"
                        | "--data-binary"
                        | "-F"
                        | "--form"
                        | "-T"
                        | "--upload-file"
                        | "--post-file"
                ) {
                    let text = pair[1].text();
                    let path = text.rsplit_once('@').map_or(text.as_str(), |(_, path)| path);
                    paths::read(walk, &Arg::known(path), state, program);
                }
            }
        }
        "docker" | "podman" | "nerdctl" => mounts(walk, args, state),
        _ => {}
    }
    unknown_subcommand(walk, program, args);
}

fn remove(walk: &mut Walk<'_>, program: &str, args: &[Arg], state: &State) {
    if has(args, &["--no-preserve-root"]) {
        walk.reason(
            "delete-root",
            Level::Forbidden,
            "deletes the root directory in spite of rm's own guard",
            "--no-preserve-root",
            "nothing brings it back",
        );
    }
    if has(args, &["--help", "--version"]) {
        return;
    }
    // `rmdir` deletes empty directories only.
    if program == "rmdir" {
        return;
    }
    let recursive = matches!(program, "rimraf" | "del-cli" | "rd") || has(args, &["-r", "-R", "--recursive"]);
    for arg in operands(args) {
        if program == "shred" {
            paths::write(walk, arg, state, program);
        }
        paths::delete(walk, arg, recursive, state);
    }
}

fn mode(walk: &mut Walk<'_>, program: &str, args: &[Arg], state: &State) {
    let recursive = has(args, &["-R", "--recursive"]);
    let mut operands = operands(args);
    let reference = args.iter().any(|arg| arg.prefix().starts_with("--reference"));
    // `chmod -x file` looks like an option.
    let symbolic = args.iter().find(|arg| {
        program == "chmod"
            && arg.prefix().starts_with('-')
            && arg.prefix().len() > 1
            && arg.prefix()[1..].bytes().all(|byte| b"rwxXst".contains(&byte))
    });
    let setting = if reference || symbolic.is_some() { None } else { operands.next() };
    let targets: Vec<&Arg> = operands.collect();
    if program == "chmod"
        && let Some(text) = setting.and_then(Arg::literal)
    {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty();
        let others = digits && text.bytes().last().is_some_and(|byte| (byte - b'0') & 2 != 0);
        let opens = others
            || ["o+w", "a+w", "o=rw", "a=rw", "o+rw", "a+rw", "ugo+w", "ugo+rw", "+rwx"]
                .iter()
                .any(|form| text.split(',').any(|part| part.starts_with(form)));
        let special = (digits && text.len() == 4 && matches!(text.as_bytes()[0], b'2' | b'4' | b'6' | b'7'))
            || text.contains("+s");
        let only_temp = targets.iter().all(|arg| arg.prefix().starts_with("/tmp/"));
        if (opens && !only_temp) || special {
            walk.risk(
                "open-permissions",
                if special { "gives a program its owner's rights" } else { "lets every user change files" },
                &format!("chmod {text}"),
                "other users and programs get in",
            );
        }
    }
    for target in targets {
        if recursive {
            paths::uproot(walk, target, state, "changes owner or permissions of a whole tree");
        } else {
            paths::write(walk, target, state, program);
        }
    }
}

fn transfer(walk: &mut Walk<'_>, program: &str, args: &[Arg], state: &State) {
    let mut found: Vec<&Arg> = operands(args).collect();
    let named = args
        .windows(2)
        .find(|pair| matches!(pair[0].literal(), Some("-t" | "--target-directory")))
        .map(|pair| &pair[1]);
    let into = match named {
        Some(into) => Some(into),
        None if found.len() > 1 => found.pop(),
        None => None,
    };
    if let Some(into) = into {
        if program == "mv" && into.literal() == Some("/dev/null") {
            walk.risk("delete-tree", "moves files into nothing", "/dev/null", "it can't be undone");
        }
        let text = into.text();
        let remote = text.split('/').next().is_some_and(|first| first.contains(':'));
        if !remote {
            paths::write(walk, into, state, program);
        }
        if program == "rsync" && args.iter().any(|arg| arg.prefix().starts_with("--del")) {
            if remote {
                walk.risk("delete-outside", "deletes files on another machine", &text, "it can't be undone");
            } else {
                paths::delete(walk, into, true, state);
            }
        }
    }
    if program == "mv" || has(args, &["--remove-source-files"]) {
        for source in found {
            paths::uproot(walk, source, state, "moves a directory away");
        }
    }
}

fn root_only(walk: &mut Walk<'_>, arg: &Arg, state: &State, program: &str) {
    let roots = arg
        .literal()
        .is_some_and(|path| paths::resolve(path, state).iter().flatten().any(|path| path == "/"));
    if roots {
        walk.risk(
            "write-system",
            "unpacks over the system",
            &format!("{program} {}", arg.shown()),
            "it can replace any file",
        );
    }
}

fn kill(walk: &mut Walk<'_>, args: &[Arg]) {
    let first = args.first().and_then(Arg::literal).unwrap_or_default();
    if matches!(first, "-l" | "-L" | "--list") {
        return;
    }
    let skipped = match first {
        "-s" | "-n" | "--signal" | "-q" => 2,
        "--" => 0,
        _ if first.starts_with('-') && args.len() > 1 => 1,
        _ => 0,
    };
    for arg in args.iter().skip(skipped) {
        match arg.literal() {
            Some("-1") => walk.reason(
                "kill-everything",
                Level::Forbidden,
                "kills every process of the user, or of the machine",
                "kill … -1",
                "everything that runs ends at once",
            ),
            Some("1") => walk.risk(
                "kill-by-name",
                "sends a signal to the first process",
                "kill … 1",
                "the machine may stop",
            ),
            _ => {}
        }
    }
}

fn find_delete(walk: &mut Walk<'_>, args: &[Arg], state: &State) {
    for pair in args.windows(2) {
        if pair[0].prefix().starts_with("-fprint") || pair[0].literal() == Some("-fls") {
            paths::write(walk, &pair[1], state, "find");
        }
    }
    if !args.iter().any(|arg| arg.literal() == Some("-delete")) {
        return;
    }
    let tests = args
        .iter()
        .position(|arg| arg.prefix().starts_with('-') || matches!(arg.literal(), Some("(" | "!")))
        .unwrap_or(0);
    let narrow = args.iter().any(|arg| {
        matches!(
            arg.literal(),
            Some(
                "-name"
                    | "-iname"
                    | "-path"
                    | "-regex"
                    | "-mtime"
                    | "-mmin"
                    | "-size"
                    | "-empty"
                    | "-newer"
                    | "-atime"
                    | "-ctime"
                    | "-user"
                    | "-wholename"
                    | "-links"
                    | "-inum"
            )
        )
    });
    let here = [Arg::known(".")];
    let roots = if tests == 0 { &here[..] } else { &args[..tests] };
    for root in roots {
        let before = walk.reasons.len();
        paths::delete(walk, root, true, state);
        if narrow {
            // What it picks is less than everything, and below the work at hand that is everyday business.
            let mine = |rule: &str| matches!(rule, "delete-work" | "delete-tree");
            let mut kept: Vec<_> = walk.reasons.drain(before..).filter(|reason| !mine(reason.rule)).collect();
            for reason in &mut kept {
                reason.level = reason.level.min(Level::Risky);
            }
            walk.reasons.extend(kept);
        }
    }
}

/// Directories of the host that a container gets to see.
fn mounts(walk: &mut Walk<'_>, args: &[Arg], state: &State) {
    for (at, arg) in args.iter().enumerate() {
        let text = arg.text();
        let value = match text.as_str() {
            "-v" | "--volume" | "--mount" => args.get(at + 1).map(Arg::text),
            _ => text
                .strip_prefix("--volume=")
                .or_else(|| text.strip_prefix("--mount="))
                .or_else(|| text.strip_prefix("-v"))
                .map(str::to_owned),
        };
        let Some(value) = value else { continue };
        let source = match value
            .split(',')
            .find_map(|part| part.strip_prefix("source=").or_else(|| part.strip_prefix("src=")))
        {
            Some(source) => source,
            None => value.split(':').next().unwrap_or_default(),
        };
        let wide = source.ends_with("docker.sock")
            || (source.starts_with(['/', '~'])
                && paths::resolve(source, state).iter().flatten().any(|path| {
                    matches!(
                        paths::kind(path, walk),
                        paths::Kind::Root | paths::Kind::System | paths::Kind::Home
                    )
                }));
        if wide {
            walk.risk(
                "container-escape",
                "gives a container the host's files",
                &value,
                "it is no boundary any more",
            );
        }
    }
    for pair in args.windows(2) {
        if matches!(pair[0].literal(), Some("--pid" | "--ipc" | "--userns" | "--network" | "--net"))
            && pair[1].literal() == Some("host")
            && pair[0].literal() != Some("--network")
            && pair[0].literal() != Some("--net")
        {
            walk.risk(
                "container-escape",
                "starts a container that reaches the host",
                "host",
                "it is no boundary any more",
            );
        }
    }
}

/// `git $x`: the rules on subcommands can't say anything.
fn unknown_subcommand(walk: &mut Walk<'_>, program: &str, args: &[Arg]) {
    if !matches!(program, "git" | "docker" | "kubectl" | "systemctl" | "terraform" | "gh" | "podman") {
        return;
    }
    if let Some(first) = operands(args).next()
        && first.is_unknown()
        && first.prefix().is_empty()
        && !args.first().is_some_and(|arg| GLOBAL_VALUES.contains(&arg.prefix()))
    {
        walk.risk(
            "unknown-program",
            "a subcommand that is only known when it runs",
            &format!("{program} {}", first.shown()),
            "it could be any of them",
        );
    }
}
