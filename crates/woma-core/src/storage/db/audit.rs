//! The audit trail: rows are appended, never changed, and deleted by retention only. Triggers in
//! the database enforce this for every client, and hash chains show what was done against them
//! (`chain.rs`).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::records::{self, Days};
use super::statement::{Conditions, Row, Value, rows};
use super::{ExecutionRow, Store, StoreError};

/// Action of rows that report an attack or a suspicion of one.
pub const SECURITY_EVENT: &str = "security_event";

/// Limits of a name and of a sentence in an entry, in characters.
const NAME_CHARS_MAX: usize = 200;
const SENTENCE_CHARS_MAX: usize = 500;
/// Limit of an entry's detail, in bytes of JSON.
const DETAIL_BYTES_MAX: usize = 8 * 1024;

/// Entry to append.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    pub at: Timestamp,
    pub owner: String,
    pub action: String,
    pub session_id: Option<String>,
    pub execution_id: Option<String>,
    /// JSON.
    pub detail: String,
}

impl AuditEntry {
    /// Entry about an execution.
    pub(crate) fn of_execution(
        row: &ExecutionRow,
        at: Timestamp,
        action: &str,
        detail: &Json,
    ) -> Self {
        Self {
            at,
            owner: row.owner.clone(),
            action: action.to_owned(),
            session_id: row.session_id.clone(),
            execution_id: Some(row.id.clone()),
            detail: bounded(detail),
        }
    }
}

/// Stored entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    /// Increases with each row; may have gaps.
    pub seq: i64,
    pub entry: AuditEntry,
}

/// Filter of rows; all given fields must match.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    pub owner: Option<String>,
    pub session_id: Option<String>,
    pub action: Option<String>,
    pub since: Option<Timestamp>,
    /// Exclusive.
    pub until: Option<Timestamp>,
    /// Only rows with a lower `seq`, to continue a list.
    pub before: Option<i64>,
}

impl Store {
    pub async fn append_audit(&self, entry: &AuditEntry) -> Result<(), StoreError> {
        let trail = self.trail();
        let mut unit = vec![records::appended(entry, trail)];
        unit.extend(Days::default().audit(entry).counted(trail));
        self.write(unit).await.map(drop)
    }

    /// Rows that match a filter, latest first.
    pub async fn audit(
        &self,
        filter: &AuditFilter,
        limit: u32,
    ) -> Result<Vec<AuditRow>, StoreError> {
        let mut conditions = Conditions::default();
        let texts = [
            ("owner = $", &filter.owner),
            ("session_id = $", &filter.session_id),
            ("action = $", &filter.action),
        ];
        for (condition, text) in texts {
            if let Some(text) = text {
                conditions.add(condition, text.as_str().into());
            }
        }
        if let Some(since) = filter.since {
            conditions.add("at >= $", Value::time(since));
        }
        if let Some(until) = filter.until {
            conditions.add("at < $", Value::time(until));
        }
        if let Some(before) = filter.before {
            conditions.add("seq < $", before.into());
        }
        let select = "SELECT seq, at, owner, action, session_id, execution_id, detail FROM audit";
        let (sql, values) = conditions.finish(select, "ORDER BY seq DESC", limit);
        self.read_all(rows(sql, values), audit_of).await
    }
}

fn audit_of(mut row: Row) -> Result<AuditRow, StoreError> {
    let seq = row.number()?;
    let entry = AuditEntry {
        at: row.time()?,
        owner: row.text()?,
        action: row.text()?,
        session_id: row.text_maybe()?,
        execution_id: row.text_maybe()?,
        detail: row.text()?,
    };
    Ok(AuditRow { seq, entry })
}

/// Shortens a detail to its limits: first names, then lists, as far as needed. Each cut is marked
/// in its place.
pub(crate) fn bounded(detail: &Json) -> String {
    for items_max in [usize::MAX, 100, 30, 10, 3, 0] {
        let text = shortened(detail, items_max, NAME_CHARS_MAX).to_string();
        if text.len() <= DETAIL_BYTES_MAX {
            return text;
        }
    }
    json!({ "left_out": "the whole detail was too long" }).to_string()
}

fn shortened(value: &Json, items_max: usize, chars_max: usize) -> Json {
    match value {
        Json::String(text) => match text.char_indices().nth(chars_max) {
            Some((end, _)) => json!(format!("{}…", text.get(..end).unwrap_or_default())),
            None => value.clone(),
        },
        Json::Array(items) => {
            let kept = items.iter().take(items_max);
            let mut kept: Vec<Json> =
                kept.map(|item| shortened(item, items_max, chars_max)).collect();
            let more = items.len() - kept.len();
            if more > 0 {
                kept.push(json!({ "left_out": more }));
            }
            Json::Array(kept)
        }
        Json::Object(members) => {
            let member = |(name, value): (&String, &Json)| {
                let is_sentence = matches!(name.as_str(), "message" | "reason");
                let chars_max = if is_sentence { SENTENCE_CHARS_MAX } else { chars_max };
                (name.clone(), shortened(value, items_max, chars_max))
            };
            Json::Object(members.iter().map(member).collect())
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{DETAIL_BYTES_MAX, bounded};

    #[test]
    fn names_and_lists_are_cut_and_it_is_said() {
        let long = "é".repeat(1_000);
        let names: Vec<String> = (0..1_000).map(|number| format!("{number}{long}")).collect();
        let detail = json!({
            "error": long, "message": long, "files": { "added": names, "deleted": ["a"] },
        });
        let text = bounded(&detail);
        assert!(text.len() <= DETAIL_BYTES_MAX, "{}", text.len());
        let cut: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(cut["error"].as_str().unwrap().chars().count(), 201);
        assert_eq!(cut["message"].as_str().unwrap().chars().count(), 501);
        let added = cut["files"]["added"].as_array().unwrap();
        assert_eq!(added.last().unwrap()["left_out"].as_u64().unwrap(), 1_001 - added.len() as u64);
        assert_eq!(cut["files"]["deleted"], json!(["a"]));
        let small = json!({ "outcome": "completed", "files": { "added": ["a.csv"] } });
        assert_eq!(bounded(&small), small.to_string());
        let wide: serde_json::Map<String, Value> =
            (0..5_000).map(|number| (number.to_string(), json!(number))).collect();
        assert!(bounded(&Value::Object(wide)).contains("too long"));
    }
}
