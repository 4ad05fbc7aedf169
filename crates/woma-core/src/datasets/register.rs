//! Datasets that code has registered: a run leaves a Parquet file and a description of it in
//! `.woma/datasets` of its folder, and the server takes both from there. Names, sizes and contents
//! are the session's own and are checked here.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::sync::Arc;

use woma_sandbox::protocol::Note;
use woma_sandbox::workspace::{Bounds, Folder, Kind, WorkspacePath};

use super::reply::{self, Loaded};
use super::{Datasets, NewContent, NewDataset};
use crate::error::Error;
use crate::model::caller::Caller;
use crate::model::{DatasetError, DatasetName, DatasetProblem, SessionId};
use crate::workspace::files::blocking;

/// Folder in which a session leaves datasets.
const SPOOL: &str = "./.woma/datasets";
/// Datasets that are taken after one run.
const REGISTERED_MAX: usize = 16;
/// Longest description, in bytes.
const DESCRIPTION_BYTES_MAX: u64 = 1024 * 1024;
/// First and last bytes of a Parquet file.
const MAGIC: &[u8; 4] = b"PAR1";

impl Datasets {
    /// Takes over what a run has left; says what became of it.
    pub(crate) async fn take_registered(
        &self,
        caller: &Caller,
        session: Option<&SessionId>,
        folder: &Arc<Folder>,
    ) -> Vec<Note> {
        let Ok(spool) = WorkspacePath::parse(SPOOL) else { return Vec::new() };
        // One call to the operating system, for most runs.
        if !folder.stat(&spool).is_ok_and(|entry| entry.kind == Kind::Folder) {
            return Vec::new();
        }
        let looked = Arc::clone(folder);
        let listed = blocking(move || {
            let bounds = Bounds { entries: 4 * REGISTERED_MAX as u64, ..Bounds::default() };
            Ok(looked.list_below(&spool, Bounds { hidden: true, ..bounds })?.entries)
        });
        let entries = match listed.await {
            Ok(entries) => entries,
            Err(error) => return vec![note(format!("registered datasets are not found: {error}"))],
        };
        let names = entries.iter().filter(|entry| entry.kind == Kind::File);
        let names = names.filter_map(|entry| entry.path.strip_suffix(".json"));
        let names = names.filter_map(|path| path.rsplit('/').next());
        // Those that begin with a dot are being written.
        let names = names.filter(|name| !name.starts_with('.')).take(REGISTERED_MAX);
        let mut notes = Vec::new();
        for name in names {
            let taken = self.take_one(caller, session, folder, name).await;
            notes.push(note(match taken {
                Ok(text) => text,
                Err(error) => format!("the dataset `{name}` was not registered: {error}"),
            }));
        }
        notes
    }

    async fn take_one(
        &self,
        caller: &Caller,
        session: Option<&SessionId>,
        folder: &Arc<Folder>,
        name: &str,
    ) -> Result<String, Error> {
        let taken = self.publish_one(caller, session, folder, name).await;
        for extension in ["json", "parquet"] {
            let (folder, path) = (Arc::clone(folder), spooled(name, extension)?);
            let removed = blocking(move || Ok(folder.remove(&path)?)).await;
            if let Err(error) = removed {
                tracing::debug!(%error, "A registered dataset's file stays in its session");
            }
        }
        taken
    }

    async fn publish_one(
        &self,
        caller: &Caller,
        session: Option<&SessionId>,
        folder: &Arc<Folder>,
        name: &str,
    ) -> Result<String, Error> {
        let name = DatasetName::parse(name)?;
        let (described, content) =
            (spooled(name.as_str(), "json")?, spooled(name.as_str(), "parquet")?);
        let opened = Arc::clone(folder);
        let (description, file, size_bytes) = blocking(move || {
            let mut description = String::new();
            let (file, _) = opened.open(&described)?;
            file.take(DESCRIPTION_BYTES_MAX).read_to_string(&mut description)?;
            let (mut file, metadata) = opened.open(&content)?;
            check_magic(&mut file)?;
            Ok((description, file, metadata.len()))
        })
        .await?;
        let loaded = reply::read::<Loaded>(&description)?.bounded()?;
        let new = NewDataset {
            name,
            format: "code".to_owned(),
            row_count: loaded.rows,
            column_count: loaded.column_count,
            columns: loaded.columns,
            session: session.map(|session| session.as_str().to_owned()),
            source: None,
        };
        let content = NewContent { file, size_bytes, movable: None };
        let (info, replaced) = self.publish(caller, new, content).await?;
        let how = if replaced { "replaced" } else { "registered" };
        Ok(format!(
            "the dataset `{}` is {how}: {} rows, {} columns; query_dataset and every session have \
             it",
            info.name, info.row_count, info.column_count
        ))
    }
}

fn spooled(name: &str, extension: &str) -> Result<WorkspacePath, Error> {
    let path = format!("{SPOOL}/{name}.{extension}");
    WorkspacePath::parse(&path).map_err(|why| Error::BadPath { path, why })
}

/// Refuses what is obviously no Parquet file; the rest is never parsed by the server.
fn check_magic(file: &mut File) -> Result<(), Error> {
    let (mut first, mut last) = ([0; 4], [0; 4]);
    let read = file.read_exact(&mut first).and_then(|()| {
        file.seek(SeekFrom::End(-4))?;
        file.read_exact(&mut last)?;
        file.seek(SeekFrom::Start(0))
    });
    if read.is_ok() && &first == MAGIC && &last == MAGIC {
        return Ok(());
    }
    Err(DatasetError::new(DatasetProblem::BadFile, "its file is not Parquet").into())
}

fn note(text: String) -> Note {
    Note { code: "dataset".to_owned(), text, subject: None, line: None }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, SeekFrom, Write as _};

    use super::check_magic;

    #[test]
    fn only_files_that_begin_and_end_as_parquet_are_taken() {
        for (content, is_fit) in [
            (&b"PAR1data-and-footPAR1"[..], true),
            (b"PAR1", true),
            (b"", false),
            (b"PAR", false),
            (b"a,b\n1,2\n", false),
            (b"PAR1 cut off", false),
        ] {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(content).unwrap();
            file.seek(SeekFrom::Start(0)).unwrap();
            assert_eq!(check_magic(&mut file).is_ok(), is_fit, "{content:?}");
        }
    }
}
