//! write_file.

use crate::rig::Rig;
use serde_json::{Value, json};
use std::os::unix::fs::{PermissionsExt, symlink};

#[tokio::test]
async fn a_file_is_made_with_its_directories() {
    let rig = Rig::new().await;
    let result = rig.done("write_file", json!({"path": "a/b/c.txt", "content": "héllo\n"})).await;
    assert_eq!(rig.text("a/b/c.txt"), "héllo\n");
    assert_eq!(
        (&result["bytes_written"], &result["dirs_created"], &result["created"]),
        (&json!(7), &json!(true), &json!(true))
    );
    assert_eq!(result["resolved_path"], rig.at("a/b/c.txt").to_str().unwrap());
    let result = rig.done("write_file", json!({"path": "a/b/c.txt", "content": ""})).await;
    assert_eq!(
        (&result["bytes_written"], &result["dirs_created"], &result["created"]),
        (&json!(0), &Value::Null, &Value::Null)
    );
    assert_eq!(rig.text("a/b/c.txt"), "");
    rig.end().await;
}

#[tokio::test]
async fn manners_of_the_old_file_are_kept() {
    let rig = Rig::new().await;
    let path = rig.put("dos.bat", "\u{feff}a\r\nb\r\n");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o751)).unwrap();
    rig.done("write_file", json!({"path": "dos.bat", "content": "x\ny\n"})).await;
    assert_eq!(rig.text("dos.bat"), "\u{feff}x\r\ny\r\n");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o751);
    // The file behind a link is written, and the link stays.
    rig.put("real", "old");
    symlink("real", rig.at("link")).unwrap();
    let result = rig.done("write_file", json!({"path": "link", "content": "new"})).await;
    assert_eq!((rig.text("real").as_str(), rig.at("link").is_symlink()), ("new", true));
    assert_eq!(result["resolved_path"], rig.at("real").to_str().unwrap());
    rig.end().await;
}

#[tokio::test]
async fn what_is_no_json_is_not_written() {
    let rig = Rig::new().await;
    rig.put("a.json", "{\"a\": 1}\n");
    let answer = rig.call("write_file", json!({"path": "a.json", "content": "{\"a\": 1,}"})).await;
    assert_eq!((answer.failed, &answer.result["lint"]["status"]), (true, &json!("error")));
    assert_eq!(rig.text("a.json"), "{\"a\": 1}\n");
    for (name, content) in [("b.yaml", "a: [1\nb: 2\n"), ("c.toml", "a =\n"), ("d.json", "nope")] {
        let error = rig.refused("write_file", json!({"path": name, "content": content})).await;
        assert!(error.starts_with("nothing was written: content is no valid"), "{error}");
        assert!(!rig.at(name).exists());
    }
    let result = rig.done("write_file", json!({"path": "e.json", "content": "[1]\n"})).await;
    assert_eq!(result["lint"], json!({"status": "ok", "language": "JSON"}));
    // One that was none before may stay none.
    rig.put("f.json", "// comment\n{}\n");
    let result = rig.done("write_file", json!({"path": "f.json", "content": "// other\n{}\n"})).await;
    assert!(result["_warning"].as_str().unwrap().contains("still is none"));
    rig.end().await;
}

#[tokio::test]
async fn line_numbers_and_marks_of_secrets_are_not_written_back() {
    let rig = Rig::new().await;
    std::fs::write(rig.hermes().join(".env"), "MY_API_KEY=s3cr3t-value-4711\n").unwrap();
    rig.put("f", "key: s3cr3t-value-4711\nother\n");
    let shown = rig.done("read_file", json!({"path": "f"})).await["content"].as_str().unwrap().to_owned();
    let error = rig.refused("write_file", json!({"path": "f", "content": shown})).await;
    assert!(error.contains("line numbers"), "{error}");
    let bare: String = shown.lines().map(|line| format!("{}\n", line.split_once('|').unwrap().1)).collect();
    let answer = rig.call("write_file", json!({"path": "f", "content": bare})).await;
    assert_eq!((answer.failed, &answer.result["status"]), (true, &json!("blocked")));
    assert!(answer.result["error"].as_str().unwrap().contains("«redacted:"));
    let answer = rig
        .call(
            "patch",
            json!({"path": "f", "old_string": "other", "new_string": "key: «redacted:MY_API_KEY»"}),
        )
        .await;
    assert!(answer.failed);
    let error = rig
        .refused(
            "patch",
            json!({"path": "f", "old_string": "key: «redacted:MY_API_KEY»\nother", "new_string": "x"}),
        )
        .await;
    assert!(error.contains("is not what stands in the file"), "{error}");
    assert_eq!(rig.text("f"), "key: s3cr3t-value-4711\nother\n");
    // Around the secret it can be changed, and the diff does not show it.
    let result =
        rig.done("patch", json!({"path": "f", "old_string": "other", "new_string": "another"})).await;
    assert!(result["diff"].as_str().unwrap().contains("«redacted:MY_API_KEY»"));
    assert_eq!(rig.text("f"), "key: s3cr3t-value-4711\nanother\n");
    // Who writes about the mark itself may do so where it is.
    rig.put("doc", "shown as «redacted:X»\n");
    rig.done("write_file", json!({"path": "doc", "content": "secrets are shown as «redacted:X»\n"})).await;
    rig.end().await;
}

#[tokio::test]
async fn what_somebody_else_wrote_is_pointed_out() {
    let rig = Rig::new().await;
    rig.put("f", "one\n");
    rig.done("read_file", json!({"path": "f"})).await;
    rig.put("f", "two, by somebody else\n");
    let result = rig.done("write_file", json!({"path": "f", "content": "three\n"})).await;
    assert!(result["_warning"].as_str().unwrap().contains("changed by somebody else"));
    let result = rig.done("write_file", json!({"path": "f", "content": "four\n"})).await;
    assert_eq!(result["_warning"], Value::Null, "its own writes are known");
    // Another task has its own memory.
    rig.call_as("another", "write_file", json!({"path": rig.at("f"), "content": "five\n"})).await;
    let result = rig.done("write_file", json!({"path": "f", "content": "six\n"})).await;
    assert!(result["_warning"].is_string());
    rig.end().await;
}

#[tokio::test]
async fn protected_paths_are_refused_also_behind_links() {
    let rig = Rig::new().await;
    std::fs::create_dir(rig.user().join(".ssh")).unwrap();
    symlink(rig.user().join(".ssh"), rig.at("keys")).unwrap();
    symlink("/etc", rig.at("conf")).unwrap();
    symlink(rig.hermes().join("config.yaml"), rig.at("settings")).unwrap();
    symlink("conf/nonesuch-farshell", rig.at("dangling")).unwrap();
    let config = rig.hermes().join("config.yaml");
    for path in [
        "/etc/nonesuch-farshell",
        "~/.ssh/authorized_keys",
        "keys/authorized_keys",
        "conf/nonesuch-farshell",
        "dangling",
        "keys/../.ssh/x",
        "settings",
        config.to_str().unwrap(),
    ] {
        let answer = rig.call("write_file", json!({"path": path, "content": "x"})).await;
        assert_eq!(
            (answer.failed, &answer.result["status"]),
            (true, &json!("blocked")),
            "{path}: {}",
            answer.result
        );
        let patch = format!("*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch");
        if !path.contains("..") {
            assert!(rig.call("patch", json!({"mode": "patch", "patch": patch})).await.failed, "{path}");
        }
    }
    assert!(!std::path::Path::new("/etc/nonesuch-farshell").exists());
    assert_eq!(std::fs::read_dir(rig.user().join(".ssh")).unwrap().count(), 0);
    assert!(std::fs::read_to_string(config).unwrap().starts_with("approvals:"));
    assert!(rig.refused("write_file", json!({"path": "/", "content": "x"})).await.contains("is a directory"));
    rig.end().await;
}

#[tokio::test]
async fn a_write_that_nobody_allows_is_not_done() {
    let rig = Rig::with("approvals:\n  mode: ask\n  timeout: 1\n").await;
    let answer = rig.call("write_file", json!({"path": "f", "content": "x"})).await;
    assert_eq!(
        (answer.failed, &answer.result["status"], &answer.result["error_kind"]),
        (true, &json!("blocked"), &json!("denied")),
        "{}",
        answer.result
    );
    rig.put("g", "old\n");
    let answer = rig.call("patch", json!({"path": "g", "old_string": "old", "new_string": "new"})).await;
    assert_eq!((answer.failed, &answer.result["error_kind"]), (true, &json!("denied")));
    assert_eq!((rig.at("f").exists(), rig.text("g").as_str()), (false, "old\n"));
    rig.end().await;
}
