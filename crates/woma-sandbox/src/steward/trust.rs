//! Certificate authorities that sessions trust: the host's, those of the environment, and the
//! server's own.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// Authorities of the server alone, and all of them together.
pub(crate) const OWN: &str = "/opt/woma/trust/server.pem";
pub(crate) const ALL: &str = "/opt/woma/trust/all.pem";

/// Longest text of the server's own authorities: it travels in one message.
pub(crate) const OWN_BYTES_MAX: usize = 32 * 1024;
/// Longest file that is read.
const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Files of systems that have all authorities. The first one that exists is used.
const SYSTEM: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// The file that rooms show in its place.
const SYSTEM_SHOWN: &str = "/etc/ssl/certs/ca-certificates.crt";
/// The copy that a widely used package of Python has, below a folder of packages.
const CERTIFI: &str = "certifi/cacert.pem";

/// Variables that libraries and programs read. The value is the file of all authorities. Those of
/// requests, curl and git are not set, because they would come before what code chooses itself: these
/// programs read files that are replaced.
pub(crate) const VARIABLES: &[&str] = &["SSL_CERT_FILE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"];
/// The variable for authorities in addition to those that a program has.
pub(crate) const ADDED_VARIABLE: &str = "NODE_EXTRA_CA_CERTS";

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// Files that rooms show.
#[derive(Debug)]
pub(crate) struct Trust {
    pub(crate) own: String,
    pub(crate) all: String,
    /// Paths of rooms at which `all` replaces what is there.
    pub(crate) replaced: Vec<PathBuf>,
}

impl Trust {
    /// `mounts`: folders of the host, and where rooms show them.
    pub(crate) fn gather(own: &str, mounts: &[(PathBuf, PathBuf)]) -> Self {
        let own = certificates(own);
        let mut all = own.clone();
        let mut replaced = Vec::new();
        if let Some(text) = SYSTEM.iter().find_map(|path| read(Path::new(path), true)) {
            all.push_str(&text);
        }
        if Path::new(SYSTEM_SHOWN).is_file() {
            replaced.push(PathBuf::from(SYSTEM_SHOWN));
        }
        for (from, to) in mounts {
            for below in certifi_below(from) {
                let Some(text) = read(&from.join(&below), false) else { continue };
                if !all.contains(&text) {
                    all.push_str(&text);
                }
                replaced.push(to.join(&below));
            }
        }
        Self { own, all, replaced }
    }
}

/// Copies of certifi in a prefix of Python, relative to it.
fn certifi_below(prefix: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(prefix.join("lib")) else { return Vec::new() };
    let names = entries.flatten().map(|entry| entry.file_name());
    let pythons = names.filter(|name| name.to_string_lossy().starts_with("python3"));
    let copies =
        pythons.map(|name| Path::new("lib").join(name).join("site-packages").join(CERTIFI));
    copies
        .filter(|copy| prefix.join(copy).symlink_metadata().is_ok_and(|data| data.is_file()))
        .collect()
}

/// The certificates of a file. The launcher may be root, so only a file of the system may be a link.
fn read(path: &Path, may_link: bool) -> Option<String> {
    let flags = if may_link { OFlags::empty() } else { OFlags::NOFOLLOW };
    let file = fs::File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    let mut text = String::new();
    file.ok()?.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(certificates(&text)).filter(|text| !text.is_empty())
}

/// The certificates of a text, and nothing else of it.
fn certificates(text: &str) -> String {
    let mut found = String::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once(BEGIN) {
        let Some((body, behind)) = after.split_once(END) else { break };
        let is_base64 = |c: char| c.is_ascii_alphanumeric() || "+/=\r\n".contains(c);
        if body.chars().all(is_base64) {
            found.push_str(BEGIN);
            found.push_str(body);
            found.push_str(END);
            found.push('\n');
        }
        rest = behind;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n";

    #[test]
    fn only_certificates_are_shown() {
        let other = "-----BEGIN PRIVATE KEY-----\nQUJD\n-----END PRIVATE KEY-----\n";
        assert_eq!(certificates(&format!("# a comment\n{ONE}{other}root:x:0")), ONE);
        assert_eq!(certificates(&format!("{BEGIN}\nroot:x:0\n{END}\n")), "");
        assert_eq!(certificates(&format!("{BEGIN}\nQUJD\n")), "");
    }

    #[test]
    fn certifi_of_an_environment_is_replaced_and_no_link_is_followed() {
        let prefix = tempfile::TempDir::new().unwrap();
        let (linked, own) = ("lib/python3.11/site-packages", "lib/python3.13/site-packages");
        for folder in [linked, own] {
            fs::create_dir_all(prefix.path().join(folder).join("certifi")).unwrap();
        }
        let two = ONE.replace("QUJD", "REVG");
        fs::write(prefix.path().join("elsewhere.pem"), &two).unwrap();
        let at = |folder: &str| prefix.path().join(folder).join(CERTIFI);
        std::os::unix::fs::symlink(prefix.path().join("elsewhere.pem"), at(linked)).unwrap();
        fs::write(at(own), ONE.replace("QUJD", "R0hJ")).unwrap();
        let mounts = [(prefix.path().to_owned(), PathBuf::from("/opt/env"))];
        let trust = Trust::gather(ONE, &mounts);
        assert!(trust.all.starts_with(ONE) && trust.all.contains("R0hJ"));
        assert!(!trust.all.contains("REVG"), "a link was followed");
        assert!(trust.replaced.contains(&Path::new("/opt/env").join(own).join(CERTIFI)));
        assert!(!trust.replaced.contains(&Path::new("/opt/env").join(linked).join(CERTIFI)));
    }
}
