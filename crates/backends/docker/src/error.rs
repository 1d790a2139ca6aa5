//! What it means when the engine can't be reached, or says no.

use crate::config::Config;
use crate::dial::NoConnection;
use crate::endpoint::{Address, Endpoint};
use bollard::errors::Error as Api;
use farshell_engine::{Error, Kind};
use std::io;
use std::path::Path;

/// The HTTP status of a refusal, and the engine's own words.
pub(crate) fn refusal(error: &Api) -> Option<(u16, &str)> {
    match error {
        Api::DockerResponseServerError { status_code, message } => Some((*status_code, message.trim())),
        _ => None,
    }
}

pub(crate) fn is_status(error: &Api, status: u16) -> bool {
    refusal(error).is_some_and(|(code, _)| code == status)
}

pub(crate) fn is_unreachable(error: &Api) -> bool {
    unreachable(error).is_some()
}

/// The way to the engine failed, not a request.
fn unreachable(error: &Api) -> Option<&io::Error> {
    match error {
        Api::IOError { err } => Some(&err.get_ref()?.downcast_ref::<NoConnection>()?.0),
        _ => None,
    }
}

/// An error of the Engine API, for the reader.
pub(crate) fn explain(
    operation: impl Into<String>,
    error: Api,
    config: &Config,
    endpoint: &Endpoint,
) -> Error {
    let operation = operation.into();
    if let Some(reason) = unreachable(&error) {
        return no_engine(operation, reason, config, endpoint);
    }
    match error {
        Api::DockerResponseServerError { status_code, message } => {
            let message = message.trim();
            let error = Error::new(kind_of(status_code, message), operation, message);
            match hint_for(message) {
                Some(hint) => error.with_hint(hint),
                None => error,
            }
        }
        Api::RequestTimeoutError => {
            let message = format!("the engine at {} did not answer in time", endpoint.address);
            Error::new(Kind::TimedOut, operation, message)
        }
        // A connection that broke in the middle of an answer.
        error @ (Api::IOError { .. } | Api::HyperResponseError { .. }) => {
            let message = format!("the connection to the engine at {} broke: {error}", endpoint.address);
            Error::new(Kind::Disconnected, operation, message).with_source(error)
        }
        error @ (Api::JsonDataError { .. } | Api::JsonSerdeError { .. }) => {
            let message = format!("what answers at {} is no Docker engine: {error}", endpoint.address);
            Error::new(Kind::Protocol, operation, message).with_source(error)
        }
        error => Error::new(Kind::System, operation, error.to_string()).with_source(error),
    }
}

fn kind_of(status: u16, message: &str) -> Kind {
    let full = ["no space left on device", "disk quota exceeded", "cannot allocate memory"];
    if full.iter().any(|text| message.to_lowercase().contains(text)) {
        return Kind::Exhausted;
    }
    match status {
        400 => Kind::Invalid,
        401 | 403 => Kind::PermissionDenied,
        404 => Kind::NotFound,
        409 => Kind::Busy,
        _ => Kind::Unavailable,
    }
}

/// What to do about something that an engine or a container said.
pub(crate) fn hint_for(message: &str) -> Option<&'static str> {
    let said = message.to_lowercase();
    let hints = [
        ("docker-init", "the engine has no init program: install tini (Debian's docker.io recommends it)"),
        ("catatonit", "the engine has no init program: install catatonit"),
        ("no space left on device", "make room on the engine's disk: `docker system df` shows what takes it"),
        ("range of cpus", "lower container_cpu"),
        ("minimum memory limit", "raise container_memory"),
        ("is too old. minimum supported api version", "update farshell: the engine is too new for it"),
        ("client version", "update the engine: farshell needs API 1.41 or later"),
        ("could not select device driver", "the engine knows no such GPU: install its container toolkit"),
    ];
    hints.iter().find(|(text, _)| said.contains(text)).map(|(_, hint)| *hint)
}

/// Not installed, not running, not permitted: three different things to do.
fn no_engine(operation: String, reason: &io::Error, config: &Config, endpoint: &Endpoint) -> Error {
    let at = format!("{} ({})", endpoint.address, endpoint.source);
    let default = endpoint.source == "the default";
    match (&endpoint.address, reason.kind()) {
        (Address::Unix(_), io::ErrorKind::NotFound) if default && !installed(config) => {
            let podman = config.variable("XDG_RUNTIME_DIR").map(|dir| Path::new(dir).join("podman/podman.sock"));
            let podman = podman.filter(|path| path.exists());
            let hint = match podman {
                Some(path) => format!("to use podman, set DOCKER_HOST=unix://{}", path.display()),
                None => "install Docker (https://docs.docker.com/engine/install), or name another engine in DOCKER_HOST"
                    .to_owned(),
            };
            Error::new(Kind::Unavailable, operation, format!("Docker is not installed: no engine at {at}"))
                .with_hint(hint)
        }
        (Address::Unix(_), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            let hint = if default {
                "start it: `sudo systemctl start docker`, or Docker Desktop"
            } else {
                "start the engine, or name another one"
            };
            Error::new(Kind::Unavailable, operation, format!("Docker is not running: nothing listens at {at}"))
                .with_hint(hint)
        }
        (Address::Unix(_), io::ErrorKind::PermissionDenied) => {
            Error::new(Kind::PermissionDenied, operation, format!("this user may not use the Docker engine at {at}"))
                .with_hint("`sudo usermod -aG docker $USER`, then log in again (members of that group are as good as root), or use a rootless engine")
        }
        (Address::Ssh { host, .. }, _) => {
            Error::new(Kind::Unavailable, operation, format!("the Docker engine at {at} can't be reached: {reason}"))
                .with_hint(format!(
                    "`ssh {host} docker version` has to work without a question: the docker program is needed there"
                ))
        }
        _ => Error::new(Kind::Unavailable, operation, format!("the Docker engine at {at} can't be reached: {reason}"))
            .with_hint("is the address right, and does the engine listen there?"),
    }
}

/// The engine's program, or the one that talks to it, is there.
fn installed(config: &Config) -> bool {
    let path = config.variable("PATH").unwrap_or("/usr/bin:/bin:/usr/sbin:/sbin");
    std::env::split_paths(path).any(|dir| ["dockerd", "docker"].iter().any(|name| dir.join(name).is_file()))
}
