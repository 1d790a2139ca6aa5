//! The document that describes the API, made from the table of routes.

use crate::refusal::{json_text, status};
use crate::route::{Described, Route};
use crate::routes::table;
use axum::http::{Method, StatusCode};
use bytes::Bytes;
use farshell_api::error::ErrorBody;
use farshell_api::{API_VERSION, VERSION_HEADER};
use farshell_engine::Kind;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// What any request can come to.
const EVERYWHERE: [Kind; 4] = [Kind::Invalid, Kind::PermissionDenied, Kind::Disconnected, Kind::System];

static TEXT: LazyLock<Bytes> = LazyLock::new(|| openapi().to_string().into());

/// The API as an OpenAPI 3.1 document.
#[must_use]
pub fn openapi() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut schemas = settings.into_generator();
    let mut paths = Map::new();
    for route in table() {
        let operation = operation(&route, &mut schemas);
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_lowercase()] = operation;
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Farshell",
            "version": API_VERSION.to_string(),
            "description": "One terminal for AI agents, in any place. Requests refuse fields that they do not know; answers may grow new ones.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}
        },
        "servers": [{"url": "http://localhost", "description": "over the Unix socket $HERMES_HOME/farshell/server/sock, or an address the server was told to listen on"}],
        // Over TCP the token, on the Unix socket nothing.
        "security": [{"token": []}, {}],
        "paths": paths,
        "components": {
            "schemas": schemas.take_definitions(true),
            "parameters": {
                "version": {
                    "name": VERSION_HEADER,
                    "in": "header",
                    "required": false,
                    "description": "The API version of the client. A server of another one refuses the request.",
                    "schema": {"type": "integer"}
                }
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}
        }
    })
}

fn operation(route: &Route, schemas: &mut SchemaGenerator) -> Value {
    let Described { input, output, more } = (route.describe)(schemas);
    let mut parameters = vec![json!({"$ref": "#/components/parameters/version"})];
    parameters.extend(path_parameters(route.path));
    parameters.extend(input.query);
    let mut operation = json!({
        "operationId": route.name,
        "summary": route.summary,
        "parameters": parameters,
        "responses": responses(route, output, schemas),
    });
    if let Some(body) = input.body {
        operation["requestBody"] =
            json!({"required": input.body_required, "content": {"application/json": {"schema": body}}});
    }
    for (name, value) in more {
        operation[name] = value;
    }
    operation
}

fn path_parameters(path: &str) -> impl Iterator<Item = Value> {
    path.split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
}

fn responses(route: &Route, output: Option<Value>, schemas: &mut SchemaGenerator) -> Value {
    let mut success = json!({"description": route.gives});
    if let Some(schema) = output {
        success["content"] = json!({"application/json": {"schema": schema}});
    }
    let mut responses = Map::new();
    responses.insert(route.status.as_str().into(), success);
    // Statuses stand for several kinds of error each.
    let mut kinds: BTreeMap<u16, Vec<String>> = BTreeMap::new();
    let mut add = |status: StatusCode, text: &str| {
        kinds.entry(status.as_u16()).or_default().push(text.to_owned());
    };
    for kind in EVERYWHERE.iter().chain(route.errors) {
        add(status(*kind), kind.name());
    }
    add(StatusCode::UNAUTHORIZED, "permission_denied (no token, or a wrong one)");
    add(StatusCode::CONFLICT, "protocol (the client is of another API version)");
    if route.method == Method::POST {
        add(StatusCode::PAYLOAD_TOO_LARGE, "invalid (the body is too large)");
        add(StatusCode::REQUEST_TIMEOUT, "timed_out (the body did not come)");
    }
    let body = schemas.subschema_for::<ErrorBody>().to_value();
    for (status, kinds) in kinds {
        let content = json!({"application/json": {"schema": body}});
        responses.insert(status.to_string(), json!({"description": kinds.join(", "), "content": content}));
    }
    Value::Object(responses)
}

/// Serves the document.
pub(crate) fn route((path, name): (&'static str, &'static str), summary: &'static str) -> Route {
    Route {
        method: Method::GET,
        path,
        name,
        summary,
        errors: &[],
        status: StatusCode::OK,
        takes: None,
        gives: "the document".into(),
        describe: |_| Described {
            input: crate::input::Shape::default(),
            output: Some(json!({"type": "object"})),
            more: Vec::new(),
        },
        handler: Arc::new(|_, request| {
            Box::pin(async move {
                match crate::input::read::<()>(request).await {
                    Ok(()) => json_text(StatusCode::OK, TEXT.clone()),
                    Err(refusal) => refusal.response(),
                }
            })
        }),
    }
}

/// The routes as a table for the user's page.
#[must_use]
pub fn markdown_table() -> String {
    let mut text = String::from("| route | takes | gives | what it does |\n|---|---|---|---|\n");
    for route in table() {
        let takes = route.takes.as_ref().map_or(String::new(), |name| format!("`{name}`"));
        let gives = match route.gives.as_str() {
            name if name.contains(' ') => name.to_owned(),
            name => format!("`{name}`"),
        };
        let (method, path, summary) = (&route.method, route.path, route.summary);
        text.push_str(&format!("| `{method} {path}` | {takes} | {gives} | {summary} |\n"));
    }
    text
}
