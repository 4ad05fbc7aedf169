//! Transcript of a session's runs and outputs, kept beside its folder; exported as a notebook.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use base64::Engine as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::Error;
use crate::model::Execution;
use crate::session::state::Home;
use crate::workspace::Workspaces;

/// Size limit of the transcript of one session; the latest runs are kept. It has two files of half the
/// size, of which the older one goes when the newer one is full.
const NOTEBOOK_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Of each text of one run, in bytes.
const TEXT_BYTES_MAX: usize = 64 * 1024;
/// Of each line of a traceback, in bytes.
const LINE_BYTES_MAX: usize = 8 * 1024;
/// Of the source of one run, in bytes.
const SOURCE_BYTES_MAX: usize = 1024 * 1024;
/// Pictures of one notebook, in bytes.
const PICTURES_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// A session as a Jupyter notebook, and what is not in it.
#[derive(Debug)]
pub struct Notebook {
    pub content: Value,
    pub left_out: LeftOut,
}

/// Parts of a session that its notebook lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeftOut {
    /// Runs, the oldest.
    pub cells: u64,
    /// Texts that are not there whole.
    pub cut: u64,
    pub pictures: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Cell {
    number: u64,
    source: String,
    stdout: String,
    stderr: String,
    result: Option<String>,
    error: Option<(String, String, Vec<String>)>,
    charts: Vec<uuid::Uuid>,
    /// How many of its texts are not whole.
    #[serde(default)]
    cut: u64,
    /// Runs before this one that could not be written down.
    #[serde(default)]
    missed: u64,
}

/// The first line of a file that follows another.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    /// Runs in all files before this one.
    before: u64,
}

fn path_of(folder: &Path, ending: &str) -> PathBuf {
    let mut path = folder.as_os_str().to_owned();
    path.push(ending);
    path.into()
}

/// Older first.
fn paths_of(folder: &Path) -> [PathBuf; 2] {
    [path_of(folder, ".cells.old"), path_of(folder, ".cells")]
}

/// The file that runs are added to, open as long as their kernel lives.
#[derive(Debug, Default)]
pub(crate) struct Transcript(Option<File>);

impl Home {
    /// Adds a run; to be called with the turn. It is a help and no record: a disk that is full costs
    /// the notebook only, which says so.
    pub(crate) fn transcribe(
        &self,
        transcript: &mut Transcript,
        source: &str,
        execution: &Execution,
        with_output: bool,
    ) {
        let mut cut = Cut::default();
        let output = |text: &'_ str| if with_output { text.to_owned() } else { String::new() };
        let cell = Cell {
            number: execution.execution_count,
            source: cut.to(source, SOURCE_BYTES_MAX),
            stdout: cut.text(&output(&execution.stdout)),
            stderr: cut.text(&output(&execution.stderr)),
            result: execution.result.as_ref().map(|result| cut.text(&result.text)),
            error: execution.error.as_ref().map(|error| {
                let lines = cut.lines(&error.traceback);
                (error.name.clone(), cut.text(&error.message), lines)
            }),
            charts: execution.charts.iter().map(|chart| chart.id).collect(),
            cut: cut.0,
            missed: self.untold.swap(0, Ordering::Relaxed),
        };
        if let Err(error) = append(&self.folder, transcript, &cell) {
            self.untold.fetch_add(cell.missed + 1, Ordering::Relaxed);
            tracing::warn!(%error, "A run could not be added to its session's notebook");
        }
    }

    /// Takes away what was kept.
    pub(crate) fn drop_transcript(&self) {
        self.untold.store(0, Ordering::Relaxed);
        drop_transcript(&self.folder);
    }
}

/// Takes away what was kept of the session with that folder.
pub(crate) fn drop_transcript(folder: &Path) {
    for path in paths_of(folder) {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "A session's notebook could not be removed");
            }
            _ => {}
        }
    }
}

fn append(folder: &Path, transcript: &mut Transcript, cell: &Cell) -> io::Result<()> {
    let [older, path] = paths_of(folder);
    let mut line = serde_json::to_vec(cell)?;
    line.push(b'\n');
    let (mut file, mut length) = transcript.take(&path)?;
    if length > 0 && length + line.len() as u64 > NOTEBOOK_BYTES_MAX / 2 {
        std::fs::rename(&path, &older)?;
        (file, length) = (open(&path)?, 0);
    }
    if length == 0
        && let Some(text) = read(&older)?
    {
        let Kept { before, cells } = Kept::parse(&text);
        let mut header = serde_json::to_vec(&Header { before: before + cells.len() as u64 })?;
        header.push(b'\n');
        line.splice(0..0, header);
    }
    let written = file.write_all(&line);
    if written.is_err() {
        // What was torn must not spoil the line that follows.
        file.set_len(length)?;
    }
    transcript.0 = Some(file);
    written
}

impl Transcript {
    /// The file and its length. One that was removed meanwhile is not written to.
    fn take(&mut self, path: &Path) -> io::Result<(File, u64)> {
        if let Some(file) = self.0.take() {
            let known = file.metadata()?;
            if known.nlink() > 0 {
                return Ok((file, known.len()));
            }
        }
        let file = open(path)?;
        let length = file.metadata()?.len();
        Ok((file, length))
    }
}

fn open(path: &Path) -> io::Result<File> {
    std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match std::fs::read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Contents of a transcript file.
#[derive(Debug, Default)]
struct Kept {
    before: u64,
    cells: Vec<Cell>,
}

impl Kept {
    fn parse(text: &[u8]) -> Self {
        let mut kept = Self::default();
        for line in text.split(|byte| *byte == b'\n') {
            if let Ok(cell) = serde_json::from_slice(line) {
                kept.cells.push(cell);
            } else if let Ok(Header { before }) = serde_json::from_slice(line) {
                kept.before = before;
            }
        }
        kept
    }

    /// All that is kept of a session.
    fn of(folder: &Path) -> io::Result<Self> {
        let mut kept: Option<Self> = None;
        for path in paths_of(folder) {
            let Some(text) = read(&path)? else { continue };
            let next = Self::parse(&text);
            match &mut kept {
                Some(kept) => kept.cells.extend(next.cells),
                None => kept = Some(next),
            }
        }
        Ok(kept.unwrap_or_default())
    }
}

/// Counts what it shortens.
#[derive(Debug, Default)]
struct Cut(u64);

impl Cut {
    fn text(&mut self, text: &str) -> String {
        self.to(text, TEXT_BYTES_MAX)
    }

    fn to(&mut self, text: &str, bytes_max: usize) -> String {
        if text.len() <= bytes_max {
            return text.to_owned();
        }
        self.0 += 1;
        let end = text.floor_char_boundary(bytes_max);
        format!("{}\n… {} more bytes", &text[..end], text.len() - end)
    }

    /// As many lines as one text may have bytes; the last ones say most.
    fn lines(&mut self, lines: &[String]) -> Vec<String> {
        let (mut room, mut cut) = (TEXT_BYTES_MAX, Self::default());
        let lines: Vec<_> = lines.iter().map(|line| cut.to(line, LINE_BYTES_MAX)).collect();
        let fits = lines.iter().rev().take_while(|line| {
            let fits = line.len() <= room;
            room = room.saturating_sub(line.len());
            fits
        });
        let first = lines.len() - fits.count();
        self.0 += u64::from(first > 0 || cut.0 > 0);
        let note = (first > 0).then(|| format!("… {first} lines before"));
        note.into_iter().chain(lines[first..].iter().cloned()).collect()
    }
}

impl LeftOut {
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// As a sentence for the reader of the notebook.
    pub fn sentence(&self) -> String {
        let megabytes = |bytes: u64| bytes / (1024 * 1024);
        let count = |number: u64, one: &str, more: &str| match number {
            1 => format!("1 {one} was"),
            _ => format!("{number} {more} were"),
        };
        let mut text = "This notebook is not complete.".to_owned();
        if self.cells > 0 {
            let (count, limit) =
                (count(self.cells, "cell", "cells"), megabytes(NOTEBOOK_BYTES_MAX));
            write_to(
                &mut text,
                format_args!(
                    " {count} left out: it has the latest runs of its session, up to {limit} MiB."
                ),
            );
        }
        if self.cut > 0 {
            let (count, limit) = (count(self.cut, "output", "outputs"), TEXT_BYTES_MAX / 1024);
            write_to(&mut text, format_args!(" {count} cut at {limit} KiB."));
        }
        if self.pictures > 0 {
            let count = count(self.pictures, "picture", "pictures");
            let limit = megabytes(PICTURES_BYTES_MAX);
            write_to(
                &mut text,
                format_args!(
                    " {count} left out: no longer kept, or beyond {limit} MiB of all pictures."
                ),
            );
        }
        text
    }

    fn metadata(self) -> Value {
        let Self { cells, cut, pictures } = self;
        json!({"cells_left_out": cells, "outputs_cut": cut, "pictures_left_out": pictures})
    }
}

fn write_to(text: &mut String, more: std::fmt::Arguments<'_>) {
    // A text takes all that there is memory for.
    std::fmt::Write::write_fmt(text, more).unwrap_or_default();
}

/// A session as a Jupyter notebook: what was run in it, with outputs and pictures. A notebook that is
/// not complete says so at its beginning. `python` is the version of the interpreter.
pub(crate) async fn of_session(home: &Home, python: &str) -> Result<Notebook, Error> {
    let folder = home.folder.clone();
    let kept = tokio::task::spawn_blocking(move || Kept::of(&folder)).await;
    let Kept { before, cells } = kept.map_err(|_| Error::Lost)??;
    let untold = home.untold.load(Ordering::Relaxed);
    let mut left_out = LeftOut { cells: before + untold, ..LeftOut::default() };
    let (mut written, mut room) = (Vec::new(), PICTURES_BYTES_MAX);
    for (index, cell) in cells.into_iter().enumerate() {
        let pictures = pictures(&home.workspaces, &cell.charts, &mut room).await;
        left_out.cells += cell.missed;
        left_out.cut += cell.cut;
        left_out.pictures += cell.charts.len().saturating_sub(pictures.len()) as u64;
        written.push(notebook_cell(index, cell, pictures));
    }
    let mut metadata = json!({
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python", "version": python},
    });
    if !left_out.is_nothing() {
        metadata["woma"] = left_out.metadata();
        let note = json!({
            "cell_type": "markdown", "id": "left-out", "metadata": {},
            "source": format!("**{}**", left_out.sentence()),
        });
        written.insert(0, note);
    }
    let content = json!({
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": metadata,
        "cells": written,
    });
    Ok(Notebook { content, left_out })
}

/// Those that are still kept, as far as there is room.
async fn pictures(
    workspaces: &Workspaces,
    charts: &[uuid::Uuid],
    room: &mut u64,
) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for id in charts {
        let Ok(Some(row)) = workspaces.storage.db.file(*id).await else { continue };
        let left = *room;
        if !takes_room(row.size_bytes, room) {
            continue;
        }
        let Ok(bytes) = workspaces.storage.blobs.read(row.digest, left).await else {
            *room = left;
            continue;
        };
        let data = match row.media_type.as_str() {
            "image/svg+xml" => String::from_utf8_lossy(&bytes).into_owned(),
            _ => base64::engine::general_purpose::STANDARD.encode(&bytes),
        };
        found.push((row.media_type, data));
    }
    found
}

/// Whether there is room for a picture, which takes it then.
fn takes_room(size_bytes: u64, room: &mut u64) -> bool {
    let left = room.checked_sub(size_bytes);
    *room = left.unwrap_or(*room);
    left.is_some()
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

#[cfg(test)]
mod tests;
