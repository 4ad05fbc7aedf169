//! Downloads of URLs that callers name, guarded against SSRF.
//!
//! Server-side request forgery: a caller names an address that only the server can reach. Types
//! prevent it: text becomes a [`Target`] (one parser), a target becomes a [`Reachable`] (resolved
//! once, every address checked), and only that can be connected to. No name is resolved a second
//! time, and every redirect starts over.
//!
//! The client is hyper's bare HTTP/1.1 connection over a socket that is opened here. It follows no
//! redirects, keeps no cookies, reads no proxy from the environment and decompresses nothing, and
//! dropping a future ends the download at once. Higher-level clients, `ureq` among them, parse the
//! URL again and block a thread while they wait.

mod address;
mod connect;
mod error;
mod name;
mod post;
mod target;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderMap, HeaderName};
use rustls::RootCertStore;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};

pub(super) use address::is_never;
pub use address::refused;
use connect::{Reachable, ResponseHead};
pub use error::FetchError;
pub use name::NAMELESS;
use target::Target;

use super::pace::{Pace, PaceRules};
use crate::model::caller::{Caller, CallerId};
use crate::model::hex;
use crate::shares;
use crate::shares::{PoolUse, Shares};

/// Upper bound of time limits, because an `Instant` can overflow.
const TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// Rules of downloads. The default is safe for callers: public hosts only.
#[derive(Debug, Clone)]
pub struct FetchRules {
    /// Size limit, checked against the announced length and while bytes arrive.
    pub bytes_max: u64,
    /// Total time limit: queueing, resolving, redirects, the body, and writing it.
    pub time_max: Duration,
    /// Time limit of one connection with its TLS handshake.
    pub connect_time_max: Duration,
    pub redirects_max: usize,
    /// Allows loopback and private networks. Link-local addresses and cloud metadata services stay
    /// refused.
    pub allow_private: bool,
    /// Allowed hosts: `example.org`, or subdomains as `*.example.org`. `None` allows any public
    /// host; an empty list allows no host.
    pub allowed_hosts: Option<Vec<String>>,
    /// Concurrent downloads, shared among callers; more wait within their time limit. At least one.
    pub at_once_max: usize,
    /// Least speed of a body: how long it may take, and how much longer for so many bytes.
    pub grace: Duration,
    pub bytes_per_second_min: u64,
}

impl Default for FetchRules {
    fn default() -> Self {
        Self {
            bytes_max: 500 << 20,
            time_max: Duration::from_secs(300),
            connect_time_max: Duration::from_secs(10),
            redirects_max: 10,
            allow_private: false,
            allowed_hosts: None,
            at_once_max: 8,
            grace: Duration::from_secs(30),
            bytes_per_second_min: 16 << 10,
        }
    }
}

/// Resolves a name to addresses. It may block: it runs on its own thread.
pub type Resolve = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

/// Downloader of one caller. Clones share the limit of concurrent downloads.
#[derive(Debug, Clone)]
pub struct Fetcher {
    inner: Arc<Inner>,
    caller: CallerId,
}

struct Inner {
    rules: FetchRules,
    resolve: Arc<Resolve>,
    roots: Arc<RootCertStore>,
    permits: Arc<Shares>,
    /// Test-only redirection of public addresses to local servers.
    #[cfg(test)]
    route: Option<Box<tests::Route>>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetcher").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl Fetcher {
    /// Creates a downloader with the system's resolver.
    pub fn new(rules: FetchRules) -> Self {
        Self::with_resolver(rules, Arc::new(system_resolver))
    }

    /// Creates a downloader with a custom resolver, whose answers are checked too.
    pub fn with_resolver(rules: FetchRules, resolve: Arc<Resolve>) -> Self {
        let roots = webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect();
        Self::with_roots(rules, resolve, roots)
    }

    /// Creates a downloader that trusts these authorities.
    pub(crate) fn with_roots(
        rules: FetchRules,
        resolve: Arc<Resolve>,
        roots: RootCertStore,
    ) -> Self {
        Self::from(Inner::new(rules, resolve, roots))
    }

    /// The same downloader for another caller, which has a share of its own.
    #[must_use]
    pub fn of(&self, caller: &CallerId) -> Self {
        Self { inner: Arc::clone(&self.inner), caller: caller.clone() }
    }

    /// How many downloads there are.
    pub fn usage(&self) -> PoolUse {
        self.inner.permits.usage()
    }

    /// Downloads a file into `sink`. `progress` gets the bytes so far and the total, if the server
    /// announced it. Dropping the future cancels the download.
    pub async fn fetch(
        &self,
        url: &str,
        sink: &mut (dyn AsyncWrite + Send + Unpin),
        progress: &mut (dyn FnMut(u64, Option<u64>) + Send),
    ) -> Result<Fetched, FetchError> {
        self.open(url).await?.save(sink, progress).await
    }

    /// Follows redirects to a file and returns its name and type; the body is not read yet. The
    /// download counts against the limits until it is saved or dropped.
    pub async fn open(&self, url: &str) -> Result<Download, FetchError> {
        self.open_with(url, &[]).await
    }

    /// As [`Fetcher::open`], with headers for the server of this URL: a redirect to another one does
    /// not pass them on.
    pub async fn open_with(
        &self,
        url: &str,
        headers: &[(HeaderName, String)],
    ) -> Result<Download, FetchError> {
        let inner = &self.inner;
        let requested = Target::parse(url)?;
        let limit = inner.rules.time_max;
        let deadline = Instant::now() + limit;
        let permit = inner.permit(&self.caller, deadline).await?;
        let followed = timeout_at(deadline, inner.follow(&requested, headers, &permit))
            .await
            .map_err(|_| FetchError::TimedOut { limit })??;
        let file_name = name::file_name(requested.url(), followed.target.url());
        Download::new(&inner.rules, deadline, permit, file_name, followed)
    }
}

impl From<Inner> for Fetcher {
    fn from(inner: Inner) -> Self {
        Self { inner: Arc::new(inner), caller: Caller::local().id }
    }
}

pub(crate) fn system_resolver(name: &str) -> io::Result<Vec<IpAddr>> {
    Ok((name, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
}

impl Inner {
    fn new(mut rules: FetchRules, resolve: Arc<Resolve>, roots: RootCertStore) -> Self {
        rules.time_max = rules.time_max.min(TIME_MAX);
        rules.connect_time_max = rules.connect_time_max.min(TIME_MAX);
        Self {
            permits: Arc::new(Shares::new(rules.at_once_max.max(1))),
            rules,
            resolve,
            roots: Arc::new(roots),
            #[cfg(test)]
            route: None,
        }
    }

    async fn permit(&self, caller: &CallerId, deadline: Instant) -> Result<Permit, FetchError> {
        match timeout_at(deadline, self.permits.acquire(caller)).await {
            Ok(Ok(permit)) => Ok(Arc::new(permit)),
            _ => Err(FetchError::Busy { at_once_max: self.permits.most(caller) }),
        }
    }

    /// Follows redirects from the requested target to a successful response.
    async fn follow(
        &self,
        requested: &Target,
        headers: &[(HeaderName, String)],
        permit: &Permit,
    ) -> Result<Followed, FetchError> {
        let mut target = requested.clone();
        for _ in 0..=self.rules.redirects_max {
            let own = if target.has_origin_of(requested) { headers } else { &[] };
            let head = Reachable::find(self, &target, permit).await?.request(self, own).await?;
            let status = head.response.status();
            if status.is_success() {
                return Ok(Followed { target, head });
            }
            let location = head.response.headers().get(header::LOCATION);
            target = match (status.as_u16(), location) {
                (301 | 302 | 303 | 307 | 308, Some(location)) => {
                    let location = str::from_utf8(location.as_bytes()).map_err(|_| {
                        FetchError::BadUrl("the URL of a redirect is not UTF-8".to_owned())
                    })?;
                    target.redirect(location)?
                }
                (status, _) => return Err(FetchError::Status(status)),
            };
        }
        Err(FetchError::TooManyRedirects { limit: self.rules.redirects_max })
    }
}

/// End of a chain of redirects.
struct Followed {
    target: Target,
    head: ResponseHead,
}

/// Permit of one download. A thread that still resolves a name holds it too, so that cancelled
/// downloads cannot accumulate threads.
type Permit = Arc<shares::Permit>;

/// File whose response has begun.
#[derive(Debug)]
pub struct Download {
    /// As [`Fetched::file_name`].
    pub file_name: String,
    /// As [`Fetched::media_type`].
    pub media_type: Option<String>,
    /// Announced length in bytes.
    pub length: Option<u64>,
    final_url: String,
    content_encoding: Option<String>,
    status: u16,
    head: ResponseHead,
    bytes_max: u64,
    time_max: Duration,
    pace: Pace,
    deadline: Instant,
    _turn: Permit,
}

/// Result of a download.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// URL after redirects.
    pub final_url: String,
    /// Sanitized last segment of the URL's path, or [`NAMELESS`].
    pub file_name: String,
    /// Media type of the response in lower case, without parameters.
    pub media_type: Option<String>,
    /// Encoding of the bytes, which are stored as received; the request asks for `identity`.
    pub content_encoding: Option<String>,
    pub bytes: u64,
    /// Digest of the bytes, in hexadecimal.
    pub sha256: String,
    pub status: u16,
}

impl Download {
    fn new(
        rules: &FetchRules,
        deadline: Instant,
        permit: Permit,
        file_name: String,
        followed: Followed,
    ) -> Result<Self, FetchError> {
        let Followed { target, head } = followed;
        let length = head.response.body().size_hint().exact();
        if length.is_some_and(|length| length > rules.bytes_max) {
            return Err(FetchError::TooLarge { limit_bytes: rules.bytes_max });
        }
        let headers = head.response.headers();
        Ok(Self {
            file_name,
            media_type: token(headers, &header::CONTENT_TYPE).filter(|name| name.contains('/')),
            length,
            final_url: String::from(target.into_url()),
            content_encoding: token(headers, &header::CONTENT_ENCODING)
                .filter(|name| name != "identity"),
            status: head.response.status().as_u16(),
            head,
            bytes_max: rules.bytes_max,
            time_max: rules.time_max,
            pace: Pace::new(PaceRules {
                grace: rules.grace,
                bytes_per_second: rules.bytes_per_second_min,
                // The deadline has the total time.
                time_max: TIME_MAX,
            }),
            deadline,
            _turn: permit,
        })
    }

    /// Reads the body into `sink`, as [`Fetcher::fetch`] does. After an error the sink holds a part
    /// of the file, never more than the limit.
    pub async fn save(
        mut self,
        sink: &mut (dyn AsyncWrite + Send + Unpin),
        progress: &mut (dyn FnMut(u64, Option<u64>) + Send),
    ) -> Result<Fetched, FetchError> {
        let limit = self.time_max;
        let (bytes, sha256) = timeout_at(self.deadline, self.copy(sink, progress))
            .await
            .map_err(|_| FetchError::TimedOut { limit })??;
        Ok(Fetched {
            final_url: self.final_url,
            file_name: self.file_name,
            media_type: self.media_type,
            content_encoding: self.content_encoding,
            bytes,
            sha256,
            status: self.status,
        })
    }

    async fn copy(
        &mut self,
        sink: &mut (dyn AsyncWrite + Send + Unpin),
        progress: &mut (dyn FnMut(u64, Option<u64>) + Send),
    ) -> Result<(u64, String), FetchError> {
        let (mut bytes, mut digest) = (0, Sha256::new());
        let body: &mut Incoming = self.head.response.body_mut();
        while let Some(frame) = self.pace.wait(body.frame()).await.map_err(FetchError::TooSlow)? {
            // Other frames hold trailers, which are not used.
            let Ok(data) = frame.map_err(FetchError::Broken)?.into_data() else { continue };
            self.pace.count(data.len());
            bytes += data.len() as u64;
            if bytes > self.bytes_max {
                return Err(FetchError::TooLarge { limit_bytes: self.bytes_max });
            }
            digest.update(&data);
            sink.write_all(&data).await.map_err(FetchError::Io)?;
            progress(bytes, self.length);
        }
        sink.flush().await.map_err(FetchError::Io)?;
        let sha256 = hex(&digest.finalize());
        Ok((bytes, sha256))
    }
}

/// Value of a header without its parameters, if it is a plain token.
fn token(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let value = headers.get(name)?.to_str().ok()?;
    let word = value.split(';').next()?.trim();
    let simple = |c: char| c.is_ascii_alphanumeric() || "!#$&-^_.+/".contains(c);
    ((1..=127).contains(&word.len()) && word.chars().all(simple)).then(|| word.to_ascii_lowercase())
}
