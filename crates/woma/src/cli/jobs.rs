//! `woma jobs`: the jobs of this machine's server, in its store. The server may run meanwhile; it
//! runs what is submitted here, and stops what is cancelled here.

use std::error::Error;
use std::io::Read as _;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use woma_core::store::{JobFilter, JobRow, JobState};
use woma_core::{Execute, JobInfo, JobQueue, NewWebhook, SessionChoice, SessionId};

use crate::api::jobs::JobReply;
use crate::api::reply::Reply;
use crate::config::Config;
use crate::config::flags::{DataOptions, SettingOptions};
use crate::server::{rights, start};
use crate::terminal::{fail, print};

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
    /// Caller that the jobs belong to, such as `local` or `key:1a2b3c`
    #[arg(long, value_name = "ID", default_value = "local", global = true)]
    owner: String,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    pub(super) settings: SettingOptions,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List jobs, the latest first
    List {
        /// Only jobs in this state, such as `running`
        #[arg(long, value_name = "STATE", value_parser = state)]
        status: Option<JobState>,
        /// Only jobs of this session
        #[arg(long, value_name = "ID")]
        session: Option<String>,
        /// Number of jobs
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        limit: u32,
    },
    /// Show a job
    Show { id: String },
    /// Print what a job has said, or with --json the reply to its run
    Result { id: String },
    /// Cancel a job; its processes are killed
    Cancel { id: String },
    /// Queue the code of a file, or of standard input
    Submit {
        /// File with Python code; `-` is standard input
        file: std::path::PathBuf,
        /// Session to run beside; none is a session that ends with the job
        #[arg(long, value_name = "ID")]
        session: Option<String>,
        /// Time limit in seconds
        #[arg(long, value_name = "SECONDS")]
        timeout: Option<f64>,
        /// Address that the end of the job is posted to; the secret that signs it is printed
        #[arg(long, value_name = "URL")]
        webhook: Option<String>,
    },
}

fn state(text: &str) -> Result<JobState, String> {
    let names = JobState::ALL.map(JobState::name).join(", ");
    JobState::parse(text).ok_or_else(|| format!("use one of {names}"))
}

pub(crate) fn main(data: &DataOptions, options: &Options) -> ExitCode {
    match act(data, options) {
        Ok(text) => {
            print(&text);
            ExitCode::SUCCESS
        }
        Err(error) => {
            let hint = error.downcast_ref::<woma_core::Error>().and_then(woma_core::Error::hint);
            fail(&*error, hint.as_deref())
        }
    }
}

fn act(data: &DataOptions, options: &Options) -> Result<String, Box<dyn Error>> {
    // Before the rights of who may read it are given up.
    let source = match &options.command {
        Command::Submit { file, .. } => Some(read(file)?),
        _ => None,
    };
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
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let queue = JobQueue::open(&storage).await?;
        let owner = options.owner.as_str();
        match &options.command {
            Command::List { status, session, limit } => {
                let filter = JobFilter { state: *status, session: session.clone(), schedule: None };
                let rows = queue.list(owner, &filter, *limit).await?;
                Ok(rows.into_iter().map(|row| told(options, row)).collect())
            }
            Command::Show { id } => Ok(told(options, queue.show(owner, id).await?)),
            Command::Cancel { id } => Ok(told(options, queue.cancel(owner, id).await?)),
            Command::Result { id } => result(&queue, options, id).await,
            Command::Submit { session, timeout, webhook, .. } => {
                let session = match session {
                    Some(id) => SessionChoice::Named(SessionId::parse(id)?),
                    None => SessionChoice::Ephemeral,
                };
                let source = source.unwrap_or_default();
                let execute = Execute { timeout: *timeout, ..Execute::new(source, session) };
                let bytes_max = usize::try_from(config.code_bytes_max)?;
                let jobs = start::job_settings(&config);
                JobQueue::check(&execute.source, bytes_max)?;
                let webhook = webhook.clone().map(|url| NewWebhook { url, secret: None });
                let (row, secret) = queue.submit(jobs, owner, &execute, webhook).await?;
                let info = JobInfo { webhook_secret: secret.clone(), ..JobInfo::from(row) };
                let secret = secret.filter(|_| !options.json).map(|secret| secret + "\n");
                Ok(told_of(options, info) + &secret.unwrap_or_default())
            }
        }
    })
}

fn read(file: &std::path::Path) -> std::io::Result<String> {
    if file.as_os_str() != "-" {
        return std::fs::read_to_string(file);
    }
    let mut source = String::new();
    std::io::stdin().read_to_string(&mut source)?;
    Ok(source)
}

async fn result(queue: &JobQueue, options: &Options, id: &str) -> Result<String, Box<dyn Error>> {
    let execution = queue.result(&options.owner, id).await?;
    if let (true, Some(execution)) = (options.json, execution) {
        return Ok(serde_json::to_string(&Reply::new(execution).with_base(None))? + "\n");
    }
    let output = queue.output(&options.owner, id).await?;
    let gap = match output.tail.is_empty() {
        true => "",
        false => "\n[…]\n",
    };
    Ok(format!("{}{gap}{}", output.head, output.tail))
}

fn told(options: &Options, row: JobRow) -> String {
    told_of(options, JobInfo::from(row))
}

fn told_of(options: &Options, info: JobInfo) -> String {
    let reply = JobReply::from(info);
    if options.json {
        return serde_json::to_string(&reply).unwrap_or_default() + "\n";
    }
    let value = serde_json::to_value(&reply).unwrap_or_default();
    let text = |name: &str| value[name].as_str().unwrap_or("-").to_owned();
    let (submitted, session) = (text("submitted_at"), text("session_id"));
    let error = value["error"]["message"].as_str().unwrap_or_default();
    let line = format!("{}  {}  {submitted}  {session}  {error}", reply.job_id, reply.status);
    // Names come from callers: control characters could move the cursor.
    let shown: String =
        line.trim_end().chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    shown + "\n"
}
