//! Brace expansion.

use crate::syntax::ast::{Part, Word};

/// Words that braces may make of one.
const MAX_BRACES: usize = 64;
/// Parts of a word in which braces are looked for.
const MAX_PARTS: usize = 1000;

/// Brace expansion: `{a,b}` and `{1..3}`, one list of parts for each word that comes out.
pub(super) fn braces(parts: &[Part]) -> Vec<Vec<Part>> {
    let is = |part: &Part, c: char| matches!(part, Part::Brace(found) if *found == c);
    if !parts.iter().any(|part| is(part, '{')) {
        return vec![parts.to_vec()];
    }
    // Too many to follow: one word of which nothing is known.
    let gap = vec![vec![Part::Arithmetic(Word::default())]];
    if parts.len() > MAX_PARTS {
        return gap;
    }
    let mut work = vec![parts.to_vec()];
    let mut done = Vec::new();
    while let Some(parts) = work.pop() {
        if done.len() + work.len() > MAX_BRACES {
            return gap;
        }
        // The first opening brace whose closing one has a comma or a range in it.
        let found = parts.iter().enumerate().filter(|(_, part)| is(part, '{')).take(MAX_BRACES).find_map(
            |(open, _)| {
                let mut level = 0usize;
                let mut commas = Vec::new();
                for (at, part) in parts.iter().enumerate().skip(open) {
                    match part {
                        Part::Brace('{') => level += 1,
                        Part::Brace('}') => {
                            level -= 1;
                            if level == 0 {
                                return alternatives(&parts[open + 1..at], open + 1, &commas)
                                    .map(|alternatives| (open, at, alternatives));
                            }
                        }
                        Part::Brace(',') if level == 1 => commas.push(at),
                        _ => {}
                    }
                }
                None
            },
        );
        match found {
            None => done.push(parts),
            Some((open, close, alternatives)) => {
                for alternative in alternatives.into_iter().rev() {
                    let mut next = parts[..open].to_vec();
                    next.extend(alternative);
                    next.extend_from_slice(&parts[close + 1..]);
                    work.push(next);
                }
            }
        }
    }
    done
}

fn alternatives(inside: &[Part], start: usize, commas: &[usize]) -> Option<Vec<Vec<Part>>> {
    if !commas.is_empty() {
        let mut all = Vec::new();
        let mut from = 0;
        for comma in commas {
            all.push(inside[from..comma - start].to_vec());
            from = comma - start + 1;
        }
        all.push(inside[from..].to_vec());
        return Some(all);
    }
    let [Part::Text(range)] = inside else { return None };
    let (from, to) = range.split_once("..")?;
    let one = |text: &str| {
        let mut chars = text.chars();
        match (chars.next(), chars.next()) {
            (Some(c), None) => Some(c),
            _ => None,
        }
    };
    match (one(from), one(to)) {
        (Some(from), Some(to)) if from <= to && (to as u32 - from as u32) < 32 => {
            Some((from..=to).map(|c| vec![Part::Text(c.into())]).collect())
        }
        // Many numbers: the ends and a gap for the rest.
        _ => Some(vec![
            vec![Part::Text(from.into())],
            vec![Part::Arithmetic(Word::default())],
            vec![Part::Text(to.split("..").next().unwrap_or_default().into())],
        ]),
    }
}
