//! An index of packages on loopback, with wheels and source archives that the tests make.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use sha2::{Digest, Sha256};

/// A file of the index.
#[derive(Clone)]
struct Served {
    content: Vec<u8>,
    /// As the page announces it.
    sha256: String,
    /// Whether the index never sends the end of it.
    stalls: bool,
}

#[derive(Default)]
struct State {
    files: BTreeMap<String, BTreeMap<String, Served>>,
    /// Pages instead of those of the files.
    pages: BTreeMap<String, Vec<u8>>,
    /// Heads of requests.
    requests: Vec<String>,
}

/// An index; it is served until the tests end.
#[derive(Clone)]
pub(crate) struct Index {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Index {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let index = Self { address: listener.local_addr().unwrap(), state: Arc::default() };
        let served = index.clone();
        thread::spawn(move || {
            for link in listener.incoming().map_while(Result::ok) {
                let served = served.clone();
                // A client that has gone is no failure of the test.
                thread::spawn(move || served.answer(link).unwrap_or_default());
            }
        });
        index
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/simple", self.address)
    }

    /// With a user and a password.
    pub(crate) fn url_with(&self, credentials: &str) -> String {
        format!("http://{credentials}@{}/simple", self.address)
    }

    /// Adds a wheel with one module, which has `VERSION`.
    pub(crate) fn add(&self, name: &str, version: &str, needs: &[&str]) {
        let module = format!("VERSION = {version:?}\n");
        self.add_wheel(name, version, &[(&format!("{name}.py"), module.as_bytes())], needs);
    }

    pub(crate) fn add_wheel(
        &self,
        name: &str,
        version: &str,
        files: &[(&str, &[u8])],
        needs: &[&str],
    ) {
        let content = wheel(name, version, files, needs);
        self.add_file(name, &format!("{name}-{version}-py3-none-any.whl"), content);
    }

    pub(crate) fn add_file(&self, project: &str, file: &str, content: Vec<u8>) {
        let served = Served { sha256: sha256(&content), content, stalls: false };
        let mut state = self.state.lock().unwrap();
        state.files.entry(key(project)).or_default().insert(file.to_owned(), served);
    }

    /// Announces another digest for the files of a project.
    pub(crate) fn lie(&self, project: &str) {
        self.each(project, |served| served.sha256 = sha256(b"something else"));
    }

    /// Never sends the end of the files of a project.
    pub(crate) fn stall(&self, project: &str, stalls: bool) {
        self.each(project, |served| served.stalls = stalls);
    }

    fn each(&self, project: &str, change: impl FnMut(&mut Served)) {
        self.state
            .lock()
            .unwrap()
            .files
            .get_mut(&key(project))
            .unwrap()
            .values_mut()
            .for_each(change);
    }

    pub(crate) fn set_page(&self, project: &str, page: Vec<u8>) {
        self.state.lock().unwrap().pages.insert(project.to_owned(), page);
    }

    /// Heads of the requests with this in them.
    pub(crate) fn requests(&self, part: &str) -> Vec<String> {
        let state = self.state.lock().unwrap();
        state.requests.iter().filter(|head| head.contains(part)).cloned().collect()
    }

    fn answer(&self, link: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(link);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let (found, stalls) = {
            let mut state = self.state.lock().unwrap();
            state.requests.push(head);
            state.find(&path)
        };
        let mut link = reader.into_inner();
        match found {
            None => link.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
            Some(content) => {
                let kind = if path.starts_with("/simple") { "text/html" } else { "binary/octet" };
                write!(
                    link,
                    "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
                    content.len()
                )?;
                if stalls {
                    link.write_all(content.get(..content.len() / 2).unwrap_or_default())?;
                    // Until the client gives up.
                    let mut rest = Vec::new();
                    return std::io::Read::read_to_end(&mut link, &mut rest).map(drop);
                }
                link.write_all(&content)
            }
        }
    }
}

impl State {
    fn find(&self, path: &str) -> (Option<Vec<u8>>, bool) {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        match parts.as_slice() {
            ["simple", project] => {
                if let Some(page) = self.pages.get(*project) {
                    return (Some(page.clone()), false);
                }
                let page = self.files.get(*project).map(|files| {
                    let link = |(name, file): (&String, &Served)| {
                        let sha256 = &file.sha256;
                        format!("<a href=\"/files/{project}/{name}#sha256={sha256}\">{name}</a>\n")
                    };
                    files.iter().map(link).collect::<String>().into_bytes()
                });
                (page, false)
            }
            ["files", project, name] => {
                let file = self.files.get(*project).and_then(|files| files.get(*name));
                (file.map(|file| file.content.clone()), file.is_some_and(|file| file.stalls))
            }
            _ => (None, false),
        }
    }
}

/// The name of a project in addresses.
fn key(project: &str) -> String {
    project.replace('_', "-")
}

fn sha256(content: &[u8]) -> String {
    let hex = |mut text: String, byte: &u8| {
        write!(text, "{byte:02x}").unwrap();
        text
    };
    Sha256::digest(content).iter().fold(String::new(), hex)
}

/// A wheel with these files.
pub(crate) fn wheel(name: &str, version: &str, files: &[(&str, &[u8])], needs: &[&str]) -> Vec<u8> {
    let info = format!("{name}-{version}.dist-info");
    let mut metadata =
        format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: {name}\n");
    for need in needs {
        writeln!(metadata, "Requires-Dist: {need}").unwrap();
    }
    let about = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n";
    let (metadata_at, wheel_at) = (format!("{info}/METADATA"), format!("{info}/WHEEL"));
    let mut all: Vec<(&str, &[u8])> = files.to_vec();
    all.push((&metadata_at, metadata.as_bytes()));
    all.push((&wheel_at, about.as_bytes()));
    let record_at = format!("{info}/RECORD");
    let mut record = String::new();
    let paths = all.iter().map(|(path, _)| *path).chain([record_at.as_str()]);
    for path in paths {
        writeln!(record, "{path},,").unwrap();
    }
    all.push((&record_at, record.as_bytes()));
    zip(&all)
}

/// An archive without compression.
pub(crate) fn zip(files: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut body, mut directory) = (Vec::new(), Vec::new());
    for (path, content) in files {
        let offset = u32::try_from(body.len()).unwrap();
        let size = u32::try_from(content.len()).unwrap();
        let mut common = Vec::new();
        for number in [20_u16, 0x800, 0, 0, 0x21] {
            common.extend(number.to_le_bytes());
        }
        for number in [crc32(content), size, size] {
            common.extend(number.to_le_bytes());
        }
        common.extend(u16::try_from(path.len()).unwrap().to_le_bytes());
        common.extend(0_u16.to_le_bytes());
        body.extend(b"PK\x03\x04");
        body.extend(&common);
        body.extend(path.as_bytes());
        body.extend(*content);
        directory.extend(b"PK\x01\x02\x14\x03");
        directory.extend(&common);
        directory.extend([0_u8; 6]);
        directory.extend((0o100_644_u32 << 16).to_le_bytes());
        directory.extend(offset.to_le_bytes());
        directory.extend(path.as_bytes());
    }
    let count = u16::try_from(files.len()).unwrap().to_le_bytes();
    let (start, length) = (body.len(), directory.len());
    body.extend(&directory);
    body.extend(b"PK\x05\x06\0\0\0\0");
    body.extend([count, count].concat());
    body.extend(u32::try_from(length).unwrap().to_le_bytes());
    body.extend(u32::try_from(start).unwrap().to_le_bytes());
    body.extend([0, 0]);
    body
}

fn crc32(content: &[u8]) -> u32 {
    let step = |mut crc: u32, byte: &u8| {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 };
        }
        crc
    };
    !content.iter().fold(!0, step)
}

/// A tar archive, compressed by `gzip`'s format without compression.
pub(crate) fn sdist(name: &str, version: &str, files: &[(&str, &str)]) -> Vec<u8> {
    let mut tar = Vec::new();
    for (path, content) in files {
        let path = format!("{name}-{version}/{path}");
        let mut header = [0_u8; 512];
        header[..path.len()].copy_from_slice(path.as_bytes());
        header[100..108].copy_from_slice(b"0000644\0");
        header[108..116].copy_from_slice(b"0000000\0");
        header[116..124].copy_from_slice(b"0000000\0");
        header[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
        header[136..148].copy_from_slice(b"00000000000\0");
        header[148..156].copy_from_slice(b"        ");
        header[156] = b'0';
        header[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        tar.extend(header);
        tar.extend(content.as_bytes());
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.resize(tar.len() + 1024, 0);
    let mut packed = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    for (place, part) in tar.chunks(60_000).enumerate() {
        let is_last = (place + 1) * 60_000 >= tar.len();
        let size = u16::try_from(part.len()).unwrap();
        packed.push(u8::from(is_last));
        packed.extend(size.to_le_bytes());
        packed.extend((!size).to_le_bytes());
        packed.extend(part);
    }
    packed.extend(crc32(&tar).to_le_bytes());
    packed.extend(u32::try_from(tar.len()).unwrap().to_le_bytes());
    packed
}
