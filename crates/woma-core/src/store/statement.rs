//! One piece of SQL with its values, in words that both databases understand.
//!
//! Places of values are written `$1`, as `PostgreSQL` has them; `SQLite`'s are `?1`, and a `$`
//! stands for nothing else. Values are numbers, text and bytes; a time is microseconds since 1970 in
//! UTC, a truth is 0 or 1, and JSON is text.

use std::borrow::Cow;

use jiff::Timestamp;

use super::StoreError;

/// A value as a column holds it. The kind is known of a missing one too: `PostgreSQL` asks for it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Number(Option<i64>),
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
}

impl Value {
    pub(crate) fn time(at: Timestamp) -> Self {
        Self::Number(Some(at.as_microsecond()))
    }

    pub(crate) fn time_maybe(at: Option<Timestamp>) -> Self {
        Self::Number(at.map(Timestamp::as_microsecond))
    }

    pub(crate) fn text_maybe(text: Option<&str>) -> Self {
        Self::Text(text.map(storable))
    }

    pub(crate) fn count(count: u64) -> Self {
        Self::Number(Some(i64::try_from(count).unwrap_or(i64::MAX)))
    }

    pub(crate) fn count_maybe(count: Option<u64>) -> Self {
        Self::Number(count.map(|count| i64::try_from(count).unwrap_or(i64::MAX)))
    }

    pub(crate) fn truth(is: bool) -> Self {
        Self::Number(Some(i64::from(is)))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(Some(storable(text)))
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(Some(number))
    }
}

/// `PostgreSQL` has no text with a NUL in it; so that both keep the same, neither does.
fn storable(text: &str) -> String {
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text.to_owned() }
}

#[derive(Debug, Clone)]
pub(crate) struct Statement {
    pub(super) sql: Cow<'static, str>,
    pub(super) values: Vec<Value>,
    /// Rows are wanted, not only how many were changed.
    pub(super) has_rows: bool,
    /// What it means that no row was touched; the whole unit is then undone.
    pub(super) or_else: Option<StoreError>,
}

/// A statement that changes rows.
pub(crate) fn change(sql: impl Into<Cow<'static, str>>, values: Vec<Value>) -> Statement {
    Statement { sql: sql.into(), values, has_rows: false, or_else: None }
}

/// A statement that answers with rows.
pub(crate) fn rows(sql: impl Into<Cow<'static, str>>, values: Vec<Value>) -> Statement {
    Statement { sql: sql.into(), values, has_rows: true, or_else: None }
}

impl Statement {
    pub(crate) fn or_else(mut self, error: StoreError) -> Self {
        self.or_else = Some(error);
        self
    }

    /// The answer, or what it means that it is empty.
    pub(super) fn judge(&self, answer: Answer) -> Result<Answer, StoreError> {
        match &self.or_else {
            Some(error) if answer.touched == 0 && answer.rows.is_empty() => Err(error.clone()),
            _ => Ok(answer),
        }
    }
}

/// A `WHERE` that grows, for lists that may be narrowed.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    pub(super) text: String,
    values: Vec<Value>,
}

impl Conditions {
    /// `condition` ends where the number of its value belongs.
    pub(super) fn add(&mut self, condition: &str, value: Value) {
        self.values.push(value);
        self.text.push_str(if self.text.is_empty() { " WHERE " } else { " AND " });
        self.text.push_str(condition);
        self.text.push_str(&self.values.len().to_string());
    }

    pub(super) fn finish(mut self, select: &str, order: &str, limit: u32) -> (String, Vec<Value>) {
        self.values.push(i64::from(limit).into());
        let place = self.values.len();
        (format!("{select}{} {order} LIMIT ${place}", self.text), self.values)
    }
}

/// What one statement did.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) touched: u64,
    pub(crate) rows: Vec<Row>,
}

/// A row, read from its first column to its last.
#[derive(Debug)]
pub(crate) struct Row(std::vec::IntoIter<Value>);

impl Row {
    pub(super) fn new(values: Vec<Value>) -> Self {
        Self(values.into_iter())
    }

    pub(crate) fn text_maybe(&mut self) -> Result<Option<String>, StoreError> {
        match self.0.next() {
            Some(Value::Text(text)) => Ok(text),
            // SQLite does not know of which kind a missing value is.
            Some(Value::Number(None) | Value::Bytes(None)) => Ok(None),
            other => Err(unexpected("text", other.as_ref())),
        }
    }

    pub(crate) fn number_maybe(&mut self) -> Result<Option<i64>, StoreError> {
        match self.0.next() {
            Some(Value::Number(number)) => Ok(number),
            Some(Value::Text(None) | Value::Bytes(None)) => Ok(None),
            other => Err(unexpected("a number", other.as_ref())),
        }
    }

    pub(crate) fn bytes(&mut self) -> Result<Vec<u8>, StoreError> {
        match self.0.next() {
            Some(Value::Bytes(Some(bytes))) => Ok(bytes),
            other => Err(unexpected("bytes", other.as_ref())),
        }
    }

    pub(crate) fn text(&mut self) -> Result<String, StoreError> {
        self.text_maybe()?.ok_or_else(|| unexpected("text", None))
    }

    pub(crate) fn number(&mut self) -> Result<i64, StoreError> {
        self.number_maybe()?.ok_or_else(|| unexpected("a number", None))
    }

    pub(crate) fn count(&mut self) -> Result<u64, StoreError> {
        Ok(u64::try_from(self.number()?).unwrap_or(0))
    }

    pub(crate) fn count_maybe(&mut self) -> Result<Option<u64>, StoreError> {
        Ok(self.number_maybe()?.map(|number| u64::try_from(number).unwrap_or(0)))
    }

    pub(crate) fn truth(&mut self) -> Result<bool, StoreError> {
        Ok(self.number()? != 0)
    }

    pub(crate) fn time(&mut self) -> Result<Timestamp, StoreError> {
        time_of(self.number()?)
    }

    pub(crate) fn time_maybe(&mut self) -> Result<Option<Timestamp>, StoreError> {
        self.number_maybe()?.map(time_of).transpose()
    }
}

fn time_of(microseconds: i64) -> Result<Timestamp, StoreError> {
    Timestamp::from_microsecond(microseconds)
        .map_err(|_| StoreError::Corrupt(format!("{microseconds} is no time")))
}

/// Names kinds only: what is stored is nobody's business in a log.
fn unexpected(wanted: &str, found: Option<&Value>) -> StoreError {
    let found = match found {
        None => "nothing",
        Some(Value::Number(_)) => "a number",
        Some(Value::Text(_)) => "text",
        Some(Value::Bytes(_)) => "bytes",
    };
    StoreError::Corrupt(format!("{wanted} was expected in a column, {found} is there"))
}
