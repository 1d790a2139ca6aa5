//! The agent's tools in a container: the same as everywhere.

use crate::world::{Docker, needed};
use serde_json::{Value, json};

fn call(docker: &Docker, name: &str, arguments: &Value) -> (i32, Value) {
    let said = docker.world().call(&["tool", name, &arguments.to_string()]);
    assert_eq!(said.stderr, "", "{name} {arguments}: {said:?}");
    (said.code, said.json())
}

fn done(docker: &Docker, name: &str, arguments: &Value) -> Value {
    let (code, result) = call(docker, name, arguments);
    assert_eq!(code, 0, "{name} {arguments}: {result}");
    assert_eq!((&result["backend"], result["place"]["id"].is_string()), (&json!("docker"), true));
    result
}

/// All tools, one after the other, in an image of which nothing but a shell is expected.
fn all_tools(docker: &Docker) {
    let result =
        done(docker, "terminal", &json!({"command": "cd /workspace; echo out; echo err >&2; (exit 4)"}));
    assert_eq!(
        (&result["output"], &result["exit_code"], &result["cwd"]),
        (&json!("out\nerr"), &json!(4), &json!("/workspace"))
    );
    let result = done(
        docker,
        "terminal",
        &json!({"command": "test -t 1 && echo tty; printf '\\033[1mbold\\033[0m\\n'", "pty": true}),
    );
    assert_eq!(result["output"], "tty\nbold");
    let result = done(
        docker,
        "terminal",
        &json!({"command": "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done"}),
    );
    assert_eq!((&result["truncated"], &result["total_lines"]), (&json!(true), &json!(20000)));
    let log = done(
        docker,
        "process",
        &json!({"action": "log", "session_id": result["session_id"], "offset": 9999, "limit": 1}),
    );
    assert_eq!(log["output"], "line 9999\n");
    let result = done(docker, "terminal", &json!({"command": "sleep 100 & sleep 100", "timeout": 1}));
    assert_eq!((&result["exit_code"], &result["timed_out"]), (&json!(124), &json!(true)));

    let started =
        done(docker, "terminal", &json!({"command": "read -r x; echo \"<$x>\"; exit 5", "background": true}));
    let id = &started["session_id"];
    done(docker, "process", &json!({"action": "submit", "session_id": id, "data": "hello"}));
    let ended = done(docker, "process", &json!({"action": "wait", "session_id": id, "timeout": 30}));
    assert_eq!(
        (&ended["status"], &ended["exit_code"], &ended["output"]),
        (&json!("exited"), &json!(5), &json!("<hello>"))
    );

    let written =
        done(docker, "write_file", &json!({"path": "src/a.py", "content": "def f():\n    return 1\n"}));
    assert_eq!(
        (&written["resolved_path"], &written["dirs_created"]),
        (&json!("/workspace/src/a.py"), &json!(true))
    );
    let patched = done(
        docker,
        "patch",
        &json!({"path": "src/a.py", "old_string": "return 1", "new_string": "return 2"}),
    );
    assert!(patched["diff"].as_str().unwrap().contains("+    return 2"));
    let patch = "*** Begin Patch\n*** Update File: src/a.py\n def f():\n-    return 2\n+    return 3\n*** Add File: b.txt\n+new\n*** End Patch";
    done(docker, "patch", &json!({"mode": "patch", "patch": patch}));
    let read = done(docker, "read_file", &json!({"path": "/workspace/src/a.py"}));
    assert_eq!((&read["content"], &read["total_lines"]), (&json!("1|def f():\n2|    return 3"), &json!(2)));
    let found = done(docker, "search_files", &json!({"pattern": "return \\d"}));
    assert_eq!(found["matches"], json!([{"path": "src/a.py", "line": 2, "content": "    return 3"}]));
    let found = done(docker, "search_files", &json!({"pattern": "*.txt", "target": "files"}));
    assert_eq!(found["files"], json!(["b.txt"]));
    let (code, missing) = call(docker, "read_file", &json!({"path": "src/b.py"}));
    assert_eq!((code, &missing["similar_files"]), (1, &json!(["src/a.py"])));
    // Nothing of the user's is there, so nothing is protected: a package's configuration can be written.
    done(docker, "write_file", &json!({"path": "/etc/farshell-test.conf", "content": "x"}));
}

#[test]
fn tools_do_the_same_in_a_container() {
    let Some(docker) = Docker::new() else { return };
    all_tools(&docker);
    let code = "import os\nfrom farshell_tools import terminal, read_file\n\
                print(os.getcwd(), terminal('echo $HOSTNAME')['output'] == os.uname().nodename)\n\
                print(read_file('b.txt')['content'])\nraise SystemExit(3)";
    let ran = done(&docker, "execute_code", &json!({"code": code}));
    assert_eq!(
        (&ran["output"], &ran["exit_code"], &ran["tool_calls_made"]),
        (&json!("/workspace True\n1|new"), &json!(3), &json!(2))
    );
}

#[test]
fn tools_need_nothing_of_the_image_but_a_shell() {
    let (Some(host), Some(image)) = (needed("FARSHELL_TEST_DOCKER"), needed("FARSHELL_TEST_BUSYBOX")) else {
        return;
    };
    let docker = Docker::on(&host, &image);
    all_tools(&docker);
    // But for the one that is Python, which says so.
    let (code, refused) = call(&docker, "execute_code", &json!({"code": "print(1)"}));
    assert_eq!((code, &refused["error_kind"]), (1, &json!("unavailable")), "{refused}");
    assert!(refused["error"].as_str().unwrap().contains("neither python3 nor python"), "{refused}");
}

#[test]
fn what_is_mounted_from_this_machine_is_protected() {
    let Some(docker) = Docker::new() else { return };
    let home = docker.world().user_home();
    std::fs::create_dir(home.join(".ssh")).unwrap();
    std::fs::write(home.join(".ssh/id_rsa"), "private\n").unwrap();
    docker.config(&format!("docker_volumes: ['{}:/host']", home.display()));
    let (code, answer) =
        call(&docker, "write_file", &json!({"path": "/host/.ssh/authorized_keys", "content": "x"}));
    assert_eq!((code, &answer["status"]), (1, &json!("blocked")), "{answer}");
    let (code, answer) = call(&docker, "read_file", &json!({"path": "/host/.ssh/id_rsa"}));
    assert_eq!((code, &answer["status"]), (1, &json!("blocked")), "{answer}");
    let written = done(&docker, "write_file", &json!({"path": "/host/notes.txt", "content": "x"}));
    assert_eq!(written["created"], true);
    assert_eq!(std::fs::read_to_string(home.join("notes.txt")).unwrap(), "x");
}
