//! What the sandbox has and allows, for `get_sandbox_info` and whoever else wants to know.

use serde_json::{Map, Value, json};
use woma_core::Isolation;

use crate::config::types::StateWithoutSession;
use crate::doors::Doors;
use crate::wire::WORKSPACE;

/// Modules by what they are for, as older systems group them.
const GROUPS: &[(&str, bool, &[&str])] = &[
    (
        "basic",
        true,
        &[
            "abc",
            "base64",
            "binascii",
            "bisect",
            "calendar",
            "cmath",
            "collections",
            "configparser",
            "contextlib",
            "copy",
            "csv",
            "dataclasses",
            "datetime",
            "decimal",
            "difflib",
            "enum",
            "fractions",
            "functools",
            "hashlib",
            "heapq",
            "hmac",
            "html",
            "html.parser",
            "itertools",
            "json",
            "math",
            "operator",
            "random",
            "re",
            "secrets",
            "statistics",
            "string",
            "textwrap",
            "time",
            "types",
            "typing",
            "unicodedata",
            "urllib.parse",
            "uuid",
            "xml.etree",
            "xml.etree.ElementTree",
        ],
    ),
    (
        "data_science",
        true,
        &[
            "numpy",
            "pandas",
            "scipy",
            "matplotlib",
            "seaborn",
            "sklearn",
            "statsmodels",
            "plotly",
            "sympy",
        ],
    ),
    (
        "network",
        false,
        &[
            "httpx",
            "requests",
            "urllib.request",
            "aiohttp",
            "websocket",
            "email",
            "smtplib",
            "ftplib",
        ],
    ),
    (
        "filesystem",
        true,
        &["pathlib", "os.path", "tempfile", "shutil", "glob", "zipfile", "tarfile"],
    ),
];

pub(crate) fn sandbox_info(doors: &Doors) -> Value {
    let (settings, manner) = (doors.service.settings(), &doors.manner);
    let limits = &settings.limits;
    let profiles: Map<String, Value> = GROUPS
        .iter()
        .map(|(name, enabled, modules)| {
            ((*name).to_owned(), json!({"enabled": enabled, "modules": modules}))
        })
        .collect();
    let packages: Map<String, Value> = manner
        .packages
        .iter()
        .map(|package| (package.name.clone(), package.version.clone().into()))
        .collect();
    let without_session = match manner.state_without_session {
        StateWithoutSession::Default => "default",
        StateWithoutSession::New => "new",
        StateWithoutSession::Ephemeral => "ephemeral",
    };
    json!({
        "success": true,
        "service": "woma",
        "version": env!("CARGO_PKG_VERSION"),
        "python_version": manner.environment.version.to_string(),
        "environment_path": "/opt/env",
        "status": "Initialized",
        "preset": manner.preset,
        "working_directory": WORKSPACE,
        "import_policy": "open: every installed module can be imported; the kernel contains the code",
        "security_profiles": profiles,
        "resource_limits": {
            "timeout": settings.timeout_default.as_secs_f64(),
            "timeout_max": settings.timeout_max.as_secs_f64(),
            "max_output_size": limits.output_bytes,
            "memory_limit": format!("{}m", settings.memory_bytes_default / (1024 * 1024)),
            "memory_limit_max": format!("{}m", limits.memory_bytes / (1024 * 1024)),
            "cpu_cores": limits.cpu_cores,
            "processes": limits.processes,
            "open_files": limits.open_files,
            "workspace_bytes": limits.workspace_bytes,
            "file_bytes": limits.file_bytes,
            "code_bytes": settings.source_bytes_max,
            "context_characters": manner.context_chars,
        },
        "sessions": {
            "without_session_id": without_session,
            "idle_seconds": settings.idle_max.as_secs_f64(),
            "kernels_max": settings.kernels_max,
        },
        "container_mode": {"available": false, "enabled": false},
        "network": "none",
        "isolation": isolation(doors),
        "packages": packages,
    })
}

/// The walls that stand, and what is missing.
pub(crate) fn isolation(doors: &Doors) -> Value {
    let health = doors.service.health();
    let (holder, why) = health.limits_held_by;
    let layers = health.isolation.as_ref().map(|found| {
        let layers = found
            .layers
            .iter()
            .map(|layer| json!({"name": layer.name, "state": layer.state, "detail": layer.detail}));
        layers.collect::<Vec<_>>()
    });
    // A session is proven contained before it is handed out, so what runs is contained.
    let level = match health.isolation.as_ref().map(|found| found.isolation) {
        Some(Isolation::None) => "none",
        Some(Isolation::Full) | None => "full",
    };
    json!({"level": level, "limits_held_by": holder, "limits_note": why, "layers": layers})
}
