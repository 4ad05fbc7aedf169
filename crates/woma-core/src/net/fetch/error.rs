//! Errors of downloads, each with a hint for the caller.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use crate::net::pace::TooSlow;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    #[error("the URL cannot be used: {0}")]
    BadUrl(String),
    #[error("`{0}` addresses cannot be fetched")]
    Scheme(String),
    #[error("the URL contains a user name or a password")]
    Credentials,
    #[error("port {0} is blocked: it is not a web port")]
    Port(u16),
    #[error("downloads from `{0}` are not allowed on this server")]
    HostNotAllowed(String),
    #[error("`{0}` is a name in a local network")]
    InnerName(String),
    #[error("`{host}` is refused: {address} is {why}")]
    AddressRefused { host: String, address: IpAddr, why: &'static str },
    #[error("`{host}` cannot be resolved")]
    Resolution { host: String, source: io::Error },
    #[error("cannot connect to `{host}`")]
    Connect { host: String, source: io::Error },
    #[error("`{host}` cannot be trusted: the TLS handshake failed")]
    Tls { host: String, source: io::Error },
    #[error("the server redirects from https to http")]
    Downgrade,
    #[error("the server answers with status {0}")]
    Status(u16),
    #[error("the server's response is broken")]
    Broken(#[source] hyper::Error),
    #[error("the file is larger than {limit_bytes} bytes")]
    TooLarge { limit_bytes: u64 },
    #[error("the download took longer than {} s", .limit.as_secs_f64())]
    TimedOut { limit: Duration },
    #[error(
        "the download was too slow: {} bytes came in {} s; {} bytes a second are the least",
        .0.bytes, .0.waited.as_secs(), .0.rules.bytes_per_second
    )]
    TooSlow(TooSlow),
    #[error("the server redirects more than {limit} times")]
    TooManyRedirects { limit: usize },
    #[error("the limit of {at_once_max} concurrent downloads is reached")]
    Busy { at_once_max: usize },
    #[error("the file could not be written")]
    Io(#[source] io::Error),
}

impl FetchError {
    /// Advice for the caller.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::BadUrl(_) => "give the complete URL, for example https://example.org/data.csv",
            Self::Scheme(_) => "use a URL that begins with https:// or http://",
            Self::Credentials => "remove them; only public files can be fetched",
            Self::Port(_) => "use a URL without a port or with a web port",
            Self::HostNotAllowed(_) => "ask the operator which hosts are allowed",
            Self::InnerName(_) | Self::AddressRefused { .. } => {
                "only public addresses can be fetched"
            }
            Self::Resolution { .. } => "check the spelling of the host",
            Self::Connect { .. } => "check the URL, or try again later",
            Self::Tls { .. } => "the host needs a valid certificate for its own name",
            Self::Downgrade => "fetch the http:// URL directly if that is intended",
            Self::Status(401 | 403) => "only public files can be fetched",
            Self::Status(404 | 410) => "check the path of the URL",
            Self::Status(_) => "try again later, or use another source",
            Self::Broken(_) => "try again, or use another source",
            Self::TooLarge { .. } => "fetch a smaller file or a part of it",
            Self::TimedOut { .. } | Self::TooSlow(_) => "try again, or use a faster source",
            Self::TooManyRedirects { .. } => "give the final URL of the redirects",
            Self::Busy { .. } => "try again when a download has ended",
            Self::Io(_) => "check that there is space for the file",
        }
    }
}
