//! Blobs in all backends: folder, database, S3.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;
use tempfile::TempDir;
use woma_core::blobs::{Blobs, Digest, S3};
use woma_core::store::{Deletion, Store, StoreConfig, StoreError};

use crate::authority::Authority;
use crate::bucket::{self, Bucket};
use crate::fixture::{Backend, Fixture, checkpoint, deleted, file_row};

const SIZE_MAX: u64 = 64 << 20;

/// Blobs of a fixture: in a folder with `SQLite`, in tables with `PostgreSQL`, or in its bucket.
async fn blobs_of(fixture: &Fixture) -> Blobs {
    let folder = fixture.folder.path().join("blobs");
    match (&fixture.bucket, fixture.backend) {
        (Some(bucket), _) => in_bucket(fixture, bucket).await.unwrap(),
        (None, Backend::Sqlite) => Blobs::in_folder(&folder).await.unwrap(),
        (None, Backend::Postgres) => {
            Blobs::in_database(&folder, fixture.store.clone()).await.unwrap()
        }
    }
}

async fn in_bucket(fixture: &Fixture, bucket: &Bucket) -> Result<Blobs, StoreError> {
    let folder = fixture.folder.path().join("blobs");
    Blobs::in_s3(&folder, &keys_of(bucket), &fixture.store).await
}

fn keys_of(bucket: &Bucket) -> S3 {
    S3 {
        bucket: bucket::NAME.to_owned(),
        region: "us-east-1".to_owned(),
        endpoint: Some(bucket.endpoint()),
        access_key_id: bucket::KEY_ID.to_owned(),
        secret_access_key: bucket::SECRET.to_owned(),
        session_token: None,
        prefix: Some("some/where/".to_owned()),
        ca_file: None,
    }
}

fn in_spool(fixture: &TempDir) -> usize {
    std::fs::read_dir(fixture.path().join("blobs/tmp")).unwrap().count()
}

pub(crate) async fn blobs_round_trip(fixture: Fixture) {
    come_back(&blobs_of(&fixture).await).await;
    assert_eq!(in_spool(&fixture.folder), 0);
}

pub(crate) async fn blobs_round_trip_in_any_object_store() {
    let folder = TempDir::new().unwrap();
    let objects = Arc::new(object_store::memory::InMemory::new());
    let blobs = Blobs::in_objects(&folder.path().join("blobs"), objects).await.unwrap();
    come_back(&blobs).await;
    let digest = blobs.put(Bytes::from_static(b"once")).await.unwrap();
    assert_eq!(blobs.delete(digest, past()).await, Ok(false));
    assert_eq!(blobs.delete(digest, future()).await, Ok(true));
    assert_eq!(blobs.delete(digest, future()).await, Ok(false));
    assert_eq!(in_spool(&folder), 0);
}

async fn come_back(blobs: &Blobs) {
    // Sizes around the boundaries of chunks, and larger.
    for size in [0, 1, 1000, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 20 << 20] {
        let content: Vec<u8> = (0..size).map(|index: u32| index.to_le_bytes()[0]).collect();
        let content = Bytes::from(content);
        let digest = Digest::of(&content);
        let size = content.len() as u64;

        let pieces: Vec<_> = content.chunks(300_000).map(Bytes::copy_from_slice).collect();
        let pieces = stream::iter(pieces.into_iter().map(io::Result::Ok));
        assert_eq!(blobs.put_stream(pieces, SIZE_MAX).await, Ok((digest, size)));
        let reader = io::Cursor::new(content.clone());
        assert_eq!(blobs.put_reader(reader, SIZE_MAX).await, Ok((digest, size)));
        assert_eq!(blobs.put(content.clone()).await, Ok(digest));
        assert_eq!(blobs.get(digest).await.unwrap().size_bytes, size);
        assert_eq!(blobs.read(digest, SIZE_MAX).await, Ok(content));
    }
    let absent = Digest::of(b"absent");
    assert_eq!(blobs.get(absent).await.unwrap_err(), StoreError::NotFound);
    assert!(blobs.open_file(absent).await.unwrap().is_none());
    let digest = blobs.put(Bytes::from_static(b"12345")).await.unwrap();
    let too_large = Err(StoreError::TooLarge { limit_bytes: 4 });
    assert_eq!(blobs.read(digest, 4).await, too_large);
    assert_eq!(blobs.list().await.unwrap().len(), 8);
}

pub(crate) async fn equal_blobs_are_stored_once(fixture: Fixture) {
    let blobs = blobs_of(&fixture).await;
    let put = async |_| blobs.put(Bytes::from(vec![7; 100_000])).await.unwrap();
    let digests = futures_util::future::join_all((0..10).map(put)).await;
    assert!(digests.iter().all(|digest| *digest == digests[0]));
    assert_eq!(blobs.list().await.unwrap().len(), 1);
    assert_eq!(in_spool(&fixture.folder), 0);
    if fixture.backend == Backend::Sqlite && fixture.bucket.is_none() {
        use std::os::unix::fs::MetadataExt as _;
        let inode = async || {
            let file = blobs.open_file(digests[0]).await.unwrap().unwrap();
            file.metadata().unwrap().ino()
        };
        let first = inode().await;
        put(0).await;
        assert_eq!(inode().await, first, "the blob was written again");
    }
}

pub(crate) async fn too_large_blobs_leave_nothing(fixture: Fixture) {
    let blobs = blobs_of(&fixture).await;
    let too_large = Err(StoreError::TooLarge { limit_bytes: 1000 });
    assert_eq!(blobs.put_reader(io::repeat(0), 1000).await, too_large);
    let endless = stream::repeat(()).map(|()| Ok(Bytes::from_static(b"0123456789")));
    assert_eq!(blobs.put_stream(endless, 1000).await, too_large);
    let torn = stream::iter([Ok(Bytes::from_static(b"01")), Err(io::ErrorKind::BrokenPipe.into())]);
    blobs.put_stream(torn, 1000).await.unwrap_err();
    assert_eq!(blobs.list().await, Ok(vec![]));
    assert_eq!(in_spool(&fixture.folder), 0);
}

pub(crate) async fn only_garbage_is_collected(fixture: Fixture) {
    let blobs = blobs_of(&fixture).await;
    let store = &fixture.store;
    let file = file_row("ann", "a", "used");
    let state = checkpoint("ann", "a");
    store.put_file(&file).await.unwrap();
    store.put_checkpoint(&state).await.unwrap();
    for content in ["used", "variables", "garbage"] {
        blobs.put(Bytes::from(content)).await.unwrap();
    }
    // A recent blob may not have its row yet.
    assert_eq!(blobs.collect(store, past()).await, Ok(0));
    assert_eq!(blobs.collect(store, future()).await, Ok(1));
    assert_eq!(blobs.read(file.digest, 100).await, Ok(Bytes::from_static(b"used")));
    assert_eq!(blobs.read(state.digest, 100).await, Ok(Bytes::from_static(b"variables")));
    let gone = blobs.get(Digest::of(b"garbage")).await.unwrap_err();
    assert_eq!(gone, StoreError::NotFound);

    // A new put protects the blob.
    let between = Timestamp::now();
    let digest = blobs.put(Bytes::from_static(b"used")).await.unwrap();
    assert_eq!(blobs.delete(digest, between).await, Ok(false));
    store.delete_file("ann", file.id).await.unwrap();
    assert_eq!(blobs.collect(store, future()).await, Ok(1));
    assert_eq!(blobs.list().await.unwrap().len(), 1);
}

pub(crate) async fn what_is_replaced_goes_unless_it_is_wanted(fixture: Fixture) {
    let blobs = blobs_of(&fixture).await;
    let (store, state) = (&fixture.store, checkpoint("ann", "a"));
    store.put_checkpoint(&state).await.unwrap();
    let digest = blobs.put(Bytes::from_static(b"variables")).await.unwrap();
    assert_eq!(digest, state.digest);
    assert_eq!(blobs.discard(store, digest, future()).await, Ok(false), "a row refers to it");
    store.delete(&deleted("ann", "a", Deletion::Checkpoint)).await.unwrap();
    assert_eq!(blobs.discard(store, digest, past()).await, Ok(false), "it was put since");
    assert_eq!(blobs.discard(store, digest, future()).await, Ok(true));
    assert_eq!(blobs.discard(store, digest, future()).await, Ok(false));
    assert_eq!(blobs.get(digest).await.unwrap_err(), StoreError::NotFound);
}

/// Fixture whose blobs are in a bucket.
pub(crate) async fn with_bucket(bucket: Bucket) -> Fixture {
    let mut fixture = Fixture::new(Backend::Sqlite).await;
    fixture.bucket = Some(bucket);
    fixture
}

pub(crate) async fn large_blobs_are_uploaded_in_parts() {
    let fixture = with_bucket(Bucket::start()).await;
    let blobs = blobs_of(&fixture).await;
    let bucket = fixture.bucket.as_ref().unwrap();
    let content: Vec<u8> = (0..20_u32 << 20).map(|index| index.to_le_bytes()[1]).collect();
    let digest = blobs.put(Bytes::from(content.clone())).await.unwrap();
    let sent = bucket.requests();
    let parts = sent.iter().filter(|line| line.contains("partNumber")).count();
    assert_eq!(parts, 3, "{sent:?}");
    assert_eq!(blobs.read(digest, SIZE_MAX).await.unwrap(), content);
    assert!(bucket.requests().iter().all(|line| line.ends_with(" -")));
}

pub(crate) async fn a_bucket_that_refuses_us_is_refused() {
    let bucket = Bucket::start();
    let fixture = Fixture::new(Backend::Sqlite).await;
    let right = keys_of(&bucket);
    let absent = S3 { bucket: "absent".to_owned(), ..right.clone() };
    let secret = S3 { secret_access_key: "wrong-s3cret".to_owned(), ..right.clone() };
    let unknown = S3 { access_key_id: "unknown".to_owned(), ..right.clone() };
    let endpoint = S3 { endpoint: Some("http://a b".to_owned()), ..right.clone() };
    let spaced = S3 { bucket: "a b".to_owned(), ..right.clone() };
    let foreign = S3 { access_key_id: "schlüssel".to_owned(), ..right.clone() };
    for (keys, why) in [
        (&absent, "the bucket does not exist"),
        (&secret, "refuses these keys (SignatureDoesNotMatch)"),
        (&unknown, "refuses these keys"),
        (&endpoint, "S3_ENDPOINT is missing or malformed"),
        (&spaced, "S3_BUCKET is missing or malformed"),
        (&foreign, "S3_ACCESS_KEY_ID is missing or malformed"),
    ] {
        let folder = fixture.folder.path().join("blobs");
        let error = Blobs::in_s3(&folder, keys, &fixture.store).await.unwrap_err();
        assert!(matches!(error, StoreError::BadBucket(_)), "{error}");
        let told = format!("{error} {error:?} {keys:?}");
        assert!(told.contains(why), "{told}");
        assert!(!told.contains("s3cret") && !told.contains("127.0.0.1"), "{told}");
    }
}

pub(crate) async fn a_bucket_belongs_to_one_database() {
    let bucket = Bucket::start();
    let (one, other) = (Fixture::new(Backend::Sqlite).await, Fixture::new(Backend::Postgres).await);
    let blobs = in_bucket(&one, &bucket).await.unwrap();
    let digest = blobs.put(Bytes::from_static(b"of one")).await.unwrap();
    let error = in_bucket(&other, &bucket).await.unwrap_err();
    assert!(error.to_string().contains("another database"), "{error}");
    // Collection checks the owner again.
    let error = blobs.collect(&other.store, future()).await.unwrap_err();
    assert!(matches!(error, StoreError::BadBucket(_)), "{error}");
    assert_eq!(blobs.read(digest, 100).await, Ok(Bytes::from_static(b"of one")));
    // Another server of the same database is accepted, and so is another prefix.
    in_bucket(&one, &bucket).await.unwrap();
    let elsewhere = S3 { prefix: None, ..keys_of(&bucket) };
    let folder = other.folder.path().join("blobs");
    Blobs::in_s3(&folder, &elsewhere, &other.store).await.unwrap();
}

pub(crate) async fn a_bucket_is_believed_by_its_authority() {
    let (ours, others) = (Authority::new(), Authority::new());
    let bucket = Bucket::start_secured(&ours.sign("IP:127.0.0.1"));
    let elsewhere = Bucket::start_secured(&ours.sign("DNS:elsewhere.example"));
    let fixture = Fixture::new(Backend::Sqlite).await;
    let folder = fixture.folder.path().join("blobs");
    let open = async |bucket: &Bucket, ca_file: Option<std::path::PathBuf>| {
        let keys = S3 { ca_file, ..keys_of(bucket) };
        Blobs::in_s3(&folder, &keys, &fixture.store).await
    };
    let blobs = open(&bucket, Some(ours.certificate())).await.unwrap();
    come_back(&blobs).await;
    let empty = fixture.folder.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    for (bucket, ca_file, why) in [
        (&bucket, Some(others.certificate()), "not signed by an authority that is trusted"),
        (&bucket, None, "not signed by an authority that is trusted"),
        (&elsewhere, Some(ours.certificate()), "made for another name"),
        (&bucket, Some(empty), "has no certificate in PEM"),
        (&bucket, Some("/nowhere/ca.pem".into()), "cannot be read"),
    ] {
        let error = open(bucket, ca_file).await.unwrap_err();
        assert!(matches!(error, StoreError::BadBucket(_)), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
}

/// Time limit of all calls together: only the first ones wait for an unreachable store.
const AWAY_MAX: Duration = Duration::from_secs(20);

pub(crate) async fn a_bucket_that_is_away_comes_back() {
    let fixture = with_bucket(Bucket::make(None)).await;
    let bucket = fixture.bucket.as_ref().unwrap();
    // Unreachable at the start.
    let blobs = blobs_of(&fixture).await;
    let content = || Bytes::from_static(b"content");
    let digest = Digest::of(&content());
    let is_away = async |why: &str| {
        let started = Instant::now();
        let error = blobs.put(content()).await.unwrap_err();
        assert!(error.is_retryable() && error.to_string().contains(why), "{error}");
        for _ in 0..20 {
            assert!(blobs.put(content()).await.unwrap_err().is_retryable());
            assert!(blobs.get(digest).await.unwrap_err().is_retryable());
            assert!(blobs.list().await.unwrap_err().is_retryable());
            assert!(blobs.collect(&fixture.store, future()).await.unwrap_err().is_retryable());
        }
        assert!(started.elapsed() < AWAY_MAX, "{:?}", started.elapsed());
        assert_eq!(in_spool(&fixture.folder), 0);
    };
    let is_back = async || {
        let deadline = Instant::now() + AWAY_MAX;
        while let Err(error) = blobs.put(content()).await {
            assert!(error.is_retryable() && Instant::now() < deadline, "{error}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(blobs.read(digest, 100).await, Ok(content()));
    };
    is_away("is away").await;
    tokio::task::block_in_place(|| bucket.launch());
    is_back().await;
    tokio::task::block_in_place(|| bucket.stop());
    is_away("cannot be reached").await;
    tokio::task::block_in_place(|| bucket.launch());
    is_back().await;
    bucket.silence(true);
    is_away("nothing came in time").await;
    bucket.silence(false);
    is_back().await;
}

pub(crate) async fn spool_leftovers_are_removed() {
    let folder = TempDir::new().unwrap();
    let blobs = Blobs::in_folder(folder.path()).await.unwrap();
    let digest = blobs.put(Bytes::from_static(b"kept")).await.unwrap();
    for name in ["one", "two"] {
        std::fs::write(folder.path().join("tmp").join(name), b"half").unwrap();
    }
    assert_eq!(blobs.sweep_leftovers().await, Ok(2));
    assert_eq!(blobs.sweep_leftovers().await, Ok(0));
    assert_eq!(blobs.read(digest, 100).await, Ok(Bytes::from_static(b"kept")));
    let file = folder.path().join("woma.db");
    let store = Store::open(StoreConfig::Sqlite { file }).await.unwrap();
    Blobs::in_database(folder.path(), store).await.unwrap_err();
}

pub(crate) async fn damaged_blobs_are_detected() {
    let folder = TempDir::new().unwrap();
    let blobs = Blobs::in_folder(folder.path()).await.unwrap();
    let digest = blobs.put(Bytes::from_static(b"content")).await.unwrap();
    let name = digest.to_string();
    let path = folder.path().join(&name[..2]).join(&name[2..]);
    std::fs::write(&path, b"c0ntent").unwrap();
    assert!(matches!(blobs.read(digest, 100).await, Err(StoreError::Corrupt(_))));
    // A truncated blob is replaced.
    std::fs::write(&path, b"con").unwrap();
    blobs.put(Bytes::from_static(b"content")).await.unwrap();
    assert_eq!(blobs.read(digest, 100).await, Ok(Bytes::from_static(b"content")));
}

fn past() -> Timestamp {
    Timestamp::try_from(SystemTime::now() - Duration::from_secs(3600)).unwrap()
}

fn future() -> Timestamp {
    Timestamp::try_from(SystemTime::now() + Duration::from_secs(3600)).unwrap()
}
