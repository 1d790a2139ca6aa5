use super::*;

fn patch(body: &str) -> String {
    format!("*** Begin Patch\n{body}*** End Patch\n")
}

fn applied(text: &str, body: &str) -> Result<String, String> {
    match parse(&patch(&format!("*** Update File: f\n{body}")))?.as_slice() {
        [Change::Update { hunks, .. }] => apply(text, hunks),
        other => panic!("{other:?}"),
    }
}

#[test]
fn all_sorts_of_changes_are_read() {
    let text = patch(
        "*** Update File: a.py\n*** Move to: b.py\n@@ def f(): @@\n x\n-y\n+z\n\n*** End of File\n\
         *** Add File: new/c.txt\n+one\n+\n+two\n*** Delete File: d\n*** Move File: e f -> g\n",
    );
    let hunk = Hunk {
        hint: Some("def f():".into()),
        lines: vec![
            Line::Keep("x".into()),
            Line::Remove("y".into()),
            Line::Add("z".into()),
            Line::Keep(String::new()),
        ],
        at_end: true,
    };
    assert_eq!(
        parse(&text).unwrap(),
        [
            Change::Update { path: "a.py".into(), to: Some("b.py".into()), hunks: vec![hunk] },
            Change::Add { path: "new/c.txt".into(), text: "one\n\ntwo\n".into() },
            Change::Delete { path: "d".into() },
            Change::Move { path: "e f".into(), to: "g".into() },
        ]
    );
}

#[test]
fn what_is_no_patch_is_refused_with_its_line() {
    for (text, expected) in [
        ("", "the patch is empty"),
        ("--- a\n+++ b\n", "line 1 of the patch: a patch begins with `*** Begin Patch`"),
        (&patch(""), "the patch has no file in it"),
        (&patch("*** Update File: f\n x\n"), "the patch changes nothing in f"),
        (&patch("*** Update File: ../f\n-x\n"), "line 2 of the patch: \"../f\" has a `..` in it"),
        (&patch("*** Add File: f\nx\n"), "line 3 of the patch: the lines of an added file begin with +"),
        (&patch("*** Update File: f\n-x\nyy\n"), "line 4 of the patch: a line of a hunk begins with"),
        (&patch("*** Delete File: f\n-x\n"), "line 3 of the patch: nothing stands below"),
        (&patch("*** Move File: f\n"), "line 2 of the patch: `*** Move File: FROM -> TO`"),
        (&patch("+x\n"), "line 2 of the patch: a file is named first"),
        (&patch("*** Update File: \n-x\n"), "line 2 of the patch names no file"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.starts_with(expected), "{text:?}: {error}");
    }
}

#[test]
fn hunks_go_through_the_file_in_order() {
    let text = "def f():\n    a\n    b\n\ndef g():\n    a\n    b\n";
    assert_eq!(
        applied(text, "@@ def g():\n     a\n-    b\n+    c\n").unwrap(),
        "def f():\n    a\n    b\n\ndef g():\n    a\n    c\n"
    );
    assert_eq!(
        applied(text, "@@ def f():\n-    a\n+    x\n@@ def g():\n-    b\n+    y\n").unwrap(),
        "def f():\n    x\n    b\n\ndef g():\n    a\n    y\n"
    );
    assert_eq!(applied("a\nb", "-b\n+c\n").unwrap(), "a\nc", "no line end where there was none");
    assert_eq!(applied("a\nb\n", " a\n-b\n").unwrap(), "a\n");
    assert_eq!(applied("a\n", "+b\n*** End of File\n").unwrap(), "a\nb\n");
    assert_eq!(applied("x\ny\n", "@@ x\n+between\n").unwrap(), "x\nbetween\ny\n");
    assert_eq!(applied("a\nb\nx\na\nb\n", " a\n-b\n+c\n*** End of File\n").unwrap(), "a\nb\nx\na\nc\n");
}

#[test]
fn context_that_is_not_to_the_letter_stays_as_the_file_has_it() {
    assert_eq!(
        applied("\tif x:  \n\t\told()\n", " if x:\n-old()\n+new()\n").unwrap(),
        "\tif x:  \n\tnew()\n",
        "what is kept is the file's; what is added is indented as the block"
    );
    assert_eq!(applied("say “hi”\nold\n", " say \"hi\"\n-old\n+new\n").unwrap(), "say \"hi\"\nnew\n");
}

#[test]
fn hunks_that_do_not_fit_say_why() {
    for (text, body, expected) in [
        ("a\nx\na\n", "-a\n+b\n", "hunk 1 of 1: its lines are there 2 times (lines 1, 3)"),
        ("a\n", "-nope\n+b\n", "hunk 1 of 1: its lines are not in the file"),
        ("a\nb\n", "-b\n+c\n@@\n-a\n+d\n", "hunk 2 of 2: its lines are only found before"),
        ("a\n", "@@ nope\n-a\n+b\n", "hunk 1 of 1: there is no line \"nope\""),
        ("a\n", "+b\n", "hunk 1 of 1: it only adds lines and does not say where"),
        // Loose matches are for single pieces, not for hunks.
        (
            "begin()\nabcdefgh1234\nend()\n",
            " begin()\n-abcdefgh-wxyz\n end()\n",
            "hunk 1 of 1: its lines are not",
        ),
    ] {
        let error = applied(text, body).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
}
