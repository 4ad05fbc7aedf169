//! Data of lean replies: objects without fields that say nothing, schemas without prose.

use rmcp::model::JsonObject;
use serde_json::Value;

/// Fields that repeat another one, or that no next call needs.
const REDUNDANT: &[&str] = &[
    "size_human",
    "total_size_human",
    "mime_type",
    "file_id",
    "expires_at",
    "sandbox_dir",
    "created_at",
];
/// Flags that are false in most replies.
const FLAGS: &[&str] = &["replaced", "truncated", "is_busy", "is_live"];
/// Texts that a caller asked for, empty or not.
const CONTENTS: &[&str] = &["content", "text"];

/// An object about files or sessions without fields that are redundant, empty or false, and
/// without a name that repeats the id or the path.
pub(crate) fn fields(object: &mut Value) {
    match object {
        Value::Object(fields) => {
            fields.values_mut().for_each(self::fields);
            let (id, path) = (fields.get("session_id").cloned(), fields.get("path").cloned());
            fields.retain(|name, value| {
                let is_empty = match value {
                    Value::Null => true,
                    Value::String(text) => text.is_empty(),
                    Value::Array(items) => items.is_empty(),
                    Value::Bool(flag) => !*flag && FLAGS.contains(&name.as_str()),
                    _ => false,
                };
                let is_repeated = (name == "name" && id.as_ref() == Some(value))
                    || (name == "filename" && path.as_ref() == Some(value));
                let is_wanted = CONTENTS.contains(&name.as_str());
                is_wanted || !(is_empty || is_repeated || REDUNDANT.contains(&name.as_str()))
            });
        }
        Value::Array(items) => items.iter_mut().for_each(self::fields),
        _ => {}
    }
}

/// Removes the session's id if it is the one that the caller knows.
pub(crate) fn known_session(object: &mut Value, known: Option<&str>) {
    if let (Some(fields), Some(known)) = (object.as_object_mut(), known)
        && fields.get("session_id").is_some_and(|id| id == known)
    {
        fields.remove("session_id");
    }
}

/// A time without its fraction of a second.
pub(crate) fn whole_seconds(time: &str) -> String {
    match time.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => time.to_owned(),
    }
}

/// Shortens the lists of an object until it has at most `chars_max` characters as JSON; a warning
/// says how much is left out.
pub(crate) fn bound_lists(answer: &mut Value, chars_max: usize) {
    /// Characters of a warning.
    const WARNING_CHARS: usize = 100;
    let mut left_out = Vec::new();
    while answer.to_string().chars().count() + left_out.len() * WARNING_CHARS > chars_max {
        let Some(fields) = answer.as_object_mut() else { return };
        let lists = fields.iter_mut().filter_map(|(name, value)| match value {
            Value::Array(items) if items.len() > 1 => Some((name, items)),
            _ => None,
        });
        let Some((name, items)) = lists.max_by_key(|(_, items)| items.len()) else { break };
        let shown = items.len() / 2;
        let more = items.len() - shown;
        items.truncate(shown);
        match left_out.iter_mut().find(|(known, _)| known == name) {
            Some((_, count)) => *count += more,
            None => left_out.push((name.clone(), more)),
        }
    }
    let Some(fields) = answer.as_object_mut().filter(|_| !left_out.is_empty()) else { return };
    let told = left_out.iter().map(|(name, more)| format!("{more} more of `{name}`: too long"));
    let told: Vec<Value> = told.map(Value::from).collect();
    match fields.get_mut("warnings") {
        Some(Value::Array(warnings)) => warnings.extend(told),
        _ => _ = fields.insert("warnings".to_owned(), told.into()),
    }
}

/// A schema without descriptions, and with `success` as the only field that is always there.
pub(crate) fn schema(mut schema: JsonObject) -> JsonObject {
    slim_schema(&mut schema);
    schema
}

fn slim_schema(schema: &mut JsonObject) {
    for name in ["description", "title", "default"] {
        // A property may have such a name; its schema is an object.
        if schema.get(name).is_some_and(|value| !value.is_object()) {
            schema.remove(name);
        }
    }
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.retain(|name| name == "success");
        if required.is_empty() {
            schema.remove("required");
        }
    }
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        // `true` allows any value, but clients expect an object.
        let any = properties.values_mut().filter(|value| value.is_boolean());
        any.for_each(|value| *value = Value::Object(JsonObject::new()));
    }
    for value in schema.values_mut() {
        match value {
            Value::Object(inner) => slim_schema(inner),
            Value::Array(items) => {
                items.iter_mut().filter_map(Value::as_object_mut).for_each(slim_schema);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{bound_lists, fields, known_session, schema, whole_seconds};

    #[test]
    fn drops_fields_that_say_nothing() {
        let mut file = json!({
            "success": false, "path": "a", "filename": "a", "size_bytes": 0, "preview": "",
            "replaced": false, "session_id": "s", "warnings": [], "content": "",
            "files": [{ "path": "b/c", "filename": "c", "size_human": "1 B" }],
        });
        fields(&mut file);
        known_session(&mut file, Some("s"));
        let files = json!([{ "path": "b/c", "filename": "c" }]);
        let rest = json!({
            "success": false, "path": "a", "size_bytes": 0, "content": "", "files": files,
        });
        assert_eq!(file, rest);
        let mut other = json!({ "session_id": "default" });
        known_session(&mut other, Some("s"));
        known_session(&mut other, None);
        assert_eq!(other, json!({ "session_id": "default" }));
        known_session(&mut other, Some("default"));
        assert_eq!(other, json!({}));
        assert_eq!(whole_seconds("2026-01-31T12:00:00.123Z"), "2026-01-31T12:00:00Z");
        assert_eq!(whole_seconds("2026-01-31T12:00:00Z"), "2026-01-31T12:00:00Z");
    }

    #[test]
    fn lists_are_shortened_to_the_budget() {
        let names: Vec<String> = (0..1_000).map(|n| format!("name{n}")).collect();
        let mut answer = json!({ "saved": names, "few": [1, 2], "warnings": ["first"] });
        bound_lists(&mut answer, 2_000);
        assert!(answer.to_string().len() <= 2_000);
        let shown = answer["saved"].as_array().unwrap().len();
        assert!(shown > 50, "{shown}");
        let told = format!("{} more of `saved`: too long", 1_000 - shown);
        assert_eq!(
            (&answer["warnings"], &answer["few"]),
            (&json!(["first", told]), &json!([1, 2]))
        );
        let mut short = json!({ "saved": ["a"] });
        bound_lists(&mut short, 2_000);
        assert_eq!(short, json!({ "saved": ["a"] }));
    }

    #[test]
    fn schemas_lose_prose_but_no_property() {
        let full = json!({
            "type": "object", "description": "d", "required": ["success", "a"],
            "properties": { "success": { "type": "boolean", "description": "d" },
                            "description": { "type": "string" }, "any": true },
        });
        let Value::Object(full) = full else { unreachable!() };
        let lean = json!({
            "type": "object", "required": ["success"],
            "properties": { "success": { "type": "boolean" }, "description": { "type": "string" },
                            "any": {} },
        });
        assert_eq!(Value::Object(schema(full)), lean);
    }
}
