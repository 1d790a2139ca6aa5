//! What an account holds of ours: sandboxes by their labels.

use crate::client::{Client, State};
use crate::error::explain;
use crate::labels;
use crate::steps;
use farshell_engine::Result;
use farshell_engine::backend::{Found, TaskName};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// All sandboxes of this owner. A list is right in the long run only, and each is looked at again before it is removed.
pub(crate) async fn all(client: &Client, owner: &str) -> Result<Vec<Found>> {
    let wanted = BTreeMap::from([(labels::OWNER.to_owned(), owner.to_owned())]);
    let listed = client.list(&wanted, None).await.map_err(|e| explain("listing sandboxes", e))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut found: Vec<Found> = listed
        .into_iter()
        .filter(|sandbox| sandbox.labels.get(labels::OWNER).map(String::as_str) == Some(owner))
        .filter(|sandbox| !matches!(sandbox.state, State::Destroyed | State::Destroying))
        .map(|sandbox| Found {
            task: sandbox.labels.get(labels::TASK).and_then(|task| TaskName::new(task).ok()),
            owner: owner.to_owned(),
            spec_hash: sandbox.labels.get(labels::SPEC).cloned(),
            age: sandbox.created_at.as_deref().and_then(since_1970).map(|at| now.saturating_sub(at)),
            alive: !steps::sleeps(&sandbox.state),
            name: sandbox.name,
            id: sandbox.id,
        })
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// `2026-11-15T18:09:11.8Z`, in UTC as Daytona writes it.
fn since_1970(text: &str) -> Option<Duration> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let numbers = |text: &str, by: char| -> Option<[u64; 3]> {
        let mut parts = text.split(by).map(|part| part.split('.').next()?.parse().ok());
        Some([parts.next()??, parts.next()??, parts.next()??])
    };
    let ([year, month, day], [hour, minute, second]) = (numbers(date, '-')?, numbers(time, ':')?);
    if !(1970..10_000).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years are counted from March, so that the odd day comes last.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = y * 365 + y / 4 - y / 100 + y / 400 + (m * 153 + 2) / 5 + day - 1;
    let days = days.checked_sub(719_468)?;
    Some(Duration::from_secs(days * 86_400 + hour * 3600 + minute * 60 + second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_a_sandbox_was_made() {
        let seconds = |text| since_1970(text).map(|at| at.as_secs());
        assert_eq!(seconds("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(seconds("2000-02-29T12:34:56.789Z"), Some(951_827_696));
        assert_eq!(seconds("2026-11-15T23:59:59.1Z"), Some(1_794_787_199));
        for bad in ["", "2026-11-15", "2026-13-01T00:00:00Z", "x-y-zT::Z", "2026-11-15T23:59:59+01:00"] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }
}
