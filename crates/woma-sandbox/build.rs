//! Lists the Python files to embed into the binary, so that a new one cannot be forgotten.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let python = Path::new("python");
    println!("cargo::rerun-if-changed=python");
    // Programs have no extension.
    let programs = python.join("shims/bin");
    let mut files = vec![PathBuf::from("zygote.py"), PathBuf::from("container.py")];
    let mut folders = vec![python.join("_woma_kernel"), python.join("shims")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.starts_with(&programs)
                || path.extension().is_some_and(|extension| extension == "py")
            {
                files.push(path.strip_prefix(python).unwrap_or(&path).to_path_buf());
            }
        }
    }
    files.sort();
    let manifest = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    let mut list = String::from("[\n");
    for file in files {
        let path = manifest.join(python).join(&file);
        let (file, path) = (file.display().to_string(), path.display().to_string());
        writeln!(list, "({file:?}, include_str!({path:?})),").map_err(io::Error::other)?;
    }
    list.push_str("]\n");
    let out = env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    fs::write(out.join("kernel_files.rs"), list)
}
