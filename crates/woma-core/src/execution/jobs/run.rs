//! One job: claimed, run in a cell of its own, ended once.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use woma_sandbox::protocol::Note;
use woma_sandbox::{Limits, Spec, Workspace};

use super::live::Live;
use super::{ActiveJob, JobError, Stopped, request, state_of};
use crate::error::Error;
use crate::execution::Executor;
use crate::execution::environments::{Opening, light_if_plain};
use crate::execution::request::{Admitted, timeout};
use crate::execution::spine;
use crate::model::caller::{Caller, CallerId};
use crate::model::{ErrorCategory, Execute, Execution, ExecutionId, SessionChoice, SessionId};
use crate::policy::{self, Verdict};
use crate::session::state::{Kernel, Session};
use crate::shares::Permit;
use crate::storage::db::{ClaimedJob, JOB_LEASE, JobEnd, JobState, StoreError};
use crate::workspace::changes::{Files, Passing, too_full};

/// How often a claim is renewed and the output so far is stored.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// When a job is tried again whose session another process has.
const PUT_BACK: Duration = Duration::from_secs(2);
/// How often the end of a job is offered to a store that is away.
const FINISH_RETRY: Duration = Duration::from_millis(500);

/// Processor time of a job for each second of its time limit: as many processors as it may keep busy
/// all the time.
const CPU_PER_WALL: u32 = 16;

/// How a job left this server.
enum Left {
    Ended(Box<JobEnd>),
    /// It is for another process, or for later.
    PutBack,
}

impl Executor {
    /// Runs a job that was claimed, to its stored end.
    pub(super) async fn run_claimed(self: Arc<Self>, claimed: ClaimedJob, place: Permit) {
        let ClaimedJob { row, request: stored, caller } = claimed;
        let session = row.session_id.as_deref().and_then(|id| SessionId::parse(id).ok());
        let (live, stop) = (Arc::new(Live::default()), self.stop.child_token());
        let owner = CallerId::new(row.owner.as_str());
        let job = ActiveJob::new(row.id.clone(), owner, session, live, stop);
        let job = self.jobs.add(job);
        if row.cancel_requested {
            job.stop(Stopped::Cancelled);
        }
        let run = async {
            let caller = request::read_caller(&caller)?;
            let request = request::read(&stored)?;
            let cell = self.jobs.cells.acquire(&caller.id).await?;
            Box::pin(self.run_job(&job, caller, request, cell)).await
        };
        let ran = self.with_claim(&job, run).await;
        let left = self.leave(&job, ran, row.attempts <= row.retries);
        self.settle(&job, left).await;
        // Before the worker is woken.
        drop(place);
        self.jobs.remove(&job);
    }

    /// Renews the claim on a job while it runs, and stores what it has said.
    pub(super) async fn with_claim<T>(&self, job: &ActiveJob, run: impl Future<Output = T>) -> T {
        let mut run = std::pin::pin!(run);
        let changes = job.live.watch();
        let (mut stored, mut renewed) = (0, Instant::now());
        loop {
            tokio::select! {
                biased;
                end = &mut run => return end,
                () = tokio::time::sleep(HEARTBEAT) => {}
            }
            let now = *changes.borrow();
            let beat = self.beat(job, now != stored);
            let answer = tokio::select! {
                biased;
                end = &mut run => return end,
                answer = beat => answer,
            };
            match answer {
                Ok(Some(is_cancelled)) => {
                    (stored, renewed) = (now, Instant::now());
                    if is_cancelled {
                        job.stop(Stopped::Cancelled);
                    }
                }
                Ok(None) => {
                    tracing::warn!(id = job.id, "Another server has ended a job that ran here");
                    job.stop(Stopped::ClaimLost);
                }
                // Another server may take the job for lost: it must not run twice at once.
                Err(error) if self.shares_queue() && renewed.elapsed() > JOB_LEASE => {
                    tracing::warn!(%error, id = job.id, "The claim on a job has expired");
                    job.stop(Stopped::ClaimLost);
                }
                Err(error) => tracing::debug!(%error, "The claim on a job was not renewed"),
            }
        }
    }

    async fn beat(&self, job: &ActiveJob, has_changed: bool) -> Result<Option<bool>, StoreError> {
        let Some(workspaces) = &self.workspaces else { return Ok(Some(false)) };
        let storage = &workspaces.storage;
        let said = has_changed.then(|| job.live.row());
        storage.db.renew_job(&job.id, &storage.process, said.as_ref()).await
    }

    fn shares_queue(&self) -> bool {
        self.workspaces.as_ref().is_some_and(|workspaces| workspaces.storage.db.is_shared())
    }

    /// State of a job after its run.
    fn leave(&self, job: &ActiveJob, ran: Result<Execution, Error>, may_retry: bool) -> Left {
        let output = job.live.row();
        let stopped = job.stopped();
        let is_cancelled = stopped == Some(Stopped::Cancelled);
        match ran {
            Ok(execution) => self.ended(job, &execution, may_retry),
            Err(_) if is_cancelled => Left::Ended(Box::new(JobEnd {
                state: JobState::Cancelled,
                execution_id: None,
                error: None,
                result: None,
                output,
            })),
            Err(
                Error::GivenUp
                | Error::ShuttingDown
                | Error::Busy { .. }
                | Error::SessionElsewhere { .. }
                | Error::SessionLeased { .. },
            ) => Left::PutBack,
            Err(error) => {
                tracing::warn!(%error, id = job.id, "A job could not be run");
                Left::Ended(Box::new(JobEnd {
                    state: JobState::Failed,
                    execution_id: None,
                    error: Some(JobError::of(&error).to_json()),
                    result: None,
                    output,
                }))
            }
        }
    }

    fn ended(&self, job: &ActiveJob, execution: &Execution, may_retry: bool) -> Left {
        let state = state_of(execution, job.stopped());
        let is_interrupted = execution.error_category == Some(ErrorCategory::Interrupted);
        let by_server = is_interrupted && job.stopped().is_none() && self.stop.is_cancelled();
        if by_server && may_retry {
            return Left::PutBack;
        }
        let error = match by_server {
            true => Some(JobError::interrupted("The server was shut down while this job ran")),
            false => JobError::of_execution(execution),
        };
        let result = execution.to_stored().inspect_err(|error| {
            tracing::error!(%error, id = job.id, "The result of a job cannot be written");
        });
        Left::Ended(Box::new(JobEnd {
            state,
            execution_id: Some(execution.id.as_str().to_owned()),
            error: error.filter(|_| state != JobState::Completed).map(|error| error.to_json()),
            result: result.ok(),
            output: job.live.row(),
        }))
    }

    /// Stores how a job left this server, for as long as the store is away.
    async fn settle(&self, job: &ActiveJob, left: Left) {
        let Some(workspaces) = &self.workspaces else { return };
        let storage = &workspaces.storage;
        loop {
            let settled = match &left {
                Left::Ended(end) => storage.db.finish_job(&job.id, &storage.process, end).await,
                Left::PutBack => {
                    let back = storage.db.put_back_job(&job.id, &storage.process, PUT_BACK).await;
                    back.map(|()| true)
                }
            };
            match settled {
                Ok(true) => return,
                Ok(false) => {
                    tracing::warn!(id = job.id, "A job ended here after its claim was lost");
                    return;
                }
                Err(error) if error.is_temporary() => {
                    tracing::debug!(%error, id = job.id, "The end of a job waits for the store");
                    tokio::time::sleep(FINISH_RETRY).await;
                }
                Err(error) => {
                    tracing::error!(%error, id = job.id, "The end of a job could not be stored");
                    return;
                }
            }
        }
    }

    /// Stores the end of a run that had become a job.
    pub(super) async fn settle_adopted(&self, job: &ActiveJob, ran: Result<Execution, Error>) {
        let left = match self.leave(job, ran, false) {
            // It was begun and cannot be begun again.
            Left::PutBack => Left::Ended(Box::new(JobEnd {
                state: JobState::Failed,
                execution_id: None,
                error: Some(JobError::interrupted("The run was stopped").to_json()),
                result: None,
                output: job.live.row(),
            })),
            ended @ Left::Ended(_) => ended,
        };
        self.settle(job, left).await;
    }

    /// Judges the program, and runs it in a cell of its own.
    async fn run_job(
        &self,
        job: &ActiveJob,
        caller: Caller,
        request: Execute,
        cell: Permit,
    ) -> Result<Execution, Error> {
        caller.may_execute()?;
        self.jobs.check_key(&caller)?;
        let mut admitted = self.admit_job(job, caller, request)?;
        let (session, created) = match &job.session {
            Some(id) => {
                let (session, created) = self.session_of_job(&admitted, id).await?;
                (Some(session), created)
            }
            None => (None, false),
        };
        if let Some(session) = &session {
            Self::enter(self.facts_of(session)?, &mut admitted);
        }
        self.read_header(&mut admitted)?;
        let own = session.as_ref().and_then(|session| session.rules.clone());
        let rules = own.unwrap_or_else(|| Arc::clone(&admitted.rules));
        let rules = policy::narrowed(rules, admitted.request.allowed_imports.as_deref());
        let version = admitted.facts.version;
        let verdict = policy::judge(rules, &admitted.request.source, version).await?;
        if let (false, Some(mended)) = (verdict.is_rejected(), &verdict.review.mended) {
            admitted.request.source.clone_from(mended);
        }
        let begun = self.begin(&admitted, job.session.as_ref());
        let ran = match (verdict.is_rejected(), &session) {
            (true, _) => Ok(spine::rejected(&admitted, session.as_deref())),
            (false, Some(session)) => self.run_beside(&admitted, &verdict, session, cell).await,
            (false, None) => self.run_apart(&admitted, &verdict, cell).await,
        };
        self.close_run(
            admitted,
            &verdict,
            begun,
            ran.map(|ran| Execution {
                session: job.session.clone(),
                session_created: created,
                state_kept: false,
                ..ran
            }),
        )
    }

    fn admit_job(
        &self,
        job: &ActiveJob,
        caller: Caller,
        request: Execute,
    ) -> Result<Admitted, Error> {
        let mut warnings = Vec::new();
        let settings = &self.jobs.settings;
        let range = (settings.timeout_default, settings.timeout_max);
        let timeout = timeout(request.timeout, range, &mut warnings);
        let memory_bytes = self.memory(request.memory_bytes, &mut warnings);
        Ok(Admitted {
            id: ExecutionId::mint(),
            rules: self.settings.policies.of(&caller)?,
            caller,
            request: Execute { memory_bytes: Some(memory_bytes), ..request },
            timeout,
            timeout_max: settings.timeout_max,
            warnings,
            facts: Arc::clone(self.environments.default_facts()),
            dependencies: Vec::new(),
            stop: job.stop.clone(),
            watcher: None,
            permit: None,
            spilled: Mutex::default(),
            live: Some(Arc::clone(&job.live)),
            began: CancellationToken::new(),
        })
    }

    async fn session_of_job(
        &self,
        admitted: &Admitted,
        id: &SessionId,
    ) -> Result<(Arc<Session>, bool), Error> {
        let caller = &admitted.caller;
        let recalled = self.wait(admitted, self.sessions.recall_in_turn(caller, id)).await??;
        let chosen = self.sessions.choose(caller, &SessionChoice::Named(id.clone()))?;
        drop(recalled);
        let Some((session, created)) = chosen else { return Err(Error::Lost) };
        let session = Arc::clone(&session.0);
        if created {
            self.sessions.remember(caller, &session).await;
        }
        Ok((session, created))
    }

    /// Runs in a second room on a session's folder, with a copy of its variables.
    async fn run_beside(
        &self,
        admitted: &Admitted,
        verdict: &Verdict,
        session: &Arc<Session>,
        cell: Permit,
    ) -> Result<Execution, Error> {
        let (Some(home), Some(workspaces)) = (&session.home, &self.workspaces) else {
            return Err(Error::NoJobs);
        };
        let provided = self.provide(admitted, verdict, session).await?;
        let claim = session.claim()?;
        let (row, mut missing) = self.wait(admitted, session.snapshot()).await?;
        let name = Some(session.id.as_str().to_owned());
        let mut files = Files::open(&home.folder, self.settings.limits.workspace(), None).await?;
        let folder = Workspace::Folder(home.folder.clone());
        let Opening { sandbox, spec } = self.job_opening(admitted, folder).await?;
        let container = session.in_container;
        let spec = Spec { name, allowance: Some(files.allowance), container, ..spec };
        let opening = Opening { sandbox, spec };
        let mut kernel = self.wait(admitted, self.start_with(cell, opening)).await??;
        kernel.network = Arc::clone(&session.network);
        let (owner, is_open) = (&admitted.caller.id, verdict.guard().is_none());
        missing.extend(self.furnish_beside(owner, session, &mut kernel, is_open).await);
        if let Some(row) = row {
            match session.bring_back(home, &mut kernel.cell, &row, verdict.guard()).await {
                Ok(revival) => {
                    let names = revival.missing.iter();
                    missing.extend(names.map(|one| format!("{} ({})", one.name, one.reason)));
                    missing.extend(revival.error);
                }
                Err(error) => return Err(not_copied(session, error)),
            }
        }
        let mut execution = self.run_counted(&mut kernel, admitted, verdict).await;
        execution.notes.extend(not_copied_note(&missing).into_iter().chain(provided));
        self.close_kernel(kernel).await;
        let caller = &admitted.caller;
        execution.files = workspaces.look(caller, Some(&session.id), &mut files, None).await;
        execution.notes.extend(too_full(&files.allowance));
        if execution.has_pictures() {
            let first = workspaces.next_chart(caller, &session.id, None).await;
            workspaces.keep_charts(caller, Some(&session.id), first, &mut execution).await;
        }
        session.job_has_ended().await;
        drop(claim);
        Ok(execution)
    }

    /// Runs in a session that ends with the job.
    async fn run_apart(
        &self,
        admitted: &Admitted,
        verdict: &Verdict,
        cell: Permit,
    ) -> Result<Execution, Error> {
        let Some(workspaces) = &self.workspaces else { return Err(Error::NoJobs) };
        let passing = Passing(workspaces.storage.ephemeral_folder(&admitted.id));
        let limit = self.settings.limits.workspace();
        let mut files = Files::open(&passing.0, limit, None).await?;
        let workspace = Workspace::Folder(passing.0.clone());
        let allowance = Some(files.allowance);
        let Opening { sandbox, spec } = self.job_opening(admitted, workspace).await?;
        let tier = light_if_plain(verdict);
        let opening = Opening { sandbox, spec: Spec { allowance, tier, ..spec } };
        let mut kernel = self.wait(admitted, self.start_with(cell, opening)).await??;
        let is_open = verdict.guard().is_none();
        let unshown = self.furnish_once(admitted, &mut kernel, is_open).await;
        let provided = self.provide_once(admitted, verdict, &kernel).await?;
        let mut execution = self.run_counted(&mut kernel, admitted, verdict).await;
        execution.notes.extend(unshown.map(spine::packages_note));
        execution.notes.extend(provided.and_then(|(_, note)| note));
        self.close_kernel(kernel).await;
        execution.files = workspaces.look(&admitted.caller, None, &mut files, None).await;
        workspaces.keep_charts(&admitted.caller, None, 1, &mut execution).await;
        drop(passing);
        Ok(execution)
    }

    async fn job_opening(
        &self,
        admitted: &Admitted,
        workspace: Workspace,
    ) -> Result<Opening, Error> {
        let Opening { sandbox, spec } = self.opening(&admitted.facts, workspace).await?;
        let wall = admitted.timeout;
        let cpu = processor_time(spec.limits.cpu, wall);
        let limits = Limits { wall, cpu, ..spec.limits };
        let container = admitted.rules.profile.container;
        Ok(Opening { sandbox, spec: Spec { limits, container, ..spec } })
    }

    async fn run_counted(
        &self,
        kernel: &mut Kernel,
        admitted: &Admitted,
        verdict: &Verdict,
    ) -> Execution {
        let counted = self.sessions.count_run();
        let execution = self.run_in(kernel, admitted, verdict).await;
        drop(counted);
        execution
    }

    /// Ends the room, and with it every process that the job has started.
    async fn close_kernel(&self, kernel: Kernel) {
        if let Err(error) = kernel.cell.close().await {
            tracing::warn!(%error, "The end of a job's Python could not be awaited");
        }
        drop(kernel.permit);
    }
}

/// Processor time that a job may have: no less than a run of a session, and as much as so many
/// processors have in its time.
fn processor_time(usual: Duration, wall: Duration) -> Duration {
    usual.max(wall.saturating_mul(CPU_PER_WALL))
}

fn not_copied(session: &Session, reason: String) -> Error {
    Error::NotRestored { session: session.id.clone(), reason }
}

/// Variables of the session that the job did not find.
fn not_copied_note(missing: &[String]) -> Option<Note> {
    const NAMED_MAX: usize = 12;
    if missing.is_empty() {
        return None;
    }
    let named = missing.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = match missing.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let text = format!("the job began without these variables of its session: {named}{more}");
    Some(Note { code: "variables_not_copied".to_owned(), text, subject: None, line: None })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::processor_time;

    #[test]
    fn processor_time_grows_with_the_time_limit_of_a_job() {
        let of =
            |wall| processor_time(Duration::from_secs(600), Duration::from_secs(wall)).as_secs();
        assert_eq!((of(1), of(37), of(38), of(1_800)), (600, 600, 608, 28_800));
        assert_eq!(processor_time(Duration::ZERO, Duration::MAX), Duration::MAX);
    }
}
