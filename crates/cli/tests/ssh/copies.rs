//! Files to the host and back, and what else of this home is there.

use crate::rig::{World, finish, wait_until};
use crate::{says, world};
use std::process::{Command, Stdio};

const LARGE: usize = 48 << 20;

/// Kills every connection of this home.
pub(crate) fn kill_masters(world: &World) {
    let room = world.hermes().join("farshell/run/ssh");
    for entry in std::fs::read_dir(room).into_iter().flatten().flatten() {
        let check =
            Command::new("ssh").args(["-F", "none", "-O", "check", "-S"]).arg(entry.path()).arg("x").output();
        let said = String::from_utf8_lossy(&check.unwrap().stderr).into_owned();
        if let Some(pid) = said.split_once("pid=").and_then(|(_, rest)| rest.split(')').next()) {
            let _ = Command::new("kill").args(["-9", pid]).status();
        }
    }
}

#[test]
fn a_tree_goes_there_and_comes_back() {
    let Some(world) = world() else { return };
    let src = world.work().join("src");
    std::fs::create_dir_all(src.join("a/b")).unwrap();
    for n in 0..100 {
        std::fs::write(src.join(format!("a/b/{n}")), format!("{n}\n")).unwrap();
    }
    std::os::unix::fs::symlink("/etc", src.join("out")).unwrap();
    let to = format!("cp-{}", std::process::id());
    let push = world.json(&["cp", "--json", "src", &format!(":{to}")]);
    assert_eq!((push["files"].as_u64(), push["backend"].as_str()), (Some(101), Some("ssh")), "{push}");
    assert_eq!(says(&world, &format!("cat {to}/a/b/42; readlink {to}/out")), "42\n/etc\n");
    let pull = world.json(&["cp", "--json", &format!(":{to}"), "back"]);
    assert_eq!(pull["files"], 101, "{pull}");
    assert_eq!(std::fs::read_to_string(world.work().join("back/a/b/99")).unwrap(), "99\n");
    let again = world.json(&["cp", "--json", "src", &format!(":{to}")]);
    assert_eq!((again["files"].as_u64(), again["unchanged"].as_u64()), (Some(0), Some(101)), "{again}");
    says(&world, &format!("rm -r {to}"));
}

#[test]
fn a_copy_goes_on_when_the_connection_is_killed() {
    let Some(world) = world() else { return };
    let bytes: Vec<u8> = (0..LARGE).map(|n| (n / 89 + n % 251) as u8).collect();
    std::fs::write(world.work().join("big"), &bytes).unwrap();
    let to = format!("cut-{}", std::process::id());
    let home = says(&world, &format!("mkdir {to}; cd {to}; pwd; cd ~")).trim().to_owned();
    // The host shares this machine's files, so what has come can be seen.
    let child =
        world.command(&["cp", "--json", "big", &format!(":{to}/")]).stdout(Stdio::piped()).spawn().unwrap();
    let come = || {
        let entries = std::fs::read_dir(&home).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.metadata().ok()).map(|meta| meta.len()).max().unwrap_or(0)
    };
    wait_until("some of it", || come() > 2 << 20);
    kill_masters(&world);
    let said = finish(child);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
    assert!(std::fs::read(format!("{home}/big")).unwrap() == bytes, "the bytes are the same");
    assert_eq!(says(&world, &format!("ls -A {to}; rm -r {to}")), "big\n");
}

#[test]
fn credentials_are_put_there_for_their_owner_only() {
    let Some(world) = world() else { return };
    let name = format!("token-{}", std::process::id());
    std::fs::create_dir(world.hermes().join("keys")).unwrap();
    std::fs::write(world.hermes().join("keys").join(&name), "s3cret").unwrap();
    let world = world.with("TERMINAL_CREDENTIAL_FILES", &format!("[\"keys/{name}\"]"));
    let command = format!("cd ~/.hermes/keys; pwd; stat -c %a {name}; cat {name}");
    let told = says(&world, &command);
    let (dir, rest) = told.split_once('\n').unwrap();
    assert_eq!(rest, "600\ns3cret");
    // The host shares this machine's files.
    std::fs::remove_file(std::path::Path::new(dir).join(&name)).unwrap();
    let outside = world.with("TERMINAL_CREDENTIAL_FILES", "[\"../secret\"]");
    let said = outside.call(&["run", "-t", "other", "true"]);
    assert!(said.code == 125 && said.stderr.contains("credential_files"), "{said:?}");
}

#[test]
fn what_no_record_claims_is_found_and_removed() {
    let Some(world) = world() else { return };
    says(&world, "true");
    assert_eq!(world.call(&["server", "stop"]).code, 0);
    // As if the home had been restored from before.
    for file in std::fs::read_dir(world.hermes().join("farshell")).unwrap().flatten() {
        if file.file_name().to_string_lossy().starts_with("state.db") {
            std::fs::remove_file(file.path()).unwrap();
        }
    }
    let ours = |said: &serde_json::Value| {
        let found = said["found"].as_array().unwrap();
        found.iter().filter(|item| item["backend"] == "ssh").count()
    };
    assert_eq!(ours(&world.json(&["gc", "--json"])), 1);
    assert_eq!(ours(&world.json(&["gc", "--yes", "--json"])), 1);
    assert_eq!(ours(&world.json(&["gc", "--json"])), 0);
}
