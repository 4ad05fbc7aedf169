//! Tokens of an OAuth issuer, whose keys the server finds by itself. The issuer is a socket here.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::thread;

use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, get_current_timestamp};
use serde_json::{Value, json};

use crate::auth::{KEY, Keyed};
use crate::client::Client;
use crate::harness::until;

fn signing_key(seed: u8) -> EncodingKey {
    // PKCS #8 around an Ed25519 seed.
    let mut der = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20".to_vec();
    der.extend([seed; 32]);
    EncodingKey::from_ed_der(&der)
}

fn token(issuer: &str, seed: u8) -> String {
    let claims = json!({
        "iss": issuer, "aud": "woma", "sub": "ada", "exp": get_current_timestamp() + 600,
    });
    let header = Header { kid: Some(format!("k{seed}")), ..Header::new(Algorithm::EdDSA) };
    encode(&header, &claims, &signing_key(seed)).unwrap()
}

/// Serves metadata and one key at this address, which must be free.
fn publish(address: SocketAddr, seed: u8) {
    let listener = TcpListener::bind(address).unwrap();
    let mut key =
        serde_json::to_value(Jwk::from_encoding_key(&signing_key(seed), Algorithm::EdDSA).unwrap())
            .unwrap();
    key["kid"] = json!(format!("k{seed}"));
    let issuer = format!("http://{address}");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let request = lines.next().unwrap_or_default();
            while lines.next().is_some_and(|line| !line.is_empty()) {}
            let (status, body) = match request.split(' ').nth(1).unwrap_or_default() {
                // As an issuer of OpenID Connect that knows no RFC 8414.
                "/.well-known/openid-configuration" => {
                    ("200 OK", json!({ "issuer": issuer, "jwks_uri": format!("{issuer}/keys") }))
                }
                "/keys" => ("200 OK", json!({ "keys": [key] })),
                _ => ("404 Not Found", Value::Null),
            };
            let body = body.to_string();
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n", body.len());
            let reply = format!("{head}Connection: close\r\n\r\n{body}");
            stream.write_all(reply.as_bytes()).unwrap_or_default();
        }
    });
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn a_server_says_that_its_issuer_is_away_and_recovers_by_itself() {
    let address = free_address();
    let issuer = format!("http://{address}");
    let variables = [("JWT_ISSUER", &*issuer), ("JWT_AUDIENCE", "woma"), ("API_KEY", KEY)];
    let keyed = Keyed::start(&variables);
    assert!(keyed.server.log().contains(&format!("a key or a token of {issuer} is needed")));
    let bearer = token(&issuer, 1);
    let ada = Client { server: &keyed.server, key: Some(&bearer) };
    until("the log says it", || {
        keyed.server.log().contains(&format!("Cannot read the keys of the token issuer {issuer}"))
    });
    ada.get("/api/v1/sessions").refused(503);
    let health = || keyed.client(KEY).get("/health");
    assert_eq!((health().status, health().json()["status"].take()), (200, json!("degraded")));
    let problems = health().json()["problems"].to_string();
    assert!(problems.contains("token issuer") && !problems.contains("http"), "{problems}");
    // Keys still work.
    assert_eq!(keyed.client(KEY).get("/api/v1/sessions").status, 200);
    publish(address, 1);
    until("tokens are accepted", || ada.get("/api/v1/sessions").status == 200);
    assert_eq!(health().json()["status"], "healthy");
    assert!(keyed.server.log().contains("can be read again"), "{}", keyed.server.log());
    let metadata = keyed.server.get("/.well-known/oauth-protected-resource/mcp").json();
    assert_eq!(metadata["authorization_servers"], json!([issuer]));
    assert_eq!(metadata["resource"], "http://localhost/mcp");
    let forged = token(&issuer, 2);
    let eve = Client { server: &keyed.server, key: Some(&forged) };
    eve.get("/api/v1/sessions").refused(401);
}

#[test]
fn an_issuer_without_keys_or_discovery_is_an_error_of_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let start = |issuer: &str| {
        let variables = [("JWT_ISSUER", issuer), ("JWT_AUDIENCE", "woma"), ("PORT", "0")];
        let output = crate::auth::woma(folder.path(), &["serve"], &variables);
        assert!(!output.status.success());
        crate::auth::said(&output)
    };
    let said = start("http://issuer.example");
    assert!(said.contains("must be https") && said.contains("JWT_JWKS"), "{said}");
}
