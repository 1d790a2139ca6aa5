//! Where Modal is, and who asks: variables, and the profiles of `~/.modal.toml`.

use super::error::{ClientError, Fault, Result};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Modal's own.
const SERVERS: &str = "https://api.modal.com,https://api.modal2.com";
const WHAT: &str = "reading Modal's settings";
/// A file larger than this is none of Modal's.
const MOST: u64 = 1 << 20;

/// What a client needs. The token is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Access {
    /// Tried in this order.
    pub servers: Vec<String>,
    pub token_id: String,
    pub token_secret: String,
    /// Modal's own word for a part of a workspace. Empty: the workspace's default.
    pub environment: String,
    /// The release of Modal's image builder; without it the environment's.
    pub image_builder_version: Option<String>,
    /// How long Modal may make us wait in all when it throttles. It is obeyed for ten minutes at most.
    pub max_throttle_wait: Option<Duration>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("servers", &self.servers)
            .field("environment", &self.environment)
            .finish_non_exhaustive()
    }
}

/// Where values come from, in this order.
struct Sources<'a> {
    process: &'a BTreeMap<String, String>,
    files: &'a BTreeMap<String, String>,
    profile: BTreeMap<String, String>,
}

impl Sources<'_> {
    /// From the caller's variables, or the profile.
    fn own(&self, key: &str) -> Option<String> {
        set(self.process, &variable(key)).or_else(|| set(&self.profile, key))
    }

    /// The same, or from the files in between.
    fn any(&self, key: &str) -> Option<String> {
        let name = variable(key);
        set(self.process, &name).or_else(|| set(self.files, &name)).or_else(|| set(&self.profile, key))
    }
}

fn variable(key: &str) -> String {
    format!("MODAL_{}", key.to_uppercase())
}

fn set(map: &BTreeMap<String, String>, name: &str) -> Option<String> {
    map.get(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

fn wrong(why: impl Into<String>) -> ClientError {
    ClientError::new(WHAT, Fault::Forbidden(why.into()))
}

impl Access {
    /// From `MODAL_*` and the profile in `~/.modal.toml`, or in the file that `MODAL_CONFIG_PATH` names. `process` are
    /// variables of whoever asks, `files` what lies in files beside. Where the token goes to is not taken from those: a file
    /// in a directory that somebody else wrote must not say that.
    ///
    /// # Errors
    /// There is no token, or the file can't be used.
    pub fn load(process: &BTreeMap<String, String>, files: &BTreeMap<String, String>) -> Result<Self> {
        let path = match set(process, "MODAL_CONFIG_PATH") {
            Some(path) => Some(PathBuf::from(path)),
            None => set(process, "HOME").map(|home| Path::new(&home).join(".modal.toml")),
        };
        let named = set(process, "MODAL_PROFILE");
        let profile = match path {
            Some(path) => profile(&path, named.as_deref())?,
            None => BTreeMap::new(),
        };
        let sources = Sources { process, files, profile };
        let (id, secret) = (sources.any("token_id"), sources.any("token_secret"));
        let (token_id, token_secret) = match (id, secret) {
            (Some(id), Some(secret)) => (id, secret),
            (None, None) => {
                return Err(ClientError::new(WHAT, Fault::NoToken("there is no token for Modal".into())));
            }
            (Some(_), None) => {
                return Err(ClientError::new(
                    WHAT,
                    Fault::NoToken("there is a token id for Modal, and no token secret".into()),
                ));
            }
            (None, Some(_)) => {
                return Err(ClientError::new(
                    WHAT,
                    Fault::NoToken("there is a token secret for Modal, and no token id".into()),
                ));
            }
        };
        let max_throttle_wait = match sources.own("max_throttle_wait") {
            Some(text) => {
                let seconds: f64 = text
                    .parse()
                    .ok()
                    .filter(|seconds: &f64| seconds.is_finite() && *seconds >= 0.0)
                    .ok_or_else(|| {
                        wrong(format!("MODAL_MAX_THROTTLE_WAIT is {text:?}, and no number of seconds"))
                    })?;
                Duration::try_from_secs_f64(seconds).ok()
            }
            None => None,
        };
        let servers = sources.own("server_url").unwrap_or_else(|| SERVERS.to_owned());
        Ok(Self {
            servers: servers
                .split(',')
                .map(|one| one.trim().to_owned())
                .filter(|one| !one.is_empty())
                .collect(),
            token_id,
            token_secret,
            environment: sources.any("environment").unwrap_or_default(),
            image_builder_version: sources.own("image_builder_version"),
            max_throttle_wait,
        })
    }
}

/// The values of the active profile.
fn profile(path: &Path, named: Option<&str>) -> Result<BTreeMap<String, String>> {
    let shown = path.display();
    let text = match std::fs::metadata(path) {
        Ok(meta) if meta.len() > MOST => return Err(wrong(format!("{shown} is too large to be Modal's"))),
        _ => std::fs::read_to_string(path),
    };
    let text = match text {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return match named {
                Some(name) => {
                    Err(wrong(format!("MODAL_PROFILE names the profile {name:?}, and there is no {shown}")))
                }
                None => Ok(BTreeMap::new()),
            };
        }
        Err(error) => return Err(wrong(format!("{shown} can't be read: {error}"))),
    };
    // Not the parser's own words, which show the line: there may be a secret in it.
    let table: toml::Table = toml::from_str(&text).map_err(|error| {
        let line =
            error.span().map_or(0, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        wrong(format!("line {line} of {shown} can't be understood"))
    })?;
    let mut profiles = BTreeMap::new();
    for (name, value) in table {
        let toml::Value::Table(values) = value else {
            return Err(wrong(format!(
                "{name:?} in {shown} is not a table; each profile is one, as in [{name}]"
            )));
        };
        profiles.insert(name, values);
    }
    let active: Vec<&String> = profiles
        .iter()
        .filter(|(_, values)| values.get("active").and_then(toml::Value::as_bool) == Some(true))
        .map(|(name, _)| name)
        .collect();
    let chosen = match (named, active.as_slice()) {
        (Some(name), _) if profiles.contains_key(name) => name.to_owned(),
        (Some(name), _) => {
            return Err(wrong(format!("MODAL_PROFILE names the profile {name:?}, which is not in {shown}")));
        }
        (None, []) if profiles.len() > 1 => {
            return Err(wrong(format!(
                "there are several profiles in {shown}, and none of them is active; `modal profile activate NAME` makes one"
            )));
        }
        (None, []) => "default".to_owned(),
        (None, [one]) => (*one).clone(),
        (None, _) => return Err(wrong(format!("more than one profile in {shown} is active"))),
    };
    let values = profiles.remove(&chosen).unwrap_or_default();
    let text = |value: toml::Value| match value {
        toml::Value::String(text) => Some(text),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Boolean(yes) => Some(yes.to_string()),
        _ => None,
    };
    Ok(values.into_iter().filter_map(|(key, value)| Some((key, text(value)?))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    /// With a file of these contents.
    fn load(text: &str, variables: &[(&str, &str)]) -> Result<Access> {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join(".modal.toml"), text).unwrap();
        let mut process = map(variables);
        process.insert("HOME".into(), home.path().to_str().unwrap().into());
        Access::load(&process, &BTreeMap::new())
    }

    const TWO: &str = "[a]\ntoken_id = 'ak-a'\ntoken_secret = 'as-a'\n[b]\ntoken_id = 'ak-b'\ntoken_secret = 'as-b'\nenvironment = 'dev'\n";

    #[test]
    fn a_profile_is_chosen_and_variables_come_first() {
        let one = load("[default]\ntoken_id = 'ak-1'\ntoken_secret = 'as-1'\n", &[]).unwrap();
        assert_eq!((one.token_id.as_str(), one.environment.as_str(), one.servers.len()), ("ak-1", "", 2));
        let b = load(&format!("{TWO}active = true\n"), &[]).unwrap();
        assert_eq!((b.token_id.as_str(), b.environment.as_str()), ("ak-b", "dev"));
        let a =
            load(&format!("{TWO}active = true\n"), &[("MODAL_PROFILE", "a"), ("MODAL_ENVIRONMENT", "main")])
                .unwrap();
        assert_eq!((a.token_secret.as_str(), a.environment.as_str()), ("as-a", "main"));
        let mixed = load(
            "[default]\ntoken_secret = 'as-1'\n",
            &[("MODAL_TOKEN_ID", "ak-x"), ("MODAL_MAX_THROTTLE_WAIT", "2.5")],
        )
        .unwrap();
        assert_eq!(
            (mixed.token_id.as_str(), mixed.max_throttle_wait),
            ("ak-x", Some(Duration::from_millis(2500)))
        );
    }

    #[test]
    fn a_file_that_says_too_much_or_too_little_is_an_error() {
        let says = |text: &str, variables: &[(&str, &str)]| load(text, variables).unwrap_err().message();
        assert!(says(TWO, &[]).contains("none of them is active"));
        let both = TWO.replace("token_id", "active = true\ntoken_id");
        assert!(says(&both, &[]).contains("more than one profile"));
        assert!(says(TWO, &[("MODAL_PROFILE", "c")]).contains("\"c\", which is not in"));
        assert!(says("x = 1\n", &[]).contains("\"x\" in"));
        assert!(says("", &[]).contains("there is no token"));
        assert!(says("[default]\ntoken_id = 'ak-1'\n", &[]).contains("no token secret"));
        let torn = says("[default]\ntoken_secret = 'as-very-secret\n", &[]);
        assert!(torn.contains("line 2") && !torn.contains("very-secret"), "{torn}");
        let missing = Access::load(&map(&[("HOME", "/nonexistent"), ("MODAL_PROFILE", "a")]), &map(&[]));
        assert!(missing.unwrap_err().message().contains("there is no /nonexistent/.modal.toml"));
    }

    #[test]
    fn the_address_never_comes_from_beside_and_nothing_shows_the_token() {
        let files = map(&[
            ("MODAL_TOKEN_ID", "ak-secret"),
            ("MODAL_TOKEN_SECRET", "as-secret"),
            ("MODAL_SERVER_URL", "https://evil.example"),
        ]);
        let access = Access::load(&map(&[]), &files).unwrap();
        assert_eq!(access.servers, ["https://api.modal.com", "https://api.modal2.com"]);
        assert!(!format!("{access:?}").contains("secret"), "{access:?}");
        let own = Access::load(&map(&[("MODAL_SERVER_URL", "http://127.0.0.1:1, ")]), &files).unwrap();
        assert_eq!(own.servers, ["http://127.0.0.1:1"]);
    }
}
