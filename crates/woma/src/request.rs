//! A request to run code, read in one way whichever door it came through.

use std::time::Duration;

use schemars::JsonSchema;
use serde_json::{Map, Value};
use woma_core::{Code, Execute, SessionChoice, SessionId};

use crate::arguments::Arguments;
use crate::doors::Doors;
use crate::error::Envelope;

/// Code to run, and how.
#[derive(Debug, JsonSchema)]
#[schemars(transform = code_is_required)]
pub(crate) struct ExecuteBody {
    /// Python code.
    code: String,
    /// Variables and files of earlier runs in the same session are there; it is made if it does
    /// not exist.
    #[schemars(with = "String")]
    session_id: Option<String>,
    /// Run in a session of its own that ends with the run, whatever the session id says.
    stateless: bool,
    /// Seconds; out of range it is clamped, and `warnings` says so.
    #[schemars(with = "f64")]
    timeout: Option<f64>,
    /// Names that the code finds set; `context` is another name for it.
    variables: Map<String, Value>,
    /// For this run: text such as `"256m"` or `"1g"`, or a number of megabytes.
    #[schemars(schema_with = "size_schema")]
    memory_limit: Option<u64>,
    /// False: what is printed is not in the reply.
    capture_output: bool,
    /// Of the modules that may be imported anyway, these alone; an empty list allows none.
    #[schemars(with = "Vec<String>")]
    allowed_imports: Option<Vec<String>>,
    /// True is refused: this server has no container mode.
    use_container: bool,
}

fn code_is_required(schema: &mut schemars::Schema) {
    schema.insert("required".to_owned(), serde_json::json!(["code"]));
}

fn size_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": ["string", "number"], "examples": ["256m", 256] })
}

/// A request that was read, and what the reply must say about it.
pub(crate) struct Call {
    pub(crate) request: Execute,
    pub(crate) warnings: Vec<String>,
}

impl Call {
    pub(crate) fn read(doors: &Doors, arguments: Arguments) -> Result<Self, Envelope> {
        let (body, warnings) = ExecuteBody::read(arguments)?;
        if body.use_container {
            let message = "`use_container` is not available on this server";
            return Err(Envelope::new(Code::InvalidArgument, message)
                .with_hint("leave it out: every session is isolated by the kernel anyway"));
        }
        // The id of a new session is made here, so that a stream can begin with it.
        let session = match doors.manner.session(body.session_id.as_deref())? {
            _ if body.stateless => SessionChoice::Ephemeral,
            SessionChoice::New => {
                SessionChoice::Named(SessionId::parse(&uuid::Uuid::new_v4().to_string())?)
            }
            other => other,
        };
        let request = Execute {
            timeout: body.timeout.map(duration),
            memory_bytes: body.memory_limit,
            variables: body.variables,
            capture_output: body.capture_output,
            allowed_imports: body.allowed_imports,
            ..Execute::new(body.code, session)
        };
        Ok(Self { request, warnings })
    }
}

impl ExecuteBody {
    fn read(mut arguments: Arguments) -> Result<(Self, Vec<String>), Envelope> {
        let body = Self {
            code: arguments.required(&["code"], "the Python code to run")?,
            session_id: arguments.text(&["session_id"])?,
            stateless: arguments.flag(&["stateless"])?.unwrap_or(false),
            timeout: arguments.number(&["timeout"])?,
            variables: arguments.object(&["variables", "context"])?,
            memory_limit: arguments.bytes(&["memory_limit"])?,
            capture_output: arguments.flag(&["capture_output"])?.unwrap_or(true),
            allowed_imports: arguments.list(&["allowed_imports"])?,
            use_container: arguments.flag(&["use_container"])?.unwrap_or(false),
        };
        Ok((body, arguments.unknown().collect()))
    }
}

/// The core says what it makes of a time that is out of range; here it only must not panic.
fn duration(seconds: f64) -> Duration {
    let outside = if seconds > 0.0 { Duration::MAX } else { Duration::ZERO };
    Duration::try_from_secs_f64(seconds).unwrap_or(outside)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::duration;

    #[test]
    fn no_number_is_too_strange_for_a_time() {
        assert_eq!(duration(1.5), Duration::from_millis(1500));
        assert_eq!(duration(-1.0), Duration::ZERO);
        assert_eq!(duration(f64::NAN), Duration::ZERO);
        assert_eq!(duration(1e300), Duration::MAX);
    }
}
