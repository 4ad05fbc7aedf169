//! Webhooks of jobs: due with the end of their job, in the same transaction, and claimed for each
//! attempt. A claim is a time until which no other server tries; a killed server's expires.

use std::time::Duration;

use jiff::Timestamp;

use super::{COLUMNS, JobRow, OWNERS_MAX, job_and_rest, microseconds};
use crate::storage::db::statement::{Row, Value, change, rows};
use crate::storage::db::{Backend, Store, StoreError};

/// SQL: webhooks of the owner `$2` that are due and not delivered.
pub(super) const DUE_OF_OWNER: &str =
    "(SELECT count(*) FROM jobs WHERE owner = $2 AND webhook_due_at IS NOT NULL)";

/// Address that the end of a job is told to, and the secret that signs it.
#[derive(Clone, PartialEq, Eq)]
pub struct Webhook {
    pub url: String,
    pub secret: String,
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Webhook").finish_non_exhaustive()
    }
}

/// State of a delivery, by its name in replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebhookState {
    /// The job has not ended.
    Waiting,
    Pending,
    Delivered,
    /// Given up.
    Failed,
}

impl WebhookState {
    pub const ALL: [Self; 4] = [Self::Waiting, Self::Pending, Self::Delivered, Self::Failed];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
        }
    }
}

/// A webhook as its owner sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookRow {
    pub url: String,
    pub state: WebhookState,
    pub attempts: u64,
    /// When it is tried again, if it is.
    pub next_at: Option<Timestamp>,
    /// Why the latest attempt failed.
    pub error: Option<String>,
    pub delivered_at: Option<Timestamp>,
}

/// An attempt that this server has to make.
#[derive(Debug, Clone)]
pub struct WebhookClaim {
    pub job: JobRow,
    pub webhook: Webhook,
    /// Counts from 1.
    pub attempt: u64,
}

/// The end of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WebhookEnd {
    Delivered,
    Again { after: Duration, error: String },
    Failed { error: String },
}

/// SQL: assignments that make a webhook due if `condition` holds and there is one.
pub(super) fn due_when(now: &str, condition: &str) -> String {
    let case = |value: &str, column: &str| {
        format!(
            "{column} = CASE WHEN webhook_url IS NOT NULL AND {condition} THEN {value} \
             ELSE {column} END"
        )
    };
    format!("{}, {}", case("'pending'", "webhook_state"), case(now, "webhook_due_at"))
}

impl Store {
    /// Callers with a webhook whose time has come.
    pub async fn webhook_owners(&self) -> Result<Vec<String>, StoreError> {
        let sql = format!(
            "SELECT DISTINCT owner FROM jobs WHERE webhook_due_at <= {} ORDER BY owner LIMIT $1",
            self.clock()
        );
        self.read_all(rows(sql, vec![OWNERS_MAX.into()]), |mut row| row.text()).await
    }

    /// Claims a caller's next attempt for the time `claim`; none after `attempts_max`.
    pub async fn claim_webhook(
        &self,
        owner: &str,
        claim: Duration,
        attempts_max: u64,
    ) -> Result<Option<WebhookClaim>, StoreError> {
        let now = self.clock();
        let skip = match self.backend {
            Backend::Sqlite(_) => "",
            Backend::Postgres(_) => " FOR UPDATE SKIP LOCKED",
        };
        let sql = format!(
            "UPDATE jobs SET webhook_attempts = webhook_attempts + 1, \
             webhook_due_at = {now} + $2 WHERE id = (SELECT id FROM jobs WHERE owner = $1 \
             AND webhook_due_at <= {now} AND webhook_attempts < $3 \
             ORDER BY webhook_due_at, id LIMIT 1{skip}) \
             RETURNING {COLUMNS}, COALESCE(webhook_secret, '')"
        );
        let values = vec![owner.into(), microseconds(claim), Value::count(attempts_max)];
        let claimed = |row: Row| {
            let (job, mut rest) = job_and_rest(row)?;
            let secret = rest.text()?;
            let known = job.webhook.as_ref().map(|known| (known.url.clone(), known.attempts));
            let (url, attempt) = known.ok_or_else(|| {
                StoreError::Corrupt("a webhook that is due has no address".to_owned())
            })?;
            Ok(WebhookClaim { job, webhook: Webhook { url, secret }, attempt })
        };
        Ok(self.write_for_rows(vec![rows(sql, values)], claimed).await?.into_iter().next())
    }

    /// Stores the end of an attempt. False if the claim has expired and another was made.
    pub async fn settle_webhook(
        &self,
        id: &str,
        attempt: u64,
        end: &WebhookEnd,
    ) -> Result<bool, StoreError> {
        let now = self.clock();
        let which = "WHERE id = $1 AND webhook_attempts = $2 AND webhook_state = 'pending'";
        let mut values = vec![id.into(), Value::count(attempt)];
        let sql = match end {
            WebhookEnd::Delivered => format!(
                "UPDATE jobs SET webhook_state = 'delivered', webhook_due_at = NULL, \
                 webhook_secret = NULL, webhook_error = NULL, webhook_delivered_at = {now} {which}"
            ),
            WebhookEnd::Again { after, error } => {
                values.extend([microseconds(*after), error.as_str().into()]);
                format!("UPDATE jobs SET webhook_due_at = {now} + $3, webhook_error = $4 {which}")
            }
            WebhookEnd::Failed { error } => {
                values.push(error.as_str().into());
                format!(
                    "UPDATE jobs SET webhook_state = 'failed', webhook_due_at = NULL, \
                     webhook_secret = NULL, webhook_error = $3 {which}"
                )
            }
        };
        Ok(self.change(change(sql, values)).await? > 0)
    }

    /// Gives up webhooks whose last attempt ended with its server.
    pub async fn give_up_webhooks(&self, attempts_max: u64) -> Result<u64, StoreError> {
        let sql = format!(
            "UPDATE jobs SET webhook_state = 'failed', webhook_due_at = NULL, \
             webhook_secret = NULL, \
             webhook_error = 'the server ended during the last attempt' \
             WHERE webhook_due_at <= {} AND webhook_attempts >= $1",
            self.clock()
        );
        self.change(change(sql, vec![Value::count(attempts_max)])).await
    }
}

/// Reads the columns of a webhook; without an address there is none.
pub(super) fn webhook_of(row: &mut Row) -> Result<Option<WebhookRow>, StoreError> {
    let (url, state, attempts) = (row.text_maybe()?, row.text_maybe()?, row.count()?);
    let (next_at, error, delivered_at) = (row.time_maybe()?, row.text_maybe()?, row.time_maybe()?);
    let Some(url) = url else { return Ok(None) };
    let state = state.unwrap_or_default();
    let found = WebhookState::ALL.into_iter().find(|known| known.name() == state);
    let state = found
        .ok_or_else(|| StoreError::Corrupt(format!("`{state}` is not a state of a webhook")))?;
    Ok(Some(WebhookRow { url, state, attempts, next_at, error, delivered_at }))
}
