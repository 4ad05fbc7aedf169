//! Schemas of jobs that no type has alone.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};

use super::replies::UnfinishedJob;
use crate::api::reply::Reply;
use crate::api::request::ExecuteBody;

/// Schema of a submission: the arguments of a run, and those of a job.
pub(crate) fn body_schema(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = ExecuteBody::json_schema(generator);
    let more = json!({
        "priority": {
            "type": "integer", "minimum": -100, "maximum": 100, "default": 0,
            "description": "Order among your own jobs; higher ones run first.",
        },
        "retries": {
            "type": "integer", "minimum": 0, "maximum": 10, "default": 0,
            "description": "Times that it may begin again if the server ends while it runs.",
        },
        "webhook": {
            "type": "string", "format": "uri", "maxLength": 8192,
            "description": "Address that the end of the job is posted to, signed as Standard \
                            Webhooks are.",
        },
        "webhook_secret": {
            "type": "string", "maxLength": 256,
            "description": "Secret that signs the webhook: whsec_ and base64, or text of 16 bytes \
                            or more. If absent, one is made and returned.",
        },
        "idempotency_key": {
            "type": "string", "maxLength": 200,
            "description": "A repeated submission with the same key returns the first job.",
        },
        "run_at": {
            "type": "string", "format": "date-time",
            "description": "Not before this time; needs the scope `schedule`.",
        },
    });
    if let (Some(properties), Value::Object(more)) =
        (schema.get_mut("properties").and_then(Value::as_object_mut), more)
    {
        properties.remove("on_timeout");
        properties.extend(more);
    }
    schema
}

/// Schema of a schedule to be made: a submission, and when it repeats.
pub(crate) fn schedule_schema(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = body_schema(generator);
    let more = json!({
        "cron": {
            "type": "string",
            "description": "Minute, hour, day of the month, month and day of the week.",
        },
        "timezone": {"type": "string", "default": "UTC", "description": "Such as Europe/Berlin."},
        "name": {"type": "string", "maxLength": 200},
    });
    if let (Some(properties), Value::Object(more)) =
        (schema.get_mut("properties").and_then(Value::as_object_mut), more)
    {
        properties.retain(|name, _| name != "run_at" && name != "idempotency_key");
        properties.extend(more);
    }
    schema.insert("required".to_owned(), json!(["code", "cron"]));
    schema
}

/// Schema of the result of an ended job.
pub(crate) fn result_schema(generator: &mut SchemaGenerator) -> Schema {
    let reply = generator.subschema_for::<Reply>();
    let unfinished = generator.subschema_for::<UnfinishedJob>();
    schemars::json_schema!({ "anyOf": [reply, unfinished] })
}
