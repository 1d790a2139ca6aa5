//! search_files.

use crate::rig::Rig;
use serde_json::{Value, json};

#[tokio::test]
async fn lines_are_found_by_expression() {
    let rig = Rig::new().await;
    rig.put("a.py", "import os\nx = 1\nimport sys\n");
    rig.put("sub/b.py", "import re\n");
    rig.put("c.txt", "import nothing\n");
    let result = rig.done("search_files", json!({"pattern": "^import \\w+", "file_glob": "*.py"})).await;
    assert_eq!(
        result["matches"],
        json!([
            {"path": "a.py", "line": 1, "content": "import os"},
            {"path": "a.py", "line": 3, "content": "import sys"},
            {"path": "sub/b.py", "line": 1, "content": "import re"},
        ])
    );
    assert_eq!(
        (&result["total_count"], &result["truncated"], &result["backend"]),
        (&json!(3), &json!(false), &json!("local"))
    );
    let result = rig.done("search_files", json!({"pattern": "x = 1", "context": 1})).await;
    assert_eq!(
        result["matches"][0],
        json!({"path": "a.py", "line": 1, "content": "import os", "context": true})
    );
    let files = rig.done("search_files", json!({"pattern": "import", "output_mode": "files_only"})).await;
    assert_eq!(files["files"], json!(["a.py", "c.txt", "sub/b.py"]));
    let counts = rig.done("search_files", json!({"pattern": "import", "output_mode": "count"})).await;
    assert_eq!(counts["counts"], json!({"a.py": 2, "c.txt": 1, "sub/b.py": 1}));
    let below = rig.done("search_files", json!({"pattern": "import", "path": "sub", "target": "grep"})).await;
    assert_eq!(below["matches"], json!([{"path": "sub/b.py", "line": 1, "content": "import re"}]));
    let none = rig.done("search_files", json!({"pattern": "nonesuch"})).await;
    assert_eq!((&none["total_count"], none["hint"].is_string()), (&json!(0), true));
    assert!(rig.refused("search_files", json!({"pattern": "("})).await.contains("regex"));
    assert!(
        rig.refused("search_files", json!({"pattern": "x", "path": "none"})).await.contains("there is no")
    );
    rig.end().await;
}

#[tokio::test]
async fn pages_follow_one_another() {
    let rig = Rig::new().await;
    for n in 0..20 {
        rig.put(&format!("f{n:02}"), "hit\nmiss\nhit again\n");
    }
    let mut offset = 0;
    let mut found = Vec::new();
    loop {
        let result = rig.done("search_files", json!({"pattern": "hit", "limit": 7, "offset": offset})).await;
        let text = result["matches_text"].as_str();
        match text {
            Some(text) => {
                let mut path = "";
                for line in text.lines().filter(|line| !line.is_empty()) {
                    match line.split_once(':') {
                        Some((number, _)) => found.push(format!("{path}:{number}")),
                        None => path = line,
                    }
                }
            }
            None => found.extend(
                result["matches"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|hit| format!("{}:{}", hit["path"].as_str().unwrap(), hit["line"])),
            ),
        }
        match result["next_offset"].as_u64() {
            Some(next) => {
                assert_eq!(result["truncated"], true);
                offset = next;
            }
            None => break,
        }
    }
    let expected: Vec<String> = (0..20).flat_map(|n| [format!("f{n:02}:1"), format!("f{n:02}:3")]).collect();
    assert_eq!(found, expected);
    rig.end().await;
}

#[tokio::test]
async fn files_are_found_by_name_newest_first() {
    let rig = Rig::new().await;
    for (name, age) in [("old.rs", 300), ("sub/new.rs", 10), ("mid.rs", 100), ("other.txt", 1)] {
        let path = rig.put(name, "");
        let time = std::time::SystemTime::now() - std::time::Duration::from_secs(age);
        std::fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }
    let result = rig.done("search_files", json!({"pattern": "*.rs", "target": "files"})).await;
    assert_eq!(result["files"], json!(["sub/new.rs", "mid.rs", "old.rs"]));
    let result = rig.done("search_files", json!({"pattern": "the", "target": "find"})).await;
    assert_eq!(result["files"], json!(["other.txt"]));
    let result = rig.done("search_files", json!({"pattern": "*", "target": "files", "limit": 2})).await;
    assert_eq!((&result["files"], &result["next_offset"]), (&json!(["other.txt", "sub/new.rs"]), &json!(2)));
    rig.end().await;
}

#[tokio::test]
async fn secrets_are_left_out_and_that_is_said() {
    let rig = Rig::new().await;
    std::fs::write(rig.hermes().join(".env"), "MY_API_KEY=s3cr3t-value-4711\n").unwrap();
    rig.put(".env", "TOKEN=abc\n");
    rig.put("f", "TOKEN=s3cr3t-value-4711\n");
    let result = rig.done("search_files", json!({"pattern": "TOKEN", "file_glob": ".env"})).await;
    assert_eq!((&result["matches"], result["_omitted"].is_string()), (&Value::Null, true), "{result}");
    let result = rig.done("search_files", json!({"pattern": ".env", "target": "files"})).await;
    assert_eq!((&result["files"], result["_omitted"].is_string()), (&json!([]), true), "{result}");
    let result = rig.done("search_files", json!({"pattern": "TOKEN"})).await;
    assert_eq!(
        result["matches"],
        json!([{"path": "f", "line": 1, "content": "TOKEN=«redacted:MY_API_KEY»"}])
    );
    rig.end().await;
}
