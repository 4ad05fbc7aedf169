//! A request as it is let in: checked, with the limits that hold and a place among the others.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::admission::Admission;
use crate::caller::Caller;
use crate::model::{Execute, ExecutionId, Happening};
use crate::policy::Rules;
use crate::service::may_execute;
use crate::{Error, Service};

/// Shortest time limit; less is raised to it.
const TIMEOUT_MIN: Duration = Duration::from_millis(100);
/// Least memory for a run; less is raised to it.
const MEMORY_BYTES_MIN: u64 = 32 * 1024 * 1024;
/// Longest variables of a request, as JSON, in bytes.
const VARIABLES_BYTES_MAX: usize = 8 * 1024 * 1024;
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A request that was checked, with everything that its run needs.
pub(super) struct Admitted {
    pub(super) id: ExecutionId,
    pub(super) caller: Caller,
    pub(super) request: Execute,
    pub(super) timeout: Duration,
    pub(super) warnings: Vec<String>,
    /// The caller's; a session may have its own within them.
    pub(super) rules: Arc<Rules>,
    pub(super) stop: CancellationToken,
    pub(super) watcher: Option<mpsc::UnboundedSender<Happening>>,
    /// Its place among the calls that the server has in hand.
    pub(super) permit: Admission,
}

impl Service {
    pub(super) fn admit(&self, caller: &Caller, request: Execute) -> Result<Admitted, Error> {
        may_execute(caller)?;
        check(&request, self.shared.settings.source_bytes_max)?;
        self.check_rate(caller)?;
        let rules = self.shared.settings.policies.of(caller)?;
        let permit = self.shared.in_hand.admit(&caller.id)?;
        let mut warnings = Vec::new();
        let timeout = self.timeout(request.timeout, &mut warnings);
        let memory_bytes = self.memory(request.memory_bytes, &mut warnings);
        let request = Execute { memory_bytes: Some(memory_bytes), ..request };
        Ok(Admitted {
            id: ExecutionId::mint(),
            caller: caller.clone(),
            request,
            timeout,
            warnings,
            rules,
            stop: self.shared.stop.child_token(),
            watcher: None,
            permit,
        })
    }

    /// The limit that holds; what was asked for and is out of range is clamped, and said.
    fn timeout(&self, asked: Option<Duration>, warnings: &mut Vec<String>) -> Duration {
        let settings = &self.shared.settings;
        let Some(asked) = asked else { return settings.timeout_default };
        let applied = asked.clamp(TIMEOUT_MIN, settings.timeout_max);
        if applied != asked {
            warnings.push(format!(
                "timeout {} s is out of range; {} s was applied",
                asked.as_secs_f64(),
                applied.as_secs_f64()
            ));
        }
        applied
    }

    fn memory(&self, asked: Option<u64>, warnings: &mut Vec<String>) -> u64 {
        let settings = &self.shared.settings;
        let most = settings.limits.memory_bytes;
        let Some(asked) = asked else { return settings.memory_bytes_default.min(most) };
        let applied = asked.clamp(MEMORY_BYTES_MIN.min(most), most);
        if applied != asked {
            let megabytes = |bytes: u64| bytes / (1024 * 1024);
            let (asked, applied) = (megabytes(asked), megabytes(applied));
            warnings
                .push(format!("memory_limit {asked} MB is out of range; {applied} MB was applied"));
        }
        applied
    }

    /// Waits for a turn or a kernel, as long as the client does and no run could take longer.
    pub(super) async fn wait<T>(
        &self,
        admitted: &Admitted,
        what: impl Future<Output = T>,
    ) -> Result<T, Error> {
        let limit = self.shared.settings.timeout_max;
        tokio::select! {
            biased;
            done = what => Ok(done),
            () = admitted.stop.cancelled() => Err(Error::GivenUp),
            () = tokio::time::sleep(limit) => {
                let what = format!("this call has waited {} seconds", limit.as_secs());
                Err(Error::Busy { what, retry_after: RETRY_AFTER })
            }
        }
    }
}

pub(crate) fn check_source(source: &str, bytes_max: usize) -> Result<(), Error> {
    if source.trim().is_empty() {
        return Err(Error::EmptyCode);
    }
    if source.len() > bytes_max {
        return Err(Error::CodeTooLong { bytes: source.len(), limit_bytes: bytes_max });
    }
    Ok(())
}

fn check(request: &Execute, source_bytes_max: usize) -> Result<(), Error> {
    check_source(&request.source, source_bytes_max)?;
    for name in request.variables.keys() {
        let mut characters = name.chars();
        let starts = characters.next().is_some_and(|first| first == '_' || first.is_alphabetic());
        if !starts || !characters.all(|c| c == '_' || c.is_alphanumeric()) || name.len() > 256 {
            return Err(Error::BadVariable { name: name.chars().take(64).collect() });
        }
    }
    if !request.variables.is_empty() {
        let bytes = serde_json::to_vec(&request.variables).map_or(usize::MAX, |json| json.len());
        if bytes > VARIABLES_BYTES_MAX {
            let limit_bytes = VARIABLES_BYTES_MAX;
            return Err(Error::VariablesTooLarge { bytes, limit_bytes });
        }
    }
    Ok(())
}
