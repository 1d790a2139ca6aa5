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
    layers: HashMap<String, (u64, u64)>,
}

impl Layers {
    fn note(&mut self, id: &str, status: &str, part: Option<(u64, u64)>) {
        match (status, part) {
            ("Downloading", Some(part)) => {
                self.layers.insert(id.to_owned(), part);
            }
            ("Download complete" | "Pull complete", _) => {
                if let Some((done, all)) = self.layers.get_mut(id) {
                    *done = *all;
                }
            }
            _ => {}
        }
    }

    fn sum(&self) -> Option<(u64, u64)> {
        let sum = self.layers.values().fold((0, 0), |(a, b), (done, all)| (a + done, b + all));
        (sum.1 > 0).then_some(sum)
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
        layers.note(
            answer.id.as_deref().unwrap_or_default(),
            answer.status.as_deref().unwrap_or_default(),
            part,
        );
        if told.elapsed() >= PACE {
            told = Instant::now();
            progress.say(&News { message: what.clone(), part: layers.sum() });
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
        layers.note("a", "Waiting", None);
        assert_eq!(layers.sum(), None);
        layers.note("a", "Downloading", Some((10, 100)));
        layers.note("b", "Downloading", Some((5, 50)));
        layers.note("a", "Download complete", None);
        layers.note("a", "Extracting", Some((1, 100)));
        assert_eq!(layers.sum(), Some((105, 150)));
    }
}
