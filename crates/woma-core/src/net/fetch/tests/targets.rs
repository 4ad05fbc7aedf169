//! Parsing of URLs: accepted ones with their meaning, and refused ones.

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use proptest::prelude::*;
use url::Url;

use crate::net::fetch::NAMELESS;
use crate::net::fetch::name::file_name;
use crate::net::fetch::target::Target;

/// Accepted URLs, with the authority and the path of the request.
const TAKEN: &[(&str, &str, &str)] = &[
    ("http://example.org", "example.org", "/"),
    ("https://example.org/a/b.csv?c=d&e#f", "example.org", "/a/b.csv?c=d&e"),
    ("HTTP://EXAMPLE.ORG/A", "example.org", "/A"),
    ("http://example.org:80/", "example.org", "/"),
    ("https://example.org:8443/", "example.org:8443", "/"),
    ("http://example.org/a/../../b", "example.org", "/b"),
    ("http://example.org/%2e%2e/b", "example.org", "/b"),
    ("http://example.org//127.0.0.1/", "example.org", "//127.0.0.1/"),
    ("http://example.org/@127.0.0.1", "example.org", "/@127.0.0.1"),
    ("http://example.org/?http://127.0.0.1/", "example.org", "/?http://127.0.0.1/"),
    ("http://example.org#@127.0.0.1/", "example.org", "/"),
    ("http://bücher.example/ü", "xn--bcher-kva.example", "/%C3%BC"),
    ("http://a_b.example.org/", "a_b.example.org", "/"),
    ("http:example.org/", "example.org", "/"),
    ("http:///example.org/", "example.org", "/"),
    ("http://ex%61mple.org/", "example.org", "/"),
    ("http://example。org/", "example.org", "/"),
    // Numbers in any notation are IP addresses, which are checked later.
    ("http://127.0.0.1/", "127.0.0.1", "/"),
    ("http://127.1/", "127.0.0.1", "/"),
    ("http://2130706433/", "127.0.0.1", "/"),
    ("http://0x7f000001/", "127.0.0.1", "/"),
    ("http://0177.0.0.1/", "127.0.0.1", "/"),
    ("http://0x7f.0.0.0x1/", "127.0.0.1", "/"),
    ("http://127.0.0.1./", "127.0.0.1", "/"),
    ("http://１２７.0.0.1/", "127.0.0.1", "/"),
    ("http://①②⑦.0.0.1/", "127.0.0.1", "/"),
    ("http://%31%32%37.0.0.1/", "127.0.0.1", "/"),
    ("http://0/", "0.0.0.0", "/"),
    ("http://[::1]/", "[::1]", "/"),
    ("http://[0:0:0:0:0:ffff:7f00:1]:8080/", "[::ffff:7f00:1]:8080", "/"),
    ("http://[::ffff:127.0.0.1]/", "[::ffff:7f00:1]", "/"),
    ("http://ⓛocalhost/", "localhost", "/"),
];

/// Refused URLs, and a part of the error message.
const REFUSED: &[(&str, &str)] = &[
    ("", "empty"),
    ("example.org", "relative URL without a base"),
    ("//example.org/", "relative URL without a base"),
    ("/etc/passwd", "relative URL without a base"),
    ("http://", "empty host"),
    ("http://#", "empty host"),
    ("http://?x", "empty host"),
    ("http://:80/", "empty host"),
    (" http://example.org/", "a space"),
    ("http://example.org/ ", "a space"),
    ("http://example.org/a b", "a space"),
    ("http://example.org/a\u{a0}b", "a space"),
    ("http://example.org/a\u{3000}b", "a space"),
    ("http://example.org/\n", "a control character"),
    ("ht\ttp://example.org/", "a control character"),
    ("http://exam\r\nple.org/", "a control character"),
    ("http://example.org/\r\nHost:evil", "a control character"),
    ("http://evil.com\0.example.org/", "a control character"),
    ("http://example.org/\u{7f}", "a control character"),
    ("http://example.org/\u{85}", "a control character"),
    ("http:\\\\127.0.0.1/", "a backslash"),
    ("http://example.org\\@127.0.0.1/", "a backslash"),
    ("http://127.0.0.1\\.example.org/", "a backslash"),
    ("http://example.org/?a\\b", "a backslash"),
    ("http://evil.com%00.example.org/", "invalid international domain name"),
    ("http://evil.com%0d%0a.example.org/", "invalid international domain name"),
    ("http://exa%20mple.org/", "invalid international domain name"),
    ("http://evil.com%2fexample.org/", "invalid international domain name"),
    ("http://evil.com%5c.example.org/", "invalid international domain name"),
    ("http://evil.com%23.example.org/", "invalid international domain name"),
    ("http://exam<ple.org/", "invalid international domain name"),
    ("http://example.org./", "ends with a dot"),
    ("http://localhost./", "ends with a dot"),
    ("http://a..b/", "not a valid DNS name"),
    ("http://.example.org/", "not a valid DNS name"),
    ("http://exa!mple.org/", "not a valid DNS name"),
    ("http://*.example.org/", "not a valid DNS name"),
    ("http://example.org;127.0.0.1/", "invalid IPv4 address"),
    ("http://127.0.0.1;example.org/", "not a valid DNS name"),
    ("http://example.org,127.0.0.1/", "invalid IPv4 address"),
    ("http://127.0.0.1,example.org/", "not a valid DNS name"),
    ("http://256.0.0.1/", "invalid IPv4 address"),
    ("http://1.2.3.4.5/", "invalid IPv4 address"),
    ("http://0x100000000/", "invalid IPv4 address"),
    ("http://127.0.0.08/", "invalid IPv4 address"),
    ("http://[fe80::1%25eth0]/", "invalid IPv6 address"),
    ("http://[fe80::1%eth0]/", "invalid IPv6 address"),
    ("http://[::1", "invalid IPv6 address"),
    ("http://[::1]evil/", "invalid IPv6 address"),
    ("http://[v1.a]/", "invalid IPv6 address"),
    ("http://example.org:port/", "invalid port"),
    ("http://example.org:65536/", "invalid port"),
    ("http://example.org:-1/", "invalid port"),
    ("http://user@example.org/", "a user name or a password"),
    ("http://user:pass@example.org/", "a user name or a password"),
    ("http://:pass@example.org/", "a user name or a password"),
    ("http://example.org@127.0.0.1/", "a user name or a password"),
    ("http://example.org:80@127.0.0.1/", "a user name or a password"),
    ("http://example.org%2f@127.0.0.1/", "a user name or a password"),
    ("http://a@b@127.0.0.1/", "a user name or a password"),
    ("ftp://example.org/", "`ftp` addresses"),
    ("file:///etc/passwd", "`file` addresses"),
    ("gopher://127.0.0.1:6379/_x", "`gopher` addresses"),
    ("data:text/plain,x", "`data` addresses"),
    ("javascript:alert(1)", "`javascript` addresses"),
    ("jar:http://example.org/", "`jar` addresses"),
    ("ws://example.org/", "`ws` addresses"),
    ("unix:/run/docker.sock", "`unix` addresses"),
    ("blob:http://example.org/x", "`blob` addresses"),
    ("httpx://example.org/", "`httpx` addresses"),
    ("http://example.org:0/", "port 0 "),
    ("http://example.org:22/", "port 22 "),
    ("http://example.org:25/", "port 25 "),
    ("https://example.org:6379/", "port 6379 "),
    ("http://example.org:2375/", "port 2375 "),
    ("http://example.org:5432/", "port 5432 "),
];

#[test]
fn valid_urls_are_requested_as_parsed() {
    for (text, authority, path) in TAKEN {
        let target = Target::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!((target.authority(), target.path_and_query()), (*authority, *path), "{text}");
        // Parsing is idempotent.
        assert_eq!(Target::parse(target.url().as_str()).unwrap(), target, "{text}");
    }
}

#[test]
fn invalid_urls_are_refused_with_their_reason() {
    let long = [
        format!("http://example.org/{}", "a".repeat(8192)),
        format!("http://example.org/{}", "ü".repeat(2000)),
    ];
    let longs = long.iter().map(|text| (text.as_str(), "too long"));
    let label = format!("http://{}.org/", "a".repeat(64));
    let name = format!("http://{}org/", "abcdefg.".repeat(40));
    let names = [&label, &name].map(|text| (text.as_str(), "not a valid DNS name"));
    for (text, said) in REFUSED.iter().copied().chain(longs).chain(names) {
        let error = Target::parse(text).expect_err(text);
        assert!(error.to_string().contains(said), "{text:.80}: {error}");
        assert!(!error.hint().is_empty());
    }
}

#[test]
fn urls_and_names_have_their_longest() {
    let url = |bytes: usize| format!("http://a.org/{}", "x".repeat(bytes - "http://a.org/".len()));
    let label = |bytes: usize| format!("http://{}.org/", "a".repeat(bytes));
    let name = |bytes: usize| format!("http://{}{}/", "a.".repeat(100), "b".repeat(bytes - 200));
    for (good, bad) in [(url(8192), url(8193)), (label(63), label(64)), (name(253), name(254))] {
        assert!(Target::parse(&good).is_ok(), "{good}");
        assert!(Target::parse(&bad).is_err(), "{bad}");
    }
    // The text is short enough, and too long when it is encoded or joined.
    let base = Target::parse(&url(5000)).unwrap();
    assert!(base.redirect(&format!("?{}", "x".repeat(3191))).is_ok());
    assert!(base.redirect(&format!("?{}", "x".repeat(3192))).is_err());
}

#[test]
fn a_target_tells_its_parts() {
    let table = [
        ("http://example.org/a", "example.org", 80, false),
        ("https://example.org/a", "example.org", 443, true),
        ("https://8.8.8.8:8443/a", "8.8.8.8", 8443, true),
    ];
    for (text, host, port, is_https) in table {
        let target = Target::parse(text).unwrap();
        assert_eq!((target.host().to_string().as_str(), target.port()), (host, port));
        assert_eq!(target.is_https(), is_https);
        assert_eq!(target.into_url().as_str(), text);
    }
}

#[test]
fn redirects_are_parsed_like_urls() {
    // (from, location, target or error)
    let table = [
        ("http://a.org/b/c", "d", Ok("http://a.org/b/d")),
        ("http://a.org/b/c", "/d?e", Ok("http://a.org/d?e")),
        ("http://a.org/b", "//c.org/d", Ok("http://c.org/d")),
        ("https://a.org/b", "//c.org/d", Ok("https://c.org/d")),
        ("http://a.org/b", "https://a.org/b#x", Ok("https://a.org/b")),
        ("http://a.org/b", "?", Ok("http://a.org/b?")),
        ("https://a.org/b", "http://a.org/b", Err("from https to http")),
        ("http://a.org/b", "", Err("empty")),
        ("http://a.org/b", "/\\c.org", Err("backslash")),
        ("http://a.org/b", "\\\\c.org", Err("backslash")),
        ("http://a.org/b", "/c\td", Err("control")),
        ("http://a.org/b", "file:///etc/passwd", Err("`file`")),
        ("http://a.org/b", "//user@c.org", Err("a user name")),
        ("http://a.org/b", "//c.org:22", Err("port 22")),
        ("http://a.org/b", "//c.org.", Err("dot")),
    ];
    for (from, location, expected) in table {
        let led = Target::parse(from).unwrap().redirect(location);
        match (led, expected) {
            (Ok(target), Ok(url)) => assert_eq!(target.url().as_str(), url, "{location}"),
            (Err(error), Err(said)) => {
                assert!(error.to_string().contains(said), "{location}: {error}");
            }
            (led, _) => panic!("{location}: {led:?}"),
        }
    }
}

#[test]
fn allowed_hosts_match_exactly_or_by_wildcard() {
    // (host of the URL, list, whether it is listed)
    let table: &[(&str, &[&str], bool)] = &[
        ("example.org", &[], false),
        ("example.org", &["example.org"], true),
        ("EXAMPLE.org", &["Example.ORG"], true),
        ("example.org", &["a.org", "example.org"], true),
        ("a.example.org", &["example.org"], false),
        ("example.org", &["*.example.org"], false),
        ("a.example.org", &["*.example.org"], true),
        ("a.b.example.org", &["*.example.org"], true),
        ("evilexample.org", &["*.example.org"], false),
        ("evilexample.org", &["example.org"], false),
        ("example.org.evil.com", &["example.org", "*.example.org"], false),
        ("example.org", &["*", "*.", "", ".", "exam*.org", "*.org.", "http://example.org"], false),
        ("example.org", &["*.org"], true),
        ("bücher.example", &["bücher.example"], true),
        ("xn--bcher-kva.example", &["*.example"], true),
        ("8.8.8.8", &["8.8.8.8"], true),
        ("0x08080808", &["8.8.8.8"], true),
        ("8.8.8.8", &["*.8.8.8", "*.8"], false),
        ("[2606:4700::1]", &["[2606:4700:0::1]"], true),
    ];
    for (host, list, listed) in table {
        let target = Target::parse(&format!("http://{host}/")).unwrap();
        let list: Vec<String> = list.iter().map(|&host| host.to_owned()).collect();
        assert_eq!(target.is_listed(&list), *listed, "{host} in {list:?}");
    }
}

#[test]
fn recognizes_names_of_local_networks() {
    let inner = [
        "localhost",
        "LOCALHOST",
        "a.localhost",
        "printer.local",
        "metadata",
        "kubernetes",
        "metadata.google.internal",
        "router.lan",
        "nas.home.arpa",
        "ⓛocalhost",
    ];
    for host in inner {
        assert!(Target::parse(&format!("http://{host}/")).unwrap().is_local_name(), "{host}");
    }
    for host in ["example.org", "notlocalhost.org", "local.example.org", "8.8.8.8", "[::1]"] {
        assert!(!Target::parse(&format!("http://{host}/")).unwrap().is_local_name(), "{host}");
    }
}

#[test]
fn file_names_come_from_urls() {
    let long = "ü".repeat(150);
    // (last segment of the path, name)
    let table = [
        ("data.csv", "data.csv"),
        ("", NAMELESS),
        ("a%20b.csv", "a b.csv"),
        ("%C3%BC.csv", "ü.csv"),
        ("%ff.csv", "\u{fffd}.csv"),
        (".bashrc", NAMELESS),
        ("%2ebashrc", NAMELESS),
        ("...", NAMELESS),
        ("%20%20.env", NAMELESS),
        ("..%2f..%2fetc%2fpasswd", "passwd"),
        ("..%5c..%5cetc%5cpasswd", "passwd"),
        ("a%2f", NAMELESS),
        ("a%2f..", NAMELESS),
        ("a%00b%0ac%1b%5b1m.csv", "abc[1m.csv"),
        ("%00", NAMELESS),
        ("a%e2%80%aecsv.exe", "acsv.exe"),
        ("data.csv?x=/y.txt", "data.csv"),
        ("data.csv#/y.txt", "data.csv"),
        ("*", "*"),
    ];
    for (path, name) in table {
        let url = Url::parse(&format!("http://example.org/{path}")).unwrap();
        assert_eq!(file_name(&url, &url), name, "{path}");
    }
    let url = Url::parse(&format!("http://example.org/{long}.tar.gz")).unwrap();
    let name = file_name(&url, &url);
    assert!(name.len() > 250 && name.len() <= 255 && name.ends_with("ü.gz"), "{name}");

    // (length of the stem, length of the extension, those of the name)
    let table = [(251, 4, (251, 4)), (252, 4, (251, 4)), (300, 16, (239, 16)), (300, 17, (255, 0))];
    for (stem, extension, (kept, shown)) in table {
        let named = |stem: usize, extension: usize| {
            let dotted = format!(".{}", "e".repeat(extension.saturating_sub(1)));
            "s".repeat(stem) + &dotted[..extension.min(dotted.len())]
        };
        let url = format!("http://example.org/{}", named(stem, extension));
        let url = Url::parse(&url).unwrap();
        assert_eq!(file_name(&url, &url), named(kept, shown), "{stem} and {extension}");
    }

    let [asked, last] =
        ["http://a.org/x/", "http://b.org/y.csv"].map(|url| Url::parse(url).unwrap());
    assert_eq!(file_name(&asked, &last), "y.csv");
    assert_eq!(file_name(&last, &asked), "y.csv");
}

proptest! {
    #[test]
    fn parsing_never_panics(text in any::<String>(), location in any::<String>()) {
        if let Ok(target) = Target::parse(&text) {
            target.redirect(&location).ok();
        }
        let base = Target::parse("http://example.org/a").unwrap();
        if let Ok(target) = base.redirect(&location) {
            prop_assert!(matches!(target.url().scheme(), "http" | "https"));
        }
    }

    #[test]
    fn file_names_are_always_safe(segment in "[a-z%.0-9\\\\/ü\u{202e}]{0,300}", encoded: Vec<u8>) {
        let encoded = percent_encode(&encoded, NON_ALPHANUMERIC).to_string();
        for path in [segment, encoded] {
            let url = Url::parse(&format!("http://example.org/{path}")).unwrap();
            let name = file_name(&url, &url);
            prop_assert!((1..=255).contains(&name.len()));
            prop_assert!(!name.starts_with('.') && name.trim() == name);
            prop_assert!(!name.contains(|c: char| c.is_control() || "/\\".contains(c)), "{:?}", name);
        }
    }
}

#[test]
fn fuzz_urls() {
    const WORDS: &[&str] = &[
        "http://",
        "https://",
        "ftp://",
        "//",
        "@",
        ":80",
        ":22",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "127.1",
        "0x7f.1",
        "2130706433",
        "localhost",
        "public.test",
        "/../",
        "%2e",
        "?",
        "#",
        "\\",
        "\t",
        "xn--",
    ];
    woma_fuzz::Target { name: "urls", words: WORDS }.run(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let first = Target::parse("http://public.test/a/b").unwrap();
        for target in [Target::parse(&text), first.redirect(&text)] {
            let Ok(target) = target else { continue };
            let url = target.url();
            assert!(matches!(url.scheme(), "http" | "https"), "{url}");
            assert!(url.username().is_empty() && url.password().is_none(), "{url}");
            assert_eq!(url.port_or_known_default(), Some(target.port()), "{url}");
            assert!(target.path_and_query().starts_with('/'), "{url}");
            assert!(!target.path_and_query().contains(['\r', '\n', ' ']), "{url}");
            // Another reader of the same text finds the same host.
            assert_eq!(Target::parse(url.as_str()).ok().as_ref(), Some(&target), "{url}");
        }
    });
}
