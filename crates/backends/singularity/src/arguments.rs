//! What an instance is made of: the arguments of `apptainer exec`, and the directories that they name.

use crate::config::Config;
use crate::install::PROGRAM;
use crate::layout::{HOME, Layout, ROOT, SOCKET, WORKSPACE, make_dir, make_private, remove, speakable};
use crate::limits::{self, Keeper};
use crate::program::Program;
use farshell_config::choice::SingularityGpu;
use farshell_engine::{Error, Kind, Result};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

const WHAT: &str = "describing the instance";

/// What is needed beside the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) config: &'a Config,
    pub(crate) layout: &'a Layout,
    pub(crate) program: &'a Program,
    /// The directory with the outpost.
    pub(crate) outpost: &'a Path,
    pub(crate) image: &'a Path,
    pub(crate) keeper: &'a Keeper,
    /// The directory that its outpost listens in.
    pub(crate) sockets: &'a Path,
    pub(crate) lease: Duration,
}

/// A directory or file of this machine in the instance.
struct Bind {
    source: PathBuf,
    target: PathBuf,
    options: String,
}

impl Bind {
    fn new(source: impl Into<PathBuf>, target: impl Into<PathBuf>, options: &str) -> Self {
        Self { source: source.into(), target: target.into(), options: options.to_owned() }
    }

    fn argument(&self) -> Result<String> {
        speakable(&self.source)?;
        speakable(&self.target)?;
        let colon = if self.options.is_empty() { "" } else { ":" };
        Ok(format!("--bind={}:{}{colon}{}", self.source.display(), self.target.display(), self.options))
    }
}

impl Plan<'_> {
    /// All files are in one of a fixed size.
    fn in_image(&self) -> bool {
        self.config.settings.disk_image
    }

    /// Makes the directories, and empties what does not outlive a start.
    pub(crate) fn prepare(&self) -> Result<()> {
        let layout = self.layout;
        make_private(&layout.private)?;
        make_private(&layout.files)?;
        remove(&layout.tmp())?;
        remove(&layout.socket_dir())?;
        for dir in [layout.tmp(), layout.socket_dir(), layout.data()] {
            make_dir(&dir)?;
        }
        if self.in_image() {
            return Ok(());
        }
        make_dir(&layout.workspace())?;
        make_dir(&layout.home())?;
        if self.config.settings.container.persistent {
            make_dir(&layout.layer().join("upper"))?;
            make_dir(&layout.layer().join("work"))?;
        }
        Ok(())
    }

    /// The arguments of a command that makes the file for everything, if there is none yet. Its name comes last.
    pub(crate) fn disk(&self) -> Result<Option<Vec<String>>> {
        if !self.in_image() || self.layout.disk().exists() {
            return Ok(None);
        }
        let Some(size) = self.config.settings.container.disk_mb else {
            let message = "singularity_disk_image is on, and container_disk says no size";
            return Err(
                Error::new(Kind::Invalid, WHAT, message).with_hint("set container_disk, in megabytes")
            );
        };
        let size = size.max(SMALLEST_DISK).to_string();
        let args = [
            "overlay",
            "create",
            "--sparse",
            "--create-dir",
            WORKSPACE,
            "--create-dir",
            HOME,
            "--size",
            &size,
        ];
        Ok(Some(args.iter().map(|arg| (*arg).to_owned()).collect()))
    }

    pub(crate) fn arguments(&self) -> Result<Vec<String>> {
        let settings = &self.config.settings;
        crate::extra::check(&settings.extra_args)?;
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let mut args: Vec<String> = ["exec", "--containall", "--pwd=/"].map(Into::into).into();
        args.push(format!("--workdir={}", path(&self.layout.tmp())));
        if rustix::process::getuid().is_root() {
            // Root of its own namespace alone.
            args.push("--userns".into());
        }
        if self.program.can_leave_out_binds() {
            args.push("--no-mount=bind-paths".into());
        }
        let layer = if self.in_image() {
            format!("--overlay={}", path(&self.layout.disk()))
        } else if settings.container.persistent {
            format!("--overlay={}", path(&self.layout.layer()))
        } else {
            "--writable-tmpfs".into()
        };
        args.push(layer);
        if self.in_image() {
            args.push("--no-home".into());
        } else {
            args.push(format!("--home={}:{HOME}", path(&self.layout.home())));
        }
        for bind in self.binds()? {
            args.push(bind.argument()?);
        }
        args.extend(self.gpu()?);
        if *self.keeper == Keeper::ControlGroups {
            args.extend(limits::arguments(self.config));
        }
        args.extend(settings.extra_args.iter().cloned());
        args.push(path(self.image));
        args.extend([
            "/bin/sh".into(),
            "-c".into(),
            limits::script(self.config, self.keeper),
            "farshell".into(),
        ]);
        args.extend([format!("{ROOT}/b/{PROGRAM}"), "daemon".into(), "--dir".into(), format!("{ROOT}/d/o")]);
        args.extend(["--socket".into(), format!("{ROOT}/s/{SOCKET}")]);
        args.extend(["--lease".into(), self.lease.as_secs().to_string()]);
        Ok(args)
    }

    fn binds(&self) -> Result<Vec<Bind>> {
        let layout = self.layout;
        let mut binds = Vec::new();
        if self.program.can_leave_out_binds() && Path::new("/etc/hosts").is_file() {
            // `localhost` has a meaning.
            binds.push(Bind::new("/etc/hosts", "/etc/hosts", "ro"));
        }
        binds.push(Bind::new(self.outpost, format!("{ROOT}/b"), "ro"));
        binds.push(Bind::new(self.sockets, format!("{ROOT}/s"), ""));
        binds.push(Bind::new(layout.data(), format!("{ROOT}/d"), ""));
        if !self.in_image() {
            binds.push(Bind::new(layout.workspace(), WORKSPACE, ""));
        }
        for volume in &self.config.settings.bind {
            let target = normal(&volume.target)?;
            if target.starts_with(ROOT) || target == Path::new("/") {
                return Err(refuse_bind(format!("nothing can be shared at {}", volume.target)));
            }
            let source = PathBuf::from(&volume.source);
            let is_dir = match std::fs::metadata(&source) {
                Ok(meta) => meta.is_dir(),
                // A directory of its node, perhaps: Apptainer will tell.
                Err(_) if matches!(self.keeper, Keeper::Node(_)) => true,
                Err(error) => {
                    return Err(refuse_bind(format!("{} can't be shared: {error}", volume.source)));
                }
            };
            self.make_target(&target, is_dir)?;
            binds.push(Bind::new(source, target, &volume.options.join(",")));
        }
        for file in &self.config.credential_files {
            let target = Path::new(HOME).join(".hermes").join(file);
            let source = self.credential(file)?;
            self.make_target(&target, false)?;
            binds.push(Bind::new(source, target, "ro"));
        }
        Ok(binds)
    }

    /// Something to mount on, where Apptainer can't make it itself: in directories that are shared.
    fn make_target(&self, target: &Path, is_dir: bool) -> Result<()> {
        if self.in_image() {
            return Ok(());
        }
        let shared = [(WORKSPACE, self.layout.workspace()), (HOME, self.layout.home())];
        for (inside, outside) in shared {
            let Ok(below) = target.strip_prefix(inside) else { continue };
            if below.as_os_str().is_empty() {
                continue;
            }
            // Each step is looked at: the instance may have put a link there that leads anywhere.
            let mut path = outside;
            let mut parts = below.components().peekable();
            while let Some(part) = parts.next() {
                path.push(part);
                let meta = std::fs::symlink_metadata(&path);
                let wants_dir = is_dir || parts.peek().is_some();
                match meta {
                    Ok(meta) if meta.is_symlink() => {
                        return Err(refuse_bind(format!("{} is a link in the instance", target.display())));
                    }
                    Ok(_) => {}
                    Err(_) if wants_dir => make_dir(&path)?,
                    Err(_) => {
                        let made = std::fs::File::create_new(&path);
                        made.map_err(|e| Error::io(format!("preparing {}", path.display()), e))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// A file below the Hermes home, and not somewhere else by way of a link.
    fn credential(&self, file: &Path) -> Result<PathBuf> {
        let inside = file.components().all(|part| matches!(part, Component::Normal(_)));
        let root = &self.config.credential_root;
        let home = std::fs::canonicalize(root).unwrap_or_else(|_| root.clone());
        match std::fs::canonicalize(root.join(file)) {
            Ok(real) if inside && real.starts_with(&home) && real.is_file() => Ok(real),
            _ => {
                let message = format!(
                    "credential file {} is not there, or outside of the home",
                    root.join(file).display()
                );
                Err(Error::new(Kind::Invalid, WHAT, message).with_hint("change credential_files"))
            }
        }
    }

    /// A GPU that is asked for must be there: Apptainer would only mention that it is not.
    fn gpu(&self) -> Result<Option<String>> {
        let (argument, devices, name) = match self.config.settings.gpu {
            SingularityGpu::None => return Ok(None),
            SingularityGpu::Nv => ("--nv", ["/dev/nvidiactl", "/dev/dxg"], "NVIDIA"),
            SingularityGpu::Rocm => ("--rocm", ["/dev/kfd", "/dev/dxg"], "AMD"),
        };
        // A job looks for it on its node.
        if matches!(self.keeper, Keeper::Node(_)) || devices.iter().any(|device| Path::new(device).exists()) {
            return Ok(Some(argument.into()));
        }
        let message = format!(
            "singularity_gpu is {}, and this machine has no {name} GPU that can be used: there is no {}",
            self.config.settings.gpu, devices[0]
        );
        Err(Error::new(Kind::Unavailable, WHAT, message)
            .with_hint("use a machine with one, load its driver, or set singularity_gpu to none"))
    }
}

/// Below this an ext3 file system has no room for its own tables.
pub(crate) const SMALLEST_DISK: u64 = 64;

fn refuse_bind(message: String) -> Error {
    Error::new(Kind::Invalid, WHAT, message).with_hint("change singularity_bind")
}

/// An absolute path without detours.
fn normal(path: &str) -> Result<PathBuf> {
    let parts = Path::new(path).components();
    if !path.starts_with('/') || parts.clone().any(|part| part == Component::ParentDir) {
        return Err(refuse_bind(format!("{path:?} is not an absolute path without \"..\"")));
    }
    Ok(parts.filter(|part| *part != Component::CurDir).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sample;
    use farshell_config::volume::Volume;
    use farshell_engine::backend::TaskName;

    fn arguments(change: impl FnOnce(&mut Config)) -> Result<Vec<String>> {
        let dir = tempfile::tempdir().unwrap();
        let mut config = sample();
        config.home = dir.path().join("h");
        config.settings.scratch_dir = Some(dir.path().join("s"));
        change(&mut config);
        let layout = Layout::new(&config, &TaskName::new("t").unwrap()).unwrap();
        let program = Program {
            path: "/usr/bin/apptainer".into(),
            product: "apptainer".into(),
            version: "1.4.5".into(),
        };
        let plan = Plan {
            config: &config,
            layout: &layout,
            program: &program,
            outpost: Path::new("/o"),
            image: Path::new("/i.sif"),
            keeper: &Keeper::Processes("no systemd".into()),
            sockets: &layout.socket_dir(),
            lease: Duration::from_secs(5),
        };
        plan.prepare()?;
        plan.arguments()
    }

    #[test]
    fn nothing_of_the_host_is_shared_unless_it_is_named() {
        let args = arguments(|_| ()).unwrap();
        let binds: Vec<&str> = args.iter().filter_map(|arg| arg.strip_prefix("--bind=")).collect();
        assert_eq!(binds.len(), 5, "{binds:?}");
        for needed in ["--containall", "--no-mount=bind-paths", "--bind=/o:/.farshell/b:ro", "--pwd=/"] {
            assert!(args.iter().any(|arg| arg == needed), "{needed}");
        }
        let image = args.iter().position(|arg| arg == "/i.sif").unwrap();
        assert_eq!(args[image + 1..image + 3], ["/bin/sh", "-c"]);
    }

    #[test]
    fn layers_are_kept_or_in_memory_or_in_a_file() {
        let layer = |change: fn(&mut Config)| {
            let args = arguments(change).unwrap();
            let of = |arg: &&String| {
                arg.starts_with("--overlay=") || *arg == "--writable-tmpfs" || *arg == "--no-home"
            };
            args.iter().filter(of).map(|arg| arg.rsplit('/').next().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(layer(|_| ()), ["layer"]);
        assert_eq!(layer(|c| c.settings.container.persistent = false), ["--writable-tmpfs"]);
        assert_eq!(layer(|c| c.settings.disk_image = true), ["disk.img", "--no-home"]);
    }

    #[test]
    fn binds_can_not_hide_the_outpost_nor_be_cut() {
        for (source, target) in [
            ("/tmp", "/.farshell/s"),
            ("/tmp", "/"),
            ("/tmp", "/a/../b"),
            ("/nowhere", "/x"),
            ("/tmp", "/a,b"),
        ] {
            let volume = Volume { source: source.into(), target: target.into(), options: Vec::new() };
            let error = arguments(|c| c.settings.bind = vec![volume]).unwrap_err();
            assert_eq!(error.kind, Kind::Invalid, "{source} {target}");
        }
        let volume = Volume { source: "/tmp".into(), target: "/root/a/b".into(), options: vec!["ro".into()] };
        let args = arguments(|c| c.settings.bind = vec![volume]).unwrap();
        assert!(args.contains(&"--bind=/tmp:/root/a/b:ro".to_owned()));
    }

    #[test]
    fn a_gpu_that_is_not_there_is_an_error() {
        if Path::new("/dev/nvidiactl").exists() || Path::new("/dev/dxg").exists() {
            return;
        }
        let error = arguments(|c| c.settings.gpu = SingularityGpu::Nv).unwrap_err();
        assert!(error.message.contains("/dev/nvidiactl"), "{error}");
    }
}
