//! Prints the benchmark table of this machine.
//!
//! Each section adds its groups with the limit's case; a case of another column goes right beside it.

use clap::Parser;
use farshell_bench::hermes::Hermes;
use farshell_bench::limits::{self, Shell};
use farshell_bench::ours::Ours;
use farshell_bench::program::{Api, Program};
use farshell_bench::singularity::{Image, Instances};
use farshell_bench::ssh::{Host, Hosts};
use farshell_bench::stats::{Bench, Column, Metric, Plan, Weight, on};
use farshell_protocol::session::Mode;
mod containers;

use containers::Containers;
use std::cell::RefCell;
use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use tokio::runtime::Runtime;

/// Measures what commands cost, interleaved in one run, and compares medians.
#[derive(Debug, Parser)]
#[command(name = "farshell-bench")]
struct Args {
    /// Rounds that count, each with one sample of every case.
    #[arg(long, default_value_t = 100)]
    rounds: usize,
    /// Rounds before them that don't.
    #[arg(long, default_value_t = 5)]
    warm_up: usize,
    /// Rounds in which the cases that take seconds take part.
    #[arg(long, default_value_t = 3)]
    heavy_rounds: usize,
    /// Processes that are started and killed at once.
    #[arg(long, default_value_t = 1000)]
    processes: usize,
    /// Bytes of output that are moved.
    #[arg(long, default_value_t = 1 << 30)]
    bytes: u64,
    /// A Python in which hermes-agent is installed: adds its column.
    #[arg(long, value_name = "PYTHON")]
    hermes: Option<PathBuf>,
    /// A Docker engine, `unix://PATH`: adds the rows of containers.
    #[arg(long, value_name = "ADDRESS", requires = "docker_image")]
    docker: Option<String>,
    /// An image with bash that the engine has.
    #[arg(long, value_name = "IMAGE")]
    docker_image: Option<String>,
    /// Containers that run commands at once.
    #[arg(long, default_value_t = 100)]
    containers: usize,
    /// A host for ssh: adds the rows of hosts.
    #[arg(long, value_name = "USER@HOST:PORT", requires = "ssh_key")]
    ssh: Option<String>,
    /// A private key that enters it.
    #[arg(long, value_name = "FILE")]
    ssh_key: Option<PathBuf>,
    /// An Apptainer: adds the rows of its instances.
    #[arg(long, value_name = "PROGRAM", requires = "singularity_image")]
    singularity: Option<PathBuf>,
    /// An image with bash for it.
    #[arg(long, value_name = "FILE")]
    singularity_image: Option<PathBuf>,
    /// Only the groups that have a metric with this in its name.
    #[arg(long)]
    only: Option<String>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let scratch = Scratch::new()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let live = runtime.block_on(Ours::open("live", Mode::Live))?;
    let one_shot = runtime.block_on(Ours::open("one-shot", Mode::OneShot))?;
    let hermes = args.hermes.as_deref().map(Hermes::start).transpose()?.map(RefCell::new);
    let program = Program::beside_this()?;
    let api = match &program {
        Some(program) => Some(runtime.block_on(Api::of(program))?),
        None => None,
    };
    let containers = Containers::of(&args, &runtime)?;
    let hosts = match (&args.ssh, &args.ssh_key) {
        (Some(address), Some(key)) => {
            Some(Hosts::open(Host::new(address, key)?, args.hermes.as_deref(), &runtime)?)
        }
        _ => None,
    };
    let instances = match (&args.singularity, &args.singularity_image) {
        (Some(program), Some(image)) => {
            let image = Image { program: program.clone(), image: image.clone() };
            Some(Instances::open(image, args.hermes.as_deref(), &runtime)?)
        }
        _ => None,
    };
    let mut bench = Bench::default();
    commands(&mut bench, &runtime, scratch.command.path(), &live, &one_shot, hermes.as_ref())?;
    if let Some(program) = &program {
        bench
            .group(Weight::Light, vec![Metric::time("farshell run true, process")])
            .case(Column::Limit, || Ok(vec![limits::fresh_shell("true")?]))
            .case(Column::Ours, || Ok(vec![program.run("true")?]));
    }
    if let Some(api) = &api {
        // What the server adds: here the limit is the library itself.
        bench
            .group(Weight::Light, vec![Metric::time("builtin through the server")])
            .case(Column::Limit, on(&runtime, async || Ok(vec![live.run("true").await?])))
            .case(Column::Ours, on(&runtime, async || Ok(vec![api.run("true").await?])));
    }
    if let Some(api) = &api {
        farshell_bench::tools::rows(&mut bench, &runtime, api);
    }
    processes(&mut bench, &runtime, args.processes, &live);
    output(&mut bench, &runtime, args.bytes, &live);
    if let Some(containers) = &containers {
        containers.commands(&mut bench, &runtime, &live)?;
        containers.processes(&mut bench, &runtime)?;
        containers.life(&mut bench, &runtime);
        containers.fleet(&mut bench, &runtime, args.containers);
        containers.output(&mut bench, &runtime, args.bytes);
    }
    if let Some(hosts) = &hosts {
        hosts.rows(&mut bench, &runtime)?;
    }
    if let Some(instances) = &instances {
        instances.rows(&mut bench, &runtime, &live)?;
    }
    if let Some(part) = &args.only {
        bench.only(part);
    }
    let before = load();
    let plan = Plan { rounds: args.rounds, warm_up: args.warm_up, heavy: args.heavy_rounds };
    let report = bench.run(plan)?;
    let peaks = runtime.block_on(live.peak_memory())?;
    runtime.block_on(async {
        live.close().await?;
        one_shot.close().await?;
        if let Some(hosts) = hosts {
            hosts.close().await?;
        }
        if let Some(instances) = instances {
            instances.close().await?;
        }
        match containers {
            Some(containers) => containers.remove().await,
            None => Ok(()),
        }
    })?;
    let mut out = std::io::stdout().lock();
    if args.json {
        let report = serde_json::json!({ "load_before": before, "load_after": load(), "peak_kib": peaks, "rows": report.json() });
        writeln!(out, "{report:#}")?;
    } else {
        writeln!(out, "{}", report.table())?;
        writeln!(out, "peak memory: outpost {} KiB, this client {} KiB", peaks.0, peaks.1)?;
        writeln!(out, "load average {before} before, {} after", load())?;
    }
    Ok(())
}

/// Commands in a shell that lasts, and in one that does not.
fn commands<'a>(
    bench: &mut Bench<'a>,
    runtime: &'a Runtime,
    file: &Path,
    live: &'a Ours,
    one_shot: &'a Ours,
    hermes: Option<&'a RefCell<Hermes>>,
) -> Result<(), Box<dyn Error>> {
    for (name, command) in [
        ("builtin command", "true"),
        ("external command", "/bin/true"),
        ("background command returns", "sleep 5 &"),
    ] {
        let mut shell = Shell::start()?;
        let group = bench
            .group(Weight::Light, vec![Metric::time(name)])
            .case(Column::Limit, move || Ok(vec![shell.run(command)?]))
            .case(Column::Ours, on(runtime, async move || Ok(vec![live.run(command).await?])));
        // It leaves what it started in the background alone, and for good.
        if let Some(hermes) = hermes.filter(|_| !command.contains('&')) {
            group.case(Column::Hermes, || Ok(vec![hermes.borrow_mut().run(command)?]));
        }
    }
    let mut shell = Shell::start()?;
    let long = format!(": {}", "x".repeat(10_000));
    let file: PathBuf = file.into();
    let ours = long.clone();
    bench
        .group(Weight::Light, vec![Metric::time("command of 10 KB")])
        .case(Column::Limit, move || Ok(vec![shell.run_from_file(&long, &file)?]))
        .case(
            Column::Ours,
            on(runtime, {
                let ours = std::rc::Rc::new(ours);
                move || {
                    let ours = std::rc::Rc::clone(&ours);
                    async move { Ok(vec![live.run(&ours).await?]) }
                }
            }),
        );
    bench
        .group(Weight::Light, vec![Metric::time("fresh shell, builtin")])
        .case(Column::Limit, || Ok(vec![limits::fresh_shell("true")?]))
        .case(Column::Ours, on(runtime, async move || Ok(vec![one_shot.run("true").await?])));
    Ok(())
}

/// Many processes at once.
fn processes<'a>(bench: &mut Bench<'a>, runtime: &'a Runtime, count: usize, live: &'a Ours) {
    let metrics = vec![Metric::time(format!("start {count}")), Metric::time(format!("kill {count}"))];
    bench
        .group(Weight::Heavy, metrics)
        .case(Column::Limit, move || Ok(limits::many_processes(count)?.to_vec()))
        .case(Column::Ours, on(runtime, async move || Ok(live.many_processes(count).await?.to_vec())));
}

/// Much output.
fn output<'a>(bench: &mut Bench<'a>, runtime: &'a Runtime, bytes: u64, live: &'a Ours) {
    for (name, script) in [
        ("output of yes", format!("yes | head -c {bytes}")),
        ("output of zeros", format!("head -c {bytes} /dev/zero")),
    ] {
        let ours = std::rc::Rc::new(script.clone());
        bench
            .group(Weight::Heavy, vec![Metric::rate(name, bytes)])
            .case(Column::Limit, move || Ok(vec![limits::output(&script, bytes)?]))
            .case(
                Column::Ours,
                on(runtime, move || {
                    let ours = std::rc::Rc::clone(&ours);
                    async move { Ok(vec![live.output(&ours, bytes).await?]) }
                }),
            );
    }
}

/// Files that the cases use.
struct Scratch {
    command: tempfile::NamedTempFile,
}

impl Scratch {
    /// In memory where that exists: the limit of a command is not the limit of a disk.
    fn new() -> std::io::Result<Self> {
        let memory = Path::new("/dev/shm");
        let command = if memory.is_dir() {
            tempfile::NamedTempFile::new_in(memory)
        } else {
            tempfile::NamedTempFile::new()
        };
        Ok(Self { command: command? })
    }
}

/// What else the machine was doing, as the reader of the numbers wants to know.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("unknown").to_owned()
}
