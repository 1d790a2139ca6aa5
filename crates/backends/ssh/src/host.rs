//! The host: which machine it is, and the outposts on it.

use crate::config::Config;
use crate::link::Link;
use crate::links::{Links, Use};
use crate::script::{Answers, Script, Wish};
use crate::{error, stream, upload};
use farshell_engine::backend::{ByteStream, Identity, Progress, TaskName};
use farshell_engine::{Error, Kind, Result, owner};
use std::sync::Arc;
use std::time::Duration;

/// A host, by way of its connections.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) config: Arc<Config>,
    pub(crate) links: Links,
}

/// What a script said about the host, and about a task's outpost on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) system: String,
    pub(crate) arch: String,
    pub(crate) name: String,
    pub(crate) machine: String,
    pub(crate) boot: String,
    pub(crate) uid: String,
    /// Where everything of ours is.
    pub(crate) base: String,
    /// What the names of directories of this machine, since its last start, end with.
    pub(crate) mark: String,
    /// The directory of the task's outpost.
    pub(crate) dir: String,
    /// Where its program is, or would be.
    pub(crate) bin: String,
    pub(crate) present: bool,
    /// The program is there.
    pub(crate) have: bool,
}

impl Facts {
    fn of(answers: &Answers) -> Self {
        let get = |name: &str| error::plain(answers.get(name));
        Self {
            system: get("system"),
            arch: get("arch"),
            name: get("name"),
            machine: get("machine"),
            boot: get("boot"),
            uid: get("user"),
            base: answers.get("base").to_owned(),
            mark: get("mark"),
            dir: answers.get("dir").to_owned(),
            bin: answers.get("bin").to_owned(),
            present: answers.has("present"),
            have: answers.get("have") == "yes",
        }
    }

    /// The machine and the account on it. A machine is known by its id, and where it has none, by its name.
    pub(crate) fn identity(&self) -> Identity {
        let machine = if self.machine.is_empty() { &self.name } else { &self.machine };
        Identity { name: self.name.clone(), id: format!("{machine}/{}", self.uid) }
    }

    /// The machine and the account are those that are known to have the task's environment.
    pub(crate) fn is_still(&self, was: &Identity, task: &TaskName, config: &Config) -> Result<()> {
        let here = self.identity();
        if here.id == was.id {
            return Ok(());
        }
        let to = config.destination();
        let message = format!(
            "{to} is another machine than before: {} ({}), and not {} ({})",
            here.name, here.id, was.name, was.id
        );
        let hint = format!(
            "name one machine in ssh_host; or give up what is on the other one with `farshell env rm --forget ssh/{}`, and \
             the next call begins anew on this one",
            task.as_str()
        );
        Err(Error::new(Kind::IdentityChanged, format!("connecting to {to}"), message).with_hint(hint))
    }

    /// An outpost can run there.
    pub(crate) fn check(&self, config: &Config) -> Result<()> {
        let what = format!("preparing {}", config.destination());
        let odd = |text: &str| text.is_empty() || text.chars().any(char::is_control);
        if odd(&self.uid) || odd(&self.mark) || self.base.chars().any(char::is_control) {
            return Err(Error::new(Kind::Unavailable, what, "the host does not say who and what it is")
                .with_hint("the account needs the usual small tools in its PATH: cat, cksum, cut, dd, id, tr, uname, wc"));
        }
        if self.base.is_empty() {
            return Err(Error::new(Kind::Unavailable, what, "the account has no home directory")
                .with_hint("set ssh_outpost_dir to an absolute path that the account may write"));
        }
        let arches = || farshell_bundle::outposts().iter().map(|o| o.arch).collect::<Vec<_>>().join(", ");
        if self.system != "Linux" || farshell_bundle::for_arch(&self.arch).is_none() {
            let message = format!(
                "the host is {} on {}, and this build of farshell has outposts for Linux on {} only",
                self.system,
                self.arch,
                arches()
            );
            return Err(Error::new(Kind::Unavailable, what, message)
                .with_hint("use a build of farshell that carries an outpost for it"));
        }
        Ok(())
    }
}

impl Host {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        Self { links: Links::new(Arc::clone(&config)), config }
    }

    pub(crate) fn owner(&self) -> Result<String> {
        owner::of(&self.config.home)
    }

    /// What the names of a task's directories begin with.
    fn prefix(&self, task: &TaskName) -> Result<String> {
        Ok(format!("{}-{}", task.as_str(), self.owner()?))
    }

    pub(crate) async fn ask(&self, task: &str, wish: &Wish<'_>) -> Result<(Facts, Answers)> {
        let (_, answers) = self.links.ask(&Script::new(&self.config, task, wish)).await?;
        Ok((Facts::of(&answers), answers))
    }

    /// Whether the task's outpost, or what is left of one, is there.
    pub(crate) async fn look(&self, task: &TaskName) -> Result<Facts> {
        Ok(self.ask(&self.prefix(task)?, &Wish::Look).await?.0)
    }

    /// Makes sure that the task's outpost runs. If a machine is known that has it, nothing is done on another one.
    pub(crate) async fn start(
        &self,
        task: &TaskName,
        lease: Duration,
        was: Option<&Identity>,
        progress: &dyn Progress,
    ) -> Result<(Arc<Link>, Facts)> {
        let wish = Wish::Start { lease: lease.as_secs(), known: was.map_or("", |was| was.id.as_str()) };
        let script = Script::new(&self.config, &self.prefix(task)?, &wish);
        let mut uploads = 0;
        loop {
            let (link, answers) = self.links.ask(&script).await?;
            let facts = Facts::of(&answers);
            facts.check(&self.config)?;
            if let Some(was) = was {
                facts.is_still(was, task, &self.config)?;
            }
            if answers.has("started") {
                return Ok((link, facts));
            }
            let failed = answers.get("failed");
            // A program that can't be run may have been damaged since it was put there.
            let damaged = failed.starts_with("126 ") || failed.starts_with("127 ");
            if uploads > 1 || (facts.have && (!damaged || uploads > 0)) {
                return Err(upload::failure(&self.config, &facts, &format!("start {failed}")));
            }
            uploads += 1;
            upload::upload(self, &facts, damaged, progress).await?;
        }
    }

    /// A stream, in a session, to an outpost that was there a moment ago. Nothing where the host is another one, or was
    /// started again.
    pub(crate) async fn stream_again(&self, facts: &Facts, lease: Duration) -> Option<ByteStream> {
        if facts.boot.is_empty() {
            return None;
        }
        let Facts { bin, dir, boot, .. } = facts;
        let wish = Wish::Again { bin, dir, boot, lease: lease.as_secs() };
        let (_, mut session) =
            self.links.open(&Script::new(&self.config, "", &wish), Use::Long).await.ok()?;
        session.until(&["stream", "end"]).await.ok()?;
        if session.answers.has("stream") { stream::of(session) } else { None }
    }

    /// Makes sure that the task's outpost runs on that machine, and opens a stream to it in a session.
    pub(crate) async fn stream(
        &self,
        task: &TaskName,
        lease: Duration,
        was: &Identity,
    ) -> Result<(Arc<Link>, Facts, ByteStream)> {
        let wish = Wish::Stream { lease: lease.as_secs(), known: &was.id };
        let script = Script::new(&self.config, &self.prefix(task)?, &wish);
        let mut uploaded = false;
        loop {
            let (link, mut session) = self.links.open(&script, Use::Long).await?;
            session.until(&["stream", "end"]).await?;
            let facts = Facts::of(&session.answers);
            facts.check(&self.config)?;
            facts.is_still(was, task, &self.config)?;
            if session.answers.has("stream") {
                let stream = stream::of(session).ok_or_else(|| {
                    Error::new(
                        Kind::System,
                        "opening a stream to the outpost",
                        "the session can't be written to",
                    )
                })?;
                return Ok((link, facts, stream));
            }
            if uploaded {
                return Err(upload::failure(&self.config, &facts, "run it is gone again"));
            }
            uploaded = true;
            drop(session);
            upload::upload(self, &facts, false, &()).await?;
        }
    }
}

#[cfg(test)]
pub(crate) fn sample(machine: &str) -> Facts {
    Facts {
        system: "Linux".into(),
        arch: "x86_64".into(),
        name: "h".into(),
        machine: machine.into(),
        boot: String::new(),
        uid: "1".into(),
        base: "/b".into(),
        mark: "1".into(),
        dir: "/b/run/x".into(),
        bin: "/b/outposts/x/farshell-outpost".into(),
        present: false,
        have: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outpost_can_run_where_it_can_be_put_and_nowhere_else() {
        let config = crate::config::sample();
        let facts = || Facts { arch: std::env::consts::ARCH.into(), ..sample("1") };
        facts().check(&config).unwrap();
        for (facts, message, hint) in [
            (
                Facts { arch: "riscv64".into(), ..facts() },
                "the host is Linux on riscv64",
                "carries an outpost",
            ),
            (Facts { system: "Darwin".into(), ..facts() }, "the host is Darwin on", "carries an outpost"),
            (Facts { uid: String::new(), ..facts() }, "does not say who and what it is", "cksum"),
            (Facts { mark: String::new(), ..facts() }, "does not say who and what it is", "cksum"),
            (Facts { base: "/a\tb".into(), ..facts() }, "does not say who and what it is", "cksum"),
            (Facts { base: String::new(), ..facts() }, "no home directory", "ssh_outpost_dir"),
        ] {
            let error = facts.check(&config).unwrap_err();
            assert_eq!(error.kind, Kind::Unavailable, "{error}");
            assert!(error.message.contains(message), "{error}");
            assert!(error.hint.as_ref().unwrap().contains(hint), "{error:?}");
        }
    }
}
