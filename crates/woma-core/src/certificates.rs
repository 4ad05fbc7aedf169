//! Whom we believe when we speak TLS, and why we did not believe somebody.

use std::error::Error;
use std::path::Path;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{CertificateError, RootCertStore};

/// The authorities of a file in PEM; without one, those of the web.
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
        true => Err(format!("({}) has no certificate in PEM in it", file.display())),
        false => Ok(roots),
    }
}

/// Why a handshake failed, without the names that are in the certificate.
pub(crate) fn refusal(error: &(dyn Error + 'static)) -> &'static str {
    match found::<rustls::Error>(error) {
        Some(rustls::Error::InvalidCertificate(why)) => match why {
            // Another authority may have the same name.
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

/// The first error of this type among the causes; what an I/O error wraps is one of them.
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
