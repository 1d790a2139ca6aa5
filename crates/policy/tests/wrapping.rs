//! A dangerous command stays dangerous however it is wrapped and quoted.

use farshell_policy::{BackendKind, Context, Level, analyse};
use proptest::prelude::*;

fn context() -> Context {
    Context::new(BackendKind::Local).with_cwd("/home/dev/project").with_home("/home/dev")
}

fn level(text: &str) -> Level {
    analyse(text, &context()).verdict.level
}

/// In single quotes, as one word.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Takes a command line, gives one that runs it.
fn wrapped(kind: usize, inner: &str) -> String {
    match kind {
        0 => format!("bash -c {}", quoted(inner)),
        1 => format!("sh -ec {}", quoted(inner)),
        2 => format!("eval {}", quoted(inner)),
        3 => format!("( {inner}\n)"),
        4 => format!("{{ {inner}\n}}"),
        5 => format!("if true; then {inner}\nfi"),
        6 => format!("while true; do {inner}\ndone"),
        7 => format!("echo \"$( {inner}\n)\""),
        8 => format!("true && {inner}"),
        9 => format!("ls; {inner}"),
        10 => format!("ssh host {}", quoted(inner)),
        11 => format!("f() {{ {inner}\n}}; f"),
        12 => format!("cat <({inner}\n)"),
        13 => format!("x={}; eval \"$x\"", quoted(inner)),
        14 => format!("sudo bash -c {}", quoted(inner)),
        15 => format!("printf '%s' {} | sh", quoted(inner)),
        16 => format!("bash <<< {}", quoted(inner)),
        17 => format!("nohup timeout 5 sh -c {}", quoted(inner)),
        18 => format!("find . -exec bash -c {} \\;", quoted(inner)),
        19 => format!("case x in *) {inner}\n;; esac"),
        20 => format!("for i in 1; do {inner}\ndone"),
        21 => format!("trap {} EXIT", quoted(inner)),
        22 => format!("env -i X=1 bash -c {}", quoted(inner)),
        23 => format!("su -c {}", quoted(inner)),
        24 => format!("flock /tmp/lock -c {}", quoted(inner)),
        25 => format!("ls\n{inner}\nls"),
        26 => format!("! {inner}"),
        27 => format!("[[ -n $( {inner}\n) ]]"),
        _ => format!("bash <<'THE_END_{}'\n{inner}\nTHE_END_{0}", inner.len()),
    }
}
const KINDS: usize = 29;

/// Prefixes that keep a simple command a simple command.
const PREFIXES: &[&str] = &[
    "sudo ",
    "sudo -u root ",
    "env ",
    "env A=1 ",
    "nohup ",
    "timeout 5 ",
    "timeout -k 3 5s ",
    "nice -n 3 ",
    "nice ",
    "setsid ",
    "command ",
    "exec ",
    "time ",
    "stdbuf -oL ",
    "ionice -c 3 ",
    "busybox ",
    "xargs ",
    ">out ",
    "doas ",
    "builtin command ",
    "chroot / ",
];

/// Quotes the letters of a word in different ways.
fn disguised(word: &str, choices: &[usize]) -> String {
    let mut out = String::new();
    for (c, choice) in word.chars().zip(choices.iter().cycle()) {
        match choice % 6 {
            0 => out.push(c),
            1 => out.push_str(&format!("'{c}'")),
            2 => out.push_str(&format!("\"{c}\"")),
            3 => out.push_str(&format!("\\{c}")),
            4 => out.push_str(&format!("$'\\x{:02x}'", c as u32)),
            _ => out.push_str(&format!("{c}\"\"")),
        }
    }
    out
}

const TERRIBLE: &[&[&str]] = &[
    &["rm", "-rf", "/"],
    &["rm", "-r", "-f", "/home/dev"],
    &["mkfs.ext4", "/dev/sda1"],
    &["dd", "if=/dev/zero", "of=/dev/sda"],
    &["kill", "-9", "-1"],
    &["shutdown", "-h", "now"],
    &["chmod", "-R", "777", "/"],
    &["wipefs", "-a", "/dev/sda"],
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn wrapped_stays_forbidden(which in 0..TERRIBLE.len(), kinds in prop::collection::vec(0..KINDS, 0..5)) {
        let mut text = TERRIBLE[which].join(" ");
        for kind in kinds {
            text = wrapped(kind, &text);
        }
        prop_assert_eq!(level(&text), Level::Forbidden, "{}", text);
    }

    #[test]
    fn any_number_of_wrappings_is_never_safe(kinds in prop::collection::vec(0..KINDS, 5..40)) {
        let mut text = "rm -rf /".to_owned();
        for kind in kinds {
            let next = wrapped(kind, &text);
            if next.len() > 15_000 {
                break;
            }
            text = next;
        }
        prop_assert!(level(&text) >= Level::Risky, "{}", text);
    }

    #[test]
    fn prefixed_stays_forbidden(which in 0..TERRIBLE.len(), prefixes in prop::collection::vec(0..PREFIXES.len(), 0..8)) {
        let mut text = TERRIBLE[which].join(" ");
        for prefix in prefixes {
            text = format!("{}{text}", PREFIXES[prefix]);
        }
        prop_assert_eq!(level(&text), Level::Forbidden, "{}", text);
        prop_assert_eq!(level(&format!("A=1 B=2 {text}")), Level::Forbidden);
    }

    #[test]
    fn disguised_stays_forbidden(which in 0..TERRIBLE.len(), choices in prop::collection::vec(0..6usize, 1..12)) {
        let words: Vec<String> = TERRIBLE[which].iter().map(|word| disguised(word, &choices)).collect();
        let text = words.join(" ");
        prop_assert_eq!(level(&text), Level::Forbidden, "{}", text);
    }

    #[test]
    fn any_text_gets_a_verdict(text in "\\PC{0,200}") {
        level(&text);
    }

    #[test]
    fn any_shell_like_text_gets_a_verdict(text in "[a-z$(){}\\[\\]'\"`\\\\;&|<>#!*? \n=~-]{0,120}") {
        level(&text);
    }
}
