//! Images: built from a registry's, found by their ids, deleted.

use super::error::{ClientError, Fault, Result, fault, passes};
use super::{Client, Code, USUAL, With};
use farshell_modal_proto::client::generic_result::GenericStatus;
use farshell_modal_proto::client::{
    DeploymentNamespace, GenericResult, GpuConfig, Image, ImageDeleteRequest, ImageFromIdRequest,
    ImageGetOrCreateRequest, ImageJoinStreamingRequest,
};
use std::time::Duration;

const BUILD: &str = "building the image";
/// How long one look at a build lasts, in seconds, and what is added for the way.
const LOOK: f32 = 55.0;
const MARGIN: Duration = Duration::from_secs(15);
/// How long a build may take in all.
const MOST: Duration = Duration::from_secs(3600);
/// Looks that may fail in a row.
const FAILURES: u32 = 3;
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(100);

impl Client {
    /// The image of a registry's name, built if need be. What the builder says goes to `told`.
    ///
    /// # Errors
    /// [`Fault::Failed`] with the builder's reason.
    pub async fn image(&self, app: &str, name: &str, told: impl Fn(&str) + Send) -> Result<String> {
        let request = ImageGetOrCreateRequest {
            image: Some(Image {
                dockerfile_commands: vec![format!("FROM {name}")],
                gpu_config: Some(GpuConfig::default()),
                ..Image::default()
            }),
            app_id: app.to_owned(),
            namespace: DeploymentNamespace::Workspace.into(),
            builder_version: self.builder().await?,
            ..ImageGetOrCreateRequest::default()
        };
        let answer = self
            .call(BUILD, USUAL, With::Nothing, request, |mut wire, request| async move {
                wire.image_get_or_create(request).await
            })
            .await?;
        match answer.result.filter(finished) {
            Some(result) => built(name, &answer.image_id, &result),
            None => self.join(name, &answer.image_id, told).await,
        }
    }

    /// Waits for a build.
    async fn join(&self, name: &str, id: &str, told: impl Fn(&str) + Send) -> Result<String> {
        // Also one that goes on saying something has an end.
        tokio::time::timeout(MOST, self.follow(name, id, told))
            .await
            .unwrap_or_else(|_| Err(ClientError::new(BUILD, Fault::TimedOut)))
    }

    async fn follow(&self, name: &str, id: &str, told: impl Fn(&str) + Send) -> Result<String> {
        let (mut last, mut failures) = (String::new(), 0);
        loop {
            let request = ImageJoinStreamingRequest {
                image_id: id.to_owned(),
                timeout: LOOK,
                last_entry_id: last.clone(),
                ..ImageJoinStreamingRequest::default()
            };
            let opened = self
                .stream(BUILD, request, |mut wire, request| async move {
                    wire.image_join_streaming(request).await
                })
                .await;
            let failed = match opened {
                Ok(mut stream) => loop {
                    let limit = Duration::from_secs_f32(LOOK) + MARGIN;
                    match tokio::time::timeout(limit, stream.message()).await {
                        Ok(Ok(Some(piece))) => {
                            if !piece.entry_id.is_empty() {
                                last = piece.entry_id;
                            }
                            piece.task_logs.iter().for_each(|log| told(&log.data));
                            if let Some(result) = piece.result.filter(finished) {
                                return built(name, id, &result);
                            }
                            failures = 0;
                        }
                        // It is looked at again, and not at once: some end before they have said anything.
                        Ok(Ok(None)) => {
                            tokio::time::sleep(PAUSE).await;
                            break None;
                        }
                        Ok(Err(status)) => break Some(fault(&status)),
                        Err(_) => break Some(Fault::TimedOut),
                    }
                },
                Err(error) => Some(error.fault),
            };
            if let Some(fault) = failed {
                failures += 1;
                if failures > FAILURES || !passes(&fault) {
                    return Err(ClientError::new(BUILD, fault));
                }
                tokio::time::sleep(PAUSE * failures).await;
            }
        }
    }

    /// Whether there is an image of this id. One that has expired is not there.
    ///
    /// # Errors
    /// It can't be told.
    pub async fn has_image(&self, id: &str) -> Result<bool> {
        let request = ImageFromIdRequest { image_id: id.to_owned() };
        let asked = self
            .call("looking for the image", USUAL, With::Nothing, request, |mut wire, request| async move {
                wire.image_from_id(request).await
            })
            .await;
        match asked {
            Ok(_) => Ok(true),
            Err(error) if error.code() == Some(Code::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Deletes an image. If it is gone already, that is no error.
    ///
    /// # Errors
    /// As any call.
    pub async fn delete_image(&self, id: &str) -> Result<()> {
        let request = ImageDeleteRequest { image_id: id.to_owned() };
        let asked = self
            .call("deleting the image", USUAL, With::Nothing, request, |mut wire, request| async move {
                wire.image_delete(request).await
            })
            .await;
        match asked {
            Ok(()) => Ok(()),
            Err(error) if error.code() == Some(Code::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn finished(result: &GenericResult) -> bool {
    result.status() != GenericStatus::Unspecified
}

fn built(name: &str, id: &str, result: &GenericResult) -> Result<String> {
    let why = match result.status() {
        GenericStatus::Success => return Ok(id.to_owned()),
        GenericStatus::Terminated => "the build was ended".to_owned(),
        GenericStatus::Timeout => "the build took too long".to_owned(),
        _ => result.exception.clone(),
    };
    let message = format!("Modal can't build an image from {name}: {}", why.trim());
    Err(ClientError::new(BUILD, Fault::Failed(message)))
}
