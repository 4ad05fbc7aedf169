//! Reasons for which a connection is not made, in the words that code and callers read.

use std::fmt;
use std::io;
use std::net::IpAddr;

use super::host::Host;
use crate::model::EventKind;

/// A connection that is not made.
#[derive(Debug)]
pub(super) struct Refusal {
    /// As it was asked for; text of a hostile program, if it is no host at all.
    pub(super) host: String,
    pub(super) port: Option<u16>,
    pub(super) why: Why,
}

#[derive(Debug)]
pub(super) enum Why {
    /// The rules, in words.
    Rules(String),
    /// No name that DNS can have.
    NoName,
    LocalName,
    Address {
        address: IpAddr,
        what: &'static str,
    },
    /// A host that a request names, other than the one that its connection is for.
    Mismatch {
        said: String,
        by: &'static str,
    },
    /// A protocol that is not the one of the port.
    Protocol(&'static str),
    BadRequest(&'static str),
    Connections {
        limit: usize,
        whose: &'static str,
    },
    Bytes {
        limit: u64,
    },
    Resolution(io::Error),
    Lookups,
    Connect(io::Error),
    /// TLS with the host itself.
    Certificate(&'static str),
    /// TLS with the program, at a host that a secret is bound to.
    Opened(io::Error),
    /// A placeholder at a place where its value may not stand.
    Misplaced {
        secret: String,
    },
}

impl Refusal {
    pub(super) fn new(host: &Host, port: impl Into<Option<u16>>, why: Why) -> Self {
        Self { host: host.to_string(), port: port.into(), why }
    }

    /// A refusal of text that is no host.
    pub(super) fn of_text(text: &[u8], why: Why) -> Self {
        let text: String = String::from_utf8_lossy(text).chars().take(100).collect();
        Self { host: text.escape_debug().to_string(), port: None, why }
    }

    /// Set for an attempt to go where the rules do not lead, and not for a failure on the way.
    pub(super) fn event(&self) -> Option<EventKind> {
        match self.why {
            Why::Rules(_)
            | Why::NoName
            | Why::LocalName
            | Why::Address { .. }
            | Why::Mismatch { .. }
            | Why::Protocol(_)
            | Why::BadRequest(_)
            | Why::Certificate(_) => Some(EventKind::BlockedHost),
            Why::Misplaced { .. } => Some(EventKind::MisplacedSecret),
            Why::Connections { .. }
            | Why::Bytes { .. }
            | Why::Resolution(_)
            | Why::Lookups
            | Why::Opened(_)
            | Why::Connect(_) => None,
        }
    }

    /// A word for metrics and logs.
    pub(super) fn word(&self) -> &'static str {
        match self.why {
            Why::Rules(_) => "rules",
            Why::NoName => "name",
            Why::LocalName | Why::Address { .. } => "address",
            Why::Mismatch { .. } => "mismatch",
            Why::Protocol(_) | Why::BadRequest(_) => "protocol",
            Why::Connections { .. } => "connections",
            Why::Bytes { .. } => "bytes",
            Why::Resolution(_) => "resolution",
            Why::Lookups => "lookups",
            Why::Connect(_) => "connect",
            Why::Certificate(_) => "certificate",
            Why::Opened(_) => "opened",
            Why::Misplaced { .. } => "secret",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = match self.port {
            Some(port) => format!("{}:{port}", self.host),
            None => self.host.clone(),
        };
        match &self.why {
            Why::Rules(rules) if rules.is_empty() => {
                write!(formatter, "`{host}` was blocked: the network of this session is closed")
            }
            Why::Rules(rules) => write!(
                formatter,
                "`{host}` was blocked: the network of this session leads to {rules} only. `network` of \
                 the session allows more (create_session), within what the operator allows: NETWORK for \
                 all, `woma keys create --network` for one key"
            ),
            Why::NoName => write!(formatter, "`{host}` was blocked: it is no name of a host"),
            Why::LocalName => write!(
                formatter,
                "`{host}` was blocked: it is a name in a local network, and only public hosts can be \
                 reached; the operator can place a host with NETWORK_HOSTS"
            ),
            Why::Address { address, what } => write!(
                formatter,
                "`{host}` was blocked: {address} is {what}, and only public hosts can be reached; the \
                 operator can place a host with NETWORK_HOSTS"
            ),
            Why::Mismatch { said, by } => write!(
                formatter,
                "a connection to `{host}` was blocked: its {by} names `{said}`; both must be the same"
            ),
            Why::Protocol(what) => {
                write!(formatter, "a connection to `{host}` was blocked: {what}")
            }
            Why::BadRequest(what) => {
                write!(formatter, "a request to `{host}` was blocked: {what}")
            }
            Why::Connections { limit, whose } => write!(
                formatter,
                "`{host}` was not reached: {limit} connections of this {whose} are open, which is the \
                 limit; close some first"
            ),
            Why::Bytes { limit } => write!(
                formatter,
                "`{host}` was not reached: this session has sent and received {} MiB, which is the \
                 limit (NETWORK_SESSION_BYTES)",
                limit >> 20
            ),
            Why::Resolution(error) => write!(formatter, "`{host}` cannot be resolved: {error}"),
            Why::Lookups => {
                write!(formatter, "`{host}` was not resolved: too many names are being resolved")
            }
            Why::Connect(error) => write!(formatter, "`{host}` cannot be reached: {error}"),
            Why::Certificate(reason) => write!(
                formatter,
                "`{host}` was not reached: {reason}; secrets are sent to a host with a good certificate \
                 only (the operator trusts further authorities with NETWORK_CA_FILE)"
            ),
            Why::Opened(error) => write!(
                formatter,
                "a connection to `{host}` was not opened: {error}. A secret is bound to this host, so the \
                 server reads the requests: the program must trust the authorities in SSL_CERT_FILE and \
                 speak HTTP/1.1"
            ),
            Why::Misplaced { secret } => write!(
                formatter,
                "a request to `{host}` has the placeholder of the secret `{secret}` at a place where its \
                 value may not stand, and was sent with the placeholder: the secret's hosts and places say \
                 where it may"
            ),
        }
    }
}
