//! Paths in a query. They are bytes, and percent-encoding can say any byte; only the rest of the query is text.

use crate::input::{Input, Shape, Taken};
use crate::refusal::Refusal;
use axum::http::Uri;
use farshell_engine::Kind;
use schemars::SchemaGenerator;
use serde_json::json;

/// The parameters `root` and `path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Paths {
    pub(crate) root: Option<Vec<u8>>,
    pub(crate) path: Vec<u8>,
}

impl Paths {
    /// A root and what is below it: for one without a root, its directory and its name.
    pub(crate) fn split(&self) -> (Vec<u8>, Vec<u8>) {
        if let Some(root) = &self.root {
            return (root.clone(), self.path.clone());
        }
        match self.path.iter().rposition(|byte| *byte == b'/') {
            Some(0) => (b"/".to_vec(), self.path[1..].to_vec()),
            Some(at) => (self.path[..at].to_vec(), self.path[at + 1..].to_vec()),
            None => (b".".to_vec(), self.path.clone()),
        }
    }

    /// Takes the two out of a query, and gives what is left of it.
    fn of(query: &str) -> Result<(Self, String), Refusal> {
        let invalid = |message: String| Refusal::new(Kind::Invalid, "reading the request", message);
        let (mut root, mut path, mut rest) = (None, None, Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let slot = match name {
                "root" => &mut root,
                "path" => &mut path,
                _ => {
                    rest.push(pair);
                    continue;
                }
            };
            if slot.replace(decode(value)).is_some() {
                return Err(invalid(format!("the query: `{name}` is given twice")));
            }
        }
        let path = path.ok_or_else(|| invalid("the query: missing parameter `path`".into()))?;
        Ok((Self { root, path }, rest.join("&")))
    }
}

/// What is not percent-encoded stands for itself, but for `+`.
fn decode(text: &str) -> Vec<u8> {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at += 1;
        match (byte, digit(bytes.get(at)), digit(bytes.get(at + 1))) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 2;
            }
            (b'+', ..) => out.push(b' '),
            (byte, ..) => out.push(*byte),
        }
    }
    out
}

impl Input for Paths {
    async fn take(taken: &mut Taken) -> Result<Self, Refusal> {
        let (paths, rest) = Self::of(taken.uri().query().unwrap_or_default())?;
        // What is left is for whoever comes next.
        let uri = Uri::builder().path_and_query(format!("{}?{rest}", taken.uri().path())).build();
        taken.set_uri(uri.map_err(|e| Refusal::new(Kind::Invalid, "reading the request", e.to_string()))?);
        Ok(paths)
    }

    fn describe(_: &mut SchemaGenerator, shape: &mut Shape) {
        let bytes = "Percent-encoded bytes, which need not be UTF-8.";
        for (name, required, what) in [
            ("path", true, "A relative one starts from the session's directory, or from the root."),
            ("root", false, "The path is below it, and no link is followed on its way or at its end."),
        ] {
            shape.query.push(json!({
                "name": name,
                "in": "query",
                "required": required,
                "description": format!("{what} {bytes}"),
                "schema": {"type": "string"}
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_bytes_and_the_rest_is_left() {
        let (paths, rest) = Paths::of("limit=3&path=%ff%2Fa+b%&root=&follow=true").unwrap();
        assert_eq!(paths, Paths { root: Some(Vec::new()), path: b"\xff/a b%".to_vec() });
        assert_eq!(rest, "limit=3&follow=true");
        assert!(Paths::of("root=/").is_err());
        assert!(Paths::of("path=a&path=b").is_err());
    }

    #[test]
    fn a_path_without_a_root_is_split_before_its_name() {
        let split = |path: &str| {
            let (root, path) = Paths { root: None, path: path.into() }.split();
            (String::from_utf8(root).unwrap(), String::from_utf8(path).unwrap())
        };
        assert_eq!(split("/etc/hosts"), ("/etc".into(), "hosts".into()));
        assert_eq!(split("/etc"), ("/".into(), "etc".into()));
        assert_eq!(split("name"), (".".into(), "name".into()));
        assert_eq!(split("~/a/b"), ("~/a".into(), "b".into()));
    }
}
