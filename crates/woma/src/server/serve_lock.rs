//! One `woma serve` for each data folder: a lock that ends with its process, and says who has it.

use std::error::Error;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

/// Name of the locked file in the data folder.
const FILE: &str = "serve.lock";
/// How long a server waits for the one before it, which may be ending.
const ENDING_MAX: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);

/// Held while the server runs.
#[derive(Debug)]
pub(crate) struct ServeLock {
    file: File,
}

impl ServeLock {
    /// Locks the data folder, or says which server has it.
    pub(crate) async fn take(data: &Path) -> Result<Self, Box<dyn Error>> {
        fs::create_dir_all(data).map_err(|error| unusable(data, &error))?;
        let path = data.join(FILE);
        let deadline = Instant::now() + ENDING_MAX;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&path).map_err(|error| unusable(data, &error))?;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(error)) => return Err(unusable(data, &error)),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    tokio::time::sleep(PAUSE).await;
                }
                Err(TryLockError::WouldBlock) => return Err(taken(data, &path)),
            }
        }
        let lock = Self { file };
        lock.write(&format!("pid {}", std::process::id()))?;
        Ok(lock)
    }

    /// Adds the address, for whoever finds the folder locked.
    pub(crate) fn tell_address(&self, address: SocketAddr) -> io::Result<()> {
        self.write(&format!("pid {}, http://{address}", std::process::id()))
    }

    fn write(&self, text: &str) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.write_all_at(text.as_bytes(), 0)
    }
}

fn taken(data: &Path, path: &Path) -> Box<dyn Error> {
    let holder = fs::read_to_string(path).unwrap_or_default();
    let holder = match holder.trim() {
        "" => String::new(),
        text => format!(" ({text})"),
    };
    format!(
        "another `woma serve`{holder} uses the data folder {}: stop it, or start this one with \
         another --data-dir. Several servers can share a database (DATABASE_URL), each with a data \
         folder of its own",
        data.display()
    )
    .into()
}

fn unusable(folder: &Path, error: &io::Error) -> Box<dyn Error> {
    let (folder, reason) = (folder.to_owned(), error.to_string());
    Box::new(woma_core::Error::from(woma_core::OpenError::DataFolder { folder, reason }))
}

#[cfg(test)]
mod tests {
    use super::ServeLock;

    #[tokio::test]
    async fn a_second_server_is_told_which_process_has_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let first = ServeLock::take(folder.path()).await.unwrap();
        let pid = std::process::id();
        let said = ServeLock::take(folder.path()).await.unwrap_err().to_string();
        assert!(said.contains(&format!("`woma serve` (pid {pid}) uses")), "{said}");
        first.tell_address("127.0.0.1:8080".parse().unwrap()).unwrap();
        let said = ServeLock::take(folder.path()).await.unwrap_err().to_string();
        assert!(said.contains(&format!("(pid {pid}, http://127.0.0.1:8080) uses")), "{said}");
        assert!(said.contains("--data-dir") && said.contains("DATABASE_URL"), "{said}");
        drop(first);
        ServeLock::take(folder.path()).await.unwrap();
    }
}
