//! `docker_extra_args`: arguments of `docker run`, as far as they leave the container what it is.
//!
//! What is accepted is in [`Extra::take`]. Everything else is an error that names the argument: one that would
//! open the container up, one that has a setting of its own, and one that is not known.

use bollard::models::{
    ContainerCreateBody, DeviceMapping, DeviceRequest, EndpointSettings, NetworkingConfig, PortBinding,
    ResourcesUlimits,
};
use farshell_config::volume::Volume;
use farshell_engine::{Error, Kind, Result};
use std::collections::HashMap;

const WHAT: &str = "reading docker_extra_args";

/// What the arguments ask for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Extra {
    pub(crate) user: Option<String>,
    pub(crate) volumes: Vec<Volume>,
    pub(crate) tmpfs: Vec<(String, String)>,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) platform: Option<String>,
    hostname: Option<String>,
    domainname: Option<String>,
    hosts: Vec<String>,
    dns: Vec<String>,
    dns_options: Vec<String>,
    dns_search: Vec<String>,
    groups: Vec<String>,
    devices: Vec<DeviceMapping>,
    gpus: Vec<DeviceRequest>,
    ulimits: Vec<ResourcesUlimits>,
    sysctls: HashMap<String, String>,
    ports: Vec<(String, PortBinding)>,
    network: Option<String>,
    aliases: Vec<String>,
    runtime: Option<String>,
    ipc: Option<String>,
    shm_size: Option<i64>,
    cpu_shares: Option<i64>,
    cpuset_cpus: Option<String>,
    cpuset_mems: Option<String>,
    memory_reservation: Option<i64>,
    oom_score_adj: Option<i64>,
    read_only: bool,
}

/// Arguments that would take away what protects the host, and what to do instead, if anything.
const OPENING: [&str; 15] = [
    "--privileged",
    "--pid",
    "--uts",
    "--userns",
    "--cgroupns",
    "--cgroup-parent",
    "--security-opt",
    "--device-cgroup-rule",
    "--volumes-from",
    "--volume-driver",
    "--oom-kill-disable",
    "--mount",
    "--link",
    "--isolation",
    "--use-api-socket",
];

/// Arguments that have a setting of their own.
const SETTINGS: [(&str, &str); 22] = [
    ("--cap-add", "docker_cap_add"),
    ("--cap-drop", "docker_cap_add (all are dropped)"),
    ("--env", "docker_env or docker_forward_env"),
    ("--env-file", "docker_env or docker_forward_env"),
    ("--memory", "container_memory"),
    ("--memory-swap", "container_memory (there is no swap on top of it)"),
    ("--cpus", "container_cpu"),
    ("--cpu-period", "container_cpu"),
    ("--cpu-quota", "container_cpu"),
    ("--pids-limit", "docker_pids_limit"),
    ("--storage-opt", "container_disk"),
    ("--workdir", "cwd"),
    ("--rm", "container_persistent"),
    ("--restart", "lifetime_seconds (a container lives as long as it is used)"),
    ("--name", "the task's name"),
    ("--entrypoint", "nothing: the container runs farshell's own program"),
    ("--init", "nothing: there always is one"),
    ("--detach", "nothing: it always is"),
    ("--interactive", "nothing: sessions are interactive"),
    ("--tty", "nothing: ask for a terminal with the command"),
    ("--health-cmd", "nothing: health checks are off"),
    ("--pull", "nothing: an image is pulled when it is not there"),
];

const SHORT: [(&str, &str); 14] = [
    ("-v", "--volume"),
    ("-u", "--user"),
    ("-h", "--hostname"),
    ("-l", "--label"),
    ("-p", "--publish"),
    ("-c", "--cpu-shares"),
    ("-e", "--env"),
    ("-m", "--memory"),
    ("-w", "--workdir"),
    ("-d", "--detach"),
    ("-i", "--interactive"),
    ("-t", "--tty"),
    ("-it", "--interactive"),
    ("-P", "--publish-all"),
];

impl Extra {
    pub(crate) fn parse(args: &[String]) -> Result<Self> {
        let mut extra = Self::default();
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            let (typed, mut value) = match arg.split_once('=') {
                Some((name, value)) if arg.starts_with('-') => (name, Some(value.to_owned())),
                _ => (arg.as_str(), None),
            };
            let name = SHORT.iter().find(|(short, _)| *short == typed).map_or(typed, |(_, long)| long);
            if name == "--read-only" {
                extra.read_only = value.is_none_or(|value| value != "false");
                continue;
            }
            refuse_known(name, typed)?;
            if value.is_none() && TAKES.contains(&name) {
                value = rest.next().cloned();
            }
            let Some(value) = value else {
                let message = if TAKES.contains(&name) {
                    format!("{typed} needs a value")
                } else {
                    format!("{typed:?} is not an argument of `docker run` that farshell knows")
                };
                return Err(Error::new(Kind::Invalid, WHAT, message).with_hint(known()));
            };
            extra.take(name, &value).map_err(|message| {
                Error::new(Kind::Invalid, WHAT, format!("{typed} {value}: {message}")).with_hint(known())
            })?;
        }
        Ok(extra)
    }

    /// One argument and its value.
    fn take(&mut self, name: &str, value: &str) -> std::result::Result<(), String> {
        let own = || Some(value.to_owned());
        match name {
            "--add-host" => self.hosts.push(value.replacen('=', ":", 1)),
            "--cpu-shares" => self.cpu_shares = Some(number(value)?),
            "--cpuset-cpus" => self.cpuset_cpus = own(),
            "--cpuset-mems" => self.cpuset_mems = own(),
            "--device" => self.devices.push(device(value)?),
            "--dns" => self.dns.push(value.into()),
            "--dns-option" | "--dns-opt" => self.dns_options.push(value.into()),
            "--dns-search" => self.dns_search.push(value.into()),
            "--domainname" => self.domainname = own(),
            "--gpus" => self.gpus.push(gpus(value)?),
            "--group-add" => self.groups.push(value.into()),
            "--hostname" => self.hostname = own(),
            "--ipc" => match value {
                "none" | "private" | "shareable" => self.ipc = own(),
                _ => return Err("it would share memory with others".into()),
            },
            "--label" => {
                let (name, text) = value.split_once('=').unwrap_or((value, ""));
                if name.starts_with("farshell.") {
                    return Err("labels that begin with \"farshell.\" are farshell's own".into());
                }
                self.labels.push((name.into(), text.into()));
            }
            "--memory-reservation" => self.memory_reservation = Some(bytes(value)?),
            "--network" | "--net" => match value {
                "host" => return Err("it would give the container the host's network".into()),
                other if other.starts_with("container:") || other.starts_with("ns:") => {
                    return Err("it would share another one's network".into());
                }
                _ => self.network = own(),
            },
            "--network-alias" => self.aliases.push(value.into()),
            "--oom-score-adj" => match number(value)? {
                adjust if adjust >= 0 => self.oom_score_adj = Some(adjust),
                _ => return Err("below 0 the host would rather end its own programs".into()),
            },
            "--platform" => self.platform = own(),
            "--publish" => self.ports.push(port(value)?),
            "--runtime" => self.runtime = own(),
            "--shm-size" => self.shm_size = Some(bytes(value)?),
            "--sysctl" => {
                let (name, text) = value.split_once('=').ok_or("it is written name=value")?;
                self.sysctls.insert(name.into(), text.into());
            }
            "--tmpfs" => {
                let (path, options) = value.split_once(':').unwrap_or((value, ""));
                if !path.starts_with('/') || path.starts_with(crate::layout::ROOT) {
                    return Err("it is written /path[:options]".into());
                }
                let path = if path == "/" { path } else { path.trim_end_matches('/') };
                self.tmpfs.push((path.into(), options.into()));
            }
            "--ulimit" => self.ulimits.push(ulimit(value)?),
            "--user" => self.user = own(),
            "--volume" => {
                let volume = Volume::parse(value).ok_or("it is written source:/target[:options]")?;
                if volume.source.ends_with("docker.sock") || volume.source.ends_with("podman.sock") {
                    return Err("who can talk to the engine is root on its machine".into());
                }
                self.volumes.push(volume);
            }
            _ => return Err("farshell does not know this argument".into()),
        }
        Ok(())
    }

    pub(crate) fn apply(&self, body: &mut ContainerCreateBody) {
        let some = |list: &Vec<String>| (!list.is_empty()).then(|| list.clone());
        body.hostname.clone_from(&self.hostname);
        body.domainname.clone_from(&self.domainname);
        let host = body.host_config.get_or_insert_default();
        host.extra_hosts = some(&self.hosts);
        host.dns = some(&self.dns);
        host.dns_options = some(&self.dns_options);
        host.dns_search = some(&self.dns_search);
        host.group_add = some(&self.groups);
        host.devices = (!self.devices.is_empty()).then(|| self.devices.clone());
        host.device_requests = (!self.gpus.is_empty()).then(|| self.gpus.clone());
        host.ulimits = (!self.ulimits.is_empty()).then(|| self.ulimits.clone());
        host.sysctls = (!self.sysctls.is_empty()).then(|| self.sysctls.clone());
        host.runtime.clone_from(&self.runtime);
        host.shm_size = self.shm_size;
        host.cpu_shares = self.cpu_shares;
        host.cpuset_cpus.clone_from(&self.cpuset_cpus);
        host.cpuset_mems.clone_from(&self.cpuset_mems);
        host.memory_reservation = self.memory_reservation;
        host.oom_score_adj = self.oom_score_adj;
        if self.ipc.is_some() {
            host.ipc_mode.clone_from(&self.ipc);
        }
        if self.read_only {
            host.readonly_rootfs = Some(true);
        }
        // No network is no network, whatever the arguments say.
        if host.network_mode.is_none() {
            host.network_mode.clone_from(&self.network);
            if let (Some(network), false) = (&self.network, self.aliases.is_empty()) {
                let settings = EndpointSettings { aliases: some(&self.aliases), ..Default::default() };
                let endpoints_config = Some(HashMap::from([(network.clone(), settings)]));
                body.networking_config = Some(NetworkingConfig { endpoints_config });
            }
        }
        if !self.ports.is_empty() {
            let mut bindings: HashMap<String, Option<Vec<PortBinding>>> = HashMap::new();
            for (port, binding) in &self.ports {
                bindings.entry(port.clone()).or_default().get_or_insert_default().push(binding.clone());
            }
            body.exposed_ports = Some(bindings.keys().cloned().collect());
            host.port_bindings = Some(bindings);
        }
    }
}

/// What [`Extra::take`] understands.
const TAKES: [&str; 29] = [
    "--add-host",
    "--cpu-shares",
    "--cpuset-cpus",
    "--cpuset-mems",
    "--device",
    "--dns",
    "--dns-opt",
    "--dns-option",
    "--dns-search",
    "--domainname",
    "--gpus",
    "--group-add",
    "--hostname",
    "--ipc",
    "--label",
    "--memory-reservation",
    "--net",
    "--network",
    "--network-alias",
    "--oom-score-adj",
    "--platform",
    "--publish",
    "--runtime",
    "--shm-size",
    "--sysctl",
    "--tmpfs",
    "--ulimit",
    "--user",
    "--volume",
];

fn known() -> String {
    format!("farshell knows {}", TAKES.join(", "))
}

fn refuse_known(name: &str, typed: &str) -> Result<()> {
    if OPENING.contains(&name) || name == "--publish-all" {
        let message = format!("{typed} is refused: it would open the container up");
        return Err(Error::new(Kind::Invalid, WHAT, message).with_hint("remove it from docker_extra_args"));
    }
    if let Some((_, setting)) = SETTINGS.iter().find(|(known, _)| *known == name) {
        let message = format!("{typed} is refused: there is a setting for it");
        return Err(Error::new(Kind::Invalid, WHAT, message).with_hint(format!("use {setting}")));
    }
    Ok(())
}

fn number(text: &str) -> std::result::Result<i64, String> {
    text.parse().map_err(|_| format!("{text:?} is not a whole number"))
}

/// `64m`, `1g`, `1048576`, `512kb`
fn bytes(text: &str) -> std::result::Result<i64, String> {
    let lower = text.to_lowercase();
    let plain = lower.strip_suffix('b').unwrap_or(&lower);
    let (digits, factor) = match plain.char_indices().last() {
        Some((at, 'k')) => (&plain[..at], 1_i64 << 10),
        Some((at, 'm')) => (&plain[..at], 1 << 20),
        Some((at, 'g')) => (&plain[..at], 1 << 30),
        Some((at, 't')) => (&plain[..at], 1 << 40),
        _ => (plain, 1),
    };
    let value: i64 = digits.parse().map_err(|_| format!("{text:?} is not a size"))?;
    value.checked_mul(factor).filter(|n| *n > 0).ok_or_else(|| format!("{text:?} is not a size"))
}

fn device(text: &str) -> std::result::Result<DeviceMapping, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let rights = |text: &str| !text.is_empty() && text.chars().all(|c| "rwm".contains(c));
    let (host, inside, permissions) = match parts[..] {
        [host] => (host, host, "rwm"),
        [host, permissions] if rights(permissions) => (host, host, permissions),
        [host, inside] => (host, inside, "rwm"),
        [host, inside, permissions] if rights(permissions) => (host, inside, permissions),
        _ => return Err("it is written /dev/host[:/dev/inside[:rwm]]".into()),
    };
    if !host.starts_with("/dev/") || !inside.starts_with('/') {
        return Err("it is written /dev/host[:/dev/inside[:rwm]]".into());
    }
    Ok(DeviceMapping {
        path_on_host: Some(host.into()),
        path_in_container: Some(inside.into()),
        cgroup_permissions: Some(permissions.into()),
    })
}

/// `all`, a number, or `device=0,1`
fn gpus(text: &str) -> std::result::Result<DeviceRequest, String> {
    let capabilities = Some(vec![vec!["gpu".to_owned()]]);
    let text = text.trim_matches('"');
    let (count, ids) = match text.strip_prefix("device=") {
        Some(ids) => (None, Some(ids.split(',').map(str::to_owned).collect())),
        None if text == "all" => (Some(-1), None),
        None => (Some(number(text)?), None),
    };
    Ok(DeviceRequest { count, device_ids: ids, capabilities, ..Default::default() })
}

/// `nofile=1024[:2048]`
fn ulimit(text: &str) -> std::result::Result<ResourcesUlimits, String> {
    let (name, limits) = text.split_once('=').ok_or("it is written name=soft[:hard]")?;
    let (soft, hard) = limits.split_once(':').unwrap_or((limits, limits));
    Ok(ResourcesUlimits { name: Some(name.into()), soft: Some(number(soft)?), hard: Some(number(hard)?) })
}

/// `[address:][port:]port[/protocol]`
fn port(text: &str) -> std::result::Result<(String, PortBinding), String> {
    let (ports, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    let (rest, inside) = ports.rsplit_once(':').unwrap_or(("", ports));
    let (address, outside) = rest.rsplit_once(':').unwrap_or(("", rest));
    let is_port = |text: &str| text.parse::<u16>().is_ok();
    if !is_port(inside) || !(outside.is_empty() || is_port(outside)) {
        return Err("it is written [address:][port:]port[/protocol]".into());
    }
    if !["tcp", "udp", "sctp"].contains(&protocol) {
        return Err(format!("{protocol:?} is not tcp, udp or sctp"));
    }
    // Only this machine, unless the argument says otherwise.
    let address = if address.is_empty() { "127.0.0.1" } else { address.trim_matches(['[', ']']) };
    let binding = PortBinding { host_ip: Some(address.into()), host_port: Some(outside.into()) };
    Ok((format!("{inside}/{protocol}"), binding))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Extra> {
        Extra::parse(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn both_ways_to_write_a_value() {
        let apart = parse(&["--shm-size", "64m", "-h", "box", "--ulimit", "nofile=10:20"]).unwrap();
        assert_eq!(apart, parse(&["--shm-size=64mb", "--hostname=box", "--ulimit=nofile=10:20"]).unwrap());
        let mut body = ContainerCreateBody::default();
        apart.apply(&mut body);
        let host = body.host_config.unwrap();
        assert_eq!((body.hostname.as_deref(), host.shm_size), (Some("box"), Some(64 << 20)));
        assert_eq!(host.ulimits.unwrap()[0].hard, Some(20));
    }

    #[test]
    fn what_opens_the_container_is_named_and_refused() {
        for args in [
            &["--privileged"][..],
            &["--pid=host"],
            &["--pid", "host"],
            &["--userns=host"],
            &["--security-opt", "seccomp=unconfined"],
            &["--cap-add", "SYS_ADMIN"],
            &["--network", "host"],
            &["--net=host"],
            &["--network=container:other"],
            &["--ipc=host"],
            &["--volumes-from", "other"],
            &["--mount", "type=bind,source=/,target=/x"],
            &["-v", "/var/run/docker.sock:/var/run/docker.sock"],
            &["-e", "SECRET=1"],
            &["--oom-score-adj=-500"],
            &["--label", "farshell.owner=me"],
            &["--frobnicate"],
            &["--frobnicate=1"],
            &["image"],
            &["--shm-size"],
            &["--shm-size", "many"],
            &["-it"],
        ] {
            let error = parse(args).unwrap_err();
            let named = args[0].split('=').next().unwrap();
            assert!(error.message.contains(named), "{args:?}: {error}");
            assert_eq!(error.kind, Kind::Invalid);
        }
    }

    #[test]
    fn every_argument_that_is_listed_is_understood() {
        let values = [
            ("--device", "/dev/fuse"),
            ("--gpus", "all"),
            ("--ipc", "none"),
            ("--publish", "8080:80"),
            ("--sysctl", "net.core.somaxconn=10"),
            ("--tmpfs", "/x:size=1m"),
            ("--ulimit", "core=0"),
            ("--volume", "/a:/b:ro"),
            ("--add-host", "a:1.2.3.4"),
        ];
        for name in TAKES {
            let value = values.iter().find(|(known, _)| *known == name).map_or("1", |(_, value)| value);
            parse(&[name, value]).unwrap();
        }
    }

    #[test]
    fn devices_and_ports() {
        let shown = |text| {
            let (inside, binding) = port(text).unwrap();
            format!("{}:{}->{inside}", binding.host_ip.unwrap(), binding.host_port.unwrap())
        };
        assert_eq!(shown("80"), "127.0.0.1:->80/tcp");
        assert_eq!(shown("8080:80/udp"), "127.0.0.1:8080->80/udp");
        assert_eq!(shown("0.0.0.0:8080:80"), "0.0.0.0:8080->80/tcp");
        assert!(port("a:80").is_err() && port("80/x").is_err());
        let device = device("/dev/a:/dev/b:r").unwrap();
        assert_eq!(device.path_in_container.as_deref(), Some("/dev/b"));
        assert_eq!(device.cgroup_permissions.as_deref(), Some("r"));
    }
}
