//! The whole program, with a home of its own: `farshell run` as a process, and the API of its server.

use farshell_api::run::{RunRequest, StartRequest, Target, default_session};
use farshell_api::tool::ToolCall;
use farshell_client::Client;
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
        // As the library's sessions are.
        std::fs::write(program.home.path().join("config.yaml"), "terminal:\n  persistent_shell: true\n")?;
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

/// A connection to the program's server.
#[derive(Debug)]
pub struct Api(Client);

impl Api {
    /// # Errors
    /// It does not answer.
    pub async fn of(program: &Program) -> Result<Self> {
        let client = Client::connect(program.home.path()).await.map_err(|e| e.message)?;
        let api = Self(client);
        api.run("true").await?;
        Ok(api)
    }

    /// One command from request to result.
    ///
    /// # Errors
    /// It failed.
    pub async fn run(&self, command: &str) -> Result<Duration> {
        let request = RunRequest { start: StartRequest::new(command), input: None, max_output: 1 << 10 };
        let start = Instant::now();
        let result = self.0.run(&request).await.map_err(|e| e.message)?;
        let took = start.elapsed();
        if result.exit_code == 0 { Ok(took) } else { Err(format!("{command}: {}", result.exit_code).into()) }
    }
}

impl Api {
    /// One call of a tool from request to result.
    ///
    /// # Errors
    /// It could not do what was asked.
    pub async fn tool(&self, name: &str, arguments: serde_json::Value) -> Result<Duration> {
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        let call = ToolCall { arguments, target: Target::default(), session: default_session() };
        let start = Instant::now();
        let answer = self.0.tool(name, &call).await.map_err(|e| e.message)?;
        let took = start.elapsed();
        if answer.failed { Err(format!("{name}: {:?}", answer.result).into()) } else { Ok(took) }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        for args in [&["env", "rm", "--all", "--force"][..], &["server", "stop"]] {
            let _ = self.command(args).stderr(Stdio::null()).status();
        }
    }
}
