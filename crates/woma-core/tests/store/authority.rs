//! A test authority, and certificates that it signs.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

pub(crate) struct Authority {
    folder: TempDir,
}

/// Certificate and key as PEM files.
pub(crate) struct Signed {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    pub(crate) fn new() -> Self {
        // A folder that another user can enter, unlike some folders for temporary files.
        let folder = TempDir::new_in("/var/tmp").unwrap();
        let authority = Self { folder };
        authority.make("ca", &["-subj", "/CN=An authority for tests"]);
        authority
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.path("ca.pem")
    }

    /// Signs a certificate for a server name, such as `IP:127.0.0.1` or `DNS:localhost`.
    pub(crate) fn sign(&self, name: &str) -> Signed {
        let file = format!("server-{}", name.replace([':', '.'], "-"));
        let (certificate, key) = (self.certificate(), self.path("ca.key"));
        let alternative = format!("subjectAltName={name}");
        let signed_by = [
            "-CA",
            certificate.to_str().unwrap(),
            "-CAkey",
            key.to_str().unwrap(),
            "-subj",
            "/CN=A server for tests",
            "-addext",
            &alternative,
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ];
        self.make(&file, &signed_by);
        let certificate = self.path(&format!("{file}.pem"));
        Signed { certificate, key: self.path(&format!("{file}.key")) }
    }

    fn make(&self, name: &str, arguments: &[&str]) {
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-x509", "-nodes", "-days", "2", "-newkey", "ec"]);
        openssl.args(["-pkeyopt", "ec_paramgen_curve:prime256v1"]).args(arguments);
        openssl.arg("-keyout").arg(self.path(&format!("{name}.key")));
        openssl.arg("-out").arg(self.path(&format!("{name}.pem")));
        let output = openssl.output().expect("openssl is missing: apt-get install openssl");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn path(&self, name: &str) -> PathBuf {
        let folder: &Path = self.folder.path();
        folder.join(name)
    }
}
