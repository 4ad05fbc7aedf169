//! Webhooks: the end of a job is told to an address that its caller chose.
//!
//! Messages follow Standard Webhooks: `webhook-id`, `webhook-timestamp`, `webhook-signature`. They
//! say how a job ended and nothing of its output. Each attempt is claimed in the store, so a message
//! is delivered at least once whichever server dies, and by one server at a time.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::Timestamp;
use serde_json::json;
use sha2::Sha256;

use super::{JobError, Jobs};
use crate::error::Error;
use crate::execution::Executor;
use crate::metrics::OutcomeLabel;
use crate::model::caller::CallerId;
use crate::net::fetch::{FetchError, FetchRules};
use crate::shares::Permit;
use crate::storage::db::{JobRow, StoreError, Webhook, WebhookClaim, WebhookEnd};

/// Attempts to deliver one message.
pub(crate) const ATTEMPTS_MAX: u64 = 8;
/// Time limit of one attempt.
const TIME_MAX: Duration = Duration::from_secs(10);
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// How long a claimed attempt keeps other servers from it.
const CLAIM: Duration = Duration::from_secs(30);
/// Deliveries at once; one caller may have seven eighths.
const AT_ONCE_MAX: usize = 16;
/// Undelivered messages of one caller; further jobs with a webhook are refused.
pub(crate) const DUE_MAX: u64 = 1_000;
/// Pauses before the attempts that follow the first one, in seconds.
const PAUSES: [u64; 7] = [2, 10, 60, 300, 1_800, 3_600, 7_200];
/// Sizes of a secret: of text, and of the bytes of `whsec_…`.
const TEXT_BYTES: std::ops::RangeInclusive<usize> = 16..=256;
const KEY_BYTES: std::ops::RangeInclusive<usize> = 16..=64;
const GENERATED_BYTES: usize = 32;
const PREFIX: &str = "whsec_";

/// A webhook that a caller asks for.
#[derive(Clone)]
pub struct NewWebhook {
    pub url: String,
    /// `None`: one is made and returned.
    pub secret: Option<String>,
}

impl std::fmt::Debug for NewWebhook {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("NewWebhook").finish_non_exhaustive()
    }
}

/// The guard of webhooks: that of downloads, with limits of its own and no redirects.
pub(super) fn rules() -> FetchRules {
    FetchRules {
        time_max: TIME_MAX,
        connect_time_max: CONNECT_TIME_MAX,
        redirects_max: 0,
        at_once_max: AT_ONCE_MAX,
        ..FetchRules::default()
    }
}

impl Jobs {
    /// Checks a webhook. The second value is its secret, if that was made here.
    pub(crate) fn webhook(
        &self,
        wanted: Option<NewWebhook>,
    ) -> Result<(Option<Webhook>, Option<String>), Error> {
        let Some(NewWebhook { url, secret }) = wanted else { return Ok((None, None)) };
        let Some(poster) = &self.poster else {
            let why = "webhooks are off on this server: leave `webhook` out, or ask the operator \
                       to set WEBHOOKS";
            return Err(Error::BadJob(why.to_owned()));
        };
        poster.check(&url).map_err(Error::Fetch)?;
        match secret {
            Some(secret) => {
                key_of(&secret).map_err(Error::BadJob)?;
                Ok((Some(Webhook { url, secret }), None))
            }
            None => {
                let mut key = [0; GENERATED_BYTES];
                getrandom::fill(&mut key).map_err(|_| Error::Lost)?;
                let secret = format!("{PREFIX}{}", BASE64_STANDARD.encode(key));
                Ok((Some(Webhook { url, secret: secret.clone() }), Some(secret)))
            }
        }
    }
}

/// The key of a secret: the bytes of `whsec_<base64>`, or of any other text as it is.
fn key_of(secret: &str) -> Result<Vec<u8>, String> {
    if let Some(encoded) = secret.strip_prefix(PREFIX) {
        let key = BASE64_STANDARD.decode(encoded).ok();
        return key.filter(|key| KEY_BYTES.contains(&key.len())).ok_or_else(|| {
            let (least, most) = (KEY_BYTES.start(), KEY_BYTES.end());
            format!("`webhook_secret` after `{PREFIX}` must be base64 of {least} to {most} bytes")
        });
    }
    match TEXT_BYTES.contains(&secret.len()) && !secret.chars().any(char::is_control) {
        true => Ok(secret.as_bytes().to_vec()),
        false => Err(format!(
            "`webhook_secret` must have {} to {} bytes and no control characters",
            TEXT_BYTES.start(),
            TEXT_BYTES.end()
        )),
    }
}

/// The value of `webhook-signature`, as Standard Webhooks defines it; `None` for a secret that
/// cannot be used.
pub fn webhook_signature(secret: &str, id: &str, timestamp: i64, body: &str) -> Option<String> {
    let mut mac = Hmac::<Sha256>::new_from_slice(&key_of(secret).ok()?).ok()?;
    mac.update(format!("{id}.{timestamp}.{body}").as_bytes());
    Some(format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes())))
}

/// How a job ended, without its output.
fn body_of(job: &JobRow) -> String {
    let state = job.state.name();
    let error: Option<JobError> =
        job.error.as_deref().and_then(|error| serde_json::from_str(error).ok());
    json!({
        "type": format!("job.{state}"),
        "timestamp": job.ended_at.map(|at| at.to_string()),
        "data": {
            "job_id": job.id,
            "status": state,
            "session_id": job.session_id,
            "schedule_id": job.schedule_id,
            "submitted_at": job.submitted_at.to_string(),
            "started_at": job.started_at.map(|at| at.to_string()),
            "completed_at": job.ended_at.map(|at| at.to_string()),
            "attempts": job.attempts,
            "error_category": error.map(|error| error.category),
        },
    })
    .to_string()
}

/// The consequence of an attempt's answer.
fn end_of(attempt: u64, answer: Result<u16, FetchError>) -> WebhookEnd {
    let (error, is_final) = match answer {
        Ok(200..=299) => return WebhookEnd::Delivered,
        Ok(status @ 300..=399) => (format!("status {status}: redirects are not followed"), true),
        Ok(410) => ("status 410: the receiver wants no more".to_owned(), true),
        Ok(status) => (format!("status {status}"), false),
        Err(error) => {
            let is_final = matches!(
                error,
                FetchError::AddressRefused { .. }
                    | FetchError::InnerName(_)
                    | FetchError::HostNotAllowed(_)
                    | FetchError::BadUrl(_)
                    | FetchError::Scheme(_)
                    | FetchError::Port(_)
                    | FetchError::Credentials
            );
            (error.to_string(), is_final)
        }
    };
    let pause = usize::try_from(attempt).ok().and_then(|made| PAUSES.get(made.checked_sub(1)?));
    match pause.filter(|_| !is_final && attempt < ATTEMPTS_MAX) {
        Some(seconds) => WebhookEnd::Again { after: Duration::from_secs(*seconds), error },
        None => WebhookEnd::Failed { error },
    }
}

/// Name of an attempt's end in metrics.
fn name_of(end: &WebhookEnd) -> &'static str {
    match end {
        WebhookEnd::Delivered => "delivered",
        WebhookEnd::Again { .. } => "retried",
        WebhookEnd::Failed { .. } => "failed",
    }
}

impl Executor {
    /// Begins the attempts that are due: callers in turns, one each.
    pub(super) async fn deliver_webhooks(self: &Arc<Self>) -> Result<(), StoreError> {
        let (Some(workspaces), Some(_)) = (&self.workspaces, &self.jobs.poster) else {
            return Ok(());
        };
        let db = &workspaces.storage.db;
        loop {
            let mut has_begun = false;
            for owner in db.webhook_owners().await? {
                let Some(place) = self.jobs.posts.take(&CallerId::new(owner.as_str())) else {
                    continue;
                };
                if let Some(claimed) = db.claim_webhook(&owner, CLAIM, ATTEMPTS_MAX).await? {
                    has_begun = true;
                    tokio::spawn(Arc::clone(self).deliver(claimed, place));
                }
            }
            if !has_begun {
                return Ok(());
            }
        }
    }

    /// Makes one attempt and stores its end.
    async fn deliver(self: Arc<Self>, claimed: WebhookClaim, place: Permit) {
        let (Some(workspaces), Some(poster)) = (&self.workspaces, &self.jobs.poster) else {
            return;
        };
        let WebhookClaim { job, webhook, attempt } = claimed;
        let (id, timestamp) = (format!("msg_{}", job.id), Timestamp::now().as_second());
        let body = body_of(&job);
        let end = match webhook_signature(&webhook.secret, &id, timestamp, &body) {
            None => WebhookEnd::Failed { error: "its secret cannot be used".to_owned() },
            Some(signature) => {
                let headers = [
                    ("webhook-id", id),
                    ("webhook-timestamp", timestamp.to_string()),
                    ("webhook-signature", signature),
                ];
                let poster = poster.of(&CallerId::new(job.owner.as_str()));
                end_of(attempt, poster.post(&webhook.url, &headers, body).await)
            }
        };
        self.metrics.webhooks.get_or_create(&OutcomeLabel { outcome: name_of(&end) }).inc();
        if let WebhookEnd::Failed { error } = &end {
            tracing::info!(id = job.id, attempt, error, "A webhook was given up");
        }
        // An end that cannot be stored leaves the claim to expire: the message is sent again.
        if let Err(error) = workspaces.storage.db.settle_webhook(&job.id, attempt, &end).await {
            tracing::warn!(%error, id = job.id, "The end of a webhook's attempt was not stored");
        }
        drop(place);
        self.jobs.wake.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::{ATTEMPTS_MAX, PAUSES, end_of, key_of, webhook_signature};
    use crate::net::fetch::FetchError;
    use crate::storage::db::WebhookEnd;

    #[test]
    fn signatures_are_those_of_standard_webhooks() {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let (id, body) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", r#"{"test": 2432232314}"#);
        let signed = webhook_signature(secret, id, 1_614_265_330, body);
        assert_eq!(signed.as_deref(), Some("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="));
    }

    #[test]
    fn secrets_that_are_short_long_or_have_control_characters_are_refused() {
        for secret in ["", "short", "a\r\nx-evil: 1 and more text", "whsec_", "whsec_****"] {
            assert!(key_of(secret).is_err(), "{secret:?}");
        }
        assert!(key_of(&"x".repeat(257)).is_err() && key_of(&"x".repeat(256)).is_ok());
        assert_eq!(key_of("sixteen bytes ok").unwrap(), b"sixteen bytes ok");
    }

    #[test]
    fn attempts_end_by_their_answers_and_are_bounded() {
        assert_eq!(end_of(1, Ok(204)), WebhookEnd::Delivered);
        let is_again =
            |attempt, status| matches!(end_of(attempt, Ok(status)), WebhookEnd::Again { .. });
        assert!(is_again(1, 500) && is_again(1, 404) && is_again(ATTEMPTS_MAX - 1, 429));
        assert!(!is_again(ATTEMPTS_MAX, 500), "no more attempts");
        assert!(!is_again(1, 302) && !is_again(1, 410));
        let refused = FetchError::InnerName("localhost".to_owned());
        assert!(matches!(end_of(1, Err(refused)), WebhookEnd::Failed { .. }));
        assert_eq!(PAUSES.len() as u64 + 1, ATTEMPTS_MAX);
    }
}
