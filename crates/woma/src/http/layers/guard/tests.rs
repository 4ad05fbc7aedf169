//! Hosts and origins that the guard accepts and rejects.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, StatusCode, Version};
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use axum::{Extension, Router};
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

use super::{Claimed, Denied, Guard, InvalidName, Names, UnknownHost, guard};

fn addresses(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn made(bound: &[&str], hosts: &[&str], origins: &[&str], url: Option<&str>) -> Guard {
    Guard::new(Names {
        bound: &addresses(bound),
        allowed_hosts: &strings(hosts),
        allowed_origins: &strings(origins),
        public_base_url: url,
    })
    .unwrap()
}

fn host(guard: &Guard, host: &str) -> Result<(), Denied> {
    guard.check(&Claimed { hosts: vec![host.as_bytes()], ..Claimed::default() })
}

fn pair(guard: &Guard, host: &str, origin: &str) -> Result<(), Denied> {
    let (hosts, origins) = (vec![host.as_bytes()], vec![origin.as_bytes()]);
    guard.check(&Claimed { hosts, origins, target: None })
}

#[test]
fn loopback_answers_to_loopback_names_only() {
    let guard = made(&["127.0.0.1"], &[], &[], None);
    let good = [
        "localhost",
        "localhost:8080",
        "LOCALHOST",
        "LocalHost:1",
        "localhost.",
        "localhost.:80",
        "127.0.0.1",
        "127.0.0.1:8080",
        "127.0.0.53",
        "[::1]",
        "[::1]:8080",
        "[0:0:0:0:0:0:0:1]",
        "[::ffff:127.0.0.1]:80",
    ];
    for text in good {
        assert_eq!(host(&guard, text), Ok(()), "{text}");
    }
    let strange = [
        "evil.example",
        "localhost.evil.example",
        "evil-localhost",
        "notlocalhost",
        "0.0.0.0",
        "10.0.0.1",
        "[::]",
        "[::2]",
        "xn--lcalhost-54a",
        "127.0.0.1.evil.example",
        "128.0.0.1",
        "a.localhost",
    ];
    for text in strange {
        assert!(matches!(host(&guard, text), Err(Denied::Host(_))), "{text}");
    }
}

const MALFORMED: &[&str] = &[
    "",
    " ",
    ":",
    ":80",
    "localhost:",
    "localhost:x",
    "localhost:+1",
    "localhost:-1",
    "localhost:65536",
    "localhost:80:80",
    "localhost:80 ",
    " localhost",
    "localhost ",
    "user@localhost",
    "localhost@evil.example",
    "user:pass@localhost:80",
    "localhost\0.evil.example",
    "evil.example\0localhost",
    "localhost\0",
    "localhost\t",
    "localhost/",
    "localhost/x",
    "http://localhost",
    "localhost?x",
    "localhost#x",
    "localhost\\x",
    "local%68ost",
    "%6cocalhost",
    "localhost,evil.example",
    "lócalhost",
    "localhost..",
    ".localhost",
    "a..b",
    ".",
    "..",
    "*",
    "*.example.com",
    "::1",
    "::1:80",
    "[::1",
    "::1]",
    "[]",
    "[::1]x",
    "[::1]:",
    "[::1]x:80",
    "[::1%lo]",
    "[::1%25lo]",
    "[127.0.0.1]",
    "[localhost]",
    "[[::1]]",
    "[v1.x]",
    "127.1",
    "127.0.1",
    "0x7f.0.0.1",
    "0x7f000001",
    "2130706433",
    "017700000001",
    "127.0.0.1.1",
    "127.0.0.256",
    "1.2.3.0x4",
];

#[test]
fn a_malformed_host_is_no_host() {
    // Also where any host is accepted.
    for guard in [made(&["127.0.0.1"], &[], &[], None), made(&["::"], &["*"], &["*"], None)] {
        for text in MALFORMED {
            assert_eq!(host(&guard, text), Err(Denied::MalformedHost), "{text:?}");
        }
        let long = format!("{}a", "a.".repeat(127));
        assert_eq!(host(&guard, &long), Err(Denied::MalformedHost));
        let bytes = Claimed { hosts: vec![b"local\xffhost"], ..Claimed::default() };
        assert_eq!(guard.check(&bytes), Err(Denied::MalformedHost));
    }
}

#[test]
fn there_is_exactly_one_host() {
    let guard = made(&["127.0.0.1"], &["*"], &["*"], None);
    assert_eq!(guard.check(&Claimed::default()), Err(Denied::NoHost));
    let twice = Claimed { hosts: vec![b"localhost", b"localhost"], ..Claimed::default() };
    assert_eq!(guard.check(&twice), Err(Denied::SeveralHosts));
    let table = [
        ("localhost", "localhost:80", Ok(())),
        ("localhost", "LOCALHOST", Ok(())),
        ("localhost", "evil.example", Err(Denied::HostsDiffer)),
        ("evil.example", "localhost", Err(Denied::HostsDiffer)),
        ("localhost", "user@localhost", Err(Denied::MalformedHost)),
    ];
    for (header, target, expected) in table {
        let hosts = vec![header.as_bytes()];
        let claimed = Claimed { hosts, target: Some(target), origins: Vec::new() };
        assert_eq!(guard.check(&claimed), expected, "{header} and {target}");
    }
}

#[test]
fn accepts_configured_names() {
    let bound = ["192.168.1.5", "fd00::5"];
    let hosts = ["Woma.Internal", "*.Apps.example", "10.1.2.3", "fd00::9", "[fd00::a]"];
    let guard = made(&bound, &hosts, &[], Some("https://Run.example:8443/woma"));
    let good = [
        "192.168.1.5:8080",
        "[fd00::5]:8080",
        "woma.internal",
        "WOMA.internal.:80",
        "10.1.2.3",
        "[fd00::9]",
        "[fd00::a]:1",
        "a.apps.example",
        "a.b.apps.example:80",
        "run.example",
        "run.example:8443",
        "localhost",
    ];
    for text in good {
        assert_eq!(host(&guard, text), Ok(()), "{text}");
    }
    for text in ["apps.example", "evilapps.example", "192.168.1.6", "x.run.example", "internal"] {
        assert!(matches!(host(&guard, text), Err(Denied::Host(_))), "{text}");
    }
}

#[test]
fn unspecified_address_accepts_ips_but_not_names() {
    for bound in ["0.0.0.0", "::"] {
        let guard = made(&[bound], &[], &[], None);
        for text in ["203.0.113.9:80", "[2001:db8::1]", "0.0.0.0:8080", "localhost"] {
            assert_eq!(host(&guard, text), Ok(()), "{text}");
        }
        assert!(host(&guard, "evil.example").is_err());
    }
    let any = made(&["0.0.0.0"], &["*"], &[], None);
    assert_eq!(host(&any, "whatever.example"), Ok(()));
}

#[test]
fn pages_of_strangers_stay_out() {
    let guard = made(&["127.0.0.1"], &["woma.example"], &["vscode-webview://Panel"], None);
    let good = [
        "http://localhost",
        "http://localhost:3000",
        "HTTPS://LOCALHOST",
        "http://127.0.0.1:9",
        "http://[::1]:6274",
        "https://woma.example",
        "http://woma.example:81",
        "vscode-webview://panel",
    ];
    for origin in good {
        assert_eq!(pair(&guard, "localhost:8080", origin), Ok(()), "{origin}");
    }
    let bad = [
        "",
        "null",
        "NULL",
        "https://evil.example",
        "http://localhost.evil.example",
        "http://evil.example#localhost",
        "http://evil.example/localhost",
        "http://localhost/",
        "http://user@localhost",
        "http://localhost@evil.example",
        "http://localhost\0",
        "http://evil.example\0.localhost",
        "http:/localhost",
        "//localhost",
        "localhost",
        "http://",
        "ftp://localhost",
        "file://",
        "file://localhost",
        "chrome-extension://localhost",
        "vscode-webview://other",
        "http://localhost http://evil.example",
        "http://0.0.0.0",
        "http://127.1",
        "*",
    ];
    for origin in bad {
        assert_eq!(pair(&guard, "localhost:8080", origin), Err(Denied::Origin), "{origin:?}");
    }
    let hosts = vec![&b"localhost"[..]];
    let origins = vec![&b"http://localhost"[..], &b"http://localhost"[..]];
    let twice = Claimed { hosts, origins, target: None };
    assert_eq!(guard.check(&twice), Err(Denied::Origin));
}

#[test]
fn host_wildcard_does_not_allow_other_origins() {
    // (allowed hosts, allowed origins, host, origin, whether it passes)
    let table: [(&[&str], &[&str], _, _, _); 7] = [
        (&["*"], &[], "a.example", "https://a.example", true),
        (&["*"], &[], "a.example", "https://evil.example", false),
        (&["*"], &["*"], "a.example", "https://evil.example", true),
        (&["*"], &["*"], "a.example", "null", true),
        (&[], &[], "203.0.113.9", "http://203.0.113.9", true),
        (&[], &[], "203.0.113.9", "http://203.0.113.8", false),
        (&[], &["*"], "evil.example", "https://evil.example", false),
    ];
    for (hosts, origins, host, origin, passes) in table {
        let guard = made(&["0.0.0.0"], hosts, origins, None);
        assert_eq!(pair(&guard, host, origin).is_ok(), passes, "{host} from {origin}");
    }
}

#[test]
fn wrong_settings_are_named() {
    let made = |hosts: &[&str], origins: &[&str], url| {
        let (hosts, origins) = (strings(hosts), strings(origins));
        let names = Names {
            bound: &[],
            allowed_hosts: &hosts,
            allowed_origins: &origins,
            public_base_url: url,
        };
        Guard::new(names).err()
    };
    for text in ["", "a b", "http://a", "a:80", "*.", "*.*", "a*", "*a", "*.10.0.0.1", "a/b", "@"] {
        assert_eq!(made(&[text], &[], None), Some(InvalidName::Host(text.to_owned())), "{text}");
    }
    for text in ["", "a", "http://", "http://a/", "://a", "null", "http://*", "http://a b"] {
        let expected = Some(InvalidName::Origin(text.to_owned()));
        assert_eq!(made(&[], &[text], None), expected, "{text}");
    }
    for text in ["", "a", "ftp://a", "http://", "http://u@a", "https://a b/"] {
        let expected = Some(InvalidName::BaseUrl(text.to_owned()));
        assert_eq!(made(&[], &[], Some(text)), expected, "{text}");
    }
}

#[tokio::test]
async fn guards_every_route() {
    let state = Arc::new(made(&["127.0.0.1"], &[], &[], None));
    let router = Router::new()
        .route("/api", get(|| async { "fine" }))
        .layer(from_fn_with_state(state, guard));
    let request = |path: &str| Request::get(path);
    let table = [
        (request("/api").header("host", "localhost"), StatusCode::OK, ""),
        (request("/none").header("host", "localhost"), StatusCode::NOT_FOUND, ""),
        (request("/api"), StatusCode::BAD_REQUEST, "invalid_argument"),
        (request("/api").version(Version::HTTP_10), StatusCode::BAD_REQUEST, "invalid_argument"),
        (request("http://localhost/api"), StatusCode::BAD_REQUEST, "invalid_argument"),
        (request("http://localhost/api").version(Version::HTTP_2), StatusCode::OK, ""),
        (request("/api").header("host", "evil.example"), StatusCode::FORBIDDEN, "forbidden"),
        (request("/none").header("host", "evil.example"), StatusCode::FORBIDDEN, "forbidden"),
        (
            request("http://evil.example/api").header("host", "localhost"),
            StatusCode::BAD_REQUEST,
            "invalid_argument",
        ),
        (
            request("/api").header("host", "localhost").header("origin", "https://evil.example"),
            StatusCode::FORBIDDEN,
            "forbidden",
        ),
    ];
    for (number, (builder, status, code)) in table.into_iter().enumerate() {
        let response = router.clone().oneshot(builder.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), status, "row {number}");
        if !code.is_empty() {
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let envelope: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(envelope["code"], code, "row {number}");
            assert!(envelope["message"].is_string() && envelope["hint"].is_string());
        }
    }
}

#[tokio::test]
async fn probes_may_name_any_host_and_are_marked() {
    let state = Arc::new(made(&["127.0.0.1"], &[], &[], None));
    let name = |unknown: Option<Extension<UnknownHost>>| async move {
        if unknown.is_some() { "unknown host" } else { "known host" }
    };
    let router = Router::new()
        .route("/health", get(name))
        .route("/livez", get(name))
        .route("/readyz", get(name))
        .layer(from_fn_with_state(state, guard));
    for path in ["/health", "/livez", "/readyz"] {
        let request = || Request::get(path);
        let evil = "http://evil.example";
        for (builder, expected) in [
            (request().header("host", "localhost"), Some("known host")),
            (request().header("host", "evil.example"), Some("unknown host")),
            (request().header("host", "a b"), Some("unknown host")),
            (request().version(Version::HTTP_10), Some("unknown host")),
            (request().header("host", "localhost").header("origin", evil), None),
            (request().header("host", "evil.example").header("origin", evil), None),
        ] {
            let response = router.clone().oneshot(builder.body(Body::empty()).unwrap()).await;
            let response = response.unwrap();
            assert_eq!(response.status().is_success(), expected.is_some(), "{path} {expected:?}");
            if let Some(expected) = expected {
                let body = response.into_body().collect().await.unwrap().to_bytes();
                assert_eq!(body, expected, "{path}");
            }
        }
    }
}
