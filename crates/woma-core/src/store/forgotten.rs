//! Sessions that were deleted or emptied, until the database knows it.
//!
//! Who deletes a session is told so when it cannot come back, and that must not wait for a database
//! that is away. So it is a mark in a folder first, which a killed server leaves as it is. From then
//! on, what the database has of that session is not read, and nothing new of it is written before
//! the old is gone. Marks are brought to the database by whoever writes next, or by a task.
//!
//! Marks are on the disk only: servers that share the folder know of each other's.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::files::FileRow;
use super::statement::{Statement, change};
use super::{Store, StoreError};
use crate::lock::lock;

/// How much of a session is to be forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Forgotten {
    /// Its variables.
    Emptied,
    /// All of it.
    Deleted,
}

#[derive(Debug, Serialize, Deserialize)]
struct Mark {
    owner: String,
    session: String,
    what: Forgotten,
    /// Tells it from a later one for the same session.
    number: uuid::Uuid,
}

#[derive(Debug, Default)]
pub(super) struct Marks {
    folder: OnceLock<PathBuf>,
    /// Held for as long as a mark is compared and written.
    writing: Mutex<()>,
    /// Held for as long as one is brought to the database: what follows it must not go with it.
    carrying: tokio::sync::Mutex<()>,
}

impl Store {
    /// Where marks are kept. Without a folder a session is forgotten only while the database is
    /// there.
    pub fn keep_marks_in(&self, folder: PathBuf) -> io::Result<()> {
        crate::vault::closed_folder(&folder)?;
        // A second one would be a mistake of ours, and the first one holds.
        self.marks.folder.set(folder).unwrap_or_default();
        Ok(())
    }

    /// From here on a session is forgotten, whatever becomes of the server. The database may hear of
    /// it later.
    pub async fn forget(
        &self,
        owner: &str,
        session: &str,
        what: Forgotten,
    ) -> Result<(), StoreError> {
        let number = uuid::Uuid::new_v4();
        let (owner, session) = (owner.to_owned(), session.to_owned());
        let mark = Mark { owner, session, what, number };
        let Err(error) = self.marks.put(&mark) else { return Ok(()) };
        tracing::debug!(%error, "a mark could not be written, so the database must do");
        self.write(mark.unit()).await.map(drop)
    }

    /// Has the database forget a session that is marked; to be called before anything new of it is
    /// written.
    pub async fn settle(&self, owner: &str, session: &str) -> Result<(), StoreError> {
        if self.marks.find(owner, session)?.is_none() {
            return Ok(());
        }
        let carrying = self.marks.carrying.lock().await;
        if let Some((mark, file)) = self.marks.hold(owner, session)? {
            self.write(mark.unit()).await?;
            self.marks.remove(&mark)?;
            drop(file);
        }
        drop(carrying);
        Ok(())
    }

    /// Has the database forget all sessions that are marked, and says how many that were.
    pub async fn settle_all(&self) -> Result<usize, StoreError> {
        let marks = self.marks.all()?;
        for mark in &marks {
            self.settle(&mark.owner, &mark.session).await?;
        }
        Ok(marks.len())
    }

    /// Whether so much of a session is not to be read any more.
    pub(super) fn is_forgotten(
        &self,
        owner: &str,
        session: &str,
        what: Forgotten,
    ) -> Result<bool, StoreError> {
        Ok(self.marks.find(owner, session)?.is_some_and(|mark| mark.what >= what))
    }

    /// Without those of deleted sessions.
    pub(super) fn remembered(&self, files: Vec<FileRow>) -> Result<Vec<FileRow>, StoreError> {
        let (mut known, mut left) = (BTreeMap::new(), Vec::with_capacity(files.len()));
        for file in files {
            let gone = match &file.session_id {
                None => false,
                Some(session) => match known.get(session) {
                    Some(gone) => *gone,
                    None => {
                        let gone = self.is_forgotten(&file.owner, session, Forgotten::Deleted)?;
                        known.insert(session.clone(), gone);
                        gone
                    }
                },
            };
            if !gone {
                left.push(file);
            }
        }
        Ok(left)
    }
}

impl Mark {
    fn unit(&self) -> Vec<Statement> {
        let done = |sql: &'static str| {
            change(sql, vec![self.owner.as_str().into(), self.session.as_str().into()])
        };
        let mut unit = vec![done("DELETE FROM checkpoints WHERE owner = $1 AND session_id = $2")];
        if self.what == Forgotten::Deleted {
            unit.push(done("DELETE FROM files WHERE owner = $1 AND session_id = $2"));
            unit.push(done("DELETE FROM sessions WHERE owner = $1 AND id = $2"));
        }
        unit
    }
}

impl Marks {
    fn path(&self, owner: &str, session: &str) -> Option<PathBuf> {
        let digest: [u8; 32] = Sha256::digest(format!("{owner}\0{session}")).into();
        Some(self.folder.get()?.join(crate::keys::hex(&digest[..16])))
    }

    fn find(&self, owner: &str, session: &str) -> Result<Option<Mark>, StoreError> {
        let Some(path) = self.path(owner, session) else { return Ok(None) };
        read(&path)
    }

    /// Adds a mark. One that says as much already stays.
    fn put(&self, mark: &Mark) -> Result<(), StoreError> {
        let path = self.path(&mark.owner, &mark.session).ok_or(StoreError::NotFound)?;
        let writing = lock(&self.writing);
        if read(&path)?.is_none_or(|old| old.what < mark.what) {
            let text = serde_json::to_vec(mark);
            let text = text.map_err(|error| StoreError::Internal(error.to_string()))?;
            let aside = path.with_extension(mark.number.to_string());
            if let Err(error) = write_whole(&aside, &text).and_then(|()| fs::rename(&aside, path)) {
                // What is half there takes room where there is none.
                fs::remove_file(&aside).unwrap_or_default();
                return Err(StoreError::of_io(&error));
            }
        }
        drop(writing);
        Ok(())
    }

    /// A mark that no other server is about to carry, for as long as the file is held.
    fn hold(&self, owner: &str, session: &str) -> Result<Option<(Mark, File)>, StoreError> {
        let Some(path) = self.path(owner, session) else { return Ok(None) };
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::of_io(&error)),
        };
        match file.try_lock() {
            Ok(()) => Ok(read(&path)?.map(|mark| (mark, file))),
            Err(TryLockError::WouldBlock) => {
                Err(StoreError::Unavailable("another server writes it".to_owned()))
            }
            Err(TryLockError::Error(error)) => Err(StoreError::of_io(&error)),
        }
    }

    /// Takes a mark away, unless there is a later one by now.
    fn remove(&self, mark: &Mark) -> Result<(), StoreError> {
        let Some(path) = self.path(&mark.owner, &mark.session) else { return Ok(()) };
        let writing = lock(&self.writing);
        if read(&path)?.is_some_and(|now| now.number == mark.number) {
            fs::remove_file(&path).map_err(|error| StoreError::of_io(&error))?;
        }
        drop(writing);
        Ok(())
    }

    fn all(&self) -> Result<Vec<Mark>, StoreError> {
        let Some(folder) = self.folder.get() else { return Ok(Vec::new()) };
        let entries = fs::read_dir(folder).map_err(|error| StoreError::of_io(&error))?;
        let mut marks = Vec::new();
        for entry in entries.flatten() {
            // What a killed server left half written was acknowledged to nobody.
            if entry.path().extension().is_some() {
                continue;
            }
            match read(&entry.path()) {
                Ok(mark) => marks.extend(mark),
                // One that cannot be read must not keep the others from being settled.
                Err(error) => tracing::error!(%error, "A deleted session cannot be told by name"),
            }
        }
        Ok(marks)
    }
}

/// As long as it has not reached the disk, nothing is said.
fn write_whole(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(text)?;
    file.sync_all()
}

fn read(path: &Path) -> Result<Option<Mark>, StoreError> {
    match fs::read(path) {
        Ok(text) => {
            let mark = serde_json::from_slice(&text);
            mark.map(Some).map_err(|error| StoreError::Corrupt(error.to_string()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::of_io(&error)),
    }
}
