//! Inspection of environments that the operator names: a virtual environment, a conda environment,
//! an installation, or an interpreter. They are never changed.

use std::path::{Path, PathBuf};

use super::python;
use super::{Environment, Error};

/// Runs the interpreter at `path` and checks that sessions can run in its environment.
pub fn inspect(path: &Path) -> Result<Environment, Error> {
    let facts = python::probe(&interpreter(path)?)?;
    if !facts.has_ipython {
        return Err(Error::NoIpython { prefix: facts.prefix, python: facts.executable });
    }
    Ok(Environment {
        python: facts.executable,
        prefix: facts.prefix,
        base_prefix: facts.base_prefix,
        version: facts.version,
        mounts: python::mounts(&facts.folders),
        package_folders: facts.packages,
        installer: None,
        managed: None,
    })
}

fn interpreter(path: &Path) -> Result<PathBuf, Error> {
    let path = std::path::absolute(path).map_err(Error::io("read", path))?;
    if path.is_file() {
        return Ok(path);
    }
    if path.is_symlink() && !path.exists() {
        return Err(Error::Dangling { link: path });
    }
    if !path.exists() {
        return Err(Error::Missing(path));
    }
    // An installation in `/usr` often has no plain `python`.
    let candidates = ["bin/python", "bin/python3"].map(|name| path.join(name));
    if let Some(found) = candidates.iter().find(|candidate| candidate.is_file()) {
        return Ok(found.clone());
    }
    match candidates.into_iter().find(|candidate| candidate.is_symlink()) {
        Some(link) => Err(Error::Dangling { link }),
        None => Err(Error::NotAnEnvironment(path)),
    }
}
