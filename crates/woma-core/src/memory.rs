//! Sessions beyond this process: what the store remembers of them, and how they are known again.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedMutexGuard, oneshot};
use tokio::time::error::Elapsed;

use crate::caller::{Caller, CallerId};
use crate::lock::lock;
use crate::model::{SessionId, SessionInfo};
use crate::service::Shared;
use crate::session::{Label, Session};
use crate::store::{Forgotten, SessionRow, SessionState, StoreError};
use crate::vault::{Vault, closed_folder};
use crate::{Error, Service};

/// A store that takes longer to note a session is told later: there is more to one than its name.
const WRITE_MAX: Duration = Duration::from_millis(500);
/// What a store gets to hear that a session is gone, before it is told so later.
const SETTLE_MAX: Duration = Duration::from_secs(2);
/// How long a session that is new is not written down because its first run goes on.
const RUN_FIRST_MAX: Duration = Duration::from_millis(50);
/// A store that is away is asked again.
const AGAIN: Duration = Duration::from_secs(2);
/// Sessions that may wait for a store that is away.
const UNWRITTEN_MAX: usize = 10_000;
/// Why a session that is known again has no variables.
const BEFORE: &str = "the server was restarted, or has forgotten it";

impl Service {
    /// As [`Service::recall`], for a call that is about to take its place in the session's queue:
    /// until what is returned is dropped, those that came later wait.
    pub(crate) async fn recall_in_turn(
        &self,
        caller: &Caller,
        id: &SessionId,
    ) -> Result<Option<Recalling<'_>>, Error> {
        let shared = &self.shared;
        let Some(vault) = &shared.vault else {
            shared.sessions.until_gone(caller, id).await;
            return Ok(None);
        };
        let key = (caller.id.clone(), id.clone());
        let line = {
            let mut lines = lock(&shared.recalls);
            let is_new = !shared.sessions.knows(caller, id) && is_kept(vault, caller, id);
            let is_new = is_new || shared.sessions.leaving(caller, id).is_some();
            match lines.get(&key) {
                Some(line) => Arc::clone(line),
                None if is_new => Arc::clone(lines.entry(key.clone()).or_default()),
                None => return Ok(None),
            }
        };
        // From here on it is given up by dropping it, whoever gives up.
        let mut recalling = Recalling { lines: &shared.recalls, key, turn: None };
        recalling.turn = Some(line.lock_owned().await);
        self.recall(caller, id).await?;
        Ok(Some(recalling))
    }

    /// Makes a session known that has a folder and no place in the table. One that is being deleted
    /// is waited for.
    pub(crate) async fn recall(&self, caller: &Caller, id: &SessionId) -> Result<(), Error> {
        let shared = &self.shared;
        shared.sessions.until_gone(caller, id).await;
        let Some(vault) = &shared.vault else { return Ok(()) };
        if shared.sessions.knows(caller, id) || !is_kept(vault, caller, id) {
            return Ok(());
        }
        let asked = vault.store.session(caller.id.as_str(), id.as_str());
        let row = vault.store.in_time(asked).await.ok().flatten();
        let past = (row.as_ref().map_or(0, |row| row.execution_count), BEFORE.to_owned());
        let of_row = row.map(|row| Written {
            name: row.name,
            description: row.description.unwrap_or_default(),
            policy: row.policy,
        });
        // A session keeps its rules, also while the store is away.
        let written = Written::read(&vault.folder(&caller.id, id))?.or(of_row).unwrap_or_default();
        let Written { name, description, policy } = written;
        let of_session = |policy: String| shared.settings.policies.of_session(caller, &policy);
        let rules = policy.map(of_session).transpose()?;
        let label = Label { name, description, rules, past: Some(past), home: None };
        shared.sessions.revive(caller, id.clone(), label)
    }

    /// Writes down that a session is there, so that another server knows its name. A store that is
    /// away is told later, and nobody waits for that.
    pub(crate) async fn remember(&self, caller: &Caller, session: &Arc<Session>) {
        if let Some(vault) = &self.shared.vault {
            let row = row(vault, caller, &self.shared.sessions.info(session));
            self.write_down(vault, caller, session, row).await;
        }
    }

    /// The same for a session that a run has made, without being waited for: its folder says that it
    /// is there. The run has the processors first: it is done when what is returned is dropped, or
    /// after a moment.
    pub(crate) fn remember_soon(
        &self,
        caller: &Caller,
        session: &Arc<Session>,
    ) -> Option<oneshot::Sender<()>> {
        let vault = Arc::clone(self.shared.vault.as_ref()?);
        let row = row(&vault, caller, &self.shared.sessions.info(session));
        let (service, caller, session) = (self.clone(), caller.clone(), Arc::clone(session));
        let (running, ended) = oneshot::channel::<()>();
        tokio::spawn(async move {
            // Both ways, its time has come.
            tokio::time::timeout(RUN_FIRST_MAX, ended).await.map(drop).unwrap_or_default();
            if !session.is_deleted() {
                service.write_down(&vault, &caller, &session, row).await;
            }
        });
        Some(running)
    }

    async fn write_down(&self, vault: &Vault, caller: &Caller, session: &Session, row: SessionRow) {
        let (label, folder) = (Written::of(&row), vault.folder(&caller.id, &session.id));
        // Most sessions have nothing to be said of them; the others wait for the disk.
        if label != Written::default() {
            let said = tokio::task::spawn_blocking(move || label.write(&folder)).await;
            said.unwrap_or_else(|error| tracing::warn!(%error, "A session's name is not kept"));
        }
        let written = tokio::time::timeout(WRITE_MAX, vault.store.put_session(&row)).await;
        if is_to_be_tried_again(written, &row) {
            let mut unwritten = lock(&self.shared.unwritten);
            if unwritten.len() < UNWRITTEN_MAX {
                unwritten.insert((caller.id.clone(), session.id.clone()), row);
            } else {
                tracing::warn!(session = %session.id, "Too many sessions wait for the store");
            }
        }
    }

    /// Before a session goes: from here on it is forgotten, or nothing has been done.
    pub(crate) async fn mark_forgotten(
        &self,
        caller: &Caller,
        id: &SessionId,
        what: Forgotten,
    ) -> Result<(), Error> {
        let Some(vault) = &self.shared.vault else { return Ok(()) };
        if what == Forgotten::Deleted {
            lock(&self.shared.unwritten).remove(&(caller.id.clone(), id.clone()));
        }
        Ok(vault.store.forget(caller.id.as_str(), id.as_str(), what).await?)
    }

    /// When it has gone: has the store know it, as far as that answers in time.
    pub(crate) async fn settle_forgotten(&self, caller: &Caller, id: &SessionId) {
        let Some(vault) = &self.shared.vault else { return };
        let settled = vault.store.settle(caller.id.as_str(), id.as_str());
        match tokio::time::timeout(SETTLE_MAX, settled).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::info!(%error, session = %id, "The store is told later"),
            Err(_) => tracing::info!(session = %id, "The store is told later"),
        }
    }

    /// Sessions that the store remembers and nobody has asked for yet.
    pub(crate) async fn dormant(&self, caller: &Caller) -> Vec<SessionInfo> {
        let Some(vault) = &self.shared.vault else { return Vec::new() };
        let asked = vault.store.sessions(caller.id.as_str());
        let rows = vault.store.in_time(asked).await.ok();
        let known = |id: &SessionId| self.shared.sessions.knows(caller, id);
        rows.unwrap_or_default()
            .into_iter()
            .filter_map(info)
            .filter(|info| !known(&info.id) && is_kept(vault, caller, &info.id))
            .collect()
    }
}

/// Whether anything is left of a session on the disk: its files, or what was said of it.
fn is_kept(vault: &Vault, caller: &Caller, id: &SessionId) -> bool {
    let folder = vault.folder(&caller.id, id);
    folder.is_dir() || Written::path(&folder).is_file()
}

/// What its owner said of a session, kept beside its folder: it holds where the store is away.
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
        let aside = path.with_extension("new");
        let written = serde_json::to_vec(self).map_err(io::Error::from).and_then(|text| {
            path.parent().map_or(Ok(()), closed_folder)?;
            let mut file = std::fs::File::create(&aside)?;
            file.write_all(&text)?;
            file.sync_all()?;
            std::fs::rename(&aside, &path)
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

fn is_to_be_tried_again(
    written: Result<Result<(), StoreError>, Elapsed>,
    row: &SessionRow,
) -> bool {
    match written {
        Ok(Ok(())) => false,
        Ok(Err(error)) => {
            tracing::warn!(%error, session = row.id, "A session could not be written down");
            error.is_passing()
        }
        Err(_) => true,
    }
}

/// Sessions that the store has not heard of yet.
pub(crate) type Unwritten = Mutex<BTreeMap<(CallerId, SessionId), SessionRow>>;

/// Has the store know of sessions that were made or deleted while it was away. One after the other:
/// a store that has just come back is not to be run over. Ends with the service.
pub(crate) async fn keep_telling(shared: Weak<Shared>) {
    loop {
        let Some(shared) = shared.upgrade() else { return };
        let Some(vault) = &shared.vault else { return };
        match vault.store.settle_all().await {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "The store has heard of sessions that are gone"),
            Err(error) => tracing::debug!(%error, "the store has not heard of all that is gone"),
        }
        tell(&shared, vault).await;
        drop(shared);
        tokio::time::sleep(AGAIN).await;
    }
}

async fn tell(shared: &Shared, vault: &Vault) {
    loop {
        let Some(((owner, id), row)) = lock(&shared.unwritten).pop_first() else { return };
        // One that has gone in the meantime was never there.
        let is_there = shared.sessions.knows_of(&owner, &id) || vault.folder(&owner, &id).is_dir();
        if !is_there {
            continue;
        }
        let written = tokio::time::timeout(SETTLE_MAX, vault.store.put_session(&row)).await;
        if is_to_be_tried_again(written, &row) {
            // A later one of that name knows better.
            lock(&shared.unwritten).entry((owner, id)).or_insert(row);
            return;
        }
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
        // Only the map has it: nobody waits.
        if lines.get(&self.key).is_some_and(|line| Arc::strong_count(line) == 1) {
            lines.remove(&self.key);
        }
    }
}

fn row(vault: &Vault, caller: &Caller, info: &SessionInfo) -> SessionRow {
    SessionRow {
        owner: caller.id.as_str().to_owned(),
        id: info.id.as_str().to_owned(),
        name: Some(info.name.clone()),
        description: Some(info.description.clone()),
        policy: info.policy.clone(),
        folder: None,
        server: vault.server.clone(),
        // When it was last used tells more: it is written with each execution.
        state: SessionState::Dormant,
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
