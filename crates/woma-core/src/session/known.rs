//! Sessions beyond this process: what the store remembers of them, and how they are known again.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedMutexGuard, oneshot};

use crate::error::Error;
use crate::model::caller::{Caller, CallerId};
use crate::model::{SessionId, SessionInfo};
use crate::session::state::{Label, Session};
use crate::session::table::Sessions;
use crate::storage::db::{AuditEntry, Deletion, DeletionRow, SessionRow};
use crate::storage::durable;
use crate::storage::layout::closed_folder;
use crate::storage::outbox::Entry;
use crate::workspace::Workspaces;
use woma_sandbox::sync::lock;

/// How long a session that is new is not written down because its first run goes on.
const RUN_FIRST_MAX: Duration = Duration::from_millis(50);
/// Logged if neither the outbox nor the database has a session.
const NOT_RECORDED: &str = "A session could not be recorded";
/// Why a session that is known again has no variables.
const BEFORE: &str = "the server was restarted, or has forgotten it";

impl Sessions {
    /// As [`Sessions::recall`], for a call that is about to take its place in the session's queue:
    /// until what is returned is dropped, those that came later wait.
    pub(crate) async fn recall_in_turn(
        &self,
        caller: &Caller,
        id: &SessionId,
    ) -> Result<Option<Recalling<'_>>, Error> {
        let Some(workspaces) = &self.workspaces else {
            self.until_gone(caller, id).await;
            return Ok(None);
        };
        let key = (caller.id.clone(), id.clone());
        let line = {
            let mut lines = lock(&self.recalls);
            let is_new = !self.knows(caller, id) && is_kept(workspaces, caller, id);
            let is_new = is_new || self.leaving(caller, id).is_some();
            match lines.get(&key) {
                Some(line) => Arc::clone(line),
                None if is_new => Arc::clone(lines.entry(key.clone()).or_default()),
                None => return Ok(None),
            }
        };
        // From here on, dropping it gives the turn up.
        let mut recalling = Recalling { lines: &self.recalls, key, turn: None };
        recalling.turn = Some(line.lock_owned().await);
        self.recall(caller, id).await?;
        Ok(Some(recalling))
    }

    /// Makes a session known that has a folder and no place in the table. One that is being deleted
    /// is waited for.
    pub(crate) async fn recall(&self, caller: &Caller, id: &SessionId) -> Result<(), Error> {
        self.until_gone(caller, id).await;
        let Some(workspaces) = &self.workspaces else { return Ok(()) };
        if self.knows(caller, id) || !is_kept(workspaces, caller, id) {
            return Ok(());
        }
        let asked = workspaces.storage.db.session(caller.id.as_str(), id.as_str());
        let row = workspaces.storage.db.in_time(asked).await.ok().flatten();
        if row.is_some() {
            let process = &workspaces.storage.process;
            let taken =
                workspaces.storage.db.take_session(caller.id.as_str(), id.as_str(), process);
            if let Err(error) = workspaces.storage.db.in_time(taken).await {
                tracing::warn!(%error, session = %id, "The lease on a session is not in the database");
            }
        }
        let past = (row.as_ref().map_or(0, |row| row.execution_count), BEFORE.to_owned());
        let of_row = row.map(|row| Written {
            name: row.name,
            description: row.description.unwrap_or_default(),
            policy: row.policy,
        });
        // A session keeps its rules, also while the store is away.
        let written = Written::read(&workspaces.storage.folder(&caller.id, id))?
            .or(of_row)
            .unwrap_or_default();
        let Written { name, description, policy } = written;
        let of_session = |policy: String| self.policies.of_session(caller, &policy);
        let rules = policy.map(of_session).transpose()?;
        let label = Label { name, description, rules, past: Some(past), home: None };
        self.revive(caller, id.clone(), label)
    }

    /// Records a session that a caller has created. When this returns, the record survives a crash
    /// and loss of power, or the log says that it does not.
    pub(crate) async fn remember(&self, caller: &Caller, session: &Arc<Session>) {
        let Some(workspaces) = &self.workspaces else { return };
        let row = row(workspaces, caller, &self.info(session));
        write_label(workspaces, caller, session, &row).await;
        let outbox = &workspaces.storage.outbox;
        match outbox.push_synced(vec![Entry::Session(Box::new(row))]).await {
            Ok(()) => outbox.settle_in_time().await,
            Err(error) => tracing::error!(%error, session = %session.id, "{NOT_RECORDED}"),
        }
    }

    /// Records a session that a run has created, in the background: the run has the processors
    /// first. It happens when the returned value is dropped, or after a moment.
    pub(crate) fn remember_soon(
        &self,
        caller: &Caller,
        session: &Arc<Session>,
    ) -> Option<oneshot::Sender<()>> {
        let workspaces = Arc::clone(self.workspaces.as_ref()?);
        let row = row(&workspaces, caller, &self.info(session));
        let (caller, session) = (caller.clone(), Arc::clone(session));
        let (running, ended) = oneshot::channel::<()>();
        tokio::spawn(async move {
            // Both results mean that the time has come.
            tokio::time::timeout(RUN_FIRST_MAX, ended).await.map(drop).unwrap_or_default();
            if session.is_deleted() {
                return;
            }
            write_label(&workspaces, &caller, &session, &row).await;
            let entry = Entry::Session(Box::new(row));
            if let Err(error) = workspaces.storage.outbox.push(entry) {
                tracing::error!(%error, session = %session.id, "{NOT_RECORDED}");
            }
        });
        Some(running)
    }

    /// Records the deletion of a session or of its checkpoint, with its entry in the audit trail.
    /// When this returns, the session cannot come back, also after loss of power; or nothing has
    /// been done.
    pub(crate) async fn record_deletion(
        &self,
        caller: &Caller,
        id: &SessionId,
        what: Deletion,
        audit: AuditEntry,
    ) -> Result<(), Error> {
        let Some(workspaces) = &self.workspaces else { return Ok(()) };
        let (storage, audit) = (&workspaces.storage, Box::new(audit));
        let deletion = deletion(&caller.id, id, what);
        let entries = vec![Entry::Deletion(deletion.clone()), Entry::Audit(audit.clone())];
        let Err(error) = storage.outbox.push_synced(entries).await else { return Ok(()) };
        tracing::warn!(%error, "A deletion is not in the outbox; the database is used");
        storage.db.delete(&deletion).await?;
        Ok(storage.db.append_audit(&audit).await?)
    }

    /// Sessions that only the store remembers.
    pub(crate) async fn dormant(&self, caller: &Caller) -> Vec<SessionInfo> {
        let Some(workspaces) = &self.workspaces else { return Vec::new() };
        let asked = workspaces.storage.db.sessions(caller.id.as_str());
        let rows = workspaces.storage.db.in_time(asked).await.ok();
        let known = |id: &SessionId| self.knows(caller, id);
        rows.unwrap_or_default()
            .into_iter()
            .filter_map(info)
            .filter(|info| !known(&info.id) && is_kept(workspaces, caller, &info.id))
            .collect()
    }
}

/// The deletion of a session or of its checkpoint, now.
pub(crate) fn deletion(owner: &CallerId, id: &SessionId, what: Deletion) -> DeletionRow {
    let (owner, session_id) = (owner.as_str().to_owned(), id.as_str().to_owned());
    DeletionRow { owner, session_id, what, at: Timestamp::now() }
}

/// Writes the label of a session beside its folder, if it has one: most have not.
async fn write_label(
    workspaces: &Workspaces,
    caller: &Caller,
    session: &Session,
    row: &SessionRow,
) {
    let (label, folder) = (Written::of(row), workspaces.storage.folder(&caller.id, &session.id));
    if label != Written::default() {
        let written = tokio::task::spawn_blocking(move || label.write(&folder)).await;
        written.unwrap_or_else(|error| tracing::warn!(%error, "A session's name is not kept"));
    }
}

/// Whether anything is left of a session on the disk: its files, or what was said of it.
fn is_kept(workspaces: &Workspaces, caller: &Caller, id: &SessionId) -> bool {
    let folder = workspaces.storage.folder(&caller.id, id);
    folder.is_dir() || Written::path(&folder).is_file()
}

/// Name, description and policy of a session, kept beside its folder for when the store is away.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Written {
    name: Option<String>,
    description: String,
    policy: Option<String>,
}

impl Written {
    fn of(row: &SessionRow) -> Self {
        Self {
            name: row.name.clone().filter(|name| *name != row.id),
            description: row.description.clone().unwrap_or_default(),
            policy: row.policy.clone(),
        }
    }

    fn path(folder: &Path) -> PathBuf {
        let mut path = folder.as_os_str().to_owned();
        path.push(".label");
        path.into()
    }

    fn read(folder: &Path) -> Result<Option<Self>, Error> {
        match std::fs::read(Self::path(folder)) {
            Ok(text) => serde_json::from_slice(&text)
                .map(Some)
                .map_err(|error| io::Error::from(error).into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn write(&self, folder: &Path) {
        let path = Self::path(folder);
        let written = serde_json::to_vec(self).map_err(io::Error::from).and_then(|text| {
            path.parent().map_or(Ok(()), closed_folder)?;
            durable::replace(&path, &text)
        });
        if let Err(error) = written {
            tracing::warn!(%error, "The rules and the name of a session are in the store only");
        }
    }
}

/// Takes away what was said of the session with that folder.
pub(crate) fn drop_label(folder: &Path) {
    match std::fs::remove_file(Written::path(folder)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, "The name of a session could not be removed");
        }
        _ => {}
    }
}

/// A place in the line of calls that wait until a session is known again.
pub(crate) struct Recalling<'a> {
    lines: &'a Lines,
    key: (CallerId, SessionId),
    turn: Option<OwnedMutexGuard<()>>,
}

/// By session: who recalls it, and who waits behind.
pub(crate) type Lines = Mutex<BTreeMap<(CallerId, SessionId), Arc<tokio::sync::Mutex<()>>>>;

impl Drop for Recalling<'_> {
    fn drop(&mut self) {
        let mut lines = lock(self.lines);
        self.turn = None;
        // Only the map has it: no call waits.
        if lines.get(&self.key).is_some_and(|line| Arc::strong_count(line) == 1) {
            lines.remove(&self.key);
        }
    }
}

fn row(workspaces: &Workspaces, caller: &Caller, info: &SessionInfo) -> SessionRow {
    SessionRow {
        owner: caller.id.as_str().to_owned(),
        id: info.id.as_str().to_owned(),
        name: Some(info.name.clone()),
        description: Some(info.description.clone()),
        policy: info.policy.clone(),
        lease_server: Some(workspaces.storage.process.clone()),
        created_at: info.created_at,
        last_used_at: Timestamp::now(),
        execution_count: info.execution_count,
    }
}

fn info(row: SessionRow) -> Option<SessionInfo> {
    let id = SessionId::parse(&row.id).ok()?;
    Some(SessionInfo {
        name: row.name.unwrap_or_else(|| id.to_string()),
        id,
        description: row.description.unwrap_or_default(),
        created_at: row.created_at,
        last_activity: row.last_used_at,
        is_busy: false,
        is_live: false,
        execution_count: row.execution_count,
        policy: row.policy,
        expires_in: None,
    })
}
