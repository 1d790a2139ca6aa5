//! Contexts: the named engines of the `docker` program, read from its own files.

use crate::config::Config;
use crate::endpoint::{Endpoint, TlsFiles, WHAT, parse};
use farshell_engine::{Error, Kind, Result};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::path::Path;

/// The name that stands for "no context".
const DEFAULT: &str = "default";

#[derive(Deserialize)]
struct ConfigFile {
    #[serde(rename = "currentContext", default)]
    current_context: Option<String>,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(rename = "Name")]
    name: String,
    #[serde(rename = "Endpoints", default)]
    endpoints: Endpoints,
}

#[derive(Default, Deserialize)]
struct Endpoints {
    docker: Option<MetaEndpoint>,
}

#[derive(Deserialize)]
struct MetaEndpoint {
    #[serde(rename = "Host", default)]
    host: String,
    #[serde(rename = "SkipTLSVerify", default)]
    skip_tls_verify: bool,
}

/// The engine of the context that is selected, if one is.
pub(crate) fn selected(config: &Config, dir: Option<&Path>) -> Result<Option<Endpoint>> {
    let by_variable = config.variable("DOCKER_CONTEXT").map(str::to_owned);
    let name = match (by_variable, dir) {
        (Some(name), _) => Some(name),
        (None, Some(dir)) => current(&dir.join("config.json"))?,
        (None, None) => None,
    };
    let Some(name) = name.filter(|name| name != DEFAULT && !name.is_empty()) else { return Ok(None) };
    let unknown = || {
        let known = dir.map(names).unwrap_or_default();
        let known = if known.is_empty() { "there is none".into() } else { known.join(", ") };
        Error::new(Kind::Invalid, WHAT, format!("there is no Docker context {name:?} (known: {known})"))
            .with_hint("`docker context ls` lists them; `docker context use` selects one")
    };
    let dir = dir.ok_or_else(unknown)?;
    let hash: String = Sha256::digest(&name).iter().map(|b| format!("{b:02x}")).collect();
    let path = dir.join("contexts/meta").join(&hash).join("meta.json");
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(unknown()),
        Err(error) => return Err(Error::io(format!("reading {}", path.display()), error)),
    };
    let broken = |message: String| {
        Error::new(Kind::Invalid, WHAT, format!("the Docker context {name:?} {message}"))
            .with_hint(format!("see {}", path.display()))
    };
    let meta: Meta = serde_json::from_str(&text).map_err(|e| broken(format!("can't be read: {e}")))?;
    let Some(endpoint) = meta.endpoints.docker else { return Err(broken("has no Docker engine".into())) };
    if endpoint.skip_tls_verify {
        return Err(broken("says not to check the engine's certificate, which farshell always does".into()));
    }
    let tls = dir.join("contexts/tls").join(&hash).join("docker");
    let tls = tls.is_dir().then_some(TlsFiles { dir: Some(tls) });
    let address =
        parse(&endpoint.host, tls).map_err(|e| broken(format!("is at {:?}: {e}", endpoint.host)))?;
    Ok(Some(Endpoint { address, source: format!("context {name:?}") }))
}

fn current(path: &Path) -> Result<Option<String>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        // Nobody but its owner can say what is in it: as good as none.
        Err(_) => return Ok(None),
    };
    let file: ConfigFile = serde_json::from_str(&text).map_err(|e| {
        Error::new(
            Kind::Invalid,
            WHAT,
            format!("{} is not what the docker program writes: {e}", path.display()),
        )
        .with_hint("repair it, or name the engine in DOCKER_HOST")
    })?;
    Ok(file.current_context)
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir.join("contexts/meta")).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("meta.json")).ok())
        .filter_map(|text| Some(serde_json::from_str::<Meta>(&text).ok()?.name))
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::config;

    fn write(dir: &Path, name: &str, meta: &str) {
        let hash: String = Sha256::digest(name).iter().map(|b| format!("{b:02x}")).collect();
        let dir = dir.join("contexts/meta").join(hash);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("meta.json"), meta).unwrap();
    }

    #[test]
    fn the_variable_goes_before_the_file_and_default_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        write(dir, "lab", r#"{"Name":"lab","Endpoints":{"docker":{"Host":"ssh://lab"}}}"#);
        write(
            dir,
            "loose",
            r#"{"Name":"loose","Endpoints":{"docker":{"Host":"tcp://a","SkipTLSVerify":true}}}"#,
        );
        write(dir, "empty", r#"{"Name":"empty","Endpoints":{}}"#);
        std::fs::write(dir.join("config.json"), r#"{"auths":{},"currentContext":"lab"}"#).unwrap();
        let ask = |name: Option<&str>| {
            let mut config = config();
            if let Some(name) = name {
                config.environment.insert("DOCKER_CONTEXT".into(), name.into());
            }
            match selected(&config, Some(dir)) {
                Ok(found) => found.map_or("none".into(), |e| format!("{} by {}", e.address, e.source)),
                Err(error) => error.message,
            }
        };
        assert_eq!(ask(None), r#"ssh://lab by context "lab""#);
        assert_eq!(ask(Some("default")), "none");
        assert_eq!(ask(Some("x")), r#"there is no Docker context "x" (known: empty, lab, loose)"#);
        assert!(ask(Some("loose")).contains("which farshell always does"));
        assert!(ask(Some("empty")).contains("has no Docker engine"));
        std::fs::write(dir.join("config.json"), "{").unwrap();
        assert!(ask(None).contains("config.json"));
        std::fs::remove_file(dir.join("config.json")).unwrap();
        assert_eq!(ask(None), "none");
    }
}
