//! A world of its own for each test.

use std::fs;
use std::path::PathBuf;

use farshell_config::{Config, Context, HermesHome, InvalidSettings, Resolved};

pub(crate) struct World {
    directory: tempfile::TempDir,
    pub(crate) context: Context,
}

impl World {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("hermes");
        fs::create_dir(&root).unwrap();
        let home = HermesHome::new(root, Some(PathBuf::from("/home/ada")));
        let context = Context { home, environment: [].into(), overrides: Vec::new() };
        Self { directory, context }
    }

    pub(crate) fn yaml(self, text: &str) -> Self {
        fs::write(self.context.home.config_file(), text).unwrap();
        self
    }

    pub(crate) fn dotenv(self, text: &str) -> Self {
        fs::write(self.context.home.env_file(), text).unwrap();
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.context.environment.insert(name.into(), value.into());
        self
    }

    pub(crate) fn given(mut self, key: &str, value: &str) -> Self {
        self.context = self.context.with_override(key, value);
        self
    }

    pub(crate) fn load(&self) -> Config {
        Config::load(self.context.clone()).unwrap()
    }

    pub(crate) fn resolve(&self) -> Result<Resolved, InvalidSettings> {
        self.load().resolve()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn config_text(&self) -> String {
        fs::read_to_string(self.context.home.config_file()).unwrap()
    }

    pub(crate) fn env_text(&self) -> String {
        fs::read_to_string(self.context.home.env_file()).unwrap()
    }

    /// Text in which this world's directory is `~`, so that whole texts can be compared.
    pub(crate) fn plain(&self, text: &dyn std::fmt::Display) -> String {
        text.to_string().replace(&self.context.home.root().display().to_string(), "~")
    }

    /// The error of resolving, as a person sees it.
    pub(crate) fn error(&self) -> String {
        self.plain(&self.resolve().unwrap_err())
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        self.resolve().unwrap().warnings.iter().map(|warning| self.plain(warning)).collect()
    }
}
