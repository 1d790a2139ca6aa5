//! Which variables of the caller a command gets to see.
//!
//! A command is often written by a model, and what it prints goes back to one. So the keys with which an agent
//! pays for its own work stay out of its environment, unless `env_passthrough` names them.

use farshell_config::Config;
use farshell_config::choice::HomeMode;
use farshell_config::settings::{Backend, Settings};
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Credentials of Farshell's backends and of code hosts.
const SECRETS: &[&str] = &[
    "SUDO_PASSWORD",
    "MODAL_TOKEN_ID",
    "MODAL_TOKEN_SECRET",
    "DAYTONA_API_KEY",
    "DAYTONA_JWT_TOKEN",
    "GH_TOKEN",
    "GITHUB_TOKEN",
];

/// Settings of Farshell and Hermes: they say nothing to a command, and some hold secrets.
const OUR_PREFIXES: &[&str] = &["FARSHELL_", "HERMES_", "TERMINAL_"];

/// Providers of models: `<name>_API_KEY` and `<name>_TOKEN`, `<name>_AUTH_TOKEN` belong to the agent.
const PROVIDERS: &[&str] = &[
    "ANTHROPIC",
    "AZURE_OPENAI",
    "CEREBRAS",
    "CLAUDE_CODE_OAUTH",
    "COHERE",
    "DEEPSEEK",
    "ELEVENLABS",
    "EXA",
    "FIRECRAWL",
    "FIREWORKS",
    "GEMINI",
    "GLM",
    "GOOGLE",
    "GROQ",
    "HF",
    "HUGGINGFACE",
    "KIMI",
    "MINIMAX",
    "MISTRAL",
    "MOONSHOT",
    "NOUS",
    "NVIDIA",
    "OPENAI",
    "OPENROUTER",
    "PERPLEXITY",
    "REPLICATE",
    "TAVILY",
    "TOGETHER",
    "VOYAGE",
    "XAI",
    "ZAI",
];

/// What follows a provider's name in the name of a secret.
const KEY_SUFFIXES: &[&str] = &["_API_KEY", "_AUTH_TOKEN", "_TOKEN"];

/// The real home directory, for programs that need it although `HOME` is another.
const REAL_HOME: &str = "HERMES_REAL_HOME";

/// Whether a variable stays here.
fn withheld(name: &str) -> bool {
    SECRETS.contains(&name)
        || OUR_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || KEY_SUFFIXES
            .iter()
            .filter_map(|suffix| name.strip_suffix(suffix))
            .any(|provider| PROVIDERS.contains(&provider))
}

/// The environment of a new session, from the caller's.
pub(crate) fn for_session(
    own: impl Iterator<Item = (OsString, OsString)>,
    passed_through: &[String],
    home: &Homes,
) -> Vec<(ByteBuf, ByteBuf)> {
    let mut variables: Vec<(ByteBuf, ByteBuf)> = own
        .filter(|(name, _)| {
            // `HOME` is added below; a name that isn't text is on no list.
            name != "HOME"
                && name
                    .to_str()
                    .is_none_or(|name| !withheld(name) || passed_through.iter().any(|passed| passed == name))
        })
        .map(|(name, value)| (ByteBuf::from(name.into_vec()), ByteBuf::from(value.into_vec())))
        .collect();
    let mut add = |name: &str, value: &Path| {
        variables.push((ByteBuf::from(name), ByteBuf::from(value.as_os_str().as_bytes())));
    };
    if let Some(session) = home.session() {
        add("HOME", session);
    }
    if let Some(real) = &home.real {
        add(REAL_HOME, real);
    }
    variables
}

/// The caller's variables that a command elsewhere gets to see, as they are now. They travel with each call, so that a
/// changed value is seen by the next command, and are written down nowhere. None where a session has the caller's
/// own from its beginning.
pub(crate) fn for_each_call(settings: &Settings, config: &Config) -> Vec<(ByteBuf, ByteBuf)> {
    let (fixed, forwarded): (&[_], &[_]) = match &settings.backend {
        Backend::Local(_) => return Vec::new(),
        Backend::Docker(docker) => (&docker.env, &docker.forward_env),
        Backend::Singularity(singularity) => (&singularity.env, &[]),
        _ => (&[], &[]),
    };
    let fixed = fixed.iter().map(|(name, value)| (name.clone(), value.reveal().to_owned()));
    let named = settings.env_passthrough.iter().chain(forwarded).cloned().collect::<Vec<_>>();
    // What is forwarded counts for more than what is fixed.
    let all: BTreeMap<String, String> = fixed.chain(config.forwarded(&named)).collect();
    let sound = |(_, value): &(String, String)| !value.contains('\0');
    all.into_iter().filter(sound).map(|(name, value)| (ByteBuf::from(name), ByteBuf::from(value))).collect()
}

/// The two directories that can be a command's home.
#[derive(Clone, Debug)]
pub(crate) struct Homes {
    real: Option<PathBuf>,
    /// Set if it is to be used.
    profile: Option<PathBuf>,
}

impl Homes {
    /// `real` is the caller's `HOME`, `hermes` the Hermes home.
    pub(crate) fn choose(mode: HomeMode, real: Option<&OsStr>, hermes: &Path) -> Self {
        let profile = hermes.join("home");
        let use_profile = match mode {
            HomeMode::Real => false,
            HomeMode::Profile => true,
            HomeMode::Auto => profile.is_dir(),
        };
        Self {
            real: real.filter(|home| !home.is_empty()).map(PathBuf::from),
            profile: use_profile.then_some(profile),
        }
    }

    pub(crate) fn session(&self) -> Option<&Path> {
        self.profile.as_deref().or(self.real.as_deref())
    }

    pub(crate) fn real(&self) -> Option<&Path> {
        self.real.as_deref()
    }

    /// The directory that must be there before a session starts, if that is ours to see to.
    pub(crate) fn profile(&self) -> Option<&Path> {
        self.profile.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_settings_stay_here() {
        for name in [
            "OPENAI_API_KEY",
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_AUTH_TOKEN",
            "AZURE_OPENAI_API_KEY",
            "GH_TOKEN",
            "HF_TOKEN",
            "GITHUB_TOKEN",
            "SUDO_PASSWORD",
            "MODAL_TOKEN_ID",
            "MODAL_TOKEN_SECRET",
            "DAYTONA_API_KEY",
            "TERMINAL_TIMEOUT",
            "FARSHELL_SERVER_IDLE",
            "HERMES_HOME",
            "HERMES_REAL_HOME",
            "CLAUDE_CODE_OAUTH_TOKEN",
        ] {
            assert!(withheld(name), "{name}");
        }
        for name in [
            "PATH",
            "HOME",
            "TERM",
            "VIRTUAL_ENV",
            "CONDA_PREFIX",
            "API_KEY",
            "MY_API_KEY",
            "AWS_PROFILE",
            "TERMINALS",
        ] {
            assert!(!withheld(name), "{name}");
        }
    }

    #[test]
    fn a_name_in_env_passthrough_is_seen() {
        let own = || {
            [("PATH", "/bin"), ("HOME", "/h"), ("GH_TOKEN", "t"), ("OPENAI_API_KEY", "k")]
                .map(|(n, v)| (n.into(), v.into()))
                .into_iter()
        };
        let homes = Homes::choose(HomeMode::Profile, Some("/h".as_ref()), Path::new("/hermes"));
        let seen = for_session(own(), &["GH_TOKEN".into()], &homes);
        let expected =
            [("PATH", "/bin"), ("GH_TOKEN", "t"), ("HOME", "/hermes/home"), ("HERMES_REAL_HOME", "/h")];
        assert_eq!(seen, expected.map(|(n, v)| (ByteBuf::from(n), ByteBuf::from(v))));
    }
}
