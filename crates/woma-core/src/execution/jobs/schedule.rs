//! Schedules: jobs that repeat. An occurrence makes one job, whichever server is first; those that
//! were missed while no server ran make one together.

use std::str::FromStr as _;

use croner::Cron;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use uuid::Uuid;

use super::request;
use crate::error::Error;
use crate::execution::Executor;
use crate::model::caller::{Caller, CallerId};
use crate::storage::db::{NewJob, Occurrence, ScheduleRow, StoreError};

/// Schedules that one look takes in.
const DUE_MAX: u32 = 100;
/// Fields of an expression: minute, hour, day of the month, month, day of the week.
const FIELDS: usize = 5;

/// The first occurrence after a time.
pub(crate) fn next_after(cron: &str, zone: &str, after: Timestamp) -> Result<Timestamp, Error> {
    let bad = |why: String| Error::BadJob(format!("`cron` cannot be used: {why}"));
    let fields = cron.split_whitespace().count();
    if fields != FIELDS && !cron.trim().starts_with('@') {
        return Err(bad(format!(
            "it has {fields} fields; minute, hour, day, month and weekday are needed"
        )));
    }
    let parsed = Cron::from_str(cron).map_err(|error| bad(error.to_string()))?;
    let zone = match zone {
        "UTC" => TimeZone::UTC,
        name => TimeZone::get(name).map_err(|_| {
            let name: String = name.chars().take(64).collect();
            Error::BadJob(format!("`timezone` `{name}` is not known; use UTC or Europe/Berlin"))
        })?,
    };
    let found = parsed.find_next_occurrence(&after.to_zoned(zone), false);
    found.map(|next| next.timestamp()).map_err(|error| bad(error.to_string()))
}

impl Executor {
    /// Makes the jobs of schedules whose time has come.
    pub(super) async fn fire_schedules(&self) -> Result<(), StoreError> {
        let Some(workspaces) = &self.workspaces else { return Ok(()) };
        let db = &workspaces.storage.db;
        for row in db.due_schedules(DUE_MAX).await? {
            let occurrence = self.occurrence(&row).await;
            let limits = self.jobs.queue_limits(&CallerId::new(row.owner.as_str()));
            match db.fire_schedule(&row, &occurrence, limits).await {
                // Another server was first, or the queue is full and it stays due.
                Ok(()) | Err(StoreError::Conflict | StoreError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn occurrence(&self, row: &ScheduleRow) -> Occurrence {
        let next = next_after(&row.cron, &row.zone, Timestamp::now());
        let next_at = next.unwrap_or(Timestamp::MAX);
        match self.job_of_schedule(row).await {
            Ok(job) => Occurrence { next_at, job: Some(job), problem: None },
            Err(problem) => {
                tracing::info!(id = row.id, problem, "A schedule has made no job");
                Occurrence { next_at, job: None, problem: Some(problem) }
            }
        }
    }

    /// The job of an occurrence, or why there is none.
    async fn job_of_schedule(&self, row: &ScheduleRow) -> Result<NewJob, String> {
        let text = |error: Error| error.to_string();
        let caller: Caller = request::read_caller(&row.caller).map_err(text)?;
        caller.may_schedule().map_err(|error| error.to_string())?;
        self.jobs.check_key(&caller).map_err(text)?;
        if let (Some(last), Some(workspaces)) = (&row.last_job, &self.workspaces) {
            let last = workspaces.storage.db.job(&row.owner, last).await;
            if last.is_ok_and(|job| job.is_some_and(|job| !job.state.is_final())) {
                return Err("the job before this one had not ended".to_owned());
            }
        }
        let mut execute = request::read(&row.request).map_err(text)?;
        let id = row.session_id.as_deref().and_then(|id| crate::model::SessionId::parse(id).ok());
        execute.session = id.map_or(execute.session, crate::model::SessionChoice::Named);
        let (json, request_sha256) = request::write(&execute).map_err(text)?;
        Ok(NewJob {
            id: Uuid::now_v7().to_string(),
            owner: row.owner.clone(),
            session_id: row.session_id.clone(),
            priority: row.priority,
            retries: row.retries,
            request: json,
            request_sha256,
            caller: row.caller.clone(),
            idempotency_key: None,
            schedule_id: Some(row.id.clone()),
            due_at: None,
            webhook: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::next_after;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn occurrences_follow_the_expression_in_its_zone() {
        let after = time("2026-03-10T05:00:30Z");
        for (cron, zone, next) in [
            ("*/15 * * * *", "UTC", "2026-03-10T05:15:00Z"),
            ("0 3 * * *", "UTC", "2026-03-11T03:00:00Z"),
            ("0 9 * * MON", "UTC", "2026-03-16T09:00:00Z"),
            ("@daily", "UTC", "2026-03-11T00:00:00Z"),
        ] {
            assert_eq!(next_after(cron, zone, after).unwrap(), time(next), "{cron}");
        }
        let berlin = next_after("0 9 * * *", "Europe/Berlin", after);
        // Without the system's time zones, only UTC is known.
        if let Ok(berlin) = berlin {
            assert_eq!(berlin, time("2026-03-10T08:00:00Z"));
        }
    }

    #[test]
    fn an_expression_that_is_wrong_is_refused() {
        let now = Timestamp::now();
        for cron in ["", "soon", "* * * *", "* * * * * *", "61 * * * *", "0 0 30 2 *"] {
            let error = next_after(cron, "UTC", now).unwrap_err().to_string();
            assert!(error.contains("`cron` cannot be used"), "{cron}: {error}");
        }
        let error = next_after("* * * * *", "Mars/Olympus", now).unwrap_err().to_string();
        assert!(error.contains("`timezone` `Mars/Olympus`"), "{error}");
    }
}
