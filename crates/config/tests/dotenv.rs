//! The `.env` file: what its lines mean, and that an edit touches nothing else.

use farshell_config::dotenv::{DotEnv, NotEditable, NotText, remove, set};
use proptest::prelude::*;

fn value(line: &str) -> Option<String> {
    let file = DotEnv::parse(line);
    assert_eq!(file.variables().len() + file.skipped().len(), 1, "{line:?}: {file:?}");
    file.get("A").and_then(|variable| variable.value.clone())
}

#[test]
fn values_of_single_lines() {
    for (line, expected) in [
        ("A=b", "b"),
        ("A=", ""),
        ("A= ", ""),
        (" A = b ", "b"),
        ("export A=b", "b"),
        ("export\tA=b", "b"),
        ("A=b c", "b c"),
        ("A=b # comment", "b"),
        ("A=b\t# comment", "b"),
        ("A=b#c", "b#c"),
        ("A=#c", "#c"),
        ("A= # comment", ""),
        ("A=b=c=d", "b=c=d"),
        ("A=p@ss$1", "p@ss$1"),
        ("A=${B}", "${B}"),
        (r"A=a\nb", r"a\nb"),
        (r#"A="a\nb""#, "a\nb"),
        (r#"A="a\"b\\c\td\$e\'f\q""#, "a\"b\\c\td$e'f\\q"),
        (r#"A="b # c" # d"#, "b # c"),
        (r#"A="b"#, "unclosed"),
        ("A='b # c' # d", "b # c"),
        (r"A='a\nb'", r"a\nb"),
        (r"A='it\'s'", "it's"),
        (r"A='C:\'", r"C:\"),
        ("A=''", ""),
        (r#"A="""#, ""),
        ("'A'=b", "b"),
        (r#"A=["/a:/b"]"#, r#"["/a:/b"]"#),
        (r#"A=["/a #1:/b", "/c:/d"] # mounts"#, r#"["/a #1:/b", "/c:/d"]"#),
        (r#"A={"X": "y # z"}"#, r#"{"X": "y # z"}"#),
        ("A=[not json # comment", "[not json"),
        ("A=b\0c", "bc"),
        ("\0A\0=b", "b"),
        ("A=b\r", "b"),
        ("A=日本 é", "日本 é"),
    ] {
        let expected = (expected != "unclosed").then(|| expected.to_owned());
        assert_eq!(value(line), expected, "{line:?}");
    }
}

#[test]
fn whole_files() {
    let text =
        "\n# c\r\nA=1\r\nexport B=\"two\nlines\" # c\n\nnonsense here\nA=3\n=x\nNAME\n  # d\nC='x'y\nLAST=5";
    let file = DotEnv::parse(text);
    let found: Vec<(&str, Option<&str>, usize)> =
        file.variables().iter().map(|v| (v.name.as_str(), v.value.as_deref(), v.line)).collect();
    assert_eq!(
        found,
        [
            ("A", Some("1"), 3),
            ("B", Some("two\nlines"), 4),
            ("A", Some("3"), 8),
            ("NAME", None, 10),
            ("LAST", Some("5"), 13)
        ]
    );
    let skipped: Vec<usize> = file.skipped().iter().map(|skipped| skipped.line).collect();
    assert_eq!(skipped, [7, 9, 12]);
    assert_eq!(file.get("A").unwrap().line, 8);
    assert!(file.get("NAME").is_none());
}

#[test]
fn an_unclosed_quote_swallows_nothing() {
    let file = DotEnv::parse("A=\"abc\nB=\"x\"\nC=1\n");
    assert!(file.get("A").is_none());
    assert_eq!(file.get("B").unwrap().value.as_deref(), Some("x"));
    assert_eq!(file.get("C").unwrap().value.as_deref(), Some("1"));
}

#[test]
fn encodings() {
    let utf16 = |text: &str, big: bool| -> Vec<u8> {
        let units = std::iter::once(0xfeff).chain(text.encode_utf16());
        units.flat_map(|unit| if big { unit.to_be_bytes() } else { unit.to_le_bytes() }).collect()
    };
    let text = "A=é\r\nB=2\r\n";
    for bytes in [
        text.as_bytes().to_vec(),
        [b"\xef\xbb\xbf", text.as_bytes()].concat(),
        utf16(text, false),
        utf16(text, true),
    ] {
        let file = DotEnv::read(&bytes).unwrap();
        assert_eq!(file.get("A").unwrap().value.as_deref(), Some("é"));
        assert_eq!(file.get("B").unwrap().line, 2);
        let after = set(&bytes, "B", "3").unwrap();
        assert_eq!(after.len(), bytes.len());
        assert_eq!(&after[..2], &bytes[..2], "the mark stays");
        assert_eq!(DotEnv::read(&after).unwrap().get("B").unwrap().value.as_deref(), Some("3"));
    }
    assert_eq!(DotEnv::read(b"A=1\nB=\xff\n"), Err(NotText { line: 2 }));
    assert_eq!(set(b"A=1\nB=\xff\n", "A", "2"), Err(NotEditable::NotText(NotText { line: 2 })));
}

#[test]
fn edits_in_place() {
    let text = "# head\nexport A = 'old' # keep\n\nB=2\nA=\"older\"\n";
    assert_eq!(set(text.as_bytes(), "A", "new").unwrap(), b"# head\nexport A = 'old' # keep\n\nB=2\nA=new\n");
    assert_eq!(set(text.as_bytes(), "C", "a b").unwrap(), format!("{text}C=\"a b\"\n").into_bytes());
    assert_eq!(remove(text.as_bytes(), "A").unwrap().unwrap(), b"# head\n\nB=2\n");
    assert_eq!(remove(text.as_bytes(), "Z"), Ok(None));
    assert_eq!(set(b"A=1 # one", "A", "2 # 3").unwrap(), b"A=\"2 # 3\" # one");
    assert_eq!(set(b"A=1", "B", "2").unwrap(), b"A=1\nB=2\n");
    assert_eq!(set(b"A=1\r\n", "B", "2").unwrap(), b"A=1\r\nB=2\r\n");
    assert_eq!(set(b"", "B", "").unwrap(), b"B=\n");
    assert_eq!(set(b"A", "A", "1").unwrap(), b"A=1");
    assert_eq!(set(b"V=x\n", "V", r#"["/a:/b", "/c:/d"]"#).unwrap(), b"V=[\"/a:/b\", \"/c:/d\"]\n");
    // Bytes that mean nothing are still somebody's bytes.
    assert_eq!(
        set(b"\0\0# x\0\nnonsense here\n\nA=1\n", "A", "2").unwrap(),
        b"\0\0# x\0\nnonsense here\n\nA=2\n"
    );
}

fn file_text() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        "[A-C]=[a-z #'\"\\\\$=]{0,8}",
        "(export )?[A-C] ?= ?\"[a-z #'\\\\]{0,6}\"( # c)?",
        "[A-C]='[a-z #\"]{0,6}'",
        "#[a-z]{0,5}",
        "[a-z ='\"#]{0,8}",
    ];
    prop::collection::vec((line, prop::sample::select(vec!["\n", "\r\n", "\n\n", "\r"])), 0..8)
        .prop_map(|lines| lines.into_iter().map(|(line, end)| line + end).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_set_reads_back_and_the_rest_stays(text in file_text(), value in any::<String>()) {
        let value = value.replace('\0', "");
        let before = DotEnv::parse(&text);
        let after = set(text.as_bytes(), "A", &value);
        if let Ok(after) = after {
            let read = DotEnv::read(&after).unwrap();
            prop_assert_eq!(read.get("A").unwrap().value.as_deref(), Some(value.as_str()));
            for name in ["B", "C"] {
                prop_assert_eq!(read.get(name).map(|v| &v.value), before.get(name).map(|v| &v.value));
            }
            match remove(&after, "A") {
                Ok(without) => prop_assert!(DotEnv::read(&without.unwrap()).unwrap().get("A").is_none()),
                // Without its line, a stray quote above it could close further down.
                Err(error) => prop_assert_eq!(error, NotEditable::Unsafe),
            }
        } else {
            prop_assert_eq!(after, Err(NotEditable::Unsafe));
        }
    }

    #[test]
    fn any_value_fits_a_sound_file(value in any::<String>()) {
        let value = value.replace('\0', "");
        let after = set(b"# c\nB=1\nA=2 # c\nC=3\n", "A", &value).unwrap();
        let read = DotEnv::read(&after).unwrap();
        prop_assert_eq!(read.get("A").unwrap().value.as_deref(), Some(value.as_str()));
        prop_assert!(after.starts_with(b"# c\nB=1\nA=") && after.ends_with(b" # c\nC=3\n"));
    }

    #[test]
    fn nothing_panics(bytes in any::<Vec<u8>>(), text in any::<String>()) {
        let _ = DotEnv::read(&bytes);
        let _ = DotEnv::parse(&text);
        let _ = set(&bytes, "A", &text);
        let _ = remove(text.as_bytes(), "A");
    }
}
