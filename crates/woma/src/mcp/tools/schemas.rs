//! JSON Schemas of the tools' arguments and replies.

use rmcp::model::JsonObject;
use serde_json::{Value, json};

use crate::api::sessions::Session;

pub(crate) fn object(properties: &Value, required: &[&str]) -> JsonObject {
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

pub(crate) fn session_input(what: &str, required: bool) -> JsonObject {
    let property = json!({"session_id": {"type": "string", "description": what}});
    if required { object(&property, &["session_id"]) } else { object(&property, &[]) }
}

pub(crate) fn change_input() -> JsonObject {
    object(
        &json!({
            "session_id": {"type": "string", "description": "The session to change."},
            "environment": {"type": "string", "description": "Python environment, one that get_sandbox_info names; default: the server's own."},
            "network": {"type": "string", "description": "Network of its code, within what the server allows: off, open, hosts such as data.example, *.example.org:8443, or default for all that is allowed."},
            "name": {"type": "string", "description": "A name for people to read."},
            "description": {"type": "string", "description": "What the session is for."},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Names and values, in place of those that are there."},
            "lifetime": {"type": "integer", "minimum": 0, "description": "Seconds without a call after which it is deleted; 0 for the server's time."},
        }),
        &["session_id"],
    )
}

pub(crate) fn create_input() -> JsonObject {
    object(
        &json!({
            "name": {"type": "string", "description": "A name for people to read."},
            "description": {"type": "string", "description": "What the session is for."},
            "session_id": {"type": "string", "description": "An id of your choice; default: a random one."},
            "policy": {"type": "string", "description": "Name of a stricter policy for the code of this session."},
            "network": {"type": "string", "description": "Network of its code, within what the server allows: off, open, or hosts such as data.example, *.example.org:8443."},
            "file_urls": {"type": "array", "items": {"type": "string"}, "description": "Public addresses of files to download into it."},
            "timeout": {"type": "number", "description": "Seconds for each download.", "default": 30},
        }),
        &[],
    )
}

pub(crate) fn validate_input() -> JsonObject {
    object(
        &json!({
            "code": {"type": "string", "description": "Python code. It is not run."},
            "session_id": {"type": "string", "description": "Session in which it would run, if that session has a policy of its own."},
            "allowed_imports": {"type": "array", "items": {"type": "string"}, "description": "Modules that the run would be allowed to import."},
        }),
        &["code"],
    )
}

pub(crate) fn read_output_input() -> JsonObject {
    object(
        &json!({
            "execution_id": {"type": "string", "description": "The execution_id of the reply that was shortened."},
            "stream": {"type": "string", "enum": ["stdout", "stderr", "traceback", "result", "late"], "default": "stdout"},
            "offset": {"type": "integer", "minimum": 0, "default": 0, "description": "Characters to skip."},
            "limit": {"type": "integer", "minimum": 1, "description": "Characters to return at most."},
        }),
        &["execution_id"],
    )
}

pub(crate) fn output_schema() -> JsonObject {
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

pub(crate) fn done_schema() -> JsonObject {
    object(
        &json!({
            "success": {"type": "boolean"},
            "session_id": {"type": "string"},
            "message": {"type": "string"},
        }),
        &["success", "session_id", "message"],
    )
}

/// Schema of a listing with the offset of its next page.
pub(crate) fn paged(mut schema: JsonObject) -> JsonObject {
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        let next = json!({"type": "integer", "description": "Offset of the next page; absent at the end."});
        properties.insert("next_offset".to_owned(), next);
    }
    schema
}

pub(crate) fn session_schema() -> JsonObject {
    schema_of::<Session>()
}

/// Output schema of a type; optional fields are not required.
pub(crate) fn schema_of<T: schemars::JsonSchema>() -> JsonObject {
    let settings = schemars::generate::SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    simplify(&mut schema);
    match schema {
        Value::Object(mut schema) => {
            schema.remove("$schema");
            schema
        }
        _ => JsonObject::new(),
    }
}

/// Removes what clients reject: formats such as `int64`, which are not JSON Schema, and items that
/// may be anything, which are `true`.
fn simplify(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("format");
            fields.retain(|name, value| name != "items" || *value != Value::Bool(true));
            fields.values_mut().for_each(simplify);
        }
        Value::Array(items) => items.iter_mut().for_each(simplify),
        _ => {}
    }
}
