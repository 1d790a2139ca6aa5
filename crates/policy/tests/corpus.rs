//! Every command of the corpus gets the verdict that stands in front of it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use farshell_policy::{BackendKind, Context, Level, analyse};

struct Entry {
    section: String,
    level: Level,
    command: String,
}

fn corpus() -> Vec<Entry> {
    let mut section = String::new();
    let mut entries = Vec::new();
    let everyday = include_str!("corpus/everyday.txt");
    for line in include_str!("corpus/commands.txt").lines().chain(everyday.lines()) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name.to_owned();
            continue;
        }
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (level, command) = line.split_once(": ").unwrap();
        let level = match level {
            "safe" => Level::Safe,
            "risky" => Level::Risky,
            "forbidden" => Level::Forbidden,
            other => panic!("no level: {other}"),
        };
        entries.push(Entry { section: section.clone(), level, command: command.replace('⏎', "\n") });
    }
    entries
}

fn context() -> Context {
    Context::new(BackendKind::Local).with_cwd("/home/dev/project").with_home("/home/dev")
}

#[test]
fn large_enough() {
    let entries = corpus();
    let count = |section: &str| entries.iter().filter(|entry| entry.section == section).count();
    assert!(entries.len() >= 300, "{}", entries.len());
    for section in ["benign", "look-alikes", "dangerous", "disguised", "everyday", "danger", "hidden"] {
        assert!(count(section) >= 50, "{section}: {}", count(section));
    }
    assert!(count("reports") >= 20, "{}", count("reports"));
}

#[test]
fn no_dangerous_command_passes() {
    let mut wrong = Vec::new();
    for entry in corpus().into_iter().filter(|entry| entry.level > Level::Safe) {
        let verdict = analyse(&entry.command, &context()).verdict;
        if verdict.level != entry.level {
            wrong.push(format!("{:?} instead of {:?}: {:?}", verdict.level, entry.level, entry.command));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn benign_commands_rarely_ask() {
    let benign: Vec<Entry> = corpus().into_iter().filter(|entry| entry.level == Level::Safe).collect();
    let mut asked = Vec::new();
    for entry in &benign {
        let verdict = analyse(&entry.command, &context()).verdict;
        if verdict.level != Level::Safe {
            asked.push(format!("{:?}: {}", entry.command, verdict.reasons[0]));
        }
    }
    println!("{} of {} benign commands ask:\n{}", asked.len(), benign.len(), asked.join("\n"));
    assert!(asked.len() * 50 < benign.len(), "{} of {}:\n{}", asked.len(), benign.len(), asked.join("\n"));
}
