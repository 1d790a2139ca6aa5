//! `farshell mcp`: through its pipes, while servers come and go. What the tools do is told in the tests called `mcp`.

use crate::rig::{PATIENCE, World, is_running, unique_sleep, wait_until};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin};
use std::sync::mpsc::{Receiver, channel};

/// A client of the plainest kind.
struct Client {
    bridge: Child,
    input: Option<ChildStdin>,
    lines: Receiver<Value>,
    /// Lines that belong to something else than what was waited for.
    early: Vec<Value>,
    next: u64,
}

impl Client {
    fn start(world: &World, args: &[&str]) -> Self {
        let mut command = world.command(&[&["mcp"], args].concat());
        let mut bridge = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(bridge.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // Nothing but messages comes out.
                let message = serde_json::from_str(&line).unwrap_or_else(|_| json!({"not a message": line}));
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let input = bridge.stdin.take();
        Self { bridge, input, lines, early: Vec::new(), next: 0 }
    }

    /// One that has said hello.
    fn new(world: &World) -> Self {
        let mut client = Self::start(world, &[]);
        let hello = client.request(
            "initialize",
            &json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}),
        );
        let answer = client.answer(hello);
        assert_eq!(answer["result"]["serverInfo"]["name"], "farshell", "{answer}");
        assert_eq!(answer["result"]["protocolVersion"], "2025-06-18", "{answer}");
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
    }

    fn request(&mut self, method: &str, params: &Value) -> u64 {
        self.next += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params}));
        self.next
    }

    fn call(&mut self, command: &str) -> u64 {
        self.request("tools/call", &json!({"name": "terminal", "arguments": {"command": command}}))
    }

    fn wait(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.early.iter().position(&wanted) {
            return self.early.remove(at);
        }
        loop {
            let message = self.lines.recv_timeout(PATIENCE).unwrap();
            if wanted(&message) {
                return message;
            }
            self.early.push(message);
        }
    }

    fn answer(&mut self, id: u64) -> Value {
        self.wait(|message| message["id"] == id && message.get("method").is_none())
    }

    /// What a command came to.
    fn runs(&mut self, command: &str) -> Value {
        let id = self.call(command);
        let answer = self.answer(id);
        assert_eq!(answer["result"]["isError"], false, "{answer}");
        answer["result"]["structuredContent"].clone()
    }

    /// Closes its pipe and waits for the bridge.
    fn end(mut self) -> i32 {
        self.input = None;
        self.bridge.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.bridge.kill();
        let _ = self.bridge.wait();
    }
}

fn text(answer: &Value) -> String {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn starts_a_server_and_ends_with_its_client() {
    let world = World::new();
    let mut client = Client::new(&world);
    // From where the client stands.
    let ran = client.runs("pwd");
    let here = std::fs::canonicalize(world.work()).unwrap();
    assert_eq!(ran["output"], here.to_string_lossy().as_ref(), "{ran}");
    assert_eq!(client.end(), 0);
    assert!(world.server().is_some());
}

#[test]
fn a_killed_server_is_replaced_and_no_call_is_made_twice() {
    let world = World::new();
    let mut client = Client::new(&world);
    let file = world.work().join("runs");
    let open = client.call(&format!("echo once >> {}; sleep 2; echo twice >> {0}", file.display()));
    wait_until("the command's beginning", || file.exists());
    world.kill_server();
    let answer = client.answer(open);
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    assert!(text(&answer).contains("unknown outcome"), "{answer}");
    // The client goes on as if nothing had happened, with what it had.
    assert_eq!(client.runs("echo next")["output"], "next");
    let listed = client.request("tools/list", &json!({}));
    assert!(client.answer(listed)["result"]["tools"].as_array().unwrap().len() >= 6);
    // What had begun went on in its place, and began once.
    wait_until("the command's end", || std::fs::read_to_string(&file).unwrap().contains("twice"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "once\ntwice\n");
    assert_eq!(client.end(), 0);
}

#[test]
fn a_server_that_is_stopped_kills_nothing() {
    let world = World::new();
    let mut client = Client::new(&world);
    let marker = unique_sleep();
    let open = client.call(&format!("sleep {marker}"));
    wait_until("the command", || is_running(&marker));
    assert_eq!(world.call(&["server", "stop"]).code, 0);
    let answer = client.answer(open);
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    assert!(text(&answer).contains("unknown outcome"), "{answer}");
    assert!(is_running(&marker));
    let ran = client.request(
        "tools/call",
        &json!({"name": "terminal", "arguments": {"command": "echo next", "session": "other"}}),
    );
    assert_eq!(client.answer(ran)["result"]["structuredContent"]["output"], "next");
}

#[test]
fn a_client_that_disappears_takes_its_call_with_it_and_nothing_else() {
    let world = World::new();
    let (mut one, mut two) = (Client::new(&world), Client::new(&world));
    let (first, second, background) = (unique_sleep(), unique_sleep(), unique_sleep());
    let start = one.request(
        "tools/call",
        &json!({"name": "terminal", "arguments": {"command": format!("sleep {background}"), "background": true}}),
    );
    one.answer(start);
    one.call(&format!("sleep {first}"));
    let other = json!({"command": format!("sleep {second}"), "session": "other"});
    let stays = two.request("tools/call", &json!({"name": "terminal", "arguments": other}));
    wait_until("both commands", || is_running(&first) && is_running(&second));
    drop(one);
    wait_until("the end of the first", || !is_running(&first));
    assert!(is_running(&second) && is_running(&background));
    // And one that takes it back.
    two.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": stays}}));
    wait_until("the end of the second", || !is_running(&second));
    assert!(is_running(&background));
    assert_eq!(two.runs("echo next")["output"], "next");
    assert_eq!(two.end(), 0);
}

#[test]
fn an_open_client_does_not_keep_an_idle_server() {
    let world = World::new().with("FARSHELL_SERVER_IDLE", "0.2");
    let mut client = Client::new(&world);
    let listed = client.request("tools/list", &json!({}));
    client.answer(listed);
    let lock = world.hermes().join("farshell/server/sock");
    wait_until("the end of the server", || !lock.exists());
    // The next message starts another one, which is told who we are.
    let listed = client.request("tools/list", &json!({}));
    assert!(client.answer(listed)["result"]["tools"].is_array());
    assert_eq!(client.runs("echo again")["output"], "again");
    // A call that is open does.
    let slow = client.call("sleep 1; echo slow");
    assert_eq!(client.answer(slow)["result"]["structuredContent"]["output"], "slow");
}

#[test]
fn questions_that_nobody_asks_any_more_are_not_answered() {
    let world = World::new();
    let mut client = Client::start(&world, &[]);
    let hello = client.request(
        "initialize",
        &json!({"protocolVersion": "2025-06-18", "capabilities": {"elicitation": {}}, "clientInfo": {"name": "test", "version": "1"}}),
    );
    client.answer(hello);
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let file = world.work().join("file");
    let risky = format!("touch {}; git -C /nowhere reset --hard", file.display());
    let lost = client.call(&risky);
    let first = client.wait(|message| message["method"] == "elicitation/create");
    world.kill_server();
    // The call has no answer, and the question is taken back.
    assert!(text(&client.answer(lost)).contains("unknown outcome"));
    let back = client.wait(|message| message["method"] == "notifications/cancelled");
    assert_eq!(back["params"]["requestId"], first["id"], "{back}");
    // The next server asks anew, and an answer to the old question is none to the new one.
    let again = client.call(&risky);
    let second = client.wait(|message| message["method"] == "elicitation/create");
    assert_ne!(first["id"], second["id"]);
    let yes = json!({"action": "accept", "content": {"answer": "once"}});
    client.send(&json!({"jsonrpc": "2.0", "id": first["id"], "result": yes}));
    let no = json!({"action": "decline"});
    client.send(&json!({"jsonrpc": "2.0", "id": second["id"], "result": no}));
    let answer = client.answer(again);
    assert_eq!(answer["result"]["structuredContent"]["error_kind"], "denied", "{answer}");
    assert!(!file.exists());
}

#[test]
fn what_makes_no_sense_is_answered_and_survived() {
    let world = World::new();
    let mut client = Client::new(&world);
    writeln!(client.input.as_mut().unwrap(), "this is no JSON").unwrap();
    client.send(&json!([]));
    let unknown = client.request("no/such/method", &json!({}));
    assert!(client.answer(unknown)["error"]["code"].is_i64());
    let none = client.request("tools/call", &json!({"name": "no_such_tool", "arguments": {}}));
    let answer = client.answer(none);
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    assert_eq!(client.runs("echo fine")["output"], "fine");
}

#[test]
fn requests_through_a_pipe_that_ends_are_answered() {
    let world = World::new();
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params":
        {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}});
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params":
        {"name": "terminal", "arguments": {"command": "echo piped"}}});
    let said = world.call_with_input(&["mcp"], format!("{hello}\n{ready}\n{call}\n").as_bytes());
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
    let answers: Vec<Value> = said.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers[1]["result"]["structuredContent"]["output"], "piped", "{said:?}");
}
