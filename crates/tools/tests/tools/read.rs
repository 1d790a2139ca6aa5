//! read_file.

use crate::rig::Rig;
use serde_json::{Value, json};
use std::os::unix::fs::symlink;

#[tokio::test]
async fn lines_are_numbered_and_counted() {
    let rig = Rig::new().await;
    rig.put("f", "\u{feff}one\r\ntwo\n\nfour");
    let result = rig.done("read_file", json!({"path": "f"})).await;
    assert_eq!(result["content"], "1|one\n2|two\n3|\n4|four");
    assert_eq!(
        (&result["total_lines"], &result["truncated"], &result["file_size"]),
        (&json!(4), &json!(false), &json!(17))
    );
    assert_eq!(
        (&result["backend"], &result["path"]),
        (&json!("local"), &json!(rig.at("f").to_str().unwrap()))
    );
    // Hermes: one line too many for a file that ends in a newline.
    rig.put("g", "a\nb\n");
    let result = rig.done("read_file", json!({"path": "g"})).await;
    assert_eq!((&result["content"], &result["total_lines"]), (&json!("1|a\n2|b"), &json!(2)));
    let result = rig.done("read_file", json!({"path": "g", "offset": 2})).await;
    assert_eq!(result["content"], "2|b");
    let result = rig.done("read_file", json!({"path": "g", "offset": 9})).await;
    assert_eq!(
        (&result["content"], &result["hint"]),
        (&json!(""), &json!("the file has 2 lines: give an offset up to that"))
    );
    rig.put("empty", "");
    let result = rig.done("read_file", json!({"path": "empty"})).await;
    assert_eq!((&result["content"], &result["total_lines"]), (&json!(""), &json!(0)));
    rig.end().await;
}

#[tokio::test]
async fn a_long_file_is_read_in_parts() {
    let rig = Rig::new().await;
    let text: String = (1..=3000).map(|n| format!("line {n}\n")).collect();
    rig.put("f", text);
    let mut offset = 1;
    let mut lines = Vec::new();
    loop {
        let result = rig.done("read_file", json!({"path": "f", "offset": offset, "limit": 700})).await;
        assert_eq!(result["total_lines"], 3000);
        lines.extend(result["content"].as_str().unwrap().lines().map(str::to_owned));
        match result["next_offset"].as_u64() {
            Some(next) => offset = next,
            None => break,
        }
    }
    let expected: Vec<String> = (1..=3000).map(|n| format!("{n}|line {n}")).collect();
    assert_eq!(lines, expected);
    // Too many characters: fewer lines, and where to go on.
    rig.put("wide", format!("{}\n", "x".repeat(1500)).repeat(200));
    let result = rig.done("read_file", json!({"path": "wide"})).await;
    assert_eq!((&result["truncated_by"], &result["truncated"]), (&json!("characters"), &json!(true)));
    let next = result["next_offset"].as_u64().unwrap();
    assert!((60..70).contains(&next), "{next}");
    // One line that is far too long.
    rig.put("one", "é".repeat(5_000_000));
    let result = rig.done("read_file", json!({"path": "one"})).await;
    let content = result["content"].as_str().unwrap();
    assert!(content.starts_with("1|éé") && content.ends_with("[line cut: longer than 2000 characters]"));
    assert_eq!((content.matches('é').count(), &result["lossy"]), (2000, &Value::Null));
    rig.end().await;
}

#[tokio::test]
async fn what_is_no_text_is_not_shown() {
    let rig = Rig::new().await;
    rig.put("b", b"\x7fELF\0\0\0");
    rig.put("p.PNG", b"\x89PNG");
    std::fs::create_dir(rig.at("d")).unwrap();
    let answer = rig.call("read_file", json!({"path": "b"})).await;
    assert_eq!((answer.failed, &answer.result["is_binary"]), (true, &json!(true)));
    let answer = rig.call("read_file", json!({"path": "p.PNG"})).await;
    assert_eq!((answer.failed, &answer.result["is_image"]), (true, &json!(true)));
    assert!(rig.refused("read_file", json!({"path": "d"})).await.contains("is a directory"));
    assert!(rig.refused("read_file", json!({"path": "/dev/zero"})).await.contains("not a file"));
    rig.put("latin", b"caf\xe9\n");
    let result = rig.done("read_file", json!({"path": "latin"})).await;
    assert_eq!((&result["content"], &result["lossy"]), (&json!("1|caf\u{fffd}"), &json!(true)));
    rig.end().await;
}

#[tokio::test]
async fn a_name_that_is_nearly_right_is_helped() {
    let rig = Rig::new().await;
    rig.put("src/terminal.rs", "");
    rig.put("src/other.txt", "");
    let answer = rig.call("read_file", json!({"path": "src/terminl.rs"})).await;
    assert_eq!(answer.result["similar_files"], json!(["src/terminal.rs"]));
    assert_eq!(answer.result["error_kind"], "not_found");
    let answer = rig.call("read_file", json!({"path": "nowhere/at/all"})).await;
    assert_eq!((answer.failed, &answer.result["similar_files"]), (true, &Value::Null));
    rig.end().await;
}

#[tokio::test]
async fn paths_mean_what_they_mean_to_the_session() {
    let rig = Rig::new().await;
    rig.put("sub/f", "below\n");
    std::fs::write(rig.user().join("h"), "home\n").unwrap();
    rig.run("cd sub").await;
    assert_eq!(rig.done("read_file", json!({"path": "f"})).await["content"], "1|below");
    assert_eq!(rig.done("read_file", json!({"path": "../sub/./f"})).await["content"], "1|below");
    assert_eq!(rig.done("read_file", json!({"path": "~/h"})).await["content"], "1|home");
    let elsewhere = rig.done("read_file", json!({"path": "sub/f", "session": "two"})).await;
    assert_eq!(elsewhere["content"], "1|below");
    rig.end().await;
}

#[tokio::test]
async fn secrets_are_kept_back() {
    let rig = Rig::new().await;
    std::fs::write(rig.hermes().join(".env"), "MY_API_KEY=s3cr3t-value-4711\n").unwrap();
    rig.put(".env", "A=1\n");
    rig.put("f", "a\nkey: s3cr3t-value-4711\nb\n");
    std::fs::create_dir(rig.user().join(".ssh")).unwrap();
    std::fs::write(rig.user().join(".ssh/id_rsa"), "private\n").unwrap();
    symlink(rig.user().join(".ssh"), rig.at("innocent")).unwrap();
    symlink(rig.hermes().join(".env"), rig.at("notes.txt")).unwrap();
    let env = rig.hermes().join(".env");
    for path in
        [".env", "~/.ssh/id_rsa", "innocent/id_rsa", "notes.txt", env.to_str().unwrap(), "/proc/self/environ"]
    {
        let answer = rig.call("read_file", json!({"path": path})).await;
        assert_eq!(
            (answer.failed, &answer.result["status"]),
            (true, &json!("blocked")),
            "{path}: {}",
            answer.result
        );
    }
    let result = rig.done("read_file", json!({"path": "f"})).await;
    assert_eq!(result["content"], "1|a\n2|key: «redacted:MY_API_KEY»\n3|b");
    rig.end().await;
}
