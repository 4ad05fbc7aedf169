//! A displayed object as the kernel sends it: a short JSON header, followed by binary or long
//! parts. JSON in it is validated but kept as text.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::json_limits::{self, Json};

/// Longest JSON header of a DISPLAY frame, in bytes.
pub const DISPLAY_HEADER_BYTES_MAX: usize = 256 * 1024;
/// Most representations of one displayed object.
pub(crate) const PARTS_MAX: usize = 64;
/// Longest media type and longest display id, in bytes.
const NAME_BYTES_MAX: usize = 200;

/// Weight of the header in the byte count: once as received, once as parsed.
pub(crate) const HEADER_WEIGHT: u64 = 2;

/// One displayed object in all its representations.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Display {
    pub role: Role,
    pub id: Option<String>,
    /// Text and JSON representations by media type.
    pub data: BTreeMap<String, Form>,
    /// Binary representations, such as pictures.
    #[serde(skip)]
    pub binary: Vec<(String, Vec<u8>)>,
    /// A JSON object; `None` if empty.
    pub metadata: Option<Json>,
    /// Bytes charged to the run's limit: the frame, and its header once more.
    #[serde(skip)]
    pub bytes_charged: u64,
}

/// One text or JSON representation.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Form {
    Text(String),
    Json(Json),
}

impl Form {
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Json(_) => None,
        }
    }
}

impl<'de> Deserialize<'de> for Form {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Json::deserialize(deserializer)?;
        if !json.text().starts_with('"') {
            return Ok(Self::Json(json));
        }
        serde_json::from_str(json.text()).map(Self::Text).map_err(serde::de::Error::custom)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Displayed by the code.
    Display,
    /// The value of the last expression.
    Result,
    /// A new version of an earlier display with the same id.
    Update,
}

#[derive(Deserialize)]
struct Header {
    role: Role,
    #[serde(default, deserialize_with = "json_limits::text_maybe::<NAME_BYTES_MAX, _>")]
    id: Option<String>,
    #[serde(default, deserialize_with = "json_limits::members::<PARTS_MAX, NAME_BYTES_MAX, _, _>")]
    data: Vec<(String, Form)>,
    #[serde(default, deserialize_with = "json_limits::list::<{ PARTS_MAX + 1 }, _, _>")]
    binary: Vec<Part>,
    #[serde(default)]
    metadata: Option<Json>,
}

#[derive(Deserialize)]
struct Part {
    #[serde(deserialize_with = "json_limits::text::<NAME_BYTES_MAX, _>")]
    mime: String,
    bytes: usize,
    #[serde(default)]
    form: PartForm,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PartForm {
    #[default]
    Binary,
    Text,
    Json,
}

/// Decodes the body of a DISPLAY frame, which starts with the length of its header in four bytes.
pub(crate) fn decode(body: &[u8]) -> Option<Display> {
    let (length, rest) = body.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let (header, mut rest) = rest.split_at_checked(length)?;
    if header.len() > DISPLAY_HEADER_BYTES_MAX {
        return None;
    }
    let bytes_charged = header.len() as u64 * HEADER_WEIGHT + rest.len() as u64;
    let header: Header = serde_json::from_slice(header).ok()?;
    if header.data.len() + header.binary.len() > PARTS_MAX {
        return None;
    }
    let mut data: BTreeMap<String, Form> = header.data.into_iter().collect();
    let mut binary = Vec::new();
    for Part { mime, bytes, form } in header.binary {
        let (bytes, after) = rest.split_at_checked(bytes)?;
        rest = after;
        let text = || std::str::from_utf8(bytes).ok().map(str::to_owned);
        match form {
            PartForm::Binary => binary.push((mime, bytes.to_vec())),
            PartForm::Text => drop(data.insert(mime, Form::Text(text()?))),
            PartForm::Json => drop(data.insert(mime, Form::Json(Json::parse(text()?)?))),
        }
    }
    let metadata = header.metadata.filter(|metadata| metadata.text() != "{}");
    let is_object = metadata.as_ref().is_none_or(|metadata| metadata.text().starts_with('{'));
    (rest.is_empty() && is_object).then_some(Display {
        role: header.role,
        id: header.id,
        data,
        binary,
        metadata,
        bytes_charged,
    })
}
