//! Presets: the defaults of five older systems, as data. A preset changes defaults and the tools
//! that `tools/list` shows; every other layer overrides it.

/// Values under the names of the table of settings; an empty one unsets a default.
#[derive(Debug)]
pub(crate) struct Preset {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) values: &'static [(&'static str, &'static str)],
}

pub(crate) const NAMES: &[&str] = &[
    "default",
    "power-interpreter",
    "sandbox-mcp",
    "ibm-sandbox",
    "sandbox-service",
    "python-executor",
    "all",
];

pub(crate) const PRESETS: &[Preset] = &[
    Preset { name: "default", about: "Woma's own defaults.", values: &[] },
    Preset {
        name: "power-interpreter",
        about: "Power Interpreter MCP: thirteen tools, plain text replies, a required key.",
        values: &[
            (
                "listed_tools",
                "execute_code,fetch_from_url,upload_file,fetch_file,list_files,submit_job,\
                 get_job_status,get_job_result,load_dataset,query_dataset,list_datasets,\
                 create_session,delete_session",
            ),
            ("host", "0.0.0.0"),
            ("port", "8080"),
            // Its README calls MAX_EXECUTION_TIME the default.
            ("default_timeout", ""),
            ("max_execution_time", "600"),
            ("max_memory_mb", "4096"),
            ("output_limit", "1m"),
            ("max_kernels", "6"),
            ("state_without_session", "default"),
            ("reply", "full"),
            ("text_format", "plain"),
            ("variables_as_types", "true"),
            ("require_api_key", "true"),
            ("auth_failure_status", "403"),
            ("policy", "power-interpreter"),
            ("enable_network", "true"),
            // It has no rules of its own.
            ("network", "open"),
            ("import_block_mode", "annotate"),
            (
                "linked_extensions",
                "xlsx,xls,csv,tsv,json,pdf,png,jpg,jpeg,svg,html,txt,md,zip,parquet",
            ),
        ],
    },
    Preset {
        name: "sandbox-mcp",
        about: "Python Sandbox MCP Server: Jupyter-like sessions, NDJSON.",
        values: &[
            (
                "listed_tools",
                "execute_python_code,list_active_sessions,terminate_session,\
                 create_session_with_files",
            ),
            ("host", "0.0.0.0"),
            ("port", "16010"),
            // Its service in Kubernetes and Compose.
            ("allowed_hosts", "sandbox-mcp"),
            ("max_kernels", "10"),
            // It has one time limit for every request.
            ("default_timeout", ""),
            ("max_execution_time", "30"),
            ("max_memory_mb", "512"),
            ("output_limit", "1m"),
            ("state_without_session", "new"),
            ("reply", "full"),
        ],
    },
    Preset {
        name: "ibm-sandbox",
        about: "Python Sandbox Server: restricted imports, no state between calls.",
        values: &[
            ("listed_tools", "execute_code,validate_code,get_sandbox_info"),
            ("port", "9000"),
            ("max_kernels", "10"),
            ("default_timeout", "30"),
            ("max_execution_time", "300"),
            ("container_memory_limit", "128m"),
            ("max_code_bytes", "100000"),
            ("output_limit", "1048576"),
            ("state_without_session", "ephemeral"),
            ("context_budget_chars", "200000"),
            ("reply", "full"),
            ("error_as_text", "true"),
            ("policy", "tiers"),
            ("import_block_mode", "reject"),
        ],
    },
    Preset {
        name: "sandbox-service",
        about: "Sandbox Service: a process for each call, ten thousand characters of output.",
        values: &[
            ("listed_tools", "execute_python,pip_install"),
            ("host", "0.0.0.0"),
            ("port", "8001"),
            // Its service in Compose, as the configuration of mcpo names it.
            ("allowed_hosts", "sandbox,host.docker.internal"),
            ("max_kernels", "10"),
            ("default_timeout", "30"),
            ("max_execution_time", "120"),
            ("max_memory_mb", "512"),
            ("output_limit", "10000 chars"),
            ("state_without_session", "ephemeral"),
            ("reply", "full"),
            ("stderr_traceback", "true"),
            ("failure_is_error", "false"),
            ("log_code", "true"),
            ("package_timeout", "60"),
        ],
    },
    Preset {
        name: "python-executor",
        about: "Python Code Executor MCP Server: no state between calls but packages, plain text replies.",
        values: &[
            (
                "listed_tools",
                "execute_python,install_package,list_installed_packages,reset_sandbox,\
                 get_sandbox_info",
            ),
            ("host", "0.0.0.0"),
            ("port", "8000"),
            // Its service in Compose.
            ("allowed_hosts", "python-executor"),
            ("max_kernels", "10"),
            ("default_timeout", "60"),
            ("max_execution_time", "300"),
            ("max_memory_mb", "2048"),
            ("output_limit", "1m"),
            ("state_without_session", "ephemeral"),
            ("reply", "full"),
            ("text_format", "streams"),
            ("stderr_traceback", "true"),
        ],
    },
    Preset {
        name: "all",
        about: "Woma's own defaults, with every alias of a tool listed.",
        values: &[("listed_tools", "all")],
    },
];

pub(crate) fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}
