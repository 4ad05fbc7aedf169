//! Commands that use a server elsewhere, over its REST API. Nothing of this machine's data folder is
//! read, and no Python is started.

mod client;
pub(super) mod files;
pub(super) mod jobs;
pub(super) mod keys;
pub(super) mod sessions;

use std::error::Error;
use std::process::ExitCode;

use serde_json::Value;

use crate::terminal::{fail, print};
pub(super) use client::{Client, RemoteError};

/// Prints what a command has to say, or its error.
pub(super) fn finish(outcome: Result<String, Box<dyn Error>>) -> ExitCode {
    match outcome {
        Ok(text) => {
            print(&text);
            ExitCode::SUCCESS
        }
        Err(error) => failed(&*error),
    }
}

pub(super) fn failed(error: &(dyn Error + 'static)) -> ExitCode {
    let hint = error.downcast_ref::<RemoteError>().and_then(RemoteError::hint);
    fail(error, hint)
}

/// One line for a terminal: names come from callers, and control characters could move the cursor.
pub(super) fn line(columns: &[&str]) -> String {
    let text = columns.join("  ");
    let shown = text.trim_end().chars().map(|c| if c.is_control() { '\u{fffd}' } else { c });
    shown.collect::<String>() + "\n"
}

/// The text of a field, or a dash.
fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or("-")
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// One JSON object a line, as `jq` and `while read` want it.
fn json_lines(rows: &[Value]) -> String {
    rows.iter().flat_map(|row| [row.to_string(), "\n".to_owned()]).collect()
}
