//! Jobs for the operator at the machine, in the store of a server that may run meanwhile.

use uuid::Uuid;

use super::webhook::NewWebhook;
use super::{JobSettings, Jobs, request};
use crate::error::Error;
use crate::execution::request::check_source;
use crate::model::caller::{Caller, CallerId};
use crate::model::{Execute, Execution};
use crate::storage::db::{JobFilter, JobOutputRow, JobRow, NewJob, Queued, Store};
use crate::storage::layout::StorageSettings;

/// The queue of a server.
#[derive(Debug)]
pub struct JobQueue {
    db: Store,
}

impl JobQueue {
    /// Checks code as a server does before it is queued.
    pub fn check(source: &str, source_bytes_max: usize) -> Result<(), Error> {
        check_source(source, source_bytes_max)
    }

    pub async fn open(settings: &StorageSettings) -> Result<Self, Error> {
        Ok(Self { db: Store::open(settings.store()).await? })
    }

    /// Jobs of a caller, latest first.
    pub async fn list(
        &self,
        owner: &str,
        filter: &JobFilter,
        limit: u32,
    ) -> Result<Vec<JobRow>, Error> {
        Ok(self.db.jobs(owner, filter, limit, None).await?)
    }

    pub async fn show(&self, owner: &str, id: &str) -> Result<JobRow, Error> {
        self.db.job(owner, id).await?.ok_or_else(|| no_job(id))
    }

    /// Output of a job: the beginning and the end.
    pub async fn output(&self, owner: &str, id: &str) -> Result<JobOutputRow, Error> {
        self.db.job_output(owner, id).await?.ok_or_else(|| no_job(id))
    }

    /// The execution of a job that has ended with one, without its pictures.
    pub async fn result(&self, owner: &str, id: &str) -> Result<Option<Execution>, Error> {
        self.show(owner, id).await?;
        let Some(json) = self.db.job_result(owner, id).await? else { return Ok(None) };
        let read = Execution::from_stored(&json, Vec::new());
        read.map(Some).map_err(|_| Error::BadJobResult(id.to_owned()))
    }

    /// Cancels a job; the server that runs it is told within seconds.
    pub async fn cancel(&self, owner: &str, id: &str) -> Result<JobRow, Error> {
        self.db.cancel_job(owner, id).await?.ok_or_else(|| no_job(id))
    }

    /// Queues a job of a caller; a server runs it. The second value is the secret that was made for
    /// its webhook.
    pub async fn submit(
        &self,
        settings: JobSettings,
        owner: &str,
        execute: &Execute,
        webhook: Option<NewWebhook>,
    ) -> Result<(JobRow, Option<String>), Error> {
        let jobs = Jobs::new(settings);
        let (webhook, secret) = jobs.webhook(webhook)?;
        let caller = Caller { id: CallerId::new(owner), ..Caller::local() };
        let (json, request_sha256) = request::write(execute)?;
        let session = execute.session.named();
        let job = NewJob {
            id: Uuid::now_v7().to_string(),
            owner: owner.to_owned(),
            session_id: session.map(|session| session.as_str().to_owned()),
            priority: 0,
            retries: 0,
            request: json,
            request_sha256,
            caller: request::write_caller(&caller)?,
            idempotency_key: None,
            schedule_id: None,
            due_at: None,
            webhook,
        };
        let limits = jobs.queue_limits(&caller.id);
        match self.db.submit_job(&job, limits).await? {
            Queued::Added(row) | Queued::Known(row) => Ok((*row, secret)),
            Queued::Full => Err(Error::QueueFull { what: "too many jobs wait already".to_owned() }),
        }
    }
}

fn no_job(id: &str) -> Error {
    Error::NoJob(id.chars().take(64).collect())
}
