//! Parsing of URLs. Text becomes a [`Target`] once; the same parsed value is checked, resolved,
//! connected to and requested, so no second parser can interpret it differently.

use url::{Host, Url};

use super::error::FetchError;

/// Servers need not accept longer URLs.
const URL_BYTES_MAX: usize = 8192;
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// Ports of services that could take a request for one of their own protocol: those that browsers
/// block, and databases and engines that often run without authentication.
const PORTS_REFUSED: &[u16] = &[
    0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101,
    102, 103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 138, 139, 143, 161, 162, 179,
    389, 427, 445, 465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601,
    636, 873, 989, 990, 993, 995, 1433, 1521, 1719, 1720, 1723, 2049, 2181, 2375, 2376, 2379, 2380,
    3306, 3389, 3659, 4045, 4190, 5060, 5061, 5432, 5672, 5900, 6000, 6379, 6566, 6665, 6666, 6667,
    6668, 6669, 6679, 6697, 9042, 9092, 10080, 10250, 11211, 27017,
];

/// Names that resolve only inside a local network.
const LOCAL_NAMES: &[&str] = &["localhost", "local", "internal", "intranet", "lan", "home.arpa"];

/// Checked http or https URL. Only [`Target::parse`] and [`Target::redirect`] create one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    url: Url,
    host: Host,
    port: u16,
}

impl Target {
    pub(super) fn parse(text: &str) -> Result<Self, FetchError> {
        check_text(text)?;
        Self::check(Url::parse(text).map_err(unread)?)
    }

    /// Target of a `Location` header received from this one.
    pub(super) fn redirect(&self, location: &str) -> Result<Self, FetchError> {
        check_text(location)?;
        let target = Self::check(self.url.join(location).map_err(unread)?)?;
        match self.is_https() && !target.is_https() {
            true => Err(FetchError::Downgrade),
            false => Ok(target),
        }
    }

    fn check(mut url: Url) -> Result<Self, FetchError> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(FetchError::Scheme(url.scheme().to_owned()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(FetchError::Credentials);
        }
        let host = url.host().ok_or_else(|| bad("it has no host"))?.to_owned();
        if let Host::Domain(name) = &host {
            check_name(name)?;
        }
        let port = url.port_or_known_default().ok_or_else(|| bad("it has no port"))?;
        if PORTS_REFUSED.contains(&port) {
            return Err(FetchError::Port(port));
        }
        url.set_fragment(None);
        // Encoding and joining may have made it longer.
        if url.as_str().len() > URL_BYTES_MAX {
            return Err(bad("it is too long"));
        }
        Ok(Self { url, host, port })
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    pub(super) fn into_url(self) -> Url {
        self.url
    }

    pub(super) fn host(&self) -> &Host {
        &self.host
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn is_https(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// Whether both have the same scheme, host and port.
    pub(super) fn has_origin_of(&self, other: &Self) -> bool {
        self.url.origin() == other.url.origin()
    }

    /// Path and query of the request line.
    pub(super) fn path_and_query(&self) -> &str {
        &self.url[url::Position::BeforePath..url::Position::AfterQuery]
    }

    /// Value of the `Host` header: with the port only if it is not the default.
    pub(super) fn authority(&self) -> &str {
        &self.url[url::Position::BeforeHost..url::Position::AfterPort]
    }

    /// Whether the host has a name of a local network.
    pub(super) fn is_local_name(&self) -> bool {
        let Host::Domain(name) = &self.host else { return false };
        !name.contains('.') || LOCAL_NAMES.iter().any(|local| below(name, local))
    }

    /// Whether a list contains the host: as `example.org`, or as a subdomain of
    /// `*.example.org`. Invalid entries match nothing.
    pub(super) fn is_listed(&self, hosts: &[String]) -> bool {
        hosts.iter().any(|listed| match listed.strip_prefix("*.") {
            None => Host::parse(listed).is_ok_and(|listed| listed == self.host),
            Some(parent) => match (&self.host, Host::parse(parent)) {
                (Host::Domain(name), Ok(Host::Domain(parent))) => {
                    *name != parent && !parent.is_empty() && below(name, &parent)
                }
                _ => false,
            },
        })
    }
}

/// Rejects text that the parser would repair and others read differently: it drops tabs and line
/// ends, trims spaces, and reads `\` as `/`.
fn check_text(text: &str) -> Result<(), FetchError> {
    if text.is_empty() {
        return Err(bad("it is empty"));
    }
    if text.len() > URL_BYTES_MAX {
        return Err(bad("it is too long"));
    }
    match text.chars().find(|c| c.is_control() || c.is_whitespace() || *c == '\\') {
        None => Ok(()),
        Some('\\') => Err(bad("it contains a backslash; write %5C")),
        Some(c) if c.is_whitespace() && !c.is_control() => {
            Err(bad("it contains a space; write %20"))
        }
        Some(_) => Err(bad("it contains a control character")),
    }
}

/// Checks a name, which the parser has made ASCII and lower case. Refuses what the parser accepts
/// and DNS does not (`!`, `*`, empty labels), and a final dot: a resolver ignores it, a list of
/// hosts does not.
fn check_name(name: &str) -> Result<(), FetchError> {
    if name.ends_with('.') {
        return Err(bad("its host ends with a dot"));
    }
    let known = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'-' | b'_');
    let label =
        |label: &str| (1..=LABEL_BYTES_MAX).contains(&label.len()) && label.bytes().all(known);
    match name.len() <= NAME_BYTES_MAX && name.split('.').all(label) {
        true => Ok(()),
        false => Err(bad("its host is not a valid DNS name")),
    }
}

/// Whether `name` is `parent` or ends with `.parent`.
fn below(name: &str, parent: &str) -> bool {
    name.strip_suffix(parent).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

fn bad(reason: impl Into<String>) -> FetchError {
    FetchError::BadUrl(reason.into())
}

fn unread(error: url::ParseError) -> FetchError {
    bad(error.to_string())
}
