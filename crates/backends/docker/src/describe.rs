//! What is said about a container: how it ended, and how its limits hold.

use crate::engine::{Container, State};
use farshell_engine::backend::{Limit, Support};

/// How a container that does not run came to its end.
pub(crate) fn epitaph(container: &Container) -> String {
    let state = &container.state;
    let text = match state.exit_code {
        137 if state.oom_killed => match container.host_config.memory.filter(|bytes| *bytes > 0) {
            Some(bytes) => format!("ran out of memory (its limit is {} MB) and was killed", bytes >> 20),
            None => "ran out of memory and was killed".into(),
        },
        137 => "was killed (exit code 137)".into(),
        0 | 143 => "was stopped".into(),
        code => format!("ended with exit code {code}"),
    };
    format!("the container {text}")
}

pub(crate) fn reason(state: &State) -> String {
    let oom = if state.oom_killed { ", out of memory" } else { "" };
    match state.error.as_deref().map(str::trim).filter(|error| !error.is_empty()) {
        Some(error) => format!("exit code {}{oom}, {error}", state.exit_code),
        None => format!("exit code {}{oom}", state.exit_code),
    }
}

/// How the limits hold in this very container.
pub(crate) fn limits(container: &Container, disk_note: Option<&str>, asked_disk: Option<u64>) -> Vec<Limit> {
    let host = &container.host_config;
    let limit = |name, value: Option<String>| Limit {
        name,
        support: if value.is_some() { Support::Enforced } else { Support::NotEnforced },
        value: value.unwrap_or_else(|| "no limit".into()),
        note: None,
    };
    let positive = |value: Option<i64>| value.filter(|n| *n > 0);
    #[expect(clippy::cast_precision_loss, reason = "shown to people")]
    let cores = positive(host.nano_cpus)
        .map(|nano| nano as f64 / 1e9)
        .or_else(|| positive(host.cpu_quota).map(|quota| quota as f64 / 1e5));
    let mut memory = limit("memory", positive(host.memory).map(|bytes| format!("{} MB", bytes >> 20)));
    if memory.support == Support::Enforced && host.memory_swap != host.memory {
        memory.support = Support::Approximated;
        memory.note = Some("this machine's kernel does not count swap".into());
    }
    let size = host.storage_opt.as_ref().and_then(|options| options.get("size"));
    let mut disk = limit("disk", size.map(|size| size.trim_end_matches('m').to_owned() + " MB"));
    if let (None, Some(asked)) = (size, asked_disk) {
        disk.value = format!("{asked} MB");
        disk.note = Some(disk_note.unwrap_or("the engine's storage driver can't limit it").to_owned());
    } else if size.is_some() {
        disk.note = Some("the container's own files; /workspace, /root and volumes are not counted".into());
    }
    vec![
        limit("cpu", cores.map(|cores| format!("{cores} cores"))),
        memory,
        disk,
        limit("processes", positive(host.pids_limit).map(|n| n.to_string())),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(text: &str) -> Container {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn how_containers_end() {
        for (state, expected) in [
            (r#"{"ExitCode":137,"OOMKilled":true}"#, "ran out of memory (its limit is 64 MB) and was killed"),
            (r#"{"ExitCode":137}"#, "was killed (exit code 137)"),
            (r#"{"ExitCode":0}"#, "was stopped"),
            (r#"{"ExitCode":1,"Status":"something new"}"#, "ended with exit code 1"),
        ] {
            let text = format!(r#"{{"Id":"x","State":{state},"HostConfig":{{"Memory":67108864}}}}"#);
            assert_eq!(epitaph(&container(&text)), format!("the container {expected}"));
        }
    }

    #[test]
    fn limits_are_read_back_from_the_container() {
        let shown = |host: &str, disk| {
            let text = format!(r#"{{"Id":"x","HostConfig":{host}}}"#);
            let limits = limits(&container(&text), Some("no pquota"), disk);
            let one = |l: &Limit| format!("{} {} {}", l.name, l.value, l.support.name());
            limits.iter().map(one).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(
            shown("{}", None),
            "cpu no limit not enforced, memory no limit not enforced, disk no limit not enforced, \
             processes no limit not enforced"
        );
        let all = r#"{"NanoCpus":1500000000,"Memory":1048576,"MemorySwap":-1,"PidsLimit":5,"StorageOpt":{"size":"7m"}}"#;
        assert_eq!(
            shown(all, Some(7)),
            "cpu 1.5 cores enforced, memory 1 MB approximated, disk 7 MB enforced, processes 5 enforced"
        );
        assert!(shown("{}", Some(9)).contains("disk 9 MB not enforced"));
    }
}
