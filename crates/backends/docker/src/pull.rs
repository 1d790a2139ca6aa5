//! Fetching an image that the engine does not have.

use crate::config::Config;
use crate::engine::Engine;
use crate::registry;
use bollard::query_parameters::CreateImageOptions;
use farshell_engine::backend::{News, Progress};
use farshell_engine::{Error, Kind, Result};
use futures_util::StreamExt;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How often people are told.
const PACE: Duration = Duration::from_millis(100);
/// A registry that says nothing for this long is not going to.
const SILENCE: Duration = Duration::from_secs(300);

/// How far the layers are.
#[derive(Debug, Default)]
struct Layers {
    layers: HashMap<String, Layer>,
}

#[derive(Debug, Default)]
struct Layer {
    /// Bytes that have come, of how many.
    part: (u64, u64),
    /// It is unpacked.
    done: bool,
}

impl Layers {
    /// True if a layer has come a step further, and not only some bytes.
    fn note(&mut self, id: &str, status: &str, part: Option<(u64, u64)>) -> bool {
        match status {
            "Pulling fs layer" | "Already exists" | "Downloading" => {
                self.layers.entry(id.to_owned()).or_default();
            }
            _ => {}
        }
        let Some(layer) = self.layers.get_mut(id) else { return false };
        match (status, part) {
            ("Downloading", Some(part)) => layer.part = part,
            ("Download complete" | "Pull complete" | "Already exists", _) => {
                layer.part.0 = layer.part.1;
                layer.done |= status != "Download complete";
                return true;
            }
            _ => {}
        }
        false
    }

    fn sum(&self) -> Option<(u64, u64)> {
        let add =
            |(a, b): (u64, u64), (done, all): (u64, u64)| (a.saturating_add(done), b.saturating_add(all));
        let sum = self.layers.values().map(|layer| layer.part).fold((0, 0), add);
        (sum.1 > 0).then_some(sum)
    }

    /// What is being done, for people.
    fn news(&self, what: &str) -> News {
        let done = self.layers.values().filter(|layer| layer.done).count();
        let message = match self.layers.len() {
            0 => what.to_owned(),
            all => format!("{what} ({done} of {all} layers)"),
        };
        News { message, part: self.sum() }
    }
}

/// A name without a tag means all tags to the engine, and the latest to people.
pub(crate) fn with_tag(image: &str) -> String {
    let name = image.rsplit('/').next().unwrap_or(image);
    if name.contains([':', '@']) { image.to_owned() } else { format!("{image}:latest") }
}

pub(crate) async fn pull(
    engine: &Engine,
    config: &Config,
    platform: Option<&str>,
    progress: &dyn Progress,
) -> Result<()> {
    let image = &config.settings.image;
    let what = format!("pulling image {image}");
    progress.say(&News { message: what.clone(), part: None });
    let credentials = registry::credentials(config, image).await?;
    let options = CreateImageOptions {
        from_image: Some(with_tag(image)),
        platform: platform.unwrap_or_default().to_owned(),
        ..CreateImageOptions::default()
    };
    let mut answers = engine.api.create_image(Some(options), None, credentials);
    let mut layers = Layers::default();
    let mut told = Instant::now();
    loop {
        let answer = match tokio::time::timeout(SILENCE, answers.next()).await {
            Ok(Some(answer)) => answer,
            Ok(None) => return Ok(()),
            Err(_) => {
                let message = format!("nothing has come for {} seconds", SILENCE.as_secs());
                return Err(Error::new(Kind::TimedOut, what, message));
            }
        };
        let answer = answer.map_err(|error| match error {
            // What the registry said, as the engine passes it on in the middle of an answer.
            bollard::errors::Error::DockerStreamError { error } => refused(&what, error.trim()),
            error => match crate::error::refusal(&error) {
                Some((_, message)) => refused(&what, message),
                None => engine.explain(&what, error),
            },
        })?;
        if let Some(message) = answer.error_detail.and_then(|detail| detail.message) {
            return Err(refused(&what, message.trim()));
        }
        let part = answer.progress_detail.and_then(|detail| {
            Some((u64::try_from(detail.current?).ok()?, u64::try_from(detail.total?).ok()?))
        });
        let step = layers.note(
            answer.id.as_deref().unwrap_or_default(),
            answer.status.as_deref().unwrap_or_default(),
            part,
        );
        if step || told.elapsed() >= PACE {
            told = Instant::now();
            progress.say(&layers.news(&what));
        }
    }
}

fn refused(what: &str, message: &str) -> Error {
    Error::new(Kind::Unavailable, what, message)
        .with_hint("check docker_image, the network, and `docker login` for a private registry")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_tag_is_the_latest() {
        for (image, expected) in [
            ("debian", "debian:latest"),
            ("debian:12", "debian:12"),
            ("host:5000/debian", "host:5000/debian:latest"),
            ("a/b@sha256:00", "a/b@sha256:00"),
        ] {
            assert_eq!(with_tag(image), expected);
        }
    }

    #[test]
    fn layers_add_up() {
        let mut layers = Layers::default();
        // Not a layer: the name of the image comes first.
        assert!(!layers.note("12", "Pulling from debian", None));
        assert_eq!(layers.news("p"), News { message: "p".into(), part: None });
        for id in ["a", "b", "c"] {
            assert!(!layers.note(id, "Pulling fs layer", None));
        }
        assert!(layers.note("c", "Already exists", None));
        assert_eq!(layers.sum(), None);
        layers.note("a", "Downloading", Some((10, 100)));
        layers.note("b", "Downloading", Some((5, 50)));
        assert!(layers.note("a", "Download complete", None));
        assert!(!layers.note("a", "Extracting", Some((1, 100))));
        assert_eq!(layers.news("p"), News { message: "p (1 of 3 layers)".into(), part: Some((105, 150)) });
        assert!(layers.note("a", "Pull complete", None));
        assert_eq!(layers.news("p"), News { message: "p (2 of 3 layers)".into(), part: Some((105, 150)) });
    }
}
