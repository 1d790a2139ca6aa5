//! Answers in the shapes that Daytona has.

use axum::Json;
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// A refusal of the control plane.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(status: u16, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = json!({
            "path": "/api",
            "timestamp": now(),
            "statusCode": self.status,
            "error": status.canonical_reason().unwrap_or("Error"),
            "message": self.message,
        });
        (status, Json(body)).into_response()
    }
}

/// A refusal of the proxy or the toolbox, in the first of its shapes.
pub(crate) fn toolbox(status: u16, code: &str, message: &str) -> Response {
    let body = json!({
        "statusCode": status, "message": message, "code": code, "timestamp": now(), "path": "", "method": "",
    });
    answer(status, &body)
}

pub(crate) fn answer(status: u16, body: &Value) -> Response {
    (StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), Json(body)).into_response()
}

/// The second shape: nothing at all.
pub(crate) fn empty(status: u16) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

pub(crate) fn now() -> String {
    timestamp(SystemTime::now())
}

/// RFC 3339 with milliseconds.
pub(crate) fn timestamp(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (date, time) = civil(since.as_secs());
    format!("{date}T{time}.{:03}Z", since.subsec_millis())
}

/// Date and time of day of a second since 1970.
pub(crate) fn civil(seconds: u64) -> (String, String) {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Years are counted from March, so that the odd day comes last.
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (
        format!("{year:04}-{month:02}-{day:02}"),
        format!("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        let text = |seconds| {
            let (date, time) = civil(seconds);
            format!("{date} {time}")
        };
        assert_eq!(text(0), "1970-01-01 00:00:00");
        assert_eq!(text(951_827_696), "2000-02-29 12:34:56");
        assert_eq!(text(1_794_787_199), "2026-11-15 23:59:59");
    }
}
