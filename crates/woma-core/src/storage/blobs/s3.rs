//! Client of an S3 bucket or of a compatible store.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::prefix::PrefixStore;
use object_store::{BackoffConfig, ObjectStore, RetryConfig};

use super::http::Http;
use crate::net::tls;
use crate::storage::db::StoreError;

/// Few retries in a short time: a caller waits for the call.
const RETRIES_MAX: usize = 2;
const RETRY_MAX: Duration = Duration::from_secs(4);
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Bucket and credentials. `Debug` omits the keys.
#[derive(Clone, PartialEq, Eq)]
pub struct S3 {
    pub bucket: String,
    pub region: String,
    /// `None` is Amazon S3.
    pub endpoint: Option<String>,
    pub access_key_id: String,
    pub secret_access_key: String,
    /// Token of temporary credentials.
    pub session_token: Option<String>,
    /// Prefix of every object's key.
    pub prefix: Option<String>,
    /// PEM file of certificate authorities, trusted instead of the web's.
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
            .map_err(|what| StoreError::BadBucket(format!("{what} is missing or malformed")))?;
        let roots = tls::roots(self.ca_file.as_deref());
        let roots = roots.map_err(|why| StoreError::BadBucket(format!("S3_CA_FILE {why}")))?;
        let http = Http::new(roots).map_err(|error| StoreError::Internal(error.to_string()))?;
        let mut builder = AmazonS3Builder::new()
            .with_http_connector(http)
            .with_retry(retries())
            .with_bucket_name(&self.bucket)
            .with_region(&self.region)
            .with_access_key_id(&self.access_key_id)
            .with_secret_access_key(&self.secret_access_key)
            // Objects are deleted one at a time, which every store supports.
            .with_disable_bulk_delete(true);
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        if let Some(token) = &self.session_token {
            builder = builder.with_token(token);
        }
        // `check_texts` has found everything that could fail here.
        let built = builder.build().map_err(|error| StoreError::Internal(error.to_string()))?;
        let prefix = self.prefix.as_deref().map(|prefix| prefix.trim_matches('/'));
        Ok(match prefix.filter(|prefix| !prefix.is_empty()) {
            Some(prefix) => Arc::new(PrefixStore::new(built, prefix)),
            None => Arc::new(built),
        })
    }
}

impl S3 {
    /// Checks values that the library would reject only at a request; returns the first bad one.
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
