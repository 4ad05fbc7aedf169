//! A request to run code, parsed in one way for REST and MCP.

use schemars::JsonSchema;
use serde_json::{Map, Value};
use woma_core::{Execute, OnTimeout, SessionChoice, SessionId};

use super::arguments::{Arguments, Problem};
use super::error::Envelope;
use super::schema::session_id_field;
use super::state::AppState;

/// Code to run, with its options.
#[derive(Debug, JsonSchema)]
#[schemars(transform = code_is_required)]
pub(crate) struct ExecuteBody {
    /// Python code.
    #[schemars(extend("minLength" = 1))]
    code: String,
    /// Session with the variables and files of its earlier runs; created if it does not exist.
    #[schemars(schema_with = "session_id_field")]
    session_id: Option<String>,
    /// Run in an ephemeral session; overrides `session_id`.
    stateless: bool,
    /// Seconds. A value out of range is clamped, with a note in `warnings`.
    #[schemars(with = "f64")]
    timeout: Option<f64>,
    /// Variables to set before the code runs; `context` is an alias.
    variables: Map<String, Value>,
    /// Text that `input()` and `sys.stdin` read, one line for each answer.
    #[schemars(with = "String", extend("maxLength" = 1_048_576))]
    stdin: Option<String>,
    /// Memory limit of this run: text such as `"256m"` or `"1g"`, or a number of megabytes.
    #[schemars(schema_with = "size_schema")]
    memory_limit: Option<u64>,
    /// If false, the reply has no stdout and stderr.
    capture_output: bool,
    /// Narrows the modules that may be imported to these; an empty list allows no module.
    #[schemars(with = "Vec<String>")]
    allowed_imports: Option<Vec<String>>,
    /// At the time limit: `interrupt` stops the code, `detach` lets it go on as a job.
    #[schemars(with = "String", extend("enum" = ["interrupt", "detach"], "default" = "interrupt"))]
    on_timeout: OnTimeout,
    /// Run in a container, or not at all: in a session that is in one, or a new one.
    use_container: bool,
}

fn code_is_required(schema: &mut schemars::Schema) {
    schema.insert("required".to_owned(), serde_json::json!(["code"]));
}

fn size_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": ["string", "number"], "examples": ["256m", 256] })
}

/// A parsed request, with the warnings for its reply.
pub(crate) struct Call {
    pub(crate) request: Execute,
    pub(crate) warnings: Vec<String>,
    /// Whether the session's id was minted for this call: its caller does not know it.
    pub(crate) is_session_minted: bool,
}

impl Call {
    pub(crate) fn read(state: &AppState, arguments: Arguments) -> Result<Self, Envelope> {
        let (body, warnings) = ExecuteBody::read(arguments)?;
        // The id of a new session is minted here: a stream sends it in its first header.
        let (session, is_session_minted) = match state.session(body.session_id.as_deref())? {
            _ if body.stateless => (SessionChoice::Ephemeral, false),
            SessionChoice::New => (SessionChoice::Named(SessionId::mint()), true),
            other => (other, false),
        };
        let request = Execute {
            timeout: body.timeout,
            memory_bytes: body.memory_limit,
            variables: body.variables,
            stdin: body.stdin,
            capture_output: body.capture_output,
            allowed_imports: body.allowed_imports,
            on_timeout: body.on_timeout,
            use_container: body.use_container,
            ..Execute::new(body.code, session)
        };
        Ok(Self { request, warnings, is_session_minted })
    }
}

impl ExecuteBody {
    pub(crate) fn read(mut arguments: Arguments) -> Result<(Self, Vec<String>), Envelope> {
        let body = Self {
            code: arguments.code("the Python code to run")?,
            session_id: arguments.text(&["session_id"])?,
            stateless: arguments.flag(&["stateless"])?.unwrap_or(false),
            timeout: arguments.number(&["timeout"])?,
            variables: arguments.object(&["variables", "context"])?,
            stdin: arguments.text(&["stdin"])?,
            memory_limit: arguments.bytes(&["memory_limit"])?,
            capture_output: arguments.flag(&["capture_output"])?.unwrap_or(true),
            allowed_imports: arguments.list(&["allowed_imports"])?,
            on_timeout: on_timeout(arguments.text(&["on_timeout"])?.as_deref())?,
            use_container: arguments.flag(&["use_container"])?.unwrap_or(false),
        };
        Ok((body, arguments.unknown().collect()))
    }
}

fn on_timeout(text: Option<&str>) -> Result<OnTimeout, Problem> {
    match text {
        None | Some("interrupt") => Ok(OnTimeout::Interrupt),
        Some("detach") => Ok(OnTimeout::Detach),
        Some(other) => Err(Problem::Wrong {
            name: "on_timeout",
            expected: "`interrupt` or `detach`",
            got: format!("{:?}", other.chars().take(40).collect::<String>()),
        }),
    }
}
