//! Lists: eventually right, in pages.

use super::{Asked, Pairs, Shared};
use crate::reply::Refusal;
use axum::extract::{Query, State};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

fn matching(world: &crate::world::World, asked: &Pairs) -> Result<Vec<Value>, Refusal> {
    let labels: Map<String, Value> = match asked.get("labels").filter(|text| !text.is_empty()) {
        Some(text) => {
            serde_json::from_str(text).map_err(|_| Refusal::new(400, "Invalid labels JSON format"))?
        }
        None => Map::new(),
    };
    let prefix = |name: &str, value: &Value| {
        let wanted = asked.get(name).unwrap_or_default().to_lowercase();
        value.get(name).and_then(Value::as_str).is_some_and(|text| text.to_lowercase().starts_with(&wanted))
    };
    let states: Vec<&str> = asked.all("states").flat_map(|states| states.split(',')).collect();
    let mut found: Vec<Value> = world.listed();
    found.retain(|item| {
        let state = item.get("state").and_then(Value::as_str).unwrap_or_default();
        !matches!(state, "destroyed" | "destroying")
            && labels.iter().all(|(name, value)| item.get("labels").and_then(|l| l.get(name)) == Some(value))
            && prefix("name", item)
            && prefix("id", item)
            && (states.is_empty() || states.contains(&state))
    });
    let key = |item: &Value| item.get("lastActivityAt").and_then(Value::as_str).map(str::to_owned);
    found.sort_by_key(|item| std::cmp::Reverse(key(item)));
    Ok(found)
}

pub(super) async fn list(State(world): Shared, Query(asked): Asked) -> Result<Response, Refusal> {
    let found = matching(&world, &asked)?;
    let limit: usize = asked.get("limit").and_then(|n| n.parse().ok()).unwrap_or(100);
    if limit == 0 || limit > 100 {
        return Err(Refusal::new(400, "limit must not be greater than 100"));
    }
    let start = match asked.get("cursor") {
        Some(cursor) => STANDARD
            .decode(cursor)
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).ok()?.parse().ok())
            .ok_or_else(|| Refusal::new(400, "Invalid cursor"))?,
        None => 0_usize,
    };
    let next = (start + limit < found.len()).then(|| STANDARD.encode((start + limit).to_string()));
    let items: Vec<Value> = found.into_iter().skip(start).take(limit).collect();
    Ok(super::plain(200, &json!({ "items": items, "nextCursor": next })))
}

/// What clients before 0.190 ask for.
pub(super) async fn paginated(State(world): Shared, Query(asked): Asked) -> Result<Response, Refusal> {
    let found = matching(&world, &asked)?;
    let number =
        |name: &str, usual: usize| asked.get(name).and_then(|n| n.parse().ok()).unwrap_or(usual).max(1);
    let (page, limit) = (number("page", 1), number("limit", 100));
    let total = found.len();
    // These are whole sandboxes, not the shorter items.
    let items: Vec<Value> = found
        .into_iter()
        .skip((page - 1) * limit)
        .take(limit)
        .map(|mut item| {
            item["env"] = json!({});
            item["volumes"] = json!([]);
            item
        })
        .collect();
    let pages = total.div_ceil(limit);
    Ok(super::plain(200, &json!({ "items": items, "total": total, "page": page, "totalPages": pages })))
}
