//! Builds an image from the lines of a Dockerfile, as far as that can be done without a registry: what it runs is really
//! run, and what it wrote becomes a layer.

use crate::cgroup::Cgroup;
use crate::images::{Built, Image, State};
use crate::life;
use crate::process::{Process, Wish};
use crate::wire::Status;
use crate::world::World;
use farshell_modal_proto::client as proto;
use std::sync::Arc;

/// What can't be built is said, with the tag or the line that it was.
pub(crate) async fn build(world: &World, image: &Image, recipe: &proto::Image) -> Result<Built, String> {
    let (mut built, mut runs) = (None, Vec::new());
    for line in &recipe.dockerfile_commands {
        let (word, rest) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
        let rest = rest.trim();
        image.say(format!("=> {line}\n"));
        match (word.to_ascii_uppercase().as_str(), built.as_mut()) {
            ("" | "#", _) => {}
            ("FROM", _) => built = Some(from(world, recipe, rest)?),
            (_, None) => return Err(format!("{line}: before any FROM")),
            ("ENV", Some(Built { env, .. })) => env.extend(variables(rest)),
            ("WORKDIR", Some(Built { workdir, .. })) => *workdir = Some(rest.trim_matches('"').into()),
            ("RUN", Some(Built { env, workdir, .. })) => {
                runs.push((rest.to_owned(), env.clone(), workdir.clone()));
            }
            ("CMD" | "ENTRYPOINT" | "LABEL" | "EXPOSE" | "SHELL" | "ARG" | "USER", _) => {
                image.say("   (no effect in the emulator)\n");
            }
            _ => return Err(format!("{line}: the emulator does not serve {word}")),
        }
    }
    let built = built.ok_or("an image without FROM")?;
    if runs.is_empty() { Ok(built) } else { run(world, image, built, runs).await }
}

fn from(world: &World, recipe: &proto::Image, tag: &str) -> Result<Built, String> {
    if let Some(base) = recipe.base_images.iter().find(|base| base.docker_tag == tag) {
        let found = world.images.find(&base.image_id).and_then(|image| image.built());
        return found.ok_or_else(|| format!("base image {} not found", base.image_id));
    }
    match world.options.images.get(tag) {
        Some(base) => Ok(Built::new(world.layers.stack(base.clone()))),
        None => Err(format!("image {tag} cannot be pulled: the emulator knows only {}", known(world))),
    }
}

fn known(world: &World) -> String {
    world.options.images.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// `NAME=VALUE…` or `NAME VALUE`.
fn variables(text: &str) -> Vec<(String, String)> {
    match text.split_once(char::is_whitespace) {
        Some((name, value)) if !name.contains('=') => vec![(name.into(), value.trim().into())],
        _ => text
            .split_whitespace()
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, value)| (name.into(), value.trim_matches(['"', '\'']).into()))
            .collect(),
    }
}

type Line = (String, Vec<(String, String)>, Option<String>);

async fn run(world: &World, image: &Image, built: Built, lines: Vec<Line>) -> Result<Built, String> {
    let dir = world.options.dir.join(format!("build-{}", image.id));
    let done = run_in(world, image, &built, lines, &dir).await;
    let _ = tokio::fs::remove_dir_all(&dir).await;
    done.map(|stack| Built { stack, ..built })
}

async fn run_in(
    world: &World,
    image: &Image,
    built: &Built,
    lines: Vec<Line>,
    dir: &std::path::Path,
) -> Result<crate::layers::Stack, String> {
    let failed = |error: std::io::Error| format!("the image was not built: {error}");
    let base = Image::new(State::Built(built.clone()), None);
    let cgroup = Cgroup::default();
    let (root, trees) =
        life::stand(world, &base, dir, &image.id, &["--uts"], &cgroup).await.map_err(failed)?;
    let mut wrong = None;
    for (line, env, workdir) in lines {
        let wish = Wish {
            args: vec!["/bin/sh".into(), "-c".into(), format!("{{ {line}\n}} 2>&1")],
            env,
            workdir: workdir.unwrap_or_else(|| "/".into()),
            keep_stdout: true,
            ..Default::default()
        };
        let process: Arc<Process> = match Process::start(&root, dir, wish).await {
            Ok(process) => process,
            Err(error) => {
                wrong = Some(failed(error));
                break;
            }
        };
        process.write(0, b"", true).await;
        let mut offset = 0;
        while let Ok(Some(bytes)) = process.stdout.read(offset, u64::MAX).await {
            offset += bytes.len() as u64;
            image.say(String::from_utf8_lossy(&bytes));
        }
        match process.wait().await {
            Status::Code(0) => {}
            status => {
                wrong = Some(format!("RUN {line}: failed with {status:?}"));
                break;
            }
        }
    }
    root.stop().await;
    match wrong {
        Some(why) => Err(why),
        None => world.layers.freeze(&built.stack, &trees).map_err(failed),
    }
}
