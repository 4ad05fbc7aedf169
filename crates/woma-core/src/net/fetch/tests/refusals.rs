//! Attempts to reach forbidden addresses by URLs, names and redirects, checked against the record
//! of connections.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::world::{PUBLIC, World};
use crate::net::fetch::{FetchRules, Fetcher, Inner, refused};

/// (URL, error message). The names are those of [`names`].
const FORBIDDEN: &[(&str, &str)] = &[
    ("http://127.0.0.1/", "`127.0.0.1` is refused: 127.0.0.1 is a loopback address"),
    ("http://127.1:8080/", "`127.0.0.1` is refused: 127.0.0.1 is a loopback address"),
    ("http://2130706433/", "`127.0.0.1` is refused: 127.0.0.1 is a loopback address"),
    ("http://0x7f.1/", "`127.0.0.1` is refused: 127.0.0.1 is a loopback address"),
    ("http://[::1]/", "`[::1]` is refused: ::1 is a loopback address"),
    (
        "http://[::ffff:7f00:1]/",
        "`[::ffff:7f00:1]` is refused: ::ffff:127.0.0.1 is a loopback address",
    ),
    (
        "http://[64:ff9b::a9fe:a9fe]/latest/meta-data/",
        "`[64:ff9b::a9fe:a9fe]` is refused: 64:ff9b::a9fe:a9fe is a cloud metadata service",
    ),
    (
        "http://169.254.169.254/latest/meta-data/",
        "`169.254.169.254` is refused: 169.254.169.254 is a cloud metadata service",
    ),
    ("http://0/", "`0.0.0.0` is refused: 0.0.0.0 is an address of \"this network\""),
    ("http://localhost/", "`localhost` is a name in a local network"),
    ("http://metadata.google.internal/", "`metadata.google.internal` is a name in a local network"),
    ("http://inner.test/", "`inner.test` is refused: 10.0.0.1 is a private address"),
    ("http://mixed.test/", "`mixed.test` is refused: 192.168.0.1 is a private address"),
    ("http://many.test/", "`many.test` is refused: ::1 is a loopback address"),
    ("http://mapped.test/", "`mapped.test` is refused: ::ffff:10.0.0.1 is a private address"),
    ("http://none.test/", "`none.test` cannot be resolved"),
    ("http://empty.test/", "`empty.test` cannot be resolved"),
    ("http://public.test@127.0.0.1/", "the URL contains a user name or a password"),
    ("http://public.test:22/", "port 22 is blocked: it is not a web port"),
    ("http://public.test./", "the URL cannot be used: its host ends with a dot"),
    ("file:///etc/passwd", "`file` addresses cannot be fetched"),
    ("gopher://public.test/", "`gopher` addresses cannot be fetched"),
];

fn names() -> Vec<(&'static str, Vec<Vec<&'static str>>)> {
    // More addresses than are tried; the last one is forbidden.
    let many = (1..=40).map(|_| PUBLIC).chain(["1.1.1.1", "8.8.8.8", "8.8.4.4", "::1"]).collect();
    vec![
        ("inner.test", vec![vec!["10.0.0.1"]]),
        ("mixed.test", vec![vec![PUBLIC, "192.168.0.1"]]),
        ("many.test", vec![many]),
        ("mapped.test", vec![vec!["::ffff:10.0.0.1"]]),
        ("empty.test", vec![vec![]]),
    ]
}

#[tokio::test]
async fn forbidden_urls_are_refused_without_a_connection() {
    let world = World::with_names(FetchRules::default(), names());
    for (url, said) in FORBIDDEN {
        assert_eq!(world.error_of(url).await, *said, "{url}");
    }
    assert_eq!(world.connected(), [""; 0]);
}

#[tokio::test]
async fn redirects_to_forbidden_urls_are_refused() {
    for (url, said) in FORBIDDEN {
        let world = World::with_names(FetchRules::default(), names());
        let said_now = world.error_of(&format!("http://public.test/to?{url}")).await;
        assert_eq!(said_now, *said, "{url}");
        assert_eq!(world.connected(), [PUBLIC], "{url}");
        // Also in the second redirect, without a scheme.
        if let Some(rest) = url.strip_prefix("http:") {
            let chain = format!("http://public.test/to?/to?{rest}");
            assert_eq!(world.error_of(&chain).await, *said, "{url}");
            assert_eq!(world.connected(), [PUBLIC; 3], "{url}");
        }
    }
}

#[tokio::test]
async fn redirects_from_https_to_http_are_refused() {
    let world = World::new(FetchRules::default());
    let said = world.error_of("https://secure.test/to?http://public.test/plain").await;
    assert_eq!(said, "the server redirects from https to http");
    assert_eq!(world.connected().len(), 1);
}

#[tokio::test]
async fn a_name_is_resolved_once_per_connection() {
    // DNS rebinding: public at the first lookup, loopback afterwards.
    let names = || vec![("rebinding.test", vec![vec![PUBLIC], vec!["127.0.0.1"]])];
    let said = "`rebinding.test` is refused: 127.0.0.1 is a loopback address";

    let world = World::with_names(FetchRules::default(), names());
    assert!(world.fetch("http://rebinding.test/plain").await.is_ok());
    assert_eq!(*world.resolved.lock().unwrap(), ["rebinding.test"]);
    assert_eq!(world.connected(), [PUBLIC]);
    assert_eq!(world.error_of("http://rebinding.test/plain").await, said);

    // A redirect to the same name is a new connection and is checked again.
    let world = World::with_names(FetchRules::default(), names());
    assert_eq!(world.error_of("http://rebinding.test/to?/plain").await, said);
    assert_eq!(world.connected(), [PUBLIC]);
}

#[tokio::test]
async fn allowed_hosts_apply_to_every_redirect() {
    let listed = |hosts: &[&str]| {
        let hosts = hosts.iter().map(|&host| host.to_owned()).collect();
        World::new(FetchRules { allowed_hosts: Some(hosts), ..FetchRules::default() })
    };
    let none = listed(&[]);
    let said = "downloads from `public.test` are not allowed on this server";
    assert_eq!(none.error_of("http://public.test/plain").await, said);
    // Not even a DNS query is sent.
    assert!(none.resolved.lock().unwrap().is_empty() && none.connected().is_empty());

    let one = listed(&["public.test"]);
    assert!(one.fetch("http://public.test/to?/plain").await.is_ok());
    let said = "downloads from `secure.test` are not allowed on this server";
    assert_eq!(one.error_of("http://public.test/to?https://secure.test/plain").await, said);
    assert_eq!(one.error_of(&format!("http://{PUBLIC}/")).await.split('`').nth(1), Some(PUBLIC));

    // The list does not make an address public.
    let inner = listed(&["*.test", "127.0.0.1", "localhost"]);
    assert!(inner.fetch("http://public.test/plain").await.is_ok());
    for url in ["http://127.0.0.1/", "http://localhost/"] {
        assert!(!inner.error_of(url).await.contains("not allowed"), "{url}");
    }
}

/// Any address, with many that are refused.
fn any_address() -> impl Strategy<Value = IpAddr> {
    let near = prop::sample::select(vec![
        0x7f00_0001_u32,
        0x0a00_0001,
        0xc0a8_0001,
        0xa9fe_a9fe,
        0x0808_0808,
        0,
        u32::MAX,
    ]);
    prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))),
        near.clone().prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))),
        near.prop_map(|bits| IpAddr::V6(Ipv4Addr::from_bits(bits).to_ipv6_mapped())),
        any::<u128>().prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))),
        any::<u64>().prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(
            (0x2a00_u128 << 112) | u128::from(bits)
        ))),
    ]
}

/// Any text, with many almost valid URLs.
fn any_url() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        any::<String>().prop_map(|rest| format!("http://{rest}")),
        "https?:[/\\\\]{0,3}[a-z0-9.@:%x\\[\\]-]{0,24}[/?#@]?[a-z0-9.:@]{0,8}",
        any_address().prop_map(|address| match address {
            IpAddr::V4(address) => format!("http://{address}/"),
            IpAddr::V6(address) => format!("http://[{address}]/"),
        }),
        any::<u32>().prop_map(|number| format!("http://{number}/")),
        any::<u32>().prop_map(|number| format!("http://{number:#x}/")),
        any::<u32>().prop_map(|number| format!("http://0{number:o}/")),
        Just("http://public.test/".to_owned()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    /// No URL and no DNS answer leads to a connection to a refused address.
    #[test]
    fn no_connection_to_a_refused_address(
        url in any_url(),
        addresses in prop::collection::vec(any_address(), 0..4),
    ) {
        let connected: Arc<Mutex<Vec<IpAddr>>> = Arc::default();
        let resolved = addresses.clone();
        let resolve = Arc::new(move |_: &str| Ok(resolved.clone()));
        let mut inner =
            Inner::new(FetchRules::default(), resolve, rustls::RootCertStore::empty());
        inner.route = Some(Box::new({
            let connected = Arc::clone(&connected);
            move |asked| {
                connected.lock().unwrap().push(asked.ip());
                // Port 0 cannot be connected to; only the attempt is recorded.
                (Ipv4Addr::LOCALHOST, 0).into()
            }
        }));
        let fetcher = Fetcher::from(inner);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        prop_assert!(runtime.block_on(fetcher.open(&url)).is_err());
        for address in connected.lock().unwrap().iter() {
            prop_assert_eq!(refused(*address), None, "{} by {:?}", address, url);
        }
        let forbidden = addresses.iter().any(|address| refused(*address).is_some());
        if url == "http://public.test/" {
            let reached = !connected.lock().unwrap().is_empty();
            prop_assert_eq!(reached, !forbidden && !addresses.is_empty());
        }
    }
}
