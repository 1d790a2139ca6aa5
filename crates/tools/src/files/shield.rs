//! What the file tools leave alone where it is the user's own: credentials, the system's configuration, Farshell's own
//! settings. In a container nothing of that is there, but for what is mounted into it.
//!
//! This is no wall: a command can do what a file tool refuses. It keeps a model from doing by the way what a person
//! should have seen.

use farshell_api::run::Target;
use farshell_config::Settings;
use farshell_config::settings::Backend;
use std::path::Path;

/// Below the home directory: credentials, neither written nor shown.
const CREDENTIALS: &[&str] = &[
    ".ssh",
    ".aws",
    ".gnupg",
    ".kube",
    ".docker",
    ".azure",
    ".config/gh",
    ".config/gcloud",
    ".config/git/credentials",
    ".config/hub",
    ".config/op",
    ".local/share/keyrings",
    ".password-store",
    ".netrc",
    ".pgpass",
    ".my.cnf",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".terraform.d/credentials.tfrc.json",
];
/// What in there is no secret.
const NO_SECRETS: &[&str] = &[".ssh/config", ".ssh/known_hosts", ".ssh/authorized_keys", ".aws/config"];
/// The system's.
const SYSTEM: &[&str] = &[
    "/etc",
    "/boot",
    "/usr/lib/systemd",
    "/lib/systemd",
    "/private/etc",
    "/private/var/db",
    "/proc",
    "/sys",
    "/dev",
    "/run/docker.sock",
    "/var/run/docker.sock",
];
/// Of the Hermes home: what decides what is allowed, and what the server keeps.
const OURS: &[&str] = &["config.yaml", ".env", "auth.json", "farshell"];
/// What shows the memory or the variables of processes.
const PROCESSES: &[&str] = &["environ", "mem", "auxv", "kcore", "fd", "maps", "smaps", "pagemap"];

/// What a path of the place means to the user.
#[derive(Debug)]
pub(crate) enum Shield {
    /// The place can be thrown away.
    Nothing,
    /// A machine of somebody's.
    Whole(Homes),
    /// Only what is mounted: where it is in the place, and where on this machine.
    Mounts(Vec<(String, String)>, Homes),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Homes {
    /// Home directories of the user.
    pub(crate) users: Vec<String>,
    pub(crate) hermes: Option<String>,
    /// Nothing is written outside of it, if it is set.
    pub(crate) safe_root: Option<String>,
}

impl Shield {
    /// `home` is the home directory in the place, `hermes` Farshell's own on this machine.
    pub(crate) fn new(settings: &Settings, target: &Target, home: Option<String>, hermes: &Path) -> Self {
        let caller = target.caller.as_ref();
        let safe_root = of_caller(target, "HERMES_WRITE_SAFE_ROOT");
        let hermes = hermes.to_string_lossy().into_owned();
        let here: Vec<_> = home.clone().into_iter().chain(of_caller(target, "HOME")).collect();
        match &settings.backend {
            Backend::Local(_) => Self::Whole(Homes { users: here, hermes: Some(hermes), safe_root }),
            Backend::Ssh(_) => {
                Self::Whole(Homes { users: home.into_iter().collect(), hermes: None, safe_root: None })
            }
            // It shares the home directory unless told otherwise.
            Backend::Singularity(_) => {
                Self::Whole(Homes { users: here, hermes: Some(hermes), safe_root: None })
            }
            Backend::Docker(docker) => {
                let mut mounts: Vec<_> = docker
                    .volumes
                    .iter()
                    .filter(|volume| volume.source.starts_with('/'))
                    .map(|volume| (volume.target.clone(), volume.source.clone()))
                    .collect();
                if docker.mount_cwd_to_workspace {
                    let named = settings.cwd.on_host().map(|path| path.to_string_lossy().into_owned());
                    let here =
                        caller.and_then(|caller| caller.cwd.as_ref()).map(|cwd| cwd.lossy().into_owned());
                    mounts.extend(named.or(here).map(|source| ("/workspace".to_owned(), source)));
                }
                match mounts.is_empty() {
                    true => Self::Nothing,
                    false => {
                        let users = of_caller(target, "HOME").into_iter().collect();
                        Self::Mounts(mounts, Homes { users, hermes: Some(hermes), safe_root: None })
                    }
                }
            }
            Backend::Modal(_) | Backend::Daytona(_) => Self::Nothing,
        }
    }

    /// The user's own path that a path of the place is.
    fn own(&self, path: &str) -> Option<(String, &Homes)> {
        match self {
            Self::Nothing => None,
            Self::Whole(homes) => Some((path.to_owned(), homes)),
            Self::Mounts(mounts, homes) => {
                let below = mounts
                    .iter()
                    .filter_map(|(target, source)| Some((target.len(), source, rest(path, target)?)));
                let (_, source, rest) = below.max_by_key(|(length, ..)| *length)?;
                Some((format!("{}{rest}", source.trim_end_matches('/')), homes))
            }
        }
    }

    /// Why a file must not be written.
    pub(crate) fn refuses_write(&self, path: &str) -> Option<String> {
        let (path, homes) = self.own(path)?;
        if let Some(root) = &homes.safe_root
            && !is_below(&path, root)
        {
            return Some(format!("it is outside of HERMES_WRITE_SAFE_ROOT, which is {root}"));
        }
        if let Some(system) = SYSTEM.iter().find(|system| is_below(&path, system)) {
            return Some(format!("{system} belongs to the system"));
        }
        if let Some(credentials) = credentials(&path, homes) {
            return Some(format!("{credentials} holds credentials"));
        }
        ours(&path, homes)
            .map(|_| "it belongs to Farshell: a person changes it, with `farshell config`".to_owned())
    }

    /// Why a file must not be shown.
    pub(crate) fn refuses_read(&self, path: &str) -> Option<String> {
        let (path, homes) = self.own(path)?;
        let name = path.rsplit('/').next().unwrap_or_default();
        if let Some(rest) = rest(&path, "/proc")
            && rest.split('/').any(|part| PROCESSES.contains(&part))
        {
            return Some("it shows the memory or the variables of a process".to_owned());
        }
        if is_dotenv(name) {
            return Some("a .env file holds secrets".to_owned());
        }
        if let Some(ours) = ours(&path, homes)
            && ours != "config.yaml"
        {
            return Some("it holds Farshell's own secrets and state".to_owned());
        }
        let open = |user: &String| NO_SECRETS.iter().any(|known| path == format!("{user}/{known}"));
        if name.ends_with(".pub") || homes.users.iter().any(open) {
            return None;
        }
        if is_below(&path, "/etc/shadow") || is_below(&path, "/etc/sudoers") {
            return Some("it holds credentials".to_owned());
        }
        credentials(&path, homes).map(|credentials| format!("{credentials} holds credentials"))
    }
}

/// `.env` and its kin, but for those that are there to be read.
fn is_dotenv(name: &str) -> bool {
    match name.strip_prefix(".env") {
        Some("") => true,
        Some(rest) => {
            rest.starts_with('.')
                && !["example", "sample", "template", "dist", "defaults"]
                    .iter()
                    .any(|open| rest.contains(open))
        }
        None => false,
    }
}

/// An absolute path that a variable of the caller's names, or of the server's.
pub(crate) fn of_caller(target: &Target, name: &str) -> Option<String> {
    let env = target.caller.as_ref().and_then(|caller| caller.env.as_ref());
    let value = match env {
        Some(env) => env.get(name).map(|value| value.lossy().into_owned()),
        None => std::env::var(name).ok(),
    };
    value.filter(|value| value.starts_with('/'))
}

fn credentials(path: &str, homes: &Homes) -> Option<String> {
    let within = |known: &&&str| {
        homes.users.iter().any(|user| is_below(path, &format!("{}/{known}", user.trim_end_matches('/'))))
    };
    CREDENTIALS.iter().find(within).map(|known| format!("~/{known}"))
}

fn ours(path: &str, homes: &Homes) -> Option<&'static str> {
    let hermes = homes.hermes.as_deref()?.trim_end_matches('/');
    OURS.iter().find(|known| is_below(path, &format!("{hermes}/{known}"))).copied()
}

fn is_below(path: &str, directory: &str) -> bool {
    rest(path, directory).is_some()
}

/// What is left of a path below a directory: empty, or from the slash on.
fn rest<'p>(path: &'p str, directory: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(directory.trim_end_matches('/'))?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn homes() -> Homes {
        Homes { users: vec!["/home/u".into()], hermes: Some("/home/u/.hermes".into()), safe_root: None }
    }

    #[test]
    fn what_is_the_users_is_not_written() {
        let shield = Shield::Whole(homes());
        for path in [
            "/etc/passwd",
            "/etc",
            "/boot/x",
            "/proc/1/mem",
            "/run/docker.sock",
            "/home/u/.ssh/authorized_keys",
            "/home/u/.aws/credentials",
            "/home/u/.config/gh/hosts.yml",
            "/home/u/.hermes/config.yaml",
            "/home/u/.hermes/farshell/server/token",
        ] {
            assert!(shield.refuses_write(path).is_some(), "{path}");
        }
        for path in [
            "/etcetera",
            "/home/u/.sshx",
            "/home/u/p/.env",
            "/home/u/.hermes/notes.md",
            "/home/u/.config/ghx",
            "/tmp/x",
        ] {
            assert_eq!(shield.refuses_write(path), None, "{path}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let shield = Shield::Whole(homes());
        for path in [
            "/x/.env",
            "/x/.env.local",
            "/home/u/.ssh/id_ed25519",
            "/home/u/.netrc",
            "/etc/shadow",
            "/proc/self/environ",
            "/proc/1/fd/3",
            "/home/u/.hermes/.env",
            "/home/u/.hermes/farshell/server/token",
        ] {
            assert!(shield.refuses_read(path).is_some(), "{path}");
        }
        for path in [
            "/x/.env.example",
            "/x/.environment",
            "/home/u/.ssh/id_ed25519.pub",
            "/home/u/.ssh/config",
            "/etc/passwd",
            "/proc/cpuinfo",
            "/home/u/.hermes/config.yaml",
        ] {
            assert_eq!(shield.refuses_read(path), None, "{path}");
        }
    }

    #[test]
    fn in_a_container_only_mounts_count() {
        assert_eq!(Shield::Nothing.refuses_write("/etc/passwd"), None);
        let mounts = vec![
            ("/host".into(), "/".into()),
            ("/src".into(), "/home/u".into()),
            ("/data".into(), "/srv/d/".into()),
        ];
        let shield = Shield::Mounts(mounts, homes());
        assert!(shield.refuses_write("/host/etc/passwd").is_some());
        assert!(shield.refuses_write("/src/.ssh/config").is_some());
        assert!(shield.refuses_read("/src/p/.env").is_some());
        for path in ["/etc/passwd", "/root/.ssh/x", "/data/etc/x", "/src/p/x"] {
            assert_eq!(shield.refuses_write(path), None, "{path}");
        }
        assert_eq!(shield.refuses_read("/app/.env"), None);
    }

    #[test]
    fn a_safe_root_keeps_everything_else_out() {
        let shield = Shield::Whole(Homes { safe_root: Some("/home/u/p".into()), ..homes() });
        assert_eq!(shield.refuses_write("/home/u/p/x"), None);
        assert!(shield.refuses_write("/home/u/px").is_some_and(|why| why.contains("HERMES_WRITE_SAFE_ROOT")));
    }
}
