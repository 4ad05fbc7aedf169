//! An execution as it is asked for, the same through every door.

use std::time::Duration;

use schemars::JsonSchema;
use serde_json::{Map, Value, json};
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
    /// Variables and files of earlier runs in the same session are there. It is made if it does not
    /// exist.
    #[schemars(with = "String")]
    session_id: Option<String>,
    /// Seconds. Out of range it is clamped, and `warnings` says so.
    #[schemars(with = "f64")]
    timeout: Option<f64>,
    /// Names that the code finds set; `context` is another name for it.
    variables: Map<String, Value>,
    /// For this run: text such as `"256m"` or `"1g"`, or a number of megabytes.
    #[schemars(schema_with = "size_schema")]
    memory_limit: Option<u64>,
    /// False: what is printed is not in the reply.
    capture_output: bool,
    /// True: the code runs in a session that ends with it.
    stateless: bool,
    /// This server restricts no imports: the list is ignored, and `warnings` says so.
    #[schemars(with = "Vec<String>")]
    allowed_imports: Option<Vec<String>>,
    /// True is refused: this server has no container mode.
    use_container: bool,
}

fn code_is_required(schema: &mut schemars::Schema) {
    schema.insert("required".to_owned(), json!(["code"]));
}

fn size_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": ["string", "number"], "examples": ["256m", 256] })
}

/// What is to be run, and what the reply must say about how it was asked for.
pub(crate) fn read(
    doors: &Doors,
    arguments: Arguments,
) -> Result<(Execute, Vec<String>), Envelope> {
    let (body, mut warnings) = ExecuteBody::read(arguments)?;
    if body.use_container {
        let message = "container mode is not available on this server";
        return Err(Envelope::new(Code::InvalidArgument, message)
            .with_hint("leave use_container out: every session is isolated by the kernel"));
    }
    if body.allowed_imports.is_some() {
        let text = "allowed_imports was ignored: this server restricts no imports; the operating \
                    system contains the code";
        warnings.push(text.to_owned());
    }
    let session = match doors.manner.session(body.session_id.as_deref())? {
        _ if body.stateless => SessionChoice::Ephemeral,
        // The id of a new session is made here, so that a stream can begin with it.
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
        ..Execute::new(body.code, session)
    };
    Ok((request, warnings))
}

impl ExecuteBody {
    fn read(mut given: Arguments) -> Result<(Self, Vec<String>), Envelope> {
        let body = Self {
            code: given.required(&["code", "source"], "the Python code to run")?,
            session_id: given.text(&["session_id", "session"])?,
            timeout: given.number(&["timeout"])?,
            variables: given.object(&["variables", "context"])?,
            memory_limit: given.bytes(&["memory_limit"])?,
            capture_output: given.flag(&["capture_output"])?.unwrap_or(true),
            stateless: given.flag(&["stateless"])?.unwrap_or(false),
            allowed_imports: given.list(&["allowed_imports"])?,
            use_container: given.flag(&["use_container"])?.unwrap_or(false),
        };
        Ok((body, given.unknown().collect()))
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
