use super::*;
use proptest::prelude::*;

/// What each matcher is for: found by it, and by none before it.
fn only(matcher: Matcher, text: &str, old: &str) -> String {
    for other in ALL.iter().take_while(|other| **other != matcher) {
        let found = other.find(text, old);
        assert_ne!(found.len(), 1, "{} finds it too: {found:?}", other.name());
    }
    let found = find(text, old, false).unwrap_or_else(|error| panic!("{}: {error:?}", matcher.name()));
    assert_eq!(found.matcher, matcher);
    assert_eq!(found.ranges.len(), 1);
    text[found.ranges[0].clone()].to_owned()
}

fn several(text: &str, old: &str) -> Vec<usize> {
    match find(text, old, false) {
        Err(NotOne::Several { lines }) => lines,
        other => panic!("{other:?}"),
    }
}

fn nowhere(text: &str, old: &str) {
    assert_eq!(find(text, old, false), Err(NotOne::Nowhere), "{old:?}");
}

#[test]
fn exact_to_the_letter() {
    assert_eq!(only(Matcher::Exact, "a b\nc d\n", "b\nc"), "b\nc");
    assert_eq!(several("x\ny\nx\n", "x"), [1, 3]);
    assert_eq!(find("x y x", "x", true).unwrap().ranges, [0..1, 4..5]);
    nowhere("abc", "");
    nowhere("", "x");
}

#[test]
fn line_trimmed_ignores_blanks_around_lines() {
    let text = "fn a() {\n    one();  \n    two();\n}\n";
    assert_eq!(only(Matcher::LineTrimmed, text, "one();\n  two();"), "    one();  \n    two();");
    assert_eq!(only(Matcher::LineTrimmed, text, "one();\ntwo();\n"), "    one();  \n    two();\n");
    assert_eq!(several("  a\nb\n a\nb\n", "\ta\nb"), [1, 3]);
    nowhere("ax\nby\n", " a\nb");
}

#[test]
fn whitespace_normalised_ignores_how_many_blanks() {
    assert_eq!(only(Matcher::WhitespaceNormalised, "x = call( a,\t b );", "call( a, b )"), "call( a,\t b )");
    assert_eq!(several("a  b\na   b\n", "a b"), [1, 2]);
    nowhere("foobar", "foo bar");
}

#[test]
fn indentation_flexible_chooses_by_shape() {
    // Trimmed, both are alike; only one has the shape.
    let text = "if a:\n    x\n    y\n\nif a:\n    x\ny\n";
    assert_eq!(only(Matcher::IndentationFlexible, text, "  if a:\n      x\n      y"), "if a:\n    x\n    y");
    let twice = "if a:\n    x\n  if a:\n      x\n";
    assert_eq!(several(twice, "    if a:\n        x"), [1, 3]);
    assert_eq!(several("a\n b\na\n  b\n", " a\nb"), [1, 3], "a shape that is nowhere chooses nothing");
}

#[test]
fn escape_normalised_undoes_one_escape_too_many() {
    assert_eq!(
        only(Matcher::EscapeNormalised, "say(\"hi\")\n\tdone\n", "say(\\\"hi\\\")\\n\\tdone"),
        "say(\"hi\")\n\tdone"
    );
    assert_eq!(several("a\nb\na\nb\n", "a\\nb"), [1, 3]);
    nowhere("a\nb", "a\\xb");
}

#[test]
fn trimmed_boundary_ignores_blanks_around_the_whole() {
    assert_eq!(only(Matcher::TrimmedBoundary, "x = foo(1) + 2\n", "\n\n  foo(1)\n\n"), "foo(1)");
    assert_eq!(several("f(1) f(1)", " f(1)\n"), [1, 1]);
    nowhere("a\nb\n", "\n\n a b");
}

#[test]
fn unicode_normalised_ignores_typography() {
    assert_eq!(
        only(Matcher::UnicodeNormalised, "he said “don’t” – twice…\n", "he said \"don't\" - twice..."),
        "he said “don’t” – twice…"
    );
    assert_eq!(only(Matcher::UnicodeNormalised, "say \"it's\"\n", "say “it’s”"), "say \"it's\"");
    assert_eq!(several("‘a’ ’a‘", "'a'"), [1, 1]);
    nowhere("naïve", "naive");
}

#[test]
fn block_anchor_holds_on_to_first_and_last_line() {
    let text = "def f(x):\n    total = x + 1\n    log(total)\n    return total\n\ndef g():\n    pass\n";
    let old = "def f(x):\n    totals = x + 2\n    logs(totals, 1)\n    return total";
    let found = only(Matcher::BlockAnchor, text, old);
    assert_eq!(found, "def f(x):\n    total = x + 1\n    log(total)\n    return total");
    // The middle is another one.
    nowhere(
        text,
        "def f(x):\n    completely unrelated words here\n    with nothing of it at all!!\n    return total",
    );
    // One block that is half alike will do; of several, none can be chosen.
    let half = "begin()\nabcdefgh1234\nend()\n";
    let asked = "begin()\nabcdefgh-wxyz\nend()";
    assert_eq!(only(Matcher::BlockAnchor, half, asked), "begin()\nabcdefgh1234\nend()");
    assert_eq!(several(&format!("{half}\n{half}"), asked), [1, 5]);
    let alike = "begin()\nabcdefgh123x\nend()\n";
    assert_eq!(several(&format!("{alike}\n{alike}"), "begin()\nabcdefgh1234\nend()"), [1, 5]);
}

#[test]
fn context_aware_wants_most_lines_nearly_the_same() {
    let text = "import os\nimport sys\n\nconst_a = compute(1)\nresult_b = const_a * 2\nprint(result_b)\n";
    let old = "const_a = compute(2)\nresult_b = const_a * 3\nsomething else entirely, a new line";
    assert_eq!(
        only(Matcher::ContextAware, text, old),
        "const_a = compute(1)\nresult_b = const_a * 2\nprint(result_b)"
    );
    // Less than half, a single line, and brackets only.
    nowhere(text, "const_a = compute(2)\nxxxxxxxxxxxxxxxxx\nyyyyyyyyyyyyyyyyyy\nzzzzzzzzzzzzzzz");
    nowhere(text, "const_a = compute(22)");
    nowhere("a {\n}\n", "b {\n}");
    let twice = "alpha = one(1)\nbeta_ = two(2)\n\nalpha = one(1)\nbeta_ = two(2)\n";
    assert_eq!(several(twice, "alpha = one(9)\nbeta_ = two(9)"), [1, 4]);
}

#[test]
fn a_huge_file_is_not_searched_for_ever() {
    let text = "some line of text that is like the others\n".repeat(40_000);
    let old = "some line of text that is not like the others\n".repeat(50);
    nowhere(&text, &old);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever is asked for: ranges are in order, apart, on character boundaries, and never empty.
    #[test]
    fn ranges_can_be_cut_out(text in "[ab \\\\\n\t“é{}]{0,80}", old in "[ab \\\\\n\t\"é{}]{1,20}") {
        for matcher in ALL {
            let mut end = 0;
            for range in matcher.find(&text, &old) {
                prop_assert!(range.start >= end && range.end > range.start, "{} {range:?}", matcher.name());
                prop_assert!(text.get(range.clone()).is_some());
                end = range.end;
            }
        }
    }

    /// What is there once, exactly, is found there.
    #[test]
    fn what_is_there_is_found(before in "[a-m\n ]{0,40}", piece in "[n-z]{3,20}", after in "[a-m\n ]{0,40}") {
        let text = format!("{before}{piece}{after}");
        let found = find(&text, &piece, false).unwrap();
        let place = before.len()..before.len() + piece.len();
        prop_assert_eq!((found.matcher, found.ranges), (Matcher::Exact, vec![place]));
    }

    /// Another indentation is no obstacle.
    #[test]
    fn indented_otherwise_is_found(lines in proptest::collection::vec("[a-z]{6,12}", 2..6), by in 1usize..9) {
        let old = lines.join("\n");
        let pad = " ".repeat(by);
        let text = format!("start\n{}\nend\n", lines.iter().map(|line| format!("{pad}{line}")).collect::<Vec<_>>().join("\n"));
        let found = find(&text, &old, false);
        prop_assert!(found.is_ok(), "{:?}", found);
    }
}
