//! Blobs in an object store: S3 or a compatible one.
//!
//! Circuit breaker: while the store is unreachable, calls fail at once, and one background task
//! probes it every second until it answers.

use std::fs::File;
use std::io::Read as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, once};
use futures_util::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use object_store::path::Path;
use object_store::{
    GetOptions, GetRange, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt as _,
};
use tokio::sync::RwLock;

use super::http::RequestError;
use super::{Blob, BlobStream, Digest, Source, blocking};
use crate::net::tls::found;
use crate::storage::db::StoreError;

/// Size from which an upload is split, and of its parts; S3 requires at least five megabytes.
const PART_BYTES: usize = 8 * 1024 * 1024;
const CONCURRENT_PARTS_MAX: usize = 2;
/// Interval of probes while the store is unreachable.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Object that names the database to which the blobs belong.
const OWNER: &str = "woma-owner";
/// Number of locks; blobs share them by their first byte.
const LOCKS: usize = 64;

#[derive(Debug, Clone)]
pub(super) struct Objects(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    objects: Arc<dyn ObjectStore>,
    is_unreachable: AtomicBool,
    /// Locked for reading by a put, for writing by a delete: a blob that was found to be old is not
    /// put again before it is deleted.
    locks: Vec<RwLock<()>>,
}

impl Objects {
    pub(super) fn new(objects: Arc<dyn ObjectStore>) -> Self {
        let locks = (0..LOCKS).map(|_| RwLock::new(())).collect();
        Self(Arc::new(Inner { objects, is_unreachable: AtomicBool::new(false), locks }))
    }

    /// Uploads a blob, even if it exists: the existing one may be about to be collected. Runs on
    /// its own task, because an unfinished multipart upload costs money until it is aborted.
    pub(super) async fn put(
        &self,
        digest: Digest,
        size_bytes: u64,
        content: File,
    ) -> Result<(), StoreError> {
        self.check_reachable()?;
        let objects = self.clone();
        let put = tokio::spawn(async move {
            let _lock = objects.lock_of(digest)?.read().await;
            match size_bytes <= PART_BYTES as u64 {
                true => {
                    let (bytes, _) = piece(content).await?;
                    let put = objects.0.objects.put(&path_of(digest), bytes.into()).await;
                    put.map(drop).map_err(|error| objects.failed_put(&error))
                }
                false => objects.put_parts(digest, content).await,
            }
        });
        put.await.unwrap_or_else(|error| Err(StoreError::Internal(error.to_string())))
    }

    async fn put_parts(&self, digest: Digest, content: File) -> Result<(), StoreError> {
        let upload = self.0.objects.put_multipart(&path_of(digest)).await;
        let mut upload = upload.map_err(|error| self.failed_put(&error))?;
        let sent = match self.send_parts(upload.as_mut(), content).await {
            Ok(()) => upload.complete().await.map(drop).map_err(|error| self.failed_put(&error)),
            Err(error) => Err(error),
        };
        if sent.is_err()
            && let Err(error) = upload.abort().await
        {
            tracing::warn!(error = %self.failed(&error), "A multipart upload was not aborted");
        }
        sent
    }

    async fn send_parts(
        &self,
        upload: &mut dyn MultipartUpload,
        mut content: File,
    ) -> Result<(), StoreError> {
        let failed = |error| self.failed_put(&error);
        let mut parts = FuturesUnordered::new();
        loop {
            if parts.len() >= CONCURRENT_PARTS_MAX {
                parts.next().await.transpose().map_err(failed)?;
            }
            let (bytes, rest) = piece(content).await?;
            if bytes.is_empty() {
                break;
            }
            parts.push(upload.put_part(bytes.into()));
            content = rest;
        }
        parts.try_collect::<()>().await.map_err(failed)
    }

    pub(super) async fn get(&self, digest: Digest) -> Result<Blob, StoreError> {
        let (size_bytes, stream) = self.open(digest, None).await?;
        Ok(Blob { size_bytes, stream, source: Source::Objects(self.clone(), digest) })
    }

    /// Stream from an offset; the request is sent at the first read.
    pub(super) fn stream_from(self, digest: Digest, start: u64) -> BlobStream {
        let opened = async move {
            let opened = self.open(digest, Some(GetRange::Offset(start))).await;
            opened.map(|(_, stream)| stream)
        };
        once(opened).try_flatten().boxed()
    }

    async fn open(
        &self,
        digest: Digest,
        range: Option<GetRange>,
    ) -> Result<(u64, BlobStream), StoreError> {
        self.check_reachable()?;
        let options = GetOptions { range, ..GetOptions::default() };
        let got = self.0.objects.get_opts(&path_of(digest), options).await;
        let got = got.map_err(|error| self.failed(&error))?;
        let size_bytes = got.meta.size;
        let objects = self.clone();
        let stream = got.into_stream().map_err(move |error| objects.failed(&error));
        Ok((size_bytes, stream.boxed()))
    }

    pub(super) async fn delete(
        &self,
        digest: Digest,
        untouched_since: Timestamp,
    ) -> Result<bool, StoreError> {
        self.check_reachable()?;
        // A put holds the lock; the next collection retries.
        let Ok(_lock) = self.lock_of(digest)?.try_write() else { return Ok(false) };
        let path = path_of(digest);
        match self.0.objects.head(&path).await {
            Ok(meta) if touched_at(&meta) < untouched_since => {}
            Ok(_) | Err(object_store::Error::NotFound { .. }) => return Ok(false),
            Err(error) => return Err(self.failed(&error)),
        }
        self.0.objects.delete(&path).await.map_err(|error| self.failed(&error))?;
        Ok(true)
    }

    pub(super) async fn list(&self) -> Result<Vec<(Digest, Timestamp)>, StoreError> {
        self.check_reachable()?;
        let mut blobs = Vec::new();
        let mut objects = self.0.objects.list(None);
        while let Some(meta) = objects.next().await {
            let meta = meta.map_err(|error| self.failed_put(&error))?;
            // Objects that are not named by a digest are not blobs.
            let name = meta.location.as_ref().replacen('/', "", 1);
            if let Ok(digest) = name.parse() {
                blobs.push((digest, touched_at(&meta)));
            }
        }
        Ok(blobs)
    }

    /// Checks access to the bucket. An unreachable store is only logged.
    pub(super) async fn check(&self) -> Result<(), StoreError> {
        match self.0.objects.list(None).next().await {
            None | Some(Ok(_)) => Ok(()),
            Some(Err(error)) => match self.failed_put(&error) {
                StoreError::Unavailable(why) if is_refusal(&error) => {
                    Err(StoreError::BadBucket(why))
                }
                error => {
                    tracing::warn!(%error, "The bucket could not be checked at start");
                    Ok(())
                }
            },
        }
    }

    /// Claims the bucket for one database: another one would collect all its blobs as garbage.
    pub(super) async fn claim(&self, owner: &str) -> Result<(), StoreError> {
        self.check_reachable()?;
        let path = Path::from(OWNER);
        if self.owner(&path).await?.is_none() {
            let put = self.0.objects.put(&path, Bytes::from(owner.to_owned()).into()).await;
            put.map_err(|error| self.failed_put(&error))?;
        }
        // Of two concurrent claims, the last one wins.
        match self.owner(&path).await? {
            Some(found) if found == owner.as_bytes() => Ok(()),
            _ => Err(StoreError::BadBucket(
                "it holds the files of another database; give each a bucket or an S3_PREFIX of \
                 its own"
                    .to_owned(),
            )),
        }
    }

    async fn owner(&self, path: &Path) -> Result<Option<Bytes>, StoreError> {
        let got = match self.0.objects.get(path).await {
            Ok(got) => got.bytes().await,
            Err(error) => Err(error),
        };
        match got {
            Ok(owner) => Ok(Some(owner)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn lock_of(&self, digest: Digest) -> Result<&RwLock<()>, StoreError> {
        let lock = self.0.locks.get(usize::from(digest.first_byte()) % LOCKS);
        lock.ok_or_else(|| StoreError::Internal("a digest has no lock".to_owned()))
    }

    fn check_reachable(&self) -> Result<(), StoreError> {
        match self.0.is_unreachable.load(Ordering::Relaxed) {
            true => Err(StoreError::Unavailable("the object store is away".to_owned())),
            false => Ok(()),
        }
    }

    /// As [`Objects::failed`], for requests where only the bucket can be missing.
    fn failed_put(&self, error: &object_store::Error) -> StoreError {
        match self.failed(error) {
            StoreError::NotFound => StoreError::Unavailable("the bucket does not exist".to_owned()),
            other => other,
        }
    }

    fn failed(&self, error: &object_store::Error) -> StoreError {
        if request_error(error).is_some() && !self.0.is_unreachable.swap(true, Ordering::Relaxed) {
            tokio::spawn(probe_until_reachable(Arc::downgrade(&self.0)));
        }
        reason(error)
    }
}

/// Probes the store until it answers, with an error or not.
async fn probe_until_reachable(inner: Weak<Inner>) {
    tracing::warn!("The object store is unreachable");
    loop {
        tokio::time::sleep(PROBE_INTERVAL).await;
        let Some(inner) = inner.upgrade() else { return };
        let found = inner.objects.head(&Path::from(OWNER)).await;
        if found.err().as_ref().and_then(request_error).is_none() {
            inner.is_unreachable.store(false, Ordering::Relaxed);
            tracing::info!("The object store is reachable again");
            return;
        }
    }
}

async fn piece(content: File) -> Result<(Bytes, File), StoreError> {
    blocking(move || {
        let mut bytes = Vec::new();
        let read = (&content).take(PART_BYTES as u64).read_to_end(&mut bytes);
        read.map_err(|error| StoreError::of_io(&error))?;
        Ok((bytes.into(), content))
    })
    .await
}

fn path_of(digest: Digest) -> Path {
    let name = digest.to_string();
    let (start, rest) = name.split_at(2);
    Path::from(format!("{start}/{rest}"))
}

/// Upper bound of the put time: a bucket reports whole seconds, so the end of that second.
fn touched_at(meta: &ObjectMeta) -> Timestamp {
    let second = Timestamp::from_second(meta.last_modified.timestamp().saturating_add(1));
    second.unwrap_or(Timestamp::MAX)
}

/// Whether the error needs the operator: a retry cannot succeed.
fn is_refusal(error: &object_store::Error) -> bool {
    use object_store::Error;
    match request_error(error) {
        Some(failure) => matches!(failure, RequestError::Untrusted(_)),
        None => match error_code(error).as_deref() {
            Some("NoSuchBucket" | "RequestTimeTooSkewed") => true,
            Some(code) if CREDENTIAL_ERRORS.contains(&code) => true,
            _ => matches!(
                error,
                Error::NotFound { .. }
                    | Error::PermissionDenied { .. }
                    | Error::Unauthenticated { .. }
                    | Error::NotSupported { .. }
                    | Error::NotImplemented { .. }
            ),
        },
    }
}

/// Error below HTTP, if the store did not answer.
fn request_error(error: &object_store::Error) -> Option<RequestError> {
    found::<RequestError>(error).copied()
}

/// Error codes of S3 for rejected credentials.
const CREDENTIAL_ERRORS: [&str; 6] = [
    "AccessDenied",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidToken",
    "NotSignedUp",
    "SignatureDoesNotMatch",
];

/// Describes an error without the library's message, which contains addresses.
fn reason(error: &object_store::Error) -> StoreError {
    use object_store::Error;
    match request_error(error) {
        Some(RequestError::Untrusted(why)) => {
            return StoreError::Unavailable(format!("the object store is not trusted: {why}"));
        }
        Some(failure) => {
            return StoreError::Unavailable(format!("the object store is away: {failure}"));
        }
        None => {}
    }
    let code = error_code(error);
    let reason = match (code.as_deref(), error) {
        (Some("NoSuchBucket"), _) => "the bucket does not exist",
        (Some("RequestTimeTooSkewed"), _) => "its clock and the server's clock differ too much",
        (Some(code), _) if CREDENTIAL_ERRORS.contains(&code) => {
            "the object store refuses these keys"
        }
        (_, Error::NotFound { .. }) => return StoreError::NotFound,
        (_, Error::PermissionDenied { .. } | Error::Unauthenticated { .. }) => {
            "the object store refuses these keys"
        }
        (_, Error::NotSupported { .. } | Error::NotImplemented { .. }) => {
            "the object store does not support the operation"
        }
        _ => "the object store failed",
    };
    let code = code.map(|code| format!(" ({code})")).unwrap_or_default();
    StoreError::Unavailable(format!("{reason}{code}"))
}

/// Error code in a reply of S3.
fn error_code(error: &object_store::Error) -> Option<String> {
    const CODE_BYTES_MAX: usize = 64;
    let text = error.to_string();
    let (_, rest) = text.split_once("<Code>")?;
    let (word, _) = rest.split_once("</Code>")?;
    let is_word =
        word.len() <= CODE_BYTES_MAX && word.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_word.then(|| word.to_owned())
}
