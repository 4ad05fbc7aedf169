//! The first bytes of a connection: for which host they are, as far as they say.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::timeout;

use super::host::Host;
use super::reach::Target;
use super::refusal::Why;

/// Bytes of a TLS greeting, and of the first line of a request.
const HELLO_BYTES_MAX: usize = 32 * 1024;
const LINE_BYTES_MAX: usize = 16 * 1024;
/// Time for them to arrive, once the first one has.
const HELLO_TIME_MAX: Duration = Duration::from_secs(10);
/// First byte of a TLS greeting.
const HANDSHAKE: u8 = 22;
/// Reply to a TLS client whose greeting is refused: alert, TLS 1.2, 2 bytes, fatal, access denied.
pub(super) const ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

/// A protocol, as the first bytes of a client tell it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Tls { server_name: Option<String> },
    Http,
    Other,
}

/// Reads until the protocol is known. What was read is in `ahead`, and must be passed on.
pub(super) async fn read(
    stream: &mut (impl AsyncRead + Unpin),
    ahead: &mut BytesMut,
) -> Result<Protocol, Why> {
    if ahead.is_empty() && more(stream, ahead).await? == 0 {
        return Ok(Protocol::Other);
    }
    let reading = async {
        match ahead.first() {
            Some(&HANDSHAKE) => hello(stream, ahead).await,
            _ => first_line(stream, ahead).await,
        }
    };
    match timeout(HELLO_TIME_MAX, reading).await {
        Ok(read) => read,
        Err(_) => Err(Why::Protocol("its first bytes did not say for which host it is")),
    }
}

async fn more(stream: &mut (impl AsyncRead + Unpin), ahead: &mut BytesMut) -> Result<usize, Why> {
    stream.read_buf(ahead).await.map_err(Why::Connect)
}

async fn hello(
    stream: &mut (impl AsyncRead + Unpin),
    ahead: &mut BytesMut,
) -> Result<Protocol, Why> {
    let bad = || Why::Protocol("its TLS greeting is not valid");
    let mut acceptor = Acceptor::default();
    let mut fed = 0;
    loop {
        while let Some(mut rest) = ahead.get(fed..).filter(|rest| !rest.is_empty()) {
            match acceptor.read_tls(&mut rest) {
                Ok(0) | Err(_) => return Err(bad()),
                Ok(taken) => fed += taken,
            }
            match acceptor.accept() {
                Ok(None) => {}
                Ok(Some(accepted)) => {
                    let server_name = accepted.client_hello().server_name().map(str::to_owned);
                    return Ok(Protocol::Tls { server_name });
                }
                Err(_) => return Err(bad()),
            }
        }
        if ahead.len() >= HELLO_BYTES_MAX || more(stream, ahead).await? == 0 {
            return Err(bad());
        }
    }
}

/// A request begins with a word of letters, and its first line ends with the version.
async fn first_line(
    stream: &mut (impl AsyncRead + Unpin),
    ahead: &mut BytesMut,
) -> Result<Protocol, Why> {
    loop {
        // Servers skip empty lines before a request.
        let start = ahead.iter().position(|byte| !matches!(byte, b'\r' | b'\n'));
        let text = start.and_then(|start| ahead.get(start..)).unwrap_or_default();
        let word = text.iter().position(|byte| !byte.is_ascii_alphabetic());
        match word.and_then(|end| Some((end, *text.get(end)?))) {
            Some((1.., b' ' | b'\t')) => {
                if let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                    let line = text.get(..end).unwrap_or_default();
                    let is_http = line.windows(5).any(|part| part.eq_ignore_ascii_case(b"HTTP/"));
                    return Ok(if is_http { Protocol::Http } else { Protocol::Other });
                }
            }
            Some(_) => return Ok(Protocol::Other),
            None => {}
        }
        if ahead.len() >= LINE_BYTES_MAX {
            return Err(Why::Protocol("its first line is too long"));
        }
        if more(stream, ahead).await? == 0 {
            return Ok(Protocol::Other);
        }
    }
}

/// Checks that a TLS greeting names the host that the connection is for.
pub(super) fn check_name(target: &Target, server_name: Option<&str>) -> Result<(), Why> {
    let said = server_name.map(|name| Host::parse(name.as_bytes()));
    let mismatch = |said: &str| {
        let said = said.chars().take(100).collect::<String>().escape_debug().to_string();
        Err(Why::Mismatch { said, by: "TLS greeting" })
    };
    match (&target.host, said) {
        (host, Some(Some(said))) if said == *host => Ok(()),
        // An address has no name to say.
        (Host::Address(_), None) => Ok(()),
        (_, None) => mismatch("no host"),
        (_, Some(_)) => mismatch(server_name.unwrap_or_default()),
    }
}

/// A connection that ended before it said anything is no error of anyone.
pub(super) fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::NotConnected
    )
}
