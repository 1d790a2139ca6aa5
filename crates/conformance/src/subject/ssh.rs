//! Hosts that `ssh` reaches.
//!
//! They are brought up by `scripts/rig/ssh.sh`; variables say where they are.

use super::Subject;
use farshell_config::choice::HostKeyPolicy;
use farshell_config::settings::SshSettings;
use farshell_engine::backend::{Backend, TaskName};
use farshell_ssh::{Config, Ssh};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A stock daemon: streams are forwarded sockets.
pub(super) const STOCK: Hosts = Hosts { name: "ssh", host: "FARSHELL_TEST_SSH", jump: false, forwards: true };

/// A daemon that forwards nothing: streams are sessions.
pub(super) const BY_SESSION: Hosts =
    Hosts { name: "ssh-session", host: "FARSHELL_TEST_SSH_SESSION", forwards: false, ..STOCK };

/// A host behind another.
pub(super) const BEHIND: Hosts =
    Hosts { name: "ssh-jump", host: "FARSHELL_TEST_SSH_BEHIND", jump: true, ..STOCK };

/// One host.
#[derive(Debug)]
pub(super) struct Hosts {
    name: &'static str,
    /// The variable that holds its address.
    host: &'static str,
    /// The stock host is the way to it.
    jump: bool,
    forwards: bool,
}

fn variable(name: &str) -> Result<String, String> {
    std::env::var(name).map_err(|_| format!("no {name}; scripts/test ssh sets it"))
}

/// What lies in the directory of control sockets.
fn sockets(home: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(home.join("run/ssh"));
    entries.into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

impl Subject for Hosts {
    fn name(&self) -> &'static str {
        self.name
    }

    fn probe(&self) -> Result<(), String> {
        for name in ["_PORT", "_KEY", "_USER", "_HOMES"] {
            variable(&format!("FARSHELL_TEST_SSH{name}"))?;
        }
        variable(self.host).map(|_| ())
    }

    fn backend(&self, home: &Path) -> Box<dyn Backend> {
        let get = |name: &str| variable(&format!("FARSHELL_TEST_SSH{name}")).unwrap_or_default();
        // The user's own hosts and keys are left alone, and the jump host has no other way to get these.
        let ssh_config = home.join("ssh_config");
        let text = format!(
            "UserKnownHostsFile {}\nGlobalKnownHostsFile /dev/null\nIdentityFile {}\n",
            home.join("known_hosts").display(),
            get("_KEY")
        );
        let _ = std::fs::write(&ssh_config, text);
        let variables = ["PATH", "HOME", "TMPDIR"].into_iter();
        Box::new(Ssh::new(Config {
            home: home.to_owned(),
            settings: SshSettings {
                host: variable(self.host).unwrap_or_default(),
                user: get("_USER"),
                port: get("_PORT").parse().unwrap_or(22),
                key: Some(get("_KEY").into()),
                jump: self.jump.then(|| format!("{}@{}:{}", get("_USER"), get(""), get("_PORT"))),
                options: Vec::new(),
                host_key_policy: HostKeyPolicy::AcceptNew,
                outpost_dir: None,
            },
            environment: variables.filter_map(|n| Some((n.to_owned(), std::env::var(n).ok()?))).collect(),
            ssh_config: Some(ssh_config),
            credential_root: Default::default(),
            credential_files: Vec::new(),
        }))
    }

    fn settings(&self) -> BTreeMap<String, String> {
        BTreeMap::from([("ssh_host".to_owned(), variable(self.host).unwrap_or_default())])
    }

    fn shares_kernel(&self) -> bool {
        true
    }

    fn has_socket(&self) -> bool {
        self.forwards
    }

    fn socket(&self, home: &Path, _: &TaskName) -> Option<PathBuf> {
        sockets(home).into_iter().find(|path| path.extension().is_some_and(|end| end == "s"))
    }

    fn awake(&self, _home: &Path, task: &TaskName) -> Vec<String> {
        let run = Path::new(&variable("FARSHELL_TEST_SSH_HOMES").unwrap_or_default())
            .join("user/.cache/farshell/run");
        let start = format!("{}-", task.as_str());
        let entries = std::fs::read_dir(run).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with(&start)).map(|name| format!("directory {name}")).collect()
    }

    fn leftovers(&self, home: &Path, task: &TaskName) -> Vec<String> {
        let mut left = self.awake(home, task);
        for path in sockets(home) {
            match path.extension().and_then(|end| end.to_str()) {
                Some("s") => left.push(format!("socket {}", path.display())),
                Some(_) => {}
                // The connection would stay for five minutes, and this home is about to go.
                None => {
                    let args = ["-F", "none", "-O", "exit", "-S"];
                    let _ = Command::new("ssh").args(args).arg(&path).arg("host").output();
                }
            }
        }
        left
    }
}
