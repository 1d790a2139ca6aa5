//! A home of its own on the engine that the rig has started, and no container of it left at the end.

use crate::rig::{World, wait_until};
use serde_json::Value;
use std::process::{Child, Command};

pub(crate) struct Docker {
    world: Option<World>,
    host: String,
}

impl Docker {
    /// Nothing if there is no engine, and that is said. Where tests must run, it is a failure.
    pub(crate) fn new() -> Option<Self> {
        let host = needed("FARSHELL_TEST_DOCKER")?;
        let image = needed("FARSHELL_TEST_IMAGE")?;
        Some(Self::on(&host, &image))
    }

    pub(crate) fn on(host: &str, image: &str) -> Self {
        let world = World::new().with("DOCKER_HOST", host).with("TERMINAL_ENV", "docker");
        let docker = Self { world: Some(world), host: host.to_owned() };
        docker.config(&format!("docker_image: {image}"));
        docker
    }

    pub(crate) fn world(&self) -> &World {
        self.world.as_ref().unwrap()
    }

    /// Adds settings, one on each line.
    pub(crate) fn config(&self, lines: &str) {
        let path = self.world().hermes().join("config.yaml");
        let mut text = std::fs::read_to_string(&path).unwrap_or_else(|_| "terminal:\n".into());
        for line in lines.lines() {
            text.push_str(&format!("  {line}\n"));
        }
        std::fs::write(path, text).unwrap();
    }

    /// What a command prints, which must succeed.
    pub(crate) fn says(&self, command: &str) -> String {
        self.says_with(&[], command)
    }

    pub(crate) fn says_with(&self, variables: &[(&str, &str)], command: &str) -> String {
        let child = self.world().command(&["run", command]).envs(variables.iter().copied()).spawn().unwrap();
        let said = crate::rig::finish(child);
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{command}: {said:?}");
        said.stdout
    }

    /// In another session.
    pub(crate) fn says_in(&self, session: &str, command: &str) -> String {
        let said = self.world().call(&["run", "-s", session, command]);
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{command}: {said:?}");
        said.stdout
    }

    /// The object that `run --json` prints.
    pub(crate) fn json(&self, command: &str) -> Value {
        let said = self.world().call(&["run", "--json", command]);
        assert_eq!(said.stderr, "", "{command}: {said:?}");
        said.json()
    }

    pub(crate) fn spawn(&self, args: &[&str]) -> Child {
        self.world().command(args).spawn().unwrap()
    }

    /// What the engine's own program says.
    pub(crate) fn docker(&self, args: &[&str]) -> String {
        let output = Command::new("docker").args(["-H", &self.host]).args(args).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "docker {args:?}: {}", text(&output.stderr));
        text(&output.stdout).trim().to_owned()
    }

    fn owner(&self) -> String {
        let home = std::fs::canonicalize(self.world().hermes()).unwrap();
        format!("label=farshell.owner={}", home.join("farshell").display())
    }

    /// The ids of this home's containers, running or not.
    pub(crate) fn containers(&self) -> Vec<String> {
        let list = self.docker(&["ps", "-aq", "--no-trunc", "--filter", &self.owner()]);
        list.lines().map(str::to_owned).collect()
    }

    /// The names of this home's volumes that no container uses.
    pub(crate) fn unused_volumes(&self) -> Vec<String> {
        let list =
            self.docker(&["volume", "ls", "-q", "--filter", "dangling=true", "--filter", &self.owner()]);
        list.lines().map(str::to_owned).collect()
    }

    pub(crate) fn container(&self) -> String {
        let all = self.containers();
        assert_eq!(all.len(), 1, "{all:?}");
        all[0].clone()
    }

    pub(crate) fn is_running(&self, container: &str) -> bool {
        self.docker(&["inspect", "-f", "{{.State.Running}}", container]) == "true"
    }

    /// Waits until a file that a command makes is there. Persistent files are seen from outside.
    pub(crate) fn wait_for(&self, name: &str) {
        let file = self.sandbox().join("workspace").join(name);
        wait_until(name, || file.exists());
    }

    pub(crate) fn sandbox(&self) -> std::path::PathBuf {
        self.world().hermes().join("sandboxes/docker/default")
    }

    pub(crate) fn stop_server(&self) {
        assert_eq!(self.world().call(&["server", "stop"]).code, 0);
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        let owner = self.owner();
        // It ends its environments.
        drop(self.world.take());
        let args = ["-H", &self.host, "ps", "-aq", "--filter", &owner];
        let left = Command::new("docker").args(args).output().unwrap().stdout;
        let left = String::from_utf8_lossy(&left).into_owned();
        for id in left.lines() {
            let _ = Command::new("docker").args(["-H", &self.host, "rm", "-fv", id]).output();
        }
        assert!(left.is_empty() || std::thread::panicking(), "containers stay: {left}");
    }
}

/// A variable of the rig's.
pub(crate) fn needed(name: &str) -> Option<String> {
    farshell_testing::var(name, "docker")
}
