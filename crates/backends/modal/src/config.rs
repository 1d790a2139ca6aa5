//! What the Modal backend needs to know.

use crate::client::{Access, Client};
use crate::error::explain;
use crate::tags::Keeps;
use farshell_config::choice::ModalMode;
use farshell_config::settings::ModalSettings;
use farshell_engine::{Error, Kind, Result};
use farshell_modal_proto::client::network_access::NetworkAccessType;
use farshell_modal_proto::client::{GpuConfig, NetworkAccess, Resources};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

const WHAT: &str = "preparing the modal backend";
/// The least that Modal gives, in thousandths of a core.
const LEAST_CPU: u32 = 125;
/// How long nobody has used a connection until it is closed, so that the sandbox can go to sleep.
const REST: Duration = Duration::from_secs(5);

/// Settings of the Modal backend. Nothing else is read but Modal's own file: not the environment of this process, nor its
/// directory.
#[derive(Clone, PartialEq)]
pub struct Config {
    /// Farshell's home: it owns the sandboxes.
    pub home: PathBuf,
    /// Hermes' home, with its record of snapshots.
    pub hermes_home: PathBuf,
    pub settings: ModalSettings,
    /// Variables of whoever asks: `MODAL_TOKEN_ID`, `HOME` and so on.
    pub environment: BTreeMap<String, String>,
    /// The same from `.env`. An address is not taken from there.
    pub files: BTreeMap<String, String>,
    /// How long nobody has used a connection until it is closed.
    pub rest: Duration,
    /// Files below `hermes_home` that are put into each sandbox.
    pub credential_files: Vec<PathBuf>,
}

/// Variables may be secret.
impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("home", &self.home)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Config {
    /// `hermes_home` is where Hermes keeps its files; Farshell's own are below it.
    #[must_use]
    pub fn new(
        hermes_home: PathBuf,
        settings: ModalSettings,
        environment: BTreeMap<String, String>,
        files: BTreeMap<String, String>,
    ) -> Self {
        let home = hermes_home.join("farshell");
        let credential_files = Vec::new();
        Self { home, hermes_home, settings, environment, files, rest: REST, credential_files }
    }

    pub(crate) fn client(&self) -> Result<Client> {
        self.refuse()?;
        let access = Access::load(&self.environment, &self.files).map_err(|error| explain(WHAT, error))?;
        Client::new(&access).map_err(|error| explain(WHAT, error))
    }

    /// What can't be served is said before anything is asked.
    fn refuse(&self) -> Result<()> {
        if self.settings.mode == ModalMode::Managed {
            let message = "modal_mode is managed, and there is no gateway that Farshell could use";
            return Err(Error::new(Kind::Unavailable, WHAT, message)
                .with_hint("set modal_mode to direct, with a token of your own: `modal token new`"));
        }
        self.gpus().map(drop)
    }

    /// For sandboxes that are made now.
    pub(crate) fn keeps(&self) -> Keeps {
        if self.settings.container.persistent { Keeps::Files } else { Keeps::Nothing }
    }

    /// `H100`, `a100-80gb:2`: what Modal's own client makes of it. Which there are, Modal says.
    fn gpus(&self) -> Result<Option<GpuConfig>> {
        let Some(text) = self.settings.gpu.as_deref().map(str::trim).filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let (name, count) = text.split_once(':').unwrap_or((text, "1"));
        let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '!';
        match count.parse() {
            Ok(count @ 1..=64) if !name.is_empty() && name.chars().all(good) => {
                Ok(Some(GpuConfig { count, gpu_type: name.to_uppercase() }))
            }
            _ => {
                let message = format!("modal_gpu is {text:?}, which is no GPU of Modal's");
                Err(Error::new(Kind::Invalid, WHAT, message)
                    .with_hint("as in A100, or H100:2 for two of them; modal.com/docs/guide/gpu lists all"))
            }
        }
    }

    /// What is asked for is what is allowed: a request alone is no limit. What is not limited is left to Modal.
    pub(crate) fn resources(&self) -> Resources {
        let limits = &self.settings.container;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "settings allow 0 to 4096 cores"
        )]
        let cpu = limits.cpu.map_or(0, |cores| ((cores * 1000.0).ceil() as u32).max(LEAST_CPU));
        let memory = limits.memory_mb.map_or(0, |mb| u32::try_from(mb).unwrap_or(u32::MAX));
        Resources {
            milli_cpu: cpu,
            milli_cpu_max: cpu,
            memory_mb: memory,
            memory_mb_max: memory,
            gpu_config: self.gpus().ok().flatten(),
            ..Resources::default()
        }
    }

    pub(crate) fn network(&self) -> NetworkAccess {
        let settings = &self.settings;
        let address = |entry: &&String| {
            let host = entry.split('/').next().unwrap_or_default();
            host.parse::<std::net::IpAddr>().is_ok()
        };
        let (cidrs, domains): (Vec<&String>, Vec<&String>) = settings.network_allow.iter().partition(address);
        let kind = match (settings.network, settings.network_allow.is_empty()) {
            (false, _) => NetworkAccessType::Blocked,
            (true, true) => NetworkAccessType::Open,
            (true, false) => NetworkAccessType::Allowlist,
        };
        // A single address is a range of one.
        let range = |entry: &String| match entry.contains('/') {
            true => entry.clone(),
            false if entry.contains(':') => format!("{entry}/128"),
            false => format!("{entry}/32"),
        };
        let listed = kind == NetworkAccessType::Allowlist;
        NetworkAccess {
            network_access_type: kind.into(),
            allowed_cidrs: cidrs.into_iter().filter(|_| listed).map(range).collect(),
            allowed_domains: domains.into_iter().filter(|_| listed).cloned().collect(),
        }
    }

    /// What is said about a limit that Modal does not keep.
    pub(crate) fn disk_note(&self) -> Option<String> {
        let asked = self.settings.container.disk_mb?;
        Some(format!("Modal limits no disk of a sandbox: container_disk ({asked} MB) is not enforced"))
    }
}

#[cfg(test)]
pub(crate) fn sample() -> Config {
    Config::new(
        "/home/me/.hermes".into(),
        ModalSettings {
            image: "debian:12".into(),
            mode: ModalMode::Auto,
            gpu: None,
            region: None,
            timeout: Duration::from_secs(86_400),
            idle_timeout: Duration::from_secs(300),
            network: true,
            network_allow: Vec::new(),
            managed_connect_timeout: Duration::from_secs(1),
            managed_poll_read_timeout: Duration::from_secs(5),
            managed_cancel_read_timeout: Duration::from_secs(5),
            container: farshell_config::settings::ContainerSettings {
                cpu: Some(0.5),
                memory_mb: Some(5120),
                disk_mb: Some(51_200),
                persistent: true,
            },
        },
        BTreeMap::new(),
        BTreeMap::new(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_the_limit_and_the_disk_has_none() {
        let mut config = sample();
        let resources = config.resources();
        assert_eq!((resources.milli_cpu, resources.milli_cpu_max), (500, 500));
        assert_eq!(
            (resources.memory_mb, resources.memory_mb_max, resources.ephemeral_disk_mb),
            (5120, 5120, 0)
        );
        assert!(config.disk_note().unwrap().contains("51200 MB"));
        let limits = &mut config.settings.container;
        (limits.cpu, limits.memory_mb, limits.disk_mb) = (Some(0.01), None, None);
        assert_eq!((config.resources().milli_cpu_max, config.resources().memory_mb_max), (LEAST_CPU, 0));
        assert_eq!(config.disk_note(), None);
    }

    #[test]
    fn a_network_is_open_shut_or_listed() {
        let mut config = sample();
        assert_eq!(config.network().network_access_type(), NetworkAccessType::Open);
        config.settings.network_allow =
            vec!["10.0.0.0/8".into(), "1.2.3.4".into(), "pypi.org".into(), "::1".into()];
        let listed = config.network();
        assert_eq!(listed.network_access_type(), NetworkAccessType::Allowlist);
        assert_eq!(listed.allowed_cidrs, ["10.0.0.0/8", "1.2.3.4/32", "::1/128"]);
        assert_eq!(listed.allowed_domains, ["pypi.org"]);
        config.settings.network = false;
        let shut = config.network();
        assert_eq!((shut.network_access_type(), shut.allowed_cidrs.len()), (NetworkAccessType::Blocked, 0));
    }

    #[test]
    fn what_can_not_be_served_is_refused_with_a_sentence() {
        let mut config = sample();
        config.settings.mode = ModalMode::Managed;
        assert!(config.client().unwrap_err().hint.unwrap().contains("modal_mode to direct"));
        config.settings.mode = ModalMode::Direct;
        for bad in ["H100:0", "H100:x", ":2", "H100:2:3", "a b", "H100:65"] {
            config.settings.gpu = Some(bad.into());
            let error = config.client().unwrap_err();
            assert!(error.message.contains(&format!("modal_gpu is {bad:?}")), "{error}");
            assert_eq!(config.resources().gpu_config, None);
        }
    }

    #[test]
    fn gpus_are_asked_for_as_modals_own_client_does() {
        let mut config = sample();
        assert_eq!(config.resources().gpu_config, None);
        for (text, gpu_type, count) in
            [("h100", "H100", 1), ("A100-80gb:2", "A100-80GB", 2), ("H100!:8", "H100!", 8)]
        {
            config.settings.gpu = Some(text.into());
            assert_eq!(config.resources().gpu_config, Some(GpuConfig { count, gpu_type: gpu_type.into() }));
        }
    }

    #[test]
    fn without_a_token_it_says_how_to_get_one_and_nothing_shows_it() {
        let mut config = sample();
        let error = config.client().unwrap_err();
        assert!(error.hint.unwrap().contains("modal token new"));
        for (name, value) in [("MODAL_TOKEN_ID", "ak-secret"), ("MODAL_TOKEN_SECRET", "as-secret")] {
            config.files.insert(name.into(), value.into());
        }
        let client = config.client().unwrap();
        assert!(!format!("{config:?} {client:?}").contains("secret"));
    }
}
