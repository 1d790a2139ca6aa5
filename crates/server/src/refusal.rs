//! Answers that are not a success: a status, and an error for programs and people.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use farshell_api::ApiError;
use farshell_api::error::ErrorBody;
use farshell_engine::{Error, Kind, Retry};

/// Why a request was not done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) error: Box<ApiError>,
}

impl Refusal {
    pub(crate) fn new(kind: Kind, operation: impl Into<String>, message: impl Into<String>) -> Self {
        Error::new(kind, operation, message).into()
    }

    /// With another status than the kind's own.
    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.error.hint = Some(hint.into());
        self
    }

    pub(crate) fn with_retry(mut self, retry: Retry) -> Self {
        self.error.retry = retry_name(retry).into();
        self
    }

    /// The server ends: somebody else has to be asked.
    pub(crate) fn stopping() -> Self {
        Self::new(Kind::Disconnected, "answering", "the server is stopping")
            .with_hint("ask again: the next server takes over where this one stops")
    }

    /// The server ended before what it was asked for was done.
    pub(crate) fn interrupted() -> Self {
        Self::new(Kind::Disconnected, "answering", "the server stopped in the middle of it")
            .with_hint("look at what has become of it before you ask again")
            .with_retry(Retry::Unsafe)
    }

    /// The server itself failed. What is behind it stands in its log.
    pub(crate) fn panicked() -> Self {
        Self::new(Kind::System, "answering", "the server has a fault, and it has struck here")
            .with_hint("the server's log says where; please report it")
            .with_retry(Retry::Unsafe)
    }

    pub(crate) fn response(self) -> Response<Body> {
        let unauthorized = self.status == StatusCode::UNAUTHORIZED;
        let mut response = json(self.status, &ErrorBody { error: *self.error });
        if unauthorized {
            let value = HeaderValue::from_static("Bearer realm=\"farshell\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, value);
        }
        response
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self { status: status(error.kind), error: Box::new(api_error(error)) }
    }
}

pub(crate) fn api_error(error: Error) -> ApiError {
    let retry = retry_name(error.retry()).into();
    let kind = error.kind.name().into();
    ApiError { kind, operation: error.operation, message: error.message, hint: error.hint, retry }
}

fn retry_name(retry: Retry) -> &'static str {
    match retry {
        Retry::Never => "never",
        Retry::Safe => "safe",
        Retry::Unsafe => "unsafe",
    }
}

/// The status of an error.
pub(crate) fn status(kind: Kind) -> StatusCode {
    match kind {
        Kind::Invalid => StatusCode::BAD_REQUEST,
        Kind::PermissionDenied | Kind::Denied => StatusCode::FORBIDDEN,
        Kind::NotFound => StatusCode::NOT_FOUND,
        Kind::AlreadyExists | Kind::Busy | Kind::Stale | Kind::SpecChanged | Kind::IdentityChanged => {
            StatusCode::CONFLICT
        }
        Kind::Exhausted => StatusCode::INSUFFICIENT_STORAGE,
        Kind::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        Kind::Unavailable | Kind::Disconnected => StatusCode::SERVICE_UNAVAILABLE,
        Kind::Protocol => StatusCode::BAD_GATEWAY,
        Kind::NotStarted | Kind::UnknownOutcome | Kind::System => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// An answer.
pub(crate) fn json(status: StatusCode, value: &impl serde::Serialize) -> Response<Body> {
    match serde_json::to_vec(value) {
        Ok(text) => json_text(status, text.into()),
        Err(error) => {
            let failed = Refusal::new(Kind::System, "writing the answer", error.to_string());
            let text = serde_json::to_vec(&ErrorBody { error: *failed.error }).unwrap_or_default();
            json_text(failed.status, text.into())
        }
    }
}

pub(crate) fn json_text(status: StatusCode, text: bytes::Bytes) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // What is true now is no longer true when it is asked for again.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
