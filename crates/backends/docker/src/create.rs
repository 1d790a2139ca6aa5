//! What a container is made of.

use crate::config::Config;
use crate::extra::Extra;
use crate::layout::{self, Layout, ROOT, Way};
use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigLogConfig, Mount, MountType, MountVolumeOptions,
};
use farshell_engine::backend::Spec;
use farshell_engine::{Error, Kind, Result};
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

pub(crate) const WHAT: &str = "describing the container";
pub(crate) const WORKSPACE: &str = "/workspace";
pub(crate) const HOME: &str = "/root";
const MB: u64 = 1024 * 1024;

/// Scratch space in memory, with its options. Programs are built and run in `/tmp`, so it alone allows that.
const SCRATCH: [(&str, &str); 3] = [
    ("/tmp", "rw,exec,nosuid,nodev,size=512m,mode=1777"),
    ("/var/tmp", "rw,noexec,nosuid,nodev,size=256m,mode=1777"),
    ("/run", "rw,noexec,nosuid,nodev,size=64m,mode=755"),
];
/// Sizes, in MB, of what is not kept and lies in memory, where memory is not limited.
const UNKEPT: (u64, u64) = (10 * 1024, 1024);
/// All that is ever logged is why an outpost did not start. Whoever writes there from inside can't fill the host's
/// disk.
const LOG_SIZE: &str = "1m";

/// What is needed beside the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) config: &'a Config,
    pub(crate) spec: &'a Spec,
    pub(crate) layout: &'a Layout,
    pub(crate) extra: &'a Extra,
    pub(crate) way: Way,
    pub(crate) arch: &'a str,
    /// The directory with the outpost on this machine, if it is shared.
    pub(crate) program: Option<&'a Path>,
    /// Where the image wants volumes.
    pub(crate) volumes: &'a [String],
    /// Ask for a limit of the container's own files.
    pub(crate) disk: bool,
}

/// What is mounted.
struct Files {
    mounts: Vec<Mount>,
    /// As `docker_volumes` writes them.
    binds: Vec<String>,
    /// In memory, with options.
    tmpfs: HashMap<String, String>,
}

/// The container's user is not root, or may not be.
pub(crate) fn other_user(config: &Config, extra: &Extra, image_user: Option<&str>) -> bool {
    let user = match (&extra.user, config.settings.run_as_host_user) {
        (Some(user), _) => user.as_str(),
        (None, true) => return !rustix::process::getuid().is_root(),
        (None, false) => image_user.unwrap_or_default(),
    };
    !matches!(user.split(':').next(), None | Some("" | "0" | "root"))
}

impl Plan<'_> {
    pub(crate) fn body(&self) -> Result<ContainerCreateBody> {
        let settings = &self.config.settings;
        let mut env = Vec::new();
        let mut user = self.extra.user.clone();
        if settings.run_as_host_user && user.is_none() {
            let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
            user = Some(format!("{}:{}", uid.as_raw(), gid.as_raw()));
            // The image knows no such user, and no home of theirs.
            env.push(format!("HOME={HOME}"));
        }
        let mut entrypoint = vec![Way::program(self.arch), "daemon".into()];
        entrypoint.extend(self.way.door());
        entrypoint.extend(["--lease".into(), self.spec.lease.as_secs().to_string()]);
        let mut body = ContainerCreateBody {
            image: Some(settings.image.clone()),
            // Whatever the image would run is not run: the outpost is the container's only program.
            entrypoint: Some(entrypoint),
            cmd: Some(Vec::new()),
            healthcheck: Some(HealthConfig { test: Some(vec!["NONE".into()]), ..HealthConfig::default() }),
            stop_signal: Some("SIGTERM".into()),
            // Always there, whatever the image says.
            working_dir: Some("/".into()),
            user,
            env: Some(env),
            labels: Some(self.labels()),
            host_config: Some(self.host_config()?),
            ..ContainerCreateBody::default()
        };
        self.extra.apply(&mut body);
        Ok(body)
    }

    fn labels(&self) -> HashMap<String, String> {
        let own = [
            (layout::OWNER, self.layout.owner.clone()),
            (layout::TASK, self.spec.task.as_str().to_owned()),
            (layout::SPEC, self.spec.hash("docker")),
            (layout::LEASE, self.spec.lease.as_secs().to_string()),
            (layout::VERSION, env!("CARGO_PKG_VERSION").to_owned()),
            (layout::WAY, self.way.name().to_owned()),
            (layout::ARCH, self.arch.to_owned()),
        ];
        let own = own.into_iter().map(|(name, value)| (name.to_owned(), value));
        self.extra.labels.iter().cloned().chain(own).collect()
    }

    fn host_config(&self) -> Result<HostConfig> {
        let settings = &self.config.settings;
        let limits = &settings.container;
        let memory = limits.memory_mb.map(|mb| i64::try_from(mb.saturating_mul(MB)).unwrap_or(i64::MAX));
        let mut capabilities = settings.cap_add.clone();
        if settings.run_as_host_user {
            // There is no other user to become.
            capabilities.retain(|name| name != "SETUID" && name != "SETGID");
        }
        let files = self.files()?;
        let log = [("max-size", LOG_SIZE), ("max-file", "1")];
        let log = log.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Ok(HostConfig {
            init: Some(true),
            cap_drop: Some(vec!["ALL".into()]),
            cap_add: Some(capabilities),
            security_opt: Some(vec!["no-new-privileges".into()]),
            readonly_rootfs: Some(settings.read_only),
            pids_limit: settings.pids_limit.map(|n| i64::try_from(n).unwrap_or(i64::MAX)),
            #[expect(
                clippy::cast_possible_truncation,
                reason = "a thousand million cores are more than there are"
            )]
            nano_cpus: limits.cpu.map(|cores| (cores * 1e9).round() as i64),
            memory,
            // As much as memory alone: no swap on top of it.
            memory_swap: memory,
            storage_opt: limits
                .disk_mb
                .filter(|_| self.disk)
                .map(|mb| HashMap::from([("size".to_owned(), format!("{mb}m"))])),
            network_mode: (!settings.network).then(|| "none".into()),
            ipc_mode: Some("private".into()),
            auto_remove: Some(!limits.persistent),
            log_config: Some(HostConfigLogConfig { typ: Some("json-file".into()), config: Some(log.into()) }),
            mounts: Some(files.mounts),
            binds: Some(files.binds),
            tmpfs: Some(files.tmpfs),
            ..HostConfig::default()
        })
    }

    /// Where the container's files come from.
    fn files(&self) -> Result<Files> {
        let settings = &self.config.settings;
        let mut binds = Vec::new();
        let mut taken: Vec<PathBuf> = Vec::new();
        for volume in settings.volumes.iter().chain(&self.extra.volumes) {
            let target = normal(&volume.target)?;
            if target.starts_with(ROOT) || target == Path::new("/") {
                let message = format!("nothing can be mounted at {}", volume.target);
                return Err(Error::new(Kind::Invalid, WHAT, message).with_hint("change docker_volumes"));
            }
            if volume.source.starts_with('/') && self.way == Way::Shared {
                make_source(Path::new(&volume.source))?;
            }
            let mut text = format!("{}:{}", volume.source, target.display());
            if !volume.options.is_empty() {
                text = format!("{text}:{}", volume.options.join(","));
            }
            binds.push(text);
            taken.push(target);
        }
        taken.extend(self.extra.tmpfs.iter().map(|(path, _)| PathBuf::from(path)));
        let free = |path: &str| !taken.iter().any(|other| other == Path::new(path));

        let mut mounts = self.own_mounts();
        let mut tmpfs: HashMap<String, String> = SCRATCH
            .iter()
            .filter(|(path, _)| free(path))
            .map(|(path, options)| ((*path).to_owned(), (*options).to_owned()))
            .collect();
        tmpfs.extend(self.extra.tmpfs.iter().cloned());

        if free(WORKSPACE) && settings.mount_cwd_to_workspace {
            mounts.push(self.start_directory()?);
        } else if free(WORKSPACE) {
            self.kept(WORKSPACE, &self.layout.kept_workspace(), &mut mounts, &mut tmpfs);
        }
        if free(HOME) {
            self.kept(HOME, &self.layout.kept_home(), &mut mounts, &mut tmpfs);
        }
        mounts.extend(self.credentials()?);
        for target in self.volumes.iter().filter_map(|path| normal(path).ok()) {
            let is_mounted = |mount: &Mount| mount.target.as_deref().map(Path::new) == Some(&target);
            let taken = taken.contains(&target)
                || mounts.iter().any(is_mounted)
                || tmpfs.keys().any(|path| Path::new(path) == target);
            if !taken && !target.starts_with(ROOT) {
                mounts.push(self.volume(target.to_string_lossy().into_owned()));
            }
        }
        Ok(Files { mounts, binds, tmpfs })
    }

    /// A volume that lasts as long as the container. The engine would make those that the image wants of its own
    /// accord, but nobody could tell whose they are when somebody removes the container and not its volumes.
    fn volume(&self, target: String) -> Mount {
        let labels = HashMap::from([
            (layout::OWNER.to_owned(), self.layout.owner.clone()),
            (layout::TASK.to_owned(), self.spec.task.as_str().to_owned()),
        ]);
        Mount {
            target: Some(target),
            typ: Some(MountType::VOLUME),
            volume_options: Some(MountVolumeOptions { labels: Some(labels), ..Default::default() }),
            ..Mount::default()
        }
    }

    /// The outpost, its socket and its data.
    fn own_mounts(&self) -> Vec<Mount> {
        match (self.way, self.program) {
            (Way::Shared, Some(program)) => vec![
                bind(program, format!("{ROOT}/b"), true),
                bind(&self.layout.socket_dir(), format!("{ROOT}/s"), false),
                self.volume(format!("{ROOT}/d")),
            ],
            _ => vec![self.volume(ROOT.into())],
        }
    }

    /// `/workspace` or `/root`, on the host, in a volume of the engine's, or in memory.
    fn kept(&self, target: &str, host: &Path, mounts: &mut Vec<Mount>, tmpfs: &mut HashMap<String, String>) {
        let limits = &self.config.settings.container;
        if !limits.persistent {
            // It counts as the container's memory. A full disk is a better end than none to the memory.
            let (most, part) = if target == WORKSPACE { (UNKEPT.0, 2) } else { (UNKEPT.1, 4) };
            let size = limits.memory_mb.map_or(most, |memory| (memory / part).clamp(1, most));
            tmpfs.insert(target.into(), format!("rw,exec,nosuid,nodev,size={size}m,mode=1777"));
            return;
        }
        mounts.push(match self.way {
            Way::Shared => bind(host, target.into(), false),
            Way::Uploaded => Mount {
                target: Some(target.into()),
                source: Some(self.layout.volume(target.trim_start_matches('/'))),
                typ: Some(MountType::VOLUME),
                volume_options: Some(MountVolumeOptions {
                    labels: Some(HashMap::from([(layout::OWNER.to_owned(), self.layout.owner.clone())])),
                    ..Default::default()
                }),
                ..Mount::default()
            },
        });
    }

    fn start_directory(&self) -> Result<Mount> {
        let refuse = |message: String| {
            Error::new(Kind::Invalid, WHAT, message).with_hint("turn off docker_mount_cwd_to_workspace")
        };
        let Some(dir) = &self.config.start_dir else {
            return Err(refuse(
                "docker_mount_cwd_to_workspace is on, and there is no start directory".into(),
            ));
        };
        if self.way == Way::Uploaded {
            let message =
                "docker_mount_cwd_to_workspace is on, and the engine does not see this machine's files";
            return Err(refuse(message.into()));
        }
        Ok(bind(dir, WORKSPACE.into(), false))
    }

    fn credentials(&self) -> Result<Vec<Mount>> {
        let files = &self.config.credential_files;
        if !files.is_empty() && self.way == Way::Uploaded {
            let message =
                "credential_files can't be shared with an engine that does not see this machine's files";
            return Err(Error::new(Kind::Unavailable, WHAT, message));
        }
        let mount = |file: &PathBuf| {
            let inside = file.components().all(|part| matches!(part, Component::Normal(_)));
            let host = self.config.credential_root.join(file);
            // Resolved: a link must not lead to another file of the user's.
            let real = std::fs::canonicalize(&host).ok();
            let home = std::fs::canonicalize(&self.config.credential_root)
                .unwrap_or_else(|_| self.config.credential_root.clone());
            match real {
                Some(real) if inside && real.starts_with(home) => {
                    Ok(bind(&real, format!("{HOME}/.hermes/{}", file.display()), true))
                }
                _ => {
                    let message =
                        format!("credential file {} is not there, or outside of the home", host.display());
                    Err(Error::new(Kind::Invalid, WHAT, message).with_hint("change credential_files"))
                }
            }
        };
        files.iter().map(mount).collect()
    }
}

fn bind(source: &Path, target: String, read_only: bool) -> Mount {
    Mount {
        source: Some(source.to_string_lossy().into_owned()),
        target: Some(target),
        typ: Some(MountType::BIND),
        read_only: Some(read_only),
        ..Mount::default()
    }
}

/// As `docker run -v` does, but as this user: a directory that is not there is made.
fn make_source(path: &Path) -> Result<()> {
    if std::fs::symlink_metadata(path).is_ok() {
        return Ok(());
    }
    std::fs::create_dir_all(path).map_err(|e| {
        Error::io(format!("making {} for docker_volumes", path.display()), e)
            .with_hint("make it, or change docker_volumes")
    })
}

/// An absolute path without detours.
fn normal(path: &str) -> Result<PathBuf> {
    let parts = Path::new(path).components();
    if !path.starts_with('/') || parts.clone().any(|part| part == Component::ParentDir) {
        let message = format!("{path:?} is not an absolute path without \"..\"");
        return Err(Error::new(Kind::Invalid, WHAT, message).with_hint("change docker_volumes"));
    }
    Ok(parts.filter(|part| *part != Component::CurDir).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_inside_have_no_detours() {
        assert_eq!(normal("/a/./b//c/").unwrap(), Path::new("/a/b/c"));
        assert!(normal("a").is_err() && normal("/a/../b").is_err());
    }
}
