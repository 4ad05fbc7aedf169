//! Constraints that several schemas share.

use schemars::{Schema, SchemaGenerator};
use serde_json::{Value, json};

/// Largest whole number that every JSON parser reads exactly.
pub(crate) const COUNT_MAX: u64 = (1 << 53) - 1;
/// No slash, no backslash, no control character.
const SESSION_ID: &str = r"^[^/\\\u0000-\u001f\u007f-\u009f]+$";

/// Constraints of a session id, as `SessionId::parse` has them.
pub(crate) fn session_id() -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": 128, "pattern": SESSION_ID })
}

/// Rules of a network: a text, or a list of hosts.
pub(crate) fn network_field(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({
        "anyOf": [
            { "type": "string" },
            { "type": "array", "items": { "type": "string" }, "maxItems": 256 },
        ],
    })
}

/// As [`session_id`], for a field of a body.
pub(crate) fn session_id_field(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({
        "type": "string", "minLength": 1, "maxLength": 128, "pattern": SESSION_ID,
    })
}
