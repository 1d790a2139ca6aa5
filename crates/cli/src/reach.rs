//! The way to the server, for all subcommands.

use crate::output::Stop;
use crate::{load, progress};
use farshell_api::Text;
use farshell_api::run::{Caller, Target};
use farshell_client::{Client, Starter};
use farshell_engine::{Error, TaskName};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// `$HERMES_HOME`.
pub(crate) fn home() -> Result<PathBuf, Error> {
    Ok(load::context(None)?.home.root().to_owned())
}

/// The server, started if need be.
pub(crate) async fn server() -> Result<Client, Stop> {
    let home = home()?;
    let client = Client::connect_or_start(&home, Starter::this_program());
    Ok(progress::during("starting the server", client).await?)
}

/// One call to the server, with its answer; what takes long is shown.
pub(crate) fn ask<T, F: Future<Output = Result<T, Stop>>>(
    doing: &str,
    call: impl FnOnce(Client) -> F,
) -> Result<T, Stop> {
    crate::runtime()?.block_on(async {
        let client = server().await?;
        progress::during(doing, call(client)).await
    })
}

/// As [`ask`]; where there is no terminal, a line now and then says that it still goes on.
pub(crate) fn ask_slowly<T, F: Future<Output = Result<T, Stop>>>(
    doing: &str,
    call: impl FnOnce(Client) -> F,
) -> Result<T, Stop> {
    crate::runtime()?.block_on(async {
        let client = server().await?;
        progress::told(doing, call(client)).await
    })
}

/// A task's environment, as seen from here.
pub(crate) fn target(task: &str, backend: Option<&str>) -> Result<Target, Error> {
    let task = TaskName::new(task).map_err(|e| crate::output::invalid("reading --task", e.to_string()))?;
    Ok(Target {
        task: task.as_str().into(),
        backend: backend.map(str::to_owned),
        caller: Some(caller()?),
        approvals: None,
    })
}

/// Where we stand: our directory and variables decide settings, and what a session begins with.
fn caller() -> Result<Caller, Error> {
    let cwd = std::env::current_dir().map_err(|e| {
        Error::io("finding the current directory", e)
            .with_hint("it may have been removed: change to another one")
    })?;
    let env = std::env::vars_os()
        // JSON has no name for one that isn't text.
        .filter_map(|(name, value)| Some((name.into_string().ok()?, Text(value.into_vec()))))
        .filter(|(name, _)| !name.is_empty() && !name.contains('='))
        .collect();
    Ok(Caller { cwd: Some(Text(cwd.into_os_string().into_vec())), env: Some(env) })
}
