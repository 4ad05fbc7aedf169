//! Values put into requests of plain HTTP, and taken out of answers.

use super::world::World;
use crate::model::NewSecret;
use crate::net::secrets::{Placed, SessionSecrets};

const VALUE: &str = "sk-live/4f 9b";
const PLACEHOLDER: &str = "woma-secret-00112233";

async fn world(hosts: &[&str], places: &[&str]) -> World {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let secret = NewSecret {
        name: "KEY".to_owned(),
        value: VALUE.to_owned(),
        hosts: owned(hosts),
        places: owned(places),
    };
    let secret = secret.check().unwrap();
    let world = World::new("a.test:80+443+8080, b.test").await;
    let placed = Placed { secret, placeholder: PLACEHOLDER.to_owned() };
    world.room.network.set_secrets(SessionSecrets::new(vec![placed]));
    world
}

fn get(host: &str, path: &str, header: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{header}Connection: close\r\n\r\n").into_bytes()
}

#[tokio::test]
async fn a_value_goes_to_its_host_and_a_placeholder_comes_back() {
    let world = world(&["a.test:80+8080"], &["headers", "path"]).await;
    let header = format!("X-Key: {PLACEHOLDER}\r\nAccept-Encoding: br\r\n");
    let path = format!("/{PLACEHOLDER}");
    for (authority, host) in [("a.test:80", "a.test"), ("a.test:8080", "a.test:8080")] {
        let answer = world.send(authority, &get(host, &path, &header)).await;
        assert!(answer.contains(&format!("GET /{PLACEHOLDER} ")), "{answer}");
        assert!(!answer.contains("live"), "{answer}");
    }
    let received = world.received();
    assert_eq!(received.matches("GET /sk%2Dlive%2F4f%209b ").count(), 2, "{received}");
    assert_eq!(received.matches(&format!(": {VALUE}\r\n")).count(), 2, "{received}");
    assert_eq!(received.matches(": identity\r\n").count(), 2, "{received}");
    assert_eq!(world.refused(), Vec::<String>::new());
}

#[tokio::test]
async fn elsewhere_a_placeholder_stays_one() {
    let world = world(&["a.test", "a.test:8080"], &[]).await;
    let header = format!("X-Key: {PLACEHOLDER}\r\nAccept-Encoding: br\r\n");
    // Another host, and the same in plain text, which no port of the secret allows.
    for host in ["b.test", "a.test"] {
        world.send(&format!("{host}:80"), &get(host, "/", &header)).await;
    }
    // To the port of TLS, in plain text.
    let proxied = get("a.test:443", "http://a.test:443/plain", &header);
    world.send_proxy(&proxied).await;
    // Where a header may have it and a query may not.
    let path = format!("/?key={PLACEHOLDER}");
    world.send("a.test:8080", &get("a.test:8080", &path, "")).await;
    let received = world.received();
    assert_eq!(received.matches(PLACEHOLDER).count(), 4, "{received}");
    assert!(!received.contains("live"), "{received}");
    // What no secret is put into is passed on as it is.
    assert_eq!(received.matches(": br\r\n").count(), 3, "{received}");
    let refused = world.refused();
    assert_eq!(refused.len(), 4, "{refused:?}");
    assert!(refused.iter().all(|said| said.contains("the placeholder of the secret `KEY`")));
}

#[tokio::test]
async fn a_change_of_secrets_ends_open_connections() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let world = world(&["a.test:80"], &[]).await;
    let mut open = world.open("a.test:80");
    open.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
    assert_ne!(open.read(&mut [0; 4096]).await.unwrap(), 0);
    world.room.network.set_secrets(SessionSecrets::default());
    let ended = tokio::time::timeout(super::world::STEP_MAX, open.read(&mut [0; 16])).await;
    assert_eq!(ended.unwrap().unwrap_or(0), 0);
}
