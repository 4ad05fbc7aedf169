//! Description of the sandbox for `get_sandbox_info`: packages, limits, policy, isolation.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use woma_core::rules::Tier;
use woma_core::{Mode, Profile, Runtime};

use crate::api::environments;
use crate::api::reply::WORKSPACE;
use crate::api::state::AppState;
use crate::config::types::{ReplyForm, StateWithoutSession};

/// Builtin functions and types that older clients look for.
const BUILTINS: &[&str] = &[
    "abs",
    "all",
    "any",
    "ascii",
    "bin",
    "bool",
    "bytearray",
    "bytes",
    "callable",
    "chr",
    "compile",
    "complex",
    "dict",
    "dir",
    "divmod",
    "enumerate",
    "eval",
    "exec",
    "filter",
    "float",
    "format",
    "frozenset",
    "getattr",
    "globals",
    "hasattr",
    "hash",
    "hex",
    "id",
    "input",
    "int",
    "isinstance",
    "issubclass",
    "iter",
    "len",
    "list",
    "locals",
    "map",
    "max",
    "min",
    "next",
    "object",
    "oct",
    "open",
    "ord",
    "pow",
    "print",
    "property",
    "range",
    "repr",
    "reversed",
    "round",
    "set",
    "setattr",
    "slice",
    "sorted",
    "str",
    "sum",
    "super",
    "tuple",
    "type",
    "vars",
    "zip",
];

/// Describes the sandbox; `policy` is the caller's.
pub(crate) fn sandbox_info(state: &AppState, policy: &Profile) -> Value {
    let (settings, presentation) = (state.service.settings(), &state.presentation);
    let limits = &settings.limits;
    let packages: Map<String, Value> = presentation
        .packages
        .iter()
        .map(|package| (package.name.clone(), package.version.clone().into()))
        .collect();
    let without_session = match state.state_without_session() {
        StateWithoutSession::Own => "own",
        StateWithoutSession::Default => "default",
        StateWithoutSession::New => "new",
        StateWithoutSession::Ephemeral => "ephemeral",
    };
    let mut info = json!({
        "success": true,
        "service": "woma",
        "version": env!("CARGO_PKG_VERSION"),
        "executor_version": env!("CARGO_PKG_VERSION"),
        "python_version": presentation.environment.version.to_string(),
        "environment_path": "/opt/env",
        "status": "Initialized",
        "preset": presentation.preset,
        "working_directory": WORKSPACE,
        "policy": policy.name,
        "import_policy": import_policy(policy),
        "allowed_imports": allowed_imports(policy),
        "blocked_builtins": policy.blocked_builtins,
        "blocked_attributes": policy.blocked_attributes,
        "commands_allowed": policy.commands,
        "security_profiles": tiers(policy),
        "resource_limits": {
            "timeout": settings.timeout_default.as_secs_f64(),
            "timeout_max": settings.timeout_max.as_secs_f64(),
            "max_output_size": limits.output_bytes,
            "memory_limit": megabytes(
                presentation.container_memory_bytes.unwrap_or(settings.memory_bytes_default)
            ),
            "session_memory_limit": megabytes(settings.memory_bytes_default),
            "memory_limit_max": megabytes(limits.memory_bytes),
            "cpu_cores": limits.cpu_cores,
            "processes": limits.processes,
            "open_files": limits.open_files,
            "workspace_bytes": limits.workspace_bytes,
            "file_bytes": limits.file_bytes,
            "code_bytes": settings.source_bytes_max,
            "context_characters": presentation.context_chars,
        },
        "sessions": {
            "without_session_id": without_session,
            "idle_seconds": settings.idle_max.as_secs_f64(),
            "kernels_max": settings.kernels_max,
        },
        "container_mode": container_mode(state),
        "network": "none",
        "isolation": isolation(state),
        "packages": packages,
    });
    let environments = environments::list(state).into_inner();
    if let (false, Some(fields)) = (environments.is_empty(), info.as_object_mut()) {
        fields.insert("environments".to_owned(), json!(environments));
    }
    if let (ReplyForm::Full, Some(fields)) = (presentation.reply, info.as_object_mut()) {
        add_older_fields(fields, policy);
    }
    info
}

/// Whether sessions in containers are allowed, and whether a runtime for them is installed.
fn container_mode(state: &AppState) -> Value {
    let runtimes = state.service.sandbox().container_runtimes();
    let enabled = !runtimes.is_empty();
    let runtimes = if enabled { runtimes } else { &Runtime::ALL[..] };
    let found = runtimes.iter().filter(|runtime| runtime.program().is_some());
    let names: Vec<&str> = found.map(|runtime| runtime.name()).collect();
    json!({"available": !names.is_empty(), "enabled": enabled, "runtimes": names})
}

/// Fields that clients of older systems read.
fn add_older_fields(info: &mut Map<String, Value>, policy: &Profile) {
    let is_allowed = |name: &&&str| !policy.blocked_builtins.contains(**name);
    let builtins: Vec<&str> = BUILTINS.iter().filter(is_allowed).copied().collect();
    let limits = info.get("resource_limits").cloned().unwrap_or_default();
    let layers = info.get("isolation").map(|found| found["layers"].clone()).unwrap_or_default();
    info.insert("sandbox_type".to_owned(), "woma".into());
    info.insert("security_features".to_owned(), layers);
    info.insert("limits".to_owned(), limits);
    info.insert("safe_modules".to_owned(), json!(allowed_imports(policy)));
    info.insert("safe_builtins".to_owned(), json!(builtins));
}

/// The description in three lines, as an older system gave it.
pub(crate) fn summary(info: &Value) -> String {
    let text = |name: &str| info[name].as_str().unwrap_or_default().to_owned();
    format!(
        "Python Version: {}\nEnvironment Path: {}\nStatus: {}",
        text("python_version"),
        text("environment_path"),
        text("status")
    )
}

fn megabytes(bytes: u64) -> String {
    format!("{}m", bytes / (1024 * 1024))
}

fn import_policy(policy: &Profile) -> &'static str {
    match (policy.imports.is_empty(), policy.mode) {
        (true, _) => "open: every installed module can be imported; the kernel contains the code",
        (false, Mode::Raise) => "only allowed modules; the import of another raises ImportError",
        (false, Mode::Annotate) => {
            "only allowed modules; the import of another is noted and left out"
        }
        (false, Mode::Reject) => "only allowed modules; code that imports another is refused",
    }
}

/// Modules that may be imported; null if all may.
fn allowed_imports(policy: &Profile) -> Option<BTreeSet<&str>> {
    (!policy.imports.is_empty()).then(|| policy.modules())
}

/// Groups of modules as in older systems, and whether each is enabled.
fn tiers(policy: &Profile) -> Map<String, Value> {
    let tier = |tier: &Tier| {
        let is_allowed = tier.modules.iter().all(|module| policy.allows_import(module));
        // An open policy allows every import, but sessions have no network.
        let enabled = is_allowed && !(policy.imports.is_empty() && tier.name == "network");
        (tier.name.clone(), json!({"enabled": enabled, "modules": tier.modules}))
    };
    woma_core::rules::tiers().iter().map(tier).collect()
}

/// Isolation layers and their state.
pub(crate) fn isolation(state: &AppState) -> Value {
    let health = state.service.health();
    let (holder, why) = health.limits_held_by;
    let layers = health.isolation.as_ref().map(|found| {
        let layers = found
            .layers
            .iter()
            .map(|layer| json!({"name": layer.name, "state": layer.state, "detail": layer.detail}));
        layers.collect::<Vec<_>>()
    });
    let level = health.isolation.as_ref().map_or("examining", |found| found.isolation.name());
    json!({"level": level, "limits_held_by": holder, "limits_note": why, "layers": layers})
}
