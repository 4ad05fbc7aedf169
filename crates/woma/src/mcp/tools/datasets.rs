//! Dataset tools: descriptions, calls, and tables in a form that a model reads well.

use rmcp::model::{CallToolResult, JsonObject};
use serde_json::{Map, Value, json};
use woma_core::{Caller, QueryOutput, QueryResult};

use super::call::{Refusal, to_value};
use super::catalogue::ToolKind;
use super::pages::{self, Range, Row};
use super::schemas::{object, paged, schema_of};
use super::{content, slim};
use crate::api::arguments::Arguments;
use crate::api::datasets::{
    self, DatasetBody, DatasetDropped, DatasetList, DescriptionReply, LoadReply, QueryReply,
};
use crate::api::files::human;
use crate::api::state::AppState;
use crate::config::types::ReplyForm;

/// Characters of one value in a table.
const CELL_CHARS_MAX: usize = 100;
/// Most frequent values that a description shows.
const TOP_SHOWN: usize = 5;
/// Columns that the reply to a load names.
const COLUMNS_SHOWN: usize = 60;
/// Characters of a reply besides its table.
const RESERVE_CHARS: usize = 600;

/// Description, input and output of a tool.
pub(crate) fn describe(kind: ToolKind) -> (String, JsonObject, JsonObject) {
    let text = |what: &str| json!({"type": "string", "description": what});
    let name = || object(&json!({"name": text("The dataset.")}), &["name"]);
    match kind {
        ToolKind::LoadDataset => (
            "Load a file of a session as a dataset: a table that query_dataset reads with SQL, that every session sees as /datasets/<name>.parquet and datasets[\"<name>\"], and that stays until it is dropped. Reads csv, tsv, txt, json, ndjson, xlsx, xls, xlsm, parquet and tables of pdf; separator, encoding and types are inferred, bad rows are reported.".to_owned(),
            object(
                &json!({
                    "file_path": text("The file, below the working directory."),
                    "dataset_name": text("Name of the table: letters, digits, _. Without it, that of the file. A dataset of that name is replaced."),
                    "session_id": text("The session that has the file."),
                    "delimiter": text("Separator of a text file; inferred if left out."),
                    "format": text("Format, if the name of the file does not tell it."),
                    "encoding": text("Encoding of a text file; inferred if left out."),
                    "header": {"type": "boolean", "description": "Whether the first line has names of columns; inferred if left out."},
                    "sheet": text("Sheet of a workbook; the first if left out."),
                    "pages": text("Pages of a pdf, such as 1,3-5."),
                    "timeout": {"type": "number", "description": "Seconds until the load is stopped."},
                }),
                &["file_path"],
            ),
            schema_of::<LoadReply>(),
        ),
        ToolKind::QueryDataset => (
            "Run one SQL query (DuckDB, read-only: SELECT, WITH, DESCRIBE, SUMMARIZE) over your datasets by their names; joins between them work. Aggregate in SQL rather than reading many rows.".to_owned(),
            object(
                &json!({
                    "sql": text("The query, such as SELECT region, sum(amount) FROM sales GROUP BY region."),
                    "limit": {"type": "integer", "minimum": 1, "default": 1000, "description": "Rows to return at most."},
                    "offset": {"type": "integer", "minimum": 0, "default": 0, "description": "Rows to skip."},
                    "parameters": {"description": "Values for ? or $name in the query: a list, or an object."},
                    "count": {"type": "boolean", "default": false, "description": "Also count all rows."},
                    "save_as": text("Write the whole result to this file of a session instead: .csv, .parquet, .arrow or .json."),
                    "session_id": text("The session of that file."),
                    "timeout": {"type": "number", "description": "Seconds until the query is stopped."},
                }),
                &["sql"],
            ),
            schema_of::<QueryReply>(),
        ),
        ToolKind::DescribeDataset => (
            "Describe a dataset: its columns with types, missing and distinct values, ranges, most frequent values, and some rows. Call it before writing SQL for data that you do not know.".to_owned(),
            name(),
            schema_of::<DescriptionReply>(),
        ),
        ToolKind::DropDataset => (
            "Delete a dataset. Files of sessions stay.".to_owned(),
            name(),
            schema_of::<DatasetDropped>(),
        ),
        _ => (
            "List your datasets: name, rows, columns, size. All your sessions share them.".to_owned(),
            object(
                &json!({
                    "session_id": text("Accepted from older clients: datasets belong to you, not to a session."),
                    "offset": {"type": "integer", "minimum": 0, "description": "Datasets to skip: the next_offset of the page before."},
                    "limit": {"type": "integer", "minimum": 1, "description": "Datasets to return at most."},
                }),
                &[],
            ),
            paged(schema_of::<DatasetList>()),
        ),
    }
}

/// One of the tools above.
pub(crate) async fn call(
    state: &AppState,
    caller: &Caller,
    kind: ToolKind,
    mut arguments: Arguments,
) -> Result<CallToolResult, Refusal> {
    match kind {
        ToolKind::LoadDataset => {
            let mut loaded = datasets::load(state, caller, arguments).await?;
            let text = loaded_text(&loaded);
            let warnings = std::mem::take(&mut loaded.warnings);
            Ok(content::plain(state, value(state, &loaded), Some(text), warnings))
        }
        ToolKind::QueryDataset => query(state, caller, arguments).await,
        ToolKind::DescribeDataset => {
            let name = arguments.required(&["name", "dataset_name"], "the dataset")?;
            let described = state.service.describe_dataset(caller, &name).await?;
            let mut reply = DescriptionReply::from(described);
            let text = described_text(&reply, state.presentation.context_chars);
            let mut warnings = std::mem::take(&mut reply.warnings);
            warnings.extend(arguments.unknown());
            Ok(content::plain(state, value(state, &reply), Some(text), warnings))
        }
        ToolKind::DropDataset => {
            let name = arguments.required(&["name", "dataset_name"], "the dataset")?;
            let dropped = datasets::drop_dataset(state, caller, &name).await?;
            let text = format!("{}.", dropped.message);
            let warnings = arguments.unknown().collect();
            Ok(content::plain(state, to_value(&dropped), Some(text), warnings))
        }
        _ => list(state, caller, arguments).await,
    }
}

fn is_lean(state: &AppState) -> bool {
    state.presentation.reply == ReplyForm::Lean
}

/// A reply as data; a lean one without fields that say nothing.
fn value(state: &AppState, reply: &impl serde::Serialize) -> Value {
    let mut value = to_value(reply);
    if let (true, Some(fields)) = (is_lean(state), value.as_object_mut()) {
        for name in ["dataset_id", "table_name", "size_mb", "created_at", "status", "columns"] {
            fields.remove(name);
        }
        // Rows stay as they are: a null in them is a value.
        fields.retain(|_, value| !matches!(value, Value::Array(items) if items.is_empty()));
        for name in ["replaced", "bad_row_count"] {
            let is_nothing = |value: &Value| *value == Value::Bool(false) || *value == 0;
            if fields.get(name).is_some_and(is_nothing) {
                fields.remove(name);
            }
        }
    }
    value
}

async fn query(
    state: &AppState,
    caller: &Caller,
    arguments: Arguments,
) -> Result<CallToolResult, Refusal> {
    let (request, unknown) = datasets::read_query(state, arguments)?;
    let format = request.format.unwrap_or_default();
    let QueryResult { info, output } = state.service.query_datasets(caller, request).await?;
    let mut reply = QueryReply::new(info, &output);
    let mut warnings = std::mem::take(&mut reply.warnings);
    warnings.extend(unknown);
    let text = match output {
        QueryOutput::File { .. } => return Err(datasets::not_inline(format).into()),
        QueryOutput::Saved { path, size_bytes, .. } => {
            let (rows, size) = (counted(reply.row_count, "row"), human(size_bytes));
            format!("File: {path} ({rows}, {size})")
        }
        QueryOutput::Rows(rows) => {
            let room = state.presentation.context_chars.saturating_sub(RESERVE_CHARS);
            let (text, shown) = query_text(&reply, &rows, room);
            reply.data = Some(if is_lean(state) {
                rows.into_iter().take(shown).map(Value::from).collect()
            } else {
                reply.clone().with_objects(rows).data.unwrap_or_default()
            });
            text
        }
    };
    let mut answer = to_value(&reply);
    if let (true, Some(fields)) = (is_lean(state), answer.as_object_mut()) {
        fields.retain(|name, _| !matches!(name.as_str(), "limit" | "offset" | "types"));
    }
    Ok(content::plain(state, answer, Some(text), warnings))
}

/// The result as text, and how many rows of it there are in the text.
fn query_text(reply: &QueryReply, rows: &[Vec<Value>], room: usize) -> (String, usize) {
    let lines = rows.iter().map(|row| line(row.iter()));
    let (table, shown) = table(&reply.columns, lines, room);
    let total = reply.total.map(|total| format!(" of {total}")).unwrap_or_default();
    let mut text = format!("{}{total}\n{table}", counted(reply.row_count, "row"));
    let next = reply.offset + shown as u64;
    if shown < rows.len() || reply.has_more {
        text = format!("{text}\n[more rows: offset {next} reads on; save_as writes all to a file]");
    }
    (text, shown)
}

/// A table of which as many lines are shown as there is room for; at least the header.
fn table(columns: &[String], lines: impl Iterator<Item = String>, room: usize) -> (String, usize) {
    let mut text = columns.iter().map(|name| shortened(name)).collect::<Vec<_>>().join(" | ");
    let mut chars = text.chars().count();
    let mut shown = 0;
    for line in lines {
        chars += line.chars().count() + 1;
        if chars > room {
            break;
        }
        text.push('\n');
        text.push_str(&line);
        shown += 1;
    }
    (text, shown)
}

fn line<'a>(values: impl Iterator<Item = &'a Value>) -> String {
    values.map(cell).collect::<Vec<_>>().join(" | ")
}

/// A value in one line.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::String(text) => shortened(text),
        other => shortened(&other.to_string()),
    }
}

fn shortened(text: &str) -> String {
    let text = text.replace(['\n', '\r', '\t'], " ").replace('|', "\\|");
    match text.char_indices().nth(CELL_CHARS_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn head(dataset: &DatasetBody) -> String {
    format!(
        "{}: {}, {}, {}",
        dataset.name,
        counted(dataset.row_count, "row"),
        counted(dataset.column_count, "column"),
        human(dataset.size_bytes)
    )
}

fn loaded_text(loaded: &LoadReply) -> String {
    let dataset = &loaded.dataset;
    let replaced = if loaded.replaced { ", replaced" } else { "" };
    let columns = dataset.columns.iter().take(COLUMNS_SHOWN);
    let columns: Vec<String> =
        columns.map(|column| format!("{} {}", shortened(&column.name), column.type_name)).collect();
    let more = dataset.columns.len().saturating_sub(COLUMNS_SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let mut parts = vec![
        format!("Dataset {}{replaced} ({})", head(dataset), dataset.format),
        format!("Columns: {}{more}", columns.join(", ")),
    ];
    if !loaded.renamed.is_empty() {
        let renamed = loaded.renamed.iter().take(COLUMNS_SHOWN);
        let renamed: Vec<String> = renamed.map(|(old, new)| format!("{old} → {new}")).collect();
        parts.push(format!("Renamed: {}", renamed.join(", ")));
    }
    if loaded.bad_row_count > 0 {
        parts.push(format!("Left out: {}", counted(loaded.bad_row_count, "bad row")));
        parts.extend(loaded.bad_rows.iter().map(|bad| {
            let bad = to_value(bad);
            format!("  line {}: {}", bad["line"], cell(&bad["reason"]))
        }));
    }
    parts.extend(samples_text("First rows:", &loaded.preview));
    parts.join("\n")
}

fn samples_text(title: &str, samples: &[Map<String, Value>]) -> Option<String> {
    let first = samples.first()?;
    let columns: Vec<String> = first.keys().cloned().collect();
    let lines = samples.iter().map(|row| line(row.values()));
    let (table, _) = table(&columns, lines, usize::MAX);
    Some(format!("{title}\n{table}"))
}

fn described_text(reply: &DescriptionReply, chars_max: usize) -> String {
    let mut text = head(&reply.dataset);
    if let Some(source) = &reply.dataset.source {
        text = format!("{text}, from {source}");
    }
    let room = chars_max.saturating_sub(RESERVE_CHARS);
    let mut left_out = 0;
    for column in &reply.statistics {
        let line = column_text(&to_value(column));
        if text.chars().count() + line.chars().count() < room {
            text = format!("{text}\n{line}");
        } else {
            left_out += 1;
        }
    }
    if left_out > 0 {
        text = format!("{text}\n[{} more; SUMMARIZE has them]", counted(left_out, "column"));
    }
    match samples_text("Sample:", &reply.samples) {
        Some(samples) if text.chars().count() + samples.chars().count() < chars_max => {
            format!("{text}\n{samples}")
        }
        _ => text,
    }
}

/// `- amount DOUBLE: 0.5 to 99, mean 12; 3 NULL`.
fn column_text(column: &Value) -> String {
    let figure = |name: &str| column.get(name).map(cell);
    let mut facts = Vec::new();
    if let (Some(min), Some(max)) = (figure("min"), figure("max")) {
        facts.push(format!("{min} to {max}"));
    }
    if let Some(mean) = figure("mean") {
        let spread = figure("std").map(|std| format!(" ± {std}")).unwrap_or_default();
        facts.push(format!("mean {mean}{spread}"));
    }
    if let Some(median) = figure("q50") {
        facts.push(format!("median {median}"));
    }
    if let Some(distinct) = figure("distinct") {
        facts.push(format!("~{distinct} distinct"));
    }
    if let Some(nulls) = column.get("nulls").and_then(Value::as_u64).filter(|nulls| *nulls > 0) {
        facts.push(format!("{nulls} NULL"));
    }
    if let Some(top) = column.get("top").and_then(Value::as_array) {
        let top = top.iter().take(TOP_SHOWN);
        let top: Vec<String> = top.map(|pair| format!("{} ×{}", cell(&pair[0]), pair[1])).collect();
        facts.push(format!("most often {}", top.join(", ")));
    }
    let (name, kind) = (cell(&column["name"]), cell(&column["type"]));
    format!("- {name} {kind}: {}", facts.join("; "))
}

/// The caller's datasets, in pages.
async fn list(
    state: &AppState,
    caller: &Caller,
    mut arguments: Arguments,
) -> Result<CallToolResult, Refusal> {
    let range = Range::read(&mut arguments)?;
    // Datasets are the caller's, whatever session the call names.
    arguments.text(&["session_id"])?;
    let DatasetList { datasets, total, .. } = datasets::list(state, caller, None, None).await?;
    let row = |dataset: DatasetBody| {
        let line = head(&dataset);
        let mut value = to_value(&dataset);
        if let Some(fields) = value.as_object_mut() {
            fields.remove("columns");
        }
        if is_lean(state) {
            slim::fields(&mut value);
            for name in ["dataset_id", "table_name", "size_mb", "format", "source", "session_id"] {
                value.as_object_mut().and_then(|fields| fields.remove(name));
            }
        }
        Row { line, value }
    };
    let rows = datasets.into_iter().map(row).collect();
    let page = pages::page(rows, range, state.presentation.context_chars);
    let mut answer = json!({"total": total, "datasets": page.values});
    let mut lines = page.lines;
    if lines.is_empty() {
        lines.push("No datasets. load_dataset makes one from a file of a session.".to_owned());
    }
    if let (Some(next), Some(fields)) = (page.next_offset, answer.as_object_mut()) {
        fields.insert("next_offset".to_owned(), next.into());
        lines.push(format!("[of {total} datasets; offset {next} reads on]"));
    }
    let warnings = page.warnings.into_iter().chain(arguments.unknown()).collect();
    Ok(content::plain(state, answer, Some(lines.join("\n")), warnings))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{CELL_CHARS_MAX, column_text, line, table};

    #[test]
    fn tables_are_compact_and_bounded() {
        let columns = ["region".to_owned(), "a|b".to_owned()];
        let row = [json!("north\nwest"), Value::Null];
        let (text, shown) = table(&columns, std::iter::repeat_n(line(row.iter()), 9), 70);
        assert_eq!(shown, 3);
        assert!(text.starts_with("region | a\\|b\nnorth west | NULL\n"), "{text}");
        let long = [json!("x".repeat(5_000))];
        assert_eq!(line(long.iter()).chars().count(), CELL_CHARS_MAX + 1);
    }

    #[test]
    fn a_column_is_described_in_one_line() {
        let number = json!({"name": "n", "type": "DOUBLE", "nulls": 2, "distinct": 9, "min": 1, "max": 5.5, "mean": 2.5, "std": 1.1});
        assert_eq!(
            column_text(&number),
            "- n DOUBLE: 1 to 5.5; mean 2.5 ± 1.1; ~9 distinct; 2 NULL"
        );
        let text = json!({"name": "t", "type": "VARCHAR", "nulls": 0, "distinct": 2, "top": [["a", 3], ["b", 1]]});
        assert_eq!(column_text(&text), "- t VARCHAR: ~2 distinct; most often a ×3, b ×1");
    }
}
