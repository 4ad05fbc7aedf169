//! Deletions of sessions, and those that the database does not know about yet.
//!
//! The reply to a deletion means that the session cannot come back, and it does not wait for an
//! unreachable database: the outbox keeps the deletion until the database has it. Until then, rows
//! that it covers are not read.
//!
//! A deletion covers rows that were created before it. It may therefore be applied twice, and rows
//! of a later session with the same name stay.

use std::collections::BTreeMap;
use std::sync::Mutex;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::files::FileRow;
use super::statement::{Value, change};
use super::{Store, StoreError};
use woma_sandbox::sync::lock;

/// Part of a session that is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Deletion {
    /// The checkpoint of its variables.
    Checkpoint,
    /// The session with its files and its checkpoint.
    Session,
}

/// Deletion of a session or of its checkpoint at a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletionRow {
    pub owner: String,
    pub session_id: String,
    pub what: Deletion,
    pub at: Timestamp,
}

/// Deletions that wait in the outbox, by owner and session.
#[derive(Debug, Default)]
pub(crate) struct PendingDeletions(Mutex<BTreeMap<(String, String), Vec<DeletionRow>>>);

impl PendingDeletions {
    pub(crate) fn add(&self, deletion: &DeletionRow) {
        lock(&self.0).entry(key(deletion)).or_default().push(deletion.clone());
    }

    pub(crate) fn remove(&self, deletion: &DeletionRow) {
        let mut pending = lock(&self.0);
        let Some(of_session) = pending.get_mut(&key(deletion)) else { return };
        of_session.retain(|other| other != deletion);
        if of_session.is_empty() {
            pending.remove(&key(deletion));
        }
    }

    /// Whether a row of this part of a session, created at that time, is deleted.
    pub(crate) fn covers(
        &self,
        owner: &str,
        session: &str,
        what: Deletion,
        created_at: Timestamp,
    ) -> bool {
        let pending = lock(&self.0);
        if pending.is_empty() {
            return false;
        }
        let of_session = pending.get(&(owner.to_owned(), session.to_owned()));
        let is_covered = |deletion: &DeletionRow| {
            deletion.what >= what && created_at.as_microsecond() <= deletion.at.as_microsecond()
        };
        of_session.is_some_and(|deletions| deletions.iter().any(is_covered))
    }

    /// Whether this part of a session waits for its deletion. The database then has no row of it
    /// but those that are covered: later ones wait behind the deletion.
    pub(super) fn has(&self, owner: &str, session: &str, what: Deletion) -> bool {
        self.covers(owner, session, what, Timestamp::MIN)
    }
}

fn key(deletion: &DeletionRow) -> (String, String) {
    (deletion.owner.clone(), deletion.session_id.clone())
}

impl Store {
    /// Deletes the rows that a deletion covers.
    pub async fn delete(&self, deletion: &DeletionRow) -> Result<(), StoreError> {
        let covered = |sql: &'static str| {
            let (owner, session) = (deletion.owner.as_str(), deletion.session_id.as_str());
            change(sql, vec![owner.into(), session.into(), Value::time(deletion.at)])
        };
        let mut unit = vec![covered(
            "DELETE FROM checkpoints WHERE owner = $1 AND session_id = $2 AND created_at <= $3",
        )];
        if deletion.what == Deletion::Checkpoint {
            // The folder is emptied; the addresses of its files stay.
            unit.push(covered(
                "UPDATE files SET left_at = $3 WHERE owner = $1 AND session_id = $2 \
                 AND created_at <= $3 AND left_at IS NULL",
            ));
        }
        if deletion.what == Deletion::Session {
            unit.push(covered(
                "DELETE FROM files WHERE owner = $1 AND session_id = $2 AND created_at <= $3",
            ));
            unit.push(covered(
                "DELETE FROM sessions WHERE owner = $1 AND id = $2 AND created_at <= $3",
            ));
        }
        self.write(unit).await.map(drop)
    }

    pub(crate) fn pending_deletions(&self) -> &PendingDeletions {
        &self.deletions
    }

    /// Filters out files of deleted sessions.
    pub(super) fn without_deleted(&self, mut files: Vec<FileRow>) -> Vec<FileRow> {
        files.retain(|file| {
            let is_deleted = |session: &String| {
                self.deletions.covers(&file.owner, session, Deletion::Session, file.created_at)
            };
            !file.session_id.as_ref().is_some_and(is_deleted)
        });
        files
    }
}
