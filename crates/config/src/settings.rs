//! Settings as the rest of Farshell uses them: typed, checked, and only those of the selected backend.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::choice::{
    ApprovalMode, BackendKind, HomeMode, HostKeyPolicy, Isolation, ModalMode, OnSpecChange, SingularityGpu,
};
pub use crate::directory::StartDirectory;
use crate::home::HermesHome;
use crate::kind::PACKAGE_INSTALL;
use crate::source::Source;
use crate::table;
use crate::value::{MASK, Value};
use crate::volume::Volume;

/// Text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself. Whoever calls this answers for where it goes.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

/// All settings of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The selected backend with its own settings.
    pub backend: Backend,
    /// Where a session starts.
    pub cwd: StartDirectory,
    /// How long a foreground command may take unless the call says otherwise.
    pub timeout: Duration,
    /// The longest timeout a foreground call may ask for.
    pub max_foreground_timeout: Duration,
    /// Idle time after which an environment is put away.
    pub lifetime: Duration,
    /// Whether one shell lives from command to command.
    pub persistent_shell: bool,
    /// Whether tasks share a place.
    pub isolation: Isolation,
    /// What happens to a place whose settings have changed.
    pub on_spec_change: OnSpecChange,
    /// Variables of this machine that commands may see in addition.
    pub env_passthrough: Vec<String>,
    /// Backends that a tool call may choose besides the selected one.
    pub tool_backends: Vec<BackendKind>,
    /// Answer to sudo's question.
    pub sudo_password: Option<Secret>,
    /// Pause between asking a process to end and killing it; zero kills at once.
    pub term_grace: Duration,
    /// Output kept of each process, in bytes.
    pub log_cap: u64,
    /// Files below the Hermes home that are put into the place, relative to it. Empty on the local backend.
    pub credential_files: Vec<PathBuf>,
    /// What may run.
    pub approvals: ApprovalSettings,
}

/// What may run, and who is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalSettings {
    /// When a person is asked.
    pub mode: ApprovalMode,
    /// How long an answer is waited for.
    pub timeout: Duration,
    /// What never runs.
    pub deny: Vec<String>,
    /// Rules that don't count when nobody is there.
    pub unattended_allow: Vec<String>,
    /// Whether nothing runs that can't be written to the audit log.
    pub audit_required: bool,
    /// What runs without being asked about.
    pub allowlist: Vec<String>,
}

/// The selected backend.
#[derive(Clone, Debug, PartialEq)]
pub enum Backend {
    /// This machine.
    Local(LocalSettings),
    /// A Docker container.
    Docker(Box<DockerSettings>),
    /// A host reached by SSH.
    Ssh(Box<SshSettings>),
    /// An Apptainer or Singularity instance.
    Singularity(Box<SingularitySettings>),
    /// A Modal sandbox.
    Modal(ModalSettings),
    /// A Daytona sandbox.
    Daytona(DaytonaSettings),
}

impl Backend {
    /// Which backend it is.
    #[must_use]
    pub fn kind(&self) -> BackendKind {
        match self {
            Self::Local(_) => BackendKind::Local,
            Self::Docker(_) => BackendKind::Docker,
            Self::Ssh(_) => BackendKind::Ssh,
            Self::Singularity(_) => BackendKind::Singularity,
            Self::Modal(_) => BackendKind::Modal,
            Self::Daytona(_) => BackendKind::Daytona,
        }
    }
}

/// What a container may use. `None` means no limit.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerSettings {
    /// Processor cores.
    pub cpu: Option<f64>,
    /// Memory in megabytes.
    pub memory_mb: Option<u64>,
    /// Disk in megabytes.
    pub disk_mb: Option<u64>,
    /// Whether the place's files are kept from one run to the next.
    pub persistent: bool,
}

/// Settings of the local backend.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalSettings {
    /// What `HOME` is.
    pub home_mode: HomeMode,
    /// Files a new shell sources in place of the automatic ones.
    pub shell_init_files: Vec<PathBuf>,
    /// Whether a new shell sources the user's profile files.
    pub auto_source_bashrc: bool,
}

/// Settings of the Docker backend.
#[derive(Clone, Debug, PartialEq)]
pub struct DockerSettings {
    /// Image.
    pub image: String,
    /// Shared directories.
    pub volumes: Vec<Volume>,
    /// Whether the start directory is shared as `/workspace`.
    pub mount_cwd_to_workspace: bool,
    /// Names of variables of this machine that the container may see; see [`crate::Config::forwarded`].
    pub forward_env: Vec<String>,
    /// Variables set in the container. A forwarded variable of the same name wins.
    pub env: Vec<(String, Secret)>,
    /// Whether the container has a network.
    pub network: bool,
    /// Whether the root filesystem is read-only.
    pub read_only: bool,
    /// Capabilities given back after all are dropped, named sets replaced by what they hold.
    pub cap_add: Vec<String>,
    /// Processes at one time; `None` means no limit.
    pub pids_limit: Option<u64>,
    /// Whether to run as the user who runs Farshell.
    pub run_as_host_user: bool,
    /// Further arguments of `docker run`.
    pub extra_args: Vec<String>,
    /// Whether the container is left for the next run.
    pub persist_across_processes: bool,
    /// Whether containers whose owner is gone are removed.
    pub orphan_reaper: bool,
    /// Where kept files lie on this machine.
    pub sandbox_dir: PathBuf,
    /// Limits.
    pub container: ContainerSettings,
}

/// Settings of the SSH backend.
#[derive(Clone, Debug, PartialEq)]
pub struct SshSettings {
    /// Host.
    pub host: String,
    /// User on the host.
    pub user: String,
    /// Port.
    pub port: u16,
    /// Private key file.
    pub key: Option<PathBuf>,
    /// Hosts to go through.
    pub jump: Option<String>,
    /// Further options, `Name=value`.
    pub options: Vec<String>,
    /// What is done about a host key that is not yet known.
    pub host_key_policy: HostKeyPolicy,
    /// Directory on the host for Farshell's program. `~` is the host's.
    pub outpost_dir: Option<String>,
}

/// Settings of the Singularity backend.
#[derive(Clone, Debug, PartialEq)]
pub struct SingularitySettings {
    /// Image file, or an address such as `docker://…`.
    pub image: String,
    /// Program to use.
    pub binary: Option<PathBuf>,
    /// Shared directories.
    pub bind: Vec<Volume>,
    /// Variables set in the instance.
    pub env: Vec<(String, Secret)>,
    /// GPU support.
    pub gpu: SingularityGpu,
    /// Processes at one time. `None` means no limit.
    pub pids_limit: Option<u64>,
    /// All files of the instance are in one file of the size that the limits say.
    pub disk_image: bool,
    /// Further arguments of `apptainer exec`.
    pub extra_args: Vec<String>,
    /// The Slurm job to run in, if any.
    pub slurm: Option<Slurm>,
    /// Root of scratch space and of the image cache.
    pub scratch_dir: Option<PathBuf>,
    /// Scratch space above which a warning is given, in gigabytes.
    pub disk_warning_gb: f64,
    /// Where kept files lie on this machine.
    pub sandbox_dir: PathBuf,
    /// Limits.
    pub container: ContainerSettings,
}

/// What a Slurm job is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slurm {
    /// Partition.
    pub partition: Option<String>,
    /// Time limit, in Slurm's own notation.
    pub time: Option<String>,
    /// Processors.
    pub cpus: Option<u64>,
    /// Memory, in Slurm's own notation.
    pub memory: Option<String>,
    /// GPUs, in Slurm's own notation.
    pub gpus: Option<String>,
    /// Account to charge.
    pub account: Option<String>,
    /// Further arguments.
    pub extra: Vec<String>,
}

/// Settings of the Modal backend.
#[derive(Clone, Debug, PartialEq)]
pub struct ModalSettings {
    /// Image.
    pub image: String,
    /// How Modal is reached.
    pub mode: ModalMode,
    /// GPU.
    pub gpu: Option<String>,
    /// Region.
    pub region: Option<String>,
    /// How long a sandbox lives at most.
    pub timeout: Duration,
    /// How long nothing runs in a sandbox until Modal ends it.
    pub idle_timeout: Duration,
    /// Whether it has a network.
    pub network: bool,
    /// Addresses and domains that it may reach; empty means all.
    pub network_allow: Vec<String>,
    /// Managed mode: wait for a connection.
    pub managed_connect_timeout: Duration,
    /// Managed mode: wait for an answer to a poll.
    pub managed_poll_read_timeout: Duration,
    /// Managed mode: wait for an answer to a cancel.
    pub managed_cancel_read_timeout: Duration,
    /// Limits.
    pub container: ContainerSettings,
}

/// Settings of the Daytona backend.
#[derive(Clone, Debug, PartialEq)]
pub struct DaytonaSettings {
    /// Image.
    pub image: String,
    /// Region.
    pub target: Option<String>,
    /// Minutes without activity after which Daytona stops a sandbox; 0 means never.
    pub auto_stop_minutes: u32,
    /// Minutes after which Daytona archives a stopped sandbox; 0 means as late as it can.
    pub auto_archive_minutes: u32,
    /// Minutes after which Daytona deletes a stopped sandbox; 0 means never.
    pub auto_delete_minutes: u32,
    /// Limits.
    pub container: ContainerSettings,
}

impl Settings {
    pub(crate) fn build(kind: BackendKind, values: &Values, home: &HermesHome) -> Self {
        let path = |key| values.text(key).map(|text| home.expand_tilde(&text));
        let cwd = match values.text("cwd").as_deref() {
            None | Some("." | "auto" | "cwd") => StartDirectory::BackendDefault,
            Some(text) if kind == BackendKind::Local => {
                StartDirectory::Path(home.expand_tilde(text).to_string_lossy().into_owned())
            }
            Some(text) => StartDirectory::Path(text.to_owned()),
        };
        let credential_files = match kind {
            BackendKind::Local => Vec::new(),
            _ => values.list("credential_files").into_iter().map(PathBuf::from).collect(),
        };
        let container = ContainerSettings {
            cpu: Some(values.number("container_cpu")).filter(|cpu| *cpu > 0.0),
            memory_mb: values.limit("container_memory"),
            disk_mb: values.limit("container_disk"),
            persistent: values.bool("container_persistent"),
        };
        let sandbox_dir = path("sandbox_dir").unwrap_or_default();
        let volumes = |key| {
            let parsed = values.list(key).into_iter().filter_map(|text| Volume::parse(&text));
            parsed
                .map(|volume| Volume {
                    source: home.expand_tilde(&volume.source).to_string_lossy().into_owned(),
                    ..volume
                })
                .collect()
        };
        let backend = match kind {
            BackendKind::Local => Backend::Local(LocalSettings {
                home_mode: values.choice("home_mode", HomeMode::Auto),
                shell_init_files: values
                    .list("shell_init_files")
                    .iter()
                    .map(|file| home.expand_tilde(file))
                    .collect(),
                auto_source_bashrc: values.bool("auto_source_bashrc"),
            }),
            BackendKind::Docker => Backend::Docker(Box::new(DockerSettings {
                image: values.text("docker_image").unwrap_or_default(),
                volumes: volumes("docker_volumes"),
                mount_cwd_to_workspace: values.bool("docker_mount_cwd_to_workspace"),
                forward_env: values.list("docker_forward_env"),
                env: values.variables("docker_env"),
                network: values.bool("docker_network"),
                read_only: values.bool("docker_read_only"),
                cap_add: capabilities(&values.list("docker_cap_add")),
                pids_limit: values.limit("docker_pids_limit"),
                run_as_host_user: values.bool("docker_run_as_host_user"),
                extra_args: values.list("docker_extra_args"),
                persist_across_processes: values.bool("docker_persist_across_processes"),
                orphan_reaper: values.bool("docker_orphan_reaper"),
                sandbox_dir,
                container,
            })),
            BackendKind::Ssh => Backend::Ssh(Box::new(SshSettings {
                host: values.text("ssh_host").unwrap_or_default(),
                user: values.text("ssh_user").unwrap_or_default(),
                port: u16::try_from(values.integer("ssh_port")).unwrap_or(22),
                key: path("ssh_key"),
                jump: values.text("ssh_jump"),
                options: values.list("ssh_options"),
                host_key_policy: values.choice("ssh_host_key_policy", HostKeyPolicy::AcceptNew),
                outpost_dir: values.text("ssh_outpost_dir"),
            })),
            BackendKind::Singularity => Backend::Singularity(Box::new(SingularitySettings {
                image: path("singularity_image").unwrap_or_default().to_string_lossy().into_owned(),
                binary: path("singularity_binary"),
                bind: volumes("singularity_bind"),
                env: values.variables("singularity_env"),
                gpu: values.choice("singularity_gpu", SingularityGpu::None),
                pids_limit: values.limit("singularity_pids_limit"),
                disk_image: values.bool("singularity_disk_image"),
                extra_args: values.list("singularity_extra_args"),
                slurm: values.slurm("singularity_slurm"),
                scratch_dir: path("scratch_dir"),
                disk_warning_gb: values.number("disk_warning_gb"),
                sandbox_dir,
                container,
            })),
            BackendKind::Modal => Backend::Modal(ModalSettings {
                image: values.text("modal_image").unwrap_or_default(),
                mode: values.choice("modal_mode", ModalMode::Auto),
                gpu: values.text("modal_gpu"),
                region: values.text("modal_region"),
                timeout: values.seconds("modal_timeout"),
                idle_timeout: values.seconds("modal_idle_timeout"),
                network: values.bool("modal_network"),
                network_allow: values.list("modal_network_allow"),
                managed_connect_timeout: values.seconds("managed_modal_connect_timeout_seconds"),
                managed_poll_read_timeout: values.seconds("managed_modal_poll_read_timeout_seconds"),
                managed_cancel_read_timeout: values.seconds("managed_modal_cancel_read_timeout_seconds"),
                container,
            }),
            BackendKind::Daytona => Backend::Daytona(DaytonaSettings {
                image: values.text("daytona_image").unwrap_or_default(),
                target: values.text("daytona_target"),
                auto_stop_minutes: values.minutes("daytona_auto_stop_minutes"),
                auto_archive_minutes: values.minutes("daytona_auto_archive_minutes"),
                auto_delete_minutes: values.minutes("daytona_auto_delete_minutes"),
                container,
            }),
        };
        Self {
            backend,
            cwd,
            timeout: values.seconds("timeout"),
            max_foreground_timeout: values.seconds("max_foreground_timeout"),
            lifetime: values.seconds("lifetime_seconds"),
            persistent_shell: values.bool("persistent_shell"),
            isolation: values.choice("isolation", Isolation::Shared),
            on_spec_change: values.choice("on_spec_change", OnSpecChange::Recreate),
            env_passthrough: values.list("env_passthrough"),
            tool_backends: values.list("tool_backends").iter().filter_map(|name| name.parse().ok()).collect(),
            sudo_password: values.text("sudo_password").map(Secret),
            term_grace: values.seconds("daemon_term_grace_seconds"),
            log_cap: values.integer("log_cap_mb").unsigned_abs().saturating_mul(1024 * 1024),
            credential_files,
            approvals: ApprovalSettings {
                mode: values.choice("approvals.mode", ApprovalMode::Ask),
                timeout: values.seconds("approvals.timeout"),
                deny: values.list("approvals.deny"),
                unattended_allow: values.list("approvals.unattended_allow"),
                audit_required: values.bool("approvals.audit_required"),
                allowlist: values.list("command_allowlist"),
            },
        }
    }
}

/// Named sets replaced by what they hold, each capability once.
fn capabilities(names: &[String]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for name in names {
        let members: &[&str] = match name.as_str() {
            "package-install" => &PACKAGE_INSTALL,
            "strict" => &[],
            single => &[single],
        };
        for member in members {
            if !found.iter().any(|known| known == member) {
                found.push((*member).to_owned());
            }
        }
    }
    found
}

/// The values that count, by key, with where each came from.
///
/// The table decides each value's type, so asking for the wrong type is a mistake in this file alone; the tests ask
/// for all of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Values {
    values: BTreeMap<&'static str, (Value, Source)>,
}

impl Values {
    pub(crate) fn insert(&mut self, key: &'static str, value: Value, source: Source) {
        self.values.insert(key, (value, source));
    }

    pub(crate) fn get(&self, key: &str) -> Option<(&Value, &Source)> {
        debug_assert!(table::find(key).is_some(), "{key} is not in the table");
        self.values.get(key).map(|(value, source)| (value, source))
    }

    fn value(&self, key: &str) -> Option<&Value> {
        self.get(key).map(|(value, _)| value)
    }

    fn bool(&self, key: &str) -> bool {
        matches!(self.value(key), Some(Value::Bool(true)))
    }

    fn integer(&self, key: &str) -> i64 {
        match self.value(key) {
            Some(Value::Integer(value)) => *value,
            _ => 0,
        }
    }

    /// A count of which zero means no limit.
    fn limit(&self, key: &str) -> Option<u64> {
        u64::try_from(self.integer(key)).ok().filter(|value| *value > 0)
    }

    fn minutes(&self, key: &str) -> u32 {
        u32::try_from(self.integer(key)).unwrap_or_default()
    }

    fn number(&self, key: &str) -> f64 {
        match self.value(key) {
            Some(Value::Number(value)) => *value,
            _ => 0.0,
        }
    }

    fn seconds(&self, key: &str) -> Duration {
        match self.value(key) {
            Some(Value::Integer(value)) => Duration::from_secs(value.unsigned_abs()),
            Some(Value::Number(value)) => Duration::try_from_secs_f64(*value).unwrap_or_default(),
            _ => Duration::ZERO,
        }
    }

    fn text(&self, key: &str) -> Option<String> {
        match self.value(key) {
            Some(Value::Text(value)) => Some(value.clone()),
            _ => None,
        }
    }

    fn choice<T: FromStr>(&self, key: &str, otherwise: T) -> T {
        self.text(key).and_then(|text| text.parse().ok()).unwrap_or(otherwise)
    }

    fn list(&self, key: &str) -> Vec<String> {
        match self.value(key) {
            Some(Value::List(items)) => items.clone(),
            _ => Vec::new(),
        }
    }

    fn map(&self, key: &str) -> &[(String, Value)] {
        match self.value(key) {
            Some(Value::Map(entries)) => entries,
            _ => &[],
        }
    }

    fn variables(&self, key: &str) -> Vec<(String, Secret)> {
        self.map(key).iter().map(|(name, value)| (name.clone(), Secret(value.to_string()))).collect()
    }

    fn slurm(&self, key: &str) -> Option<Slurm> {
        let asked = self.map(key);
        let mut slurm = Slurm::default();
        for (key, value) in asked {
            match (key.as_str(), value) {
                ("partition", value) => slurm.partition = Some(value.to_string()),
                ("time", value) => slurm.time = Some(value.to_string()),
                ("cpus", Value::Integer(cpus)) => slurm.cpus = u64::try_from(*cpus).ok(),
                ("memory", value) => slurm.memory = Some(value.to_string()),
                ("gpus", value) => slurm.gpus = Some(value.to_string()),
                ("account", value) => slurm.account = Some(value.to_string()),
                ("extra", Value::List(extra)) => slurm.extra.clone_from(extra),
                _ => {}
            }
        }
        (!asked.is_empty()).then_some(slurm)
    }
}
