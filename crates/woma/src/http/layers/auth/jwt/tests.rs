//! Tokens as issuers sign them and strangers forge them. The issuer is a thread with a socket.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, get_current_timestamp};
use serde_json::{Value, json};
use woma_core::{Caller, Quota, Scopes};

use super::keys::parse_set;
use super::{
    Cache, InvalidTokenSettings, KeySource, Plan, TokenError, TokenSettings, Tokens, scopes,
};

pub(in crate::http) const ISSUER: &str = "https://issuer.example";
pub(in crate::http) const AUDIENCE: &str = "https://woma.example/mcp";

/// Made for these tests; it opens nothing.
const RSA_PRIVATE_KEY: &str = concat!(
    "MIIEowIBAAKCAQEAt1lFrYwnI0uiwCMRVvNwK4cydIL7ZJXEExXg+5/ePPXmBtCd7v/j1eCtMfl2GRIGIMKA4H4X",
    "E26LV6JahG4p/DVuopFYkTLn6z8iqKY8jp3gwlUoNd1EjWTbYiZ9EvJcux2NPWwcJP9t5NzNDkTIbGCK0OGKSADJ",
    "W3Mbsop504qt0dWsLS5sCqbJ8sz9NspipeOchHIjBpQ5F/N5lYsixtTBF7RFK6HJ1ChEeciFQTgEtTrRAcC8t5bY",
    "qae4nxdsp8ZZ+3DRdGF8iXOLl3jDqMWjd5t5K2/3YY5V4rzN6Xk+g0VXJTZ7h7ucnexDdawc7P1Z7VZRyHGkK7Ze",
    "BUsmEQIDAQABAoIBAAmHAIlnnoMFg6QDTnvbs4j3ggYu5jxQUfuB6Ap7QLOfPYA+J+7K6j5raeSOZ3YfCyV5pfPE",
    "aZOPa3s2ywhVpyXdau3UqqsE36tIQRdNaBkrGApRHYFLCaxlQMclY9tvr6TjgLrf2siLY10AokErDtUe4SfAiIx8",
    "SfpQDXDmJDV7SU4TNK76h1l+vOL2aeuZelAqZvLDWj7EHTy4jDArQPAiKTiVCXyo11ihSedgqsQdwGynCMeTP9rU",
    "mG4wR6bWQaeu5ads4vI6YaewpE2cYt8o4mil6SffK4F+Z9sZLRC9/pmvMQpboXPb2aiYgGkTlKrOAZ84KRGZ/2rh",
    "xKEFwz8CgYEA3jC0uYQkEYh123mXS8qUjEpaaeIsRRbkFW7R46ybMmW+KtZ4Ta9S0PG2ACyB5fc5VLXZVcgniSm8",
    "qcdILuMp1qQdVPFdbqVi9b4aXcT+d6VXIEOKw28UEq42AnclplZmwk/iZnKtuydH47gmV5ksXtHmU1cgaCs+HR9g",
    "Y+R0CCsCgYEA0z+EMZp6hhtZO5980KfnqhuV5LSEaOvdZJWj3cvP8e3EIjUv7xbNCTybC5v55drQOlJ8sutqtmLI",
    "PCGAlp4NzEsbmEcwHI0eVVNQKKdjvxlc4SEFyXwjHBckp/OTO7oVDYiI9esNEcB2UHyrf2tKM5JM7hBFACVorE4i",
    "q8bUULMCgYAvX2kY6MCb8GFYgwssAKw9YRj33F4d+Ox2WWNszH9mdmTeU03hGlFo9TAdx1+GvXg+xGrrLDqptvlf",
    "pXqRbKOd/O24D6IhFigMRxTuCzNKJTl3So9KbeN0vCoNyoN/fIp6QXf+6dJ6xbxBJCEgqirYqJ4YBMqHCzk6EleF",
    "1M6ccwKBgQCvF4ZKVvAXF7PuZ1Lc3051AEhNOBJHpLfsFturirLgo2JduBfy48MuVL1t8eo/Sg4tSRFyew4H/fhZ",
    "XqtmK7rkCZzlqpuGDrGFp3hZOeTDEBKbxvM0/V9ceRI44vq2FpY8kV5z9k7u18c5DxxWkGcAN9LrvzBx3o/TwS+b",
    "kUGJYQKBgFtgHIp7Xdcncpko9Gfmqz27XkdkehfTSrtEozqGafheF40xiSrfuZWWwJhXfghJ7mqy3gEvOJViIhiw",
    "QuANI86+zsKdEtsefK8+msk5xxKcwehNor8vyO85YMVDFzdYFQt7ZjtaHx3p6OsomzprxawrXnicS5UOfl+fBjOG",
    "BbDF",
);

/// A key of the test issuer; `seed` makes another one of the same kind.
fn signing_key(algorithm: Algorithm, seed: u8) -> EncodingKey {
    match algorithm {
        Algorithm::RS256 | Algorithm::PS256 | Algorithm::RS512 => {
            EncodingKey::from_rsa_der(&STANDARD.decode(RSA_PRIVATE_KEY).unwrap())
        }
        Algorithm::ES256 => {
            // PKCS #8 around a P-256 scalar, and around an Ed25519 seed.
            let mut der =
                b"\x30\x41\x02\x01\x00\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\
                \x2a\x86\x48\xce\x3d\x03\x01\x07\x04\x27\x30\x25\x02\x01\x01\x04\x20"
                    .to_vec();
            der.extend([seed; 32]);
            EncodingKey::from_ec_der(&der)
        }
        Algorithm::EdDSA => {
            let mut der =
                b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20".to_vec();
            der.extend([seed; 32]);
            EncodingKey::from_ed_der(&der)
        }
        _ => EncodingKey::from_secret(b"a secret that everybody knows"),
    }
}

pub(super) fn public_key(algorithm: Algorithm, seed: u8, id: &str) -> Value {
    let jwk = Jwk::from_encoding_key(&signing_key(algorithm, seed), algorithm).unwrap();
    let mut value = serde_json::to_value(jwk).unwrap();
    value["kid"] = json!(id);
    value["use"] = json!("sig");
    value
}

pub(super) fn key_set() -> Value {
    json!({ "keys": [
        public_key(Algorithm::RS256, 0, "rsa"),
        public_key(Algorithm::ES256, 1, "ec"),
        public_key(Algorithm::EdDSA, 1, "ed"),
        { "kty": "oct", "kid": "oct", "k": "YSBzZWNyZXQ" },
        { "kty": "what", "kid": "unknown" },
        17,
    ] })
}

pub(super) fn claims() -> Value {
    json!({
        "iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": get_current_timestamp() + 600,
        "nbf": get_current_timestamp() - 5,
    })
}

fn with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[name] = value;
    claims
}

fn without(name: &str) -> Value {
    let mut claims = claims();
    claims.as_object_mut().unwrap().remove(name);
    claims
}

pub(super) fn sign(algorithm: Algorithm, seed: u8, id: &str, claims: &Value) -> String {
    let header = Header { kid: Some(id.to_owned()), ..Header::new(algorithm) };
    encode(&header, claims, &signing_key(algorithm, seed)).unwrap()
}

/// A token that a gate with [`file_tokens`] accepts.
pub(in crate::http) fn good_token() -> String {
    sign(Algorithm::EdDSA, 1, "ed", &claims())
}

fn settings(keys: KeySource) -> TokenSettings {
    let quota = Quota { sessions: Some(2), ..Quota::default() };
    let audiences = vec!["other".to_owned(), AUDIENCE.to_owned()];
    TokenSettings { issuer: ISSUER.to_owned(), audiences, keys, quota }
}

/// Keys in a file, which lives as long as the returned folder.
pub(in crate::http) fn file_tokens() -> (tempfile::TempDir, Tokens) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.json");
    std::fs::write(&path, key_set().to_string()).unwrap();
    (folder, Tokens::new(settings(KeySource::File(path))).unwrap())
}

/// An issuer that answers each connection with what `reply` holds, and counts.
struct Issuer {
    address: SocketAddr,
    reply: Arc<Mutex<Vec<u8>>>,
    asked: Arc<AtomicUsize>,
}

impl Issuer {
    fn start(body: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let issuer = Self { address, reply: Arc::default(), asked: Arc::default() };
        issuer.answer("200 OK", body);
        let (reply, asked) = (Arc::clone(&issuer.reply), Arc::clone(&issuer.asked));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                asked.fetch_add(1, Ordering::SeqCst);
                let mut request: Vec<u8> = Vec::new();
                let mut buffer = [0; 1024];
                while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                    match stream.read(&mut buffer) {
                        Ok(0) | Err(_) => break,
                        Ok(length) => request.extend(&buffer[..length]),
                    }
                }
                let reply = reply.lock().unwrap().clone();
                // A client that has read enough hangs up, which is one of the things tested.
                stream.write_all(&reply).unwrap_or_default();
            }
        });
        issuer
    }

    /// `status` may go on with header lines.
    fn answer(&self, status: &str, body: &str) {
        let length = body.len();
        let head =
            format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
        *self.reply.lock().unwrap() = format!("{head}{body}").into_bytes();
    }

    fn tokens(&self) -> Tokens {
        let url = format!("http://{}/keys", self.address);
        Tokens::new(settings(KeySource::Url(url))).unwrap()
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

async fn refused(tokens: &Tokens, token: &str) -> String {
    tokens.verify(token).await.map(|caller| caller.id.to_string()).unwrap_err().to_string()
}

#[tokio::test]
async fn accepts_three_algorithms_with_one_fetch() {
    let issuer = Issuer::start(&key_set().to_string());
    let tokens = issuer.tokens();
    let table =
        [(Algorithm::RS256, 0, "rsa"), (Algorithm::ES256, 1, "ec"), (Algorithm::EdDSA, 1, "ed")];
    for (algorithm, seed, id) in table {
        let Caller { id, name, scopes, quota, .. } =
            tokens.verify(&sign(algorithm, seed, id, &claims())).await.unwrap();
        assert_eq!(id.as_str(), "jwt:ada@https://issuer.example");
        assert_eq!((&*name, scopes, quota.sessions), ("ada", Scopes::usual(), Some(2)));
    }
    assert_eq!(issuer.asked(), 1);
}

#[tokio::test]
async fn what_a_token_says_about_itself_is_checked() {
    let (_folder, tokens) = file_tokens();
    let now = get_current_timestamp();
    let table = [
        (claims(), ""),
        (without("nbf"), ""),
        (with("aud", json!(["x", AUDIENCE])), ""),
        (with("exp", json!(now - 10)), ""), // clocks differ a little
        (with("nbf", json!(now + 10)), ""),
        (with("exp", json!(now - 120)), "expired"),
        (with("exp", json!("tomorrow")), "lacks"),
        (with("exp", json!(-1)), "lacks"),
        (without("exp"), "lacks"),
        (with("nbf", json!(now + 600)), "not valid yet"),
        (with("nbf", json!("now")), "cannot be read"),
        (without("iss"), "cannot be read"),
        (with("iss", json!("https://issuer.example/")), "another issuer"),
        (with("iss", json!("https://evil.example")), "another issuer"),
        (with("iss", json!([ISSUER])), "cannot be read"),
        (without("aud"), "lacks"),
        (with("aud", json!("https://elsewhere.example")), "another audience"),
        (with("aud", json!([])), "another audience"),
        (with("aud", Value::Null), "lacks"),
        (without("sub"), "cannot be read"),
        (with("sub", json!("")), "subject"),
        (with("sub", json!("a\0b")), "subject"),
        (with("sub", json!("a\nb")), "subject"),
        (with("sub", json!("a".repeat(257))), "subject"),
        (with("sub", json!(17)), "cannot be read"),
    ];
    for (claims, expected) in table {
        let token = sign(Algorithm::EdDSA, 1, "ed", &claims);
        match tokens.verify(&token).await {
            Ok(_) => assert_eq!(expected, "", "{claims}"),
            Err(error) => {
                let text = error.to_string();
                assert!(!expected.is_empty() && text.contains(expected), "{claims}: {text}");
            }
        }
    }
}

#[tokio::test]
async fn forged_tokens_are_refused() {
    let (_folder, tokens) = file_tokens();
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let good = good_token();
    let (message, signature) = good.rsplit_once('.').unwrap();
    let forged_claims = part(&with("sub", json!("root")));
    let header = message.split('.').next().unwrap();
    let unsigned = |algorithm: &str| {
        format!("{}.{}.", part(&json!({ "alg": algorithm, "kid": "ed" })), part(&claims()))
    };
    let signed = |edit: &dyn Fn(&mut Header)| {
        let mut header = Header { kid: Some("ed".to_owned()), ..Header::new(Algorithm::EdDSA) };
        edit(&mut header);
        encode(&header, &claims(), &signing_key(Algorithm::EdDSA, 1)).unwrap()
    };
    // A stranger's own key, brought along in the token's header.
    let brought = {
        let jwk = serde_json::from_value(public_key(Algorithm::EdDSA, 9, "ed")).unwrap();
        let mut header = Header { kid: Some("ed".to_owned()), ..Header::new(Algorithm::EdDSA) };
        header.jwk = Some(jwk);
        encode(&header, &claims(), &signing_key(Algorithm::EdDSA, 9)).unwrap()
    };
    // The classic: the public key, used as the secret of a symmetric signature.
    let public = public_key(Algorithm::EdDSA, 1, "ed")["x"].as_str().unwrap().to_owned();
    let confused = encode(
        &Header { kid: Some("ed".to_owned()), ..Header::new(Algorithm::HS256) },
        &claims(),
        &EncodingKey::from_secret(&URL_SAFE_NO_PAD.decode(public).unwrap()),
    )
    .unwrap();
    let table = [
        ("nothing", String::new()),
        ("dots", "..".to_owned()),
        ("noise", "a.b.c".to_owned()),
        ("none", unsigned("none")),
        ("None", unsigned("None")),
        ("no signature", format!("{message}.")),
        ("cut signature", good[..good.len() - 4].to_owned()),
        ("other claims", format!("{header}.{forged_claims}.{signature}")),
        ("padding", format!("{good}=")),
        ("four parts", format!("{good}.x")),
        ("NUL", format!("{good}\0")),
        ("brought key", brought),
        ("algorithm", confused),
        ("algorithm", sign(Algorithm::HS256, 0, "oct", &claims())),
        ("another key", sign(Algorithm::EdDSA, 9, "ed", &claims())),
        ("another key", sign(Algorithm::ES256, 9, "ec", &claims())),
        ("algorithm", sign(Algorithm::PS256, 0, "rsa", &claims())),
        ("algorithm", sign(Algorithm::RS512, 0, "rsa", &claims())),
        ("key of another kind", sign(Algorithm::EdDSA, 1, "ec", &claims())),
        ("unknown key", sign(Algorithm::EdDSA, 1, "nobody", &claims())),
        ("crit", signed(&|header| header.crit = Some(vec!["b64".to_owned()]))),
        ("typ", signed(&|header| header.typ = Some("logout+jwt".to_owned()))),
        ("too long", sign(Algorithm::EdDSA, 1, "ed", &with("pad", json!("x".repeat(20_000))))),
    ];
    for (what, token) in table {
        let error = tokens.verify(&token).await.expect_err(what);
        assert!(matches!(error, TokenError::Invalid(_)), "{what}: {error}");
        assert!(what != "algorithm" || error.to_string().contains(what), "{error}");
        assert!(token.len() < 8 || !error.to_string().contains(&token), "{what}");
    }
    for kind in ["JWT", "at+jwt", "application/at+JWT"] {
        let token = signed(&|header| header.typ = Some(kind.to_owned()));
        assert!(tokens.verify(&token).await.is_ok(), "{kind}");
    }
    // A token that names no key means the only one of its kind.
    assert!(tokens.verify(&signed(&|header| header.kid = None)).await.is_ok());
}

#[tokio::test]
async fn an_unknown_key_is_asked_for_once_and_not_by_every_stranger() {
    let issuer = Issuer::start(&key_set().to_string());
    let tokens = issuer.tokens();
    tokens.verify(&good_token()).await.unwrap();
    // The first question was just now, so the issuer is left alone.
    for number in 0..50 {
        let token = sign(Algorithm::EdDSA, 1, &format!("made-up-{number}"), &claims());
        assert!(refused(&tokens, &token).await.contains("not known"));
    }
    assert_eq!(issuer.asked(), 1);
}

#[tokio::test]
async fn finds_a_new_key_of_the_issuer() {
    let issuer = Issuer::start(&key_set().to_string());
    let tokens = issuer.tokens();
    tokens.verify(&good_token()).await.unwrap();
    issuer
        .answer("200 OK", &json!({ "keys": [public_key(Algorithm::EdDSA, 2, "new")] }).to_string());
    let fresh = sign(Algorithm::EdDSA, 2, "new", &claims());
    assert!(refused(&tokens, &fresh).await.contains("not known"));
    // As if the last question was half a minute ago.
    let before = Instant::now().checked_sub(Duration::from_secs(31)).unwrap();
    tokens.0.cache.write().unwrap().tried_at = Some(before);
    assert!(tokens.verify(&fresh).await.is_ok());
    assert!(
        refused(&tokens, &good_token()).await.contains("not known"),
        "the old key is withdrawn"
    );
}

#[tokio::test]
async fn many_at_once_ask_once() {
    let issuer = Issuer::start(&key_set().to_string());
    let tokens = issuer.tokens();
    let token = good_token();
    let all = (0..20).map(|_| {
        let (tokens, token) = (tokens.clone(), token.clone());
        tokio::spawn(async move { tokens.verify(&token).await })
    });
    for one in all.collect::<Vec<_>>() {
        one.await.unwrap().unwrap();
    }
    assert_eq!(issuer.asked(), 1);
}

#[tokio::test]
async fn an_issuer_that_fails_closes_the_door() {
    // Good keys, in too long an answer and behind a redirect.
    let mut large = key_set();
    large["pad"] = json!("x".repeat(1024 * 1024));
    let elsewhere = Issuer::start(&key_set().to_string());
    let redirect = format!("302 Found\r\nLocation: http://{}/keys", elsewhere.address);
    let weak = {
        let mut key = public_key(Algorithm::RS256, 0, "rsa");
        key["n"] = json!(URL_SAFE_NO_PAD.encode([0xff; 128]));
        json!({ "keys": [key] }).to_string()
    };
    let table = [
        ("500 Internal Server Error", key_set().to_string()),
        (&*redirect, key_set().to_string()),
        ("204 No Content", String::new()),
        ("200 OK", String::new()),
        ("200 OK", "<html>".to_owned()),
        ("200 OK", "{}".to_owned()),
        ("200 OK", json!({ "keys": [] }).to_string()),
        ("200 OK", json!({ "keys": [{ "kty": "oct", "k": "AAAA" }] }).to_string()),
        ("200 OK", weak),
        ("200 OK", large.to_string()),
    ];
    for (status, body) in table {
        let issuer = Issuer::start("");
        issuer.answer(status, &body);
        let error = issuer.tokens().verify(&good_token()).await.unwrap_err();
        let shown: String = body.chars().take(60).collect();
        assert!(matches!(error, TokenError::Unavailable(_)), "{status} {shown}: {error}");
    }
    assert_eq!(elsewhere.asked(), 0, "a redirect was followed");
    let missing = settings(KeySource::File("/nonexistent/keys.json".into()));
    let error = Tokens::new(missing).unwrap().verify(&good_token()).await.unwrap_err();
    assert!(matches!(error, TokenError::Unavailable(_)));
}

#[test]
fn uses_cached_keys_for_an_hour() {
    let start = Instant::now();
    let keys = parse_set(key_set().to_string().as_bytes()).unwrap().into();
    let at = |seconds| start + Duration::from_secs(seconds);
    let read = Some(start);
    let cache = |tried| Cache {
        keys: Arc::clone(&keys),
        read_at: read,
        tried_at: tried,
        ..Cache::default()
    };
    let known = Header { kid: Some("ed".to_owned()), ..Header::new(Algorithm::EdDSA) };
    let unknown = Header { kid: Some("x".to_owned()), ..Header::new(Algorithm::EdDSA) };
    // (last question, now, header, plan, whether there are keys)
    let table = [
        (0, 0, &known, Plan::UseCached, true),
        (0, 599, &known, Plan::UseCached, true),
        (0, 600, &known, Plan::Refresh, true),
        (600, 629, &known, Plan::UseCached, true),
        (600, 630, &known, Plan::Refresh, true),
        (3590, 3599, &known, Plan::UseCached, true),
        (3590, 3600, &known, Plan::UseCached, false),
        (0, 29, &unknown, Plan::UseCached, true),
        (0, 30, &unknown, Plan::Refresh, true),
    ];
    for (tried, now, header, plan, usable) in table {
        let cache = cache(Some(at(tried)));
        assert_eq!(cache.plan(header, at(now)), plan, "tried {tried}, now {now}");
        assert_eq!(cache.answer(at(now)).is_ok(), usable, "tried {tried}, now {now}");
    }
    assert_eq!(Cache::default().plan(&known, start), Plan::Refresh);
    assert!(Cache::default().answer(start).is_err());
}

#[test]
fn skips_keys_for_other_uses() {
    let edited = |name: &str, value: Value| {
        let mut key = public_key(Algorithm::ES256, 1, "ec");
        key[name] = value;
        parse_set(json!({ "keys": [key] }).to_string().as_bytes()).is_ok()
    };
    assert!(edited("use", json!("sig")));
    assert!(edited("use", Value::Null));
    assert!(!edited("use", json!("enc")));
    assert!(edited("key_ops", json!(["verify"])));
    assert!(!edited("key_ops", json!(["encrypt"])));
    assert!(edited("alg", json!("ES256")));
    assert!(!edited("alg", json!("ES384")));
    assert!(!edited("crv", json!("P-384")));
}

#[test]
fn scope_words_become_scopes() {
    let (execute, read) =
        (Scopes { execute: true, ..Scopes::none() }, Scopes { read: true, ..Scopes::none() });
    let table = [
        (None, Scopes::usual()),
        (Some(Value::Null), Scopes::usual()),
        (Some(json!("")), Scopes::none()),
        (Some(json!("openid profile")), Scopes::none()),
        (Some(json!("woma:execute")), execute),
        (Some(json!("openid read")), read),
        (Some(json!("woma:execute woma:read woma:admin woma:schedule")), Scopes::all()),
        (Some(json!("EXECUTE woma:Read xwoma:admin woma:admin:x")), Scopes::none()),
        (Some(json!(["execute", "woma:read", 7])), Scopes::usual()),
        (Some(json!({ "execute": true })), Scopes::none()),
    ];
    for (claim, expected) in table {
        assert_eq!(scopes(claim.as_ref()), expected, "{claim:?}");
    }
}

#[test]
fn keys_are_read_over_https_or_from_here() {
    let urls = [
        "https://issuer.example/keys",
        "HTTPS://issuer.example",
        "http://localhost:8080/keys",
        "http://127.0.0.1/keys",
        "http://127.8.8.8:1/keys",
        "http://[::1]:80/keys",
    ];
    for url in urls {
        assert_eq!(KeySource::parse(url), Ok(KeySource::Url(url.to_owned())), "{url}");
    }
    let insecure = [
        "http://issuer.example/keys",
        "http://localhost.evil.example/",
        "http://localhost@evil.example/",
        "http://127.0.0.1@evil.example/",
        "http://10.0.0.1/",
        "http:///keys",
        "https:///keys",
        "https://user@issuer.example/",
        "ftp://localhost/keys",
        "data://x",
    ];
    for url in insecure {
        let expected = Err(InvalidTokenSettings::Insecure(url.to_owned()));
        assert_eq!(KeySource::parse(url), expected, "{url}");
        let settings = settings(KeySource::Url(url.to_owned()));
        assert!(Tokens::new(settings).is_err(), "{url}");
    }
    for (text, path) in [("/etc/keys.json", "/etc/keys.json"), ("file:///etc/k", "/etc/k")] {
        assert_eq!(KeySource::parse(text), Ok(KeySource::File(path.into())));
    }
    let keys = || KeySource::File("k".into());
    let nobody = TokenSettings { issuer: " ".to_owned(), ..settings(keys()) };
    assert_eq!(Tokens::new(nobody).unwrap_err(), InvalidTokenSettings::NoIssuer);
    let anybody = TokenSettings { audiences: Vec::new(), ..settings(keys()) };
    assert_eq!(Tokens::new(anybody).unwrap_err(), InvalidTokenSettings::NoAudience);
}
