//! What a model is told.

use crate::rig::Rig;
use serde_json::json;

#[tokio::test]
async fn unknown_tools_and_arguments_are_refused() {
    let rig = Rig::new().await;
    assert_eq!(
        rig.refused("termnal", json!({})).await,
        "there is no tool \"termnal\"; the tools are terminal, process, read_file, write_file, patch, search_files, execute_code"
    );
    for (tool, arguments, expected) in [
        (
            "terminal",
            json!({"command": "true", "timout": 5}),
            "argument `timout` of terminal: unknown field `timout`",
        ),
        ("terminal", json!({"command": ["ls"]}), "argument `command` of terminal: invalid type: sequence"),
        (
            "terminal",
            json!({"command": "true", "timeout": 0}),
            "argument `timeout` can't be 0.0: it is a number of seconds above 0",
        ),
        (
            "terminal",
            json!({"command": "true", "timeout": "5"}),
            "argument `timeout` of terminal: invalid type: string \"5\"",
        ),
        ("terminal", json!({"command": " "}), "argument `command` can't be \" \""),
        ("terminal", json!({"command": "true", "workdir": ""}), "argument `workdir` can't be \"\""),
        (
            "terminal",
            json!({"command": "true", "backend": "docker"}),
            "argument `backend` can't be \"docker\": what can be chosen is local",
        ),
        (
            "process",
            json!({"action": "stop"}),
            "argument `action` of process: unknown variant `stop`, expected one of `list`",
        ),
        ("process", json!({"action": "poll"}), "argument `session_id` is required"),
        ("read_file", json!({}), "argument of read_file: missing field `path`"),
        (
            "read_file",
            json!({"path": "x", "offset": 0}),
            "argument `offset` can't be 0: it is a line number from 1 on",
        ),
        ("read_file", json!({"path": "x", "limit": 2001}), "argument `limit` can't be 2001"),
        ("read_file", json!({"path": ""}), "argument `path` can't be \"\""),
        ("read_file", json!({"path": "a\0b"}), "argument `path` can't be \"a\\0b\": it has a NUL byte in it"),
        (
            "search_files",
            json!({"pattern": "x", "limit": 0}),
            "argument `limit` can't be 0: it is a whole number from 1 to 1000",
        ),
        ("search_files", json!({"pattern": "x", "context": 21}), "argument `context` can't be 21"),
        ("search_files", json!({"pattern": ""}), "argument `pattern` can't be \"\""),
        ("patch", json!({}), "argument `path` is required with mode=\"replace\""),
        ("patch", json!({"mode": "patch"}), "argument `patch` is required with mode=\"patch\""),
        ("patch", json!({"patch": "x"}), "argument `patch` is for mode=\"patch\""),
    ] {
        let error = rig.refused(tool, arguments.clone()).await;
        assert!(error.starts_with(expected), "{tool} {arguments}: {error}");
    }
    rig.end().await;
}

#[test]
fn schemas_are_whole_and_described() {
    for tool in farshell_tools::catalogue() {
        for schema in [&tool.input, &tool.output] {
            assert_eq!(schema["type"], "object", "{}", tool.name);
            assert!(!schema.to_string().contains("$ref"), "{}: {schema}", tool.name);
        }
        assert_eq!(tool.input["additionalProperties"], false, "{}", tool.name);
        assert!(tool.output["properties"]["error"].is_object());
        assert!(tool.description.len() > 100);
        for (name, property) in tool.input["properties"].as_object().unwrap() {
            let described = property["description"].is_string() || property.to_string().contains("\"enum\"");
            assert!(described || name == "command", "{} {name}: {property}", tool.name);
        }
    }
    let names: Vec<_> = farshell_tools::catalogue().iter().map(|tool| tool.name).collect();
    assert_eq!(
        names,
        ["terminal", "process", "read_file", "write_file", "patch", "search_files", "execute_code"]
    );
}

#[tokio::test]
async fn a_backend_is_chosen_from_those_that_are_configured() {
    let rig = Rig::with("approvals: {mode: auto}\nterminal: {tool_backends: [ssh, local, docker]}\n").await;
    let tools = rig.tools.catalogue(&rig.target("default"));
    for tool in &tools {
        let backend = &tool.input["properties"]["backend"];
        match tool.name {
            "process" => assert!(backend.is_null(), "{backend}"),
            name => assert_eq!(backend["enum"], json!(["local", "ssh", "docker", null]), "{name}"),
        }
    }
    for tool in ["terminal", "execute_code"] {
        let arguments = json!({"command": "true", "code": "1", "backend": "modal"});
        let mut arguments = arguments.as_object().unwrap().clone();
        arguments.remove(if tool == "terminal" { "code" } else { "command" });
        let error = rig.refused(tool, arguments.into()).await;
        let right = "argument `backend` can't be \"modal\": what can be chosen is one of local, ssh, docker";
        assert!(error.contains(right), "{error}");
    }
    let result = rig.done("terminal", json!({"command": "echo here", "backend": "local"})).await;
    assert_eq!((&result["output"], &result["backend"]), (&json!("here"), &json!("local")));
    // What is chosen has settings of its own, and what is missing there is said.
    let error = rig.refused("terminal", json!({"command": "true", "backend": "ssh"})).await;
    assert!(error.contains("ssh_host"), "{error}");
    rig.end().await;
}
