//! `yaml::set` and `yaml::unset` on files as people write them: either exactly the change, or a refusal.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use farshell_config::yaml::{Kind, Merge, Node, parse, set, unset};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Files that have tripped editors of YAML.
const DOCUMENTS: &[(&str, &str)] = &[
    ("empty", ""),
    ("only a comment", "# my settings\n"),
    ("only a comment without line end", "# my settings"),
    ("blank lines", "\n\n"),
    ("no section", "model: x\n"),
    ("no section, no line end", "model: x"),
    ("null section", "terminal:\n"),
    ("null section without line end", "terminal:"),
    ("null section with comment", "terminal: # nothing yet\n# after\nmodel: x\n"),
    ("null section between", "a: 1\nterminal:\n\n  # commented: out\n\nmodel: x # why\n"),
    ("tilde section", "terminal: ~\nmodel: x\n"),
    ("plain", "terminal:\n  backend: local\n  timeout: 180\n"),
    ("plain without line end", "terminal:\n  backend: local\n  timeout: 180"),
    (
        "comments everywhere",
        "# top\n\n# section\nterminal: # here\n  # before backend\n  backend: docker # isolated\n  # before timeout\n  timeout: 180   # three minutes\n  # tail\n\n# other\nmodel: # m\n  name: x # n\n# end\n",
    ),
    (
        "four blanks",
        "model:\n    name: x\nterminal:\n    backend: ssh\n    ssh_host: a.b\n    timeout: 5\nlast: 1\n",
    ),
    ("windows", "# top\r\nterminal:\r\n  backend: local # c\r\n  timeout: 180\r\n\r\nmodel: x\r\n"),
    ("windows without line end", "terminal:\r\n  timeout: 180"),
    ("flow section", "terminal: {backend: docker, timeout: 180} # flow\nmodel: x\n"),
    ("empty flow section", "terminal: {}\nmodel: x\n"),
    ("flow over lines", "terminal: {\n  backend: docker, # c\n  timeout: 180,\n}\n"),
    ("flow document", "{terminal: {timeout: 1}, a: [1, 2]}\n"),
    (
        "lists",
        "terminal:\n  docker_volumes: # mounts\n    - \"/a:/b\"\n    - /c:/d:ro\n  docker_forward_env: [A, B] # names\n  timeout: 9\n",
    ),
    ("lists at the key", "terminal:\n  docker_volumes:\n  - /a:/b\n  - /c:/d\n  timeout: 9\nz: 1\n"),
    (
        "list with comments inside",
        "terminal:\n  docker_volumes:\n    # first\n    - /a:/b # one\n    - /c:/d # two\n",
    ),
    ("quoted keys", "\"terminal\":\n  'timeout': 180 # q\n  \"backend\": 'local'\n"),
    ("quoted values", "terminal:\n  backend: \"docker\" # d # e\n  timeout: '180'\n  cwd: \"a # b\"\n"),
    ("block scalar", "note: |\n  # not a comment\n  timeout: 5\n\n# comment\nterminal:\n  timeout: 1\n"),
    ("block scalar last", "terminal:\n  timeout: 1\nnote: |\n  text # no\n  more\n\n# end\n"),
    ("folded value", "terminal:\n  cwd: >- # hdr\n    /a\n  timeout: 1 # t\n"),
    ("kept lines", "terminal:\n  cwd: |+\n    /a\n\n\nmodel: x\n"),
    ("plain over lines", "terminal:\n  cwd: /a\n    b # c\n  timeout: 1\n"),
    ("anchors", "base: &b\n  timeout: 60\nterminal:\n  <<: *b\n  backend: docker\n"),
    ("anchor on the value", "terminal:\n  timeout: &t 60\nother: *t\n"),
    ("alias value", "t: &t 60\nterminal:\n  timeout: *t # same\n"),
    ("alias section", "x: &x {timeout: 1}\nterminal: *x\n"),
    ("tags", "terminal:\n  timeout: !!int 60\n  cwd: !!str 5\n"),
    ("document marks", "---\nterminal:\n  timeout: 1\n...\n"),
    ("document start", "%YAML 1.2\n---\n# c\nterminal:\n  timeout: 1\n"),
    ("explicit keys", "? terminal\n: timeout: 5\n? other\n: 1\n"),
    ("non-latin", "# zażółć\nterminal:\n  cwd: /tmp/é # ü\n  timeout: 1 # 日本\nname: 日本\n"),
    (
        "many sections",
        "a: {b: [1, {c: d}]}\nterminal:\n  timeout: 1\ntool_output:\n  max_bytes: 5\napprovals:\n  mode: manual\n  deny:\n    - \"rm *\"\n",
    ),
    ("section last without line end", "a: 1\nterminal:\n  timeout: 1 # c"),
    ("deep", "terminal:\n  docker_env:\n    A: \"1\" # a\n    B: x\n  timeout: 3\n"),
    (
        "odd numbers",
        "a: 1_000\nb: 0x10\nc: .inf\nd: .nan\ne: 123456789012345678901234567890\nterminal:\n  timeout: 1e2\n",
    ),
    ("null values", "terminal:\n  backend:\n  timeout: # later\n  cwd: null\n"),
    ("one-blank indent", "terminal:\n timeout: 1\n backend: local\n"),
    ("colon far away", "terminal  :\n  timeout   :   1   # c\n"),
];

fn edits() -> Vec<(Vec<&'static str>, Value)> {
    vec![
        (vec!["terminal", "timeout"], json!(240)),
        (vec!["terminal", "backend"], json!("ssh")),
        (vec!["terminal", "cwd"], json!("/srv/my dir: #1")),
        (vec!["terminal", "docker_volumes"], json!(["/x:/y", "/p q:/r", "- a"])),
        (vec!["terminal", "docker_volumes"], json!([])),
        (vec!["terminal", "docker_env"], json!({"A": "yes", "C": "line\nbreak"})),
        (vec!["terminal", "docker_env", "B"], json!("é \"q\" \\ ' \u{7f}")),
        (vec!["terminal", "container_cpu"], json!(0.5)),
        (vec!["approvals", "mode"], json!("off")),
        (vec!["brand", "new", "deep"], json!(true)),
        (vec!["terminal", "docker_network"], json!(false)),
        (vec!["model"], json!("y")),
    ]
}

fn hand_written_comments(text: &str) -> Vec<&str> {
    // Independent of the crate's own reader: good for documents without `#` inside scalars.
    text.lines()
        .filter_map(|line| {
            let at = line.find(" #").map(|at| at + 1).or_else(|| line.starts_with('#').then_some(0))?;
            Some(line[at..].trim_end())
        })
        .collect()
}

fn get<'a>(node: &'a Node, path: &[&str]) -> Option<&'a Node> {
    path.iter().try_fold(node, |node, key| node.entry(key).map(|(_, value)| value))
}

fn put(value: &mut Value, path: &[&str], new: &Value) {
    match path {
        [] => *value = new.clone(),
        [key, rest @ ..] => {
            if value.is_null() {
                *value = json!({});
            }
            put(value.as_object_mut().unwrap().entry(*key).or_insert(Value::Null), rest, new);
        }
    }
}

#[test]
fn every_edit_of_every_document_is_exact_or_refused() {
    let (mut done, mut refused) = (0, Vec::new());
    for (name, text) in DOCUMENTS {
        let before = parse(text, Merge::Keep).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        for (path, value) in edits() {
            let after = match set(text, &path, &value) {
                Ok(after) => after,
                Err(refusal) => {
                    refused.push(format!("{name}: {}: {refusal:?}", path.join(".")));
                    continue;
                }
            };
            done += 1;
            let read = parse(&after, Merge::Keep).unwrap();
            let mut expected = before.to_json();
            put(&mut expected, &path, &value);
            assert_eq!(read.to_json(), expected, "{name}: {path:?}\n{after}");
            if !text.contains("not a comment") && !text.contains("a # b") && !text.contains("text # no") {
                let kept = after.replace("dir: #1", "dir");
                assert_eq!(
                    hand_written_comments(&kept),
                    hand_written_comments(text),
                    "{name}: {path:?}\n{after}"
                );
            }
            if text.contains("\r\n") {
                assert_eq!(after.matches('\n').count(), after.matches("\r\n").count(), "{name}: {after:?}");
            }
            // What isn't on the path keeps its lines.
            assert_eq!(
                set(&after, &path, &value).as_ref(),
                Ok(&after),
                "{name}: {path:?} is not stable\n{after}"
            );
        }
    }
    for line in &refused {
        println!("{line}");
    }
    println!("{done} done, {} refused", refused.len());
    // Refusals are for shapes that hold an anchor, an alias, or comments inside the old value.
    assert!(refused.len() <= 40, "{} refusals", refused.len());
    assert!(done >= 500, "{done} edits");
}

#[test]
fn every_removal_is_exact_or_refused() {
    for (name, text) in DOCUMENTS {
        let before = parse(text, Merge::Keep).unwrap();
        for path in [
            &["terminal", "timeout"][..],
            &["terminal", "backend"],
            &["terminal", "docker_env", "A"],
            &["model"],
            &["terminal"],
            &["terminal", "docker_volumes"],
            &["terminal", "cwd"],
        ] {
            match unset(text, path) {
                Ok(None) => assert!(get(&before, path).is_none(), "{name}: {path:?}"),
                Ok(Some(after)) => {
                    let read = parse(&after, Merge::Keep).unwrap();
                    assert!(get(&read, path).is_none(), "{name}: {path:?}\n{after}");
                    if !text.contains("not a comment")
                        && !text.contains("a # b")
                        && !text.contains("text # no")
                    {
                        assert_eq!(
                            hand_written_comments(&after),
                            hand_written_comments(text),
                            "{name}: {path:?}\n{after}"
                        );
                    }
                }
                Err(refusal) => println!("{name}: {path:?}: {refusal:?}"),
            }
        }
    }
}

#[test]
fn results_look_as_a_person_would_write_them() {
    let commented = "# top\nterminal: # here\n  # before\n  timeout: 180   # three minutes\n\nmodel: x\n";
    assert_eq!(
        set(commented, &["terminal", "timeout"], &json!(240)).unwrap(),
        "# top\nterminal: # here\n  # before\n  timeout: 240   # three minutes\n\nmodel: x\n"
    );
    assert_eq!(
        set(commented, &["terminal", "docker_volumes"], &json!(["/a:/b"])).unwrap(),
        "# top\nterminal: # here\n  # before\n  timeout: 180   # three minutes\n  docker_volumes:\n    - /a:/b\n\nmodel: x\n"
    );
    assert_eq!(
        set("", &["terminal", "backend"], &json!("docker")).unwrap(),
        "terminal:\n  backend: docker\n"
    );
    assert_eq!(
        set("terminal: {a: 1}\n", &["terminal", "backend"], &json!("docker")).unwrap(),
        "terminal: {a: 1, backend: docker}\n"
    );
    assert_eq!(
        set("terminal:\n    docker_env: {} # none\n", &["terminal", "docker_env"], &json!({"A": "1"}))
            .unwrap(),
        "terminal:\n    docker_env: # none\n        A: \"1\"\n"
    );
    assert_eq!(
        unset(commented, &["terminal", "timeout"]).unwrap().unwrap(),
        "# top\nterminal: # here\n  # before\n  # three minutes\n\nmodel: x\n"
    );
    assert_eq!(unset("terminal: {a: 1, b: 2}\n", &["terminal", "a"]).unwrap().unwrap(), "terminal: {b: 2}\n");
    assert_eq!(unset("terminal: {a: 1, b: 2}\n", &["terminal", "b"]).unwrap().unwrap(), "terminal: {a: 1}\n");
}

#[test]
fn broken_files_are_refused() {
    for text in [
        "a: [1\n",
        "a: 1\na: 2\n",
        "a:\n\t- b\n",
        "a: *x\n",
        "a: 1\n---\nb: 2\n",
        "- a\n",
        "just text\n",
        "terminal: 5\n",
        "terminal: [a]\n",
        "\"",
        "{",
        "a: 'x\n",
        "!!",
        "&",
        "%",
        "\u{0}",
    ] {
        assert!(set(text, &["terminal", "timeout"], &json!(1)).is_err(), "{text:?}");
    }
}

#[test]
fn alias_bombs_and_deep_nesting_are_refused() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for n in 1..12 {
        let items = vec![format!("*a{}", n - 1); 10].join(", ");
        bomb.push_str(&format!("a{n}: &a{n} [{items}]\n"));
    }
    assert!(parse(&bomb, Merge::Expand).is_err());
    assert!(parse(&"[".repeat(100_000), Merge::Expand).is_err());
    assert!(parse(&format!("{}{}", "[".repeat(5000), "]".repeat(5000)), Merge::Expand).is_err());
    assert!(parse(&"a: {".repeat(5000), Merge::Expand).is_err());
    assert!(parse(&"- ".repeat(5000), Merge::Expand).is_err());
    let stairs: String = (0..500).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    assert!(parse(&stairs, Merge::Expand).is_err());
}

fn awkward_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z0-9 #:'\"\\\\{}\\[\\],&*!|>%@`~-]{0,12}",
        any::<String>(),
        prop::sample::select(vec![
            "yes", "no", "null", "~", "1", "1.5", "", " ", "-", "? a", "a: b", "# x", "...", "---", "0x1f",
            "<<"
        ])
        .prop_map(str::to_owned),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any text reads back as itself, and everything else stays.
    #[test]
    fn any_text_reads_back(index in 0..DOCUMENTS.len(), key in 0..4_usize, text in awkward_text()) {
        let (_, document) = DOCUMENTS[index];
        let path = ["terminal", ["timeout", "backend", "cwd", "fresh"][key]];
        let before = parse(document, Merge::Keep).unwrap();
        if let Ok(after) = set(document, &path, &json!(text)) {
            let read = parse(&after, Merge::Keep).unwrap();
            prop_assert_eq!(&get(&read, &path).unwrap().kind, &Kind::Text(text.clone()));
            let mut expected = before.to_json();
            put(&mut expected, &path, &json!(text));
            prop_assert_eq!(read.to_json(), expected);
        } else {
            // What can be done for one text can be done for another.
            prop_assert!(set(document, &path, &json!("x")).is_err(), "{:?} refused", text);
        }
    }

    /// No text makes the reader or the editor panic.
    #[test]
    fn nothing_panics(text in "[a-z0-9 #:'\"\\\\{}\\[\\],&*!|>%\n\r\t?-]{0,60}", value in any::<String>()) {
        let _ = set(&text, &["terminal", "timeout"], &json!(value));
        let _ = set(&text, &["a", "b"], &json!([value]));
        let _ = unset(&text, &["a"]);
        let _ = parse(&text, Merge::Expand);
    }
}
