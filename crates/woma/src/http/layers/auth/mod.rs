//! Authentication: a key or a token becomes a `Caller`, or the request is rejected.
//!
//! Credentials are never logged, never repeated in a reply, and never part of an error.

pub(crate) mod jwt;

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{OriginalUri, Request, State};
use axum::http::header::{AUTHORIZATION, HOST, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use woma_core::keys::{AuthError, Authenticator};
use woma_core::rate::{RateLimiter, RetryAfter};
use woma_core::{Caller, Code, Scope};

use super::browser::{self, PageFacts};
use super::client::ClientInfo;
use super::guard::UnknownHost;
use super::{HEALTH_PATH, is_probe};
use crate::api::error::Envelope;
use crate::api::state::BaseUrl;
use jwt::{TokenError, Tokens};

pub(crate) const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";
/// Metadata of an authorization server: RFC 8414, and `OpenID` Connect.
const ISSUER_METADATA_PATHS: [&str; 2] =
    ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"];
/// Endpoints with an OAuth metadata document of their own (RFC 9728).
const RESOURCES: [&str; 3] = ["/mcp", "/sse", "/mcp/sse"];
/// Pages that say nothing of this server: they are the same for every one of its version.
const DOCUMENTATION: [&str; 3] = ["/docs", "/redoc", "/openapi.json"];
const API_KEY_HEADER: &str = "x-api-key";
/// Wrong keys of one address.
const FAILURES_PER_MINUTE: u32 = 30;
/// Log lines about requests of one address that have no key.
const KEYLESS_LINES_PER_MINUTE: u32 = 30;
const PEERS_MAX: usize = 4096;

#[derive(Debug, Clone)]
pub(crate) struct AuthSettings {
    /// Status of a request without a valid key: 401, or 403 for older clients.
    pub(crate) denied: StatusCode,
    /// `PUBLIC_BASE_URL`; without it, the host of the request is used.
    pub(crate) public_base_url: Option<String>,
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
    keyless_lines: RateLimiter<IpAddr>,
}

/// Probes, the documentation, which has a field for the key, downloads by capability URL, and the
/// OAuth metadata.
pub(crate) fn is_public(path: &str) -> bool {
    // A path that normalization could turn into another one is not public.
    let lower = path.to_ascii_lowercase();
    let is_ambiguous =
        ["//", "\\", "%2e", "%2f", "%5c", "%00"].iter().any(|part| lower.contains(part))
            || path.split('/').any(|segment| matches!(segment, "." | ".."));
    let below = |root: &str| path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'));
    !is_ambiguous
        && (is_probe(path)
            || DOCUMENTATION.contains(&path)
            || below("/dl")
            || path == METADATA_PATH
            || below(METADATA_PATH)
            || ISSUER_METADATA_PATHS.iter().any(|known| path == *known || below(known)))
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
    let client = ClientInfo::of(&request);
    let path = request.uri().path();
    if (auth_state.settings.is_public)(path) {
        // Callers learn more of the health than probes do.
        let is_asked = path == HEALTH_PATH && request.extensions().get::<UnknownHost>().is_none();
        if is_asked
            && let Some(caller) =
                auth_state.caller_if_known(request.headers(), client, Instant::now()).await
        {
            request.extensions_mut().insert(caller);
        }
        return next.run(request).await;
    }
    if browser::asks_for_page(&request) {
        let facts = auth_state.page_facts(request.headers(), client);
        request.extensions_mut().insert(facts);
        return next.run(request).await;
    }
    match auth_state.caller(request.headers(), client, path, Instant::now()).await {
        Ok(caller) => {
            let base = BaseUrl(auth_state.base_url(request.headers(), client).into());
            request.extensions_mut().insert(base);
            let id = caller.id.clone();
            request.extensions_mut().insert(caller);
            let mut response = next.run(request).await;
            if response.status().is_client_error() {
                // For the record of a refusal.
                response.extensions_mut().insert(id);
            }
            response
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
        let limiter = || RateLimiter::new(PEERS_MAX);
        let (failures, keyless_lines) = (limiter(), limiter());
        Self { authenticator, tokens, settings, failures, keyless_lines }
    }

    pub(crate) fn authenticator(&self) -> &Authenticator {
        &self.authenticator
    }

    /// The caller of a request with these headers.
    pub(crate) async fn caller(
        &self,
        headers: &HeaderMap,
        client: ClientInfo,
        path: &str,
        now: Instant,
    ) -> Result<Caller, Envelope> {
        let peer = network(client.address);
        let reason = match self.identify(headers).await {
            Ok(caller) if !self.is_locked_out(&caller, &peer, now) => return Ok(caller),
            // The right guess shows nothing.
            Ok(_) => Reason::Invalid,
            Err(reason) => reason,
        };
        match &reason {
            Reason::Unavailable(error) => {
                // Already logged, once for many requests, where it was detected.
                tracing::debug!(error, "Keys cannot be checked");
                return Err(unavailable());
            }
            // No guess: clients without a key ask what they need.
            Reason::Missing | Reason::Empty => {
                if self.keyless_lines.check(&peer, KEYLESS_LINES_PER_MINUTE, now).is_ok() {
                    tell(client, &reason);
                }
            }
            Reason::Invalid | Reason::Different | Reason::Token(_) => {
                // The rate limit also bounds the log.
                let checked = self.failures.check(&peer, FAILURES_PER_MINUTE, now);
                checked.map_err(|retry| {
                    too_many(retry, &self.challenge(headers, client, path, false))
                })?;
                tell(client, &reason);
            }
        }
        let is_missing = matches!(reason, Reason::Missing | Reason::Empty);
        Err(self.denied(&reason, &self.challenge(headers, client, path, is_missing)))
    }

    /// The caller of a request that may have no key. A wrong key counts as a guess here too.
    async fn caller_if_known(
        &self,
        headers: &HeaderMap,
        client: ClientInfo,
        now: Instant,
    ) -> Option<Caller> {
        let peer = network(client.address);
        match self.identify(headers).await {
            Ok(caller) => (!self.is_locked_out(&caller, &peer, now)).then_some(caller),
            Err(Reason::Missing | Reason::Empty | Reason::Unavailable(_)) => None,
            Err(reason) => {
                if self.failures.check(&peer, FAILURES_PER_MINUTE, now).is_ok() {
                    tell(client, &reason);
                }
                None
            }
        }
    }

    /// Whether wrong keys from this address lock the caller out. Only a guessable key is limited on
    /// success: callers with strong keys are not locked out by others behind the same proxy.
    fn is_locked_out(&self, caller: &Caller, peer: &IpAddr, now: Instant) -> bool {
        caller.id.is_default_key()
            && self.authenticator.has_guessable_key()
            && self.failures.peek(peer, FAILURES_PER_MINUTE, now).is_err()
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

    fn denied(&self, reason: &Reason, challenge: &str) -> Envelope {
        let message = match reason {
            Reason::Missing | Reason::Empty => "this server needs a key",
            Reason::Different => "the request presents different keys",
            _ => "the key is not valid",
        };
        Envelope::new(Code::Unauthenticated, message)
            .with_hint(self.how_to_authenticate())
            .with_status(self.settings.denied)
            .with_header(WWW_AUTHENTICATE, challenge)
    }

    fn how_to_authenticate(&self) -> String {
        let key = "send `Authorization: Bearer <key>` or `X-API-Key: <key>`; `woma keys create` \
                   creates one";
        match &self.tokens {
            Some(tokens) => format!("{key}; or send a token of {} as the key", tokens.issuer()),
            None => key.to_owned(),
        }
    }

    /// Value of `WWW-Authenticate`. Only a server that accepts tokens names OAuth metadata (RFC 9728):
    /// a client that finds it asks its user to log in somewhere.
    fn challenge(
        &self,
        headers: &HeaderMap,
        client: ClientInfo,
        path: &str,
        is_missing: bool,
    ) -> String {
        let mut parameters = Vec::new();
        if self.tokens.is_some() {
            let base = self.base_url(headers, client);
            let path = path.trim_end_matches('/');
            let resource = RESOURCES.iter().find(|name| **name == path).unwrap_or(&"");
            parameters.push(format!(r#"resource_metadata="{base}{METADATA_PATH}{resource}""#));
        } else {
            parameters.push(r#"realm="woma""#.to_owned());
        }
        if !is_missing {
            parameters.push(r#"error="invalid_token""#.to_owned());
        }
        format!("Bearer {}", parameters.join(", "))
    }

    /// Base URL of the server, without a trailing slash. Trusts `Host`, so the guard must have
    /// checked it.
    pub(crate) fn base_url(&self, headers: &HeaderMap, client: ClientInfo) -> String {
        if let Some(url) = &self.settings.public_base_url {
            return url.trim_end_matches('/').to_owned();
        }
        let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or("");
        let scheme = if client.is_https { "https" } else { "http" };
        let host = text(HOST.as_str());
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
        let host = if host.is_empty() || !host.chars().all(plain) { "localhost" } else { host };
        format!("{scheme}://{host}")
    }

    fn page_facts(&self, headers: &HeaderMap, client: ClientInfo) -> PageFacts {
        PageFacts {
            base_url: self.base_url(headers, client),
            // A server whose keys cannot be read is closed.
            needs_key: !self.authenticator.is_open().unwrap_or(false),
            issuer: self.tokens.as_ref().map(|tokens| tokens.issuer().to_owned()),
        }
    }

    /// Metadata of a resource of this server (RFC 9728), if it accepts tokens.
    fn metadata(
        &self,
        headers: &HeaderMap,
        client: ClientInfo,
        resource: &str,
    ) -> Result<Value, Envelope> {
        let Some(tokens) = &self.tokens else {
            return Err(Envelope::new(Code::NotFound, "this server does not use OAuth")
                .with_hint(self.how_to_authenticate()));
        };
        let scopes: Vec<_> = Scope::ALL.iter().map(|scope| format!("woma:{scope}")).collect();
        Ok(json!({
            "resource": format!("{}{resource}", self.base_url(headers, client)),
            "resource_name": "Woma",
            "authorization_servers": [tokens.issuer()],
            "bearer_methods_supported": ["header"],
            "scopes_supported": scopes,
        }))
    }

    /// Reply for the metadata of an authorization server, which this server never is.
    fn no_issuer(&self) -> Envelope {
        let refusal = Envelope::new(Code::NotFound, "this server issues no tokens");
        match &self.tokens {
            Some(tokens) => refusal.with_hint(format!("their issuer is {}", tokens.issuer())),
            None => refusal.with_hint(self.how_to_authenticate()),
        }
    }

    /// The verifier of tokens, if the server accepts any.
    pub(crate) fn tokens(&self) -> Option<&Tokens> {
        self.tokens.as_ref()
    }
}

/// Routes of the OAuth metadata of this resource (RFC 9728), and of the metadata of an issuer, which
/// older clients look for here.
pub(crate) fn metadata_routes(auth_state: &Arc<AuthState>) -> Router {
    let mut router = Router::new().route(METADATA_PATH, get(metadata));
    for resource in RESOURCES {
        router = router.route(&format!("{METADATA_PATH}{resource}"), get(metadata));
    }
    for path in ISSUER_METADATA_PATHS {
        router = router.route(path, get(issuer_metadata));
        router = router.route(&format!("{path}/{{*resource}}"), get(issuer_metadata));
    }
    router.with_state(Arc::clone(auth_state))
}

async fn metadata(
    State(auth_state): State<Arc<AuthState>>,
    OriginalUri(uri): OriginalUri,
    request: Request,
) -> Result<Json<Value>, Envelope> {
    let resource = uri.path().strip_prefix(METADATA_PATH).unwrap_or_default();
    auth_state.metadata(request.headers(), ClientInfo::of(&request), resource).map(Json)
}

async fn issuer_metadata(State(auth_state): State<Arc<AuthState>>) -> Envelope {
    auth_state.no_issuer()
}

/// Reason why authentication failed.
#[derive(Debug, PartialEq, Eq)]
enum Reason {
    Missing,
    /// A header for a key, without one.
    Empty,
    Invalid,
    Different,
    Token(&'static str),
    Unavailable(String),
}

impl Reason {
    fn text(&self) -> &str {
        match self {
            Self::Missing => "no key",
            Self::Empty => "an empty key",
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
    presentable(rest.trim()).map(Some)
}

fn visible(value: &HeaderValue) -> Result<&str, Reason> {
    presentable(value.to_str().map_err(|_| Reason::Invalid)?.trim())
}

fn presentable(key: &str) -> Result<&str, Reason> {
    match key {
        "" => Err(Reason::Empty),
        key if key.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(key),
        _ => Err(Reason::Invalid),
    }
}

/// Whether the text has the three parts of a signed token.
fn is_token(text: &str) -> bool {
    text.bytes().filter(|byte| *byte == b'.').count() == 2
}

/// Rate-limit key: an IPv6 address counts as its /64 network.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
        }
        address @ IpAddr::V4(_) => address,
    }
}

fn tell(client: ClientInfo, reason: &Reason) {
    let reason = reason.text();
    tracing::info!(peer = %client.address, reason, "Request refused: {reason}");
}

fn too_many(retry: RetryAfter, challenge: &str) -> Envelope {
    let message = "too many requests with a wrong key came from this address";
    let refusal =
        Envelope::new(Code::RateLimited, message).with_header(WWW_AUTHENTICATE, challenge);
    Envelope { retry_after: Some(retry.0), ..refusal }
}

fn unavailable() -> Envelope {
    let refusal = Envelope::new(Code::Unavailable, "keys cannot be checked now")
        .with_hint("the server's log has the reason");
    Envelope { retry_after: Some(Duration::from_secs(30)), ..refusal }
}

#[cfg(test)]
mod tests;
