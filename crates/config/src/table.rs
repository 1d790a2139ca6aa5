//! The table of settings. Everything else is derived from it: parsing, validation, `list`, `explain`, `set` and the
//! documentation.
//!
//! A new setting is one line here and one field in [`crate::settings`].

use crate::choice::{
    ApprovalMode, BackendKind, HomeMode, HostKeyPolicy, Isolation, ModalMode, OnSpecChange, SingularityGpu,
    Words,
};
use crate::kind::{NO_LIMIT, Type};

/// The image used where none is set: Python and Node on Debian.
pub const DEFAULT_IMAGE: &str = "nikolaik/python-nodejs:python3.11-nodejs20";

/// What a setting is when nobody sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Nothing.
    Unset,
    /// This text, understood like the text of a variable.
    Text(&'static str),
    /// This name below the Hermes home.
    UnderHome(&'static str),
    /// No on the local backend, yes on all others.
    YesExceptLocal,
}

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The key below `terminal.`, or from the top of the file.
    pub key: &'static str,
    /// Whether the key is one from the top of the file. Such a setting is what the file says, to the letter: no
    /// variable, of the environment or inside the text, has a say in it.
    pub top: bool,
    /// The variable with the same meaning; empty if there is none.
    pub variable: &'static str,
    /// Variables that mean it for one backend only, and beat `variable` there.
    pub backend_variables: &'static [(BackendKind, &'static str)],
    /// What its value is.
    pub kind: Type,
    /// Its value when nobody sets it.
    pub default: Preset,
    /// The backends it matters for.
    pub backends: &'static [BackendKind],
    /// Whether its value must never be shown.
    pub secret: bool,
    /// What it does, in one line.
    pub help: &'static str,
}

impl Setting {
    /// `terminal.` and the key, or the key from the top of the file.
    #[must_use]
    pub fn path(&self) -> String {
        self.steps().join(".")
    }

    /// The way to it from the top of the file.
    #[must_use]
    pub fn steps(&self) -> Vec<&'static str> {
        if self.top { self.key.split('.').collect() } else { vec!["terminal", self.key] }
    }

    /// Whether it matters for this backend.
    #[must_use]
    pub fn matters_for(&self, backend: BackendKind) -> bool {
        self.backends.contains(&backend)
    }

    /// Every variable that sets it on some backend.
    pub fn variables(&self) -> impl Iterator<Item = &'static str> + use<> {
        let own = std::iter::once(self.variable).filter(|variable| !variable.is_empty());
        own.chain(self.backend_variables.iter().map(|(_, variable)| *variable))
    }

    const fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    const fn also(mut self, variables: &'static [(BackendKind, &'static str)]) -> Self {
        self.backend_variables = variables;
        self
    }
}

/// The setting of this key.
#[must_use]
pub fn find(key: &str) -> Option<&'static Setting> {
    let key = if key == BACKEND_ALIAS { "backend" } else { key };
    SETTINGS.iter().find(|setting| setting.key == key)
}

/// The setting that this variable sets.
#[must_use]
pub fn find_variable(variable: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.variables().any(|known| known == variable))
}

/// An older name of `backend` in the file.
pub const BACKEND_ALIAS: &str = "env_type";

/// Keys that some versions of Hermes have and Farshell doesn't use. They are reported, not refused, so that one
/// file can serve both.
pub const NOT_USED: [(&str, &str); 3] = [
    ("temp_dir", "Farshell keeps its files in the place's own temporary directory"),
    ("docker_snap_compat", "Farshell shares no temporary files with the Docker client"),
    ("docker_shared_container_key", "Farshell shares places between tasks by `isolation`"),
];

use BackendKind::{Daytona, Docker, Local, Modal, Singularity, Ssh};

const ALL: &[BackendKind] = BackendKind::ALL;
const LOCAL: &[BackendKind] = &[Local];
const DOCKER: &[BackendKind] = &[Docker];
const SSH: &[BackendKind] = &[Ssh];
const SINGULARITY: &[BackendKind] = &[Singularity];
const MODAL: &[BackendKind] = &[Modal];
const DAYTONA: &[BackendKind] = &[Daytona];
const CONTAINERS: &[BackendKind] = &[Docker, Singularity, Modal, Daytona];
const NOT_LOCAL: &[BackendKind] = &[Docker, Ssh, Singularity, Modal, Daytona];

const SECONDS: Type = Type::Integer { min: 1, max: NO_LIMIT, unit: "seconds" };
const MINUTES: Type = Type::Integer { min: 0, max: 43_200, unit: "minutes" };
const MEGABYTES: Type = Type::Integer { min: 0, max: NO_LIMIT, unit: "megabytes" };

const fn choice(words: Words) -> Type {
    Type::Choice(words)
}

const fn row(
    key: &'static str,
    variable: &'static str,
    kind: Type,
    default: Preset,
    backends: &'static [BackendKind],
    help: &'static str,
) -> Setting {
    Setting {
        key,
        top: false,
        variable,
        backend_variables: &[],
        kind,
        default,
        backends,
        secret: false,
        help,
    }
}

/// From the top of the file.
const fn top(key: &'static str, kind: Type, default: Preset, help: &'static str) -> Setting {
    Setting {
        key,
        top: true,
        variable: "",
        backend_variables: &[],
        kind,
        default,
        backends: ALL,
        secret: false,
        help,
    }
}

use Preset::{Text, Unset};

/// Every setting, in the order in which people meet them.
#[rustfmt::skip]
pub const SETTINGS: &[Setting] = &[
    row("backend", "TERMINAL_ENV", choice(BackendKind::WORDS), Text("local"), ALL, "where commands run"),
    row("cwd", "TERMINAL_CWD", Type::Path, Text("."), ALL, "directory a session starts in; `.`, `auto` and `cwd` mean the backend's own"),
    row("timeout", "TERMINAL_TIMEOUT", SECONDS, Text("180"), ALL, "how long a foreground command may take unless the call says otherwise"),
    row("max_foreground_timeout", "TERMINAL_MAX_FOREGROUND_TIMEOUT", SECONDS, Text("600"), ALL, "the longest timeout a foreground call may ask for"),
    row("lifetime_seconds", "TERMINAL_LIFETIME_SECONDS", SECONDS, Text("300"), ALL, "idle time after which an environment is put away"),
    row("persistent_shell", "TERMINAL_PERSISTENT_SHELL", Type::Bool, Preset::YesExceptLocal, ALL, "keep one shell alive from command to command")
        .also(&[(Local, "TERMINAL_LOCAL_PERSISTENT"), (Ssh, "TERMINAL_SSH_PERSISTENT")]),
    row("isolation", "TERMINAL_ISOLATION", choice(Isolation::WORDS), Text("shared"), ALL, "whether all tasks share one place or each has its own"),
    row("on_spec_change", "TERMINAL_ON_SPEC_CHANGE", choice(OnSpecChange::WORDS), Text("recreate"), ALL, "what happens to a place whose settings have changed since it was made"),
    row("tool_backends", "TERMINAL_TOOL_BACKENDS", Type::Backends, Text("[]"), ALL, "backends that a tool call may choose besides the configured one"),
    row("env_passthrough", "TERMINAL_ENV_PASSTHROUGH", Type::Names, Text("[]"), ALL, "variables of this machine that commands may see in addition"),
    row("sudo_password", "SUDO_PASSWORD", Type::Text, Unset, ALL, "answer to sudo's question; an empty one counts as set").secret(),
    row("daemon_term_grace_seconds", "TERMINAL_DAEMON_TERM_GRACE_SECONDS", Type::Number { min: 0.0, max: 3600.0, unit: "seconds" }, Text("2"), ALL, "pause between asking a process to end and killing it; 0 kills at once (with Hermes never: here nothing survives a kill)"),
    row("log_cap_mb", "TERMINAL_LOG_CAP_MB", Type::Integer { min: 1, max: 1_048_576, unit: "megabytes" }, Text("256"), ALL, "output kept of each process"),
    row("credential_files", "TERMINAL_CREDENTIAL_FILES", Type::HomeFiles, Text("[]"), NOT_LOCAL, "files below the Hermes home that are put into the place"),

    row("home_mode", "TERMINAL_HOME_MODE", choice(HomeMode::WORDS), Text("auto"), LOCAL, "what HOME is for commands"),
    row("shell_init_files", "TERMINAL_SHELL_INIT_FILES", Type::List, Text("[]"), LOCAL, "files a new shell sources; if given, they replace the automatic ones"),
    row("auto_source_bashrc", "TERMINAL_AUTO_SOURCE_BASHRC", Type::Bool, Text("true"), LOCAL, "source the user's profile files in a new shell"),

    row("container_cpu", "TERMINAL_CONTAINER_CPU", Type::Number { min: 0.0, max: 4096.0, unit: "cores" }, Text("1"), CONTAINERS, "processor cores; 0 means no limit"),
    row("container_memory", "TERMINAL_CONTAINER_MEMORY", MEGABYTES, Text("5120"), CONTAINERS, "memory; 0 means no limit"),
    row("container_disk", "TERMINAL_CONTAINER_DISK", MEGABYTES, Text("51200"), CONTAINERS, "disk; 0 means no limit"),
    row("container_persistent", "TERMINAL_CONTAINER_PERSISTENT", Type::Bool, Text("true"), CONTAINERS, "keep the place's files from one run to the next"),
    row("sandbox_dir", "TERMINAL_SANDBOX_DIR", Type::Path, Preset::UnderHome("sandboxes"), &[Docker, Singularity], "where kept files lie on this machine"),

    row("docker_image", "TERMINAL_DOCKER_IMAGE", Type::Word, Text(DEFAULT_IMAGE), DOCKER, "image of the container"),
    row("docker_volumes", "TERMINAL_DOCKER_VOLUMES", Type::Volumes, Text("[]"), DOCKER, "directories shared with the container, `source:/target[:options]`"),
    row("docker_mount_cwd_to_workspace", "TERMINAL_DOCKER_MOUNT_CWD_TO_WORKSPACE", Type::Bool, Text("false"), DOCKER, "share the start directory as /workspace"),
    row("docker_forward_env", "TERMINAL_DOCKER_FORWARD_ENV", Type::Names, Text("[]"), DOCKER, "variables of this machine that the container may see"),
    row("docker_env", "TERMINAL_DOCKER_ENV", Type::Variables, Text("{}"), DOCKER, "variables set in the container"),
    row("docker_network", "TERMINAL_DOCKER_NETWORK", Type::Bool, Text("true"), DOCKER, "whether the container has a network"),
    row("docker_read_only", "TERMINAL_DOCKER_READ_ONLY", Type::Bool, Text("false"), DOCKER, "make the root filesystem read-only; /tmp, /workspace and /root stay writable"),
    row("docker_cap_add", "TERMINAL_DOCKER_CAP_ADD", Type::Capabilities, Text("package-install"), DOCKER, "capabilities given back after all are dropped; `package-install` is CHOWN, DAC_OVERRIDE, FOWNER, SETGID, SETUID, and `strict` is none"),
    row("docker_pids_limit", "TERMINAL_DOCKER_PIDS_LIMIT", Type::Integer { min: 0, max: NO_LIMIT, unit: "processes" }, Text("256"), DOCKER, "processes at one time; 0 means no limit"),
    row("docker_run_as_host_user", "TERMINAL_DOCKER_RUN_AS_HOST_USER", Type::Bool, Text("false"), DOCKER, "run as the user who runs Farshell"),
    row("docker_extra_args", "TERMINAL_DOCKER_EXTRA_ARGS", Type::List, Text("[]"), DOCKER, "further arguments of `docker run`"),
    row("docker_persist_across_processes", "TERMINAL_DOCKER_PERSIST_ACROSS_PROCESSES", Type::Bool, Text("true"), DOCKER, "leave the container for the next run"),
    row("docker_orphan_reaper", "TERMINAL_DOCKER_ORPHAN_REAPER", Type::Bool, Text("true"), DOCKER, "remove containers whose owner is gone"),

    row("ssh_host", "TERMINAL_SSH_HOST", Type::Word, Unset, SSH, "host name, address or alias; needed"),
    row("ssh_user", "TERMINAL_SSH_USER", Type::Word, Unset, SSH, "user on the host; needed"),
    row("ssh_port", "TERMINAL_SSH_PORT", Type::Integer { min: 1, max: 65_535, unit: "" }, Text("22"), SSH, "port"),
    row("ssh_key", "TERMINAL_SSH_KEY", Type::Path, Unset, SSH, "private key file; without it the SSH client chooses"),
    row("ssh_jump", "TERMINAL_SSH_JUMP", Type::Word, Unset, SSH, "hosts to go through, as in `ssh -J`"),
    row("ssh_options", "TERMINAL_SSH_OPTIONS", Type::List, Text("[]"), SSH, "further options, each `Name=value` as in `ssh -o`"),
    row("ssh_host_key_policy", "TERMINAL_SSH_HOST_KEY_POLICY", choice(HostKeyPolicy::WORDS), Text("accept-new"), SSH, "what to do about a host key that is not yet known"),
    row("ssh_outpost_dir", "TERMINAL_SSH_OUTPOST_DIR", Type::Path, Unset, SSH, "directory on the host for Farshell's program; without it one is chosen"),

    row("singularity_image", "TERMINAL_SINGULARITY_IMAGE", Type::Path, Text("docker://nikolaik/python-nodejs:python3.11-nodejs20"), SINGULARITY, "image file or `docker://…`"),
    row("singularity_binary", "TERMINAL_SINGULARITY_BINARY", Type::Path, Unset, SINGULARITY, "program to use; without it apptainer, then singularity, is looked for"),
    row("singularity_bind", "TERMINAL_SINGULARITY_BIND", Type::Binds, Text("[]"), SINGULARITY, "directories shared with the instance, `source[:/target[:options]]`"),
    row("singularity_env", "TERMINAL_SINGULARITY_ENV", Type::Variables, Text("{}"), SINGULARITY, "variables set in the instance"),
    row("singularity_gpu", "TERMINAL_SINGULARITY_GPU", choice(SingularityGpu::WORDS), Text("none"), SINGULARITY, "GPU support"),
    row("singularity_pids_limit", "TERMINAL_SINGULARITY_PIDS_LIMIT", Type::Integer { min: 0, max: NO_LIMIT, unit: "processes" }, Text("256"), SINGULARITY, "processes at one time; 0 means no limit"),
    row("singularity_disk_image", "TERMINAL_SINGULARITY_DISK_IMAGE", Type::Bool, Text("false"), SINGULARITY, "keep the instance's files in one file of `container_disk` megabytes, which enforces that limit"),
    row("singularity_extra_args", "TERMINAL_SINGULARITY_EXTRA_ARGS", Type::List, Text("[]"), SINGULARITY, "further arguments of `apptainer exec`"),
    row("singularity_slurm", "TERMINAL_SINGULARITY_SLURM", Type::Slurm, Text("{}"), SINGULARITY, "run as a Slurm job with this partition, time, cpus, memory, gpus, account, extra"),
    row("scratch_dir", "TERMINAL_SCRATCH_DIR", Type::Path, Unset, SINGULARITY, "root of scratch space and of the image cache"),
    row("disk_warning_gb", "TERMINAL_DISK_WARNING_GB", Type::Number { min: 0.0, max: NO_LIMIT as f64, unit: "gigabytes" }, Text("500"), SINGULARITY, "scratch space above which a warning is given"),

    row("modal_image", "TERMINAL_MODAL_IMAGE", Type::Word, Text(DEFAULT_IMAGE), MODAL, "image of the sandbox: of a registry, or `im-…`"),
    row("modal_mode", "TERMINAL_MODAL_MODE", choice(ModalMode::WORDS), Text("auto"), MODAL, "how Modal is reached; Farshell reaches it directly, and `managed` is refused"),
    row("modal_gpu", "TERMINAL_MODAL_GPU", Type::Word, Unset, MODAL, "GPU of the sandbox, such as `A100` or `H100:2`"),
    row("modal_region", "TERMINAL_MODAL_REGION", Type::Word, Unset, MODAL, "region of the sandbox, such as `us-east` or `eu`; without it Modal chooses"),
    row("modal_timeout", "TERMINAL_MODAL_TIMEOUT", Type::Integer { min: 60, max: 86_400, unit: "seconds" }, Text("86400"), MODAL, "how long a sandbox lives at most, whatever runs in it; then its files are kept in a snapshot"),
    row("modal_idle_timeout", "TERMINAL_MODAL_IDLE_TIMEOUT", Type::Integer { min: 20, max: 86_400, unit: "seconds" }, Text("600"), MODAL, "Modal ends a sandbox in which nothing has run for this long, also when Farshell is gone; its files are kept in a snapshot. Longer than `lifetime_seconds` by what a snapshot takes, Farshell's own comes first"),
    row("modal_network", "TERMINAL_MODAL_NETWORK", Type::Bool, Text("true"), MODAL, "whether the sandbox has a network"),
    row("modal_network_allow", "TERMINAL_MODAL_NETWORK_ALLOW", Type::List, Text("[]"), MODAL, "the only addresses (`10.0.0.0/8`) and domains that the sandbox may reach; empty means all"),
    row("managed_modal_connect_timeout_seconds", "TERMINAL_MANAGED_MODAL_CONNECT_TIMEOUT_SECONDS", Type::Number { min: 0.1, max: 3600.0, unit: "seconds" }, Text("1"), MODAL, "managed mode: wait for a connection"),
    row("managed_modal_poll_read_timeout_seconds", "TERMINAL_MANAGED_MODAL_POLL_READ_TIMEOUT_SECONDS", Type::Number { min: 0.1, max: 3600.0, unit: "seconds" }, Text("5"), MODAL, "managed mode: wait for an answer to a poll"),
    row("managed_modal_cancel_read_timeout_seconds", "TERMINAL_MANAGED_MODAL_CANCEL_READ_TIMEOUT_SECONDS", Type::Number { min: 0.1, max: 3600.0, unit: "seconds" }, Text("5"), MODAL, "managed mode: wait for an answer to a cancel"),

    row("daytona_image", "TERMINAL_DAYTONA_IMAGE", Type::Word, Text(DEFAULT_IMAGE), DAYTONA, "image of the sandbox"),
    row("daytona_target", "DAYTONA_TARGET", Type::Word, Unset, DAYTONA, "region of the sandbox, such as `us` or `eu`; without it the organisation's own"),
    row("daytona_auto_stop_minutes", "TERMINAL_DAYTONA_AUTO_STOP_MINUTES", MINUTES, Text("15"), DAYTONA, "Daytona stops a sandbox that nobody has reached for this long, also when Farshell is gone; 0 means never"),
    row("daytona_auto_archive_minutes", "TERMINAL_DAYTONA_AUTO_ARCHIVE_MINUTES", MINUTES, Text("10080"), DAYTONA, "Daytona archives a stopped sandbox after this long; 0 means as late as it can"),
    row("daytona_auto_delete_minutes", "TERMINAL_DAYTONA_AUTO_DELETE_MINUTES", MINUTES, Text("0"), DAYTONA, "Daytona deletes a stopped sandbox, with its files, after this long; 0 means never"),

    top("approvals.mode", choice(ApprovalMode::WORDS), Text("smart"), "when a person is asked: about every command, about risky ones, never; `unattended` denies what would be asked"),
    top("approvals.timeout", SECONDS, Text("60"), "how long an answer is waited for; none is a no"),
    top("approvals.deny", Type::List, Text("[]"), "commands that never run, in any mode and on any backend; `*` stands for anything"),
    top("approvals.unattended_allow", Type::List, Text("[]"), "names of rules whose objections don't count in the mode `unattended`"),
    top("approvals.audit_required", Type::Bool, Text("false"), "run nothing that can't be written to the audit log"),
    top("command_allowlist", Type::List, Text("[]"), "commands that run without being asked about; `rule:NAME` is whatever that rule objects to"),
];

/// The section of approvals in the file, which Hermes has too.
pub const APPROVALS: &str = "approvals";
/// Keys there that only Hermes has, and that look like ours.
pub const APPROVALS_OF_HERMES: [&str; 3] = ["cron_mode", "single_query_mode", "unattended_mode"];
