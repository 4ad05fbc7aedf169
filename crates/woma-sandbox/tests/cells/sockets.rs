//! Sockets of the server in a room, and connections of the server to servers in it.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use libtest_mimic::Trial;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use woma_sandbox::{Limits, RoomAddress};

use crate::harness::until;
use crate::{complete, open, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("sockets: code reaches a TCP listener of the server in its room", tcp),
        trial("sockets: code asks a datagram socket of the server in its room", udp),
        trial("sockets: code reaches a service by its path and cannot replace it", service),
        trial("sockets: the server reaches a server in the room, also during a run", connect),
        trial("sockets: a port that is taken, and a room that is gone, are errors", errors),
        trial("sockets: neither another room nor the host sees a listener", apart),
        trial("sockets: names are looked up at the room's own name server", names),
    ]
}

fn at(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
}

/// Answers one connection with what it said, in capitals.
fn answer_one(listener: TcpListener) -> std::thread::JoinHandle<io::Result<()>> {
    listener.set_nonblocking(false).unwrap();
    std::thread::spawn(move || {
        let (mut peer, _) = listener.accept()?;
        // What accept returns blocks, although the listener did not.
        let mut said = [0; 5];
        peer.read_exact(&mut said)?;
        peer.write_all(&said.to_ascii_uppercase())
    })
}

const TALK: &str = r#"
import socket
def talk(port):
    with socket.create_connection(("127.0.0.1", port), timeout=30) as peer:
        peer.sendall(b"hello")
        return peer.recv(5)
"#;

async fn tcp() {
    let mut cell = open(Limits::default()).await;
    complete(&mut cell, TALK).await;
    for port in [80, 443, 880, 3128] {
        let socket = cell.sockets().listen(&RoomAddress::Tcp(at(port))).await.unwrap();
        let answering = answer_one(TcpListener::from(socket));
        let said = complete(&mut cell, &format!("print(talk({port}))")).await;
        assert_eq!(said.stdout, "b'HELLO'\n", "{port}");
        answering.join().unwrap().unwrap();
    }
    // A closed listener can be made again.
    let again = cell.sockets().listen(&RoomAddress::Tcp(at(880))).await.unwrap();
    let answering = answer_one(TcpListener::from(again));
    assert_eq!(complete(&mut cell, "print(talk(880))").await.stdout, "b'HELLO'\n");
    answering.join().unwrap().unwrap();
}

async fn udp() {
    let mut cell = open(Limits::default()).await;
    let socket = cell.sockets().listen(&RoomAddress::Udp(at(53))).await.unwrap();
    let socket = UdpSocket::from(socket);
    socket.set_nonblocking(false).unwrap();
    let answering = std::thread::spawn(move || {
        let mut buffer = [0; 512];
        let (length, from) = socket.recv_from(&mut buffer)?;
        buffer.reverse();
        socket.send_to(&buffer[512 - length..], from)
    });
    let ask = "import socket\n\
               s = socket.socket(type=socket.SOCK_DGRAM)\n\
               s.sendto(b'abc', ('127.0.0.1', 53))\n\
               print(s.recv(10))";
    assert_eq!(complete(&mut cell, ask).await.stdout, "b'cba'\n");
    answering.join().unwrap().unwrap();
}

const REPLACE: &str = r#"
import os, socket
held = []
def tried(name, action):
    try:
        action()
        held.append(name)
    except OSError:
        pass
path = "/run/woma/packages.sock"
def bound(at):
    socket.socket(socket.AF_UNIX).bind(at)
tried("remove", lambda: os.remove(path))
tried("rename", lambda: os.rename(path, "/run/scratch/x"))
tried("replace", lambda: os.rename("/run/scratch/tmp", path))
tried("bind", lambda: bound(path))
tried("bind beside", lambda: bound("/run/woma/other"))
tried("folder", lambda: os.rename("/run/woma", "/run/scratch/woma"))
tried("link", lambda: os.symlink("/tmp/x", "/run/woma/y"))
tried("chmod", lambda: os.chmod(path, 0))
with socket.socket(socket.AF_UNIX) as peer:
    peer.connect(path)
    peer.sendall(b"hello")
    print(held, peer.recv(5))
"#;

async fn service() {
    let mut cell = open(Limits::default()).await;
    let before = complete(&mut cell, "import os\nprint(os.listdir('/run/woma'))").await;
    assert_eq!(before.stdout, "[]\n");
    assert_eq!(RoomAddress::service_path("packages.sock"), "/run/woma/packages.sock");
    for name in ["", "../x", "UPPER", "a/b", "nul\0", &"x".repeat(65)] {
        let bad = RoomAddress::Service(name.to_owned());
        assert!(cell.sockets().listen(&bad).await.is_err(), "{name}");
    }
    let place = RoomAddress::Service("packages.sock".to_owned());
    let listener = UnixListener::from(cell.sockets().listen(&place).await.unwrap());
    listener.set_nonblocking(false).unwrap();
    let answering = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept()?;
        let mut said = [0; 5];
        peer.read_exact(&mut said)?;
        peer.write_all(&said.to_ascii_uppercase())
    });
    assert_eq!(complete(&mut cell, REPLACE).await.stdout, "[] b'HELLO'\n");
    answering.join().unwrap().unwrap();
}

async fn connect() {
    let mut cell = open(Limits::default()).await;
    let serve = "import socket, threading\n\
                 def serve(at):\n\
                 \x20   server = socket.create_server(*at)\n\
                 \x20   def answer():\n\
                 \x20       while True:\n\
                 \x20           peer, _ = server.accept()\n\
                 \x20           with peer: peer.sendall(peer.recv(5)[::-1])\n\
                 \x20   threading.Thread(target=answer, daemon=True).start()\n\
                 serve([('127.0.0.1', 8000)])\n\
                 import functools\n\
                 socket.create_server = functools.partial(socket.create_server, family=socket.AF_INET6)\n\
                 serve([('::1', 8001)])";
    complete(&mut cell, serve).await;
    let sockets = cell.sockets();
    let refused = sockets.connect(8002).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    let talk = async |port| {
        let mut peer = sockets.connect(port).await.unwrap();
        peer.write_all(b"hello").await.unwrap();
        let mut said = String::new();
        peer.read_to_string(&mut said).await.unwrap();
        assert_eq!(said, "olleh");
    };
    // Both families; and while code runs, without waiting for its end.
    let busy = "import time\nwhile True: time.sleep(0.005)";
    let running = complete(&mut cell, busy);
    let talking = async {
        for port in [8000, 8001, 8000] {
            tokio::time::timeout(Duration::from_secs(30), talk(port)).await.unwrap();
        }
    };
    tokio::select! {
        _ = running => panic!("the run has no reason to end"),
        () = talking => {}
    }
}

async fn errors() {
    let mut cell = open(Limits::default()).await;
    complete(&mut cell, "import socket\ntaken = socket.create_server(('127.0.0.1', 3128))").await;
    let sockets = cell.sockets();
    let taken = sockets.listen(&RoomAddress::Tcp(at(3128))).await.unwrap_err();
    assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    // The room answers as before.
    complete(&mut cell, "taken.close()").await;
    drop(sockets.listen(&RoomAddress::Tcp(at(3128))).await.unwrap());
    cell.close().await.unwrap();
    assert!(sockets.listen(&RoomAddress::Tcp(at(3128))).await.is_err());
    assert!(sockets.connect(80).await.is_err());
}

async fn apart() {
    let cell = open(Limits::default()).await;
    let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 47_113);
    let _listener = cell.sockets().listen(&RoomAddress::Tcp(any)).await.unwrap();
    let service = RoomAddress::Service("packages.sock".to_owned());
    let _service = cell.sockets().listen(&service).await.unwrap();
    let mut other = open(Limits::default()).await;
    let look = "import os, socket\n\
                with socket.socket() as peer:\n\
                \x20   print(peer.connect_ex(('127.0.0.1', 47113)), os.listdir('/run/woma'))";
    assert_eq!(complete(&mut other, look).await.stdout, "111 []\n");
    assert!(std::net::TcpStream::connect(at(47_113)).is_err());
    drop(TcpListener::bind(at(47_113)).unwrap());
}

async fn names() {
    let mut cell = open(Limits::default()).await;
    let socket = cell.sockets().listen(&RoomAddress::Udp(at(53))).await.unwrap();
    let socket = UdpSocket::from(socket);
    let look = "import socket\n\
                try: socket.getaddrinfo('example.org', 80)\n\
                except socket.gaierror: pass";
    let running = complete(&mut cell, look);
    let asked = until("a question", Duration::from_secs(10), || {
        let mut buffer = [0; 512];
        match socket.recv_from(&mut buffer) {
            Ok((length, _)) => Ok(buffer[..length].windows(7).any(|part| part == b"example")),
            Err(error) => Err(error.to_string()),
        }
    });
    tokio::select! {
        _ = running => panic!("nobody answers, so the lookup has not ended"),
        asked = asked => assert!(asked),
    }
}
