//! What may run, in which order, and what is connected to what.

use super::Walk;
use super::output::Output;
use super::state::{Fields, State};
use crate::rules::paths;
use crate::syntax::ast::{Assigned, Assignment, Node, Redirect, RedirectKind, Simple};
use crate::value::{Arg, Piece};
use crate::verdict::Level;
use std::rc::Rc;

/// What a command reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Input {
    /// What the whole command was given.
    Inherited,
    Text(Output),
}

impl Input {
    pub(super) fn output(&self) -> Output {
        match self {
            Self::Inherited => Output::unknown(),
            Self::Text(output) => output.clone(),
        }
    }
}

/// A file that a redirection writes.
struct Written {
    path: String,
    append: bool,
}

impl Walk<'_> {
    pub(super) fn node(&mut self, node: &Node, state: &mut State, input: &Input) -> Output {
        if !self.burn(1) {
            return Output::unknown();
        }
        match node {
            Node::Simple(simple) => self.simple(simple, state, input),
            Node::Pipeline(parts) => self.pipeline(parts, state, input),
            Node::Sequence(nodes) => {
                let mut output = Output::nothing();
                for node in nodes {
                    output = output.then(self.node(node, state, input));
                }
                output
            }
            Node::And(nodes) => self.chain(nodes, state, input),
            Node::Maybe(arms) => {
                let mut output = Output::nothing();
                let before = self.copy(state);
                for arm in arms {
                    // Also what an earlier arm did may have been done: the condition of an `elif` is one.
                    let mut taken = self.copy(state);
                    output = output.or(&self.node(arm, &mut taken, input));
                    state.join(taken);
                }
                state.join(before);
                output
            }
            Node::Loop { name, words, body } => {
                let values = self.words(words, state);
                if let Some(name) = name {
                    let each: Vec<Fields> = values.into_iter().flatten().map(|arg| vec![arg]).collect();
                    state.set(name, each);
                }
                let mut output = Output::nothing();
                for _ in 0..2 {
                    let mut taken = self.copy(state);
                    output = output.or(&self.node(body, &mut taken, input));
                    state.join(taken);
                }
                output
            }
            Node::Subshell(body) => {
                let mut inside = self.copy(state);
                let output = self.node(body, &mut inside, input);
                state.files.extend(inside.files);
                output
            }
            Node::Background(body) => {
                let mut inside = self.copy(state);
                self.background += 1;
                let output = self.node(body, &mut inside, input);
                self.background -= 1;
                state.files.extend(inside.files);
                output
            }
            Node::Redirected(body, redirects) => {
                let (input, written) = self.redirects(redirects, state, input);
                let output = self.node(body, state, &input);
                self.store(&written, &output, state);
                output
            }
            Node::Function { name, body } => {
                state.functions.insert(name.clone(), Rc::clone(body));
                // It may be called by a later command, with arguments that we do not see.
                let mut inside = self.copy(state);
                inside.arguments = None;
                self.function(name, body, &mut inside, &Input::Inherited);
                Output::nothing()
            }
            Node::Words(words) => {
                for word in words {
                    self.scalar(word, state);
                }
                Output::nothing()
            }
        }
    }

    fn copy(&mut self, state: &State) -> State {
        self.burn(state.weight());
        state.clone()
    }

    /// `a && b && c`: what runs if everything before it succeeded, joined with what is if something did not.
    fn chain(&mut self, nodes: &[Node], state: &mut State, input: &Input) -> Output {
        let mut output = Output::nothing();
        let mut failed: Option<State> = None;
        for (count, node) in nodes.iter().enumerate() {
            if count > 0 {
                let here = self.copy(state);
                match &mut failed {
                    Some(failed) => failed.join(here),
                    None => failed = Some(here),
                }
                if let Some(cwd) = state.cwd_on_success.take() {
                    state.cwd = cwd;
                }
            }
            let next = self.node(node, state, input);
            // If nothing came before, what comes now comes whole or not at all.
            output = if output == Output::nothing() || next == Output::nothing() {
                output.then(next)
            } else {
                Output { text: None, ..output.then(next) }
            };
        }
        if let Some(failed) = failed {
            // A `cd` at the end of the chain still counts for what comes after an `&&` further out.
            state.join(failed);
        }
        output
    }

    fn pipeline(&mut self, parts: &[Node], state: &mut State, input: &Input) -> Output {
        let mut input = input.clone();
        let calls = self.self_calls;
        for part in parts {
            let mut inside = self.copy(state);
            let output = self.node(part, &mut inside, &input);
            state.files.extend(inside.files);
            input = Input::Text(output);
        }
        if self.self_calls >= calls + 2 {
            self.fork_bomb();
        }
        input.output()
    }

    pub(super) fn fork_bomb(&mut self) {
        let name = self.stack.last().map(|(name, _)| name.clone()).unwrap_or_default();
        self.reason(
            "fork-bomb",
            Level::Forbidden,
            "a function that starts itself over and over",
            &name,
            "it fills the machine with processes until nothing else runs",
        );
    }

    /// Runs a function's body; a call of itself is counted, not followed.
    pub(super) fn function(&mut self, name: &str, body: &Node, state: &mut State, input: &Input) -> Output {
        // By its body: a function may define another one of its own name.
        if self.stack.iter().any(|(_, running)| std::ptr::eq(*running, body)) {
            self.self_calls += 1;
            if self.background > 0 {
                self.fork_bomb();
            }
            return Output::unknown();
        }
        if self.stack.len() > 20 {
            self.limit("functions are nested too deeply");
            return Output::unknown();
        }
        self.stack.push((name.to_owned(), body));
        let background = std::mem::take(&mut self.background);
        let output = self.node(body, state, input);
        self.background = background;
        self.stack.pop();
        output
    }

    fn simple(&mut self, simple: &Simple, state: &mut State, input: &Input) -> Output {
        let ways = self.words(&simple.words, state);
        let (input, written) = self.redirects(&simple.redirects, state, input);
        let alone = simple.words.is_empty();
        for assignment in &simple.assignments {
            self.assign(assignment, alone, state);
        }
        let assigns = !simple.assignments.is_empty();
        let mut output: Option<Output> = None;
        for args in ways {
            let this = if args.is_empty() {
                if !alone {
                    // Every word vanished; `$(…)` alone, run for what it does.
                    state.cwd_on_success = None;
                }
                // `$(<file)` gives the file.
                if alone && !assigns && !simple.redirects.is_empty() {
                    input.output()
                } else {
                    Output::nothing()
                }
            } else {
                self.call(&args, state, &input, assigns)
            };
            output = Some(match output {
                Some(other) => other.or(&this),
                None => this,
            });
        }
        let output = output.unwrap_or_else(Output::nothing);
        self.store(&written, &output, state);
        output
    }

    fn store(&mut self, written: &[Written], output: &Output, state: &mut State) {
        for Written { path, append } in written {
            let content = match (append, state.files.get(path)) {
                (false, _) => output.text.clone(),
                (true, Some(Some(before))) => output.text.as_ref().map(|text| format!("{before}{text}")),
                (true, _) => None,
            };
            state.write(path, content.map(Rc::from));
        }
    }

    fn assign(&mut self, assignment: &Assignment, lasts: bool, state: &mut State) {
        let Assignment { name, index, append, value } = assignment;
        self.writes = true;
        if let Some(index) = index {
            self.scalar(index, state);
        }
        let values: Vec<Fields> = match value {
            Assigned::Scalar(word) => self.scalar(word, state).into_iter().map(|arg| vec![arg]).collect(),
            Assigned::Array(words) => {
                // `[key]=value` in front of a value is not taken apart.
                self.words(words, state)
            }
        };
        self.assigned(name, values.iter().flatten());
        self.note_value(values.iter().flatten(), state);
        if index.is_some() {
            state.forget(name);
            return;
        }
        let values = if *append { appended(state.get(name), &values, value) } else { Some(values) };
        match values {
            // In front of a command it holds for that command alone, and later ones may see either.
            Some(values) if lasts => state.set(name, values),
            Some(mut values) if state.get(name).is_some() => {
                values.extend(state.get(name).unwrap_or_default().iter().cloned());
                state.set(name, values);
            }
            _ => state.forget(name),
        }
        if lasts {
            state.cwd_on_success = None;
        }
    }

    /// A value may be expanded a second time: by arithmetic, as a prompt, by `eval`.
    pub(super) fn note_value<'v>(&mut self, values: impl Iterator<Item = &'v Arg>, state: &State) {
        let texts: Vec<String> = values
            .filter_map(Arg::literal)
            .filter(|text| text.contains("$(") || text.contains('`'))
            .map(str::to_owned)
            .collect();
        for text in texts {
            if let Some(word) = crate::syntax::expandable(&text) {
                let mut inside = self.copy(state);
                self.scalar(&word, &mut inside);
            }
        }
    }

    fn redirects(
        &mut self,
        redirects: &[Redirect],
        state: &mut State,
        input: &Input,
    ) -> (Input, Vec<Written>) {
        let mut input = input.clone();
        let mut written = Vec::new();
        for redirect in redirects {
            match &redirect.kind {
                RedirectKind::HereDocument(body) => {
                    let text = match body.get() {
                        Some(word) => self.scalar(word, state),
                        None => vec![Arg::unknown()],
                    };
                    input = Input::Text(text_of(&text, ""));
                }
                RedirectKind::HereString => {
                    let text = self.scalar(&redirect.target, state);
                    input = Input::Text(text_of(&text, "\n"));
                }
                RedirectKind::Read => {
                    for target in self.scalar(&redirect.target, state) {
                        let content =
                            target.literal().and_then(|path| state.files.get(path).cloned()).flatten();
                        let text = content.map(|text| text.to_string());
                        input = Input::Text(Output { text, ..Output::unknown() });
                        let current = self.current.take();
                        paths::read(self, &target, state, "<");
                        self.current = current;
                    }
                }
                RedirectKind::Write | RedirectKind::Append => {
                    let append = matches!(redirect.kind, RedirectKind::Append);
                    for target in self.scalar(&redirect.target, state) {
                        // Bash expands the word of `>&word` twice, also if it is quoted.
                        self.note_value(std::iter::once(&target), state);
                        let current = self.current.take();
                        paths::write(self, &target, state, ">");
                        self.current = current;
                        self.writes |= target.literal() != Some("/dev/null");
                        if let Some(path) = target.literal() {
                            written.push(Written { path: path.to_owned(), append });
                        }
                    }
                }
                RedirectKind::Duplicate => {
                    let ways = self.scalar(&redirect.target, state);
                    self.note_value(ways.iter(), state);
                }
            }
        }
        (input, written)
    }
}

fn text_of(ways: &[Arg], end: &str) -> Output {
    match ways {
        [only] => match only.literal() {
            Some(text) => Output::known(format!("{text}{end}")),
            None => Output::unknown(),
        },
        _ => Output::unknown(),
    }
}

fn appended(before: Option<&[Fields]>, added: &[Fields], kind: &Assigned) -> Option<Vec<Fields>> {
    let mut all = Vec::new();
    for before in before? {
        for added in added {
            let mut fields = before.clone();
            match kind {
                Assigned::Array(_) => fields.extend_from_slice(added),
                Assigned::Scalar(_) => {
                    let mut first = fields.first().cloned().unwrap_or_default();
                    first.push(Piece::Known(String::new()));
                    for arg in added {
                        first.append(arg);
                    }
                    fields = vec![first];
                }
            }
            all.push(fields);
        }
    }
    Some(all)
}
