//! The files that outlive a container: directories on this machine, or volumes of an engine elsewhere.

use crate::config::Config;
use crate::create::{HOME, WORKSPACE};
use crate::engine::{Container, Engine};
use crate::error::is_status;
use crate::install::{install, outpost_for};
use crate::layout::{self, Layout, Way};
use crate::stream::Output;
use crate::survey;
use bollard::models::{ContainerCreateBody, ExecConfig, HostConfig, Mount, MountType};
use bollard::query_parameters::{
    CreateContainerOptions, RemoveVolumeOptions, StartContainerOptions, WaitContainerOptions,
};
use farshell_engine::{Error, Kind, Result};
use futures_util::StreamExt;
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::io::AsyncReadExt;

/// How long it may take to open a directory, or to remove all that is in one.
const PATIENCE: Duration = Duration::from_secs(300);

fn volumes(layout: &Layout) -> [(String, &'static str); 2] {
    [WORKSPACE, HOME].map(|target| (layout.volume(target.trim_start_matches('/')), target))
}

/// Where they are, for people.
pub(crate) async fn place_of(engine: &Engine, layout: &Layout) -> Option<String> {
    if layout.kept.exists() {
        return Some(layout.kept.display().to_string());
    }
    if engine.shares_files() {
        return None;
    }
    let mut names = Vec::new();
    for (name, _) in volumes(layout) {
        if engine.api.inspect_volume(&name).await.is_ok() {
            names.push(name);
        }
    }
    (!names.is_empty()).then(|| format!("volumes {}", names.join(", ")))
}

/// Removes them. The container is gone already.
pub(crate) async fn remove(engine: &Engine, layout: &Layout, config: &Config) -> Result<()> {
    for (name, _) in volumes(layout) {
        match engine.api.remove_volume(&name, None::<RemoveVolumeOptions>).await {
            Ok(()) => {}
            Err(error) if is_status(&error, 404) => {}
            Err(error) => return Err(engine.explain(format!("removing volume {name}"), error)),
        }
    }
    match std::fs::remove_dir_all(&layout.kept) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied && engine.shares_files() => {
            // Users of the container made files that this user may not remove: a user of a container may.
            clear(engine, layout, config).await?;
            std::fs::remove_dir_all(&layout.kept)
                .map_err(|e| Error::io(format!("removing {}", layout.kept.display()), e))
        }
        Err(error) => Err(Error::io(format!("removing {}", layout.kept.display()), error)),
    }
}

/// Removes what is in the directory by means of a container that does only that.
async fn clear(engine: &Engine, layout: &Layout, config: &Config) -> Result<()> {
    let what = format!("removing what is in {}", layout.kept.display());
    let fail = |error| engine.explain(&what, error);
    let arch = std::env::consts::ARCH;
    let program = install(&config.home, outpost_for(arch)?)?;
    let bind = |source: &std::path::Path, target: &str, read_only| Mount {
        source: Some(source.to_string_lossy().into_owned()),
        target: Some(target.into()),
        typ: Some(MountType::BIND),
        read_only: Some(read_only),
        ..Mount::default()
    };
    let root = layout::ROOT;
    let body = ContainerCreateBody {
        image: Some(config.settings.image.clone()),
        user: Some("0:0".into()),
        entrypoint: Some(vec![Way::program(arch), "clear".into(), format!("{root}/k")]),
        labels: Some([(layout::OWNER.to_owned(), layout.owner.clone())].into()),
        host_config: Some(HostConfig {
            mounts: Some(vec![
                bind(&program, &format!("{root}/b"), true),
                bind(&layout.kept, &format!("{root}/k"), false),
            ]),
            network_mode: Some("none".into()),
            cap_drop: Some(vec!["ALL".into()]),
            cap_add: Some(vec!["DAC_OVERRIDE".into(), "FOWNER".into()]),
            security_opt: Some(vec!["no-new-privileges".into()]),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    };
    let name = layout.volume("clear");
    survey::remove(engine, &name).await?;
    let options = CreateContainerOptions { name: Some(name.clone()), ..CreateContainerOptions::default() };
    engine.api.create_container(Some(options), body).await.map_err(fail)?;
    let done = async {
        engine.api.start_container(&name, None::<StartContainerOptions>).await.map_err(fail)?;
        let mut ends = engine.api.wait_container(&name, None::<WaitContainerOptions>);
        match tokio::time::timeout(PATIENCE, ends.next()).await {
            Ok(Some(Err(bollard::errors::Error::DockerContainerWaitError { .. }))) => {
                let said = survey::last_words(engine, &name).await;
                Err(Error::new(Kind::System, &what, said))
            }
            Ok(Some(Err(error))) => Err(fail(error)),
            Ok(_) => Ok(()),
            Err(_) => Err(Error::new(Kind::TimedOut, &what, "it takes too long")),
        }
    };
    let done = done.await;
    survey::remove(engine, &name).await?;
    done
}

/// Lets users other than root write where files are kept, which belongs to root.
pub(crate) async fn open_up(engine: &Engine, container: &Container) -> Result<()> {
    let what = "opening /workspace and /root to the container's user";
    let arch = container.label(layout::ARCH).unwrap_or(std::env::consts::ARCH);
    let command = [Way::program(arch), "open".into(), WORKSPACE.into(), HOME.into()];
    let options = ExecConfig {
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        user: Some("0:0".into()),
        working_dir: Some("/".into()),
        cmd: Some(command.into()),
        ..ExecConfig::default()
    };
    let exec = engine.api.create_exec(&container.id, options).await.map_err(|e| engine.explain(what, e))?;
    let mut output = Output::new(TokioIo::new(engine.start_exec(&exec.id).await?));
    let mut said = Vec::new();
    match tokio::time::timeout(PATIENCE, output.read_to_end(&mut said)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(Error::io(what, error)),
        Err(_) => Err(Error::new(Kind::TimedOut, what, "it takes too long")),
    }
}
