//! Datasets: tables of a caller, loaded from files and queried with SQL.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::SessionId;

/// Longest name of a dataset, in characters; all of them are ASCII.
pub(crate) const NAME_CHARS_MAX: usize = 63;

/// Name of a dataset: an identifier of SQL, compared without case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DatasetName(String);

impl DatasetName {
    pub fn parse(text: &str) -> Result<Self, DatasetError> {
        let text = text.trim();
        let is_start = |c: char| c.is_ascii_alphabetic() || c == '_';
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if text.starts_with(is_start) && text.chars().all(is_part) && text.len() <= NAME_CHARS_MAX {
            return Ok(Self(text.to_owned()));
        }
        let shown: String = text.chars().take(NAME_CHARS_MAX).collect();
        let message = format!("`{shown}` cannot be the name of a dataset");
        let hint = format!(
            "use up to {NAME_CHARS_MAX} letters, digits and `_`, and no digit at the beginning{}",
            Self::near(text).map(|near| format!(", such as `{near}`")).unwrap_or_default()
        );
        Err(DatasetError::new(DatasetProblem::BadName, message).with_hint(hint))
    }

    /// A name for the dataset of a file: its own name, with `_` for what a name cannot have.
    pub fn of_file(path: &str) -> Result<Self, DatasetError> {
        let name = path.rsplit('/').next().unwrap_or(path);
        let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
        Self::near(stem).map_or_else(|| Self::parse(stem), |near| Self::parse(&near))
    }

    fn near(text: &str) -> Option<String> {
        let part = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let near: String = text.chars().map(part).take(NAME_CHARS_MAX - 1).collect();
        let near = near.trim_matches('_');
        match near.chars().next()? {
            first if first.is_ascii_digit() => Some(format!("_{near}")),
            _ => Some(near.to_owned()),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DatasetName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A column of a dataset or of a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetColumn {
    pub name: String,
    #[serde(rename = "type")]
    pub type_name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nullable: Option<bool>,
}

/// A dataset, as its owner sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetInfo {
    pub id: Uuid,
    pub name: String,
    pub format: String,
    pub row_count: u64,
    pub column_count: u64,
    pub size_bytes: u64,
    /// Of very wide tables, the first ones.
    pub columns: Vec<DatasetColumn>,
    /// The session and the file that it was loaded from.
    pub session: Option<String>,
    pub source: Option<String>,
    pub created_at: Timestamp,
}

impl DatasetInfo {
    /// Another name of the table in SQL, which stays the same for this version.
    pub fn table_name(&self) -> String {
        table_name(self.id)
    }
}

pub(crate) fn table_name(id: Uuid) -> String {
    format!("data_{}", id.simple())
}

/// A file of a session to be loaded.
#[derive(Debug, Clone)]
pub struct LoadDataset {
    pub session: SessionId,
    pub path: String,
    /// Without a name, that of the file.
    pub name: Option<String>,
    /// Inferred from name and content if not given, as are the following.
    pub format: Option<String>,
    pub delimiter: Option<String>,
    pub encoding: Option<String>,
    pub header: Option<bool>,
    pub sheet: Option<String>,
    pub pages: Option<String>,
    /// Seconds; the server's default if none.
    pub timeout: Option<f64>,
}

/// Lines of a file that are no rows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BadRows {
    pub count: u64,
    pub samples: Vec<BadRow>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BadRow {
    pub line: Option<u64>,
    pub reason: String,
    pub text: String,
}

/// A dataset that was loaded, and how its file was understood.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedDataset {
    pub info: DatasetInfo,
    pub replaced: bool,
    pub preview: Vec<Map<String, Value>>,
    pub encoding: Option<String>,
    pub delimiter: Option<String>,
    pub sheet: Option<String>,
    pub renamed: BTreeMap<String, String>,
    pub bad_rows: BadRows,
    pub notes: Vec<String>,
}

/// Form of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QueryFormat {
    #[default]
    Json,
    Csv,
    Parquet,
    Arrow,
}

impl QueryFormat {
    pub const ALL: [Self; 4] = [Self::Json, Self::Csv, Self::Parquet, Self::Arrow];

    pub fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Parquet => "parquet",
            Self::Arrow => "arrow",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| text.eq_ignore_ascii_case(format.name()))
    }

    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Csv => "text/csv; charset=utf-8",
            Self::Parquet => "application/vnd.apache.parquet",
            Self::Arrow => "application/vnd.apache.arrow.file",
        }
    }
}

/// One statement of SQL that reads.
#[derive(Debug, Clone, Default)]
pub struct QueryDatasets {
    pub sql: String,
    /// A list, or an object of names and values.
    pub parameters: Option<Value>,
    pub limit: Option<u64>,
    pub offset: u64,
    /// Without one, by the name of the file that takes the result, or JSON.
    pub format: Option<QueryFormat>,
    /// Whether the reply says how many rows there are in all.
    pub count: bool,
    /// Seconds; the server's default if none.
    pub timeout: Option<f64>,
    /// Puts the result into a file of this session instead of the reply.
    pub save: Option<SaveResult>,
}

/// A file of a session that takes a result.
#[derive(Debug, Clone)]
pub struct SaveResult {
    pub session: SessionId,
    pub path: String,
}

/// Limit that cut a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cut {
    Rows,
    Bytes,
}

/// Properties of a result, without its rows.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryInfo {
    pub columns: Vec<DatasetColumn>,
    pub row_count: u64,
    pub limit: u64,
    pub offset: u64,
    pub has_more: bool,
    pub total: Option<u64>,
    pub cut: Option<Cut>,
    pub notes: Vec<String>,
}

/// A result.
#[derive(Debug)]
pub struct QueryResult {
    pub info: QueryInfo,
    pub output: QueryOutput,
}

#[derive(Debug)]
pub enum QueryOutput {
    /// One list of values for each row.
    Rows(Vec<Vec<Value>>),
    /// The result in another format; the file has no name any more.
    File {
        file: File,
        size_bytes: u64,
    },
    Saved {
        session: SessionId,
        path: String,
        size_bytes: u64,
        replaced: bool,
    },
}

/// Statistics of a dataset.
#[derive(Debug, Clone, PartialEq)]
pub struct DatasetDescription {
    pub info: DatasetInfo,
    pub columns: Vec<ColumnStatistics>,
    pub samples: Vec<Map<String, Value>>,
    pub notes: Vec<String>,
}

/// Statistics of one column. Values are texts or numbers, as the column has them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ColumnStatistics {
    pub name: String,
    #[serde(rename = "type")]
    pub type_name: String,
    pub nulls: Option<u64>,
    /// Approximate.
    pub distinct: Option<u64>,
    pub min: Option<Value>,
    pub max: Option<Value>,
    pub mean: Option<Value>,
    pub std: Option<Value>,
    pub q25: Option<Value>,
    pub q50: Option<Value>,
    pub q75: Option<Value>,
    /// The most frequent values, with their counts.
    pub top: Vec<(Value, u64)>,
}

/// Reasons why a dataset cannot be loaded, queried or described.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatasetProblem {
    BadName,
    Unknown,
    BadSql,
    NotReadOnly,
    BadFile,
    Unsupported,
    Empty,
    TooLarge,
    TooMany,
    OutOfMemory,
    TimedOut,
    /// The engine is missing in the environment, or has failed.
    Engine,
}

/// A request about datasets that could not be served. The message is for people and models.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DatasetError {
    pub problem: DatasetProblem,
    pub message: String,
    pub hint: Option<String>,
}

impl DatasetError {
    pub(crate) fn new(problem: DatasetProblem, message: impl Into<String>) -> Self {
        Self { problem, message: message.into(), hint: None }
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// A dataset that the caller does not have.
    pub(crate) fn unknown(name: &str) -> Self {
        let shown: String = name.chars().take(NAME_CHARS_MAX).collect();
        Self::new(DatasetProblem::Unknown, format!("there is no dataset `{shown}`"))
            .with_hint("`list_datasets` shows those that exist; `load_dataset` makes one")
    }
}

#[cfg(test)]
mod tests {
    use super::{DatasetName, NAME_CHARS_MAX};

    #[test]
    fn names_are_identifiers_of_sql() {
        for good in ["sales", "_x", "Sales_2024", " padded ", &"a".repeat(NAME_CHARS_MAX)] {
            assert!(DatasetName::parse(good).is_ok(), "{good}");
        }
        let long = "a".repeat(NAME_CHARS_MAX + 1);
        for bad in ["", "2024", "a-b", "a b", "a.b", "../a", "ü", "a;drop", "a\0", &long] {
            assert!(DatasetName::parse(bad).is_err(), "{bad}");
        }
        let error = DatasetName::parse("q1 sales").unwrap_err();
        assert!(error.hint.unwrap().contains("`q1_sales`"));
    }

    #[test]
    fn a_file_gives_its_dataset_a_name() {
        for (path, name) in [
            ("sales.csv", "sales"),
            ("a/b/Q1 report.final.xlsx", "Q1_report_final"),
            ("2024.csv", "_2024"),
            ("-x-.parquet", "x"),
        ] {
            assert_eq!(DatasetName::of_file(path).unwrap().as_str(), name);
        }
        assert!(DatasetName::of_file("….csv").is_err());
    }
}
