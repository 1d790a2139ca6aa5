//! What a shell knows at one point of a script: all that any path there may have left.

use crate::context::Context;
use crate::syntax::ast::Node;
use crate::value::Arg;
use std::collections::HashMap;
use std::rc::Rc;

/// Values that a variable is followed through; more are a gap.
const MAX_VALUES: usize = 8;
const MAX_NAMES: usize = 300;
/// A value longer than this is a gap.
const MAX_VALUE: usize = 64 * 1024;

/// The words of a variable: one, or those of an array.
pub(crate) type Fields = Vec<Arg>;

#[derive(Debug, Clone)]
pub(crate) struct State {
    variables: HashMap<String, Rc<Vec<Fields>>>,
    pub(crate) functions: HashMap<String, Rc<Node>>,
    pub(crate) aliases: HashMap<String, Rc<str>>,
    /// Where the shell may be. `None` is somewhere.
    pub(crate) cwd: Vec<Option<String>>,
    /// Where it is if the last command, a `cd`, succeeded.
    pub(crate) cwd_on_success: Option<Vec<Option<String>>>,
    /// `$1`, `$2`, …, if known.
    pub(crate) arguments: Option<Rc<Vec<Arg>>>,
    /// Files that the command has written, and what is in them, if known.
    pub(crate) files: HashMap<String, Option<Rc<str>>>,
    /// Characters that words are split at.
    pub(crate) separators: String,
}

impl State {
    pub(crate) fn new(context: &Context) -> Self {
        let mut state = Self {
            variables: HashMap::new(),
            functions: HashMap::new(),
            aliases: HashMap::new(),
            cwd: vec![context.cwd.clone()],
            cwd_on_success: None,
            arguments: None,
            files: HashMap::new(),
            separators: " \t\n".into(),
        };
        if let Some(home) = &context.home {
            state.set("HOME", vec![vec![Arg::known(home.as_str())]]);
        }
        state.set("IFS", vec![vec![Arg::known(" \t\n")]]);
        state.set("TMPDIR", vec![vec![Arg::known("/tmp")]]);
        state
    }

    /// How much a copy costs.
    pub(crate) fn weight(&self) -> usize {
        1 + (self.variables.len() + self.functions.len() + self.files.len()) / 8
    }

    /// All values that the variable may have; `None` if it can be anything.
    pub(crate) fn get(&self, name: &str) -> Option<&[Fields]> {
        self.variables.get(name).map(|values| values.as_slice())
    }

    pub(crate) fn set(&mut self, name: &str, mut values: Vec<Fields>) {
        values.dedup();
        let too_long = |fields: &Fields| fields.iter().map(|arg| arg.text().len()).sum::<usize>() > MAX_VALUE;
        if values.is_empty()
            || values.len() > MAX_VALUES
            || values.iter().any(too_long)
            || self.variables.len() > MAX_NAMES
        {
            self.forget(name);
            return;
        }
        if name == "IFS" {
            self.separators = " \t\n".into();
            for arg in values.iter().flatten() {
                self.separators.push_str(&arg.text());
            }
        }
        self.variables.insert(name.into(), Rc::new(values));
    }

    pub(crate) fn forget(&mut self, name: &str) {
        self.variables.remove(name);
    }

    pub(crate) fn forget_all(&mut self) {
        self.variables.clear();
    }

    pub(crate) fn write(&mut self, path: &str, content: Option<Rc<str>>) {
        if self.files.len() < MAX_NAMES {
            self.files.insert(path.into(), content);
        }
    }

    /// What holds if either this state or `other` does.
    pub(crate) fn join(&mut self, other: State) {
        // What only one of them has set may be anything on the other path.
        let gap = || Rc::new(vec![vec![Arg::unknown()]]);
        for name in other.variables.keys() {
            if !self.variables.contains_key(name) && self.variables.len() <= MAX_NAMES {
                self.variables.insert(name.clone(), gap());
            }
        }
        self.variables.retain(|name, values| {
            let others = other.variables.get(name).cloned().unwrap_or_else(gap);
            if Rc::ptr_eq(values, &others) {
                return true;
            }
            let mut all = Vec::clone(values);
            for value in others.iter() {
                if !all.contains(value) {
                    all.push(value.clone());
                }
            }
            let few = all.len() <= MAX_VALUES;
            *values = Rc::new(all);
            few
        });
        // A function or an alias that one path defines may be there.
        self.functions.extend(other.functions);
        self.aliases.extend(other.aliases);
        for place in other.cwd {
            if !self.cwd.contains(&place) {
                self.cwd.push(place);
            }
        }
        if self.cwd.len() > MAX_VALUES {
            self.cwd = vec![None];
        }
        self.cwd_on_success = None;
        if self.arguments != other.arguments {
            self.arguments = None;
        }
        for (path, content) in other.files {
            let same = self.files.get(&path).is_none_or(|known| *known == content);
            self.files.insert(path, if same { content } else { None });
        }
        for c in other.separators.chars() {
            if !self.separators.contains(c) {
                self.separators.push(c);
            }
        }
    }
}
