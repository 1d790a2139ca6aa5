//! Where a session starts, on this machine or in a place.

use crate::choice::BackendKind;
use crate::settings::DockerSettings;
use crate::volume::Volume;
use std::path::{Path, PathBuf};

/// Where a session starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartDirectory {
    /// Where the backend's sessions start by themselves.
    BackendDefault,
    /// This path in the place. `~` in it is the place's home, so it is not expanded here, except on the local backend.
    Path(String),
}

impl StartDirectory {
    /// The path in the place, given this process's own directory.
    #[must_use]
    pub fn resolve(&self, backend: BackendKind, process_cwd: &Path) -> String {
        match (self, backend) {
            (Self::Path(path), _) => path.clone(),
            (Self::BackendDefault, BackendKind::Local) => process_cwd.to_string_lossy().into_owned(),
            (Self::BackendDefault, BackendKind::Ssh) => "~".into(),
            (Self::BackendDefault, _) => "/root".into(),
        }
    }
}

/// What a directory of the host's users looks like. Nothing in a container is there, unless it was mounted.
const HOST_PREFIXES: [&str; 4] = ["/Users/", "/home/", "C:\\", "C:/"];

impl StartDirectory {
    /// The path in a Docker container. One that is within a mounted directory of the host is where that is mounted.
    /// One that can only be meant for the host is `/workspace`: it is not looked for in the container.
    #[must_use]
    pub fn in_container(&self, docker: &DockerSettings) -> String {
        let default = if docker.mount_cwd_to_workspace { WORKSPACE } else { "/root" };
        let Self::Path(path) = self else { return default.into() };
        if docker.mount_cwd_to_workspace && self.on_host().is_some() {
            return WORKSPACE.into();
        }
        inside(path, &docker.volumes)
    }

    /// The path in a Singularity instance that shares these directories with this machine.
    #[must_use]
    pub fn in_instance(&self, bind: &[Volume]) -> String {
        match self {
            Self::BackendDefault => "/root".into(),
            Self::Path(path) => inside(path, bind),
        }
    }
}

/// Where a path is in a container that shares these directories.
fn inside(path: &str, volumes: &[Volume]) -> String {
    let under = |volume: &Volume| {
        let below = Path::new(path).strip_prefix(&volume.source).ok()?;
        let target = Path::new(&volume.target);
        let joined = if below.as_os_str().is_empty() { target.to_owned() } else { target.join(below) };
        Some((volume.source.len(), joined.to_string_lossy().into_owned()))
    };
    let mounted = volumes.iter().filter(|volume| volume.source.starts_with('/'));
    if let Some((_, inside)) = mounted.filter_map(under).max() {
        return inside;
    }
    match HOST_PREFIXES.iter().any(|prefix| path.starts_with(prefix)) {
        true => WORKSPACE.into(),
        false => path.to_owned(),
    }
}

impl StartDirectory {
    /// The directory of this machine that is meant, if it is one: a session's start directory may be one of either.
    #[must_use]
    pub fn on_host(&self) -> Option<PathBuf> {
        let Self::Path(path) = self else { return None };
        let path = Path::new(path);
        let inside = [WORKSPACE, "/root"].iter().any(|dir| path.starts_with(dir));
        (path.is_absolute() && !inside && path.is_dir()).then(|| path.to_owned())
    }
}

/// Where work is done in a container.
const WORKSPACE: &str = "/workspace";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Backend;
    use crate::{Config, Context, HermesHome};
    use std::collections::BTreeMap;

    fn inside(variables: &[(&str, &str)]) -> String {
        let mut environment: BTreeMap<String, String> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        environment.insert("TERMINAL_ENV".into(), "docker".into());
        let home = HermesHome::new(PathBuf::from("/nowhere"), Some(PathBuf::from("/home/me")));
        let config = Config::load(Context { home, environment, overrides: Vec::new() }).unwrap();
        let settings = config.resolve().unwrap().settings;
        let Backend::Docker(docker) = &settings.backend else { unreachable!() };
        settings.cwd.in_container(docker)
    }

    #[test]
    fn a_directory_of_the_host_is_looked_for_where_it_is_mounted_and_nowhere_else() {
        let mount = ("TERMINAL_DOCKER_MOUNT_CWD_TO_WORKSPACE", "true");
        assert_eq!(inside(&[]), "/root");
        assert_eq!(inside(&[mount]), "/workspace");
        assert_eq!(inside(&[("TERMINAL_CWD", "/srv/app")]), "/srv/app");
        for host in ["/home/me/project", "/Users/me/project", "C:\\\\work", "C:/work"] {
            assert_eq!(inside(&[("TERMINAL_CWD", host)]), "/workspace", "{host}");
        }
        assert_eq!(inside(&[("TERMINAL_CWD", "/usr"), mount]), "/workspace", "it is what is mounted");
        assert_eq!(inside(&[("TERMINAL_CWD", "/root/x"), mount]), "/root/x");
        let volumes = ("TERMINAL_DOCKER_VOLUMES", "/home/me:/all,~/project:/p:ro,named:/home/me/project/n");
        for (cwd, expected) in [
            ("/home/me/project", "/p"),
            ("/home/me/project/src/lib", "/p/src/lib"),
            ("/home/me/projects", "/all/projects"),
            ("/home/you", "/workspace"),
        ] {
            assert_eq!(inside(&[("TERMINAL_CWD", cwd), volumes]), expected);
        }
    }
}
