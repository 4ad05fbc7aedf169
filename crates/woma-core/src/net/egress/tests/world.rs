//! A room without a sandbox, names with public-looking addresses, and a host behind each of them.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use crate::model::caller::CallerId;
use crate::net::egress::reach::Target;
use crate::net::egress::report::Refused;
use crate::net::egress::stream::{Counted, Ticket};
use crate::net::egress::{Egress, EgressSettings, Host, Room, SessionNetwork, http, socks, tunnel};

pub(in crate::net::egress) type Route = dyn Fn(SocketAddr) -> SocketAddr + Send + Sync;

/// Time limit of each step; only a failing test reaches it.
pub(super) const STEP_MAX: Duration = Duration::from_secs(20);
pub(super) const PUBLIC: &str = "93.184.215.14";

pub(super) struct World {
    pub(super) room: Arc<Room>,
    /// Names in the order in which they were resolved.
    pub(super) resolved: Arc<Mutex<Vec<String>>>,
    /// Addresses in the order in which they were connected to, with the server's own ports.
    pub(super) connected: Arc<Mutex<Vec<SocketAddr>>>,
    /// Bytes that the host behind every address has received, one text for each connection.
    pub(super) received: Arc<Mutex<Vec<String>>>,
    pub(super) closed: CancellationToken,
}

impl World {
    pub(super) async fn new(rules: &str) -> Self {
        Self::with(rules, &[], EgressSettings::default()).await
    }

    /// Every name resolves to its sets of addresses in turn and repeats the last one; others are
    /// public. All addresses lead to one host, which answers as [`answer`] does.
    pub(super) async fn with(
        rules: &str,
        names: &[(&str, &[&[&str]])],
        settings: EgressSettings,
    ) -> Self {
        let resolved: Arc<Mutex<Vec<String>>> = Arc::default();
        let parse = |set: &&[&str]| -> Vec<IpAddr> {
            set.iter().map(|address| address.parse().unwrap()).collect()
        };
        let names: BTreeMap<String, Mutex<VecDeque<Vec<IpAddr>>>> = names
            .iter()
            .map(|(name, sets)| ((*name).to_owned(), Mutex::new(sets.iter().map(parse).collect())))
            .collect();
        let asked = Arc::clone(&resolved);
        let resolve = Arc::new(move |name: &str| -> io::Result<Vec<IpAddr>> {
            asked.lock().unwrap().push(name.to_owned());
            let Some(sets) = names.get(name) else { return Ok(vec![PUBLIC.parse().unwrap()]) };
            let mut sets = sets.lock().unwrap();
            let next = match sets.len() {
                0 => return Err(io::ErrorKind::NotFound.into()),
                1 => sets[0].clone(),
                _ => sets.pop_front().unwrap(),
            };
            Ok(next)
        });
        let (server, received) = host().await;
        let connected: Arc<Mutex<Vec<SocketAddr>>> = Arc::default();
        let seen = Arc::clone(&connected);
        let mut egress =
            Egress::with_resolver(settings, Arc::new(Metrics::default()), resolve).unwrap();
        egress.route = Some(Box::new(move |address| {
            seen.lock().unwrap().push(address);
            server
        }));
        let network = Arc::new(SessionNetwork::new(None, None));
        network.set_outer(vec![Arc::new(rules.parse().unwrap())]);
        let room = Arc::new(Room {
            egress: Arc::new(egress),
            network,
            report: Arc::default(),
            owner: CallerId::new("key:one"),
            session: "s".to_owned(),
        });
        Self { room, resolved, connected, received, closed: CancellationToken::new() }
    }

    pub(super) fn ticket(&self) -> Arc<Ticket> {
        Ticket::take(&self.room, &self.closed).unwrap()
    }

    /// A connection of the room to a host, as its listeners hand it on.
    pub(super) fn open(&self, authority: &str) -> DuplexStream {
        let (host, port) = Host::with_port(authority, None).unwrap();
        let (ours, theirs) = duplex(1 << 16);
        let ticket = self.ticket();
        let inside = Counted { inner: theirs, ticket: Arc::clone(&ticket) };
        tokio::spawn(tunnel::carry(ticket, inside, Target::new(host, port), None));
        ours
    }

    /// A connection to the proxy of the room.
    pub(super) fn open_proxy(&self) -> DuplexStream {
        let (ours, theirs) = duplex(1 << 16);
        let ticket = self.ticket();
        let inside = Counted { inner: theirs, ticket: Arc::clone(&ticket) };
        let epoch = self.room.network.epoch();
        tokio::spawn(async move { http::serve(&ticket, &epoch, inside, None).await });
        ours
    }

    pub(super) fn open_socks(&self) -> DuplexStream {
        let (ours, theirs) = duplex(1 << 16);
        tokio::spawn(socks::serve(self.ticket(), theirs));
        ours
    }

    /// Everything that comes back for these bytes.
    pub(super) async fn send(&self, authority: &str, bytes: &[u8]) -> String {
        exchange(self.open(authority), bytes).await
    }

    pub(super) async fn send_proxy(&self, bytes: &[u8]) -> String {
        exchange(self.open_proxy(), bytes).await
    }

    /// Bytes that the host has received so far.
    pub(super) fn received(&self) -> String {
        self.received.lock().unwrap().concat()
    }

    /// The refusals so far, in words.
    pub(super) fn refused(&self) -> Vec<String> {
        self.room.report.take().into_iter().map(|Refused { message, .. }| message).collect()
    }
}

pub(super) async fn exchange(mut stream: DuplexStream, bytes: &[u8]) -> String {
    let talking = async {
        // A refusal may come before everything was sent.
        stream.write_all(bytes).await.unwrap_or_default();
        stream.shutdown().await.unwrap_or_default();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    };
    tokio::time::timeout(STEP_MAX, talking).await.expect("the connection ended")
}

/// A host that answers every request of HTTP with its own head and body, and repeats everything else.
async fn host() -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let received: Arc<Mutex<Vec<String>>> = Arc::default();
    let kept = Arc::clone(&received);
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let place = {
                let mut all = kept.lock().unwrap();
                all.push(String::new());
                all.len() - 1
            };
            let kept = Arc::clone(&kept);
            tokio::spawn(async move {
                let (mut buffer, mut head) = (vec![0; 1 << 16], String::new());
                let mut is_switched = false;
                while let Ok(length @ 1..) = socket.read(&mut buffer).await {
                    let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
                    kept.lock().unwrap()[place].push_str(&text);
                    if is_switched || head.is_empty() && !text.contains(" HTTP/1.1\r\n") {
                        let bytes = buffer[..length].to_vec();
                        if socket.write_all(&bytes).await.is_err() {
                            return;
                        }
                        continue;
                    }
                    head.push_str(&text);
                    while let Some(end) = head.find("\r\n\r\n") {
                        let rest = head.split_off(end + 4);
                        let answer = answer(&head);
                        is_switched = answer.starts_with("HTTP/1.1 101");
                        head = rest;
                        if socket.write_all(answer.as_bytes()).await.is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    (address, received)
}

fn answer(head: &str) -> String {
    if head.to_ascii_lowercase().contains("upgrade: echo") {
        return "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n"
            .to_owned();
    }
    let line = head.lines().next().unwrap_or_default();
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{line}\n", line.len() + 1)
}
