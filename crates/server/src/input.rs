//! What a request carries, read strictly, and described for the OpenAPI document by the same type.

use crate::refusal::Refusal;
use axum::body::Body as RawBody;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::http::{Request, StatusCode, Uri, header};
use bytes::{Bytes, BytesMut};
use farshell_api::CLIENT_NAME;
use farshell_api::approval::Surface;
use farshell_engine::Kind;
use farshell_keeper::Origin;
use http_body_util::BodyExt;
use hyper::body::Body as _;
use schemars::{JsonSchema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::future::Future;
use std::time::Duration;

const WHAT: &str = "reading the request";
/// Largest body.
pub(crate) const MAX_BODY: usize = 16 << 20;
/// So much of a body that is too large is read all the same: most clients look for an answer only when they have
/// sent everything.
const DRAINED: usize = 64 << 20;
/// Longest pause in a body.
const PAUSE: Duration = Duration::from_secs(30);

/// What a request of one route carries.
pub(crate) trait Input: Sized + Send + 'static {
    fn take(taken: &mut Taken) -> impl Future<Output = Result<Self, Refusal>> + Send;

    fn describe(schemas: &mut SchemaGenerator, shape: &mut Shape);
}

/// A request that is being read.
#[derive(Debug)]
pub(crate) struct Taken {
    parts: Parts,
    body: RawBody,
}

impl Taken {
    pub(crate) fn uri(&self) -> &Uri {
        &self.parts.uri
    }

    pub(crate) fn set_uri(&mut self, uri: Uri) {
        self.parts.uri = uri;
    }
}

/// What the document says about an input.
#[derive(Debug, Default)]
pub(crate) struct Shape {
    pub(crate) query: Vec<Value>,
    pub(crate) body: Option<Value>,
    /// The body has fields that must be there.
    pub(crate) body_required: bool,
    /// The type's name, for people.
    pub(crate) name: Option<String>,
}

/// Reads an input; what nobody reads is refused.
pub(crate) async fn read<I: Input>(request: Request<RawBody>) -> Result<I, Refusal> {
    let (parts, body) = request.into_parts();
    let mut taken = Taken { parts, body };
    let input = I::take(&mut taken).await?;
    no_query(&taken.parts)?;
    Ok(input)
}

/// Refuses parameters that nobody has read.
pub(crate) fn no_query(parts: &Parts) -> Result<(), Refusal> {
    let Some(query) = parts.uri.query().filter(|query| !query.is_empty()) else { return Ok(()) };
    if parts.extensions.get::<Read>().is_some() {
        return Ok(());
    }
    let name = query.split(['=', '&']).next().unwrap_or_default();
    Err(Refusal::new(
        Kind::Invalid,
        WHAT,
        format!("the query: unknown parameter `{name}`, there are none here"),
    ))
}

/// Marks a query that was read.
#[derive(Clone, Debug)]
struct Read;

/// Nothing.
impl Input for () {
    async fn take(_: &mut Taken) -> Result<Self, Refusal> {
        Ok(())
    }

    fn describe(_: &mut SchemaGenerator, _: &mut Shape) {}
}

impl<A: Input, B: Input> Input for (A, B) {
    async fn take(taken: &mut Taken) -> Result<Self, Refusal> {
        let first = A::take(taken).await?;
        Ok((first, B::take(taken).await?))
    }

    fn describe(schemas: &mut SchemaGenerator, shape: &mut Shape) {
        A::describe(schemas, shape);
        B::describe(schemas, shape);
    }
}

/// Who asks, as far as the server can tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct By(pub(crate) Origin);

impl Input for By {
    async fn take(taken: &mut Taken) -> Result<Self, Refusal> {
        Ok(Self(origin(&taken.parts)))
    }

    fn describe(_: &mut SchemaGenerator, _: &mut Shape) {}
}

/// A program is what it calls itself; there is nothing better to go by, and nothing depends on it.
pub(crate) fn origin(parts: &Parts) -> Origin {
    const LONGEST: usize = 100;
    let name = parts.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
    let name = name.map(str::trim).filter(|name| !name.is_empty());
    let ours = name.is_some_and(|name| name.starts_with(CLIENT_NAME));
    Origin {
        surface: if ours { Surface::Cli } else { Surface::Http },
        client: name.map(|name| name.chars().take(LONGEST).collect()),
    }
}

/// The part of the path that names something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct At(pub(crate) String);

impl Input for At {
    async fn take(taken: &mut Taken) -> Result<Self, Refusal> {
        match Path::<String>::from_request_parts(&mut taken.parts, &()).await {
            Ok(Path(name)) => Ok(Self(name)),
            Err(rejection) => {
                Err(Refusal::new(Kind::Invalid, WHAT, format!("the path: {}", rejection.body_text())))
            }
        }
    }

    fn describe(_: &mut SchemaGenerator, _: &mut Shape) {}
}

/// Parameters after the `?`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned + JsonSchema + Send + 'static> Input for Query<T> {
    async fn take(taken: &mut Taken) -> Result<Self, Refusal> {
        let text = taken.parts.uri.query().unwrap_or_default();
        let pairs = serde_urlencoded::Deserializer::new(form_urlencoded::parse(text.as_bytes()));
        let value = serde_path_to_error::deserialize(pairs).map_err(|error| {
            let path = error.path().to_string();
            // Serde speaks of fields; here they are parameters.
            let message = error.into_inner().to_string().replacen("unknown field", "unknown parameter", 1);
            let at = if path == "." { String::new() } else { format!("`{path}`: ") };
            Refusal::new(Kind::Invalid, WHAT, format!("the query: {at}{message}"))
        })?;
        taken.parts.extensions.insert(Read);
        Ok(Self(value))
    }

    fn describe(schemas: &mut SchemaGenerator, shape: &mut Shape) {
        shape.name = Some(T::schema_name().into());
        let schema = T::json_schema(schemas).to_value();
        let required = schema.get("required").cloned().unwrap_or_default();
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
        for (name, property) in properties {
            let mut property = property.clone();
            let description = property.as_object_mut().and_then(|map| map.remove("description"));
            let needed = required.as_array().is_some_and(|list| list.contains(&json!(name)));
            let mut parameter = json!({"name": name, "in": "query", "required": needed, "schema": property});
            if let Some(description) = description {
                parameter["description"] = description;
            }
            shape.query.push(parameter);
        }
    }
}

/// A JSON body. An empty one counts as `{}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned + JsonSchema + Send + 'static> Input for Body<T> {
    async fn take(taken: &mut Taken) -> Result<Self, Refusal> {
        let announced = taken.parts.headers.get(header::CONTENT_LENGTH);
        let announced = announced.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        // A client that waits for leave to send is simply not given it.
        if announced.is_some_and(|n| n > MAX_BODY as u64) && taken.parts.headers.contains_key(header::EXPECT)
        {
            return Err(too_large());
        }
        let bytes = collect(&mut taken.body).await?;
        parse(&bytes).map(Self)
    }

    fn describe(schemas: &mut SchemaGenerator, shape: &mut Shape) {
        shape.name = Some(T::schema_name().into());
        shape.body = Some(schemas.subschema_for::<T>().to_value());
        shape.body_required = parse::<T>(b"").is_err();
    }
}

async fn collect(body: &mut RawBody) -> Result<Bytes, Refusal> {
    let mut kept = BytesMut::new();
    let mut total = 0;
    loop {
        let frame = match tokio::time::timeout(PAUSE, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => {
                return Err(Refusal::new(Kind::Invalid, WHAT, format!("the body can't be read: {error}")));
            }
            Ok(None) if total > MAX_BODY => return Err(too_large()),
            Ok(None) => return Ok(kept.freeze()),
            Err(_) => {
                let message = format!("nothing came for {} seconds in the middle of it", PAUSE.as_secs());
                return Err(
                    Refusal::new(Kind::TimedOut, WHAT, message).with_status(StatusCode::REQUEST_TIMEOUT)
                );
            }
        };
        let Ok(data) = frame.into_data() else { continue };
        total += data.len();
        if total > DRAINED {
            return Err(too_large());
        }
        if total > MAX_BODY {
            kept = BytesMut::new();
        } else if kept.is_empty() && body.is_end_stream() {
            // The usual case: all in one piece, which need not be copied.
            return Ok(data);
        } else {
            kept.extend_from_slice(&data);
        }
    }
}

fn too_large() -> Refusal {
    Refusal::new(Kind::Invalid, WHAT, format!("the body has more than {MAX_BODY} bytes"))
        .with_status(StatusCode::PAYLOAD_TOO_LARGE)
        .with_hint("send large input in pieces, or by stream")
}

/// Says where in the text, and where in the value, it went wrong.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let bytes = if bytes.iter().all(u8::is_ascii_whitespace) { b"{}" } else { bytes };
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        // A fault at the top has the path `.`.
        let at = if path == "." { String::new() } else { format!("`{path}`: ") };
        Refusal::new(Kind::Invalid, WHAT, format!("bad JSON: {at}{inner}"))
    })?;
    reader.end().map_err(|error| Refusal::new(Kind::Invalid, WHAT, format!("bad JSON: {error}")))?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use farshell_api::event::EventQuery;
    use farshell_api::process::{LogQuery, ProcessQuery, View, WaitRequest};
    use farshell_api::run::RunRequest;

    fn request(uri: &str, body: impl Into<RawBody>) -> Request<RawBody> {
        Request::builder().uri(uri).body(body.into()).unwrap()
    }

    async fn message<I: Input + std::fmt::Debug>(uri: &str, body: &str) -> String {
        let refusal = read::<I>(request(uri, body.to_owned())).await.unwrap_err();
        assert_eq!(refusal.status, StatusCode::BAD_REQUEST);
        assert_eq!(refusal.error.kind, "invalid");
        refusal.error.message
    }

    #[tokio::test]
    async fn bad_json_says_where() {
        type Run = Body<RunRequest>;
        assert_eq!(
            message::<Run>("/", "{\"start\": {\n \"command\": }").await,
            "bad JSON: `start.command`: expected value at line 2 column 13"
        );
        assert_eq!(
            message::<Run>("/", r#"{"start": {"command": "x", "target": {"tsk": "a"}}}"#).await,
            "bad JSON: `start.target.tsk`: unknown field `tsk`, expected one of `task`, `backend`, `caller`, `approvals` at line 1 column 43"
        );
        assert_eq!(
            message::<Run>("/", r#"{"start": {"command": "x", "timeout": "1"}}"#).await,
            "bad JSON: `start.timeout`: invalid type: string \"1\", expected f64 at line 1 column 41"
        );
        assert_eq!(message::<Run>("/", "").await, "bad JSON: missing field `start` at line 1 column 2");
        assert_eq!(
            message::<Body<WaitRequest>>("/", "{} {}").await,
            "bad JSON: trailing characters at line 1 column 4"
        );
    }

    #[tokio::test]
    async fn an_empty_body_has_all_defaults() {
        let Body(wait) = read::<Body<WaitRequest>>(request("/", " \n")).await.unwrap();
        assert_eq!(wait, WaitRequest::default());
    }

    #[tokio::test]
    async fn queries_are_strict() {
        let Query(query) =
            read::<Query<LogQuery>>(request("/?view=stderr&offset=-10&len=5", "")).await.unwrap();
        assert_eq!(
            query,
            LogQuery { view: View::Stderr, offset: Some(-10), len: Some(5), ..LogQuery::default() }
        );
        let Query(query) = read::<Query<ProcessQuery>>(request("/?all=true&task=a%20b", "")).await.unwrap();
        assert_eq!(query, ProcessQuery { task: Some("a b".into()), all: true });
        let Query(query) = read::<Query<EventQuery>>(request("/?wait=1.5", "")).await.unwrap();
        assert_eq!(query.wait, Some(1.5));
        assert_eq!(
            message::<Query<ProcessQuery>>("/?al=true", "").await,
            "the query: `al`: unknown parameter `al`, expected `task` or `all`"
        );
        assert_eq!(
            message::<Query<LogQuery>>("/?offset=x", "").await,
            "the query: `offset`: invalid digit found in string"
        );
        assert_eq!(
            message::<()>("/?all=1", "").await,
            "the query: unknown parameter `all`, there are none here"
        );
    }

    #[tokio::test]
    async fn a_body_has_a_limit() {
        let fits = format!("{{\"timeout\": 1{}}}", " ".repeat(MAX_BODY - 14));
        assert_eq!(fits.len(), MAX_BODY);
        read::<Body<WaitRequest>>(request("/", fits.clone())).await.unwrap();
        let refusal = read::<Body<WaitRequest>>(request("/", fits + " ")).await.unwrap_err();
        assert_eq!(refusal.status, StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(refusal.error.kind, "invalid");
    }
}
