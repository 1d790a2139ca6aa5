//! Follows a parsed command the way bash would run it, without running it, and collects what speaks against it.
//!
//! 1. [`crate::syntax`] parses the text.
//! 2. `flow` walks the nodes: what may run, in which order, with which standard input.
//! 3. `expand` turns words into arguments as far as they can be told: quotes, variables with all the values they
//!    may have, braces, globs, the output of `$(echo …)`.
//! 4. `call` looks at one command with its arguments: shell builtins change the [`State`]; `wrap` finds the
//!    command inside a command (`sudo`, `env`, `xargs`, `find -exec`, …) and `program` the script inside an
//!    interpreter (`tools` in `find`, `ssh`, `git`, …), and all come back here; the rest is asked of [`crate::rules`].
//!
//! The walk errs to one side: a variable has all the values that any path may have given it, a branch may be
//! taken or not, a gap may be anything. Every step costs fuel; a command that uses it up is refused, because
//! what hides behind it would otherwise pass.

mod braces;
mod call;
mod code;
mod expand;
mod flow;
mod output;
mod program;
mod state;
mod tools;
mod wrap;

use crate::context::Context;
use crate::syntax::{Trouble, parse};
use crate::value::Arg;
use crate::verdict::{Level, Reason, Verdict};
pub(crate) use output::Output;
pub(crate) use state::State;

/// Commands longer than this are not looked at but refused. Files belong into `write_file`.
pub const MAX_TEXT: usize = 256 * 1024;
/// Steps of the walk. An ordinary command takes fewer than a hundred.
const FUEL: u32 = 40_000;
/// Texts inside texts (`bash -c "bash -c …"`) and functions in functions.
const MAX_NESTING: u32 = 24;
/// Calls that are kept for the lists.
const MAX_CALLS: usize = 5_000;

/// One command that would be run, with what is known of its arguments.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) args: Vec<Arg>,
    /// Variables are set in front of it, so it is not quite the command that it seems.
    pub(crate) assigns: bool,
    /// It only carries another command (`sudo`, `env`), which follows as a call of its own.
    pub(crate) carries: bool,
}

/// What was understood of a command.
#[derive(Debug, Clone)]
pub struct Analysis {
    pub verdict: Verdict,
    pub(crate) calls: Vec<Call>,
    /// Programs in languages that we do not read: what was handed to `python -c`, …
    pub(crate) code: Vec<String>,
    /// It redirects into files or sets variables, which no entry of an allowlist speaks about.
    pub(crate) writes: bool,
}

/// Looks at `text`, which bash would run in `context`.
pub fn analyse(text: &str, context: &Context) -> Analysis {
    let mut walk = Walk::new(context);
    let mut state = State::new(context);
    if text.len() > MAX_TEXT {
        walk.limit("the command is longer than 256 KiB");
    } else {
        walk.text(text, &mut state, &flow::Input::Inherited);
    }
    let Walk { reasons, calls, code, writes, .. } = walk;
    Analysis { verdict: Verdict::new(reasons), calls, code, writes }
}

/// Where a command runs, seen from the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Here,
    /// On another machine (`ssh host …`): its paths are not ours, but somebody's.
    Remote,
    /// In a container that the command itself starts or enters.
    Container,
}

/// The walk over one command and all that is inside it.
pub(crate) struct Walk<'a> {
    pub(crate) context: &'a Context,
    fuel: u32,
    nesting: u32,
    pub(crate) place: Place,
    pub(crate) reasons: Vec<Reason>,
    calls: Vec<Call>,
    code: Vec<String>,
    /// The call that rules are asked about at the moment.
    current: Option<usize>,
    /// Functions that are being walked, the innermost last. The bodies are compared, never looked into.
    stack: Vec<(String, *const crate::syntax::ast::Node)>,
    /// How often a function was found to call itself.
    self_calls: u32,
    /// How many `&` are around us, counted from the innermost function.
    background: u32,
    writes: bool,
    /// The next call is made by another program, which knows no functions of the shell.
    by_program: bool,
}

impl<'a> Walk<'a> {
    fn new(context: &'a Context) -> Self {
        Self {
            context,
            fuel: FUEL,
            nesting: 0,
            place: Place::Here,
            reasons: Vec::new(),
            calls: Vec::new(),
            code: Vec::new(),
            current: None,
            stack: Vec::new(),
            self_calls: 0,
            background: 0,
            writes: false,
            by_program: false,
        }
    }

    /// Takes fuel. `false`: there is none left, and that has been said.
    fn burn(&mut self, amount: usize) -> bool {
        let amount = u32::try_from(amount).unwrap_or(u32::MAX).max(1);
        if self.fuel == 0 {
            return false;
        }
        self.fuel = self.fuel.saturating_sub(amount);
        if self.fuel == 0 {
            self.limit("following the command takes too many steps");
            return false;
        }
        true
    }

    fn limit(&mut self, what: &str) {
        self.reasons.push(Reason {
            rule: "too-complex",
            level: Level::Forbidden,
            what: what.into(),
            piece: String::new(),
            why: "anything could hide in it; say it in smaller steps",
            call: None,
        });
    }

    pub(crate) fn risk(
        &mut self,
        rule: &'static str,
        what: impl Into<String>,
        piece: &str,
        why: &'static str,
    ) {
        self.reason(rule, Level::Risky, what, piece, why);
    }

    pub(crate) fn reason(
        &mut self,
        rule: &'static str,
        level: Level,
        what: impl Into<String>,
        piece: &str,
        why: &'static str,
    ) {
        let reason =
            Reason { rule, level, what: what.into(), piece: shortened(piece), why, call: self.current };
        // A command can have thousands of reasons; a hundred say enough, as long as the worst is among them.
        let worst = level == Level::Forbidden && self.reasons.iter().all(|known| known.level != level);
        if !self.reasons.contains(&reason) && (self.reasons.len() < 100 || worst) {
            self.reasons.push(reason);
        }
    }

    /// A script inside the command: of `bash -c`, a here-document, an alias, or the command itself.
    fn text(&mut self, text: &str, state: &mut State, input: &flow::Input) -> Output {
        if self.nesting >= MAX_NESTING {
            self.limit("scripts are nested too deeply");
            return Output::unknown();
        }
        if !self.burn(1 + text.len() / 64) {
            return Output::unknown();
        }
        if text.contains('\0') {
            // Bash drops the byte or ends there, depending on how the text reaches it.
            let (without, before) = (text.replace('\0', ""), text.split('\0').next().unwrap_or_default());
            self.risk(
                "unreadable",
                "the command has a zero byte in it",
                before,
                "it can't be told what bash makes of it",
            );
            self.nesting += 1;
            self.text(before, &mut state.clone(), input);
            let output = self.text(&without, state, input);
            self.nesting -= 1;
            return output;
        }
        self.nesting += 1;
        let parsed = parse(text);
        let output = self.node(&parsed.node, state, input);
        match parsed.trouble {
            None => {}
            Some(Trouble::TooDeep) => self.limit("the command is nested too deeply"),
            Some(Trouble::Syntax(at)) => {
                let around = text.get(at..).unwrap_or_default();
                let current = self.current.take();
                self.risk(
                    "unreadable",
                    "the command can't be parsed",
                    if around.is_empty() { "end of the command" } else { around },
                    "what can't be understood can't be called safe",
                );
                self.current = current;
                self.salvage(text.get(parsed.rest..).unwrap_or_default(), state);
            }
        }
        self.nesting -= 1;
        output
    }

    /// Looks at the lines from where the parser gave up: perhaps bash understands more than we do.
    fn salvage(&mut self, text: &str, state: &State) {
        for line in text.lines().take(200) {
            for piece in line.split([';', '|', '&', '(', ')', '`']) {
                if !self.burn(1) {
                    return;
                }
                let parsed = parse(piece);
                if parsed.trouble.is_none() {
                    self.node(&parsed.node, &mut state.clone(), &flow::Input::Inherited);
                }
            }
        }
    }
}

/// At most a line's worth of a command, fit to be shown.
pub(crate) fn shortened(text: &str) -> String {
    const MAX: usize = 120;
    let mut short = String::new();
    for (count, c) in text.trim().chars().enumerate() {
        if count == MAX {
            short.push('…');
            break;
        }
        match c {
            crate::value::GAP => short.push('…'),
            '\n' => short.push_str("\\n"),
            c if c.is_control() => short.extend(c.escape_default()),
            c => short.push(c),
        }
    }
    short
}
