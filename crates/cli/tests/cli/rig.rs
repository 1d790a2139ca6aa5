//! A private world for each test: its own home, its own server and outposts, and nothing left behind.

use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take before a test gives up on it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct World {
    root: tempfile::TempDir,
    variables: Vec<(String, String)>,
}

/// What a call came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) code: i32,
}

impl Said {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e} in {self:?}"))
    }
}

/// `stdout`, nothing on stderr, exit code 0.
pub(crate) fn fine(stdout: &str) -> Said {
    said(stdout, "", 0)
}

pub(crate) fn said(stdout: &str, stderr: &str, code: i32) -> Said {
    Said { stdout: stdout.into(), stderr: stderr.into(), code }
}

impl World {
    pub(crate) fn new() -> Self {
        let world = Self { root: tempfile::tempdir().unwrap(), variables: Vec::new() };
        std::fs::create_dir(world.hermes()).unwrap();
        std::fs::create_dir(world.user_home()).unwrap();
        std::fs::create_dir(world.work()).unwrap();
        world
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    pub(crate) fn hermes(&self) -> PathBuf {
        self.root.path().join("hermes")
    }

    pub(crate) fn user_home(&self) -> PathBuf {
        self.root.path().join("home")
    }

    /// Where calls are made from.
    pub(crate) fn work(&self) -> PathBuf {
        self.root.path().join("work")
    }

    pub(crate) fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.root.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farshell"));
        command
            .args(args)
            .current_dir(self.work())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.user_home())
            .env("HERMES_HOME", self.hermes())
            // A test that was killed leaves no server behind for long.
            .env("FARSHELL_SERVER_IDLE", "30")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn call(&self, args: &[&str]) -> Said {
        finish(self.command(args).spawn().unwrap())
    }

    /// `farshell run` with one argument.
    pub(crate) fn run(&self, command: &str) -> Said {
        self.call(&["run", command])
    }

    /// The first line that a call prints, as JSON.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let said = self.call(args);
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{args:?}: {said:?}");
        said.json()
    }

    /// A background process; its id.
    pub(crate) fn background(&self, options: &[&str], command: &str) -> String {
        let said = self.call(&[&["run", "--background"], options, &[command]].concat());
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
        said.stdout.trim().to_owned()
    }

    /// The server's process number.
    pub(crate) fn server(&self) -> Option<i32> {
        let said = self.call(&["server", "status", "--json"]);
        said.json()["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok())
    }

    /// Kills the server at once.
    pub(crate) fn kill_server(&self) {
        use rustix::process::{Pid, Signal, kill_process};
        let Ok(text) = std::fs::read_to_string(self.hermes().join("farshell/server/lock")) else { return };
        let Some(pid) = text.trim().parse().ok().and_then(Pid::from_raw) else { return };
        let _ = kill_process(pid, Signal::KILL);
    }

    /// How long a call takes that has to start a server.
    pub(crate) fn cold_call(&self) -> Duration {
        self.kill_server();
        let start = Instant::now();
        assert_eq!(self.run("true").code, 0);
        start.elapsed()
    }

    pub(crate) fn call_with_input(&self, args: &[&str], input: &[u8]) -> Said {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        let writer = std::thread::spawn(move || {
            // A command may end before it has read everything.
            let _ = stdin.write_all(&input);
        });
        let said = finish(child);
        writer.join().unwrap();
        said
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let farshell = self.hermes().join("farshell");
        if !farshell.join("run").exists() && !farshell.join("server").exists() {
            return;
        }
        // Every environment of this world, whatever its task is called.
        let removed = self.call(&["env", "rm", "--all", "--force"]);
        let stopped = self.call(&["server", "stop", "--force"]);
        if std::thread::panicking() {
            return;
        }
        assert_eq!((removed.code, stopped.code), (0, 0), "{removed:?} {stopped:?}");
        let left: Vec<_> = std::fs::read_dir(farshell.join("run"))
            .map(|entries| entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()))
            // What a backend keeps for its containers or connections is there once it has been used.
            .map(|names| {
                let used = ["daytona", "docker", "modal", "ssh", "singularity"];
                names.filter(|name| !name.starts_with('.') && !used.contains(&name.as_str())).collect()
            })
            .unwrap_or_default();
        assert!(left.is_empty(), "environments stay: {left:?}");
    }
}

pub(crate) fn finish(child: Child) -> Said {
    use std::os::unix::process::ExitStatusExt;
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Said {
        stdout: text(output.stdout),
        stderr: text(output.stderr),
        // A signal that ended farshell itself is never what a test expects.
        code: output.status.code().unwrap_or_else(|| -output.status.signal().unwrap_or(1000)),
    }
}

/// Whether a process whose command line holds this text is there.
pub(crate) fn is_running(marker: &str) -> bool {
    let is_it = |path: &Path| {
        let line = std::fs::read(path.join("cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|b| *b == 0).collect();
        // Not farshell itself, which has the whole command as one word.
        words.first().is_some_and(|w| *w == b"sleep") && words.contains(&marker.as_bytes())
    };
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| is_it(&entry.path()))
}

pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A length of sleep that no other test has: seconds that are also a name.
pub(crate) fn unique_sleep() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("1000.{}{:03}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
