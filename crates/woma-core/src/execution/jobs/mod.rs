//! Jobs: code that runs apart from the call that asked for it.
//!
//! The queue is in the store, and servers that share a database share it. A job has a cell of its
//! own on its session's folder, with the session's variables as they are when it begins; what it
//! sets in them does not come back, while its files do. A run that outlives its call (`detach.rs`)
//! is a job too, in the session's own kernel.
//!
//! Jobs take places of their own (`MAX_CONCURRENT_JOBS`), and none of those of interactive runs.

pub(crate) mod detach;
pub(crate) mod live;
pub(crate) mod offline;
pub(crate) mod request;
mod run;
pub(crate) mod schedule;
mod stored;
pub(crate) mod webhook;
pub(crate) mod worker;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use woma_sandbox::sync::lock;

use self::live::Live;
use crate::access::keys::KeyRing;
use crate::error::Error;
use crate::model::caller::{Caller, CallerId};
use crate::model::{Execution, Outcome, SessionId};
use crate::net::fetch::{FetchRules, Fetcher};
use crate::shares::{PoolUse, Shares, most_of};
use crate::storage::db::{JobState, QueueLimits};

/// Requests of all jobs that wait, in bytes; one caller may have seven eighths.
pub(crate) const QUEUE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Requests, outputs and results of one caller's ended jobs, in bytes; the oldest go first.
pub(crate) const KEPT_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Longest message of a failure, in characters.
const MESSAGE_CHARS_MAX: usize = 500;

/// Settings of jobs.
#[derive(Debug, Clone)]
pub struct JobSettings {
    /// Jobs that this server runs at once; 0: none, and none is accepted.
    pub running_max: usize,
    /// Jobs that may wait, of all callers.
    pub queued_max: usize,
    /// Time limit of a job that does not ask for one.
    pub timeout_default: Duration,
    pub timeout_max: Duration,
    /// How long ended jobs are kept.
    pub retention: Duration,
    /// Rules of webhooks; `None`: none is accepted.
    pub webhooks: Option<FetchRules>,
}

impl JobSettings {
    /// Rules of webhooks: public addresses only, unless private ones are allowed.
    pub fn webhook_rules(allow_private: bool) -> FetchRules {
        FetchRules { allow_private, ..webhook::rules() }
    }
}

impl Default for JobSettings {
    fn default() -> Self {
        Self {
            running_max: 4,
            queued_max: 10_000,
            timeout_default: Duration::from_mins(10),
            timeout_max: Duration::from_mins(30),
            retention: Duration::from_hours(24),
            webhooks: Some(Self::webhook_rules(false)),
        }
    }
}

/// The jobs of this server.
#[derive(Debug)]
pub(crate) struct Jobs {
    pub(crate) settings: JobSettings,
    places: Arc<Shares>,
    /// Cells of the jobs that have a place: a place is held until the end of its job is stored.
    cells: Arc<Shares>,
    active: Mutex<BTreeMap<String, Arc<ActiveJob>>>,
    /// Sends webhooks; `None`: they are off.
    poster: Option<Fetcher>,
    /// Webhooks that are sent at once.
    posts: Arc<Shares>,
    /// Keys of callers; a job of a key that was revoked does not run.
    pub(crate) keys: OnceLock<Arc<KeyRing>>,
    /// Something changed in the queue.
    pub(crate) wake: Arc<Notify>,
}

/// A job that runs here.
#[derive(Debug)]
pub(crate) struct ActiveJob {
    pub(crate) id: String,
    owner: CallerId,
    session: Option<SessionId>,
    pub(crate) live: Arc<Live>,
    stop: CancellationToken,
    why: Mutex<Option<Stopped>>,
    /// Cancelled when its end is stored and its processes are gone.
    pub(crate) gone: CancellationToken,
}

/// Why a job was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopped {
    Cancelled,
    /// Another server may have it.
    ClaimLost,
}

/// Failure of a job, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobError {
    /// As that of an execution; `interrupted` if its server ended before it did.
    pub category: String,
    pub message: String,
}

impl Jobs {
    pub(crate) fn new(settings: JobSettings) -> Self {
        let [places, cells] = [(); 2].map(|()| Arc::new(Shares::new(settings.running_max)));
        let poster = settings.webhooks.clone().map(Fetcher::new);
        let posts = settings.webhooks.as_ref().map_or(1, |rules| rules.at_once_max);
        let posts = Arc::new(Shares::new(posts));
        let (active, keys, wake) = Default::default();
        Self { settings, places, cells, active, poster, posts, keys, wake }
    }

    pub(crate) fn is_off(&self) -> bool {
        self.settings.running_max == 0
    }

    /// Runs no further jobs.
    pub(crate) fn close(&self) {
        self.places.close();
        self.wake.notify_waiters();
    }

    pub(crate) fn usage(&self) -> PoolUse {
        self.places.usage()
    }

    pub(crate) fn webhook_usage(&self) -> PoolUse {
        self.posts.usage()
    }

    /// The limits of the queue for a caller.
    pub(crate) fn queue_limits(&self, owner: &CallerId) -> QueueLimits {
        let all = self.settings.queued_max;
        let of_owner = if owner.is_local() { all } else { most_of(all) };
        let bytes_of_owner =
            if owner.is_local() { QUEUE_BYTES_MAX } else { QUEUE_BYTES_MAX - QUEUE_BYTES_MAX / 8 };
        QueueLimits {
            jobs: all as u64,
            jobs_of_owner: of_owner as u64,
            bytes: QUEUE_BYTES_MAX,
            bytes_of_owner,
            webhooks_of_owner: webhook::DUE_MAX,
        }
    }

    /// Whether the key of a caller was revoked or has expired since it asked for a job.
    fn check_key(&self, caller: &Caller) -> Result<(), Error> {
        let Some(id) = caller.id.as_str().strip_prefix("key:") else { return Ok(()) };
        let (false, Some(keys)) = (caller.id.is_default_key(), self.keys.get()) else {
            return Ok(());
        };
        let known = keys.list()?;
        let key = known.iter().find(|key| key.id == id);
        match key.is_none_or(|key| key.is_usable(Timestamp::now())) {
            true => Ok(()),
            false => Err(Error::KeyGone),
        }
    }

    /// A caller's job that runs here.
    pub(crate) fn active(&self, owner: &CallerId, id: &str) -> Option<Arc<ActiveJob>> {
        lock(&self.active).get(id).filter(|job| job.owner == *owner).cloned()
    }

    pub(crate) fn count(&self) -> usize {
        lock(&self.active).len()
    }

    fn add(&self, job: ActiveJob) -> Arc<ActiveJob> {
        let job = Arc::new(job);
        lock(&self.active).insert(job.id.clone(), Arc::clone(&job));
        job
    }

    fn remove(&self, job: &ActiveJob) {
        lock(&self.active).remove(&job.id);
        job.gone.cancel();
        self.wake.notify_one();
    }

    /// The jobs of a session that run here.
    pub(crate) fn of_session(&self, owner: &CallerId, session: &SessionId) -> Vec<Arc<ActiveJob>> {
        let active = lock(&self.active);
        let own = active.values().filter(|job| job.owner == *owner);
        own.filter(|job| job.session.as_ref() == Some(session)).cloned().collect()
    }
}

impl ActiveJob {
    fn new(
        id: String,
        owner: CallerId,
        session: Option<SessionId>,
        live: Arc<Live>,
        stop: CancellationToken,
    ) -> Self {
        let (why, gone) = Default::default();
        Self { id, owner, session, live, stop, why, gone }
    }

    /// Interrupts it; its processes are killed if that does not end it.
    pub(crate) fn stop(&self, why: Stopped) {
        lock(&self.why).get_or_insert(why);
        self.stop.cancel();
    }

    fn stopped(&self) -> Option<Stopped> {
        *lock(&self.why)
    }
}

impl JobError {
    /// The server ended, or lost the job.
    pub(crate) fn interrupted(why: &str) -> Self {
        let message = format!(
            "{why}; the output up to then and the files are kept, the result is not. Submit it \
             again, or with `retries`"
        );
        Self { category: "interrupted".to_owned(), message }
    }

    fn of(error: &Error) -> Self {
        Self { category: error.code().name().to_owned(), message: error.to_string() }
    }

    /// The failure of a run, if it failed.
    fn of_execution(execution: &Execution) -> Option<Self> {
        let category = execution.error_category?.name().to_owned();
        let raised = execution.error.as_ref().map(|error| match error.message.is_empty() {
            true => error.name.clone(),
            false => format!("{}: {}", error.name, error.message),
        });
        let message = execution.message.clone().or(raised).unwrap_or_default();
        Some(Self { category, message: message.chars().take(MESSAGE_CHARS_MAX).collect() })
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The state in which a run leaves its job.
fn state_of(execution: &Execution, stopped: Option<Stopped>) -> JobState {
    match &execution.outcome {
        Outcome::Ran(woma_sandbox::Outcome::Completed) => JobState::Completed,
        Outcome::Ran(woma_sandbox::Outcome::TimedOut(_)) => JobState::Timeout,
        Outcome::Ran(_) if stopped == Some(Stopped::Cancelled) => JobState::Cancelled,
        Outcome::Ran(_) | Outcome::Rejected | Outcome::Detached => JobState::Failed,
    }
}
