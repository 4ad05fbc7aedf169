//! Blobs in an object store: S3 and what speaks like it.

use std::fs::File;
use std::io::Read as _;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt as _, WriteMultipart};

use super::{Blob, Digest, blocking};
use crate::store::StoreError;

/// From here on in parts; S3 wants parts of five megabytes at least.
const PART_BYTES: usize = 8 * 1024 * 1024;
const PARTS_AT_ONCE: usize = 2;

#[derive(Debug, Clone)]
pub(super) struct Objects(Arc<dyn ObjectStore>);

/// A bucket. `Debug` does not show the secret.
#[cfg(feature = "s3")]
#[derive(Clone)]
pub struct S3 {
    pub bucket: String,
    pub region: String,
    /// `None`: Amazon's.
    pub endpoint: Option<String>,
    pub access_key_id: String,
    pub secret_access_key: String,
}

#[cfg(feature = "s3")]
impl std::fmt::Debug for S3 {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = formatter.debug_struct("S3");
        shown.field("bucket", &self.bucket).field("endpoint", &self.endpoint);
        shown.finish_non_exhaustive()
    }
}

impl Objects {
    pub(super) fn new(objects: Arc<dyn ObjectStore>) -> Self {
        Self(objects)
    }

    #[cfg(feature = "s3")]
    pub(super) fn s3(s3: &S3) -> Result<Self, StoreError> {
        let mut builder = object_store::aws::AmazonS3Builder::new()
            .with_bucket_name(&s3.bucket)
            .with_region(&s3.region)
            .with_access_key_id(&s3.access_key_id)
            .with_secret_access_key(&s3.secret_access_key);
        if let Some(endpoint) = &s3.endpoint {
            builder =
                builder.with_endpoint(endpoint).with_allow_http(endpoint.starts_with("http://"));
        }
        let built = builder.build().map_err(|error| failed(&error))?;
        Ok(Self(Arc::new(built)))
    }

    /// Always writes: what is there already may be about to be collected.
    pub(super) async fn put(
        &self,
        digest: Digest,
        size_bytes: u64,
        mut content: File,
    ) -> Result<(), StoreError> {
        let path = path_of(digest);
        if size_bytes <= PART_BYTES as u64 {
            let (bytes, _) = piece(content).await?;
            let put = self.0.put(&path, bytes.into()).await;
            return put.map(drop).map_err(|error| failed(&error));
        }
        let upload = self.0.put_multipart(&path).await.map_err(|error| failed(&error))?;
        let mut upload = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
        loop {
            let ready = upload.wait_for_capacity(PARTS_AT_ONCE).await;
            let read = match ready {
                Ok(()) => piece(content).await,
                Err(error) => Err(failed(&error)),
            };
            match read {
                Ok((bytes, _)) if bytes.is_empty() => break,
                Ok((bytes, rest)) => {
                    upload.put(bytes);
                    content = rest;
                }
                Err(error) => {
                    // Parts without an end cost money, and nothing else ends them.
                    if let Err(error) = upload.abort().await {
                        tracing::warn!(error = %failed(&error), "An upload was not taken back");
                    }
                    return Err(error);
                }
            }
        }
        upload.finish().await.map(drop).map_err(|error| failed(&error))
    }

    pub(super) async fn get(&self, digest: Digest) -> Result<Blob, StoreError> {
        let got = self.0.get(&path_of(digest)).await.map_err(|error| failed(&error))?;
        let size_bytes = got.meta.size;
        let stream = got.into_stream().map_err(|error| failed(&error));
        Ok(Blob { size_bytes, stream: stream.boxed() })
    }

    pub(super) async fn delete(
        &self,
        digest: Digest,
        untouched_since: Timestamp,
    ) -> Result<bool, StoreError> {
        let path = path_of(digest);
        match self.0.head(&path).await {
            Ok(meta) if touched_at(&meta) < untouched_since => {}
            Ok(_) | Err(object_store::Error::NotFound { .. }) => return Ok(false),
            Err(error) => return Err(failed(&error)),
        }
        self.0.delete(&path).await.map_err(|error| failed(&error))?;
        Ok(true)
    }

    pub(super) async fn list(&self) -> Result<Vec<(Digest, Timestamp)>, StoreError> {
        let mut blobs = Vec::new();
        let mut objects = self.0.list(None);
        while let Some(meta) = objects.next().await {
            let meta = meta.map_err(|error| failed(&error))?;
            // What is not named like one is not ours.
            let name = meta.location.as_ref().replacen('/', "", 1);
            if let Ok(digest) = name.parse() {
                blobs.push((digest, touched_at(&meta)));
            }
        }
        Ok(blobs)
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

fn touched_at(meta: &ObjectMeta) -> Timestamp {
    let at = Timestamp::from_microsecond(meta.last_modified.timestamp_micros());
    at.unwrap_or(Timestamp::MAX)
}

/// Without the library's own words: they have addresses in them.
fn failed(error: &object_store::Error) -> StoreError {
    use object_store::Error;
    let reason = match error {
        Error::NotFound { .. } => return StoreError::NotFound,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            "the object store refuses these keys"
        }
        Error::NotSupported { .. } | Error::NotImplemented { .. } => {
            "the object store cannot do that"
        }
        _ => "the object store failed",
    };
    StoreError::Unavailable(reason.to_owned())
}
