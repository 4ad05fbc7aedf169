//! `woma-environment.json`: written last, so its presence means that the environment is complete.
//! It holds all that a start needs to know, so that a start runs no interpreter.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Environment, Error, Managed, Version, python};

const HEX: [char; 16] =
    ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
const FILE_NAME: &str = "woma-environment.json";

/// Record of an environment. It does not contain the environment's own path, so a data directory
/// can be moved.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    /// The base interpreter.
    pub(super) python: PathBuf,
    pub(super) version: Version,
    pub(super) lock_digest: String,
    pub(super) created_unix: u64,
    pub(super) packages: usize,
    pub(super) uv_version: String,
    pub(super) base_prefix: PathBuf,
    pub(super) base_mounts: Vec<PathBuf>,
}

impl Record {
    pub(super) fn environment(self, name: &str, prefix: &Path) -> Environment {
        let mut folders = self.base_mounts;
        folders.push(prefix.to_owned());
        Environment {
            python: prefix.join("bin/python"),
            prefix: prefix.to_owned(),
            base_prefix: self.base_prefix,
            version: self.version,
            mounts: python::mounts(&folders),
            package_folders: vec![
                prefix.join(format!("lib/{}/site-packages", self.version.library())),
            ],
            installer: None,
            managed: Some(Managed {
                name: name.to_owned(),
                lock_digest: self.lock_digest,
                created_unix: self.created_unix,
                packages: self.packages,
                uv_version: self.uv_version,
            }),
        }
    }
}

pub(super) fn write(folder: &Path, record: &Record) -> Result<(), Error> {
    let path = folder.join(FILE_NAME);
    let text = serde_json::to_string_pretty(record)
        .map_err(|error| Error::io("write", &path)(error.into()))?;
    fs::write(&path, text + "\n").map_err(Error::io("write", &path))
}

/// Environment in `folder`; `None` if it is incomplete or its interpreter is missing.
pub(super) fn read(name: &str, folder: &Path) -> Option<Environment> {
    let text = fs::read_to_string(folder.join(FILE_NAME)).ok()?;
    let record: Record = serde_json::from_str(&text).ok()?;
    let environment = record.environment(name, folder);
    environment.python.is_file().then_some(environment)
}

/// SHA-256 in hexadecimal.
pub(super) fn digest(text: &str) -> String {
    let bytes = Sha256::digest(text.as_bytes());
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|half| HEX[usize::from(half)])
        .collect()
}
