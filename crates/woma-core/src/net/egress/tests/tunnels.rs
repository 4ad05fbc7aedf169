//! TLS, other protocols, CONNECT and SOCKS: a tunnel is for one host.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::world::{STEP_MAX, World, exchange};

/// The greeting of a TLS client for a host; without a name for an address.
fn greeting(name: &str) -> Vec<u8> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    connection.write_tls(&mut bytes).unwrap();
    bytes
}

#[tokio::test]
async fn a_tls_greeting_must_name_the_host_of_its_connection() {
    let world = World::new("public.test, other.test, 93.184.215.14").await;
    let refused = "\u{15}\u{3}\u{3}";
    for (authority, bytes, is_allowed) in [
        ("public.test:443", greeting("public.test"), true),
        ("public.test:443", greeting("PUBLIC.test"), true),
        ("public.test:443", greeting("other.test"), false),
        ("public.test:443", greeting("evil.test"), false),
        ("public.test:443", greeting("93.184.215.14"), false),
        ("93.184.215.14:443", greeting("93.184.215.14"), true),
        ("93.184.215.14:443", greeting("public.test"), false),
        ("public.test:443", b"GET / HTTP/1.1\r\nHost: public.test\r\n\r\n".to_vec(), false),
        ("public.test:443", b"SSH-2.0-x\r\n".to_vec(), false),
        ("public.test:443", vec![22, 3, 1, 0xff, 0xff], false),
        ("public.test:443", [vec![22, 3, 1, 0, 5], b"hello".to_vec()].concat(), false),
        ("public.test:443", greeting("public.test")[..40].to_vec(), false),
    ] {
        let before = world.received().len();
        let answer = world.send(authority, &bytes).await;
        let is_here = world.received().len() > before;
        assert_eq!(is_here, is_allowed, "{authority} {bytes:?}");
        assert_eq!(answer.starts_with(refused), !is_allowed, "{answer:?}");
        assert_eq!(world.refused().is_empty(), is_allowed);
    }
    // Nothing was said, and nothing is wrong.
    assert_eq!(world.send("public.test:443", b"").await, "");
    assert!(world.refused().is_empty());
}

#[tokio::test]
async fn a_greeting_in_pieces_is_read_as_one() {
    let world = World::new("public.test").await;
    let mut stream = world.open("public.test:443");
    let bytes = greeting("public.test");
    let mut echoed = vec![0; bytes.len()];
    let step = async {
        for byte in &bytes {
            stream.write_all(&[*byte]).await.unwrap();
            stream.flush().await.unwrap();
        }
        stream.read_exact(&mut echoed).await.unwrap();
    };
    tokio::time::timeout(STEP_MAX, step).await.unwrap();
    assert_eq!(echoed, bytes);
}

#[tokio::test]
async fn at_other_ports_tls_and_http_name_their_host_and_the_rest_passes() {
    let world = World::new("public.test:*").await;
    for (bytes, is_allowed) in [
        (greeting("public.test"), true),
        (greeting("evil.test"), false),
        (b"GET /x HTTP/1.1\r\nHost: public.test:8080\r\n\r\n".to_vec(), true),
        (b"GET /evil HTTP/1.1\r\nHost: evil.test\r\n\r\n".to_vec(), false),
        (b"\r\n\r\nGET /evil HTTP/1.1\r\nHost: evil.test\r\n\r\n".to_vec(), false),
        (b"get /evil HTTP/1.1\r\nHost: evil.test\r\n\r\n".to_vec(), false),
        (b"GET\t/evil HTTP/1.1\r\nHost: evil.test\r\n\r\n".to_vec(), false),
        ([b"GET /evil".to_vec(), vec![b'x'; 20_000]].concat(), false),
        (b"SSH-2.0-client\r\n".to_vec(), true),
        (b"*1\r\n$4\r\nPING\r\n".to_vec(), true),
        (b"SET a b\r\n".to_vec(), true),
        (b"\0\0\0\x08\x04\xd2\x16\x2f".to_vec(), true),
    ] {
        let before = world.received().len();
        world.send("public.test:8080", &bytes).await;
        let is_here = world.received().len() > before;
        assert_eq!(is_here, is_allowed, "{:?}", String::from_utf8_lossy(&bytes));
    }
    assert!(!world.received().contains("evil"), "{}", world.received());
}

#[tokio::test]
async fn a_tunnel_of_the_proxy_is_for_the_host_that_it_was_opened_for() {
    let world = World::new("public.test:*").await;
    for (port, bytes, is_allowed) in [
        (443, greeting("public.test"), true),
        (443, greeting("evil.test"), false),
        (443, b"plain text".to_vec(), false),
        (80, b"GET /x HTTP/1.1\r\nHost: public.test\r\n\r\n".to_vec(), true),
        (80, b"GET /evil HTTP/1.1\r\nHost: evil.test\r\n\r\n".to_vec(), false),
        (80, b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: public.test\r\n\r\n".to_vec(), false),
        (9000, b"any bytes".to_vec(), true),
    ] {
        let before = world.received().len();
        let head =
            format!("CONNECT public.test:{port} HTTP/1.1\r\nHost: public.test:{port}\r\n\r\n");
        let mut stream = world.open_proxy();
        let mut seen = Vec::new();
        let step = async {
            stream.write_all(head.as_bytes()).await.unwrap();
            while !seen.ends_with(b"\r\n\r\n") {
                seen.push(stream.read_u8().await.unwrap());
            }
        };
        tokio::time::timeout(STEP_MAX, step).await.unwrap();
        assert!(seen.starts_with(b"HTTP/1.1 200"));
        exchange(stream, &bytes).await;
        let is_here = world.received().len() > before;
        assert_eq!(is_here, is_allowed, "{port} {:?}", String::from_utf8_lossy(&bytes));
    }
    assert!(!world.received().contains("evil"));
}

#[tokio::test]
async fn socks_connects_to_allowed_hosts_only() {
    let world = World::new("public.test:9000, 93.184.215.14:9000").await;
    let name = |name: &[u8], port: u16| {
        let length = u8::try_from(name.len()).unwrap();
        [&[5, 1, 0, 3, length][..], name, &port.to_be_bytes()].concat()
    };
    let port = 9000_u16.to_be_bytes();
    let four = |address: [u8; 4]| [&[5, 1, 0, 1][..], &address, &port].concat();
    let six = [&[5, 1, 0, 4][..], &std::net::Ipv6Addr::LOCALHOST.octets(), &port].concat();
    for (request, code) in [
        (name(b"public.test", 9000), 0),
        (name(b"PUBLIC.test.", 9000), 0),
        (four([93, 184, 215, 14]), 0),
        (name(b"public.test", 22), 2),
        (name(b"evil.test", 9000), 2),
        (name(b"evil.test\0.public.test", 9000), 2),
        (name(b"public.test\0", 9000), 2),
        (name(b"", 9000), 2),
        (name(b"127.0.0.1", 9000), 2),
        (four([127, 0, 0, 1]), 2),
        (six, 2),
        ([&[5, 2, 0, 1][..], &[93, 184, 215, 14], &port].concat(), 7),
        ([&[5, 3, 0, 1][..], &[93, 184, 215, 14], &port].concat(), 7),
        (vec![5, 1, 0, 9], 8),
    ] {
        let bytes = [&[5, 2, 0, 2][..], &request, b"hello"].concat();
        let answer = exchange(world.open_socks(), &bytes).await;
        let answer: Vec<u32> = answer.chars().map(u32::from).collect();
        assert_eq!(answer.get(..4).map(|head| (head[0], head[1], head[3])), Some((5, 0, code)));
        let echoed = answer.len() == 12 + 5;
        assert_eq!(echoed, code == 0, "{request:?}: {answer:?}");
    }
    // A client that only has a password, and one of another version.
    let answer = exchange(world.open_socks(), &[5, 1, 2]).await;
    assert_eq!(answer.as_bytes()[0], 5);
    let answer = exchange(world.open_socks(), &[5, 1, 0, 4, 1, 0, 1]).await;
    assert_eq!(answer.len(), 2, "{answer:?}");
}
