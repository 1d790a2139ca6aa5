//! What a script prints, and what is shown of it.

use super::fields;
use crate::rig::Rig;
use serde_json::{Value, json};

#[tokio::test]
async fn values_exceptions_and_codes() {
    let rig = Rig::new().await;
    let result = rig.code("print(6 * 7)\nprint(__name__, len(__import__('sys').argv))").await;
    assert_eq!(
        fields(&result, ["status", "output", "exit_code", "error", "tool_calls_made", "backend"]),
        [json!("success"), json!("42\n__main__ 1"), json!(0), Value::Null, json!(0), json!("local")]
    );
    assert!(result["duration_seconds"].is_number() && result["place"]["name"].is_string());
    assert!(result["session_id"].as_str().unwrap().starts_with("code_"));
    let result = rig.code("print('before')\ndef f(x):\n    return 1 / x\n\nf(0)\nprint('after')").await;
    assert_eq!(
        fields(&result, ["status", "exit_code", "error"]),
        [json!("error"), json!(1), json!("ZeroDivisionError: division by zero")]
    );
    // As Python shows it, with the script's lines and without ours.
    let output = result["output"].as_str().unwrap();
    assert!(
        output.starts_with("before\n--- stderr ---\nTraceback (most recent call last):\n  File \"<execute_code>\", line 5, in <module>\n    f(0)\n"),
        "{output}"
    );
    assert!(
        output.contains("    return 1 / x\n") && !output.contains("harness") && !output.contains("farshell:"),
        "{output}"
    );
    for (code, exit, error, output) in [
        ("import sys; sys.exit(3)", 3, json!("the script exited with code 3"), ""),
        ("import sys; sys.exit(0)", 0, Value::Null, ""),
        ("raise SystemExit", 0, Value::Null, ""),
        ("raise SystemExit('bye')", 1, json!("the script exited with code 1"), "--- stderr ---\nbye"),
        (
            "import os; print('kept', flush=True); os._exit(7)",
            7,
            json!("the script exited with code 7"),
            "kept",
        ),
        ("import sys; sys.stdout.write('no line end')", 0, Value::Null, "no line end"),
        ("import atexit; atexit.register(print, 'last'); print('first')", 0, Value::Null, "first\nlast"),
        (
            "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.2), print('joined'))).start()",
            0,
            Value::Null,
            "joined",
        ),
        ("raise KeyboardInterrupt", 130, json!("KeyboardInterrupt"), "*"),
        ("def f(:\n  pass", 1, json!("SyntaxError: invalid syntax"), "*"),
        ("input()", 1, json!("EOFError: EOF when reading a line"), "*"),
        (
            "import sys\nsys.excepthook = lambda *a: print('hooked', a[1])\n1 + ''",
            1,
            json!("TypeError: unsupported operand type(s) for +: 'int' and 'str'"),
            "hooked unsupported operand type(s) for +: 'int' and 'str'",
        ),
        ("import pickle\nclass A:\n    x = 5\nprint(pickle.loads(pickle.dumps(A())).x)", 0, Value::Null, "5"),
        (
            "import os\nos.execvp('sh', ['sh', '-c', 'echo other; exit 4'])",
            4,
            json!("the script exited with code 4"),
            "other",
        ),
    ] {
        let result = rig.code(code).await;
        assert_eq!(fields(&result, ["exit_code", "error"]), [json!(exit), error], "{code}: {result}");
        assert_eq!(result["status"], if exit == 0 { "success" } else { "error" }, "{code}");
        if output != "*" {
            assert_eq!(result["output"], output, "{code}");
        }
    }
    rig.end().await;
}

#[tokio::test]
async fn what_is_printed_comes_in_its_order() {
    let rig = Rig::new().await;
    let code = "import subprocess, sys\nprint('one')\nsubprocess.run(['echo', 'two'])\nprint('three')\n\
                sys.stderr.write('beside\\n')\nsubprocess.run('echo four; echo aside >&2', shell=True)\nprint('five')";
    let result = rig.code(code).await;
    assert_eq!(
        fields(&result, ["output", "stderr", "status"]),
        [json!("one\ntwo\nthree\nfour\nfive"), json!("beside\naside"), json!("success")]
    );
    rig.end().await;
}

#[tokio::test]
async fn odd_bytes_and_escapes_do_not_reach_the_model() {
    let rig = Rig::new().await;
    let code = "import sys\nsys.stdout.buffer.write(b'\\x1b[31mred\\x1b[0m \\xff\\xfe \\xc3\\xa9\\n')\nsys.stdout.flush()\n\
                print('\\udcff \\u00e9')\nsys.stderr.buffer.write(b'\\xff\\0farshell:\\0')\nraise SystemExit(1)";
    let result = rig.code(code).await;
    let output = result["output"].as_str().unwrap();
    assert!(output.starts_with("red \u{fffd}\u{fffd} é\n\\udcff é\n--- stderr ---\n\u{fffd}"), "{output:?}");
    rig.end().await;
}

#[tokio::test]
async fn gigabytes_are_cut_and_the_middle_can_be_read() {
    let rig = Rig::new().await;
    let code = "for i in range(400_000):\n    print('line', i, 'x' * 100)";
    let result = rig.code(code).await;
    let total = result["stdout_bytes_total"].as_u64().unwrap();
    assert_eq!(total, (0..400_000).map(|i: u32| i.to_string().len() as u64 + 107).sum::<u64>());
    let [captured, omitted] = fields(&result, ["stdout_bytes_captured", "stdout_bytes_omitted"]);
    assert_eq!(captured.as_u64().unwrap() + omitted.as_u64().unwrap(), total);
    assert_eq!(result["stdout_truncated"], true);
    assert!(result["warning"].as_str().unwrap().contains("are left out in the middle"), "{result}");
    let output = result["output"].as_str().unwrap();
    assert!(output.chars().count() < 51_000);
    assert!(output.starts_with("line 0 xxx") && output.trim_end_matches('x').ends_with("line 399999 "));
    // The notice is an instruction that works.
    let notice = output.lines().find(|line| line.starts_with("[... ")).unwrap();
    let number = |name: &str| -> u64 {
        let from = notice.find(name).unwrap() + name.len();
        notice[from..].chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
    };
    let id = result["session_id"].as_str().unwrap();
    assert!(notice.contains(&format!("session_id=\"{id}\"")), "{notice}");
    let from = number("offset=");
    let query = json!({"action": "log", "session_id": id, "offset": from, "limit": 2});
    let log = rig.done("process", query).await;
    assert!(log["output"].as_str().unwrap().starts_with(&format!("line {from} xxx")), "{log}");
    rig.end().await;
}

#[tokio::test]
async fn long_standard_error_is_cut_too() {
    let rig = Rig::new().await;
    let result = rig
        .code("import sys\nfor i in range(5000):\n    print('line', i, file=sys.stderr)\nsys.exit(2)")
        .await;
    let output = result["output"].as_str().unwrap();
    assert!(output.starts_with("--- stderr ---\nline 0\n") && output.ends_with("line 4999"), "{output}");
    assert!(output.chars().count() < 11_000 && output.contains(" bytes are left out ...]"));
    rig.end().await;
}

#[tokio::test]
async fn secrets_are_masked() {
    let rig = Rig::new().await;
    std::fs::write(rig.hermes().join(".env"), "MY_API_KEY=s3cr3t-value-4711\n").unwrap();
    rig.put("f", "s3cr3t-value-4711");
    let code = "import sys\nsecret = open('f').read()\nprint(secret)\nprint(secret, file=sys.stderr)\nraise ValueError(secret)";
    let result = rig.code(code).await;
    assert!(!result.to_string().contains("s3cr3t"), "{result}");
    assert_eq!(result["error"], "ValueError: «redacted:MY_API_KEY»");
    assert_eq!(result["output"].as_str().unwrap().matches("«redacted:MY_API_KEY»").count(), 3, "{result}");
    rig.end().await;
}

#[tokio::test]
async fn a_script_runs_where_its_session_is() {
    let rig = Rig::new().await;
    std::fs::create_dir_all(rig.at("sub/deep er")).unwrap();
    rig.run("cd sub; export A=exported; B=not").await;
    rig.put("sub/json.py", "raise RuntimeError('the wrong one')");
    rig.put("sub/mine.py", "value = 5");
    let code = "import os, mine\nprint(os.getcwd(), os.environ.get('A'), os.environ.get('B'), mine.value)\nos.chdir('/')";
    let here = rig.at("sub").to_str().unwrap().to_owned();
    let result = rig.code(code).await;
    assert_eq!(fields(&result, ["output", "cwd"]), [json!(format!("{here} exported None 5")), json!(here)]);
    assert_eq!(rig.run("pwd").await["output"], here, "a script does not move its session");
    let print = "import os\nprint(os.getcwd())";
    for (dir, expected) in
        [("deep er", format!("{here}/deep er")), ("/", "/".into()), ("~", rig.user().display().to_string())]
    {
        let result = rig.done("execute_code", json!({"code": print, "workdir": dir})).await;
        assert_eq!(result["output"], expected, "{dir}");
    }
    let error = rig.refused("execute_code", json!({"code": print, "workdir": "nonesuch"})).await;
    assert!(error.contains("`workdir` can't be entered"), "{error}");
    rig.end().await;
}

#[tokio::test]
async fn the_python_is_the_sessions_own() {
    let rig = Rig::new().await;
    let real = rig.run("python3 -c 'import sys; print(sys.executable)'").await["output"]
        .as_str()
        .unwrap()
        .to_owned();
    let bin = rig.at("bin");
    std::fs::create_dir(&bin).unwrap();
    rig.run(&format!("export PATH={}", bin.display())).await;
    // None.
    let answer = rig.call("execute_code", json!({"code": "print(1)"})).await;
    assert!(answer.failed);
    assert_eq!(
        fields(&answer.result, ["error_kind", "exit_code", "output"]),
        [json!("unavailable"), json!(-1), json!("")]
    );
    let error = answer.result["error"].as_str().unwrap();
    assert!(
        error.contains("neither python3 nor python is on the PATH") && error.contains("install it"),
        "{error}"
    );
    // By its other name.
    std::os::unix::fs::symlink(&real, bin.join("python")).unwrap();
    assert_eq!(rig.code("print(5)").await["output"], "5");
    // One that is too old says so itself; any other trouble of its own is told as well.
    let old = "import sys; sys.version_info = (3, 7); sys.version = '3.7.9 (old)'";
    let script = format!("#!/bin/sh\nshift\nexec {real} -c \"{old}\n$1\"\n");
    rig.put("bin/python3", script);
    std::fs::set_permissions(bin.join("python3"), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let error = rig.refused("execute_code", json!({"code": "print(1)"})).await;
    assert!(
        error.contains("execute_code needs Python 3.8 or later; ") && error.contains(" is 3.7.9"),
        "{error}"
    );
    rig.end().await;
}
