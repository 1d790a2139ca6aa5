//! What the command line says.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

pub const USAGE: &str = "usage: farshell-modal-emulator --dir DIR [--image TAG=DIR|TAG=host]… [--listen ADDRESS]
    [--token-id ID] [--token-secret SECRET] [--second-ms N] [--start-ms N] [--jwt-secs N] [--page N] [--latency-ms N]

Prints the address of its API, then the one of its switches, once it listens; ends when its standard input does.
";

/// What an image is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// A whole root directory.
    Dir(PathBuf),
    /// This machine's programs and settings.
    Host,
}

/// How the emulator behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Sandboxes and images have their files here.
    pub dir: PathBuf,
    /// Tags that can be pulled.
    pub images: BTreeMap<String, Base>,
    /// `127.0.0.1:0` takes any port; the router and the switches always do.
    pub listen: String,
    pub token_id: String,
    pub token_secret: String,
    /// How long a second lasts of idle timeouts, lifetimes, and lives of snapshots.
    pub second: Duration,
    /// How long a sandbox takes to start.
    pub start: Duration,
    /// How long access to the router lasts, in real seconds: clients look at it with their own clocks.
    pub jwt: Duration,
    /// How many sandboxes a page of a list has.
    pub page: usize,
    /// Of a round trip, on every connection.
    pub latency: Duration,
}

impl Options {
    /// # Errors
    /// What is wrong with the arguments.
    pub fn parse(args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            dir: PathBuf::new(),
            images: BTreeMap::new(),
            listen: "127.0.0.1:0".into(),
            token_id: "ak-test".into(),
            token_secret: "as-test".into(),
            second: Duration::from_secs(1),
            start: Duration::ZERO,
            jwt: Duration::from_secs(3600),
            page: 100,
            latency: Duration::ZERO,
        };
        let mut args = args;
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("{name}: not a number"));
            match name.as_str() {
                "--dir" => options.dir = std::path::absolute(&value).map_err(|e| e.to_string())?,
                "--image" => {
                    let (tag, at) = value.split_once('=').ok_or("--image needs TAG=DIR or TAG=host")?;
                    let base = match at {
                        "host" => Base::Host,
                        dir => Base::Dir(std::fs::canonicalize(dir).map_err(|e| format!("{dir}: {e}"))?),
                    };
                    options.images.insert(tag.into(), base);
                }
                "--listen" => options.listen = value,
                "--token-id" => options.token_id = value,
                "--token-secret" => options.token_secret = value,
                "--second-ms" => options.second = Duration::from_millis(number()?.max(1)),
                "--start-ms" => options.start = Duration::from_millis(number()?),
                "--jwt-secs" => options.jwt = Duration::from_secs(number()?),
                "--page" => options.page = usize::try_from(number()?).unwrap_or(usize::MAX).max(1),
                "--latency-ms" => options.latency = Duration::from_millis(number()?),
                _ => return Err(format!("unknown option {name}")),
            }
        }
        if options.dir.as_os_str().is_empty() {
            return Err("--dir is needed".into());
        }
        Ok(options)
    }
}
