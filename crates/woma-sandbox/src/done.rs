//! The DONE frame: how a run ended, its result, and the variables that it left.

use serde::{Deserialize, Serialize};

use crate::json_limits::{self, Json};
use crate::protocol::{VARIABLES_MAX, WORDS_BYTES_MAX};

/// Longest description of a variable, in bytes.
const ABOUT_BYTES_MAX: usize = 800;
/// Longest message of an exception, and longest text of a result, in bytes.
const MESSAGE_BYTES_MAX: usize = 512 * 1024;
/// Most lines of a traceback, and longest of them, in bytes.
const TRACEBACK_LINES_MAX: usize = 1_000;
const LINE_BYTES_MAX: usize = 64 * 1024;
/// Most memory of a run's value as a tree of JSON values; a larger value is kept as text only.
const RESULT_TREE_BYTES_MAX: usize = 8 * 1024 * 1024;

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Done {
    pub run: u32,
    pub status: Status,
    pub exit_code: Option<i64>,
    pub error: Option<Raised>,
    pub result: Option<ResultValue>,
    #[serde(default)]
    pub execution_count: u64,
    #[serde(default, deserialize_with = "json_limits::list::<VARIABLES_MAX, _, _>")]
    pub variables: Vec<Variable>,
    /// Variables beyond the kernel's limit, which are not listed.
    #[serde(default)]
    pub variables_left_out: u64,
    /// Names that are imported, which are not listed; without modules.
    #[serde(default)]
    pub imported: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Completed,
    Raised,
    Interrupted,
}

/// An uncaught exception of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Raised {
    #[serde(deserialize_with = "json_limits::text::<WORDS_BYTES_MAX, _>")]
    pub name: String,
    #[serde(deserialize_with = "json_limits::text::<MESSAGE_BYTES_MAX, _>")]
    pub message: String,
    #[serde(deserialize_with = "json_limits::texts::<TRACEBACK_LINES_MAX, LINE_BYTES_MAX, _>")]
    pub traceback: Vec<String>,
    /// The traceback with the user's own frames only, without the message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "json_limits::texts::<TRACEBACK_LINES_MAX, LINE_BYTES_MAX, _>")]
    pub own: Vec<String>,
    pub line: Option<u64>,
    /// The name that a `NameError` did not find.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "json_limits::text_maybe::<WORDS_BYTES_MAX, _>")]
    pub missing: Option<String>,
    /// Whether the rules of the session raised it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub blocked: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResultValue {
    #[serde(deserialize_with = "json_limits::text::<MESSAGE_BYTES_MAX, _>")]
    pub text: String,
    /// Set only if the value is plain data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "json_limits::tree::<RESULT_TREE_BYTES_MAX, _>")]
    pub json: Option<Json>,
    /// Whether it is a variable named `result`, `output` or `RESULT`, and not the last expression.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub named: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variable {
    #[serde(deserialize_with = "json_limits::text::<WORDS_BYTES_MAX, _>")]
    pub name: String,
    #[serde(rename = "type", deserialize_with = "json_limits::text::<WORDS_BYTES_MAX, _>")]
    pub type_name: String,
    /// Type, size and dtypes in one short line, of data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "json_limits::text_maybe::<ABOUT_BYTES_MAX, _>")]
    pub about: Option<String>,
}
