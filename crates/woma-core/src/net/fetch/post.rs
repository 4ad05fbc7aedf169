//! Small messages to addresses that callers name, behind the same guard as downloads.

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, header};
use tokio::time::{Instant, timeout_at};

use super::connect::{Reachable, check_host, head};
use super::target::Target;
use super::{FetchError, Fetcher};

impl Fetcher {
    /// Checks an address as far as that is possible without resolving its name.
    pub fn check(&self, url: &str) -> Result<(), FetchError> {
        check_host(&self.inner.rules, &Target::parse(url)?)
    }

    /// Posts JSON and returns the status of the response, whose body is not read. Redirects are not
    /// followed. The time limit holds for all of it.
    pub async fn post(
        &self,
        url: &str,
        headers: &[(&'static str, String)],
        body: String,
    ) -> Result<u16, FetchError> {
        let (inner, target) = (&self.inner, Target::parse(url)?);
        let limit = inner.rules.time_max;
        let deadline = Instant::now() + limit;
        let permit = inner.permit(&self.caller, deadline).await?;
        let mut request =
            head(Method::POST, &target)?.header(header::CONTENT_TYPE, "application/json");
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let request = request
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| FetchError::BadUrl(error.to_string()))?;
        let sent =
            async { Reachable::find(inner, &target, &permit).await?.send(inner, request).await };
        let head =
            timeout_at(deadline, sent).await.map_err(|_| FetchError::TimedOut { limit })??;
        Ok(head.response.status().as_u16())
    }
}
