//! Sessions beyond this process: what the store remembers of them, and how they are known again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::OwnedMutexGuard;

use crate::caller::{Caller, CallerId};
use crate::lock::lock;
use crate::model::{SessionId, SessionInfo};
use crate::session::{Label, Session};
use crate::store::{SessionRow, SessionState, StoreError};
use crate::vault::Vault;
use crate::{Error, Service};

/// A store that takes longer is not waited for: a session is more than its name.
const RECALL_MAX: Duration = Duration::from_millis(500);
/// Why a session that is known again has no variables.
const BEFORE: &str = "the server was restarted, or has forgotten it";

impl Service {
    /// The same for a call that is about to take its place in the session's queue: until what is
    /// returned is dropped, those that came later wait.
    pub(crate) async fn recall_in_turn(
        &self,
        caller: &Caller,
        id: &SessionId,
    ) -> Result<Option<Recalling<'_>>, Error> {
        let shared = &self.shared;
        let Some(vault) = &shared.vault else { return Ok(None) };
        let key = (caller.id.clone(), id.clone());
        let line = {
            let mut lines = lock(&shared.recalls);
            let is_new =
                !shared.sessions.knows(caller, id) && vault.folder(&caller.id, id).is_dir();
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

    /// Makes a session known that has a folder and no place in the table.
    pub(crate) async fn recall(&self, caller: &Caller, id: &SessionId) -> Result<(), Error> {
        let shared = &self.shared;
        let Some(vault) = &shared.vault else { return Ok(()) };
        if shared.sessions.knows(caller, id) || !vault.folder(&caller.id, id).is_dir() {
            return Ok(());
        }
        let asked = vault.store.session(caller.id.as_str(), id.as_str());
        let row = tokio::time::timeout(RECALL_MAX, asked).await.ok().and_then(Result::ok).flatten();
        let past = (row.as_ref().map_or(0, |row| row.execution_count), BEFORE.to_owned());
        let mut label = Label { past: Some(past), ..Label::default() };
        if let Some(row) = row {
            let rules = row.policy.as_deref();
            label.rules =
                rules.map(|name| shared.settings.policies.of_session(caller, name)).transpose()?;
            label.name = row.name;
            label.description = row.description.unwrap_or_default();
        }
        shared.sessions.revive(caller, id.clone(), label)
    }

    /// Writes down that a session is there, so that another server knows its name.
    pub(crate) async fn remember(&self, caller: &Caller, session: &Arc<Session>) {
        let Some(vault) = &self.shared.vault else { return };
        let info = self.shared.sessions.info(session);
        let row = row(vault, caller, &info);
        let written = tokio::time::timeout(RECALL_MAX, vault.store.put_session(&row)).await;
        if let Ok(Err(error)) = written {
            tracing::warn!(%error, session = %info.id, "A session could not be written down");
        }
    }

    /// Takes away what the store has of a session.
    pub(crate) async fn forget(&self, caller: &Caller, id: &SessionId) {
        let Some(vault) = &self.shared.vault else { return };
        let (owner, id) = (caller.id.as_str(), id.as_str());
        let forgotten = async {
            vault.store.delete_checkpoint(owner, id).await?;
            vault.store.delete_files_of(owner, id).await?;
            vault.store.delete_session(owner, id).await?;
            Ok::<_, StoreError>(())
        };
        if let Err(error) = forgotten.await {
            tracing::warn!(%error, session = id, "A session could not be forgotten by the store");
        }
    }

    /// Sessions that the store remembers and nobody has asked for yet.
    pub(crate) async fn dormant(&self, caller: &Caller) -> Vec<SessionInfo> {
        let Some(vault) = &self.shared.vault else { return Vec::new() };
        let asked = vault.store.sessions(caller.id.as_str());
        let rows = tokio::time::timeout(RECALL_MAX, asked).await.ok().and_then(Result::ok);
        let known = |id: &SessionId| self.shared.sessions.knows(caller, id);
        rows.unwrap_or_default()
            .into_iter()
            .filter_map(info)
            .filter(|info| !known(&info.id) && vault.folder(&caller.id, &info.id).is_dir())
            .collect()
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
