//! What was run in a session and what came of it, kept beside its folder, to be made a notebook of.

use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::caller::Caller;
use crate::model::{Execution, SessionId};
use crate::service::may_read;
use crate::session::Home;
use crate::vault::Vault;
use crate::{Error, Service};

/// What is kept of one session, in bytes; later runs are not.
const TRANSCRIPT_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Of each text of one run.
const TEXT_BYTES_MAX: usize = 64 * 1024;
/// Pictures of one notebook, in bytes.
const PICTURES_BYTES_MAX: u64 = 32 * 1024 * 1024;

#[derive(Debug, Serialize, Deserialize)]
struct Cell {
    number: u64,
    source: String,
    stdout: String,
    stderr: String,
    result: Option<String>,
    error: Option<(String, String, Vec<String>)>,
    charts: Vec<uuid::Uuid>,
}

fn path_of(folder: &Path) -> PathBuf {
    let mut path = folder.as_os_str().to_owned();
    path.push(".cells");
    path.into()
}

impl Home {
    /// Adds a run. It is a help and no record: a disk that is full costs the notebook only.
    pub(crate) fn transcribe(&self, source: &str, execution: &Execution) {
        let cell = Cell {
            number: execution.execution_count,
            source: source.to_owned(),
            stdout: cut(&execution.stdout),
            stderr: cut(&execution.stderr),
            result: execution.result.as_ref().map(|result| cut(&result.text)),
            error: execution.error.as_ref().map(|error| {
                let lines = error.traceback.iter().take(200).map(|line| cut(line)).collect();
                (error.name.clone(), cut(&error.message), lines)
            }),
            charts: execution.charts.iter().map(|chart| chart.id).collect(),
        };
        if let Err(error) = append(&path_of(&self.folder), &cell) {
            tracing::warn!(%error, "A run could not be added to its session's notebook");
        }
    }

    /// Takes away what was kept.
    pub(crate) fn drop_transcript(&self) {
        drop_transcript(&self.folder);
    }
}

/// Takes away what was kept of the session with that folder.
pub(crate) fn drop_transcript(folder: &Path) {
    match std::fs::remove_file(path_of(folder)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, "A session's notebook could not be removed");
        }
        _ => {}
    }
}

fn append(path: &Path, cell: &Cell) -> io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.append(true).create(true).mode(0o600).open(path)?;
    let mut line = serde_json::to_vec(cell)?;
    line.push(b'\n');
    if file.metadata()?.len() + line.len() as u64 > TRANSCRIPT_BYTES_MAX {
        return Ok(());
    }
    file.write_all(&line)
}

fn cut(text: &str) -> String {
    if text.len() <= TEXT_BYTES_MAX {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(TEXT_BYTES_MAX);
    format!("{}\n… {} more bytes", &text[..end], text.len() - end)
}

impl Service {
    /// A session as a Jupyter notebook: what was run in it, with outputs and pictures.
    pub async fn notebook(&self, caller: &Caller, id: &SessionId) -> Result<Value, Error> {
        may_read(caller)?;
        self.recall(caller, id).await?;
        let session = self.shared.sessions.find(caller, id)?;
        let Some(home) = &session.home else { return Err(Error::NoSession(id.clone())) };
        let path = path_of(&home.folder);
        let text = match tokio::task::spawn_blocking(move || std::fs::read(path)).await {
            Ok(Ok(text)) => text,
            Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => return Err(Error::Lost),
        };
        let lines = text.split(|byte| *byte == b'\n');
        let cells = lines.filter_map(|line| serde_json::from_slice::<Cell>(line).ok());
        let (mut written, mut room) = (Vec::new(), PICTURES_BYTES_MAX);
        for (index, cell) in cells.enumerate() {
            let pictures = pictures(&home.vault, &cell.charts, &mut room).await;
            written.push(notebook_cell(index, cell, pictures));
        }
        let version = self.shared.settings.environment.version.to_string();
        Ok(json!({
            "nbformat": 4,
            "nbformat_minor": 5,
            "metadata": {
                "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
                "language_info": {"name": "python", "version": version},
            },
            "cells": written,
        }))
    }
}

/// Those that are still kept, as far as there is room.
async fn pictures(vault: &Vault, charts: &[uuid::Uuid], room: &mut u64) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for id in charts {
        let Ok(Some(row)) = vault.store.file(*id).await else { continue };
        if row.size_bytes > *room {
            continue;
        }
        let Ok(bytes) = vault.blobs.read(row.digest, *room).await else { continue };
        *room -= row.size_bytes;
        let data = match row.media_type.as_str() {
            "image/svg+xml" => String::from_utf8_lossy(&bytes).into_owned(),
            _ => base64::engine::general_purpose::STANDARD.encode(&bytes),
        };
        found.push((row.media_type, data));
    }
    found
}

fn notebook_cell(index: usize, cell: Cell, pictures: Vec<(String, String)>) -> Value {
    let mut outputs = Vec::new();
    for (name, text) in [("stdout", cell.stdout), ("stderr", cell.stderr)] {
        if !text.is_empty() {
            outputs.push(json!({"output_type": "stream", "name": name, "text": text}));
        }
    }
    for (media_type, data) in pictures {
        outputs.push(json!({
            "output_type": "display_data", "data": {media_type: data}, "metadata": {},
        }));
    }
    if let Some(text) = cell.result {
        outputs.push(json!({
            "output_type": "execute_result", "execution_count": cell.number,
            "data": {"text/plain": text}, "metadata": {},
        }));
    }
    if let Some((name, message, traceback)) = cell.error {
        outputs.push(json!({
            "output_type": "error", "ename": name, "evalue": message, "traceback": traceback,
        }));
    }
    json!({
        "cell_type": "code", "id": format!("cell-{}", index + 1), "metadata": {},
        "execution_count": cell.number, "source": cell.source, "outputs": outputs,
    })
}
