//! Which engine is meant.
//!
//! As the `docker` program decides it: `DOCKER_HOST`, then `DOCKER_CONTEXT` or the current context, then the usual
//! sockets. Podman's socket is taken only if `DOCKER_HOST` or a context names it.

use crate::config::Config;
use crate::contexts;
use farshell_engine::{Error, Kind, Result};
use std::path::{Path, PathBuf};

pub(crate) const WHAT: &str = "finding the Docker engine";
const SYSTEM_SOCKET: &str = "/var/run/docker.sock";

/// An engine's address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Endpoint {
    pub(crate) address: Address,
    /// What named it, for people: `DOCKER_HOST`, `context "lab"`, `the default`.
    pub(crate) source: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Address {
    Unix(PathBuf),
    Tcp { host: String, port: u16, tls: Option<TlsFiles> },
    Ssh { user: Option<String>, host: String, port: Option<u16> },
}

/// Where the certificates of a TLS endpoint lie.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TlsFiles {
    /// Holds `ca.pem`, `cert.pem` and `key.pem`, each if it is there.
    pub(crate) dir: Option<PathBuf>,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp { host, port, .. } if host.contains(':') => write!(f, "tcp://[{host}]:{port}"),
            Self::Tcp { host, port, .. } => write!(f, "tcp://{host}:{port}"),
            Self::Ssh { user, host, port } => {
                f.write_str("ssh://")?;
                user.as_ref().map_or(Ok(()), |user| write!(f, "{user}@"))?;
                f.write_str(host)?;
                port.map_or(Ok(()), |port| write!(f, ":{port}"))
            }
        }
    }
}

impl Endpoint {
    pub(crate) fn resolve(config: &Config) -> Result<Self> {
        if let Some(host) = config.variable("DOCKER_HOST") {
            let verify = config.environment.get("DOCKER_TLS_VERIFY").is_some_and(|v| !v.is_empty());
            let tls = (verify || config.variable("DOCKER_TLS").is_some()).then(|| TlsFiles {
                dir: config.variable("DOCKER_CERT_PATH").map(PathBuf::from).or_else(|| docker_dir(config)),
            });
            let address = parse(host, tls).map_err(|message| {
                Error::new(Kind::Invalid, WHAT, format!("DOCKER_HOST is {host:?}: {message}"))
                    .with_hint("for example unix:///var/run/docker.sock, tcp://host:2376 or ssh://user@host")
            })?;
            return Ok(Self { address, source: "DOCKER_HOST".into() });
        }
        if let Some(found) = contexts::selected(config, docker_dir(config).as_deref())? {
            return Ok(found);
        }
        let rootless = config.variable("XDG_RUNTIME_DIR").map(|dir| Path::new(dir).join("docker.sock"));
        let path = match rootless {
            Some(rootless) if !Path::new(SYSTEM_SOCKET).exists() && rootless.exists() => rootless,
            _ => SYSTEM_SOCKET.into(),
        };
        Ok(Self { address: Address::Unix(path), source: "the default".into() })
    }

    /// The engine may run on this machine and see its files.
    pub(crate) fn may_be_here(&self) -> bool {
        matches!(self.address, Address::Unix(_))
    }
}

/// Where the `docker` program keeps its settings.
pub(crate) fn docker_dir(config: &Config) -> Option<PathBuf> {
    let set = config.variable("DOCKER_CONFIG").map(PathBuf::from);
    set.or_else(|| Some(Path::new(config.variable("HOME")?).join(".docker")))
}

/// An address as `DOCKER_HOST` and contexts write it.
pub(crate) fn parse(text: &str, tls: Option<TlsFiles>) -> std::result::Result<Address, String> {
    let (scheme, rest) = text.split_once("://").unwrap_or(("tcp", text));
    let rest = if scheme == "unix" { rest } else { rest.trim_end_matches('/') };
    match scheme {
        "unix" if rest.starts_with('/') => Ok(Address::Unix(rest.into())),
        "unix" => Err("the path of the socket has to be absolute".into()),
        "tcp" | "http" | "https" => {
            let tls = if scheme == "https" { Some(tls.unwrap_or(TlsFiles { dir: None })) } else { tls };
            let (host, port) = host_and_port(rest)?;
            let port = port.unwrap_or(if tls.is_some() { 2376 } else { 2375 });
            Ok(Address::Tcp { host, port, tls })
        }
        "ssh" => {
            let (user, rest) = match rest.rsplit_once('@') {
                Some((user, rest)) => (Some(user.to_owned()), rest),
                None => (None, rest),
            };
            if user.as_ref().is_some_and(|user| user.is_empty() || user.contains(':')) {
                return Err("a password has no place in it, and an empty user is none".into());
            }
            let (host, port) = host_and_port(rest)?;
            // It becomes an argument of ssh.
            if host.starts_with('-') || user.as_ref().is_some_and(|user| user.starts_with('-')) {
                return Err("neither user nor host can begin with a hyphen".into());
            }
            Ok(Address::Ssh { user, host, port })
        }
        other => Err(format!("farshell can't reach an engine by {other:?}, only by unix, tcp or ssh")),
    }
}

fn host_and_port(text: &str) -> std::result::Result<(String, Option<u16>), String> {
    if text.contains('/') {
        return Err("an address with a path is not supported".into());
    }
    let (host, port) = match text.strip_prefix('[').and_then(|t| t.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None => match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let port = match port.filter(|port| !port.is_empty()) {
        Some(port) => Some(port.parse().map_err(|_| format!("{port:?} is not a port"))?),
        None => None,
    };
    let host = if host.is_empty() { "127.0.0.1" } else { host };
    if host.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err("the host's name has a blank in it".into());
    }
    Ok((host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        parse(text, None).map_or_else(|error| format!("error: {error}"), |address| address.to_string())
    }

    #[test]
    fn addresses() {
        for (text, expected) in [
            ("unix:///var/run/docker.sock", "unix:///var/run/docker.sock"),
            ("unix://docker.sock", "error: the path of the socket has to be absolute"),
            ("tcp://10.0.0.1", "tcp://10.0.0.1:2375"),
            ("tcp://host:1234/", "tcp://host:1234"),
            ("https://host", "tcp://host:2376"),
            ("host:99", "tcp://host:99"),
            ("tcp://[::1]:99", "tcp://[::1]:99"),
            ("tcp://:99", "tcp://127.0.0.1:99"),
            ("tcp://host:none", "error: \"none\" is not a port"),
            ("tcp://host/path", "error: an address with a path is not supported"),
            ("ssh://me@host:2222", "ssh://me@host:2222"),
            ("ssh://host", "ssh://host"),
            ("ssh://me:secret@host", "error: a password has no place in it, and an empty user is none"),
            ("ssh://-oProxyCommand=x", "error: neither user nor host can begin with a hyphen"),
            (
                "npipe:////./pipe/x",
                "error: farshell can't reach an engine by \"npipe\", only by unix, tcp or ssh",
            ),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }
}
