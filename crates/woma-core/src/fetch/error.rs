//! What can go wrong with a download: one sentence each, and what to do about it.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    #[error("the address cannot be used: {0}")]
    BadUrl(String),
    #[error("`{0}` addresses cannot be fetched")]
    Scheme(String),
    #[error("the address has a user name or a password in it")]
    Credentials,
    #[error("port {0} is not one of the web")]
    Port(u16),
    #[error("downloads from `{0}` are not allowed on this server")]
    HostNotAllowed(String),
    #[error("`{0}` is a name of a local network")]
    InnerName(String),
    #[error("`{host}` is refused: {address} is {why}")]
    AddressRefused { host: String, address: IpAddr, why: &'static str },
    #[error("the address of `{host}` was not found")]
    Resolution { host: String, source: io::Error },
    #[error("there is no connection to `{host}`")]
    Connect { host: String, source: io::Error },
    #[error("`{host}` cannot be trusted: the TLS handshake failed")]
    Tls { host: String, source: io::Error },
    #[error("the server leads from https to http")]
    Downgrade,
    #[error("the server answers with status {0}")]
    Status(u16),
    #[error("the server's answer is broken")]
    Broken(#[source] hyper::Error),
    #[error("the file is larger than {limit_bytes} bytes")]
    TooLarge { limit_bytes: u64 },
    #[error("the download took longer than {} s", .limit.as_secs_f64())]
    TimedOut { limit: Duration },
    #[error("the server redirects more than {limit} times")]
    TooManyRedirects { limit: usize },
    #[error("all {at_once_max} places for downloads are taken")]
    Busy { at_once_max: usize },
    #[error("the file could not be written")]
    Io(#[source] io::Error),
}

impl FetchError {
    /// What the one who asked can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::BadUrl(_) => "give the whole address, such as https://example.org/data.csv",
            Self::Scheme(_) => "use an address that begins with https:// or http://",
            Self::Credentials => "leave them out; only what is public can be fetched",
            Self::Port(_) => "use an address without a port, or with one that serves the web",
            Self::HostNotAllowed(_) => "ask the operator which hosts are allowed",
            Self::InnerName(_) | Self::AddressRefused { .. } => {
                "only public addresses can be fetched"
            }
            Self::Resolution { .. } => "check how the host is spelled",
            Self::Connect { .. } => "check the address, or try again later",
            Self::Tls { .. } => "the host needs a valid certificate for its own name",
            Self::Downgrade => "fetch the http:// address itself, if that is what you want",
            Self::Status(401 | 403) => "only what is public can be fetched",
            Self::Status(404 | 410) => "check the path of the address",
            Self::Status(_) => "try again later, or use another source",
            Self::Broken(_) => "try again, or use another source",
            Self::TooLarge { .. } => "fetch a smaller file or a part of it",
            Self::TimedOut { .. } => "try again, or use a faster source",
            Self::TooManyRedirects { .. } => "give the address that it leads to in the end",
            Self::Busy { .. } => "try again when one of them has ended",
            Self::Io(_) => "check that there is room for the file",
        }
    }
}
