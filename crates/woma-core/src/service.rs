//! The handles that every surface shares, built once.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use jiff::Timestamp;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use woma_sandbox::doctor::{self, Examination};
use woma_sandbox::{Config, Limits, Sandbox, Tier};

use crate::Error;
use crate::admission::Admissions;
use crate::caller::{Caller, CallerId};
use crate::cleaning;
use crate::environments::Environment;
use crate::health;
use crate::kept::{Entry, Kept};
use crate::lock::lock;
use crate::memory::{self, Lines, Unwritten};
use crate::metrics::Metrics;
use crate::model::{NewSession, Picture, SessionId, SessionInfo};
use crate::output::{self, OutputStream, Page};
use crate::policy::Policies;
use crate::rate::RateLimiter;
use crate::revival;
use crate::session::Label;
use crate::sessions::{Rules, Sessions};
use crate::store::{Forgotten, StoreHealth};
use crate::vault::{Vault, VaultSettings};

/// How often idle kernels are looked for.
const EXPIRY_TICK_MAX: Duration = Duration::from_secs(15);
/// What interrupted runs get to come to an end when the server shuts down.
const INTERRUPT_GRACE: Duration = Duration::from_secs(2);
/// What saving variables gets when the server shuts down.
const SAVE_ALL_MAX: Duration = Duration::from_secs(5);
/// Longest name or description of a session, in characters.
const LABEL_CHARS_MAX: usize = 1_000;
/// Callers whose rate is remembered.
const RATES_MAX: usize = 10_000;

/// How the service is set up. Everything has been decided by whoever read the configuration.
#[derive(Debug, Clone)]
pub struct Settings {
    pub environment: Environment,
    /// Of every session; `wall` is the longest that a run may ask for.
    pub limits: Limits,
    /// Sessions kept ready.
    pub pool: usize,
    /// How much the zygotes import.
    pub preload: Tier,
    /// What a run gets that does not ask for a time.
    pub timeout_default: Duration,
    pub timeout_max: Duration,
    /// What a run gets that does not ask for memory; `limits` has the most.
    pub memory_bytes_default: u64,
    /// Kernels that may be alive at once.
    pub kernels_max: usize,
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
    /// What code may do, besides what the sandbox lets it.
    pub policies: Policies,
    /// Where things are kept; without it, they are gone with their kernels.
    pub vault: Option<VaultSettings>,
    /// A folder of the host that every session may read.
    pub uploads: Option<PathBuf>,
    /// Of every caller whose key does not say otherwise.
    pub executions_per_minute: Option<u32>,
}

impl Settings {
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
            timeout_default: Duration::from_mins(1),
            timeout_max,
            kernels_max: 10,
            sessions_max: 1_000,
            queue_max: 256,
            idle_max: Duration::from_mins(5),
            source_bytes_max: 1024 * 1024,
            kept_bytes_max: 32 * 1024 * 1024,
            policies: Policies::open(),
            vault: None,
            uploads: None,
            executions_per_minute: None,
        }
    }
}

/// What Woma does. Clones share everything.
#[derive(Debug, Clone)]
pub struct Service {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) sandbox: Sandbox,
    pub(crate) settings: Settings,
    pub(crate) sessions: Sessions,
    pub(crate) kept: Kept,
    pub(crate) vault: Option<Arc<Vault>>,
    pub(crate) store_health: Mutex<Option<StoreHealth>>,
    /// Sessions that are being made known again.
    pub(crate) recalls: Lines,
    pub(crate) unwritten: Unwritten,
    pub(crate) metrics: Arc<Metrics>,
    /// Calls that run or wait.
    pub(crate) in_hand: Admissions,
    /// Stops every run there is.
    pub(crate) stop: CancellationToken,
    rates: RateLimiter<CallerId>,
    pub(crate) isolation: OnceLock<Examination>,
    pub(crate) started: Instant,
    pub(crate) started_at: Timestamp,
}

impl Service {
    /// Returns as soon as the first session can be served.
    pub async fn start(settings: Settings) -> Result<Self, Error> {
        let environment = Self::sandbox_environment(&settings.environment);
        let mut config = Config::new(environment);
        config.limits = settings.limits.clone();
        config.pool = settings.pool;
        config.preload = settings.preload;
        config.uploads.clone_from(&settings.uploads);
        let vault = match settings.vault.clone() {
            Some(settings) => Some(Arc::new(Vault::open(settings).await?)),
            None => None,
        };
        config.spare_folders = vault.as_ref().map(|vault| vault.spare_folders());
        let sandbox = Sandbox::start(config).await?;
        let metrics = Arc::new(Metrics::default());
        let rules = Rules {
            kernels_max: settings.kernels_max,
            sessions_max: settings.sessions_max,
            idle: settings.idle_max,
        };
        let shared = Arc::new(Shared {
            sandbox,
            sessions: Sessions::new(rules, vault.clone(), Arc::clone(&metrics)),
            vault,
            store_health: Mutex::default(),
            recalls: Lines::default(),
            unwritten: Unwritten::default(),
            kept: Kept::new(settings.kept_bytes_max),
            metrics,
            in_hand: Admissions::new(settings.kernels_max, settings.queue_max),
            stop: CancellationToken::new(),
            rates: RateLimiter::new(RATES_MAX),
            isolation: OnceLock::new(),
            started: Instant::now(),
            started_at: Timestamp::now(),
            settings,
        });
        tokio::spawn(expire(Arc::downgrade(&shared)));
        if let Some(vault) = &shared.vault {
            *lock(&shared.store_health) = Some(vault.store.health().await);
            tokio::spawn(health::watch_store(Arc::downgrade(&shared)));
            tokio::spawn(revival::keep_saving(Arc::downgrade(&shared)));
            tokio::spawn(cleaning::keep_clean(Arc::downgrade(&shared)));
            tokio::spawn(memory::keep_telling(Arc::downgrade(&shared)));
        }
        Ok(Self { shared })
    }

    /// Looks at every wall, for [`Service::health`]; takes about a second.
    pub async fn examine(&self) {
        let environment = Self::sandbox_environment(&self.shared.settings.environment);
        let steward = Path::new("/proc/self/exe");
        let found = doctor::examine(steward, Some(environment)).await;
        // Who came first is as right.
        self.shared.isolation.set(found).unwrap_or_default();
    }

    /// The sandbox itself, for the benchmark, which measures it without the service around it.
    pub fn sandbox(&self) -> &Sandbox {
        &self.shared.sandbox
    }

    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    pub fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    pub async fn create_session(
        &self,
        caller: &Caller,
        wanted: NewSession,
    ) -> Result<SessionInfo, Error> {
        may_execute(caller)?;
        let NewSession { id, name, description, policy } = wanted;
        let texts = [("name", name.as_ref()), ("description", Some(&description))];
        for (what, text) in texts {
            if text.is_some_and(|text| text.chars().count() > LABEL_CHARS_MAX) {
                return Err(Error::LabelTooLong { what, limit_chars: LABEL_CHARS_MAX });
            }
        }
        let policies = &self.shared.settings.policies;
        let rules = policy.map(|name| policies.of_session(caller, &name)).transpose()?;
        if let Some(id) = &id {
            self.recall(caller, id).await?;
        }
        let label = Label { name, description, rules, ..Label::default() };
        let session = self.shared.sessions.create(caller, id, label)?;
        self.remember(caller, &session).await;
        self.note(caller, "create_session", Some(&session.id), &json!({}));
        Ok(self.shared.sessions.info(&session))
    }

    /// Those that are known here, and those that only the store remembers.
    pub async fn sessions(&self, caller: &Caller) -> Result<Vec<SessionInfo>, Error> {
        may_read(caller)?;
        let mut sessions = self.shared.sessions.list(caller);
        sessions.extend(self.dormant(caller).await);
        Ok(sessions)
    }

    pub async fn session(&self, caller: &Caller, id: &SessionId) -> Result<SessionInfo, Error> {
        may_read(caller)?;
        self.recall(caller, id).await?;
        let session = self.shared.sessions.find(caller, id)?;
        Ok(self.shared.sessions.info(&session))
    }

    /// Ends a session; what runs in it is interrupted.
    pub async fn delete_session(&self, caller: &Caller, id: &SessionId) -> Result<(), Error> {
        may_execute(caller)?;
        self.rid(caller, id, Forgotten::Deleted).await
    }

    /// On a task of its own: who hangs up leaves nothing half done.
    async fn rid(&self, caller: &Caller, id: &SessionId, what: Forgotten) -> Result<(), Error> {
        let (service, caller, id) = (self.clone(), caller.clone(), id.clone());
        let gone = async move {
            if let Err(error) = service.recall(&caller, &id).await {
                // What is to go need not be understood.
                tracing::warn!(%error, session = %id, "A session that cannot be known again goes");
                service.shared.sessions.revive(&caller, id.clone(), Label::default())?;
            }
            service.shared.sessions.find(&caller, &id)?;
            service.mark_forgotten(&caller, &id, what).await?;
            let done = match what {
                Forgotten::Deleted => {
                    service.shared.sessions.delete(&caller, &id).await?;
                    "delete_session"
                }
                Forgotten::Emptied => {
                    service.shared.sessions.reset(&caller, &id).await?;
                    "reset_session"
                }
            };
            service.note(&caller, done, Some(&id), &json!({}));
            if let Some(vault) = &service.shared.vault {
                // Its runs are not to be counted in the next one of that name.
                vault.catch_up().await;
            }
            service.settle_forgotten(&caller, &id).await;
            Ok(())
        };
        let gone = tokio::spawn(gone.in_current_span());
        gone.await.unwrap_or(Err(Error::Lost))
    }

    /// Stops what runs in a session, and says whether anything did.
    pub fn interrupt_session(&self, caller: &Caller, id: &SessionId) -> Result<bool, Error> {
        may_execute(caller)?;
        Ok(self.shared.sessions.find(caller, id)?.interrupt())
    }

    /// Empties a session: its variables and files are gone, its name stays.
    pub async fn reset_session(
        &self,
        caller: &Caller,
        id: &SessionId,
    ) -> Result<SessionInfo, Error> {
        may_execute(caller)?;
        self.rid(caller, id, Forgotten::Emptied).await?;
        self.session(caller, id).await
    }

    /// What threads and processes of a session wrote after their run had ended.
    pub fn session_log(&self, caller: &Caller, id: &SessionId) -> Result<String, Error> {
        may_read(caller)?;
        let log = self.shared.sessions.find(caller, id)?.log();
        // Looking held the turn for a moment, in which the session could not be evicted.
        self.shared.sessions.make_room();
        Ok(log)
    }

    /// A part of an earlier execution's output, by characters.
    pub fn read_output(
        &self,
        caller: &Caller,
        execution_id: &str,
        stream: OutputStream,
        offset: u64,
        limit: usize,
    ) -> Result<Page, Error> {
        let entry = self.kept(caller, execution_id)?;
        let text = match stream {
            OutputStream::Stdout => &entry.stdout,
            OutputStream::Stderr => &entry.stderr,
            OutputStream::Traceback => &entry.traceback,
            OutputStream::Result => &entry.result,
        };
        Ok(output::page(&output::readable(text), offset, limit))
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
        may_read(caller)?;
        let entry = self.shared.kept.find(&caller.id, execution_id);
        let shown: String = execution_id.chars().take(64).collect();
        entry.ok_or(Error::NoExecution(shown))
    }

    /// Nothing runs, and nothing waits.
    pub fn is_idle(&self) -> bool {
        self.shared.in_hand.taken() == 0
    }

    /// Admits nothing more, lets runs end for a while, then interrupts them.
    pub async fn shut_down(&self, grace: Duration) {
        let shared = &self.shared;
        shared.in_hand.close();
        let idle = || self.is_idle();
        if !until(grace, idle).await {
            shared.stop.cancel();
            if !until(INTERRUPT_GRACE, idle).await {
                tracing::warn!("Some runs did not end in time and are killed");
            }
        }
        self.save_all().await;
        shared.sessions.close();
        if let Some(vault) = &shared.vault
            && let Err(error) = vault.settle().await
        {
            tracing::warn!(%error, "Some records are left for the next start");
        }
    }

    /// Saves what is not saved yet, as far as there is time.
    async fn save_all(&self) {
        let sessions = self.shared.sessions.all();
        // All at once: one that takes too long is the only one that is lost.
        let saved = join_all(sessions.iter().map(|session| async {
            revival::save_if_idle(session, SAVE_ALL_MAX * 4 / 5).await;
            session.until_saved().await;
        }));
        if tokio::time::timeout(SAVE_ALL_MAX, saved).await.is_err() {
            tracing::warn!("The variables of some sessions were not saved in time");
        }
    }

    pub(crate) fn check_rate(&self, caller: &Caller) -> Result<(), Error> {
        let limit = caller.quota.executions_per_minute;
        let Some(per_minute) = limit.or(self.shared.settings.executions_per_minute) else {
            return Ok(());
        };
        let checked = self.shared.rates.check(&caller.id, per_minute, Instant::now());
        checked.map_err(|wait| Error::RateLimited { per_minute, retry_after: wait.0 })
    }

    /// What the sandbox needs to know of an environment.
    pub fn sandbox_environment(environment: &Environment) -> woma_sandbox::Environment {
        let Environment { python, prefix, base_prefix, mounts, .. } = environment;
        woma_sandbox::Environment {
            prefix: prefix.clone(),
            python: python.clone(),
            is_virtual: prefix != base_prefix && prefix.join("pyvenv.cfg").is_file(),
            mounts: mounts.iter().filter(|mount| *mount != prefix).cloned().collect(),
        }
    }
}

pub(crate) fn may_execute(caller: &Caller) -> Result<(), Error> {
    let may = caller.scopes.execute;
    if may { Ok(()) } else { Err(Error::Forbidden { scope: "execute" }) }
}

/// Who may run code may look at what it did.
pub(crate) fn may_read(caller: &Caller) -> Result<(), Error> {
    let may = caller.scopes.read || caller.scopes.execute;
    if may { Ok(()) } else { Err(Error::Forbidden { scope: "read" }) }
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

/// Ends with the service.
async fn expire(shared: std::sync::Weak<Shared>) {
    loop {
        let Some(tick) = shared.upgrade().map(|shared| {
            shared.sessions.expire(Instant::now());
            (shared.settings.idle_max / 4).clamp(Duration::from_millis(100), EXPIRY_TICK_MAX)
        }) else {
            return;
        };
        tokio::time::sleep(tick).await;
    }
}
