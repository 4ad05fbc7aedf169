//! SQL statement with its values, in the dialect that both databases share.
//!
//! Parameters are written `$1` as in `PostgreSQL`; `SQLite` gets `?1`, so a `$` may mean nothing
//! else. Values are numbers, text and bytes; a time is microseconds since 1970 in UTC, a boolean is
//! 0 or 1, and JSON is text.

use std::borrow::Cow;

use jiff::Timestamp;

use super::StoreError;

/// Value of a column. NULL has a type too, because `PostgreSQL` requires one.
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

    pub(crate) fn boolean(is: bool) -> Self {
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

/// Replaces NUL characters: `PostgreSQL` rejects them, and both databases must store the same.
fn storable(text: &str) -> String {
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text.to_owned() }
}

#[derive(Debug, Clone)]
pub(crate) struct Statement {
    pub(super) sql: Cow<'static, str>,
    pub(super) values: Vec<Value>,
    /// Returns rows, not only the number of changed rows.
    pub(super) has_rows: bool,
    /// Error if no row is affected; it rolls the whole unit back.
    pub(super) or_else: Option<StoreError>,
    /// Chain of the audit trail that its row is appended to. The first values are the columns that
    /// are hashed; chain, position and hash are added when it runs.
    pub(super) chain: Option<String>,
}

/// Statement that changes rows.
pub(crate) fn change(sql: impl Into<Cow<'static, str>>, values: Vec<Value>) -> Statement {
    Statement { sql: sql.into(), values, has_rows: false, or_else: None, chain: None }
}

/// Statement that returns rows.
pub(crate) fn rows(sql: impl Into<Cow<'static, str>>, values: Vec<Value>) -> Statement {
    Statement { sql: sql.into(), values, has_rows: true, or_else: None, chain: None }
}

impl Statement {
    /// Makes it an error that no row is affected.
    pub(crate) fn or_else(mut self, error: StoreError) -> Self {
        self.or_else = Some(error);
        self
    }

    /// Makes an insertion leave a row that exists as it is, by the columns of its key.
    pub(super) fn or_keep(mut self, key: &str) -> Self {
        self.sql = format!("{} ON CONFLICT ({key}) DO NOTHING", self.sql).into();
        self
    }

    /// Makes it append to a chain of the audit trail.
    pub(super) fn in_chain(mut self, chain: &str) -> Self {
        self.chain = Some(chain.to_owned());
        self
    }

    /// Returns the answer, or the error of [`Statement::or_else`] if it is empty.
    pub(super) fn check(&self, answer: Answer) -> Result<Answer, StoreError> {
        match &self.or_else {
            Some(error) if answer.touched == 0 && answer.rows.is_empty() => Err(error.clone()),
            _ => Ok(answer),
        }
    }
}

/// Builder of a `WHERE` clause for filtered lists.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    pub(super) text: String,
    values: Vec<Value>,
}

impl Conditions {
    /// Adds a condition that ends with `$`; the number of its parameter is appended.
    pub(super) fn add(&mut self, condition: &str, value: Value) {
        self.values.push(value);
        self.text.push_str(if self.text.is_empty() { " WHERE " } else { " AND " });
        self.text.push_str(condition);
        self.text.push_str(&self.values.len().to_string());
    }

    pub(super) fn finish(mut self, select: &str, order: &str, limit: u32) -> (String, Vec<Value>) {
        self.values.push(i64::from(limit).into());
        let number = self.values.len();
        (format!("{select}{} {order} LIMIT ${number}", self.text), self.values)
    }
}

/// Result of one statement.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) touched: u64,
    pub(crate) rows: Vec<Row>,
}

/// Row whose columns are read in order.
#[derive(Debug)]
pub(crate) struct Row(std::vec::IntoIter<Value>);

impl Row {
    pub(super) fn new(values: Vec<Value>) -> Self {
        Self(values.into_iter())
    }

    pub(crate) fn text_maybe(&mut self) -> Result<Option<String>, StoreError> {
        match self.0.next() {
            Some(Value::Text(text)) => Ok(text),
            // SQLite does not report the type of a NULL.
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

    pub(crate) fn boolean(&mut self) -> Result<bool, StoreError> {
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
        .map_err(|_| StoreError::Corrupt(format!("{microseconds} is not a valid time")))
}

/// Error with the types only: stored values must not appear in a log.
fn unexpected(wanted: &str, found: Option<&Value>) -> StoreError {
    let found = match found {
        None => "nothing",
        Some(Value::Number(_)) => "a number",
        Some(Value::Text(_)) => "text",
        Some(Value::Bytes(_)) => "bytes",
    };
    StoreError::Corrupt(format!("a column holds {found} instead of {wanted}"))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::{Answer, Conditions, Row, StoreError, Value, change, rows};

    fn row(value: Value) -> Row {
        Row::new(vec![value])
    }

    fn corrupt(found: &str, wanted: &str) -> StoreError {
        StoreError::Corrupt(format!("a column holds {found} instead of {wanted}"))
    }

    #[test]
    fn values_are_written_as_numbers_and_text() {
        let at = Timestamp::from_microsecond(1_234_567).unwrap();
        let table = [
            (Value::time(at), Value::Number(Some(1_234_567))),
            (Value::time_maybe(Some(at)), Value::Number(Some(1_234_567))),
            (Value::time_maybe(None), Value::Number(None)),
            (Value::text_maybe(Some("a\0b")), Value::Text(Some("a\u{fffd}b".to_owned()))),
            (Value::text_maybe(None), Value::Text(None)),
            (Value::from("plain"), Value::Text(Some("plain".to_owned()))),
            (Value::from(-7), Value::Number(Some(-7))),
            (Value::count(7), Value::Number(Some(7))),
            (Value::count(u64::MAX), Value::Number(Some(i64::MAX))),
            (Value::count_maybe(Some(7)), Value::Number(Some(7))),
            (Value::count_maybe(None), Value::Number(None)),
            (Value::boolean(true), Value::Number(Some(1))),
            (Value::boolean(false), Value::Number(Some(0))),
        ];
        for (value, stored) in table {
            assert_eq!(value, stored);
        }
    }

    #[test]
    fn columns_are_read_in_order_with_their_types() {
        let at = Timestamp::from_microsecond(1_234_567).unwrap();
        let values = ["first", "second"].map(Value::from).into_iter();
        let mut row = Row::new(
            values
                .chain([Value::Number(Some(-3)), Value::count(4), Value::count(5)])
                .chain([Value::boolean(true), Value::boolean(false), Value::Number(Some(-6))])
                .chain([Value::time(at), Value::time(at), Value::Bytes(Some(vec![1, 2]))])
                .collect(),
        );
        assert_eq!(row.text(), Ok("first".to_owned()));
        assert_eq!(row.text_maybe(), Ok(Some("second".to_owned())));
        assert_eq!(row.number(), Ok(-3));
        assert_eq!(row.count(), Ok(4));
        assert_eq!(row.count_maybe(), Ok(Some(5)));
        assert_eq!((row.boolean(), row.boolean()), (Ok(true), Ok(false)));
        assert_eq!(row.count(), Ok(0), "a count is not negative");
        assert_eq!((row.time(), row.time_maybe()), (Ok(at), Ok(Some(at))));
        assert_eq!(row.bytes(), Ok(vec![1, 2]));
        assert_eq!(row.text(), Err(corrupt("nothing", "text")));
    }

    #[test]
    fn a_null_of_any_type_is_read_where_it_may_be() {
        let nulls = || [Value::Number(None), Value::Text(None), Value::Bytes(None)].map(row);
        for mut null in nulls() {
            assert_eq!(null.text_maybe(), Ok(None));
        }
        for mut null in nulls() {
            assert_eq!(null.number_maybe(), Ok(None));
        }
        for mut null in nulls() {
            assert_eq!(null.count_maybe(), Ok(None));
        }
        for mut null in nulls() {
            assert_eq!(null.time_maybe(), Ok(None));
        }
        assert_eq!(row(Value::Text(None)).text(), Err(corrupt("nothing", "text")));
        assert_eq!(row(Value::Number(None)).number(), Err(corrupt("nothing", "a number")));
        assert_eq!(row(Value::Bytes(None)).bytes(), Err(corrupt("bytes", "bytes")));
    }

    #[test]
    fn a_column_of_another_type_is_damage_and_its_value_is_not_told() {
        let (number, text) = (Value::Number(Some(1)), Value::from("secret"));
        let bytes = Value::Bytes(Some(b"secret".to_vec()));
        assert_eq!(row(number).text(), Err(corrupt("a number", "text")));
        assert_eq!(row(text.clone()).number(), Err(corrupt("text", "a number")));
        assert_eq!(row(text).bytes(), Err(corrupt("text", "bytes")));
        assert_eq!(row(bytes).text_maybe(), Err(corrupt("bytes", "text")));
        let damaged = StoreError::Corrupt(format!("{} is not a valid time", i64::MAX));
        assert_eq!(row(Value::Number(Some(i64::MAX))).time(), Err(damaged));
    }

    #[test]
    fn an_error_is_chosen_for_an_answer_that_is_empty() {
        let statement = change("UPDATE t", Vec::new()).or_else(StoreError::NotFound);
        let answer = |touched, rows| Answer { touched, rows };
        let checked = |touched, rows| {
            let answer = statement.check(answer(touched, rows))?;
            Ok::<_, StoreError>((answer.touched, answer.rows.len()))
        };
        assert_eq!(checked(0, Vec::new()), Err(StoreError::NotFound));
        assert_eq!(checked(2, Vec::new()), Ok((2, 0)));
        assert_eq!(checked(0, vec![row(Value::boolean(true))]), Ok((0, 1)));
        let plain = rows("SELECT 1", Vec::new());
        assert!(plain.has_rows && !statement.has_rows);
        assert_eq!(plain.check(answer(0, Vec::new())).unwrap().touched, 0);
    }

    #[test]
    fn conditions_are_joined_and_numbered() {
        let finish = |conditions: Conditions| conditions.finish("SELECT a FROM t", "ORDER BY a", 9);
        let (sql, values) = finish(Conditions::default());
        assert_eq!(sql, "SELECT a FROM t ORDER BY a LIMIT $1");
        assert_eq!(values, [Value::from(9)]);
        let mut conditions = Conditions::default();
        conditions.add("a = $", Value::from("x"));
        conditions.add("b > $", Value::from(3));
        let (sql, values) = finish(conditions);
        assert_eq!(sql, "SELECT a FROM t WHERE a = $1 AND b > $2 ORDER BY a LIMIT $3");
        assert_eq!(values, [Value::from("x"), Value::from(3), Value::from(9)]);
    }
}
