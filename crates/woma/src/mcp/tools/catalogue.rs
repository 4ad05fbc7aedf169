//! Catalogue of the tools: names, aliases, schemas, and descriptions made from the settings in
//! force.

use std::borrow::Cow;
use std::sync::Arc;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};
use woma_core::Service;

use super::files::FileFacts;
use super::importable::{imports, well_known};
use super::lean::LeanReply;
use super::schemas::{
    create_input, object, output_schema, read_output_input, schema_of, validate_input,
};
use super::{datasets, history, jobs, packages, sessions, slim};
use crate::api::new_session::CreatedSession;
use crate::api::reply::{Reply, WORKSPACE};
use crate::api::shape::Shape;
use crate::api::state::AppState;
use crate::api::validation::Validation;
use crate::config::types::{ListedTools, ReplyForm, StateWithoutSession};

/// Function of a tool, the same under all of its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolKind {
    ExecuteCode,
    ValidateCode,
    ListFiles,
    UploadFile,
    FetchFile,
    DeleteFile,
    FetchFromUrl,
    ReadOutput,
    SubmitJob,
    GetJobStatus,
    GetJobResult,
    CancelJob,
    ListJobs,
    CreateSession,
    ListSessions,
    /// `ListSessions` under the name that promises only active ones.
    ListActiveSessions,
    DeleteSession,
    InterruptSession,
    ResetSession,
    ChangeSession,
    CheckpointSession,
    RestoreSession,
    ExportSession,
    LoadDataset,
    QueryDataset,
    ListDatasets,
    DescribeDataset,
    DropDataset,
    InstallPackage,
    UninstallPackage,
    ListInstalledPackages,
    GetSandboxInfo,
}

/// A tool without its description.
struct ToolSpec {
    kind: ToolKind,
    name: &'static str,
    title: &'static str,
    /// Names in older systems: always callable, listed only by their presets.
    aliases: &'static [&'static str],
    read_only: bool,
    destructive: bool,
    idempotent: bool,
}

const fn job_tool(
    (kind, name, title): (ToolKind, &'static str, &'static str),
    read_only: bool,
) -> ToolSpec {
    let aliases = &[];
    ToolSpec { kind, name, title, aliases, read_only, destructive: false, idempotent: read_only }
}

const fn dataset_tool(
    (kind, name, title): (ToolKind, &'static str, &'static str),
    read_only: bool,
) -> ToolSpec {
    ToolSpec { kind, name, title, aliases: &[], read_only, destructive: false, idempotent: true }
}

const fn package_tool(
    (kind, name, title): (ToolKind, &'static str, &'static str),
    aliases: &'static [&'static str],
) -> ToolSpec {
    let read_only = matches!(kind, ToolKind::ListInstalledPackages);
    let destructive = matches!(kind, ToolKind::UninstallPackage);
    ToolSpec { kind, name, title, aliases, read_only, destructive, idempotent: true }
}

/// All tools, in the order of `tools/list`.
const TOOLS: &[ToolSpec] = &[
    ToolSpec {
        kind: ToolKind::ExecuteCode,
        name: "execute_code",
        title: "Run Python code",
        aliases: &["execute_python", "execute_python_code", "run_code", "run_python_code"],
        read_only: false,
        destructive: false,
        idempotent: false,
    },
    ToolSpec {
        kind: ToolKind::ValidateCode,
        name: "validate_code",
        title: "Check code without running it",
        aliases: &[],
        read_only: true,
        destructive: false,
        idempotent: true,
    },
    ToolSpec {
        kind: ToolKind::ListFiles,
        name: "list_files",
        title: "List the files of a session",
        aliases: &[],
        read_only: true,
        destructive: false,
        idempotent: true,
    },
    ToolSpec {
        kind: ToolKind::UploadFile,
        name: "upload_file",
        title: "Put a file into a session",
        aliases: &[],
        read_only: false,
        destructive: true,
        idempotent: true,
    },
    ToolSpec {
        kind: ToolKind::FetchFile,
        name: "fetch_file",
        title: "Get a file out of a session",
        aliases: &[],
        read_only: false,
        destructive: false,
        idempotent: true,
    },
    ToolSpec {
        kind: ToolKind::DeleteFile,
        name: "delete_file",
        title: "Delete a file of a session",
        aliases: &[],
        read_only: false,
        destructive: true,
        idempotent: true,
    },
    ToolSpec {
        kind: ToolKind::FetchFromUrl,
        name: "fetch_from_url",
        title: "Download a file into a session",
        aliases: &[],
        read_only: false,
        destructive: true,
        idempotent: false,
    },
    ToolSpec {
        kind: ToolKind::ReadOutput,
        name: "read_output",
        title: "Read the rest of a long output",
        aliases: &[],
        read_only: true,
        destructive: false,
        idempotent: true,
    },
    job_tool((ToolKind::SubmitJob, "submit_job", "Run code in the background"), false),
    job_tool((ToolKind::GetJobStatus, "get_job_status", "See how far a job is"), true),
    job_tool((ToolKind::GetJobResult, "get_job_result", "Get the result of a job"), true),
    ToolSpec {
        destructive: true,
        idempotent: true,
        ..job_tool((ToolKind::CancelJob, "cancel_job", "Stop a job"), false)
    },
    job_tool((ToolKind::ListJobs, "list_jobs", "List jobs"), true),
    ToolSpec {
        kind: ToolKind::CreateSession,
        name: "create_session",
        title: "Start a new session",
        aliases: &["create_session_with_files"],
        read_only: false,
        destructive: false,
        idempotent: false,
    },
    ToolSpec {
        kind: ToolKind::ListSessions,
        name: "list_sessions",
        title: "List sessions",
        aliases: &[ACTIVE_ONLY],
        read_only: true,
        destructive: false,
        idempotent: true,
    },
    ToolSpec {
        kind: ToolKind::DeleteSession,
        name: "delete_session",
        title: "End a session",
        aliases: &["terminate_session"],
        read_only: false,
        destructive: true,
        idempotent: true,
    },
    ToolSpec {
        kind: ToolKind::InterruptSession,
        name: "interrupt_session",
        title: "Stop the code that runs in a session",
        aliases: &[],
        read_only: false,
        destructive: false,
        idempotent: true,
    },
    ToolSpec {
        kind: ToolKind::ResetSession,
        name: "reset_session",
        title: "Empty a session",
        aliases: &["reset_sandbox"],
        read_only: false,
        destructive: true,
        idempotent: true,
    },
    ToolSpec {
        kind: ToolKind::ChangeSession,
        name: "change_session",
        title: "Change a session",
        aliases: &[],
        read_only: false,
        destructive: false,
        idempotent: true,
    },
    ToolSpec {
        kind: ToolKind::CheckpointSession,
        name: "checkpoint_session",
        title: "Save a session's variables",
        aliases: &[],
        read_only: false,
        destructive: false,
        idempotent: true,
    },
    ToolSpec {
        kind: ToolKind::RestoreSession,
        name: "restore_session",
        title: "Restore a session's checkpoint",
        aliases: &[],
        read_only: false,
        destructive: true,
        idempotent: true,
    },
    ToolSpec {
        kind: ToolKind::ExportSession,
        name: "export_session",
        title: "Save a session as a notebook",
        aliases: &[],
        read_only: false,
        destructive: false,
        idempotent: true,
    },
    dataset_tool((ToolKind::LoadDataset, "load_dataset", "Load a file as a dataset"), false),
    dataset_tool((ToolKind::QueryDataset, "query_dataset", "Query datasets with SQL"), false),
    dataset_tool((ToolKind::ListDatasets, "list_datasets", "List datasets"), true),
    dataset_tool((ToolKind::DescribeDataset, "describe_dataset", "Describe a dataset"), true),
    ToolSpec {
        destructive: true,
        idempotent: false,
        ..dataset_tool((ToolKind::DropDataset, "drop_dataset", "Delete a dataset"), false)
    },
    package_tool(
        (ToolKind::InstallPackage, "install_package", "Install packages"),
        &["pip_install"],
    ),
    package_tool((ToolKind::UninstallPackage, "uninstall_package", "Remove packages"), &[]),
    package_tool(
        (ToolKind::ListInstalledPackages, "list_installed_packages", "List packages"),
        &[],
    ),
    ToolSpec {
        kind: ToolKind::GetSandboxInfo,
        name: "get_sandbox_info",
        title: "Describe the sandbox",
        aliases: &["list_capabilities"],
        read_only: true,
        destructive: false,
        idempotent: true,
    },
];

/// Alias that lists only sessions whose variables are in memory.
const ACTIVE_ONLY: &str = "list_active_sessions";

/// Tools that few conversations need: listed if the operator asks for them.
const UNUSUAL: &[ToolKind] = &[
    ToolKind::ValidateCode,
    ToolKind::ChangeSession,
    ToolKind::CheckpointSession,
    ToolKind::RestoreSession,
    ToolKind::ExportSession,
    ToolKind::DropDataset,
    ToolKind::ListJobs,
    ToolKind::UninstallPackage,
    ToolKind::ListInstalledPackages,
];

/// The tools of this server, built once.
#[derive(Debug)]
pub(crate) struct Catalogue {
    /// Tools under every name, canonical names first.
    tools: Vec<(Tool, ToolKind)>,
    listed: Vec<String>,
    /// Server instructions for the model.
    pub(crate) instructions: String,
}

impl Catalogue {
    pub(crate) fn new(state: &AppState) -> Self {
        let facts = Facts::new(state);
        let mut tools = Vec::new();
        for spec in TOOLS {
            tools.push((tool(spec, spec.name, &facts), spec.kind));
        }
        for spec in TOOLS {
            for alias in spec.aliases {
                let is_active = *alias == ACTIVE_ONLY;
                let kind = if is_active { ToolKind::ListActiveSessions } else { spec.kind };
                tools.push((tool(spec, alias, &facts), kind));
            }
        }
        let own = |is_listed: fn(&&ToolSpec) -> bool| {
            TOOLS.iter().filter(is_listed).map(|spec| spec.name.to_owned()).collect()
        };
        let listed = match &state.presentation.listed_tools {
            ListedTools::Usual if facts.installs => own(|spec| !UNUSUAL.contains(&spec.kind)),
            ListedTools::Usual => {
                own(|spec| !UNUSUAL.contains(&spec.kind) && spec.kind != ToolKind::InstallPackage)
            }
            ListedTools::Canonical => own(|_| true),
            ListedTools::All => tools.iter().map(|(tool, _)| tool.name.to_string()).collect(),
            ListedTools::Names(names) => names.clone(),
        };
        Self { tools, listed, instructions: facts.instructions() }
    }

    /// Tools that `tools/list` shows, in a fixed order.
    pub(crate) fn listed(&self) -> Vec<Tool> {
        self.listed.iter().filter_map(|name| self.find(name)).cloned().collect()
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().map(|(tool, _)| tool).find(|tool| tool.name == name)
    }

    /// Function of the tool with this name.
    pub(crate) fn kind(&self, name: &str) -> Option<ToolKind> {
        self.tools.iter().find(|(tool, _)| tool.name == name).map(|(_, kind)| *kind)
    }

    /// Canonical names, for the error about an unknown tool.
    pub(crate) fn names() -> String {
        let names: Vec<&str> = TOOLS.iter().map(|spec| spec.name).collect();
        names.join(", ")
    }
}

/// Those of these names that no tool has.
pub(crate) fn unknown_tools(names: &[String]) -> impl Iterator<Item = &String> {
    let is_known =
        |name: &str| TOOLS.iter().any(|spec| spec.name == name || spec.aliases.contains(&name));
    names.iter().filter(move |name| !is_known(name))
}

fn tool(spec: &ToolSpec, name: &'static str, facts: &Facts) -> Tool {
    let (description, input, output) = match spec.kind {
        ToolKind::ListFiles
        | ToolKind::UploadFile
        | ToolKind::FetchFile
        | ToolKind::DeleteFile
        | ToolKind::FetchFromUrl => facts.files.describe(spec.kind).unwrap_or_default(),
        ToolKind::ExecuteCode => (facts.execute(), facts.execute_input(), facts.reply_schema()),
        ToolKind::ValidateCode => (facts.validate(), validate_input(), schema_of::<Validation>()),
        ToolKind::ReadOutput => (facts.read_output(), read_output_input(), output_schema()),
        ToolKind::CreateSession => (facts.create_session(), create_input(), schema_of::<CreatedSession>()),
        ToolKind::ListSessions
        | ToolKind::ListActiveSessions
        | ToolKind::DeleteSession
        | ToolKind::InterruptSession
        | ToolKind::ResetSession
        | ToolKind::ChangeSession => sessions::describe(spec.kind),
        ToolKind::CheckpointSession | ToolKind::RestoreSession | ToolKind::ExportSession => {
            history::describe(spec.kind)
        }
        ToolKind::LoadDataset
        | ToolKind::QueryDataset
        | ToolKind::ListDatasets
        | ToolKind::DescribeDataset
        | ToolKind::DropDataset => datasets::describe(spec.kind),
        ToolKind::InstallPackage
        | ToolKind::UninstallPackage
        | ToolKind::ListInstalledPackages => packages::describe(spec.kind),
        ToolKind::SubmitJob
        | ToolKind::GetJobStatus
        | ToolKind::GetJobResult
        | ToolKind::CancelJob
        | ToolKind::ListJobs => jobs::describe(spec.kind, &facts.service, facts.execute_input()),
        ToolKind::GetSandboxInfo => (
            "What this sandbox has and allows: Python version, installed packages with versions, limits, isolation in force. Call it when an import fails or before relying on a limit.".to_owned(),
            object(&json!({}), &[]),
            object(&json!({"success": {"type": "boolean"}}), &["success"]),
        ),
    };
    let output = if facts.is_lean { slim::schema(output) } else { output };
    Tool::new(Cow::Borrowed(name), Cow::Owned(description), Arc::new(input))
        .with_title(spec.title)
        .with_raw_output_schema(Arc::new(output))
        .with_annotations(annotations(spec))
}

fn annotations(spec: &ToolSpec) -> ToolAnnotations {
    ToolAnnotations::with_title(spec.title)
        .read_only(spec.read_only)
        .destructive(spec.destructive)
        .idempotent(spec.idempotent)
        // Code has no network; only fetching reaches other hosts.
        .open_world(matches!(
            spec.kind,
            ToolKind::FetchFile | ToolKind::FetchFromUrl | ToolKind::InstallPackage
        ))
}

/// Settings that the descriptions state.
struct Facts {
    timeout_default: u64,
    timeout_max: u64,
    memory_mb: u64,
    idle_seconds: u64,
    kernels_max: usize,
    context_chars: usize,
    state: StateWithoutSession,
    /// Whether variables outlive their kernel.
    saves_variables: bool,
    is_lean: bool,
    shape: Shape,
    packages: String,
    python: String,
    /// Sentence about allowed imports; empty if all are allowed.
    imports: String,
    files: FileFacts,
    service: Service,
    /// Whether sessions can install packages.
    installs: bool,
}

impl Facts {
    fn new(state: &AppState) -> Self {
        let (settings, presentation) = (state.service.settings(), &state.presentation);
        Self {
            timeout_default: settings.timeout_default.as_secs(),
            timeout_max: settings.timeout_max.as_secs(),
            memory_mb: settings.limits.memory_bytes / (1024 * 1024),
            idle_seconds: settings.idle_max.as_secs(),
            kernels_max: settings.kernels_max,
            context_chars: presentation.context_chars,
            state: state.state_without_session(),
            saves_variables: settings
                .storage
                .as_ref()
                .is_some_and(|storage| storage.checkpoint_bytes_max > 0),
            is_lean: presentation.reply == ReplyForm::Lean,
            shape: presentation.shape,
            packages: well_known(&presentation.packages),
            python: presentation.environment.version.to_string(),
            imports: imports(settings.policies.server()),
            files: FileFacts::new(state),
            installs: settings.packages.is_on && settings.storage.is_some(),
            service: state.service.clone(),
        }
    }

    fn without_session(&self) -> &'static str {
        match self.state {
            StateWithoutSession::Own => {
                "Without it, your own session is used: no other conversation has it, and a new connection starts an empty one (list_sessions names the old one)."
            }
            StateWithoutSession::Default => {
                "Without it, the session `default` is used, which all your conversations share."
            }
            StateWithoutSession::New => {
                "Without it, a new session is made and its id is in the reply."
            }
            StateWithoutSession::Ephemeral => {
                "Without it, the code runs in an ephemeral session that ends with the call."
            }
        }
    }

    fn life(&self) -> String {
        let (idle, kernels) = (self.idle_seconds, self.kernels_max);
        let variables = match self.saves_variables {
            true => "variables come back as last saved",
            false => "variables are lost",
        };
        if self.is_lean {
            return format!(
                "Variables and files stay for later calls in the same session. After {idle} seconds without a call, or if {kernels} other sessions push it out, Python restarts: files stay, {variables}, and the reply says so."
            );
        }
        format!(
            "Variables, imports and files stay between calls with the same session_id. After {idle} seconds without a call, or if {kernels} other sessions push it out, its Python restarts: files stay, {variables}, and the reply says session_restarted."
        )
    }

    fn instructions(&self) -> String {
        if self.is_lean {
            return format!(
                "Runs Python {} in private sandboxed sessions with state. Use execute_code for calculations, data analysis and charts; on an error, fix the code and call again.",
                self.python
            );
        }
        format!(
            "Runs Python {} in private sandboxed sessions with state. {} Use execute_code for calculations, data analysis and charts; check `success` and `error_message` in the reply, fix the code and call again.",
            self.python,
            self.life()
        )
    }

    fn execute(&self) -> String {
        if self.is_lean {
            return self.execute_lean();
        }
        format!(
            "Run Python {} code in a sandboxed session and get what it printed, the value of its last expression, charts as images, and errors with their traceback. {} {} Ready to import: {}. Every open matplotlib figure is returned as an image; no need to save it. Files go to the working directory {WORKSPACE}. {}No network. Limits: {} s by default and at most {} s, {} MB of memory. Long output is shortened to {} characters: print summaries, and use read_output for the rest.",
            self.python,
            self.life(),
            self.without_session(),
            self.packages,
            self.imports,
            self.timeout_default,
            self.timeout_max,
            self.memory_mb,
            self.context_chars,
        )
    }

    fn execute_lean(&self) -> String {
        format!(
            "Run Python {} code in a sandboxed session. Returns what it printed, the value of the last expression, charts as images, new variables and files, errors. {} Ready to import: {}. Open matplotlib figures are returned without saving them. Working directory: {WORKSPACE}. {}No network. Limits: {} s by default, at most {} s; {} MB of memory; {} characters of output, read_output has the rest.",
            self.python,
            self.life(),
            self.packages,
            self.imports,
            self.timeout_default,
            self.timeout_max,
            self.memory_mb,
            self.context_chars,
        )
    }

    fn reply_schema(&self) -> JsonObject {
        if self.is_lean {
            return schema_of::<LeanReply>();
        }
        let mut schema = schema_of::<Reply>();
        self.shape.schema(&mut schema);
        schema
    }

    fn execute_input(&self) -> JsonObject {
        let mut input = self.execute_arguments();
        // A lean list has no argument that every call must leave out.
        if self.is_lean
            && let Some(arguments) = input.get_mut("properties").and_then(Value::as_object_mut)
        {
            arguments.remove("use_container");
        }
        input
    }

    fn execute_arguments(&self) -> JsonObject {
        object(
            &json!({
                "code": {"type": "string", "description": "Python code. The value of a last expression is returned, as in a notebook."},
                "session_id": {"type": "string", "description": format!("Session to run in; it is made if it does not exist. {}", self.without_session())},
                "timeout": {"type": "number", "description": format!("Seconds until the code is stopped; at most {}.", self.timeout_max), "default": self.timeout_default},
                "variables": {"type": "object", "description": "Values to set as variables before the code runs."},
                "stdin": {"type": "string", "description": "Text that input() and sys.stdin read, one line for each answer."},
                "memory_limit": {"type": "string", "description": format!("Less memory for this run, such as \"256m\"; at most {}m.", self.memory_mb)},
                "capture_output": {"type": "boolean", "description": "False leaves stdout and stderr out of the reply.", "default": true},
                "allowed_imports": {"type": "array", "items": {"type": "string"}, "description": "Modules that this run may import, out of those that the server allows."},
                "on_timeout": {"type": "string", "enum": ["interrupt", "detach"], "description": "At the timeout: stop the code, or let it go on as a job, whose id is in the reply.", "default": "interrupt"},
                "use_container": {"type": "boolean", "description": "Run in a container, in a session that is in one or a new one; refused where that is not available.", "default": false},
            }),
            &["code"],
        )
    }

    fn validate(&self) -> String {
        format!(
            "Check Python {} code without running it: syntax errors with line and caret, imports and operations that this server does not allow, and a rough idea of its complexity. The verdict is the one that execute_code would act on. {}",
            self.python, self.imports
        )
    }

    fn read_output(&self) -> String {
        format!(
            "Read on in an output that was shortened in the reply of execute_code. Give its execution_id and the offset that the cut names; returns up to {} characters and the next offset.",
            self.context_chars
        )
    }

    fn create_session(&self) -> String {
        if self.is_lean {
            return "Start a new, empty session and get its id, to keep separate pieces of work apart. Not needed for a first call: execute_code makes sessions by itself.".to_owned();
        }
        format!(
            "Start a new, empty session and get its id, to keep separate pieces of work apart. Not needed for a first call: execute_code makes sessions by itself. {}",
            self.life()
        )
    }
}
