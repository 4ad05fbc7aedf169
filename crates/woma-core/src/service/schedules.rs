//! Requests about schedules.

use jiff::Timestamp;
use serde_json::json;
use uuid::Uuid;

use super::Service;
use super::jobs::{JobSubmission, check};
use crate::error::Error;
use crate::execution::jobs::request;
use crate::execution::jobs::schedule::next_after;
use crate::model::caller::Caller;
use crate::storage::db::{ScheduleRow, StoreError};

/// Schedules of one caller.
const SCHEDULES_MAX: u64 = 100;
/// Longest name, in characters.
const NAME_CHARS_MAX: usize = 200;
/// Schedules of one page.
const PAGE_MAX: usize = 1_000;

/// A schedule to be made.
#[derive(Debug, Clone)]
pub struct NewSchedule {
    pub job: JobSubmission,
    /// Minute, hour, day of the month, month, day of the week.
    pub cron: String,
    /// Name of a time zone; `None` is UTC.
    pub zone: Option<String>,
    pub name: Option<String>,
}

/// Schedules of one page, and the cursor of the next one.
#[derive(Debug, Clone)]
pub struct SchedulePage {
    pub schedules: Vec<ScheduleRow>,
    pub next: Option<String>,
}

impl Service {
    pub async fn create_schedule(
        &self,
        caller: &Caller,
        wanted: NewSchedule,
    ) -> Result<ScheduleRow, Error> {
        let NewSchedule { job, cron, zone, name } = wanted;
        caller.may_schedule()?;
        self.executor.check_job(caller, &job.execute)?;
        check(&job)?;
        if job.idempotency_key.is_some() || job.run_at.is_some() || job.webhook.is_some() {
            let why = "a schedule has no `idempotency_key`, no `run_at` and no `webhook`";
            return Err(Error::BadJob(why.to_owned()));
        }
        if name.as_ref().is_some_and(|name| name.chars().count() > NAME_CHARS_MAX) {
            return Err(Error::LabelTooLong { what: "name", limit_chars: NAME_CHARS_MAX });
        }
        let zone = zone.unwrap_or_else(|| "UTC".to_owned());
        let now = Timestamp::now();
        let session = job.execute.session.named();
        let row = ScheduleRow {
            id: Uuid::now_v7().to_string(),
            owner: caller.id.as_str().to_owned(),
            name,
            next_at: next_after(&cron, &zone, now)?,
            cron,
            zone,
            session_id: session.as_ref().map(|session| session.as_str().to_owned()),
            priority: job.priority,
            retries: job.retries,
            request: request::write(&job.execute)?.0,
            caller: request::write_caller(caller)?,
            is_paused: false,
            created_at: now,
            last_at: None,
            last_job: None,
            problem: None,
        };
        match self.storage()?.storage.db.add_schedule(&row, SCHEDULES_MAX).await {
            Err(StoreError::Conflict) => {
                return Err(Error::TooManySchedules { limit: SCHEDULES_MAX });
            }
            added => added?,
        }
        self.note(caller, "create_schedule", session.as_ref(), &json!({"schedule": row.id}));
        Ok(row)
    }

    pub async fn schedule(&self, caller: &Caller, id: &str) -> Result<ScheduleRow, Error> {
        caller.may_read()?;
        let row = self.storage()?.storage.db.schedule(caller.id.as_str(), id).await?;
        row.ok_or_else(|| no_schedule(id))
    }

    /// Schedules of a caller, latest first; `before` is the cursor of the page before.
    pub async fn schedules(
        &self,
        caller: &Caller,
        limit: usize,
        before: Option<&str>,
    ) -> Result<SchedulePage, Error> {
        caller.may_read()?;
        let limit = limit.clamp(1, PAGE_MAX);
        let asked = u32::try_from(limit + 1).unwrap_or(u32::MAX);
        let db = &self.storage()?.storage.db;
        let mut schedules = db.schedules(caller.id.as_str(), asked, before).await?;
        let has_more = schedules.len() > limit;
        schedules.truncate(limit);
        let next = schedules.last().filter(|_| has_more).map(|row| row.id.clone());
        Ok(SchedulePage { schedules, next })
    }

    /// Pauses a schedule, or resumes it: occurrences in between are left out.
    pub async fn pause_schedule(
        &self,
        caller: &Caller,
        id: &str,
        is_paused: bool,
    ) -> Result<ScheduleRow, Error> {
        caller.may_schedule()?;
        let row = self.schedule(caller, id).await?;
        let next = match is_paused {
            true => None,
            false => Some(next_after(&row.cron, &row.zone, Timestamp::now())?),
        };
        let db = &self.storage()?.storage.db;
        if !db.pause_schedule(caller.id.as_str(), id, next).await? {
            return Err(no_schedule(id));
        }
        let action = if is_paused { "pause_schedule" } else { "resume_schedule" };
        self.note(caller, action, None, &json!({"schedule": id}));
        self.schedule(caller, id).await
    }

    /// Deletes a schedule; a job that it has made goes on.
    pub async fn delete_schedule(&self, caller: &Caller, id: &str) -> Result<(), Error> {
        caller.may_execute()?;
        if !self.storage()?.storage.db.delete_schedule(caller.id.as_str(), id).await? {
            return Err(no_schedule(id));
        }
        self.note(caller, "delete_schedule", None, &json!({"schedule": id}));
        Ok(())
    }
}

fn no_schedule(id: &str) -> Error {
    Error::NoSchedule(id.chars().take(64).collect())
}
