//! `woma audit`: the audit trail of this machine's server, and the check of its hash chains.

use std::error::Error;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use woma_core::StorageSettings;
use woma_core::store::{AuditCheck, AuditFilter, AuditHead};

use crate::api::history::AuditBody;
use crate::config::Config;
use crate::config::flags::{DataOptions, SettingOptions};
use crate::server::rights;
use crate::server::start;
use crate::terminal::{fail, print};

/// Exit status of a check that has found a row which is not as it was written.
const TAMPERED: u8 = 1;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Option<Command>,
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
    settings: SettingOptions,
}

impl Options {
    /// The settings that take effect: those of the subcommand, if there is one.
    pub(super) fn settings_mut(&mut self) -> &mut SettingOptions {
        match &mut self.command {
            Some(Command::Verify { settings, .. } | Command::Head { settings }) => settings,
            None => &mut self.settings,
        }
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check that no row was changed, removed or inserted; exit status 1 names the first that was
    Verify {
        /// Check a head that `woma audit head` printed earlier as well: CHAIN:POSITION:HASH
        #[arg(long = "head", value_name = "HEAD", value_parser = head)]
        heads: Vec<AuditHead>,
        #[command(flatten)]
        settings: SettingOptions,
    },
    /// Print the last row of each chain as CHAIN:POSITION:HASH, to be kept elsewhere
    Head {
        #[command(flatten)]
        settings: SettingOptions,
    },
}

pub(crate) fn main(data: &DataOptions, options: &Options) -> ExitCode {
    let done = match &options.command {
        None => read(data, options).map(|text| (text, ExitCode::SUCCESS)),
        Some(Command::Verify { heads, settings }) => verify(data, settings, heads),
        Some(Command::Head { settings }) => heads(data, settings),
    };
    match done {
        Ok((text, status)) => {
            print(&text);
            status
        }
        Err(error) => fail(&*error, None),
    }
}

fn head(text: &str) -> Result<AuditHead, String> {
    let parts: Vec<&str> = text.trim().split(':').collect();
    let [chain, position, hash] = parts.as_slice() else {
        return Err("use CHAIN:POSITION:HASH, as `woma audit head` prints it".to_owned());
    };
    let position = position.parse().map_err(|error| format!("`{position}`: {error}"))?;
    Ok(AuditHead { chain: (*chain).to_owned(), position, hash: (*hash).to_owned() })
}

fn verify(
    data: &DataOptions,
    settings: &SettingOptions,
    heads: &[AuditHead],
) -> Result<(String, ExitCode), Box<dyn Error>> {
    let Some(storage) = storage(data, settings)? else {
        return Ok((String::new(), ExitCode::SUCCESS));
    };
    let check = runtime()?.block_on(woma_core::check_audit(&storage, heads))?;
    let status = match check.problem {
        None => ExitCode::SUCCESS,
        Some(_) => ExitCode::from(TAMPERED),
    };
    Ok((report(&check), status))
}

fn report(check: &AuditCheck) -> String {
    let mut lines = Vec::new();
    for chain in &check.chains {
        let AuditHead { chain: name, position, .. } = &chain.head;
        let (rows, first) = (chain.rows, chain.first);
        lines.push(format!("chain {name}: {rows} rows, positions {first} to {position}"));
    }
    for head in &check.purged {
        let AuditHead { chain, position, .. } = head;
        lines.push(format!("head {chain}:{position}: purged since, it cannot be checked any more"));
    }
    if check.unchained > 0 {
        let count = check.unchained;
        lines.push(format!("{count} rows are older than the chains and cannot be checked"));
    }
    lines.push(match &check.problem {
        Some(problem) => format!("The audit trail was tampered with: {problem}."),
        None => "The audit trail is intact.".to_owned(),
    });
    lines.join("\n") + "\n"
}

fn heads(
    data: &DataOptions,
    settings: &SettingOptions,
) -> Result<(String, ExitCode), Box<dyn Error>> {
    let Some(storage) = storage(data, settings)? else {
        return Ok((String::new(), ExitCode::SUCCESS));
    };
    let heads = runtime()?.block_on(woma_core::audit_heads(&storage))?;
    let line = |AuditHead { chain, position, hash }| format!("{chain}:{position}:{hash}\n");
    Ok((heads.into_iter().map(line).collect(), ExitCode::SUCCESS))
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// The storage of the server; `None` if only the configuration was to be printed.
fn storage(
    data: &DataOptions,
    settings: &SettingOptions,
) -> Result<Option<StorageSettings>, Box<dyn Error>> {
    let configured = start::configure(data, settings, Config::load_without_foreign_dot_env)?;
    let Some(config) = configured else { return Ok(None) };
    if config.data_dir.exists() {
        rights::become_server_user(config.run_as.as_deref(), &config.data_dir)?;
    }
    let storage = start::storage_settings(&config);
    if storage.database_url.is_none() && !storage.folder.join("woma.db").is_file() {
        let folder = storage.folder.display();
        return Err(format!("no server has stored anything in {folder}: use --data-dir DIR").into());
    }
    Ok(Some(storage))
}

fn read(data: &DataOptions, options: &Options) -> Result<String, Box<dyn Error>> {
    let Some(storage) = storage(data, &options.settings)? else { return Ok(String::new()) };
    let filter = AuditFilter {
        owner: options.owner.clone(),
        session_id: options.session.clone(),
        action: options.action.clone(),
        since: options.since,
        until: options.until,
        before: None,
    };
    let rows = runtime()?.block_on(woma_core::read_audit(&storage, &filter, options.limit))?;
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
