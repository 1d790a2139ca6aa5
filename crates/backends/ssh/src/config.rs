//! What the SSH backend needs to know.

use farshell_config::settings::SshSettings;
use farshell_engine::{Error, Kind, Result};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Settings of the SSH backend. Nothing else is read: not the environment of this process, nor its directory.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Farshell's home: it owns the outposts on the host.
    pub home: PathBuf,
    pub settings: SshSettings,
    /// Variables of whoever asks. `ssh` runs with these, as its agents and proxies may need any of them; none of them
    /// goes to the host.
    pub environment: BTreeMap<String, String>,
    /// What `ssh` reads in place of the user's and the machine's own configuration.
    pub ssh_config: Option<PathBuf>,
    /// Files that the host gets, as paths relative to `credential_root`, which they can't leave.
    pub credential_root: PathBuf,
    pub credential_files: Vec<PathBuf>,
}

impl Config {
    /// A variable that is set to something.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.environment.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The host as people call it: `user@host`.
    pub(crate) fn destination(&self) -> String {
        let SshSettings { host, user, port, .. } = &self.settings;
        if *port == 22 { format!("{user}@{host}") } else { format!("{user}@{host}:{port}") }
    }

    /// Host and user are there and make sense.
    pub(crate) fn check(&self) -> Result<()> {
        let what = "preparing the ssh backend";
        for (key, value) in [("ssh_host", &self.settings.host), ("ssh_user", &self.settings.user)] {
            let variable = format!("TERMINAL_{}", key.to_uppercase());
            let hint = format!("set {key} in config.yaml (`farshell config set {key} VALUE`), or {variable}");
            if value.is_empty() {
                return Err(Error::new(Kind::Invalid, what, format!("{key} is not set")).with_hint(hint));
            }
            if is_odd(value) {
                let message = format!("{key} is {value:?}, which can't be the name of one");
                return Err(Error::new(Kind::Invalid, what, message).with_hint(hint));
            }
        }
        // Each has a shell and another ssh started with it.
        if let Some(jump) = self.settings.jump.as_ref().filter(|jump| jump.split(',').any(is_odd)) {
            let message = format!("ssh_jump is {jump:?}, which can't be the names of hosts");
            return Err(Error::new(Kind::Invalid, what, message)
                .with_hint("set ssh_jump (or TERMINAL_SSH_JUMP) to `user@host:port`, several with commas"));
        }
        if let Some(dir) = self.settings.outpost_dir.as_ref().filter(|dir| dir.contains(char::is_control)) {
            let message = format!("ssh_outpost_dir is {dir:?}, which has a control character in it");
            return Err(Error::new(Kind::Invalid, what, message)
                .with_hint("set ssh_outpost_dir (or TERMINAL_SSH_OUTPOST_DIR) to another directory"));
        }
        if let Some(key) = self.settings.key.as_ref().filter(|key| !key.is_file()) {
            let message = format!("ssh_key is {}, and there is no such file", key.display());
            let hint = "set ssh_key (or TERMINAL_SSH_KEY) to a private key, or leave it out and ssh chooses";
            return Err(Error::new(Kind::Invalid, what, message).with_hint(hint));
        }
        // It stands in quotes in a file that ssh reads.
        if let Some(key) =
            self.settings.key.as_ref().filter(|key| {
                key.to_str().is_none_or(|name| name.contains(|c: char| c == '"' || c.is_control()))
            })
        {
            let message = format!("ssh_key is {key:?}, and ssh can't be told this name");
            return Err(Error::new(Kind::Invalid, what, message)
                .with_hint("give the key another name, without quotes and control characters"));
        }
        crate::options::check(&self.settings.options, self.settings.host_key_policy)
    }
}

/// It can't be the name of a host or a user: it would be taken for an option, or for more than a word by a shell that a
/// proxy is started with.
fn is_odd(name: &str) -> bool {
    let odd = |c: char| c.is_whitespace() || c.is_control() || "'\"`$;&|<>(){}\\".contains(c);
    name.is_empty() || name.starts_with('-') || name.contains(odd)
}

#[cfg(test)]
pub(crate) fn sample() -> Config {
    Config {
        home: "/home/me/.hermes/farshell".into(),
        settings: SshSettings {
            host: "build.example".into(),
            user: "me".into(),
            port: 22,
            key: None,
            jump: None,
            options: Vec::new(),
            host_key_policy: farshell_config::choice::HostKeyPolicy::AcceptNew,
            outpost_dir: None,
        },
        environment: BTreeMap::new(),
        ssh_config: None,
        credential_root: "/home/me/.hermes".into(),
        credential_files: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_both_ways_to_set_it() {
        let mut config = sample();
        config.settings.user = String::new();
        let error = config.check().unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (Kind::Invalid, "ssh_user is not set"));
        let hint = error.hint.unwrap();
        assert!(
            hint.contains("farshell config set ssh_user") && hint.contains("TERMINAL_SSH_USER"),
            "{hint}"
        );
    }

    #[test]
    fn a_name_can_not_be_an_option_or_a_command() {
        for host in ["-oProxyCommand=x", "a b", "a;b", "$(x)", "a\nb"] {
            let mut config = sample();
            config.settings.host = host.into();
            assert_eq!(config.check().unwrap_err().kind, Kind::Invalid, "{host}");
        }
        for jump in ["-oProxyCommand=x", "a,-x", "a;b", "a,", "a b", "$(x)"] {
            let mut config = sample();
            config.settings.jump = Some(jump.into());
            assert_eq!(config.check().unwrap_err().kind, Kind::Invalid, "{jump}");
        }
        for jump in ["me@first:2222,second", "[fe80::1]:22"] {
            let mut config = sample();
            config.settings.jump = Some(jump.into());
            config.check().unwrap();
        }
        for host in ["build", "10.0.0.1", "fe80::1%eth0", "ec2-1.eu.example"] {
            let mut config = sample();
            config.settings.host = host.into();
            config.check().unwrap();
        }
    }
}
