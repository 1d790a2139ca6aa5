//! What the command line says.

use crate::faults::Fault;
use std::path::PathBuf;
use std::time::Duration;

/// How the emulator behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Sandboxes have their files here.
    pub dir: PathBuf,
    /// `127.0.0.1:0` takes any port.
    pub listen: String,
    /// The address that clients are told, if they reach it by way of something else.
    pub origin: Option<String>,
    /// The only key that is let in.
    pub key: String,
    /// How long each change of a state takes.
    pub delay: Duration,
    /// How long a minute of the timers lasts.
    pub minute: Duration,
    /// What is armed from the beginning.
    pub faults: Vec<Fault>,
    /// One of so many requests goes wrong; none if 0.
    pub storm: u32,
}

impl Options {
    /// # Errors
    /// What is wrong with the arguments.
    pub fn parse(args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            dir: PathBuf::new(),
            listen: "127.0.0.1:0".into(),
            origin: None,
            key: "dtn_test".into(),
            delay: Duration::from_millis(50),
            minute: Duration::from_secs(60),
            faults: Vec::new(),
            storm: 0,
        };
        let mut args = args;
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
            let millis =
                || value.parse().map(Duration::from_millis).map_err(|_| format!("{name}: not a number"));
            match name.as_str() {
                "--dir" => options.dir = std::path::absolute(&value).map_err(|e| e.to_string())?,
                "--listen" => options.listen = value,
                "--origin" => options.origin = Some(value),
                "--key" => options.key = value,
                "--delay-ms" => options.delay = millis()?,
                "--minute-ms" => options.minute = millis()?,
                "--faults" => {
                    options.faults = serde_json::from_str(&value).map_err(|e| format!("{name}: {e}"))?;
                }
                "--storm" => options.storm = value.parse().map_err(|_| format!("{name}: not a number"))?,
                _ => return Err(format!("unknown option {name}")),
            }
        }
        if options.dir.as_os_str().is_empty() {
            return Err("--dir is needed".into());
        }
        Ok(options)
    }
}
