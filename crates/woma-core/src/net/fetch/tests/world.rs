//! Simulated internet: names with public-looking addresses, a local server behind each of them, and
//! a record of resolved names and connections.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use crate::net::fetch::{FetchError, FetchRules, Fetched, Fetcher, Inner};

pub(in crate::net::fetch) type Route = dyn Fn(SocketAddr) -> SocketAddr + Send + Sync;

/// Addresses of `public.test` and `secure.test`, routed to a [`Server`].
pub(super) const PUBLIC: &str = "93.184.215.14";
pub(super) const SECURE: &str = "93.184.215.15";
/// A public address without a listener.
pub(super) const DEAD: &str = "93.184.215.16";

/// Time limit of each step; only a failing test reaches it.
pub(super) const STEP_MAX: Duration = Duration::from_secs(20);

pub(super) struct World {
    pub(super) fetcher: Fetcher,
    pub(super) server: Server,
    /// Names in the order in which they were resolved.
    pub(super) resolved: Arc<Mutex<Vec<String>>>,
    /// Addresses in the order in which they were connected to.
    pub(super) connected: Arc<Mutex<Vec<IpAddr>>>,
}

impl World {
    pub(super) fn new(rules: FetchRules) -> Self {
        Self::with_names(rules, vec![])
    }

    /// Resolves each name to its sets of addresses in turn and repeats the last one. Further names
    /// are those of [`PUBLIC`] and [`SECURE`]; others do not exist.
    pub(super) fn with_names(rules: FetchRules, names: Vec<(&str, Vec<Vec<&str>>)>) -> Self {
        let server = Server::start();
        let secure = server.secure();
        let resolved = Arc::default();
        let connected: Arc<Mutex<Vec<IpAddr>>> = Arc::default();
        let mut inner = Inner::new(rules, resolver(names, &resolved), authority());
        inner.route = Some(Box::new({
            let (connected, address) = (Arc::clone(&connected), server.address);
            move |asked: SocketAddr| {
                connected.lock().unwrap().push(asked.ip());
                match asked.ip().to_string().as_str() {
                    SECURE => secure,
                    // Port 0 cannot have a listener.
                    DEAD => (Ipv4Addr::LOCALHOST, 0).into(),
                    _ => address,
                }
            }
        }));
        Self { fetcher: Fetcher::from(inner), server, resolved, connected }
    }

    pub(super) async fn fetch(&self, url: &str) -> Result<(Fetched, Vec<u8>), FetchError> {
        let mut body = Vec::new();
        let fetched = self.fetcher.fetch(url, &mut body, &mut |_, _| {}).await?;
        assert_eq!(fetched.bytes, body.len() as u64);
        Ok((fetched, body))
    }

    /// Error message of a URL that cannot be fetched.
    pub(super) async fn error_of(&self, url: &str) -> String {
        match self.fetch(url).await {
            Ok((fetched, _)) => panic!("{url} was fetched: {fetched:?}"),
            Err(error) => error.to_string(),
        }
    }

    pub(super) fn connected(&self) -> Vec<String> {
        self.connected.lock().unwrap().iter().map(ToString::to_string).collect()
    }
}

fn resolver(
    names: Vec<(&str, Vec<Vec<&str>>)>,
    resolved: &Arc<Mutex<Vec<String>>>,
) -> Arc<crate::net::fetch::Resolve> {
    let parse = |set: Vec<&str>| set.iter().map(|text| text.parse().unwrap()).collect();
    let names: Vec<(String, Mutex<VecDeque<Vec<IpAddr>>>)> = names
        .into_iter()
        .map(|(name, sets)| (name.to_owned(), Mutex::new(sets.into_iter().map(parse).collect())))
        .collect();
    let resolved = Arc::clone(resolved);
    Arc::new(move |name| {
        resolved.lock().unwrap().push(name.to_owned());
        if let Some((_, sets)) = names.iter().find(|(known, _)| known == name) {
            let mut sets = sets.lock().unwrap();
            let last = sets.len() == 1;
            return Ok(if last { sets[0].clone() } else { sets.pop_front().unwrap() });
        }
        match name {
            "public.test" => Ok(vec![PUBLIC.parse().unwrap()]),
            "secure.test" | "other.test" => Ok(vec![SECURE.parse().unwrap()]),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    })
}

/// Web server whose paths select its misbehaviour; see [`serve`].
#[derive(Clone)]
pub(super) struct Server {
    pub(super) address: SocketAddr,
    /// Heads of the requests received.
    pub(super) requests: Arc<Mutex<Vec<String>>>,
    /// One message for each client that closed an endless response.
    pub(super) left: Arc<Mutex<mpsc::Receiver<()>>>,
    leaving: mpsc::Sender<()>,
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

impl Server {
    pub(super) fn start() -> Self {
        let (leaving, left) = mpsc::channel();
        let left = Arc::new(Mutex::new(left));
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut server = Self { address, requests: Arc::default(), left, leaving };
        server.address = server.listen(|socket| Box::new(socket));
        server
    }

    /// Starts the same server behind TLS, on another port.
    fn secure(&self) -> SocketAddr {
        let config = Arc::new(tls_config());
        self.listen(move |socket| {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            Box::new(StreamOwned::new(connection, socket))
        })
    }

    fn listen(&self, wrap: impl Fn(TcpStream) -> Box<dyn Stream> + Send + 'static) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let server = self.clone();
        let wrap = Arc::new(Mutex::new(wrap));
        thread::spawn(move || {
            for socket in listener.incoming() {
                let (server, wrap) = (server.clone(), Arc::clone(&wrap));
                thread::spawn(move || {
                    let socket = socket?;
                    let mut stream = wrap.lock().unwrap()(socket.try_clone()?);
                    let head = read_head(&mut stream)?;
                    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                    server.requests.lock().unwrap().push(head);
                    serve(&path, &mut stream, &socket, &server.leaving)
                });
            }
        });
        address
    }

    /// Waits until a client has disconnected.
    pub(super) async fn client_left(&self) -> bool {
        let left = Arc::clone(&self.left);
        let waiting = move || left.lock().unwrap().recv_timeout(STEP_MAX).is_ok();
        tokio::task::spawn_blocking(waiting).await.unwrap()
    }
}

fn read_head(stream: &mut impl Read) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        if !byte[0].is_ascii() || byte[0] == 0x16 {
            return Err(io::Error::other("TLS on a port for plain HTTP"));
        }
        head.push(byte[0]);
    }
    String::from_utf8(head).map_err(io::Error::other)
}

fn serve(
    path: &str,
    stream: &mut impl Stream,
    socket: &TcpStream,
    leaving: &mpsc::Sender<()>,
) -> io::Result<()> {
    let answer = |head: &str, body: &str| format!("HTTP/1.1 {head}\r\n\r\n{body}");
    let (route, rest) = path.split_once('?').unwrap_or((path, ""));
    let text = match route {
        "/plain" | "/data.csv" => answer(
            "200 OK\r\nContent-Type: Text/CSV; charset=utf-8\r\nContent-Length: 6",
            "hello\n",
        ),
        "/chunked" => answer(
            "200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X",
            "3\r\nhel\r\n3\r\nlo\n\r\n0\r\nX: y\r\n\r\n",
        ),
        "/until-close" => answer("200 OK", "hello\n"),
        "/empty" => answer("204 No Content", ""),
        "/gzip" => answer("200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3", "\x1f\x01\x02"),
        "/status" => answer(&format!("{rest} Whatever\r\nContent-Length: 0"), ""),
        "/to" => answer(&format!("302 Found\r\nLocation: {rest}\r\nContent-Length: 0"), ""),
        "/again" => match rest.parse() {
            Ok(0) | Err(_) => answer("302 Found\r\nLocation: /plain", ""),
            Ok(left @ 1_u32..) => answer(&format!("307 X\r\nLocation: /again?{}", left - 1), ""),
        },
        "/loop" => answer("301 X\r\nLocation: /loop\r\nContent-Length: 0", ""),
        "/cookie" => {
            answer("302 X\r\nSet-Cookie: a=b\r\nLocation: /plain\r\nContent-Length: 0", "")
        }
        "/large" => answer("200 OK\r\nContent-Length: 1000000000000", "hello\n"),
        "/short" => answer("200 OK\r\nContent-Length: 10", "hello\n"),
        "/garbage" => "220 mail.test ESMTP\r\n".to_owned(),
        "/bad-chunk" => answer("200 OK\r\nTransfer-Encoding: chunked", "zz\r\nhello\r\n"),
        "/bad-length" => answer("200 OK\r\nContent-Length: -1", "hello"),
        "/large-head" => answer(&format!("200 OK\r\nX: {}", "a".repeat(300_000)), ""),
        "/many-headers" => answer(&format!("200 OK{}", "\r\nX: y".repeat(1000)), ""),
        "/nothing" => String::new(),
        "/endless" => return endless(stream, leaving),
        "/silent" => return silent("", stream, socket, leaving),
        "/stuck" => return silent(&answer("200 OK", "hello"), stream, socket, leaving),
        "/drip" => return drip(&answer("200 OK", ""), stream, socket, leaving),
        _ => answer("404 Not Found\r\nContent-Length: 0", ""),
    };
    stream.write_all(text.as_bytes())?;
    stream.flush()
}

fn endless(stream: &mut impl Stream, leaving: &mpsc::Sender<()>) -> io::Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
    while stream.write_all(&[b'x'; 4096]).is_ok() {}
    leaving.send(()).map_err(io::Error::other)
}

/// Sends `text`, then nothing, until the client disconnects.
fn silent(
    text: &str,
    stream: &mut impl Stream,
    mut socket: &TcpStream,
    leaving: &mpsc::Sender<()>,
) -> io::Result<()> {
    stream.write_all(text.as_bytes())?;
    stream.flush()?;
    while socket.read(&mut [0]).is_ok_and(|bytes| bytes > 0) {}
    leaving.send(()).map_err(io::Error::other)
}

/// Sends `text`, then a byte now and then, until the client disconnects.
fn drip(
    text: &str,
    stream: &mut impl Stream,
    mut socket: &TcpStream,
    leaving: &mpsc::Sender<()>,
) -> io::Result<()> {
    stream.write_all(text.as_bytes())?;
    socket.set_read_timeout(Some(Duration::from_millis(10)))?;
    while socket.read(&mut [0]).is_err() && stream.write_all(b"x").is_ok() {}
    leaving.send(()).map_err(io::Error::other)
}

/// Test authority, and its certificate for `secure.test`. Both are valid until 2120; the key of the
/// authority was discarded.
const AUTHORITY: &str = "\
MIIBLjCB4aADAgECAgEBMAUGAytlcDAeMRwwGgYDVQQDDBNXb21hIHRlc3QgYXV0aG9yaXR5MCAXDTIwMDEwMT\
AwMDAwMFoYDzIxMjAwMTAxMDAwMDAwWjAeMRwwGgYDVQQDDBNXb21hIHRlc3QgYXV0aG9yaXR5MCowBQYDK2Vw\
AyEAllw/d+uKtFhC769dxOmWiwR51GCPhCQRdbFusMCSrdejQjBAMA8GA1UdEwEB/wQFMAMBAf8wDgYDVR0PAQ\
H/BAQDAgIEMB0GA1UdDgQWBBRGfRwEIssTOxYzCgXHD5O1+jSj7DAFBgMrZXADQQClbyIV7fE5KFxJ+XuiNFw2\
luCyInbQAdZagpmNPZ4T2Z/HLrzZJ+LhZ0zRQ6+xz0scoEZ4eZTgXkvNQnqViLMJ";
const CERTIFICATE: &str = "\
MIIBXzCCARGgAwIBAgIBAjAFBgMrZXAwHjEcMBoGA1UEAwwTV29tYSB0ZXN0IGF1dGhvcml0eTAgFw0yMDAxMD\
EwMDAwMDBaGA8yMTIwMDEwMTAwMDAwMFowFjEUMBIGA1UEAwwLc2VjdXJlLnRlc3QwKjAFBgMrZXADIQC74byJ\
bEMKTPu4ecjhOH9DXFZdcDkauDZOtorQfbIgpKN6MHgwFgYDVR0RBA8wDYILc2VjdXJlLnRlc3QwEwYDVR0lBA\
wwCgYIKwYBBQUHAwEwCQYDVR0TBAIwADAdBgNVHQ4EFgQUxS8v9SA+yZGqz0HJYx5Faj5eAvwwHwYDVR0jBBgw\
FoAURn0cBCLLEzsWMwoFxw+Ttfo0o+wwBQYDK2VwA0EAP0EiCcOkCAu8dn6pLmKhFE9w7pyufi9EUk/otpLBf2\
mmOJvtS4FXFVmhT/Hd+nD+GP7OfHiydfd8wFO7QLkhDQ==";
const CERTIFICATE_KEY: &str = "MC4CAQAwBQYDK2VwBCIEIIlBW1hWEu4/P6GHn+xK6o6pKUt4hlb3mZgdIAhLamG4";

fn decoded(text: &str) -> Vec<u8> {
    BASE64_STANDARD.decode(text).unwrap()
}

fn authority() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(decoded(AUTHORITY))).unwrap();
    roots
}

fn tls_config() -> ServerConfig {
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(decoded(CERTIFICATE_KEY)));
    ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(decoded(CERTIFICATE))], key)
        .unwrap()
}
