//! Passwords for a real sudo. The rig makes a user who needs one, and runs these as that user, with the name of a file that
//! has it; without that there is nothing to be tested.

use crate::rig::{Life, Rig, ended, until, whole};
use farshell_api::run::{RunResult, StartRequest};
use farshell_api::stream::Open;
use farshell_config::settings::Secret;
use farshell_engine::backend::BoxFuture;
use farshell_engine::capture::{Capture, Discard};
use farshell_keeper::{Keeper, Observer, Passwords, StreamEnd};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// Names the file with this user's password.
const FILE: &str = "FARSHELL_TEST_SUDO";
/// So that nothing is remembered from an earlier test.
const FORGET: &str = "sudo -k";

fn password() -> Option<String> {
    let Some(file) = std::env::var_os(FILE) else {
        let why = "does not name a file with this user's password for sudo";
        let _ = writeln!(std::io::stderr(), "skipped: {FILE} {why}");
        return None;
    };
    Some(std::fs::read_to_string(file).unwrap().trim_end_matches('\n').to_owned())
}

/// A home whose settings say what the password is.
fn rig(password: Option<&str>) -> Rig {
    let rig = Rig::new();
    rig.config("approvals: {mode: auto}\n");
    if let Some(password) = password {
        std::fs::write(rig.home().join(".env"), format!("SUDO_PASSWORD='{password}'\n")).unwrap();
    }
    rig
}

async fn run(rig: &Rig, keeper: &Keeper, command: &str) -> RunResult {
    keeper.run(whole(rig.command(command))).await.unwrap()
}

/// All files below a directory.
fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => files(&entry.path(), found),
            kind if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
}

/// No file of Farshell's has it, but the one in which the user has put it.
fn written_nowhere(rig: &Rig, password: &str) {
    let mut found = Vec::new();
    files(rig.home(), &mut found);
    assert!(found.iter().any(|path| path.to_string_lossy().contains("audit")), "{found:?}");
    for path in found.iter().filter(|path| !path.ends_with(".env")) {
        let bytes = std::fs::read(path).unwrap_or_default();
        assert!(!bytes.windows(password.len()).any(|w| w == password.as_bytes()), "{}", path.display());
    }
}

/// Helpers that are left, of this user.
fn helpers() -> Vec<PathBuf> {
    let dirs = [std::env::temp_dir(), "/tmp".into(), "/var/tmp".into(), "/dev/shm".into()];
    let entries = dirs.iter().filter_map(|dir| std::fs::read_dir(dir).ok()).flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.to_string_lossy().contains("/.farshell-")).collect()
}

async fn no_helper_is_left() {
    until("no helper is left", || async { helpers().is_empty() }).await;
}

#[tokio::test]
async fn the_configured_password_opens_sudo_and_is_seen_nowhere() {
    let Some(password) = password() else { return };
    let rig = rig(Some(&password));
    let keeper = rig.open().await;
    for live in ["true", "false"] {
        let variables = [("TERMINAL_PERSISTENT_SHELL", live), ("TERMINAL_LOCAL_PERSISTENT", live)];
        let session = format!("live-{live}");
        let start = |command: &str| StartRequest {
            session: session.clone(),
            target: rig.target_with("default", &variables),
            ..StartRequest::new(command)
        };
        let says = async |command: &str| {
            let result = keeper.run(whole(start(command))).await.unwrap();
            assert_eq!((result.exit_code, result.stderr.as_str()), (0, ""), "{command}");
            result.stdout
        };
        says(FORGET).await;
        assert_eq!(says("sudo id -u").await, "0\n");
        // Two at once, and one in a shell of a shell.
        says(FORGET).await;
        assert_eq!(says("sudo -k id -u | sudo -k cat; bash -c 'sudo -k id -u'").await, "0\n0\n");
        // Root sees what every process was given.
        let seen = says("sudo cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | base64 -w0").await;
        let seen = decoded(&seen);
        assert!(seen.len() > 1000 && !contains(&seen, password.as_bytes()), "{} bytes", seen.len());
        // The next command has nothing of it, and what only speaks of sudo never had.
        let clean = "none none\n";
        assert_eq!(says("echo \"${SUDO_ASKPASS-none} ${DISPLAY-none}\"").await, clean);
        assert_eq!(says("echo \"${SUDO_ASKPASS-none} ${DISPLAY-none}\" # no sudo").await, clean);
        // The helper is for sudo alone.
        let result = keeper.run(whole(start("\"$SUDO_ASKPASS\" x; sudo -n true"))).await.unwrap();
        assert!(result.stderr.contains("only sudo gets the password"), "{}", result.stderr);
        assert!(!result.stdout.contains(&password));
        // In the background, too.
        says(FORGET).await;
        let process = keeper.start(start("sleep 0.2; sudo -k id -u > out; exit 3")).await.unwrap();
        assert_eq!(ended(&keeper, &process.id).await.exit_code, Some(3));
        assert_eq!(says("cat out; rm out").await, "0\n");
    }
    no_helper_is_left().await;
    written_nowhere(&rig, &password);
    assert!(!keeper.processes(Default::default()).await.unwrap().iter().any(|p| p.id.contains("askpass")));
    rig.end(keeper).await;
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn decoded(base64: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u8> = base64.trim().trim_end_matches('=').bytes().map(digit).collect();
    let three = |four: &[u8]| {
        let all = four.iter().enumerate().fold(0u32, |all, (i, d)| all | u32::from(*d) << (18 - 6 * i));
        all.to_be_bytes()[1..four.len()].to_vec()
    };
    digits.chunks(4).flat_map(three).collect()
}

#[tokio::test]
async fn a_wrong_password_is_tried_once_and_said_to_be_wrong() {
    let Some(password) = password() else { return };
    let wrong = format!("{password}-not");
    let rig = rig(Some(&wrong));
    let keeper = rig.open().await;
    run(&rig, &keeper, FORGET).await;
    let result = run(&rig, &keeper, "sudo id -u; echo $?; sudo id -u").await;
    assert_eq!((result.exit_code, result.stdout.as_str()), (1, "1\n"));
    let said = result.stderr.matches("sudo did not take the password that SUDO_PASSWORD gives").count();
    assert_eq!(said, 2, "{}", result.stderr);
    assert_eq!(result.stderr.matches("Sorry, try again").count(), 1, "{}", result.stderr);
    assert!(!result.stderr.contains(&wrong));
    no_helper_is_left().await;
    written_nowhere(&rig, &wrong);
    rig.end(keeper).await;
}

#[tokio::test]
async fn without_a_password_it_fails_at_once_and_says_what_to_do() {
    if password().is_none() {
        return;
    }
    let rig = rig(None);
    let keeper = rig.open().await;
    run(&rig, &keeper, FORGET).await;
    let result = run(&rig, &keeper, "sudo id -u").await;
    assert_eq!((result.exit_code, result.stdout.as_str()), (1, ""));
    assert!(result.stderr.contains("farshell config set SUDO_PASSWORD"), "{}", result.stderr);
    // A way that the caller has itself is left alone.
    let own = rig.home().join("own");
    std::fs::write(&own, "#!/bin/sh\necho 'mine was asked' >&2\nexit 1\n").unwrap();
    std::fs::set_permissions(&own, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let variables = [("SUDO_ASKPASS", own.to_str().unwrap()), ("DISPLAY", ":99")];
    let target = rig.target_with("default", &variables);
    let start =
        StartRequest { session: "own".into(), target, ..StartRequest::new("sudo -A id; echo $DISPLAY") };
    let result = keeper.run(whole(start)).await.unwrap();
    assert_eq!(result.stdout, ":99\n");
    assert!(result.stderr.contains("mine was asked"), "{}", result.stderr);
    rig.end(keeper).await;
}

/// Somebody at a terminal.
#[derive(Debug, Default)]
struct Typist {
    /// What is typed next; nothing is typed when nothing is left.
    types: Mutex<Vec<String>>,
    asked: Mutex<Vec<bool>>,
    sees: Notify,
}

impl Passwords for Typist {
    fn ask(&self, again: bool) -> BoxFuture<'_, Option<Secret>> {
        self.asked.lock().unwrap().push(again);
        self.sees.notify_one();
        let next = self.types.lock().unwrap().pop();
        Box::pin(async move {
            match next {
                Some(next) => Some(Secret::new(next)),
                None => std::future::pending().await,
            }
        })
    }
}

struct Terminal(Arc<Typist>);

impl Observer for Terminal {
    fn passwords(&self) -> Option<Arc<dyn Passwords>> {
        Some(Arc::clone(&self.0) as Arc<dyn Passwords>)
    }
}

#[tokio::test]
async fn a_person_is_asked_when_sudo_asks() {
    let Some(password) = password() else { return };
    let rig = rig(None);
    let keeper = rig.open().await;
    run(&rig, &keeper, FORGET).await;
    let typist = Arc::new(Typist::default());
    *typist.types.lock().unwrap() = vec![password.clone(), "mistyped".into()];
    let start = rig.command("sudo -n true 2>/dev/null; sudo id -u && sudo -k id -u");
    let open = Open { start: Some(Box::new(start)), attach: None };
    let stream = keeper.stream(open, &Terminal(Arc::clone(&typist))).await.unwrap();
    let mut capture = Capture::unlimited();
    let end = stream.follow(&mut capture).await.unwrap();
    assert!(matches!(end, StreamEnd::Ended(process) if process.exit_code == Some(0)));
    assert_eq!(capture.stdout.to_bytes(), b"0\n0\n");
    assert_eq!(*typist.asked.lock().unwrap(), [false, true], "once, and once more after the mistake");
    no_helper_is_left().await;
    written_nowhere(&rig, &password);
    rig.end(keeper).await;
}

#[test]
fn a_sudo_that_waits_does_not_outwait_its_server() {
    if password().is_none() {
        return;
    }
    let rig = rig(None);
    let life = Life::begin(&rig);
    life.on(async {
        run(&rig, &life.keeper, FORGET).await;
        let typist = Arc::new(Typist::default());
        let start = StartRequest { id: Some("waits".into()), ..rig.command("sudo id -u 2>&1; exit 5") };
        let open = Open { start: Some(Box::new(start)), attach: None };
        let stream = life.keeper.stream(open, &Terminal(Arc::clone(&typist))).await.unwrap();
        let mut discard = Discard;
        tokio::select! {
            _ = stream.follow(&mut discard) => panic!("it ended without a password"),
            () = typist.sees.notified() => {}
        }
    });
    life.die();
    let life = Life::begin(&rig);
    life.on(async {
        until("it has ended", || async {
            life.keeper.environment("default").await.is_ok_and(|environment| environment.foreground == 0)
        })
        .await;
        no_helper_is_left().await;
    });
    life.end(rig);
}
