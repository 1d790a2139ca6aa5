//! The OpenAPI document agrees with itself, with the server and with the user's page.

use crate::rig::World;
use farshell_server::{markdown_table, openapi};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// Every value below, with the way to it.
fn walk<'a>(value: &'a Value, way: &str, visit: &mut impl FnMut(&str, &'a Value)) {
    visit(way, value);
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| walk(value, &format!("{way}/{key}"), visit)),
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(n, value)| walk(value, &format!("{way}/{n}"), visit));
        }
        _ => {}
    }
}

fn operations(document: &Value) -> Vec<(String, String, &Value)> {
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            all.push((method.to_uppercase(), path.clone(), operation));
        }
    }
    all
}

#[test]
fn all_references_resolve_and_nothing_is_left_over() {
    let document = openapi();
    assert_eq!(document["openapi"], "3.1.0");
    let mut used = BTreeSet::new();
    walk(&document, "", &mut |way, value| {
        if let Some(reference) = value.get("$ref") {
            let reference = reference.as_str().unwrap().strip_prefix('#').unwrap();
            assert!(document.pointer(reference).is_some(), "{reference} at {way}");
            used.insert(reference.to_owned());
        }
        assert!(value.get("$schema").is_none() && value.get("$defs").is_none(), "at {way}");
    });
    for name in document["components"]["schemas"].as_object().unwrap().keys() {
        assert!(used.contains(&format!("/components/schemas/{name}")), "{name} is not used");
    }
}

#[test]
fn every_operation_says_what_it_takes_and_gives() {
    let document = openapi();
    let operations = operations(&document);
    assert_eq!(operations.len(), 36);
    let mut names = BTreeSet::new();
    for (method, path, operation) in operations {
        assert!(names.insert(operation["operationId"].as_str().unwrap()), "{path}");
        assert!(operation["summary"].as_str().unwrap().len() > 5);
        let takes = method == "PUT" || (method == "POST" && !path.ends_with("/close"));
        assert_eq!(operation.get("requestBody").is_some(), takes, "{method} {path}");
        let responses = operation["responses"].as_object().unwrap();
        let success = if ["/v1/stream", "/v1/mcp"].contains(&path.as_str()) {
            "101"
        } else if ["start_process", "open_files"].iter().any(|name| operation["operationId"] == *name) {
            "201"
        } else {
            "200"
        };
        let bytes = operation["operationId"] == "read_file";
        if success != "101" && !bytes {
            assert!(responses[success]["content"]["application/json"]["schema"].is_object(), "{path}");
        }
        for status in ["400", "401", "403", "409", "500", "503"] {
            let schema = &responses[status]["content"]["application/json"]["schema"]["$ref"];
            assert_eq!(schema, "#/components/schemas/ErrorBody", "{path} {status}");
        }
        let named = path.matches('{').count();
        let parameters = operation["parameters"].as_array().unwrap();
        assert_eq!(parameters.iter().filter(|p| p["in"] == "path").count(), named, "{path}");
    }
    let body = |path: &str| document["paths"][path]["post"]["requestBody"]["required"].clone();
    assert_eq!([body("/v1/run"), body("/v1/server/stop")], [true, false]);
    let schema = &document["components"]["schemas"]["StartRequest"];
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(schema["required"], serde_json::json!(["command"]));
}

#[tokio::test]
async fn every_route_of_it_is_served() {
    let world = World::new();
    let _server = world.start();
    let served = world.get("/v1/openapi.json").await.ok();
    assert_eq!(served, openapi());
    for (method, path, operation) in operations(&served) {
        if operation["operationId"] == "stop_server" {
            continue;
        }
        let path = path.replace("{id}", "proc_none").replace("{key}", "local/none");
        let path = path.replace("{name}", "terminal");
        let json = operation["requestBody"]["content"].get("application/json").is_some();
        let body = json.then(|| serde_json::json!({"unknown": 1}));
        let answer = world.ask(&method, &path, body).await;
        let status = answer.status.as_u16();
        if status == 426 {
            // It takes what it takes when the connection has become another one.
            assert!(["/v1/stream", "/v1/mcp"].contains(&path.as_str()), "{path}");
        } else if json {
            assert_eq!(answer.refused().0, 400, "{path}: fields that are not known are refused");
        } else if status == 404 {
            let (_, _, message) = answer.refused();
            assert!(!message.starts_with("there is no /v1"), "{path}: {message}");
        }
    }
}

const BEGIN: &str = "<!-- routes:begin (generated) -->\n";
const END: &str = "<!-- routes:end -->";

/// `UPDATE_DOCS=1` writes the table into the page instead of comparing it.
#[test]
fn the_page_has_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/api.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (table, after) = rest.split_once(END).unwrap();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, [before, BEGIN, &markdown_table(), END, after].concat()).unwrap();
    } else {
        assert!(table == markdown_table(), "docs/api.md is out of date: run this test with UPDATE_DOCS=1");
    }
}
