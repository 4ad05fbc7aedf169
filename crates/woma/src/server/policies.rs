//! Code policies, built from the configuration.

use std::error::Error;

use woma_core::rules::{ProfileError, Switches};
use woma_core::{Mode, NetworkRules, Policies, Profile};

use crate::config::Config;
use crate::config::types::BlockMode;

/// Default policy.
const OPEN: &str = "open";
/// Policy if modules are listed but no policy is named.
const RESTRICTED: &str = "tiers";

/// The server's policy, and those that keys and sessions can choose by name.
pub(crate) fn policies(config: &Config) -> Result<Policies, Box<dyn Error>> {
    let listed = Some(config.allowed_imports.clone()).filter(|listed| !listed.is_empty());
    let switches = Switches {
        data_science: config.enable_data_science,
        network: config.enable_network,
        filesystem: config.enable_filesystem,
        allowed_imports: listed,
        mode: mode(config.import_block_mode),
    };
    let default = if switches.allowed_imports.is_some() { RESTRICTED } else { OPEN };
    let wanted = config.policy.as_deref().unwrap_or(default);
    let text = match &config.policy_file {
        Some(path) => std::fs::read_to_string(path)
            .map_err(|error| format!("POLICY_FILE: {}: {error}", path.display()))?,
        None => String::new(),
    };
    let profiles = Profile::parse(&text).map_err(|error| format!("POLICY_FILE: {error}"))?;
    let build = |name: &str| profiles.named(name, &switches);
    let server = build(wanted).map_err(|error| match error {
        ProfileError::Unknown { .. } => format!("SANDBOX_POLICY: {error}"),
        error => format!("SANDBOX_ALLOWED_IMPORTS: {error}"),
    })?;
    let named: Result<Vec<Profile>, _> = profiles.names().map(build).collect();
    let named = named?;
    for profile in &named {
        for network in &profile.network {
            network.parse::<NetworkRules>().map_err(|error| {
                format!("POLICY_FILE: profiles.{}.network: {error}", profile.name)
            })?;
        }
    }
    Ok(Policies::new(server, named))
}

fn mode(mode: BlockMode) -> Mode {
    match mode {
        BlockMode::Raise => Mode::Raise,
        BlockMode::Annotate => Mode::Annotate,
        BlockMode::Reject => Mode::Reject,
    }
}
