//! What the settings say about what may run: the policy, the place as the policy sees it, and the secrets.

use farshell_config::choice::ApprovalMode;
use farshell_config::settings::{Backend, DockerSettings, SingularitySettings};
use farshell_config::volume::Volume;
use farshell_config::{Config, Settings};
use farshell_engine::{Error, Kind, Result};
use farshell_policy::{Allow, BackendKind, Context, Deny, Mode, Policy, Redactor, Scope, Unattended};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Remembered with the settings that they come from.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) policy: Policy,
    context: Context,
    pub(crate) timeout: Duration,
    pub(crate) audit_required: bool,
    pub(crate) redactor: Arc<Redactor>,
}

impl Rules {
    /// `environment` is the caller's, `home` Farshell's own directory.
    pub(crate) fn of(
        settings: &Settings,
        config: &Config,
        environment: &BTreeMap<String, String>,
        home: &Path,
    ) -> Self {
        let approvals = &settings.approvals;
        let policy = Policy {
            mode: mode(approvals.mode),
            deny: approvals.deny.iter().filter_map(|entry| Deny::new(entry)).collect(),
            allow: approvals.allowlist.iter().map(|entry| Allow::new(entry, Scope::Always)).collect(),
            unattended: Unattended { allow: approvals.unattended_allow.iter().cloned().collect() },
        };
        let (kind, user_home) = match &settings.backend {
            Backend::Local(_) => (BackendKind::Local, environment.get("HOME").cloned()),
            Backend::Ssh(_) => (BackendKind::Ssh, None),
            Backend::Docker(_) => (BackendKind::Docker, Some("/root".to_owned())),
            Backend::Singularity(_) => (BackendKind::Singularity, None),
            Backend::Modal(_) => (BackendKind::Modal, Some("/root".to_owned())),
            Backend::Daytona(_) => (BackendKind::Daytona, None),
        };
        let context = Context {
            host_paths: sees_host(&settings.backend),
            cwd: None,
            home: user_home.filter(|home| home.starts_with('/')),
            ..Context::new(kind)
        };
        let context = match kind {
            BackendKind::Local => context.with_farshell_home(home.to_string_lossy()),
            _ => context,
        };
        Self {
            policy,
            context,
            timeout: approvals.timeout,
            audit_required: approvals.audit_required,
            redactor: Arc::new(redactor(settings, config)),
        }
    }

    /// The place, for a command that starts in this directory, and whose input may be written to.
    pub(crate) fn context(&self, cwd: Option<String>, open_input: bool) -> Context {
        Context { cwd, open_input, ..self.context.clone() }
    }

    /// The mode of a call. It may be stricter than the configured one.
    ///
    /// # Errors
    /// It is not, or it is none.
    pub(crate) fn mode(&self, asked: Option<&str>) -> Result<Mode> {
        let configured = self.policy.mode;
        let Some(asked) = asked else { return Ok(configured) };
        let invalid = |message: String| Error::new(Kind::Invalid, "reading target.approvals", message);
        let mode: Mode = asked.parse().map_err(|error| invalid(format!("{error}")))?;
        let stricter = match (configured, mode) {
            (same, other) if same == other => true,
            (Mode::Auto, _) => true,
            (Mode::Smart, Mode::Ask | Mode::Unattended) => true,
            _ => false,
        };
        match stricter {
            true => Ok(mode),
            false => Err(invalid(format!("{mode} is not stricter than {configured}, which is configured"))
                .with_hint("a call can be stricter than `approvals.mode`, and never looser")),
        }
    }
}

fn mode(mode: ApprovalMode) -> Mode {
    match mode {
        ApprovalMode::Ask => Mode::Ask,
        ApprovalMode::Smart => Mode::Smart,
        ApprovalMode::Auto => Mode::Auto,
        ApprovalMode::Unattended => Mode::Unattended,
    }
}

/// Whether directories or devices of this machine are within a place that is otherwise apart from it.
fn sees_host(backend: &Backend) -> bool {
    match backend {
        Backend::Docker(docker) => docker_sees_host(docker),
        Backend::Singularity(singularity) => singularity_sees_host(singularity),
        Backend::Local(_) | Backend::Ssh(_) => true,
        Backend::Modal(_) | Backend::Daytona(_) => false,
    }
}

fn docker_sees_host(docker: &DockerSettings) -> bool {
    /// Arguments of `docker run` that bring something of this machine into the container.
    const OPENING: [&str; 7] = ["-v", "--volume", "--device", "--ipc", "--network", "--net", "--runtime"];
    let opens = |arg: &String| OPENING.iter().any(|name| arg.starts_with(name));
    docker.mount_cwd_to_workspace || docker.volumes.iter().any(is_path) || docker.extra_args.iter().any(opens)
}

fn singularity_sees_host(singularity: &SingularitySettings) -> bool {
    // Which of its many arguments share something is not known here.
    !singularity.bind.is_empty() || !singularity.extra_args.is_empty()
}

/// A volume of Docker's own has a name without a slash.
fn is_path(volume: &Volume) -> bool {
    volume.source.contains('/') || volume.source.starts_with(['.', '~'])
}

/// Knows the secrets that are in reach of this caller's commands.
fn redactor(settings: &Settings, config: &Config) -> Redactor {
    let mut secrets: Vec<(String, String)> = config.secrets();
    let mut named = settings.env_passthrough.clone();
    let fixed: &[_] = match &settings.backend {
        Backend::Docker(docker) => {
            named.extend(docker.forward_env.iter().cloned());
            &docker.env
        }
        Backend::Singularity(singularity) => &singularity.env,
        _ => &[],
    };
    secrets.extend(fixed.iter().map(|(name, value)| (name.clone(), value.reveal().to_owned())));
    secrets.extend(config.forwarded(&named));
    secrets.extend(
        settings.sudo_password.iter().map(|value| ("SUDO_PASSWORD".to_owned(), value.reveal().to_owned())),
    );
    Redactor::new(secrets)
}
