//! `credential_files` in a sandbox: in its memory, where no snapshot has them, and a link to each below `~/.hermes`.

use crate::client::{End, Exec, Router};
use crate::ensure::say;
use crate::error::explain;
use crate::install::excerpt;
use bytes::Bytes;
use farshell_engine::backend::Progress;
use farshell_engine::credentials::Credential;
use farshell_engine::{Error, Kind, Result};
use std::time::Duration;

pub(crate) const WHAT: &str = "putting credential_files into the sandbox";
const PATIENCE: Duration = Duration::from_secs(60);
/// What has such a name there already, be it the image's or of a tool that replaces files instead of writing to them, is
/// kept beside the link; its new name is said.
const SCRIPT: &str = r#"umask 077
grep -q ' /dev/shm tmpfs ' /proc/mounts || { echo "/dev/shm is no memory there, and a snapshot would have them" >&2; exit 1; }
kept=/dev/shm/.farshell-credentials/$1; link=${HOME:-/root}/.hermes/$1
mkdir -p "${kept%/*}" "${link%/*}" && cat >"$kept.part" && mv -f "$kept.part" "$kept" || exit 1
if [ -e "$link" ] && [ ! -L "$link" ]; then
    n=1; while [ -e "$link.replaced-$n" ]; do n=$((n + 1)); done
    mv "$link" "$link.replaced-$n" && echo "$link.replaced-$n" || exit 1
fi
ln -sfn "$kept" "$link""#;

/// Puts them there. They are gone with the sandbox, and put into the next one.
pub(crate) async fn put(router: &Router, files: Vec<Credential>, progress: &dyn Progress) -> Result<()> {
    for (file, content) in files {
        let Some(name) = file.to_str() else {
            let message = format!("{} is no name that Modal can be told", file.display());
            return Err(Error::new(Kind::Invalid, WHAT, message));
        };
        let command = ["sh", "-c", SCRIPT, "sh", name];
        let ran = Exec::run(router, &command, Bytes::from(content), PATIENCE).await;
        let ran = ran.map_err(|e| explain(WHAT, e))?;
        if ran.end != End::Exited(0) {
            let message = format!("{name} is not there: {}", excerpt(&ran.stderr));
            return Err(Error::new(Kind::Unavailable, WHAT, message).with_hint("change credential_files"));
        }
        let moved = ran.stdout.trim();
        if !moved.is_empty() {
            say(progress, format!("{name} of credential_files replaces a file, which is {moved} now"));
        }
    }
    Ok(())
}
