//! Background processes as a model looks after them.

use crate::rig::Rig;
use serde_json::{Value, json};

async fn start(rig: &Rig, command: &str, pty: bool) -> String {
    let result = rig.done("terminal", json!({"command": command, "background": true, "pty": pty})).await;
    assert_eq!(
        (&result["exit_code"], &result["error"], &result["backend"]),
        (&json!(0), &Value::Null, &json!("local"))
    );
    assert!(result["pid"].is_u64() && result["output"].is_string());
    assert!(result["hint"].as_str().unwrap().contains("poll"));
    result["session_id"].as_str().unwrap().to_owned()
}

async fn act(rig: &Rig, id: &str, action: &str, more: Value) -> Value {
    let mut arguments = json!({"action": action, "session_id": id});
    arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    rig.done("process", arguments).await
}

#[tokio::test]
async fn hermes_42633_input_is_written_to_a_plain_background_process() {
    let rig = Rig::new().await;
    let id = start(&rig, "read -r a; echo \"<$a>\"; cat; exit 7", false).await;
    let poll = act(&rig, &id, "poll", json!({})).await;
    assert_eq!(
        (&poll["status"], &poll["command"]),
        (&json!("running"), &json!("read -r a; echo \"<$a>\"; cat; exit 7"))
    );
    assert!(poll["uptime_seconds"].is_number());
    let sent = act(&rig, &id, "submit", json!({"data": "one"})).await;
    assert_eq!((&sent["status"], &sent["bytes_written"]), (&json!("ok"), &json!(4)));
    act(&rig, &id, "write", json!({"data": "two"})).await;
    assert_eq!(act(&rig, &id, "close", json!({})).await["status"], "ok");
    let ended = act(&rig, &id, "wait", json!({"timeout": 30})).await;
    assert_eq!(
        (&ended["status"], &ended["exit_code"], &ended["output"]),
        (&json!("exited"), &json!(7), &json!("<one>\ntwo"))
    );
    assert_eq!(ended["completion_reason"], "exited");
    let answer = rig.call("process", json!({"action": "write", "session_id": id, "data": "x"})).await;
    assert_eq!((answer.failed, &answer.result["status"]), (true, &json!("already_exited")));
    rig.end().await;
}

#[tokio::test]
async fn a_wait_that_is_too_short_says_so_and_a_kill_ends_it() {
    let rig = Rig::new().await;
    // A shell around it might end by itself, with the code of its child.
    let id = start(&rig, "echo begun; exec sleep 1000", false).await;
    let waited = act(&rig, &id, "wait", json!({"timeout": 4})).await;
    assert_eq!(
        (&waited["status"], &waited["output"], &waited["note"]),
        (&json!("timeout"), &json!("begun"), &json!("it goes on"))
    );
    let killed = act(&rig, &id, "kill", json!({})).await;
    assert_eq!((&killed["status"], &killed["survivors"]), (&json!("killed"), &json!(0)));
    assert_eq!(killed["output"], "begun", "{killed}");
    assert_eq!((&killed["exit_code"], &killed["signal"]), (&json!(143), &json!("SIGTERM")));
    assert_eq!(act(&rig, &id, "kill", json!({})).await["status"], "already_exited");
    let error = rig.refused("process", json!({"action": "wait", "session_id": id, "timeout": -1})).await;
    assert!(error.starts_with("argument `timeout` can't be -1.0"));
    rig.end().await;
}

#[tokio::test]
async fn a_cancelled_wait_leaves_the_process_alone() {
    let rig = Rig::new().await;
    let id = start(&rig, "sleep 1000", false).await;
    let call = rig.circumstances("default", &farshell_tools::Nobody);
    let cancel = call.cancel.clone();
    let waiting = rig.tools.call("process", json!({"action": "wait", "session_id": id}), call);
    let (answer, ()) = tokio::join!(waiting, async { cancel.cancel() });
    assert_eq!((answer.failed, &answer.result["status"]), (false, &json!("interrupted")));
    assert_eq!(act(&rig, &id, "poll", json!({})).await["status"], "running");
    rig.end().await;
}

#[tokio::test]
async fn logs_are_read_by_line() {
    let rig = Rig::new().await;
    let id = start(&rig, "seq 0 999; printf 'no end'", false).await;
    act(&rig, &id, "wait", json!({"timeout": 30})).await;
    let last = act(&rig, &id, "log", json!({})).await;
    let expected: Vec<String> = (801..1000).map(|n| n.to_string()).collect();
    assert_eq!(last["output"], expected.join("\n") + "\nno end");
    assert_eq!((&last["total_lines"], &last["next_offset"]), (&json!(1000), &Value::Null), "{last}");
    let some = act(&rig, &id, "log", json!({"offset": 10, "limit": 2})).await;
    assert_eq!(
        (&some["output"], &some["showing"], &some["next_offset"]),
        (&json!("10\n11\n"), &json!("lines 10 to 12 of 1000"), &json!(12))
    );
    let first = act(&rig, &id, "log", json!({"offset": 0, "limit": 1})).await;
    assert_eq!(first["output"], "0\n");
    let beyond = act(&rig, &id, "log", json!({"offset": 5000})).await;
    assert_eq!(beyond["output"], "");
    for wrong in [json!({"offset": -1}), json!({"limit": 0}), json!({"offset": 1, "byte_offset": 1})] {
        let mut arguments = json!({"action": "log", "session_id": id});
        arguments.as_object_mut().unwrap().extend(wrong.as_object().unwrap().clone());
        rig.refused("process", arguments).await;
    }
    rig.end().await;
}

#[tokio::test]
async fn a_terminal_has_a_screen() {
    let rig = Rig::new().await;
    let id = start(&rig, "printf '\\033[2J\\033[Hmenu\\n'; read -r x; echo \"got $x\"", true).await;
    let mut poll = Value::Null;
    for _ in 0..500 {
        poll = act(&rig, &id, "poll", json!({})).await;
        if poll["screen"] == "menu" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(poll["screen"], "menu");
    act(&rig, &id, "submit", json!({"data": "soup"})).await;
    let ended = act(&rig, &id, "wait", json!({"timeout": 30})).await;
    assert!(ended["output"].as_str().unwrap().ends_with("got soup"), "{ended}");
    rig.end().await;
}

#[tokio::test]
async fn a_task_sees_its_own_processes_only() {
    let rig = Rig::new().await;
    let id = start(&rig, "echo mine; sleep 1000", false).await;
    let list = rig.done("process", json!({"action": "list"})).await;
    assert_eq!(list["processes"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&list["processes"][0]["session_id"], &list["processes"][0]["status"]),
        (&json!(id), &json!("running"))
    );
    let started = list["processes"][0]["started_at"].as_str().unwrap();
    assert!(started.starts_with("20") && started.ends_with('Z'), "{started}");
    let other = rig.call_as("another", "process", json!({"action": "list"})).await;
    assert_eq!(other.result["processes"], json!([]));
    for action in ["poll", "log", "wait", "kill", "write", "submit", "close"] {
        let answer = rig.call_as("another", "process", json!({"action": action, "session_id": id, })).await;
        assert_eq!((answer.failed, &answer.result["status"]), (true, &json!("not_found")), "{action}");
    }
    let answer = rig.call("process", json!({"action": "poll", "session_id": "nonesuch"})).await;
    assert_eq!((answer.failed, &answer.result["status"]), (true, &json!("not_found")));
    rig.end().await;
}
