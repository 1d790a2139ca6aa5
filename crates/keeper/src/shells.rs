//! The sessions of an environment, as far as their callers have to be told when they are lost.
//!
//! A shell lives in its outpost and dies with it. Whoever uses a session next finds a fresh one, and is told so once,
//! with the reason.

use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Sessions that are remembered, of each environment.
const MOST: usize = 1000;
/// Where a record has them.
const OPEN: &str = "sessions";
const LOST: &str = "lost";

#[derive(Debug, Default)]
pub(crate) struct Shells {
    /// Those that are open, by the names that the outpost has for them.
    open: BTreeSet<String>,
    lost: Option<Lost>,
}

/// Sessions whose shells are gone, for whoever uses them next.
#[derive(Debug)]
struct Lost {
    why: String,
    sessions: BTreeSet<String>,
}

/// What the opening of a session came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    /// Set if it had been there before, and was lost.
    pub(crate) note: Option<String>,
    /// There is something to be recorded.
    pub(crate) changed: bool,
}

impl Shells {
    /// As an earlier keeper has recorded them.
    pub(crate) fn recorded(settings: &Value) -> Self {
        let names = |value: Option<&Value>| {
            value.and_then(|names| serde_json::from_value(names.clone()).ok()).unwrap_or_default()
        };
        let lost = settings.get(LOST).map(|lost| Lost {
            why: lost.get("why").and_then(Value::as_str).unwrap_or_default().to_owned(),
            sessions: names(lost.get("sessions")),
        });
        Self { open: names(settings.get(OPEN)), lost }
    }

    pub(crate) fn record(&self, settings: &mut Map<String, Value>) {
        settings.insert(OPEN.into(), json!(self.open));
        match &self.lost {
            Some(lost) => settings.insert(LOST.into(), json!({ "why": lost.why, "sessions": lost.sessions })),
            None => settings.remove(LOST),
        };
    }

    pub(crate) fn opened(&mut self, name: &str) -> Opened {
        let full = self.open.len() >= MOST && !self.open.contains(name);
        let fresh = !full && self.open.insert(name.to_owned());
        let lost = self.lost.as_mut().is_some_and(|lost| lost.sessions.remove(name));
        let why = match &self.lost {
            Some(known) if lost => Some(known.why.as_str()),
            // It was open, as far as anybody knew.
            _ => (!fresh && !full).then_some("its outpost was lost"),
        };
        let note = why.map(|why| format!("the session began anew: {why}"));
        self.lost.take_if(|lost| lost.sessions.is_empty());
        Opened { changed: fresh || note.is_some(), note }
    }

    /// All of them are gone.
    pub(crate) fn lost(&mut self, why: &str) {
        let mut sessions = std::mem::take(&mut self.open);
        sessions.extend(self.lost.take().into_iter().flat_map(|before| before.sessions));
        if !sessions.is_empty() {
            self.lost = Some(Lost { why: why.to_owned(), sessions });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_session_is_told_once_also_by_the_next_keeper() {
        let opened = |note: Option<&str>| Opened { note: note.map(str::to_owned), changed: true };
        let mut shells = Shells::default();
        shells.lost("nothing was there");
        for name in ["a", "b"] {
            assert_eq!(shells.opened(name), opened(None));
        }
        shells.lost("of fire");
        assert_eq!(shells.opened("a"), opened(Some("the session began anew: of fire")));
        shells.lost("of water");
        let mut settings = Map::new();
        shells.record(&mut settings);
        let mut shells = Shells::recorded(&settings.into());
        assert_eq!(shells.opened("c"), opened(None));
        assert_eq!(shells.opened("b"), opened(Some("the session began anew: of water")));
        assert_eq!(shells.opened("a"), opened(Some("the session began anew: of water")));
        assert!(shells.lost.is_none());
        assert_eq!(shells.opened("a"), opened(Some("the session began anew: its outpost was lost")));
    }
}
