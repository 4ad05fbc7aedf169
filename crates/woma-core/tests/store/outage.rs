//! Outages of `PostgreSQL`: restarts, killed connections, silence, absence; and TLS.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use tempfile::TempDir;
use uuid::Uuid;
use woma_core::blobs::Blobs;
use woma_core::store::{AuditFilter, Store, StoreConfig, StoreError};

use crate::authority::Authority;
use crate::fixture::{entry, finish, finished, running, session};
use crate::postgres::{self, Cluster, PASSWORD};

/// Time that a call may take: 5 s are promised, and a busy machine delays them.
const CALL_MAX: Duration = Duration::from_secs(30);
/// Time that the store may take to recover: 5 s are promised, and a busy machine delays them.
const RECOVERY_MAX: Duration = Duration::from_secs(50);

async fn open(url: String) -> Store {
    Store::open(StoreConfig::Postgres { url, connections_max: 8 }).await.unwrap()
}

/// Waits until the store reports this health.
async fn until_healthy(store: &Store, is_healthy: bool) {
    let deadline = Instant::now() + RECOVERY_MAX;
    loop {
        let health = store.health().await;
        if health.is_healthy == is_healthy {
            assert_eq!(health.last_error.is_none(), is_healthy);
            return;
        }
        assert!(Instant::now() < deadline, "{health:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub(crate) async fn all_url_schemes_are_accepted() {
    let cluster = postgres::shared();
    let url = cluster.url(&cluster.fresh());
    let rest = url.strip_prefix("postgres://").unwrap();
    for form in ["postgres://", "postgresql://", "postgresql+asyncpg://", "POSTGRESQL://"] {
        for query in ["", "?sslmode=prefer", "?ssl=prefer&unheard_of=1", "?application_name=x"] {
            let store = open(format!("{form}{rest}{query}")).await;
            assert_eq!(store.backend_name(), "postgresql");
            assert!(store.health().await.is_healthy, "{form} {query}");
        }
    }
    for bad in ["", "woma", "mysql://a:b@c/d", "postgres://a:b@c:port/d", "sqlite:///x"] {
        let config = StoreConfig::Postgres { url: bad.to_owned(), connections_max: 1 };
        let error = Store::open(config).await.unwrap_err();
        assert!(matches!(error, StoreError::BadUrl(_)), "{bad}: {error}");
    }
}

pub(crate) async fn tls_is_spoken_as_the_address_says() {
    let (ours, others) = (Authority::new(), Authority::new());
    let cluster = Cluster::start_secured(&ours.sign("IP:127.0.0.1"));
    let elsewhere = Cluster::start_secured(&ours.sign("DNS:elsewhere.example"));
    let (ours, others) = (ours.certificate(), others.certificate());
    let (ours, others) = (ours.to_str().unwrap(), others.to_str().unwrap());
    let address = |cluster: &Cluster, form: &str, query: &str| {
        let url = cluster.url("postgres");
        format!("{form}{}?{query}", url.strip_prefix("postgres://").unwrap())
    };
    let unsigned = "not signed by an authority that is trusted";
    for form in ["postgres://", "postgresql://", "postgresql+asyncpg://"] {
        for (cluster, query, refused) in [
            (&cluster, "sslmode=require".to_owned(), None),
            (&cluster, "ssl=true".to_owned(), None),
            (&cluster, format!("sslmode=verify-ca&sslrootcert={ours}"), None),
            (&cluster, format!("sslmode=verify-full&sslrootcert={ours}"), None),
            (&cluster, format!("ssl=verify-full&sslrootcert={ours}"), None),
            (&elsewhere, "sslmode=require".to_owned(), None),
            (&elsewhere, format!("sslmode=verify-ca&sslrootcert={ours}"), None),
            (
                &elsewhere,
                format!("sslmode=verify-full&sslrootcert={ours}"),
                Some("made for another name"),
            ),
            (&cluster, format!("sslmode=verify-ca&sslrootcert={others}"), Some(unsigned)),
            (&cluster, format!("sslmode=verify-full&sslrootcert={others}"), Some(unsigned)),
            (&cluster, "sslmode=verify-full".to_owned(), Some(unsigned)),
            (&cluster, "sslmode=disable".to_owned(), Some("the database refuses this user")),
        ] {
            // Refusals do not depend on the scheme and are slow: one scheme is enough.
            if refused.is_some() && form != "postgres://" {
                continue;
            }
            let store = open(address(cluster, form, &query)).await;
            let health = store.health().await;
            let told = format!("{form} {query}: {health:?}");
            assert_eq!(health.is_healthy, refused.is_none(), "{told}");
            assert!(refused.is_none_or(|why| told.contains(why)), "{told}");
            if refused.is_none() {
                let sql = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity \
                           USING (pid) WHERE application_name = 'woma'";
                assert_eq!(cluster.sql("postgres", sql).unwrap().trim(), "t", "{told}");
            }
        }
    }
}

pub(crate) async fn missing_tls_is_reported() {
    let cluster = postgres::shared();
    let url = cluster.url(&cluster.fresh());
    let store = open(format!("{url}?sslmode=require")).await;
    let told = format!("{:?}", store.health().await);
    assert!(told.contains("it does not speak TLS"), "{told}");
    let folder = tempfile::TempDir::new().unwrap();
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    for file in ["/nowhere/ca.pem", empty.to_str().unwrap()] {
        let url = format!("{url}?sslmode=verify-full&sslrootcert={file}");
        let config = StoreConfig::Postgres { url, connections_max: 1 };
        let error = Store::open(config).await.unwrap_err();
        assert!(error.to_string().contains("sslrootcert"), "{error}");
    }
}

pub(crate) async fn the_url_is_never_shown() {
    let cluster = postgres::shared();
    let database = cluster.fresh();
    let wrong = cluster.url(&database).replace(PASSWORD, "wrong-s3cret");
    let unreachable = "postgres://woma:wrong-s3cret@127.0.0.1:1/x".to_owned();
    for url in [cluster.url(&database), cluster.url("absent"), wrong, unreachable] {
        let config = StoreConfig::Postgres { url, connections_max: 1 };
        let shown = format!("{config:?}");
        let store = Store::open(config).await.unwrap();
        let health = store.health().await;
        let result = store.put_session(&session("ann", "a")).await;
        let all = format!("{shown} {store:?} {health:?} {result:?}");
        for secret in ["s3cret", "127.0.0.1", database.as_str()] {
            assert!(!all.contains(secret), "{all}");
        }
    }
}

/// Concurrent callers during an outage.
struct Load {
    is_over: Arc<AtomicBool>,
    failures: Arc<AtomicU64>,
    callers: Vec<tokio::task::JoinHandle<Vec<String>>>,
}

impl Load {
    fn start(store: &Store) -> Self {
        let (is_over, failures) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let callers = (0..8).map(|_| {
            let (store, is_over) = (store.clone(), Arc::clone(&is_over));
            let failures = Arc::clone(&failures);
            tokio::spawn(async move {
                let mut acknowledged = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    let id = Uuid::new_v4().to_string();
                    let started = Instant::now();
                    let row = finished(running("ann", "a", &id));
                    match finish(&store, &row, &entry("ann", "x")).await {
                        Ok(()) => acknowledged.push(id),
                        Err(error) => {
                            assert!(error.is_retryable(), "{error}");
                            failures.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    assert!(started.elapsed() < CALL_MAX, "{:?}", started.elapsed());
                }
                acknowledged
            })
        });
        let callers = callers.collect();
        Self { is_over, failures, callers }
    }

    /// Number of failed calls; checks that all others left their rows.
    async fn end(self, store: &Store) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        let callers = join_all(self.callers).await;
        let rows = store.executions("ann", None, 1_000_000, None).await.unwrap();
        let ids: HashSet<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        let mut count = 0;
        for acknowledged in callers {
            for id in acknowledged.unwrap() {
                count += 1;
                assert!(ids.contains(id.as_str()), "{id} is lost");
            }
        }
        assert!(count > 0, "no call succeeded");
        // A failed call may have been applied; no call was applied twice.
        let trail = store.audit(&AuditFilter::default(), 1_000_000).await.unwrap();
        assert_eq!(trail.len(), rows.len());
        self.failures.load(Ordering::Relaxed)
    }
}

pub(crate) async fn a_restart_costs_at_most_one_retry_per_caller() {
    let cluster = Cluster::start();
    let store = open(cluster.url(&cluster.fresh())).await;
    let load = Load::start(&store);
    let restarts = 3;
    for signal in ["-INT", "-QUIT", "-INT"] {
        tokio::time::sleep(Duration::from_millis(300)).await;
        tokio::task::block_in_place(|| {
            cluster.stop(signal);
            cluster.launch();
        });
        let back = Instant::now();
        until_healthy(&store, true).await;
        assert!(back.elapsed() < RECOVERY_MAX);
    }
    let failures = load.end(&store).await;
    // Each restart breaks eight connections.
    assert!(failures <= restarts * 8, "{failures} calls failed");
}

pub(crate) async fn a_killed_connection_costs_one_call_at_most() {
    let cluster = Cluster::start();
    let database = cluster.fresh();
    let store = open(cluster.url(&database)).await;
    let load = Load::start(&store);
    let mut killed = 0;
    while killed < 30 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let sql = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}' \
             AND pid <> pg_backend_pid() ORDER BY random() LIMIT 3"
        );
        let answer = tokio::task::block_in_place(|| cluster.sql(&database, &sql)).unwrap();
        killed += answer.lines().count() as u64;
    }
    let failures = load.end(&store).await;
    assert!(failures <= killed, "{failures} failed, {killed} killed");
    // No connection leaked: the pool is not larger than its limit, and all connections work.
    let calls = (0..40).map(|number| {
        let store = store.clone();
        async move { store.put_session(&session("ann", &number.to_string())).await }
    });
    for result in join_all(calls).await {
        result.unwrap();
    }
    let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'woma'";
    let count: u32 = cluster.sql(&database, count).unwrap().trim().parse().unwrap();
    assert!(count <= 8, "{count} connections");
}

pub(crate) async fn silence_times_out() {
    let cluster = Cluster::start();
    let store = open(cluster.url(&cluster.fresh())).await;
    store.put_session(&session("ann", "a")).await.unwrap();
    cluster.freeze();
    let calls = (0..20).map(|number| {
        let store = store.clone();
        async move {
            let started = Instant::now();
            let result = match number % 2 {
                0 => store.put_session(&session("ann", "b")).await,
                _ => store.session("ann", "a").await.map(drop),
            };
            (result, started.elapsed())
        }
    });
    for (result, took) in join_all(calls).await {
        assert!(matches!(result, Err(StoreError::Unavailable(_))), "{result:?}");
        assert!(took < CALL_MAX, "{took:?}");
    }
    let started = Instant::now();
    let health = store.health().await;
    assert!(!health.is_healthy && started.elapsed() < Duration::from_secs(10), "{health:?}");

    cluster.thaw();
    until_healthy(&store, true).await;
    let calls = (0..20).map(|_| store.session("ann", "a"));
    for result in join_all(calls).await {
        assert!(result.unwrap().is_some());
    }
}

/// The database falls silent in the middle of a blob, which may take a minute in all: each of its
/// steps has the time of a call.
pub(crate) async fn silence_ends_a_blob_that_is_being_written() {
    let cluster = Arc::new(Cluster::start());
    let (database, folder) = (cluster.fresh(), TempDir::new().unwrap());
    let store = open(cluster.url(&database)).await;
    let blobs = Blobs::in_database(folder.path(), store).await.unwrap();
    let locked = "BEGIN; LOCK TABLE blob_chunks; SELECT pg_sleep(600)";
    let (holder, of) = (Arc::clone(&cluster), database.clone());
    let holding = std::thread::spawn(move || holder.sql(&of, locked));
    let count = |condition: &str| {
        let sql = format!(
            "SELECT count(*) FROM pg_locks WHERE relation = 'blob_chunks'::regclass AND {condition}"
        );
        tokio::task::block_in_place(|| cluster.sql(&database, &sql)).unwrap().trim() == "1"
    };
    until(|| count("granted AND mode = 'AccessExclusiveLock'")).await;
    let content = Bytes::from_static(b"a blob");
    let writing = tokio::spawn(async move { blobs.put(content).await });
    until(|| count("NOT granted")).await;
    cluster.freeze();
    let started = Instant::now();
    let result = writing.await.unwrap();
    assert!(matches!(result, Err(StoreError::Unavailable(_))), "{result:?}");
    assert!(started.elapsed() < CALL_MAX, "{:?}", started.elapsed());
    cluster.thaw();
    cluster.stop("-QUIT");
    holding.join().unwrap().unwrap_err();
}

async fn until(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + RECOVERY_MAX;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {RECOVERY_MAX:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) async fn recovers_from_an_absent_database() {
    let cluster = Cluster::make();
    let started = Instant::now();
    let store = open(cluster.url("postgres")).await;
    assert!(started.elapsed() < Duration::from_secs(30), "the start waits too long");
    until_healthy(&store, false).await;
    let started = Instant::now();
    let result = store.put_session(&session("ann", "a")).await;
    assert!(matches!(result, Err(StoreError::Unavailable(_))), "{result:?}");
    assert!(result.unwrap_err().is_retryable());
    assert!(started.elapsed() < CALL_MAX);

    tokio::task::block_in_place(|| cluster.launch());
    until_healthy(&store, true).await;
    store.put_session(&session("ann", "a")).await.unwrap();
}
