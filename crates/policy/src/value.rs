//! What is known of a word before it runs: text, patterns, and gaps.

/// A stretch of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    Known(String),
    /// An active `*`, `?` or `[`, for the shell to match against files.
    Glob(char),
    /// Anything, also nothing.
    Unknown,
}

/// One word of a command after expansion, as far as it can be told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Arg {
    pieces: Vec<Piece>,
    /// An unquoted gap is in it: it may turn out to be several words, or none.
    pub(crate) splits: bool,
}

/// Stands for a gap where an argument is shown as text.
pub(crate) const GAP: char = '\u{1}';

impl Arg {
    pub(crate) fn known(text: impl Into<String>) -> Self {
        Self { pieces: vec![Piece::Known(text.into())], splits: false }
    }

    pub(crate) fn unknown() -> Self {
        Self { pieces: vec![Piece::Unknown], splits: false }
    }

    /// From text in which `*`, `?`, `[` and [`GAP`] mean what they say.
    pub(crate) fn pattern_of(text: &str) -> Self {
        let mut arg = Self::default();
        for c in text.chars() {
            arg.push(match c {
                GAP => Piece::Unknown,
                '*' | '?' | '[' => Piece::Glob(c),
                c => Piece::Known(c.into()),
            });
        }
        arg
    }

    pub(crate) fn push(&mut self, piece: Piece) {
        match (self.pieces.last_mut(), piece) {
            (Some(Piece::Known(text)), Piece::Known(more)) => text.push_str(&more),
            (Some(Piece::Unknown), Piece::Unknown) => {}
            (_, piece) => self.pieces.push(piece),
        }
    }

    pub(crate) fn append(&mut self, other: &Arg) {
        for piece in &other.pieces {
            self.push(piece.clone());
        }
        self.splits |= other.splits;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The text, if all of it is known.
    pub(crate) fn literal(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [] => Some(""),
            [Piece::Known(text)] => Some(text),
            _ => None,
        }
    }

    pub(crate) fn is_unknown(&self) -> bool {
        self.pieces.contains(&Piece::Unknown)
    }

    pub(crate) fn has_glob(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Glob(_)))
    }

    /// Makes text of a `[` that has no `]`: the command of that name, for one.
    pub(crate) fn settle(&mut self) {
        let open = Piece::Glob('[');
        if !self.pieces.contains(&open) {
            return;
        }
        let close =
            self.pieces.iter().rposition(|piece| matches!(piece, Piece::Known(text) if text.contains(']')));
        let pieces = std::mem::take(&mut self.pieces);
        for (at, piece) in pieces.into_iter().enumerate() {
            let closed = close.is_some_and(|close| close > at);
            self.push(if piece == open && !closed { Piece::Known("[".into()) } else { piece });
        }
    }

    /// What it begins with for certain.
    pub(crate) fn prefix(&self) -> &str {
        match self.pieces.first() {
            Some(Piece::Known(text)) => text,
            _ => "",
        }
    }

    pub(crate) fn last(&self) -> Option<&Piece> {
        self.pieces.last()
    }

    /// The rest behind `count` bytes of known text.
    pub(crate) fn skip(&self, count: usize) -> Arg {
        let mut rest = self.clone();
        if let Some(Piece::Known(text)) = rest.pieces.first_mut() {
            *text = text.get(count..).unwrap_or_default().to_owned();
        }
        rest
    }

    /// As text: patterns as they are, [`GAP`] for a gap.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Known(known) => text.push_str(known),
                Piece::Glob(c) => text.push(*c),
                Piece::Unknown => text.push(GAP),
            }
        }
        text
    }

    /// For a person.
    pub(crate) fn shown(&self) -> String {
        self.text().replace(GAP, "…")
    }

    /// Whether it may turn out to be `text`.
    pub(crate) fn could_be(&self, text: &str) -> bool {
        self.pattern().matches(text)
    }

    fn pattern(&self) -> Pattern {
        let mut tokens = Vec::new();
        let mut pieces = self.pieces.iter().peekable();
        while let Some(piece) = pieces.next() {
            match piece {
                Piece::Known(text) => tokens.extend(text.chars().map(Token::Char)),
                Piece::Unknown | Piece::Glob('*') => tokens.push(Token::Any),
                // `[[:alpha:]]` and its kin, wherever they end: could be anything.
                Piece::Glob('[') if matches!(pieces.peek(), Some(Piece::Glob(_))) => {
                    tokens.push(Token::Any);
                    break;
                }
                Piece::Glob('[') => {
                    let class = pieces.peek().and_then(|next| match next {
                        Piece::Known(text) => text.split_once(']').filter(|(inside, _)| !inside.is_empty()),
                        _ => None,
                    });
                    match class {
                        Some((inside, rest)) => {
                            tokens.push(Token::class(inside));
                            tokens.extend(rest.chars().map(Token::Char));
                            pieces.next();
                        }
                        None => tokens.push(Token::Any),
                    }
                }
                Piece::Glob(_) => tokens.push(Token::One),
            }
        }
        Pattern { tokens }
    }
}

/// A glob: `*`, `?` and `[…]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    tokens: Vec<Token>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Char(char),
    Any,
    One,
    Class { ranges: Vec<(char, char)>, negated: bool },
}

impl Token {
    fn class(inside: &str) -> Self {
        let (inside, negated) = match inside.strip_prefix(['!', '^']) {
            Some(rest) if !rest.is_empty() => (rest, true),
            _ => (inside, false),
        };
        let chars: Vec<char> = inside.chars().collect();
        let mut ranges = Vec::new();
        let mut at = 0;
        while at < chars.len() {
            if at + 2 < chars.len() && chars[at + 1] == '-' {
                ranges.push((chars[at], chars[at + 2]));
                at += 3;
            } else {
                ranges.push((chars[at], chars[at]));
                at += 1;
            }
        }
        Self::Class { ranges, negated }
    }

    fn accepts(&self, c: char) -> bool {
        match self {
            Self::Char(expected) => *expected == c,
            Self::Any | Self::One => true,
            Self::Class { ranges, negated } => {
                ranges.iter().any(|&(from, to)| from <= c && c <= to) != *negated
            }
        }
    }
}

impl Pattern {
    pub(crate) fn new(text: &str) -> Self {
        Arg::pattern_of(text).pattern()
    }

    /// In time proportional to both lengths: after a mismatch only the last `*` is moved on.
    pub(crate) fn matches(&self, text: &str) -> bool {
        let text: Vec<char> = text.chars().collect();
        let (mut at, mut token) = (0, 0);
        let mut retry: Option<(usize, usize)> = None;
        while at < text.len() {
            match self.tokens.get(token) {
                Some(Token::Any) => {
                    retry = Some((token + 1, at));
                    token += 1;
                }
                Some(expected) if expected.accepts(text[at]) => {
                    at += 1;
                    token += 1;
                }
                _ => match &mut retry {
                    Some((after, from)) => {
                        *from += 1;
                        (token, at) = (*after, *from);
                    }
                    None => return false,
                },
            }
        }
        self.tokens[token..].iter().all(|token| *token == Token::Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        assert!(Pattern::new("/bin/r?").matches("/bin/rm"));
        assert!(Pattern::new("r[a-z]").matches("rm"));
        assert!(!Pattern::new("r[!m]").matches("rm"));
        assert!(Pattern::new("*a*b*c").matches("xxaxxbxxbc"));
        assert!(!Pattern::new("*a*b*c").matches("xxaxxbxxb"));
        assert!(Pattern::new("").matches(""));
        assert!(Pattern::new("r[[:alpha:]]").matches("rm]"));
    }
}
