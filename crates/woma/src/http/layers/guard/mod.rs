//! Check of `Host` and `Origin` on every route, against cross-site requests and DNS rebinding.
//!
//! A hostile page can make a browser call a server that only the browser's machine reaches: across
//! origins, which shows in `Origin`, or by a rebound DNS name, which shows in `Host`.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::request::Parts;
use axum::http::{HeaderName, Version};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use woma_core::Code;

use super::is_probe;
use crate::api::error::Envelope;

const NAME_BYTES_MAX: usize = 253;

/// Configured hosts and origins.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Names<'a> {
    /// Addresses that the server listens on. The unspecified address accepts every IP as a host:
    /// DNS rebinding needs a name.
    pub(crate) bound: &'a [IpAddr],
    /// `ALLOWED_HOSTS`: names, `*.name`, addresses, or `*` for any.
    pub(crate) allowed_hosts: &'a [String],
    /// `ALLOWED_ORIGINS`: `scheme://host[:port]` to the letter, or `*` for any.
    pub(crate) allowed_origins: &'a [String],
    pub(crate) public_base_url: Option<&'a str>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidName {
    #[error(
        "`{0}` is not a host: use a name, *.name, an address, or * for any (no port, no scheme)"
    )]
    Host(String),
    #[error("`{0}` is not an origin: use scheme://host[:port] without a path, or * for any")]
    Origin(String),
    #[error("`{0}` is not a base URL: use http(s)://host[:port][/path]")]
    BaseUrl(String),
}

/// The names and origins that are accepted.
#[derive(Debug)]
pub(crate) struct Guard {
    any_host: bool,
    any_address: bool,
    any_origin: bool,
    hosts: HashSet<Host>,
    /// Each with its leading dot.
    suffixes: Vec<String>,
    origins: HashSet<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Host {
    /// Lower case, without a trailing dot.
    Name(String),
    /// Canonical: never an IPv4-mapped IPv6 address.
    Address(IpAddr),
}

/// Hosts and origins of a request, as sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Claimed<'a> {
    pub(crate) hosts: Vec<&'a [u8]>,
    /// The host of a request line that names one (`GET http://host/ HTTP/1.1`).
    pub(crate) target: Option<&'a str>,
    pub(crate) origins: Vec<&'a [u8]>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Denied {
    #[error("the request has no Host header")]
    NoHost,
    #[error("the request has more than one Host header")]
    SeveralHosts,
    #[error("the Host header is malformed")]
    MalformedHost,
    #[error("the request line and the Host header name different hosts")]
    HostsDiffer,
    #[error("this server does not answer to the name `{0}`")]
    Host(String),
    #[error("web pages of that origin may not use this server")]
    Origin,
}

impl Guard {
    pub(crate) fn new(names: Names<'_>) -> Result<Self, InvalidName> {
        let mut guard = Self {
            any_host: false,
            any_address: names.bound.iter().any(IpAddr::is_unspecified),
            any_origin: false,
            hosts: names
                .bound
                .iter()
                .map(|address| Host::Address(address.to_canonical()))
                .collect(),
            suffixes: Vec::new(),
            origins: HashSet::new(),
        };
        for text in names.allowed_hosts {
            guard.allow_host(text.trim())?;
        }
        for text in names.allowed_origins {
            guard.allow_origin(text.trim())?;
        }
        if let Some(url) = names.public_base_url {
            let invalid = || InvalidName::BaseUrl(url.to_owned());
            let (scheme, rest) = url.split_once("://").ok_or_else(invalid)?;
            let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
            let (host, _) = parse_authority(authority.as_bytes()).ok_or_else(invalid)?;
            if !is_web(scheme) {
                return Err(invalid());
            }
            guard.hosts.insert(host);
        }
        Ok(guard)
    }

    fn allow_host(&mut self, text: &str) -> Result<(), InvalidName> {
        let invalid = || InvalidName::Host(text.to_owned());
        if text == "*" {
            self.any_host = true;
        } else if let Some(parent) = text.strip_prefix("*.") {
            match parse_authority(parent.as_bytes()) {
                Some((Host::Name(name), None)) => self.suffixes.push(format!(".{name}")),
                _ => return Err(invalid()),
            }
        } else if let Ok(address) = text.parse::<IpAddr>() {
            // In a list, an IPv6 address needs no brackets.
            self.hosts.insert(Host::Address(address.to_canonical()));
        } else {
            match parse_authority(text.as_bytes()) {
                Some((host, None)) => self.hosts.insert(host),
                _ => return Err(invalid()),
            };
        }
        Ok(())
    }

    fn allow_origin(&mut self, text: &str) -> Result<(), InvalidName> {
        let is_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        let lower = text.to_ascii_lowercase();
        match lower.split_once("://") {
            None if text == "*" => self.any_origin = true,
            Some((scheme, authority))
                if !scheme.is_empty()
                    && scheme.chars().all(is_scheme)
                    && parse_authority(authority.as_bytes()).is_some() =>
            {
                self.origins.insert(lower);
            }
            _ => return Err(InvalidName::Origin(text.to_owned())),
        }
        Ok(())
    }

    pub(crate) fn allows_any_origin(&self) -> bool {
        self.any_origin
    }

    /// Whether pages of this origin may use the server under the host that a request names.
    pub(crate) fn allows_origin(&self, origin: &[u8], request: &Parts) -> bool {
        let values = |name: HeaderName| {
            request.headers.get_all(name).iter().map(axum::http::HeaderValue::as_bytes).collect()
        };
        let target = request.uri.authority().map(axum::http::uri::Authority::as_str);
        let hosts = hosts(values(HOST), target, request.version);
        self.check(&Claimed { hosts, target, origins: vec![origin] }).is_ok()
    }

    pub(crate) fn check(&self, claimed: &Claimed<'_>) -> Result<(), Denied> {
        let sent = match claimed.hosts.as_slice() {
            [] => return Err(Denied::NoHost),
            [sent] => sent,
            _ => return Err(Denied::SeveralHosts),
        };
        let (host, _) = parse_authority(sent).ok_or(Denied::MalformedHost)?;
        if let Some(target) = claimed.target {
            let (target, _) = parse_authority(target.as_bytes()).ok_or(Denied::MalformedHost)?;
            if target != host {
                return Err(Denied::HostsDiffer);
            }
        }
        let by_pattern = self.any_host || (self.any_address && matches!(host, Host::Address(_)));
        if !by_pattern && !self.is_named(&host) {
            return Err(Denied::Host(host.to_string()));
        }
        match claimed.origins.as_slice() {
            [] => Ok(()),
            [origin] if self.is_origin_allowed(origin, &host) => Ok(()),
            _ => Err(Denied::Origin),
        }
    }

    /// Whether the host is accepted by name, not only by a wildcard.
    fn is_named(&self, host: &Host) -> bool {
        let by_suffix = |name: &String| self.suffixes.iter().any(|suffix| name.ends_with(suffix));
        match host {
            Host::Name(name) if name == "localhost" || by_suffix(name) => true,
            Host::Address(address) if address.is_loopback() => true,
            _ => self.hosts.contains(host),
        }
    }

    /// Accepts pages of a named host, of the requested host, or of a listed origin. A wildcard for
    /// hosts does not extend to origins.
    fn is_origin_allowed(&self, origin: &[u8], host: &Host) -> bool {
        if self.any_origin {
            return true;
        }
        let Ok(text) = std::str::from_utf8(origin) else { return false };
        let lower = text.to_ascii_lowercase();
        if self.origins.contains(&lower) {
            return true;
        }
        let Some((scheme, authority)) = lower.split_once("://") else { return false };
        let Some((origin, _)) = parse_authority(authority.as_bytes()) else { return false };
        is_web(scheme) && (origin == *host || self.is_named(&origin))
    }
}

/// Request extension: a probe that names another host. It gets no details.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnknownHost;

/// Layer that rejects requests by [`Guard::check`]. Probes of load balancers name hosts of their
/// own, or none; a page whose name was rebound learns no more than they do.
pub(crate) async fn guard(
    State(guard): State<Arc<Guard>>,
    mut request: Request,
    next: Next,
) -> Response {
    let claimed = claimed(&request);
    match guard.check(&claimed) {
        Ok(()) => next.run(request).await,
        Err(_) if is_probe(request.uri().path()) && claimed.origins.is_empty() => {
            request.extensions_mut().insert(UnknownHost);
            next.run(request).await
        }
        Err(denied) => {
            tracing::info!(reason = %denied, "Request refused: {denied}");
            refusal(&denied).into_response()
        }
    }
}

fn claimed(request: &Request) -> Claimed<'_> {
    let values = |name: HeaderName| {
        request.headers().get_all(name).iter().map(axum::http::HeaderValue::as_bytes).collect()
    };
    let target = request.uri().authority().map(axum::http::uri::Authority::as_str);
    let hosts = hosts(values(HOST), target, request.version());
    Claimed { hosts, target, origins: values(ORIGIN) }
}

/// HTTP/2 names the host in the request target instead of a header.
fn hosts<'a>(mut hosts: Vec<&'a [u8]>, target: Option<&'a str>, version: Version) -> Vec<&'a [u8]> {
    if hosts.is_empty()
        && version >= Version::HTTP_2
        && let Some(target) = target
    {
        hosts.push(target.as_bytes());
    }
    hosts
}

fn refusal(denied: &Denied) -> Envelope {
    let (code, hint) = match denied {
        Denied::Host(_) => {
            (Code::Forbidden, "add the name to ALLOWED_HOSTS, or set PUBLIC_BASE_URL")
        }
        Denied::Origin => {
            (Code::Forbidden, "add the origin to ALLOWED_ORIGINS, or its host to ALLOWED_HOSTS")
        }
        _ => (
            Code::InvalidArgument,
            "send one Host header with a host name or an address, and the port unless it is 80",
        ),
    };
    Envelope::new(code, denied.to_string()).with_hint(hint)
}

fn is_web(scheme: &str) -> bool {
    scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
}

/// Parses `host[:port]`; rejects user, zone, escapes and control characters.
fn parse_authority(bytes: &[u8]) -> Option<(Host, Option<u16>)> {
    let text = std::str::from_utf8(bytes).ok()?;
    if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        let address: Ipv6Addr = address.parse().ok()?;
        let port = match port {
            "" => None,
            port => Some(parse_port(port.strip_prefix(':')?)?),
        };
        return Some((Host::Address(IpAddr::V6(address).to_canonical()), port));
    }
    let (name, port) = match text.split_once(':') {
        Some((name, port)) => (name, Some(parse_port(port)?)),
        None => (text, None),
    };
    Some((parse_name(name.strip_suffix('.').unwrap_or(name))?, port))
}

/// Digits only: `parse` alone would take a sign.
fn parse_port(text: &str) -> Option<u16> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn parse_name(name: &str) -> Option<Host> {
    if let Ok(address) = name.parse::<Ipv4Addr>() {
        return Some(Host::Address(address.into()));
    }
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    let last = name.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    // `127.1`, `0x7f.1` and `2130706433` are addresses to some readers and names to others.
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x");
    let is_name = name.len() <= NAME_BYTES_MAX && name.split('.').all(is_label) && !is_number;
    is_name.then(|| Host::Name(name.to_ascii_lowercase()))
}

impl std::fmt::Display for Host {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => formatter.write_str(name),
            Self::Address(address) => address.fmt(formatter),
        }
    }
}

#[cfg(test)]
mod tests;
