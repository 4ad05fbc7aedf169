//! Limits of connections, bytes and time, and rules that change under a connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use super::world::{STEP_MAX, World, exchange};
use crate::net::egress::stream::Ticket;
use crate::net::egress::{EgressSettings, NetworkRules};

/// Sends bytes over a tunnel until they have come back.
async fn echo(stream: &mut DuplexStream, bytes: &[u8]) {
    let mut echoed = vec![0; bytes.len()];
    let step = async {
        stream.write_all(bytes).await.unwrap();
        stream.read_exact(&mut echoed).await.unwrap();
    };
    tokio::time::timeout(STEP_MAX, step).await.unwrap();
    assert_eq!(echoed, bytes);
}

/// Returns when the other side has closed the stream.
async fn end(stream: &mut DuplexStream) {
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(STEP_MAX, stream.read_to_end(&mut rest)).await;
    ended.expect("the connection ends").unwrap();
}

#[tokio::test]
async fn sessions_and_callers_have_a_number_of_connections() {
    let settings = EgressSettings {
        connections_max: 16,
        session_connections_max: 8,
        ..EgressSettings::default()
    };
    let world = World::with("open", &[], settings).await;
    let mut held: Vec<_> = (0..8).map(|_| world.ticket()).collect();
    let refusal = Ticket::take(&world.room, &world.closed).unwrap_err();
    let said = world.room.network.meter.open.load(Ordering::Relaxed);
    assert_eq!(said, 8, "{refusal:?}");
    held.pop();
    held.push(world.ticket());
    // Another session of the same caller: the caller may have fourteen of sixteen.
    let other = super::super::Room {
        egress: Arc::clone(&world.room.egress),
        network: Arc::default(),
        report: Arc::default(),
        owner: world.room.owner.clone(),
        session: "other".to_owned(),
    };
    let other = Arc::new(other);
    let more: Vec<_> = (0..6).map(|_| Ticket::take(&other, &world.closed).unwrap()).collect();
    assert!(Ticket::take(&other, &world.closed).is_err());
    assert_eq!(world.room.egress.usage().taken, 14);
    drop((held, more));
    assert_eq!(world.room.egress.usage().taken, 0);
    assert_eq!(world.room.network.meter.open.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_session_has_a_number_of_bytes() {
    let settings = EgressSettings { session_bytes_max: Some(100_000), ..EgressSettings::default() };
    let world = World::with("public.test:*", &[], settings).await;
    let mut stream = world.open("public.test:9000");
    let bytes = vec![1; 40_000];
    echo(&mut stream, &bytes).await;
    stream.write_all(&bytes).await.unwrap();
    end(&mut stream).await;
    let meter = &world.room.network.meter;
    assert!(meter.sent.load(Ordering::Relaxed) >= 80_000);
    // What is more than the limit was on its way already: one buffer in each direction.
    let most = 100_000 + 2 * 65_536;
    assert!(meter.sent.load(Ordering::Relaxed) + meter.received.load(Ordering::Relaxed) <= most);
    let answer = world.send("public.test:80", b"GET / HTTP/1.1\r\nHost: public.test\r\n\r\n").await;
    assert!(answer.contains("NETWORK_SESSION_BYTES"), "{answer}");
}

#[tokio::test]
async fn a_connection_without_bytes_ends() {
    let idle_max = Duration::from_millis(200);
    let settings = EgressSettings { idle_max, ..EgressSettings::default() };
    let world = World::with("open", &[], settings).await;
    for (authority, first) in [
        ("public.test:9000", &b"\x01hello"[..]),
        ("public.test:443", b""),
        ("public.test:80", b"GET /slow"),
        ("public.test:443", &[22, 3]),
    ] {
        let mut stream = world.open(authority);
        match authority.ends_with(":9000") {
            true => echo(&mut stream, first).await,
            false => stream.write_all(first).await.unwrap(),
        }
        end(&mut stream).await;
    }
    let mut stream = world.open_socks();
    stream.write_all(&[5, 1]).await.unwrap();
    drop(stream);
}

#[tokio::test]
async fn a_change_of_rules_ends_the_connections_that_were_allowed() {
    let world = World::new("public.test:*").await;
    let mut tunnel = world.open("public.test:9000");
    echo(&mut tunnel, b"\x01hello").await;
    let mut proxy = world.open_proxy();
    let head = b"CONNECT public.test:9000 HTTP/1.1\r\nHost: public.test:9000\r\n\r\n";
    let mut seen = Vec::new();
    proxy.write_all(head).await.unwrap();
    while !seen.ends_with(b"\r\n\r\n") {
        seen.push(proxy.read_u8().await.unwrap());
    }
    echo(&mut proxy, b"\x01hello").await;
    world.room.network.choose(Some(NetworkRules::Off));
    end(&mut tunnel).await;
    end(&mut proxy).await;
    let answer = world.send("public.test:80", b"GET / HTTP/1.1\r\nHost: public.test\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("off"), "{answer}");
    world.room.network.choose(None);
    let answer =
        exchange(world.open("public.test:80"), b"GET / HTTP/1.1\r\nHost: public.test\r\n\r\n");
    assert!(answer.await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn the_end_of_a_room_ends_its_connections() {
    let world = World::new("open").await;
    let mut streams: Vec<_> = (0..4).map(|_| world.open("public.test:9000")).collect();
    for stream in &mut streams {
        echo(stream, b"\x01hello").await;
    }
    world.closed.cancel();
    for stream in &mut streams {
        end(stream).await;
    }
    let gone = async {
        while world.room.egress.usage().taken > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(STEP_MAX, gone).await.unwrap();
}
