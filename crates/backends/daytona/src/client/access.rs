//! Where the API is, and who asks.

use std::collections::BTreeMap;
use std::fmt;

/// Daytona's own.
const DEFAULT_URL: &str = "https://app.daytona.io/api";

/// What a client needs. The key is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Access {
    pub url: String,
    /// An API key, or a JWT for which `organization` is needed.
    pub key: String,
    pub organization: Option<String>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("url", &self.url)
            .field("organization", &self.organization)
            .finish_non_exhaustive()
    }
}

impl Access {
    /// From `DAYTONA_*`. `process` are variables of whoever asks, `files` what lies in files beside. The address is
    /// taken from the first only: a file in a directory that somebody else wrote must not say where the key goes.
    /// Nothing: there is no key.
    #[must_use]
    pub fn from_variables(
        process: &BTreeMap<String, String>,
        files: &BTreeMap<String, String>,
    ) -> Option<Self> {
        let set = |map: &BTreeMap<String, String>, name: &str| {
            map.get(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
        };
        let get = |name: &str| set(process, name).or_else(|| set(files, name));
        let url = set(process, "DAYTONA_API_URL").or_else(|| set(process, "DAYTONA_SERVER_URL"));
        let url = url.unwrap_or_else(|| DEFAULT_URL.to_owned());
        if let Some(key) = get("DAYTONA_API_KEY") {
            // The organisation is the key's.
            return Some(Self { url, key, organization: None });
        }
        Some(Self {
            url,
            key: get("DAYTONA_JWT_TOKEN")?,
            organization: Some(get("DAYTONA_ORGANIZATION_ID")?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn the_address_never_comes_from_a_file() {
        let files = map(&[
            ("DAYTONA_API_KEY", "k"),
            ("DAYTONA_API_URL", "https://evil.example"),
            ("DAYTONA_SERVER_URL", "x"),
        ]);
        let access = Access::from_variables(&map(&[]), &files).unwrap();
        assert_eq!((access.url.as_str(), access.key.as_str()), (DEFAULT_URL, "k"));
        let process = map(&[("DAYTONA_API_URL", "https://mine.example/api"), ("DAYTONA_API_KEY", "p")]);
        let access = Access::from_variables(&process, &files).unwrap();
        assert_eq!((access.url.as_str(), access.key.as_str()), ("https://mine.example/api", "p"));
    }

    #[test]
    fn a_token_needs_an_organisation_and_nothing_shows_a_key() {
        assert_eq!(Access::from_variables(&map(&[("DAYTONA_JWT_TOKEN", "secret-t")]), &map(&[])), None);
        let both = map(&[("DAYTONA_JWT_TOKEN", "secret-t"), ("DAYTONA_ORGANIZATION_ID", "o")]);
        let access = Access::from_variables(&both, &map(&[])).unwrap();
        assert_eq!(access.organization.as_deref(), Some("o"));
        assert!(!format!("{access:?}").contains("secret"), "{access:?}");
    }
}
