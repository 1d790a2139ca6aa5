//! Scripts that do to the channel what they like.

use super::fields;
use crate::rig::Rig;
use serde_json::json;

/// The harness, as a script finds it.
const HARNESS: &str = "import os, farshell_tools\n\
    server = [c.cell_contents for c in farshell_tools.terminal.__closure__ if hasattr(c.cell_contents, 'call')][0]\n\
    def put(place, piece): os.write(server.outgoing, server.mark + b'%d%04x' % (place, len(piece)) + piece)\n";

#[tokio::test]
async fn garbage_ends_the_run_and_nothing_else() {
    let rig = Rig::new().await;
    for (garbage, expected) in [
        ("put(3, b'null')", "no message"),
        ("put(3, b'{\"call\": {\"id\": -1}}')", "no message"),
        ("put(3, b'[' * 4000)", "no message"),
        ("put(7, b'x')", "without a proper header"),
        ("os.write(server.outgoing, server.mark + b'zzzzzzzzzz')", "without a proper header"),
        ("while True: put(0, b'x' * 4000)", "more than 16777216 bytes"),
    ] {
        let code = format!("{HARNESS}print('begun')\n{garbage}\nimport time\ntime.sleep(1000)");
        let result = rig.code(&code).await;
        assert_eq!(
            fields(&result, ["status", "output"]),
            [json!("error"), json!("begun")],
            "{garbage}: {result}"
        );
        let error = result["error"].as_str().unwrap();
        assert!(
            error.starts_with("the script was killed: where its calls of tools are expected it wrote")
                && error.contains(expected),
            "{garbage}: {error}"
        );
    }
    // Without the mark it is text like any other.
    let code = format!(
        "{HARNESS}os.write(server.outgoing, b'\\0farshell:' + b'0' * 32 + b'30004null')\nprint('fine')"
    );
    let result = rig.code(&code).await;
    assert_eq!(fields(&result, ["status", "output"]), [json!("success"), json!("fine")]);
    rig.end().await;
}

#[tokio::test]
async fn who_calls_and_never_reads_is_stopped_by_the_clock() {
    let rig = Rig::new().await;
    for flood in [
        "while True: server.send({'ready': 'again' * 100})",
        "while True: server.send({'call': {'id': 1, 'tool': 'read_file', 'arguments': {'path': '/etc/hostname', 'x': 'y' * 100000}}})",
        "while True: server.send({'call': {'id': 2, 'tool': 'terminal', 'arguments': {'command': 'seq 10000'}}})",
        // Its end stands behind what nobody takes any more while this lasts.
        "while True: server.send({'call': {'id': 3, 'tool': 'terminal', 'arguments': {'command': 'sleep 50'}}})",
    ] {
        let code = format!("{HARNESS}{flood}");
        let result = rig.done("execute_code", json!({"code": code, "timeout": 2})).await;
        assert_eq!(
            fields(&result, ["status", "exit_code"]),
            [json!("timeout"), json!(124)],
            "{flood}: {result}"
        );
        assert!(result["tool_calls_made"].as_u64().unwrap() <= 50);
    }
    // What the server holds for a script is bounded.
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let most: u64 = status
        .lines()
        .find_map(|l| l.strip_prefix("VmHWM:"))
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    assert!(most < 400 << 10, "{most} KiB");
    rig.end().await;
}

#[tokio::test]
async fn answers_that_were_not_asked_for_and_ids_twice_confuse_the_script_alone() {
    let rig = Rig::new().await;
    let code = format!(
        "{HARNESS}call = {{'id': 7, 'tool': 'terminal', 'arguments': {{'command': 'echo x'}}}}\n\
         server.send({{'call': call}}); server.send({{'call': call}})\n\
         print(server.answer(7)['output'], farshell_tools.terminal('echo y')['output'])"
    );
    let result = rig.code(&code).await;
    assert_eq!(
        fields(&result, ["status", "output", "tool_calls_made"]),
        [json!("success"), json!("x y"), json!(3)],
        "{result}"
    );
    rig.end().await;
}
