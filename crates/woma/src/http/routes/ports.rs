//! Servers in sessions: `/sessions/{id}/ports/{port}/` passes requests on to a server that listens in
//! a session of the caller's, also on connections that switch to another protocol.
//!
//! The responses of such a server are hostile. A page of its own has no origin here (`Content-Security-Policy:
//! sandbox`), so it cannot act on the routes of this server; nothing that a client has for this
//! server reaches it, and nothing that it sets holds for the rest of this server.

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{
    self, CONNECTION, CONTENT_SECURITY_POLICY, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue,
    LOCATION, UPGRADE,
};
use axum::http::uri::PathAndQuery;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use axum::routing::any;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::task::AbortOnDropHandle;
use woma_core::{Code, PortConnection, SessionId};

use crate::api::error::Envelope;
use crate::api::state::AppState;
use crate::http::extract::{CallerOf, PathParams};
use crate::http::layers::headers::RESOURCE_POLICY;

/// Limits of the head of a response.
const HEAD_BYTES_MAX: usize = 256 * 1024;
const HEADERS_MAX: usize = 256;

/// A page of a session has scripts, forms and downloads, and no origin.
const SANDBOX: &str = "sandbox allow-scripts allow-forms allow-modals allow-popups allow-downloads";

/// Headers of one connection.
const HOP_BY_HOP: [HeaderName; 7] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    UPGRADE,
];

/// Headers of a client that are for this server, or that tell where it is.
const OWN: [HeaderName; 9] = [
    header::AUTHORIZATION,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("x-api-key"),
    COOKIE,
    header::ORIGIN,
    header::REFERER,
    header::FORWARDED,
    header::EXPECT,
    HeaderName::from_static("idempotency-key"),
];

/// Headers of a server in a session that would hold for all of this server.
const FOREIGN: [HeaderName; 10] = [
    header::SET_COOKIE,
    header::STRICT_TRANSPORT_SECURITY,
    header::ALT_SVC,
    header::WWW_AUTHENTICATE,
    header::PROXY_AUTHENTICATE,
    HeaderName::from_static("clear-site-data"),
    HeaderName::from_static("service-worker-allowed"),
    HeaderName::from_static("report-to"),
    HeaderName::from_static("nel"),
    HeaderName::from_static("origin-agent-cluster"),
];

pub(in crate::http) fn routes(state: &AppState) -> Router {
    let mut router = Router::new();
    for path in ["/sessions/{id}/ports/{port}/", "/api/v1/sessions/{id}/ports/{port}/"] {
        router = router.route(path, any(pass_on)).route(&format!("{path}{{*rest}}"), any(pass_on));
    }
    for path in ["/sessions/{id}/ports/{port}", "/api/v1/sessions/{id}/ports/{port}"] {
        router = router.route(path, any(add_slash));
    }
    router.with_state(state.clone())
}

/// Relative links of a page need the slash.
async fn add_slash(uri: Uri) -> Response {
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let location = HeaderValue::from_str(&format!("{}/{query}", uri.path()));
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
    response.headers_mut().extend(location.ok().map(|location| (LOCATION, location)));
    response
}

async fn pass_on(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams(path): PathParams<PortPath>,
    mut request: Request,
) -> Result<Response, Envelope> {
    let id = SessionId::parse(&path.id)?;
    let PortConnection { stream, permit } =
        state.service.connect_port(&caller, &id, path.port).await?;
    let prefix = prefix_of(request.uri().path());
    let upgrade = upgrade_of(request.headers());
    let uri = uri_below(&prefix, request.uri());
    *request.uri_mut() = uri.ok_or_else(|| failed(path.port, "its path cannot be read"))?;
    clean_request(request.headers_mut(), &prefix, path.port)?;
    if let Some(protocol) = &upgrade {
        add_upgrade(request.headers_mut(), protocol);
    }
    let outside = upgrade.as_ref().map(|_| hyper::upgrade::on(&mut request));
    let broken = |error: hyper::Error| failed(path.port, &error.to_string());
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .preserve_header_case(true)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    let connection = AbortOnDropHandle::new(tokio::spawn(connection.with_upgrades()));
    let mut response = sender.send_request(request).await.map_err(broken)?;
    let switched = response.headers().get(UPGRADE).cloned();
    clean_response(response.headers_mut(), &prefix, path.port);
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let (Some(outside), Some(protocol)) = (outside, switched) else {
            return Err(failed(path.port, "it switched protocols unasked"));
        };
        add_upgrade(response.headers_mut(), &protocol);
        let inside = hyper::upgrade::on(&mut response);
        tokio::spawn(async move {
            if let (Ok(inside), Ok(outside)) = tokio::join!(inside, outside) {
                relay(TokioIo::new(inside), TokioIo::new(outside)).await;
            }
            drop((permit, connection));
        });
        return Ok(response.map(|_| Body::empty()));
    }
    let held = (permit, connection, sender);
    Ok(response.map(|body| Body::new(HeldBody { body, _held: held })))
}

/// Carries bytes until either side has ended: a client that has gone must not leave a connection to
/// a server that goes on waiting.
async fn relay(inside: impl AsyncRead + AsyncWrite, outside: impl AsyncRead + AsyncWrite) {
    let (mut from_session, mut to_session) = tokio::io::split(inside);
    let (mut from_client, mut to_client) = tokio::io::split(outside);
    let ended = tokio::select! {
        ended = tokio::io::copy(&mut from_session, &mut to_client) => ended,
        ended = tokio::io::copy(&mut from_client, &mut to_session) => ended,
    };
    if let Err(error) = ended {
        tracing::trace!(%error, "A connection to a port ended");
    }
}

/// Parameters of the path.
#[derive(Debug, serde::Deserialize)]
struct PortPath {
    id: String,
    port: u16,
}

/// A body that keeps its connection.
struct HeldBody<T> {
    body: hyper::body::Incoming,
    _held: T,
}

impl<T: Unpin> http_body::Body for HeldBody<T> {
    type Data = axum::body::Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Self::Data>, hyper::Error>>> {
        std::pin::Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

fn failed(port: u16, why: &str) -> Envelope {
    let message = format!("the server on port {port} of the session did not answer: {why}");
    Envelope::new(Code::Unavailable, message)
        .with_status(StatusCode::BAD_GATEWAY)
        .with_hint("it must speak HTTP/1.1; its own output says more")
}

/// The part of a path up to the port, without a final slash.
fn prefix_of(path: &str) -> String {
    let start = path.find("/ports/").map_or(path.len(), |at| at + "/ports/".len());
    let rest = path.get(start..).unwrap_or_default();
    let end = start + rest.find('/').unwrap_or(rest.len());
    path.get(..end).unwrap_or(path).to_owned()
}

/// The path and query below the prefix.
fn uri_below(prefix: &str, uri: &Uri) -> Option<Uri> {
    let whole = uri.path_and_query()?.as_str();
    let below = whole.strip_prefix(prefix)?;
    PathAndQuery::try_from(below).ok().map(Uri::from)
}

/// The protocol that a client wants to switch to.
fn upgrade_of(headers: &HeaderMap) -> Option<HeaderValue> {
    let is_listed = headers.get_all(CONNECTION).iter().any(|value| {
        let names = value.to_str().unwrap_or_default().split(',');
        names.map(str::trim).any(|name| name.eq_ignore_ascii_case("upgrade"))
    });
    headers.get(UPGRADE).filter(|_| is_listed).cloned()
}

fn add_upgrade(headers: &mut HeaderMap, protocol: &HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol.clone());
}

/// Takes off what belongs to one connection, and what `Connection` names.
fn strip(headers: &mut HeaderMap, more: &[HeaderName]) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .filter(|name| *name != header::CONTENT_LENGTH && *name != HOST)
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP).chain(more) {
        headers.remove(name);
    }
}

fn clean_request(headers: &mut HeaderMap, prefix: &str, port: u16) -> Result<(), Envelope> {
    strip(headers, &OWN);
    let told: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with("x-forwarded-")).cloned().collect();
    for name in told {
        headers.remove(name);
    }
    let value = |text: &str| {
        HeaderValue::from_str(text).map_err(|_| failed(port, "its path cannot be a header"))
    };
    headers.insert(HOST, value(&format!("localhost:{port}"))?);
    headers.insert("x-forwarded-prefix", value(prefix)?);
    Ok(())
}

fn clean_response(headers: &mut HeaderMap, prefix: &str, port: u16) {
    strip(headers, &FOREIGN);
    let granted: Vec<HeaderName> = headers
        .keys()
        .filter(|name| name.as_str().starts_with("access-control-"))
        .cloned()
        .collect();
    for name in granted {
        headers.remove(name);
    }
    if let Some(location) =
        headers.get(LOCATION).and_then(|value| location_here(value, prefix, port))
    {
        headers.insert(LOCATION, location);
    }
    headers.append(CONTENT_SECURITY_POLICY, HeaderValue::from_static(SANDBOX));
    // The page has no origin, so that its own files come from another one.
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("cross-origin"));
}

/// A redirect to the server itself, as an address here.
fn location_here(value: &HeaderValue, prefix: &str, port: u16) -> Option<HeaderValue> {
    let text = value.to_str().ok()?;
    let own = [format!("http://localhost:{port}"), format!("http://127.0.0.1:{port}")];
    let rest = own.iter().find_map(|own| text.strip_prefix(own.as_str())).unwrap_or(text);
    let is_path = rest.is_empty() || rest.starts_with('/') && !rest.starts_with("//");
    is_path.then(|| HeaderValue::from_str(&format!("{prefix}{rest}")).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_divided_after_its_port() {
        for (path, prefix, below) in [
            ("/sessions/a/ports/8000/", "/sessions/a/ports/8000", "/"),
            ("/sessions/a/ports/8000/x/y?q=1", "/sessions/a/ports/8000", "/x/y?q=1"),
            ("/api/v1/sessions/a/ports/1/ports/2/", "/api/v1/sessions/a/ports/1", "/ports/2/"),
            ("/sessions/a%20b/ports/1/%2e%2e/x", "/sessions/a%20b/ports/1", "/%2e%2e/x"),
        ] {
            let uri: Uri = path.parse().unwrap();
            assert_eq!(prefix_of(uri.path()), prefix);
            assert_eq!(uri_below(prefix, &uri).unwrap().to_string(), below);
        }
    }

    #[test]
    fn nothing_of_this_server_reaches_a_session_and_nothing_comes_back_for_it() {
        let mut headers = HeaderMap::new();
        for name in OWN.iter().chain(&FOREIGN).chain(&HOP_BY_HOP) {
            headers.insert(name.clone(), HeaderValue::from_static("secret"));
        }
        headers.insert("x-forwarded-for", HeaderValue::from_static("secret"));
        headers.insert("x-own", HeaderValue::from_static("secret"));
        headers.insert(CONNECTION, HeaderValue::from_static("x-own, host"));
        headers.insert("accept", HeaderValue::from_static("*/*"));
        let mut request = headers.clone();
        clean_request(&mut request, "/sessions/a/ports/80", 8000).unwrap();
        for name in OWN.iter().chain(&HOP_BY_HOP) {
            assert!(!request.contains_key(name), "{name}");
        }
        assert!(!request.contains_key("x-own") && !request.contains_key("x-forwarded-for"));
        assert_eq!(request["host"], "localhost:8000");
        assert_eq!(request["x-forwarded-prefix"], "/sessions/a/ports/80");
        headers.insert("access-control-allow-origin", HeaderValue::from_static("*"));
        clean_response(&mut headers, "/p", 8000);
        for name in FOREIGN.iter().chain(&HOP_BY_HOP) {
            assert!(!headers.contains_key(name), "{name}");
        }
        assert!(!headers.contains_key("access-control-allow-origin"));
        let policy = headers[CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("sandbox ") && !policy.contains("allow-same-origin"));
    }

    #[test]
    fn redirects_of_a_server_to_itself_stay_below_its_port() {
        for (location, expected) in [
            ("/x?y", Some("/p/x?y")),
            ("http://localhost:8000/x", Some("/p/x")),
            ("http://127.0.0.1:8000", Some("/p")),
            ("http://localhost:8000@evil.test/", None),
            ("//evil.test/x", None),
            ("https://elsewhere.test/", None),
            ("relative", None),
        ] {
            let value = HeaderValue::from_static(location);
            let here = location_here(&value, "/p", 8000);
            assert_eq!(here.as_ref().map(|here| here.to_str().unwrap()), expected, "{location}");
        }
    }
}
