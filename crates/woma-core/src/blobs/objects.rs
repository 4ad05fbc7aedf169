//! Blobs in an object store: S3 and what speaks like it.
//!
//! A store that cannot be reached is not asked again by everybody: it is away, calls fail at once,
//! and somebody looks every second whether it is back.

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

use super::http::Trouble;
use super::{Blob, BlobStream, Digest, Source, blocking};
use crate::certificates::found;
use crate::store::StoreError;

/// From here on in parts; S3 wants parts of five megabytes at least.
const PART_BYTES: usize = 8 * 1024 * 1024;
const PARTS_AT_ONCE: usize = 2;
/// How often a store that is away is asked whether it is back.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Names the database that the blobs belong to.
const OWNER: &str = "woma-owner";
/// Names share locks: a few are enough for what is deleted at once.
const LOCKS: usize = 64;

#[derive(Debug, Clone)]
pub(super) struct Objects(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    objects: Arc<dyn ObjectStore>,
    is_away: AtomicBool,
    /// Read while a content is put, written while one is deleted: what was found to be old is not
    /// put again before it is gone.
    names: Vec<RwLock<()>>,
}

impl Objects {
    pub(super) fn new(objects: Arc<dyn ObjectStore>) -> Self {
        let names = (0..LOCKS).map(|_| RwLock::new(())).collect();
        Self(Arc::new(Inner { objects, is_away: AtomicBool::new(false), names }))
    }

    /// Always writes: what is there already may be about to be collected. On a task of its own,
    /// for parts without an end cost money and nothing else ends them.
    pub(super) async fn put(
        &self,
        digest: Digest,
        size_bytes: u64,
        content: File,
    ) -> Result<(), StoreError> {
        self.expect_near()?;
        let objects = self.clone();
        let put = tokio::spawn(async move {
            let _name = objects.lock_of(digest)?.read().await;
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
            tracing::warn!(error = %self.failed(&error), "An upload was not taken back");
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
            if parts.len() >= PARTS_AT_ONCE {
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

    /// From a byte on; asked for when somebody reads it.
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
        self.expect_near()?;
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
        self.expect_near()?;
        // Somebody is putting it, or one that shares its lock: the next round comes.
        let Ok(_name) = self.lock_of(digest)?.try_write() else { return Ok(false) };
        let path = path_of(digest);
        match self.0.objects.head(&path).await {
            Ok(meta) if touched_at(&meta) < untouched_since => {}
            Ok(_) | Err(object_store::Error::NotFound { .. }) => return Ok(false),
            Err(error) => return Err(self.failed(&error)),
        }
        self.0.objects.delete(&path).await.map_err(|error| self.failed(&error))?;
        Ok(true)
    }

    pub(super) async fn is_there(&self, digest: Digest) -> Result<bool, StoreError> {
        self.expect_near()?;
        match self.0.objects.head(&path_of(digest)).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(self.failed(&error)),
        }
    }

    pub(super) async fn list(&self) -> Result<Vec<(Digest, Timestamp)>, StoreError> {
        self.expect_near()?;
        let mut blobs = Vec::new();
        let mut objects = self.0.objects.list(None);
        while let Some(meta) = objects.next().await {
            let meta = meta.map_err(|error| self.failed_put(&error))?;
            // What is not named like one is not ours.
            let name = meta.location.as_ref().replacen('/', "", 1);
            if let Ok(digest) = name.parse() {
                blobs.push((digest, touched_at(&meta)));
            }
        }
        Ok(blobs)
    }

    /// Whether it lets us in. One that is away is no error here; it is waited for.
    pub(super) async fn check(&self) -> Result<(), StoreError> {
        match self.0.objects.list(None).next().await {
            None | Some(Ok(_)) => Ok(()),
            Some(Err(error)) => match self.failed_put(&error) {
                StoreError::Unavailable(why) if is_refusal(&error) => {
                    Err(StoreError::BadBucket(why))
                }
                error => {
                    tracing::warn!(%error, "Contents of files are kept as soon as it does");
                    Ok(())
                }
            },
        }
    }

    /// These blobs belong to one database: another one would take all of them for garbage.
    pub(super) async fn claim(&self, owner: &str) -> Result<(), StoreError> {
        self.expect_near()?;
        let path = Path::from(OWNER);
        if self.owner(&path).await?.is_none() {
            let put = self.0.objects.put(&path, Bytes::from(owner.to_owned()).into()).await;
            put.map_err(|error| self.failed_put(&error))?;
        }
        // Of two at once, the last one has it.
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
        let lock = self.0.names.get(usize::from(digest.first_byte()) % LOCKS);
        lock.ok_or_else(|| StoreError::Internal("a name has no lock".to_owned()))
    }

    fn expect_near(&self) -> Result<(), StoreError> {
        match self.0.is_away.load(Ordering::Relaxed) {
            true => Err(StoreError::Unavailable("the object store is away".to_owned())),
            false => Ok(()),
        }
    }

    /// As [`Objects::failed`]: what is not found when nothing is looked for is the bucket.
    fn failed_put(&self, error: &object_store::Error) -> StoreError {
        match self.failed(error) {
            StoreError::NotFound => StoreError::Unavailable("the bucket does not exist".to_owned()),
            other => other,
        }
    }

    fn failed(&self, error: &object_store::Error) -> StoreError {
        if trouble(error).is_some() && !self.0.is_away.swap(true, Ordering::Relaxed) {
            tokio::spawn(await_return(Arc::downgrade(&self.0)));
        }
        reason(error)
    }
}

/// Looks until it answers, whatever it says.
async fn await_return(inner: Weak<Inner>) {
    tracing::warn!("The object store is away");
    loop {
        tokio::time::sleep(LOOK_AGAIN).await;
        let Some(inner) = inner.upgrade() else { return };
        let found = inner.objects.head(&Path::from(OWNER)).await;
        if found.err().as_ref().and_then(trouble).is_none() {
            inner.is_away.store(false, Ordering::Relaxed);
            tracing::info!("The object store is back");
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

/// Not before it was put: a bucket tells whole seconds, so it is the end of that one.
fn touched_at(meta: &ObjectMeta) -> Timestamp {
    let second = Timestamp::from_second(meta.last_modified.timestamp().saturating_add(1));
    second.unwrap_or(Timestamp::MAX)
}

/// It will not become right without somebody's doing.
fn is_refusal(error: &object_store::Error) -> bool {
    use object_store::Error;
    match trouble(error) {
        Some(trouble) => matches!(trouble, Trouble::Untrusted(_)),
        None => match said(error).as_deref() {
            Some("NoSuchBucket" | "RequestTimeTooSkewed") => true,
            Some(code) if REFUSALS.contains(&code) => true,
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

/// It was not the store that answered.
fn trouble(error: &object_store::Error) -> Option<Trouble> {
    found::<Trouble>(error).copied()
}

/// What S3 says of keys that it does not take.
const REFUSALS: [&str; 6] = [
    "AccessDenied",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidToken",
    "NotSignedUp",
    "SignatureDoesNotMatch",
];

/// Without the library's own words: they have addresses in them.
fn reason(error: &object_store::Error) -> StoreError {
    use object_store::Error;
    match trouble(error) {
        Some(Trouble::Untrusted(why)) => {
            return StoreError::Unavailable(format!("the object store is not believed: {why}"));
        }
        Some(trouble) => {
            return StoreError::Unavailable(format!("the object store is away: {trouble}"));
        }
        None => {}
    }
    let said = said(error);
    let reason = match (said.as_deref(), error) {
        (Some("NoSuchBucket"), _) => "the bucket does not exist",
        (Some("RequestTimeTooSkewed"), _) => "its clock and ours differ",
        (Some(code), _) if REFUSALS.contains(&code) => "the object store refuses these keys",
        (_, Error::NotFound { .. }) => return StoreError::NotFound,
        (_, Error::PermissionDenied { .. } | Error::Unauthenticated { .. }) => {
            "the object store refuses these keys"
        }
        (_, Error::NotSupported { .. } | Error::NotImplemented { .. }) => {
            "the object store cannot do that"
        }
        _ => "the object store failed",
    };
    let code = said.map(|code| format!(" ({code})")).unwrap_or_default();
    StoreError::Unavailable(format!("{reason}{code}"))
}

/// The one word by which S3 says what is wrong.
fn said(error: &object_store::Error) -> Option<String> {
    const WORD_MAX: usize = 64;
    let text = error.to_string();
    let (_, rest) = text.split_once("<Code>")?;
    let (word, _) = rest.split_once("</Code>")?;
    let is_word = word.len() <= WORD_MAX && word.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_word.then(|| word.to_owned())
}
