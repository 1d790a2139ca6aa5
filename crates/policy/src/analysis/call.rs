//! One command with its arguments: which program it is, and what the shell itself does with it.

use super::flow::Input;
use super::output::{self, Output};
use super::state::State;
use super::{Call, MAX_CALLS, Walk, wrap};
use crate::rules;
use crate::value::{Arg, Piece};
use std::rc::Rc;

/// Variables whose value some program runs as a command.
const COMMAND_VARIABLES: &[&str] = &[
    "PROMPT_COMMAND",
    "GIT_SSH_COMMAND",
    "GIT_SSH",
    "GIT_EDITOR",
    "GIT_SEQUENCE_EDITOR",
    "GIT_PAGER",
    "GIT_ASKPASS",
    "GIT_EXTERNAL_DIFF",
    "GIT_PROXY_COMMAND",
    "EDITOR",
    "VISUAL",
    "PAGER",
    "MANPAGER",
    "BROWSER",
    "SSH_ASKPASS",
    "SUDO_ASKPASS",
    "LESSOPEN",
    "LESSCLOSE",
    "RSYNC_RSH",
    "CVS_RSH",
    "TAR_OPTIONS",
    "PS4",
    "MAKEFLAGS",
    "RUSTC_WRAPPER",
    "npm_config_script_shell",
];
/// Variables that make programs load code.
const LOADER_VARIABLES: &[&str] = &[
    "LD_PRELOAD",
    "LD_AUDIT",
    "DYLD_INSERT_LIBRARIES",
    "BASH_ENV",
    "ENV",
    "PERL5OPT",
    "PERL5DB",
    "RUBYOPT",
    "PYTHONSTARTUP",
    "NODE_OPTIONS",
];

impl Walk<'_> {
    /// A command that would run. `assigns`: variables are set in front of it.
    pub(super) fn call(&mut self, args: &[Arg], state: &mut State, input: &Input, assigns: bool) -> Output {
        let by_program = std::mem::take(&mut self.by_program);
        if self.nesting >= super::MAX_NESTING {
            self.limit("commands are nested too deeply");
            return Output::unknown();
        }
        if !self.burn(1 + args.len() / 8) {
            return Output::unknown();
        }
        self.nesting += 1;
        let outer = self.current;
        if self.calls.len() < MAX_CALLS {
            self.current = Some(self.calls.len());
            self.calls.push(Call { args: args.to_vec(), assigns, carries: false });
        } else {
            self.limit("there are too many commands in it");
        }
        let success = state.cwd_on_success.take();
        let output = self.dispatch(args, state, input, by_program);
        if args.first().and_then(Arg::literal).is_some_and(|name| name == "true" || name == ":") {
            state.cwd_on_success = success;
        }
        self.current = outer;
        self.nesting -= 1;
        output
    }

    /// Says that the current call is only there to run another one.
    pub(super) fn carries(&mut self) {
        if let Some(call) = self.current.and_then(|at| self.calls.get_mut(at)) {
            call.carries = true;
        }
    }

    fn dispatch(&mut self, args: &[Arg], state: &mut State, input: &Input, by_program: bool) -> Output {
        let Some((first, rest)) = args.split_first() else { return Output::nothing() };
        let Some(name) = first.literal() else { return self.unsure_name(first, args, state, input) };
        if name.is_empty() {
            return Output::nothing();
        }
        if let Some(body) = state.functions.get(name).filter(|_| !by_program).cloned() {
            let outer = state.arguments.replace(Rc::new(rest.to_vec()));
            let output = self.function(name, &body, state, input);
            state.arguments = outer;
            return output;
        }
        if let Some(value) = state.aliases.get(name).filter(|_| !by_program).cloned() {
            // Each alias is replaced once.
            state.aliases.remove(name);
            let output = self.alias(&value, rest, state, input);
            state.aliases.insert(name.to_owned(), value);
            return output;
        }
        if name.contains('/') {
            // A script that this very command has written: `./run.sh`.
            let plain = name.strip_prefix("./").unwrap_or(name);
            if let Some(content) = state.files.get(name).or_else(|| state.files.get(plain)).cloned() {
                return self.script_file(name, content, rest, state, input);
            }
        }
        let program = base_name(name);
        if let Some(output) = self.builtin(&program, rest, state, input) {
            return output;
        }
        self.program(&program, args, state, input)
    }

    /// A program by its plain name, wherever it is installed.
    pub(super) fn program(
        &mut self,
        program: &str,
        args: &[Arg],
        state: &mut State,
        input: &Input,
    ) -> Output {
        rules::apply(self, program, args, state);
        if wrap::follow(self, program, args, state, input) {
            return Output::unknown();
        }
        if let Some(output) = self.interpreter(program, args, state, input) {
            return output;
        }
        output::of(program, args.get(1..).unwrap_or_default(), &input.output())
    }

    /// The name itself is a pattern, or has a gap.
    fn unsure_name(&mut self, first: &Arg, args: &[Arg], state: &mut State, input: &Input) -> Output {
        let shown = first.shown();
        // `$HOME/bin/tool`, `"$VENV/bin/python"`: the directory is not known, the program is.
        if let (Some(Piece::Known(tail)), false) = (first.last(), first.has_glob())
            && let Some((_, name)) = tail.rsplit_once('/')
            && !name.is_empty()
        {
            let mut known = args.to_vec();
            known[0] = Arg::known(name);
            return self.program(name, &known, state, input);
        }
        // Every program that is known is tried.
        if !self.burn(200) {
            return Output::unknown();
        }
        for program in rules::programs() {
            let full = [
                format!("/bin/{program}"),
                format!("/usr/bin/{program}"),
                format!("/sbin/{program}"),
                format!("/usr/sbin/{program}"),
            ];
            if first.could_be(program) || full.iter().any(|path| first.could_be(path)) {
                if first.has_glob() && !first.is_unknown() {
                    let mut known = args.to_vec();
                    known[0] = Arg::known(program);
                    self.program(program, &known, state, input);
                } else {
                    rules::apply_certain(self, program, args, state);
                }
            }
        }
        if first.is_unknown() || first.has_glob() {
            self.risk(
                "unknown-program",
                "a command whose name is only known when it runs",
                &shown,
                "it could be any program",
            );
        }
        // Its arguments may hold the command: `$SUDO rm -rf /`.
        if first.is_unknown() && args.len() > 1 {
            return self.call(&args[1..], state, input, true);
        }
        Output::unknown()
    }

    fn alias(&mut self, value: &str, rest: &[Arg], state: &mut State, input: &Input) -> Output {
        let quoted: Vec<String> = rest.iter().map(quoted).collect();
        self.text(&format!("{value} {}", quoted.join(" ")), state, input)
    }

    /// What the shell does itself. `None`: it is a program like others.
    fn builtin(&mut self, name: &str, args: &[Arg], state: &mut State, input: &Input) -> Option<Output> {
        match name {
            "cd" | "pushd" | "chdir" => {
                self.change_directory(args, state);
                return Some(Output::nothing());
            }
            "popd" => state.cwd = vec![None],
            "eval" => {
                self.carries();
                let text = super::expand::joined(args);
                return Some(self.script(&text, state, input, "eval"));
            }
            "source" | "." => {
                let path = args.first()?;
                let path = if path.literal() == Some("--") { args.get(1)? } else { path };
                return Some(self.sourced(path, state, input));
            }
            "trap" => {
                if let Some(action) = args.iter().find(|arg| !arg.prefix().starts_with('-')) {
                    self.script(action, &mut state.clone(), &Input::Inherited, "trap");
                }
            }
            "export" | "declare" | "local" | "readonly" | "typeset" => self.declare(args, state),
            "alias" => {
                for arg in args {
                    let Some((name, value)) = arg.literal().and_then(|text| text.split_once('=')) else {
                        continue;
                    };
                    state.aliases.insert(name.to_owned(), Rc::from(value));
                    self.script(&Arg::known(value), &mut state.clone(), &Input::Inherited, "alias");
                }
            }
            "unset" | "read" | "mapfile" | "readarray" | "getopts" | "let" | "wait" => {
                for arg in args {
                    match arg.literal() {
                        Some(name) => {
                            let name: String =
                                name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                            state.forget(&name);
                            state.functions.remove(&name);
                        }
                        None => state.forget_all(),
                    }
                }
                if name == "read" {
                    state.forget("REPLY");
                }
                self.note_value(args.iter(), state);
                let value = value_of(args, "-C");
                if let Some(callback) = value.filter(|_| name != "read") {
                    self.script(&callback, &mut state.clone(), &Input::Inherited, "mapfile -C");
                }
            }
            "printf" if args.first().and_then(Arg::literal) == Some("-v") => {
                if let Some(name) = args.get(1).and_then(Arg::literal) {
                    let output = output::of("printf", args.get(2..).unwrap_or_default(), &Output::unknown());
                    match output.text {
                        Some(text) => state.set(name, vec![vec![Arg::known(text)]]),
                        None => state.forget(name),
                    }
                }
                return Some(Output::nothing());
            }
            "set" => {
                if let Some(at) = args.iter().position(|arg| arg.literal() == Some("--")) {
                    state.arguments = Some(Rc::new(args[at + 1..].to_vec()));
                } else if args.first().is_some_and(|arg| !arg.prefix().starts_with(['-', '+'])) {
                    state.arguments = Some(Rc::new(args.to_vec()));
                }
            }
            "shift" => {
                if let Some(arguments) = &state.arguments {
                    let count = args.first().and_then(Arg::literal).map_or(Some(1), |text| text.parse().ok());
                    state.arguments = count
                        .and_then(|count: usize| arguments.get(count..))
                        .map(|rest| Rc::new(rest.to_vec()));
                }
            }
            "hash" | "enable" => {
                if args.iter().any(|arg| arg.prefix().starts_with("-p") || arg.prefix().starts_with("-f")) {
                    self.risk(
                        "redefined-command",
                        format!("{name} gives a command another meaning"),
                        &super::expand::joined(args).shown(),
                        "later commands are no longer what they seem",
                    );
                }
            }
            "complete" | "compgen" | "bind" => {
                for option in ["-C", "-F", "-W", "-x"] {
                    if let Some(action) = value_of(args, option) {
                        self.script(&action, &mut state.clone(), &Input::Inherited, "complete");
                    }
                }
            }
            "test" | "[" => self.note_value(args.iter(), state),
            _ => return None,
        }
        Some(output::of(name, args, &input.output()))
    }

    fn declare(&mut self, args: &[Arg], state: &mut State) {
        for arg in args {
            let prefix = arg.prefix();
            let Some((name, _)) = prefix.split_once('=') else {
                // `declare -n ref=…`, `export "$x"`.
                if arg.is_unknown() {
                    state.forget_all();
                }
                continue;
            };
            let value = arg.skip(name.len() + 1);
            let (plain, appends) = match name.strip_suffix('+') {
                Some(plain) => (plain, true),
                None => (name, false),
            };
            self.assigned(plain, std::iter::once(&value));
            self.note_value(std::iter::once(&value), state);
            if appends || plain.contains('[') {
                state.forget(plain.split('[').next().unwrap_or_default());
            } else {
                state.set(plain, vec![vec![value]]);
            }
        }
        if args.iter().any(|arg| arg.prefix().starts_with('-') && arg.prefix().contains('n')) {
            // A reference: assignments to one name change another.
            state.forget_all();
        }
    }

    /// A variable gets these values: some variables are commands, or load code.
    pub(super) fn assigned<'v>(&mut self, name: &str, values: impl Iterator<Item = &'v Arg>) {
        let values: Vec<Arg> = values.cloned().collect();
        for value in values {
            let shown = format!("{name}={}", value.shown());
            if LOADER_VARIABLES.contains(&name)
                && value.literal() != Some("")
                && !harmless_option(name, &value)
            {
                self.risk(
                    "code-loading-variable",
                    "programs are made to load code of another place",
                    &shown,
                    "it changes what every later program does",
                );
            } else if name == "PATH" && value.text().split(':').any(anybodys) {
                self.risk(
                    "code-loading-variable",
                    "programs are looked for where anybody can put one",
                    &shown,
                    "it changes what every later command is",
                );
            } else if COMMAND_VARIABLES.contains(&name) || name.starts_with("GIT_CONFIG_VALUE") {
                let mut state = State::new(self.context);
                if value.literal().is_some() {
                    self.script(&value, &mut state, &Input::Inherited, name);
                }
            }
        }
    }

    fn change_directory(&mut self, args: &[Arg], state: &mut State) {
        let target = args.iter().find(|arg| !matches!(arg.literal(), Some("-L" | "-P" | "-e" | "--" | "-n")));
        let goes_to: Vec<Option<String>> = match target {
            None => vec![self.context.home.clone().or_else(|| Some("~".into()))],
            Some(target) => match target.literal() {
                Some("-") | None => vec![None],
                // A directory may also be found along CDPATH; nobody sets that in a script.
                Some(path) => rules::paths::resolve(path, state),
            },
        };
        let mut either = state.cwd.clone();
        for place in &goes_to {
            if !either.contains(place) {
                either.push(place.clone());
            }
        }
        state.cwd = either;
        state.cwd_on_success = Some(goes_to);
    }
}

/// Options for the memory or the modules of an interpreter, which load nothing.
fn harmless_option(name: &str, value: &Arg) -> bool {
    name == "NODE_OPTIONS"
        && value.literal().is_some_and(|text| {
            !["require", "-r", "import", "loader", "eval", "-e"].iter().any(|word| text.contains(word))
        })
}

/// The value behind an option: `-C x` or `-Cx`.
pub(super) fn value_of(args: &[Arg], option: &str) -> Option<Arg> {
    for (at, arg) in args.iter().enumerate() {
        if arg.literal() == Some(option) {
            return args.get(at + 1).cloned();
        }
        if arg.prefix().starts_with(option) {
            let rest = arg.skip(option.len());
            return Some(if rest.prefix().starts_with('=') { rest.skip(1) } else { rest });
        }
    }
    None
}

/// The name behind the last slash, without what only changes how it is found.
pub(super) fn base_name(name: &str) -> String {
    let name = name.rsplit('/').next().unwrap_or(name);
    name.strip_suffix(".exe").unwrap_or(name).to_owned()
}

/// The argument in a form that parses to itself; gaps become a variable that nobody has set.
pub(super) fn quoted(arg: &Arg) -> String {
    let mut text = String::new();
    for (count, piece) in arg.text().split(crate::value::GAP).enumerate() {
        if count > 0 {
            text.push_str("\"$__unknown\"");
        }
        text.push('\'');
        text.push_str(&piece.replace('\'', "'\\''"));
        text.push('\'');
    }
    text
}

/// Whether a directory of `PATH` is one that everybody may write to.
fn anybodys(directory: &str) -> bool {
    ["/tmp", "/var/tmp", "/dev/shm"]
        .iter()
        .any(|open| directory.strip_prefix(open).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}
