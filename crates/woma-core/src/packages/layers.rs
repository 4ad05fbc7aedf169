//! Layers: folders with the packages of sessions, named by what is in them and never changed.
//!
//! `<sessions>/packages/<owner>/<digest>/` is a complete layer or does not exist: a cell makes it in
//! its own folder, and it gets its name by a rename. Beside it, `<digest>.json` has its size; its
//! time is that of the last use. Sessions of one caller share layers; callers share none, so that
//! nobody learns or influences what another one installs.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};
use woma_sandbox::sync::lock;
use woma_sandbox::workspace::{measure, remove_tree};

use crate::model::caller::CallerId;
use crate::model::{SessionPackage, hex};
use crate::storage::durable;
use crate::storage::layout::{LayerRecord, closed_folder, name_on_disk};

/// Characters of a layer's name.
const NAME_CHARS: usize = 40;
/// Files of a layer that are counted at most, and removed in one go.
const FILES_MAX: u64 = 1_000_000;

#[derive(Debug)]
pub(crate) struct Layers {
    root: PathBuf,
    /// Layers that live kernels show.
    held: Mutex<BTreeMap<PathBuf, Weak<Layer>>>,
}

/// A layer that is in use: it is not removed.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) folder: PathBuf,
}

impl Layers {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root, held: Mutex::default() }
    }

    /// Name of the layer of these packages. `salt`: what else decides their files.
    pub(crate) fn name(environment: &str, packages: &[SessionPackage], salt: &str) -> String {
        let mut digest = Sha256::new();
        digest.update(environment);
        digest.update(salt);
        for package in packages {
            digest.update([0]);
            let SessionPackage { name, version, sha256, replaces } = package;
            for part in [Some(name), Some(version), sha256.as_ref(), replaces.as_ref()] {
                digest.update(part.map_or("", String::as_str));
                digest.update([1]);
            }
        }
        let mut name = hex(&digest.finalize());
        name.truncate(NAME_CHARS);
        name
    }

    fn folder(&self, owner: &CallerId, layer: &str) -> Option<PathBuf> {
        let is_name = layer.len() == NAME_CHARS && layer.bytes().all(|b| b.is_ascii_hexdigit());
        is_name.then(|| self.root.join(name_on_disk(owner.as_str())).join(layer))
    }

    pub(crate) fn has(&self, owner: &CallerId, layer: &str) -> bool {
        self.folder(owner, layer).is_some_and(|folder| is_complete(&folder))
    }

    /// A layer, to be held while it is shown.
    pub(crate) fn take(&self, owner: &CallerId, layer: &str) -> Option<Arc<Layer>> {
        let folder = self.folder(owner, layer)?;
        let mut held = lock(&self.held);
        if !is_complete(&folder) {
            return None;
        }
        touch(&record_path(&folder));
        if let Some(known) = held.get(&folder).and_then(Weak::upgrade) {
            return Some(known);
        }
        let taken = Arc::new(Layer { folder: folder.clone() });
        held.insert(folder, Arc::downgrade(&taken));
        Some(taken)
    }

    /// Gives a folder that a cell has left its name. What is there already stays: it is the same.
    pub(crate) fn adopt(
        &self,
        owner: &CallerId,
        layer: &str,
        from: &Path,
        bytes: u64,
    ) -> io::Result<()> {
        let folder = self.folder(owner, layer).ok_or(io::ErrorKind::InvalidInput)?;
        if !from.symlink_metadata()?.is_dir() {
            return Err(io::Error::other("the installer has left no folder"));
        }
        let parent = folder.parent().ok_or(io::ErrorKind::InvalidInput)?;
        closed_folder(parent)?;
        let _held = lock(&self.held);
        if is_complete(&folder) {
            return Ok(());
        }
        let text = serde_json::to_vec(&LayerRecord { bytes })?;
        durable::replace(&record_path(&folder), &text)?;
        fs::rename(from, &folder)?;
        durable::sync_folder_of(&folder)
    }

    /// Removes layers that were unused for so long; returns their number.
    pub(crate) fn sweep(&self, unused: Duration) -> io::Result<usize> {
        let mut removed = 0;
        let owners = match fs::read_dir(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            owners => owners?,
        };
        for owner in owners.flatten() {
            for entry in fs::read_dir(owner.path())?.flatten() {
                let record = entry.path();
                if record.extension().is_none_or(|extension| extension != "json") {
                    continue;
                }
                let used = entry.metadata()?.modified()?;
                if SystemTime::now().duration_since(used).is_ok_and(|age| age >= unused) {
                    removed += usize::from(self.remove(&record)?);
                }
            }
        }
        Ok(removed)
    }

    fn remove(&self, record: &Path) -> io::Result<bool> {
        let folder = record.with_extension("");
        {
            let mut held = lock(&self.held);
            held.retain(|_, layer| layer.strong_count() > 0);
            if held.contains_key(&folder) {
                return Ok(false);
            }
            // Without its record it is no layer any more.
            fs::remove_file(record)?;
        }
        match remove_tree(&folder, FILES_MAX) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(true),
        }
    }
}

fn record_path(folder: &Path) -> PathBuf {
    folder.with_extension("json")
}

fn is_complete(folder: &Path) -> bool {
    record_path(folder).is_file() && folder.symlink_metadata().is_ok_and(|found| found.is_dir())
}

/// Disk usage of a folder that a cell has left.
pub(crate) fn size_of(folder: &Path) -> io::Result<u64> {
    Ok(measure(folder, FILES_MAX)?.bytes)
}

fn touch(path: &Path) {
    let touched = File::options().write(true).open(path);
    if let Err(error) = touched.and_then(|file| file.set_modified(SystemTime::now())) {
        tracing::debug!(%error, "The use of a layer could not be recorded");
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::Layers;
    use crate::model::SessionPackage;
    use crate::model::caller::CallerId;

    fn package(version: &str) -> SessionPackage {
        let (name, version) = ("a".to_owned(), version.to_owned());
        SessionPackage { name, version, sha256: None, replaces: None }
    }

    #[test]
    fn a_layer_is_named_by_all_that_decides_its_files() {
        let one = Layers::name("env", &[package("1")], "");
        assert_eq!(one, Layers::name("env", &[package("1")], ""));
        for other in [
            Layers::name("other", &[package("1")], ""),
            Layers::name("env", &[package("2")], ""),
            Layers::name("env", &[package("1"), package("2")], ""),
            Layers::name("env", &[package("1")], "salt"),
            Layers::name("env", &[], ""),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn layers_appear_whole_and_go_when_nothing_holds_them() {
        let folder = tempfile::tempdir().unwrap();
        let layers = Layers::new(folder.path().join("packages"));
        let (owner, other) = (CallerId::new("ann"), CallerId::new("bob"));
        let name = Layers::name("env", &[package("1")], "");
        let made = folder.path().join("made");
        fs::create_dir(&made).unwrap();
        fs::write(made.join("a.py"), "x = 1").unwrap();
        assert!(!layers.has(&owner, &name));
        layers.adopt(&owner, &name, &made, 5).unwrap();
        assert!(layers.has(&owner, &name) && !layers.has(&other, &name));
        // Another cell has made the same.
        fs::create_dir(&made).unwrap();
        layers.adopt(&owner, &name, &made, 5).unwrap();
        let held = layers.take(&owner, &name).unwrap();
        assert!(held.folder.join("a.py").is_file());
        assert_eq!(layers.sweep(Duration::ZERO).unwrap(), 0);
        drop(held);
        assert_eq!(layers.sweep(Duration::from_secs(60)).unwrap(), 0);
        assert_eq!(layers.sweep(Duration::ZERO).unwrap(), 1);
        assert!(!layers.has(&owner, &name));
        for strange in ["", "..", "../../x", &"g".repeat(40)] {
            assert!(layers.take(&owner, strange).is_none(), "{strange}");
        }
    }

    #[test]
    fn refuses_a_link_in_place_of_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let layers = Layers::new(folder.path().join("packages"));
        let link = folder.path().join("layer");
        std::os::unix::fs::symlink("/etc", &link).unwrap();
        let name = Layers::name("env", &[], "");
        assert!(layers.adopt(&CallerId::new("ann"), &name, &link, 0).is_err());
    }
}
