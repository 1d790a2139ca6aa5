//! Bash itself says whether the grammar is right: in texts made of random pieces of syntax, whenever bash runs a
//! certain command, the analysis must have found that command, or have said that it does not understand the text.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

use farshell_policy::{BackendKind, Context, Decision, Deny, Level, Mode, Policy};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// `boom` is what is looked for; it is a function that writes to a descriptor of its own.
const PIECES: &[&str] = &[
    "boom",
    "boom",
    "boom",
    "boom",
    " ",
    " ",
    " ",
    " ",
    ";",
    "\n",
    "'",
    "\"",
    "\\",
    "$(",
    ")",
    "`",
    "{ ",
    "; }",
    "}",
    "(",
    "<<E\n",
    "\nE\n",
    "<<'E'\n",
    "<<-E\n",
    "#",
    " #",
    "|",
    "&",
    "&&",
    "||",
    "$'",
    "${x:-",
    "}",
    "if ",
    "; then ",
    "; fi",
    "for i in a; do ",
    "; done",
    "while ",
    "case x in x) ",
    ";;",
    " esac",
    "((",
    "))",
    "[[ ",
    " ]]",
    "<(",
    "x=",
    "$((",
    "echo ",
    "a",
    " -n ",
    ">",
    "x=(",
    "f() ",
    "function f ",
    "! ",
    "time ",
    "<<<",
    "${",
    "[",
    "]",
    "\\\n",
    "$\"",
    "~",
    "=",
    "else ",
    "coproc ",
    "until ",
    ";&",
    "1",
    "0",
    "*",
    "@(",
    "?",
    "\t",
    "\r",
    "é",
    "eval ",
    "f",
    "${x#",
    "${x/",
    ",",
    "\\'",
    "\\\"",
    "$x",
    "true",
    "false",
    "\"$(",
    ")\"",
    "&>",
    "2>&1",
    "|&",
    "!",
    "-p ",
    "in ",
    "do ",
    "{",
    "b",
];

/// Ways to run it. They are damaged with pieces before they are tried.
const WAYS: &[&str] = &[
    "boom",
    "x=boom; $x",
    "eval 'boom'",
    "echo $(boom)",
    "{ boom; }",
    "(boom)",
    "if true; then boom; fi",
    "for i in boom; do $i; done",
    "case a in a) boom;; esac",
    "f() { boom; }; f",
    "echo <<E\n$(boom)\nE\n",
    "eval \"bo\"'om'",
    "x=(boom); \"${x[@]}\"",
    "set -- boom; \"$@\"",
    "${x:-boom}",
    "b{oom,}",
    "bo\\\nom",
    "$'\\x62oom'",
    "true && boom",
    "[[ -n $(boom) ]]",
    "(( x[$(boom)] ))",
    "x=1 boom",
    ">y boom",
    "trap boom EXIT",
    "eval \"$(echo boom)\"",
    "x=bo; y=om; $x$y",
    "printf -v c boom; $c",
    "! boom",
    "time boom",
    "echo \"`boom`\"",
    "f() { \"$@\"; }; f boom",
    "x=xboom; ${x#x}",
    "x=${y:=boom}; $y",
    "false || boom",
    "echo a | boom",
    "boom & wait",
    "x=$(boom)",
    "y='$(boom)'; eval \"z=$y\"",
    "echo ${x:-`boom`}",
    "while boom; do break; done",
    "command boom",
    "builtin eval boom",
    "x=aboom; ${x:1}",
    "x=BOOM; ${x,,}",
    "echo \"${x:-$(boom)}\"",
    "if boom; then :; fi",
    "function g { boom; }; g",
    "a[$(boom)]=1",
    "echo $(( $(boom) ))",
    "echo <(boom)",
    "boom<()",
    "select i in a; do boom; done <<< 1",
    "x='a b'; case $x in 'a b') boom;; esac",
    "until boom; do :; done",
    "x=\"bo\"om;\"$x\"",
    "declare x=boom; $x",
    "coproc boom; wait",
    "{ boom; } 2>&1",
    "(( 1 )) && boom",
    "for ((i=0;i<1;i++)); do boom; done",
    "! ! boom",
    "read x <<< boom; $x",
    "mapfile -t x <<< boom; ${x[0]}",
    "IFS=,; x=boom,a; $x",
    "x=y; y=boom; ${!x}",
];

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % limit as u64) as usize
    }
}

/// One or two ways, with pieces put in, taken out or put in the place of others.
fn damaged(random: &mut Random) -> String {
    let mut text = WAYS[random.below(WAYS.len())].to_owned();
    if random.below(3) == 0 {
        text = format!("{text}{}{}", PIECES[random.below(PIECES.len())], WAYS[random.below(WAYS.len())]);
    }
    for _ in 0..random.below(4) {
        let mut at = random.below(text.len() + 1);
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        match random.below(3) {
            0 if at < text.len() => drop(text.remove(at)),
            _ => text.insert_str(at, PIECES[random.below(PIECES.len())]),
        }
    }
    text
}

fn runs(text: &str, directory: &std::path::Path) -> bool {
    let script = format!(
        "PATH=/nonexistent FUNCNEST=6; ulimit -t 1; exec 9>&1; boom() {{ builtin printf BOOM >&9; }}\n{text}"
    );
    let child = Command::new("bash")
        .args(["--norc", "--noprofile", "-c", &script])
        .env("HOME", directory)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = child.expect("bash is needed to build and to test");
    // `while boom; do true; done` has no end. What it leaves in the background is ended by its limit of time, and
    // functions that call themselves by their limit of depth.
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > Duration::from_millis(500) {
            child.kill().unwrap();
            break;
        }
        std::thread::sleep(Duration::from_micros(300));
    }
    let mut output = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        use std::io::Read as _;
        // A loop that writes for ever is stopped after the first bytes.
        stdout.take(64).read_to_end(&mut output).unwrap();
    }
    let _ = child.wait();
    output.starts_with(b"BOOM") || output.windows(4).any(|window| window == b"BOOM")
}

fn rounds(seed: u64, most: Duration) {
    let directory = std::env::temp_dir().join(format!("farshell-policy-{}-{seed}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let mut policy = Policy::new(Mode::Auto);
    policy.deny.extend(Deny::new("boom"));
    let context = Context::new(BackendKind::Local).with_cwd("/work").with_home("/home/dev");
    let mut random = Random(seed);
    let (mut tried, mut ran, mut found, mut missed) = (0, 0, 0, Vec::new());
    let start = Instant::now();
    while start.elapsed() < most {
        let text = if random.below(3) == 0 {
            let count = 2 + random.below(10);
            (0..count).map(|_| PIECES[random.below(PIECES.len())]).collect()
        } else {
            damaged(&mut random)
        };
        if !text.contains("boom") {
            continue;
        }
        tried += 1;
        let (decision, verdict) = policy.decide(&text, &context);
        let denied = matches!(&decision, Decision::Deny { reasons } if reasons[0].rule == "deny-list");
        // Bash need not be asked about what is found anyway, but for counting.
        if denied && random.below(8) != 0 {
            continue;
        }
        if runs(&text, &directory) {
            ran += 1;
            found += usize::from(denied);
            if !denied && verdict.level < Level::Risky {
                missed.push(text);
            }
        }
    }
    std::fs::remove_dir_all(&directory).unwrap();
    println!(
        "{tried} texts; bash ran it in {ran} of those it was asked about: found in {found}, not understood in {}",
        ran - found - missed.len()
    );
    assert!(missed.is_empty(), "bash runs it, the analysis does not see it:\n{missed:#?}");
    assert!(ran > 0);
}

/// `FARSHELL_SEARCH_SECONDS=120 cargo test -p farshell-policy --test bash` looks for longer, elsewhere each time.
#[test]
fn what_bash_runs_is_found() {
    let longer = std::env::var("FARSHELL_SEARCH_SECONDS").ok().map(|seconds| seconds.parse().unwrap());
    let seed = match longer {
        None => 1,
        Some(_) => std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64,
    };
    println!("seed {seed}");
    rounds(seed, Duration::from_secs(longer.unwrap_or(4)));
}
