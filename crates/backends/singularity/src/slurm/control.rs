//! Slurm's own programs.

use super::job::{FORMAT, Job, Phase};
use crate::config::Config;
use crate::error::plain;
use crate::program::{in_path, variables};
use farshell_engine::{Error, Kind, Result};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// How long one may take. They try again by themselves while the controller is busy.
const ANSWER: Duration = Duration::from_secs(60);
/// The programs that are needed.
pub(crate) const PROGRAMS: [&str; 4] = ["sbatch", "squeue", "scancel", "srun"];
/// What they need of the caller's environment beside what Apptainer does.
const NEEDED: [&str; 1] = ["SLURM_CONF"];

/// What a program said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) good: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Said {
    /// Why it failed, without the names that programs put before it.
    pub(crate) fn why(&self) -> String {
        let text = if self.stderr.trim().is_empty() { &self.stdout } else { &self.stderr };
        let line = |line: &str| {
            let mut line = line.trim();
            for prefix in ["sbatch: ", "squeue: ", "scancel: ", "srun: ", "slurm_load_jobs ", "error: "] {
                line = line.strip_prefix(prefix).unwrap_or(line);
            }
            line.to_owned()
        };
        plain(&text.lines().map(line).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n"))
    }
}

/// How handing in a job went.
#[derive(Debug)]
pub(crate) enum Submitted {
    Job(u32),
    /// Slurm does not want it.
    Refused(String),
    /// It may be there.
    Unsure(String),
}

/// Slurm, as this user reaches it from here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Control<'a> {
    config: &'a Config,
}

impl<'a> Control<'a> {
    pub(crate) fn new(config: &'a Config) -> Self {
        Self { config }
    }

    pub(crate) fn find(self, name: &str) -> Result<PathBuf> {
        in_path(self.config, name.as_ref()).ok_or_else(|| {
            let message = format!("singularity_slurm is set, and {name} is not in PATH");
            Error::new(Kind::Unavailable, "preparing the singularity backend", message).with_hint(
                "run Farshell where jobs can be handed in (a login node), load Slurm's module before the server starts, or \
                 `farshell config unset singularity_slurm`",
            )
        })
    }

    /// A program with what it needs, and with nothing else of the caller's environment.
    pub(crate) fn command(self, name: &str) -> Result<Command> {
        let mut command = Command::new(self.find(name)?);
        command.env_clear().envs(variables(self.config)).current_dir("/");
        command.envs(NEEDED.iter().filter_map(|name| Some((name, self.config.variable(name)?))));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        Ok(command)
    }

    pub(crate) async fn ask(self, name: &str, args: &[&str]) -> Result<Said> {
        self.tell(name, args, None).await
    }

    pub(crate) async fn tell(self, name: &str, args: &[&str], input: Option<&str>) -> Result<Said> {
        let what = format!("running {name}");
        let mut command = self.command(name)?;
        command.args(args);
        if input.is_some() {
            command.stdin(Stdio::piped());
        }
        let mut child = command.spawn().map_err(|e| Error::io(&what, e))?;
        let stdin = child.stdin.take();
        let talk = async {
            if let (Some(mut stdin), Some(input)) = (stdin, input) {
                // One that does not read it says why.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
            child.wait_with_output().await
        };
        let output = match tokio::time::timeout(ANSWER, talk).await {
            Ok(output) => output.map_err(|e| Error::io(&what, e))?,
            Err(_) => {
                let message = format!("no answer in {} s", ANSWER.as_secs());
                return Err(Error::new(Kind::TimedOut, what, message).with_hint(unreachable()));
            }
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        Ok(Said { good: output.status.success(), stdout, stderr })
    }

    /// Hands in a job.
    pub(crate) async fn submit(self, args: &[&str], script: &str) -> Result<Submitted> {
        let said = match self.tell("sbatch", args, Some(script)).await {
            Ok(said) => said,
            Err(error) if error.kind == Kind::TimedOut => return Ok(Submitted::Unsure(error.message)),
            Err(error) => return Err(error),
        };
        // `12`, or `12;cluster`
        let id = said.stdout.trim().split(';').next().and_then(|id| id.parse().ok());
        Ok(match id.filter(|_| said.good) {
            Some(id) => Submitted::Job(id),
            None if is_refusal(&said.stderr) => Submitted::Refused(said.why()),
            None => Submitted::Unsure(said.why()),
        })
    }

    /// All jobs of this user, also those that have just ended.
    pub(crate) async fn mine(self) -> Result<Vec<Job>> {
        self.list(&[]).await
    }

    /// Those with a name.
    pub(crate) async fn named(self, name: &str) -> Result<Vec<Job>> {
        self.list(&["--name", name]).await
    }

    async fn list(self, which: &[&str]) -> Result<Vec<Job>> {
        let mut args = vec!["--noheader", "--me", "--states=all", "-o", FORMAT];
        args.extend(which);
        let said = self.ask("squeue", &args).await?;
        if !said.good {
            return Err(unanswered(&said));
        }
        Ok(said.stdout.lines().filter_map(Job::parse).collect())
    }

    /// One job. `None`: Slurm does not know it, or not any more.
    pub(crate) async fn job(self, id: u32, name: &str) -> Result<Option<Job>> {
        let number = id.to_string();
        let said =
            self.ask("squeue", &["--noheader", "--states=all", "--jobs", &number, "-o", FORMAT]).await?;
        if !said.good {
            return match said.stderr.contains("Invalid job id") {
                true => Ok(None),
                false => Err(unanswered(&said)),
            };
        }
        // Numbers are used again, some day.
        let same = |job: &Job| job.id == id && job.name == name;
        Ok(said.stdout.lines().filter_map(Job::parse).find(same))
    }

    /// How many jobs are before this one in its partition, as far as this user may see them.
    pub(crate) async fn before(self, job: &Job) -> Option<usize> {
        let args =
            ["--noheader", "--states=PENDING", "--partition", &job.partition, "--sort=-p,i", "-o", "%A"];
        let said = self.ask("squeue", &args).await.ok().filter(|said| said.good)?;
        let number = job.id.to_string();
        said.stdout.lines().position(|line| line.trim() == number)
    }

    /// Who cancelled a job, where accounts are kept.
    pub(crate) async fn canceller(self, job: &Job) -> Option<u32> {
        if !matches!(&job.phase, Phase::Ended(how) if how == "CANCELLED") {
            return None;
        }
        let number = job.id.to_string();
        let said = self.ask("sacct", &["-n", "-P", "-X", "-j", &number, "-o", "State"]).await.ok()?;
        said.stdout.lines().next_back()?.rsplit_once(" by ")?.1.trim().parse().ok()
    }

    /// Ends jobs. Those that are over are no error. With `queued`, only such as have not begun.
    pub(crate) async fn cancel(self, ids: &[u32], queued: bool) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let mut args: Vec<&str> = ids.iter().map(String::as_str).collect();
        if queued {
            args.insert(0, "--state=PENDING");
        }
        let said = self.ask("scancel", &args).await?;
        let over = ["already complet", "Invalid job id"];
        if said.good || over.iter().any(|over| said.stderr.contains(over)) {
            return Ok(());
        }
        Err(Error::new(Kind::Unavailable, format!("cancelling Slurm job {}", ids.join(", ")), said.why())
            .with_hint("it may still run; `scancel` it by hand if this stays like this"))
    }
}

/// Slurm has looked at it and said no. Everything else may have got through.
fn is_refusal(stderr: &str) -> bool {
    const UNSURE: [&str; 6] =
        ["timed out", "Unable to contact", "Zero Bytes", "Connection", "Communication", "Transport endpoint"];
    let about = stderr.split_once("Batch job submission failed:").map(|(_, why)| why);
    match about {
        Some(why) => !UNSURE.iter().any(|word| why.contains(word)),
        // It did not even try: an option that it does not take.
        None => !UNSURE.iter().any(|word| stderr.contains(word)) && stderr.contains("sbatch: "),
    }
}

fn unreachable() -> &'static str {
    "jobs that run go on; `scontrol ping` shows whether Slurm's controller answers"
}

fn unanswered(said: &Said) -> Error {
    Error::new(Kind::Disconnected, "asking Slurm about jobs", said.why()).with_hint(unreachable())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sample;

    #[tokio::test]
    async fn who_cancelled_a_job_is_known_where_accounts_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = sample();
        config.environment.insert("PATH".into(), dir.path().display().to_string());
        let ended = |state: &str| Job::parse(&format!("12|{state}|n1|0:00|x|p|n|c|None")).unwrap();
        let cancelled = ended("CANCELLED");
        assert_eq!(Control::new(&config).canceller(&cancelled).await, None, "there is no sacct");
        let path = dir.path().join("sacct");
        for (said, expected) in [
            ("echo 'CANCELLED by 4242'", Some(4242)),
            ("echo CANCELLED", None),
            ("echo 'Slurm accounting storage is disabled' >&2; exit 1", None),
            ("echo 'CANCELLED by root'", None),
        ] {
            // It asks about this job alone.
            let text = format!("#!/bin/sh\n[ \"$5\" = 12 ] || exit 1\n{said}\n");
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            assert_eq!(Control::new(&config).canceller(&cancelled).await, expected, "{said}");
            assert_eq!(Control::new(&config).canceller(&ended("TIMEOUT")).await, None);
        }
    }

    #[test]
    fn what_may_have_got_through_is_no_refusal() {
        for (text, expected) in [
            ("sbatch: error: Batch job submission failed: Invalid partition name specified", true),
            ("sbatch: error: invalid time limit specification", true),
            ("sbatch: unrecognized option '--prefer'", true),
            ("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", false),
            (
                "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
                false,
            ),
            ("sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received", false),
            ("Killed", false),
            ("", false),
        ] {
            assert_eq!(is_refusal(text), expected, "{text}");
        }
        let said = Said {
            good: false,
            stdout: String::new(),
            stderr: "sbatch: error: Batch job submission failed: Invalid partition name specified\n".into(),
        };
        assert_eq!(said.why(), "Batch job submission failed: Invalid partition name specified");
    }
}
