//! The server's certificate authority, for connections that it opens to put secrets in.
//!
//! It is made when the server starts and never leaves its memory. Rooms have its certificate; it signs
//! only for hosts that a secret of the connecting session is bound to.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::{ToSpan as _, Zoned};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, date_time_ymd,
};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::PrivatePkcs8KeyDer;
use woma_sandbox::sync::lock;

use super::host::Host;

/// Certificates that are kept; with more, all are made anew.
const KEPT_MAX: usize = 1_000;
/// How long a certificate is used, of the days that it is valid.
const USED_MAX: Duration = Duration::from_hours(24);
const VALID_DAYS: i32 = 30;
const AUTHORITY_VALID_DAYS: i32 = 3_650;

/// Signs for hosts, in the server's memory.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    made: Mutex<BTreeMap<Host, (Instant, Arc<ServerConfig>)>>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Authority")
    }
}

impl Authority {
    pub(super) fn new() -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "Woma, for secrets of sessions");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        valid_for(&mut params, AUTHORITY_VALID_DAYS)?;
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), certificate, made: Mutex::default() })
    }

    /// Its certificate, in PEM.
    pub(super) fn certificate(&self) -> &str {
        &self.certificate
    }

    /// TLS of a host, for a program in a room. HTTP/1.1 is all that it speaks.
    pub(super) fn server(&self, host: &Host) -> Result<Arc<ServerConfig>, String> {
        let now = Instant::now();
        let is_fresh = |made: &Instant| now.duration_since(*made) < USED_MAX;
        if let Some((_, config)) = lock(&self.made).get(host).filter(|(made, _)| is_fresh(made)) {
            return Ok(Arc::clone(config));
        }
        let config = Arc::new(self.make(host).map_err(|error| error.to_string())?);
        let mut made = lock(&self.made);
        if made.len() >= KEPT_MAX {
            made.clear();
        }
        made.insert(host.clone(), (now, Arc::clone(&config)));
        Ok(config)
    }

    fn make(&self, host: &Host) -> Result<ServerConfig, Box<dyn std::error::Error + Send + Sync>> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = CertificateParams::new(vec![host.to_string()])?;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        valid_for(&mut params, VALID_DAYS)?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key.into())?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// From yesterday on, because clocks differ.
fn valid_for(params: &mut CertificateParams, days: i32) -> Result<(), rcgen::Error> {
    let now = Zoned::now();
    let day = |after: i32| {
        let date = now.checked_add(after.days()).map_err(|_| rcgen::Error::Time)?.date();
        let (month, day) = (date.month().cast_unsigned(), date.day().cast_unsigned());
        Ok::<_, rcgen::Error>(date_time_ymd(date.year().into(), month, day))
    };
    params.not_before = day(-1)?;
    params.not_after = day(days)?;
    params.distinguished_name.remove(DnType::CountryName);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_made_once_and_the_key_is_never_shown() {
        let authority = Authority::new().unwrap();
        let host = Host::parse(b"a.test").unwrap();
        let (one, again) = (authority.server(&host).unwrap(), authority.server(&host).unwrap());
        assert!(Arc::ptr_eq(&one, &again));
        assert!(authority.certificate().starts_with("-----BEGIN CERTIFICATE-----"));
        assert!(!authority.certificate().contains("PRIVATE"));
        assert_eq!(format!("{authority:?}"), "Authority");
        for number in 0..KEPT_MAX {
            let host = Host::parse(format!("h{number}.test").as_bytes()).unwrap();
            let config = Arc::clone(&one);
            lock(&authority.made).insert(host, (Instant::now(), config));
        }
        let other = Host::parse(b"other.test").unwrap();
        authority.server(&other).unwrap();
        assert_eq!(lock(&authority.made).len(), 1, "the number of kept ones is bounded");
    }
}
