//! Discovery of an issuer's keys. The issuer is a thread with a socket, and may be silent.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};
use woma_core::Quota;

use super::keys::{KeySource, metadata_addresses};
use super::tests::{AUDIENCE, claims, key_set, public_key, sign};
use super::{Cache, InvalidTokenSettings, IssuerProblem, TokenError, TokenSettings, Tokens};

const OAUTH: &str = "/.well-known/oauth-authorization-server";
const OPENID: &str = "/.well-known/openid-configuration";

/// An issuer with pages by path. Others are 404.
struct Site {
    address: SocketAddr,
    pages: Arc<Mutex<HashMap<String, (u16, String)>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Site {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let site = Self { address, pages: Arc::default(), asked: Arc::default() };
        let (pages, asked) = (Arc::clone(&site.pages), Arc::clone(&site.asked));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
                let request = lines.next().unwrap_or_default();
                let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
                while lines.next().is_some_and(|line| !line.is_empty()) {}
                asked.lock().unwrap().push(path.clone());
                let page = pages.lock().unwrap().get(&path).cloned();
                let (status, body) = page.unwrap_or((404, String::new()));
                let length = body.len();
                let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n");
                let reply = format!("{head}Connection: close\r\n\r\n{body}");
                // A client that has read enough hangs up.
                stream.write_all(reply.as_bytes()).unwrap_or_default();
            }
        });
        site
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn page(&self, path: &str, status: u16, body: &str) {
        self.pages.lock().unwrap().insert(path.to_owned(), (status, body.to_owned()));
    }

    /// Metadata at `path` of this issuer, with its keys at `/keys`.
    fn publish(&self, path: &str, issuer: &str) {
        let document = json!({ "issuer": issuer, "jwks_uri": self.url("/keys") });
        self.page(path, 200, &document.to_string());
        self.page("/keys", 200, &key_set().to_string());
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn discovered(issuer: &str) -> TokenSettings {
    let audiences = vec![AUDIENCE.to_owned()];
    let (issuer, keys, quota) = (issuer.to_owned(), KeySource::Discovered, Quota::default());
    TokenSettings { issuer, audiences, keys, quota }
}

fn tokens(issuer: &str) -> Tokens {
    Tokens::new(discovered(issuer)).unwrap()
}

fn token(issuer: &str, seed: u8, id: &str) -> String {
    let mut claims = claims();
    claims["iss"] = json!(issuer);
    sign(Algorithm::EdDSA, seed, id, &claims)
}

async fn unavailable(tokens: &Tokens, token: &str) -> String {
    match tokens.verify(token).await {
        Err(TokenError::Unavailable(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// As if the last attempt was an hour ago.
fn pass_an_hour(tokens: &Tokens) {
    let before = Instant::now().checked_sub(Duration::from_secs(3600));
    tokens.0.cache.write().unwrap().tried_at = before;
}

#[test]
fn addresses_of_metadata_follow_both_standards() {
    let table: [(&str, &[&str]); 4] = [
        (
            "https://i.example",
            &[
                "https://i.example/.well-known/oauth-authorization-server",
                "https://i.example/.well-known/openid-configuration",
            ],
        ),
        (
            "https://i.example/",
            &[
                "https://i.example/.well-known/oauth-authorization-server",
                "https://i.example/.well-known/openid-configuration",
            ],
        ),
        (
            "https://i.example:8443/realms/a/",
            &[
                "https://i.example:8443/.well-known/oauth-authorization-server/realms/a",
                "https://i.example:8443/.well-known/openid-configuration/realms/a",
                "https://i.example:8443/realms/a/.well-known/openid-configuration",
            ],
        ),
        (
            "http://127.0.0.1:9",
            &[
                "http://127.0.0.1:9/.well-known/oauth-authorization-server",
                "http://127.0.0.1:9/.well-known/openid-configuration",
            ],
        ),
    ];
    for (issuer, expected) in table {
        assert_eq!(metadata_addresses(issuer).unwrap(), expected, "{issuer}");
    }
    for issuer in [
        "http://i.example",
        "https://user@i.example",
        "https://",
        "ftp://i.example",
        "i.example",
        "https://i.example?x=1",
        "https://i.example#x",
    ] {
        let refused = Tokens::new(discovered(issuer)).unwrap_err();
        assert_eq!(refused, InvalidTokenSettings::BadIssuer(issuer.to_owned()));
    }
}

#[tokio::test]
async fn finds_keys_by_either_document() {
    for (issuer_path, document) in [
        ("", OAUTH.to_owned()),
        ("", OPENID.to_owned()),
        ("/realms/a", format!("{OAUTH}/realms/a")),
        ("/realms/a", format!("{OPENID}/realms/a")),
        ("/realms/a", format!("/realms/a{OPENID}")),
    ] {
        let site = Site::start();
        let issuer = site.url(issuer_path);
        site.publish(&document, &issuer);
        let tokens = tokens(&issuer);
        let caller = tokens.verify(&token(&issuer, 1, "ed")).await.unwrap();
        assert_eq!(caller.id.as_str(), format!("jwt:ada@{issuer}"), "{document}");
        assert_eq!(tokens.problem(), None);
        let asked = site.asked();
        assert_eq!(&asked[asked.len() - 2..], [document, "/keys".to_owned()]);
        // Another token needs no request.
        tokens.verify(&token(&issuer, 1, "ed")).await.unwrap();
        assert_eq!(site.asked(), asked);
    }
}

#[tokio::test]
async fn rotated_keys_are_found_and_old_ones_go() {
    let site = Site::start();
    let issuer = site.url("");
    site.publish(OAUTH, &issuer);
    let tokens = tokens(&issuer);
    tokens.verify(&token(&issuer, 1, "ed")).await.unwrap();
    let new = json!({ "keys": [public_key(Algorithm::EdDSA, 2, "new")] }).to_string();
    site.page("/moved", 200, &new);
    let document = json!({ "issuer": issuer, "jwks_uri": site.url("/moved") });
    site.page(OAUTH, 200, &document.to_string());
    // Within half a minute of the last attempt, an unknown key is no reason for another.
    let asked = site.asked().len();
    for _ in 0..20 {
        assert!(tokens.verify(&token(&issuer, 2, "new")).await.is_err());
    }
    assert_eq!(site.asked().len(), asked);
    pass_an_hour(&tokens);
    tokens.verify(&token(&issuer, 2, "new")).await.unwrap();
    assert!(tokens.verify(&token(&issuer, 1, "ed")).await.is_err(), "the old key is withdrawn");
    assert_eq!(site.asked().last().unwrap(), "/moved");
}

#[tokio::test]
async fn metadata_of_another_issuer_is_not_believed() {
    let site = Site::start();
    let issuer = site.url("");
    let evil = Site::start();
    evil.page("/keys", 200, &key_set().to_string());
    let document =
        |name: &str, keys: Value| json!({ "issuer": name, "jwks_uri": keys }).to_string();
    let table = [
        (200, document("https://evil.example", json!(site.url("/keys"))), "another issuer"),
        (200, document(&site.url("/"), json!(site.url("/keys"))), "another issuer"),
        (200, document(&issuer, json!("http://i.example/keys")), "not https"),
        (200, document(&issuer, json!("file:///etc/passwd")), "not https"),
        (200, document(&issuer, Value::Null), "no jwks_uri"),
        (200, document(&issuer, json!(site.url("/none"))), "status 404"),
        (200, "<html>".to_owned(), "not the metadata"),
        (200, "x".repeat(2 * 1024 * 1024), "limit"),
        (302, document(&issuer, json!(evil.url("/keys"))), "status 302"),
        (503, String::new(), "status 503"),
        (404, String::new(), "no metadata"),
    ];
    site.page("/keys", 200, &key_set().to_string());
    for (status, body, expected) in table {
        site.page(OAUTH, status, &body);
        let tokens = tokens(&issuer);
        let error = unavailable(&tokens, &token(&issuer, 1, "ed")).await;
        let shown: String = body.chars().take(90).collect();
        assert!(error.contains(expected), "{status} {shown}: {error}");
        assert_eq!(tokens.problem(), Some(IssuerProblem::NoKeys));
    }
    assert_eq!(evil.asked(), Vec::<String>::new());
}

#[tokio::test]
async fn a_silent_issuer_costs_seconds_once_and_heals() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let issuer = format!("http://{address}");
    let tokens = tokens(&issuer);
    let started = Instant::now();
    let error = unavailable(&tokens, &token(&issuer, 1, "ed")).await;
    assert!(started.elapsed() >= Duration::from_secs(4), "it did not wait: {error}");
    assert_eq!(tokens.problem(), Some(IssuerProblem::NoKeys));
    // The next requests do not wait for it.
    let tried = tokens.0.cached().tried_at;
    tokens.0.cache.write().unwrap().failures = 9;
    for _ in 0..20 {
        unavailable(&tokens, &token(&issuer, 1, "ed")).await;
    }
    assert_eq!(tokens.0.cached().tried_at, tried);
}

#[tokio::test]
async fn keys_are_read_ahead_and_again_after_failures() {
    let site = Site::start();
    let issuer = site.url("");
    site.page(OAUTH, 500, "");
    let tokens = tokens(&issuer);
    let watching = tokens.clone();
    let watch = tokio::spawn(async move { watching.keep_fresh().await });
    while tokens.problem().is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!(tokens.problem(), Some(IssuerProblem::NoKeys));
    site.publish(OAUTH, &issuer);
    // Within seconds: the pause doubles from one second.
    while tokens.problem().is_some() {
        tokio::task::yield_now().await;
    }
    watch.abort();
    let asked = site.asked().len();
    tokens.verify(&token(&issuer, 1, "ed")).await.unwrap();
    assert_eq!(site.asked().len(), asked, "a token waited for keys that were there");
}

#[test]
fn pauses_grow_with_failures() {
    let start = Instant::now();
    let at = |failures| Cache { tried_at: Some(start), failures, ..Cache::default() };
    for (failures, seconds) in [(0, 600), (1, 1), (2, 2), (3, 4), (5, 16), (6, 30), (60, 30)] {
        assert_eq!(at(failures).pause(start), Duration::from_secs(seconds), "{failures}");
    }
    assert_eq!(Cache::default().pause(start), Duration::ZERO);
    assert_eq!(at(1).pause(start + Duration::from_secs(9)), Duration::ZERO);
}
