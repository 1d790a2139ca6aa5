//! From words to arguments, as far as that can be told without running anything.

use super::Walk;
use super::braces::braces;
use super::flow::Input;
use super::state::{Fields, State};
use crate::syntax::ast::{Node, Parameter, Part, Word};
use crate::value::{Arg, Pattern, Piece};
use std::rc::Rc;

/// Ways in which the words of one command may turn out; more are a gap.
const MAX_WAYS: usize = 16;
/// Patterns are tried against values up to this length.
const MAX_PATTERN: usize = 256;

/// The arguments that are being built, in one of the ways they may turn out.
#[derive(Clone, Default)]
struct Draft {
    done: Fields,
    current: Arg,
    /// There is a current argument, be it empty.
    started: bool,
}

impl Draft {
    fn push(&mut self, piece: Piece) {
        self.current.push(piece);
        self.started = true;
    }

    fn finish(&mut self) {
        if std::mem::take(&mut self.started) {
            self.current.settle();
            self.done.push(std::mem::take(&mut self.current));
        }
    }
}

impl Walk<'_> {
    /// All the ways in which `words` may turn out.
    pub(super) fn words(&mut self, words: &[Word], state: &mut State) -> Vec<Fields> {
        let mut ways: Vec<Fields> = vec![Vec::new()];
        for word in words {
            let next = self.fields(word, state);
            ways = product(ways, &next);
        }
        ways
    }

    fn fields(&mut self, word: &Word, state: &mut State) -> Vec<Fields> {
        if !self.burn(1 + word.parts.len() / 16) {
            return vec![vec![gap(true)]];
        }
        let mut ways: Vec<Fields> = vec![Vec::new()];
        for parts in braces(&word.parts) {
            let mut drafts = vec![Draft::default()];
            for part in &parts {
                self.part(part, &mut drafts, state);
                if drafts.len() > MAX_WAYS {
                    drafts = vec![Draft { current: gap(true), started: true, ..Draft::default() }];
                }
            }
            let fields: Vec<Fields> = drafts
                .into_iter()
                .map(|mut draft| {
                    draft.finish();
                    draft.done
                })
                .collect();
            ways = product(ways, &fields);
        }
        ways
    }

    /// The ways in which `word` may turn out where it is not split: a value, the target of a redirection.
    pub(super) fn scalar(&mut self, word: &Word, state: &mut State) -> Vec<Arg> {
        if !self.burn(1 + word.parts.len() / 16) {
            return vec![gap(false)];
        }
        let mut ways = vec![Arg::default()];
        for part in &word.parts {
            let values: Vec<Arg> = match part {
                Part::Text(text) | Part::Quoted(text) => vec![Arg::known(text.as_str())],
                Part::Glob(c) | Part::Brace(c) => vec![Arg::known(*c)],
                Part::Tilde(name) => vec![self.tilde(name)],
                Part::Parameter(parameter) => {
                    self.parameter(parameter, state).into_iter().map(|fields| joined(&fields)).collect()
                }
                Part::Command { body, .. } => vec![self.substitution(body, state)],
                Part::Process { body, reads } => vec![self.process(body, *reads, state)],
                Part::Arithmetic(inner) => {
                    self.scalar(inner, state);
                    vec![gap(false)]
                }
            };
            let mut next = Vec::new();
            for way in &ways {
                for value in &values {
                    let mut way = way.clone();
                    way.append(value);
                    way.splits = false;
                    next.push(way);
                }
            }
            ways = if next.len() > MAX_WAYS { vec![gap(false)] } else { next };
        }
        ways
    }

    fn part(&mut self, part: &Part, drafts: &mut Vec<Draft>, state: &mut State) {
        match part {
            Part::Text(text) | Part::Quoted(text) => {
                for draft in drafts {
                    draft.push(Piece::Known(text.clone()));
                }
            }
            Part::Glob(c) => {
                for draft in drafts {
                    draft.push(Piece::Glob(*c));
                }
            }
            Part::Brace(c) => {
                for draft in drafts {
                    draft.push(Piece::Known(c.to_string()));
                }
            }
            Part::Tilde(name) => {
                let home = self.tilde(name);
                for draft in drafts {
                    draft.current.append(&home);
                    draft.started = true;
                }
            }
            Part::Parameter(parameter) => {
                let values = self.parameter(parameter, state);
                let all = parameter.name == "@"
                    || matches!(&parameter.index, Some(word) if word.bare() == Some("@"));
                if parameter.quoted && !all {
                    let values: Vec<Fields> = values.iter().map(|fields| vec![joined(fields)]).collect();
                    insert(drafts, &values, None);
                } else if parameter.quoted {
                    insert(drafts, &values, None);
                } else {
                    insert(drafts, &values, Some(&state.separators));
                }
            }
            Part::Command { body, quoted } => {
                let value = vec![vec![self.substitution(body, state)]];
                insert(drafts, &value, (!quoted).then_some(state.separators.as_str()));
            }
            Part::Process { body, reads } => {
                let path = self.process(body, *reads, state);
                for draft in drafts {
                    draft.current.append(&path);
                    draft.started = true;
                }
            }
            Part::Arithmetic(inner) => {
                self.scalar(inner, state);
                for draft in drafts {
                    draft.push(Piece::Unknown);
                }
            }
        }
    }

    fn tilde(&self, name: &str) -> Arg {
        match (name, &self.context.home) {
            ("", Some(home)) => Arg::known(home.as_str()),
            // Left as it is: the rules on paths know it.
            ("", None) => Arg::known("~"),
            ("+" | "-", _) => gap(false),
            _ => Arg::known(format!("~{name}")),
        }
    }

    /// `$( … )`: runs the commands, and gives what they write.
    fn substitution(&mut self, body: &Rc<Node>, state: &State) -> Arg {
        if !self.burn(state.weight()) {
            return gap(false);
        }
        let output = self.node(body, &mut state.clone(), &Input::Inherited);
        match output.text {
            Some(text) => Arg::known(text.trim_end_matches('\n')),
            None => gap(false),
        }
    }

    /// `<( … )`: a file with what the commands write.
    fn process(&mut self, body: &Rc<Node>, reads: bool, state: &mut State) -> Arg {
        if !self.burn(state.weight()) {
            return gap(false);
        }
        if matches!(&**body, Node::Sequence(nodes) if nodes.is_empty()) {
            // Bash makes nothing of `<()`.
            return Arg::known("");
        }
        let input = if reads { Input::Inherited } else { Input::Text(super::output::Output::unknown()) };
        let output = self.node(body, &mut state.clone(), &input);
        let path = format!("/dev/fd/{}", 63 + state.files.len());
        if reads {
            state.write(&path, output.text.map(Rc::from));
        }
        Arg::known(path)
    }

    /// The values of `$name`, `${name…}`.
    fn parameter(&mut self, parameter: &Parameter, state: &mut State) -> Vec<Fields> {
        let index = match &parameter.index {
            Some(word) => {
                let ways = self.scalar(word, state);
                match ways.as_slice() {
                    [only] => Some(only.literal().unwrap_or_default().to_owned()),
                    _ => Some(String::new()),
                }
            }
            None => None,
        };
        let argument =
            parameter.operator.as_ref().map(|(operator, word)| (operator.as_str(), self.scalar(word, state)));
        if parameter.length {
            return unknown();
        }
        let mut values = value(&parameter.name, index.as_deref(), state);
        if parameter.indirect {
            let names: Option<Vec<String>> = values.as_ref().and_then(|values| {
                values.iter().map(|fields| joined(fields).literal().map(str::to_owned)).collect()
            });
            values = names.and_then(|names| {
                let mut all = Vec::new();
                for name in names {
                    all.extend(value(&name, None, state)?);
                }
                Some(all)
            });
        }
        let Some((operator, argument)) = argument else { return values.unwrap_or_else(unknown) };
        match operator {
            ":-" | "-" | ":=" | "=" => {
                let mut all: Vec<Fields> = values.unwrap_or_else(unknown);
                let unsure = all.iter().any(|fields| {
                    fields.iter().all(|arg| arg.is_empty() || arg.literal() == Some("") || arg.is_unknown())
                });
                if unsure || all.is_empty() {
                    all.extend(argument.into_iter().map(|arg| vec![arg]));
                }
                if operator.ends_with('=') {
                    state.set(&parameter.name, all.clone());
                }
                all
            }
            ":+" | "+" => {
                let mut all: Vec<Fields> = argument.into_iter().map(|arg| vec![arg]).collect();
                all.push(Vec::new());
                all
            }
            ":?" | "?" => values.unwrap_or_else(unknown),
            _ => {
                let Some(values) = values else { return unknown() };
                let [argument] = argument.as_slice() else { return unknown() };
                let changed: Option<Vec<Fields>> = values
                    .iter()
                    .map(|fields| {
                        let text = joined(fields);
                        Some(vec![Arg::known(changed(text.literal()?, operator, argument)?)])
                    })
                    .collect();
                changed.unwrap_or_else(unknown)
            }
        }
    }
}

/// What a variable may be; `None` if it can be anything.
fn value(name: &str, index: Option<&str>, state: &State) -> Option<Vec<Fields>> {
    let values: Vec<Fields> = match name {
        "@" | "*" => vec![state.arguments.as_ref()?.to_vec()],
        "0" => return None,
        "PWD" => {
            let places: Option<Vec<Fields>> =
                state.cwd.iter().map(|place| Some(vec![Arg::known(place.as_deref()?)])).collect();
            places?
        }
        _ if name.bytes().all(|byte| byte.is_ascii_digit()) => {
            let at: usize = name.parse().ok()?;
            let arguments = state.arguments.as_ref()?;
            vec![arguments.get(at.checked_sub(1)?).cloned().into_iter().collect()]
        }
        _ => state.get(name)?.to_vec(),
    };
    match index {
        Some("@" | "*") => Some(values),
        _ if matches!(name, "@" | "*") => Some(values),
        None | Some("0") => {
            Some(values.into_iter().map(|fields| fields.into_iter().take(1).collect()).collect())
        }
        Some(index) => {
            let number = index.parse::<usize>().ok();
            let mut all = Vec::new();
            for fields in values {
                match number {
                    Some(number) => all.push(fields.get(number).cloned().into_iter().collect()),
                    None => all.extend(fields.into_iter().map(|arg| vec![arg])),
                }
            }
            (!all.is_empty()).then_some(all)
        }
    }
}

/// `${x:1:2}`, `${x%.c}`, `${x//a/b}`, `${x^^}` on known text; `None` where that can't be told.
fn changed(text: &str, operator: &str, argument: &Arg) -> Option<String> {
    let argument = argument.literal()?;
    match operator {
        ":" => {
            let (offset, length) = match argument.split_once(':') {
                Some((offset, length)) => (offset, Some(length)),
                None => (argument, None),
            };
            let chars: Vec<char> = text.chars().collect();
            let size = i64::try_from(chars.len()).ok()?;
            let from: i64 = offset.trim().parse().ok()?;
            let from = if from < 0 { (size + from).max(0) } else { from.min(size) };
            let to = match length {
                None => size,
                Some(length) => match length.trim().parse::<i64>().ok()? {
                    length if length < 0 => (size + length).max(from),
                    length => (from + length).min(size),
                },
            };
            let range = usize::try_from(from).ok()?..usize::try_from(to).ok()?;
            Some(chars.get(range)?.iter().collect())
        }
        "^^" if argument.is_empty() => Some(text.to_uppercase()),
        ",," if argument.is_empty() => Some(text.to_lowercase()),
        "^" | "," if argument.is_empty() => {
            let mut chars = text.chars();
            let first = chars.next()?.to_string();
            let first = if operator == "^" { first.to_uppercase() } else { first.to_lowercase() };
            Some(first + chars.as_str())
        }
        "#" | "##" | "%" | "%%" => {
            if text.len() > MAX_PATTERN || argument.len() > MAX_PATTERN {
                return None;
            }
            let pattern = Pattern::new(argument);
            let mut cuts: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            let front = operator.starts_with('#');
            // The shortest match comes first, or the longest.
            if front == (operator.len() == 2) {
                cuts.reverse();
            }
            let cut = cuts.into_iter().find(|&cut| {
                let piece = if front { text.get(..cut) } else { text.get(cut..) };
                piece.is_some_and(|piece| pattern.matches(piece))
            });
            let kept = match cut {
                Some(cut) if front => text.get(cut..),
                Some(cut) => text.get(..cut),
                None => Some(text),
            };
            kept.map(str::to_owned)
        }
        "/" | "//" => {
            let (pattern, with) = argument.split_once('/').unwrap_or((argument, ""));
            if pattern.contains(['*', '?', '[', '\\']) || pattern.is_empty() {
                return None;
            }
            Some(if operator == "//" { text.replace(pattern, with) } else { text.replacen(pattern, with, 1) })
        }
        _ => None,
    }
}

/// Adds one of `values` to each draft, split at `separators` if there are any.
fn insert(drafts: &mut Vec<Draft>, values: &[Fields], separators: Option<&str>) {
    let mut next = Vec::new();
    for draft in drafts.iter() {
        for fields in values {
            let mut draft = draft.clone();
            for (count, arg) in fields.iter().enumerate() {
                if count > 0 {
                    draft.finish();
                }
                match (separators, arg.literal()) {
                    (Some(separators), Some(text)) => split(&mut draft, text, separators),
                    (Some(_), None) => {
                        draft.current.append(arg);
                        draft.current.splits = true;
                        draft.started = true;
                    }
                    (None, _) => {
                        draft.current.append(arg);
                        draft.started = true;
                    }
                }
            }
            next.push(draft);
        }
        if next.len() > MAX_WAYS * 2 {
            break;
        }
    }
    *drafts = next;
}

fn split(draft: &mut Draft, text: &str, separators: &str) {
    for c in text.chars() {
        match c {
            c if separators.contains(c) => draft.finish(),
            // Patterns in a value are matched against files, too.
            '*' | '?' | '[' => draft.push(Piece::Glob(c)),
            c => draft.push(Piece::Known(c.into())),
        }
    }
}

fn product(ways: Vec<Fields>, next: &[Fields]) -> Vec<Fields> {
    if let [only] = next {
        return ways
            .into_iter()
            .map(|mut way| {
                way.extend_from_slice(only);
                way
            })
            .collect();
    }
    if ways.len() * next.len() > MAX_WAYS {
        // Keep what is known of the words so far.
        return ways
            .into_iter()
            .map(|mut way| {
                way.push(gap(true));
                way
            })
            .collect();
    }
    let mut all = Vec::new();
    for way in &ways {
        for fields in next {
            let mut way = way.clone();
            way.extend_from_slice(fields);
            all.push(way);
        }
    }
    all
}

pub(super) fn joined(fields: &[Arg]) -> Arg {
    let mut all = Arg::default();
    for (count, arg) in fields.iter().enumerate() {
        if count > 0 {
            all.push(Piece::Known(" ".into()));
        }
        all.append(arg);
    }
    all
}

fn gap(splits: bool) -> Arg {
    let mut arg = Arg::unknown();
    arg.splits = splits;
    arg
}

fn unknown() -> Vec<Fields> {
    vec![vec![gap(false)]]
}
