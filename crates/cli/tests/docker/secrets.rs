//! What is forwarded is seen by commands, and by nobody else.

use crate::world::Docker;
use std::path::Path;

const TOKEN: &str = "t0psecretvalue";

#[test]
fn forwarded_variables_are_seen_by_commands_and_picked_up_anew() {
    let Some(docker) = Docker::new() else { return };
    docker.config("docker_forward_env: [TOKEN, ' TOKEN', 'not a name', GONE]\ndocker_env: {FIXED: one}");
    std::fs::write(docker.world().hermes().join(".env"), "TOKEN=from-file\n").unwrap();
    let show = "echo \"${TOKEN-unset} ${FIXED-unset} ${GONE-unset} ${HERMES_HOME-unset}\"; printenv TOKEN";
    assert_eq!(docker.says(show), "from-file one unset unset\nfrom-file\n");
    let container = docker.container();
    assert_eq!(docker.says_with(&[("TOKEN", TOKEN)], show), format!("{TOKEN} one unset unset\n{TOKEN}\n"));
    assert_eq!(docker.says_with(&[("TOKEN", "")], show), " one unset unset\n\n");
    std::fs::write(docker.world().hermes().join(".env"), "").unwrap();
    assert_eq!(docker.says("echo ${TOKEN-unset}"), "unset\n");
    assert_eq!(docker.container(), container, "none of it made another container");
    let report = docker.world().json(&["doctor", "docker", "--json"]);
    assert!(report["settings"]["warnings"].to_string().contains("not a name"), "{report}");
}

#[test]
fn they_are_in_no_description_no_argument_and_no_log() {
    let Some(docker) = Docker::new() else { return };
    docker.config(&format!("docker_forward_env: [TOKEN]\ndocker_env: {{FIXED: {TOKEN}-fixed}}"));
    let command =
        "printenv TOKEN FIXED | wc -l; tr '\\0' ' ' < /proc/$$/cmdline; touch /workspace/begun; sleep 2";
    let running = docker.world().command(&["run", command]).env("TOKEN", TOKEN).spawn().unwrap();
    docker.wait_for("begun");
    let background =
        docker.world().command(&["run", "--background", "sleep 100"]).env("TOKEN", TOKEN).spawn().unwrap();
    assert_eq!(crate::rig::finish(background).code, 0);
    // On this machine, which sees the container's processes too.
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        assert!(!holds(&line), "{}", String::from_utf8_lossy(&line));
    }
    assert!(!docker.docker(&["inspect", &docker.container()]).contains(TOKEN));
    assert!(!docker.docker(&["logs", &docker.container()]).contains(TOKEN));
    let said = crate::rig::finish(running);
    assert!(said.stdout.starts_with("2\n") && !said.stdout.contains(TOKEN), "{said:?}");
    for args in [&["env", "show", "--json"][..], &["ps", "--json", "--all"], &["events", "--json"]] {
        assert!(!docker.world().call(args).stdout.contains(TOKEN), "{args:?}");
    }
    no_secret_below(&docker.world().hermes().join("farshell"));
}

fn holds(bytes: &[u8]) -> bool {
    bytes.windows(TOKEN.len()).any(|part| part == TOKEN.as_bytes())
}

fn no_secret_below(dir: &Path) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            no_secret_below(&entry.path());
        } else if kind.is_file() {
            assert!(!holds(&std::fs::read(entry.path()).unwrap()), "{:?}", entry.path());
        }
    }
}
