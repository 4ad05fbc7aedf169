//! Who asks: a key or a token becomes a `Caller`, or the request goes no further.
//!
//! What was presented is never logged, never repeated in an answer, and never part of an error.

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

use super::jwt::{TokenError, Tokens};
use crate::doors::BaseUrl;
use crate::error::Envelope;

pub(crate) const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";
/// The doors that an OAuth client may ask about, each with a metadata document of its own (RFC 9728).
const RESOURCES: [&str; 3] = ["/mcp", "/sse", "/mcp/sse"];
const API_KEY_HEADER: &str = "x-api-key";
const FAILURES_PER_MINUTE: u32 = 30;
const PEERS_MAX: usize = 4096;

#[derive(Debug, Clone)]
pub(crate) struct GateSettings {
    /// What a request without a valid key is answered with: 401, or 403 where older clients expect it.
    pub(crate) denied: StatusCode,
    /// `PUBLIC_BASE_URL`; without it, the host that the client has used.
    pub(crate) public_base_url: Option<String>,
    /// Whether a proxy before us may say how clients reach it.
    pub(crate) trust_proxy: bool,
    /// Which paths need no key; usually [`is_public`].
    pub(crate) is_public: fn(&str) -> bool,
}

/// All that decides about who comes in.
#[derive(Debug)]
pub(crate) struct Gate {
    authenticator: Authenticator,
    tokens: Option<Tokens>,
    settings: GateSettings,
    failures: RateLimiter<IpAddr>,
}

/// `/health`, capability downloads and what an OAuth client reads before it has a token.
pub(crate) fn is_public(path: &str) -> bool {
    // A path that could mean another one, once somebody has tidied it up, is not public.
    let lower = path.to_ascii_lowercase();
    let devious = ["//", "\\", "%2e", "%2f", "%5c", "%00"].iter().any(|part| lower.contains(part))
        || path.split('/').any(|segment| matches!(segment, "." | ".."));
    let below = |root: &str| path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'));
    !devious && (path == "/health" || below("/dl") || path == METADATA_PATH || below(METADATA_PATH))
}

/// The same where downloads need a key, too.
pub(crate) fn is_public_but_downloads(path: &str) -> bool {
    is_public(path) && !path.starts_with("/dl/")
}

/// Puts the [`Caller`] and the [`BaseUrl`] into the request's extensions, except on public paths. It belongs inside of
/// the layer that answers CORS preflights, which carry no key.
pub(crate) async fn authenticate(
    State(gate): State<Arc<Gate>>,
    mut request: Request,
    next: Next,
) -> Response {
    if (gate.settings.is_public)(request.uri().path()) {
        return next.run(request).await;
    }
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
    match gate.caller(request.headers(), peer, Instant::now()).await {
        Ok(caller) => {
            let base = BaseUrl(gate.base_url(request.headers()).into());
            request.extensions_mut().insert(base);
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(refusal) => refusal.into_response(),
    }
}

impl Gate {
    pub(crate) fn new(
        authenticator: Authenticator,
        tokens: Option<Tokens>,
        settings: GateSettings,
    ) -> Self {
        Self { authenticator, tokens, settings, failures: RateLimiter::new(PEERS_MAX) }
    }

    pub(crate) fn authenticator(&self) -> &Authenticator {
        &self.authenticator
    }

    /// Pure but for the keys: the caller of a request with these headers.
    pub(crate) async fn caller(
        &self,
        headers: &HeaderMap,
        peer: Option<IpAddr>,
        now: Instant,
    ) -> Result<Caller, Envelope> {
        let peer = network(peer.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED)));
        let reason = match self.judge(headers).await {
            // Only a key that can be guessed is worth trying many; whoever has another one is not
            // locked out by somebody else behind the same proxy.
            Ok(caller)
                if caller.id.as_str() == "key:default"
                    && self.authenticator.has_guessable_key() =>
            {
                self.failures.peek(&peer, FAILURES_PER_MINUTE, now).map_err(too_many)?;
                return Ok(caller);
            }
            Ok(caller) => return Ok(caller),
            Err(reason) => reason,
        };
        if let Reason::Unavailable(trouble) = &reason {
            // Whoever found out has logged it already, once for many requests.
            tracing::debug!(trouble, "Keys cannot be checked");
            return Err(unavailable());
        }
        // This bounds the log, too.
        self.failures.check(&peer, FAILURES_PER_MINUTE, now).map_err(too_many)?;
        tracing::info!(%peer, reason = reason.text(), "Request refused: {}", reason.text());
        Err(self.denied(headers, &reason))
    }

    async fn judge(&self, headers: &HeaderMap) -> Result<Caller, Reason> {
        let presented = match presented(headers) {
            Ok(presented) => presented,
            // An open server asks for nothing, and so nothing can be wrong.
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
                TokenError::Unavailable(trouble) => Reason::Unavailable(trouble),
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
            "send `Authorization: Bearer <key>` or `X-API-Key: <key>`; `woma keys create` makes one",
        );
        let refusal = refusal.with_status(self.settings.denied);
        let base = self.base_url(headers);
        let mut challenge = format!(r#"Bearer resource_metadata="{base}{METADATA_PATH}""#);
        if !matches!(reason, Reason::Missing) {
            challenge += r#", error="invalid_token""#;
        }
        refusal.with_header(WWW_AUTHENTICATE, &challenge)
    }

    /// Where clients find us, without a slash at the end. Call it behind the guard only: the host
    /// is the one that the request names.
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

/// The documents of RFC 9728: what this server is, and whose tokens it takes.
pub(crate) fn metadata_routes(gate: &Arc<Gate>) -> Router {
    let mut router = Router::new().route(METADATA_PATH, get(metadata));
    for resource in RESOURCES {
        router = router.route(&format!("{METADATA_PATH}{resource}"), get(metadata));
    }
    router.with_state(Arc::clone(gate))
}

async fn metadata(
    State(gate): State<Arc<Gate>>,
    OriginalUri(uri): OriginalUri,
    headers: HeaderMap,
) -> Json<Value> {
    let resource = uri.path().strip_prefix(METADATA_PATH).unwrap_or_default();
    Json(gate.metadata(&headers, resource))
}

/// Why nobody was recognised.
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

/// The one key of a request. It may come in both headers, but not as two different ones: a proxy
/// and we could believe different halves.
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

/// `Bearer <key>`. Another scheme is for somebody else, such as a proxy on the way.
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

/// Three parts with dots between them, as a signed token has.
fn is_token(text: &str) -> bool {
    text.bytes().filter(|byte| *byte == b'.').count() == 2
}

/// Whoever has one IPv6 address has its whole network.
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
        .with_hint("the operator finds the reason in the server's log");
    Envelope { retry_after: Some(Duration::from_secs(30)), ..refusal }
}

#[cfg(test)]
#[path = "auth_tests.rs"]
mod tests;
