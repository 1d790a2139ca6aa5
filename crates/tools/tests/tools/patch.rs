//! patch.

use crate::rig::Rig;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;

#[tokio::test]
async fn a_piece_is_replaced_and_shown_as_a_diff() {
    let rig = Rig::new().await;
    rig.put("f.py", "def f():\n    return 1\n");
    let result =
        rig.done("patch", json!({"path": "f.py", "old_string": "return 1", "new_string": "return 2"})).await;
    assert_eq!(rig.text("f.py"), "def f():\n    return 2\n");
    let path = rig.at("f.py");
    let name = path.to_str().unwrap().trim_start_matches('/');
    assert_eq!(
        result["diff"],
        format!("--- a/{name}\n+++ b/{name}\n@@ -1,2 +1,2 @@\n def f():\n-    return 1\n+    return 2\n")
    );
    assert_eq!(
        (&result["success"], &result["files_modified"], &result["matched_by"]),
        (&json!(true), &json!([path.to_str().unwrap()]), &Value::Null)
    );
    // Not to the letter, and that is said.
    let result = rig.done("patch", json!({"path": "f.py", "old_string": "def f():\n  return 2", "new_string": "def f():\n  return 3"})).await;
    assert_eq!(result["matched_by"], "line_trimmed");
    rig.end().await;
}

#[tokio::test]
async fn what_does_not_fit_changes_nothing() {
    let rig = Rig::new().await;
    rig.put("f", "x\ny\nx\n");
    for (old, new, expected) in [
        ("x", "z", "old_string is there 2 times (lines 1, 3)"),
        ("nope-nope", "z", "old_string is not in the file"),
        ("y", "y", "nothing would change"),
        ("1|x\n2|y", "z", "line numbers"),
    ] {
        let answer = rig.call("patch", json!({"path": "f", "old_string": old, "new_string": new})).await;
        assert!(
            answer.failed && answer.result["error"].as_str().unwrap().contains(expected),
            "{}",
            answer.result
        );
    }
    assert_eq!(rig.text("f"), "x\ny\nx\n");
    let result = rig
        .done("patch", json!({"path": "f", "old_string": "x", "new_string": "z", "replace_all": true}))
        .await;
    assert_eq!((result["replacements"].as_u64(), rig.text("f").as_str()), (Some(2), "z\ny\nz\n"));
    assert!(
        rig.refused("patch", json!({"path": "none", "old_string": "a", "new_string": "b"}))
            .await
            .contains("there is no file")
    );
    rig.put("bin", b"a\0b");
    assert!(
        rig.refused("patch", json!({"path": "bin", "old_string": "a", "new_string": "b"}))
            .await
            .contains("binary")
    );
    rig.end().await;
}

#[tokio::test]
async fn bytes_that_are_not_touched_stay() {
    let rig = Rig::new().await;
    let path = rig.put("f", b"\xef\xbb\xbfcaf\xe9\r\nold\r\n\xff\xfe\r\n");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    rig.done("patch", json!({"path": "f", "old_string": "old\n", "new_string": "new\nmore\n"})).await;
    assert_eq!(rig.bytes("f"), b"\xef\xbb\xbfcaf\xe9\r\nnew\r\nmore\r\n\xff\xfe\r\n");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o640);
    rig.put("mixed", "a\r\nb\nc\r\n");
    rig.done("patch", json!({"path": "mixed", "old_string": "b\n", "new_string": "B\n"})).await;
    assert_eq!(rig.text("mixed"), "a\r\nB\nc\r\n");
    rig.end().await;
}

#[tokio::test]
async fn somebody_elses_change_is_noticed() {
    let rig = Rig::new().await;
    rig.put("f", "one\ntwo\n");
    rig.done("read_file", json!({"path": "f"})).await;
    rig.put("f", "zero\none\ntwo\n");
    let result = rig.done("patch", json!({"path": "f", "old_string": "two", "new_string": "2"})).await;
    assert!(result["_warning"].as_str().unwrap().contains("changed by somebody else"));
    assert_eq!(rig.text("f"), "zero\none\n2\n");
    rig.put("f", "nothing of it\n");
    assert!(
        rig.refused("patch", json!({"path": "f", "old_string": "one", "new_string": "1"}))
            .await
            .contains("not in the file")
    );
    rig.end().await;
}

#[tokio::test]
async fn several_files_at_once() {
    let rig = Rig::new().await;
    rig.put("a", "one\ntwo\n");
    let exe = rig.put("old/b.sh", "#!/bin/sh\necho b\n");
    std::fs::set_permissions(&exe, std::fs::Permissions::from_mode(0o755)).unwrap();
    rig.put("c", "gone\n");
    rig.put("e", "e\n");
    let patch = "*** Begin Patch\n*** Update File: a\n one\n-two\n+2\n*** Update File: old/b.sh\n*** Move to: new/b.sh\n \
                 #!/bin/sh\n-echo b\n+echo B\n*** Delete File: c\n*** Add File: x/d\n+new\n*** Move File: e -> f\n*** End Patch\n";
    let result = rig.done("patch", json!({"mode": "patch", "patch": patch})).await;
    assert_eq!((rig.text("a").as_str(), rig.text("new/b.sh").as_str()), ("one\n2\n", "#!/bin/sh\necho B\n"));
    assert_eq!((rig.text("x/d").as_str(), rig.text("f").as_str()), ("new\n", "e\n"));
    for gone in ["old/b.sh", "c", "e"] {
        assert!(!rig.at(gone).exists(), "{gone}");
    }
    assert_eq!(std::fs::metadata(rig.at("new/b.sh")).unwrap().permissions().mode() & 0o777, 0o755);
    let paths = |names: &[&str]| {
        json!(names.iter().map(|name| rig.at(name).to_str().unwrap().to_owned()).collect::<Vec<_>>())
    };
    assert_eq!(result["files_modified"], paths(&["a"]));
    assert_eq!(result["files_created"], paths(&["new/b.sh", "x/d", "f"]));
    assert_eq!(result["files_deleted"], paths(&["old/b.sh", "c", "e"]));
    rig.end().await;
}

#[tokio::test]
async fn one_file_that_does_not_fit_and_no_file_is_changed() {
    let rig = Rig::new().await;
    rig.put("a", "one\n");
    rig.put("b", "two\n");
    for (second, expected) in [
        ("*** Update File: b\n-nope\n+2\n", "hunk 1 of 1: its lines are not in the file"),
        ("*** Delete File: none\n", "there is no file"),
        ("*** Add File: b\n+x\n", "it is there already"),
        ("*** Move File: none -> c\n", "there is no file"),
        ("*** Move File: a -> b\n", "is there already"),
        ("*** Update File: /etc/passwd\n-root\n+x\n", "is protected"),
        ("*** Update File: ../x\n-root\n+x\n", "has a `..` in it"),
    ] {
        let patch = format!(
            "*** Begin Patch\n*** Update File: a\n-one\n+1\n*** Add File: new\n+x\n{second}*** End Patch\n"
        );
        let error = rig.refused("patch", json!({"mode": "patch", "patch": patch})).await;
        assert!(error.contains(expected), "{error}");
        assert_eq!(
            (rig.text("a").as_str(), rig.text("b").as_str(), rig.at("new").exists()),
            ("one\n", "two\n", false)
        );
    }
    rig.end().await;
}

#[tokio::test]
async fn what_was_written_is_taken_back_if_a_later_file_can_not_be() {
    let rig = Rig::new().await;
    rig.put("a", "one\n");
    rig.put("ro/b", "two\n");
    // A mount point can't be replaced: that is only found out when it is tried, as root, too.
    let mounted =
        std::process::Command::new("mount").arg("--bind").arg(rig.at("ro/b")).arg(rig.at("ro/b")).status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no right to mount");
        return rig.end().await;
    }
    let patch = "*** Begin Patch\n*** Update File: a\n-one\n+1\n*** Add File: new\n+x\n*** Update File: ro/b\n-two\n+2\n*** End Patch\n";
    let answer = rig.call("patch", json!({"mode": "patch", "patch": patch})).await;
    let unmounted = std::process::Command::new("umount").arg(rig.at("ro/b")).status().unwrap();
    assert!(unmounted.success());
    assert!(answer.failed, "{}", answer.result);
    let error = answer.result["error"].as_str().unwrap();
    assert!(error.contains("The patch was taken back: all other files are as they were"), "{error}");
    assert_eq!(
        (rig.text("a").as_str(), rig.text("ro/b").as_str(), rig.at("new").exists()),
        ("one\n", "two\n", false)
    );
    rig.end().await;
}

#[tokio::test]
async fn broken_syntax_is_reported() {
    let rig = Rig::new().await;
    rig.put("a.json", "{\"a\": 1}\n");
    let result = rig.done("patch", json!({"path": "a.json", "old_string": "1}", "new_string": "1"})).await;
    assert_eq!(result["lint"][0]["status"], "error");
    assert!(result["_warning"].as_str().unwrap().contains("no valid JSON any more"));
    rig.end().await;
}
