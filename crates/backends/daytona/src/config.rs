//! What the Daytona backend needs to know.

use crate::client::{Access, Client, Resources};
use crate::error::explain;
use farshell_config::settings::DaytonaSettings;
use farshell_engine::{Error, Kind, Result};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The most that Daytona gives to one sandbox unless it was asked for more.
const MOST_DISK: u32 = 10;

/// Settings of the Daytona backend. Nothing else is read: not the environment of this process, nor its directory.
#[derive(Clone, PartialEq)]
pub struct Config {
    /// Farshell's home: it owns the sandboxes.
    pub home: PathBuf,
    pub settings: DaytonaSettings,
    /// Variables of whoever asks: `DAYTONA_API_KEY`, `DAYTONA_API_URL` and so on.
    pub environment: BTreeMap<String, String>,
    /// The same from `.env`. An address is not taken from there.
    pub files: BTreeMap<String, String>,
}

/// Variables may be secret.
impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("home", &self.home)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Config {
    pub(crate) fn client(&self) -> Result<Client> {
        let what = "preparing the daytona backend";
        let Some(access) = Access::from_variables(&self.environment, &self.files) else {
            return Err(Error::new(Kind::Invalid, what, "DAYTONA_API_KEY is not set").with_hint(
                "create a key at app.daytona.io and store it with `farshell config set DAYTONA_API_KEY -`",
            ));
        };
        Client::new(&access).map_err(|error| explain(what, error))
    }

    /// Whole cores and gigabytes, rounded up, as Daytona counts them. What is not limited is left to Daytona.
    pub(crate) fn resources(&self) -> Resources {
        let limits = &self.settings.container;
        let gigabytes = |mb: Option<u64>, usual: u32| {
            mb.map_or(usual, |mb| u32::try_from(mb.div_ceil(1024)).unwrap_or(u32::MAX).max(1))
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "settings allow 0 to 4096 cores"
        )]
        let cpu = limits.cpu.map_or(1, |cores| (cores.ceil() as u32).max(1));
        Resources {
            cpu,
            memory: gigabytes(limits.memory_mb, 1),
            disk: gigabytes(limits.disk_mb, 3).min(MOST_DISK),
        }
    }

    /// What is said about a disk that is smaller than asked for.
    pub(crate) fn disk_note(&self) -> Option<String> {
        let asked = self.settings.container.disk_mb?;
        (asked > u64::from(MOST_DISK) * 1024).then(|| {
            format!("container_disk is {asked} MB, and a sandbox has at most {MOST_DISK} GiB: it gets that")
        })
    }

    /// Minutes after which a stopped sandbox is deleted, as Daytona counts them: 0 is at once, -1 never.
    pub(crate) fn auto_delete(&self) -> i64 {
        match (self.settings.container.persistent, self.settings.auto_delete_minutes) {
            (false, _) => 0,
            (true, 0) => -1,
            (true, minutes) => i64::from(minutes),
        }
    }
}

#[cfg(test)]
pub(crate) fn sample() -> Config {
    Config {
        home: "/home/me/.hermes/farshell".into(),
        settings: DaytonaSettings {
            image: "debian:12".into(),
            target: None,
            auto_stop_minutes: 15,
            auto_archive_minutes: 10_080,
            auto_delete_minutes: 0,
            container: farshell_config::settings::ContainerSettings {
                cpu: Some(0.5),
                memory_mb: Some(5120),
                disk_mb: Some(51_200),
                persistent: true,
            },
        },
        environment: BTreeMap::new(),
        files: BTreeMap::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_rounded_up_and_the_disk_is_capped_aloud() {
        let mut config = sample();
        assert_eq!(config.resources(), Resources { cpu: 1, memory: 5, disk: 10 });
        assert!(config.disk_note().unwrap().contains("51200 MB"));
        let limits = &mut config.settings.container;
        (limits.cpu, limits.memory_mb, limits.disk_mb) = (Some(1.5), Some(1025), Some(10_240));
        assert_eq!(config.resources(), Resources { cpu: 2, memory: 2, disk: 10 });
        assert_eq!(config.disk_note(), None);
        let limits = &mut config.settings.container;
        (limits.cpu, limits.memory_mb, limits.disk_mb) = (None, None, None);
        assert_eq!(config.resources(), Resources { cpu: 1, memory: 1, disk: 3 });
    }

    #[test]
    fn without_a_key_it_says_how_to_get_one_and_nothing_shows_it() {
        let mut config = sample();
        let error = config.client().unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (Kind::Invalid, "DAYTONA_API_KEY is not set"));
        config.files.insert("DAYTONA_API_KEY".into(), "dtn_secret".into());
        let client = config.client().unwrap();
        assert!(!format!("{config:?} {client:?}").contains("secret"));
    }

    #[test]
    fn what_is_not_to_be_kept_goes_when_it_stops() {
        let mut config = sample();
        assert_eq!(config.auto_delete(), -1);
        config.settings.auto_delete_minutes = 7;
        assert_eq!(config.auto_delete(), 7);
        config.settings.container.persistent = false;
        assert_eq!(config.auto_delete(), 0);
    }
}
