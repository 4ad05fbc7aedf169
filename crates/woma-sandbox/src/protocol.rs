//! The host's side of the kernel protocol (docs/PROTOCOL.md). What is decoded here was written by a
//! process that runs hostile code: the decoder is total, never panics, and allocates only for bytes
//! that have arrived.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::spec::Guard;

/// The protocol version that the kernel must announce.
pub const VERSION: u32 = 1;
/// Longest frame, kind included, in bytes.
pub const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Longest frame of the kinds that say little.
pub const SMALL_FRAME_BYTES_MAX: usize = 1024 * 1024;
/// Longest JSON header of a DISPLAY: parsed, it takes many times as much memory.
pub const DISPLAY_HEADER_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most representations of one displayed object.
const PARTS_MAX: usize = 64;
/// Most variables that one DONE, RESTORED or checkpoint may list.
const VARIABLES_MAX: usize = 1_000;
/// Longest name and longest reason in the lists of a checkpoint, in bytes.
const WORDS_BYTES_MAX: usize = 1_000;

/// How many times its own length a piece of JSON is counted.
const HEADER_WEIGHT: usize = 4;

const LENGTH_BYTES: usize = 4;
const KIND_RUN: u8 = 0x01;
const KIND_CHECKPOINT: u8 = 0x02;
const KIND_RESTORE: u8 = 0x03;
const KIND_READY: u8 = 0x81;
const KIND_DISPLAY: u8 = 0x82;
const KIND_DONE: u8 = 0x83;
const KIND_NOTE: u8 = 0x84;
const KIND_RESTORED: u8 = 0x85;
const KIND_READ: u8 = 0x86;

/// Host to kernel: run this. Two descriptors travel with the first byte.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFrame {
    pub run: u32,
    pub source: String,
    pub figures_max: u32,
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub variables: serde_json::Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "shared")]
    pub guard: Option<Arc<Guard>>,
}

/// Host to kernel: save the variables. One descriptor travels with the first byte: the write end of
/// the pipe for the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointFrame {
    pub bytes_max: u64,
    pub variable_bytes_max: u64,
    pub wall_ms: u64,
}

/// Host to kernel: bring variables back. One descriptor travels with the first byte: the read end of
/// a pipe with the stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreFrame {
    pub execution_count: u64,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "shared")]
    pub guard: Option<Arc<Guard>>,
}

/// A guard is written for every run and shared by all that have the same.
mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::spec::Guard;

    #[expect(clippy::ref_option, reason = "serde hands over the field as it is")]
    pub(super) fn serialize<S: Serializer>(
        guard: &Option<Arc<Guard>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        guard.as_deref().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Arc<Guard>>, D::Error> {
        Ok(Option::<Guard>::deserialize(deserializer)?.map(Arc::new))
    }
}

/// Kernel to host.
#[derive(Debug, Clone, PartialEq)]
pub enum Frame {
    Ready(Ready),
    Display(Display),
    Done(Box<Done>),
    Note(Note),
    Restored(Restored),
    /// The kernel waits until the output so far has been read.
    Read,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Ready {
    pub protocol: u32,
    pub python: String,
}

/// One displayed object in all its representations.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Display {
    pub role: Role,
    pub id: Option<String>,
    /// Text and JSON representations by media type.
    pub data: BTreeMap<String, Value>,
    /// Binary representations, such as pictures.
    #[serde(skip)]
    pub binary: Vec<(String, Vec<u8>)>,
    pub metadata: BTreeMap<String, Value>,
    /// What it counts against the run's limit: its frame, and more for the part that is JSON.
    #[serde(skip)]
    pub bytes_charged: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The code asked for it.
    Display,
    /// The value of the last expression.
    Result,
    /// A new version of an earlier display with the same id.
    Update,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Done {
    pub run: u32,
    pub status: Status,
    pub exit_code: Option<i64>,
    pub error: Option<Raised>,
    pub result: Option<ResultValue>,
    #[serde(default)]
    pub execution_count: u64,
    #[serde(default)]
    pub variables: Vec<Variable>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Completed,
    Raised,
    Interrupted,
}

/// An exception that reached the top of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Raised {
    pub name: String,
    pub message: String,
    pub traceback: Vec<String>,
    pub line: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResultValue {
    pub text: String,
    /// Present only where the value is plain data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json: Option<Value>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variable {
    pub name: String,
    #[serde(rename = "type")]
    pub type_name: String,
}

/// Something that the user should know about this run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    pub code: String,
    pub text: String,
    /// What it is about: of a blocked import, the module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The line of the run's source that caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
}

/// What a kernel says of the variables that it was to bring back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Restored {
    /// The first thousand.
    pub restored: Vec<String>,
    pub failed: Vec<Missing>,
    /// Why the rest of them could not be read.
    pub error: Option<String>,
}

/// What a kernel says of the variables that it was to save: the trailer of the stream.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Saved {
    /// The first thousand.
    pub saved: Vec<String>,
    pub skipped: Vec<Missing>,
    /// Of all saved variables.
    pub bytes: u64,
    /// Why there are none.
    pub error: Option<String>,
}

/// A variable that was not saved, or not brought back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    pub name: String,
    pub reason: String,
}

/// Why a byte stream is not the protocol. The cell that sent it is beyond repair.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("a frame of {0} bytes is outside 1 to {FRAME_BYTES_MAX}")]
    Length(u64),
    #[error("a frame of unknown kind 0x{0:02x}")]
    Kind(u8),
    #[error("a {frame} frame that does not parse")]
    Body { frame: &'static str },
    #[error("a {0} frame out of turn")]
    OutOfTurn(&'static str),
    #[error("too many {0} frames")]
    TooMany(&'static str),
}

/// Bytes in, frames out.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    consumed: usize,
}

impl Decoder {
    pub fn push(&mut self, bytes: &[u8]) {
        if self.consumed > 0 {
            self.buffer.drain(..self.consumed);
            self.consumed = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, or `None` until more bytes come.
    #[expect(clippy::should_implement_trait, reason = "an iterator ends at its first None")]
    pub fn next(&mut self) -> Result<Option<Frame>, Violation> {
        let rest = self.buffer.get(self.consumed..).unwrap_or_default();
        let Some((length, rest)) = rest.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length);
        let size = usize::try_from(length).unwrap_or(usize::MAX);
        if size == 0 || size > FRAME_BYTES_MAX {
            return Err(Violation::Length(length.into()));
        }
        let Some((kind, body)) = rest.get(..size).and_then(<[u8]>::split_first) else {
            return Ok(None);
        };
        if *kind != KIND_DISPLAY && size > SMALL_FRAME_BYTES_MAX {
            return Err(Violation::Length(length.into()));
        }
        let frame = decode(*kind, body)?;
        self.consumed += LENGTH_BYTES + size;
        Ok(Some(frame))
    }
}

fn decode(kind: u8, body: &[u8]) -> Result<Frame, Violation> {
    match kind {
        KIND_READY => json(body, "READY").map(Frame::Ready),
        KIND_DISPLAY => {
            display(body).map(Frame::Display).ok_or(Violation::Body { frame: "DISPLAY" })
        }
        KIND_DONE => {
            let mut done: Box<Done> = json(body, "DONE")?;
            done.variables.truncate(VARIABLES_MAX);
            Ok(Frame::Done(done))
        }
        KIND_NOTE => json(body, "NOTE").map(Frame::Note),
        KIND_RESTORED => {
            let mut restored: Restored = json(body, "RESTORED")?;
            bound(&mut restored.restored, &mut restored.failed, restored.error.as_mut());
            Ok(Frame::Restored(restored))
        }
        KIND_READ if body.is_empty() => Ok(Frame::Read),
        KIND_READ => Err(Violation::Body { frame: "READ" }),
        other => Err(Violation::Kind(other)),
    }
}

/// The trailer of a checkpoint.
pub fn decode_saved(trailer: &[u8]) -> Option<Saved> {
    let mut saved: Saved = serde_json::from_slice(trailer).ok()?;
    bound(&mut saved.saved, &mut saved.skipped, saved.error.as_mut());
    Some(saved)
}

fn bound(names: &mut Vec<String>, missing: &mut Vec<Missing>, error: Option<&mut String>) {
    names.truncate(VARIABLES_MAX);
    missing.truncate(VARIABLES_MAX);
    let words = missing.iter_mut().flat_map(|missing| [&mut missing.name, &mut missing.reason]);
    for text in words.chain(names).chain(error) {
        text.truncate(text.floor_char_boundary(WORDS_BYTES_MAX));
    }
}

fn json<'a, T: Deserialize<'a>>(body: &'a [u8], frame: &'static str) -> Result<T, Violation> {
    serde_json::from_slice(body).map_err(|_| Violation::Body { frame })
}

#[derive(Deserialize)]
struct DisplayHeader {
    role: Role,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    data: BTreeMap<String, Value>,
    #[serde(default)]
    binary: Vec<BinaryHeader>,
    #[serde(default)]
    metadata: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct BinaryHeader {
    mime: String,
    bytes: usize,
}

fn display(body: &[u8]) -> Option<Display> {
    let (length, rest) = body.split_first_chunk::<LENGTH_BYTES>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let (header, mut rest) = rest.split_at_checked(length)?;
    let bytes_charged = header.len() * HEADER_WEIGHT + rest.len();
    if header.len() > DISPLAY_HEADER_BYTES_MAX {
        return None;
    }
    let header: DisplayHeader = serde_json::from_slice(header).ok()?;
    if header.data.len() + header.binary.len() > PARTS_MAX {
        return None;
    }
    let mut binary = Vec::new();
    for part in header.binary {
        let (bytes, after) = rest.split_at_checked(part.bytes)?;
        binary.push((part.mime, bytes.to_vec()));
        rest = after;
    }
    let DisplayHeader { role, id, data, metadata, .. } = header;
    rest.is_empty().then_some(Display { role, id, data, binary, metadata, bytes_charged })
}

/// The bytes of a RUN.
pub fn encode_run(run: &RunFrame) -> Result<Vec<u8>, Violation> {
    encode(KIND_RUN, "RUN", run)
}

/// The bytes of a CHECKPOINT.
pub fn encode_checkpoint(checkpoint: &CheckpointFrame) -> Result<Vec<u8>, Violation> {
    encode(KIND_CHECKPOINT, "CHECKPOINT", checkpoint)
}

/// The bytes of a RESTORE.
pub fn encode_restore(restore: &RestoreFrame) -> Result<Vec<u8>, Violation> {
    encode(KIND_RESTORE, "RESTORE", restore)
}

fn encode(kind: u8, frame: &'static str, body: &impl Serialize) -> Result<Vec<u8>, Violation> {
    let body = serde_json::to_vec(body).map_err(|_| Violation::Body { frame })?;
    let size = body.len() + 1;
    let length = u32::try_from(size).ok().filter(|_| size <= FRAME_BYTES_MAX);
    let length = length.ok_or(Violation::Length(size as u64))?;
    let mut bytes = Vec::with_capacity(LENGTH_BYTES + size);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.push(kind);
    bytes.extend_from_slice(&body);
    Ok(bytes)
}
