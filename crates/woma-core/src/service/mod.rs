//! The public surface of the crate: starts and stops the service, checks scopes, and composes the
//! rooms below for each request. Knows neither HTTP nor MCP.

mod background;
mod checkpoints;
mod claims;
mod clock;
mod datasets;
mod expiry;
mod files;
pub(crate) mod health;
pub(crate) mod import;
pub(crate) mod jobs;
mod keys;
mod links;
mod packages;
pub(crate) mod ports;
mod pressure;
mod records;
pub(crate) mod refusals;
pub(crate) mod schedules;
mod sessions;
mod uploads;
mod validation;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use woma_sandbox::doctor::{self, Asker, Examination};
use woma_sandbox::workspace::DiskSpace;
use woma_sandbox::{Config, Limits, Rung, Sandbox, Tier};

use crate::access::keys::{KeyRing, keep_sharing};
use crate::access::rate::RateLimiter;
use crate::datasets::Datasets;
use crate::environments::Environment;
use crate::error::Error;
use crate::execution::admission::Admissions;
use crate::execution::jobs::{JobSettings, Jobs};
use crate::execution::output_cache::{Entry, OutputCache};
use crate::execution::running::Running;
use crate::execution::{Executor, RunSettings, pip};
use crate::metrics::Metrics;
use crate::model::caller::Caller;
use crate::model::{Execute, Picture, SessionId, SessionInfo};
use crate::net::egress::{Egress, EgressSettings};
use crate::packages::{PackageSettings, Packages};
use crate::policy::Policies;
use crate::session::checkpoint;
use crate::session::state::Label;
use crate::session::table::{Rules, Sessions};
use crate::shares::Shares;
use crate::storage::db::{Deletion, StoreHealth};
use crate::storage::layout::StorageSettings;
use crate::text::{self, OutputStream, Page};
use crate::workspace::Workspaces;
use crate::workspace::files::blocking;

/// Time that interrupted runs have to end when the server shuts down.
const INTERRUPT_GRACE: Duration = Duration::from_secs(2);
/// Time for saving variables when the server shuts down: a base, more for each session, a maximum.
const SAVE_ALL: Duration = Duration::from_secs(5);
const SAVE_EACH: Duration = Duration::from_millis(100);
const SAVE_ALL_MAX: Duration = Duration::from_secs(30);
/// Sessions that are saved at once then: all of hundreds would take so long that none was saved in
/// time.
const SAVED_AT_ONCE: usize = 8;
/// Callers whose rate is remembered.
const RATES_MAX: usize = 10_000;

/// Settings of the service. Every choice was made when the configuration was read.
#[derive(Debug, Clone)]
pub struct Settings {
    pub environment: Environment,
    /// Of every session; `wall` is the longest that a run may ask for.
    pub limits: Limits,
    /// Sessions kept ready.
    pub pool: usize,
    /// How much the zygotes import.
    pub preload: Tier,
    /// Time limit of a run that does not ask for one.
    pub timeout_default: Duration,
    pub timeout_max: Duration,
    /// Memory limit of a run that does not ask for one; `limits` has the most.
    pub memory_bytes_default: u64,
    /// Kernels that may be alive at once.
    pub kernels_max: usize,
    /// Calls that may run at once; no more than there are kernels.
    pub running_max: usize,
    /// Memory of all sessions together, where a cgroup can hold it.
    pub memory_bytes_all: Option<u64>,
    /// Sessions that are known at once, with and without a kernel.
    pub sessions_max: usize,
    /// Calls that may wait while all kernels are busy.
    pub queue_max: usize,
    /// A kernel goes after this long without a run.
    pub idle_max: Duration,
    pub source_bytes_max: usize,
    /// Whole outputs kept for later reading.
    pub kept_bytes_max: usize,
    /// Characters of each stream that a reply has, where that is less than `limits` has in bytes.
    pub output_chars_max: Option<usize>,
    /// Rules on code, besides the limits of the sandbox.
    pub policies: Policies,
    /// Durable storage; without it, files and records end with their kernels.
    pub storage: Option<StorageSettings>,
    /// A folder of the host that every session may read.
    pub uploads: Option<PathBuf>,
    /// Of every caller whose key does not say otherwise.
    pub executions_per_minute: Option<u32>,
    pub packages: PackageSettings,
    /// Whether the beginning of each program is logged for operators, and not for debugging only.
    pub logs_code: bool,
    pub jobs: JobSettings,
    pub egress: EgressSettings,
    /// Whether callers reach servers in their sessions.
    pub ports: bool,
    /// The least isolation to accept, where the machine refuses rooms.
    pub lowest_rung: Rung,
}

impl Settings {
    fn of_runs(&self) -> RunSettings {
        RunSettings {
            limits: self.limits.clone(),
            timeout_default: self.timeout_default,
            timeout_max: self.timeout_max,
            memory_bytes_default: self.memory_bytes_default,
            memory_bytes_all: self.memory_bytes_all,
            source_bytes_max: self.source_bytes_max,
            output_chars_max: self.output_chars_max,
            executions_per_minute: self.executions_per_minute,
            logs_code: self.logs_code,
            policies: self.policies.clone(),
            ports: self.ports,
            python: self.environment.version,
        }
    }

    /// As the documentation has them.
    pub fn new(environment: Environment) -> Self {
        let timeout_max = Duration::from_mins(10);
        let limits = Limits { wall: timeout_max, ..Limits::default() };
        Self {
            environment,
            memory_bytes_default: limits.memory_bytes,
            output_chars_max: None,
            limits,
            pool: 3,
            preload: Tier::Full,
            timeout_default: Duration::from_secs(55),
            timeout_max,
            kernels_max: 10,
            running_max: 16,
            memory_bytes_all: None,
            sessions_max: 1_000,
            queue_max: 256,
            idle_max: Duration::from_mins(5),
            source_bytes_max: 1024 * 1024,
            kept_bytes_max: 32 * 1024 * 1024,
            policies: Policies::open(),
            storage: None,
            uploads: None,
            executions_per_minute: None,
            logs_code: false,
            packages: PackageSettings::default(),
            jobs: JobSettings::default(),
            egress: EgressSettings::default(),
            ports: false,
            lowest_rung: Rung::Rooms,
        }
    }
}

/// The service: everything that Woma does. Clones share one state.
#[derive(Debug, Clone)]
pub struct Service {
    executor: Arc<Executor>,
    sessions: Arc<Sessions>,
    workspaces: Option<Arc<Workspaces>>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    settings: Settings,
    store_health: Mutex<Option<StoreHealth>>,
    disk: Mutex<Option<DiskSpace>>,
    isolation: OnceLock<Examination>,
    refusals: refusals::Refusals,
    /// Connections to servers in sessions.
    ports: Arc<Shares>,
    started: Instant,
    started_at: Timestamp,
}

/// Why a session, or what is in it, is removed.
#[derive(Debug, Clone, Copy)]
enum Removal {
    /// By its owner.
    Deleted,
    /// At the end of its own lifetime.
    Expired,
    Reset,
}

impl Removal {
    fn deletion(self) -> Deletion {
        match self {
            Self::Deleted | Self::Expired => Deletion::Session,
            Self::Reset => Deletion::Checkpoint,
        }
    }

    /// Its name in the audit trail.
    fn action(self) -> &'static str {
        match self {
            Self::Deleted => "delete_session",
            Self::Expired => "expire_session",
            Self::Reset => "reset_session",
        }
    }
}

impl Service {
    /// Returns as soon as the first session can be served.
    pub async fn start(mut settings: Settings) -> Result<Self, Error> {
        // A run that becomes a job may take as long as jobs do; each run has a limit of its own.
        settings.limits.wall = settings.limits.wall.max(settings.jobs.timeout_max);
        settings.limits.cpu = settings.limits.cpu.max(settings.jobs.timeout_max);
        let environment = Self::sandbox_environment(&settings.environment);
        let mut config = Config::new(environment);
        config.limits = settings.limits.clone();
        config.memory_bytes = settings.memory_bytes_all;
        config.pool = settings.pool;
        config.preload = settings.preload;
        config.uploads.clone_from(&settings.uploads);
        config.lowest = settings.lowest_rung;
        let has_packages = settings.packages.is_on && settings.storage.is_some();
        config.service = has_packages.then_some(pip::NAME);
        let workspaces = match settings.storage.clone() {
            Some(settings) => Some(Arc::new(Workspaces::open(settings).await?)),
            None => None,
        };
        config.spare_folders =
            workspaces.as_ref().map(|workspaces| workspaces.storage.spare_folders());
        config.reserve =
            workspaces.as_ref().map(|workspaces| Arc::clone(&workspaces.storage.sessions_reserve));
        let sandbox = Sandbox::start(config).await?;
        let metrics = Arc::new(Metrics::default());
        let rules = Rules {
            kernels_max: settings.kernels_max,
            running_max: settings.running_max.min(settings.kernels_max),
            sessions_max: settings.sessions_max,
            idle: settings.idle_max,
            workspace: settings.limits.workspace(),
        };
        let policies = settings.policies.clone();
        let sessions =
            Arc::new(Sessions::new(rules, policies, workspaces.clone(), Arc::clone(&metrics)));
        let datasets = match &workspaces {
            Some(workspaces) => Some(Arc::new(Datasets::open(Arc::clone(workspaces)).await)),
            None => None,
        };
        let opened = workspaces.as_ref().map(|workspaces| open_packages(&settings, workspaces));
        let packages = opened.map(Arc::new);
        let executor = Arc::new_cyclic(|me| Executor {
            me: me.clone(),
            packages,
            sandbox,
            settings: settings.of_runs(),
            sessions: Arc::clone(&sessions),
            workspaces: workspaces.clone(),
            datasets,
            output_cache: OutputCache::new(settings.kept_bytes_max),
            egress: Arc::new(Egress::new(settings.egress.clone(), Arc::clone(&metrics))),
            metrics,
            admissions: Admissions::new(rules.running_max, settings.queue_max),
            stop: CancellationToken::new(),
            rates: RateLimiter::new(RATES_MAX),
            jobs: Jobs::new(settings.jobs.clone()),
        });
        let shared = Arc::new(Shared {
            store_health: Mutex::default(),
            disk: Mutex::default(),
            isolation: OnceLock::new(),
            refusals: refusals::Refusals::default(),
            ports: Arc::new(Shares::new(ports::PORT_CONNECTIONS)),
            started: Instant::now(),
            started_at: Timestamp::now(),
            settings,
        });
        let service = Self { executor, sessions, workspaces, shared };
        background::start(&service).await;
        Ok(service)
    }

    /// Runs code: see [`Executor::execute`].
    pub async fn execute(
        &self,
        caller: &Caller,
        request: Execute,
        is_watched: bool,
    ) -> Result<Running, Error> {
        self.executor.execute(caller, request, is_watched).await
    }

    /// Looks at every wall, for [`Service::health`]; takes about a second.
    pub async fn examine(&self) {
        let environment = Self::sandbox_environment(&self.shared.settings.environment);
        let steward = Path::new("/proc/self/exe");
        let folder =
            self.workspaces.as_ref().map(|workspaces| workspaces.storage.sessions_folder());
        let (rung, _) = self.executor.sandbox.rung();
        let found = doctor::examine(steward, Some(environment), folder, Asker::Server, rung).await;
        // Who came first is as right.
        self.shared.isolation.set(found).unwrap_or_default();
    }

    /// The sandbox itself, for the benchmark, which measures it without the service around it.
    pub fn sandbox(&self) -> &Sandbox {
        &self.executor.sandbox
    }

    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    pub fn metrics(&self) -> &Metrics {
        &self.executor.metrics
    }

    /// Those that are known here, and those that only the store remembers.
    pub async fn sessions(&self, caller: &Caller) -> Result<Vec<SessionInfo>, Error> {
        caller.may_read()?;
        let mut sessions = self.sessions.list(caller);
        sessions.extend(self.sessions.dormant(caller).await);
        Ok(sessions)
    }

    pub async fn session(&self, caller: &Caller, id: &SessionId) -> Result<SessionInfo, Error> {
        caller.may_read()?;
        self.sessions.recall(caller, id).await?;
        let session = self.sessions.find(caller, id)?;
        Ok(self.sessions.info(&session))
    }

    /// Ends a session; what runs in it is interrupted.
    pub async fn delete_session(&self, caller: &Caller, id: &SessionId) -> Result<(), Error> {
        caller.may_execute()?;
        self.remove_session(caller, id, Removal::Deleted).await
    }

    /// On a task of its own: who hangs up leaves nothing half done.
    async fn remove_session(
        &self,
        caller: &Caller,
        id: &SessionId,
        removal: Removal,
    ) -> Result<(), Error> {
        let (service, caller, id) = (self.clone(), caller.clone(), id.clone());
        let gone = async move {
            if let Err(error) = service.sessions.recall(&caller, &id).await {
                if let Error::SessionLeased { .. } = error {
                    return Err(error);
                }
                // What is to go need not be understood.
                tracing::warn!(%error, session = %id, "A session that cannot be known again goes");
                service.sessions.revive(&caller, id.clone(), Label::default())?;
            }
            // Held to the end: another process must not open what is going.
            let claim = service.sessions.find(&caller, &id)?.claim()?;
            let (what, action) = (removal.deletion(), removal.action());
            let audit = records::audit_entry(&caller, action, Some(&id), &json!({}));
            service.sessions.record_deletion(&caller, &id, what, audit.clone()).await?;
            records::log(&audit);
            service.end_jobs_of(&caller, &id).await;
            match what {
                Deletion::Session => service.sessions.delete(&caller, &id).await?,
                Deletion::Checkpoint => service.empty_session(&caller, &id).await?,
            }
            service.executor.output_cache.remove_spilled(&caller.id, &id);
            if let Some(workspaces) = &service.workspaces {
                workspaces.storage.outbox.settle_in_time().await;
            }
            match (claim, what) {
                (Some(claim), Deletion::Session) => claim.end(),
                (claim, _) => drop(claim),
            }
            Ok(())
        };
        let gone = tokio::spawn(gone.in_current_span());
        gone.await.unwrap_or(Err(Error::Lost))
    }

    /// Stops what runs in a session, and says whether anything did.
    pub fn interrupt_session(&self, caller: &Caller, id: &SessionId) -> Result<bool, Error> {
        caller.may_execute()?;
        Ok(self.sessions.find(caller, id)?.interrupt())
    }

    /// Empties a session: its variables and files are gone, its name stays.
    pub async fn reset_session(
        &self,
        caller: &Caller,
        id: &SessionId,
    ) -> Result<SessionInfo, Error> {
        caller.may_execute()?;
        self.remove_session(caller, id, Removal::Reset).await?;
        self.session(caller, id).await
    }

    /// Output of threads and processes of a session after their run had ended.
    pub fn session_log(&self, caller: &Caller, id: &SessionId) -> Result<String, Error> {
        caller.may_read()?;
        let log = self.sessions.find(caller, id)?.log();
        // Looking held the turn for a moment, in which the session could not be evicted.
        self.sessions.make_room();
        Ok(log)
    }

    /// A part of an earlier execution's output, by characters.
    pub async fn read_output(
        &self,
        caller: &Caller,
        execution_id: &str,
        stream: OutputStream,
        offset: u64,
        limit: usize,
    ) -> Result<Page, Error> {
        let entry = self.kept(caller, execution_id)?;
        let kept = match stream {
            OutputStream::Stdout => &entry.stdout,
            OutputStream::Stderr => &entry.stderr,
            OutputStream::Traceback => &entry.traceback,
            OutputStream::Result => &entry.result,
            OutputStream::Late => &entry.late,
        };
        let Some((middle, gap)) = entry.middle(stream) else {
            return Ok(text::page(&text::readable(kept), offset, limit));
        };
        let head = kept.get(..gap.start).unwrap_or_default().to_owned();
        let tail = kept.get(gap.end..).unwrap_or_default().to_owned();
        blocking(move || Ok(middle.page(&head, &tail, offset, limit)?)).await
    }

    /// A picture of an earlier execution; they count from 1.
    pub fn picture(
        &self,
        caller: &Caller,
        execution_id: &str,
        number: usize,
    ) -> Result<Picture, Error> {
        let entry = self.kept(caller, execution_id)?;
        let picture = number.checked_sub(1).and_then(|index| entry.pictures.get(index));
        picture.cloned().ok_or_else(|| Error::NoPicture(entry.id.clone(), number))
    }

    fn kept(&self, caller: &Caller, execution_id: &str) -> Result<Arc<Entry>, Error> {
        caller.may_read()?;
        let entry = self.executor.output_cache.find(&caller.id, execution_id);
        let shown: String = execution_id.chars().take(64).collect();
        entry.ok_or(Error::NoExecution(shown))
    }

    /// Nothing runs, and nothing waits.
    pub fn is_idle(&self) -> bool {
        self.executor.admissions.taken() == 0 && self.executor.jobs.count() == 0
    }

    /// Admits nothing more, lets runs end for a while, then interrupts them.
    pub async fn shut_down(&self, grace: Duration) {
        let executor = &self.executor;
        executor.admissions.close();
        executor.jobs.close();
        let idle = || self.is_idle();
        if !until(grace, idle).await {
            executor.stop.cancel();
            if !until(INTERRUPT_GRACE, idle).await {
                tracing::warn!("Some runs did not end in time and are killed");
            }
        }
        self.save_all().await;
        if let Some(workspaces) = &self.workspaces {
            // Before its sessions are free: a process that takes one over finds what was saved.
            workspaces.storage.outbox.settle_in_time().await;
        }
        self.sessions.close();
        self.tell_refusals();
        if let Some(workspaces) = &self.workspaces {
            workspaces.storage.close().await;
        }
    }

    /// Saves what is not saved yet, as far as there is time.
    async fn save_all(&self) {
        let sessions = self.sessions.all();
        let unsaved = sessions
            .iter()
            .filter(|session| session.checkpoints(|tracker| tracker.is_unsaved()))
            .count();
        let each = SAVE_EACH.saturating_mul(u32::try_from(unsaved).unwrap_or(u32::MAX));
        let limit = SAVE_ALL.saturating_add(each).min(SAVE_ALL_MAX);
        // Some at once: one that takes too long keeps no other waiting.
        let saved = stream::iter(&sessions).for_each_concurrent(SAVED_AT_ONCE, async |session| {
            checkpoint::save_if_idle(session, SAVE_ALL * 4 / 5).await;
            session.until_saved().await;
        });
        if tokio::time::timeout(limit, saved).await.is_err() {
            tracing::warn!("The variables of some sessions were not saved in time");
        }
    }

    /// Shares keys with the servers that use the same database, from here on. Without a shared
    /// database, nothing happens.
    pub fn share_keys(&self, ring: Arc<KeyRing>) {
        // The first one stays: a server has one.
        self.executor.jobs.keys.set(Arc::clone(&ring)).unwrap_or_default();
        let Some(workspaces) = &self.workspaces else { return };
        if workspaces.storage.settings.database_url.is_some() {
            let (store, stop) = (workspaces.storage.db.clone(), self.executor.stop.clone());
            tokio::spawn(stop.run_until_cancelled_owned(keep_sharing(ring, store)));
        }
    }

    /// The environment as the sandbox sees it.
    pub fn sandbox_environment(environment: &Environment) -> woma_sandbox::Environment {
        let Environment { python, prefix, base_prefix, mounts, .. } = environment;
        woma_sandbox::Environment {
            prefix: prefix.clone(),
            python: python.clone(),
            is_virtual: prefix != base_prefix && prefix.join("pyvenv.cfg").is_file(),
            installer: environment.installer.clone(),
            mounts: mounts.iter().filter(|mount| *mount != prefix).cloned().collect(),
        }
    }
}

/// Opens the packages of sessions, which depend on those of the environment.
fn open_packages(settings: &Settings, workspaces: &Workspaces) -> Packages {
    let Environment { prefix, version, managed, .. } = &settings.environment;
    let digest = managed.as_ref().map_or("", |managed| managed.lock_digest.as_str());
    let name = format!("{} {version} {digest}", prefix.display());
    Packages::open(settings.packages.clone(), &workspaces.storage, name)
}

async fn until(limit: Duration, condition: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    while !condition() {
        if Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    true
}
