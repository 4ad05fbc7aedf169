//! One Python environment, ready to be forked: the steward that serves it, its health, the pool.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::Error;
use crate::cell::Cell;
use crate::limits::cgroup::Cgroups;
use crate::pool::{self, Pool};
use crate::proof;
use crate::room::{self, Grave};
use crate::spec::{Config, Environment, Spec};
use crate::steward::client::Client;
use crate::steward::control::{Report, Setup, Standing, Tier};
use crate::steward::template::UPLOADS;

/// Where a virtual environment is shown inside.
const GUEST_ENVIRONMENT: &str = "/opt/env";
/// How long the first zygote may take: a cold disk and a large environment.
const BOOT_TIME_MAX: Duration = Duration::from_secs(120);
/// Pause before another steward is started, doubled with each failure in a row.
pub(crate) const STEWARD_DELAY_MIN: Duration = Duration::from_millis(100);
const STEWARD_DELAY_MAX: Duration = Duration::from_secs(10);

/// A handle; clones share the sandbox. The last one dropped ends it and every cell in it.
#[derive(Debug, Clone)]
pub struct Sandbox {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    setup: Setup,
    pub(crate) cgroups: Cgroups,
    /// Our own namespaces.
    pub(crate) outside: BTreeSet<String>,
    pub(crate) health: watch::Sender<Health>,
    /// The steward in service, and what it said of itself.
    pub(crate) steward: Mutex<Option<(Arc<Client>, Standing)>>,
    pub(crate) waiting: Mutex<BTreeMap<u64, oneshot::Sender<Answer>>>,
    pub(crate) exits: Mutex<BTreeMap<u64, oneshot::Sender<i32>>>,
    pub(crate) next_id: AtomicU64,
    pub(crate) live: Arc<AtomicUsize>,
    pub(crate) graves: mpsc::UnboundedSender<Grave>,
    pub(crate) pool: Pool,
    pub(crate) pool_wanted: Arc<Notify>,
    closing: Arc<Notify>,
}

/// A room's handles, and the session's id in the steward's user namespace.
pub(crate) type Answer = Result<(Vec<OwnedFd>, u32), Error>;

/// What can be served now.
#[derive(Debug, Clone, Default)]
pub struct Health {
    pub tiers: BTreeMap<Tier, TierHealth>,
    /// Why the last steward could not work, while there is none.
    pub broken: Option<String>,
    /// How often something that died was replaced.
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

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that holds one of these locks can panic half-way through a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A session takes some ten descriptors of ours, and many systems begin with 1024 of them though far
/// more are allowed. What cells may have is limited apart from this.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of open descriptors could not be raised");
    }
}

impl Sandbox {
    /// Starts the machinery and returns when the first cell can be served.
    pub async fn start(config: Config) -> Result<Self, Error> {
        raise_descriptor_limit();
        let cgroups = Cgroups::prepare();
        let setup = setup(&config, matches!(cgroups, Cgroups::Missing { .. }));
        let (graves, grave_orders) = mpsc::unbounded_channel();
        let starting = [(Tier::Base, TierHealth::Starting), (config.preload, TierHealth::Starting)];
        let health = Health { tiers: starting.into(), ..Health::default() };
        let shared = Arc::new(Shared {
            setup,
            cgroups,
            outside: proof::namespaces("self")?,
            health: watch::Sender::new(health),
            steward: Mutex::new(None),
            waiting: Mutex::default(),
            exits: Mutex::default(),
            next_id: AtomicU64::new(1),
            live: Arc::default(),
            graves,
            pool: Mutex::default(),
            pool_wanted: Arc::default(),
            closing: Arc::default(),
            config,
        });
        tokio::spawn(room::bury(grave_orders));
        tokio::spawn(supervise(Arc::downgrade(&shared)));
        let sandbox = Self { shared };
        sandbox.first_boot().await?;
        if sandbox.shared.config.pool > 0 {
            tokio::spawn(pool::fill(Arc::downgrade(&sandbox.shared)));
        }
        Ok(sandbox)
    }

    /// A first start that fails is not tried again: the operator is watching and wants to know why.
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
            Some(client) => client.last_words().await,
            None => None,
        };
        Err(Error::Python { reason: words.unwrap_or(reason) })
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

    /// Cells that exist now, pooled ones included.
    pub fn live_cells(&self) -> usize {
        self.shared.live.load(Ordering::Relaxed)
    }

    /// Memory of all cells together, where a cgroup counts it.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.shared.cgroups.memory_bytes()
    }

    /// What holds the limits, and why not more.
    pub fn limits_held_by(&self) -> (&'static str, Option<String>) {
        let why = match &self.shared.cgroups {
            Cgroups::Missing { why } => Some(why.clone()),
            Cgroups::V1 { .. } | Cgroups::V2 { .. } => None,
        };
        (self.shared.cgroups.name(), why)
    }

    /// A session of its own, from the pool where it fits.
    pub async fn open(&self, spec: &Spec) -> Result<Cell, Error> {
        if let Some(cell) = self.take_pooled(spec).await? {
            return Ok(cell);
        }
        self.shared.open(spec).await
    }
}

/// Host paths and the places inside at which they are shown.
fn setup(config: &Config, watched: bool) -> Setup {
    let Environment { prefix, python, is_virtual, mounts } = &config.environment;
    let guest = if *is_virtual { PathBuf::from(GUEST_ENVIRONMENT) } else { prefix.clone() };
    let python = match python.strip_prefix(prefix) {
        Ok(below) => guest.join(below),
        Err(_) => python.clone(),
    };
    let mut shown = vec![(prefix.clone(), guest)];
    shown.extend(mounts.iter().map(|path| (path.clone(), path.clone())));
    shown.retain(|(_, guest)| !guest.starts_with("/usr"));
    let mut tiers = vec![Tier::Base];
    if config.preload != Tier::Base {
        tiers.push(config.preload);
    }
    shown.extend(config.uploads.iter().map(|path| (path.clone(), PathBuf::from(UPLOADS))));
    Setup { python, mounts: shown, tiers, watched }
}

/// Keeps a steward running for as long as the sandbox is used.
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
                let (reason, had_stood) = follow(&shared, &client, &closing).await;
                failures = if had_stood { 0 } else { failures };
                reason
            }
            Err(error) => format!("start the steward: {error}"),
        };
        let Some(strong) = shared.upgrade() else { return };
        tracing::warn!(reason, "the steward has ended; every session with it");
        strong.steward_gone(&reason);
        drop(strong);
        let delay = STEWARD_DELAY_MIN * 2_u32.saturating_pow(failures.min(16));
        tokio::time::sleep(delay.min(STEWARD_DELAY_MAX)).await;
        failures = failures.saturating_add(1);
    }
}

/// Deals with what a steward says until it says no more. Also tells whether it ever stood.
async fn follow(shared: &Weak<Shared>, client: &Arc<Client>, closing: &Notify) -> (String, bool) {
    let mut stood = false;
    loop {
        let heard = tokio::select! {
            heard = client.next() => heard,
            () = closing.notified() => return ("shut down".to_owned(), stood),
        };
        let Some(strong) = shared.upgrade() else { return ("shut down".to_owned(), stood) };
        match heard {
            Ok(Some((Report::Standing(standing), _))) => {
                stood = true;
                *lock(&strong.steward) = Some((Arc::clone(client), standing));
                strong.health.send_modify(|health| health.broken = None);
            }
            Ok(Some((Report::Broken { step, reason }, _))) => {
                return (format!("{step}: {reason}"), stood);
            }
            Ok(Some((report, fds))) => strong.hear(report, fds),
            Ok(None) => return ("run: the steward ended by itself".to_owned(), stood),
            Err(error) => return (format!("understand the steward: {error}"), stood),
        }
    }
}

impl Shared {
    fn hear(&self, report: Report, fds: Vec<OwnedFd>) {
        match report {
            Report::Standing(_) | Report::Broken { .. } => {}
            Report::ZygoteReady { tier, boot_ms, loaded, failed } => {
                tracing::info!(tier = tier.name(), boot_ms, ?failed, "a zygote is ready");
                self.set_tier(tier, TierHealth::Ready { boot_ms, loaded, failed });
            }
            Report::ZygoteGone { tier, reason } => {
                tracing::warn!(tier = tier.name(), reason, "a zygote is gone; starting another");
                self.health.send_modify(|health| health.restarts += 1);
                self.set_tier(tier, TierHealth::Gone { reason });
            }
            Report::Opened { id, uid } => self.answer(id, Ok((fds, uid))),
            Report::Failed { id, step, reason } => {
                self.answer(id, Err(Error::Open { step, reason }));
            }
            Report::Exited { id, status } => {
                if let Some(waiting) = lock(&self.exits).remove(&id) {
                    // Nobody waits for the status of a cell that was let go.
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

    fn answer(&self, id: u64, answer: Answer) {
        if let Some(waiting) = lock(&self.waiting).remove(&id)
            && waiting.send(answer).is_err()
        {
            tracing::debug!(id, "nobody waits for this cell any more; it ends");
        }
    }

    fn steward_gone(&self, reason: &str) {
        *lock(&self.steward) = None;
        lock(&self.exits).clear();
        lock(&self.pool).clear();
        self.pool_wanted.notify_one();
        for waiting in std::mem::take(&mut *lock(&self.waiting)).into_values() {
            let (step, reason) = ("run".to_owned(), "the steward has ended".to_owned());
            if waiting.send(Err(Error::Open { step, reason })).is_err() {
                tracing::debug!("nobody waits for this cell any more");
            }
        }
        self.health.send_modify(|health| {
            health.broken = Some(reason.to_owned());
            health.restarts += 1;
            for state in health.tiers.values_mut() {
                *state = TierHealth::Starting;
            }
        });
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.closing.notify_one();
        self.pool_wanted.notify_one();
        self.cgroups.dispose();
    }
}
