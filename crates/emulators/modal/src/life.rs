//! The life of a sandbox, in one task: it starts, runs until something ends it, and leaves an exit snapshot.

use crate::cgroup::{Cgroup, Limits};
use crate::images::Image;
use crate::process::{Process, Wish};
use crate::root::Root;
use crate::sandbox::{ExitSnapshot, Phase, Place, Sandbox, result, result_of};
use crate::wire::{Setup, Terminal, Tree};
use crate::world::World;
use farshell_modal_proto::client::GenericResult;
use farshell_modal_proto::client::generic_result::GenericStatus;
use farshell_modal_proto::client::network_access::NetworkAccessType;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often one looks whether it is over, at most.
const LOOK: Duration = Duration::from_millis(100);

/// How long what is taken at the end of a sandbox is kept, in seconds: 30 days.
const KEPT: u32 = 2_592_000;

/// From its making to its end.
pub(crate) async fn lead(world: Arc<World>, sandbox: Arc<Sandbox>) {
    let ended = match start(&world, &sandbox).await {
        Err(why) => why,
        Ok(place) => {
            sandbox.started();
            let main = place.main.clone();
            let _ = sandbox.place.set(place);
            sandbox.phase.send_replace(Phase::Running);
            let why = run(&world, &sandbox, main.as_deref()).await;
            if let Some(place) = sandbox.place.get() {
                place.root.stop().await;
                place.cgroup.remove();
            }
            why
        }
    };
    sandbox.finished();
    sandbox.phase.send_replace(Phase::Ended(ended));
    sandbox.forget_execs();
    if *sandbox.exit_snapshot.borrow() == ExitSnapshot::Pending {
        let taken = exit_snapshot(&world, &sandbox).await;
        sandbox.exit_snapshot.send_replace(match taken {
            Ok(image) => ExitSnapshot::Taken(image),
            Err(error) => ExitSnapshot::Failed(error.to_string()),
        });
    }
    sandbox.release_image();
    let _ = tokio::fs::remove_dir_all(&sandbox.dir).await;
    sandbox.done.send_replace(true);
}

async fn start(world: &World, sandbox: &Sandbox) -> Result<Place, GenericResult> {
    let mut wanted = sandbox.wanted.subscribe();
    let patience = world.options.start + world.faults.delay("slow-start", "");
    tokio::select! {
        () = tokio::time::sleep(patience) => {}
        ended = wanted.wait_for(Option::is_some) => {
            let ended = ended.ok().and_then(|wanted| wanted.clone());
            return Err(ended.unwrap_or_else(|| result(GenericStatus::Terminated, 137, "")));
        }
    }
    if world.faults.take(&["start-error"], "").is_some() {
        return Err(result(GenericStatus::InitFailure, 1, "the worker could not start the container"));
    }
    begin(world, sandbox).await.map_err(|error| {
        result(GenericStatus::InitFailure, 1, &format!("the container did not start: {error}"))
    })
}

async fn begin(world: &World, sandbox: &Sandbox) -> io::Result<Place> {
    let definition = &sandbox.definition;
    let wish = definition.resources.clone().unwrap_or_default();
    // What is only asked for is recorded; what is a limit holds.
    let limits = Limits { memory_mb: wish.memory_mb_max, milli_cpu: wish.milli_cpu_max };
    let cgroup = Cgroup::make(&sandbox.id, limits, &|text| world.say(text));
    let access = definition.network_access.clone().unwrap_or_default();
    let blocked = definition.block_network || access.network_access_type() == NetworkAccessType::Blocked;
    if access.network_access_type() == NetworkAccessType::Allowlist {
        world.say(&format!("{}: the list of allowed addresses is not enforced", sandbox.id));
    }
    let extra: &[&str] = if blocked { &["--net", "--uts"] } else { &["--uts"] };
    let image = sandbox.image().ok_or_else(|| io::Error::other("it has ended"))?;
    let stood = stand(world, &image, &sandbox.dir, &sandbox.id, extra, &cgroup).await;
    let (root, trees) = stood.inspect_err(|_| cgroup.remove())?;
    let main = match definition.entrypoint_args.as_slice() {
        [] => None,
        args => {
            let wish = Wish {
                args: args.to_vec(),
                env: environment(sandbox, &[]),
                workdir: workdir(sandbox),
                terminal: definition.pty_info.as_ref().filter(|pty| pty.enabled).map(terminal),
                keep_stdout: true,
                keep_stderr: true,
            };
            match Process::start(&root, &sandbox.dir, wish).await {
                Ok(main) => Some(main),
                Err(error) => {
                    root.stop().await;
                    cgroup.remove();
                    return Err(error);
                }
            }
        }
    };
    Ok(Place { root, trees, cgroup, main })
}

/// A root on that image, which writes into that directory.
pub(crate) async fn stand(
    world: &World,
    image: &Image,
    dir: &Path,
    name: &str,
    extra: &[&str],
    cgroup: &Cgroup,
) -> io::Result<(Arc<Root>, Vec<Tree>)> {
    let stack = image.stack().ok_or_else(|| io::Error::other("the image was not built"))?;
    let trees = world.layers.trees(&stack, dir)?;
    let setup = Setup {
        root: dir.join("root"),
        layers: world.layers.dir().to_owned(),
        trees: trees.clone(),
        hostname: "modal".into(),
        freezer: cgroup.freezer().map(Path::to_owned),
    };
    std::fs::create_dir_all(&setup.root)?;
    // For people, and for tests that look for what is left.
    std::fs::write(dir.join("name"), name)?;
    Ok((Root::start(setup, extra, cgroup).await?, trees))
}

pub(crate) fn terminal(pty: &farshell_modal_proto::client::PtyInfo) -> Terminal {
    let size = |asked: u32, usual: u16| u16::try_from(asked).ok().filter(|size| *size > 0).unwrap_or(usual);
    Terminal { rows: size(pty.winsz_rows, 24), cols: size(pty.winsz_cols, 80) }
}

pub(crate) fn workdir(sandbox: &Sandbox) -> String {
    let own = sandbox.definition.workdir.clone().filter(|dir| !dir.is_empty());
    own.or_else(|| sandbox.image()?.workdir()).unwrap_or_else(|| "/".into())
}

/// The image's, the sandbox's, then the process's own: later ones win.
pub(crate) fn environment(sandbox: &Sandbox, own: &[(String, String)]) -> Vec<(String, String)> {
    let given = [
        ("MODAL_SANDBOX_ID", sandbox.id.as_str()),
        ("MODAL_TASK_ID", &sandbox.task),
        ("MODAL_IMAGE_ID", &sandbox.definition.image_id),
    ];
    let mut all = std::collections::BTreeMap::new();
    all.extend(sandbox.image().map(|image| image.env()).unwrap_or_default());
    all.extend(given.map(|(name, value)| (name.to_owned(), value.to_owned())));
    all.extend(sandbox.env.iter().cloned());
    all.extend(own.iter().cloned());
    all.into_iter().collect()
}

/// Until something ends it; that is what is returned.
async fn run(world: &World, sandbox: &Sandbox, main: Option<&Process>) -> GenericResult {
    let second = world.options.second;
    let born = Instant::now();
    let life = match sandbox.definition.timeout_secs {
        0 => 300,
        secs => secs,
    };
    let idle = sandbox.definition.idle_timeout_secs.filter(|secs| *secs > 0);
    let mut wanted = sandbox.wanted.subscribe();
    let Some(place) = sandbox.place.get() else {
        return result(GenericStatus::InternalFailure, 1, "no place");
    };
    let exited = async {
        match main {
            Some(main) => main.wait().await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(exited);
    loop {
        tokio::select! {
            biased;
            ended = wanted.wait_for(Option::is_some) => {
                let ended = ended.ok().and_then(|wanted| wanted.clone());
                return ended.unwrap_or_else(|| result(GenericStatus::Terminated, 137, ""));
            }
            status = &mut exited => {
                return match place.cgroup.out_of_memory() {
                    true => out_of_memory(),
                    false => result_of(status),
                };
            }
            () = place.root.over() => {
                return result(GenericStatus::InternalFailure, 1, "the container ended unexpectedly");
            }
            () = tokio::time::sleep((second / 20).clamp(Duration::from_millis(2), LOOK)) => {}
        }
        if place.cgroup.out_of_memory() {
            return out_of_memory();
        }
        if born.elapsed() >= second * life {
            return result(GenericStatus::Timeout, 124, "the sandbox has reached its timeout");
        }
        if idle.is_some_and(|secs| sandbox.idle() >= second * secs) {
            return result(GenericStatus::IdleTimeout, 137, "the sandbox was idle");
        }
    }
}

fn out_of_memory() -> GenericResult {
    result(GenericStatus::KernelOomKill, 137, "out of memory")
}

/// Nothing writes any more.
async fn exit_snapshot(world: &Arc<World>, sandbox: &Arc<Sandbox>) -> io::Result<String> {
    tokio::time::sleep(world.faults.delay("slow-exit-snapshot", "")).await;
    if world.faults.take(&["exit-snapshot-error"], "").is_some() {
        return Err(io::Error::other("the snapshot could not be stored"));
    }
    world.snapshot(sandbox, Some(KEPT)).await
}
