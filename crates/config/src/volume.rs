//! Directories shared with a place: `source:/target[:options]`.

use crate::kind::split_commas;

/// One entry of `docker_volumes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// A directory of this machine, or the name of a Docker volume.
    pub source: String,
    /// Where it appears in the container.
    pub target: String,
    /// What follows the second colon: `ro`, `rw`, `z` …
    pub options: Vec<String>,
}

impl Volume {
    /// `source:/target[:options]`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().splitn(3, ':');
        let (source, target) = (parts.next()?, parts.next()?);
        let options: Vec<String> = match parts.next() {
            Some(options) => options.split(',').map(|option| option.trim().to_owned()).collect(),
            None => Vec::new(),
        };
        let sound = !source.is_empty()
            && target.starts_with('/')
            && !text.contains(char::is_control)
            && options.iter().all(|option| !option.is_empty() && !option.contains([':', '/']));
        sound.then(|| Self { source: source.to_owned(), target: target.to_owned(), options })
    }
}

/// Cuts at commas, except those between the options of one volume: a part without a colon continues the
/// options of the part before it.
pub(crate) fn split_volumes(text: &str) -> Vec<String> {
    let mut volumes: Vec<String> = Vec::new();
    for part in split_commas(text) {
        match volumes.last_mut() {
            Some(last) if !part.contains(':') && last.matches(':').count() >= 2 => {
                last.push(',');
                last.push_str(&part);
            }
            _ => volumes.push(part),
        }
    }
    volumes
}
