//! Plain HTTP of a room: every request is read whole, must name the host that it is for, and is
//! written anew, so that no two readers can differ about where it ends.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use woma_sandbox::sync::lock;

use super::cover::{self, CoveredStream};
use super::host::Host;
use super::opened::{self, Outside};
use super::reach::Target;
use super::refusal::{Refusal, Why};
use super::relay::relay;
use super::stream::Ticket;
use super::substitute::Substitution;
use super::tunnel::{self, Inside};
use crate::net::secrets::SessionSecrets;

/// Time for the head of a request, and the most that it may have.
const HEAD_TIME_MAX: Duration = Duration::from_secs(60);
const HEAD_BYTES_MAX: usize = 256 * 1024;
const HEADERS_MAX: usize = 256;

/// Headers of one connection, which are not passed on.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub(super) type Body = BoxBody<Bytes, BoxError>;

/// A connection of a room that carries requests.
struct Carrier {
    ticket: Arc<Ticket>,
    epoch: CancellationToken,
    /// The host of all its requests; `None` for a proxy's client, which names it each time.
    target: Option<Target>,
    /// Whether the program and the host each have TLS with this server.
    is_encrypted: bool,
    /// A connection to the host that is made already, for the first request.
    made: std::sync::Mutex<Option<TcpStream>>,
    /// The connection that the latest request used.
    latest: tokio::sync::Mutex<Option<Latest>>,
}

struct Latest {
    host: Host,
    port: u16,
    sender: SendRequest<Body>,
    _connection: AbortOnDropHandle<()>,
}

/// Serves the requests of a connection until it ends.
pub(super) async fn serve(
    ticket: &Arc<Ticket>,
    epoch: &CancellationToken,
    inside: impl Inside,
    target: Option<Target>,
) {
    let carrier = Carrier::new(ticket, epoch, target);
    carry(carrier, inside).await;
}

/// As [`serve`], for requests that were encrypted, and are encrypted anew for the host.
pub(super) async fn serve_encrypted(
    ticket: &Arc<Ticket>,
    epoch: &CancellationToken,
    inside: impl Inside,
    target: Target,
    made: Option<TcpStream>,
) {
    let carrier = Carrier::new(ticket, epoch, Some(target));
    carry(Carrier { is_encrypted: true, made: made.into(), ..carrier }, inside).await;
}

async fn carry(carrier: Carrier, inside: impl Inside) {
    let (ticket, epoch) = (Arc::clone(&carrier.ticket), carrier.epoch.clone());
    let carrier = Arc::new(carrier);
    let service = service_fn(move |request| {
        let carrier = Arc::clone(&carrier);
        async move { Ok::<_, Infallible>(carrier.answer(request).await) }
    });
    let serving = server().serve_connection(TokioIo::new(inside), service).with_upgrades();
    finish(serving, &ticket, &epoch).await;
}

/// Answers the first request of a connection with the reason of its refusal.
pub(super) async fn answer_refused(inside: impl Inside, refusal: &Refusal, ticket: &Arc<Ticket>) {
    ticket.lift_limit();
    let text = refusal.to_string();
    let service = service_fn(move |_request: Request<Incoming>| {
        let text = text.clone();
        async move { Ok::<_, Infallible>(page(StatusCode::FORBIDDEN, &text)) }
    });
    let serving = server().serve_connection(TokioIo::new(inside), service);
    finish(serving, ticket, &CancellationToken::new()).await;
}

fn server() -> http1::Builder {
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .half_close(true)
        .preserve_header_case(true);
    server
}

async fn finish(
    serving: impl Future<Output = hyper::Result<()>>,
    ticket: &Ticket,
    epoch: &CancellationToken,
) {
    tokio::select! {
        served = serving => {
            if let Err(error) = served {
                tracing::trace!(%error, "A connection of a room ended");
            }
        }
        () = ticket.idle() => {}
        () = epoch.cancelled() => {}
        () = ticket.closed.cancelled() => {}
    }
}

fn page(status: StatusCode, text: &str) -> Response<Body> {
    let mut response = Response::new(full(format!("{text}\n")));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

pub(super) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}

/// A body that is passed on as it comes.
pub(super) fn passed(body: Incoming) -> Body {
    body.map_err(Into::into).boxed()
}

impl Carrier {
    fn new(ticket: &Arc<Ticket>, epoch: &CancellationToken, target: Option<Target>) -> Self {
        let (ticket, epoch) = (Arc::clone(ticket), epoch.clone());
        let (made, latest) = Default::default();
        Self { ticket, epoch, target, is_encrypted: false, made, latest }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let answered = match *request.method() == Method::CONNECT {
            true => self.open_tunnel(request).await,
            false => self.pass_on(request).await,
        };
        match answered {
            Ok(response) => response,
            Err(refusal) => {
                self.ticket.room.refuse(&refusal);
                self.ticket.lift_limit();
                let status = match refusal.why {
                    Why::BadRequest(_) | Why::NoName => StatusCode::BAD_REQUEST,
                    Why::Connect(_) | Why::Resolution(_) | Why::Certificate(_) => {
                        StatusCode::BAD_GATEWAY
                    }
                    Why::Connections { .. } | Why::Bytes { .. } | Why::Lookups => {
                        StatusCode::SERVICE_UNAVAILABLE
                    }
                    _ => StatusCode::FORBIDDEN,
                };
                page(status, &refusal.to_string())
            }
        }
    }

    /// CONNECT, which only a proxy's client may send.
    async fn open_tunnel(&self, request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
        let authority = request.uri().authority().map_or("", |authority| authority.as_str());
        if let Some(target) = &self.target {
            return Err(target.refusal(Why::BadRequest("CONNECT is for proxies")));
        }
        let (host, port) = Host::with_port(authority, None)
            .ok_or_else(|| Refusal::of_text(authority.as_bytes(), Why::NoName))?;
        let room = &self.ticket.room;
        room.allow(&host, port)?;
        let target = Target::new(host, port);
        let outside = room.connect(&target).await?;
        let ticket = Arc::clone(&self.ticket);
        let upgraded = hyper::upgrade::on(request);
        tokio::spawn(async move {
            match upgraded.await {
                Ok(inside) => {
                    tunnel::carry(ticket, TokioIo::new(inside), target, Some(outside)).await;
                }
                Err(error) => tracing::trace!(%error, "A tunnel of a room was not opened"),
            }
        });
        Ok(Response::new(full("")))
    }

    async fn pass_on(&self, mut request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
        let target = self.target_of(&request)?;
        let room = &self.ticket.room;
        room.allow(&target.host, target.port)?;
        let authority = authority_of(&target, if self.is_encrypted { 443 } else { 80 });
        let upgrade = upgrade_of(request.headers());
        *request.uri_mut() = origin_form(request.uri());
        strip(request.headers_mut());
        // The server of the room has said so already.
        request.headers_mut().remove(header::EXPECT);
        request.headers_mut().insert(header::HOST, authority);
        if let Some(protocol) = &upgrade {
            add_upgrade(request.headers_mut(), protocol);
        }
        let inside = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
        let is_head = *request.method() == Method::HEAD;
        let secrets = room.network.secrets();
        let is_bound = secrets.has_any_for(&target.host, target.port, self.is_encrypted);
        let mask = secrets.mask.clone().filter(|_| is_bound);
        let request = self.with_values(&target, &secrets, is_bound, request).await?;
        let mut response = self.send(&target, request).await?;
        let switched = response.headers().get(header::UPGRADE).cloned();
        strip(response.headers_mut());
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let (Some(inside), Some(protocol)) = (inside, switched) else {
                return Err(target.refusal(Why::Protocol("the host switched protocols unasked")));
            };
            add_upgrade(response.headers_mut(), &protocol);
            let outside = hyper::upgrade::on(&mut response);
            let (ticket, epoch) = (Arc::clone(&self.ticket), self.epoch.clone());
            let mask = mask.clone();
            tokio::spawn(async move {
                let (Ok(inside), Ok(outside)) = tokio::join!(inside, outside) else { return };
                let (inside, outside) = (TokioIo::new(inside), TokioIo::new(outside));
                match mask {
                    Some(mask) => {
                        let outside = CoveredStream::new(mask, outside);
                        relay(inside, outside, &ticket, &epoch).await;
                    }
                    None => relay(inside, outside, &ticket, &epoch).await,
                }
            });
        }
        match mask {
            Some(mask) => {
                let covered = cover::response(&mask, is_head, response).await;
                covered.map_err(|why| target.refusal(why))
            }
            None => Ok(response.map(passed)),
        }
    }

    /// A request with the values of the secrets that are bound to its host.
    async fn with_values(
        &self,
        target: &Target,
        secrets: &SessionSecrets,
        is_bound: bool,
        mut request: Request<Incoming>,
    ) -> Result<Request<Body>, Refusal> {
        if secrets.is_empty() {
            return Ok(request.map(passed));
        }
        let mut substitution = Substitution::new(secrets, target, self.is_encrypted);
        substitution.head(&mut request);
        if is_bound {
            let headers = request.headers_mut();
            // What comes back is read.
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            headers.remove(header::SEC_WEBSOCKET_EXTENSIONS);
        }
        let whole = substitution.whole(request).await.map_err(|error| broken(target, error));
        for secret in substitution.misplaced {
            self.ticket.room.refuse(&target.refusal(Why::Misplaced { secret }));
        }
        whole
    }

    /// The host of a request. All places that name one must agree.
    fn target_of(&self, request: &Request<Incoming>) -> Result<Target, Refusal> {
        let (scheme, default) = if self.is_encrypted { ("https", 443) } else { ("http", 80) };
        let headers = request.headers();
        let named: Vec<_> = headers.get_all(header::HOST).iter().collect();
        let shown = named.first().map_or(&b""[..], |value| value.as_bytes());
        let bad = |what| Err(Refusal::of_text(shown, Why::BadRequest(what)));
        let named = match named.as_slice() {
            [] if self.target.is_none() => None,
            [one] => Some(one.to_str().ok().and_then(|text| Host::with_port(text, Some(default)))),
            [] => return bad("it has no Host"),
            _ => return bad("it has several Hosts"),
        };
        let uri = request.uri();
        let absolute = uri.authority().map(|authority| {
            let is_same = uri.scheme_str() == Some(scheme);
            Host::with_port(authority.as_str(), Some(default)).filter(|_| is_same)
        });
        let (target, said) = match (&self.target, absolute) {
            (Some(target), absolute) => (target.clone(), [absolute, named]),
            (None, Some(Some((host, port)))) => (Target::new(host, port), [None, named]),
            (None, Some(None)) => return bad("its address cannot be used; https needs CONNECT"),
            (None, None) => return bad("a request to a proxy has a whole address"),
        };
        for one in said.into_iter().flatten() {
            // A Host without a port means the port of the connection.
            let agrees = one.as_ref().is_some_and(|(host, port)| {
                *host == target.host && (*port == target.port || *port == default)
            });
            if !agrees {
                let said = one.map_or_else(
                    || String::from_utf8_lossy(shown).chars().take(100).collect(),
                    |(host, port)| format!("{host}:{port}"),
                );
                return Err(target.refusal(Why::Mismatch { said, by: "request" }));
            }
        }
        Ok(target)
    }

    /// Sends a request on the connection of the one before it, or on a new one.
    async fn send(
        &self,
        target: &Target,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, Refusal> {
        let mut latest = self.latest.lock().await;
        let is_same = |one: &Latest| one.host == target.host && one.port == target.port;
        if let Some(mut one) = latest.take().filter(is_same)
            && one.sender.ready().await.is_ok()
        {
            match one.sender.try_send_request(request).await {
                Ok(response) => {
                    *latest = Some(one);
                    return Ok(response);
                }
                Err(mut error) => match error.take_message() {
                    // The host hung up before it saw the request.
                    Some(unsent) => request = unsent,
                    None => return Err(broken(target, error.into_error())),
                },
            }
        }
        let made = lock(&self.made).take();
        let socket = match made {
            Some(made) => made,
            None => self.ticket.room.connect(target).await?,
        };
        let one = if self.is_encrypted {
            let config = &self.ticket.room.egress.tls;
            let encrypted = opened::encrypt(config, target, socket).await;
            Latest::new(target, encrypted.map_err(|why| target.refusal(why))?).await
        } else {
            Latest::new(target, socket).await
        };
        let mut one = one.map_err(|error| broken(target, error))?;
        let response = one.sender.send_request(request).await;
        let response = response.map_err(|error| broken(target, error))?;
        *latest = Some(one);
        Ok(response)
    }
}

impl Latest {
    async fn new(target: &Target, outside: impl Outside) -> hyper::Result<Self> {
        let (sender, connection) = hyper::client::conn::http1::Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEADERS_MAX)
            .preserve_header_case(true)
            .handshake(TokioIo::new(outside))
            .await?;
        let connection = connection.with_upgrades();
        let connection = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::trace!(%error, "A connection to a host ended");
            }
        });
        let (host, port) = (target.host.clone(), target.port);
        Ok(Self { host, port, sender, _connection: AbortOnDropHandle::new(connection) })
    }
}

fn broken(target: &Target, error: hyper::Error) -> Refusal {
    target.refusal(Why::Connect(std::io::Error::other(error)))
}

fn authority_of(target: &Target, default: u16) -> HeaderValue {
    let text = match target.port {
        port if port == default => target.host.to_string(),
        port => format!("{}:{port}", target.host),
    };
    // A host is ASCII without control characters.
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// Path and query, as a host reads them.
fn origin_form(uri: &Uri) -> Uri {
    match uri.path_and_query() {
        Some(path) => Uri::from(path.clone()),
        None => Uri::from_static("/"),
    }
}

/// The protocol that a request would switch to.
fn upgrade_of(headers: &HeaderMap) -> Option<HeaderValue> {
    let is_listed = headers.get_all(header::CONNECTION).iter().any(|value| {
        let names = value.to_str().unwrap_or_default().split(',');
        names.map(str::trim).any(|name| name.eq_ignore_ascii_case("upgrade"))
    });
    headers.get(header::UPGRADE).filter(|_| is_listed).cloned()
}

fn add_upgrade(headers: &mut HeaderMap, protocol: &HeaderValue) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, protocol.clone());
}

/// Takes off what belongs to one connection only.
fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        // Without its length, a body would end elsewhere.
        .filter(|name| *name != header::CONTENT_LENGTH && *name != header::HOST)
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}
