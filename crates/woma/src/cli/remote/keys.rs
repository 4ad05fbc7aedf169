//! `woma keys` on a server elsewhere; it needs a key with the scope `admin`.

use std::error::Error;

use serde_json::{Map, Value, json};

use super::client::encoded;
use super::{Client, line, pretty, text};
use crate::terminal::{tell, try_print};

const KEYS: &str = "/api/v1/keys";
const ROWS_MAX: usize = 1_000_000;

/// Creates a key and prints it. The server has stored it by then, so a key that cannot be printed is
/// revoked.
pub(crate) fn create(
    client: &Client,
    wanted: Map<String, Value>,
    is_json: bool,
) -> Result<String, Box<dyn Error>> {
    let created = client.post(KEYS, &Value::Object(wanted))?;
    let (id, key) = (text(&created, "key_id"), text(&created, "key"));
    let is_shown = try_print(&match is_json {
        true => pretty(&created),
        false => format!("{key}\n"),
    });
    if !is_shown {
        client.delete(&format!("{KEYS}/{}", encoded(id)))?;
        return Err("the key could not be printed, and is revoked".into());
    }
    tell(&format!("key `{}` ({id}) created: {}", text(&created, "name"), describe(&created)));
    tell("Save it now: only its digest is stored, and it cannot be shown again.");
    Ok(String::new())
}

pub(crate) fn list(client: &Client, is_json: bool) -> Result<String, Box<dyn Error>> {
    let keys = client.rows(KEYS, "keys", ROWS_MAX)?;
    if is_json {
        return Ok(pretty(&Value::Array(keys)));
    }
    let row = |key: &Value| {
        let (id, name) = (text(key, "key_id"), text(key, "name"));
        line(&[&format!("{id:<12}"), &format!("{name:<24}"), &describe(key)])
    };
    Ok(keys.iter().map(row).collect())
}

/// Revokes a key by its id, or by its name if one key that is in use has it.
pub(crate) fn revoke(client: &Client, key: &str, is_json: bool) -> Result<String, Box<dyn Error>> {
    let keys = client.rows(KEYS, "keys", ROWS_MAX)?;
    let by = |field: &str| {
        let is_meant = |row: &&Value| row[field] == key && row["revoked_at"].is_null();
        keys.iter().find(is_meant)
    };
    let found = by("key_id").or_else(|| by("name"));
    let found = found.ok_or_else(|| format!("no key in use has the name or the id `{key}`"))?;
    client.delete(&format!("{KEYS}/{}", encoded(text(found, "key_id"))))?;
    let (name, id) = (text(found, "name"), text(found, "key_id"));
    Ok(match is_json {
        true => pretty(&json!({ "key_id": id, "name": name, "revoked": true })),
        false => line(&[&format!("revoked {name} ({id})")]),
    })
}

fn describe(key: &Value) -> String {
    let scopes = key["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut parts = vec![scopes.collect::<Vec<_>>().join(",")];
    for (field, unit) in [
        ("executions_per_minute", "executions/min"),
        ("sessions", "sessions"),
        ("storage_bytes", "bytes"),
    ] {
        parts.extend(key[field].as_u64().map(|count| format!("{count} {unit}")));
    }
    for (field, word) in [
        ("policy", "policy"),
        ("network", "network"),
        ("expires_at", "expires"),
        ("revoked_at", "revoked"),
    ] {
        parts.extend(key[field].as_str().map(|value| format!("{word} {value}")));
    }
    parts.join(", ")
}
