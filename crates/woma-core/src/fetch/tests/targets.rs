//! Addresses as text: what is taken, as what, and what is not.

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use proptest::prelude::*;
use url::Url;

use crate::fetch::NAMELESS;
use crate::fetch::name::file_name;
use crate::fetch::target::Target;

/// What is taken, and how it is asked for: authority and path.
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
    // Numbers are addresses in whatever form, and are judged as such later.
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

/// What is not taken, and a part of what is said.
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
    ("http://a..b/", "not a name of DNS"),
    ("http://.example.org/", "not a name of DNS"),
    ("http://exa!mple.org/", "not a name of DNS"),
    ("http://*.example.org/", "not a name of DNS"),
    ("http://example.org;127.0.0.1/", "invalid IPv4 address"),
    ("http://127.0.0.1;example.org/", "not a name of DNS"),
    ("http://example.org,127.0.0.1/", "invalid IPv4 address"),
    ("http://127.0.0.1,example.org/", "not a name of DNS"),
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
fn a_good_address_is_asked_for_as_it_was_read() {
    for (text, authority, path) in TAKEN {
        let target = Target::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!((target.authority(), target.path_and_query()), (*authority, *path), "{text}");
        // What was read once is read the same way again.
        assert_eq!(Target::parse(target.url().as_str()).unwrap(), target, "{text}");
    }
}

#[test]
fn a_bad_address_is_refused_for_its_reason() {
    let long = [
        format!("http://example.org/{}", "a".repeat(8192)),
        format!("http://example.org/{}", "ü".repeat(2000)),
    ];
    let longs = long.iter().map(|text| (text.as_str(), "too long"));
    let label = format!("http://{}.org/", "a".repeat(64));
    let name = format!("http://{}org/", "abcdefg.".repeat(40));
    let names = [&label, &name].map(|text| (text.as_str(), "not a name of DNS"));
    for (text, said) in REFUSED.iter().copied().chain(longs).chain(names) {
        let error = Target::parse(text).expect_err(text);
        assert!(error.to_string().contains(said), "{text:.80}: {error}");
        assert!(!error.hint().is_empty());
    }
}

#[test]
fn a_redirect_is_read_like_an_address() {
    // (from, location, where it leads or what is said)
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
fn a_list_of_hosts_means_what_it_says() {
    // (host of the address, list, whether it is listed)
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
        assert_eq!(target.listed(&list), *listed, "{host} in {list:?}");
    }
}

#[test]
fn names_of_local_networks_are_known() {
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
        assert!(Target::parse(&format!("http://{host}/")).unwrap().inner(), "{host}");
    }
    for host in ["example.org", "notlocalhost.org", "local.example.org", "8.8.8.8", "[::1]"] {
        assert!(!Target::parse(&format!("http://{host}/")).unwrap().inner(), "{host}");
    }
}

#[test]
fn a_file_is_named_after_its_address() {
    let long = "ü".repeat(150);
    // (last part of the path, name)
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

    let [asked, last] =
        ["http://a.org/x/", "http://b.org/y.csv"].map(|url| Url::parse(url).unwrap());
    assert_eq!(file_name(&asked, &last), "y.csv");
    assert_eq!(file_name(&last, &asked), "y.csv");
}

proptest! {
    #[test]
    fn any_text_is_taken_or_refused(text in any::<String>(), location in any::<String>()) {
        if let Ok(target) = Target::parse(&text) {
            target.redirect(&location).ok();
        }
        let base = Target::parse("http://example.org/a").unwrap();
        if let Ok(target) = base.redirect(&location) {
            prop_assert!(matches!(target.url().scheme(), "http" | "https"));
        }
    }

    #[test]
    fn a_name_of_a_file_is_always_harmless(segment in "[a-z%.0-9\\\\/ü\u{202e}]{0,300}", encoded: Vec<u8>) {
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
