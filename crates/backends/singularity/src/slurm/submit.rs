//! Handing in a job.

use super::control::{Control, Submitted};
use super::job::Job;
use super::options::Options;
use super::script::{SHARED, START, Script};
use super::stream::clear_beats;
use crate::arguments::Plan;
use crate::image;
use crate::install::{install, outpost};
use crate::layout::{self, Layout, random};
use crate::limits::Keeper;
use crate::program::{Program, variables};
use crate::start::Starter;
use crate::state::{JobNote, State};
use farshell_config::choice::SingularityGpu;
use farshell_engine::backend::{News, Progress};
use farshell_engine::{Error, Kind, Result};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

const WHAT: &str = "handing in a Slurm job";
/// How long a job is looked for that may have got through.
const LOOK: Duration = Duration::from_secs(15);

/// Hands in a job and notes it. The caller holds the lock, and knows that there is none.
pub(crate) async fn submit(
    starter: &Starter,
    options: &Options,
    state: &mut State,
    progress: &dyn Progress,
) -> Result<u32> {
    let (config, layout) = (&*starter.config, &starter.layout);
    let control = Control::new(config);
    let program = Program::find(config).await?;
    let image = image::ensure(config, progress).await?;
    let outpost = install(&config.home, outpost()?)?;
    layout::speakable(&outpost)?;
    let door = format!("/tmp/farshell-{}", random()?);
    let note = JobNote { id: None, mark: random()?, door, answered: false };
    let plan = Plan {
        config,
        layout,
        program: &program,
        outpost: &outpost,
        image: &image,
        keeper: &Keeper::Node(options.memory_kb),
        sockets: &Path::new(&note.door).join(SHARED),
        lease: starter.lease,
    };
    plan.prepare()?;
    if let Some(args) = plan.disk()? {
        starter.format(&program, &args).await?;
    }
    let arguments = plan.arguments()?;
    let script = Script {
        home: &config.home,
        note: &layout.job(),
        mark: &note.mark,
        door: &note.door,
        start: START,
        files: &layout.files,
        devices: match config.settings.gpu {
            SingularityGpu::None => &[],
            SingularityGpu::Nv => &["/dev/nvidiactl", "/dev/dxg"],
            SingularityGpu::Rocm => &["/dev/kfd", "/dev/dxg"],
        },
        program: &program.path,
        variables: variables(config).collect(),
        arguments: &arguments,
    };
    let args = arguments_of(starter, options, state, &note);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    write(&layout.job(), &note.mark)?;
    let _ = std::fs::remove_file(layout.log());
    clear_beats(&layout.private);
    // Noted first: whatever dies from here on, the job is found by its mark.
    state.job = Some(note.clone());
    state.write(layout)?;
    progress.say(&News { message: WHAT.to_owned(), part: None });
    let id = match control.submit(&args, &script.text()).await? {
        Submitted::Job(id) => id,
        Submitted::Refused(why) => {
            forget(layout, state)?;
            return Err(Error::new(Kind::Unavailable, WHAT, format!("Slurm refused it: {why}")).with_hint(
                "change singularity_slurm, or container_cpu and container_memory, which are asked for; `sinfo` shows \
                 partitions",
            ));
        }
        Submitted::Unsure(why) => look(control, &layout.name, &note.mark).await?.ok_or_else(|| {
            let message = format!("{why}; no such job is in the queue");
            Error::new(Kind::Disconnected, WHAT, message).with_hint(
                "one that turns up later ends by itself; `scontrol ping` shows whether Slurm answers",
            )
        })?,
    };
    state.job = Some(JobNote { id: Some(id), ..note });
    state.write(layout)?;
    Ok(id)
}

/// No job is wanted: one that turns up later finds that out.
pub(crate) fn forget(layout: &Layout, state: &mut State) -> Result<()> {
    layout::remove(&layout.job())?;
    state.job = None;
    state.write(layout)
}

fn arguments_of(starter: &Starter, options: &Options, state: &State, note: &JobNote) -> Vec<String> {
    use sha2::{Digest, Sha256};
    let layout = &starter.layout;
    let owner: String = Sha256::digest(&layout.owner)[..8].iter().map(|b| format!("{b:02x}")).collect();
    let spec = state.spec.get(..16).unwrap_or(&state.spec);
    let exported: Vec<&str> = variables(&starter.config).map(|(name, _)| name).collect();
    // Slurm puts other things in the place of a percent sign.
    let log = layout.log().to_string_lossy().replace('%', "%%");
    let mut args = vec![
        "--parsable".to_owned(),
        format!("--job-name={}", layout.name),
        format!("--comment=farshell owner={owner} task={} spec={spec} mark={}", state.task, note.mark),
        format!("--output={log}"),
        "--input=/dev/null".into(),
        "--chdir=/".into(),
        format!("--export={}", exported.join(",")),
    ];
    args.extend(options.arguments.iter().cloned());
    args
}

/// Looks for a job that may have got through.
async fn look(control: Control<'_>, name: &str, mark: &str) -> Result<Option<u32>> {
    let deadline = Instant::now() + LOOK;
    loop {
        let found = control.named(name).await;
        if let Ok(jobs) = &found
            && let Some(job) = jobs.iter().find(|job| marked(job, mark))
        {
            return Ok(Some(job.id));
        }
        if Instant::now() >= deadline {
            return found.map(|_| None);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// The job was handed in with this mark.
pub(crate) fn marked(job: &Job, mark: &str) -> bool {
    job.comment.split_whitespace().any(|word| word.strip_prefix("mark=") == Some(mark))
}

/// Writes a line to a file that others may read at any moment.
fn write(path: &Path, text: &str) -> Result<()> {
    let temp = path.with_extension("new");
    let write = || {
        let options = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).clone();
        let mut file = options.open(&temp)?;
        writeln!(file, "{text}")?;
        // Another machine reads it.
        file.sync_all()?;
        std::fs::rename(&temp, path)
    };
    write().map_err(|e| Error::io(format!("writing {}", path.display()), e))
}
