//! What must hold for any input. The fuzz targets look for input that breaks it; `tests/smoke.rs` includes this
//! file and tries pseudo-random input, so that every test run does some of it.
//!
//! ```sh
//! cargo +nightly fuzz run commands -- -max_total_time=60 -dict=commands.dict -max_len=4096
//! cargo +nightly fuzz run redaction -- -max_total_time=60
//! ```

use farshell_policy::{BackendKind, Context, Decision, Deny, Level, Mode, Policy, Redactor, analyse};

/// Any text gets a verdict, the same one each time, that hangs together; and a hard-list command in front of it is
/// found whatever follows on the next line.
pub fn commands(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let context = Context::new(BackendKind::Local).with_cwd("/home/dev/project").with_home("/home/dev");
    let verdict = analyse(&text, &context).verdict;
    assert_eq!(verdict, analyse(&text, &context).verdict);
    let worst = verdict.reasons.iter().map(|reason| reason.level).max().unwrap_or(Level::Safe);
    assert_eq!(verdict.level, worst);
    for reason in &verdict.reasons {
        assert!(reason.level > Level::Safe && reason.piece.chars().count() < 2000);
        assert!(!reason.to_string().contains(char::is_control), "{reason:?}");
    }
    let mut policy = Policy::new(Mode::Smart);
    policy.deny.extend(Deny::new("git push*"));
    let (decision, _) = policy.decide(&text, &context);
    match verdict.level {
        Level::Safe => {}
        Level::Risky => assert_ne!(decision, Decision::Allow),
        Level::Forbidden => assert!(matches!(decision, Decision::Deny { .. })),
    }
    if text.len() < 100_000 {
        // Bash runs a line before it reads the next.
        let after = analyse(&format!("rm -rf /\n{text}"), &context).verdict;
        assert_eq!(after.level, Level::Forbidden);
    }
}

/// Masking twice changes nothing or masks more, known values never show, and pieces give what the whole gives.
pub fn redaction(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    let redactor =
        Redactor::new([("API_KEY", "Tr0ub4dor&3-horse"), ("WORDS", "correct horse battery staple")]);
    let once = redactor.redact(&text).into_owned();
    let twice = redactor.redact(&once);
    // What is left of a text may look like the head of a key that it was not before. More is masked then, never less.
    assert!(twice == once || once.contains("-----BEGIN "), "{once:?} {twice:?}");
    assert!(!twice.contains("Tr0ub4dor&3-horse") && !twice.contains("correct horse battery staple"));
    assert!(!once.contains("Tr0ub4dor&3-horse") && !once.contains("correct horse battery staple"));
    // Masks are longer than the shortest secrets, but not without bounds.
    assert!(once.len() <= text.len() * 6 + 64);
    let size = usize::from(*first).max(1);
    let mut stream = redactor.stream();
    let mut out = String::new();
    let chars: Vec<char> = text.chars().collect();
    for piece in chars.chunks(size) {
        out.push_str(&stream.push(&piece.iter().collect::<String>()));
    }
    out.push_str(&stream.finish());
    assert!(!out.contains("Tr0ub4dor&3-horse") && !out.contains("correct horse battery staple"));
}
