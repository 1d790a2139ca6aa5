//! What the `docker` program knows about a registry's users: `docker login` writes it, and this reads it.

use crate::config::Config;
use crate::endpoint::docker_dir;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bollard::auth::DockerCredentials;
use farshell_engine::{Error, Kind, Result};
use serde::Deserialize;
use std::collections::HashMap;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// The name under which the `docker` program keeps Docker Hub's.
const HUB: &str = "https://index.docker.io/v1/";
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ConfigFile {
    auths: HashMap<String, Auth>,
    creds_store: Option<String>,
    cred_helpers: HashMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Auth {
    auth: Option<String>,
    identitytoken: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Helped {
    username: String,
    secret: String,
}

/// The registry that an image's name begins with.
fn registry_of(image: &str) -> &str {
    match image.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => host,
        _ => HUB,
    }
}

pub(crate) async fn credentials(config: &Config, image: &str) -> Result<Option<DockerCredentials>> {
    let Some(dir) = docker_dir(config) else { return Ok(None) };
    let Ok(text) = std::fs::read_to_string(dir.join("config.json")) else { return Ok(None) };
    // What is wrong with the file is said where the engine is looked for.
    let Ok(file) = serde_json::from_str::<ConfigFile>(&text) else { return Ok(None) };
    let registry = registry_of(image);
    let with =
        |username: Option<String>, password: Option<String>, token: Option<String>| DockerCredentials {
            username,
            password,
            identitytoken: token,
            serveraddress: Some(registry.to_owned()),
            ..DockerCredentials::default()
        };
    if let Some(helper) = file.cred_helpers.get(registry).or(file.creds_store.as_ref()) {
        let Some(helped) = ask(config, helper, registry).await? else { return Ok(None) };
        return Ok(Some(match helped.username.as_str() {
            "<token>" => with(None, None, Some(helped.secret)),
            _ => with(Some(helped.username), Some(helped.secret), None),
        }));
    }
    let https = format!("https://{registry}");
    let Some(auth) = file.auths.get(registry).or_else(|| file.auths.get(&https)) else { return Ok(None) };
    if let Some(token) = &auth.identitytoken {
        return Ok(Some(with(None, None, Some(token.clone()))));
    }
    let pair = auth.auth.as_ref().and_then(|text| STANDARD.decode(text).ok());
    let pair = pair.and_then(|bytes| String::from_utf8(bytes).ok());
    Ok(pair.and_then(|pair| {
        let (name, password) = pair.split_once(':')?;
        Some(with(Some(name.to_owned()), Some(password.trim_end_matches('\0').to_owned()), None))
    }))
}

/// Asks the program that keeps the passwords. `None`: it has none for this registry.
async fn ask(config: &Config, helper: &str, registry: &str) -> Result<Option<Helped>> {
    let program = format!("docker-credential-{helper}");
    let what = format!("asking {program} about {registry}");
    if helper.contains(['/', '\0']) {
        return Err(Error::new(Kind::Invalid, what, "that is not the name of a program"));
    }
    let mut command = Command::new(&program);
    command.arg("get").env_clear().envs(&config.environment);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let work = async {
        let mut child = command.spawn()?;
        if let Some(mut input) = child.stdin.take() {
            let _ = input.write_all(registry.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    let output = match tokio::time::timeout(PATIENCE, work).await {
        Ok(output) => output.map_err(|e| Error::io(what, e))?,
        Err(_) => return Err(Error::new(Kind::TimedOut, what, "it did not answer")),
    };
    // What it printed may be a secret: none of it goes into an error.
    Ok(output.status.success().then(|| serde_json::from_slice(&output.stdout).ok()).flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_image_it_is() {
        for (image, expected) in [
            ("debian", HUB),
            ("nikolaik/python-nodejs:x", HUB),
            ("ghcr.io/a/b", "ghcr.io"),
            ("localhost/a", "localhost"),
            ("host:5000/a", "host:5000"),
        ] {
            assert_eq!(registry_of(image), expected);
        }
    }
}
