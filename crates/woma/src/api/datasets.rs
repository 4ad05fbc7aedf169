//! Datasets: arguments of their requests, and the replies that describe them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use woma_core::{
    BadRow, Caller, Code, ColumnStatistics, Cut, DatasetColumn, DatasetDescription, DatasetInfo,
    LoadDataset, LoadedDataset, QueryDatasets, QueryFormat, QueryInfo, QueryOutput, SaveResult,
};

use super::arguments::{Arguments, Problem};
use super::error::Envelope;
use super::files::session_to_write;
use super::listing::{ROWS_MAX, page};
use super::schema::session_id_field;
use super::state::AppState;

/// A file of a session to be loaded.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "it describes what is read field by field")]
pub(crate) struct LoadBody {
    /// The file, below the working directory of the session.
    #[schemars(extend("minLength" = 1, "maxLength" = 4096))]
    file_path: String,
    /// Name of the table in SQL; that of the file, if it is left out.
    #[schemars(with = "String", extend("pattern" = "^[A-Za-z_][A-Za-z0-9_]{0,62}$"))]
    dataset_name: Option<String>,
    /// `default`, if it is left out.
    #[schemars(schema_with = "session_id_field")]
    session_id: Option<String>,
    /// Inferred, if it is left out, as are the following: csv, tsv, txt, json, ndjson, xlsx, xls,
    /// xlsm, xlsb, parquet or pdf.
    #[schemars(with = "String")]
    format: Option<String>,
    #[schemars(with = "String")]
    delimiter: Option<String>,
    #[schemars(with = "String")]
    encoding: Option<String>,
    /// Whether the first line has the names of the columns.
    #[schemars(with = "bool")]
    header: Option<bool>,
    /// Name or number of the sheet of a workbook.
    #[schemars(with = "String")]
    sheet: Option<String>,
    /// Pages of a PDF file, such as `1,3-5`.
    #[schemars(with = "String")]
    pages: Option<String>,
    /// Seconds until the load is stopped.
    #[schemars(with = "f64")]
    timeout: Option<f64>,
}

/// One statement of SQL that reads.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "it describes what is read field by field")]
pub(crate) struct QueryBody {
    /// One SELECT statement over the names of datasets.
    #[schemars(extend("minLength" = 1))]
    sql: String,
    /// Values for `?` or `$name`: a list, or an object.
    #[schemars(with = "Value")]
    parameters: Option<Value>,
    /// Rows to return at most: 1000, if it is left out; at most 10000 in a reply.
    #[schemars(with = "u64")]
    limit: Option<u64>,
    /// Rows to skip.
    #[schemars(with = "u64")]
    offset: Option<u64>,
    /// `json`, or the body of the response is `csv`, `parquet` or `arrow`.
    #[schemars(with = "String")]
    format: Option<String>,
    /// Whether the reply has the number of all rows, as `total`.
    #[schemars(with = "bool")]
    count: Option<bool>,
    /// Path of a file in a session that takes the whole result, instead of the reply.
    #[schemars(with = "String")]
    save_as: Option<String>,
    /// Session of that file; `default`, if it is left out.
    #[schemars(schema_with = "session_id_field")]
    session_id: Option<String>,
    /// Seconds until the query is stopped.
    #[schemars(with = "f64")]
    timeout: Option<f64>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ColumnBody {
    pub(crate) name: String,
    /// Type in SQL.
    #[serde(rename = "type")]
    pub(crate) type_name: String,
}

impl From<DatasetColumn> for ColumnBody {
    fn from(column: DatasetColumn) -> Self {
        Self { name: column.name, type_name: column.type_name }
    }
}

/// A dataset.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct DatasetBody {
    pub(crate) dataset_id: String,
    pub(crate) name: String,
    /// Another name in SQL, of this version only.
    pub(crate) table_name: String,
    /// Format of the file that it was loaded from; `code` if a program has registered it.
    pub(crate) format: String,
    pub(crate) row_count: u64,
    pub(crate) column_count: u64,
    pub(crate) size_bytes: u64,
    pub(crate) size_mb: f64,
    pub(crate) created_at: String,
    /// The file that it was loaded from, and its session.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) session_id: Option<String>,
    pub(crate) columns: Vec<ColumnBody>,
}

impl From<DatasetInfo> for DatasetBody {
    fn from(info: DatasetInfo) -> Self {
        Self {
            dataset_id: info.id.to_string(),
            table_name: info.table_name(),
            name: info.name,
            format: info.format,
            row_count: info.row_count,
            column_count: info.column_count,
            size_bytes: info.size_bytes,
            size_mb: megabytes(info.size_bytes),
            created_at: info.created_at.to_string(),
            source: info.source,
            session_id: info.session,
            columns: info.columns.into_iter().map(ColumnBody::from).collect(),
        }
    }
}

fn megabytes(bytes: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let megabytes = bytes as f64 / (1024.0 * 1024.0);
    (megabytes * 1000.0).round() / 1000.0
}

/// A line of a file that is no row.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct BadRowBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    line: Option<u64>,
    reason: String,
    text: String,
}

impl From<BadRow> for BadRowBody {
    fn from(BadRow { line, reason, text }: BadRow) -> Self {
        Self { line, reason, text }
    }
}

/// A dataset that was loaded.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct LoadReply {
    pub(crate) success: bool,
    /// `loaded`.
    pub(crate) status: &'static str,
    #[serde(flatten)]
    pub(crate) dataset: DatasetBody,
    /// A dataset of that name was there before.
    pub(crate) replaced: bool,
    /// The first rows.
    pub(crate) preview: Vec<Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) encoding: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) delimiter: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) sheet: Option<String>,
    /// Columns that have another name than in the file.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) renamed: BTreeMap<String, String>,
    /// Lines that could not be read, and are left out.
    pub(crate) bad_row_count: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) bad_rows: Vec<BadRowBody>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<String>,
}

impl From<LoadedDataset> for LoadReply {
    fn from(loaded: LoadedDataset) -> Self {
        Self {
            success: true,
            status: "loaded",
            dataset: loaded.info.into(),
            replaced: loaded.replaced,
            preview: loaded.preview,
            encoding: loaded.encoding,
            delimiter: loaded.delimiter,
            sheet: loaded.sheet,
            renamed: loaded.renamed,
            bad_row_count: loaded.bad_rows.count,
            bad_rows: loaded.bad_rows.samples.into_iter().map(BadRowBody::from).collect(),
            warnings: loaded.notes,
        }
    }
}

/// A page of a result.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct QueryReply {
    pub(crate) success: bool,
    /// Names of the columns, in their order.
    pub(crate) columns: Vec<String>,
    /// Their types in SQL.
    pub(crate) types: Vec<String>,
    /// The rows, as objects; over MCP in lean replies as lists. Absent if a file has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<Value>")]
    pub(crate) data: Option<Vec<Value>>,
    pub(crate) row_count: u64,
    pub(crate) limit: u64,
    pub(crate) offset: u64,
    pub(crate) has_more: bool,
    /// Number of all rows, if `count` asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub(crate) total: Option<u64>,
    /// `rows` or `bytes`: the limit that cut the result below `limit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) cut: Option<&'static str>,
    /// The file that has the result.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub(crate) size_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<String>,
}

impl QueryReply {
    /// A result whose rows, if there are any, are left to the caller.
    pub(crate) fn new(info: QueryInfo, output: &QueryOutput) -> Self {
        let (path, session_id, size_bytes) = match output {
            QueryOutput::Saved { session, path, size_bytes, .. } => {
                (Some(path.clone()), Some(session.to_string()), Some(*size_bytes))
            }
            QueryOutput::Rows(_) | QueryOutput::File { .. } => (None, None, None),
        };
        let (columns, types) =
            info.columns.into_iter().map(|column| (column.name, column.type_name)).unzip();
        Self {
            success: true,
            columns,
            types,
            data: None,
            row_count: info.row_count,
            limit: info.limit,
            offset: info.offset,
            has_more: info.has_more,
            total: info.total,
            cut: info.cut.map(|cut| match cut {
                Cut::Rows => "rows",
                Cut::Bytes => "bytes",
            }),
            path,
            session_id,
            size_bytes,
            warnings: info.notes,
        }
    }

    /// Rows as objects.
    pub(crate) fn with_objects(mut self, rows: Vec<Vec<Value>>) -> Self {
        let object =
            |row: Vec<Value>| self.columns.iter().cloned().zip(row).collect::<Map<_, _>>().into();
        self.data = Some(rows.into_iter().map(object).collect());
        self
    }
}

/// Statistics of one column.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ColumnStatisticsBody {
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) type_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    nulls: Option<u64>,
    /// Approximate number of different values.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    distinct: Option<u64>,
    /// `min`, `max`, `mean`, `std`, `q25`, `q50` and `q75`, where the type has them.
    #[serde(flatten)]
    figures: BTreeMap<&'static str, Value>,
    /// The most frequent values, with their counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Vec<Value>>")]
    top: Vec<(Value, u64)>,
}

impl From<ColumnStatistics> for ColumnStatisticsBody {
    fn from(column: ColumnStatistics) -> Self {
        let ColumnStatistics { min, max, mean, std, q25, q50, q75, .. } = column;
        let figures = [
            ("min", min),
            ("max", max),
            ("mean", mean),
            ("std", std),
            ("q25", q25),
            ("q50", q50),
            ("q75", q75),
        ];
        let known = figures.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let figures = known.filter(|(_, value)| !value.is_null()).collect();
        let (nulls, distinct) = (column.nulls, column.distinct);
        Self {
            name: column.name,
            type_name: column.type_name,
            nulls,
            distinct,
            figures,
            top: column.top,
        }
    }
}

/// A dataset with statistics of its columns, and some of its rows.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct DescriptionReply {
    pub(crate) success: bool,
    #[serde(flatten)]
    pub(crate) dataset: DatasetBody,
    pub(crate) statistics: Vec<ColumnStatisticsBody>,
    pub(crate) samples: Vec<Map<String, Value>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<String>,
}

impl From<DatasetDescription> for DescriptionReply {
    fn from(described: DatasetDescription) -> Self {
        let DatasetDescription { info, columns, samples, notes } = described;
        let statistics = columns.into_iter().map(ColumnStatisticsBody::from).collect();
        Self { success: true, dataset: info.into(), statistics, samples, warnings: notes }
    }
}

/// A page of the caller's datasets.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct DatasetList {
    pub(crate) datasets: Vec<DatasetBody>,
    /// Number of all of them, on this page and others.
    pub(crate) total: u64,
    /// Cursor of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) next: Option<String>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct DatasetDropped {
    pub(crate) success: bool,
    pub(crate) name: String,
    pub(crate) message: String,
}

/// Loads a file of a session.
pub(crate) async fn load(
    state: &AppState,
    caller: &Caller,
    mut arguments: Arguments,
) -> Result<LoadReply, Envelope> {
    let path = arguments.required(&["file_path", "path", "filename"], "the file to load")?;
    let name = arguments.text(&["dataset_name", "name"])?;
    let session = state.existing_session(arguments.text(&["session_id"])?.as_deref())?;
    let request = LoadDataset {
        session,
        path,
        name,
        format: arguments.text(&["format", "file_format"])?,
        delimiter: arguments.text(&["delimiter"])?,
        encoding: arguments.text(&["encoding"])?,
        header: arguments.flag(&["header"])?,
        sheet: arguments.text(&["sheet", "sheet_name"])?,
        pages: arguments.text(&["pages"])?,
        timeout: arguments.number(&["timeout"])?,
    };
    let mut reply = LoadReply::from(state.service.load_dataset(caller, request).await?);
    reply.warnings.extend(arguments.unknown());
    Ok(reply)
}

/// Reads the arguments of a query; returns warnings about unknown ones too.
pub(crate) fn read_query(
    state: &AppState,
    mut arguments: Arguments,
) -> Result<(QueryDatasets, Vec<String>), Envelope> {
    let sql = arguments.required(&["sql", "query"], "one SELECT statement")?;
    let format = arguments.text(&["format"])?.map(|text| format(&text)).transpose()?;
    let session = arguments.text(&["session_id"])?;
    let save = match arguments.text(&["save_as"])? {
        Some(path) => {
            Some(SaveResult { session: session_to_write(state, session.as_deref())?, path })
        }
        None => None,
    };
    let request = QueryDatasets {
        sql,
        parameters: arguments.value(&["parameters", "params"])?,
        limit: arguments.count(&["limit"])?,
        offset: arguments.count(&["offset"])?.unwrap_or(0),
        format,
        count: arguments.flag(&["count"])?.unwrap_or(false),
        timeout: arguments.number(&["timeout"])?,
        save,
    };
    Ok((request, arguments.unknown().collect()))
}

fn format(text: &str) -> Result<QueryFormat, Problem> {
    let got = || format!("{:?}", text.chars().take(40).collect::<String>());
    let expected = "json, csv, parquet or arrow";
    QueryFormat::parse(text).ok_or_else(|| Problem::Wrong { name: "format", expected, got: got() })
}

/// The caller's datasets by name, in pages.
pub(crate) async fn list(
    state: &AppState,
    caller: &Caller,
    cursor: Option<&str>,
    limit: Option<usize>,
) -> Result<DatasetList, Envelope> {
    let limit = limit.unwrap_or(ROWS_MAX).clamp(1, ROWS_MAX);
    let wanted = u32::try_from(limit + 1).unwrap_or(u32::MAX);
    let (found, total) = state.service.datasets(caller, cursor, wanted).await?;
    let (found, next) = page(found, limit, |last: &DatasetInfo| last.name.clone());
    Ok(DatasetList { datasets: found.into_iter().map(DatasetBody::from).collect(), total, next })
}

pub(crate) async fn drop_dataset(
    state: &AppState,
    caller: &Caller,
    name: &str,
) -> Result<DatasetDropped, Envelope> {
    let dropped = state.service.drop_dataset(caller, name).await?;
    let message = format!("Dataset {} is dropped", dropped.name);
    Ok(DatasetDropped { success: true, name: dropped.name, message })
}

/// Error of a result that only HTTP can send.
pub(crate) fn not_inline(format: QueryFormat) -> Envelope {
    let message = format!("a result in the format `{}` cannot be shown", format.name());
    Envelope::new(Code::InvalidArgument, message)
        .with_hint("pass `save_as` with a file name: the session gets the file")
}
