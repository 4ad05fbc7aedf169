//! `woma sessions`: sessions of a server.

use std::error::Error;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::client::encoded;
use super::{Client, finish, json_lines, line, text};
use crate::config::flags::DataOptions;
use crate::config::remote::RemoteOptions;

const ROWS_MAX: usize = 1_000_000;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    remote: RemoteOptions,
    /// Print JSON, one object a line
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List your sessions: id, state, last activity, name
    List,
    /// Show a session
    Show { id: String },
    /// Delete sessions with their variables and files; running code is interrupted
    Delete {
        #[arg(required = true)]
        ids: Vec<String>,
    },
}

pub(crate) fn main(data: &DataOptions, options: &Options) -> ExitCode {
    finish(act(data, options))
}

fn act(data: &DataOptions, options: &Options) -> Result<String, Box<dyn Error>> {
    let client = Client::new(options.remote.server_required(data)?);
    let told = |rows: &[Value]| match options.json {
        true => json_lines(rows),
        false => rows.iter().map(row).collect(),
    };
    let path = |id: &str| format!("/api/v1/sessions/{}", encoded(id));
    match &options.command {
        Command::List => Ok(told(&client.rows("/api/v1/sessions", "sessions", ROWS_MAX)?)),
        Command::Show { id } => {
            let session = client.get(&path(id))?;
            Ok(if options.json { json_lines(&[session]) } else { details(&session) })
        }
        Command::Delete { ids } => {
            let deleted: Result<Vec<_>, _> =
                ids.iter().map(|id| client.delete(&path(id))).collect();
            let deleted = deleted?;
            Ok(match options.json {
                true => json_lines(&deleted),
                false => {
                    deleted.iter().map(|one| line(&["deleted", text(one, "session_id")])).collect()
                }
            })
        }
    }
}

fn row(session: &Value) -> String {
    let state = match (session["is_busy"].as_bool(), session["is_live"].as_bool()) {
        (Some(true), _) => "busy",
        (_, Some(true)) => "live",
        _ => "stored",
    };
    let id = format!("{:<36}", text(session, "session_id"));
    line(&[&id, &format!("{state:<6}"), text(session, "last_activity"), text(session, "name")])
}

/// One line for each field.
fn details(value: &Value) -> String {
    let Some(fields) = value.as_object() else { return String::new() };
    let shown = fields.iter().map(|(name, value)| {
        let plain = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        line(&[&format!("{name:<16}"), &plain])
    });
    shown.collect()
}
