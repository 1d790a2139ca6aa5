use super::*;
use crate::audit::line as blank;
use crate::audit::verify::verify;
use farshell_api::audit::AuditReport;
use std::os::unix::fs::PermissionsExt;

fn decided(command: &str) -> AuditLine {
    AuditLine { command: Some(command.into()), task: Some("default".into()), ..blank(Step::Decided) }
}

fn report(dir: &Path) -> AuditReport {
    verify(dir).unwrap()
}

fn seqs(dir: &Path, query: &AuditQuery, limit: u32) -> Vec<u64> {
    read(dir, query, limit).unwrap().iter().map(|line| line.seq).collect()
}

fn only(dir: &Path) -> PathBuf {
    files(dir).unwrap().pop().unwrap()
}

#[test]
fn lines_are_private_and_in_a_chain() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("audit");
    let mut log = Log::open(&dir);
    for at in 0..5 {
        log.write(decided(&format!("echo {at}"))).unwrap();
    }
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&dir), mode(&only(&dir))), (0o700, 0o600));
    let found = report(&dir);
    assert_eq!((found.sound, found.files, found.lines, found.first, found.last), (true, 1, 5, 1, 5));
    // Whoever comes next goes on.
    drop(log);
    let mut next = Log::open(&dir);
    next.write(decided("echo next")).unwrap();
    let found = report(&dir);
    assert_eq!((found.sound, found.last, found.notes), (true, 6, Vec::new()));
}

#[test]
fn every_change_shows() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("audit");
    let mut log = Log::open(&dir);
    for at in 0..6 {
        log.write(decided(&format!("echo {at}"))).unwrap();
    }
    let path = only(&dir);
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let faults = |lines: &[String]| {
        std::fs::write(&path, lines.join("\n") + "\n").unwrap();
        let report = report(&dir);
        assert_eq!(report.sound, report.faults.is_empty());
        report.faults.iter().map(|fault| fault.line).collect::<Vec<_>>()
    };
    let own = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    assert!(faults(&own(&lines)).is_empty());
    // Any single byte.
    for at in 0..lines[2].len() {
        let mut changed = own(&lines);
        let mut bytes = changed[2].clone().into_bytes();
        bytes[at] = if bytes[at] == b'x' { b'y' } else { b'x' };
        changed[2] = String::from_utf8(bytes).unwrap();
        assert!(!faults(&changed).is_empty(), "byte {at} of {}", lines[2]);
    }
    let mut without = own(&lines);
    without.remove(2);
    assert_eq!(faults(&without), [3]);
    let mut twice = own(&lines);
    twice.insert(2, lines[2].to_owned());
    assert!(!faults(&twice).is_empty());
    let mut swapped = own(&lines);
    swapped.swap(2, 3);
    assert!(!faults(&swapped).is_empty());
    // A line that says it explains a torn one does not help: the ones after it no longer fit.
    let mut garbage = own(&lines);
    garbage[2] = "x".repeat(10);
    let torn = AuditLine { bytes: Some(10), seq: 3, ..blank(Step::Torn) };
    garbage[3] = serde_json::to_string(&torn).unwrap();
    assert!(!faults(&garbage).is_empty());
}

#[test]
fn a_torn_line_is_explained_and_the_log_goes_on() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("audit");
    let mut log = Log::open(&dir);
    for at in 0..3 {
        log.write(decided(&format!("echo {at}"))).unwrap();
    }
    drop(log);
    let path = only(&dir);
    let whole = std::fs::read(&path).unwrap();
    let last = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    // Wherever it was cut, also before its line end.
    for cut in last + 1..whole.len() {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let found = report(&dir);
        let (torn, complete) = (cut - last, cut == whole.len() - 1);
        assert!(found.sound, "{found:?}");
        assert_eq!(found.notes.len(), usize::from(!complete), "{cut}: {found:?}");
        let mut next = Log::open(&dir);
        next.write(decided("echo after")).unwrap();
        let found = report(&dir);
        assert!(found.sound, "{cut}: {found:?}");
        if !complete {
            assert!(found.notes[0].what.contains(&format!("after {torn} bytes")), "{found:?}");
        }
        let commands: Vec<_> = read(&dir, &AuditQuery::default(), 100)
            .unwrap()
            .into_iter()
            .filter_map(|line| line.command)
            .collect();
        assert_eq!(commands.last().unwrap(), "echo after");
        std::fs::write(&path, &whole).unwrap();
    }
}

#[test]
fn full_files_are_followed_by_others_and_the_oldest_go() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("audit");
    let mut log = Log::open(&dir);
    for at in 0..200 {
        log.write(decided(&format!("echo {at}"))).unwrap();
    }
    let files = files(&dir).unwrap();
    assert_eq!(files.len(), KEPT);
    for file in &files {
        assert!(std::fs::metadata(file).unwrap().len() < FULL + 1024);
    }
    let found = report(&dir);
    assert!(found.sound, "{found:?}");
    assert!(found.first > 1 && found.last == 200, "{found:?}");
    assert_eq!(found.lines, found.last - found.first + 1);
    // Across files, from either end.
    let after = |after| AuditQuery { after: Some(after), ..AuditQuery::default() };
    assert_eq!(seqs(&dir, &after(197), 100), [198, 199, 200]);
    assert!(seqs(&dir, &after(200), 100).is_empty());
    assert_eq!(
        seqs(&dir, &after(found.first + 3), 4),
        (found.first + 4..found.first + 8).collect::<Vec<_>>()
    );
    assert_eq!(seqs(&dir, &after(0), 5), (found.first..found.first + 5).collect::<Vec<_>>());
    assert_eq!(seqs(&dir, &AuditQuery::default(), 50), (151..=200).collect::<Vec<_>>());
    // A file in the middle that is missing shows.
    std::fs::remove_file(&files[1]).unwrap();
    assert!(!report(&dir).sound);
}

#[test]
fn what_is_asked_for_is_found() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("audit");
    let mut log = Log::open(&dir);
    for at in 0..10 {
        let task = Some(if at % 2 == 0 { "even" } else { "odd" }.to_owned());
        log.write(AuditLine { at: 1000 + at, task, ..blank(Step::Decided) }).unwrap();
    }
    let task = |task: &str| Some(task.to_owned());
    let query = AuditQuery { task: task("odd"), ..AuditQuery::default() };
    assert_eq!(seqs(&dir, &query, 3), [6, 8, 10]);
    let query = AuditQuery { since: Some(1007), ..AuditQuery::default() };
    assert_eq!(seqs(&dir, &query, 100), [8, 9, 10]);
    let query = AuditQuery { after: Some(2), task: task("even"), since: Some(1004), ..AuditQuery::default() };
    assert_eq!(seqs(&dir, &query, 100), [5, 7, 9]);
}

#[test]
fn what_could_not_be_written_is_said_afterwards() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("audit");
    let mut log = Log::open(&dir);
    log.write(decided("echo before")).unwrap();
    // A disk that takes nothing.
    log.file = Some(File::options().write(true).open("/dev/full").unwrap());
    for _ in 0..3 {
        assert_eq!(log.write(decided("echo lost")).unwrap_err().kind(), ErrorKind::StorageFull);
    }
    assert_eq!((log.lost(), log.last()), (3, 1));
    assert!(log.trouble().is_some());
    log.file = Some(append(&only(&dir), false).unwrap());
    log.write(decided("echo after")).unwrap();
    assert_eq!((log.lost(), log.trouble()), (0, None));
    let found = report(&dir);
    assert!(found.sound, "{found:?}");
    assert!(found.notes[0].what.starts_with("3 lines could not be written"), "{found:?}");
    let steps: Vec<_> =
        read(&dir, &AuditQuery::default(), 100).unwrap().iter().map(|line| line.step).collect();
    assert_eq!(steps, [Step::Decided, Step::Gap, Step::Decided]);
}

#[test]
fn a_directory_that_can_be_had_later_is_used_later() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("audit");
    // Something is in the way.
    std::fs::write(&dir, "").unwrap();
    let mut log = Log::open(&dir);
    log.write(decided("echo lost")).unwrap_err();
    std::fs::remove_file(&dir).unwrap();
    log.write(decided("echo kept")).unwrap();
    assert_eq!(report(&dir).notes.len(), 1);
}
