//! TLS to an engine, with the certificates that the `docker` program uses.

use crate::endpoint::TlsFiles;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Where systems keep the certificates of well-known authorities, for engines whose own is not given.
const BUNDLES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

pub(crate) async fn wrap(tcp: TcpStream, host: &str, files: &TlsFiles) -> io::Result<TlsStream<TcpStream>> {
    let config = client(files)?;
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, format!("{host:?} is not a host's name")))?;
    TlsConnector::from(Arc::new(config)).connect(name, tcp).await
}

fn client(files: &TlsFiles) -> io::Result<ClientConfig> {
    let invalid = |error: String| io::Error::new(io::ErrorKind::InvalidData, error);
    let file = |name: &str| files.dir.as_ref().map(|dir| dir.join(name)).filter(|path| path.exists());
    let bundle =
        file("ca.pem").or_else(|| BUNDLES.iter().map(Path::new).find(|p| p.exists()).map(Into::into));
    let bundle =
        bundle.ok_or_else(|| invalid("there is no ca.pem to check the engine's certificate with".into()))?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&bundle)? {
        roots.add(certificate).map_err(|e| invalid(format!("{}: {e}", bundle.display())))?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| invalid(e.to_string()))?
        .with_root_certificates(roots);
    match (file("cert.pem"), file("key.pem")) {
        (Some(cert), Some(key)) => {
            let chain = certificates(&cert)?;
            let secret =
                PrivateKeyDer::from_pem_file(&key).map_err(|e| invalid(format!("{}: {e}", key.display())))?;
            builder.with_client_auth_cert(chain, secret).map_err(|e| invalid(e.to_string()))
        }
        _ => Ok(builder.with_no_client_auth()),
    }
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let broken = |e| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {e}", path.display()));
    CertificateDer::pem_file_iter(path).map_err(broken)?.collect::<Result<_, _>>().map_err(broken)
}
