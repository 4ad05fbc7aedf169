//! `woma jobs`: the jobs of this machine's server, in its store. The server may run meanwhile; it
//! runs what is submitted here, and stops what is cancelled here.

use std::error::Error;
use std::io::Read as _;
use std::process::ExitCode;

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use woma_core::store::{JobFilter, JobRow, JobState};
use woma_core::{Execute, JobInfo, JobQueue, NewWebhook, SessionChoice, SessionId};

use super::remote::{self, Client};
use crate::api::jobs::JobReply;
use crate::api::reply::Reply;
use crate::config::Config;
use crate::config::flags::{DataOptions, SettingOptions};
use crate::config::remote::RemoteOptions;
use crate::server::{rights, start};
use crate::terminal::{Waiting, fail, print, tell};

/// Exit status of waiting for a job that did not complete.
const UNSUCCESSFUL: u8 = 1;
/// Time between two looks at a job that has not ended.
const WAIT_PAUSE: Duration = Duration::from_millis(250);

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
    /// Caller that the jobs belong to, such as `key:1a2b3c` [default: local; on a server elsewhere,
    /// the caller with the key]
    #[arg(long, value_name = "ID", global = true)]
    owner: Option<String>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    remote: RemoteOptions,
    #[command(flatten)]
    pub(super) settings: SettingOptions,
}

impl Options {
    /// The server elsewhere that is meant, if it is not this machine's.
    fn elsewhere(&self, data: &DataOptions) -> Result<Option<Client>, Box<dyn Error>> {
        let Some(server) = self.remote.server(data)? else { return Ok(None) };
        let owner = self.owner.as_ref().map(|_| "--owner".to_owned());
        match owner.or(self.settings.first()) {
            Some(flag) => {
                Err(format!("{flag} has no effect on a server elsewhere: leave it out").into())
            }
            None => Ok(Some(Client::new(server))),
        }
    }

    fn owner(&self) -> &str {
        self.owner.as_deref().unwrap_or(THIS_MACHINE)
    }
}

/// The caller of an open server, and of `woma run`.
const THIS_MACHINE: &str = "local";

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
    /// Wait for the end of a job, and print its result; ends with 1 if the job did not complete
    Wait { id: String },
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
        /// Wait for its end, and print its result, as `woma jobs wait` does
        #[arg(long)]
        wait: bool,
    },
}

fn state(text: &str) -> Result<JobState, String> {
    let names = JobState::ALL.map(JobState::name).join(", ");
    JobState::parse(text).ok_or_else(|| format!("use one of {names}"))
}

pub(crate) fn main(data: &DataOptions, options: &Options) -> ExitCode {
    match options.elsewhere(data) {
        Ok(None) => {}
        Ok(Some(client)) => return on(&client, options),
        Err(error) => return fail(&*error, None),
    }
    match act(data, options) {
        Ok((text, is_success)) => {
            print(&text);
            if is_success { ExitCode::SUCCESS } else { ExitCode::from(UNSUCCESSFUL) }
        }
        Err(error) => {
            let hint = error.downcast_ref::<woma_core::Error>().and_then(woma_core::Error::hint);
            fail(&*error, hint.as_deref())
        }
    }
}

/// Runs the command on a server elsewhere.
fn on(client: &Client, options: &Options) -> ExitCode {
    use remote::jobs::Request;
    let request = match &options.command {
        Command::List { status, session, limit } => Request::List {
            status: status.map(JobState::name),
            session: session.as_deref(),
            limit: usize::try_from(*limit).unwrap_or(usize::MAX),
        },
        Command::Show { id } => Request::Show { id },
        Command::Cancel { id } => Request::Cancel { id },
        Command::Result { id } => Request::Result { id },
        Command::Wait { id } => Request::Wait { id },
        Command::Submit { file, session, timeout, webhook, wait } => {
            let code = match read(file) {
                Ok(code) => code,
                Err(error) => return fail(&error, None),
            };
            let fields = [
                ("code", Some(json!(code))),
                ("session_id", session.clone().map(Value::from)),
                ("timeout", timeout.map(Value::from)),
                ("webhook", webhook.clone().map(Value::from)),
            ];
            let given = fields.into_iter();
            let given = given.filter_map(|(name, value)| Some((name.to_owned(), value?)));
            Request::Submit { wanted: given.collect(), wait: *wait }
        }
    };
    remote::jobs::main(client, &request, options.json)
}

fn act(data: &DataOptions, options: &Options) -> Result<(String, bool), Box<dyn Error>> {
    // Before the rights of who may read it are given up.
    let source = match &options.command {
        Command::Submit { file, .. } => Some(read(file)?),
        _ => None,
    };
    let configured =
        start::configure(data, &options.settings, Config::load_without_foreign_dot_env)?;
    let Some(config) = configured else { return Ok((String::new(), true)) };
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
        let owner = options.owner();
        let told = |row| (told(options, row), true);
        Ok(match &options.command {
            Command::List { status, session, limit } => {
                let filter = JobFilter { state: *status, session: session.clone(), schedule: None };
                let rows = queue.list(owner, &filter, *limit).await?;
                (rows.into_iter().map(|row| told(row).0).collect(), true)
            }
            Command::Show { id } => told(queue.show(owner, id).await?),
            Command::Cancel { id } => told(queue.cancel(owner, id).await?),
            Command::Result { id } => (result(&queue, options, id).await?, true),
            Command::Wait { id } => waited(&queue, options, id).await?,
            Command::Submit { session, timeout, webhook, wait, .. } => {
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
                if *wait {
                    if let Some(secret) = &secret {
                        tell(&format!("secret of the webhook: {secret}"));
                    }
                    return waited(&queue, options, &row.id).await;
                }
                let info = JobInfo { webhook_secret: secret.clone(), ..JobInfo::from(row) };
                let secret = secret.filter(|_| !options.json).map(|secret| secret + "\n");
                (told_of(options, info) + &secret.unwrap_or_default(), true)
            }
        })
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

/// The result of a job when it has ended, and whether it completed.
async fn waited(
    queue: &JobQueue,
    options: &Options,
    id: &str,
) -> Result<(String, bool), Box<dyn Error>> {
    let told = format!("waiting for job {id}");
    let waiting = Waiting::start(move || told.clone());
    let job = loop {
        let job = queue.show(options.owner(), id).await?;
        if job.state.is_final() {
            break job;
        }
        tokio::time::sleep(WAIT_PAUSE).await;
    };
    drop(waiting);
    let is_success = job.state == JobState::Completed;
    if !is_success {
        tell(&format!("job {id}: {}", job.state.name()));
    }
    Ok((result(queue, options, id).await?, is_success))
}

async fn result(queue: &JobQueue, options: &Options, id: &str) -> Result<String, Box<dyn Error>> {
    let execution = queue.result(options.owner(), id).await?;
    if let (true, Some(execution)) = (options.json, execution) {
        return Ok(serde_json::to_string(&Reply::new(execution).with_base(None))? + "\n");
    }
    let output = queue.output(options.owner(), id).await?;
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
