//! Contents of files, by what they are: the name of a blob is the SHA-256 of its bytes.
//!
//! A blob is whole or absent, also after a crash, and what was acknowledged is on the disk. Every
//! content is first written to a spool beside the data and hashed on the way: what a cell may still
//! change while it is read gets the name of what was read. From there a folder takes it by a
//! rename, `PostgreSQL` in one transaction, an object store in one upload.
//!
//! The folder is not `object_store`'s: a download wants the open file, and the spool is already
//! where a rename needs it.

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

use crate::store::{CHUNK_BYTES, Store, StoreError};
pub use digest::Digest;
use folder::Folder;
use objects::Objects;
pub use s3::S3;
use spool::Spool;

/// How long a start waits for an object store before it goes on without.
const START_MAX: Duration = Duration::from_secs(3);

pub type BlobStream = Pin<Box<dyn Stream<Item = Result<Bytes, StoreError>> + Send>>;

/// A content on its way out.
pub struct Blob {
    pub size_bytes: u64,
    pub stream: BlobStream,
    source: Source,
}

/// How to begin somewhere in the middle.
enum Source {
    Beginning,
    Database(Store, Digest),
    Objects(Objects, Digest),
}

impl Blob {
    /// One that can only be read from its beginning.
    pub(crate) fn new(size_bytes: u64, stream: BlobStream) -> Self {
        Self { size_bytes, stream, source: Source::Beginning }
    }

    /// What has the byte `start` in it, and how many bytes of that come before it.
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

/// The handle, cheap to clone. The folder that it is given belongs to one server alone.
#[derive(Debug, Clone)]
pub struct Blobs {
    folder: Arc<Folder>,
    place: Place,
}

#[derive(Debug, Clone)]
enum Place {
    Folder,
    Database(Store),
    Objects(Objects),
}

impl Blobs {
    pub async fn in_folder(folder: &Path) -> Result<Self, StoreError> {
        Self::open(folder, Place::Folder).await
    }

    /// In `PostgreSQL`, for servers without a disk that lasts. The folder is the spool.
    pub async fn in_database(folder: &Path, store: Store) -> Result<Self, StoreError> {
        if store.backend_name() == "sqlite" {
            return Err(StoreError::Internal("blobs are not kept in SQLite".to_owned()));
        }
        Self::open(folder, Place::Database(store)).await
    }

    /// In whatever `object_store` speaks to. The folder is the spool.
    pub async fn in_objects(
        folder: &Path,
        objects: Arc<dyn object_store::ObjectStore>,
    ) -> Result<Self, StoreError> {
        Self::open(folder, Place::Objects(Objects::new(objects))).await
    }

    /// Refuses a bucket that refuses us; one that is away is waited for.
    pub async fn in_s3(folder: &Path, s3: &S3, store: &Store) -> Result<Self, StoreError> {
        let objects = Objects::new(s3.connect()?);
        let asked = async {
            objects.check().await?;
            match claim(&objects, store).await {
                Err(error @ StoreError::BadBucket(_)) => Err(error),
                // Nothing is deleted before it is known whose it is.
                Err(error) => {
                    tracing::warn!(%error, "It is not known yet whose files the bucket has");
                    Ok(())
                }
                Ok(()) => Ok(()),
            }
        };
        match tokio::time::timeout(START_MAX, asked).await {
            Ok(asked) => asked?,
            Err(_) => tracing::warn!("The object store does not answer; it is waited for"),
        }
        Self::open(folder, Place::Objects(objects)).await
    }

    async fn open(folder: &Path, place: Place) -> Result<Self, StoreError> {
        let folder = folder.to_owned();
        let folder = Arc::new(blocking(move || Folder::open(folder)).await?);
        Ok(Self { folder, place })
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

    /// What `reader` gives, to its end. More than `size_max` is an error, and nothing is kept.
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

    /// The same of what comes from a socket.
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
        match &self.place {
            Place::Folder => blocking(move || folder.publish(&spool, digest, size_bytes)).await?,
            Place::Database(store) => {
                let content = blocking(move || spool.open()).await?;
                store.put_blob(digest, size_bytes, Timestamp::now(), content).await?;
            }
            Place::Objects(objects) => {
                let content = blocking(move || spool.open()).await?;
                objects.put(digest, size_bytes, content).await?;
            }
        }
        Ok((digest, size_bytes))
    }

    /// Whether it is there; if so, it will not be collected for a while.
    async fn touch(&self, digest: Digest, size_bytes: u64) -> Result<bool, StoreError> {
        match &self.place {
            Place::Folder => {
                let folder = Arc::clone(&self.folder);
                blocking(move || folder.touch(digest, size_bytes)).await
            }
            Place::Database(store) => store.touch_blob(digest, Timestamp::now()).await,
            // It has no touch: it is written again.
            Place::Objects(_) => Ok(false),
        }
    }

    /// Whether it is there still, for who has no row of it yet; as far as the place lets us say, it
    /// will not be collected for a while.
    pub(crate) async fn is_there(
        &self,
        digest: Digest,
        size_bytes: u64,
    ) -> Result<bool, StoreError> {
        match &self.place {
            Place::Objects(objects) => objects.is_there(digest).await,
            Place::Folder | Place::Database(_) => self.touch(digest, size_bytes).await,
        }
    }

    pub async fn get(&self, digest: Digest) -> Result<Blob, StoreError> {
        match &self.place {
            Place::Folder => {
                let folder = Arc::clone(&self.folder);
                let file = blocking(move || folder.open_blob(digest)).await?;
                let (file, size_bytes) = file.ok_or(StoreError::NotFound)?;
                Ok(Blob::new(size_bytes, folder::stream(file)))
            }
            Place::Database(store) => {
                let size_bytes = store.blob_size(digest).await?.ok_or(StoreError::NotFound)?;
                let stream = chunks(store.clone(), digest, 0);
                let source = Source::Database(store.clone(), digest);
                Ok(Blob { size_bytes, stream, source })
            }
            Place::Objects(objects) => objects.get(digest).await,
        }
    }

    /// All of it, and certainly it: bytes that do not have this name are an error.
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
            return Err(StoreError::Corrupt(format!("blob {digest} has other content")));
        }
        Ok(bytes)
    }

    /// The file itself, where there is one: a shorter way out.
    pub async fn open_file(&self, digest: Digest) -> Result<Option<File>, StoreError> {
        let Place::Folder = &self.place else { return Ok(None) };
        let folder = Arc::clone(&self.folder);
        Ok(blocking(move || folder.open_blob(digest)).await?.map(|(file, _)| file))
    }

    /// Deletes it if nobody put it since; whether it did. Who deletes must know that nothing
    /// refers to it: [`Blobs::collect`] does.
    pub async fn delete(
        &self,
        digest: Digest,
        untouched_since: Timestamp,
    ) -> Result<bool, StoreError> {
        match &self.place {
            Place::Folder => {
                let folder = Arc::clone(&self.folder);
                blocking(move || folder.delete(digest, untouched_since)).await
            }
            Place::Database(store) => store.delete_blob(digest, untouched_since).await,
            Place::Objects(objects) => objects.delete(digest, untouched_since).await,
        }
    }

    /// Every blob, with the time of its last put.
    pub async fn list(&self) -> Result<Vec<(Digest, Timestamp)>, StoreError> {
        match &self.place {
            Place::Folder => {
                let folder = Arc::clone(&self.folder);
                blocking(move || folder.list()).await
            }
            Place::Database(store) => {
                let blobs = store.blobs().await?;
                Ok(blobs.into_iter().map(|blob| (blob.digest, blob.touched_at)).collect())
            }
            Place::Objects(objects) => objects.list().await,
        }
    }

    /// Deletes one, if no row refers to it and nobody has put it since. Says whether it did. What is
    /// in a bucket waits to be collected: its times are by another clock.
    pub async fn discard(
        &self,
        store: &Store,
        digest: Digest,
        put_at: Timestamp,
    ) -> Result<bool, StoreError> {
        if matches!(self.place, Place::Objects(_)) || store.is_in_use(digest).await? {
            return Ok(false);
        }
        self.delete(digest, put_at).await
    }

    /// Deletes what no row refers to. A blob is put before its row is written, so `untouched_since`
    /// must lie further back than any call lasts.
    pub async fn collect(
        &self,
        store: &Store,
        untouched_since: Timestamp,
    ) -> Result<u64, StoreError> {
        if let Place::Objects(objects) = &self.place {
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

    /// At the start: deletes what a crash left in the spool, and says how many that were.
    pub async fn sweep_leftovers(&self) -> Result<u64, StoreError> {
        let folder = Arc::clone(&self.folder);
        blocking(move || folder.sweep()).await
    }
}

async fn claim(objects: &Objects, store: &Store) -> Result<(), StoreError> {
    objects.claim(&format!("woma {}\n", store.made_at().await?)).await
}

/// One piece per call, so that a slow reader holds no connection.
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
