//! Environments of sessions: the default one, and those that an operator has named. A named one has
//! a sandbox of its own, started for the first session that needs it and ended when none has for a
//! while.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use woma_sandbox::sync::lock;
use woma_sandbox::{Config, Limits, Sandbox, Spec, Tier, Workspace};

use super::Executor;
use super::request::Admitted;
use crate::environments::{Environment, MadeEnvironment, NamedEnvironment, Version};
use crate::error::Error;
use crate::packages::Distributions;
use crate::policy::Verdict;
use crate::session::state::Session;
use crate::text::near;

/// How often idle sandboxes are looked for, at most.
const SWEEP_MAX: Duration = Duration::from_secs(30);
const SWEEP_MIN: Duration = Duration::from_millis(200);

/// Facts about an environment that its runs need.
#[derive(Debug)]
pub(crate) struct EnvironmentFacts {
    /// `None` for the default one.
    pub(crate) name: Option<String>,
    pub(crate) version: Version,
    /// Of every cell in it.
    pub(crate) limits: Limits,
    /// Longest run in it, if it has a limit of its own.
    pub(crate) timeout_max: Option<Duration>,
    pub(crate) distributions: Distributions,
}

/// A cell to open.
pub(crate) struct Opening {
    pub(crate) sandbox: Sandbox,
    pub(crate) spec: Spec,
}

/// The environments of a server: the default one and the named ones.
#[derive(Debug)]
pub(crate) struct SessionEnvironments {
    default: (Arc<EnvironmentFacts>, Sandbox),
    named: BTreeMap<String, Named>,
    /// Those that have a sandbox of their own.
    places: Vec<Arc<Place>>,
    idle_max: Duration,
    /// Of the default sandbox.
    config: Config,
}

#[derive(Debug)]
struct Named {
    about: NamedEnvironment,
    /// Or why sessions cannot run in it.
    ready: Result<(Arc<EnvironmentFacts>, Option<Arc<Place>>), String>,
}

/// A sandbox that is started when it is needed; environments with the same files share one.
#[derive(Debug)]
struct Place {
    environment: Environment,
    preload: Tier,
    running: tokio::sync::Mutex<Option<Sandbox>>,
    used: Mutex<Instant>,
}

/// The default environment, and what sandboxes of others have in common with its own.
pub(crate) struct DefaultEnvironment {
    pub(crate) environment: Environment,
    pub(crate) packages: Vec<(String, String)>,
    pub(crate) sandbox: Sandbox,
    pub(crate) config: Config,
}

impl SessionEnvironments {
    pub(crate) fn new(
        default: DefaultEnvironment,
        named: Vec<NamedEnvironment>,
        idle_max: Duration,
    ) -> Self {
        let DefaultEnvironment { environment, packages, sandbox, config } = default;
        let facts = EnvironmentFacts {
            name: None,
            version: environment.version,
            limits: config.limits.clone(),
            timeout_max: None,
            distributions: Distributions::new(&environment, packages),
        };
        let mut found = Self {
            default: (Arc::new(facts), sandbox),
            named: BTreeMap::new(),
            places: Vec::new(),
            idle_max,
            config,
        };
        for about in named {
            let ready = match about.made.clone() {
                Ok(made) => Ok(found.ready(&about, made, &environment.prefix)),
                Err(why) => Err(why),
            };
            found.named.insert(about.name.clone(), Named { about, ready });
        }
        found
    }

    fn ready(
        &mut self,
        about: &NamedEnvironment,
        made: MadeEnvironment,
        default: &Path,
    ) -> (Arc<EnvironmentFacts>, Option<Arc<Place>>) {
        let MadeEnvironment { environment, packages } = made;
        let preload = if about.preloads_all { Tier::Full } else { Tier::Base };
        let most = &self.config.limits;
        let own = &about.limits;
        let limits = Limits {
            wall: own.timeout.map_or(most.wall, |wall| wall.min(most.wall)),
            memory_bytes: own.memory_bytes.unwrap_or(most.memory_bytes).min(most.memory_bytes),
            cpu_cores: own.cpu_cores.unwrap_or(most.cpu_cores).min(most.cpu_cores),
            processes: own.processes.unwrap_or(most.processes).min(most.processes),
            ..most.clone()
        };
        let facts = EnvironmentFacts {
            name: Some(about.name.clone()),
            version: environment.version,
            limits,
            timeout_max: own.timeout,
            distributions: Distributions::new(&environment, packages),
        };
        let place = if environment.prefix == default && preload == self.config.preload {
            None
        } else {
            Some(self.place(environment, preload))
        };
        (Arc::new(facts), place)
    }

    fn place(&mut self, environment: Environment, preload: Tier) -> Arc<Place> {
        let is_same = |place: &&Arc<Place>| {
            place.environment.prefix == environment.prefix && place.preload == preload
        };
        if let Some(place) = self.places.iter().find(is_same) {
            return Arc::clone(place);
        }
        let place = Arc::new(Place {
            environment,
            preload,
            running: tokio::sync::Mutex::default(),
            used: Mutex::new(Instant::now()),
        });
        self.places.push(Arc::clone(&place));
        place
    }

    pub(crate) fn default_facts(&self) -> &Arc<EnvironmentFacts> {
        &self.default.0
    }

    /// All that an operator has named.
    pub(crate) fn named(&self) -> impl Iterator<Item = &NamedEnvironment> {
        self.named.values().map(|named| &named.about)
    }

    /// Whether an environment has a sandbox now, so that no session waits for its start.
    pub(crate) fn is_running(&self, name: &str) -> bool {
        let place = match self.named.get(name).map(|named| &named.ready) {
            Some(Ok((_, Some(place)))) => place,
            Some(Ok((_, None))) => return true,
            _ => return false,
        };
        // Held while it starts.
        place.running.try_lock().map_or(true, |running| running.is_some())
    }

    /// The environment of this name; `None` and `default` name the default one.
    pub(crate) fn facts(&self, name: Option<&str>) -> Result<Arc<EnvironmentFacts>, Error> {
        let Some(name) = name.filter(|name| *name != "default") else {
            return Ok(Arc::clone(&self.default.0));
        };
        let (facts, _) = self.find(name)?;
        Ok(Arc::clone(facts))
    }

    /// The environment that an operator has named, and its template.
    pub(crate) fn about(&self, name: &str) -> Result<&NamedEnvironment, Error> {
        self.find(name)?;
        self.named.get(name).map(|named| &named.about).ok_or_else(|| self.unknown(name))
    }

    fn find(&self, name: &str) -> Result<&(Arc<EnvironmentFacts>, Option<Arc<Place>>), Error> {
        let named = self.named.get(name).ok_or_else(|| self.unknown(name))?;
        named
            .ready
            .as_ref()
            .map_err(|why| Error::EnvironmentNotMade { name: name.to_owned(), why: why.clone() })
    }

    fn unknown(&self, name: &str) -> Error {
        let known = || std::iter::once("default").chain(self.named.keys().map(String::as_str));
        Error::NoEnvironment {
            name: name.chars().take(64).collect(),
            near: near::paths(name, known()),
            known: known().collect::<Vec<_>>().join(", "),
        }
    }

    /// The first environment whose Python meets a condition: the default one, then by name.
    pub(crate) fn with_python(
        &self,
        meets: impl Fn(Version) -> bool,
    ) -> Option<Arc<EnvironmentFacts>> {
        let named = self.named.values().filter_map(|named| named.ready.as_ref().ok());
        let all = std::iter::once(&self.default.0).chain(named.map(|(facts, _)| facts));
        let mut meeting = all.filter(|facts| meets(facts.version));
        meeting.next().map(Arc::clone)
    }

    /// The sandbox of an environment, which is started if it does not run.
    pub(crate) async fn sandbox(&self, facts: &EnvironmentFacts) -> Result<Sandbox, Error> {
        let place = match &facts.name {
            Some(name) => self.find(name)?.1.as_ref(),
            None => None,
        };
        let Some(place) = place else { return Ok(self.default.1.clone()) };
        let mut running = place.running.lock().await;
        *lock(&place.used) = Instant::now();
        if let Some(sandbox) = &*running {
            return Ok(sandbox.clone());
        }
        let name = facts.name.as_deref().unwrap_or_default();
        let began = Instant::now();
        let config = Config {
            environment: as_seen(&place.environment),
            preload: place.preload,
            pool: 0,
            spare_folders: None,
            ..self.config.clone()
        };
        let sandbox = self.default.1.start_beside(config).await?;
        tracing::info!(name, took = ?began.elapsed(), "An environment has been started");
        *running = Some(sandbox.clone());
        Ok(sandbox)
    }

    /// Ends sandboxes that have no cell and were not used for long.
    fn retire(&self) {
        for place in &self.places {
            let Ok(mut running) = place.running.try_lock() else { continue };
            // Kernels have a handle, and so does who is about to open a cell.
            let is_used = |sandbox: &Sandbox| sandbox.live_cells() > 0 || sandbox.handles() > 1;
            let is_idle = running.as_ref().is_some_and(|sandbox| !is_used(sandbox))
                && lock(&place.used).elapsed() > self.idle_max;
            if is_idle {
                let prefix = place.environment.prefix.display();
                tracing::info!(%prefix, "An environment that no session uses is ended");
                *running = None;
            } else if running.as_ref().is_some_and(is_used) {
                *lock(&place.used) = Instant::now();
            }
        }
    }

    /// Cells of all environments but the default one.
    pub(crate) fn cells(&self) -> usize {
        let running = self.places.iter().filter_map(|place| place.running.try_lock().ok());
        running.map(|running| running.as_ref().map_or(0, Sandbox::live_cells)).sum()
    }
}

/// An environment as the sandbox sees it.
pub(crate) fn as_seen(environment: &Environment) -> woma_sandbox::Environment {
    let Environment { python, prefix, base_prefix, mounts, .. } = environment;
    woma_sandbox::Environment {
        prefix: prefix.clone(),
        python: python.clone(),
        is_virtual: prefix != base_prefix && prefix.join("pyvenv.cfg").is_file(),
        installer: environment.installer.clone(),
        mounts: mounts.iter().filter(|mount| *mount != prefix).cloned().collect(),
    }
}

/// The tier of a cell for one program: a plain one needs no library.
pub(super) fn light_if_plain(verdict: &Verdict) -> Option<Tier> {
    verdict.review.is_plain.then_some(Tier::Light)
}

/// Ends sandboxes that are not used; ends with the service.
pub(crate) async fn keep_retiring(executor: Weak<Executor>) {
    loop {
        let Some(strong) = executor.upgrade() else { return };
        strong.environments.retire();
        let pause = (strong.environments.idle_max / 4).clamp(SWEEP_MIN, SWEEP_MAX);
        drop(strong);
        tokio::time::sleep(pause).await;
    }
}

impl Executor {
    /// The environment of a session.
    pub(crate) fn facts_of(&self, session: &Session) -> Result<Arc<EnvironmentFacts>, Error> {
        self.environments.facts(session.environment.as_deref())
    }

    /// A cell with the limits of an environment.
    pub(super) async fn opening(
        &self,
        facts: &EnvironmentFacts,
        workspace: Workspace,
    ) -> Result<Opening, Error> {
        let sandbox = self.environments.sandbox(facts).await?;
        let spec = Spec { limits: facts.limits.clone(), workspace, ..Spec::default() };
        Ok(Opening { sandbox, spec })
    }

    /// As [`Executor::opening`], for one program alone: its cell need not have more than the program
    /// imports.
    pub(super) async fn opening_once(
        &self,
        admitted: &Admitted,
        workspace: Workspace,
        verdict: &Verdict,
    ) -> Result<Opening, Error> {
        let Opening { sandbox, spec } = self.opening(&admitted.facts, workspace).await?;
        let container = admitted.request.use_container || admitted.rules.profile.container;
        let tier = light_if_plain(verdict);
        Ok(Opening { sandbox, spec: Spec { tier, container, ..spec } })
    }

    /// Has a run keep within an environment; a limit that was asked for and is beyond it is clamped,
    /// and the reply says so.
    pub(super) fn enter(facts: Arc<EnvironmentFacts>, admitted: &mut Admitted) {
        let Some(name) = &facts.name else { return };
        if let Some(most) = facts.timeout_max.filter(|most| *most < admitted.timeout) {
            if admitted.request.timeout.is_some() {
                admitted.warnings.push(format!(
                    "timeout {} s is more than the environment `{name}` has; {} s was applied",
                    admitted.timeout.as_secs_f64(),
                    most.as_secs_f64()
                ));
            }
            admitted.timeout = most;
        }
        admitted.timeout_max = facts.timeout_max.unwrap_or(admitted.timeout_max);
        let most = facts.limits.memory_bytes;
        admitted.request.memory_bytes = admitted.request.memory_bytes.map(|bytes| bytes.min(most));
        admitted.facts = facts;
    }
}
