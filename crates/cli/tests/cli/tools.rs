//! `farshell tool` and `farshell tools`.

use crate::rig::{World, finish, is_running, unique_sleep, wait_until};
use serde_json::json;
use std::time::{Duration, Instant};

#[test]
fn tools_are_listed_with_what_a_model_is_told() {
    let world = World::new();
    let said = world.call(&["tools"]);
    assert_eq!(said.code, 0, "{said:?}");
    for tool in ["terminal", "process", "read_file", "write_file", "patch", "search_files", "execute_code"] {
        assert!(said.stdout.lines().any(|line| line.starts_with(&format!("{tool} "))), "{}", said.stdout);
    }
    let list = world.json(&["tools", "--json"]);
    assert_eq!(list["tools"][0]["name"], "terminal");
    assert_eq!(list["tools"][0]["input_schema"]["required"], json!(["command"]));
    assert_eq!(list["tools"][2]["read_only"], true);
}

#[test]
fn a_tool_is_called_with_json_and_answers_with_it() {
    let world = World::new();
    let said = world.call(&["tool", "terminal", r#"{"command": "echo hi; exit 3"}"#]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "the tool did what was asked: {said:?}");
    let result = said.json();
    assert_eq!(
        (&result["output"], &result["exit_code"], &result["backend"]),
        (&json!("hi"), &json!(3), &json!("local"))
    );
    let said =
        world.call_with_input(&["tool", "write_file", "-"], br#"{"path": "f.txt", "content": "a\nb\n"}"#);
    assert_eq!(said.code, 0, "{said:?}");
    let said = world.call(&["tool", "read_file", r#"{"path": "f.txt"}"#]);
    assert_eq!(said.json()["content"], "1|a\n2|b");
    // Relative to where the call is made, as everywhere.
    assert_eq!(std::fs::read_to_string(world.work().join("f.txt")).unwrap(), "a\nb\n");
}

#[test]
fn what_can_not_be_done_has_an_error_and_an_exit_code() {
    let world = World::new();
    let said = world.call(&["tool", "terminal", r#"{"cmd": "ls"}"#]);
    assert_eq!(said.code, 1);
    assert!(said.json()["error"].as_str().unwrap().contains("unknown field `cmd`"), "{said:?}");
    for arguments in ["[]", "{", "nope"] {
        let said = world.call(&["tool", "terminal", arguments]);
        assert_eq!(said.code, 125, "{said:?}");
        assert!(said.json()["error"].is_object(), "{said:?}");
    }
    let said = world.call(&["tool", "nonesuch"]);
    assert_eq!((said.code, said.json()["error"]["kind"].as_str()), (125, Some("not_found")), "{said:?}");
}

#[test]
fn a_caller_that_is_killed_takes_its_command_with_it_and_nothing_else() {
    let world = World::new();
    let (mine, other) = (unique_sleep(), unique_sleep());
    world.background(&[], &format!("sleep {other}"));
    let arguments = json!({"command": format!("setsid sleep {mine} & sleep {mine}")}).to_string();
    let mut child = world.command(&["tool", "terminal", &arguments]).spawn().unwrap();
    wait_until("it runs", || is_running(&mine));
    child.kill().unwrap();
    finish(child);
    wait_until("it is killed", || !is_running(&mine));
    assert!(is_running(&other), "the background goes on");
}

#[test]
fn a_killed_server_leaves_the_old_file_or_the_new_one() {
    let world = World::new();
    let content = |n: u8| format!("{}\n", char::from(b'a' + n % 26).to_string().repeat(63)).repeat(20_000);
    let path = world.file("f", &content(0));
    // How long a call takes that nobody disturbs, so that the kills fall on all of it.
    assert_eq!(world.run("true").code, 0);
    let begun = Instant::now();
    let arguments = json!({"path": path, "content": content(25)}).to_string();
    assert_eq!(world.call_with_input(&["tool", "write_file", "-"], arguments.as_bytes()).code, 0);
    let whole = begun.elapsed();
    let (mut done, mut failed) = (0, 0);
    for round in 1..=120u8 {
        if round > 20 && done > 0 && failed > 0 {
            break;
        }
        // Later rounds go further, should the machine have become slower since.
        let after = whole * u32::from(round / 24 + 1) * u32::from(round % 24) / 16;
        assert_eq!(world.run("true").code, 0, "there is a server to be killed");
        let old = std::fs::read_to_string(&path).unwrap();
        let new = content(round);
        let arguments = match round % 2 {
            0 => json!({"path": path, "content": new}),
            _ => json!({"path": path, "old_string": old[..64], "new_string": new[..64], "replace_all": true}),
        };
        let tool = if round % 2 == 0 { "write_file" } else { "patch" };
        let said = std::thread::scope(|scope| {
            let call =
                scope.spawn(|| world.call_with_input(&["tool", tool, "-"], arguments.to_string().as_bytes()));
            std::thread::sleep(after);
            world.kill_server();
            call.join().unwrap()
        });
        if said.code == 0 {
            done += 1;
        } else {
            failed += 1;
        }
        // A write whose last byte had been sent may be done a moment later.
        for _ in 0..20 {
            let now = std::fs::read_to_string(&path).unwrap();
            assert!(now == old || now == new, "round {round}: {} bytes", now.len());
            assert!(said.code != 0 || now == new, "round {round}: it said that it was done");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert!(done > 0 && failed > 0, "{done} done, {failed} failed");
}
