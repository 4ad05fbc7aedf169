//! `woma audit`: the audit trail of this machine's server.

use std::error::Error;
use std::process::ExitCode;

use clap::Args;
use jiff::Timestamp;
use woma_core::store::AuditFilter;

use crate::api::history::AuditBody;
use crate::config::Config;
use crate::config::flags::{DataOptions, SettingOptions};
use crate::server::rights;
use crate::server::start;
use crate::terminal::{fail, print};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Only actions of this caller, such as `local` or `key:1a2b3c`
    #[arg(long, value_name = "ID")]
    owner: Option<String>,
    /// Only actions on this session
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Only this action, such as `execute` or `security_event`
    #[arg(long, value_name = "WORD")]
    action: Option<String>,
    /// Not before this time, such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME")]
    since: Option<Timestamp>,
    /// Before this time
    #[arg(long, value_name = "TIME")]
    until: Option<Timestamp>,
    /// Number of rows, latest first
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(super) settings: SettingOptions,
}

pub(crate) fn main(data: &DataOptions, options: &Options) -> ExitCode {
    match read(data, options) {
        Ok(text) => {
            print(&text);
            ExitCode::SUCCESS
        }
        Err(error) => fail(&*error, None),
    }
}

fn read(data: &DataOptions, options: &Options) -> Result<String, Box<dyn Error>> {
    let configured =
        start::configure(data, &options.settings, Config::load_without_foreign_dot_env)?;
    let Some(config) = configured else { return Ok(String::new()) };
    if config.data_dir.exists() {
        rights::become_server_user(config.run_as.as_deref(), &config.data_dir)?;
    }
    let storage = start::storage_settings(&config);
    if storage.database_url.is_none() && !storage.folder.join("woma.db").is_file() {
        let folder = storage.folder.display();
        return Err(format!("no server has stored anything in {folder}: use --data-dir DIR").into());
    }
    let filter = AuditFilter {
        owner: options.owner.clone(),
        session_id: options.session.clone(),
        action: options.action.clone(),
        since: options.since,
        until: options.until,
        before: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let rows = runtime.block_on(woma_core::read_audit(&storage, &filter, options.limit))?;
    let rows = rows.into_iter().map(AuditBody::from);
    if options.json {
        let lines: Result<Vec<String>, _> = rows.map(|row| serde_json::to_string(&row)).collect();
        return Ok(lines?.iter().map(|line| line.clone() + "\n").collect());
    }
    Ok(rows.map(|row| line(&row)).collect())
}

fn line(row: &AuditBody) -> String {
    let session = row.session_id.as_deref().unwrap_or("-");
    let execution = row.execution_id.as_deref().unwrap_or("-");
    let AuditBody { at, owner, action, detail, .. } = row;
    // Names come from callers: control characters could move the cursor.
    let text = format!("{at}  {owner}  {action}  {session}  {execution}  {detail}");
    let shown: String = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    shown + "\n"
}
