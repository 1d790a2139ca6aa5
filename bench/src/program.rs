//! The whole program: `farshell run` as a process of its own, with a home of its own.

use std::error::Error;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A farshell binary and a home.
#[derive(Debug)]
pub struct Program {
    path: PathBuf,
    home: tempfile::TempDir,
}

impl Program {
    /// The binary that was built beside this one, if there is one.
    ///
    /// # Errors
    /// It does not work.
    pub fn beside_this() -> Result<Option<Self>> {
        let path = std::env::current_exe()?.with_file_name("farshell");
        if !path.is_file() {
            return Ok(None);
        }
        let program = Self { path, home: tempfile::tempdir()? };
        program.run("true")?;
        Ok(Some(program))
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(args).env("HERMES_HOME", self.home.path()).stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// One command that must succeed.
    ///
    /// # Errors
    /// It failed.
    pub fn run(&self, command: &str) -> Result<Duration> {
        let start = Instant::now();
        let status = self.command(&["run", command]).status()?;
        let took = start.elapsed();
        if status.success() { Ok(took) } else { Err(format!("farshell run {command}: {status}").into()) }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        for args in [&["env", "rm", "--all", "--force"][..], &["server", "stop"]] {
            let _ = self.command(args).stderr(Stdio::null()).status();
        }
    }
}
