//! The way out of a cell that installs: a simple index on a port of its room, served by this process.
//!
//! The installer sees projects and files, never the address or the credentials of the index. Every
//! file that it gets was checked before; what it got is remembered, and decides what the layer is.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs::File;
use std::io::Read as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use woma_sandbox::sync::lock;

use super::Packages;
use super::files::Kept;
use super::names::key;
use super::page::{IndexFile, Metadata};
use crate::model::caller::CallerId;
use crate::model::{PackageError, PackageProblem};

/// Port in the room.
pub(crate) const PORT: u16 = 80;
/// Connections at once.
const CONNECTIONS_MAX: usize = 32;
/// Requests of one installation.
const REQUESTS_MAX: usize = 5_000;
/// How long the head of a request may take.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);
const PART_BYTES: usize = 128 * 1024;
const PAGE_TYPE: &str = "application/vnd.pypi.simple.v1+json";

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// The index of one installation.
#[derive(Debug)]
pub(crate) struct Gateway {
    packages: Arc<Packages>,
    owner: CallerId,
    progress: Option<mpsc::UnboundedSender<String>>,
    /// Digests of the files that were sent, by name.
    served: Mutex<BTreeMap<String, String>>,
    /// First reason why a file or a page could not be sent.
    failure: Mutex<Option<PackageError>>,
    bytes: AtomicU64,
    requests: AtomicUsize,
}

impl Gateway {
    pub(crate) fn new(
        packages: Arc<Packages>,
        owner: CallerId,
        progress: Option<mpsc::UnboundedSender<String>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            packages,
            owner,
            progress,
            served: Mutex::default(),
            failure: Mutex::default(),
            bytes: AtomicU64::new(0),
            requests: AtomicUsize::new(0),
        })
    }

    pub(crate) fn served(&self) -> BTreeMap<String, String> {
        lock(&self.served).clone()
    }

    pub(crate) fn failure(&self) -> Option<PackageError> {
        lock(&self.failure).clone()
    }

    /// Serves until it is dropped.
    pub(crate) async fn serve(self: Arc<Self>, listener: TcpListener) {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let accepted = listener.accept().await;
            while connections.try_join_next().is_some() {}
            let Ok((socket, _)) = accepted else { return };
            let gateway = Arc::clone(&self);
            connections.spawn(async move {
                let answer = service_fn(|request| {
                    let gateway = Arc::clone(&gateway);
                    async move { Ok::<_, Infallible>(gateway.answer(&request).await) }
                });
                let served = hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD_TIME_MAX)
                    .serve_connection(TokioIo::new(socket), answer)
                    .await;
                if let Err(error) = served {
                    tracing::debug!(%error, "A connection of an installer has broken");
                }
                drop(place);
            });
        }
    }

    async fn answer(&self, request: &Request<Incoming>) -> Response<Body> {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return plain(StatusCode::METHOD_NOT_ALLOWED);
        }
        if self.requests.fetch_add(1, Ordering::Relaxed) >= REQUESTS_MAX {
            self.fail(too_much(format!("an installation may make {REQUESTS_MAX} requests")));
            return plain(StatusCode::TOO_MANY_REQUESTS);
        }
        let path = request.uri().path().trim_matches('/');
        let parts: Vec<&str> = path.split('/').collect();
        let answered = match parts.as_slice() {
            ["simple", project] => self.page(project).await,
            ["files", project, name] => self.file(project, name).await,
            _ => return plain(StatusCode::NOT_FOUND),
        };
        answered.unwrap_or_else(|error| {
            self.fail(error);
            plain(StatusCode::FORBIDDEN)
        })
    }

    fn fail(&self, error: PackageError) {
        lock(&self.failure).get_or_insert(error);
    }

    async fn page(&self, project: &str) -> Result<Response<Body>, PackageError> {
        let project = key(project);
        let blocked = &self.packages.settings.blocked;
        if blocked.iter().any(|one| key(one) == project) {
            let message = format!("Package {project} is blocked for security reasons");
            return Err(PackageError::new(PackageProblem::Blocked, message));
        }
        let page = self.packages.index.page(&self.owner, &project).await?;
        if page.files.is_empty() {
            return Ok(plain(StatusCode::NOT_FOUND));
        }
        let files: Vec<Value> = page.files.iter().map(|file| shown(&project, file)).collect();
        let text = json!({"meta": {"api-version": "1.1"}, "name": project, "files": files});
        let body = Full::new(Bytes::from(text.to_string())).map_err(never).boxed_unsync();
        let response = Response::builder().header(CONTENT_TYPE, PAGE_TYPE).body(body);
        Ok(response.unwrap_or_else(|_| plain(StatusCode::INTERNAL_SERVER_ERROR)))
    }

    async fn file(&self, project: &str, name: &str) -> Result<Response<Body>, PackageError> {
        let page = self.packages.index.page(&self.owner, project).await?;
        let (wanted, is_metadata) = match name.strip_suffix(".metadata") {
            Some(wheel) => (wheel, true),
            None => (name, false),
        };
        // The first of a name: the wheelhouse comes before the index.
        let Some(file) = page.files.iter().find(|file| file.name == wanted) else {
            return Ok(plain(StatusCode::NOT_FOUND));
        };
        let kept = match is_metadata {
            true => self.packages.index.metadata(&self.owner, file).await?,
            false => {
                let tell = |text: String| {
                    if let Some(progress) = &self.progress {
                        // A client that has gone is not told.
                        progress.send(text).unwrap_or_default();
                    }
                };
                self.packages.index.file(&self.owner, file, &tell).await?
            }
        };
        let sum = self.bytes.fetch_add(kept.bytes, Ordering::Relaxed) + kept.bytes;
        let most = self.packages.settings.bytes_max;
        if sum > most {
            return Err(too_much(format!(
                "the packages are larger than {} MB, the limit of a session (PACKAGE_MAX_MB)",
                most / (1024 * 1024)
            )));
        }
        if !is_metadata {
            lock(&self.served).insert(file.name.clone(), kept.sha256.clone());
        }
        sent(&kept).map_err(|error| {
            PackageError::new(PackageProblem::Index, format!("`{name}` cannot be read: {error}"))
        })
    }
}

fn too_much(message: String) -> PackageError {
    PackageError::new(PackageProblem::TooLarge, message)
}

fn shown(project: &str, file: &IndexFile) -> Value {
    let mut hashes = json!({});
    if let Some(sha256) = &file.sha256 {
        hashes["sha256"] = sha256.clone().into();
    }
    let mut shown = json!({
        "filename": file.name,
        "url": format!("/files/{project}/{}", file.name),
        "hashes": hashes,
        "requires-python": file.requires_python,
        "yanked": file.yanked.clone().unwrap_or(Value::Bool(false)),
    });
    match &file.metadata {
        Metadata::Absent => {}
        Metadata::Present => shown["core-metadata"] = true.into(),
        Metadata::Digest(sha256) => shown["core-metadata"] = json!({"sha256": sha256}),
    }
    shown
}

fn sent(kept: &Kept) -> std::io::Result<Response<Body>> {
    let file = File::open(&kept.path)?;
    let parts = stream::unfold(Some((file, kept.bytes)), |left| async move {
        let (file, left) = left.filter(|(_, left)| *left > 0)?;
        let read = tokio::task::spawn_blocking(move || {
            let mut part = Vec::with_capacity(PART_BYTES);
            (&file).take(left.min(PART_BYTES as u64)).read_to_end(&mut part)?;
            Ok((file, Bytes::from(part)))
        });
        match read.await.map_err(std::io::Error::other).flatten() {
            Ok((_, part)) if part.is_empty() => None,
            Ok((file, part)) => {
                let left = left.saturating_sub(part.len() as u64);
                Some((Ok(Frame::data(part)), Some((file, left))))
            }
            Err(error) => Some((Err(error), None)),
        }
    });
    let response = Response::builder()
        .header(CONTENT_TYPE, "application/octet-stream")
        .header(CONTENT_LENGTH, kept.bytes)
        .body(UnsyncBoxBody::new(StreamBody::new(parts)));
    Ok(response.unwrap_or_else(|_| plain(StatusCode::INTERNAL_SERVER_ERROR)))
}

fn plain(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Full::default().map_err(never).boxed_unsync());
    *response.status_mut() = status;
    response
}

fn never(error: Infallible) -> std::io::Error {
    match error {}
}
