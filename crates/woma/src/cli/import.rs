//! `woma import`: sessions, files and download links of an earlier system.

use std::error::Error;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use woma_core::{CallerId, ImportProgress, ImportRequest, ImportSummary, import_power_interpreter};

use crate::config::Config;
use crate::config::flags::{DataOptions, SettingOptions};
use crate::config::types::Secret;
use crate::server::{rights, start};
use crate::terminal::{fail, print, tell};

/// How often progress is shown.
const SHOWN_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Take over sessions, files and download links of Power Interpreter
    ///
    /// Its database is only read. Files keep their addresses, /dl/{id}/{name}, and their time of
    /// expiry. The command can be repeated: what is there already stays as it is. Jobs, datasets and
    /// logs are not taken over.
    PowerInterpreter(Options),
}

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The database of Power Interpreter, as its `DATABASE_URL` has it
    #[arg(long, value_name = "URL")]
    from: Secret,
    /// Its folder of sessions' files, `/app/sandbox_data` in its container: files that are not in
    /// its database come from there
    #[arg(long, value_name = "DIR")]
    files: Option<PathBuf>,
    /// The caller who gets everything, such as `key:1a2b3c` [default: key:default, the caller with
    /// `API_KEY`, or `local` if `API_KEY` is not set]
    #[arg(long, value_name = "ID")]
    owner: Option<String>,
    /// Only show what would be taken over
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    pub(super) settings: SettingOptions,
}

pub(crate) fn main(data: &DataOptions, command: &Command) -> ExitCode {
    let Command::PowerInterpreter(options) = command;
    match import(data, options) {
        Ok(text) => {
            print(&text);
            ExitCode::SUCCESS
        }
        Err(error) => fail(&*error, None),
    }
}

fn import(data: &DataOptions, options: &Options) -> Result<String, Box<dyn Error>> {
    let configured =
        start::configure(data, &options.settings, Config::load_without_foreign_dot_env)?;
    let Some(config) = configured else { return Ok(String::new()) };
    if !options.dry_run {
        std::fs::create_dir_all(&config.data_dir)?;
        rights::become_server_user(config.run_as.as_deref(), &config.data_dir)?;
    }
    let default = || match config.api_key {
        Some(_) => CallerId::default_key(),
        None => woma_core::Caller::local().id,
    };
    let request = ImportRequest {
        from: options.from.expose().to_owned(),
        files: options.files.clone(),
        owner: options.owner.clone().map_or_else(default, CallerId::new),
        is_dry_run: options.dry_run,
    };
    let mut shown = None::<Instant>;
    let mut show = |progress: ImportProgress| {
        let is_last = progress.files_done == progress.files_all;
        if is_last || shown.is_none_or(|at| at.elapsed() >= SHOWN_EVERY) {
            let ImportProgress { files_done, files_all, bytes_done } = progress;
            tell(&format!("woma: {files_done} of {files_all} files, {} MB", megabytes(bytes_done)));
            shown = Some(Instant::now());
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let storage = start::storage_settings(&config);
    let summary = runtime.block_on(import_power_interpreter(storage, &request, &mut show))?;
    Ok(told(&summary, &request))
}

fn megabytes(bytes: u64) -> u64 {
    bytes.div_ceil(1_000_000)
}

fn told(summary: &ImportSummary, request: &ImportRequest) -> String {
    let verb = if request.is_dry_run { "would be taken over" } else { "taken over" };
    let ImportSummary { sessions, files, bytes, .. } = summary;
    let (owner, size) = (request.owner.as_str(), megabytes(*bytes));
    let mut text = format!(
        "{verb} for {owner}: {sessions} sessions, {files} files with their links ({size} MB)\n"
    );
    let mut line = |count: u64, what: &str| {
        if count > 0 {
            // Writing to a String cannot fail.
            writeln!(text, "{count} {what}").unwrap_or_default();
        }
    };
    line(summary.files_known, "files were there already");
    line(summary.files_expired, "files had expired");
    line(
        summary.files_without_session,
        "files keep their links without a session: its name cannot be used here",
    );
    line(summary.refused_count, "files were not taken over:");
    for (name, why) in &summary.refused {
        // Names come from another system's users: control characters could move the cursor.
        let name: String = name.chars().filter(|c| !c.is_control()).collect();
        writeln!(text, "  {name}: {why}").unwrap_or_default();
    }
    let behind: Vec<String> = summary
        .left_behind
        .iter()
        .map(|(table, count)| format!("{count} rows of {table}"))
        .collect();
    if !behind.is_empty() {
        writeln!(text, "left where they are: {}", behind.join(", ")).unwrap_or_default();
    }
    text
}
