//! Rules of a network: which hosts may be reached at which ports.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::host::{Host, is_below, split_port};

/// Ports of an entry that names none: HTTP and HTTPS.
pub(super) const WEB_PORTS: [u16; 2] = [80, 443];
/// Entries of one list.
const ENTRIES_MAX: usize = 256;
/// Ports of one entry.
const PORTS_MAX: usize = 8;

/// Rules of the server, a key, a policy or a session. The text form is `off`, `open`, or hosts
/// separated by commas: `data.example, *.example.org, api.example.org:8443`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum NetworkRules {
    #[default]
    Off,
    /// These hosts only; an empty list allows none.
    Allowlist(Vec<Entry>),
    /// Every public host.
    Open,
}

/// One entry of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pattern: Pattern,
    ports: Ports,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    Exactly(Host),
    /// Every name below this one, and not the name itself.
    Below(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Ports {
    Any,
    These(BTreeSet<u16>),
}

/// Text that is no rule of a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no rule of a network: {reason}")]
pub struct BadNetwork {
    text: String,
    reason: &'static str,
}

impl BadNetwork {
    fn new(text: &str, reason: &'static str) -> Self {
        Self { text: text.chars().take(80).collect::<String>().escape_debug().to_string(), reason }
    }

    /// Advice on the text.
    pub const HINT: &'static str = "write `off`, `open`, or hosts with optional ports, separated by \
        commas: `data.example, *.example.org, api.example.org:8443`";
}

impl NetworkRules {
    /// Reads a list of entries; without any, no host is allowed.
    pub fn of_hosts<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Self, BadNetwork> {
        let mut read = Vec::new();
        for text in entries {
            let entry = text.parse()?;
            if read.len() >= ENTRIES_MAX {
                return Err(BadNetwork::new(text, "a list has 256 entries at most"));
            }
            read.push(entry);
        }
        Ok(Self::Allowlist(read))
    }

    /// The rules in words: a list without hosts is `off`.
    pub(crate) fn told(&self) -> String {
        if self.is_off() { Self::Off.to_string() } else { self.to_string() }
    }

    /// Whether a list has an address in place of a name.
    pub(crate) fn has_addresses(&self) -> bool {
        let Self::Allowlist(entries) = self else { return false };
        entries.iter().any(|entry| matches!(entry.pattern, Pattern::Exactly(Host::Address(_))))
    }

    /// Whether no host can be reached.
    pub fn is_off(&self) -> bool {
        match self {
            Self::Off => true,
            Self::Allowlist(entries) => entries.is_empty(),
            Self::Open => false,
        }
    }

    /// Whether a host may be reached at a port.
    pub(crate) fn allows(&self, host: &Host, port: u16) -> bool {
        match self {
            Self::Off => false,
            Self::Open => true,
            Self::Allowlist(entries) => {
                entries.iter().any(|entry| entry.pattern.has(host) && entry.ports.has(port))
            }
        }
    }

    /// Whether a host may be reached at any port.
    pub(crate) fn allows_host(&self, host: &Host) -> bool {
        match self {
            Self::Off => false,
            Self::Open => true,
            Self::Allowlist(entries) => entries.iter().any(|entry| entry.pattern.has(host)),
        }
    }

    /// Ports that a list names for a host.
    pub(super) fn ports_of(&self, host: &Host) -> BTreeSet<u16> {
        let Self::Allowlist(entries) = self else { return BTreeSet::new() };
        let named = entries.iter().filter(|entry| entry.pattern.has(host));
        named.flat_map(|entry| entry.ports.listed()).collect()
    }

    /// The first part of these rules that is not within others, as text; `None` if all is.
    pub(crate) fn beyond(&self, outer: &Self) -> Option<String> {
        match (self, outer) {
            (Self::Off, _) | (_, Self::Open) => None,
            (Self::Open, _) => Some("open".to_owned()),
            (Self::Allowlist(inner), Self::Off) => inner.first().map(Entry::to_string),
            (Self::Allowlist(inner), Self::Allowlist(outer)) => inner
                .iter()
                .find(|entry| !outer.iter().any(|one| entry.is_within(one)))
                .map(Entry::to_string),
        }
    }
}

impl Entry {
    fn is_within(&self, outer: &Self) -> bool {
        let has_host = match (&self.pattern, &outer.pattern) {
            (Pattern::Exactly(host), pattern) => pattern.has(host),
            (Pattern::Below(inner), Pattern::Below(outer)) => {
                inner == outer || is_below(inner, outer)
            }
            (Pattern::Below(_), Pattern::Exactly(_)) => false,
        };
        has_host
            && match (&self.ports, &outer.ports) {
                (_, Ports::Any) => true,
                (Ports::Any, Ports::These(_)) => false,
                (Ports::These(inner), Ports::These(outer)) => inner.is_subset(outer),
            }
    }
}

impl Pattern {
    fn has(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::Exactly(one), other) => one == other,
            (Self::Below(parent), Host::Name(name)) => is_below(name, parent),
            (Self::Below(_), Host::Address(_)) => false,
        }
    }
}

impl Ports {
    fn has(&self, port: u16) -> bool {
        match self {
            Self::Any => true,
            Self::These(ports) => ports.contains(&port),
        }
    }

    fn listed(&self) -> impl Iterator<Item = u16> {
        match self {
            Self::Any => None,
            Self::These(ports) => Some(ports.iter().copied()),
        }
        .into_iter()
        .flatten()
    }
}

impl FromStr for Entry {
    type Err = BadNetwork;

    fn from_str(text: &str) -> Result<Self, BadNetwork> {
        let bad = |reason| BadNetwork::new(text, reason);
        let trimmed = text.trim();
        if trimmed.contains("://") || trimmed.contains('/') {
            return Err(bad("an entry is a host, without a scheme and a path"));
        }
        let (host, ports) =
            split_port(trimmed).ok_or_else(|| bad("a bracket of the address is missing"))?;
        if host.contains(':') && !host.starts_with('[') {
            return Err(bad("an IPv6 address is written in brackets"));
        }
        let host_of =
            |text: &str| Host::written(text).ok_or_else(|| bad("it is no name of a host"));
        // A list of one such host would be written as the word that it is not.
        let stands_alone = |host: &Host| ["off", "open"].contains(&host.to_string().as_str());
        let pattern = match host.strip_prefix("*.") {
            None if host == "*" => return Err(bad("every host is written `open`")),
            None => Pattern::Exactly(host_of(host)?),
            Some(parent) => match host_of(parent)? {
                Host::Name(name) => Pattern::Below(name),
                Host::Address(_) => return Err(bad("an address has no names below it")),
            },
        };
        if matches!(&pattern, Pattern::Exactly(host) if stands_alone(host)) {
            return Err(bad("`off` and `open` stand alone, and no host has such a name"));
        }
        let ports = match ports {
            None => Ports::These(WEB_PORTS.into_iter().collect()),
            Some("*") => Ports::Any,
            Some(listed) => {
                let port = |text: &str| text.parse().ok().filter(|port: &u16| *port > 0);
                let ports: Option<BTreeSet<u16>> = listed.split('+').map(port).collect();
                let ports =
                    ports.ok_or_else(|| bad("a port is a number from 1 to 65535, or `*`"))?;
                if ports.len() > PORTS_MAX {
                    return Err(bad("an entry has 8 ports at most; `*` is every port"));
                }
                Ports::These(ports)
            }
        };
        Ok(Self { pattern, ports })
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pattern {
            Pattern::Exactly(host) => host.fmt(formatter)?,
            Pattern::Below(parent) => write!(formatter, "*.{parent}")?,
        }
        match &self.ports {
            Ports::Any => formatter.write_str(":*"),
            Ports::These(ports) if ports.iter().eq(&WEB_PORTS) => Ok(()),
            Ports::These(ports) => {
                let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
                write!(formatter, ":{}", ports.join("+"))
            }
        }
    }
}

impl FromStr for NetworkRules {
    type Err = BadNetwork;

    fn from_str(text: &str) -> Result<Self, BadNetwork> {
        match text.trim() {
            "off" => Ok(Self::Off),
            "open" => Ok(Self::Open),
            listed => {
                let is_between = |c: char| c == ',' || c.is_whitespace();
                Self::of_hosts(listed.split(is_between).filter(|entry| !entry.is_empty()))
            }
        }
    }
}

impl fmt::Display for NetworkRules {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => formatter.write_str("off"),
            Self::Open => formatter.write_str("open"),
            // A list without entries, read again, is what it is: a list without entries.
            Self::Allowlist(entries) => {
                let entries: Vec<_> = entries.iter().map(Entry::to_string).collect();
                formatter.write_str(&entries.join(", "))
            }
        }
    }
}

impl Serialize for NetworkRules {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for NetworkRules {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::{Host, NetworkRules};

    fn rules(text: &str) -> NetworkRules {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn allows(rules: &NetworkRules, authority: &str) -> bool {
        let (host, port) = Host::with_port(authority, Some(443)).unwrap();
        rules.allows(&host, port)
    }

    #[test]
    fn a_list_allows_what_it_names_and_nothing_else() {
        let listed = rules(
            "data.example, *.example.org api.example.net:8443 db.test:* [2606:4700::1]:53+443",
        );
        for (authority, is_allowed) in [
            ("data.example", true),
            ("data.example:80", true),
            ("data.example:8443", false),
            ("www.data.example", false),
            ("data.example.evil.test", false),
            ("evildata.example", false),
            ("a.example.org", true),
            ("a.b.example.org", true),
            ("example.org", false),
            ("badexample.org", false),
            ("api.example.net:8443", true),
            ("api.example.net", false),
            ("db.test:5432", true),
            ("[2606:4700::1]:53", true),
            ("[2606:4700::1]:80", false),
            ("[2606:4700::2]:53", false),
            ("93.184.215.14", false),
        ] {
            assert_eq!(allows(&listed, authority), is_allowed, "{authority}");
        }
        for (text, is_allowed) in [("off", false), ("", false), (" , ", false), ("open", true)] {
            assert_eq!(allows(&rules(text), "data.example"), is_allowed, "{text:?}");
            assert_eq!(rules(text).is_off(), !is_allowed, "{text:?}");
        }
    }

    #[test]
    fn rules_are_written_as_they_are_read() {
        for (text, shown) in [
            ("off", "off"),
            ("open", "open"),
            ("", ""),
            ("Data.Example.,*.Example.org:443+80", "data.example, *.example.org"),
            ("Bücher.example:8443", "xn--bcher-kva.example:8443"),
            ("127.1:*", "127.0.0.1:*"),
        ] {
            assert_eq!(rules(text).to_string(), shown);
            assert_eq!(rules(shown), rules(text));
            let json = serde_json::to_string(&rules(text)).unwrap();
            assert_eq!(serde_json::from_str::<NetworkRules>(&json).unwrap(), rules(text));
        }
    }

    #[test]
    fn refuses_text_that_is_no_rule() {
        for text in [
            "*",
            "*:443",
            "https://data.example",
            "data.example/simple",
            "a..b",
            "evil\0.data.example",
            "*.10.0.0.1",
            "data.example:0",
            "data.example:x",
            "data.example:",
            "::1",
            "[::1",
            "a*.data.example",
            "*.*.org",
            "a:1+2+3+4+5+6+7+8+9",
            "open,",
            "a.test, OFF",
            "open:443",
        ] {
            let error = text.parse::<NetworkRules>().unwrap_err().to_string();
            assert!(error.contains("is no rule of a network: "), "{text:?}: {error}");
        }
        let many = |count: usize| vec!["a.test"; count].join(",");
        assert!(many(256).parse::<NetworkRules>().is_ok());
        let error = many(257).parse::<NetworkRules>().unwrap_err().to_string();
        assert!(error.contains("256 entries at most"), "{error}");
    }

    #[test]
    fn rules_are_within_others_or_say_what_is_beyond() {
        for (inner, outer, beyond) in [
            ("off", "off", None),
            ("", "off", None),
            ("data.example", "open", None),
            ("open", "open", None),
            ("open", "data.example", Some("open")),
            ("data.example", "off", Some("data.example")),
            ("data.example", "data.example, a.test", None),
            ("a.test:8443", "a.test", Some("a.test:8443")),
            ("a.test:8443", "a.test:*", None),
            ("a.test:*", "a.test", Some("a.test:*")),
            ("x.a.test", "*.a.test", None),
            ("*.x.a.test", "*.a.test", None),
            ("*.a.test", "*.x.a.test", Some("*.a.test")),
            ("*.a.test", "a.test", Some("*.a.test")),
            ("a.test", "*.a.test", Some("a.test")),
        ] {
            assert_eq!(rules(inner).beyond(&rules(outer)).as_deref(), beyond, "{inner} in {outer}");
        }
    }
}
