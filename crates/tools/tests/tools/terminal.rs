//! Commands as a model runs them.

use crate::rig::{PATIENCE, Rig, Seen, runs, until};
use farshell_tools::Nobody;
use serde_json::{Value, json};

#[tokio::test]
async fn a_command_says_what_became_of_it_and_where() {
    let rig = Rig::new().await;
    let result = rig.run("echo out; echo err >&2; export A=1; mkdir sub; cd sub; (exit 3)").await;
    assert_eq!(result["output"], "out\nerr");
    assert_eq!(result["exit_code"], 3);
    assert_eq!(result["error"], Value::Null);
    assert_eq!(result["backend"], "local");
    assert!(result["place"]["name"].is_string());
    assert_eq!(result["cwd"], rig.at("sub").to_str().unwrap());
    let result = rig.run("pwd; echo $A").await;
    assert_eq!(result["output"], format!("{}\n1", rig.at("sub").to_str().unwrap()));
    // A session of its own knows nothing of that.
    let other = rig.done("terminal", json!({"command": "echo \"<$A>\"; pwd", "session": "two"})).await;
    assert_eq!(other["output"], format!("<>\n{}", rig.at("").to_str().unwrap().trim_end_matches('/')));
    let there = rig.done("terminal", json!({"command": "pwd", "workdir": "/"})).await;
    assert_eq!(there["output"], "/");
    assert_eq!(there["cwd"], rig.at("sub").to_str().unwrap(), "for one call only");
    rig.end().await;
}

#[tokio::test]
async fn codes_and_signals_are_explained() {
    let rig = Rig::new().await;
    let result = rig.run("echo x | grep y").await;
    assert_eq!(
        (&result["exit_code"], &result["exit_code_meaning"]),
        (&json!(1), &json!("grep: no line matched (not an error)"))
    );
    let result = rig.run("bash -c 'kill -9 $$'").await;
    assert_eq!(result["exit_code"], 137);
    assert!(result["exit_code_meaning"].as_str().unwrap().contains("SIGKILL"));
    let result = rig.run("kill -TERM $$").await;
    assert_eq!((&result["exit_code"], &result["signal"]), (&json!(143), &json!("SIGTERM")), "{result}");
    let result = rig.run("nonesuch-command").await;
    assert_eq!(
        (&result["exit_code"], &result["exit_code_meaning"]),
        (&json!(127), &json!("command not found"))
    );
    let result = rig.done("terminal", json!({"command": "echo no", "workdir": "/nonesuch"})).await;
    assert_eq!(result["exit_code"], 126);
    assert!(result["output"].as_str().unwrap().contains("/nonesuch"), "{result}");
    assert!(!result["output"].as_str().unwrap().contains("no\n"));
    rig.end().await;
}

#[tokio::test]
async fn hermes_84967_a_timeout_leaves_no_tree() {
    let rig = Rig::new().await;
    rig.run("true").await;
    let command = "echo begun; setsid sleep 1000 & echo $! > pid; sleep 1000";
    let result = rig.done("terminal", json!({"command": command, "timeout": 4})).await;
    assert_eq!(
        (&result["exit_code"], &result["timed_out"], &result["error"]),
        (&json!(124), &json!(true), &Value::Null)
    );
    let output = result["output"].as_str().unwrap();
    assert!(
        output.starts_with("begun\n")
            && output.contains("\n[timed out after 4 s: killed with all it started"),
        "{output}"
    );
    assert!(result["hint"].as_str().unwrap().contains("background=true"));
    let pid: u32 = rig.text("pid").trim().parse().unwrap();
    assert!(!runs(pid));
    rig.end().await;
}

#[tokio::test]
async fn a_timeout_that_is_too_long_points_to_the_background() {
    let rig = Rig::new().await;
    let answer = rig.call("terminal", json!({"command": "touch ran", "timeout": 601})).await;
    assert!(answer.failed);
    assert_eq!((&answer.result["exit_code"], &answer.result["output"]), (&json!(-1), &json!("")));
    assert!(answer.result["error"].as_str().unwrap().contains("background=true"), "{}", answer.result);
    assert!(!rig.at("ran").exists());
    rig.end().await;
}

#[tokio::test]
async fn input_is_read_or_there_is_none() {
    let rig = Rig::new().await;
    let big = "line\n".repeat(200_000);
    let result = rig.done("terminal", json!({"command": "wc -l", "stdin": big})).await;
    assert_eq!(result["output"], "200000");
    assert_eq!(rig.run("cat; echo end").await["output"], "end");
    let result = rig.done("terminal", json!({"command": "true", "stdin": big})).await;
    assert_eq!(result["exit_code"], 0, "what is not read is no error");
    rig.end().await;
}

#[tokio::test]
async fn hermes_81756_a_terminal_in_the_foreground() {
    let rig = Rig::new().await;
    let command =
        "test -t 1 && test -t 0 && stty size; printf '\\033[31mred\\033[0m\\n10%%\\r100%%\\n'; exit 4";
    let result = rig.done("terminal", json!({"command": command, "pty": true})).await;
    assert_eq!(result["output"], "30 120\nred\n100%");
    assert_eq!(result["exit_code"], 4);
    let result = rig
        .done("terminal", json!({"command": "read -r x; echo \"<$x>\"", "pty": true, "stdin": "hello\n"}))
        .await;
    assert!(result["output"].as_str().unwrap().ends_with("<hello>"), "{result}");
    let long = rig.done("terminal", json!({"command": "seq 1 500", "pty": true})).await;
    let lines: Vec<String> = (1..=500).map(|n| n.to_string()).collect();
    assert_eq!(long["output"], lines.join("\n"), "also what has left the screen");
    rig.end().await;
}

#[tokio::test]
async fn escape_sequences_and_odd_bytes_do_not_reach_the_model() {
    let rig = Rig::new().await;
    let result = rig.run("printf '\\033[1;31mbold\\033[0m\\033]0;title\\007 \\377\\376 end\\n'").await;
    assert_eq!(result["output"], "bold \u{fffd}\u{fffd} end");
    rig.end().await;
}

#[tokio::test]
async fn hermes_86401_the_middle_of_long_output_can_be_read() {
    let rig = Rig::new().await;
    let result = rig.run("seq -f 'line %.0f' 0 99999").await;
    assert_eq!((&result["truncated"], &result["total_lines"]), (&json!(true), &json!(100_000)));
    let output = result["output"].as_str().unwrap();
    assert!(output.chars().count() < 51_000);
    assert!(output.starts_with("line 0\nline 1\n") && output.ends_with("\nline 99999"));
    // The notice is an instruction that works.
    let notice = output.lines().find(|line| line.starts_with("[... ")).unwrap();
    let number = |name: &str| -> u64 {
        let from = notice.find(name).unwrap() + name.len();
        notice[from..].chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
    };
    let (offset, limit) = (number("offset="), number("limit="));
    let id = result["session_id"].as_str().unwrap();
    assert!(notice.contains(id));
    let log = rig
        .done("process", json!({"action": "log", "session_id": id, "offset": offset, "limit": limit}))
        .await;
    let expected: Vec<String> = (offset..offset + limit).map(|n| format!("line {n}")).collect();
    assert_eq!(log["output"].as_str().unwrap().trim_end(), expected.join("\n"));
    assert_eq!((&log["status"], &log["next_offset"]), (&json!("exited"), &json!(offset + limit)));
    // One line, by bytes.
    let result = rig.run("head -c 200000 /dev/zero | tr '\\0' x").await;
    let output = result["output"].as_str().unwrap();
    assert!(output.contains("byte_offset=20000)"), "{}", &output[19_900..20_400]);
    let id = result["session_id"].as_str().unwrap();
    let log = rig.done("process", json!({"action": "log", "session_id": id, "byte_offset": 20000})).await;
    assert_eq!(log["output"].as_str().unwrap().len(), 50_000);
    assert_eq!((&log["next_byte_offset"], &log["total_bytes"]), (&json!(70_000), &json!(200_000)));
    rig.end().await;
}

#[tokio::test]
async fn what_goes_on_in_the_background_is_pointed_out() {
    let rig = Rig::new().await;
    let result = rig.run("sleep 0.1 & wait").await;
    assert!(result["hint"].as_str().unwrap().contains("background=true"));
    assert_eq!(rig.run("echo 'a & b' \"nohup\"").await["hint"], Value::Null);
    let result = rig.done("terminal", json!({"command": "true", "notify_on_complete": true})).await;
    assert_eq!(result["hint"], "notify_on_complete and watch_patterns are for background=true");
    rig.end().await;
}

#[tokio::test]
async fn a_cancelled_call_kills_the_tree_and_nothing_else() {
    let rig = Rig::new().await;
    let background = rig.done("terminal", json!({"command": "sleep 1000", "background": true})).await;
    let seen = Seen::default();
    let call = rig.circumstances("default", &seen);
    let cancel = call.cancel.clone();
    let command =
        "export KEPT=yes; setsid sleep 1000 & echo $! > child; echo \"\u{1b}[1mready\u{1b}[0m\"; sleep 1000";
    let running = rig.tools.call("terminal", json!({"command": command}), call);
    let cancelling = async {
        until("it prints", || seen.something()).await;
        cancel.cancel();
    };
    let (answer, ()) = tokio::join!(running, cancelling);
    assert_eq!(
        (answer.failed, &answer.result["exit_code"], &answer.result["error"]),
        (false, &json!(130), &Value::Null)
    );
    let output = answer.result["output"].as_str().unwrap();
    assert!(output.starts_with("ready\n") && output.contains("\n[the call was cancelled"), "{output}");
    assert_eq!(seen.0.lock().unwrap()[0].1, "ready");
    let child: u32 = rig.text("child").trim().parse().unwrap();
    assert!(!runs(child));
    let pid = u32::try_from(background["pid"].as_u64().unwrap()).unwrap();
    assert!(runs(pid), "the background goes on");
    assert_eq!(rig.run("echo alive").await["output"], "alive");
    rig.end().await;
}

#[tokio::test]
async fn a_dropped_call_kills_the_tree_too() {
    let rig = Rig::new().await;
    let call = rig.circumstances("default", &Nobody);
    let running =
        rig.tools.call("terminal", json!({"command": "echo $$ > pid.new; mv pid.new pid; sleep 1000"}), call);
    tokio::select! {
        _ = running => panic!("it does not end"),
        () = until("it runs", || rig.at("pid").exists()) => {}
    }
    let pid: u32 = rig.text("pid").trim().parse().unwrap();
    until("it is killed", || {
        let children =
            std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        children.trim().is_empty()
    })
    .await;
    // The session is free again.
    assert_eq!(tokio::time::timeout(PATIENCE, rig.run("echo free")).await.unwrap()["output"], "free");
    rig.end().await;
}

#[tokio::test]
async fn a_call_cancelled_before_it_begins_runs_nothing() {
    let rig = Rig::new().await;
    let call = rig.circumstances("default", &Nobody);
    call.cancel.cancel();
    let answer = rig.tools.call("terminal", json!({"command": "touch ran"}), call).await;
    assert_eq!((answer.failed, &answer.result["exit_code"]), (true, &json!(130)));
    assert!(!rig.at("ran").exists());
    rig.end().await;
}

#[tokio::test]
async fn a_lost_place_is_an_unknown_outcome_with_what_was_printed() {
    let rig = Rig::new().await;
    let seen = Seen::default();
    let call = rig.circumstances("default", &seen);
    let running = rig.tools.call("terminal", json!({"command": "echo begun; sleep 1000"}), call);
    let killing = async {
        until("it prints", || seen.something()).await;
        rig.kill_outposts();
    };
    let (answer, ()) = tokio::join!(running, killing);
    assert!(answer.failed);
    assert_eq!((&answer.result["output"], &answer.result["exit_code"]), (&json!("begun"), &json!(-1)));
    assert!(answer.result["error"].as_str().unwrap().contains("unknown outcome"), "{}", answer.result);
    assert_eq!(
        (&answer.result["error_kind"], &answer.result["retry"]),
        (&json!("unknown_outcome"), &json!("unsafe"))
    );
    rig.end().await;
}

#[tokio::test]
async fn what_is_denied_is_blocked_and_says_why() {
    let rig = Rig::with("approvals:\n  mode: unattended\n  deny: ['touch ran*']\n").await;
    let answer = rig.call("terminal", json!({"command": "touch ran.txt"})).await;
    assert!(answer.failed);
    assert_eq!(
        (&answer.result["status"], &answer.result["exit_code"]),
        (&json!("blocked"), &json!(-1)),
        "{}",
        answer.result
    );
    assert_eq!((&answer.result["error_kind"], &answer.result["retry"]), (&json!("denied"), &json!("never")));
    assert!(!rig.at("ran.txt").exists());
    let answer = rig.call("terminal", json!({"command": "touch ran.txt", "background": true})).await;
    assert_eq!(answer.result["status"], "blocked");
    rig.end().await;
}

#[tokio::test]
async fn known_secrets_are_masked() {
    let rig = Rig::new().await;
    std::fs::write(rig.hermes().join(".env"), "MY_API_KEY=s3cr3t-value-4711\n").unwrap();
    rig.put("f", "key=s3cr3t-value-4711\n");
    assert_eq!(rig.run("cat f").await["output"], "key=«redacted:MY_API_KEY»");
    let result = rig.done("terminal", json!({"command": "cat f; sleep 60", "background": true})).await;
    let id = result["session_id"].as_str().unwrap();
    let mut shown = Value::Null;
    for _ in 0..500 {
        shown = rig.done("process", json!({"action": "poll", "session_id": id})).await;
        if shown["output_preview"] != "" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(shown["output_preview"], "key=«redacted:MY_API_KEY»");
    let log = rig.done("process", json!({"action": "log", "session_id": id})).await;
    assert_eq!(log["output"], "key=«redacted:MY_API_KEY»\n");
    rig.end().await;
}
