//! Authentication: a key or a token becomes a `Caller`, or the request is rejected.
//!
//! Credentials are never logged, never repeated in a reply, and never part of an error.

pub(crate) mod jwt;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{ConnectInfo, OriginalUri, Request, State};
use axum::http::header::{AUTHORIZATION, HOST, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use woma_core::keys::{AuthError, Authenticator};
use woma_core::rate::RateLimiter;
use woma_core::{Caller, Code, Scope};

use crate::api::error::Envelope;
use crate::api::state::BaseUrl;
use jwt::{TokenError, Tokens};

pub(crate) const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";
/// Endpoints with an OAuth metadata document of their own (RFC 9728).
const RESOURCES: [&str; 3] = ["/mcp", "/sse", "/mcp/sse"];
const API_KEY_HEADER: &str = "x-api-key";
const FAILURES_PER_MINUTE: u32 = 30;
const PEERS_MAX: usize = 4096;

#[derive(Debug, Clone)]
pub(crate) struct AuthSettings {
    /// Status of a request without a valid key: 401, or 403 for older clients.
    pub(crate) denied: StatusCode,
    /// `PUBLIC_BASE_URL`; without it, the host of the request is used.
    pub(crate) public_base_url: Option<String>,
    /// Whether `X-Forwarded-Proto` of a proxy is trusted.
    pub(crate) trust_proxy: bool,
    /// Predicate of paths that need no key; usually [`is_public`].
    pub(crate) is_public: fn(&str) -> bool,
}

/// Keys, tokens and the rate limit of failed attempts.
#[derive(Debug)]
pub(crate) struct AuthState {
    authenticator: Authenticator,
    tokens: Option<Tokens>,
    settings: AuthSettings,
    failures: RateLimiter<IpAddr>,
}

/// `/health`, downloads by capability URL, and the OAuth metadata.
pub(crate) fn is_public(path: &str) -> bool {
    // A path that normalization could turn into another one is not public.
    let lower = path.to_ascii_lowercase();
    let is_ambiguous =
        ["//", "\\", "%2e", "%2f", "%5c", "%00"].iter().any(|part| lower.contains(part))
            || path.split('/').any(|segment| matches!(segment, "." | ".."));
    let below = |root: &str| path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'));
    !is_ambiguous
        && (path == "/health" || below("/dl") || path == METADATA_PATH || below(METADATA_PATH))
}

/// As [`is_public`], but downloads need a key.
pub(crate) fn is_public_but_downloads(path: &str) -> bool {
    is_public(path) && !path.starts_with("/dl/")
}

/// Inserts the [`Caller`] and the [`BaseUrl`] into the request, except on public paths. Must be
/// inside the CORS layer: preflights carry no key.
pub(crate) async fn authenticate(
    State(auth_state): State<Arc<AuthState>>,
    mut request: Request,
    next: Next,
) -> Response {
    if (auth_state.settings.is_public)(request.uri().path()) {
        return next.run(request).await;
    }
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
    match auth_state.caller(request.headers(), peer, Instant::now()).await {
        Ok(caller) => {
            let base = BaseUrl(auth_state.base_url(request.headers()).into());
            request.extensions_mut().insert(base);
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(refusal) => refusal.into_response(),
    }
}

impl AuthState {
    pub(crate) fn new(
        authenticator: Authenticator,
        tokens: Option<Tokens>,
        settings: AuthSettings,
    ) -> Self {
        Self { authenticator, tokens, settings, failures: RateLimiter::new(PEERS_MAX) }
    }

    pub(crate) fn authenticator(&self) -> &Authenticator {
        &self.authenticator
    }

    /// The caller of a request with these headers.
    pub(crate) async fn caller(
        &self,
        headers: &HeaderMap,
        peer: Option<IpAddr>,
        now: Instant,
    ) -> Result<Caller, Envelope> {
        let peer = network(peer.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED)));
        let reason = match self.identify(headers).await {
            // Only a guessable key is rate-limited on success: callers with strong keys are not
            // locked out by failures of others behind the same proxy.
            Ok(caller) if caller.id.is_default_key() && self.authenticator.has_guessable_key() => {
                self.failures.peek(&peer, FAILURES_PER_MINUTE, now).map_err(too_many)?;
                return Ok(caller);
            }
            Ok(caller) => return Ok(caller),
            Err(reason) => reason,
        };
        if let Reason::Unavailable(error) = &reason {
            // Already logged, once for many requests, where it was detected.
            tracing::debug!(error, "Keys cannot be checked");
            return Err(unavailable());
        }
        // The rate limit also bounds the log.
        self.failures.check(&peer, FAILURES_PER_MINUTE, now).map_err(too_many)?;
        tracing::info!(%peer, reason = reason.text(), "Request refused: {}", reason.text());
        Err(self.denied(headers, &reason))
    }

    async fn identify(&self, headers: &HeaderMap) -> Result<Caller, Reason> {
        let presented = match presented(headers) {
            Ok(presented) => presented,
            // An open server needs no key, so a malformed one is ignored.
            Err(reason) => {
                return match self.authenticator.authenticate(None) {
                    Ok(caller) => Ok(caller),
                    Err(_) => Err(reason),
                };
            }
        };
        let error = match self.authenticator.authenticate(presented) {
            Ok(caller) => return Ok(caller),
            Err(error) => error,
        };
        if let (Some(tokens), Some(token)) = (&self.tokens, presented.filter(|key| is_token(key))) {
            return tokens.verify(token).await.map_err(|error| match error {
                TokenError::Invalid(reason) => Reason::Token(reason),
                TokenError::Unavailable(error) => Reason::Unavailable(error),
            });
        }
        Err(match error {
            AuthError::Missing => Reason::Missing,
            AuthError::Invalid => Reason::Invalid,
            AuthError::Unavailable(error) => Reason::Unavailable(error.to_string()),
        })
    }

    fn denied(&self, headers: &HeaderMap, reason: &Reason) -> Envelope {
        let message = match reason {
            Reason::Missing => "this server needs a key",
            Reason::Different => "the request presents different keys",
            _ => "the key is not valid",
        };
        let refusal = Envelope::new(Code::Unauthenticated, message).with_hint(
            "send `Authorization: Bearer <key>` or `X-API-Key: <key>`; `woma keys create` creates one",
        );
        let refusal = refusal.with_status(self.settings.denied);
        let base = self.base_url(headers);
        let mut challenge = format!(r#"Bearer resource_metadata="{base}{METADATA_PATH}""#);
        if !matches!(reason, Reason::Missing) {
            challenge += r#", error="invalid_token""#;
        }
        refusal.with_header(WWW_AUTHENTICATE, &challenge)
    }

    /// Base URL of the server, without a trailing slash. Trusts `Host`, so the guard must have
    /// checked it.
    pub(crate) fn base_url(&self, headers: &HeaderMap) -> String {
        if let Some(url) = &self.settings.public_base_url {
            return url.trim_end_matches('/').to_owned();
        }
        let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or("");
        let scheme = match text("x-forwarded-proto") {
            "https" if self.settings.trust_proxy => "https",
            _ => "http",
        };
        let host = text(HOST.as_str());
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
        let host = if host.is_empty() || !host.chars().all(plain) { "localhost" } else { host };
        format!("{scheme}://{host}")
    }

    fn metadata(&self, headers: &HeaderMap, resource: &str) -> Value {
        let scopes: Vec<_> = Scope::ALL.iter().map(|scope| format!("woma:{scope}")).collect();
        let mut document = json!({
            "resource": format!("{}{resource}", self.base_url(headers)),
            "resource_name": "Woma",
            "bearer_methods_supported": ["header"],
            "scopes_supported": scopes,
        });
        if let Some(tokens) = &self.tokens {
            document["authorization_servers"] = json!([tokens.issuer()]);
        }
        document
    }
}

/// Routes of the OAuth resource metadata (RFC 9728).
pub(crate) fn metadata_routes(auth_state: &Arc<AuthState>) -> Router {
    let mut router = Router::new().route(METADATA_PATH, get(metadata));
    for resource in RESOURCES {
        router = router.route(&format!("{METADATA_PATH}{resource}"), get(metadata));
    }
    router.with_state(Arc::clone(auth_state))
}

async fn metadata(
    State(auth_state): State<Arc<AuthState>>,
    OriginalUri(uri): OriginalUri,
    headers: HeaderMap,
) -> Json<Value> {
    let resource = uri.path().strip_prefix(METADATA_PATH).unwrap_or_default();
    Json(auth_state.metadata(&headers, resource))
}

/// Reason why authentication failed.
#[derive(Debug, PartialEq, Eq)]
enum Reason {
    Missing,
    Invalid,
    Different,
    Token(&'static str),
    Unavailable(String),
}

impl Reason {
    fn text(&self) -> &str {
        match self {
            Self::Missing => "no key",
            Self::Invalid => "no valid key",
            Self::Different => "different keys in one request",
            Self::Token(reason) => reason,
            Self::Unavailable(reason) => reason,
        }
    }
}

/// The key of a request. Both headers may carry it, but different keys are rejected: a proxy could
/// check one and the server the other.
fn presented(headers: &HeaderMap) -> Result<Option<&str>, Reason> {
    let mut found = None;
    let bearer = headers.get_all(AUTHORIZATION).iter().map(bearer);
    let plain = headers.get_all(API_KEY_HEADER).iter().map(|value| Ok(Some(visible(value)?)));
    for one in bearer.chain(plain) {
        match (found, one?) {
            (Some(earlier), Some(later)) if earlier != later => return Err(Reason::Different),
            (_, Some(later)) => found = Some(later),
            (_, None) => {}
        }
    }
    Ok(found)
}

/// The key of `Bearer <key>`; `None` for other schemes, which may be for a proxy.
fn bearer(value: &HeaderValue) -> Result<Option<&str>, Reason> {
    let text = value.to_str().map_err(|_| Reason::Invalid)?.trim();
    let (scheme, rest) = text.split_once(' ').unwrap_or((text, ""));
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Ok(None);
    }
    let key = rest.trim();
    if is_visible(key) { Ok(Some(key)) } else { Err(Reason::Invalid) }
}

fn visible(value: &HeaderValue) -> Result<&str, Reason> {
    let text = value.to_str().map_err(|_| Reason::Invalid)?.trim();
    if is_visible(text) { Ok(text) } else { Err(Reason::Invalid) }
}

fn is_visible(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Whether the text has the three parts of a signed token.
fn is_token(text: &str) -> bool {
    text.bytes().filter(|byte| *byte == b'.').count() == 2
}

/// Rate-limit key: an IPv6 address counts as its /64 network.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
        }
        address @ IpAddr::V4(_) => address,
    }
}

fn too_many(retry: woma_core::rate::RetryAfter) -> Envelope {
    let message = "too many requests without a valid key came from this address";
    let refusal = Envelope::new(Code::RateLimited, message);
    Envelope { retry_after: Some(retry.0), ..refusal }
}

fn unavailable() -> Envelope {
    let refusal = Envelope::new(Code::Unavailable, "keys cannot be checked now")
        .with_hint("the server's log has the reason");
    Envelope { retry_after: Some(Duration::from_secs(30)), ..refusal }
}

#[cfg(test)]
mod tests;
