//! Verification of OAuth access tokens against the keys that the issuer publishes.
//!
//! Keys come from the configured source only, never from the token; algorithms from a fixed list.

use std::fs::File;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Mutex;
use woma_core::{Caller, CallerId, Quota, Scope, Scopes};

/// Age at which keys are refreshed, and the least time between two attempts: a client can send any
/// number of unknown key ids.
const REFRESH_AFTER: Duration = Duration::from_secs(600);
const RETRY_AFTER: Duration = Duration::from_secs(30);
/// Age up to which cached keys are used while the issuer is unreachable.
const STALE_AFTER: Duration = Duration::from_secs(3600);
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
const KEY_SET_BYTES_MAX: u64 = 1024 * 1024;
const TOKEN_BYTES_MAX: usize = 16 * 1024;
const SUBJECT_BYTES_MAX: usize = 256;
const CLOCK_SKEW_SECONDS: u64 = 30;
const RSA_BYTES_MIN: usize = 256;

#[derive(Debug, Clone)]
pub(crate) struct TokenSettings {
    /// Exact `iss` of every token.
    pub(crate) issuer: String,
    /// The `aud` of every token contains one of these.
    pub(crate) audiences: Vec<String>,
    pub(crate) keys: KeySource,
    /// Quota of each token holder.
    pub(crate) quota: Quota,
}

/// Source of the issuer's public keys (a JWK set).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeySource {
    Url(String),
    File(PathBuf),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidTokenSettings {
    #[error(
        "the address of the issuer's keys must be https, or http on loopback: `{0}` is neither"
    )]
    Insecure(String),
    #[error("the issuer of tokens is empty")]
    NoIssuer,
    #[error("no audience is set: tokens for other services of the issuer would be accepted")]
    NoAudience,
}

impl KeySource {
    /// An address, or the path of a file.
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidTokenSettings> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Ok(Self::File(text.into()));
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let secure = match &*scheme.to_ascii_lowercase() {
            "file" => return Ok(Self::File(rest.into())),
            "https" => !authority.is_empty() && !authority.contains('@'),
            "http" => is_loopback(authority),
            _ => false,
        };
        if secure {
            Ok(Self::Url(text.to_owned()))
        } else {
            Err(InvalidTokenSettings::Insecure(text.to_owned()))
        }
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

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    /// The reason is for the log; it contains nothing of the token.
    #[error("the token is not valid: {0}")]
    Invalid(&'static str),
    #[error("cannot read the issuer's keys: {0}")]
    Unavailable(String),
}

/// Verifier of one issuer's tokens.
#[derive(Debug, Clone)]
pub(crate) struct Tokens(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: TokenSettings,
    cache: RwLock<Cache>,
    /// Held during a refresh, so that only one runs.
    refreshing: Arc<Mutex<()>>,
}

#[derive(Debug, Default, Clone)]
struct Cache {
    keys: Arc<[PublicKey]>,
    read_at: Option<Instant>,
    tried_at: Option<Instant>,
    error: Option<String>,
}

#[derive(Debug)]
struct PublicKey {
    id: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

#[derive(Debug, Deserialize)]
struct Claims {
    sub: String,
    iss: String,
    #[serde(default)]
    /// Some issuers call it `scp`.
    #[serde(alias = "scp")]
    scope: Option<Value>,
}

impl Tokens {
    pub(crate) fn new(settings: TokenSettings) -> Result<Self, InvalidTokenSettings> {
        if settings.issuer.trim().is_empty() {
            return Err(InvalidTokenSettings::NoIssuer);
        }
        if settings.audiences.is_empty() || settings.audiences.iter().any(String::is_empty) {
            return Err(InvalidTokenSettings::NoAudience);
        }
        if let KeySource::Url(url) = &settings.keys
            && KeySource::parse(url)? != settings.keys
        {
            return Err(InvalidTokenSettings::Insecure(url.clone()));
        }
        let (cache, refreshing) = (RwLock::default(), Arc::default());
        Ok(Self(Arc::new(Inner { settings, cache, refreshing })))
    }

    pub(crate) fn issuer(&self) -> &str {
        &self.0.settings.issuer
    }

    pub(crate) async fn verify(&self, token: &str) -> Result<Caller, TokenError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::Invalid("it is too long"));
        }
        let header = jsonwebtoken::decode_header(token)
            .map_err(|_| TokenError::Invalid("its header cannot be read"))?;
        check_header(&header)?;
        let keys = self.keys(&header).await?;
        let key = select(&keys, &header).ok_or(TokenError::Invalid("its key is not known"))?;
        let decoded =
            jsonwebtoken::decode::<Claims>(token, &key.key, &self.0.validation(key.algorithm))
                .map_err(|error| TokenError::Invalid(reason(error.kind())))?;
        caller(decoded.claims, self.0.settings.quota)
    }

    /// Cached keys, refreshed if the key of this token is missing or old.
    async fn keys(&self, header: &Header) -> Result<Arc<[PublicKey]>, TokenError> {
        let cache = self.0.cached();
        if cache.plan(header, Instant::now()) != Plan::Refresh {
            return cache.answer(Instant::now());
        }
        let refreshing = Arc::clone(&self.0.refreshing).lock_owned().await;
        // Another request may have refreshed them meanwhile.
        if self.0.cached().plan(header, Instant::now()) == Plan::Refresh {
            let inner = Arc::clone(&self.0);
            // On its own task: a client that disconnects must not cancel it for others.
            let task = tokio::spawn(async move {
                inner.refresh().await;
                drop(refreshing);
            });
            task.await.map_err(|_| TokenError::Unavailable("the refresh failed".to_owned()))?;
        }
        self.0.cached().answer(Instant::now())
    }
}

impl Inner {
    fn cached(&self) -> Cache {
        self.cache.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn refresh(&self) {
        let change = |edit: &dyn Fn(&mut Cache)| {
            edit(&mut self.cache.write().unwrap_or_else(PoisonError::into_inner));
        };
        change(&|cache| cache.tried_at = Some(Instant::now()));
        let source = self.settings.keys.clone();
        let fetched =
            tokio::task::spawn_blocking(move || fetch(&source).and_then(|t| parse_set(&t)))
                .await
                .unwrap_or_else(|_| Err("reading them failed".to_owned()));
        match fetched {
            Ok(keys) => {
                let keys: Arc<[PublicKey]> = keys.into();
                change(&|cache| {
                    cache.keys = Arc::clone(&keys);
                    cache.read_at = Some(Instant::now());
                    cache.error = None;
                });
            }
            Err(error) => {
                tracing::warn!(issuer = self.settings.issuer, error, "Issuer's keys not read");
                change(&|cache| cache.error = Some(error.clone()));
            }
        }
    }

    fn validation(&self, algorithm: Algorithm) -> Validation {
        let mut validation = Validation::new(algorithm);
        validation.leeway = CLOCK_SKEW_SECONDS;
        validation.validate_nbf = true;
        validation.set_issuer(&[&self.settings.issuer]);
        validation.set_audience(&self.settings.audiences);
        // `nbf` is optional in access tokens (RFC 9068) and checked if present.
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plan {
    UseCached,
    Refresh,
}

impl Cache {
    fn plan(&self, header: &Header, now: Instant) -> Plan {
        let within = |moment: Option<Instant>, limit| {
            moment.is_some_and(|moment| now.saturating_duration_since(moment) < limit)
        };
        let known = select(&self.keys, header).is_some() && within(self.read_at, REFRESH_AFTER);
        if known || within(self.tried_at, RETRY_AFTER) { Plan::UseCached } else { Plan::Refresh }
    }

    fn answer(&self, now: Instant) -> Result<Arc<[PublicKey]>, TokenError> {
        match self.read_at {
            Some(moment) if now.saturating_duration_since(moment) < STALE_AFTER => {
                Ok(Arc::clone(&self.keys))
            }
            _ => {
                let error = self.error.clone();
                Err(TokenError::Unavailable(error.unwrap_or_else(|| "not read yet".to_owned())))
            }
        }
    }
}

fn fetch(source: &KeySource) -> Result<Vec<u8>, String> {
    let url = match source {
        KeySource::Url(url) => url,
        KeySource::File(path) => {
            let mut text = Vec::new();
            let file = File::open(path).map_err(|error| error.to_string())?;
            let mut bounded = file.take(KEY_SET_BYTES_MAX + 1);
            bounded.read_to_end(&mut text).map_err(|error| error.to_string())?;
            if text.len() as u64 > KEY_SET_BYTES_MAX {
                return Err("the file is too large".to_owned());
            }
            return Ok(text);
        }
    };
    // No redirects: they could lead from https to any host.
    let mut config = ureq::Agent::config_builder()
        .timeout_global(Some(FETCH_TIMEOUT))
        .max_redirects(0)
        .max_redirects_will_error(true)
        .user_agent("woma");
    let secure = url.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("https://"));
    config = if secure { config.https_only(true) } else { config.proxy(None) };
    let agent = ureq::Agent::new_with_config(config.build());
    let mut response = agent.get(url).call().map_err(|error| error.to_string())?;
    if response.status() != 200 {
        return Err(format!("it answers with status {}", response.status().as_u16()));
    }
    let body = response.body_mut().with_config().limit(KEY_SET_BYTES_MAX);
    body.read_to_vec().map_err(|error| error.to_string())
}

/// Parses a JWK set; unsupported keys are skipped.
fn parse_set(text: &[u8]) -> Result<Vec<PublicKey>, String> {
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

/// Key of a token by `kid` and algorithm; without `kid`, the only key of that algorithm.
fn select<'keys>(keys: &'keys [PublicKey], header: &Header) -> Option<&'keys PublicKey> {
    let mut fitting = keys.iter().filter(|key| key.algorithm == header.alg);
    match &header.kid {
        Some(id) => fitting.find(|key| key.id.as_ref() == Some(id)),
        None => fitting.next().filter(|_| fitting.next().is_none()),
    }
}

fn check_header(header: &Header) -> Result<(), TokenError> {
    if !matches!(header.alg, Algorithm::RS256 | Algorithm::ES256 | Algorithm::EdDSA) {
        return Err(TokenError::Invalid("its algorithm is not accepted"));
    }
    if header.crit.is_some() || header.enc.is_some() || header.zip.is_some() {
        return Err(TokenError::Invalid("its header has unsupported extensions"));
    }
    let kind = header.typ.as_deref().unwrap_or("JWT").to_ascii_lowercase();
    match kind.strip_prefix("application/").unwrap_or(&kind) {
        "jwt" | "at+jwt" => Ok(()),
        _ => Err(TokenError::Invalid("it is not an access token")),
    }
}

fn reason(kind: &jsonwebtoken::errors::ErrorKind) -> &'static str {
    use jsonwebtoken::errors::ErrorKind;
    match kind {
        ErrorKind::ExpiredSignature => "it has expired",
        ErrorKind::ImmatureSignature => "it is not valid yet",
        ErrorKind::InvalidIssuer => "it is from another issuer",
        ErrorKind::InvalidAudience => "it is for another audience",
        ErrorKind::InvalidSignature => "its signature is wrong",
        ErrorKind::MissingRequiredClaim(_) => "it lacks exp, iss, aud or sub",
        _ => "it cannot be read",
    }
}

fn caller(claims: Claims, quota: Quota) -> Result<Caller, TokenError> {
    let subject = claims.sub;
    // The subject becomes a part of ids, paths and log lines.
    if subject.is_empty() || subject.len() > SUBJECT_BYTES_MAX || subject.contains(char::is_control)
    {
        return Err(TokenError::Invalid("its subject is empty, too long, or not text"));
    }
    let id = CallerId::new(format!("jwt:{subject}@{}", claims.iss));
    Ok(Caller {
        id,
        name: subject,
        scopes: scopes(claims.scope.as_ref()),
        quota,
        policy: None,
        network: None,
    })
}

/// Words of other services are passed over. A claim without any word of ours allows nothing.
fn scopes(claim: Option<&Value>) -> Scopes {
    let word = |word: &str| word.strip_prefix("woma:").unwrap_or(word).parse::<Scope>().ok();
    match claim {
        None | Some(Value::Null) => Scopes::usual(),
        Some(Value::String(text)) => text.split(' ').filter_map(word).collect(),
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).filter_map(word).collect(),
        Some(_) => Scopes::none(),
    }
}

#[cfg(test)]
pub(super) mod tests;
