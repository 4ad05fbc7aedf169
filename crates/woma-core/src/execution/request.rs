//! A request as it is let in: checked, with the limits that hold and a place among the others.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Executor;
use super::admission::Admission;
use super::environments::EnvironmentFacts;
use super::jobs::live::Live;
use super::middle::Middles;
use super::record::Gaps;
use crate::error::Error;
use crate::model::caller::Caller;
use crate::model::{Execute, ExecutionId, OnTimeout, RunEvent};
use crate::policy::Rules;

/// Shortest time limit; less is raised to it.
const TIMEOUT_MIN: Duration = Duration::from_millis(100);
/// Time limit of a call that asks for no time at all.
const TIMEOUT_OF_NONE: Duration = Duration::from_secs(1);
/// Least memory for a run; less is raised to it.
const MEMORY_BYTES_MIN: u64 = 32 * 1024 * 1024;
/// Longest variables of a request, as JSON, in bytes.
const VARIABLES_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Longest text on a run's standard input, in bytes.
pub const STDIN_BYTES_MAX: usize = 1024 * 1024;
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A request that was checked, with everything that its run needs.
pub(super) struct Admitted {
    pub(super) id: ExecutionId,
    pub(super) caller: Caller,
    pub(super) request: Execute,
    pub(super) timeout: Duration,
    /// The longest that it could have asked for.
    pub(super) timeout_max: Duration,
    pub(super) warnings: Vec<String>,
    /// The caller's; a session may have its own within them.
    pub(super) rules: Arc<Rules>,
    /// The environment of its session.
    pub(super) facts: Arc<EnvironmentFacts>,
    /// Packages that its header names.
    pub(super) dependencies: Vec<String>,
    pub(super) stop: CancellationToken,
    pub(super) watcher: Option<mpsc::UnboundedSender<RunEvent>>,
    /// Its admission among the calls that run or wait; a job has none.
    pub(super) permit: Option<Admission>,
    /// Output that its reply leaves out.
    pub(super) spilled: Mutex<(Middles, Gaps)>,
    /// Its output as it comes, if it is a job or may become one.
    pub(super) live: Option<Arc<Live>>,
    /// Cancelled when its code begins to run.
    pub(super) began: CancellationToken,
}

impl Executor {
    pub(super) fn admit(&self, caller: &Caller, request: Execute) -> Result<Admitted, Error> {
        caller.may_execute()?;
        check(&request, self.settings.source_bytes_max)?;
        if request.on_timeout == OnTimeout::Detach {
            self.check_jobs()?;
        }
        self.check_rate(caller)?;
        let rules = self.settings.policies.of(caller)?;
        let permit = self.admissions.admit(&caller.id)?;
        let mut warnings = Vec::new();
        let timeout = self.timeout(request.timeout, &mut warnings);
        if request.use_container {
            self.sandbox.check_containers().map_err(|_| Error::NoContainers)?;
        }
        let of_containers = self.settings.container_memory_bytes.filter(|_| request.use_container);
        let wanted = request.memory_bytes.or(of_containers);
        let memory_bytes = self.memory(wanted, &mut warnings);
        let request = Execute { memory_bytes: Some(memory_bytes), ..request };
        Ok(Admitted {
            id: ExecutionId::mint(),
            caller: caller.clone(),
            request,
            timeout,
            timeout_max: self.settings.timeout_max,
            warnings,
            rules,
            facts: Arc::clone(self.environments.default_facts()),
            dependencies: Vec::new(),
            stop: self.stop.child_token(),
            watcher: None,
            permit: Some(permit),
            spilled: Mutex::default(),
            live: None,
            began: CancellationToken::new(),
        })
    }

    /// Checks a request that is to wait in a queue.
    pub(crate) fn check_job(&self, caller: &Caller, request: &Execute) -> Result<(), Error> {
        self.check_jobs()?;
        caller.may_execute()?;
        check(request, self.settings.source_bytes_max)?;
        self.settings.policies.of(caller)?;
        self.check_rate(caller)
    }

    /// Whether this server has jobs.
    pub(crate) fn check_jobs(&self) -> Result<(), Error> {
        match self.jobs.is_off() || self.workspaces.is_none() {
            true => Err(Error::NoJobs),
            false => Ok(()),
        }
    }

    pub(super) fn check_rate(&self, caller: &Caller) -> Result<(), Error> {
        let limit = caller.quota.executions_per_minute;
        let Some(per_minute) = limit.or(self.settings.executions_per_minute) else {
            return Ok(());
        };
        let checked = self.rates.check(&caller.id, per_minute, Instant::now());
        checked.map_err(|wait| Error::RateLimited { per_minute, retry_after: wait.0 })
    }

    /// The time limit of a call; a limit out of range is clamped, and `warnings` says so.
    pub(crate) fn timeout(&self, asked: Option<f64>, warnings: &mut Vec<String>) -> Duration {
        timeout(asked, (self.settings.timeout_default, self.settings.timeout_max), warnings)
    }

    pub(super) fn memory(&self, asked: Option<u64>, warnings: &mut Vec<String>) -> u64 {
        let settings = &self.settings;
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
        let limit = self.settings.timeout_max;
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

/// The time limit that holds, of a default and a most; what was asked for and is out of range is
/// clamped, and said.
pub(super) fn timeout(
    asked: Option<f64>,
    (default, most): (Duration, Duration),
    warnings: &mut Vec<String>,
) -> Duration {
    let Some(asked) = asked else { return default.min(most) };
    let (applied, is_in_range) = clamped(asked, most);
    if !is_in_range {
        let applied = applied.as_secs_f64();
        warnings.push(format!("timeout {asked} s is out of range; {applied} s was applied"));
    }
    applied
}

/// A time limit within its range, and whether it was in it.
fn clamped(seconds: f64, timeout_max: Duration) -> (Duration, bool) {
    match Duration::try_from_secs_f64(seconds) {
        Ok(asked) if !asked.is_zero() => {
            let applied = asked.clamp(TIMEOUT_MIN.min(timeout_max), timeout_max);
            (applied, applied == asked)
        }
        // Too large for a duration.
        Err(_) if seconds > 0.0 => (timeout_max, false),
        // Zero, negative, or not a number.
        Ok(_) | Err(_) => (TIMEOUT_OF_NONE.min(timeout_max), false),
    }
}

/// Advice on a run that reached its time limit.
pub(super) fn timeout_hint(applied: Duration, timeout_max: Duration) -> String {
    let most = timeout_max.as_secs_f64();
    if applied < timeout_max {
        return format!(
            "pass a larger `timeout` in seconds, at most {most}, or do less in one call"
        );
    }
    format!("{most} s is the largest `timeout`: do less in one call, and keep results in variables")
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

fn check_stdin(stdin: Option<&String>) -> Result<(), Error> {
    match stdin.map_or(0, String::len) {
        bytes if bytes > STDIN_BYTES_MAX => {
            Err(Error::StdinTooLarge { bytes, limit_bytes: STDIN_BYTES_MAX })
        }
        _ => Ok(()),
    }
}

fn check(request: &Execute, source_bytes_max: usize) -> Result<(), Error> {
    check_source(&request.source, source_bytes_max)?;
    check_stdin(request.stdin.as_ref())?;
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{TIMEOUT_MIN, TIMEOUT_OF_NONE, clamped, timeout_hint};

    #[test]
    fn every_number_has_a_time_limit_within_the_range() {
        let most = Duration::from_secs(600);
        for (seconds, applied, is_in_range) in [
            (1.5, Duration::from_millis(1_500), true),
            (600.0, most, true),
            (601.0, most, false),
            (1e300, most, false),
            (f64::INFINITY, most, false),
            (0.01, TIMEOUT_MIN, false),
            (0.0, TIMEOUT_OF_NONE, false),
            (-1.0, TIMEOUT_OF_NONE, false),
            (f64::NAN, TIMEOUT_OF_NONE, false),
        ] {
            assert_eq!(clamped(seconds, most), (applied, is_in_range), "{seconds}");
        }
    }

    #[test]
    fn the_hint_on_a_timeout_names_the_argument_and_its_maximum() {
        let most = Duration::from_secs(600);
        let hint = timeout_hint(Duration::from_secs(55), most);
        assert!(hint.contains("`timeout`") && hint.contains("at most 600"), "{hint}");
        let hint = timeout_hint(most, most);
        assert!(hint.contains("600 s is the largest `timeout`"), "{hint}");
    }
}
