//! Packages that sessions install: which may be, where they come from, and the folders that have
//! them. Calls `storage`, `net` and `shares`; knows neither sessions nor cells.
//!
//! A package's archive is never parsed here, and nothing of it is executed: a cell does both
//! (`execution/packages.rs`).

pub(crate) mod files;
pub(crate) mod freeze;
pub(crate) mod gateway;
pub(crate) mod html;
pub(crate) mod index;
mod known_names;
pub(crate) mod layers;
pub(crate) mod names;
pub(crate) mod page;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use woma_sandbox::sync::lock;

use self::files::FileCache;
use self::index::Index;
use self::layers::Layers;
use self::names::key;
use crate::access::rate::RateLimiter;
use crate::environments::Environment;
use crate::model::caller::CallerId;
use crate::model::{PackageError, PackageProblem, PackageSet};
use crate::shares::Shares;
use crate::storage::layout::Storage;

/// Callers whose rate is remembered.
const RATES_MAX: usize = 10_000;
/// Solved requests that are remembered.
const SOLVED_MAX: usize = 10_000;
/// Callers whose session `default` is known to have been looked for.
const LOOKED_MAX: usize = 10_000;

/// Settings of packages.
#[derive(Debug, Clone)]
pub struct PackageSettings {
    /// Whether sessions can install packages.
    pub is_on: bool,
    /// Simple index of packages. `None`: the one that the installer uses by itself.
    pub index_url: Option<String>,
    /// Value of the header `Authorization` for the index. Never sent to another host.
    pub authorization: Option<String>,
    /// Certificate authorities that the index may be signed by, beside those of the web.
    pub ca_file: Option<PathBuf>,
    /// Folder of wheels, which come before those of the index. Alone, nothing else is installed.
    pub wheelhouse: Option<PathBuf>,
    /// Names that cannot be installed.
    pub blocked: Vec<String>,
    /// Whether packages that have no wheel are built from source.
    pub allows_source: bool,
    /// Disk usage of a session's packages together, in bytes.
    pub bytes_max: u64,
    /// Packages of a session.
    pub count_max: usize,
    /// Longest time of one change, also its default.
    pub timeout: Duration,
    pub per_minute: u32,
    /// Installations at once, shared among callers.
    pub at_once: usize,
    /// How long pages of the index and solved requests are believed.
    pub fresh: Duration,
    /// Layers that were unused for so long are removed.
    pub layer_ttl: Duration,
    /// Size of the files that are kept of the index, in bytes.
    pub cache_bytes: u64,
}

impl PackageSettings {
    /// Whether this can be the address of an index.
    pub fn is_address(text: &str) -> bool {
        let url = url::Url::parse(text).ok();
        url.is_some_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
    }
}

impl Default for PackageSettings {
    fn default() -> Self {
        let blocked = ["os", "subprocess", "sys", "importlib", "ctypes"];
        let blocked = blocked.into_iter().chain(["multiprocessing", "threading"]);
        Self {
            is_on: true,
            index_url: None,
            authorization: None,
            ca_file: None,
            wheelhouse: None,
            blocked: blocked.map(str::to_owned).collect(),
            allows_source: false,
            bytes_max: 1024 * 1024 * 1024,
            count_max: 200,
            timeout: Duration::from_secs(300),
            per_minute: 20,
            at_once: 4,
            fresh: Duration::from_secs(600),
            layer_ttl: Duration::from_hours(30 * 24),
            cache_bytes: 2 * 1024 * 1024 * 1024,
        }
    }
}

/// Distributions of an environment, on which the packages of its sessions depend.
#[derive(Debug)]
pub(crate) struct Distributions {
    /// Identifies the environment.
    pub(crate) environment: String,
    /// Name and version by the name in its plain form.
    pub(crate) present: BTreeMap<String, (String, String)>,
}

impl Distributions {
    pub(crate) fn new(environment: &Environment, packages: Vec<(String, String)>) -> Self {
        let Environment { prefix, version, managed, .. } = environment;
        let digest = managed.as_ref().map_or("", |managed| managed.lock_digest.as_str());
        let present = packages.into_iter().map(|(name, version)| (key(&name), (name, version)));
        Self {
            environment: format!("{} {version} {digest}", prefix.display()),
            present: present.collect(),
        }
    }
}

/// Packages of all sessions.
#[derive(Debug)]
pub(crate) struct Packages {
    pub(crate) settings: PackageSettings,
    pub(crate) index: Index,
    pub(crate) layers: Layers,
    pub(crate) installs: Arc<Shares>,
    rates: RateLimiter<CallerId>,
    solved: Mutex<BTreeMap<Request, Solved>>,
    /// Callers whose session `default` was looked for, for runs without a session.
    looked: Mutex<BTreeSet<CallerId>>,
}

/// A request that was solved: the caller, its environment and packages before, and what it asked
/// for.
type Request = (CallerId, String, String);

#[derive(Debug, Clone)]
struct Solved {
    at: Instant,
    set: PackageSet,
}

impl Packages {
    pub(crate) fn open(settings: PackageSettings, storage: &Storage) -> Self {
        let cache = FileCache::new(storage.settings.folder.join("packages"), settings.cache_bytes);
        Self {
            index: Index::new(&settings, cache),
            layers: Layers::new(storage.packages_root()),
            installs: Arc::new(Shares::new(settings.at_once)),
            rates: RateLimiter::new(RATES_MAX),
            solved: Mutex::default(),
            looked: Mutex::default(),
            settings,
        }
    }

    pub(crate) fn check_rate(&self, owner: &CallerId) -> Result<(), Duration> {
        self.rates.check(owner, self.settings.per_minute, Instant::now()).map_err(|wait| wait.0)
    }

    /// Whether the session `default` of this caller has to be looked for; once is enough.
    pub(crate) fn looks_anew(&self, owner: &CallerId) -> bool {
        let mut looked = lock(&self.looked);
        if looked.len() >= LOOKED_MAX {
            looked.clear();
        }
        looked.insert(owner.clone())
    }

    /// Packages that a request has led to lately.
    pub(crate) fn solved(&self, request: &Request) -> Option<PackageSet> {
        let solved = lock(&self.solved).get(request).cloned()?;
        let is_fresh = solved.at.elapsed() < self.settings.fresh;
        (is_fresh && self.layers.has(&request.0, &solved.set.layer)).then_some(solved.set)
    }

    pub(crate) fn remember(&self, request: Request, set: PackageSet) {
        let mut solved = lock(&self.solved);
        if solved.len() >= SOLVED_MAX {
            solved.retain(|_, one| one.at.elapsed() < self.settings.fresh);
        }
        if solved.len() < SOLVED_MAX {
            solved.insert(request, Solved { at: Instant::now(), set });
        }
    }

    pub(crate) fn off() -> PackageError {
        PackageError::new(PackageProblem::Off, "this server installs no packages")
            .with_hint("get_sandbox_info lists what is installed; the operator sets INSTALLS=on")
    }
}
