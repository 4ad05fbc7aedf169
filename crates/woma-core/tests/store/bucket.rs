//! A private object store: an S3 server that checks signatures, stores objects as files, and can be
//! stopped, restarted and silenced.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s_fs::FileSystem;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{oneshot, watch};
use tokio_rustls::TlsAcceptor;

use crate::authority::Signed;

pub(crate) const KEY_ID: &str = "a-key-of-the-bucket";
pub(crate) const SECRET: &str = "s3cret-of-the-bucket";
pub(crate) const NAME: &str = "woma-files";

pub(crate) struct Bucket {
    folder: TempDir,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    seen: Arc<Seen>,
    running: Mutex<Option<Running>>,
}

struct Running {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    is_silent: watch::Sender<bool>,
    /// Method, path and range of every request.
    requests: Mutex<Vec<String>>,
}

impl Bucket {
    pub(crate) fn start() -> Self {
        let bucket = Self::make(None);
        bucket.launch();
        bucket
    }

    pub(crate) fn start_secured(signed: &Signed) -> Self {
        let chain = CertificateDer::pem_file_iter(&signed.certificate).unwrap();
        let chain = chain.map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_file(&signed.key).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let bucket = Self::make(Some(TlsAcceptor::from(Arc::new(config))));
        bucket.launch();
        bucket
    }

    /// Creates a bucket without starting its server.
    pub(crate) fn make(tls: Option<TlsAcceptor>) -> Self {
        let folder = TempDir::new().unwrap();
        std::fs::create_dir(folder.path().join(NAME)).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        Self { folder, address, tls, seen: Arc::default(), running: Mutex::default() }
    }

    pub(crate) fn launch(&self) {
        let mut service = S3ServiceBuilder::new(FileSystem::new(self.folder.path()).unwrap());
        service.set_auth(SimpleAuth::from_single(KEY_ID, SECRET));
        let service = service.build();
        let (seen, tls) = (Arc::clone(&self.seen), self.tls.clone());
        let listener = TcpListener::bind(self.address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (stop, stopped) = oneshot::channel();
        // On its own thread: a runtime cannot be dropped inside the runtime of a test.
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                tokio::select! {
                    () = accept(listener, service, tls, seen) => {}
                    _ = stopped => {}
                }
            });
        });
        *self.running.lock().unwrap() = Some(Running { stop, thread });
    }

    /// Stops the server and closes all connections.
    pub(crate) fn stop(&self) {
        if let Some(Running { stop, thread }) = self.running.lock().unwrap().take() {
            // A panic of the thread shows here.
            drop(stop);
            thread.join().unwrap();
        }
    }

    /// Leaves requests unanswered until called with `false`.
    pub(crate) fn silence(&self, is_silent: bool) {
        self.seen.is_silent.send_replace(is_silent);
    }

    pub(crate) fn endpoint(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Names of the objects, without the owner object.
    pub(crate) fn objects(&self) -> Vec<String> {
        let root = self.folder.path().join(NAME);
        let mut names = Vec::new();
        collect(&root, &root, &mut names);
        names.retain(|name| !name.ends_with("woma-owner"));
        names.sort();
        names
    }

    /// Makes every object this much older.
    pub(crate) fn age(&self, by: Duration) {
        let at = std::time::SystemTime::now() - by;
        for name in self.objects() {
            let path = self.folder.path().join(NAME).join(name);
            std::fs::File::options().write(true).open(path).unwrap().set_modified(at).unwrap();
        }
    }

    /// Requests since the last call.
    pub(crate) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.requests.lock().unwrap())
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn accept(
    listener: TcpListener,
    service: S3Service,
    tls: Option<TlsAcceptor>,
    seen: Arc<Seen>,
) {
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        let (service, seen, tls) = (service.clone(), Arc::clone(&seen), tls.clone());
        tokio::spawn(async move {
            match tls {
                None => serve(socket, service, seen).await,
                // A client that does not trust the certificate disconnects.
                Some(tls) => {
                    if let Ok(secured) = tls.accept(socket).await {
                        serve(secured, service, seen).await;
                    }
                }
            }
        });
    }
}

async fn serve(
    socket: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    service: S3Service,
    seen: Arc<Seen>,
) {
    let answer = service_fn(move |request: Request<Incoming>| {
        let range = request.headers().get("range").and_then(|range| range.to_str().ok());
        let line = format!("{} {} {}", request.method(), request.uri(), range.unwrap_or("-"));
        seen.requests.lock().unwrap().push(line);
        let (service, seen) = (service.clone(), Arc::clone(&seen));
        async move {
            let mut is_silent = seen.is_silent.subscribe();
            // `seen` holds the sender.
            is_silent.wait_for(|is_silent| !is_silent).await.unwrap();
            service.call(request.map(s3s::Body::from)).await
        }
    });
    // A client may disconnect at any time.
    drop(http1::Builder::new().serve_connection(TokioIo::new(socket), answer).await);
}

fn collect(root: &Path, folder: &Path, names: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        match path.is_dir() {
            true => collect(root, &path, names),
            // Metadata files of the server begin with a dot.
            false if !name.rsplit('/').next().unwrap().starts_with('.') => names.push(name),
            false => {}
        }
    }
}
