//! One Python environment, ready to be forked: the steward that serves it, its health, the pool.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::Error;
use crate::cell::Cell;
use crate::container::Containers;
use crate::keeper;
use crate::limits::ceiling::Pressure;
use crate::limits::cgroup::Cgroups;
use crate::limits::watchdog;
use crate::object_watch::{self, ObjectWatch};
use crate::open::room_ids;
use crate::pool::{self, Pool};
use crate::proof;
use crate::room_handles::{self, Cleanup};
use crate::rung::{self, Rung};
use crate::spec::{Config, Environment, Spec};
use crate::steward::client::Client;
use crate::steward::control::{Report, Setup, StewardInfo, Tier};
use crate::steward::shared::Places;
use crate::steward::template::{INSTALLER_PROGRAM, UPLOADS};
use crate::steward::trust;
use crate::sync::lock;

/// Path of a virtual environment inside the sandbox.
const GUEST_ENVIRONMENT: &str = "/opt/env";
/// Longest time until the first zygote is ready; allows for a cold disk and a large environment.
const BOOT_TIME_MAX: Duration = Duration::from_secs(120);
/// Delay before another steward is started; doubled with each consecutive failure.
pub(crate) const STEWARD_DELAY_MIN: Duration = Duration::from_millis(100);
const STEWARD_DELAY_MAX: Duration = Duration::from_secs(10);

/// Handle to a sandbox; clones share it. Dropping the last clone ends the sandbox and all its
/// cells.
#[derive(Debug, Clone)]
pub struct Sandbox {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) setup: Setup,
    /// `None` if sessions in containers are disabled.
    pub(crate) containers: Option<Containers>,
    /// Groups of the cells, common to sandboxes that were started beside each other.
    pub(crate) cgroups: Arc<OwnGroups>,
    /// Namespaces of this process.
    pub(crate) outside: BTreeSet<String>,
    pub(crate) health: watch::Sender<Health>,
    /// The active steward and its description of itself.
    pub(crate) steward: ActiveSteward,
    pub(crate) pending_opens: Mutex<BTreeMap<u64, oneshot::Sender<OpenReply>>>,
    pub(crate) exits: Mutex<BTreeMap<u64, oneshot::Sender<i32>>>,
    /// Common to sandboxes with the same groups.
    pub(crate) next_id: Arc<AtomicU64>,
    pub(crate) live: Arc<AtomicUsize>,
    pub(crate) cleanups: mpsc::UnboundedSender<Cleanup>,
    pub(crate) object_watch: Arc<ObjectWatch>,
    pub(crate) pool: Pool,
    pub(crate) pool_wanted: Arc<Notify>,
    closing: Arc<Notify>,
    pub(crate) rung: Rung,
    /// Step and reason for which the highest rung was refused.
    rung_refused: Option<rung::Refused>,
}

/// The active steward and its description of itself; `None` while there is none.
pub(crate) type ActiveSteward = Arc<Mutex<Option<(Arc<Client>, StewardInfo)>>>;

/// Groups of this process's cells; their parent is removed with the last sandbox that uses it.
#[derive(Debug)]
pub(crate) struct OwnGroups(Cgroups);

impl Deref for OwnGroups {
    type Target = Cgroups;

    fn deref(&self) -> &Cgroups {
        &self.0
    }
}

impl Drop for OwnGroups {
    fn drop(&mut self) {
        if keeper::of_this_process().is_none() {
            self.0.dispose();
        }
    }
}

/// Handles of a room, and the session's uid in the steward's user namespace.
pub(crate) type OpenReply = Result<(Vec<OwnedFd>, u32, Option<Places>), Error>;

/// Tiers that can be served now, and failures of the steward.
#[derive(Debug, Clone, Default)]
pub struct Health {
    pub tiers: BTreeMap<Tier, TierHealth>,
    /// Reason why the last steward failed, while no steward is running.
    pub broken: Option<String>,
    /// Number of stewards and zygotes that were replaced after they died.
    pub restarts: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TierHealth {
    Starting,
    Ready { boot_ms: u64, loaded: Vec<String>, failed: BTreeMap<String, String> },
    Gone { reason: String },
}

impl TierHealth {
    pub fn is_ready(&self) -> bool {
        matches!(self, Self::Ready { .. })
    }
}

/// Raises the soft limit of open descriptors to the hard limit. A session takes about ten
/// descriptors of the server, and many systems start with a soft limit of 1024. Cells have limits
/// of their own.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "cannot raise the limit of open descriptors");
    }
}

impl Sandbox {
    /// Starts the steward and returns when the first cell can be served.
    pub async fn start(mut config: Config) -> Result<Self, Error> {
        raise_descriptor_limit();
        let (rung, why) =
            rung::choose(&config).await.map_err(|(step, reason)| Error::Build { step, reason })?;
        if rung.is_shared() {
            // A cell without mounts cannot change its folder.
            config.pool = 0;
            watchdog::SHARED.store(true, Ordering::Relaxed);
        }
        let cgroups = match keeper::of_this_process() {
            Some(keeper) => keeper.cgroups().clone(),
            None => Cgroups::prepare(),
        };
        if let Some(bytes) = config.memory_bytes {
            let set = match keeper::of_this_process() {
                Some(keeper) => keeper.set_ceiling(bytes),
                None => cgroups.set_ceiling(bytes),
            };
            set.map_err(|error| Error::Build {
                step: "limit the memory of all sessions".to_owned(),
                reason: error.to_string(),
            })?;
        }
        let groups = Arc::new(OwnGroups(cgroups));
        Self::start_with(config, groups, Arc::new(AtomicU64::new(1)), (rung, why)).await
    }

    /// Starts the steward of another environment. Its cells are below the same limit of memory, and
    /// at the same rung.
    pub async fn start_beside(&self, mut config: Config) -> Result<Self, Error> {
        let Shared { cgroups, next_id, rung, rung_refused, .. } = &*self.shared;
        if rung.is_shared() {
            config.pool = 0;
        }
        let found = (*rung, rung_refused.clone());
        Self::start_with(config, Arc::clone(cgroups), Arc::clone(next_id), found).await
    }

    async fn start_with(
        config: Config,
        cgroups: Arc<OwnGroups>,
        next_id: Arc<AtomicU64>,
        (rung, why): (Rung, Option<rung::Refused>),
    ) -> Result<Self, Error> {
        if config.trust.as_ref().is_some_and(|pem| pem.len() > trust::OWN_BYTES_MAX) {
            return Err(Error::Build {
                step: "have sessions trust the server's certificate authorities".to_owned(),
                reason: format!("their file has more than {} KiB", trust::OWN_BYTES_MAX >> 10),
            });
        }
        let setup = setup(&config, matches!(**cgroups, Cgroups::Missing { .. }), rung);
        let (cleanups, cleanup_orders) = mpsc::unbounded_channel();
        let starting = [(Tier::Base, TierHealth::Starting), (config.preload, TierHealth::Starting)];
        let health = Health { tiers: starting.into(), ..Health::default() };
        let shared = Arc::new(Shared {
            setup,
            containers: config.containers.map(Containers::new),
            cgroups,
            outside: proof::namespaces("self")?,
            health: watch::Sender::new(health),
            steward: ActiveSteward::default(),
            pending_opens: Mutex::default(),
            exits: Mutex::default(),
            next_id,
            live: Arc::default(),
            cleanups,
            object_watch: Arc::default(),
            pool: Mutex::default(),
            pool_wanted: Arc::default(),
            closing: Arc::default(),
            rung,
            rung_refused: why,
            config,
        });
        tokio::spawn(room_handles::run_cleanups(cleanup_orders));
        tokio::spawn(supervise(Arc::downgrade(&shared)));
        tokio::spawn(object_watch::watch(Arc::downgrade(&shared)));
        let sandbox = Self { shared };
        sandbox.first_boot().await?;
        if sandbox.shared.config.pool > 0 {
            tokio::spawn(pool::fill(Arc::downgrade(&sandbox.shared)));
        }
        Ok(sandbox)
    }

    /// Waits for the first zygote. A failed first start is not retried: the operator needs the
    /// reason.
    async fn first_boot(&self) -> Result<(), Error> {
        let mut health = self.shared.health.subscribe();
        let verdict = health.wait_for(|health| {
            health.broken.is_some()
                || health.tiers.get(&Tier::Base).is_some_and(|base| *base != TierHealth::Starting)
        });
        let verdict = timeout(BOOT_TIME_MAX, verdict).await;
        let Ok(Ok(health)) = verdict.map(|health| health.map(|health| health.clone())) else {
            return Err(Error::Python { reason: format!("not ready within {BOOT_TIME_MAX:?}") });
        };
        if let Some(reason) = &health.broken {
            let (step, reason) = reason.split_once(": ").unwrap_or(("start", reason));
            return Err(Error::Build { step: step.to_owned(), reason: reason.to_owned() });
        }
        let Some(TierHealth::Gone { reason }) = health.tiers.get(&Tier::Base).cloned() else {
            return Ok(());
        };
        let client = lock(&self.shared.steward).clone().map(|(client, _)| client);
        let words = match client {
            Some(client) => client.last_stderr_line().await,
            None => None,
        };
        Err(Error::Python { reason: words.unwrap_or(reason) })
    }

    /// The rung of isolation, with the step and the reason for which a higher one was refused.
    pub fn rung(&self) -> (Rung, Option<&(String, String)>) {
        (self.shared.rung, self.shared.rung_refused.as_ref())
    }

    pub fn health(&self) -> Health {
        self.shared.health.borrow().clone()
    }

    /// Returns when cells of this tier can be served.
    pub async fn ready(&self, tier: Tier) -> Result<(), Error> {
        let mut health = self.shared.health.subscribe();
        let ready = health.wait_for(|h| h.tiers.get(&tier).is_some_and(TierHealth::is_ready));
        ready.await.map(|_| ()).map_err(|_| Error::ShutDown)
    }

    /// Number of live cells, including pooled ones.
    pub fn live_cells(&self) -> usize {
        self.shared.live.load(Ordering::Relaxed)
    }

    /// Number of handles to this sandbox, this one included.
    pub fn handles(&self) -> usize {
        Arc::strong_count(&self.shared)
    }

    /// Memory of all cells together; `None` without cgroups.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.shared.cgroups.memory_bytes()
    }

    /// Memory pressure of all cells together. Reads kernel files, which can take milliseconds.
    pub fn pressure(&self) -> Pressure {
        self.shared.cgroups.pressure(self.shared.config.memory_bytes)
    }

    /// Mechanism that enforces the limits, and why it is not a better one.
    pub fn limits_held_by(&self) -> (&'static str, Option<String>) {
        let why = match &**self.shared.cgroups {
            Cgroups::Missing { why } => Some(why.clone()),
            Cgroups::V1 { .. } | Cgroups::V2 { .. } => None,
        };
        (self.shared.cgroups.name(), why)
    }

    /// Opens a session, from the pool if the spec matches.
    pub async fn open(&self, spec: &Spec) -> Result<Cell, Error> {
        if spec.container {
            return self.shared.open_contained(spec).await;
        }
        if let Some(cell) = self.take_pooled(spec).await? {
            return Ok(cell);
        }
        self.shared.open(spec).await
    }
}

fn setup(config: &Config, watched: bool, rung: Rung) -> Setup {
    let Environment { prefix, python, .. } = &config.environment;
    let python = match python.strip_prefix(prefix) {
        Ok(below) if !rung.is_shared() => guest_prefix(&config.environment).join(below),
        _ => python.clone(),
    };
    let mounts = shown(&config.environment, config.uploads.as_deref());
    let mut tiers = vec![Tier::Base];
    if config.preload != Tier::Base {
        tiers.push(config.preload);
    }
    let (rotation, trust) = (config.rotation, config.trust.clone());
    let scratch = config.spare_folders.clone().unwrap_or_else(std::env::temp_dir);
    Setup { python, mounts, tiers, watched, room_ids: room_ids(), rotation, trust, rung, scratch }
}

fn guest_prefix(environment: &Environment) -> PathBuf {
    let Environment { prefix, is_virtual, .. } = environment;
    if *is_virtual { PathBuf::from(GUEST_ENVIRONMENT) } else { prefix.clone() }
}

/// Host paths to show, each with its path inside the sandbox.
pub(crate) fn shown(environment: &Environment, uploads: Option<&Path>) -> Vec<(PathBuf, PathBuf)> {
    let mut shown = vec![(environment.prefix.clone(), guest_prefix(environment))];
    shown.extend(environment.mounts.iter().map(|path| (path.clone(), path.clone())));
    shown.retain(|(_, guest)| !guest.starts_with("/usr"));
    let installer = environment.installer.iter();
    shown.extend(installer.map(|path| (path.clone(), PathBuf::from(INSTALLER_PROGRAM))));
    shown.extend(uploads.iter().map(|path| (path.to_path_buf(), PathBuf::from(UPLOADS))));
    shown
}

/// Keeps a steward running while the sandbox is in use.
async fn supervise(shared: Weak<Shared>) {
    let mut failures: u32 = 0;
    loop {
        let Some(strong) = shared.upgrade() else { return };
        let client = Client::spawn(&strong.config.steward, &strong.setup);
        let closing = Arc::clone(&strong.closing);
        drop(strong);
        let reason = match client {
            Ok(client) => {
                let client = Arc::new(client);
                let (reason, had_started) = follow(&shared, &client, &closing).await;
                failures = if had_started { 0 } else { failures };
                reason
            }
            Err(error) => format!("start the steward: {error}"),
        };
        let Some(strong) = shared.upgrade() else { return };
        tracing::warn!(
            reason,
            "the sandbox has ended, and all sessions with it; starting it again"
        );
        strong.steward_gone(&reason);
        drop(strong);
        let delay = STEWARD_DELAY_MIN * 2_u32.saturating_pow(failures.min(16));
        tokio::time::sleep(delay.min(STEWARD_DELAY_MAX)).await;
        failures = failures.saturating_add(1);
    }
}

/// Handles reports of a steward until it ends. Returns the reason, and whether it ever started.
async fn follow(shared: &Weak<Shared>, client: &Arc<Client>, closing: &Notify) -> (String, bool) {
    let mut has_started = false;
    loop {
        let received = tokio::select! {
            received = client.next() => received,
            () = closing.notified() => return ("shut down".to_owned(), has_started),
        };
        let Some(strong) = shared.upgrade() else { return ("shut down".to_owned(), has_started) };
        match received {
            Ok(Some((Report::Started(info), _))) => {
                has_started = true;
                *lock(&strong.steward) = Some((Arc::clone(client), info));
                strong.health.send_modify(|health| health.broken = None);
            }
            Ok(Some((Report::Broken { step, reason }, _))) => {
                return (format!("{step}: {reason}"), has_started);
            }
            Ok(Some((report, fds))) => strong.handle_report(report, fds),
            Ok(None) => return ("run: the steward exited unexpectedly".to_owned(), has_started),
            Err(error) => return (format!("read a report of the steward: {error}"), has_started),
        }
    }
}

impl Shared {
    fn handle_report(&self, report: Report, fds: Vec<OwnedFd>) {
        match report {
            Report::Started(_) | Report::Broken { .. } => {}
            Report::ZygoteReady { tier, boot_ms, loaded, failed } => {
                let tier_name = tier.name();
                // Modules that cannot be imported are rare, and then they are news.
                match failed.is_empty() {
                    true => tracing::info!(boot_ms, "Python is warm ({tier_name})"),
                    false => tracing::warn!(
                        boot_ms,
                        ?failed,
                        "Python is warm ({tier_name}), but some modules cannot be imported"
                    ),
                }
                self.set_tier(tier, TierHealth::Ready { boot_ms, loaded, failed });
            }
            Report::ZygoteGone { tier, reason } => {
                let tier_name = tier.name();
                tracing::warn!(reason, "the warm Python ({tier_name}) has ended; starting another");
                self.health.send_modify(|health| health.restarts += 1);
                self.set_tier(tier, TierHealth::Gone { reason });
            }
            Report::Opened { id, uid, places } => self.reply(id, Ok((fds, uid, places))),
            Report::Failed { id, step, reason } => {
                self.reply(id, Err(Error::Open { step, reason }));
            }
            Report::Exited { id, status } => {
                if let Some(waiting) = lock(&self.exits).remove(&id) {
                    // The receiver is gone if the cell was dropped.
                    waiting.send(status).unwrap_or_default();
                }
            }
        }
    }

    fn set_tier(&self, tier: Tier, state: TierHealth) {
        self.health.send_modify(|health| {
            health.tiers.insert(tier, state);
        });
    }

    fn reply(&self, id: u64, answer: OpenReply) {
        if let Some(waiting) = lock(&self.pending_opens).remove(&id)
            && waiting.send(answer).is_err()
        {
            tracing::debug!(id, "the caller of this cell is gone; ending it");
        }
    }

    fn steward_gone(&self, reason: &str) {
        *lock(&self.steward) = None;
        lock(&self.exits).clear();
        lock(&self.pool).clear();
        self.pool_wanted.notify_one();
        for waiting in std::mem::take(&mut *lock(&self.pending_opens)).into_values() {
            let (step, reason) = ("run".to_owned(), "the steward has ended".to_owned());
            if waiting.send(Err(Error::Open { step, reason })).is_err() {
                tracing::debug!("the caller of this cell is gone");
            }
        }
        self.health.send_modify(|health| {
            health.broken = Some(reason.to_owned());
            health.restarts += 1;
            // The next steward does not know of it.
            health.tiers.remove(&Tier::Light);
            for state in health.tiers.values_mut() {
                *state = TierHealth::Starting;
            }
        });
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Cells have a handle of the steward too, and must not outlive it.
        *lock(&self.steward) = None;
        self.closing.notify_one();
        self.pool_wanted.notify_one();
    }
}
