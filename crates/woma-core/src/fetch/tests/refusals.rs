//! Servers, names and callers that try to lead the server to where it must not go. What counts is
//! the record of connections.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::world::{PUBLIC, World};
use crate::fetch::{FetchRules, Fetcher, Inner, refused};

/// (address, what is said). The names are those of [`names`].
const EVIL: &[(&str, &str)] = &[
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
        "`[64:ff9b::a9fe:a9fe]` is refused: 64:ff9b::a9fe:a9fe is a metadata service of a cloud",
    ),
    (
        "http://169.254.169.254/latest/meta-data/",
        "`169.254.169.254` is refused: 169.254.169.254 is a metadata service of a cloud",
    ),
    ("http://0/", "`0.0.0.0` is refused: 0.0.0.0 is an address of \"this network\""),
    ("http://localhost/", "`localhost` is a name of a local network"),
    ("http://metadata.google.internal/", "`metadata.google.internal` is a name of a local network"),
    ("http://inner.test/", "`inner.test` is refused: 10.0.0.1 is a private address"),
    ("http://mixed.test/", "`mixed.test` is refused: 192.168.0.1 is a private address"),
    ("http://many.test/", "`many.test` is refused: ::1 is a loopback address"),
    ("http://mapped.test/", "`mapped.test` is refused: ::ffff:10.0.0.1 is a private address"),
    ("http://none.test/", "the address of `none.test` was not found"),
    ("http://empty.test/", "the address of `empty.test` was not found"),
    ("http://public.test@127.0.0.1/", "the address has a user name or a password in it"),
    ("http://public.test:22/", "port 22 is not one of the web"),
    ("http://public.test./", "the address cannot be used: its host ends with a dot"),
    ("file:///etc/passwd", "`file` addresses cannot be fetched"),
    ("gopher://public.test/", "`gopher` addresses cannot be fetched"),
];

fn names() -> Vec<(&'static str, Vec<Vec<&'static str>>)> {
    // More addresses than are ever tried, the last of which is the bad one.
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
async fn what_is_evil_is_refused_and_nothing_is_connected_to() {
    let world = World::with_names(FetchRules::default(), names());
    for (url, said) in EVIL {
        assert_eq!(world.refusal(url).await, *said, "{url}");
    }
    assert_eq!(world.dialled(), [""; 0]);
}

#[tokio::test]
async fn a_redirect_to_what_is_evil_is_refused_too() {
    for (url, said) in EVIL {
        let world = World::with_names(FetchRules::default(), names());
        let said_now = world.refusal(&format!("http://public.test/to?{url}")).await;
        assert_eq!(said_now, *said, "{url}");
        assert_eq!(world.dialled(), [PUBLIC], "{url}");
        // And in the second step, without a scheme.
        if let Some(rest) = url.strip_prefix("http:") {
            let chain = format!("http://public.test/to?/to?{rest}");
            assert_eq!(world.refusal(&chain).await, *said, "{url}");
            assert_eq!(world.dialled(), [PUBLIC; 3], "{url}");
        }
    }
}

#[tokio::test]
async fn a_redirect_does_not_lead_out_of_tls() {
    let world = World::new(FetchRules::default());
    let said = world.refusal("https://secure.test/to?http://public.test/plain").await;
    assert_eq!(said, "the server leads from https to http");
    assert_eq!(world.dialled().len(), 1);
}

#[tokio::test]
async fn a_name_is_resolved_once_for_a_connection_and_anew_for_the_next() {
    // Public when it is asked for first, inside from then on.
    let names = || vec![("rebinding.test", vec![vec![PUBLIC], vec!["127.0.0.1"]])];
    let said = "`rebinding.test` is refused: 127.0.0.1 is a loopback address";

    let world = World::with_names(FetchRules::default(), names());
    assert!(world.fetch("http://rebinding.test/plain").await.is_ok());
    assert_eq!(*world.resolved.lock().unwrap(), ["rebinding.test"]);
    assert_eq!(world.dialled(), [PUBLIC]);
    assert_eq!(world.refusal("http://rebinding.test/plain").await, said);

    // A redirect to itself is another connection, so what it was before does not count.
    let world = World::with_names(FetchRules::default(), names());
    assert_eq!(world.refusal("http://rebinding.test/to?/plain").await, said);
    assert_eq!(world.dialled(), [PUBLIC]);
}

#[tokio::test]
async fn a_list_of_hosts_holds_at_every_step() {
    let listed = |hosts: &[&str]| {
        let hosts = hosts.iter().map(|&host| host.to_owned()).collect();
        World::new(FetchRules { allowed_hosts: Some(hosts), ..FetchRules::default() })
    };
    let none = listed(&[]);
    let said = "downloads from `public.test` are not allowed on this server";
    assert_eq!(none.refusal("http://public.test/plain").await, said);
    // Not even a question to DNS leaves the server.
    assert!(none.resolved.lock().unwrap().is_empty() && none.dialled().is_empty());

    let one = listed(&["public.test"]);
    assert!(one.fetch("http://public.test/to?/plain").await.is_ok());
    let said = "downloads from `secure.test` are not allowed on this server";
    assert_eq!(one.refusal("http://public.test/to?https://secure.test/plain").await, said);
    assert_eq!(one.refusal(&format!("http://{PUBLIC}/")).await.split('`').nth(1), Some(PUBLIC));

    // Being on the list makes no address public.
    let inner = listed(&["*.test", "127.0.0.1", "localhost"]);
    assert!(inner.fetch("http://public.test/plain").await.is_ok());
    for url in ["http://127.0.0.1/", "http://localhost/"] {
        assert!(!inner.refusal(url).await.contains("not allowed"), "{url}");
    }
}

/// Addresses of all kinds: any bits, and those that are close to what is refused.
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

/// Addresses that are almost good, beside any text at all.
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

    /// Whatever is asked for and whatever names resolve to: no connection to a refused address.
    #[test]
    fn nothing_leads_to_a_refused_address(
        url in any_url(),
        addresses in prop::collection::vec(any_address(), 0..4),
    ) {
        let dialled: Arc<Mutex<Vec<IpAddr>>> = Arc::default();
        let resolved = addresses.clone();
        let resolve = Arc::new(move |_: &str| Ok(resolved.clone()));
        let mut inner =
            Inner::new(FetchRules::default(), resolve, rustls::RootCertStore::empty());
        inner.route = Some(Box::new({
            let dialled = Arc::clone(&dialled);
            move |asked| {
                dialled.lock().unwrap().push(asked.ip());
                // Port 0 cannot be connected to: the attempt is what counts.
                (Ipv4Addr::LOCALHOST, 0).into()
            }
        }));
        let fetcher = Fetcher { inner: Arc::new(inner) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        prop_assert!(runtime.block_on(fetcher.open(&url)).is_err());
        for address in dialled.lock().unwrap().iter() {
            prop_assert_eq!(refused(*address), None, "{} by {:?}", address, url);
        }
        let evil = addresses.iter().any(|address| refused(*address).is_some());
        if url == "http://public.test/" {
            let reached = !dialled.lock().unwrap().is_empty();
            prop_assert_eq!(reached, !evil && !addresses.is_empty());
        }
    }
}
