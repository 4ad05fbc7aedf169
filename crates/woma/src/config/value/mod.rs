//! Values of settings, and the parser of each kind. Pure: reads no file and no environment.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::Duration;

use axum::http::Uri;
use woma_core::{NetworkRules, PlacedHosts};

use super::network::Network;
use super::types::Secret;

pub(crate) const MIB: u64 = 1024 * 1024;
/// Smallest size that fits a session.
const MEMORY_MIN: u64 = 64 * MIB;
const LIST_ITEMS_MAX: usize = 1000;

/// Kind of a setting: its parser, and the expectation for error messages.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Bool,
    Integer {
        min: u64,
        max: u64,
    },
    Decimal {
        min: f64,
        max: f64,
    },
    /// A plain number counts seconds or hours; `min` and `max` count the same.
    Time {
        unit: TimeUnit,
        min: u64,
        max: u64,
    },
    /// A plain number counts bytes or mebibytes; `min` and `max` are bytes.
    Size {
        unit: SizeUnit,
        min: u64,
        max: u64,
    },
    /// Mebibytes, or a percentage of the machine's memory.
    Memory,
    /// Bytes, or characters with the unit `chars`.
    Output,
    /// Mebibytes, or a percentage.
    Reserve,
    Text,
    /// Text that is valid in an HTTP header.
    Token,
    Path,
    Host,
    /// Not normalized: token issuers are compared exactly.
    Url,
    /// Without a trailing slash: paths are appended to it.
    BaseUrl,
    UrlOrPath,
    /// An address that may hold a password.
    Database,
    Choice(&'static [&'static str]),
    List,
    /// Names of hosts, or `*`.
    Hosts,
    /// Origins of browsers (`https://host:port`), or `*`.
    Origins,
    /// `true`, `false`, or addresses and networks of proxies.
    Proxies,
    /// Names of tools, or `usual`, `canonical` or `all`.
    Tools,
    /// `off`, `open`, or hosts with ports.
    NetworkRules,
    /// Hosts with an address each.
    PlacedHosts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeUnit {
    Seconds,
    Hours,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SizeUnit {
    Bytes,
    Mebibytes,
}

/// Parsed value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Unset,
    Bool(bool),
    Integer(u64),
    Decimal(f64),
    Time(Duration),
    Bytes(u64),
    Percent(u64),
    Characters(u64),
    Text(String),
    Secret(Secret),
    List(Vec<String>),
}

/// Parses a text as this kind; on `None`, [`Kind::expected`] describes valid text.
pub(crate) fn parse(kind: Kind, text: &str) -> Option<Value> {
    let text = text.trim();
    match kind {
        Kind::Bool => boolean(text).map(Value::Bool),
        Kind::Integer { min, max } => {
            whole(text).filter(|number| (min..=max).contains(number)).map(Value::Integer)
        }
        Kind::Decimal { min, max } => {
            decimal(text).filter(|number| (min..=max).contains(number)).map(Value::Decimal)
        }
        Kind::Time { unit, min, max } => time(text, unit, min, max).map(Value::Time),
        Kind::Size { unit, min, max } => {
            size(text, unit).filter(|bytes| (min..=max).contains(bytes)).map(Value::Bytes)
        }
        Kind::Memory => memory(text),
        Kind::Output => output(text),
        Kind::Reserve => reserve(text),
        Kind::Token => {
            secret(text).filter(|_| text.bytes().all(|byte| (0x20..0x7f).contains(&byte)))
        }
        Kind::Host => host(text).map(Value::Text),
        Kind::Url => url(text).then(|| Value::Text(text.to_owned())),
        Kind::BaseUrl => url(text).then(|| Value::Text(text.trim_end_matches('/').to_owned())),
        Kind::UrlOrPath if text.contains("://") => parse(Kind::Url, text),
        Kind::Text | Kind::Path | Kind::UrlOrPath => plain(text),
        Kind::Database => secret(text).filter(|_| database(text)),
        Kind::Choice(choices) => choice(text, choices).map(|chosen| Value::Text(chosen.to_owned())),
        Kind::List => list(text, |item| !item.contains(char::is_control)),
        Kind::Hosts => list(text, |item| item == "*" || host(item).is_some()),
        Kind::Origins => list(text, |item| item == "*" || item == "null" || origin(item)),
        Kind::Proxies => proxies(text),
        Kind::Tools => list(text, tool),
        Kind::NetworkRules => {
            text.parse().ok().map(|rules: NetworkRules| Value::Text(rules.to_string()))
        }
        Kind::PlacedHosts => plain(text).filter(|_| text.parse::<PlacedHosts>().is_ok()),
    }
}

impl Kind {
    /// Whether a value must not be printed.
    pub(crate) fn is_secret(self) -> bool {
        matches!(self, Self::Token | Self::Database)
    }

    /// Description of valid text; completes "expected".
    pub(crate) fn expected(self) -> String {
        match self {
            Self::Bool => "true or false".to_owned(),
            Self::Integer { min, max } => format!("a whole number from {min} to {max}"),
            Self::Decimal { min, max } => format!("a number from {min} to {max}"),
            Self::Time { unit: TimeUnit::Seconds, min, max } => {
                format!("seconds from {min} to {max}, or a time such as 500ms, 2m or 1h")
            }
            Self::Time { unit: TimeUnit::Hours, min, max } => {
                format!("hours from {min} to {max}, or a time such as 90m or 12h")
            }
            Self::Size { unit, min, max } => {
                let unit = if unit == SizeUnit::Bytes { "bytes" } else { "mebibytes" };
                let (min, max) = (show_bytes(min), show_bytes(max));
                format!(
                    "a size from {min} to {max}: {unit}, or with a unit such as 512k, 256m or 2g"
                )
            }
            Self::Memory => "mebibytes, a size such as 8g, or a percentage such as 75%".to_owned(),
            Self::Output => {
                "a size in bytes such as 1048576 or 1m, or characters such as `10000 chars`".into()
            }
            Self::Reserve => "mebibytes, a size such as 10g, or a percentage such as 5%".to_owned(),
            Self::Text => "text without control characters".to_owned(),
            Self::Token => "visible ASCII characters".to_owned(),
            Self::Path => "a path".to_owned(),
            Self::Host => "an IP address or a host name".to_owned(),
            Self::Url | Self::BaseUrl => "a URL that begins with http:// or https://".to_owned(),
            Self::UrlOrPath => "a path, or a URL that begins with http:// or https://".into(),
            Self::Database => {
                "postgres://…, postgresql://…, postgresql+asyncpg://… or sqlite:…".into()
            }
            Self::Choice(choices) => one_of(choices),
            Self::List => "a list, separated by commas".to_owned(),
            Self::Hosts => "host names, separated by commas, or *".to_owned(),
            Self::Origins => {
                "origins such as https://example.com, separated by commas, or *".into()
            }
            Self::Proxies => {
                "true, false, or addresses and networks such as 10.0.0.0/8, separated by commas"
                    .into()
            }
            Self::NetworkRules => {
                "`off`, `open`, or hosts with optional ports, separated by commas: `data.example, \
                 *.example.org, api.example.org:8443`"
                    .to_owned()
            }
            Self::PlacedHosts => "NAME:PORT=ADDRESS:PORT, separated by commas".to_owned(),
            Self::Tools => {
                "`usual`, `canonical`, `all`, or names of tools, separated by commas".to_owned()
            }
        }
    }
}

fn one_of(choices: &[&str]) -> String {
    match choices {
        [] => "no value".to_owned(),
        [only] => format!("`{only}`"),
        [first @ .., last] => format!("`{}` or `{last}`", first.join("`, `")),
    }
}

impl Value {
    /// The value with its unit, for people.
    pub(crate) fn show(&self) -> String {
        match self {
            Self::Unset => "(unset)".to_owned(),
            Self::Bool(value) => value.to_string(),
            Self::Integer(value) => value.to_string(),
            Self::Decimal(value) => value.to_string(),
            Self::Time(value) => match value.as_secs() {
                seconds if seconds >= 3600 && *value == Duration::from_hours(seconds / 3600) => {
                    format!("{} h", seconds / 3600)
                }
                _ => format!("{} s", value.as_secs_f64()),
            },
            Self::Bytes(value) => show_bytes(*value),
            Self::Percent(value) => format!("{value}%"),
            Self::Characters(value) => format!("{value} chars"),
            Self::Text(value) => value.clone(),
            Self::Secret(_) => "(set)".to_owned(),
            Self::List(items) if items.is_empty() => "(empty)".to_owned(),
            Self::List(items) => items.join(","),
        }
    }

    /// The value for programs: times in seconds, sizes in bytes.
    pub(crate) fn json(&self) -> serde_json::Value {
        match self {
            Self::Unset => serde_json::Value::Null,
            Self::Bool(value) => (*value).into(),
            Self::Integer(value) | Self::Bytes(value) => (*value).into(),
            Self::Decimal(value) => (*value).into(),
            Self::Time(value) => value.as_secs_f64().into(),
            Self::Text(value) => value.clone().into(),
            Self::Characters(_) | Self::Percent(_) | Self::Secret(_) => self.show().into(),
            Self::List(items) => items.clone().into(),
        }
    }
}

fn show_bytes(bytes: u64) -> String {
    for (unit, factor) in [("GiB", 1024 * MIB), ("MiB", MIB), ("KiB", 1024)] {
        if bytes >= factor && bytes.is_multiple_of(factor) {
            return format!("{} {unit}", bytes / factor);
        }
    }
    format!("{bytes} bytes")
}

fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Some(true),
        "false" | "0" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// Parses digits only: `parse` alone would accept a sign.
fn whole(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Parses digits and one point only: `parse` alone would accept `inf`, `nan` and exponents.
fn decimal(text: &str) -> Option<f64> {
    text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.').then(|| text.parse().ok())?
}

/// A number and the letters after it, in lower case.
fn split(text: &str) -> (&str, String) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim().to_ascii_lowercase())
}

fn time(text: &str, plain: TimeUnit, min: u64, max: u64) -> Option<Duration> {
    let hour = 3600.0;
    let (number, unit) = split(text);
    let seconds = match unit.as_str() {
        "" if plain == TimeUnit::Hours => hour,
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => hour,
        "d" => 24.0 * hour,
        _ => return None,
    };
    let wanted = Duration::try_from_secs_f64(decimal(number)? * seconds).ok()?;
    let unit = if plain == TimeUnit::Hours { 3600 } else { 1 };
    let range = Duration::from_secs(min * unit)..=Duration::from_secs(max * unit);
    range.contains(&wanted).then_some(wanted)
}

fn size(text: &str, plain: SizeUnit) -> Option<u64> {
    let (number, unit) = split(text);
    let factor = match unit.as_str() {
        "" if plain == SizeUnit::Mebibytes => MIB,
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1024,
        "m" | "mb" | "mib" => MIB,
        "g" | "gb" | "gib" => 1024 * MIB,
        _ => return None,
    };
    whole(number)?.checked_mul(factor)
}

fn memory(text: &str) -> Option<Value> {
    if let Some(percent) = text.strip_suffix('%') {
        return whole(percent.trim_end()).filter(|n| (1..=100).contains(n)).map(Value::Percent);
    }
    let range = MEMORY_MIN..=4096 * 1024 * MIB;
    size(text, SizeUnit::Mebibytes).filter(|bytes| range.contains(bytes)).map(Value::Bytes)
}

fn output(text: &str) -> Option<Value> {
    let range = 1..=1024 * MIB;
    let lower = text.to_ascii_lowercase();
    for unit in ["characters", "chars"] {
        if let Some(number) = lower.strip_suffix(unit) {
            let count = whole(number.trim_end()).filter(|count| range.contains(count));
            return count.map(Value::Characters);
        }
    }
    size(text, SizeUnit::Bytes).filter(|bytes| range.contains(bytes)).map(Value::Bytes)
}

/// A percentage stays as written.
fn reserve(text: &str) -> Option<Value> {
    match text.strip_suffix('%') {
        Some(part) => decimal(part).filter(|part| *part <= 50.0).and_then(|_| plain(text)),
        None => size(text, SizeUnit::Mebibytes).map(Value::Bytes),
    }
}

fn plain(text: &str) -> Option<Value> {
    (!text.is_empty() && !text.contains(char::is_control)).then(|| Value::Text(text.to_owned()))
}

fn secret(text: &str) -> Option<Value> {
    plain(text).map(|_| Value::Secret(Secret::from(text.to_owned())))
}

/// Host address or name, without the brackets of an IPv6 address.
fn host(text: &str) -> Option<String> {
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    if inner.parse::<IpAddr>().is_ok() {
        return Some(inner.to_owned());
    }
    let of_a_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_name = text.len() <= 253 && text.starts_with(|c: char| c.is_ascii_alphanumeric());
    // `1.2.3` and `999.1.1.1` are mistyped addresses, not names.
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    (is_name && !is_number && text.bytes().all(of_a_name)).then(|| text.to_ascii_lowercase())
}

fn url(text: &str) -> bool {
    let Ok(parsed) = text.parse::<Uri>() else { return false };
    let known = matches!(parsed.scheme_str(), Some("http" | "https"));
    let named = parsed.host().is_some_and(|name| !name.is_empty());
    // A password in an address would be printed with it.
    let anonymous = parsed.authority().is_some_and(|authority| !authority.as_str().contains('@'));
    known && named && anonymous
}

fn origin(text: &str) -> bool {
    let Ok(parsed) = text.parse::<Uri>() else { return false };
    url(text) && parsed.path() == "/" && parsed.query().is_none() && !text.ends_with('/')
}

fn database(text: &str) -> bool {
    let schemes = ["postgres://", "postgresql://", "postgresql+asyncpg://", "sqlite:"];
    let rest = schemes.iter().find_map(|scheme| text.strip_prefix(scheme));
    rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(char::is_control))
}

/// Compares choices without case, with `-` equal to `_`.
fn choice(text: &str, choices: &[&'static str]) -> Option<&'static str> {
    let normal = |text: &str| text.to_ascii_lowercase().replace('_', "-");
    let wanted = normal(text);
    choices.iter().copied().find(|choice| normal(choice) == wanted)
}

/// Splits at commas, or parses a JSON array, as older systems do.
fn list(text: &str, accepts: impl Fn(&str) -> bool) -> Option<Value> {
    let items: Vec<String> = if text.starts_with('[') && text.ends_with(']') {
        serde_json::from_str(text).ok()?
    } else {
        text.split(',').map(str::to_owned).collect()
    };
    let items: Vec<String> = items.iter().map(|item| item.trim().to_owned()).collect();
    let items: Vec<String> = items.into_iter().filter(|item| !item.is_empty()).collect();
    (items.len() <= LIST_ITEMS_MAX && items.iter().all(|item| accepts(item)))
        .then_some(Value::List(items))
}

/// `*`, as other servers spell it, is `true`.
fn proxies(text: &str) -> Option<Value> {
    match boolean(text) {
        Some(flag) => Some(Value::Bool(flag)),
        None if text == "*" => Some(Value::Bool(true)),
        None => list(text, |item| Network::parse(item).is_some())
            .filter(|value| *value != Value::List(Vec::new())),
    }
}

fn tool(name: &str) -> bool {
    let of_a_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    name.len() <= 64 && name.bytes().all(of_a_name)
}

/// A value for an error message: truncated, without control characters.
pub(crate) fn quote(text: &str) -> String {
    const SHOWN_MAX: usize = 120;
    let mut shown = String::from("`");
    for character in text.chars().take(SHOWN_MAX) {
        if character.is_control() {
            write!(shown, "{}", character.escape_default()).unwrap_or_default();
        } else {
            shown.push(character);
        }
    }
    if text.chars().nth(SHOWN_MAX).is_some() {
        shown.push('…');
    }
    shown + "`"
}

#[cfg(test)]
mod tests;
