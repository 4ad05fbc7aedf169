//! Successful downloads, and their end at a limit or by cancellation.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rustls::RootCertStore;
use tokio::io::AsyncWrite;

use super::world::{DEAD, PUBLIC, SECURE, STEP_MAX, Server, World};
use crate::model::caller::CallerId;
use crate::net::fetch::{FetchError, FetchRules, Fetcher};

/// The digest of `hello\n`.
const HELLO: &str = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";

fn world() -> World {
    World::new(FetchRules::default())
}

fn within(time_max: Duration) -> FetchRules {
    FetchRules { time_max, ..FetchRules::default() }
}

#[tokio::test]
async fn downloads_with_every_framing_are_complete() {
    let world = world();
    // (path, final path, file name, media type)
    let table = [
        ("/data.csv?a=b#c", "/data.csv?a=b", "data.csv", Some("text/csv")),
        ("/chunked", "/chunked", "chunked", None),
        ("/until-close", "/until-close", "until-close", None),
        ("/to?/plain", "/plain", "to", Some("text/csv")),
        ("/again?9", "/plain", "again", Some("text/csv")),
    ];
    for (path, ends, name, media_type) in table {
        let (fetched, body) = world.fetch(&format!("http://public.test{path}")).await.unwrap();
        assert_eq!(body, b"hello\n", "{path}");
        assert_eq!(fetched.final_url, format!("http://public.test{ends}"));
        assert_eq!(fetched.file_name, name);
        assert_eq!(fetched.media_type.as_deref(), media_type, "{path}");
        assert_eq!((fetched.bytes, fetched.status), (6, 200));
        assert_eq!(fetched.sha256, HELLO);
        assert_eq!(fetched.content_encoding, None);
    }
}

#[tokio::test]
async fn keeps_encoded_bytes_and_accepts_empty_bodies() {
    let world = world();
    let (fetched, body) = world.fetch("http://public.test/gzip").await.unwrap();
    assert_eq!(body, b"\x1f\x01\x02");
    assert_eq!(fetched.content_encoding.as_deref(), Some("gzip"));
    let (fetched, body) = world.fetch("http://public.test/empty").await.unwrap();
    assert_eq!((fetched.status, body.len()), (204, 0));
}

#[tokio::test]
async fn requests_have_fixed_headers_and_no_cookies() {
    let world = world();
    world.fetch("http://public.test:8080/cookie?x=%20y#z").await.unwrap();
    let expected = |path: &str| {
        format!(
            "GET {path} HTTP/1.1\r\nhost: public.test:8080\r\nuser-agent: woma\r\n\
             connection: close\r\naccept: */*\r\naccept-encoding: identity\r\n\r\n"
        )
    };
    // The second request follows a response with `Set-Cookie`.
    let requests = world.server.requests.lock().unwrap().clone();
    assert_eq!(requests, [expected("/cookie?x=%20y"), expected("/plain")]);
}

#[tokio::test]
async fn headers_for_a_server_are_not_passed_on() {
    let world = world();
    let headers = [(hyper::header::AUTHORIZATION, "Bearer secret".to_owned())];
    for (to, with_header) in [("/plain", 2), ("http://public.test:8080/plain", 1)] {
        world.server.requests.lock().unwrap().clear();
        let url = format!("http://public.test/to?{to}");
        world.fetcher.open_with(&url, &headers).await.unwrap();
        let requests = world.server.requests.lock().unwrap().clone();
        assert_eq!(requests.len(), 2, "{requests:?}");
        let having = requests.iter().filter(|head| head.contains("Bearer secret")).count();
        assert_eq!(having, with_header, "{to}: {requests:?}");
    }
}

#[tokio::test]
async fn name_is_known_before_the_body_and_progress_is_reported() {
    let world = world();
    let download = world.fetcher.open("http://public.test/data.csv").await.unwrap();
    assert_eq!(download.file_name, "data.csv");
    assert_eq!(download.media_type.as_deref(), Some("text/csv"));
    assert_eq!(download.length, Some(6));
    let (mut body, mut told) = (Vec::new(), Vec::new());
    let fetched = download.save(&mut body, &mut |bytes, of| told.push((bytes, of))).await.unwrap();
    assert_eq!((fetched.bytes, body.as_slice()), (6, &b"hello\n"[..]));
    assert_eq!(told.last(), Some(&(6, Some(6))));
    assert!(told.is_sorted());
}

#[tokio::test]
async fn redirects_are_limited() {
    let world = world();
    // `/again?n` redirects n + 1 times.
    assert!(world.fetch("http://public.test/again?9").await.is_ok());
    let said = "the server redirects more than 10 times";
    assert_eq!(world.error_of("http://public.test/again?10").await, said);
    let before = world.connected().len();
    assert_eq!(world.error_of("http://public.test/loop").await, said);
    assert_eq!(world.connected().len() - before, 11);

    let none = World::new(FetchRules { redirects_max: 0, ..FetchRules::default() });
    assert!(none.fetch("http://public.test/plain").await.is_ok());
    let said = "the server redirects more than 0 times";
    assert_eq!(none.error_of("http://public.test/to?/plain").await, said);
}

#[tokio::test]
async fn size_is_limited() {
    let exact = World::new(FetchRules { bytes_max: 6, ..FetchRules::default() });
    let small = World::new(FetchRules { bytes_max: 5, ..FetchRules::default() });
    for path in ["/plain", "/chunked", "/until-close"] {
        let url = format!("http://public.test{path}");
        assert!(exact.fetch(&url).await.is_ok(), "{path}");
        assert_eq!(small.error_of(&url).await, "the file is larger than 5 bytes", "{path}");
    }
    // An announced length beyond the limit fails before the body.
    let told = world().fetcher.open("http://public.test/large").await;
    assert!(matches!(told, Err(FetchError::TooLarge { limit_bytes: 524_288_000 })), "{told:?}");
}

#[tokio::test]
async fn an_endless_body_is_cut_at_the_limit() {
    let world = World::new(FetchRules { bytes_max: 100_000, ..FetchRules::default() });
    let mut body = Vec::new();
    let ended = world.fetcher.fetch("http://public.test/endless", &mut body, &mut |_, _| {}).await;
    assert!(matches!(ended, Err(FetchError::TooLarge { .. })), "{ended:?}");
    assert!(body.len() <= 100_000);
    assert!(world.server.client_left().await);
}

#[tokio::test]
async fn every_wait_ends_at_the_time_limit() {
    let limit = Duration::from_millis(300);
    let world = World::new(within(limit));
    for path in ["/silent", "/stuck", "/drip", "/to?/drip"] {
        let start = Instant::now();
        let said = world.error_of(&format!("http://public.test{path}")).await;
        assert_eq!(said, "the download took longer than 0.3 s", "{path}");
        assert!((limit..STEP_MAX).contains(&start.elapsed()), "{path}: {:?}", start.elapsed());
        assert!(world.server.client_left().await, "{path}");
    }
}

#[tokio::test]
async fn a_stuck_resolver_times_out_and_keeps_its_permit() {
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let rules = FetchRules { at_once_max: 1, ..within(Duration::from_millis(200)) };
    let fetcher = Fetcher::with_resolver(
        rules,
        Arc::new(move |_| {
            // Returns when the test drops the sender.
            released.lock().unwrap().recv().ok();
            Err(io::ErrorKind::NotFound.into())
        }),
    );
    let first = fetcher.open("http://public.test/").await;
    assert!(matches!(first, Err(FetchError::TimedOut { .. })), "{first:?}");
    // Its thread still waits and holds the only permit.
    let second = fetcher.open("http://public.test/").await;
    assert!(matches!(second, Err(FetchError::Busy { at_once_max: 1 })), "{second:?}");
    drop(release);
}

#[tokio::test]
async fn connecting_has_its_own_time_limit() {
    let rules =
        FetchRules { connect_time_max: Duration::from_millis(200), ..FetchRules::default() };
    let world = World::with_names(rules, vec![("dead.test", vec![vec![DEAD]])]);
    // A port without a listener, and a listener that never answers the TLS handshake.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mute = Fetcher::new(FetchRules {
        allow_private: true,
        connect_time_max: Duration::from_millis(200),
        ..FetchRules::default()
    });
    assert_eq!(world.error_of("http://dead.test/").await, "cannot connect to `dead.test`");
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let ended = mute.open(&url).await;
    let Err(FetchError::Connect { source, .. }) = ended else { panic!("{ended:?}") };
    assert_eq!(source.kind(), io::ErrorKind::TimedOut);
}

#[tokio::test]
async fn tries_the_next_address_after_a_failure() {
    let names = vec![("two.test", vec![vec![DEAD, PUBLIC, DEAD]])];
    let world = World::with_names(FetchRules::default(), names);
    assert!(world.fetch("http://two.test/plain").await.is_ok());
    assert_eq!(world.connected(), [DEAD, PUBLIC]);
}

#[tokio::test]
async fn concurrent_downloads_are_limited_and_queued() {
    let world = World::new(FetchRules { at_once_max: 1, ..FetchRules::default() });
    let first = world.fetcher.open("http://public.test/stuck").await.unwrap();
    let clone = world.fetcher.clone();
    let mut second = Box::pin(clone.open("http://public.test/plain"));
    assert!(pending(second.as_mut()).await);
    assert_eq!(world.resolved.lock().unwrap().len(), 1, "it waits before it resolves");
    drop(first);
    assert!(second.await.is_ok());

    let hasty = FetchRules { at_once_max: 1, ..within(Duration::from_millis(200)) };
    let world = World::new(hasty);
    let first = world.fetcher.open("http://public.test/stuck").await.unwrap();
    let said = world.error_of("http://public.test/plain").await;
    assert_eq!(said, "the limit of 1 concurrent downloads is reached");
    drop(first);
    assert!(world.fetch("http://public.test/plain").await.is_ok());
}

#[tokio::test]
async fn one_caller_cannot_take_every_download() {
    let world = World::new(FetchRules { at_once_max: 4, ..FetchRules::default() });
    let [alice, bob] = ["alice", "bob"].map(|name| world.fetcher.of(&CallerId::new(name)));
    let mut hers = Vec::new();
    for _ in 0..3 {
        hers.push(alice.open("http://public.test/stuck").await.unwrap());
    }
    let mut more: Vec<_> =
        (0..5).map(|_| Box::pin(alice.open("http://public.test/stuck"))).collect();
    for waiting in &mut more {
        assert!(pending(waiting.as_mut()).await);
    }
    let pool = world.fetcher.usage();
    assert_eq!((pool.taken, pool.waiting, pool.places), (3, 5, 4));
    // Another caller gets the last place at once, and the next free one before the five.
    let his = bob.open("http://public.test/stuck").await.unwrap();
    let mut next = Box::pin(bob.open("http://public.test/plain"));
    assert!(pending(next.as_mut()).await);
    hers.pop();
    assert_eq!(next.await.unwrap().file_name, "plain");
    drop((his, more, hers));
}

#[tokio::test]
async fn a_download_that_trickles_is_given_up() {
    let rules = FetchRules { grace: Duration::from_millis(200), ..FetchRules::default() };
    let said = World::new(rules).error_of("http://public.test/stuck").await;
    assert!(said.starts_with("the download was too slow:"), "{said}");
}

/// Whether a future is pending.
async fn pending<T>(mut future: Pin<&mut impl Future<Output = T>>) -> bool {
    std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_pending())).await
}

#[tokio::test]
async fn dropping_the_future_cancels_the_download() {
    let world = world();
    let (began, beginning) = tokio::sync::oneshot::channel();
    let mut began = Some(began);
    let fetcher = world.fetcher.clone();
    let task = tokio::spawn(async move {
        let mut progress = |_, _| {
            began.take().map(|began| began.send(()));
        };
        fetcher.fetch("http://public.test/stuck", &mut tokio::io::sink(), &mut progress).await
    });
    beginning.await.unwrap();
    task.abort();
    assert!(world.server.client_left().await, "in the middle of the body");

    drop(world.fetcher.open("http://public.test/stuck").await.unwrap());
    assert!(world.server.client_left().await, "between head and body");
    assert_eq!(world.fetcher.usage().taken, 0);
}

#[tokio::test]
async fn bad_statuses_and_malformed_responses_are_errors() {
    let world = world();
    for status in [300, 301, 304, 400, 403, 404, 410, 418, 500, 503] {
        let said = world.error_of(&format!("http://public.test/status?{status}")).await;
        assert_eq!(said, format!("the server answers with status {status}"));
    }
    for path in [
        "/short",
        "/garbage",
        "/bad-chunk",
        "/bad-length",
        "/large-head",
        "/many-headers",
        "/nothing",
    ] {
        let said = world.error_of(&format!("http://public.test{path}")).await;
        assert_eq!(said, "the server's response is broken", "{path}");
    }
}

#[tokio::test]
async fn tls_certificates_are_verified() {
    let world = world();
    let (fetched, body) = world.fetch("https://secure.test/data.csv").await.unwrap();
    assert_eq!((body.as_slice(), fetched.status), (&b"hello\n"[..], 200));
    let (fetched, _) =
        world.fetch("http://public.test/to?https://secure.test/plain").await.unwrap();
    assert_eq!(fetched.final_url, "https://secure.test/plain");

    // Another name at the same address, the address itself, and a port that speaks plain HTTP.
    for host in ["other.test", SECURE, "public.test"] {
        let said = world.error_of(&format!("https://{host}/plain")).await;
        assert_eq!(said, format!("`{host}` cannot be trusted: the TLS handshake failed"));
    }
    // Without the test authority the certificate is not trusted.
    let roots = webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect::<RootCertStore>();
    let mut inner = Arc::into_inner(world.fetcher.inner).unwrap();
    inner.roots = Arc::new(roots);
    let error = Fetcher::from(inner).open("https://secure.test/").await.unwrap_err();
    let FetchError::Tls { source, .. } = &error else { panic!("{error:?}") };
    assert!(source.to_string().contains("UnknownIssuer"), "{source}");
}

#[tokio::test]
async fn operators_can_allow_private_networks() {
    let server = Server::start();
    let url = format!("http://{}/data.csv", server.address);
    let closed = Fetcher::new(FetchRules::default()).open(&url).await;
    assert!(matches!(closed, Err(FetchError::AddressRefused { .. })), "{closed:?}");
    assert!(server.requests.lock().unwrap().is_empty());

    let open = Fetcher::new(FetchRules { allow_private: true, ..FetchRules::default() });
    assert_eq!(open.open(&url).await.unwrap().file_name, "data.csv");
    // Through the system's resolver, which knows this name everywhere.
    let named = format!("http://localhost:{}/data.csv", server.address.port());
    assert_eq!(open.open(&named).await.unwrap().file_name, "data.csv");
    for host in ["169.254.169.254", "[fd00:ec2::254]", "[::ffff:127.0.0.1]", "0.0.0.0"] {
        let refused = open.open(&format!("http://{host}/")).await;
        assert!(matches!(refused, Err(FetchError::AddressRefused { .. })), "{host}: {refused:?}");
    }
}

#[tokio::test]
async fn a_write_error_ends_the_download() {
    struct Full;
    impl AsyncWrite for Full {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Err(io::ErrorKind::StorageFull.into()))
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }
    let ended = world().fetcher.fetch("http://public.test/plain", &mut Full, &mut |_, _| {}).await;
    let Err(FetchError::Io(error)) = ended else { panic!("{ended:?}") };
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
}

#[tokio::test]
async fn extreme_rules_do_not_overflow() {
    let world = World::new(FetchRules {
        bytes_max: u64::MAX,
        time_max: Duration::MAX,
        connect_time_max: Duration::MAX,
        at_once_max: usize::MAX,
        ..FetchRules::default()
    });
    assert!(world.fetch("http://public.test/plain").await.is_ok());
    let world = World::new(FetchRules { at_once_max: 0, ..FetchRules::default() });
    assert!(world.fetch("http://public.test/plain").await.is_ok());
}
