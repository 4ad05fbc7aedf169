//! Accounting of the storage that a caller's records take, per day, in the transaction that writes
//! them: the bytes count against the caller's quota, and a day's audit trail has a limit.
//!
//! Audit rows beyond the limit are counted, not written. One row says that the limit was reached;
//! after the end of the day another one says how much was left out.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::statement::{Statement, Value, change, rows};
use super::{AuditEntry, ExecutionRow, Store, StoreError};

/// Bytes of a row without its texts, including index entries.
const ROW_BYTES: u64 = 200;
/// As [`ROW_BYTES`], of an audit row, which has a place in a chain.
const AUDIT_ROW_BYTES: u64 = 370;
const DAY_MICROSECONDS: i64 = 24 * 3600 * 1_000_000;
/// Action of the row that reports a reached daily limit.
pub const AUDIT_LIMITED: &str = "audit_limited";
/// Action of the row that reports how much of a day was left out.
pub const AUDIT_LEFT_OUT: &str = "audit_left_out";

const APPEND: &str = "INSERT INTO audit (at, owner, action, session_id, execution_id, detail, \
     chain, position, hash) SELECT $1, $2, $3, $4, $5, $6, $9, $10, $11 \
     WHERE COALESCE((SELECT audit_bytes FROM record_days \
     WHERE owner = $2 AND day = $7), 0) < $8";
const COUNT: &str = "INSERT INTO record_days (owner, day, audit_bytes, execution_bytes, \
     left_out_rows, left_out_bytes, is_limit_told, told_rows) VALUES ($1, $2, $3, $4, 0, 0, 0, 0) \
     ON CONFLICT (owner, day) DO UPDATE SET \
     audit_bytes = record_days.audit_bytes + \
     CASE WHEN record_days.audit_bytes < $5 THEN $3 ELSE 0 END, \
     execution_bytes = record_days.execution_bytes + $4, \
     left_out_rows = record_days.left_out_rows + \
     CASE WHEN record_days.audit_bytes < $5 THEN 0 ELSE $6 END, \
     left_out_bytes = record_days.left_out_bytes + \
     CASE WHEN record_days.audit_bytes < $5 THEN 0 ELSE $3 END";
const REPORT_LIMIT: &str = "INSERT INTO audit (at, owner, action, session_id, execution_id, detail, \
     chain, position, hash) SELECT $1, $2, $3, $4, $5, $6, $8, $9, $10 FROM record_days \
     WHERE owner = $2 AND day = $7 AND left_out_rows > 0 AND is_limit_told = 0";
const LIMIT_REPORTED: &str = "UPDATE record_days SET is_limit_told = 1 \
     WHERE owner = $1 AND day = $2 AND left_out_rows > 0 AND is_limit_told = 0";
const LEFT_OUT: &str = "SELECT owner, day, left_out_rows, left_out_bytes, told_rows \
     FROM record_days WHERE left_out_rows > told_rows AND day < $1 ORDER BY owner, day LIMIT 1000";
const LEFT_OUT_REPORTED: &str = "UPDATE record_days SET told_rows = $3 \
     WHERE owner = $1 AND day = $2 AND left_out_rows = $3 AND told_rows = $4";

pub(super) fn day_of(at: Timestamp) -> i64 {
    at.as_microsecond().div_euclid(DAY_MICROSECONDS)
}

/// Destination of audit rows: the chain, and the limit of one caller and day in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trail<'a> {
    pub(super) chain: &'a str,
    pub(super) limit: i64,
}

impl Trail<'_> {
    /// The same chain without a limit, for rows about the trail itself.
    pub(super) fn unlimited(self) -> Self {
        Self { limit: i64::MAX, ..self }
    }
}

/// Inserts an audit row unless the daily limit is reached.
pub(super) fn appended(entry: &AuditEntry, trail: Trail<'_>) -> Statement {
    let mut values = columns(entry);
    values.extend([day_of(entry.at).into(), trail.limit.into()]);
    change(APPEND, values).in_chain(trail.chain)
}

/// The columns of an entry, in the order in which they are hashed.
pub(super) fn columns(entry: &AuditEntry) -> Vec<Value> {
    vec![
        Value::time(entry.at),
        entry.owner.as_str().into(),
        entry.action.as_str().into(),
        Value::text_maybe(entry.session_id.as_deref()),
        Value::text_maybe(entry.execution_id.as_deref()),
        entry.detail.as_str().into(),
    ]
}

/// An entry about the trail itself.
pub(super) fn of_trail(at: Timestamp, owner: &str, action: &str, detail: String) -> AuditEntry {
    let (owner, action) = (owner.to_owned(), action.to_owned());
    AuditEntry { at, owner, action, session_id: None, execution_id: None, detail }
}

/// Bytes that one transaction adds, by owner and day.
#[derive(Debug, Default)]
pub(super) struct Days<'a>(BTreeMap<(&'a str, i64), Day>);

#[derive(Debug, Default)]
struct Day {
    audit_rows: u64,
    audit_bytes: u64,
    execution_bytes: u64,
    last: Timestamp,
}

impl<'a> Days<'a> {
    pub(super) fn audit(mut self, entry: &'a AuditEntry) -> Self {
        let day = self.0.entry((entry.owner.as_str(), day_of(entry.at))).or_default();
        let ids = [&entry.session_id, &entry.execution_id].into_iter().flatten();
        let ids: usize = ids.map(String::len).sum();
        let texts = entry.owner.len() + entry.action.len() + entry.detail.len() + ids;
        day.audit_rows += 1;
        day.audit_bytes += AUDIT_ROW_BYTES + texts as u64;
        day.last = entry.at;
        self
    }

    pub(super) fn execution(mut self, row: &'a ExecutionRow) -> Self {
        let at = row.ended_at.unwrap_or(row.started_at);
        let day = self.0.entry((row.owner.as_str(), day_of(at))).or_default();
        let code = row.code_text.as_ref().map_or(0, String::len);
        let client = row.client.as_ref().map_or(0, String::len);
        day.execution_bytes += 2 * ROW_BYTES + (row.owner.len() + code + client) as u64;
        day.last = at;
        self
    }

    /// Statements to run after the rows themselves, in the same transaction.
    pub(super) fn counted(self, trail: Trail<'a>) -> impl Iterator<Item = Statement> {
        let limit = trail.limit;
        self.0.into_iter().flat_map(move |((owner, day), added)| {
            let number = |bytes: u64| Value::from(i64::try_from(bytes).unwrap_or(i64::MAX));
            let count = vec![
                owner.into(),
                day.into(),
                number(added.audit_bytes),
                number(added.execution_bytes),
                limit.into(),
                number(added.audit_rows),
            ];
            let detail = format!("{{\"limit_bytes\":{limit}}}");
            let mut report = columns(&of_trail(added.last, owner, AUDIT_LIMITED, detail));
            report.push(day.into());
            [
                change(COUNT, count),
                change(REPORT_LIMIT, report).in_chain(trail.chain),
                change(LIMIT_REPORTED, vec![owner.into(), day.into()]),
            ]
        })
    }
}

impl Store {
    /// Reports the left-out rows of past days in the trail; returns the number of reports.
    pub async fn tell_left_out(&self, now: Timestamp) -> Result<u64, StoreError> {
        let mut told = 0;
        for mut row in self.read(rows(LEFT_OUT, vec![day_of(now).into()])).await? {
            let (owner, day) = (row.text()?, row.number()?);
            let (left_out, bytes, before) = (row.number()?, row.number()?, row.number()?);
            let detail = format!(
                "{{\"day\":{day},\"rows\":{},\"rows_of_the_day\":{left_out},\
                 \"bytes_of_the_day\":{bytes}}}",
                left_out - before
            );
            let entry = of_trail(now, &owner, AUDIT_LEFT_OUT, detail);
            let reported = vec![owner.as_str().into(), day.into(), left_out.into(), before.into()];
            let unit = vec![
                appended(&entry, self.trail().unlimited()),
                change(LEFT_OUT_REPORTED, reported).or_else(StoreError::Conflict),
            ];
            match self.write(unit).await {
                Ok(_) => told += 1,
                // Another server has told it.
                Err(StoreError::Conflict) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(told)
    }
}
