//! Changes one value of a YAML file.
//!
//! 1. The file is read; if it can't be, it is not touched.
//! 2. The new text is made by cutting and pasting bytes around the place of the value, so everything else stays as
//!    it was by construction.
//! 3. The new text is read again. It must mean exactly the intended change, and hold exactly the same comments in
//!    the same order. Anything else is a refusal: cutting YAML has too many corners to trust it unchecked.

use std::ops::Range;

use serde_json::Value;

use super::emit;
use super::node::{Kind, Merge, Node, SyntaxError, parse};

/// The file was left as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The line that is in the way, from 1; 0 if there is no one line.
    pub line: usize,
    /// Why.
    pub kind: RefusalKind,
}

/// Why a file is left as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// It can't be read.
    Syntax(SyntaxError),
    /// A part of the path is there and is not a map.
    NotAMap {
        /// The part.
        key: String,
    },
    /// Comments stand inside the value that would be replaced.
    Comments,
    /// The file is written in a way that can't be changed by machine without touching something else.
    Shape,
}

/// The text with the value at `path` set.
///
/// # Errors
/// The text can't be read or can't be changed safely.
pub fn set(text: &str, path: &[&str], value: &Value) -> Result<String, Refusal> {
    let document = Document::read(text)?;
    let mut expected = document.root.clone();
    plan(&mut expected, path, to_node(value))?;
    if document.root == expected && lookup(&document.root, path).is_some() {
        return Ok(text.to_owned());
    }
    let after = document.set(path, value)?;
    document.check(after, &expected)
}

/// The text without the value at `path`; `None` if it has none.
///
/// # Errors
/// The text can't be read or can't be changed safely.
pub fn unset(text: &str, path: &[&str]) -> Result<Option<String>, Refusal> {
    let document = Document::read(text)?;
    let Some((key, parents)) = path.split_last() else { return Ok(None) };
    let Some(map) = lookup(&document.root, parents) else { return Ok(None) };
    let Some(index) = map.entries().iter().position(|(name, _)| name.is_key(key)) else { return Ok(None) };
    let mut expected = document.root.clone();
    if let Some(found) = lookup_mut(&mut expected, parents)
        && let Kind::Map(entries) = &mut found.kind
    {
        entries.remove(index);
        if entries.is_empty() && !document.is_flow(map) {
            found.kind = Kind::Null;
        }
    }
    let after = document.unset(map, index)?;
    document.check(after, &expected).map(Some)
}

fn lookup<'a>(root: &'a Node, path: &[&str]) -> Option<&'a Node> {
    path.iter().try_fold(root, |node, key| node.entry(key).map(|(_, value)| value))
}

fn lookup_mut<'a>(root: &'a mut Node, path: &[&str]) -> Option<&'a mut Node> {
    path.iter().try_fold(root, |node, key| match &mut node.kind {
        Kind::Map(entries) => entries.iter_mut().find(|(name, _)| name.is_key(key)).map(|(_, value)| value),
        _ => None,
    })
}

/// Makes the change in the tree of values, which is what the changed text will be compared with.
fn plan(node: &mut Node, path: &[&str], value: Node) -> Result<(), Refusal> {
    let Some((key, rest)) = path.split_first() else {
        *node = value;
        return Ok(());
    };
    if node.kind == Kind::Null {
        node.kind = Kind::Map(Vec::new());
    }
    let line = node.line;
    let Kind::Map(entries) = &mut node.kind else {
        return Err(Refusal { line, kind: RefusalKind::NotAMap { key: (*key).to_owned() } });
    };
    let index = entries.iter().position(|(name, _)| name.is_key(key)).unwrap_or_else(|| {
        entries.push((Node { kind: Kind::Text((*key).to_owned()), ..Node::null() }, Node::null()));
        entries.len() - 1
    });
    match entries.get_mut(index) {
        Some((_, child)) => plan(child, rest, value),
        None => Ok(()),
    }
}

fn to_node(value: &Value) -> Node {
    let kind = match value {
        Value::Null => Kind::Null,
        Value::Bool(value) => Kind::Bool(*value),
        Value::Number(number) => match number.as_i128() {
            Some(whole) => Kind::Integer(whole),
            None => Kind::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Kind::Text(text.clone()),
        Value::Array(items) => Kind::List(items.iter().map(to_node).collect()),
        Value::Object(entries) => {
            let text = |key: &String| Node { kind: Kind::Text(key.clone()), ..Node::null() };
            Kind::Map(entries.iter().map(|(key, value)| (text(key), to_node(value))).collect())
        }
    };
    Node { kind, ..Node::null() }
}

/// `value` inside one map for each part of `path`.
fn nest(path: &[&str], value: &Value) -> Value {
    path.iter().rev().fold(value.clone(), |inner, key| {
        Value::Object(std::iter::once(((*key).to_owned(), inner)).collect())
    })
}

struct Document<'a> {
    text: &'a str,
    root: Node,
    eol: &'static str,
    /// How far a map is indented below its key.
    step: usize,
}

impl<'a> Document<'a> {
    fn read(text: &'a str) -> Result<Self, Refusal> {
        let root = parse(text, Merge::Keep)
            .map_err(|error| Refusal { line: error.line, kind: RefusalKind::Syntax(error) })?;
        let eol = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let mut document = Self { text, root, eol, step: 2 };
        document.step = document.find_step().unwrap_or(2);
        Ok(document)
    }

    fn check(&self, after: String, expected: &Node) -> Result<String, Refusal> {
        let shape = Refusal { line: 0, kind: RefusalKind::Shape };
        let Ok(read) = parse(&after, Merge::Keep) else { return Err(shape) };
        if read == *expected && comments(&after, &read) == comments(self.text, &self.root) {
            Ok(after)
        } else {
            Err(shape)
        }
    }

    fn set(&self, path: &[&str], value: &Value) -> Result<String, Refusal> {
        let mut node = &self.root;
        let mut owner = None;
        let mut flow = false;
        for (depth, key) in path.iter().enumerate() {
            let rest = path.get(depth + 1..).unwrap_or_default();
            if node.alias && depth > 0 {
                return Err(shape_at(node));
            }
            if node.kind == Kind::Null {
                let value = nest(path.get(depth..).unwrap_or_default(), value);
                return match owner {
                    Some((key, old)) => self.replace(key, old, &value, flow),
                    None => Ok(self.append(&value)),
                };
            }
            flow |= self.is_flow(node);
            match node.entry(key) {
                None => return self.insert(node, key, &nest(rest, value), flow),
                Some((name, old)) if rest.is_empty() => return self.replace(name, old, value, flow),
                Some((name, old)) => {
                    owner = Some((name, old));
                    node = old;
                }
            }
        }
        Err(shape_at(node))
    }

    /// A document without values gets its first one after its comments.
    fn append(&self, value: &Value) -> String {
        let mut after = self.text.to_owned();
        if !after.is_empty() && !after.ends_with('\n') {
            after.push_str(self.eol);
        }
        for line in emit::block(value, 0, self.step) {
            after.push_str(&line);
            after.push_str(self.eol);
        }
        after
    }

    fn insert(&self, map: &Node, key: &str, value: &Value, flow: bool) -> Result<String, Refusal> {
        let Some((last_key, last)) = map.entries().last() else {
            // `{}`: right after the bracket.
            let start = map.span.clone().ok_or_else(|| shape_at(map))?.start;
            let entry = format!("{}: {}", emit::scalar(key), emit::inline(value));
            return Ok(self.splice(start + 1..start + 1, &entry));
        };
        let end = self.entry_end(last_key, last).ok_or_else(|| shape_at(map))?;
        if flow {
            let entry = format!(", {}: {}", emit::scalar(key), emit::inline(value));
            return Ok(self.splice(end..end, &entry));
        }
        let (first, _) = map.entries().first().ok_or_else(|| shape_at(map))?;
        let indent = self.column(first).ok_or_else(|| shape_at(map))?;
        let mut lines = String::new();
        for line in emit::block(&nest(&[key], value), indent, self.step) {
            lines.push_str(self.eol);
            lines.push_str(&line);
        }
        let at = self.line_stop(end);
        Ok(self.splice(at..at, &lines))
    }

    fn replace(&self, key: &Node, old: &Node, value: &Value, flow: bool) -> Result<String, Refusal> {
        let colon = self.colon(key).ok_or_else(|| shape_at(key))?;
        let end = self.end(old).unwrap_or(colon + 1);
        let span = old.span.clone().ok_or_else(|| shape_at(old))?;
        let empty = old.kind == Kind::Null && span.is_empty();
        let tall = !flow && emit::is_tall(value);
        let block_scalar = matches!(old.kind, Kind::Text(_))
            && self
                .text
                .get(colon..span.start)
                .is_some_and(|header| header.contains('\n') && header.contains(['|', '>']));
        let collection = matches!(old.kind, Kind::List(_) | Kind::Map(_)) && !old.alias;
        if empty && !tall {
            return Ok(self.splice(colon + 1..colon + 1, &format!(" {}", emit::inline(value))));
        }
        if !tall && (flow || !(block_scalar || collection)) {
            return Ok(self.splice(span.start..end, &emit::inline(value)));
        }
        let stop = self.line_stop(end);
        let range = colon + 1..stop;
        let all = comment_spans(self.text, &self.root);
        let mut inside = all.iter().filter(|comment| range.contains(&comment.start));
        let comment = inside.next().and_then(|comment| self.text.get(comment.clone()));
        if inside.next().is_some() {
            return Err(Refusal { line: old.line, kind: RefusalKind::Comments });
        }
        let comment = comment.map(|comment| format!(" {}", comment.trim_end())).unwrap_or_default();
        let new = if tall {
            let indent = self.column(key).ok_or_else(|| shape_at(key))? + self.step;
            let lines = emit::block(value, indent, self.step).join(self.eol);
            format!("{comment}{}{lines}", self.eol)
        } else {
            format!(" {}{comment}", emit::inline(value))
        };
        Ok(self.splice(range, &new))
    }

    fn unset(&self, map: &Node, index: usize) -> Result<String, Refusal> {
        let entries = map.entries();
        let (Some((key, value)), Some(start)) = (entries.get(index), map_start(entries, index)) else {
            return Err(shape_at(map));
        };
        if map.alias {
            return Err(shape_at(map));
        }
        let end = self.entry_end(key, value).ok_or_else(|| shape_at(key))?;
        // A block map can't stand inside a flow collection, so the map's own bracket decides.
        if self.is_flow(map) {
            let before = index.checked_sub(1).and_then(|previous| entries.get(previous));
            let range = match (map_start(entries, index + 1), before) {
                (Some(next), _) => start..next,
                (None, Some((key, value))) => self.entry_end(key, value).ok_or_else(|| shape_at(key))?..end,
                (None, None) => start..end,
            };
            return Ok(self.splice(range, ""));
        }
        let indent = self.column(key).ok_or_else(|| shape_at(key))?;
        let range = start - indent..self.next_line(end);
        // Comments of the entry stay, each on a line of its own.
        let kept: String = comment_spans(self.text, &self.root)
            .into_iter()
            .filter(|comment| range.contains(&comment.start))
            .filter_map(|comment| self.text.get(comment))
            .map(|comment| format!("{}{}{}", " ".repeat(indent), comment.trim_end(), self.eol))
            .collect();
        Ok(self.splice(range, &kept))
    }

    fn splice(&self, range: Range<usize>, new: &str) -> String {
        let before = self.text.get(..range.start).unwrap_or_default();
        let after = self.text.get(range.end..).unwrap_or_default();
        [before, new, after].concat()
    }

    fn is_flow(&self, node: &Node) -> bool {
        !node.alias
            && matches!(node.kind, Kind::Map(_) | Kind::List(_))
            && node
                .span
                .as_ref()
                .and_then(|span| self.text.get(span.start..))
                .is_some_and(|rest| rest.starts_with(['{', '[']))
    }

    /// Where the colon after a key is.
    fn colon(&self, key: &Node) -> Option<usize> {
        let end = key.span.clone()?.end;
        let rest = self.text.get(end..)?;
        let blank = rest.len() - rest.trim_start().len();
        rest.get(blank..)?.starts_with(':').then_some(end + blank)
    }

    /// Where an entry of a map ends.
    fn entry_end(&self, key: &Node, value: &Node) -> Option<usize> {
        self.end(value)
            .or_else(|| self.colon(key).map(|colon| colon + 1))
            .or_else(|| Some(key.span.clone()?.end))
    }

    /// Where a node ends; `None` if it has no text of its own.
    fn end(&self, node: &Node) -> Option<usize> {
        let span = node.span.clone()?;
        let inner = match &node.kind {
            _ if node.alias => return Some(span.end),
            Kind::Null if span.is_empty() => return None,
            Kind::List(items) => {
                items.last().map(|item| self.end(item).or_else(|| Some(item.span.clone()?.start)))
            }
            Kind::Map(entries) => entries.last().map(|(key, value)| self.entry_end(key, value)),
            _ => {
                // A block scalar's span goes on to the next node.
                let text = self.text.get(span.clone())?;
                return Some(span.start + text.trim_end().len());
            }
        };
        if !self.is_flow(node) {
            return inner.flatten();
        }
        let closing = if self.text.get(span.start..)?.starts_with('{') { '}' } else { ']' };
        let mut at = match inner {
            Some(inner) => inner?,
            None => span.start + 1,
        };
        loop {
            let rest = self.text.get(at..)?;
            let c = rest.chars().next()?;
            match c {
                _ if c == closing => return Some(at + 1),
                '#' => at = self.line_stop(at),
                ',' => at += 1,
                c if c.is_whitespace() => at += c.len_utf8(),
                _ => return None,
            }
        }
    }

    /// Where the text of the line that holds `at` stops, its line end not included.
    fn line_stop(&self, at: usize) -> usize {
        let rest = self.text.get(at..).unwrap_or_default();
        let line = rest.split('\n').next().unwrap_or_default();
        at + line.strip_suffix('\r').unwrap_or(line).len()
    }

    fn next_line(&self, at: usize) -> usize {
        self.text.get(at..).and_then(|rest| rest.find('\n')).map_or(self.text.len(), |length| at + length + 1)
    }

    /// How many blanks stand before a key, if nothing else does.
    fn column(&self, key: &Node) -> Option<usize> {
        let before = self.text.get(..key.span.clone()?.start)?;
        let line = before.rsplit('\n').next()?;
        line.bytes().all(|b| b == b' ').then_some(line.len())
    }

    fn find_step(&self) -> Option<usize> {
        self.root.entries().iter().find_map(|(key, value)| {
            let (child, _) = value.entries().first()?;
            if self.is_flow(value) || value.alias {
                return None;
            }
            self.column(child)?.checked_sub(self.column(key)?).filter(|step| (1..=16).contains(step))
        })
    }
}

fn map_start(entries: &[(Node, Node)], index: usize) -> Option<usize> {
    entries.get(index).and_then(|(key, _)| key.span.clone()).map(|span| span.start)
}

fn shape_at(node: &Node) -> Refusal {
    Refusal { line: node.line, kind: RefusalKind::Shape }
}

/// The comments of a text, in their order.
fn comments<'a>(text: &'a str, root: &Node) -> Vec<&'a str> {
    comment_spans(text, root).into_iter().filter_map(|span| text.get(span)).map(str::trim_end).collect()
}

/// A comment is a `#` that no scalar contains, after a blank or at the start of a line.
fn comment_spans(text: &str, root: &Node) -> Vec<Range<usize>> {
    let mut scalars = Vec::new();
    collect_scalars(root, &mut scalars);
    scalars.sort_by_key(|span| span.start);
    let mut found = Vec::new();
    let mut at = 0;
    for scalar in scalars.into_iter().chain(std::iter::once(text.len()..text.len())) {
        while at < scalar.start {
            let Some(offset) = text.get(at..scalar.start).and_then(|gap| gap.find('#')) else { break };
            let start = at + offset;
            if text
                .get(..start)
                .is_some_and(|before| before.is_empty() || before.ends_with([' ', '\t', '\n', '\r']))
            {
                let length = text.get(start..).and_then(|rest| rest.find('\n')).unwrap_or(text.len() - start);
                found.push(start..start + length);
                at = start + length;
            } else {
                at = start + 1;
            }
        }
        at = at.max(scalar.end);
    }
    found
}

fn collect_scalars(node: &Node, spans: &mut Vec<Range<usize>>) {
    match &node.kind {
        Kind::List(items) if !node.alias => items.iter().for_each(|item| collect_scalars(item, spans)),
        Kind::Map(entries) if !node.alias => {
            for (key, value) in entries {
                collect_scalars(key, spans);
                collect_scalars(value, spans);
            }
        }
        _ => spans.extend(node.span.clone().filter(|span| !span.is_empty())),
    }
}
