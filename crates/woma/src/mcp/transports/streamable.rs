//! Streamable HTTP on `/mcp`, by rmcp, for revisions with and without sessions. Added here: a
//! disconnect interrupts the code, a session belongs to the caller that opened it, and missing
//! content types are filled in. The usual stateless call takes the fast path instead.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName};
use axum::http::{HeaderValue, Method, Request, Response, StatusCode};
use axum::response::IntoResponse;
use http_body::Frame;
use http_body_util::combinators::BoxBody;
use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::ServiceExt as _;
use tower::util::BoxCloneSyncService;
use woma_core::{Caller, CallerId, Code, SessionId, share_of_caller};
use woma_sandbox::sync::lock;

use crate::api::error::Envelope;
use crate::mcp::conformance::Conformance;
use crate::mcp::{Hangup, Mcp, OwnSession};

const SESSION_HEADER: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION_HEADER: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The first revision without sessions; revisions are dates and compare as text.
const STATELESS_SINCE: &[u8] = b"2026-07-28";
/// Limit of open protocol sessions; each takes about sixty kilobytes.
const SESSIONS_MAX: usize = 1_000;
/// Limit of one caller's protocol sessions.
const SESSIONS_OF_CALLER_MAX: usize = share_of_caller(SESSIONS_MAX);
/// Interval of keep-alives, for clients that did not ask for progress.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// The rmcp service of either handler.
type Inner = BoxCloneSyncService<Request<Body>, Response<BoxBody<Bytes, Infallible>>, Infallible>;

#[derive(Clone)]
pub(crate) struct Streamable {
    inner: Inner,
    manager: Arc<LocalSessionManager>,
    owners: Arc<Mutex<BTreeMap<String, Owner>>>,
}

/// Owner of a protocol session, and the default session of its client.
#[derive(Debug, Clone)]
struct Owner {
    caller: CallerId,
    default_session: SessionId,
}

impl Streamable {
    /// `silence_max` must exceed the longest run, or a session with silent code would expire.
    pub(crate) fn new(
        mcp: &Mcp,
        body_bytes_max: usize,
        silence_max: Duration,
        stop: CancellationToken,
    ) -> Self {
        let mut manager = LocalSessionManager::default();
        manager.session_config.keep_alive = Some(silence_max);
        let manager = Arc::new(manager);
        // The guard layer has checked hosts and origins.
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_sse_keep_alive(Some(KEEP_ALIVE))
            .with_json_response(true)
            .with_max_request_body_bytes(body_bytes_max)
            .with_cancellation_token(stop);
        let inner = if mcp.state.presentation.conformance {
            serve(Conformance::new(mcp.clone()), &manager, config)
        } else {
            serve(mcp.clone(), &manager, config)
        };
        Self { inner, manager, owners: Arc::default() }
    }

    pub(crate) async fn handle(&self, mut request: Request<Body>) -> Response<Body> {
        let Some(caller) = request.extensions().get::<Caller>().cloned() else {
            let text = "the request was not authenticated";
            return Envelope::new(Code::Internal, text).into_response();
        };
        let session = request.headers().get(SESSION_HEADER).cloned();
        // Stateless clients need no session.
        let is_legacy_post = request.method() == Method::POST && !is_stateless(request.headers());
        let refused = match &session {
            Some(session) => match self.owner(session) {
                // Sessions of other callers do not exist for this one.
                Some(owner) if owner.caller != caller.id => {
                    Some(Envelope::new(Code::NotFound, "the MCP session does not exist"))
                }
                Some(owner) => {
                    request.extensions_mut().insert(OwnSession(owner.default_session));
                    None
                }
                // rmcp rejects unknown ids.
                None => None,
            },
            None if is_legacy_post => self.refuse_opening(&caller).await,
            None => None,
        };
        if let Some(refused) = refused {
            return refused.into_response();
        }
        let is_ending = request.method() == Method::DELETE;
        let is_opening = session.is_none() && request.method() == Method::POST;
        let hangup = Hangup::default();
        request.extensions_mut().insert(hangup.clone());
        // Only POSTs run code; a notification stream has nothing to interrupt.
        let guard = (request.method() == Method::POST).then(|| hangup.0.drop_guard());
        let Ok(response) = self.inner.clone().oneshot(request).await;
        if is_opening && let Some(id) = response.headers().get(SESSION_HEADER) {
            self.own(id, &caller);
        }
        let mut response = response.map(|body| Body::new(GuardedBody { body, _guard: guard }));
        // Some clients accept only 200, not 202, for the end of a session.
        if is_ending && response.status() == StatusCode::ACCEPTED {
            *response.status_mut() = StatusCode::OK;
        }
        response
    }

    fn owner(&self, session: &HeaderValue) -> Option<Owner> {
        lock(&self.owners).get(session.to_str().ok()?).cloned()
    }

    async fn refuse_opening(&self, caller: &Caller) -> Option<Envelope> {
        let alive = self.manager.sessions.read().await;
        let mut owners = lock(&self.owners);
        if owners.len() >= SESSIONS_OF_CALLER_MAX {
            owners.retain(|id, _| alive.contains_key(id.as_str()));
        }
        let of_caller = owners.values().filter(|owner| owner.caller == caller.id).count();
        if alive.len() < SESSIONS_MAX && of_caller < SESSIONS_OF_CALLER_MAX {
            return None;
        }
        let hint = "end sessions with DELETE, or use protocol 2026-07-28, which needs no session";
        Some(Envelope::new(Code::Busy, "too many MCP sessions are open").with_hint(hint))
    }

    fn own(&self, id: &HeaderValue, caller: &Caller) {
        let Ok(id) = id.to_str() else { return };
        let alive = self.manager.sessions.try_read();
        let mut owners = lock(&self.owners);
        if let (true, Ok(alive)) = (owners.len() >= 64, alive) {
            owners.retain(|id, _| alive.contains_key(id.as_str()));
        }
        let owner = Owner { caller: caller.id.clone(), default_session: SessionId::mint_default() };
        owners.insert(id.to_owned(), owner);
    }
}

impl std::fmt::Debug for Streamable {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Streamable").finish_non_exhaustive()
    }
}

fn serve<H: ServerHandler + Clone>(
    handler: H,
    manager: &Arc<LocalSessionManager>,
    config: StreamableHttpServerConfig,
) -> Inner {
    let factory = move || Ok(handler.clone());
    Inner::new(StreamableHttpService::new(factory, Arc::clone(manager), config))
}

/// Whether a POST is of a revision with sessions and names none: a client that posts one request
/// after the other without a handshake, as some older systems allowed.
pub(crate) fn is_without_session(headers: &HeaderMap) -> bool {
    !headers.contains_key(SESSION_HEADER) && !is_stateless(headers)
}

fn is_stateless(headers: &HeaderMap) -> bool {
    headers.get(VERSION_HEADER).is_some_and(|version| version.as_bytes() >= STATELESS_SINCE)
}

/// Fills in a missing `Accept` and `Content-Type`.
pub(crate) fn fill_default_headers(headers: &mut HeaderMap) {
    const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
    const JSON: HeaderValue = HeaderValue::from_static("application/json");
    let accepts_anything = match headers.get(ACCEPT).map(|value| value.to_str().unwrap_or("")) {
        None => true,
        Some(accept) => accept.contains("*/*"),
    };
    if accepts_anything {
        headers.insert(ACCEPT, BOTH);
    }
    let form = "application/x-www-form-urlencoded";
    let is_bare = headers.get(CONTENT_TYPE).is_none_or(|kind| kind == form);
    if is_bare {
        headers.insert(CONTENT_TYPE, JSON);
    }
}

/// Response body whose drop, complete or not, cancels the request.
struct GuardedBody<B> {
    body: B,
    _guard: Option<DropGuard>,
}

impl<B: http_body::Body<Data = Bytes> + Unpin> http_body::Body for GuardedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}
