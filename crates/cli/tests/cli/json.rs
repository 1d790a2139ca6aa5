//! `farshell run --json`: one object, and all of it.

use crate::rig::{Said, World, is_running, unique_sleep};
use serde_json::{Value, json};

/// The object without what differs from run to run, after checking that.
fn settled(said: &Said) -> Value {
    let mut object = said.json();
    let id = object["process_id"].as_str().unwrap().to_owned();
    assert!(id.starts_with("proc_") && id.len() == 21, "{id}");
    assert_eq!(object["log"]["process_id"], json!(id));
    assert!(object["duration_ms"].is_u64(), "{object}");
    for part in ["name", "id"] {
        assert!(!object["place"][part].as_str().unwrap().is_empty());
    }
    for field in ["process_id", "duration_ms", "place"] {
        object.as_object_mut().unwrap().remove(field);
    }
    object["log"].as_object_mut().unwrap().remove("process_id");
    object
}

#[test]
fn the_whole_object() {
    let world = World::new();
    world.run("cd /tmp");
    let said = world.call(&["run", "--json", "echo out; sleep 0.1; echo err >&2; exit 3"]);
    assert_eq!((said.code, said.stderr.as_str(), said.stdout.lines().count()), (3, "", 1));
    assert_eq!(
        settled(&said),
        json!({
            "stdout": "out\n",
            "stderr": "err\n",
            "output": "out\nerr\n",
            "encoding": "utf-8",
            "exit_code": 3,
            "signal": null,
            "signal_name": null,
            "timed_out": false,
            "workdir_failed": false,
            "killed": 0,
            "survivors": 0,
            "cwd": "/tmp",
            "backend": "local",
            "task": "default",
            "session": "default",
            "truncated": false,
            "stdout_bytes": 4,
            "stderr_bytes": 4,
            "shell_restarted": false,
            "state_lost": false,
            "output_open": false,
            "log": {"path": null, "stdout_bytes": 4, "stderr_bytes": 4, "dropped": null, "error": null},
        })
    );
}

#[test]
fn a_timeout_says_how_many_were_killed() {
    let world = World::new();
    let seconds = unique_sleep();
    let command = format!("echo begun; sleep {seconds} & sleep {seconds}");
    let said = world.call(&["run", "--json", "--timeout", "0.5", "--task", "t", "--session", "s", &command]);
    let object = said.json();
    assert_eq!(said.code, 124);
    for (field, expected) in [
        ("exit_code", json!(124)),
        ("timed_out", json!(true)),
        ("survivors", json!(0)),
        ("stdout", json!("begun\n")),
        ("task", json!("t")),
        ("session", json!("s")),
    ] {
        assert_eq!(object[field], expected, "{field} in {object}");
    }
    assert!(object["killed"].as_u64().unwrap() >= 2, "{object}");
    assert!(object["duration_ms"].as_u64().unwrap() >= 500, "{object}");
    assert!(!is_running(&seconds));
}

#[test]
fn a_signal_has_a_number_and_a_name() {
    let world = World::new();
    let said = world.call(&["run", "--json", "kill -9 $$"]);
    let object = said.json();
    assert_eq!(
        (said.code, &object["exit_code"], &object["signal"], &object["signal_name"]),
        (137, &json!(137), &json!(9), &json!("SIGKILL"))
    );
}

#[test]
fn a_workdir_that_is_not_there() {
    let world = World::new();
    let said = world.call(&["run", "--json", "--workdir", "/no/such", "echo ran"]);
    let object = said.json();
    assert_eq!(
        (said.code, &object["exit_code"], &object["workdir_failed"], &object["stdout"]),
        (126, &json!(126), &json!(true), &json!(""))
    );
}

#[test]
fn long_output_keeps_head_and_tail() {
    let world = World::new();
    let object = world.call(&["run", "--json", "seq 1 20000"]).json();
    let whole: String = (1..=20_000).map(|i| format!("{i}\n")).collect();
    let left_out = whole.len() - 50_000;
    let (head, tail) = (&whole[..20_000], &whole[20_000 + left_out..]);
    let text = object["stdout"].as_str().unwrap();
    assert!(text.starts_with(head) && text.ends_with(tail), "{object}");
    let between = &text[head.len()..text.len() - tail.len()];
    let expected =
        format!("\n[... {left_out} bytes left out: offsets 20000 to {} of stdout", 20_000 + left_out);
    assert!(between.starts_with(&expected), "{between}");
    assert_eq!((&object["truncated"], &object["stdout_bytes"]), (&json!(true), &json!(whole.len())));
}

#[test]
fn the_limit_can_be_chosen() {
    let world = World::new();
    let object = world.call(&["run", "--json", "--max-output", "10", "printf 0123456789abcdef"]).json();
    assert_eq!(
        object["stdout"],
        json!("0123\n[... 6 bytes left out: offsets 4 to 10 of stdout ...]\nabcdef")
    );
    let object = world.call(&["run", "--json", "--max-output", "16", "printf 0123456789abcdef"]).json();
    assert_eq!((&object["stdout"], &object["truncated"]), (&json!("0123456789abcdef"), &json!(false)));
}

#[test]
fn bytes_that_are_no_text_are_marked() {
    let world = World::new();
    let object = world.call(&["run", "--json", r"printf 'a\377b'"]).json();
    assert_eq!(
        (&object["stdout"], &object["encoding"], &object["stdout_bytes"]),
        (&json!("a\u{fffd}b"), &json!("lossy"), &json!(3))
    );
}

#[test]
fn errors_are_objects_too() {
    let world = World::new();
    let said = world.call(&["run", "--json", "--backend", "daytona", "true"]);
    assert_eq!((said.code, said.stderr.as_str()), (125, ""));
    assert_eq!(
        said.json(),
        json!({"error": {
            "kind": "invalid",
            "operation": "preparing the daytona backend",
            "message": "DAYTONA_API_KEY is not set",
            "hint": "create a key at app.daytona.io and store it with `farshell config set DAYTONA_API_KEY -`",
            "retry": "never",
        }})
    );
    let usage = world.call(&["run", "--json", "--tiemout", "3", "true"]);
    assert_eq!((usage.code, usage.stderr.as_str()), (125, ""));
    assert_eq!(usage.json()["error"]["kind"], json!("invalid"));
}

#[test]
fn a_log_that_has_a_file_is_named() {
    let world = World::new();
    let object = world.call(&["run", "--json", "head -c 20000000 /dev/zero | tr '\\0' x"]).json();
    let path = object["log"]["path"].as_str().unwrap_or_else(|| panic!("{}", object["log"]));
    assert!(std::path::Path::new(path).is_file(), "{path}");
    assert_eq!((&object["stdout_bytes"], &object["log"]["dropped"]), (&json!(20_000_000), &Value::Null));
}
