//! Settings that were set and do nothing: each gets a warning that says so and why. An operator who
//! set a rule must not believe that it is in force.

use super::layers::{Origin, Resolved};
use super::resolve::Resolution;
use super::value::Value;

/// Settings for contents in a bucket.
const BUCKET: &[&str] =
    &["s3_bucket", "s3_prefix", "s3_region", "s3_endpoint", "s3_ca_file", "s3_access_key_id"];
/// Settings that only a server with a port uses.
const OF_A_PORT: &[&str] = &[
    "host",
    "port",
    "allow_open",
    "public_base_url",
    "trust_proxy",
    "allowed_hosts",
    "allowed_origins",
    "max_body_mb",
    "api_key",
    "api_key_file",
    "require_api_key",
    "auth_failure_status",
    "jwt_issuer",
    "jwt_audience",
    "jwt_jwks",
    "private_downloads",
];

/// Warnings about flags that have no effect on `woma stdio`. Variables and files may be meant for a
/// server beside it.
pub(crate) fn without_port(resolved: &[Resolved]) -> Vec<String> {
    let given = resolved.iter().filter(|one| OF_A_PORT.contains(&one.setting.name));
    let spelled = given.filter_map(|one| match &one.origin {
        Origin::Flag { spelled } => Some(spelled),
        _ => None,
    });
    let say = |spelled| {
        format!(
            "{spelled} has no effect: this process serves the program that started it, on standard \
             input and output; `woma serve` has a port and keys"
        )
    };
    spelled.map(say).collect()
}

impl Resolution {
    /// Adds a warning for each setting that was set and does nothing.
    pub(super) fn warn_of_no_effect(&mut self, is_root: bool) {
        self.warn_of_absent_features();
        self.warn_of_rules();
        self.warn_of_bucket();
        if self.origin("run_as").is_explicit() && !is_root {
            self.no_effect("run_as", "the process was not started as root, and keeps its user");
        }
        if self.value("debug") == Value::Bool(true) && self.origin("log_level").is_explicit() {
            let level = self.value("log_level").show();
            if !matches!(level.as_str(), "debug" | "trace") {
                self.no_effect("debug", &format!("LOG_LEVEL is {level}"));
            }
        }
        self.warn_of_bound("max_running", "max_kernels");
        self.warn_of_bound("max_kernels", "max_sessions");
    }

    fn warn_of_absent_features(&mut self) {
        let is_wanted = |one: &&Resolved| {
            // A feature that was turned off is off.
            one.origin.is_explicit() && one.value != Value::Bool(false)
        };
        let set = self.resolved().iter().filter(is_wanted);
        let unused: Vec<(&str, &str)> =
            set.filter_map(|one| Some((one.setting.name, one.setting.effect.reason()?))).collect();
        for (name, reason) in unused {
            self.no_effect(name, reason);
        }
    }

    /// Switches of rules: modules that are allowed but cannot work, and limits that apply to
    /// nothing.
    fn warn_of_rules(&mut self) {
        let is_set = |here: &Self, name: &str, wanted: bool| {
            here.origin(name).is_explicit() && here.value(name) == Value::Bool(wanted)
        };
        if is_set(self, "enable_network", true) && self.value("network").show() == "off" {
            let place = self.told("enable_network");
            self.warn(format!(
                "{place} gives sessions no network: code may import the network modules, but NETWORK \
                 is off; NETWORK=open, or a list of hosts, lets it connect"
            ));
        }
        let has_list = self.value("allowed_imports") != Value::Unset;
        let policy = self.value("policy");
        let is_open = match &policy {
            Value::Text(name) => name == "open",
            _ => !has_list,
        };
        for name in ["enable_filesystem", "enable_data_science"] {
            if has_list && is_set(self, name, true) {
                let place = self.told(name);
                self.warn(format!(
                    "{place} allows no modules: SANDBOX_ALLOWED_IMPORTS is the whole list of them"
                ));
            } else if is_open && !has_list && is_set(self, name, false) {
                let reason = "the rules are `open`, which allow every module; SANDBOX_POLICY=tiers \
                              restricts modules";
                self.no_effect(name, reason);
            }
        }
    }

    fn warn_of_bucket(&mut self) {
        let place = self.value("blobs_in").show();
        if place == "s3" {
            return;
        }
        // `AWS_…` variables are usually for other programs.
        let is_ours = |origin: &Origin| {
            origin.is_explicit() && !origin.variable().is_some_and(|name| name.starts_with("AWS_"))
        };
        for name in BUCKET {
            if is_ours(&self.origin(name)) {
                self.no_effect(name, &format!("contents are in the {place}; see BLOBS_IN"));
            }
        }
    }

    /// Warns of a limit that another one keeps out of reach.
    fn warn_of_bound(&mut self, name: &str, cap: &str) {
        let (Value::Integer(wanted), Value::Integer(most)) = (self.value(name), self.value(cap))
        else {
            return;
        };
        if self.origin(name).is_explicit() && wanted > most {
            let (place, cap) = (self.told(name), self.told(cap));
            self.warn(format!("{place} = {wanted} cannot be reached: {cap} = {most}"));
        }
    }

    fn no_effect(&mut self, name: &str, reason: &str) {
        let place = self.told(name);
        self.warn(format!("{place} has no effect: {reason}"));
    }

    /// The setting and its origin: `MAX_RUNNING (environment)`.
    fn told(&self, name: &str) -> String {
        let origin = self.origin(name);
        let variable = origin.variable().unwrap_or_else(|| super::resolve::variable(name));
        format!("{variable} ({})", origin.place())
    }
}
