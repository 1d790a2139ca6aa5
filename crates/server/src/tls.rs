//! TLS for addresses that others can reach.

use farshell_engine::{Error, Kind, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::version::TLS13;

/// Certificate and key, as PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The certificate, followed by those that lead to a root.
    pub cert: PathBuf,
    pub key: PathBuf,
}

impl Tls {
    pub(crate) fn acceptor(&self) -> Result<TlsAcceptor> {
        let bad = |path: &Path, why: String| {
            Error::new(Kind::Invalid, format!("reading {}", path.display()), why)
                .with_hint("a PEM file is needed")
        };
        let certs: Vec<_> = CertificateDer::pem_file_iter(&self.cert)
            .and_then(Iterator::collect)
            .map_err(|e| bad(&self.cert, e.to_string()))?;
        if certs.is_empty() {
            return Err(bad(&self.cert, "there is no certificate in it".into()));
        }
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|e| bad(&self.key, e.to_string()))?;
        let refused = |e: tokio_rustls::rustls::Error| {
            Error::new(Kind::Invalid, "preparing TLS", e.to_string())
                .with_hint("the key must be the certificate's")
        };
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&TLS13])
            .map_err(refused)?
            .with_no_client_auth()
            .with_single_cert(certs, key)
            .map_err(refused)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}
