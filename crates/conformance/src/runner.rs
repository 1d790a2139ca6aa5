//! Subjects × cases, and the life of one case.

use crate::case::{Case, Done, Failure, Need};
use crate::env::Env;
use crate::subject::{Subject, subjects};
use crate::{cases, helper, survivors};
use farshell_protocol::file::FileOp;
use farshell_protocol::session::Mode;
use libtest_mimic::{Arguments, Failed, Trial};
use std::collections::HashSet;
use std::hash::{BuildHasher, Hasher};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long a destroy may take, where things take as long as usual.
const DESTROY: Duration = Duration::from_secs(30);
/// How long a process that was killed may take to disappear from the list of processes.
const GONE: Duration = Duration::from_secs(30);

/// The test program.
#[must_use]
pub fn main() -> ExitCode {
    if let Some(code) = helper::run() {
        return code;
    }
    let arguments = Arguments::from_args();
    let chosen = std::env::var("FARSHELL_CONFORMANCE").ok();
    match trials(chosen.as_deref()) {
        Ok(trials) => libtest_mimic::run(&arguments, trials).exit_code(),
        Err(unknown) => {
            let error =
                move || Err(Failed::from(format!("FARSHELL_CONFORMANCE names no backend: {unknown}")));
            libtest_mimic::run(&arguments, vec![Trial::test("choice", error)]).exit_code()
        }
    }
}

fn trials(chosen: Option<&str>) -> Result<Vec<Trial>, String> {
    let chosen: Option<Vec<&str>> =
        chosen.map(|names| names.split(',').map(str::trim).filter(|n| !n.is_empty()).collect());
    if let Some(unknown) =
        chosen.iter().flatten().find(|name| !subjects().iter().any(|subject| subject.name() == **name))
    {
        return Err((*unknown).to_owned());
    }
    let mut trials = Vec::new();
    for &subject in subjects() {
        if chosen.as_ref().is_some_and(|names| !names.contains(&subject.name())) {
            continue;
        }
        let missing = subject.probe().err().map(|reason| Missing { reason, fails: in_ci() });
        for case in cases::all() {
            for &(part, mode) in case.modes.runs() {
                trials.push(trial(subject, *case, part, mode, missing.as_ref()));
            }
        }
    }
    Ok(trials)
}

/// Something that a subject needs is not on this machine.
#[derive(Clone, Debug)]
struct Missing {
    reason: String,
    /// Where everything should be there, that is a failure and no skip.
    fails: bool,
}

fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false")
}

fn trial(
    subject: &'static dyn Subject,
    case: Case,
    part: &str,
    mode: Mode,
    missing: Option<&Missing>,
) -> Trial {
    let theme = case.theme.rsplit("::").next().unwrap_or_default();
    let name = format!("{}::{part}{theme}::{}", subject.name(), case.name);
    if let Some(Missing { reason, fails }) = missing.cloned() {
        let title = if fails { name } else { format!("{name} [SKIPPED: {reason}]") };
        return Trial::test(title, move || Err(Failed::from(format!("can't be tested here: {reason}"))))
            .with_ignored_flag(!fails);
    }
    if let Some(reason) = unfit(subject, case.needs) {
        return Trial::test(format!("{name} [SKIPPED: {reason}]"), || Ok(())).with_ignored_flag(true);
    }
    Trial::test(name, move || live(subject, case, mode).map_err(|failure| Failed::from(failure.to_string())))
}

/// Why a case makes no sense for a subject: a fact about the backend, not a hole in the test.
fn unfit(subject: &dyn Subject, need: Need) -> Option<&'static str> {
    match need {
        Need::Nothing => None,
        Need::Socket => (!subject.has_socket()).then_some("its outpost has no socket on this machine"),
        Need::Wake => (!subject.wakes()).then_some("its outpost is not started again by whoever connects"),
        Need::Bash => (!subject.bash()).then_some("its shell is not bash"),
    }
}

/// One case from its beginning to the last look for what it left.
fn live(subject: &'static dyn Subject, case: Case, mode: Mode) -> Done {
    let home = tempfile::tempdir()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mark = mark();
        let env =
            tokio::time::timeout(DESTROY * subject.patience(), Env::open(subject, mode, home.path(), mark))
                .await
                .map_err(|_| Failure::new("the environment could not be opened in time"))??;
        let deadline = case.deadline * subject.patience();
        let done = match tokio::time::timeout(deadline, (case.run)(&env)).await {
            Ok(done) => done,
            Err(_) => Err(Failure::new(format!("not done after {} s", deadline.as_secs()))),
        };
        let clean = clean(&env).await;
        match (done, clean) {
            (Ok(()), clean) => clean,
            (Err(failure), Ok(())) => Err(failure),
            (Err(failure), Err(left)) => Err(Failure::new(format!("{failure}\nand afterwards: {left}"))),
        }
    })
}

/// Destroys the environment and looks whether anything is left.
async fn clean(env: &Env) -> Done {
    let limit = DESTROY * env.subject.patience();
    let known = known(env).await;
    let path = serde_bytes::ByteBuf::from(env.dir.as_bytes());
    let remove = FileOp::Remove { path, recursive: true, missing_ok: true };
    let removed = tokio::time::timeout(limit, env.outpost().file(None, remove)).await;
    let destroyed = tokio::time::timeout(limit, env.environment.destroy()).await;
    let spec = crate::env::spec(env.subject, env.task.clone(), crate::env::LEASE);
    let files =
        tokio::time::timeout(limit, async { env.subject.backend(&env.home).remove_files(&spec).await });
    let files = files.await;
    let left = if env.subject.shares_kernel() { await_none(&known, &env.mark).await } else { Vec::new() };
    for (pid, _) in &left {
        let _ = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
    }
    removed.map_err(|_| Failure::new("removing the case's directory took too long"))??;
    destroyed.map_err(|_| Failure::new(format!("destroy took more than {} s", limit.as_secs())))??;
    files.map_err(|_| Failure::new("removing the place's files took too long"))??;
    if !left.is_empty() {
        return Err(Failure::new(format!("processes survived the environment: {left:?}")));
    }
    let things = env.subject.leftovers(&env.home, &env.task);
    if things.is_empty() { Ok(()) } else { Err(Failure::new(format!("left after destroy: {things:?}"))) }
}

/// The outpost and what runs below it.
async fn known(env: &Env) -> HashSet<survivors::Seen> {
    if !env.subject.shares_pids() {
        return HashSet::new();
    }
    match tokio::time::timeout(Duration::from_secs(10), env.outpost().info()).await {
        Ok(Ok(info)) => survivors::tree(info.identity.pid),
        // An outpost that is gone is a matter of the case.
        _ => HashSet::new(),
    }
}

async fn await_none(known: &HashSet<survivors::Seen>, mark: &str) -> Vec<(u32, String)> {
    let begun = Instant::now();
    loop {
        let left = survivors::survivors(known, mark);
        if left.is_empty() || begun.elapsed() > GONE {
            return left;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Seven random digits, the first of them not zero.
fn mark() -> String {
    let random = std::hash::RandomState::new().build_hasher().finish();
    (1_000_000 + random % 9_000_000).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_name_of_its_own() {
        let trials = trials(None).unwrap();
        let names: HashSet<&str> = trials.iter().map(Trial::name).collect();
        assert_eq!(names.len(), trials.len());
        assert!(names.contains("local::live::kill::hermes_84967_timeout_leaves_no_tree"));
        assert!(names.contains("local::one_shot::kill::hermes_84967_timeout_leaves_no_tree"));
    }

    #[test]
    fn a_backend_that_nobody_knows_is_an_error() {
        assert_eq!(trials(Some("local, nope")).unwrap_err(), "nope");
    }

    #[test]
    fn what_is_missing_is_skipped_with_the_reason_or_fails() {
        let case = *cases::all().next().unwrap();
        let made = |fails| {
            let missing = Missing { reason: "no moon".into(), fails };
            trial(subjects()[0], case, "live::", Mode::Live, Some(&missing))
        };
        assert!(made(false).name().ends_with(" [SKIPPED: no moon]") && made(false).has_ignored_flag());
        assert!(!made(true).name().contains("SKIPPED") && !made(true).has_ignored_flag());
    }
}
