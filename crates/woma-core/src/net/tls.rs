//! TLS for outgoing connections: configuration, trusted roots, reasons of failed handshakes.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{CertificateError, ClientConfig, RootCertStore};

/// Certificate authorities of a PEM file; without one, those of the web.
pub(crate) fn roots(file: Option<&Path>) -> Result<RootCertStore, String> {
    let Some(file) = file else {
        return Ok(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() });
    };
    let unread = |error: &dyn Error| format!("({}) cannot be read: {error}", file.display());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| unread(&error))? {
        let certificate = certificate.map_err(|error| unread(&error))?;
        roots.add(certificate).map_err(|error| unread(&error))?;
    }
    match roots.is_empty() {
        true => Err(format!("({}) has no certificate in PEM format", file.display())),
        false => Ok(roots),
    }
}

/// Certificate authorities of the web, and those of a PEM file beside them.
pub(crate) fn roots_with(file: Option<&Path>) -> Result<RootCertStore, String> {
    let mut all = roots(None)?;
    if file.is_some() {
        all.extend(roots(file)?.roots);
    }
    Ok(all)
}

/// Configuration of a TLS client for HTTP/1.1.
pub(crate) fn client_config(
    roots: impl Into<Arc<RootCertStore>>,
) -> Result<ClientConfig, rustls::Error> {
    // An explicit provider: any dependency may change the process-wide default.
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Reason of a failed handshake, without the names in the certificate.
pub(crate) fn handshake_failure(error: &(dyn Error + 'static)) -> &'static str {
    match found::<rustls::Error>(error) {
        Some(rustls::Error::InvalidCertificate(why)) => match why {
            // A wrong signature: another authority may have the same name.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "its certificate is not signed by an authority that is trusted here"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "its certificate is made for another name"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate is not valid yet"
            }
            _ => "its certificate cannot be trusted",
        },
        _ => "TLS failed",
    }
}

/// First error of this type in the chain of causes, including errors wrapped in I/O errors.
pub(crate) fn found<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = match error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}
