//! Hostile bytes at every place where the way out reads them: nothing but an allowed name is ever
//! resolved, and nothing but a resolved address is connected to.

use std::sync::Arc;

use bytes::BytesMut;
use simple_dns::Packet;
use tokio::io::AsyncReadExt as _;
use tokio::runtime::Runtime;
use woma_fuzz::Target;

use super::world::{PUBLIC, World, exchange};
use crate::net::egress::names::Names;
use crate::net::egress::{Host, NetworkRules, PlacedHosts, dns, hello};

const RULES: &str = "public.test, *.below.test";

struct Place {
    runtime: Runtime,
    world: World,
    names: Names,
}

impl Place {
    fn new() -> Arc<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let world = runtime.block_on(World::new(RULES));
        Arc::new(Self { runtime, world, names: Names::default() })
    }

    /// Nothing that the rules do not allow was resolved or connected to; forgets what was.
    fn check(&self) {
        for name in self.world.resolved.lock().unwrap().drain(..) {
            let is_allowed = name == "public.test" || name.ends_with(".below.test");
            assert!(is_allowed && !name.contains('\0'), "{name:?} was resolved");
        }
        for address in self.world.connected.lock().unwrap().drain(..) {
            assert_eq!(address.ip().to_string(), PUBLIC, "{address} was connected to");
            assert!([80, 443].contains(&address.port()), "{address} was connected to");
        }
        for text in self.world.received.lock().unwrap().iter_mut() {
            text.clear();
        }
        self.world.refused();
    }
}

#[test]
fn fuzz_dns() {
    const WORDS: &[&str] =
        &["\u{6}public\u{4}test", "\u{5}below\u{4}test", "\u{0}\u{1}", "\u{0}\u{1c}"];
    let place = Place::new();
    Target { name: "dns", words: WORDS }.run(move |bytes| {
        let answer = place.runtime.block_on(dns::answer(&place.world.room, &place.names, bytes));
        if let Some(answer) = answer {
            let packet = Packet::parse(&answer.packet).unwrap();
            assert_eq!(packet.id().to_be_bytes(), bytes[..2]);
            assert!(packet.answers.len() <= 1 && packet.questions.len() == 1);
            assert_eq!(packet.answers.len(), usize::from(answer.given.is_some()));
        }
        place.check();
    });
}

#[test]
fn fuzz_proxy() {
    const WORDS: &[&str] = &[
        "GET ",
        "POST ",
        "CONNECT ",
        "http://public.test/",
        "public.test:443",
        " HTTP/1.1\r\n",
        "\r\n",
        "Host: ",
        "Host: public.test\r\n",
        "Content-Length: 0\r\n",
        "Content-Length: ",
        "Transfer-Encoding: chunked\r\n",
        "0\r\n\r\n",
        "Connection: upgrade\r\n",
        "Upgrade: websocket\r\n",
        "other.test",
        "127.0.0.1",
        "[::1]",
        "@",
        "x.below.test",
    ];
    let place = Place::new();
    Target { name: "proxy", words: WORDS }.run(move |bytes| {
        place.runtime.block_on(async {
            exchange(place.world.open_proxy(), bytes).await;
            exchange(place.world.open("public.test:80"), bytes).await;
        });
        place.check();
    });
}

#[test]
fn fuzz_socks() {
    const WORDS: &[&str] =
        &["\u{5}\u{1}\u{0}", "\u{5}\u{1}\u{0}\u{3}", "public.test", "\u{0}P", "x.below.test"];
    let place = Place::new();
    Target { name: "socks", words: WORDS }.run(move |bytes| {
        place.runtime.block_on(async { exchange(place.world.open_socks(), bytes).await });
        place.check();
    });
}

#[test]
fn fuzz_greeting() {
    const WORDS: &[&str] = &[
        "\u{16}\u{3}\u{1}",
        "\u{1}\u{0}",
        "\u{3}\u{3}",
        "\u{0}\u{0}",
        "public.test",
        "GET / HTTP/1.1\r\n",
        "\r\n",
        "HTTP/",
    ];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    Target { name: "greeting", words: WORDS }.run(move |bytes| {
        let read = |at: usize| {
            let (one, other) = bytes.split_at(at.min(bytes.len()));
            let (mut stream, mut ahead) = (one.chain(other), BytesMut::new());
            let found = runtime.block_on(hello::read(&mut stream, &mut ahead));
            assert!(bytes.starts_with(&ahead), "it passes on what it has read");
            format!("{:?}", found.ok())
        };
        let whole = read(0);
        for at in [1, 5, bytes.len() / 2] {
            assert_eq!(read(at), whole, "however it arrives, at {at}");
        }
    });
}

#[test]
fn fuzz_rules() {
    const WORDS: &[&str] = &[
        "off",
        "open",
        "*.",
        "public.test",
        ":443",
        ":1-65535",
        ",",
        "[::1]",
        "127.0.0.1",
        "=",
        "10.1.2.3:8443",
    ];
    Target { name: "rules", words: WORDS }.run(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        if let Ok(rules) = text.parse::<NetworkRules>() {
            let written = rules.to_string();
            assert_eq!(written.parse::<NetworkRules>().ok(), Some(rules), "{written}");
        }
        if let Err(bad) = text.parse::<PlacedHosts>() {
            assert!(bad.to_string().chars().count() < 300);
        }
        if let Some((host, _)) = Host::with_port(&text, Some(443)) {
            let written = host.to_string();
            assert!(!written.is_empty() && !written.contains(['/', '@', ' ', '\0']), "{written:?}");
        }
    });
}
