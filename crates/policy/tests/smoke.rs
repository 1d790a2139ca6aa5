//! A few seconds of what the fuzz targets do for hours, always with the same pseudo-random input, and texts that
//! are made to take long. With `FARSHELL_FUZZ_SECONDS` it is that long, with other input each time.

#[expect(unreachable_pub, reason = "it is the library of the fuzz targets")]
#[path = "../fuzz/src/lib.rs"]
mod fuzz;

use farshell_policy::{BackendKind, Context, Level, MAX_TEXT, Redactor, analyse};
use std::io::Write as _;
use std::time::{Duration, Instant};

/// A slow machine does fewer rounds.
const AT_MOST: Duration = Duration::from_secs(5);
/// A text that is sixteen times longer may take four times that. With the square of the text it would be 256 times.
const LONGER: usize = 16;
const TOLERANCE: usize = 4;
/// What takes less can't be compared.
const TOO_SHORT: Duration = Duration::from_micros(200);

/// Whether the work on a text grows no faster than the text. The clock only compares the two with each other, and a
/// machine that had something else to do is asked again.
fn grows_evenly(short: &str, long: &str, work: impl Fn(&str)) -> Result<(), String> {
    let mut best = (Duration::MAX, Duration::MAX);
    let growth = u32::try_from(TOLERANCE * long.len() / short.len()).unwrap_or(u32::MAX);
    let time = |text: &str| {
        let start = Instant::now();
        work(text);
        start.elapsed()
    };
    for _ in 0..5 {
        best = (best.0.min(time(short)), best.1.min(time(long)));
        if best.1 <= best.0.max(TOO_SHORT) * growth {
            return Ok(());
        }
    }
    Err(format!("{} bytes take {:?}, {} bytes {:?}", short.len(), best.0, long.len(), best.1))
}

/// How long, and with which seeds.
fn rounds() -> (Duration, std::ops::Range<u64>) {
    let seconds = std::env::var("FARSHELL_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    match seconds {
        None => (AT_MOST, 0..3000),
        Some(seconds) => {
            // The same in every run, unless somebody wants others: a failure is one that can be had again.
            let first = std::env::var("FARSHELL_FUZZ_SEED").ok().and_then(|text| text.parse().ok());
            (Duration::from_secs(seconds), first.unwrap_or(3000)..u64::MAX)
        }
    }
}

/// Says which seed it was, if the test fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "the seed was {}", self.0);
        }
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

#[test]
fn commands() {
    let unquoted = |line: &str| line.trim_matches('"').replace("\\x0A", "\n").replace("\\\\", "\\");
    let dictionary: Vec<String> = include_str!("../fuzz/commands.dict").lines().map(unquoted).collect();
    let corpus: Vec<&str> = include_str!("corpus/commands.txt").lines().collect();
    let (start, (at_most, seeds)) = (Instant::now(), rounds());
    for seed in seeds {
        let (_seed, mut random) = (Seed(seed), Random(seed));
        let mut text = corpus[random.below(corpus.len())].replace('⏎', "\n");
        for _ in 0..random.below(8) {
            let mut at = random.below(text.len() + 1);
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            match random.below(4) {
                0 if at < text.len() => drop(text.remove(at)),
                1 => text.insert(at, char::from((random.next() % 128) as u8)),
                _ => text.insert_str(at, &dictionary[random.below(dictionary.len())]),
            }
        }
        fuzz::commands(text.as_bytes());
        let noise: Vec<u8> = (0..random.below(60)).map(|_| random.next() as u8).collect();
        fuzz::commands(&noise);
        if start.elapsed() > at_most {
            break;
        }
    }
}

#[test]
fn redaction() {
    let pieces = [
        "Tr0ub4dor&3-horse",
        "correct horse battery staple",
        "sk-",
        "ghp_",
        "a1B2c3D4e5F6g7H8i9J0",
        "\n",
        " ",
        "-----BEGIN ",
        "PRIVATE KEY",
        "-----",
        "-----END ",
        "://u:",
        "@h",
        "Authorization: Bearer ",
        "«redacted:x»",
        "é",
        "eyJ",
        ".",
    ];
    let (start, (at_most, seeds)) = (Instant::now(), rounds());
    for seed in seeds {
        let (_seed, mut random) = (Seed(seed), Random(seed));
        let mut data = vec![random.next() as u8];
        for _ in 0..random.below(40) {
            data.extend_from_slice(pieces[random.below(pieces.len())].as_bytes());
        }
        fuzz::redaction(&data);
        if start.elapsed() > at_most {
            break;
        }
    }
}

/// Neither deep nor long text takes long or overflows the stack.
#[test]
fn hostile_texts_are_bounded() {
    let context = Context::new(BackendKind::Local).with_cwd("/home/dev/project").with_home("/home/dev");
    let repeated: Vec<(&str, &str, &str)> = vec![
        ("$(", "echo", ")"),
        ("echo $(", "x", ")"),
        ("echo $(", "", ""),
        ("\"$(", "x", ")\""),
        ("( ", "x", " )"),
        ("((", "x", "))"),
        ("( ", "", ""),
        ("$((", "", ""),
        ("{ ", "x", "; }"),
        ("if ", "x", "; then y; fi"),
        ("case x in a) ", "y", ";; esac"),
        ("case x in a) ", "", ""),
        ("${a:-", "x", "}"),
        ("`", "", ""),
        ("a;", "", ""),
        ("a|", "a", ""),
        ("a && ", "a", ""),
        ("a || ", "a", ""),
        ("a ", "", ""),
        ("<<A ", "\n", ""),
        ("cat <<A\n$(", "", ""),
        ("f() { ", "x", "; }"),
        ("[[ ( ", "a", " ) ]]"),
        ("! ", "a", ""),
        ("time ", "a", ""),
        ("{a,", "b", "}"),
        ("{a,b}", "", ""),
        ("x=$x$x;", "$x", ""),
        ("x=a$x; ", "$x", ""),
        ("a[$(", "x", ")]=1"),
        ("sudo ", "rm -rf /", ""),
        ("eval ", "rm -rf /", ""),
        ("env -S '", "x", "'"),
        ("f() { f; f; }; f; ", "", ""),
        ("for i in 1 2; do ", "x", "; done"),
        ("a=1 ", "b", ""),
        ("~", "", ""),
        ("*", "", ""),
        ("[", "", ""),
        ("\\\n", "a", ""),
        ("<(", "x", ")"),
        ("find . -exec ", "x", " ;"),
        ("xargs ", "x", ""),
        ("python -c \"'a", "", "'\""),
        ("$'\\x72", "", ""),
    ];
    for (open, middle, close) in repeated {
        let text = |count: usize| format!("{}{middle}{}", open.repeat(count), close.repeat(count));
        // As long as a command may be: longer ones are not looked at.
        let most = (MAX_TEXT - 100) / (open.len() + close.len());
        for count in [10, 60, 1000] {
            analyse(&text(count), &context);
        }
        let grows = grows_evenly(&text(most / LONGER), &text(most), |text| drop(analyse(text, &context)));
        assert_eq!(grows, Ok(()), "{open:?}");
    }
    let long = "a".repeat(MAX_TEXT + 1);
    assert_eq!(analyse(&long, &context).verdict.level, Level::Forbidden);
}

/// The time of redaction grows with the text and no faster.
#[test]
fn redaction_is_linear() {
    let redactor = Redactor::new([("A", "aaaaaaaaab")]);
    for text in ["a", "sk-a", "eyJaaaaaaaaaaa.", "://a:", "-----BEGIN ", "Authorization: Bearer ", "x "] {
        let repeated = |bytes: usize| text.repeat(bytes / text.len());
        // Expressions take another, slower way through long texts: both are long.
        let grows =
            grows_evenly(&repeated(150_000), &repeated(1_200_000), |text| drop(redactor.redact(text)));
        assert_eq!(grows, Ok(()), "{text:?}");
    }
}
