//! A host that gives away what it receives, in every way that the tests can think of.

use std::fs;
use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tempfile::TempDir;

use crate::authority::Signed;

/// A host that gives away what it receives, in plain text and over TLS.
pub(super) struct Site {
    pub(super) plain: SocketAddr,
    pub(super) secure: SocketAddr,
    /// Heads and bodies of all requests.
    requests: Arc<Mutex<Vec<String>>>,
    pub(super) folder: TempDir,
}

fn tls(signed: &Signed) -> Arc<ServerConfig> {
    let certificates = CertificateDer::pem_file_iter(&signed.certificate).unwrap();
    let certificates = certificates.map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(&signed.key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(certificates, key);
    Arc::new(config.unwrap())
}

impl Site {
    pub(super) fn start(signed: &Signed) -> Self {
        let folder = TempDir::new_in("/var/tmp").unwrap();
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let listen = |config: Option<Arc<ServerConfig>>| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let (requests, folder) = (Arc::clone(&requests), folder.path().to_owned());
            thread::spawn(move || {
                for socket in listener.incoming() {
                    let Ok(socket) = socket else { continue };
                    let (config, requests) = (config.clone(), Arc::clone(&requests));
                    let folder = folder.clone();
                    thread::spawn(move || {
                        // A client may hang up at any time.
                        let served = match config {
                            Some(config) => {
                                let connection = ServerConnection::new(config).unwrap();
                                serve(StreamOwned::new(connection, socket), &folder, &requests)
                            }
                            None => serve(socket, &folder, &requests),
                        };
                        served.unwrap_or_default();
                    });
                }
            });
            address
        };
        let (plain, secure) = (listen(None), listen(Some(tls(signed))));
        Self { plain, secure, requests, folder }
    }

    /// Requests that begin so, each whole.
    pub(super) fn requests(&self, beginning: &str) -> Vec<String> {
        let all = self.requests.lock().unwrap();
        all.iter().filter(|request| request.starts_with(beginning)).cloned().collect()
    }

    /// The one request that begins so.
    pub(super) fn request(&self, beginning: &str) -> String {
        let found = self.requests(beginning);
        assert_eq!(found.len(), 1, "{beginning}: {found:?} of {:?}", self.requests(""));
        found.concat()
    }
}

struct Request {
    first: String,
    head: String,
    authorization: String,
    body: Vec<u8>,
}

fn read(reader: &mut impl io::BufRead) -> io::Result<Option<Request>> {
    let (mut head, mut first, mut authorization, mut length) =
        (String::new(), String::new(), String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        if line.trim().is_empty() {
            break;
        }
        if first.is_empty() {
            line.trim().clone_into(&mut first);
        }
        let (name, value) = line.split_once(':').unwrap_or_default();
        match name.to_ascii_lowercase().as_str() {
            "authorization" => value.trim().clone_into(&mut authorization),
            "content-length" => length = value.trim().parse().unwrap(),
            _ => {}
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some(Request { first, head, authorization, body }))
}

fn serve(
    stream: impl Read + Write,
    folder: &Path,
    requests: &Mutex<Vec<String>>,
) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    while let Some(request) = read(&mut reader)? {
        let whole = [request.head.as_bytes(), b"\n", &request.body].concat();
        requests.lock().unwrap().push(String::from_utf8_lossy(&whole).into_owned());
        let path = request.first.split(' ').nth(1).unwrap_or_default().to_owned();
        let stream = reader.get_mut();
        if path.starts_with("/upgrade") {
            stream.write_all(
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n",
            )?;
            for byte in format!("you sent {}\n", request.authorization).bytes() {
                stream.write_all(&[byte])?;
                stream.flush()?;
            }
            return Ok(());
        }
        stream.write_all(&answer(&path, &request, &whole, folder))?;
        stream.flush()?;
    }
    Ok(())
}

/// The ways in which a host tells what it was told.
fn answer(path: &str, request: &Request, whole: &[u8], folder: &Path) -> Vec<u8> {
    let told = &request.authorization;
    let plain = |head: &str, body: &[u8]| {
        let head = format!("HTTP/1.1 {head}Content-Length: {}\r\n\r\n", body.len());
        [head.as_bytes(), body].concat()
    };
    let packed = |encoding: &str, body: Vec<u8>| {
        plain(&format!("200 OK\r\nContent-Encoding: {encoding}\r\n"), &body)
    };
    let chunked = |body: &[u8], size: usize, trailer: &str| {
        let chunks = body.chunks(size).flat_map(|chunk| {
            [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat()
        });
        let mut all = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        all.extend(chunks);
        all.extend(format!("0\r\n{trailer}\r\n").bytes());
        all
    };
    let name = path.split('?').next().unwrap_or_default();
    match name {
        "/header" => plain(&format!("200 OK\r\nX-Told: {told}\r\n"), b"ok\n"),
        "/reason" => plain(&format!("200 {told}\r\n"), b"ok\n"),
        "/chunks" => chunked(whole, 1, ""),
        "/trailer" => chunked(b"ok\n", 99, &format!("X-Told: {told}\r\n")),
        "/large" => {
            let body = [&vec![b'x'; 200_000][..], whole, &vec![b'y'; 200_000]].concat();
            plain("200 OK\r\n", &body)
        }
        "/gzip" => packed("gzip", gzip(whole)),
        "/gzips" => packed(
            "gzip",
            [gzip(&whole[..whole.len() / 2]), gzip(&whole[whole.len() / 2..])].concat(),
        ),
        "/deflate" => {
            let mut writer =
                flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
            writer.write_all(whole).unwrap();
            packed("deflate", writer.finish().unwrap())
        }
        "/br" => packed("br", whole.to_vec()),
        "/bytes" => plain("200 OK\r\n", &vec![b'z'; 3_000_000]),
        "/redirect" => plain(
            &format!(
                "302 Found\r\nLocation: https://other.test/echo?told={}\r\n",
                &told[told.len().min(7)..]
            ),
            b"",
        ),
        _ => match fs::read(folder.join(name.trim_start_matches('/'))) {
            Ok(content) => plain("200 OK\r\n", &content),
            Err(_) => plain("200 OK\r\n", whole),
        },
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}
