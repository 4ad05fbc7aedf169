//! Values of every kind, as they are written and shown.

use super::*;

const SECONDS: Kind = Kind::Time { unit: TimeUnit::Seconds, min: 1, max: 86_400 };
const HOURS: Kind = Kind::Time { unit: TimeUnit::Hours, min: 0, max: 8_760 };
const BYTES: Kind = Kind::Size { unit: SizeUnit::Bytes, min: 1, max: 1024 * MIB };
const MEBIBYTES: Kind = Kind::Size { unit: SizeUnit::Mebibytes, min: MIB, max: 1024 * 1024 * MIB };

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn texts(items: &[&str]) -> Value {
    Value::List(items.iter().map(|item| (*item).to_owned()).collect())
}

#[test]
fn texts_become_values() {
    let rows = [
        (Kind::Bool, "TRUE", Value::Bool(true)),
        (Kind::Bool, " off ", Value::Bool(false)),
        (Kind::Integer { min: 0, max: 65_535 }, "65535", Value::Integer(65_535)),
        (Kind::Decimal { min: 0.1, max: 64.0 }, "0.5", Value::Decimal(0.5)),
        (SECONDS, "30", Value::Time(Duration::from_secs(30))),
        (SECONDS, "1500ms", Value::Time(Duration::from_millis(1500))),
        (SECONDS, "2m", Value::Time(Duration::from_secs(120))),
        (HOURS, "72", Value::Time(Duration::from_secs(72 * 3600))),
        (HOURS, "0", Value::Time(Duration::ZERO)),
        (HOURS, "90m", Value::Time(Duration::from_secs(5400))),
        (BYTES, "1048576", Value::Bytes(MIB)),
        (BYTES, "128m", Value::Bytes(128 * MIB)),
        (BYTES, "512 KB", Value::Bytes(512 * 1024)),
        (MEBIBYTES, "4096", Value::Bytes(4096 * MIB)),
        (MEBIBYTES, "4g", Value::Bytes(4096 * MIB)),
        (Kind::Output, "1m", Value::Bytes(MIB)),
        (Kind::Output, "10000 chars", Value::Characters(10_000)),
        (Kind::Reserve, "2048", Value::Bytes(2048 * MIB)),
        (Kind::Reserve, "7.5%", text("7.5%")),
        (Kind::Host, "0.0.0.0", text("0.0.0.0")),
        (Kind::Host, "[::1]", text("::1")),
        (Kind::Host, "LocalHost", text("localhost")),
        (Kind::Url, "https://example.com/woma/", text("https://example.com/woma/")),
        (Kind::BaseUrl, "https://example.com/woma/", text("https://example.com/woma")),
        (Kind::UrlOrPath, "keys/jwks.json", text("keys/jwks.json")),
        (Kind::Database, "sqlite:a.db", Value::Secret(Secret::from("sqlite:a.db".to_owned()))),
        (Kind::Token, " k 1 ", Value::Secret(Secret::from("k 1".to_owned()))),
        (Kind::Choice(&["ibm-sandbox"]), "IBM_Sandbox", text("ibm-sandbox")),
        (Kind::List, "a, b,,c", texts(&["a", "b", "c"])),
        (Kind::Hosts, "[\"*\"]", texts(&["*"])),
        (Kind::Memory, "75 %", Value::Percent(75)),
        (Kind::Memory, "2g", Value::Bytes(2048 * MIB)),
        (Kind::Memory, "512", Value::Bytes(512 * MIB)),
        (Kind::Origins, "https://a.example:8443", texts(&["https://a.example:8443"])),
        (Kind::Tools, "execute_code,pip_install", texts(&["execute_code", "pip_install"])),
    ];
    for (kind, text, value) in rows {
        assert_eq!(parse(kind, text), Some(value), "{kind:?} {text}");
    }
}

#[test]
fn rejects_text_of_another_kind() {
    let rows = [
        (Kind::Bool, "maybe"),
        (Kind::Bool, "2"),
        (Kind::Integer { min: 0, max: 65_535 }, "65536"),
        (Kind::Integer { min: 1, max: 9 }, "0"),
        (Kind::Integer { min: 0, max: 9 }, "-1"),
        (Kind::Integer { min: 0, max: 9 }, "+1"),
        (Kind::Integer { min: 0, max: u64::MAX }, "99999999999999999999999"),
        (Kind::Integer { min: 0, max: 9 }, "1.5"),
        (Kind::Decimal { min: 0.1, max: 64.0 }, "inf"),
        (Kind::Decimal { min: 0.1, max: 64.0 }, "nan"),
        (Kind::Decimal { min: 0.1, max: 64.0 }, "1e1"),
        (Kind::Decimal { min: 0.1, max: 64.0 }, "0"),
        (SECONDS, "0"),
        (SECONDS, "-5"),
        (SECONDS, "25h"),
        (SECONDS, "10 parsecs"),
        (SECONDS, "."),
        (BYTES, "10x"),
        (BYTES, "0"),
        (BYTES, "18446744073709551615g"),
        (MEBIBYTES, "half"),
        (Kind::Memory, "0%"),
        (Kind::Memory, "101%"),
        (Kind::Memory, "63"),
        (Kind::Output, "chars"),
        (Kind::Output, "0"),
        (Kind::Text, "a\nb"),
        (Kind::Token, "schlüssel"),
        (Kind::Host, "999.1.1.1"),
        (Kind::Host, "a b"),
        (Kind::Host, "http://host"),
        (Kind::Url, "example.com"),
        (Kind::Url, "ftp://example.com"),
        (Kind::Url, "https://user:password@example.com"),
        (Kind::UrlOrPath, "ftp://example.com/x"),
        (Kind::Database, "mysql://h/d"),
        (Kind::Database, "postgres://"),
        (Kind::Choice(&["json", "plain"]), "xml"),
        (Kind::Hosts, "a/b"),
        (Kind::Origins, "example.com"),
        (Kind::Origins, "https://example.com/path"),
        (Kind::Tools, "execute-code"),
        (Kind::List, "[1, 2]"),
    ];
    for (kind, text) in rows {
        assert_eq!(parse(kind, text), None, "{kind:?} {text}");
    }
}

#[test]
fn quoted_values_are_short_and_printable() {
    assert_eq!(quote("a\u{1b}[2J"), "`a\\u{1b}[2J`");
    assert!(quote(&"x".repeat(10_000)).len() < 130);
}
