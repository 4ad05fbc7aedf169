//! A bucket of S3, or of anything that speaks like it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::prefix::PrefixStore;
use object_store::{BackoffConfig, ObjectStore, RetryConfig};

use super::http::Http;
use crate::certificates;
use crate::store::StoreError;

/// What fails for a moment is tried again, but nobody waits for it.
const RETRIES_MAX: usize = 2;
const RETRY_MAX: Duration = Duration::from_secs(4);
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Where it is, and who asks. `Debug` shows no key.
#[derive(Clone, PartialEq, Eq)]
pub struct S3 {
    pub bucket: String,
    pub region: String,
    /// `None`: Amazon's.
    pub endpoint: Option<String>,
    pub access_key_id: String,
    pub secret_access_key: String,
    /// Belongs to keys that end by themselves.
    pub session_token: Option<String>,
    /// What stands before every name.
    pub prefix: Option<String>,
    /// Authorities in PEM that are trusted in place of those of the web.
    pub ca_file: Option<PathBuf>,
}

impl fmt::Debug for S3 {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("S3");
        shown.field("bucket", &self.bucket).field("prefix", &self.prefix);
        shown.finish_non_exhaustive()
    }
}

impl S3 {
    pub(super) fn connect(&self) -> Result<Arc<dyn ObjectStore>, StoreError> {
        self.check_texts()
            .map_err(|what| StoreError::BadBucket(format!("{what} cannot be read")))?;
        let roots = certificates::roots(self.ca_file.as_deref());
        let roots = roots.map_err(|why| StoreError::BadBucket(format!("S3_CA_FILE {why}")))?;
        let http = Http::new(roots).map_err(|error| StoreError::Internal(error.to_string()))?;
        let mut builder = AmazonS3Builder::new()
            .with_http_connector(http)
            .with_retry(retries())
            .with_bucket_name(&self.bucket)
            .with_region(&self.region)
            .with_access_key_id(&self.access_key_id)
            .with_secret_access_key(&self.secret_access_key)
            // One at a time is all that is ever deleted, and every store knows how.
            .with_disable_bulk_delete(true);
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        if let Some(token) = &self.session_token {
            builder = builder.with_token(token);
        }
        // Everything that it could complain about was looked at.
        let built = builder.build().map_err(|error| StoreError::Internal(error.to_string()))?;
        let prefix = self.prefix.as_deref().map(|prefix| prefix.trim_matches('/'));
        Ok(match prefix.filter(|prefix| !prefix.is_empty()) {
            Some(prefix) => Arc::new(PrefixStore::new(built, prefix)),
            None => Arc::new(built),
        })
    }
}

impl S3 {
    /// What the library would stumble over when it makes a request; gives the first.
    fn check_texts(&self) -> Result<(), &'static str> {
        let is_word = |text: &str, also: &str| {
            let known = |c: char| c.is_ascii_alphanumeric() || also.contains(c);
            !text.is_empty() && text.chars().all(known)
        };
        let is_address = |endpoint: &String| {
            let read = endpoint.parse::<hyper::Uri>();
            read.is_ok_and(|uri| uri.host().is_some() && uri.query().is_none())
        };
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        let checks = [
            (is_word(&self.bucket, ".-_"), "S3_BUCKET"),
            (is_word(&self.region, "-_"), "S3_REGION"),
            (self.endpoint.as_ref().is_none_or(is_address), "S3_ENDPOINT"),
            (!self.access_key_id.is_empty() && is_plain(&self.access_key_id), "S3_ACCESS_KEY_ID"),
            (self.session_token.as_deref().is_none_or(is_plain), "S3_SESSION_TOKEN"),
        ];
        checks.iter().find(|(is_right, _)| !is_right).map_or(Ok(()), |(_, what)| Err(*what))
    }
}

fn retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig { init_backoff: PAUSE_MIN, max_backoff: PAUSE_MAX, base: 2.0 },
        max_retries: RETRIES_MAX,
        retry_timeout: RETRY_MAX,
    }
}
