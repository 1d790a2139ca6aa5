//! What a script calls.

use super::fields;
use crate::rig::Rig;
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[tokio::test]
async fn a_script_gets_what_the_tools_give() {
    let rig = Rig::new().await;
    let code = r#"
import json
from pathlib import Path
from hermes_tools import terminal, read_file, write_file, patch, search_files
made = [
    write_file(Path("a.txt"), "one\ntwo é\nthree\n"),
    read_file("a.txt", offset=2, limit=1),
    patch("a.txt", "two", "2"),
    search_files("^2", path="."),
    terminal("cat a.txt; pwd; cd /; exit 3" if False else "cat a.txt; cd /; (exit 3)"),
    terminal("pwd"),
    terminal("pwd", workdir="/usr"),
    terminal("cat", stdin="given"),
    read_file("/nonesuch"),
    terminal("true", timeout=-1),
]
for result in made:
    assert isinstance(result, dict), result
print(json.dumps(made))
"#;
    let result = rig.code(code).await;
    assert_eq!(fields(&result, ["status", "tool_calls_made"]), [json!("success"), json!(10)], "{result}");
    let made: Vec<Value> = serde_json::from_str(result["output"].as_str().unwrap()).unwrap();
    assert_eq!(made[0]["bytes_written"], 17);
    assert_eq!(made[1]["content"], "2|two é");
    assert_eq!(made[2]["success"], true);
    assert!(made[3].to_string().contains("a.txt"), "{}", made[3]);
    assert_eq!(fields(&made[4], ["output", "exit_code"]), [json!("one\n2 é\nthree"), json!(3)]);
    assert_eq!(made[5]["output"], "/", "its commands are its session's");
    assert_eq!(made[6]["output"], "/usr");
    assert_eq!(made[7]["output"], "given");
    assert!(
        made[8]["error"].is_string() && made[9]["error"].as_str().unwrap().contains("timeout"),
        "{made:?}"
    );
    // What the tool itself gives.
    let direct = rig.done("read_file", json!({"path": rig.at("a.txt"), "offset": 2, "limit": 1})).await;
    assert_eq!(direct["content"], "2|2 é");
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(keys(&made[1]), keys(&direct));
    assert_eq!(rig.run("pwd").await["output"], "/", "and stays as they leave it");
    rig.end().await;
}

#[tokio::test]
async fn functions_have_the_arguments_of_the_tools() {
    let rig = Rig::new().await;
    let code = "import farshell_tools, hermes_tools, inspect, json\nassert farshell_tools is hermes_tools\n\
                print(json.dumps({n: list(inspect.signature(getattr(farshell_tools, n)).parameters) for n in farshell_tools.__all__}))";
    let signatures: Value = serde_json::from_str(rig.code(code).await["output"].as_str().unwrap()).unwrap();
    for tool in farshell_tools::catalogue() {
        let Some(offered) = signatures.get(tool.name) else {
            assert!(["process", "execute_code"].contains(&tool.name), "{} is missing", tool.name);
            continue;
        };
        let offered: BTreeSet<&str> =
            offered.as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect();
        let left_out =
            ["background", "pty", "notify_on_complete", "watch_patterns", "backend", "cross_profile"];
        let expected: BTreeSet<&str> =
            tool.input["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        for name in expected.iter().filter(|name| !left_out.contains(*name) && **name != "session") {
            assert!(offered.contains(name), "{} has no {name}", tool.name);
        }
        assert!(offered.is_subset(&expected), "{}: {offered:?} {expected:?}", tool.name);
    }
    rig.end().await;
}

#[tokio::test]
async fn the_helpers_help() {
    let rig = Rig::new().await;
    let code = r#"
from farshell_tools import json_parse, shell_quote, retry, terminal
from pathlib import Path
print(json_parse('{"a": "x\ty"}'), json_parse('warning: old\n  {"b": [1]}\nbye'), json_parse('[1]'))
try:
    json_parse('nothing here { ')
except ValueError as error:
    print('no', type(error).__name__)
print(terminal('echo ' + shell_quote("it's; a $word"))['output'], shell_quote(Path('a b')))
attempts = []
def flaky():
    attempts.append(1)
    if len(attempts) < 3:
        raise OSError('not yet')
    return 'done'
print(retry(flaky, delay=0.01), len(attempts))
try:
    retry(lambda: 1 / 0, max_attempts=2, delay=0)
except ZeroDivisionError:
    print('given up')
"#;
    let result = rig.code(code).await;
    assert_eq!(
        result["output"],
        "{'a': 'x\\ty'} {'b': [1]} [1]\nno JSONDecodeError\nit's; a $word 'a b'\ndone 3\ngiven up",
        "{result}"
    );
    rig.end().await;
}

#[tokio::test]
async fn the_fifty_first_call_is_refused_and_the_script_goes_on() {
    let rig = Rig::new().await;
    let code = "from farshell_tools import read_file, terminal\nfor i in range(53):\n    r = read_file('/nonesuch') if i % 2 else terminal('true')\n\
                \x20   if 'at most 50 calls' in str(r.get('error')):\n        print(i, r['status'])\nprint('went on')";
    let result = rig.code(code).await;
    assert_eq!(
        fields(&result, ["output", "tool_calls_made", "status"]),
        [json!("50 error\n51 error\n52 error\nwent on"), json!(50), json!("success")]
    );
    rig.end().await;
}

#[tokio::test]
async fn threads_call_at_once_and_each_gets_its_own() {
    let rig = Rig::new().await;
    let code = r#"
import threading
from farshell_tools import terminal, read_file
results = {}
def work(i):
    results[i] = terminal(f"sleep 0.{5 - i % 5}; echo {i}", session=f"s{i}")["output"]
    results[i] += read_file("big.txt")["content"][:3]
threads = [threading.Thread(target=work, args=(i,)) for i in range(12)]
[t.start() for t in threads]
[t.join() for t in threads]
print(results == {i: f"{i}1|x" for i in range(12)}, len(results))
"#;
    rig.put("big.txt", format!("{}\n", "x".repeat(1500)).repeat(60));
    let result = rig.code(code).await;
    assert_eq!(fields(&result, ["output", "tool_calls_made"]), [json!("True 12"), json!(24)], "{result}");
    rig.end().await;
}

#[tokio::test]
async fn a_child_process_is_told_that_it_can_not_call() {
    let rig = Rig::new().await;
    let code = r#"
import os, multiprocessing
from farshell_tools import terminal
pid = os.fork()
if pid == 0:
    try:
        terminal("echo no")
    except RuntimeError as error:
        print("child:", error, flush=True)
    os._exit(0)
os.waitpid(pid, 0)
def work(i):
    return i * i
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map(work, [1, 2, 3]))
print("parent:", terminal("echo yes")["output"])
"#;
    let result = rig.code(code).await;
    let output = result["output"].as_str().unwrap();
    assert!(
        output.starts_with("child: terminal can't be called from a child process: use threads"),
        "{result}"
    );
    assert!(output.ends_with("\n[1, 4, 9]\nparent: yes"), "{output}");
    assert_eq!(result["tool_calls_made"], 1);
    rig.end().await;
}

#[tokio::test]
async fn what_outlives_a_script_and_what_is_no_message_is_refused() {
    let rig = Rig::new().await;
    let code = r#"
import farshell_tools
server = [c.cell_contents for c in farshell_tools.terminal.__closure__ if hasattr(c.cell_contents, "call")][0]
print(server.call("terminal", command="sleep 1000", background=True)["error"])
print(server.call("execute_code", code="print(1)")["error"])
print(server.call("process", action="list")["error"])
for wrong in ("\udcff", float("nan"), object(), "x" * (17 << 20)):
    try:
        farshell_tools.terminal(wrong)
    except Exception as error:
        print(type(error).__name__)
print(farshell_tools.terminal("echo still")["output"])
"#;
    let result = rig.code(code).await;
    assert_eq!(
        result["output"],
        "argument `background` of terminal is not for scripts: call terminal itself, before or after the script\n\
         a script can't call \"execute_code\"; what it can call is terminal, read_file, write_file, patch, search_files\n\
         a script can't call \"process\"; what it can call is terminal, read_file, write_file, patch, search_files\n\
         UnicodeEncodeError\nValueError\nTypeError\nValueError\nstill",
        "{result}"
    );
    assert_eq!(result["tool_calls_made"], 1);
    rig.end().await;
}

#[tokio::test]
async fn large_things_go_both_ways_at_once() {
    let rig = Rig::new().await;
    rig.put("big.txt", format!("{}\n", "y".repeat(1800)).repeat(55));
    let code = r#"
import sys, threading
from farshell_tools import read_file, write_file, terminal
stop = threading.Event()
def chatter():
    while not stop.is_set():
        print("z" * 5000)
        sys.stderr.write("w" * 5000)
threads = [threading.Thread(target=chatter) for _ in range(3)]
[t.start() for t in threads]
seen = []
def work():
    for _ in range(3):
        seen.append(len(read_file("big.txt")["content"]))
    r = write_file(f"copy{threading.get_ident()}", "é" * 3_000_000)
    assert r.get("bytes_written") == 6_000_000, r
workers = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in workers]
[t.join() for t in workers]
stop.set()
[t.join() for t in threads]
print("\nend", len(seen), min(seen) > 90_000)
"#;
    let result = rig.code(code).await;
    let output = result["output"].as_str().unwrap();
    assert!(output.ends_with("\nend 12 True"), "{result:.2000}");
    assert_eq!(fields(&result, ["status", "tool_calls_made"]), [json!("success"), json!(16)]);
    rig.end().await;
}

#[tokio::test]
async fn a_long_script_arrives_whole() {
    let rig = Rig::new().await;
    let code = format!("x = '{}'\nprint(len(x), x[-1])", "é".repeat(100_000));
    assert_eq!(rig.code(&code).await["output"], "100000 é");
    rig.end().await;
}
