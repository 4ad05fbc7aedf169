//! The issuer's public keys: where they are, by discovery if no setting says so, and what they are.
//!
//! The issuer's metadata is that of RFC 8414 or of `OpenID` Connect Discovery. It is believed only
//! if it is the metadata of exactly this issuer.

use std::fs::File;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::Value;

use super::InvalidTokenSettings;

/// Time for everything that one refresh fetches.
const FETCH_MAX: Duration = Duration::from_secs(5);
const DOCUMENT_BYTES_MAX: u64 = 1024 * 1024;
const RSA_BYTES_MIN: usize = 256;

/// Source of the issuer's public keys (a JWK set).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeySource {
    Url(String),
    File(PathBuf),
    /// The address that the issuer's own metadata names.
    Discovered,
}

#[derive(Debug)]
pub(super) struct PublicKey {
    pub(super) id: Option<String>,
    pub(super) algorithm: Algorithm,
    pub(super) key: DecodingKey,
}

impl KeySource {
    /// An address, or the path of a file.
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidTokenSettings> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Ok(Self::File(text.into()));
        };
        if scheme.eq_ignore_ascii_case("file") {
            return Ok(Self::File(rest.into()));
        }
        match is_secure(text) {
            true => Ok(Self::Url(text.to_owned())),
            false => Err(InvalidTokenSettings::Insecure(text.to_owned())),
        }
    }
}

fn is_https(url: &str) -> bool {
    url.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("https://"))
}

/// Whether an address is https, or http on loopback, without a name and a password in it.
fn is_secure(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.is_empty() || authority.contains('@') {
        return false;
    }
    match &*scheme.to_ascii_lowercase() {
        "https" => true,
        "http" => is_loopback(authority),
        _ => false,
    }
}

fn is_loopback(authority: &str) -> bool {
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    let address = host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    !authority.contains('@') && (address || host.eq_ignore_ascii_case("localhost"))
}

/// Addresses of an issuer's metadata, in the order in which MCP clients try them.
///
/// RFC 8414 inserts the well-known part before the issuer's path; `OpenID` Connect appends it.
pub(super) fn metadata_addresses(issuer: &str) -> Result<Vec<String>, InvalidTokenSettings> {
    let bad = || InvalidTokenSettings::BadIssuer(issuer.to_owned());
    if !is_secure(issuer) || issuer.contains(['?', '#']) {
        return Err(bad());
    }
    let (scheme, rest) = issuer.split_once("://").ok_or_else(bad)?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let root = format!("{scheme}://{authority}");
    let path = path.trim_end_matches('/');
    let (oauth, openid) =
        ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration");
    Ok(match path {
        "" => vec![format!("{root}{oauth}"), format!("{root}{openid}")],
        path => vec![
            format!("{root}{oauth}/{path}"),
            format!("{root}{openid}/{path}"),
            format!("{root}/{path}{openid}"),
        ],
    })
}

/// Fetches the keys. The error is for the log: it may name paths and addresses.
pub(super) fn fetch(source: &KeySource, issuer: &str) -> Result<Vec<PublicKey>, String> {
    let deadline = Instant::now() + FETCH_MAX;
    let text = match source {
        KeySource::Url(url) => get_existing(url, deadline)?,
        KeySource::File(path) => read(path)?,
        KeySource::Discovered => get_existing(&discover(issuer, deadline)?, deadline)?,
    };
    parse_set(&text)
}

/// Address of the keys (`jwks_uri`) in the issuer's metadata.
fn discover(issuer: &str, deadline: Instant) -> Result<String, String> {
    #[derive(Deserialize)]
    struct Metadata {
        issuer: String,
        jwks_uri: Option<String>,
    }
    let mut problem =
        "it publishes no metadata: set JWT_JWKS to the address of its keys".to_owned();
    for address in metadata_addresses(issuer).map_err(|error| error.to_string())? {
        let (status, text) = get(&address, deadline)?;
        if (400..500).contains(&status) {
            continue;
        }
        if status != 200 {
            return Err(format!("{address} answers with status {status}"));
        }
        let Ok(found) = serde_json::from_slice::<Metadata>(&text) else {
            problem = format!("{address} is not the metadata of an issuer");
            continue;
        };
        if found.issuer != issuer {
            problem =
                format!("{address} is the metadata of another issuer: JWT_ISSUER must be equal");
            continue;
        }
        let keys = found.jwks_uri.ok_or_else(|| format!("{address} names no jwks_uri"))?;
        // An issuer elsewhere has no reason to point at this machine.
        let is_fit = is_https(&keys) || !is_https(issuer);
        if !is_secure(&keys) || !is_fit {
            return Err(format!("the jwks_uri of {address} is not https"));
        }
        return Ok(keys);
    }
    Err(problem)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut bounded = file.take(DOCUMENT_BYTES_MAX + 1);
    bounded.read_to_end(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > DOCUMENT_BYTES_MAX {
        return Err("the file is too large".to_owned());
    }
    Ok(text)
}

fn get_existing(url: &str, deadline: Instant) -> Result<Vec<u8>, String> {
    match get(url, deadline)? {
        (200, text) => Ok(text),
        (status, _) => Err(format!("{url} answers with status {status}")),
    }
}

/// Status and body. No redirects: they could lead from https to any host.
fn get(url: &str, deadline: Instant) -> Result<(u16, Vec<u8>), String> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err("it does not answer in time".to_owned());
    }
    let mut config = ureq::Agent::config_builder()
        .timeout_global(Some(left))
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .user_agent("woma");
    config = if is_https(url) { config.https_only(true) } else { config.proxy(None) };
    let agent = ureq::Agent::new_with_config(config.build());
    let mut response = agent.get(url).call().map_err(|error| error.to_string())?;
    let status = response.status().as_u16();
    if status != 200 {
        return Ok((status, Vec::new()));
    }
    let body = response.body_mut().with_config().limit(DOCUMENT_BYTES_MAX);
    Ok((status, body.read_to_vec().map_err(|error| error.to_string())?))
}

/// Parses a JWK set; unsupported keys are skipped.
pub(super) fn parse_set(text: &[u8]) -> Result<Vec<PublicKey>, String> {
    #[derive(Deserialize)]
    struct Set {
        keys: Vec<Value>,
    }
    let set: Set = serde_json::from_slice(text).map_err(|_| "it is not a JWK set".to_owned())?;
    let keys: Vec<PublicKey> = set.keys.into_iter().filter_map(usable).collect();
    if keys.is_empty() {
        return Err("it holds no key for RS256, ES256 or EdDSA".to_owned());
    }
    Ok(keys)
}

fn usable(value: Value) -> Option<PublicKey> {
    let named = value.get("alg").and_then(Value::as_str).map(str::to_owned);
    let jwk: Jwk = serde_json::from_value(value).ok()?;
    let (algorithm, name) = match &jwk.algorithm {
        AlgorithmParameters::RSA(rsa) => {
            let modulus = URL_SAFE_NO_PAD.decode(&rsa.n).ok()?;
            let leading = modulus.iter().take_while(|byte| **byte == 0).count();
            // Short RSA keys are insecure.
            (modulus.len() - leading >= RSA_BYTES_MIN).then_some((Algorithm::RS256, "RS256"))?
        }
        AlgorithmParameters::EllipticCurve(curve) if curve.curve == EllipticCurve::P256 => {
            (Algorithm::ES256, "ES256")
        }
        AlgorithmParameters::OctetKeyPair(pair) if pair.curve == EllipticCurve::Ed25519 => {
            (Algorithm::EdDSA, "EdDSA")
        }
        _ => return None,
    };
    let common = &jwk.common;
    let for_signatures =
        !matches!(&common.public_key_use, Some(usage) if *usage != PublicKeyUse::Signature);
    let may_verify =
        common.key_operations.as_ref().is_none_or(|all| all.contains(&KeyOperations::Verify));
    let same = named.is_none_or(|named| named == name || (name == "EdDSA" && named == "Ed25519"));
    if !(for_signatures && may_verify && same) {
        return None;
    }
    let key = DecodingKey::from_jwk(&jwk).ok()?;
    Some(PublicKey { id: jwk.common.key_id, algorithm, key })
}
