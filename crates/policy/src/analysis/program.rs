//! Programs that are given a script: shells, interpreters, and tools with an option for a command.

use super::Walk;
use super::call::{base_name, value_of};
use super::flow::Input;
use super::output::Output;
use super::state::State;
use super::wrap::{behind_options, filled, xargs};
use crate::value::{Arg, GAP};
use std::rc::Rc;

pub(super) const SHELLS: &[&str] =
    &["bash", "sh", "zsh", "dash", "ksh", "mksh", "ash", "fish", "rbash", "yash", "csh", "tcsh"];

/// Interpreters, and the options behind which a program stands.
#[rustfmt::skip]
const INTERPRETERS: &[(&str, &[&str])] = &[
    ("python", &["-c"]), ("pypy", &["-c"]), ("perl", &["-e", "-E"]), ("ruby", &["-e"]),
    ("node", &["-e", "--eval", "-p", "--print", "-pe"]), ("nodejs", &["-e", "--eval", "-p"]),
    ("bun", &["-e", "--eval", "-p"]), ("deno", &["eval"]), ("php", &["-r", "-B", "-R", "-E"]), ("lua", &["-e"]),
    ("luajit", &["-e"]), ("Rscript", &["-e"]), ("R", &["-e"]), ("julia", &["-e", "-E"]), ("osascript", &["-e"]),
    ("ghc", &["-e"]), ("scala", &["-e"]), ("groovy", &["-e"]), ("elixir", &["-e"]), ("erl", &["-eval"]),
    ("tclsh", &[]), ("expect", &["-c"]), ("gdb", &["-ex", "--eval-command", "-iex"]), ("lldb", &["-o"]),
    ("emacs", &["--eval", "-eval"]), ("guile", &["-c"]), ("sbcl", &["--eval"]), ("pwsh", &["-c", "-Command", "-EncodedCommand"]),
    ("powershell", &["-c", "-Command", "-EncodedCommand"]), ("ipython", &["-c"]), ("xonsh", &["-c"]), ("nu", &["-c"]),
];

/// Options whose value is a command line.
#[rustfmt::skip]
const COMMAND_OPTIONS: &[(&str, &[&str])] = &[
    ("tar", &["--to-command", "--checkpoint-action", "--use-compress-program", "-I", "--rsh-command", "--info-script", "--new-volume-script", "-F"]),
    ("rg", &["--pre", "--hostname-bin"]), ("sort", &["--compress-program"]), ("rsync", &["-e", "--rsh", "--rsync-path"]),
    ("scp", &["-S"]), ("sftp", &["-S"]), ("man", &["-P", "--pager"]), ("zip", &["-TT", "--unzip-command"]),
    ("split", &["--filter"]), ("script", &["-c", "--command"]), ("su", &["-c", "--command"]),
    ("runuser", &["-c", "--command"]), ("sg", &["-c"]), ("nix-shell", &["--run", "--command"]), ("make", &["--eval"]), ("gmake", &["--eval"]),
    ("nodemon", &["--exec", "-x"]), ("watchexec", &["--"]), ("cargo-watch", &["-s"]), ("ag", &["--pager"]),
    ("git", &["--upload-pack", "--receive-pack", "--exec", "-x", "--extcmd", "--tree-filter", "--index-filter", "--msg-filter", "--env-filter", "--open-files-in-pager"]),
    ("npm", &["-c", "--call"]), ("npx", &["-c", "--call"]), ("vim", &["--cmd"]), ("wget", &["--use-askpass"]),
    ("socat", &[]), ("nc", &["-e", "-c", "--exec", "--sh-exec"]), ("ncat", &["-e", "-c", "--exec", "--sh-exec"]),
];

impl Walk<'_> {
    /// Follows the script inside, if `program` runs one.
    pub(super) fn interpreter(
        &mut self,
        program: &str,
        args: &[Arg],
        state: &mut State,
        input: &Input,
    ) -> Option<Output> {
        let rest = args.get(1..).unwrap_or_default();
        for (name, options) in COMMAND_OPTIONS {
            if *name == program {
                for option in *options {
                    if let Some(value) = value_of(rest, option) {
                        let value = if value.prefix().starts_with("exec=") { value.skip(5) } else { value };
                        self.script(&value, &mut state.clone(), &Input::Inherited, program);
                    }
                }
            }
        }
        let plain =
            program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-' || c == 't');
        if SHELLS.contains(&program) {
            return Some(self.shell(program, rest, state, input));
        }
        if let Some((_, options)) = INTERPRETERS.iter().find(|(name, _)| *name == program || *name == plain) {
            self.language(plain, options, rest, state, input);
            return Some(Output::unknown());
        }
        match program {
            "xargs" => xargs(self, args, state, input),
            "find" | "gfind" => {
                let paths = self.find(rest, state);
                return Some(Output { paths, ..Output::unknown() });
            }
            "fd" | "fdfind" => {
                let exec = |arg: &Arg| matches!(arg.literal(), Some("-x" | "-X" | "--exec" | "--exec-batch"));
                if let Some(at) = rest.iter().position(exec) {
                    let inner: Vec<Arg> =
                        rest[at + 1..].iter().map(|arg| filled(&arg.text(), "{}", None)).collect();
                    self.call(&inner, &mut state.clone(), &Input::Inherited, false);
                }
            }
            "awk" | "gawk" | "mawk" | "nawk" => self.awk(rest, state),
            "sed" | "gsed" => self.sed(rest),
            "ssh" | "autossh" | "mosh" => self.ssh(args, state, input),
            "make" | "gmake" => {
                let file = value_of(rest, "-f").or_else(|| value_of(rest, "--file"));
                if file.is_some_and(|file| matches!(file.literal(), Some("-" | "/dev/stdin"))) {
                    self.risk(
                        "unknown-script",
                        "make runs rules from its input",
                        program,
                        "they can hold any command",
                    );
                }
                if let Some(shell) = rest.iter().find(|arg| arg.prefix().starts_with("SHELL=")) {
                    self.script(&shell.skip(6), &mut state.clone(), &Input::Inherited, program);
                }
            }
            "nix" => {
                if let Some(at) =
                    rest.iter().position(|arg| matches!(arg.literal(), Some("-c" | "--command")))
                {
                    self.call(&rest[at + 1..], &mut state.clone(), input, false);
                }
            }
            "su" | "runuser" | "script" => {
                let cluster = |arg: &Arg| {
                    arg.literal().is_some_and(|text| {
                        text.len() > 2
                            && text.starts_with('-')
                            && !text.starts_with("--")
                            && text.ends_with('c')
                    })
                };
                if let Some(script) = rest.iter().position(cluster).and_then(|at| rest.get(at + 1)) {
                    self.script(script, &mut state.clone(), &Input::Inherited, program);
                }
            }
            "docker" | "podman" | "nerdctl" | "docker-compose" | "kubectl" | "oc" | "apptainer"
            | "singularity" | "lxc" | "toolbox" | "distrobox" | "machinectl" | "systemd-nspawn" => {
                self.container(rest, state, input);
            }
            "git" => self.git(rest, state),
            "npx" | "bunx" | "pnpx" | "uvx" | "pipx" => {
                for start in behind_options(args, "pc", &["--package", "--from", "--with", "--python"], "yq")
                {
                    let start = if program == "pipx" { start + 1 } else { start };
                    if let Some(inner) = args.get(start..).filter(|inner| !inner.is_empty()) {
                        self.call(inner, &mut state.clone(), &Input::Inherited, false);
                    }
                }
            }
            "npm" | "pnpm" | "yarn" => {
                let runs = |arg: &Arg| matches!(arg.literal(), Some("exec" | "dlx" | "x"));
                if let Some(at) = rest.iter().position(runs) {
                    let inner: Vec<Arg> =
                        rest[at + 1..].iter().filter(|arg| !arg.prefix().starts_with('-')).cloned().collect();
                    self.call(&inner, &mut state.clone(), &Input::Inherited, false);
                }
            }
            "vim" | "vi" | "nvim" | "ex" | "view" | "ed" => {
                for arg in rest {
                    let text = arg.text();
                    if let Some((_, command)) = text.split_once('!') {
                        self.script(&Arg::known(command), &mut state.clone(), &Input::Inherited, program);
                    } else if text.contains("system(") {
                        self.code(arg, state, program);
                    }
                }
            }
            "at" | "batch" => {
                self.stdin_script(program, state, input);
            }
            "sqlite3" | "psql" | "mysql" | "mariadb" => {
                for arg in rest {
                    let text = arg.text();
                    for mark in ["\\!", ".shell", ".system", "system "] {
                        if let Some((_, command)) = text.split_once(mark) {
                            self.script(&Arg::known(command), &mut state.clone(), &Input::Inherited, program);
                        }
                    }
                }
                crate::rules::sql(self, rest, &input.output());
            }
            "socat" => {
                for arg in rest {
                    let text = arg.text();
                    let upper = text.to_uppercase();
                    if upper.starts_with("EXEC:") || upper.starts_with("SYSTEM:") {
                        let inner = text
                            .split_once(':')
                            .map(|(_, command)| command.split(',').next().unwrap_or_default().to_owned());
                        self.script(
                            &Arg::known(inner.unwrap_or_default()),
                            &mut state.clone(),
                            &Input::Inherited,
                            program,
                        );
                    }
                }
            }
            "tee" => {
                for arg in rest.iter().filter(|arg| !arg.prefix().starts_with('-')) {
                    if let Some(path) = arg.literal() {
                        state.write(path, input.output().text.map(Rc::from));
                    }
                }
            }
            "cp" | "mv" | "ln" | "install" => {
                let operands: Vec<&str> =
                    rest.iter().filter_map(Arg::literal).filter(|text| !text.starts_with('-')).collect();
                if let [from, to] = operands.as_slice()
                    && let Some(content) = state.files.get(*from).cloned()
                {
                    let to = to.trim_start_matches("./").to_owned();
                    state.write(&to, content.clone());
                    state.write(&format!("./{to}"), content);
                }
            }
            "curl" | "wget" => self.download(program, rest, state),
            _ => return None,
        }
        Some(super::output::of(program, rest, &input.output()))
    }

    /// Text that a shell is going to run.
    pub(super) fn script(&mut self, text: &Arg, state: &mut State, input: &Input, via: &str) -> Output {
        if let Some(text) = text.literal() {
            return self.text(text, state, input);
        }
        let shown = text.shown();
        self.risk(
            "unknown-script",
            format!("{via} runs text that is only known in part"),
            &shown,
            "the rest could be any command",
        );
        let known = text.text().replace(GAP, "\"$__unknown\"");
        self.text(&known, state, input)
    }

    pub(super) fn sourced(&mut self, path: &Arg, state: &mut State, input: &Input) -> Output {
        match path.literal() {
            Some("/dev/stdin" | "/dev/fd/0" | "/proc/self/fd/0") => self.stdin_script("source", state, input),
            Some(path) => match state.files.get(path).cloned() {
                Some(content) => self.script_text(path, content, state, input),
                None => Output::unknown(),
            },
            None => {
                // A name of which only a part is known may be that of a file which this command has made.
                let made = state.files.keys().any(|file| path.could_be(file));
                let made_there = state.files.keys().any(|file| directory(file) == directory(path.prefix()));
                if made || made_there {
                    self.risk(
                        "unseen-script",
                        "a script is run that this command may have made",
                        &path.shown(),
                        "what is in it is not known yet",
                    );
                }
                Output::unknown()
            }
        }
    }

    fn script_text(
        &mut self,
        path: &str,
        content: Option<Rc<str>>,
        state: &mut State,
        input: &Input,
    ) -> Output {
        match content {
            Some(text) => self.text(&text, state, input),
            None => {
                self.risk(
                    "unseen-script",
                    "a script is run that this command has just made",
                    path,
                    "what is in it is not known yet",
                );
                Output::unknown()
            }
        }
    }

    /// `./run.sh`, where this command has written the file.
    pub(super) fn script_file(
        &mut self,
        path: &str,
        content: Option<Rc<str>>,
        args: &[Arg],
        state: &mut State,
        input: &Input,
    ) -> Output {
        let first = content.as_deref().and_then(|text| text.lines().next()).unwrap_or_default().to_owned();
        let interpreter = first.strip_prefix("#!").map(str::trim).unwrap_or_default();
        let mut words = interpreter
            .split_whitespace()
            .map(base_name)
            .filter(|word| word != "env" && !word.starts_with('-'));
        let language = words.next().unwrap_or_default();
        if language.is_empty() || SHELLS.contains(&language.as_str()) {
            let outer = state.arguments.replace(Rc::new(args.to_vec()));
            let output = self.script_text(path, content, state, input);
            state.arguments = outer;
            return output;
        }
        if let Some(text) = content {
            self.code(&Arg::known(&*text), state, &language);
        }
        Output::unknown()
    }

    fn shell(&mut self, name: &str, args: &[Arg], state: &mut State, input: &Input) -> Output {
        let (mut at, mut command, mut stdin) = (0, false, false);
        while let Some(arg) = args.get(at) {
            let text = arg.prefix();
            if !(text.starts_with('-') || text.starts_with('+')) {
                break;
            }
            at += 1;
            match text {
                "--" | "-" => break,
                "--version" | "--help" => return Output::unknown(),
                "--rcfile" | "--init-file" => at += 1,
                _ if text.starts_with("--") => {}
                _ => {
                    command |= text.contains('c') && text.starts_with('-');
                    stdin |= text.contains('s');
                    if text.contains(['o', 'O']) {
                        at += 1;
                    }
                }
            }
        }
        let operand = args.get(at);
        let mut inside = state.clone();
        inside.arguments = Some(Rc::new(args.get(at + 2..).unwrap_or_default().to_vec()));
        match operand {
            Some(script) if command => {
                self.carries();
                let output = self.script(script, &mut inside, input, name);
                state.files.extend(inside.files);
                output
            }
            Some(path) if !stdin => match path.literal() {
                Some("-" | "/dev/stdin" | "/dev/fd/0" | "/proc/self/fd/0") => {
                    self.stdin_script(name, &mut inside, input)
                }
                Some(literal) => match state
                    .files
                    .get(literal)
                    .or_else(|| state.files.get(&format!("./{literal}")))
                    .cloned()
                {
                    Some(content) => {
                        inside.arguments = Some(Rc::new(args.get(at + 1..).unwrap_or_default().to_vec()));
                        self.script_text(literal, content, &mut inside, input)
                    }
                    None => Output::unknown(),
                },
                None if path.prefix().is_empty() && path.splits => {
                    self.risk(
                        "unknown-script",
                        format!("{name} runs something that is only known when it runs"),
                        &path.shown(),
                        "it could be any command",
                    );
                    Output::unknown()
                }
                None => Output::unknown(),
            },
            _ => self.stdin_script(name, &mut inside, input),
        }
    }

    /// A shell that reads its commands.
    pub(super) fn stdin_script(&mut self, name: &str, state: &mut State, input: &Input) -> Output {
        let Input::Text(output) = input else {
            if self.place == super::Place::Container {
                return Output::unknown();
            }
            self.risk(
                "shell-reads-input",
                format!("{name} reads commands from its input"),
                name,
                "what will be typed there is not known",
            );
            return Output::unknown();
        };
        if let Some(text) = &output.text {
            return self.text(text, state, &Input::Text(Output::unknown()));
        }
        let (rule, what) = match (output.fetched, output.decoded) {
            (true, _) => ("remote-code", "runs what was fetched from the network"),
            (_, true) => ("decoded-code", "runs what comes out of a decoder"),
            _ => ("pipe-to-shell", "runs what another command writes"),
        };
        self.risk(rule, format!("{name} {what}"), name, "what that is can't be known before");
        Output::unknown()
    }

    /// `-ex 'shell …'` of a debugger.
    fn debugger(&mut self, code: &Arg, state: &State) {
        let text = code.text();
        for mark in ["shell ", "!", "platform shell ", "python ", "pipe "] {
            if let Some(command) = text.trim_start().strip_prefix(mark) {
                self.script(&Arg::known(command), &mut state.clone(), &Input::Inherited, "debugger");
            }
        }
    }

    fn language(&mut self, name: &str, options: &[&str], args: &[Arg], state: &mut State, input: &Input) {
        let mut inline = false;
        for (at, arg) in args.iter().enumerate() {
            let text = arg.prefix();
            // `perl -lane '…'`: single letters may be joined, and the program comes last.
            let short = |option: &&&str| {
                let letters = option.strip_prefix('-').filter(|rest| rest.len() == 1);
                letters.is_some_and(|letter| {
                    text.len() > 2
                        && text.starts_with('-')
                        && !text.starts_with("--")
                        && text.ends_with(letter)
                        && text[1..].bytes().all(|byte| byte.is_ascii_alphanumeric())
                })
            };
            if options.contains(&text) || options.iter().any(|option| short(&option)) {
                if let Some(code) = args.get(at + 1) {
                    self.code(code, state, name);
                    if matches!(name, "gdb" | "lldb") {
                        self.debugger(code, state);
                    }
                    inline = true;
                }
            } else if let Some(option) =
                options.iter().find(|option| text.len() > option.len() && text.starts_with(**option))
            {
                let code = arg.skip(option.len());
                let code = if code.prefix().starts_with('=') { code.skip(1) } else { code };
                self.code(&code, state, name);
                inline = true;
            }
        }
        if inline {
            return;
        }
        let operand = args.iter().find(|arg| !arg.prefix().starts_with('-') || arg.literal() == Some("-"));
        match operand.and_then(Arg::literal) {
            Some(path) if path != "-" && path != "/dev/stdin" => {
                if let Some(content) = state.files.get(path).cloned() {
                    match content {
                        Some(text) => self.code(&Arg::known(&*text), state, name),
                        None => self.risk(
                            "unseen-script",
                            format!("{name} runs a program that this command has just made"),
                            path,
                            "what is in it is not known yet",
                        ),
                    }
                }
            }
            _ if operand.is_some_and(|arg| arg.literal().is_none())
                || args.iter().any(|arg| {
                    matches!(arg.literal(), Some("-m" | "-V" | "--version" | "-v" | "--help" | "-h"))
                }) => {}
            _ => match input {
                Input::Text(output) => match &output.text {
                    Some(text) => self.code(&Arg::known(text.as_str()), state, name),
                    None => {
                        let rule = if output.fetched { "remote-code" } else { "pipe-to-shell" };
                        self.risk(
                            rule,
                            format!("{name} runs what another command writes"),
                            name,
                            "what that is can't be known before",
                        );
                    }
                },
                Input::Inherited if self.context.open_input => self.risk(
                    "interpreter-reads-input",
                    format!("{name} reads its program from its input"),
                    name,
                    "what will be typed there is not known",
                ),
                Input::Inherited => {}
            },
        }
    }
}

fn directory(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}
