//! Downloads of what callers name, made by the server, which stands where callers do not.
//!
//! The danger is a request that the server makes for someone else to a place that only the server
//! can reach. So the way to a connection is one of types: text becomes a [`Target`] (one parser,
//! no surprises), a target becomes a [`Reachable`] (resolved once, every address judged), and only
//! that can be connected to. No name is resolved a second time, and every redirect begins anew.
//!
//! The client is hyper's bare HTTP/1.1 connection over a socket that is opened here. It follows
//! nothing, keeps no cookies, reads no proxy from the environment and inflates nothing, so there
//! is nothing to turn off, and dropping a future ends the download at once. Clients of a higher
//! level, `ureq` among them, parse the address again, and block a thread while they wait.

mod address;
mod connect;
mod error;
mod name;
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
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

pub use address::refused;
use connect::{Answer, Reachable};
pub use error::FetchError;
pub use name::NAMELESS;
use target::Target;

/// Beyond a day no limit is meant, and instants have an end.
const TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// What a download may do. The default is what callers may be given: public hosts only.
#[derive(Debug, Clone)]
pub struct FetchRules {
    /// A longer file is refused: at once if its length is told, else where it passes the limit.
    pub bytes_max: u64,
    /// For everything together: waiting, resolving, redirects, the body, and writing it.
    pub time_max: Duration,
    /// For one connection, with its TLS handshake.
    pub connect_time_max: Duration,
    pub redirects_max: usize,
    /// Opens loopback and private networks. Link-local addresses and the metadata services of
    /// clouds stay closed.
    pub allow_private: bool,
    /// Hosts as `example.org`, or all below one as `*.example.org`. `None` is any public host; an
    /// empty list is none.
    pub allowed_hosts: Option<Vec<String>>,
    /// Downloads beyond these wait, as long as their time lasts. At least one.
    pub at_once_max: usize,
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
        }
    }
}

/// From a name to its addresses. It may block: it runs on a thread of its own.
pub type Resolve = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

/// Downloads within the rules. Clones share the count of downloads at once.
#[derive(Debug, Clone)]
pub struct Fetcher {
    inner: Arc<Inner>,
}

struct Inner {
    rules: FetchRules,
    resolve: Arc<Resolve>,
    roots: Arc<RootCertStore>,
    turns: Arc<Semaphore>,
    /// Where tests send what goes to a public address. A server has no such thing.
    #[cfg(test)]
    route: Option<Box<tests::Route>>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetcher").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl Fetcher {
    /// Resolves names as the system does.
    pub fn new(rules: FetchRules) -> Self {
        Self::with_resolver(rules, Arc::new(system_resolver))
    }

    /// Resolves names with `resolve`. What it answers is judged like any other answer.
    pub fn with_resolver(rules: FetchRules, resolve: Arc<Resolve>) -> Self {
        let roots = webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect();
        Self { inner: Arc::new(Inner::new(rules, resolve, roots)) }
    }

    /// Downloads a file into `sink`. `progress` is told the bytes so far, and how many there will
    /// be if the server said so. Dropping the future ends the download.
    pub async fn fetch(
        &self,
        url: &str,
        sink: &mut (dyn AsyncWrite + Send + Unpin),
        progress: &mut (dyn FnMut(u64, Option<u64>) + Send),
    ) -> Result<Fetched, FetchError> {
        self.open(url).await?.save(sink, progress).await
    }

    /// Follows the address to a file, whose name is known then and whose bytes are not read yet.
    /// The download counts as one at once, and its time runs, until it is saved or dropped.
    pub async fn open(&self, url: &str) -> Result<Download, FetchError> {
        let inner = &self.inner;
        let asked = Target::parse(url)?;
        let limit = inner.rules.time_max;
        let deadline = Instant::now() + limit;
        let turn = inner.turn(deadline).await?;
        let (last, answer) = timeout_at(deadline, inner.follow(&asked, &turn))
            .await
            .map_err(|_| FetchError::TimedOut { limit })??;
        let name = name::file_name(asked.url(), last.url());
        Download::new(&inner.rules, deadline, turn, last, name, answer)
    }
}

fn system_resolver(name: &str) -> io::Result<Vec<IpAddr>> {
    Ok((name, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
}

impl Inner {
    fn new(mut rules: FetchRules, resolve: Arc<Resolve>, roots: RootCertStore) -> Self {
        rules.time_max = rules.time_max.min(TIME_MAX);
        rules.connect_time_max = rules.connect_time_max.min(TIME_MAX);
        Self {
            turns: Arc::new(Semaphore::new(rules.at_once_max.clamp(1, Semaphore::MAX_PERMITS))),
            rules,
            resolve,
            roots: Arc::new(roots),
            #[cfg(test)]
            route: None,
        }
    }

    async fn turn(&self, deadline: Instant) -> Result<Turn, FetchError> {
        match timeout_at(deadline, Arc::clone(&self.turns).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(Arc::new(permit)),
            _ => Err(FetchError::Busy { at_once_max: self.rules.at_once_max.max(1) }),
        }
    }

    /// From the address that was asked for to one that answers with a file.
    async fn follow(&self, asked: &Target, turn: &Turn) -> Result<(Target, Answer), FetchError> {
        let mut target = asked.clone();
        for _ in 0..=self.rules.redirects_max {
            let answer = Reachable::find(self, &target, turn).await?.ask(self).await?;
            let status = answer.response.status();
            if status.is_success() {
                return Ok((target, answer));
            }
            let location = answer.response.headers().get(header::LOCATION);
            target = match (status.as_u16(), location) {
                (301 | 302 | 303 | 307 | 308, Some(location)) => {
                    let location = str::from_utf8(location.as_bytes())
                        .map_err(|_| FetchError::BadUrl("a redirect is not text".to_owned()))?;
                    target.redirect(location)?
                }
                (status, _) => return Err(FetchError::Status(status)),
            };
        }
        Err(FetchError::TooManyRedirects { limit: self.rules.redirects_max })
    }
}

/// One of the downloads at once. A thread that still resolves a name holds it too, so that those
/// who give up and come back cannot pile up threads.
type Turn = Arc<OwnedSemaphorePermit>;

/// A file that a server has begun to send.
#[derive(Debug)]
pub struct Download {
    /// As [`Fetched::file_name`].
    pub file_name: String,
    /// As [`Fetched::media_type`].
    pub media_type: Option<String>,
    /// How many bytes there will be, if the server said so.
    pub length: Option<u64>,
    final_url: String,
    content_encoding: Option<String>,
    status: u16,
    answer: Answer,
    bytes_max: u64,
    time_max: Duration,
    deadline: Instant,
    _turn: Turn,
}

/// What was downloaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// Where the redirects ended.
    pub final_url: String,
    /// The last part of the address's path, fit to be the name of a file, or [`NAMELESS`].
    pub file_name: String,
    /// `text/csv` and the like, in lower case and without parameters, as the server says.
    pub media_type: Option<String>,
    /// The bytes are as they came; this is what a server did to them although asked not to.
    pub content_encoding: Option<String>,
    pub bytes: u64,
    /// In hexadecimal digits.
    pub sha256: String,
    pub status: u16,
}

impl Download {
    fn new(
        rules: &FetchRules,
        deadline: Instant,
        turn: Turn,
        last: Target,
        file_name: String,
        answer: Answer,
    ) -> Result<Self, FetchError> {
        let length = answer.response.body().size_hint().exact();
        if length.is_some_and(|length| length > rules.bytes_max) {
            return Err(FetchError::TooLarge { limit_bytes: rules.bytes_max });
        }
        let headers = answer.response.headers();
        Ok(Self {
            file_name,
            media_type: word(headers, &header::CONTENT_TYPE).filter(|name| name.contains('/')),
            length,
            final_url: String::from(last.into_url()),
            content_encoding: word(headers, &header::CONTENT_ENCODING)
                .filter(|name| name != "identity"),
            status: answer.response.status().as_u16(),
            answer,
            bytes_max: rules.bytes_max,
            time_max: rules.time_max,
            deadline,
            _turn: turn,
        })
    }

    /// Reads the file into `sink`, as [`Fetcher::fetch`] does. After an error the sink holds a
    /// part of the file, never more than the limit.
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
        let body: &mut Incoming = self.answer.response.body_mut();
        while let Some(frame) = body.frame().await {
            // The other kind of frame holds trailers, which say nothing that we use.
            let Ok(data) = frame.map_err(FetchError::Broken)?.into_data() else { continue };
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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// A header's value without its parameters, if it is as simple as it should be.
fn word(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let value = headers.get(name)?.to_str().ok()?;
    let word = value.split(';').next()?.trim();
    let simple = |c: char| c.is_ascii_alphanumeric() || "!#$&-^_.+/".contains(c);
    ((1..=127).contains(&word.len()) && word.chars().all(simple)).then(|| word.to_ascii_lowercase())
}
