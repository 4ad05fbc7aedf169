//! Verification of OAuth access tokens against the keys that the issuer publishes.
//!
//! Keys come from the configured source only, never from the token; algorithms from a fixed list.

mod keys;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use jsonwebtoken::{Algorithm, Header, Validation};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Mutex;
use woma_core::{Caller, CallerId, Quota, Scope, Scopes};

pub(crate) use keys::KeySource;
use keys::PublicKey;

/// Age at which keys are refreshed, and the least time between two attempts: a client can send any
/// number of unknown key ids.
const REFRESH_AFTER: Duration = Duration::from_secs(600);
const RETRY_AFTER: Duration = Duration::from_secs(30);
/// The least time after the first failure; it doubles with each further one, up to [`RETRY_AFTER`].
const FIRST_RETRY_AFTER: Duration = Duration::from_secs(1);
/// Age up to which cached keys are used while the issuer is unreachable.
const STALE_AFTER: Duration = Duration::from_secs(3600);
const TOKEN_BYTES_MAX: usize = 16 * 1024;
const SUBJECT_BYTES_MAX: usize = 256;
const CLOCK_SKEW_SECONDS: u64 = 30;

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

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidTokenSettings {
    #[error(
        "the address of the issuer's keys must be https, or http on loopback: `{0}` is neither"
    )]
    Insecure(String),
    #[error(
        "the issuer of tokens must be https, or http on loopback, without a query: `{0}` is not; \
         set JWT_JWKS if its keys cannot be found by its name"
    )]
    BadIssuer(String),
    #[error("the issuer of tokens is empty")]
    NoIssuer,
    #[error("no audience is set: tokens for other services of the issuer would be accepted")]
    NoAudience,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    /// The reason is for the log; it contains nothing of the token.
    #[error("the token is not valid: {0}")]
    Invalid(&'static str),
    #[error("cannot read the issuer's keys: {0}")]
    Unavailable(String),
}

/// State of an issuer whose keys could not be read the last time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IssuerProblem {
    /// Keys that were read before still verify tokens.
    OldKeys,
    /// All tokens are refused.
    NoKeys,
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
    /// Failed attempts since the last one that succeeded.
    failures: u32,
    error: Option<String>,
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
        match &settings.keys {
            KeySource::Url(url) if KeySource::parse(url)? != settings.keys => {
                return Err(InvalidTokenSettings::Insecure(url.clone()));
            }
            KeySource::Discovered => {
                keys::metadata_addresses(&settings.issuer)?;
            }
            KeySource::Url(_) | KeySource::File(_) => {}
        }
        let (cache, refreshing) = (RwLock::default(), Arc::default());
        Ok(Self(Arc::new(Inner { settings, cache, refreshing })))
    }

    pub(crate) fn issuer(&self) -> &str {
        &self.0.settings.issuer
    }

    /// Whether the last attempt to read the issuer's keys failed, and whether older keys still serve.
    pub(crate) fn problem(&self) -> Option<IssuerProblem> {
        let cache = self.0.cached();
        cache.error.is_some().then(|| match cache.answer(Instant::now()) {
            Ok(_) => IssuerProblem::OldKeys,
            Err(_) => IssuerProblem::NoKeys,
        })
    }

    /// Reads the keys before a token needs them, and again before they are old. Never ends.
    pub(crate) async fn keep_fresh(&self) {
        loop {
            let pause = self.0.cached().pause(Instant::now());
            tokio::time::sleep(pause).await;
            let refreshing = Arc::clone(&self.0.refreshing).lock_owned().await;
            if self.0.cached().pause(Instant::now()).is_zero() {
                self.0.refresh().await;
            }
            drop(refreshing);
        }
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
        let issuer = self.settings.issuer.clone();
        let fetched = tokio::task::spawn_blocking(move || keys::fetch(&source, &issuer))
            .await
            .unwrap_or_else(|_| Err("reading them failed".to_owned()));
        let issuer = &*self.settings.issuer;
        match fetched {
            Ok(keys) => {
                if self.cached().error.is_some() {
                    tracing::warn!("The keys of the token issuer {issuer} can be read again");
                }
                let keys: Arc<[PublicKey]> = keys.into();
                change(&|cache| {
                    cache.keys = Arc::clone(&keys);
                    cache.read_at = Some(Instant::now());
                    cache.failures = 0;
                    cache.error = None;
                });
            }
            Err(error) => {
                // Once for all attempts that fail in the same way.
                if self.cached().error.as_ref() != Some(&error) {
                    tracing::warn!(
                        "Cannot read the keys of the token issuer {issuer}: {error}. Its tokens are \
                         refused, unless keys were read less than an hour ago; trying again"
                    );
                }
                change(&|cache| {
                    cache.failures = cache.failures.saturating_add(1);
                    cache.error = Some(error.clone());
                });
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
        match known || within(self.tried_at, self.retry_after()) {
            true => Plan::UseCached,
            false => Plan::Refresh,
        }
    }

    /// The least time between two attempts.
    fn retry_after(&self) -> Duration {
        match self.failures.checked_sub(1) {
            Some(more) => FIRST_RETRY_AFTER.saturating_mul(1 << more.min(16)).min(RETRY_AFTER),
            None => RETRY_AFTER,
        }
    }

    /// Time until the next attempt that no token asks for.
    fn pause(&self, now: Instant) -> Duration {
        let interval = if self.failures == 0 { REFRESH_AFTER } else { self.retry_after() };
        let next = self.tried_at.map_or(now, |tried| tried + interval);
        next.saturating_duration_since(now)
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
mod keys_tests;
#[cfg(test)]
pub(super) mod tests;
