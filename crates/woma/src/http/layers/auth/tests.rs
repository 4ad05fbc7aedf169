//! Authentication by headers: a caller or a rejection.

use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use axum::{Extension, Router};
use http_body_util::BodyExt as _;
use tempfile::TempDir;
use tower::ServiceExt as _;
use woma_core::keys::{Authenticator, FixedKey, KeyRing, NewKey};
use woma_core::{Caller, Quota, Scopes};

use super::jwt::{Tokens, tests as issuer};
use super::{
    AuthSettings, AuthState, ClientInfo, authenticate, is_public, metadata_routes, network,
};

const FIXED: &str = "0123456789abcdef0123456789abcdef";

struct Setup {
    folder: TempDir,
    fixed: Option<&'static str>,
    tokens: Option<Tokens>,
    denied: StatusCode,
    url: Option<&'static str>,
}

fn setup() -> Setup {
    Setup {
        folder: tempfile::tempdir().unwrap(),
        fixed: Some(FIXED),
        tokens: None,
        denied: StatusCode::UNAUTHORIZED,
        url: None,
    }
}

impl Setup {
    fn ring(&self) -> KeyRing {
        KeyRing::open(self.folder.path().join("keys.json")).unwrap()
    }

    fn auth_state(&self) -> Arc<AuthState> {
        let fixed = self.fixed.map(|text| FixedKey::new(text).unwrap());
        let authenticator = Authenticator::new(fixed, self.ring(), self.tokens.is_some());
        let settings = AuthSettings {
            denied: self.denied,
            public_base_url: self.url.map(str::to_owned),
            is_public,
        };
        Arc::new(AuthState::new(authenticator, self.tokens.clone(), settings))
    }
}

fn new(name: &str) -> NewKey {
    let (scopes, quota) = (Scopes::usual(), Quota::default());
    NewKey { name: name.to_owned(), scopes, quota, policy: None, network: None, expires_at: None }
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &str)| {
        (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap())
    };
    let mut map = HeaderMap::new();
    for (name, value) in pairs.iter().map(pair) {
        map.append(name, value);
    }
    map
}

fn client(address: &str) -> ClientInfo {
    ClientInfo { address: address.parse().unwrap(), is_https: false }
}

async fn who(auth_state: &AuthState, pairs: &[(&'static str, &str)]) -> String {
    match auth_state.caller(&headers(pairs), ClientInfo::UNKNOWN, "/mcp", Instant::now()).await {
        Ok(caller) => caller.id.to_string(),
        Err(refusal) => format!("{} {}", refusal.status.as_u16(), refusal.message),
    }
}

fn router(auth_state: &Arc<AuthState>) -> Router {
    let name = |caller: Option<Extension<Caller>>| async move {
        caller.map_or_else(|| "nobody".to_owned(), |caller| caller.id.to_string())
    };
    Router::new()
        .route("/health", get(name))
        .route("/mcp", get(name))
        .route("/dl/{id}", get(name))
        .merge(metadata_routes(auth_state))
        .layer(from_fn_with_state(Arc::clone(auth_state), authenticate))
}

async fn ask(
    router: &Router,
    path: &str,
    pairs: &[(&'static str, &str)],
) -> (StatusCode, HeaderMap, String) {
    let mut request = Request::get(path).body(Body::empty()).unwrap();
    *request.headers_mut() = headers(pairs);
    request.extensions_mut().insert(client("192.0.2.1"));
    let response = router.clone().oneshot(request).await.unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, headers, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn a_key_comes_in_either_header() {
    let auth_state = setup().auth_state();
    let bearer = format!("Bearer {FIXED}");
    let accepted: [&[(&str, &str)]; 8] = [
        &[("authorization", &bearer)],
        &[("authorization", &bearer.replace("Bearer", "bEARER"))],
        &[("authorization", &bearer.replace(' ', "   "))],
        &[("x-api-key", FIXED)],
        &[("x-api-key", FIXED), ("authorization", &bearer)],
        &[("x-api-key", FIXED), ("x-api-key", FIXED)],
        &[("x-api-key", FIXED), ("authorization", "Basic dXNlcjpwYXNz")],
        &[("authorization", "Basic dXNlcjpwYXNz"), ("authorization", &bearer)],
    ];
    for pairs in accepted {
        assert_eq!(who(&auth_state, pairs).await, "key:default", "{pairs:?}");
    }
    let missing = "401 this server needs a key";
    let invalid = "401 the key is not valid";
    let different = "401 the request presents different keys";
    let refused: [(&[(&str, &str)], &str); 15] = [
        (&[], missing),
        (&[("authorization", "Basic dXNlcjpwYXNz")], missing),
        (&[("authorization", FIXED)], missing),
        (&[("authorization", "Bearer")], missing),
        (&[("authorization", "Bearer ")], missing),
        (&[("authorization", "Bearer x")], invalid),
        (&[("authorization", &format!("{bearer} x"))], invalid),
        (&[("authorization", &format!("{bearer}, Bearer x"))], invalid),
        (&[("authorization", "Bearer é")], invalid),
        (&[("x-api-key", "")], missing),
        (&[("x-api-key", &bearer)], invalid),
        (&[("x-api-key", FIXED), ("authorization", "Bearer x")], different),
        (&[("x-api-key", "x"), ("authorization", &bearer)], different),
        (&[("x-api-key", FIXED), ("x-api-key", "x")], different),
        (&[("authorization", &bearer), ("authorization", "Bearer x")], different),
    ];
    for (pairs, expected) in refused {
        assert_eq!(who(&auth_state, pairs).await, expected, "{pairs:?}");
    }
}

#[tokio::test]
async fn an_open_server_asks_for_nothing() {
    let setup = Setup { fixed: None, ..setup() };
    let auth_state = setup.auth_state();
    let table: [&[(&str, &str)]; 4] = [
        &[],
        &[("authorization", "Bearer dummy")],
        &[("authorization", "Bearer")],
        &[("authorization", "Bearer a"), ("x-api-key", "b")],
    ];
    for pairs in table {
        assert_eq!(who(&auth_state, pairs).await, "local", "{pairs:?}");
    }
}

#[tokio::test]
async fn named_keys_and_tokens_are_told_apart() {
    let (_folder, tokens) = issuer::file_tokens();
    let setup = Setup { tokens: Some(tokens), ..setup() };
    let (key, text) = setup.ring().create(new("ci")).unwrap();
    let auth_state = setup.auth_state();
    assert_eq!(who(&auth_state, &[("x-api-key", text.expose())]).await, format!("key:{}", key.id));
    let bearer = format!("Bearer {}", issuer::good_token());
    let expected = format!("jwt:ada@{}", issuer::ISSUER);
    assert_eq!(who(&auth_state, &[("authorization", &bearer)]).await, expected);
    let forged = format!("{}AAAA", &bearer[..bearer.len() - 4]);
    assert_eq!(who(&auth_state, &[("authorization", &forged)]).await, "401 the key is not valid");
    // Tokens alone close a server, too.
    let only = Setup { fixed: None, folder: tempfile::tempdir().unwrap(), ..setup };
    assert_eq!(who(&only.auth_state(), &[]).await, "401 this server needs a key");
}

#[tokio::test]
async fn all_but_public_paths_need_a_key() {
    let router = router(&setup().auth_state());
    for path in ["/mcp", "/", "/none", "/healthz", "/dl", "/mcp/../health"] {
        let (status, headers, body) = ask(&router, path, &[("host", "woma.example:80")]).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{path}");
        assert_eq!(headers[WWW_AUTHENTICATE], "Bearer realm=\"woma\"");
        let envelope: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(envelope["code"], "unauthenticated");
        assert!(envelope["message"].is_string() && envelope["hint"].is_string());
    }
    for path in ["/health", "/dl/x"] {
        let (status, _, body) = ask(&router, path, &[]).await;
        assert_eq!((status, &*body), (StatusCode::OK, "nobody"), "{path}");
    }
    let (status, _, body) = ask(&router, "/mcp", &[("x-api-key", FIXED)]).await;
    assert_eq!((status, &*body), (StatusCode::OK, "key:default"));
    let (_, headers, _) = ask(&router, "/mcp", &[("x-api-key", "wrong")]).await;
    assert!(headers[WWW_AUTHENTICATE].to_str().unwrap().ends_with(r#"error="invalid_token""#));
}

#[test]
fn public_paths() {
    let public = [
        "/health",
        "/livez",
        "/readyz",
        "/docs",
        "/redoc",
        "/openapi.json",
        "/dl/a",
        "/dl/a/b.png",
        "/dl/a/b..png",
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/oauth-authorization-server",
        "/.well-known/oauth-authorization-server/mcp",
        "/.well-known/openid-configuration",
    ];
    for path in public {
        assert!(is_public(path), "{path}");
    }
    let closed = [
        "",
        "/",
        "/health/",
        "/health/x",
        "/Health",
        "/healthz",
        "/livez/",
        "/readyz/x",
        "/docs/",
        "/openapi.json/x",
        "/api/v1/health",
        "/dl",
        "/dlx",
        "/dl/../mcp",
        "/dl/a/../../mcp",
        "/dl/./x",
        "/dl//x",
        "//health",
        "/dl/%2e%2e/mcp",
        "/dl/%2E./mcp",
        "/dl/..%2fmcp",
        "/dl/..%5Cmcp",
        "/dl/..\\mcp",
        "/dl/a%00",
        "/x/dl/a",
        "/.well-known/oauth-protected-resourcex",
        "/.well-known/oauth-authorization-serverx",
        "/.well-known/openid-configurationx",
        "/.well-known/jwks.json",
    ];
    for path in closed {
        assert!(!is_public(path), "{path}");
    }
}

#[tokio::test]
async fn older_clients_can_be_answered_with_403() {
    let setup = Setup { denied: StatusCode::FORBIDDEN, ..setup() };
    let (status, headers, body) = ask(&router(&setup.auth_state()), "/mcp", &[]).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(headers.contains_key(WWW_AUTHENTICATE) && body.contains("unauthenticated"));
}

#[tokio::test]
async fn metadata_names_the_token_issuer() {
    let (_folder, tokens) = issuer::file_tokens();
    let url = Some("https://woma.example/");
    let setup = Setup { tokens: Some(tokens), url, ..setup() };
    let router = router(&setup.auth_state());
    let table = [("", ""), ("/mcp", "/mcp"), ("/sse", "/sse"), ("/mcp/sse", "/mcp/sse")];
    for (suffix, resource) in table {
        let path = format!("/.well-known/oauth-protected-resource{suffix}");
        let (status, _, body) = ask(&router, &path, &[("host", "evil.example")]).await;
        assert_eq!(status, StatusCode::OK, "{path}");
        let document: serde_json::Value = serde_json::from_str(&body).unwrap();
        let expected = serde_json::json!({
            "resource": format!("https://woma.example{resource}"),
            "resource_name": "Woma",
            "authorization_servers": [issuer::ISSUER],
            "bearer_methods_supported": ["header"],
            "scopes_supported": ["woma:execute", "woma:read", "woma:admin", "woma:schedule"],
        });
        assert_eq!(document, expected);
    }
    let (status, _, _) = ask(&router, "/.well-known/oauth-protected-resource/x", &[]).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_server_with_keys_only_sends_no_client_to_an_issuer() {
    let router = router(&setup().auth_state());
    for path in [
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/oauth-authorization-server",
        "/.well-known/oauth-authorization-server/mcp",
        "/.well-known/openid-configuration",
        "/.well-known/openid-configuration/mcp",
    ] {
        let (status, headers, body) = ask(&router, path, &[("host", "woma.example")]).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
        assert!(!headers.contains_key(WWW_AUTHENTICATE), "{path}");
        let envelope: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(envelope["code"], "not_found", "{path}");
        assert!(envelope["hint"].as_str().unwrap().contains("X-API-Key"), "{envelope}");
    }
}

#[tokio::test]
async fn a_challenge_names_the_metadata_of_its_resource() {
    let (_folder, tokens) = issuer::file_tokens();
    let setup = Setup { tokens: Some(tokens), ..setup() };
    let router = router(&setup.auth_state());
    let table = [("/mcp", "/mcp"), ("/sse", "/sse"), ("/mcp/", "/mcp"), ("/other", "")];
    for (path, resource) in table {
        let (status, headers, body) = ask(&router, path, &[("host", "woma.example:80")]).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{path}");
        let expected = format!(
            "Bearer resource_metadata=\
             \"http://woma.example:80/.well-known/oauth-protected-resource{resource}\""
        );
        assert_eq!(headers[WWW_AUTHENTICATE], expected, "{path}");
        assert!(body.contains(issuer::ISSUER), "{body}");
    }
    let pairs = [("host", "woma.example"), ("x-api-key", "wrong")];
    let (_, headers, _) = ask(&router, "/mcp", &pairs).await;
    let challenge = headers[WWW_AUTHENTICATE].to_str().unwrap();
    assert!(challenge.ends_with("resource/mcp\", error=\"invalid_token\""), "{challenge}");
    let (status, _, body) = ask(&router, "/.well-known/openid-configuration", &[]).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(body.contains(issuer::ISSUER), "{body}");
}

#[test]
fn base_url_is_the_requests_host_unless_set() {
    let auth_state = setup().auth_state();
    let table: [(&[(&str, &str)], &str); 5] = [
        (&[("host", "a.example:8080")], "http://a.example:8080"),
        (&[("host", "[::1]:8080")], "http://[::1]:8080"),
        (&[("host", "a.example"), ("x-forwarded-proto", "https")], "http://a.example"),
        (&[("host", "a.example"), ("x-forwarded-host", "evil.example")], "http://a.example"),
        (&[("host", "a\"b"), ("x-forwarded-proto", "javascript")], "http://localhost"),
    ];
    for (pairs, expected) in table {
        let base = auth_state.base_url(&headers(pairs), ClientInfo::UNKNOWN);
        assert_eq!(base, expected, "{pairs:?}");
    }
    let behind_tls = ClientInfo { is_https: true, ..ClientInfo::UNKNOWN };
    let base = auth_state.base_url(&headers(&[("host", "a.example")]), behind_tls);
    assert_eq!(base, "https://a.example");
}

#[tokio::test]
async fn whoever_guesses_is_slowed_down_and_others_are_not() {
    let setup = Setup { fixed: Some("short"), ..setup() };
    let (key, text) = setup.ring().create(new("ci")).unwrap();
    let auth_state = setup.auth_state();
    let start = Instant::now();
    let (guesser, other) = (client("192.0.2.1"), client("192.0.2.2"));
    let status = async |presented: &str, client, now| {
        let headers = headers(&[("x-api-key", presented)]);
        match auth_state.caller(&headers, client, "/mcp", now).await {
            Ok(caller) => caller.id.to_string(),
            Err(refusal) => {
                let retry = refusal.retry_after.is_some();
                format!("{} {retry}", refusal.status.as_u16())
            }
        }
    };
    for number in 0..30 {
        assert_eq!(status(&format!("guess-{number}"), guesser, start).await, "401 false");
    }
    assert_eq!(status("guess", guesser, start).await, "429 true");
    assert_eq!(status("short", guesser, start).await, "429 true", "the right guess shows nothing");
    assert_eq!(status(text.expose(), guesser, start).await, format!("key:{}", key.id));
    assert_eq!(status("short", other, start).await, "key:default");
    let later = start + Duration::from_secs(61);
    assert_eq!(status("short", guesser, later).await, "key:default");
}

#[tokio::test]
async fn requests_without_a_key_are_no_guesses() {
    let setup = Setup { fixed: Some("short"), ..setup() };
    let auth_state = setup.auth_state();
    let none: [&[(&'static str, &str)]; 4] = [
        &[],
        &[("authorization", "Basic dXNlcjpwYXNz")],
        &[("authorization", "Bearer ")],
        &[("x-api-key", "")],
    ];
    for pairs in none {
        for _ in 0..100 {
            assert_eq!(who(&auth_state, pairs).await, "401 this server needs a key", "{pairs:?}");
        }
    }
    assert_eq!(who(&auth_state, &[("x-api-key", "short")]).await, "key:default");
}

#[tokio::test]
async fn the_answer_to_too_many_guesses_still_says_which_key_is_needed() {
    let router = router(&setup().auth_state());
    for _ in 0..30 {
        let (status, _, _) = ask(&router, "/mcp", &[("x-api-key", "wrong")]).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED);
    }
    let guess = [("x-api-key", "wrong"), ("host", "woma.example")];
    let (status, headers, _) = ask(&router, "/mcp", &guess).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert!(headers.contains_key(RETRY_AFTER));
    let challenge = "Bearer realm=\"woma\", error=\"invalid_token\"";
    assert_eq!(headers[WWW_AUTHENTICATE], challenge);
    // A client without a key may still ask what it needs.
    let (status, headers, _) = ask(&router, "/mcp", &[]).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert!(headers.contains_key(WWW_AUTHENTICATE));
}

#[tokio::test]
async fn health_knows_a_caller_and_is_no_way_to_guess() {
    let setup = Setup { fixed: Some("short"), ..setup() };
    let router = router(&setup.auth_state());
    let who = async |key: &str| ask(&router, "/health", &[("x-api-key", key)]).await.2;
    assert_eq!(who("short").await, "key:default");
    for number in 0..30 {
        assert_eq!(who(&format!("guess-{number}")).await, "nobody");
    }
    assert_eq!(who("short").await, "nobody", "the right guess shows nothing");
    let (status, _, _) = ask(&router, "/mcp", &[("x-api-key", "guess")]).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "guesses at /health count");
}

#[tokio::test]
async fn a_long_fixed_key_is_never_locked_out() {
    let auth_state = setup().auth_state();
    for _ in 0..100 {
        who(&auth_state, &[("x-api-key", "wrong")]).await;
    }
    assert!(who(&auth_state, &[("x-api-key", "wrong")]).await.starts_with("429"));
    assert_eq!(who(&auth_state, &[("x-api-key", FIXED)]).await, "key:default");
}

#[test]
fn an_ipv6_network_is_one_peer() {
    let table = [
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("192.0.2.7", "192.0.2.7"),
    ];
    for (address, expected) in table {
        let expected: IpAddr = expected.parse().unwrap();
        assert_eq!(network(address.parse().unwrap()), expected, "{address}");
    }
}

#[tokio::test]
async fn keys_that_cannot_be_read_close_the_server() {
    let setup = Setup { fixed: None, ..setup() };
    setup.ring().create(new("ci")).unwrap();
    let auth_state = setup.auth_state();
    let path = setup.folder.path().join("keys.json");
    std::fs::write(&path, "{").unwrap();
    // Listing looks at the file at once, where a request may rely on a look 250 ms ago.
    assert!(auth_state.authenticator().ring().list().is_err());
    let (status, headers, body) = ask(&router(&auth_state), "/mcp", &[("x-api-key", "x")]).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(headers.contains_key(RETRY_AFTER));
    assert!(!body.contains("keys.json"), "no path of ours in an answer: {body}");
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Writes every event of this thread here, as long as both are kept.
    fn listen(&self) -> (tracing::subscriber::DefaultGuard, tracing::Dispatch) {
        let writer = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        let guard = tracing::subscriber::set_default(subscriber);
        // Other tests meet the same events first, on threads without a subscriber. Where there is
        // but one in the process, tracing asks that of the thread, and remembers for all that
        // nobody listens.
        let second = tracing::Dispatch::new(tracing_subscriber::registry());
        tracing::callsite::rebuild_interest_cache();
        (guard, second)
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn requests_without_a_key_are_logged_within_a_limit() {
    let log = Log::default();
    let auth_state = setup().auth_state();
    let now = Instant::now();
    let (guard, _second) = log.listen();
    for address in ["192.0.2.1", "192.0.2.2"] {
        for _ in 0..100 {
            let answer = auth_state.caller(&headers(&[]), client(address), "/mcp", now).await;
            assert_eq!(answer.unwrap_err().status, StatusCode::UNAUTHORIZED);
        }
    }
    drop(guard);
    let logged = log.text();
    for address in ["192.0.2.1", "192.0.2.2"] {
        let line = format!("Request refused: no key peer={address}");
        assert_eq!(logged.matches(&line).count(), 30, "{logged}");
    }
}

#[tokio::test]
async fn what_was_presented_is_never_repeated() {
    let log = Log::default();
    let (guard, _second) = log.listen();
    let (_folder, tokens) = issuer::file_tokens();
    let setup = Setup { tokens: Some(tokens), ..setup() };
    let auth_state = setup.auth_state();
    let router = router(&auth_state);
    let good = issuer::good_token();
    let forged = format!("{}AAAA", &good[..good.len() - 4]);
    let secrets =
        ["sesame-open-4711", FIXED, &*good, &*forged, "woma_0123456789ab_sesame-open-4711"];
    let mut said = String::new();
    for secret in secrets {
        for pairs in [
            vec![("x-api-key", secret)],
            vec![("x-api-key", secret), ("x-api-key", "other")],
            vec![("x-api-key", secret), ("x-api-key", "\u{e9}")],
        ] {
            let (_, headers, body) = ask(&router, "/mcp", &pairs).await;
            write!(said, "{headers:?}{body}").unwrap();
        }
    }
    drop(guard);
    write!(said, "{auth_state:?}").unwrap();
    let logged = log.text();
    assert!(logged.contains("Request refused: no valid key"), "the log was not caught: {logged}");
    for secret in secrets {
        let part = secret.rsplit(['_', '.']).next().unwrap();
        assert!(!logged.contains(part) && !said.contains(part), "{part} in {logged} {said}");
    }
}
