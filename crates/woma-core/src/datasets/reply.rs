//! Replies of the cells that load and query. They are hostile: the file that a cell reads may have
//! taken it over. Texts and lists are cut here, and nothing in a reply decides what the server does
//! besides what is shown to the caller itself.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::Error;
use crate::model::{
    BadRows, ColumnStatistics, Cut, DatasetColumn, DatasetError, DatasetProblem, QueryInfo,
};

/// Longest message, note and cell of a preview, in characters.
const MESSAGE_CHARS_MAX: usize = 2_000;
const NOTE_CHARS_MAX: usize = 500;
const CELL_CHARS_MAX: usize = 500;
/// Longest name and type of a column, in characters.
const COLUMN_CHARS_MAX: usize = 256;
/// Most columns of a dataset.
pub(crate) const COLUMNS_MAX: usize = 4_096;
const NOTES_MAX: usize = 20;
const SAMPLES_MAX: usize = 10;
const TOP_MAX: usize = 10;

/// Reply to a load.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Loaded {
    pub(crate) format: String,
    pub(crate) rows: u64,
    pub(crate) column_count: u64,
    pub(crate) columns: Vec<DatasetColumn>,
    pub(crate) encoding: Option<String>,
    pub(crate) delimiter: Option<String>,
    pub(crate) sheet: Option<Value>,
    pub(crate) preview: Vec<Map<String, Value>>,
    pub(crate) bad_rows: BadRows,
    pub(crate) notes: Vec<String>,
    pub(crate) renamed: BTreeMap<String, String>,
}

/// Reply to a query.
#[derive(Debug, Deserialize)]
pub(crate) struct Queried {
    #[serde(default)]
    columns: Vec<DatasetColumn>,
    row_count: u64,
    limit: u64,
    offset: u64,
    has_more: bool,
    total: Option<u64>,
    cut: Option<Cut>,
    #[serde(default)]
    notes: Vec<String>,
}

/// Reply to a description.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Described {
    pub(crate) columns: Vec<ColumnStatistics>,
    pub(crate) samples: Vec<Map<String, Value>>,
    pub(crate) notes: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Failure {
    code: String,
    message: String,
    hint: Option<String>,
}

/// Reads a reply, which may be an error of the request.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    let value: Value = serde_json::from_str(text).map_err(|error| unreadable(&error))?;
    if let Some(failure) = value.get("error") {
        let failure: Failure =
            serde_json::from_value(failure.clone()).map_err(|error| unreadable(&error))?;
        return Err(failure.into());
    }
    serde_json::from_value(value).map_err(|error| unreadable(&error))
}

fn unreadable(error: &serde_json::Error) -> Error {
    tracing::warn!(%error, "The reply about a dataset cannot be read");
    let message = "the query engine gave no usable reply";
    DatasetError::new(DatasetProblem::Engine, message).into()
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let problem = match failure.code.as_str() {
            "bad_sql" => DatasetProblem::BadSql,
            "unknown_dataset" => DatasetProblem::Unknown,
            "not_read_only" => DatasetProblem::NotReadOnly,
            "bad_file" => DatasetProblem::BadFile,
            "too_large" => DatasetProblem::TooLarge,
            "unsupported_format" => DatasetProblem::Unsupported,
            "no_rows" => DatasetProblem::Empty,
            "out_of_memory" => DatasetProblem::OutOfMemory,
            _ => DatasetProblem::Engine,
        };
        let error = DatasetError::new(problem, cut(&failure.message, MESSAGE_CHARS_MAX));
        match failure.hint {
            Some(hint) => error.with_hint(cut(&hint, NOTE_CHARS_MAX)).into(),
            None => error.into(),
        }
    }
}

impl Loaded {
    /// Within the bounds of what is stored and shown.
    pub(crate) fn bounded(mut self) -> Result<Self, Error> {
        let count = self.column_count.max(self.columns.len() as u64);
        self.column_count = count;
        if count > COLUMNS_MAX as u64 {
            let message = format!("the file has {count} columns; at most {COLUMNS_MAX} are loaded");
            return Err(DatasetError::new(DatasetProblem::TooLarge, message).into());
        }
        self.format = cut(&self.format, COLUMN_CHARS_MAX);
        self.columns = columns(self.columns);
        self.encoding = self.encoding.map(|text| cut(&text, COLUMN_CHARS_MAX));
        self.delimiter = self.delimiter.map(|text| cut(&text, COLUMN_CHARS_MAX));
        self.preview = samples(self.preview);
        self.notes = notes(&self.notes);
        self.bad_rows.samples.truncate(SAMPLES_MAX);
        for bad in &mut self.bad_rows.samples {
            bad.reason = cut(&bad.reason, NOTE_CHARS_MAX);
            bad.text = cut(&bad.text, NOTE_CHARS_MAX);
        }
        let renamed = self.renamed.into_iter().take(COLUMNS_MAX);
        let name = |text: String| cut(&text, COLUMN_CHARS_MAX);
        self.renamed = renamed.map(|(old, new)| (name(old), name(new))).collect();
        Ok(self)
    }

    /// The sheet as text: a name or a number.
    pub(crate) fn sheet(&self) -> Option<String> {
        match self.sheet.as_ref()? {
            Value::String(name) => Some(cut(name, COLUMN_CHARS_MAX)),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }
}

impl Queried {
    pub(crate) fn bounded(self) -> QueryInfo {
        let Self { row_count, limit, offset, has_more, total, cut, .. } = self;
        let columns = columns(self.columns.into_iter().take(COLUMNS_MAX).collect());
        let notes = notes(&self.notes);
        QueryInfo { columns, row_count, limit, offset, has_more, total, cut, notes }
    }
}

impl Described {
    pub(crate) fn bounded(mut self) -> Self {
        self.columns.truncate(COLUMNS_MAX);
        for column in &mut self.columns {
            column.name = cut(&column.name, COLUMN_CHARS_MAX);
            column.type_name = cut(&column.type_name, COLUMN_CHARS_MAX);
            column.top.truncate(TOP_MAX);
            let ColumnStatistics { min, max, mean, std, q25, q50, q75, .. } = column;
            for value in [min, max, mean, std, q25, q50, q75].into_iter().flatten() {
                shorten(value);
            }
            column.top.iter_mut().for_each(|(value, _)| shorten(value));
        }
        self.samples = samples(self.samples);
        self.notes = notes(&self.notes);
        self
    }
}

fn columns(columns: Vec<DatasetColumn>) -> Vec<DatasetColumn> {
    let bounded = |column: DatasetColumn| DatasetColumn {
        name: cut(&column.name, COLUMN_CHARS_MAX),
        type_name: cut(&column.type_name, COLUMN_CHARS_MAX),
        nullable: column.nullable,
    };
    columns.into_iter().map(bounded).collect()
}

fn samples(rows: Vec<Map<String, Value>>) -> Vec<Map<String, Value>> {
    let bounded = |mut row: Map<String, Value>| {
        row.values_mut().for_each(shorten);
        row
    };
    rows.into_iter().take(SAMPLES_MAX).map(bounded).collect()
}

fn notes(notes: &[String]) -> Vec<String> {
    notes.iter().take(NOTES_MAX).map(|note| cut(note, NOTE_CHARS_MAX)).collect()
}

/// Cuts a long text, also one that is nested.
fn shorten(value: &mut Value) {
    match value {
        Value::String(text) => *text = cut(text, CELL_CHARS_MAX),
        Value::Array(_) | Value::Object(_) => {
            let text = value.to_string();
            if text.chars().count() > CELL_CHARS_MAX {
                *value = cut(&text, CELL_CHARS_MAX).into();
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{CELL_CHARS_MAX, COLUMNS_MAX, Described, Loaded, NOTES_MAX, Queried, read};
    use crate::error::{Code, Error};
    use crate::model::{DatasetError, DatasetProblem};

    fn problem(error: Error) -> DatasetProblem {
        match error {
            Error::Dataset(DatasetError { problem, .. }) => problem,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn an_error_of_the_cell_becomes_one_of_the_request() {
        let text = json!({"error": {"code": "bad_sql", "message": "m".repeat(9_000)}}).to_string();
        let error = read::<Queried>(&text).unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(error.to_string().len() < 3_000);
        let unknown = json!({"error": {"code": "else", "message": "m"}}).to_string();
        assert_eq!(problem(read::<Loaded>(&unknown).unwrap_err()), DatasetProblem::Engine);
    }

    #[test]
    fn replies_that_are_none_are_refused() {
        let deep = format!("{}1{}", "[".repeat(9_000), "]".repeat(9_000));
        for text in ["", "1", "[]", "{}", r#"{"error": 1}"#, r#"{"row_count": -1}"#, &deep] {
            let error = read::<Queried>(text).unwrap_err();
            assert_eq!(problem(error), DatasetProblem::Engine, "{}", text.len());
        }
    }

    #[test]
    fn long_texts_and_lists_are_cut() {
        let row = json!({"a": "x".repeat(10_000), "b": ["y".repeat(10_000)], "c": 1});
        let notes: Vec<String> = (0..1_000).map(|number| number.to_string()).collect();
        let reply = json!({"rows": 1, "preview": vec![row; 99], "notes": notes}).to_string();
        let loaded: Loaded = read::<Loaded>(&reply).unwrap().bounded().unwrap();
        assert_eq!(loaded.notes.len(), NOTES_MAX);
        assert!(loaded.preview.len() < 20);
        for value in ["a", "b"] {
            let text = loaded.preview[0][value].as_str().unwrap();
            assert_eq!(text.chars().count(), CELL_CHARS_MAX + 1, "with the mark of the cut");
        }
        let columns = vec![json!({"name": "a", "type": "INTEGER"}); COLUMNS_MAX + 1];
        let wide = json!({"columns": columns}).to_string();
        let refused = read::<Loaded>(&wide).unwrap().bounded().unwrap_err();
        assert_eq!(problem(refused), DatasetProblem::TooLarge);
        let described = json!({"columns": [{"name": "n".repeat(900), "type": "T"}]}).to_string();
        let described: Described = read::<Described>(&described).unwrap().bounded();
        assert!(described.columns[0].name.chars().count() < 300);
    }
}
