//! A run that outlives its call goes on as a job, in the session's own kernel.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use woma_sandbox::Exit;

use super::live::Live;
use super::{ActiveJob, request};
use crate::error::Error;
use crate::execution::Executor;
use crate::execution::record::Record;
use crate::execution::request::Admitted;
use crate::model::caller::Caller;
use crate::model::{Execute, Execution, ExecutionId, OnTimeout, Outcome, SessionId};
use crate::storage::db::{JobRow, NewJob};

/// Asks a run to become a job.
pub(crate) type Leave = oneshot::Sender<Result<JobRow, Error>>;

/// Parts of a run from which a job is made.
pub(crate) struct Detach {
    id: ExecutionId,
    caller: Caller,
    request: Execute,
    pub(crate) session: Option<SessionId>,
    live: Arc<Live>,
    stop: CancellationToken,
    began: CancellationToken,
    /// Time limit of the call, if the run goes on after it.
    after: Option<Duration>,
    leave: mpsc::Receiver<Leave>,
    /// Set when the client's end of the run has nothing to stop any more.
    pub(crate) is_detached: Arc<AtomicBool>,
}

/// Why a run is to become a job.
pub(crate) enum Due {
    Timeout(Duration),
    Asked(Leave),
}

/// The client's end of a run that may become a job.
#[derive(Debug)]
pub(crate) struct DetachHandle {
    pub(crate) leave: mpsc::Sender<Leave>,
    pub(crate) is_detached: Arc<AtomicBool>,
}

impl Detach {
    /// For a run that may become a job.
    pub(in crate::execution) fn of(
        admitted: &mut Admitted,
        after: Option<Duration>,
    ) -> (Self, DetachHandle) {
        let live = Arc::new(Live::default());
        admitted.live = Some(Arc::clone(&live));
        let (sender, leave) = mpsc::channel(1);
        let is_detached = Arc::new(AtomicBool::new(false));
        let handle = DetachHandle { leave: sender, is_detached: Arc::clone(&is_detached) };
        let detach = Self {
            id: admitted.id.clone(),
            caller: admitted.caller.clone(),
            request: admitted.request.clone(),
            session: None,
            live,
            stop: admitted.stop.clone(),
            began: admitted.began.clone(),
            after,
            leave,
            is_detached,
        };
        (detach, handle)
    }

    /// Waits until the run is to become a job.
    pub(crate) async fn due(&mut self) -> Due {
        let (began, after) = (self.began.clone(), self.after);
        let timeout = async {
            let Some(after) = after else { return std::future::pending().await };
            began.cancelled().await;
            tokio::time::sleep(after).await;
            after
        };
        tokio::select! {
            after = timeout => Due::Timeout(after),
            Some(leave) = self.leave.recv() => Due::Asked(leave),
        }
    }

    /// Interrupts the run.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// The reply to a call whose run goes on.
    pub(crate) fn reply(&self, job: &JobRow, after: Duration, limit: Duration) -> Execution {
        let exit = Exit::never_started("");
        let execution = Record::default().close(self.id.clone(), exit, after, true);
        let busy = match &self.session {
            Some(session) => format!(" Session `{session}` is busy until it ends."),
            None => String::new(),
        };
        let (seconds, limit, id) = (after.as_secs_f64(), limit.as_secs(), &job.id);
        let message = format!(
            "Still running after {seconds} s: it goes on as job {id}, for {limit} s at most.{busy}"
        );
        Execution {
            session: self.session.clone(),
            outcome: Outcome::Detached,
            error_category: None,
            state_kept: true,
            exit_code: 0,
            message: Some(message),
            stdout: self.live.row().head,
            wall: after,
            hint: Some(format!(
                "get_job_status(job_id=\"{id}\") tells how far it is, get_job_result returns its \
                 result, cancel_job stops it"
            )),
            ..execution
        }
    }
}

impl Executor {
    /// Runs to the end, or makes a job of it on the way. Returns the end of one that did not become
    /// a job.
    pub(in crate::execution) async fn conduct_or_detach(
        &self,
        run: impl Future<Output = Result<Execution, Error>>,
        mut detach: Detach,
        client: oneshot::Sender<Result<Execution, Error>>,
    ) -> Option<(Result<Execution, Error>, oneshot::Sender<Result<Execution, Error>>)> {
        let mut run = std::pin::pin!(run);
        let due = tokio::select! {
            biased;
            end = &mut run => return Some((end, client)),
            due = detach.due() => due,
        };
        // The code goes on meanwhile, and may end.
        let adopted = {
            let mut adoption = std::pin::pin!(self.adopt(&detach));
            tokio::select! {
                biased;
                adopted = &mut adoption => adopted.map(|adopted| (adopted, None)),
                end = &mut run => adoption.await.map(|adopted| (adopted, Some(end))),
            }
        };
        match (adopted, due) {
            (Ok(((row, job), ended)), due) => {
                // A client that has gone is not told; the job goes on.
                match due {
                    Due::Asked(leave) => drop(leave.send(Ok(row))),
                    Due::Timeout(after) => {
                        let limit = self.jobs.settings.timeout_max.max(after);
                        drop(client.send(Ok(detach.reply(&row, after, limit))));
                    }
                }
                match ended {
                    Some(end) => self.follow_adopted(&job, std::future::ready(end)).await,
                    None => self.follow_adopted(&job, run).await,
                }
                None
            }
            (Err(error), Due::Asked(leave)) => {
                drop(leave.send(Err(error)));
                Some((run.await, client))
            }
            (Err(error), Due::Timeout(_)) => {
                tracing::warn!(%error, "A run could not become a job, and is interrupted");
                detach.stop();
                let note = format!("it could not go on as a job and was interrupted: {error}");
                let end = run.await.map(|mut execution| {
                    execution.warnings.push(note);
                    execution
                });
                Some((end, client))
            }
        }
    }

    /// The time limits of a run: that of its call, after which it goes on as a job, and its own.
    pub(in crate::execution) fn detach_after(&self, admitted: &mut Admitted) -> Option<Duration> {
        if admitted.request.on_timeout != OnTimeout::Detach {
            return None;
        }
        let after = admitted.timeout;
        admitted.timeout = self.jobs.settings.timeout_max.max(after);
        admitted.timeout_max = admitted.timeout;
        Some(after)
    }

    /// Records a run as a job.
    pub(crate) async fn adopt(&self, detach: &Detach) -> Result<(JobRow, Arc<ActiveJob>), Error> {
        let workspaces = self.workspaces.as_ref().ok_or(Error::NoJobs)?;
        let storage = &workspaces.storage;
        let (json, request_sha256) = request::write(&detach.request)?;
        let job = NewJob {
            id: Uuid::now_v7().to_string(),
            owner: detach.caller.id.as_str().to_owned(),
            session_id: detach.session.as_ref().map(|session| session.as_str().to_owned()),
            priority: 0,
            retries: 0,
            request: json,
            request_sha256,
            caller: request::write_caller(&detach.caller)?,
            idempotency_key: None,
            schedule_id: None,
            due_at: None,
            webhook: None,
        };
        let (id, now) = (detach.id.as_str(), Timestamp::now());
        let adopted = storage.db.adopt_job(&job, id, &storage.process, now);
        let row = storage.db.in_any_case(adopted).await?;
        let (owner, session) = (detach.caller.id.clone(), detach.session.clone());
        let (live, stop) = (Arc::clone(&detach.live), detach.stop.clone());
        let active = ActiveJob::new(row.id.clone(), owner, session, live, stop);
        let active = self.jobs.add(active);
        detach.is_detached.store(true, Ordering::SeqCst);
        Ok((row, active))
    }

    /// Follows a run that has become a job to its stored end.
    pub(crate) async fn follow_adopted(
        &self,
        job: &ActiveJob,
        run: impl Future<Output = Result<Execution, Error>>,
    ) {
        let ran = self.with_claim(job, run).await;
        self.settle_adopted(job, ran).await;
        self.jobs.remove(job);
    }
}
