//! Whether a file is what its name says: JSON, YAML, TOML.

use serde::de::IgnoredAny;

/// Names of files that are JSON with comments.
const WITH_COMMENTS: &[&str] =
    &["tsconfig", "jsconfig", "settings.json", "launch.json", "tasks.json", "devcontainer.json", ".eslintrc"];
/// Larger ones are not looked at.
const MOST: usize = 8 << 20;

/// A language that is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    Json,
    Yaml,
    Toml,
}

impl Language {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Json => "JSON",
            Self::Yaml => "YAML",
            Self::Toml => "TOML",
        }
    }

    /// By the file's name.
    pub(crate) fn of(path: &str) -> Option<Self> {
        let name = path.rsplit('/').next()?;
        match name.rsplit_once('.')?.1 {
            "json" if WITH_COMMENTS.iter().any(|known| name.starts_with(known)) => None,
            "json" => Some(Self::Json),
            "yaml" | "yml" => Some(Self::Yaml),
            "toml" => Some(Self::Toml),
            _ => None,
        }
    }

    /// What is wrong with a text, if it is not of this language. An empty one is no JSON, but a file like any other.
    pub(crate) fn problem(self, text: &str) -> Option<String> {
        if text.trim().is_empty() || text.len() > MOST {
            return None;
        }
        match self {
            Self::Json => serde_json::from_str::<IgnoredAny>(text).err().map(|error| error.to_string()),
            // A template of YAML is none yet.
            Self::Yaml if text.contains("{{") || text.contains("{%") => None,
            Self::Yaml => yaml(text),
            Self::Toml => {
                toml::from_str::<toml::Table>(text).err().map(|error| error.to_string().trim().to_owned())
            }
        }
    }
}

/// Each document is looked at by itself.
fn yaml(text: &str) -> Option<String> {
    serde_saphyr::from_multiple::<IgnoredAny>(text).err().map(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_is_checked() {
        assert_eq!(Language::of("/a/b.json"), Some(Language::Json));
        assert_eq!(Language::of("x.yml"), Some(Language::Yaml));
        assert_eq!(Language::of("Cargo.toml"), Some(Language::Toml));
        for path in
            ["tsconfig.json", "tsconfig.base.json", ".vscode/settings.json", "a.jsonc", "json", "a.py"]
        {
            assert_eq!(Language::of(path), None, "{path}");
        }
    }

    #[test]
    fn what_is_wrong_is_found() {
        let problem = |language: Language, text: &str| language.problem(text).is_some();
        assert!(problem(Language::Json, "{\"a\": 1,}"));
        assert!(!problem(Language::Json, "{\"a\": [1, null]}\n"));
        assert!(!problem(Language::Json, ""));
        assert!(problem(Language::Yaml, "a: [1, 2\nb: 3\n"));
        assert!(!problem(Language::Yaml, "a: 1\n---\nb: &x [1]\nc: *x\nd: !custom y\n"));
        assert!(!problem(Language::Yaml, "name: {{ .Values.name }}\n"));
        assert!(problem(Language::Toml, "a = \n"));
        assert!(!problem(Language::Toml, "[a]\nb = 1\n"));
    }
}
