//! Content-addressed storage: the name of a blob is the SHA-256 of its bytes.
//!
//! A blob is whole or absent, also after a crash, and an acknowledged blob is durable. Content is
//! first written to a spool file and hashed on the way, so that a file that changes while it is
//! read gets the name of the bytes that were read. A folder then publishes it by a rename,
//! `PostgreSQL` in one transaction, an object store in one upload.
//!
//! The folder backend is not `object_store`'s: a download needs the open file, and the spool is on
//! the disk where a rename needs it.

mod digest;
mod folder;
mod http;
mod objects;
mod s3;
mod spool;

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use jiff::Timestamp;
use woma_sandbox::workspace::Reserve;

use crate::storage::db::{CHUNK_BYTES, Store, StoreError};
pub use digest::Digest;
use folder::Folder;
use objects::Objects;
pub use s3::S3;
use spool::Spool;

/// How long a start waits for an object store before it continues without.
const START_MAX: Duration = Duration::from_secs(3);

pub type BlobStream = Pin<Box<dyn Stream<Item = Result<Bytes, StoreError>> + Send>>;

/// Blob that is being read.
pub struct Blob {
    pub size_bytes: u64,
    pub stream: BlobStream,
    source: Source,
}

/// Way to open the blob at an offset.
enum Source {
    Beginning,
    Database(Store, Digest),
    Objects(Objects, Digest),
}

impl Blob {
    /// Blob that can only be read from its beginning.
    pub(crate) fn new(size_bytes: u64, stream: BlobStream) -> Self {
        Self { size_bytes, stream, source: Source::Beginning }
    }

    /// Stream that contains byte `start`, and the number of bytes to skip before it.
    pub(crate) fn stream_from(self, start: u64) -> (BlobStream, u64) {
        match self.source {
            _ if start == 0 => (self.stream, 0),
            Source::Beginning => (self.stream, start),
            Source::Database(store, digest) => {
                let first = i64::try_from(start / CHUNK_BYTES).unwrap_or(i64::MAX);
                (chunks(store, digest, first), start % CHUNK_BYTES)
            }
            Source::Objects(objects, digest) => (objects.stream_from(digest, start), 0),
        }
    }
}

impl fmt::Debug for Blob {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Blob").field("size_bytes", &self.size_bytes).finish_non_exhaustive()
    }
}

/// Handle to the blobs, cheap to clone. Its folder must belong to one server alone.
#[derive(Debug, Clone)]
pub struct Blobs {
    folder: Arc<Folder>,
    backend: Backend,
}

#[derive(Debug, Clone)]
enum Backend {
    Folder,
    Database(Store),
    Objects(Objects),
}

impl Blobs {
    pub async fn in_folder(folder: &Path) -> Result<Self, StoreError> {
        Self::open(folder, Backend::Folder).await
    }

    /// Stores blobs in `PostgreSQL`, for servers without a persistent disk. The folder is the
    /// spool; blobs that a server stored there before stay readable until no row refers to them.
    pub async fn in_database(folder: &Path, store: Store) -> Result<Self, StoreError> {
        if store.backend_name() == "sqlite" {
            return Err(StoreError::Internal("SQLite does not store blobs".to_owned()));
        }
        Self::open(folder, Backend::Database(store)).await
    }

    /// Stores blobs in any backend of `object_store`. The folder is the spool.
    pub async fn in_objects(
        folder: &Path,
        objects: Arc<dyn object_store::ObjectStore>,
    ) -> Result<Self, StoreError> {
        Self::open(folder, Backend::Objects(Objects::new(objects))).await
    }

    /// Stores blobs in S3. Fails if the bucket denies access; starts without an unreachable one.
    pub async fn in_s3(folder: &Path, s3: &S3, store: &Store) -> Result<Self, StoreError> {
        let objects = Objects::new(s3.connect()?);
        let checked = async {
            objects.check().await?;
            match claim(&objects, store).await {
                Err(error @ StoreError::BadBucket(_)) => Err(error),
                // `collect` deletes nothing before the bucket is claimed.
                Err(error) => {
                    tracing::warn!(%error, "The owner of the bucket could not be checked yet");
                    Ok(())
                }
                Ok(()) => Ok(()),
            }
        };
        match tokio::time::timeout(START_MAX, checked).await {
            Ok(checked) => checked?,
            Err(_) => {
                tracing::warn!("The object store does not answer; the server starts without it");
            }
        }
        Self::open(folder, Backend::Objects(objects)).await
    }

    async fn open(folder: &Path, backend: Backend) -> Result<Self, StoreError> {
        let folder = folder.to_owned();
        let folder = Arc::new(blocking(move || Folder::open(folder)).await?);
        Ok(Self { folder, backend })
    }

    /// Refuses writes from now on while the disk is below this reserve.
    pub fn keep_free(&self, reserve: Arc<Reserve>) {
        self.folder.keep_free(reserve);
    }

    pub async fn put(&self, bytes: Bytes) -> Result<Digest, StoreError> {
        let digest = {
            let bytes = bytes.clone();
            blocking(move || Ok(Digest::of(&bytes))).await?
        };
        if self.touch(digest, bytes.len() as u64).await? {
            return Ok(digest);
        }
        let size_max = bytes.len() as u64;
        let (digest, _) = self.put_reader(std::io::Cursor::new(bytes), size_max).await?;
        Ok(digest)
    }

    /// Stores everything that `reader` returns. More than `size_max` bytes is an error.
    pub async fn put_reader(
        &self,
        mut reader: impl Read + Send + 'static,
        size_max: u64,
    ) -> Result<(Digest, u64), StoreError> {
        let folder = Arc::clone(&self.folder);
        let spool = blocking(move || {
            let mut spool = folder.spool(size_max)?;
            spool.fill(&mut reader)?;
            Ok(spool)
        });
        self.publish(spool.await?).await
    }

    /// As [`Blobs::put_reader`], for a stream.
    pub async fn put_stream<S>(
        &self,
        mut stream: S,
        size_max: u64,
    ) -> Result<(Digest, u64), StoreError>
    where
        S: Stream<Item = std::io::Result<Bytes>> + Unpin,
    {
        let folder = Arc::clone(&self.folder);
        let mut spool = blocking(move || folder.spool(size_max)).await?;
        while let Some(bytes) = stream.next().await {
            let bytes = bytes.map_err(|error| StoreError::of_io(&error))?;
            spool = blocking(move || spool.write(&bytes).map(|()| spool)).await?;
        }
        self.publish(spool).await
    }

    async fn publish(&self, spool: Spool) -> Result<(Digest, u64), StoreError> {
        let folder = Arc::clone(&self.folder);
        let (digest, size_bytes, spool) = blocking(move || spool.finish()).await?;
        match &self.backend {
            Backend::Folder => blocking(move || folder.publish(&spool, digest, size_bytes)).await?,
            Backend::Database(store) => {
                let content = blocking(move || spool.open()).await?;
                store.put_blob(digest, size_bytes, Timestamp::now(), content).await?;
            }
            Backend::Objects(objects) => {
                let content = blocking(move || spool.open()).await?;
                objects.put(digest, size_bytes, content).await?;
            }
        }
        Ok((digest, size_bytes))
    }

    /// Protects an existing blob from collection for a while; returns whether it exists.
    async fn touch(&self, digest: Digest, size_bytes: u64) -> Result<bool, StoreError> {
        match &self.backend {
            Backend::Folder => {
                let folder = Arc::clone(&self.folder);
                blocking(move || folder.touch(digest, size_bytes)).await
            }
            Backend::Database(store) => store.touch_blob(digest, Timestamp::now()).await,
            // Objects cannot be touched; they are written again.
            Backend::Objects(_) => Ok(false),
        }
    }

    pub async fn get(&self, digest: Digest) -> Result<Blob, StoreError> {
        match &self.backend {
            Backend::Folder => self.get_from_folder(digest).await,
            Backend::Database(store) => {
                let Some(size_bytes) = store.blob_size(digest).await? else {
                    return self.get_from_folder(digest).await;
                };
                let stream = chunks(store.clone(), digest, 0);
                let source = Source::Database(store.clone(), digest);
                Ok(Blob { size_bytes, stream, source })
            }
            Backend::Objects(objects) => objects.get(digest).await,
        }
    }

    async fn get_from_folder(&self, digest: Digest) -> Result<Blob, StoreError> {
        let folder = Arc::clone(&self.folder);
        let file = blocking(move || folder.open_blob(digest)).await?;
        let (file, size_bytes) = file.ok_or(StoreError::NotFound)?;
        Ok(Blob::new(size_bytes, folder::stream(file)))
    }

    /// Reads a whole blob and verifies its digest.
    pub async fn read(&self, digest: Digest, size_max: u64) -> Result<Bytes, StoreError> {
        let mut blob = self.get(digest).await?;
        if blob.size_bytes > size_max {
            return Err(StoreError::TooLarge { limit_bytes: size_max });
        }
        let mut bytes = Vec::new();
        while let Some(piece) = blob.stream.next().await {
            bytes.extend_from_slice(&piece?);
        }
        let bytes = Bytes::from(bytes);
        let content = bytes.clone();
        if blocking(move || Ok(Digest::of(&content))).await? != digest {
            return Err(StoreError::Corrupt(format!(
                "the content of blob {digest} does not match its digest"
            )));
        }
        Ok(bytes)
    }

    /// Opens the file of a blob; `None` if blobs are not stored in a folder.
    pub async fn open_file(&self, digest: Digest) -> Result<Option<File>, StoreError> {
        let Backend::Folder = &self.backend else { return Ok(None) };
        let folder = Arc::clone(&self.folder);
        Ok(blocking(move || folder.open_blob(digest)).await?.map(|(file, _)| file))
    }

    /// Deletes a blob unless it was put since; returns whether it was deleted. The caller must
    /// know that no row refers to it, as [`Blobs::collect`] does.
    pub async fn delete(
        &self,
        digest: Digest,
        untouched_since: Timestamp,
    ) -> Result<bool, StoreError> {
        match &self.backend {
            Backend::Folder => {
                let folder = Arc::clone(&self.folder);
                blocking(move || folder.delete(digest, untouched_since)).await
            }
            Backend::Database(store) => {
                let folder = Arc::clone(&self.folder);
                let in_folder = blocking(move || folder.delete(digest, untouched_since)).await?;
                Ok(store.delete_blob(digest, untouched_since).await? || in_folder)
            }
            Backend::Objects(objects) => objects.delete(digest, untouched_since).await,
        }
    }

    /// All blobs with the times of their last put.
    pub async fn list(&self) -> Result<Vec<(Digest, Timestamp)>, StoreError> {
        match &self.backend {
            Backend::Folder => {
                let folder = Arc::clone(&self.folder);
                blocking(move || folder.list()).await
            }
            Backend::Database(store) => {
                let folder = Arc::clone(&self.folder);
                let mut all = blocking(move || folder.list()).await?;
                let blobs = store.blobs().await?;
                all.extend(blobs.into_iter().map(|blob| (blob.digest, blob.touched_at)));
                Ok(all)
            }
            Backend::Objects(objects) => objects.list().await,
        }
    }

    /// Deletes a blob if no row refers to it and it was not put since; returns whether it was
    /// deleted. Objects in a bucket wait for [`Blobs::collect`]: their times are by another clock.
    pub async fn discard(
        &self,
        store: &Store,
        digest: Digest,
        put_at: Timestamp,
    ) -> Result<bool, StoreError> {
        if matches!(self.backend, Backend::Objects(_)) || store.is_in_use(digest).await? {
            return Ok(false);
        }
        self.delete(digest, put_at).await
    }

    /// Deletes blobs that no row refers to; returns how many. A blob is put before its row is
    /// written, so `untouched_since` must lie further back than any call lasts.
    pub async fn collect(
        &self,
        store: &Store,
        untouched_since: Timestamp,
    ) -> Result<u64, StoreError> {
        if let Backend::Objects(objects) = &self.backend {
            claim(objects, store).await?;
        }
        let blobs = self.list().await?;
        let in_use: HashSet<Digest> = store.digests_in_use().await?.into_iter().collect();
        let mut deleted = 0;
        for (digest, touched_at) in blobs {
            let is_garbage = touched_at < untouched_since && !in_use.contains(&digest);
            if is_garbage && self.delete(digest, untouched_since).await? {
                deleted += 1;
            }
        }
        Ok(deleted)
    }

    /// Deletes spool files that a crash left; returns how many. Call at start.
    pub async fn sweep_leftovers(&self) -> Result<u64, StoreError> {
        let folder = Arc::clone(&self.folder);
        blocking(move || folder.sweep()).await
    }
}

async fn claim(objects: &Objects, store: &Store) -> Result<(), StoreError> {
    objects.claim(&format!("woma {}\n", store.created_at().await?)).await
}

/// Reads one chunk per call, so that a slow reader holds no connection.
fn chunks(store: Store, digest: Digest, first: i64) -> BlobStream {
    let pieces =
        futures_util::stream::try_unfold((store, first), move |(store, number)| async move {
            let piece = store.blob_chunk(digest, number).await?;
            Ok(piece.map(|piece| (Bytes::from(piece), (store, number + 1))))
        });
    Box::pin(pieces)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(StoreError::Internal(error.to_string())),
    }
}
