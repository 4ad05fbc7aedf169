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
use crate::model::{PackageSet, SessionId, SessionInfo};
use crate::session::state::{Label, Session};
use crate::session::table::Sessions;
use crate::storage::db::{AuditEntry, Deletion, DeletionRow, SessionRow, StoreError};
use crate::storage::durable;
use crate::storage::layout::{Storage, closed_folder};
use crate::storage::outbox::Entry;
use crate::workspace::Workspaces;
use woma_sandbox::sync::lock;

/// How long a session that is new is not written down because its first run goes on.
const RUN_FIRST_MAX: Duration = Duration::from_millis(50);
/// Logged if neither the outbox nor the database has a session.
const NOT_RECORDED: &str = "A session could not be recorded";
/// Why a session that is known again has no variables.
const BEFORE: &str = "the server was restarted, or has forgotten it";
/// Said of a session that is new here, while the database cannot be asked.
const NOT_ASKED: &str = "the database did not answer: if this session existed before, its variables \
                         and files are not here";
/// How often a lease that is about to expire is looked at.
const LEASE_POLL: Duration = Duration::from_millis(500);

impl Sessions {
    /// Makes a session known that is not in the table: one with a folder, or one that only the
    /// database has. One that is being deleted is waited for. Until what is returned is dropped,
    /// calls that came later wait.
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
            // Another server with this database may have had it.
            let may_be_kept =
                || workspaces.storage.db.is_shared() || is_kept(workspaces, caller, id);
            let is_new = !self.knows(caller, id) && may_be_kept();
            let is_new = is_new || self.leaving(caller, id).is_some();
            match lines.get(&key) {
                Some(line) => Arc::clone(line),
                None if is_new => Arc::clone(lines.entry(key.clone()).or_default()),
                None => return Ok(None),
            }
        };
        // From here on, dropping it gives the turn up.
        let mut recalling = Recalling { lines: &self.recalls, key, turn: None, note: None };
        recalling.turn = Some(line.lock_owned().await);
        self.until_gone(caller, id).await;
        if !self.knows(caller, id) {
            recalling.note = Box::pin(self.recall_from(workspaces, caller, id)).await?;
        }
        Ok(Some(recalling))
    }

    /// As [`Sessions::recall_in_turn`], for a call that does not queue.
    pub(crate) async fn recall(&self, caller: &Caller, id: &SessionId) -> Result<(), Error> {
        self.recall_in_turn(caller, id).await.map(drop)
    }

    /// Returns what the caller must know of a session that may not be what it was.
    async fn recall_from(
        &self,
        workspaces: &Arc<Workspaces>,
        caller: &Caller,
        id: &SessionId,
    ) -> Result<Option<&'static str>, Error> {
        let asked = workspaces.storage.db.session(caller.id.as_str(), id.as_str());
        let asked = workspaces.storage.db.in_time_unless_away(asked).await;
        let is_kept = is_kept(workspaces, caller, id);
        let row = match asked {
            Ok(None) if !is_kept => return Ok(None),
            Err(error) if !is_kept => {
                tracing::warn!(%error, session = %id, "A session begins anew: {NOT_ASKED}");
                return Ok(Some(NOT_ASKED));
            }
            asked => asked.ok().flatten(),
        };
        let mut why = BEFORE.to_owned();
        if let Some(row) = &row {
            self.take(workspaces, caller, id).await?;
            if !workspaces.storage.folder(&caller.id, id).is_dir() {
                let back = workspaces.bring_back(row, &caller.id, id, self.workspace_limit());
                why = back.await?.told(why);
            }
        }
        let past = (row.as_ref().map_or(0, |row| row.execution_count), why);
        let of_row = row.map(|row| Written::of(&row));
        // A session keeps its rules, also while the store is away.
        let folder = workspaces.storage.folder(&caller.id, id);
        let written = match Written::read(&folder)? {
            Some(written) => written,
            None => {
                let label = of_row.unwrap_or_default();
                label.write_unless_empty(&folder);
                label
            }
        };
        let Written { name, description, policy, environment, labels, lifetime_s, .. } = written;
        let Written { network, secrets, packages, in_container, .. } = written;
        let rules = self.policies.of_session(caller, policy.as_deref(), environment.as_deref())?;
        let lifetime = lifetime_s.map(Duration::from_secs);
        let past = Some(past);
        // Text that is no rule allows nothing.
        let network = network.map(|text| text.parse().unwrap_or_default());
        let home = None;
        let label = Label {
            name,
            description,
            labels,
            lifetime,
            rules,
            environment,
            network,
            secrets,
            in_container,
            packages,
            home,
            past,
        };
        self.revive(caller, id.clone(), label)?;
        Ok(None)
    }

    /// Takes the lease on a session. A lease of a server with another data folder is waited for
    /// until it expires, as that of a killed server does, or is renewed: then that server lives.
    async fn take(
        &self,
        workspaces: &Workspaces,
        caller: &Caller,
        id: &SessionId,
    ) -> Result<(), Error> {
        let (db, process) = (&workspaces.storage.db, &workspaces.storage.process);
        let (owner, session) = (caller.id.as_str(), id.as_str());
        let mut first_end = None;
        loop {
            match db.in_time(db.take_session(owner, session, process)).await {
                Ok(()) => return Ok(()),
                Err(StoreError::Conflict) => {}
                Err(error) => {
                    tracing::warn!(%error, session, "The lease on a session is not in the database");
                    return Ok(());
                }
            }
            let lease = db.in_time(db.foreign_lease_of(owner, session, process)).await?;
            if let Some(lease) = lease {
                if *first_end.get_or_insert(lease.ends_at) != lease.ends_at {
                    return Err(Error::SessionLeased { session: id.clone(), left: lease.left });
                }
                tokio::time::sleep(lease.left.min(LEASE_POLL)).await;
            } else if db.in_time(db.session(owner, session)).await?.is_none() {
                // The other server has deleted it.
                return Ok(());
            }
        }
    }

    /// Records a session that a caller has created. When this returns, the record survives a crash
    /// and loss of power, or the log says that it does not.
    pub(crate) async fn remember(&self, caller: &Caller, session: &Arc<Session>) {
        let Some(workspaces) = &self.workspaces else { return };
        if self.record(workspaces, caller, session).await {
            workspaces.storage.outbox.settle_in_time().await;
        }
    }

    /// As [`Sessions::remember`], and the database learns of it in the background.
    pub(crate) async fn remember_change(&self, caller: &Caller, session: &Arc<Session>) {
        let Some(workspaces) = &self.workspaces else { return };
        if self.record(workspaces, caller, session).await {
            let workspaces = Arc::clone(workspaces);
            tokio::spawn(async move { workspaces.storage.outbox.settle_in_time().await });
        }
    }

    /// Writes a session down beside its folder and in the outbox, at the same time: each waits for
    /// the disk.
    async fn record(
        &self,
        workspaces: &Workspaces,
        caller: &Caller,
        session: &Arc<Session>,
    ) -> bool {
        let row = row(workspaces, caller, &self.info(session));
        let entries = vec![Entry::Session(Box::new(row.clone()))];
        let labelled = write_label(workspaces, caller, session, &row);
        let ((), pushed) = tokio::join!(labelled, workspaces.storage.outbox.push_synced(entries));
        if let Err(error) = &pushed {
            tracing::error!(%error, session = %session.id, "{NOT_RECORDED}");
        }
        pushed.is_ok()
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

    /// Sessions that only the store remembers; of a shared one, also those of other servers.
    pub(crate) async fn dormant(&self, caller: &Caller) -> Vec<SessionInfo> {
        let Some(workspaces) = &self.workspaces else { return Vec::new() };
        let asked = workspaces.storage.db.sessions(caller.id.as_str());
        let rows = workspaces.storage.db.in_time(asked).await.ok();
        let known = |id: &SessionId| self.knows(caller, id);
        rows.unwrap_or_default()
            .into_iter()
            .filter_map(info)
            .filter(|info| !known(&info.id))
            .filter(|info| {
                workspaces.storage.db.is_shared() || is_kept(workspaces, caller, &info.id)
            })
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
    // An empty one replaces one that is there.
    if label != Written::default() || Written::path(&folder).is_file() {
        let written = tokio::task::spawn_blocking(move || label.write(&folder)).await;
        written.unwrap_or_else(|error| tracing::warn!(%error, "A session's name is not kept"));
    }
}

/// Whether anything is left of a session on the disk: its files, or what was said of it.
fn is_kept(workspaces: &Workspaces, caller: &Caller, id: &SessionId) -> bool {
    let folder = workspaces.storage.folder(&caller.id, id);
    folder.is_dir() || Written::path(&folder).is_file()
}

/// Isolation of a session that is opened in containers, in the store.
const IN_CONTAINER: &str = "container";

/// Name, description, policy, environment, labels, lifetime and packages of a session, kept beside its folder for when
/// the store is away.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Written {
    name: Option<String>,
    description: String,
    policy: Option<String>,
    #[serde(default)]
    environment: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    lifetime_s: Option<u64>,
    #[serde(default)]
    network: Option<String>,
    /// Names only: values are in no file.
    #[serde(default)]
    secrets: Vec<String>,
    #[serde(default)]
    packages: PackageSet,
    #[serde(default)]
    in_container: bool,
}

impl Written {
    fn of(row: &SessionRow) -> Self {
        Self {
            name: row.name.clone().filter(|name| *name != row.id),
            description: row.description.clone().unwrap_or_default(),
            policy: row.policy.clone(),
            environment: row.environment.clone(),
            labels: labels_of(row.labels.as_deref()),
            lifetime_s: row.lifetime_s,
            network: row.network.clone(),
            secrets: names_of(row.secrets.as_deref()),
            packages: packages_of(row.packages.as_deref()),
            in_container: row.isolation.as_deref() == Some(IN_CONTAINER),
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

    /// Most sessions have neither.
    fn write_unless_empty(&self, folder: &Path) {
        if *self != Self::default() {
            self.write(folder);
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

/// Has a session from elsewhere found: a database that is not shared is asked only for sessions with
/// a trace on the disk.
pub(crate) fn leave_trace(storage: &Storage, row: &SessionRow) {
    if let (Ok(id), false) = (SessionId::parse(&row.id), storage.db.is_shared()) {
        Written::of(row).write(&storage.folder(&CallerId::new(row.owner.clone()), &id));
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
    /// Warning for its caller.
    pub(crate) note: Option<&'static str>,
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
        environment: info.environment.clone(),
        lease_server: Some(workspaces.storage.process.clone()),
        created_at: info.created_at,
        last_used_at: Timestamp::now(),
        execution_count: info.execution_count,
        labels: (!info.labels.is_empty())
            .then(|| serde_json::to_string(&info.labels).unwrap_or_default()),
        lifetime_s: info.lifetime.map(|lifetime| lifetime.as_secs()),
        network: info.network.clone(),
        secrets: (!info.secrets.is_empty()).then(|| info.secrets.join(",")),
        packages: (info.packages != PackageSet::default())
            .then(|| serde_json::to_string(&info.packages).unwrap_or_default()),
        isolation: info.in_container.then(|| IN_CONTAINER.to_owned()),
    }
}

/// Names of secrets as the store has them.
fn names_of(text: Option<&str>) -> Vec<String> {
    text.map(|text| text.split(',').map(str::to_owned).collect()).unwrap_or_default()
}

/// Packages as the store has them; those that cannot be read are none.
fn packages_of(text: Option<&str>) -> PackageSet {
    let read = text.map(serde_json::from_str).transpose();
    let read =
        read.inspect_err(|error| tracing::warn!(%error, "The packages of a session are lost"));
    read.ok().flatten().unwrap_or_default()
}

/// Labels as the store has them; those that cannot be read are none.
fn labels_of(text: Option<&str>) -> BTreeMap<String, String> {
    let read = text.map(serde_json::from_str).transpose();
    let read = read.inspect_err(|error| tracing::warn!(%error, "The labels of a session are lost"));
    read.ok().flatten().unwrap_or_default()
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
        environment: row.environment,
        expires_in: None,
        labels: labels_of(row.labels.as_deref()),
        lifetime: row.lifetime_s.map(Duration::from_secs),
        network: row.network,
        secrets: names_of(row.secrets.as_deref()),
        packages: packages_of(row.packages.as_deref()),
        in_container: row.isolation.as_deref() == Some(IN_CONTAINER),
    })
}
