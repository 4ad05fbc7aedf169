//! The public surface of the crate: starts and stops the service, checks scopes, and composes the
//! rooms below for each request. Knows neither HTTP nor MCP.

mod background;
mod checkpoints;
mod claims;
mod clock;
mod datasets;
pub(crate) mod environments;
mod expiry;
mod files;
pub(crate) mod health;
pub(crate) mod import;
pub(crate) mod jobs;
mod keys;
mod links;
mod outputs;
mod packages;
pub(crate) mod ports;
mod pressure;
mod records;
pub(crate) mod refusals;
pub(crate) mod schedules;
mod secrets;
mod sessions;
mod settings;
mod uploads;
mod validation;

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use woma_sandbox::doctor::{self, Asker, Examination};
use woma_sandbox::workspace::DiskSpace;
use woma_sandbox::{Config, Sandbox};

use crate::access::keys::{KeyRing, keep_sharing};
use crate::access::rate::RateLimiter;
use crate::datasets::Datasets;
use crate::environments::Environment;
use crate::error::Error;
use crate::execution::admission::Admissions;
use crate::execution::environments::{DefaultEnvironment, SessionEnvironments, as_seen};
use crate::execution::jobs::Jobs;
use crate::execution::output_cache::OutputCache;
use crate::execution::running::Running;
use crate::execution::{Executor, pip};
use crate::metrics::Metrics;
use crate::model::caller::Caller;
use crate::model::{Execute, SessionId, SessionInfo};
use crate::net::egress::Egress;
use crate::packages::Packages;
use crate::session::checkpoint;
use crate::session::state::Label;
use crate::session::table::{Rules, Sessions};
use crate::shares::Shares;
use crate::storage::db::{Deletion, StoreHealth};
use crate::storage::layout::Storage;
use crate::workspace::Workspaces;

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

pub use self::settings::Settings;

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

/// The network of sessions, and the certificate authorities that they trust.
fn way_out(settings: &Settings, config: &mut Config) -> Result<(Arc<Metrics>, Egress), Error> {
    let metrics = Arc::new(Metrics::default());
    let egress = Egress::new(settings.egress.clone(), Arc::clone(&metrics));
    let egress = egress.map_err(Error::Network)?;
    config.trust = Some(egress.trusted().map_err(Error::Network)?);
    Ok((metrics, egress))
}

impl Service {
    /// Returns as soon as the first session can be served.
    pub async fn start(mut settings: Settings) -> Result<Self, Error> {
        // A run that becomes a job may take as long as jobs do; each run has a limit of its own.
        settings.limits.wall = settings.limits.wall.max(settings.jobs.timeout_max);
        settings.limits.cpu = settings.limits.cpu.max(settings.jobs.timeout_max);
        let workspaces = match settings.storage.clone() {
            Some(settings) => Some(Arc::new(Workspaces::open(settings).await?)),
            None => None,
        };
        let mut config = sandbox_config(&settings, workspaces.as_deref());
        let (metrics, egress) = way_out(&settings, &mut config)?;
        let sandbox = Sandbox::start(config.clone()).await?;
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
        let secrets = secrets::shelf(&settings, workspaces.as_deref())?;
        let packages = workspaces.as_ref().map(|workspaces| {
            Arc::new(Packages::open(settings.packages.clone(), &workspaces.storage))
        });
        let environments = session_environments(&mut settings, &sandbox, config);
        let executor = Arc::new_cyclic(|me| Executor {
            me: me.clone(),
            packages,
            sandbox,
            environments,
            settings: settings.of_runs(),
            sessions: Arc::clone(&sessions),
            workspaces: workspaces.clone(),
            datasets,
            output_cache: OutputCache::new(settings.kept_bytes_max),
            egress: Arc::new(egress),
            secrets,
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
                Deletion::Session => {
                    service.sessions.delete(&caller, &id).await?;
                    service.forget_secrets(&caller.id, &id);
                }
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
        as_seen(environment)
    }
}

/// The configuration of the default sandbox.
fn sandbox_config(settings: &Settings, workspaces: Option<&Workspaces>) -> Config {
    let has_packages = settings.packages.is_on && workspaces.is_some();
    let storage = workspaces.map(|workspaces| &workspaces.storage);
    Config {
        limits: settings.limits.clone(),
        memory_bytes: settings.memory_bytes_all,
        pool: settings.pool,
        preload: settings.preload,
        containers: settings.containers,
        lowest: settings.lowest_rung,
        uploads: settings.uploads.clone(),
        service: has_packages.then_some(pip::NAME),
        spare_folders: storage.map(Storage::spare_folders),
        reserve: storage.map(|storage| Arc::clone(&storage.sessions_reserve)),
        ..Config::new(as_seen(&settings.environment))
    }
}

fn session_environments(
    settings: &mut Settings,
    sandbox: &Sandbox,
    config: Config,
) -> SessionEnvironments {
    let default = DefaultEnvironment {
        environment: settings.environment.clone(),
        packages: std::mem::take(&mut settings.distributions),
        sandbox: sandbox.clone(),
        config,
    };
    let named = std::mem::take(&mut settings.environments);
    SessionEnvironments::new(default, named, settings.environment_idle)
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
