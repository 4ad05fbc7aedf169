//! The handles that every surface shares, built once.

use woma_sandbox::{Config, Limits, Sandbox, Tier};

use crate::Error;
use crate::environments::Environment;

/// How the service is set up. Everything has been decided by whoever read the configuration.
#[derive(Debug, Clone)]
pub struct Settings {
    pub environment: Environment,
    pub limits: Limits,
    /// Sessions kept ready.
    pub pool: usize,
    /// How much the zygotes import.
    pub preload: Tier,
}

/// What Woma does. Clones share everything.
#[derive(Debug, Clone)]
pub struct Service {
    sandbox: Sandbox,
}

impl Service {
    /// Returns as soon as the first session can be served.
    pub async fn start(settings: Settings) -> Result<Self, Error> {
        let mut config = Config::new(Self::sandbox_environment(&settings.environment));
        config.limits = settings.limits;
        config.pool = settings.pool;
        config.preload = settings.preload;
        let sandbox = Sandbox::start(config).await?;
        Ok(Self { sandbox })
    }

    /// The sandbox itself, for the benchmark, which measures it without the service around it.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
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
