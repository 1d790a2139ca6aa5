//! Tools whose options or scripts run commands: `find`, `awk`, `ssh`, `docker`, `git`, …

use super::call::base_name;
use super::flow::Input;
use super::program::SHELLS;
use super::state::State;
use super::wrap::{behind_options, elsewhere, filled};
use super::{Place, Walk};
use crate::value::{Arg, GAP};

impl Walk<'_> {
    /// Gives the paths that it may write, as patterns.
    pub(super) fn find(&mut self, args: &[Arg], state: &mut State) -> Vec<String> {
        let is_test =
            |arg: &Arg| arg.prefix().starts_with('-') || matches!(arg.literal(), Some("(" | "!" | ")"));
        let tests = args
            .iter()
            .position(|arg| is_test(arg) && !matches!(arg.literal(), Some("-L" | "-P" | "-H")))
            .unwrap_or(args.len());
        let mut roots: Vec<Arg> =
            args[..tests].iter().filter(|arg| !arg.prefix().starts_with('-')).cloned().collect();
        if roots.is_empty() {
            roots.push(Arg::known("."));
        }
        let name = ["-name", "-iname"].iter().find_map(|option| {
            args.iter()
                .position(|arg| arg.literal() == Some(option))
                .and_then(|at| args.get(at + 1))
                .map(Arg::text)
        });
        let tests: Vec<Arg> = args[tests..].to_vec();
        let paths = match &name {
            Some(name) => roots
                .iter()
                .map(|root| format!("{}/{GAP}/{name}", root.text().trim_end_matches('/')))
                .collect(),
            None => Vec::new(),
        };
        let mut at = 0;
        while at < tests.len() {
            let text = tests[at].literal().unwrap_or_default();
            if matches!(text, "-exec" | "-execdir" | "-ok" | "-okdir") {
                let end = tests[at..]
                    .iter()
                    .position(|arg| matches!(arg.literal(), Some(";" | "+")))
                    .map_or(tests.len(), |end| at + end);
                for root in &roots {
                    let root = root.text();
                    let root = root.trim_end_matches('/');
                    let path = match &name {
                        Some(name) => format!("{root}/{GAP}/{name}"),
                        None => format!("{root}/*"),
                    };
                    let inner = tests[at + 1..end].iter().map(|arg| {
                        let text = arg.text();
                        if text == "{}" {
                            Arg::pattern_of(&path)
                        } else if text.contains("{}") {
                            filled(&text, "{}", None)
                        } else {
                            arg.clone()
                        }
                    });
                    let inner: Vec<Arg> = inner.collect();
                    self.call(&inner, &mut state.clone(), &Input::Inherited, false);
                }
                at = end;
            }
            at += 1;
        }
        paths
    }

    pub(super) fn awk(&mut self, args: &[Arg], state: &State) {
        let program = args.iter().enumerate().find(|(at, arg)| {
            let text = arg.prefix();
            let value = *at > 0 && matches!(args[at - 1].literal(), Some("-F" | "-v" | "-f"));
            let option = text.starts_with('-') && text.len() > 1;
            !value && !option
        });
        let Some((_, program)) = program else { return };
        let text = program.text();
        if text.contains("system")
            || text.contains("|") && !text.contains("||") && text.contains('"')
            || text.contains("|&")
            || text.contains("| getline")
        {
            self.risk(
                "interpreter-code",
                "awk code that starts other programs",
                &text,
                "what it does can't be told from the outside",
            );
            let found: Vec<&str> = text.split('"').skip(1).step_by(2).collect();
            for command in found {
                let before = self.reasons.len();
                self.text(command, &mut state.clone(), &Input::Inherited);
                let kept: Vec<_> = self
                    .reasons
                    .drain(before..)
                    .filter(|reason| reason.level == crate::Level::Forbidden)
                    .collect();
                self.reasons.extend(kept);
            }
        }
    }

    /// GNU sed runs commands: `1e rm x`, `s/…/…/e`.
    pub(super) fn sed(&mut self, args: &[Arg]) {
        for arg in args.iter().filter(|arg| !arg.prefix().starts_with('-')) {
            let text = arg.text();
            let executes = text.split([';', '\n', '{', '}']).any(|command| {
                let command = command.trim_start_matches(|c: char| c.is_ascii_digit() || " ,$!".contains(c));
                let flags = command.rsplit(['/', '|', '#', ',', '@']).next().unwrap_or_default();
                command.starts_with("e ")
                    || command == "e"
                    || (command.starts_with('s')
                        && command.len() > 4
                        && flags.contains('e')
                        && flags.bytes().all(|byte| b"gpiIme0123456789".contains(&byte)))
            });
            if executes {
                self.risk(
                    "interpreter-code",
                    "sed code that runs a command",
                    &text,
                    "what it does can't be told from the outside",
                );
            }
        }
    }

    pub(super) fn ssh(&mut self, args: &[Arg], state: &State, input: &Input) {
        for (at, arg) in args.iter().enumerate() {
            let text = arg.text();
            let lower = text.to_lowercase();
            let value = if lower.starts_with("-o") && lower.len() > 2 {
                lower[2..].to_owned()
            } else if at > 0 && args[at - 1].literal() == Some("-o") {
                lower.clone()
            } else {
                continue;
            };
            for option in ["proxycommand", "localcommand", "knownhostscommand"] {
                if value.trim_start().starts_with(option) {
                    let command = text[text.len() - value.len()..].trim_start()[option.len()..]
                        .trim_start_matches(['=', ' '])
                        .to_owned();
                    self.script(&Arg::known(command), &mut state.clone(), &Input::Inherited, "ssh");
                }
            }
        }
        for host in behind_options(args, "BbcDEeFIiJLlmOopQRSWw", &[], "46AaCfGgKkMNnqsTtVvXxYy") {
            let command = &args[host + 1..];
            if command.is_empty() {
                // The shell there reads what this one is given.
                if *input != Input::Inherited || self.context.open_input {
                    elsewhere(self, Place::Remote, |walk| {
                        walk.stdin_script("ssh", &mut state.clone(), input);
                    });
                }
                continue;
            }
            let text = super::expand::joined(command);
            elsewhere(self, Place::Remote, |walk| {
                let mut remote = state.clone();
                remote.cwd = vec![None];
                walk.script(&text, &mut remote, input, "ssh");
            });
        }
    }

    /// `docker exec`, `docker run`, `kubectl exec`: every place where a command could begin is tried.
    pub(super) fn container(&mut self, args: &[Arg], state: &State, input: &Input) {
        let verbs = |arg: &Arg| matches!(arg.literal(), Some("exec" | "run" | "shell" | "enter" | "-D"));
        let Some(verb) = args.iter().position(verbs) else { return };
        let tail = &args[verb + 1..];
        let explicit = tail.iter().position(|arg| arg.literal() == Some("--"));
        let candidates: Vec<usize> = match explicit {
            Some(at) => vec![at + 1],
            // Behind the name or image, which is no option; what an option takes is not told apart.
            None => (1..tail.len()).filter(|at| !tail[*at].prefix().starts_with('-')).take(12).collect(),
        };
        for start in candidates {
            let inner = tail[start..].to_vec();
            let Some(name) = inner.first().and_then(Arg::literal).map(base_name) else { continue };
            let known = explicit.is_some()
                || SHELLS.contains(&name.as_str())
                || crate::rules::programs().any(|program| program == name);
            if known {
                elsewhere(self, Place::Container, |walk| {
                    let mut inside = state.clone();
                    inside.cwd = vec![None];
                    walk.call(&inner, &mut inside, input, false);
                });
            }
        }
    }

    pub(super) fn git(&mut self, args: &[Arg], state: &State) {
        const RUN_BY_GIT: &[&str] = &[
            "alias.",
            "core.sshcommand",
            "core.pager",
            "core.editor",
            "core.fsmonitor",
            "core.hookspath",
            "sequence.editor",
            "diff.external",
            "credential.helper",
            "filter.",
            "gpg.program",
            "core.askpass",
            "uploadpack.",
            "pager.",
        ];
        for (at, arg) in args.iter().enumerate() {
            let text = arg.text();
            let lower = text.to_lowercase();
            if RUN_BY_GIT.iter().any(|key| lower.starts_with(key)) {
                let value = match text.split_once('=') {
                    Some((_, value)) => Some(value.to_owned()),
                    None => args.get(at + 1).map(Arg::text),
                };
                let alias = lower.starts_with("alias.");
                match value {
                    Some(value) if alias => {
                        if let Some(command) = value.strip_prefix('!') {
                            self.script(&Arg::known(command), &mut state.clone(), &Input::Inherited, "git");
                        }
                    }
                    Some(value) if lower.starts_with("core.hookspath") => self.risk(
                        "git-hooks",
                        "git is told to run other hooks",
                        &value,
                        "later git commands run what is in there",
                    ),
                    Some(value) => {
                        let command = value.strip_prefix('!').unwrap_or(&value).to_owned();
                        self.script(&Arg::known(command), &mut state.clone(), &Input::Inherited, "git");
                    }
                    None => {}
                }
            }
        }
        let mut operands = args.iter().filter(|arg| !arg.prefix().starts_with('-')).map(Arg::text);
        if operands.next().as_deref() == Some("push")
            && let Some(refspec) =
                operands.skip(1).find(|text| text.starts_with([':', '+']) && text.len() > 1)
        {
            self.risk(
                "git-force-push",
                "overwrites or deletes what is on the remote",
                &refspec,
                "commits that others have pushed are lost",
            );
        }
        // `bisect run command …`, `submodule foreach command …`
        let runs = |pair: &[Arg]| {
            matches!(
                (pair[0].literal(), pair[1].literal()),
                (Some("bisect"), Some("run")) | (Some("submodule"), Some("foreach"))
            )
        };
        if let Some(at) = args.windows(2).position(runs) {
            let inner: Vec<Arg> = args[at + 2..]
                .iter()
                .skip_while(|arg| arg.literal() == Some("--recursive"))
                .cloned()
                .collect();
            let text = super::expand::joined(&inner);
            self.script(&text, &mut state.clone(), &Input::Inherited, "git");
        }
    }

    /// Remembers which files come from the network.
    pub(super) fn download(&mut self, program: &str, args: &[Arg], state: &mut State) {
        let mut named = Vec::new();
        for (at, arg) in args.iter().enumerate() {
            let text = arg.prefix();
            let cluster = text.starts_with('-') && !text.starts_with("--");
            let output = match program {
                "curl" => text == "--output" || (cluster && text.ends_with('o')),
                _ => text == "--output-document" || (cluster && text.ends_with('O')),
            };
            if output {
                named.extend(args.get(at + 1).and_then(Arg::literal).map(str::to_owned));
            }
            if text.contains("://")
                && let Some(name) = arg
                    .literal()
                    .and_then(|url| url.split(['?', '#']).next()?.rsplit('/').next())
                    .filter(|name| !name.is_empty())
            {
                named.push(name.to_owned());
            }
        }
        for name in named {
            state.write(&name, None);
            state.write(&format!("./{name}"), None);
        }
    }
}
