//! Datasets: loaded from a session's file, queried, described, listed and dropped. Files and SQL are
//! read in cells of the caller, never here.

use std::io::Read as _;
use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::Service;
use crate::datasets::reply::{self, COLUMNS_MAX, Described, Loaded, Queried};
use crate::datasets::{Datasets, NewContent, NewDataset};
use crate::error::Error;
use crate::execution::worker::{Work, Worked, in_cell};
use crate::model::caller::Caller;
use crate::model::{
    DatasetDescription, DatasetError, DatasetInfo, DatasetName, DatasetProblem, ExecutionId,
    LoadDataset, LoadedDataset, QueryDatasets, QueryFormat, QueryInfo, QueryOutput, QueryResult,
    SaveResult, table_name,
};
use crate::workspace::files::{Destination, OpenedFile, blocking, exact, trouble, with_near};
use crate::workspace::links::Content;

/// Rows of a dataset.
const DATASET_ROWS_MAX: u64 = 10_000_000_000;
/// Size that a compressed file may expand to while it is loaded, in bytes.
const EXPANDED_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Rows of a reply: as many as are asked for, by default so many, and at most.
const REPLY_ROWS: u64 = 1_000;
const REPLY_ROWS_MAX: u64 = 10_000;
/// Size of the rows in a reply, in bytes.
const REPLY_BYTES_MAX: u64 = 900_000;
/// Rows of a result that is a file.
const FILE_ROWS_MAX: u64 = 1_000_000_000;
/// Longest SQL, in bytes.
const SQL_BYTES_MAX: usize = 256 * 1024;
/// Rows of a description.
const SAMPLES: u64 = 5;
/// Part of a cell's memory that the engine may use, in percent.
const ENGINE_MEMORY_PERCENT: u64 = 70;
/// Part of a cell's disk space that the engine may use for temporary files, in percent.
const ENGINE_DISK_PERCENT: u64 = 50;

impl Service {
    /// Loads a file of a session; a dataset of the same name is replaced. Dropping this stops the
    /// load and leaves nothing.
    pub async fn load_dataset(
        &self,
        caller: &Caller,
        request: LoadDataset,
    ) -> Result<LoadedDataset, Error> {
        let permit = self.executor.admit_work(caller)?;
        let datasets = self.dataset_room()?;
        let name = match &request.name {
            Some(name) => DatasetName::parse(name)?,
            None => DatasetName::of_file(&request.path)?,
        };
        let path = exact(&request.path, &request.session)?;
        let folder = self.folder_to_read(caller, &request.session).await?;
        let folder = folder.ok_or_else(|| Error::no_file(path.as_str()))?;
        let sought = path.clone();
        blocking(move || {
            let found = folder.open(&sought).map_err(|error| trouble(error, &sought));
            found.map(drop).map_err(|error| with_near(error, &folder))
        })
        .await?;
        let workspaces = self.workspaces()?;
        if workspaces.storage.sessions_reserve.refuses(0) {
            return Err(Error::DiskReserve);
        }
        let (stop, guard) = self.stop_with_client();
        let mut notes = Vec::new();
        let output = format!("{}.parquet", name.as_str());
        let work = Work {
            request: self.load_request(&request, &name, path.as_str(), &output),
            timeout: self.executor.timeout(request.timeout, &mut notes),
            shown: workspaces.storage.folder(&caller.id, &request.session),
            output: Some(output),
            stop,
        };
        let (service, caller) = (self.clone(), caller.clone());
        let source = path.as_str().to_owned();
        let loading = async move {
            let worked = service.executor.work_once(&caller, &work).await?;
            let loaded = service.store_loaded(&datasets, &caller, &request, (name, source), worked);
            let mut loaded = loaded.await?;
            drop(permit);
            loaded.notes.extend(notes);
            Ok(loaded)
        };
        let loaded = tokio::spawn(loading.in_current_span()).await.unwrap_or(Err(Error::Lost));
        drop(guard);
        loaded
    }

    fn load_request(
        &self,
        request: &LoadDataset,
        name: &DatasetName,
        path: &str,
        output: &str,
    ) -> Value {
        let limits = &self.shared.settings.limits;
        json!({
            "do": "load",
            "path": format!("/datasets/{path}"),
            "name": name.as_str(),
            "format": request.format,
            "delimiter": request.delimiter,
            "encoding": request.encoding,
            "header": request.header,
            "sheet": request.sheet,
            "pages": request.pages,
            "output": in_cell(output),
            "is_last": true,
            "limits": {
                "rows": DATASET_ROWS_MAX,
                "columns": COLUMNS_MAX,
                "bytes": self.dataset_bytes_max(),
                "expanded_bytes": EXPANDED_BYTES_MAX,
                "memory_bytes": limits.memory_bytes / 100 * ENGINE_MEMORY_PERCENT,
                "threads": self.engine_threads(),
            },
        })
    }

    /// Stores what a cell has made of a file.
    async fn store_loaded(
        &self,
        datasets: &Datasets,
        caller: &Caller,
        request: &LoadDataset,
        (name, source): (DatasetName, String),
        worked: Worked,
    ) -> Result<LoadedDataset, Error> {
        let loaded = reply::read::<Loaded>(&worked.reply)?.bounded()?;
        let Some(OpenedFile { file, size_bytes, .. }) = worked.output else {
            let text = "the file could not be loaded: no table was written";
            return Err(DatasetError::new(DatasetProblem::BadFile, text).into());
        };
        if size_bytes > self.dataset_bytes_max() {
            let limit = self.dataset_bytes_max();
            let text = format!("the dataset would have {size_bytes} bytes; the limit is {limit}");
            return Err(DatasetError::new(DatasetProblem::TooLarge, text).into());
        }
        let sheet = loaded.sheet();
        let new = NewDataset {
            name,
            format: loaded.format,
            row_count: loaded.rows,
            column_count: loaded.column_count,
            columns: loaded.columns,
            session: Some(request.session.as_str().to_owned()),
            source: Some(source),
        };
        let content = NewContent { file, size_bytes, movable: worked.path };
        let (info, replaced) = datasets.publish(caller, new, content).await?;
        drop(worked.passing);
        let detail = json!({ "dataset": info.name, "rows": info.row_count, "bytes": size_bytes });
        self.note(caller, "load_dataset", Some(&request.session), &detail);
        Ok(LoadedDataset {
            info,
            replaced,
            preview: loaded.preview,
            encoding: loaded.encoding,
            delimiter: loaded.delimiter,
            sheet,
            renamed: loaded.renamed,
            bad_rows: loaded.bad_rows,
            notes: loaded.notes,
        })
    }

    /// Runs one statement of SQL that reads. Dropping this stops the query.
    pub async fn query_datasets(
        &self,
        caller: &Caller,
        request: QueryDatasets,
    ) -> Result<QueryResult, Error> {
        let permit = self.executor.admit_work(caller)?;
        check_sql(&request.sql)?;
        let format = format_of(&request);
        let is_reply = format == QueryFormat::Json && request.save.is_none();
        let (names, shown) = self.dataset_room()?.current(&caller.id).await?;
        let mut notes = Vec::new();
        let limit = limit_of(request.limit, is_reply, &mut notes);
        let output = format!("{}.{}", ExecutionId::mint(), format.name());
        let limits = &self.shared.settings.limits;
        let bytes = if is_reply { REPLY_BYTES_MAX } else { self.dataset_bytes_max() };
        let path = |name: &str| Value::from(format!("/datasets/{name}.parquet"));
        let tables = names
            .iter()
            .flat_map(|(name, id)| [(name.clone(), path(name)), (table_name(*id), path(name))]);
        let (stop, guard) = self.stop_with_client();
        let work = Work {
            request: json!({
                "do": "query",
                "sql": request.sql,
                "parameters": request.parameters,
                "datasets": tables.collect::<serde_json::Map<_, _>>(),
                "limit": limit,
                "offset": request.offset,
                "format": format.name(),
                "output": in_cell(&output),
                "count": request.count,
                "limits": {
                    "rows": limit,
                    "bytes": bytes,
                    "memory_bytes": limits.memory_bytes / 100 * ENGINE_MEMORY_PERCENT,
                    "temp_bytes": limits.workspace_bytes / 100 * ENGINE_DISK_PERCENT,
                    "threads": self.engine_threads(),
                },
            }),
            timeout: self.executor.timeout(request.timeout, &mut notes),
            shown,
            output: Some(output),
            stop,
        };
        let worked = self.work(caller, work).await?;
        let mut info = reply::read::<Queried>(&worked.reply)?.bounded();
        info.notes.extend(notes);
        let output = match request.save {
            Some(place) => self.save_result(caller, place, worked.output).await?,
            None if is_reply => rows_of(&info, worked.output).await?,
            None => match worked.output {
                Some(OpenedFile { file, size_bytes, .. }) => QueryOutput::File { file, size_bytes },
                None => return Err(no_result()),
            },
        };
        drop((permit, guard));
        let detail = json!({ "sql_bytes": request.sql.len(), "rows": info.row_count });
        self.note(caller, "query_dataset", None, &detail);
        Ok(QueryResult { info, output })
    }

    async fn save_result(
        &self,
        caller: &Caller,
        place: SaveResult,
        output: Option<OpenedFile>,
    ) -> Result<QueryOutput, Error> {
        let OpenedFile { file, size_bytes, .. } = output.ok_or_else(no_result)?;
        let pieces = Content::File(file).pieces(0, size_bytes);
        let destination = Destination::Path(&place.path);
        let saved = self.write_file(caller, &place.session, destination, pieces).await?;
        let (path, size_bytes, replaced) = (saved.path, saved.size_bytes, saved.replaced);
        Ok(QueryOutput::Saved { session: place.session, path, size_bytes, replaced })
    }

    /// Columns with statistics, and some rows.
    pub async fn describe_dataset(
        &self,
        caller: &Caller,
        name: &str,
    ) -> Result<DatasetDescription, Error> {
        let permit = self.executor.admit_work(caller)?;
        let datasets = self.dataset_room()?;
        let info = datasets.find(&caller.id, name).await?;
        let (_, shown) = datasets.current(&caller.id).await?;
        let (stop, guard) = self.stop_with_client();
        let work = Work {
            request: json!({
                "do": "describe",
                "name": info.name,
                "path": format!("/datasets/{}.parquet", info.name),
                "samples": SAMPLES,
            }),
            timeout: self.executor.timeout(None, &mut Vec::new()),
            shown,
            output: None,
            stop,
        };
        let worked = self.work(caller, work).await?;
        drop((permit, guard));
        let Described { columns, samples, notes } =
            reply::read::<Described>(&worked.reply)?.bounded();
        Ok(DatasetDescription { info, columns, samples, notes })
    }

    /// Serves a request in the caller's warm cell, on a task of its own.
    async fn work(&self, caller: &Caller, work: Work) -> Result<Worked, Error> {
        let (executor, caller) = (Arc::clone(&self.executor), caller.clone());
        let working = async move { executor.work_warm(&caller, &work).await };
        tokio::spawn(working.in_current_span()).await.unwrap_or(Err(Error::Lost))
    }

    /// The caller's datasets by name, the first `limit` after the name `after`; and their number.
    pub async fn datasets(
        &self,
        caller: &Caller,
        after: Option<&str>,
        limit: u32,
    ) -> Result<(Vec<DatasetInfo>, u64), Error> {
        caller.may_read()?;
        let datasets = self.dataset_room()?;
        let found = datasets.list(&caller.id, after, limit).await?;
        Ok((found, datasets.count(&caller.id).await?))
    }

    pub async fn dataset(&self, caller: &Caller, name: &str) -> Result<DatasetInfo, Error> {
        caller.may_read()?;
        self.dataset_room()?.find(&caller.id, name).await
    }

    pub async fn drop_dataset(&self, caller: &Caller, name: &str) -> Result<DatasetInfo, Error> {
        caller.may_execute()?;
        let (datasets, owner, name) = (self.dataset_room()?, caller.id.clone(), name.to_owned());
        // On a task of its own: row and file go together.
        let dropping = async move { datasets.delete(&owner, &name).await };
        let dropped = tokio::spawn(dropping.in_current_span()).await.unwrap_or(Err(Error::Lost))?;
        self.note(caller, "drop_dataset", None, &json!({ "dataset": dropped.name }));
        Ok(dropped)
    }

    fn dataset_room(&self) -> Result<Arc<Datasets>, Error> {
        self.executor.datasets.clone().ok_or(Error::KeepsNoFiles)
    }

    /// Token that stops a run, and the guard that cancels it when the client has left.
    fn stop_with_client(&self) -> (CancellationToken, tokio_util::sync::DropGuard) {
        let stop = self.executor.stop.child_token();
        (stop.clone(), stop.drop_guard())
    }

    /// Size of one dataset, and of one result: what one file of a session may have.
    fn dataset_bytes_max(&self) -> u64 {
        let limits = &self.shared.settings.limits;
        limits.file_bytes.min(limits.workspace_bytes)
    }

    fn engine_threads(&self) -> usize {
        let cores = Duration::from_secs(1).mul_f64(self.shared.settings.limits.cpu_cores.max(0.0));
        let cores = usize::try_from(cores.as_millis().div_ceil(1_000)).unwrap_or(1).max(1);
        std::thread::available_parallelism().map_or(1, NonZero::get).min(cores)
    }
}

fn check_sql(sql: &str) -> Result<(), Error> {
    let problem = match sql.trim().len() {
        0 => "the SQL is empty".to_owned(),
        bytes if bytes > SQL_BYTES_MAX => {
            format!("the SQL has {bytes} bytes; at most {SQL_BYTES_MAX} are accepted")
        }
        _ => return Ok(()),
    };
    let error = DatasetError::new(DatasetProblem::BadSql, problem);
    Err(error.with_hint("send one SELECT statement over the names of datasets").into())
}

/// The form that is asked for; a file that takes the result may tell it by its name.
fn format_of(request: &QueryDatasets) -> QueryFormat {
    let of_name = || {
        let path = &request.save.as_ref()?.path;
        QueryFormat::parse(path.rsplit_once('.')?.1)
    };
    request.format.or_else(of_name).unwrap_or_default()
}

fn limit_of(asked: Option<u64>, is_reply: bool, notes: &mut Vec<String>) -> u64 {
    let (usual, most) =
        if is_reply { (REPLY_ROWS, REPLY_ROWS_MAX) } else { (FILE_ROWS_MAX, FILE_ROWS_MAX) };
    let asked = asked.unwrap_or(usual);
    if asked > most {
        notes.push(format!("limit {asked} is out of range; {most} rows were returned at most"));
    }
    asked.clamp(1, most)
}

/// The rows of a reply, which a cell has written as JSON.
async fn rows_of(info: &QueryInfo, output: Option<OpenedFile>) -> Result<QueryOutput, Error> {
    let OpenedFile { file, .. } = output.ok_or_else(no_result)?;
    let width = info.columns.len();
    let rows = blocking(move || {
        let mut text = Vec::new();
        file.take(REPLY_BYTES_MAX + 1).read_to_end(&mut text)?;
        let rows = serde_json::from_slice::<Vec<Vec<Value>>>(&text).ok();
        let rows = rows.filter(|rows| rows.iter().all(|row| row.len() == width));
        rows.ok_or_else(no_result)
    });
    Ok(QueryOutput::Rows(rows.await?))
}

fn no_result() -> Error {
    DatasetError::new(DatasetProblem::Engine, "the query engine gave no usable result").into()
}

#[cfg(test)]
mod tests {
    use super::{
        FILE_ROWS_MAX, REPLY_ROWS, REPLY_ROWS_MAX, SQL_BYTES_MAX, check_sql, format_of, limit_of,
    };
    use crate::model::{QueryDatasets, QueryFormat, SaveResult, SessionId};

    #[test]
    fn a_reply_has_a_bounded_number_of_rows() {
        let mut notes = Vec::new();
        assert_eq!(limit_of(None, true, &mut notes), REPLY_ROWS);
        assert_eq!(limit_of(Some(0), true, &mut notes), 1);
        assert_eq!(limit_of(None, false, &mut notes), FILE_ROWS_MAX);
        assert!(notes.is_empty());
        assert_eq!(limit_of(Some(u64::MAX), true, &mut notes), REPLY_ROWS_MAX);
        assert_eq!(notes.len(), 1);
    }

    #[test]
    fn sql_is_neither_empty_nor_too_long() {
        assert!(check_sql("SELECT 1").is_ok());
        assert!(check_sql(" \n ").is_err());
        assert!(check_sql(&"x".repeat(SQL_BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn the_name_of_a_file_tells_the_format_of_a_result() {
        let save = |path: &str| {
            let session = SessionId::parse("s").unwrap();
            Some(SaveResult { session, path: path.to_owned() })
        };
        for (path, format) in [
            ("a.csv", QueryFormat::Csv),
            ("a.Parquet", QueryFormat::Parquet),
            ("a.arrow", QueryFormat::Arrow),
            ("a.txt", QueryFormat::Json),
        ] {
            let request = QueryDatasets { save: save(path), ..QueryDatasets::default() };
            assert_eq!(format_of(&request), format, "{path}");
        }
        let request = QueryDatasets {
            format: Some(QueryFormat::Csv),
            save: save("a.json"),
            ..QueryDatasets::default()
        };
        assert_eq!(format_of(&request), QueryFormat::Csv);
    }
}
