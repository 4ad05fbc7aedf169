//! Installed packages and their disk usage, read without running an interpreter.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Error;

/// Installed distribution.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Package {
    /// Name as in its metadata.
    pub name: String,
    /// Version as in its metadata.
    pub version: String,
}

/// Distributions in these folders, sorted case-insensitively.
pub(super) fn list(folders: &[PathBuf]) -> Result<Vec<Package>, Error> {
    let mut packages = Vec::new();
    for folder in folders {
        for entry in fs::read_dir(folder).map_err(Error::io("read", folder))? {
            let path = entry.map_err(Error::io("read", folder))?.path();
            if path.extension().is_some_and(|extension| extension == "dist-info") {
                // A folder without readable metadata is a partial uninstall, not a package.
                packages.extend(
                    fs::read_to_string(path.join("METADATA")).ok().as_deref().and_then(parse),
                );
            }
        }
    }
    packages.sort_by_cached_key(|package| package.name.to_lowercase());
    packages.dedup();
    Ok(packages)
}

/// Disk usage of a folder in bytes.
pub(super) fn bytes_on_disk(folder: &Path) -> Result<u64, Error> {
    let mut folders = vec![folder.to_owned()];
    let mut bytes = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(Error::io("read", &folder))? {
            let entry = entry.map_err(Error::io("read", &folder))?;
            match entry.metadata() {
                Ok(metadata) => bytes += metadata.blocks() * 512,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(Error::io("read", entry.path())(error)),
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
        }
    }
    Ok(bytes)
}

/// Parses the headers, which end at the first empty line; the description may contain anything.
fn parse(metadata: &str) -> Option<Package> {
    let headers = || metadata.lines().take_while(|line| !line.is_empty());
    let header = |key: &str| headers().find_map(|line| line.strip_prefix(key)).map(str::trim);
    Some(Package { name: header("Name:")?.to_owned(), version: header("Version:")?.to_owned() })
}
