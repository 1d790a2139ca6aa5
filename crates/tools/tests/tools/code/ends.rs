//! How scripts end.

use super::fields;
use crate::rig::{PATIENCE, Rig, Seen, runs, until};
use farshell_tools::Nobody;
use serde_json::{Value, json};

fn pid(rig: &Rig, name: &str) -> u32 {
    rig.text(name).trim().parse().unwrap()
}

/// Starts what hides, prints, calls a command that takes for ever, and waits.
const LASTING: &str = r#"
import subprocess, threading, time, os
from farshell_tools import terminal
child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
open("child", "w").write(str(child.pid))
print("begun")
def call():
    terminal("echo $BASHPID > called.new; mv called.new called; exec sleep 1000", session="inner")
threading.Thread(target=call, daemon=True).start()
while not os.path.exists("called"):
    time.sleep(0.01)
open("ready", "w").close()
time.sleep(1000)
"#;

#[tokio::test]
async fn a_timeout_leaves_no_tree() {
    let rig = Rig::new().await;
    let result = rig.done("execute_code", json!({"code": LASTING, "timeout": 20})).await;
    assert_eq!(
        fields(&result, ["status", "exit_code", "output", "tool_calls_made"]),
        [json!("timeout"), json!(124), json!("begun"), json!(1)],
        "{result}"
    );
    let error = result["error"].as_str().unwrap();
    assert!(error.starts_with("timed out after 20 s: killed with all it started"), "{error}");
    assert!(!runs(pid(&rig, "child")) && !runs(pid(&rig, "called")), "what it started and what it called");
    rig.end().await;
}

#[tokio::test]
async fn a_cancelled_script_is_interrupted() {
    let rig = Rig::new().await;
    let call = rig.circumstances("default", &Nobody);
    let cancel = call.cancel.clone();
    let running = rig.tools.call("execute_code", json!({"code": LASTING}), call);
    let cancelling = async {
        until("it runs", || rig.at("ready").exists()).await;
        cancel.cancel();
    };
    let (answer, ()) = tokio::join!(running, cancelling);
    assert_eq!(
        fields(&answer.result, ["status", "exit_code", "output"]),
        [json!("interrupted"), json!(130), json!("begun")],
        "{}",
        answer.result
    );
    assert!(!answer.failed && answer.result["error"].as_str().unwrap().contains("cancelled"));
    assert!(!runs(pid(&rig, "child")) && !runs(pid(&rig, "called")));
    assert_eq!(rig.run("echo alive").await["output"], "alive");
    let call = rig.circumstances("default", &Nobody);
    call.cancel.cancel();
    let answer = rig.tools.call("execute_code", json!({"code": "open('ran', 'w')"}), call).await;
    assert_eq!(
        (answer.failed, &answer.result["status"], &answer.result["exit_code"]),
        (true, &json!("interrupted"), &json!(130))
    );
    assert!(!rig.at("ran").exists());
    rig.end().await;
}

#[tokio::test]
async fn a_dropped_call_takes_the_script_with_it() {
    let rig = Rig::new().await;
    let call = rig.circumstances("default", &Nobody);
    let running = rig.tools.call("execute_code", json!({"code": LASTING}), call);
    tokio::select! {
        _ = running => panic!("it does not end"),
        () = until("it runs", || rig.at("ready").exists()) => {}
    }
    until("it is killed", || !runs(pid(&rig, "child")) && !runs(pid(&rig, "called"))).await;
    rig.end().await;
}

#[tokio::test]
async fn a_script_that_is_over_takes_its_calls_with_it() {
    let rig = Rig::new().await;
    let code = LASTING.replace("time.sleep(1000)", "child.kill(); os._exit(3)");
    let result = rig.code(&code).await;
    assert_eq!(fields(&result, ["status", "exit_code"]), [json!("error"), json!(3)]);
    assert!(!runs(pid(&rig, "called")));
    rig.end().await;
}

#[tokio::test]
async fn a_script_that_kills_itself_has_printed_what_it_has() {
    let rig = Rig::new().await;
    let code = "import os, sys, signal\nprint('out')\nsys.stderr.write('err')\nsys.stderr.flush()\nos.kill(os.getpid(), signal.SIGKILL)";
    let result = rig.code(code).await;
    assert_eq!(
        fields(&result, ["status", "exit_code", "signal", "error", "output"]),
        [
            json!("error"),
            json!(137),
            json!("SIGKILL"),
            json!("SIGKILL ended the script"),
            json!("out\n--- stderr ---\nerr")
        ]
    );
    rig.end().await;
}

#[tokio::test]
async fn a_daemon_that_holds_the_output_is_not_waited_for() {
    let rig = Rig::new().await;
    let code = "import subprocess\np = subprocess.Popen(['sleep', '1000'], start_new_session=True)\nopen('pid', 'w').write(str(p.pid))\nprint('left')";
    let result = rig.code(code).await;
    assert_eq!(fields(&result, ["status", "output"]), [json!("success"), json!("left")]);
    assert!(result["warning"].as_str().unwrap().contains("still holds its output"), "{result}");
    assert!(runs(pid(&rig, "pid")));
    crate::rig::kill(pid(&rig, "pid"));
    rig.end().await;
}

#[tokio::test]
async fn a_script_without_standard_streams_can_still_call() {
    let rig = Rig::new().await;
    let code = "import os\nfrom farshell_tools import terminal\nfor fd in range(3):\n    os.close(fd)\n\
                terminal('echo called > called')\nraise ValueError('seen')";
    let result = rig.code(code).await;
    assert_eq!(
        fields(&result, ["status", "error", "tool_calls_made"]),
        [json!("error"), json!("ValueError: seen"), json!(1)],
        "{result}"
    );
    assert_eq!(rig.text("called"), "called\n");
    // Closing all of them is the end of calls, and writes nothing where it does not belong.
    let code = "import os\nfrom farshell_tools import terminal\nos.closerange(3, 64)\n\
                files = [open(f'mine{i}', 'w+') for i in range(20)]\n\
                try:\n    terminal('true')\nexcept ConnectionError as error:\n    print(error)\n\
                print(sum(os.path.getsize(f'mine{i}') for i in range(20)))";
    let result = rig.code(code).await;
    assert_eq!(
        result["output"], "the script has closed the descriptors by which tools are called\n0",
        "{result}"
    );
    rig.end().await;
}

#[tokio::test]
async fn a_lost_place_is_an_unknown_outcome_with_what_was_printed() {
    let rig = Rig::new().await;
    let seen = Seen::default();
    let call = rig.circumstances("default", &seen);
    let code = "import time\nprint('begun')\ntime.sleep(1000)";
    let running = rig.tools.call("execute_code", json!({ "code": code }), call);
    let killing = async {
        until("it prints", || seen.something()).await;
        rig.kill_outposts();
    };
    let (answer, ()) =
        tokio::time::timeout(PATIENCE, async { tokio::join!(running, killing) }).await.unwrap();
    assert!(answer.failed);
    assert_eq!(
        fields(&answer.result, ["output", "exit_code", "error_kind", "retry", "tool_calls_made"]),
        [json!("begun"), json!(-1), json!("unknown_outcome"), json!("unsafe"), json!(0)]
    );
    rig.end().await;
}

#[tokio::test]
async fn arguments_are_checked_before_anything_runs() {
    let rig = Rig::new().await;
    for (arguments, expected) in [
        (json!({}), "argument of execute_code: missing field `code`"),
        (json!({"code": " "}), "argument `code` can't be \" \": it is a script in Python"),
        (json!({"code": "1", "reset": true}), "argument `reset` of execute_code: unknown field"),
        (json!({"code": "1", "timeout": 0}), "argument `timeout` can't be 0.0"),
        (json!({"code": "1", "timeout": 601}), "argument `timeout` can't be 601.0: at most 600 s"),
        (json!({"code": "1", "workdir": ""}), "argument `workdir` can't be \"\""),
        (json!({"code": "1", "backend": "docker"}), "argument `backend` can't be \"docker\""),
    ] {
        let answer = rig.call("execute_code", arguments.clone()).await;
        let error = answer.result["error"].as_str().unwrap();
        assert!(answer.failed && error.starts_with(expected), "{arguments}: {error}");
        assert_eq!(fields(&answer.result, ["output", "exit_code"]), [json!(""), json!(-1)]);
    }
    assert_eq!(rig.outposts(), Vec::<u32>::new());
    let _: Value = rig.run("true").await;
    rig.end().await;
}
