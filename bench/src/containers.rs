//! The rows of containers. Where the limit is not the Engine API by hand, the row's name says what it is.

use crate::Args;
use farshell_bench::contained::Contained;
use farshell_bench::docker::{Fleet, Setting};
use farshell_bench::engine_api::{Container, Shell};
use farshell_bench::hermes::Hermes;
use farshell_bench::ours::Ours;
use farshell_bench::stats::{Bench, Column, Metric, Weight, on};
use std::cell::RefCell;
use std::error::Error;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::Mutex;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Commands that each container of a fleet runs.
const EACH: usize = 30;

/// What the rows need.
pub(crate) struct Containers {
    setting: Setting,
    /// Its outpost is reached by a socket.
    near: Contained,
    /// Its outpost is reached by an exec.
    far: Contained,
    bare: Container,
    far_bare: Container,
    hermes: Option<RefCell<Hermes>>,
    /// Made when it is measured: it takes a while.
    fleet: Mutex<Option<Fleet>>,
}

impl Containers {
    /// `None` unless an engine was given.
    pub(crate) fn of(args: &Args, runtime: &Runtime) -> Result<Option<Self>> {
        let (Some(engine), Some(image)) = (&args.docker, &args.docker_image) else { return Ok(None) };
        let setting = Setting::new(engine, image)?;
        let hermes = match &args.hermes {
            Some(python) => Some(RefCell::new(Hermes::start_in_docker(python, engine, image)?)),
            None => None,
        };
        runtime.block_on(async {
            let near = setting.near("near").await?;
            let far = setting.far("far").await?;
            let bare = setting.engine.container(image).await?;
            let far_bare = setting.far.container(image).await?;
            Ok(Some(Self { setting, near, far, bare, far_bare, hermes, fleet: Mutex::new(None) }))
        })
    }

    /// Commands in a shell that lasts.
    pub(crate) fn commands<'a>(
        &'a self,
        bench: &mut Bench<'a>,
        runtime: &'a Runtime,
        local: &'a Ours,
    ) -> Result<()> {
        bench
            .group(Weight::Light, vec![Metric::time("docker: builtin, limit: our local")])
            .case(Column::Limit, on(runtime, async || Ok(vec![local.run("true").await?])))
            .case(Column::Ours, on(runtime, async || Ok(vec![self.near.ours.run("true").await?])));
        for (name, command) in [("docker: builtin", "true"), ("docker: external", "/bin/true")] {
            let mut shell = runtime.block_on(Shell::start(&self.bare))?;
            let group = bench
                .group(Weight::Light, vec![Metric::time(name)])
                .case(Column::Limit, on(runtime, async move || Ok(vec![shell.run(command).await?])))
                .case(Column::Ours, on(runtime, async move || Ok(vec![self.near.ours.run(command).await?])));
            if let Some(hermes) = &self.hermes {
                group.case(Column::Hermes, || Ok(vec![hermes.borrow_mut().run(command)?]));
            }
        }
        let mut shell = runtime.block_on(Shell::start(&self.far_bare))?;
        bench
            .group(Weight::Light, vec![Metric::time("docker: builtin by exec stream, TCP")])
            .case(Column::Limit, on(runtime, async move || Ok(vec![shell.run("true").await?])))
            .case(Column::Ours, on(runtime, async || Ok(vec![self.far.ours.run("true").await?])));
        Ok(())
    }

    /// Processes in the background.
    pub(crate) fn processes<'a>(&'a self, bench: &mut Bench<'a>, runtime: &'a Runtime) -> Result<()> {
        bench
            .group(Weight::Light, vec![Metric::time("docker: background start")])
            .case(Column::Limit, on(runtime, async || Ok(vec![self.bare.detached(&["sleep", "1"]).await?])))
            .case(Column::Ours, on(runtime, async || Ok(vec![self.near.background().await?])));
        bench
            .group(Weight::Light, vec![Metric::time("docker: exit noticed")])
            .case(Column::Limit, on(runtime, async || Ok(vec![exit_by_hand(&self.bare).await?])))
            .case(Column::Ours, on(runtime, async || Ok(vec![self.near.exit().await?])));
        Ok(())
    }

    /// From nothing to the first result, and back.
    pub(crate) fn life<'a>(&'a self, bench: &mut Bench<'a>, runtime: &'a Runtime) {
        bench
            .group(Weight::Heavy, vec![Metric::time("docker: cold start"), Metric::time("docker: removal")])
            .case(Column::Limit, on(runtime, async || Ok(self.setting.cold_by_hand().await?.to_vec())))
            .case(Column::Ours, on(runtime, async || Ok(self.setting.cold().await?.to_vec())));
    }

    /// Many containers at once.
    pub(crate) fn fleet<'a>(&'a self, bench: &mut Bench<'a>, runtime: &'a Runtime, count: usize) {
        let name = format!("docker: {} commands in {count} containers", count * EACH);
        bench
            .group(Weight::Heavy, vec![Metric::per_second(name, (count * EACH) as u64)])
            .case(
                Column::Limit,
                on(runtime, async move || {
                    let mut fleet = self.fleet.lock().await;
                    let fleet = made(&mut fleet, &self.setting, count).await?;
                    Ok(vec![fleet.shells(EACH).await?])
                }),
            )
            .case(
                Column::Ours,
                on(runtime, async move || {
                    let mut fleet = self.fleet.lock().await;
                    let fleet = made(&mut fleet, &self.setting, count).await?;
                    Ok(vec![fleet.ours(EACH).await?])
                }),
            );
    }

    /// Much output.
    pub(crate) fn output<'a>(&'a self, bench: &mut Bench<'a>, runtime: &'a Runtime, bytes: u64) {
        for (name, contained, bare) in [
            ("docker: output of zeros", &self.near, &self.bare),
            ("docker: output of zeros by exec stream, TCP", &self.far, &self.far_bare),
        ] {
            let script = format!("head -c {bytes} /dev/zero");
            let ours = script.clone();
            bench
                .group(Weight::Heavy, vec![Metric::rate(name, bytes)])
                .case(
                    Column::Limit,
                    on(runtime, async move || {
                        let begin = Instant::now();
                        let total = bare.exec(&["sh", "-c", &script]).await?.drain().await?;
                        let took = begin.elapsed();
                        if total != bytes {
                            return Err(format!("{total} bytes instead of {bytes}").into());
                        }
                        Ok(vec![took])
                    }),
                )
                .case(
                    Column::Ours,
                    on(runtime, async move || Ok(vec![contained.ours.output(&ours, bytes).await?])),
                );
        }
    }

    pub(crate) async fn remove(self) -> Result<()> {
        if let Some(fleet) = self.fleet.into_inner() {
            fleet.remove().await?;
        }
        self.near.remove().await?;
        self.far.remove().await?;
        self.bare.remove().await?;
        self.far_bare.remove().await?;
        Ok(())
    }
}

async fn made<'f>(fleet: &'f mut Option<Fleet>, setting: &Setting, count: usize) -> Result<&'f mut Fleet> {
    if fleet.is_none() {
        *fleet = Some(setting.fleet(count).await?);
    }
    fleet.as_mut().ok_or_else(|| "no fleet".into())
}

/// From the last byte of a process's input, which ends it, to the end of its streams.
async fn exit_by_hand(container: &Container) -> Result<Duration> {
    let mut streams = container.exec(&["head", "-n", "1"]).await?;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let begin = Instant::now();
    streams.write(b"\n").await?;
    streams.drain().await?;
    Ok(begin.elapsed())
}
