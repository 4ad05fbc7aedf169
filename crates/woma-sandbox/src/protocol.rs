//! The host's side of the kernel protocol (docs/PROTOCOL.md). Input comes from a process that runs
//! hostile code: the decoder accepts any bytes, never panics, and allocates only for bytes that
//! have arrived.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use crate::display::{DISPLAY_HEADER_BYTES_MAX, Display, Form, Role};
pub use crate::done::{Done, Raised, ResultValue, Status, Variable};
pub use crate::json_limits::Json;
use crate::spec::{Guard, Script};
use crate::{display, json_limits};

/// Protocol version that the kernel must announce.
pub const VERSION: u32 = 2;
/// Longest frame, kind included, in bytes.
pub const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Longest frame of any kind but DISPLAY.
pub const SMALL_FRAME_BYTES_MAX: usize = 1024 * 1024;
/// Longer frames are decoded on a thread for blocking work.
pub(crate) const QUICK_BYTES_MAX: usize = 16 * 1024;
/// Most variables that one DONE, RESTORED or checkpoint may list.
pub(crate) const VARIABLES_MAX: usize = 1_000;
/// Longest name, type, code, subject and reason, in bytes.
pub(crate) const WORDS_BYTES_MAX: usize = 1_000;
/// Longest text of a note, in bytes.
const NOTE_BYTES_MAX: usize = 8 * 1024;

const LENGTH_BYTES: usize = 4;
/// Length and kind of a frame.
const HEAD_BYTES: usize = LENGTH_BYTES + 1;
const KIND_RUN: u8 = 0x01;
const KIND_CHECKPOINT: u8 = 0x02;
const KIND_RESTORE: u8 = 0x03;
const KIND_READY: u8 = 0x81;
const KIND_DISPLAY: u8 = 0x82;
const KIND_DONE: u8 = 0x83;
const KIND_NOTE: u8 = 0x84;
const KIND_RESTORED: u8 = 0x85;
const KIND_READ: u8 = 0x86;

/// Host to kernel: run code. Two descriptors travel with the first byte, and a third one if standard
/// input is a pipe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFrame {
    pub run: u32,
    pub source: String,
    pub figures_max: u32,
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub variables: serde_json::Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<Script>,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "shared")]
    pub guard: Option<Arc<Guard>>,
    /// Environment variables to set before the code runs; null takes one away.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub environ: serde_json::Map<String, Value>,
    /// Set if the run has less memory than its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<OwnMemory>,
}

/// Memory limit of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnMemory {
    /// Limit to name in error messages.
    pub limit_bytes: u64,
    /// Bytes by which the kernel lowers its data limit during the run.
    pub less_bytes: u64,
}

/// Host to kernel: save the variables. One descriptor travels with the first byte: the write end of
/// the pipe for the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointFrame {
    pub bytes_max: u64,
    pub variable_bytes_max: u64,
    pub wall_ms: u64,
}

/// Host to kernel: restore variables. One descriptor travels with the first byte: the read end of a
/// pipe with the stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreFrame {
    pub execution_count: u64,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "shared")]
    pub guard: Option<Arc<Guard>>,
}

/// A guard is serialized for every run and shared by runs with the same policy.
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
    /// The kernel waits until its output so far has been read.
    Read,
    /// Over budget, and dropped without being parsed.
    Dropped(Dropped),
    /// A long frame has arrived and is being decoded: it comes next.
    Pending,
}

/// Kind of a dropped frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dropped {
    Display,
    Note,
}

/// Remaining bytes for frames of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameBudget {
    pub display_bytes: u64,
    pub note_bytes: u64,
}

impl FrameBudget {
    /// Outside of runs, displays and notes are dropped.
    pub const NONE: Self = Self { display_bytes: 0, note_bytes: 0 };
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Ready {
    pub protocol: u32,
    #[serde(deserialize_with = "json_limits::text::<WORDS_BYTES_MAX, _>")]
    pub python: String,
}

/// A note to the user about a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    #[serde(deserialize_with = "json_limits::text::<WORDS_BYTES_MAX, _>")]
    pub code: String,
    #[serde(deserialize_with = "json_limits::text::<NOTE_BYTES_MAX, _>")]
    pub text: String,
    /// Subject of the note, such as the module of a blocked import.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "json_limits::text_maybe::<WORDS_BYTES_MAX, _>")]
    pub subject: Option<String>,
    /// Line of the run's source that caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
}

impl Note {
    /// Bytes charged to the run's limit.
    pub(crate) fn bytes_charged(&self) -> u64 {
        let subject = self.subject.as_ref().map_or(0, String::len);
        (self.code.len() + self.text.len() + subject) as u64
    }
}

/// The kernel's report about restored variables.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Restored {
    /// The first thousand.
    #[serde(deserialize_with = "json_limits::texts::<VARIABLES_MAX, WORDS_BYTES_MAX, _>")]
    pub restored: Vec<String>,
    #[serde(deserialize_with = "json_limits::list::<VARIABLES_MAX, _, _>")]
    pub failed: Vec<Missing>,
    /// Why the rest could not be read.
    #[serde(deserialize_with = "json_limits::text_maybe::<WORDS_BYTES_MAX, _>")]
    pub error: Option<String>,
}

/// The kernel's report about saved variables: the trailer of the stream.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Saved {
    /// The first thousand.
    #[serde(deserialize_with = "json_limits::texts::<VARIABLES_MAX, WORDS_BYTES_MAX, _>")]
    pub saved: Vec<String>,
    #[serde(deserialize_with = "json_limits::list::<VARIABLES_MAX, _, _>")]
    pub skipped: Vec<Missing>,
    /// Bytes of all saved variables.
    pub bytes: u64,
    /// Why no variables were saved.
    #[serde(deserialize_with = "json_limits::text_maybe::<WORDS_BYTES_MAX, _>")]
    pub error: Option<String>,
}

/// A variable that was not saved or not restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    #[serde(deserialize_with = "json_limits::text::<WORDS_BYTES_MAX, _>")]
    pub name: String,
    #[serde(deserialize_with = "json_limits::text::<WORDS_BYTES_MAX, _>")]
    pub reason: String,
}

/// Violation of the protocol. The cell that sent it cannot be used any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("a frame of {0} bytes is outside 1 to {FRAME_BYTES_MAX}")]
    Length(u64),
    #[error("a DISPLAY header of {0} bytes is over {DISPLAY_HEADER_BYTES_MAX}")]
    Header(u64),
    #[error("a frame of unknown kind 0x{0:02x}")]
    Kind(u8),
    #[error("a {frame} frame that does not parse")]
    Body { frame: &'static str },
    #[error("a {0} frame out of turn")]
    OutOfTurn(&'static str),
    #[error("too many {0} frames")]
    TooMany(&'static str),
    #[error("a frame that could not be decoded")]
    Lost,
}

/// Decoder of a byte stream into frames.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    consumed: usize,
    /// Bytes of a dropped frame that have not arrived yet.
    skipping: usize,
    /// Total bytes of dropped frames.
    bytes_dropped: u64,
}

/// A complete frame that is not decoded yet.
#[derive(Debug)]
pub(crate) enum RawFrame<'a> {
    Short {
        kind: u8,
        body: &'a [u8],
    },
    /// Buffer that contains the frame, whose head is at `start`.
    Long {
        kind: u8,
        bytes: Vec<u8>,
        start: usize,
    },
    Dropped(Dropped),
}

impl RawFrame<'_> {
    pub(crate) fn decode(&self) -> Result<Frame, Violation> {
        match self {
            Self::Short { kind, body } => decode(*kind, body),
            Self::Long { kind, bytes, start } => {
                decode(*kind, bytes.get(start + HEAD_BYTES..).unwrap_or_default())
            }
            Self::Dropped(dropped) => Ok(Frame::Dropped(*dropped)),
        }
    }
}

impl Decoder {
    pub fn push(&mut self, bytes: &[u8]) {
        let skipped = self.skipping.min(bytes.len());
        self.skipping -= skipped;
        if self.consumed > 0 {
            self.buffer.drain(..self.consumed);
            self.consumed = 0;
        }
        self.buffer.extend_from_slice(bytes.get(skipped..).unwrap_or_default());
    }

    /// The next complete frame, or `None` until more bytes arrive.
    pub fn next(&mut self, budget: FrameBudget) -> Result<Option<Frame>, Violation> {
        self.take(budget)?.map(|whole| whole.decode()).transpose()
    }

    pub(crate) fn bytes_dropped(&self) -> u64 {
        self.bytes_dropped
    }

    /// As [`Self::next`], without decoding.
    pub(crate) fn take(&mut self, budget: FrameBudget) -> Result<Option<RawFrame<'_>>, Violation> {
        let rest = self.buffer.get(self.consumed..).unwrap_or_default();
        let Some(head) = Head::read(rest)? else { return Ok(None) };
        let (start, end) = (self.consumed, self.consumed + LENGTH_BYTES + head.size);
        if let Some(dropped) = head.dropped(budget) {
            self.consumed = end.min(self.buffer.len());
            self.skipping = end - self.consumed;
            self.bytes_dropped += (end - start) as u64;
            return Ok(Some(RawFrame::Dropped(dropped)));
        }
        if end > self.buffer.len() {
            return Ok(None);
        }
        let kind = head.kind;
        if head.size <= QUICK_BYTES_MAX {
            self.consumed = end;
            let body = self.buffer.get(start + HEAD_BYTES..end).unwrap_or_default();
            return Ok(Some(RawFrame::Short { kind, body }));
        }
        // The bytes behind it are fewer than one read; the long buffer goes with its frame.
        let behind = self.buffer.split_off(end);
        let bytes = std::mem::replace(&mut self.buffer, behind);
        self.consumed = 0;
        Ok(Some(RawFrame::Long { kind, bytes, start }))
    }
}

/// Length and kind of a frame, from its first bytes.
struct Head {
    /// Length including the kind.
    size: usize,
    kind: u8,
    /// Length of the header of a DISPLAY frame.
    header_bytes: usize,
}

impl Head {
    /// `None` until enough bytes have arrived.
    fn read(bytes: &[u8]) -> Result<Option<Self>, Violation> {
        let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length);
        let size = usize::try_from(length).unwrap_or(usize::MAX);
        if size == 0 || size > FRAME_BYTES_MAX {
            return Err(Violation::Length(length.into()));
        }
        let Some((kind, rest)) = rest.split_first() else { return Ok(None) };
        if *kind != KIND_DISPLAY {
            return match size > SMALL_FRAME_BYTES_MAX {
                true => Err(Violation::Length(length.into())),
                false => Ok(Some(Self { size, kind: *kind, header_bytes: 0 })),
            };
        }
        if size <= LENGTH_BYTES {
            return Err(Violation::Body { frame: "DISPLAY" });
        }
        let Some((header, _)) = rest.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let header = u32::from_be_bytes(*header);
        let header_bytes = usize::try_from(header).unwrap_or(usize::MAX);
        if header_bytes > DISPLAY_HEADER_BYTES_MAX {
            return Err(Violation::Header(header.into()));
        }
        Ok(Some(Self { size, kind: *kind, header_bytes }))
    }

    /// Whether the frame is over budget.
    fn dropped(&self, budget: FrameBudget) -> Option<Dropped> {
        let twice = self.header_bytes as u64 * (display::HEADER_WEIGHT - 1);
        match self.kind {
            KIND_DISPLAY if self.size as u64 + twice > budget.display_bytes => {
                Some(Dropped::Display)
            }
            KIND_NOTE if self.size as u64 > budget.note_bytes => Some(Dropped::Note),
            _ => None,
        }
    }
}

fn decode(kind: u8, body: &[u8]) -> Result<Frame, Violation> {
    match kind {
        KIND_READY => json(body, "READY").map(Frame::Ready),
        KIND_DISPLAY => {
            let display = display::decode(body);
            display.map(Frame::Display).ok_or(Violation::Body { frame: "DISPLAY" })
        }
        KIND_DONE => json(body, "DONE").map(Frame::Done),
        KIND_NOTE => json(body, "NOTE").map(Frame::Note),
        KIND_RESTORED => json(body, "RESTORED").map(Frame::Restored),
        KIND_READ if body.is_empty() => Ok(Frame::Read),
        KIND_READ => Err(Violation::Body { frame: "READ" }),
        other => Err(Violation::Kind(other)),
    }
}

/// Decodes the trailer of a checkpoint.
pub fn decode_saved(trailer: &[u8]) -> Option<Saved> {
    serde_json::from_slice(trailer).ok()
}

fn json<'a, T: Deserialize<'a>>(body: &'a [u8], frame: &'static str) -> Result<T, Violation> {
    serde_json::from_slice(body).map_err(|_| Violation::Body { frame })
}

/// Encodes a RUN frame.
pub fn encode_run(run: &RunFrame) -> Result<Vec<u8>, Violation> {
    encode(KIND_RUN, "RUN", run)
}

/// Encodes a CHECKPOINT frame.
pub fn encode_checkpoint(checkpoint: &CheckpointFrame) -> Result<Vec<u8>, Violation> {
    encode(KIND_CHECKPOINT, "CHECKPOINT", checkpoint)
}

/// Encodes a RESTORE frame.
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
