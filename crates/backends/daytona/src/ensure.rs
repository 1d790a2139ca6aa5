//! The task's sandbox, found or made, and made to run.
//!
//! # Never two
//! A sandbox is looked for by its name, which is unique in an organisation also among those that are stopped, archived
//! or broken. It is made only after Daytona has said that there is none; if somebody else is faster, Daytona refuses with
//! 409, and the other one is used. An error on the way is an error, and no reason to make anything.

use crate::client::{Client, ClientError, Create, Interval, Sandbox, State};
use crate::config::Config;
use crate::error::explain;
use crate::labels::{self, Whose};
use crate::steps::{self, Step};
use farshell_engine::backend::{News, Progress, Spec};
use farshell_engine::{Error, Kind, Result};
use std::time::Duration;
use tokio::time::Instant;

const WHAT: &str = "preparing the environment";
/// The first pause between two looks, and the longest.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);
/// How long a refusal may be about a moment that has passed.
const REFUSED: Duration = Duration::from_secs(8);
/// How often something else may come in between.
const ROUNDS: u32 = 200;

/// How a sandbox was found.
#[derive(Debug)]
pub(crate) enum Settled {
    /// It runs. True if it did not at first.
    Runs(Sandbox, bool),
    Gone,
    /// It could not be built.
    NeverWas(Sandbox),
}

/// Brings a sandbox that is there to the state in which it runs. `key` is its id or its name.
pub(crate) async fn settle(
    client: &Client,
    key: &str,
    image: &str,
    progress: &dyn Progress,
) -> Result<Settled> {
    let mut known: Option<(State, Instant)> = None;
    let mut pause = PAUSE;
    let mut woken = false;
    let mut refused: Option<ClientError> = None;
    for _ in 0..ROUNDS * 20 {
        let Some(sandbox) = client.get(key).await.map_err(|e| explain("looking at the sandbox", e))? else {
            return Ok(Settled::Gone);
        };
        let since = match &known {
            Some((state, since)) if *state == sandbox.state => *since,
            _ => {
                pause = PAUSE;
                refused = None;
                Instant::now()
            }
        };
        if known.as_ref().is_none_or(|(state, _)| *state != sandbox.state) && sandbox.state != State::Started
        {
            progress.say(&News { message: steps::news(&sandbox.state, image), part: None });
        }
        known = Some((sandbox.state.clone(), since));
        let step = steps::next(&sandbox.state, sandbox.recoverable == Some(true));
        match step {
            Step::Use => return Ok(Settled::Runs(sandbox, woken)),
            Step::Gone => return Ok(Settled::Gone),
            Step::NeverWas => return Ok(Settled::NeverWas(sandbox)),
            Step::Broken => return Err(broken(&sandbox)),
            Step::Start | Step::Recover => {
                woken = true;
                let asked = match step {
                    Step::Start => client.start(&sandbox.id).await,
                    _ => client.recover(&sandbox.id).await,
                };
                match asked {
                    Ok(_) => {}
                    // Somebody else has done something to it, or the answer was lost: another look tells what. A refusal that
                    // stays is the last word.
                    Err(error) if is_passing(&error) && !(lasts(&error) && since.elapsed() >= REFUSED) => {
                        refused = Some(error);
                    }
                    Err(error) => return Err(explain(format!("starting sandbox {}", sandbox.name), error)),
                }
            }
            Step::Wait | Step::WaitGone => woken = true,
        }
        if since.elapsed() >= steps::patience(&sandbox.state) {
            let why = refused.map_or_else(String::new, |error| format!(": {error}"));
            let message = format!("sandbox {} stays {:?}{why}", sandbox.name, sandbox.state.name());
            return Err(Error::new(Kind::TimedOut, WHAT, message).with_hint(
                "app.daytona.io shows more; `farshell env rm --files` removes it, with its files",
            ));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST);
    }
    Err(Error::new(Kind::TimedOut, WHAT, "the sandbox does not come to rest"))
}

/// Not the last word about the sandbox.
fn is_passing(error: &ClientError) -> bool {
    use crate::client::Fault;
    matches!(error.fault, Fault::TimedOut | Fault::Lost(_)) || matches!(error.status(), Some(400 | 404 | 409))
}

/// Said of the sandbox and not of the moment, if it is said again.
fn lasts(error: &ClientError) -> bool {
    matches!(error.status(), Some(400 | 404))
}

fn broken(sandbox: &Sandbox) -> Error {
    let why = sandbox.error_reason.as_deref().unwrap_or("Daytona does not say why");
    let message = format!("sandbox {} is in an error that Daytona can't recover from: {why}", sandbox.name);
    // Its files may be of use to somebody yet.
    Error::new(Kind::Unavailable, WHAT, message).with_hint(
        "ask Daytona's support if its files matter; `farshell env rm --files` removes it, with its files",
    )
}

/// The task's sandbox, running. True if there was none before.
pub(crate) async fn ensure(
    client: &Client,
    config: &Config,
    spec: &Spec,
    owner: &str,
    progress: &dyn Progress,
) -> Result<(Sandbox, bool)> {
    let image = &config.settings.image;
    let create = labels::create(config, spec, owner);
    let name = labels::name(&spec.task);
    let (mut new, mut ours) = (false, false);
    for _ in 0..ROUNDS {
        // Whose it is comes first: a stranger's is not even started.
        let found = client.get(&name).await.map_err(|e| explain("looking for the sandbox", e))?;
        if let Some(sandbox) = &found {
            check(config, spec, owner, sandbox)?;
        }
        let settled = match &found {
            Some(_) => settle(client, &name, image, progress).await?,
            None => Settled::Gone,
        };
        match settled {
            Settled::Runs(sandbox, _) => {
                // It may be another one than a moment ago.
                check(config, spec, owner, &sandbox)?;
                adjust(client, config, spec, owner, &sandbox).await?;
                return Ok((sandbox, new));
            }
            Settled::NeverWas(sandbox) => {
                // It may be another one than a moment ago.
                check(config, spec, owner, &sandbox)?;
                let why = sandbox.error_reason.clone().unwrap_or_default();
                remove(client, &sandbox.id).await?;
                if ours {
                    let message = format!("Daytona can't build a sandbox from {image}: {why}");
                    return Err(Error::new(Kind::Unavailable, WHAT, message)
                        .with_hint("does the image exist, and may Daytona pull it? see daytona_image"));
                }
            }
            Settled::Gone => {
                new = true;
                progress.say(&News { message: format!("making a sandbox from {image}"), part: None });
                ours |= make(client, &create).await?;
            }
        }
    }
    Err(Error::new(Kind::Unavailable, WHAT, "something keeps removing the sandbox"))
}

/// False: somebody else made one at the same moment.
async fn make(client: &Client, create: &Create) -> Result<bool> {
    match client.create(create).await {
        Ok(_) => Ok(true),
        Err(error) if error.status() == Some(409) => {
            // The name of one that is being deleted is free in a moment.
            tokio::time::sleep(PAUSE).await;
            Ok(false)
        }
        Err(error) => Err(explain("making a sandbox", error)),
    }
}

/// It is this task's sandbox, and made from what is wanted.
fn check(config: &Config, spec: &Spec, owner: &str, sandbox: &Sandbox) -> Result<()> {
    let named = &sandbox.name;
    let same = match labels::whose(sandbox, &spec.task, owner) {
        Whose::Theirs => {
            let message = format!("there is a sandbox {named} already, and it is not of this home");
            return Err(Error::new(Kind::AlreadyExists, WHAT, message).with_hint(
                "use another task (`--task`), or delete it at app.daytona.io if nobody needs it",
            ));
        }
        // Nothing was ever in it: it makes room.
        _ if sandbox.state == State::BuildFailed => true,
        Whose::Ours => {
            sandbox.labels.get(labels::SPEC).map(String::as_str) == Some(spec.hash("daytona").as_str())
        }
        Whose::Hermes => {
            labels::same_image(sandbox, &config.settings.image)
                && labels::same_resources(sandbox, config.resources())
        }
    };
    if same {
        return Ok(());
    }
    let message = format!("sandbox {named} was made with other settings (image, limits or region)");
    Err(Error::new(Kind::SpecChanged, WHAT, message)
        .with_hint("its files are in it and nowhere else: copy what you need, then `farshell env rm --files` removes it; or set the old values again"))
}

/// What can be changed on one that is there: its timers, and whose it is.
async fn adjust(client: &Client, config: &Config, spec: &Spec, owner: &str, sandbox: &Sandbox) -> Result<()> {
    let settings = &config.settings;
    #[expect(clippy::cast_precision_loss, reason = "minutes are few")]
    let differs = |now: Option<f64>, wanted: i64| now.is_some_and(|now| (now - wanted as f64).abs() > 0.5);
    for (interval, now, wanted) in [
        (Interval::Stop, sandbox.auto_stop_interval, i64::from(settings.auto_stop_minutes)),
        (Interval::Archive, sandbox.auto_archive_interval, i64::from(settings.auto_archive_minutes)),
        (Interval::Delete, sandbox.auto_delete_interval, config.auto_delete()),
    ] {
        // Daytona shows its longest span for 0.
        if differs(now, wanted) && !(interval == Interval::Archive && wanted == 0) {
            let set = client.set_interval(&sandbox.id, interval, wanted).await;
            set.map_err(|e| explain("setting the timers of the sandbox", e))?;
        }
    }
    if labels::whose(sandbox, &spec.task, owner) == Whose::Hermes {
        let mut all = sandbox.labels.clone();
        all.extend(labels::all(spec, owner));
        client.set_labels(&sandbox.id, &all).await.map_err(|e| explain("taking the sandbox over", e))?;
    }
    Ok(())
}

/// How long a sandbox may take to go.
const GO: Duration = Duration::from_secs(60);

/// Whether its files were to be kept when it was made: what is not, Daytona deletes when it stops.
pub(crate) fn keeps(sandbox: &Sandbox) -> Option<bool> {
    sandbox.auto_delete_interval.map(|minutes| minutes != 0.0)
}

/// Deletes a sandbox, and waits until nothing runs in it any more. If it is gone already, that is no error.
pub(crate) async fn remove(client: &Client, id: &str) -> Result<()> {
    let what = "deleting the sandbox";
    let deadline = Instant::now() + GO;
    let mut pause = PAUSE;
    let mut asked = false;
    loop {
        if !asked {
            match client.delete(id).await {
                Ok(true) => asked = true,
                Ok(false) => return Ok(()),
                // It is changing; when it has, it can be deleted.
                Err(error) if error.status() == Some(409) && Instant::now() < deadline => {}
                Err(error) => return Err(explain(what, error)),
            }
        }
        match client.get(id).await.map_err(|e| explain(what, e))? {
            None => return Ok(()),
            Some(sandbox) if sandbox.state == State::Destroyed => return Ok(()),
            Some(sandbox) if sandbox.state == State::Destroying && Instant::now() >= deadline => {
                return Ok(());
            }
            Some(sandbox) if Instant::now() >= deadline => {
                let message = format!("sandbox {} is still {}", sandbox.name, sandbox.state.name());
                return Err(Error::new(Kind::TimedOut, what, message));
            }
            Some(_) => {}
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST);
    }
}

/// Stops a sandbox, and waits until it is. One that does not run needs no stop.
pub(crate) async fn stop(client: &Client, id: &str) -> Result<()> {
    let what = "stopping the sandbox";
    let deadline = Instant::now() + GO;
    let mut pause = PAUSE;
    loop {
        let Some(sandbox) = client.get(id).await.map_err(|e| explain(what, e))? else { return Ok(()) };
        match sandbox.state {
            State::Stopped | State::Archived | State::Archiving | State::Destroyed | State::Destroying => {
                return Ok(());
            }
            State::Error | State::BuildFailed => return Ok(()),
            State::Started | State::Paused => match client.stop(id).await {
                Ok(_) => {}
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(explain(what, error)),
            },
            _ => {}
        }
        if Instant::now() >= deadline {
            let message = format!("sandbox {} is still {}", sandbox.name, sandbox.state.name());
            return Err(Error::new(Kind::TimedOut, what, message));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST);
    }
}
