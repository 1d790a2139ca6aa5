//! TLS with the certificates of this system.

use super::{ClientError, Fault};
use rustls_platform_verifier::BuilderVerifierExt;
use std::sync::Arc;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::crypto::ring;

pub(crate) fn config() -> Result<ClientConfig, ClientError> {
    let failed = |error: tokio_rustls::rustls::Error| {
        ClientError::new(
            "preparing TLS",
            Fault::Malformed(format!("the system's certificates can't be used: {error}")),
        )
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(failed)?;
    Ok(builder.with_platform_verifier().map_err(failed)?.with_no_client_auth())
}
