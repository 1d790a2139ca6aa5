//! `farshell serve`: being the server, here or in the background.
//!
//! In the background there are two processes: one that was called, which waits until its server answers and says
//! what became of it; and the server, in a session of its own, with nothing of its caller's open. The server tells
//! the first one by a line of JSON on its standard output, and lets go of that.

use crate::args::ServeArgs;
use crate::output::{self, Outcome, Stop, api_error, code, notice};
use crate::{load, reach, registry};
use farshell_api::ApiError;
use farshell_api::error::ErrorBody;
use farshell_api::server::ServerStatus;
use farshell_engine::{Error, Kind};
use farshell_server::{ServeOptions, Tls};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

const STARTING: &str = "starting the server";
/// A server in the background ends after so long with nothing to do.
const IDLE: Duration = Duration::from_secs(300);
/// Says otherwise, in seconds; counts in the foreground too.
const IDLE_VARIABLE: &str = "FARSHELL_SERVER_IDLE";
/// How long a server may take until it answers.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn run(args: &ServeArgs) -> Outcome {
    if args.daemon && !args.detached {
        return daemon(args);
    }
    let served = serve(args);
    if args.detached
        && let Err(Stop::Failed(error)) = &served
    {
        // Whoever waits for it is told; nobody reads standard error but the log.
        say(&ErrorBody { error: (**error).clone() });
    }
    other_serves(served)
}

/// A home that has a server is no failure of a program that wants one. Nor is a server that somebody killed while it
/// started: another attempt may fare better.
fn other_serves(outcome: Outcome) -> Outcome {
    match outcome {
        Err(Stop::Failed(error))
            if [Kind::AlreadyExists, Kind::Disconnected].map(Kind::name).contains(&error.kind.as_str()) =>
        {
            output::print_error(&error);
            Ok(code::NO)
        }
        other => other,
    }
}

fn serve(args: &ServeArgs) -> Outcome {
    let home = reach::home()?;
    let background = args.detached;
    if background {
        // Signals of the caller's terminal are not meant for a server.
        let _ = rustix::process::setsid();
    }
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let options = ServeOptions {
        home,
        backends: Arc::new(registry::Registry),
        listen: args.listen.clone(),
        idle: idle(background)?,
        tls: args.tls_cert.clone().zip(args.tls_key.clone()).map(|(cert, key)| Tls { cert, key }),
        version: env!("CARGO_PKG_VERSION").into(),
    };
    farshell_server::runtime()?.block_on(farshell_server::serve(options, |status| {
        if background {
            say(status);
            let_go();
        }
    }))?;
    Ok(0)
}

fn idle(background: bool) -> Result<Option<Duration>, Error> {
    let Some(text) = std::env::var_os(IDLE_VARIABLE) else { return Ok(background.then_some(IDLE)) };
    let seconds = text.to_str().and_then(|text| text.trim().parse::<f64>().ok());
    match seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
        Some(idle) => Ok(Some(idle)),
        None => Err(output::invalid(
            STARTING,
            format!("{IDLE_VARIABLE} is {:?}, which is not a number of seconds", text.to_string_lossy()),
        )),
    }
}

/// One line for whoever waits.
fn say(value: &impl serde::Serialize) {
    // If nobody waits any more, that is no reason not to serve.
    let _ = output::print_json_line(value);
}

/// Standard output is nobody's any more.
fn let_go() {
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

/// Starts a server that outlives this process, and waits for it.
fn daemon(args: &ServeArgs) -> Outcome {
    let home = reach::home()?;
    let log = open_log(&home)?;
    // It must not hold on to what its caller has open: others wait for the end of that.
    close_fds::set_fds_cloexec(3, &[]);
    let program = std::env::current_exe().map_err(|e| Error::io(STARTING, e))?;
    let mut command = Command::new(program);
    command.args(["serve", "--detached"]);
    for address in &args.listen {
        command.arg("--listen").arg(address.to_string());
    }
    for (name, file) in [("--tls-cert", &args.tls_cert), ("--tls-key", &args.tls_key)] {
        if let Some(file) = file {
            command.arg(name).arg(std::path::absolute(file).map_err(|e| Error::io(STARTING, e))?);
        }
    }
    command.env("HERMES_HOME", &home).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    let child = command.spawn().map_err(|e| Error::io(STARTING, e))?;
    match heard(child) {
        Ok(status) => {
            notice(&format!("server {} serves {}", status.pid, status.home));
            Ok(0)
        }
        Err(error) => other_serves(Err(error.into())),
    }
}

fn open_log(home: &Path) -> Result<File, Error> {
    let paths = farshell_server::paths(home);
    let io = |error| {
        Error::io(format!("opening {}", paths.log.display()), error)
            .with_hint("make the directory writable, or set HERMES_HOME to one that is")
    };
    DirBuilder::new().recursive(true).mode(0o700).create(&paths.dir).map_err(io)?;
    OpenOptions::new().append(true).create(true).mode(0o600).open(&paths.log).map_err(io)
}

/// What the server says first.
fn heard(mut child: Child) -> Result<ServerStatus, ApiError> {
    let failed = |message: String| {
        api_error(Error::new(Kind::Unavailable, STARTING, message).with_hint(match load::context(None) {
            Ok(context) => {
                format!("its log is {}", farshell_server::paths(context.home.root()).log.display())
            }
            Err(_) => "its log is in $HERMES_HOME/farshell/server".into(),
        }))
    };
    let Some(stdout) = child.stdout.take() else { return Err(failed("it can't be heard".into())) };
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = BufReader::new(stdout).read_line(&mut line);
        // Nobody waits any more after the time is up.
        let _ = sender.send(read.map(|_| line));
    });
    let line = match receiver.recv_timeout(PATIENCE) {
        Ok(read) => read.unwrap_or_default(),
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
            // One that is half started serves nobody.
            let _ = child.kill();
            let _ = child.wait();
            return Err(failed(format!("it does not answer within {} s", PATIENCE.as_secs())));
        }
    };
    if let Ok(status) = serde_json::from_str::<ServerStatus>(&line) {
        return Ok(status);
    }
    if let Ok(body) = serde_json::from_str::<ErrorBody>(&line) {
        return Err(body.error);
    }
    match child.wait() {
        Ok(status) => {
            let mut error = failed(format!("it ended at once ({status})"));
            if status.signal().is_some() {
                Kind::Disconnected.name().clone_into(&mut error.kind);
            }
            Err(error)
        }
        Err(e) => Err(failed(format!("it ended at once ({e})"))),
    }
}
