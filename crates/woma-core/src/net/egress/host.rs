//! Names and addresses of hosts, read once: what is judged is what is resolved and connected to.

use std::fmt;
use std::net::IpAddr;

/// Longest name, and longest part of one, in bytes.
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// Names that resolve only inside a local network.
const LOCAL_NAMES: &[&str] = &["localhost", "local", "internal", "intranet", "lan", "home.arpa"];

/// A host that code wants to reach. Its text has one form: ASCII, lower case, no final dot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Host {
    Name(String),
    Address(IpAddr),
}

impl Host {
    /// Reads a host as a program sends it: a name, an IPv4 address in any notation that some
    /// resolver would take for one, or an IPv6 address with or without brackets. One final dot is
    /// taken off: it says that the name is complete, as all names here are.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let text = text.strip_suffix(b".").unwrap_or(text);
        let text = str::from_utf8(text).ok().filter(|text| text.is_ascii())?;
        let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        if inner.is_some() || text.contains(':') {
            let address = inner.unwrap_or(text).parse().ok()?;
            return Some(Self::Address(IpAddr::V6(address)));
        }
        let name = text.to_ascii_lowercase();
        if !is_name(&name) {
            return None;
        }
        match url::Host::parse(&name) {
            Ok(url::Host::Ipv4(address)) => Some(Self::Address(IpAddr::V4(address))),
            Ok(url::Host::Domain(parsed)) if parsed == name => Some(Self::Name(name)),
            _ => None,
        }
    }

    /// Reads a host as an operator writes it, who may use letters beyond ASCII.
    pub(super) fn written(text: &str) -> Option<Self> {
        if text.is_ascii() {
            return Self::parse(text.as_bytes());
        }
        match url::Host::parse(text) {
            Ok(url::Host::Domain(name)) => Self::parse(name.as_bytes()),
            _ => None,
        }
    }

    /// Host and port of an authority: `example.org:443`. Without a port, `default`.
    pub(crate) fn with_port(authority: &str, default: Option<u16>) -> Option<(Self, u16)> {
        let (host, port) = split_port(authority)?;
        let port = match port {
            Some(port) => port
                .parse()
                .ok()
                .filter(|port| *port > 0 && !leads_with_zero(port_text(authority)))?,
            None => default?,
        };
        // An address of IPv6 needs its brackets here.
        if host.contains(':') && !host.starts_with('[') {
            return None;
        }
        Some((Self::parse(host.as_bytes())?, port))
    }

    /// Whether it has a name of a local network.
    pub(super) fn is_local_name(&self) -> bool {
        let Self::Name(name) = self else { return false };
        !name.contains('.') || LOCAL_NAMES.iter().any(|local| is_below_or(name, local))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => formatter.write_str(name),
            Self::Address(IpAddr::V4(address)) => address.fmt(formatter),
            Self::Address(IpAddr::V6(address)) => write!(formatter, "[{address}]"),
        }
    }
}

fn port_text(authority: &str) -> &str {
    authority.rsplit(':').next().unwrap_or_default()
}

fn leads_with_zero(port: &str) -> bool {
    !port.bytes().all(|byte| byte.is_ascii_digit()) || port.starts_with('0')
}

/// The host and the text of the port, if there is one.
pub(super) fn split_port(text: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let end = rest.find(']')? + 2;
        let (host, rest) = text.split_at(end);
        return match rest.strip_prefix(':') {
            Some(port) => Some((host, Some(port))),
            None if rest.is_empty() => Some((host, None)),
            None => None,
        };
    }
    Some(match text.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    })
}

/// Whether a text in lower case is a name that DNS can have.
pub(super) fn is_name(name: &str) -> bool {
    let known = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'-' | b'_');
    let label =
        |label: &str| (1..=LABEL_BYTES_MAX).contains(&label.len()) && label.bytes().all(known);
    name.len() <= NAME_BYTES_MAX && name.split('.').all(label)
}

/// Whether `name` ends with `.parent`.
pub(super) fn is_below(name: &str, parent: &str) -> bool {
    name.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'))
}

fn is_below_or(name: &str, parent: &str) -> bool {
    name == parent || is_below(name, parent)
}

#[cfg(test)]
mod tests {
    use super::Host;

    fn shown(text: &[u8]) -> Option<String> {
        Host::parse(text).map(|host| host.to_string())
    }

    #[test]
    fn a_host_has_one_form() {
        let table: &[(&[u8], Option<&str>)] = &[
            (b"example.org", Some("example.org")),
            (b"Example.ORG.", Some("example.org")),
            (b"xn--bcher-kva.example", Some("xn--bcher-kva.example")),
            (b"a_b.example", Some("a_b.example")),
            (b"127.0.0.1", Some("127.0.0.1")),
            (b"127.1", Some("127.0.0.1")),
            (b"0x7f.1", Some("127.0.0.1")),
            (b"2130706433", Some("127.0.0.1")),
            (b"0177.0.0.1", Some("127.0.0.1")),
            (b"::1", Some("[::1]")),
            (b"[2606:4700::1]", Some("[2606:4700::1]")),
            (b"", None),
            (b".", None),
            (b"example.org..", None),
            (b"a..b", None),
            (b".example.org", None),
            (b"evil\0.example.org", None),
            (b"example.org\0", None),
            (b"example.org\n", None),
            (b"example.org/", None),
            (b"user@example.org", None),
            (b"exa mple.org", None),
            ("bücher.example".as_bytes(), None),
            ("example。org".as_bytes(), None),
            (b"\xff.org", None),
            (b"*.example.org", None),
            (b"[fe80::1%25eth0]", None),
            (b"[::1", None),
        ];
        for (text, expected) in table {
            let text_shown = String::from_utf8_lossy(text);
            assert_eq!(shown(text).as_deref(), *expected, "{text_shown:?}");
        }
        assert_eq!(shown(format!("{}.org", "a".repeat(64)).as_bytes()), None);
        assert_eq!(shown("a.".repeat(127).as_bytes()).map(|name| name.len()), Some(253));
        assert_eq!(shown(format!("{}a", "a.".repeat(127)).as_bytes()), None);
        let operator = Host::written("Bücher.example").map(|host| host.to_string());
        assert_eq!(operator.as_deref(), Some("xn--bcher-kva.example"));
    }

    #[test]
    fn an_authority_has_one_reading() {
        let read = |text: &str| {
            Host::with_port(text, Some(80)).map(|(host, port)| format!("{host} {port}"))
        };
        for (text, expected) in [
            ("example.org", Some("example.org 80")),
            ("example.org:8443", Some("example.org 8443")),
            ("[::1]:443", Some("[::1] 443")),
            ("[::1]", Some("[::1] 80")),
            ("::1", None),
            ("example.org:", None),
            ("example.org:0", None),
            ("example.org:0443", None),
            ("example.org:+443", None),
            ("example.org:65536", None),
            ("example.org:80:90", None),
            ("example.org:443@evil.test", None),
            ("[::1]evil.test", None),
        ] {
            assert_eq!(read(text).as_deref(), expected, "{text}");
        }
        assert_eq!(Host::with_port("example.org", None), None);
    }

    #[test]
    fn names_of_local_networks_are_known() {
        for (name, is_local) in [
            ("localhost", true),
            ("a.localhost", true),
            ("printer", true),
            ("db.internal", true),
            ("router.home.arpa", true),
            ("notlocal.example", false),
            ("xlocalhost.example", false),
            ("10.1.2.3", false),
        ] {
            let host = Host::parse(name.as_bytes()).unwrap();
            assert_eq!(host.is_local_name(), is_local, "{name}");
        }
    }
}
