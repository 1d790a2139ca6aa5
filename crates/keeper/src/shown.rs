//! An environment as the API shows it.

use crate::slot::{LIMITS, Phase, Slot};
use crate::{now, request};
use farshell_api::environment::{Environment, Limit, Progress};
use farshell_engine::Place;
use farshell_engine::backend::Capabilities;
use std::collections::BTreeMap;
use tokio::time::Instant;

impl Slot {
    /// As the API shows it.
    pub(crate) fn shown(&self) -> Environment {
        let inner = self.lock();
        let row = inner.row();
        let left = inner.expiry().map(|expiry| expiry.saturating_duration_since(Instant::now()));
        let limits = row.settings.get(LIMITS).and_then(|limits| serde_json::from_value(limits.clone()).ok());
        Environment {
            key: row.key,
            backend: row.backend,
            tasks: row.tasks,
            state: row.state,
            place: row.place,
            spec_hash: row.spec_hash,
            spec: row.spec,
            created_at: row.created_at,
            last_used_at: row.last_used_at,
            foreground: inner.foreground,
            background: inner.background,
            lifetime_seconds: row.lifetime_seconds,
            expires_at: left.map(|left| now().saturating_add(request::millis(left))),
            limits: limits.unwrap_or_default(),
            status: match &inner.phase {
                Phase::Ready(live) => live.place.status(),
                _ => None,
            },
            progress: self.news.borrow().as_ref().map(|news| Progress {
                message: news.message.clone(),
                done: news.part.map(|(done, _)| done),
                total: news.part.map(|(_, total)| total),
            }),
            note: row.note,
        }
    }
}

/// What a place says of limits, and its backend of those of which the place says nothing.
pub(crate) fn limits(capabilities: Capabilities, place: &dyn Place) -> BTreeMap<String, Limit> {
    let mut limits: BTreeMap<String, Limit> = [
        ("cpu", capabilities.limits_cpu),
        ("memory", capabilities.limits_memory),
        ("disk", capabilities.limits_disk),
        ("processes", capabilities.limits_processes),
    ]
    .map(|(name, support)| {
        (name.to_owned(), Limit { support: support.name().to_owned(), value: None, note: None })
    })
    .into();
    for limit in place.limits() {
        let shown =
            Limit { support: limit.support.name().to_owned(), value: Some(limit.value), note: limit.note };
        limits.insert(limit.name.to_owned(), shown);
    }
    limits
}
