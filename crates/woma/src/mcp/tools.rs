//! The tools: their names, older names, schemas, and descriptions that are made from what the server
//! really allows.

use std::borrow::Cow;
use std::sync::Arc;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};
use woma_core::Profile;
use woma_core::environments::Package;

use super::files::FileFacts;
use super::history;
use crate::config::types::StateWithoutSession;
use crate::doors::Doors;
use crate::validation::Validation;
use crate::wire::{Reply, WORKSPACE};

/// What a tool does, under whichever of its names it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    ExecuteCode,
    ValidateCode,
    ListFiles,
    UploadFile,
    FetchFile,
    DeleteFile,
    FetchFromUrl,
    ReadOutput,
    CreateSession,
    ListSessions,
    DeleteSession,
    InterruptSession,
    ResetSession,
    CheckpointSession,
    RestoreSession,
    ExportSession,
    GetSandboxInfo,
}

/// A tool without its description.
struct Entry {
    kind: Kind,
    name: &'static str,
    title: &'static str,
    /// Names that older systems have for it: callable, and listed only by their presets.
    aliases: &'static [&'static str],
    read_only: bool,
    destructive: bool,
    idempotent: bool,
}

/// In the order in which they are listed.
const ENTRIES: &[Entry] = &[
    Entry {
        kind: Kind::ExecuteCode,
        name: "execute_code",
        title: "Run Python code",
        aliases: &["execute_python", "execute_python_code", "run_code", "run_python_code"],
        read_only: false,
        destructive: false,
        idempotent: false,
    },
    Entry {
        kind: Kind::ValidateCode,
        name: "validate_code",
        title: "Check code without running it",
        aliases: &[],
        read_only: true,
        destructive: false,
        idempotent: true,
    },
    Entry {
        kind: Kind::ListFiles,
        name: "list_files",
        title: "List the files of a session",
        aliases: &[],
        read_only: true,
        destructive: false,
        idempotent: true,
    },
    Entry {
        kind: Kind::UploadFile,
        name: "upload_file",
        title: "Put a file into a session",
        aliases: &[],
        read_only: false,
        destructive: true,
        idempotent: true,
    },
    Entry {
        kind: Kind::FetchFile,
        name: "fetch_file",
        title: "Get a file out of a session",
        aliases: &[],
        read_only: false,
        destructive: false,
        idempotent: true,
    },
    Entry {
        kind: Kind::DeleteFile,
        name: "delete_file",
        title: "Delete a file of a session",
        aliases: &[],
        read_only: false,
        destructive: true,
        idempotent: true,
    },
    Entry {
        kind: Kind::FetchFromUrl,
        name: "fetch_from_url",
        title: "Download a file into a session",
        aliases: &[],
        read_only: false,
        destructive: true,
        idempotent: false,
    },
    Entry {
        kind: Kind::ReadOutput,
        name: "read_output",
        title: "Read the rest of a long output",
        aliases: &[],
        read_only: true,
        destructive: false,
        idempotent: true,
    },
    Entry {
        kind: Kind::CreateSession,
        name: "create_session",
        title: "Start a new session",
        aliases: &["create_session_with_files"],
        read_only: false,
        destructive: false,
        idempotent: false,
    },
    Entry {
        kind: Kind::ListSessions,
        name: "list_sessions",
        title: "List sessions",
        aliases: &["list_active_sessions"],
        read_only: true,
        destructive: false,
        idempotent: true,
    },
    Entry {
        kind: Kind::DeleteSession,
        name: "delete_session",
        title: "End a session",
        aliases: &["terminate_session"],
        read_only: false,
        destructive: true,
        idempotent: true,
    },
    Entry {
        kind: Kind::InterruptSession,
        name: "interrupt_session",
        title: "Stop the code that runs in a session",
        aliases: &[],
        read_only: false,
        destructive: false,
        idempotent: true,
    },
    Entry {
        kind: Kind::ResetSession,
        name: "reset_session",
        title: "Empty a session",
        aliases: &["reset_sandbox"],
        read_only: false,
        destructive: true,
        idempotent: true,
    },
    Entry {
        kind: Kind::CheckpointSession,
        name: "checkpoint_session",
        title: "Save a session's variables",
        aliases: &[],
        read_only: false,
        destructive: false,
        idempotent: true,
    },
    Entry {
        kind: Kind::RestoreSession,
        name: "restore_session",
        title: "Take a session back to its checkpoint",
        aliases: &[],
        read_only: false,
        destructive: true,
        idempotent: true,
    },
    Entry {
        kind: Kind::ExportSession,
        name: "export_session",
        title: "Save a session as a notebook",
        aliases: &[],
        read_only: false,
        destructive: false,
        idempotent: true,
    },
    Entry {
        kind: Kind::GetSandboxInfo,
        name: "get_sandbox_info",
        title: "What this sandbox has and allows",
        aliases: &["list_capabilities"],
        read_only: true,
        destructive: false,
        idempotent: true,
    },
];

/// The tools of this server, made once.
#[derive(Debug)]
pub(super) struct Catalogue {
    /// By every name, canonical ones first.
    tools: Vec<(Tool, Kind)>,
    listed: Vec<String>,
    /// For the model, before it has seen any tool.
    pub(super) instructions: String,
}

impl Catalogue {
    pub(super) fn new(doors: &Doors) -> Self {
        let facts = Facts::new(doors);
        let mut tools = Vec::new();
        for entry in ENTRIES {
            tools.push((tool(entry, entry.name, &facts), entry.kind));
        }
        for entry in ENTRIES {
            for alias in entry.aliases {
                tools.push((tool(entry, alias, &facts), entry.kind));
            }
        }
        let mut listed = doors.manner.listed_tools.clone();
        if listed.is_empty() {
            listed = ENTRIES.iter().map(|entry| entry.name.to_owned()).collect();
        } else if listed.iter().any(|name| name == "*") {
            listed = tools.iter().map(|(tool, _)| tool.name.to_string()).collect();
        }
        Self { tools, listed, instructions: facts.instructions() }
    }

    /// What `tools/list` shows, always in the same order.
    pub(super) fn listed(&self) -> Vec<Tool> {
        self.listed.iter().filter_map(|name| self.find(name)).cloned().collect()
    }

    pub(super) fn find(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().map(|(tool, _)| tool).find(|tool| tool.name == name)
    }

    /// What a tool of this name does.
    pub(super) fn kind(&self, name: &str) -> Option<Kind> {
        self.tools.iter().find(|(tool, _)| tool.name == name).map(|(_, kind)| *kind)
    }

    /// Every name that can be called, for a message to somebody who called another.
    pub(super) fn names() -> String {
        let names: Vec<&str> = ENTRIES.iter().map(|entry| entry.name).collect();
        names.join(", ")
    }
}

/// Of these names, the ones that no tool has.
pub(crate) fn unknown_tools(names: &[String]) -> impl Iterator<Item = &String> {
    let is_known = |name: &str| {
        ENTRIES.iter().any(|entry| entry.name == name || entry.aliases.contains(&name))
    };
    names.iter().filter(move |name| *name != "*" && !is_known(name))
}

fn tool(entry: &Entry, name: &'static str, facts: &Facts) -> Tool {
    let (description, input, output) = match entry.kind {
        Kind::ListFiles
        | Kind::UploadFile
        | Kind::FetchFile
        | Kind::DeleteFile
        | Kind::FetchFromUrl => facts.files.describe(entry.kind).unwrap_or_default(),
        Kind::ExecuteCode => (facts.execute(), facts.execute_input(), reply_schema()),
        Kind::ValidateCode => (facts.validate(), validate_input(), schema_of::<Validation>()),
        Kind::ReadOutput => (facts.read_output(), read_output_input(), output_schema()),
        Kind::CreateSession => (facts.create_session(), create_input(), session_schema()),
        Kind::ListSessions => (
            "List your sessions: id, when last used, whether code runs in it, how many runs, and when its variables expire.".to_owned(),
            object(&json!({}), &[]),
            object(
                &json!({
                    "sessions": {"type": "array", "items": session_schema()},
                    "total": {"type": "integer"},
                }),
                &["sessions", "total"],
            ),
        ),
        Kind::DeleteSession => (
            "End a session for good: what runs in it is stopped, its variables and files are gone.".to_owned(),
            session_input("The session to end", true),
            done_schema(),
        ),
        Kind::InterruptSession => (
            "Stop the code that runs in a session, as Ctrl-C would. Its variables stay.".to_owned(),
            session_input("The session whose code is to be stopped", false),
            done_schema(),
        ),
        Kind::ResetSession => (
            "Empty a session: stops what runs in it and clears its variables and files. The id stays valid.".to_owned(),
            session_input("The session to empty", false),
            session_schema(),
        ),
        Kind::CheckpointSession | Kind::RestoreSession | Kind::ExportSession => {
            history::describe(entry.kind)
        }
        Kind::GetSandboxInfo => (
            "What this sandbox has and allows: Python version, installed packages with versions, limits, isolation in force. Call it when an import fails or before relying on a limit.".to_owned(),
            object(&json!({}), &[]),
            object(&json!({"success": {"type": "boolean"}}), &["success"]),
        ),
    };
    let annotations = ToolAnnotations::with_title(entry.title)
        .read_only(entry.read_only)
        .destructive(entry.destructive)
        .idempotent(entry.idempotent)
        // Code has no network, and sessions see nothing but themselves.
        .open_world(matches!(entry.kind, Kind::FetchFile | Kind::FetchFromUrl));
    Tool::new(Cow::Borrowed(name), Cow::Owned(description), Arc::new(input))
        .with_title(entry.title)
        .with_raw_output_schema(Arc::new(output))
        .with_annotations(annotations)
}

/// What descriptions are made of.
struct Facts {
    timeout_default: u64,
    timeout_max: u64,
    memory_mb: u64,
    idle_seconds: u64,
    kernels_max: usize,
    context_chars: usize,
    state: StateWithoutSession,
    packages: String,
    python: String,
    /// What may be imported, where not everything may.
    imports: String,
    files: FileFacts,
}

impl Facts {
    fn new(doors: &Doors) -> Self {
        let (settings, manner) = (doors.service.settings(), &doors.manner);
        Self {
            timeout_default: settings.timeout_default.as_secs(),
            timeout_max: settings.timeout_max.as_secs(),
            memory_mb: settings.limits.memory_bytes / (1024 * 1024),
            idle_seconds: settings.idle_max.as_secs(),
            kernels_max: settings.kernels_max,
            context_chars: manner.context_chars,
            state: manner.state_without_session,
            packages: well_known(&manner.packages),
            python: manner.environment.version.to_string(),
            imports: imports(settings.policies.server()),
            files: FileFacts::new(doors),
        }
    }

    fn without_session(&self) -> &'static str {
        match self.state {
            StateWithoutSession::Default => "Without it, your own session `default` is used.",
            StateWithoutSession::New => {
                "Without it, a new session is made and its id is in the reply."
            }
            StateWithoutSession::Ephemeral => {
                "Without it, the code runs in a session of its own that is gone afterwards."
            }
        }
    }

    fn life(&self) -> String {
        format!(
            "Variables, imports and files stay between calls with the same session_id, until {} seconds pass without a call or {} other sessions push it out; the reply then says session_restarted.",
            self.idle_seconds, self.kernels_max
        )
    }

    fn instructions(&self) -> String {
        format!(
            "Runs Python {} in private sandboxed sessions with state. {} Use execute_code for calculations, data analysis and charts; check `success` and `error_message` in the reply, fix the code and call again.",
            self.python,
            self.life()
        )
    }

    fn execute(&self) -> String {
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

    fn execute_input(&self) -> JsonObject {
        object(
            &json!({
                "code": {"type": "string", "description": "Python code. The value of a last expression is returned, as in a notebook."},
                "session_id": {"type": "string", "description": format!("Session to run in; it is made if it does not exist. {}", self.without_session())},
                "timeout": {"type": "number", "description": format!("Seconds until the code is stopped; at most {}.", self.timeout_max), "default": self.timeout_default},
                "variables": {"type": "object", "description": "Values to set as variables before the code runs."},
                "memory_limit": {"type": "string", "description": format!("Less memory for this run, such as \"256m\"; at most {}m.", self.memory_mb)},
                "capture_output": {"type": "boolean", "description": "False leaves stdout and stderr out of the reply.", "default": true},
                "allowed_imports": {"type": "array", "items": {"type": "string"}, "description": "Modules that this run may import, out of those that the server allows."},
                "use_container": {"type": "boolean", "description": "Run in a container instead of the sandbox; refused where that is not available.", "default": false},
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
        format!(
            "Start a new, empty session and get its id, to keep separate pieces of work apart. Not needed for a first call: execute_code makes sessions by itself. {}",
            self.life()
        )
    }
}

/// The packages that a model is most likely to look for, by the names that are imported.
fn well_known(packages: &[Package]) -> String {
    const NAMES: &[(&str, &str)] = &[
        ("numpy", "numpy"),
        ("pandas", "pandas"),
        ("matplotlib", "matplotlib"),
        ("seaborn", "seaborn"),
        ("scipy", "scipy"),
        ("scikit-learn", "sklearn"),
        ("statsmodels", "statsmodels"),
        ("plotly", "plotly"),
        ("sympy", "sympy"),
        ("openpyxl", "openpyxl"),
        ("pyarrow", "pyarrow"),
        ("pillow", "PIL"),
        ("duckdb", "duckdb"),
    ];
    let has = |name: &str| packages.iter().any(|package| package.name.eq_ignore_ascii_case(name));
    let found: Vec<&str> =
        NAMES.iter().filter(|(name, _)| has(name)).map(|(_, import)| *import).collect();
    if found.is_empty() { "the standard library".to_owned() } else { found.join(", ") }
}

/// What a model must know of the rules before it writes code.
fn imports(profile: &Profile) -> String {
    if profile.is_open() {
        return String::new();
    }
    let allowed: Vec<&str> = profile.modules().into_iter().collect();
    let modules = match allowed.len() {
        0 => "Nothing can be imported.".to_owned(),
        _ => format!("Only these modules can be imported: {}.", allowed.join(", ")),
    };
    format!("{modules} ")
}

pub(super) fn object(properties: &Value, required: &[&str]) -> JsonObject {
    let schema = json!({"type": "object", "properties": properties, "required": required});
    match schema {
        Value::Object(mut schema) => {
            if required.is_empty() {
                schema.remove("required");
            }
            schema
        }
        _ => JsonObject::new(),
    }
}

pub(super) fn session_input(what: &str, required: bool) -> JsonObject {
    let property = json!({"session_id": {"type": "string", "description": what}});
    if required { object(&property, &["session_id"]) } else { object(&property, &[]) }
}

fn create_input() -> JsonObject {
    object(
        &json!({
            "name": {"type": "string", "description": "A name for people to read."},
            "description": {"type": "string", "description": "What the session is for."},
            "session_id": {"type": "string", "description": "An id of your own choice; without it, one is made up that nobody can guess."},
            "policy": {"type": "string", "description": "Name of stricter rules for the code of this session."},
        }),
        &[],
    )
}

fn validate_input() -> JsonObject {
    object(
        &json!({
            "code": {"type": "string", "description": "Python code. It is not run."},
            "session_id": {"type": "string", "description": "The session that it would run in, where that has rules of its own."},
            "allowed_imports": {"type": "array", "items": {"type": "string"}, "description": "Modules that the run would be allowed to import."},
        }),
        &["code"],
    )
}

fn read_output_input() -> JsonObject {
    object(
        &json!({
            "execution_id": {"type": "string", "description": "The execution_id of the reply that was shortened."},
            "stream": {"type": "string", "enum": ["stdout", "stderr", "traceback", "result"], "default": "stdout"},
            "offset": {"type": "integer", "minimum": 0, "default": 0, "description": "Characters to skip."},
            "limit": {"type": "integer", "minimum": 1, "description": "Characters to return at most."},
        }),
        &["execution_id"],
    )
}

fn output_schema() -> JsonObject {
    object(
        &json!({
            "execution_id": {"type": "string"},
            "stream": {"type": "string"},
            "text": {"type": "string"},
            "offset": {"type": "integer"},
            "next_offset": {"type": "integer", "description": "Absent at the end."},
            "total_chars": {"type": "integer"},
        }),
        &["execution_id", "stream", "text", "offset", "total_chars"],
    )
}

fn done_schema() -> JsonObject {
    object(
        &json!({
            "success": {"type": "boolean"},
            "session_id": {"type": "string"},
            "message": {"type": "string"},
        }),
        &["success", "session_id", "message"],
    )
}

fn reply_schema() -> JsonObject {
    schema_of::<Reply>()
}

fn session_schema() -> JsonObject {
    schema_of::<crate::wire::Session>()
}

/// As it is written, where what can be left out is not required.
pub(super) fn schema_of<T: schemars::JsonSchema>() -> JsonObject {
    let settings = schemars::generate::SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    drop_formats(&mut schema);
    match schema {
        Value::Object(mut schema) => {
            schema.remove("$schema");
            schema
        }
        _ => JsonObject::new(),
    }
}

/// `int64` and its like are no formats of JSON Schema, and clients complain about them.
fn drop_formats(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("format");
            fields.values_mut().for_each(drop_formats);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_formats),
        _ => {}
    }
}
