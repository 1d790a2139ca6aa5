//! Putting the outpost on the host: once for each version, found by its content.
//!
//! It is written under a name of its own, compared by its hash, run once, and only then renamed. Whoever does the same
//! at the same time renames the same bytes.

use crate::config::Config;
use crate::error::plain;
use crate::host::{Facts, Host};
use crate::links::Use;
use crate::script::{Script, Wish};
use farshell_bundle::Outpost;
use farshell_engine::backend::{News, Progress};
use farshell_engine::{Error, Kind, Result};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PIECE: usize = 32 << 10;
/// How long a line may take for one piece: it may be slow, but not this slow.
const STALL: Duration = Duration::from_secs(60);
/// How long the end may be under way when all is sent: a slow line has up to two megabytes before it. A dead one is
/// noticed earlier.
const ARRIVE: Duration = Duration::from_secs(600);

/// Puts it there, unless it is. `anew`: also if it is.
pub(crate) async fn upload(host: &Host, facts: &Facts, anew: bool, progress: &dyn Progress) -> Result<()> {
    let what = format!("installing the outpost on {}", host.config.destination());
    let outpost = farshell_bundle::for_arch(&facts.arch).ok_or_else(|| {
        Error::new(Kind::Unavailable, what.clone(), format!("there is none for {}", facts.arch))
    })?;
    let first = host.links.first()?;
    let attempt = first.uploads.begin().await;
    let doing = async {
        // Another task may have done it meanwhile.
        if !anew && host.ask("", &Wish::Look).await?.0.have {
            return Ok(());
        }
        put(host, facts, outpost, &what, progress).await
    };
    // Whose variables they are does not matter to an upload.
    attempt.make(&first.config, doing).await
}

async fn put(
    host: &Host,
    facts: &Facts,
    outpost: &Outpost,
    what: &str,
    progress: &dyn Progress,
) -> Result<()> {
    let script = Script::new(&host.config, "", &Wish::Upload { arch: outpost.arch });
    let (_, mut session) = host.links.open(&script, Use::Short).await?;
    session.until(&["ready", "end"]).await?;
    if session.answers.has("ready") {
        if let Some(stdin) = session.stdin.take() {
            send(what, stdin, outpost, progress).await?;
        }
        session.until_within(&["end"], ARRIVE).await?;
    }
    let answers = session.answers.clone();
    drop(session);
    if answers.has("unverified") {
        return read_back(host, facts, outpost, answers.get("unverified")).await;
    }
    if answers.has("done") { Ok(()) } else { Err(failure(&host.config, facts, answers.get("failed"))) }
}

async fn send(
    what: &str,
    mut stdin: tokio::process::ChildStdin,
    outpost: &Outpost,
    progress: &dyn Progress,
) -> Result<()> {
    let all = outpost.bytes.len() as u64;
    let mut sent = 0;
    for piece in outpost.bytes.chunks(PIECE) {
        progress.say(&News { message: "uploading the outpost".into(), part: Some((sent, all)) });
        match tokio::time::timeout(STALL, stdin.write_all(piece)).await {
            Ok(Ok(())) => sent += piece.len() as u64,
            // The script has ended, or the connection: its answers tell.
            Ok(Err(_)) => break,
            Err(_) => {
                let message = format!("the connection has taken nothing for {} s", STALL.as_secs());
                return Err(Error::new(Kind::TimedOut, what, message)
                    .with_hint("is the line very slow, or the host's disk stuck?"));
            }
        }
    }
    let _ = stdin.shutdown().await;
    Ok(())
}

/// For a host that has no program to hash files with.
async fn read_back(host: &Host, facts: &Facts, outpost: &Outpost, path: &str) -> Result<()> {
    let (_, mut session) =
        host.links.open(&Script::new(&host.config, "", &Wish::ReadBack { path }), Use::Short).await?;
    session.until(&["ready"]).await?;
    let mut bytes = std::mem::take(&mut session.rest);
    let limit = outpost.bytes.len() as u64 + 1;
    let left = limit.saturating_sub(bytes.len() as u64);
    let what = "reading the outpost back";
    let mut rest = (&mut session.stdout).take(left);
    loop {
        match tokio::time::timeout(STALL, rest.read_buf(&mut bytes)).await {
            Ok(Ok(0)) => break,
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(Error::io(what, error)),
            Err(_) => {
                let message = format!("the host has sent nothing for {} s", STALL.as_secs());
                return Err(Error::new(Kind::TimedOut, what, message)
                    .with_hint("is the line very slow, or the host's disk stuck?"));
            }
        }
    }
    drop(session);
    if bytes != outpost.bytes {
        return Err(failure(&host.config, facts, "sum differs"));
    }
    let (_, answers) = host.ask("", &Wish::Commit { arch: outpost.arch, path }).await?;
    if answers.has("done") { Ok(()) } else { Err(failure(&host.config, facts, answers.get("failed"))) }
}

/// What it means when a script says that something failed: one word for the step, and the host's own words.
pub(crate) fn failure(config: &Config, facts: &Facts, failed: &str) -> Error {
    let (step, said) = failed.split_once(' ').unwrap_or((failed, ""));
    let said = plain(said);
    let base = &facts.base;
    let to = config.destination();
    let what = if step == "start" {
        format!("starting the outpost on {to}")
    } else {
        format!("installing the outpost on {to}")
    };
    let elsewhere = "set ssh_outpost_dir (or TERMINAL_SSH_OUTPOST_DIR) to a directory on the host";
    let has = |part: &str| said.contains(part);
    if has("No space left") || has("quota") || has("Quota") {
        return Error::new(Kind::Exhausted, what, format!("{base} is full: {said}"))
            .with_hint(format!("make room there, or {elsewhere} with room"));
    }
    let cannot_run = said.starts_with("126 ") || has("Permission denied");
    match step {
        "owner" => Error::new(Kind::PermissionDenied, what, format!("{base} belongs to another user"))
            .with_hint(format!("{elsewhere} that is yours")),
        "run" | "start" if has("Exec format error") || has("cannot execute binary") => Error::new(
            Kind::Unavailable,
            what,
            format!("the host can't run a program for {}: {said}", facts.arch),
        )
        .with_hint("is its architecture what `uname -m` says?"),
        "run" | "start" if cannot_run => {
            let message = format!(
                "nothing can be run from {base}: it is on a file system mounted noexec, or forbidden ({said})"
            );
            Error::new(Kind::Unavailable, what, message)
                .with_hint(format!("{elsewhere} from which programs can run"))
        }
        "directory" | "write" | "short" => {
            let kind = if has("Permission denied") || has("Read-only") {
                Kind::PermissionDenied
            } else {
                Kind::System
            };
            Error::new(kind, what, format!("{base} can't be written: {said}"))
                .with_hint(format!("{elsewhere} that the account may write"))
        }
        "sum" => Error::new(Kind::System, what, format!("{base} does not hold what was written to it"))
            .with_hint("check the host's disk"),
        _ => Error::new(Kind::Unavailable, what, said).with_hint(format!("its directory is {}", facts.dir)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sample;

    #[test]
    fn each_failure_says_what_to_do() {
        let facts = crate::host::sample("");
        for (failed, kind, part) in [
            ("write cat: write error: No space left on device", Kind::Exhausted, "full"),
            (
                "directory mkdir: cannot create directory: Permission denied",
                Kind::PermissionDenied,
                "can't be written",
            ),
            ("run 126 sh: 1: /b/x: Permission denied", Kind::Unavailable, "noexec"),
            ("run 126 /b/x: cannot execute binary file: Exec format error", Kind::Unavailable, "x86_64"),
            ("owner /b", Kind::PermissionDenied, "another user"),
            ("sum 00", Kind::System, "does not hold"),
            ("start 1 the outpost did not start: odd", Kind::Unavailable, "odd"),
        ] {
            let error = failure(&sample(), &facts, failed);
            assert_eq!(error.kind, kind, "{failed}");
            assert!(error.message.contains(part) && error.hint.is_some(), "{failed}: {error}");
        }
    }
}
