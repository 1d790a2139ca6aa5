//! Agents come and go with logins, and the server stays.

use crate::rig::{self, World};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// An agent that has the rig's key.
struct Agent(Child);

impl Agent {
    fn start(socket: &Path) -> Self {
        let mut command = Command::new("ssh-agent");
        let agent = command.arg("-D").arg("-a").arg(socket).stdout(Stdio::null()).spawn().unwrap();
        rig::wait_until("an agent", || std::os::unix::net::UnixStream::connect(socket).is_ok());
        let key = std::env::var("FARSHELL_TEST_SSH_KEY").unwrap();
        let added = Command::new("ssh-add").arg("-q").arg(key).env("SSH_AUTH_SOCK", socket).status();
        assert!(added.unwrap().success());
        Self(agent)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Kills what keeps the connection, as a network that is gone for long would.
fn lose_connection(world: &World) {
    let dir = world.hermes().join("farshell/run/ssh");
    let controls: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_none())
        .collect();
    assert_eq!(controls.len(), 1);
    let mut check = Command::new("ssh");
    let said = check.args(["-F", "none", "-O", "check", "-S"]).arg(&controls[0]).arg("x").output().unwrap();
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    let pid = said.split_once("pid=").unwrap().1.split(')').next().unwrap().to_owned();
    assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
}

#[test]
fn a_connection_is_made_again_with_the_agent_of_a_new_login() {
    let Some(world) = crate::world() else { return };
    let file = world.hermes().join("config.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let text: Vec<&str> = text.lines().filter(|line| !line.contains("ssh_key")).collect();
    let text = text.join("\n").replace("ssh_options: [", "ssh_options: [\"IdentityFile=none\", ");
    std::fs::write(&file, text).unwrap();
    let says = |agent: &Path, command: &str| {
        let mut call = world.command(&["run", command]);
        rig::finish(call.env("SSH_AUTH_SOCK", agent).spawn().unwrap())
    };
    let (first, second) = (world.work().join("first"), world.work().join("second"));
    let agent = Agent::start(&first);
    assert_eq!(says(&first, "z=kept"), rig::fine(""));
    drop(agent);
    let agent = Agent::start(&second);
    lose_connection(&world);
    assert_eq!(says(&second, "echo $z"), rig::fine("kept\n"));
    // Somebody whose login is over calls once more: who is there counts.
    lose_connection(&world);
    assert_eq!(says(&first, "echo $z"), rig::fine("kept\n"));
    drop(agent);
    assert_eq!(world.call(&["env", "rm"]).code, 0);
}
