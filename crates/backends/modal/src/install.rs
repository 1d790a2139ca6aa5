//! The outpost in a sandbox: put there once, under a name that says what it is. Snapshots keep it.

use crate::client::{End, Exec, Router};
use crate::error::explain;
use bytes::Bytes;
use farshell_engine::random::hex;
use farshell_engine::{Error, Kind, Result};
use std::time::Duration;

const WHAT: &str = "installing the outpost in the sandbox";
/// How long a few small commands may take in a sandbox that has just begun.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a few megabytes may take on a slow line.
const UPLOAD: Duration = Duration::from_secs(300);
/// Modal's sandboxes are this.
const ARCH: &str = "x86_64";
/// Where everything of ours is, in a shell's words.
const BASE: &str = r#"base=${HOME:-/root}/.farshell"#;

/// The outpost for a sandbox.
pub(crate) fn outpost() -> Result<&'static farshell_bundle::Outpost> {
    farshell_bundle::for_arch(ARCH).ok_or_else(|| {
        let message =
            format!("this build of farshell carries no outpost for {ARCH}, which Modal's sandboxes are");
        Error::new(Kind::Unavailable, WHAT, message).with_hint("install a build of farshell that does")
    })
}

/// What a shell does to give way to the outpost's end of a stream.
pub(crate) fn connect(hash: &str, quiet: Duration, lease: Duration) -> String {
    format!(
        r#"{BASE}; exec "$base/outpost-{}" connect --text --quiet {} --dir "$base/run" --lease {}"#,
        &hash[..16],
        quiet.as_secs(),
        lease.as_secs()
    )
}

/// Puts the outpost into a sandbox. It is seen under its name only when it is whole, and runs.
pub(crate) async fn install(router: &Router) -> Result<()> {
    let outpost = outpost()?;
    let (name, size, part) = (&outpost.hash[..16], outpost.bytes.len(), hex(6));
    // Where there is a program for it, the content is compared; the length, and that it runs, always. Those of other
    // releases are of no use any more; one that still runs does not need its file.
    let script = format!(
        r#"{BASE}; part=$base/.part-{part}; umask 077
mkdir -p "$base" && cat >"$part" && chmod 700 "$part" || exit 1
[ "$(wc -c <"$part")" -eq {size} ] || {{ echo "it did not arrive whole" >&2; rm -f "$part"; exit 1; }}
if command -v sha256sum >/dev/null; then
    case $(sha256sum <"$part") in {hash}*) ;; *) echo "it did not arrive as it was sent" >&2; rm -f "$part"; exit 1;; esac
fi
"$part" --version >/dev/null || {{ rm -f "$part"; exit 1; }}
rm -f "$base"/outpost-*; mv -f "$part" "$base/outpost-{name}""#,
        hash = outpost.hash
    );
    let ran = Exec::run(router, &["sh", "-c", &script], Bytes::from_static(outpost.bytes), UPLOAD)
        .await
        .map_err(|e| explain(WHAT, e))?;
    if ran.end == End::Exited(0) {
        return Ok(());
    }
    let arch = Exec::run(router, &["uname", "-m"], Bytes::new(), PATIENCE).await;
    let arch = arch.map(|ran| ran.stdout.trim().to_owned()).unwrap_or_default();
    let message = format!("it does not run there ({arch}): {}", excerpt(&ran.stderr));
    Err(Error::new(Kind::Unavailable, WHAT, message).with_hint(
        "the image needs a shell, and a home directory that is writable and from which programs may run",
    ))
}

pub(crate) fn excerpt(text: &str) -> String {
    let text: String = text.chars().filter(|c| !c.is_control() || *c == '\n').take(300).collect();
    text.trim().replace('\n', "; ")
}
