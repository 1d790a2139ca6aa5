//! The outpost in a sandbox: uploaded once, under a name that says what it is.

use crate::client::{Toolbox, Upload};
use crate::error::explain;
use bytes::Bytes;
use farshell_engine::random::hex;
use farshell_engine::{Error, Kind, Result};
use std::time::Duration;

const WHAT: &str = "installing the outpost in the sandbox";
/// How long a few small commands may take in a sandbox that has just begun.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where things are in a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Installed {
    /// The outpost's program.
    pub(crate) program: String,
    /// Its directory.
    pub(crate) dir: String,
}

/// Something that is one word to a shell.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// What a command says before it says anything else. A shell may have complained before: of a language that the image
/// wants and does not have, say.
pub(crate) const MARK: &str = "farshell-says:";

/// One command, whatever shell it is fed to.
fn script(text: &str) -> String {
    format!("sh -c {}", quoted(&format!("echo {MARK}; {text}")))
}

/// What was said after the mark.
pub(crate) fn after_mark(said: &str) -> &str {
    said.split_once(MARK).map_or(said, |(_, rest)| rest.strip_prefix('\n').unwrap_or(rest))
}

/// Sees whether the outpost is there, and puts it there if not.
pub(crate) async fn install(toolbox: &Toolbox) -> Result<Installed> {
    let asked =
        run(toolbox, "uname -m; printf '%s\\n' \"$HOME\"; ls -1 \"$HOME/.farshell\" 2>/dev/null; true")
            .await?;
    let mut lines = asked.lines();
    let (arch, home) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    if !home.starts_with('/') {
        let message = format!("the sandbox does not say where its home directory is: {:?}", excerpt(&asked));
        return Err(Error::new(Kind::Unavailable, WHAT, message));
    }
    let outpost = farshell_bundle::for_arch(arch).ok_or_else(|| {
        let message =
            format!("this build of farshell carries no outpost for the sandbox's architecture, {arch:?}");
        Error::new(Kind::Unavailable, WHAT, message).with_hint("install a build of farshell that does")
    })?;
    let base = format!("{}/.farshell", home.trim_end_matches('/'));
    let name = format!("outpost-{}", &outpost.hash[..16]);
    let installed = Installed { program: format!("{base}/{name}"), dir: format!("{base}/run") };
    if lines.any(|line| line == name) {
        return Ok(installed);
    }
    // Seen under its name only when it is whole.
    let part = format!("{base}/.part-{}", hex(4));
    let upload = Upload { path: part.clone(), bytes: Bytes::from_static(outpost.bytes) };
    toolbox.upload(&[upload]).await.map_err(|e| explain(WHAT, e))?;
    let (base, part, program) = (quoted(&base), quoted(&part), quoted(&installed.program));
    // Those of other releases are of no use any more; one that still runs does not need its file.
    let finish = format!(
        "chmod 700 {base} && chmod 755 {part} && {part} --version >/dev/null && rm -f {base}/outpost-* && mv -f {part} {program} && echo done"
    );
    let said = run(toolbox, &finish).await?;
    if said.trim_end().ends_with("done") {
        return Ok(installed);
    }
    let _ = run(toolbox, &format!("rm -f {part}")).await;
    let message = format!("it does not run there: {}", excerpt(&said));
    Err(Error::new(Kind::Unavailable, WHAT, message)
        .with_hint("the home directory must be writable, and programs in it allowed to run"))
}

async fn run(toolbox: &Toolbox, text: &str) -> Result<String> {
    let ran = toolbox.execute(&script(text), PATIENCE).await.map_err(|e| explain(WHAT, e))?;
    Ok(after_mark(&ran.result).to_owned())
}

fn excerpt(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control() || *c == '\n')
        .take(300)
        .collect::<String>()
        .trim()
        .replace('\n', "; ")
}
