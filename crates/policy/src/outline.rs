//! What a script looks like, for those who want to say something useful about it: which programs it calls, what comes
//! last, what goes to the background. Nothing is decided by it.

use crate::syntax::ast::{Node, Part, Simple, Word};
use crate::syntax::parse;

/// Commands that are looked at.
const MOST: usize = 200;

/// A script at a glance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outline {
    /// The commands that stand in it, as far as their words are plain: each the program's name without its directory,
    /// then arguments. What is hidden in quotes, `$( … )` or functions is not there.
    pub commands: Vec<Vec<String>>,
    /// The stages of what runs last: one, or those of a pipeline. Empty if it is no simple command.
    pub last: Vec<Vec<String>>,
    /// Something in it is put to the background with `&`.
    pub background: bool,
}

impl Outline {
    /// The program whose exit code the script most likely ends with.
    #[must_use]
    pub fn program(&self) -> Option<&str> {
        self.last.last()?.first().map(String::as_str)
    }
}

/// Looks at a script. What can't be understood is left out.
#[must_use]
pub fn outline(text: &str) -> Outline {
    let parsed = parse(text);
    let mut outline = Outline::default();
    walk(&parsed.node, &mut outline);
    if parsed.trouble.is_none() {
        outline.last = last(&parsed.node);
    }
    outline
}

fn walk(node: &Node, outline: &mut Outline) {
    if outline.commands.len() >= MOST {
        return;
    }
    match node {
        Node::Simple(simple) => {
            outline.commands.extend(Some(words(simple)).filter(|words| !words.is_empty()));
        }
        Node::Pipeline(nodes) | Node::Sequence(nodes) | Node::And(nodes) | Node::Maybe(nodes) => {
            nodes.iter().for_each(|node| walk(node, outline));
        }
        Node::Background(node) => {
            outline.background = true;
            walk(node, outline);
        }
        Node::Loop { body, .. } => walk(body, outline),
        Node::Subshell(node) | Node::Redirected(node, _) => walk(node, outline),
        Node::Function { .. } | Node::Words(_) => {}
    }
}

fn last(node: &Node) -> Vec<Vec<String>> {
    match node {
        Node::Simple(simple) => Some(words(simple)).filter(|words| !words.is_empty()).into_iter().collect(),
        Node::Pipeline(nodes) => nodes.iter().map(|node| last(node).pop().unwrap_or_default()).collect(),
        Node::Sequence(nodes) | Node::And(nodes) | Node::Maybe(nodes) => {
            nodes.last().map(last).unwrap_or_default()
        }
        Node::Subshell(node) | Node::Redirected(node, _) => last(node),
        Node::Background(_) | Node::Loop { .. } | Node::Function { .. } | Node::Words(_) => Vec::new(),
    }
}

/// The words of a command. One that is not plain is empty, and a program that is not plain is no command.
fn words(simple: &Simple) -> Vec<String> {
    let mut words: Vec<_> = simple.words.iter().map(plain).collect();
    match words.first_mut() {
        Some(program) if !program.is_empty() => {
            if let Some(name) = program.rsplit('/').next() {
                *program = name.to_owned();
            }
            words
        }
        _ => Vec::new(),
    }
}

fn plain(word: &Word) -> String {
    let mut text = String::new();
    for part in &word.parts {
        match part {
            Part::Text(piece) | Part::Quoted(piece) => text.push_str(piece),
            Part::Glob(c) | Part::Brace(c) => text.push(*c),
            Part::Tilde(name) => {
                text.push('~');
                text.push_str(name.trim_start_matches('~'));
            }
            Part::Parameter(_) | Part::Command { .. } | Part::Process { .. } | Part::Arithmetic(_) => {
                return String::new();
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_last() {
        let program = |text: &str| outline(text).program().map(str::to_owned);
        for (text, expected) in [
            ("grep x f", Some("grep")),
            ("cd a && /usr/bin/grep -q x f", Some("grep")),
            ("cat f | sort | diff - g", Some("diff")),
            ("make; echo $?", Some("echo")),
            ("a || b", Some("b")),
            ("(cd x; test -f y)", Some("test")),
            ("[ -f x ]", Some("[")),
            ("FOO=1 curl -s http://x", Some("curl")),
            ("$CC x.c", None),
            ("X=1", None),
            ("if a; then b; fi &", None),
            ("echo 'unclosed", None),
        ] {
            assert_eq!(program(text).as_deref(), expected, "{text}");
        }
        assert_eq!(outline("a x | b 'y z' | c").last, [vec!["a", "x"], vec!["b", "y z"], vec!["c"]]);
    }

    #[test]
    fn what_goes_to_the_background() {
        for (text, expected) in [
            ("sleep 5 &", true),
            ("a & b", true),
            ("if true; then a & fi", true),
            ("curl 'http://x/?a=1&b=2'", false),
            ("curl http://x/?a=1\\&b=2", false),
            ("a && b", false),
            ("a >&2 2>&1", false),
            ("cat <<E\na &\nE", false),
            ("# a &", false),
        ] {
            assert_eq!(outline(text).background, expected, "{text}");
        }
    }
}
