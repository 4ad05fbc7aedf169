//! Requests to cells that work for a caller: datasets are loaded and queried in them, never in the
//! server. A request is an ordinary run of a few fixed lines; its reply is the value of the run.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use woma_sandbox::workspace::{Folder, WorkspacePath};
use woma_sandbox::{Clock, Crash, Exit, Interruption, Outcome, Run, State, Workspace};

use super::Executor;
use super::admission::Admission;
use super::spine::follow;
use crate::error::Error;
use crate::model::caller::Caller;
use crate::model::{DatasetError, DatasetProblem, ExecutionId};
use crate::session::state::Kernel;
use crate::session::workers::WorkerKernel;
use crate::workspace::changes::Passing;
use crate::workspace::files::{OpenedFile, blocking, open};

const SOURCE: &str = "from _woma_kernel.datasets import serve; serve(_request)";
/// Requests after which a warm cell is replaced.
const RUNS_MAX: u32 = 5_000;

/// A request to a working cell.
#[derive(Debug)]
pub(crate) struct Work {
    /// Arguments of the request.
    pub(crate) request: Value,
    pub(crate) timeout: Duration,
    /// Folder of the host that the cell shows read-only as `/datasets`.
    pub(crate) shown: PathBuf,
    /// Name of the file that the request writes into the working directory.
    pub(crate) output: Option<String>,
    pub(crate) stop: CancellationToken,
}

/// Reply of a working cell. Hostile.
#[derive(Debug)]
pub(crate) struct Worked {
    /// JSON.
    pub(crate) reply: String,
    /// The file that the request has written, if there is one.
    pub(crate) output: Option<OpenedFile>,
    /// Its path, if the cell is gone: it can be moved.
    pub(crate) path: Option<PathBuf>,
    /// Removes the working directory of a cell that is gone.
    pub(crate) passing: Option<Passing>,
}

impl Executor {
    /// Admits a request of a caller, as one of its calls.
    pub(crate) fn admit_work(&self, caller: &Caller) -> Result<Admission, Error> {
        caller.may_execute()?;
        self.check_rate(caller)?;
        self.admissions.admit(&caller.id)
    }

    /// Serves a request in the caller's warm cell, which is started if there is none.
    pub(crate) async fn work_warm(&self, caller: &Caller, work: &Work) -> Result<Worked, Error> {
        let (worker, began) = (self.sessions.workers.of(&caller.id), Instant::now());
        let mut turn = self.while_wanted(&work.stop, worker.turn()).await?;
        let permit = self.while_wanted(&work.stop, self.sessions.run_permit(&caller.id)).await??;
        let is_fit = |warm: &WorkerKernel| {
            warm.kernel.cell.is_alive() && warm.shown == work.shown && warm.runs < RUNS_MAX
        };
        if !turn.as_ref().is_some_and(is_fit) {
            // The old one gives its permit back first.
            *turn = None;
            *turn = Some(self.start_worker(caller, work).await?);
        }
        let Some(warm) = turn.as_mut() else { return Err(Error::Lost) };
        warm.runs += 1;
        let exit = self.run_work(&mut warm.kernel, work).await;
        drop(permit);
        let folder = Arc::clone(&warm.folder);
        if exit.state == State::Lost {
            *turn = None;
        }
        worker.mark_used();
        let reply = reply_of(exit, work);
        self.metrics.record_dataset("query", reply.is_ok(), began.elapsed());
        let output = match (&reply, &work.output) {
            (Ok(_), Some(name)) => take_output(&folder, name, true).await,
            (Err(_), Some(name)) => take_output(&folder, name, true).await.map(|_| None),
            (_, None) => Ok(None),
        };
        drop(turn);
        self.sessions.make_room();
        Ok(Worked { reply: reply?, output: output?, path: None, passing: None })
    }

    /// Serves a request in a cell of its own, which is gone afterwards.
    pub(crate) async fn work_once(&self, caller: &Caller, work: &Work) -> Result<Worked, Error> {
        let began = Instant::now();
        let permit = self.while_wanted(&work.stop, self.sessions.run_permit(&caller.id)).await??;
        let started = self.start_worker(caller, work).await?;
        let WorkerKernel { mut kernel, folder, passing, .. } = started;
        let exit = self.run_work(&mut kernel, work).await;
        if let Err(error) = kernel.cell.close().await {
            tracing::warn!(%error, "The end of a helper of datasets could not be awaited");
        }
        drop((kernel.permit, permit));
        self.sessions.make_room();
        let reply = reply_of(exit, work);
        self.metrics.record_dataset("load", reply.is_ok(), began.elapsed());
        let reply = reply?;
        let (output, path) = match &work.output {
            Some(name) => (take_output(&folder, name, false).await?, Some(passing.0.join(name))),
            None => (None, None),
        };
        Ok(Worked { reply, output, path, passing: Some(passing) })
    }

    async fn start_worker(&self, caller: &Caller, work: &Work) -> Result<WorkerKernel, Error> {
        let workspaces = self.workspaces.as_ref().ok_or(Error::KeepsNoFiles)?;
        let passing = Passing(workspaces.storage.ephemeral_folder(&ExecutionId::mint()));
        let facts = self.environments.default_facts();
        let opening = self.opening(facts, Workspace::Memory).await?;
        let started = self.start_in(&caller.id, &passing.0, None, opening);
        let (mut kernel, files) = self.while_wanted(&work.stop, started).await??;
        kernel.cell.show_datasets(&work.shown).await?;
        let (folder, shown) = (files.folder, work.shown.clone());
        Ok(WorkerKernel { kernel, folder, shown, passing, runs: 0 })
    }

    async fn run_work(&self, kernel: &mut Kernel, work: &Work) -> Exit {
        let variables = Map::from_iter([("_request".to_owned(), work.request.clone())]);
        let (source, wall) = (SOURCE.to_owned(), Some(work.timeout));
        let run = Run { source, wall, variables, ..Run::default() };
        let counted = self.sessions.count_run();
        let exit = follow(&mut kernel.cell, &run, &work.stop, &mut |_| {}).await;
        drop(counted);
        exit
    }

    /// Waits, as long as the client does and no run could take longer.
    async fn while_wanted<T>(
        &self,
        stop: &CancellationToken,
        what: impl Future<Output = T>,
    ) -> Result<T, Error> {
        let limit = self.settings.timeout_max;
        tokio::select! {
            biased;
            done = what => Ok(done),
            () = stop.cancelled() => Err(Error::GivenUp),
            () = tokio::time::sleep(limit) => {
                let what = format!("this call has waited {} seconds", limit.as_secs());
                Err(Error::Busy { what, retry_after: Duration::from_secs(1) })
            }
        }
    }
}

/// Opens the file that a request has written; a warm cell's is removed, and read without a name.
async fn take_output(
    folder: &Arc<Folder>,
    name: &str,
    is_removed: bool,
) -> Result<Option<OpenedFile>, Error> {
    let (folder, name) = (Arc::clone(folder), name.to_owned());
    blocking(move || {
        let path = WorkspacePath::parse(&format!("./{name}"))
            .map_err(|why| Error::BadPath { path: name, why })?;
        let opened = match open(&folder, &path) {
            Ok(opened) => Some(opened),
            Err(Error::NoFile { .. }) => None,
            Err(error) => return Err(error),
        };
        if is_removed && opened.is_some() {
            folder.remove(&path)?;
        }
        Ok(opened)
    })
    .await
}

/// The reply of a run that has completed; how else it ended is an error of the request.
fn reply_of(exit: Exit, work: &Work) -> Result<String, Error> {
    let seconds = work.timeout.as_secs_f64();
    let failed = |problem, message: String| DatasetError::new(problem, message);
    let error = match exit.outcome {
        Outcome::Completed => {
            let result = exit.done.and_then(|done| done.result);
            if let Some(json) = result.and_then(|result| result.json) {
                return Ok(json.text().to_owned());
            }
            failed(DatasetProblem::Engine, "the query engine gave no reply".to_owned())
        }
        Outcome::Raised => {
            let raised = exit.done.and_then(|done| done.error);
            let (name, message) =
                raised.map(|raised| (raised.name, raised.message)).unwrap_or_default();
            if name == "MemoryError" {
                out_of_memory()
            } else {
                tracing::warn!(name, message, "The query engine has failed");
                let text = "the query engine has failed";
                failed(DatasetProblem::Engine, text.to_owned())
                    .with_hint("duckdb and pyarrow must be installed in the environment")
            }
        }
        Outcome::Interrupted(Interruption::Asked) => return Err(Error::GivenUp),
        Outcome::Interrupted(_) => {
            let text = "the request needs more disk space than one session may have (DISK_MB)";
            failed(DatasetProblem::TooLarge, text.to_owned())
        }
        Outcome::TimedOut(clock) => {
            let what = match clock {
                Clock::Wall { .. } => format!("it was stopped after {seconds} s"),
                Clock::Cpu { limit } => format!("it used {} s of processor time", limit.as_secs()),
            };
            failed(DatasetProblem::TimedOut, what)
                .with_hint("pass a larger `timeout` in seconds, or ask for less at once")
        }
        Outcome::OutOfMemory { .. } => out_of_memory(),
        Outcome::Crashed(crash) => {
            let what = match crash {
                Crash::Signal(signal) => format!("signal {signal}"),
                Crash::Exited(status) => format!("status {status}"),
                Crash::Protocol(_) | Crash::Lost(_) => "a broken connection".to_owned(),
            };
            failed(DatasetProblem::Engine, format!("the query engine crashed: {what}"))
        }
        Outcome::NeverStarted { reason } => {
            failed(DatasetProblem::Engine, format!("the query engine did not start: {reason}"))
        }
    };
    Err(error.into())
}

fn out_of_memory() -> DatasetError {
    let text = "the request needs more memory than one session may have";
    DatasetError::new(DatasetProblem::OutOfMemory, text)
        .with_hint("filter or aggregate before joining and sorting, or load a part of the file")
}

/// Path of a file in the working directory, as a cell sees it.
pub(crate) fn in_cell(name: &str) -> String {
    Path::new("/mnt/data").join(name).to_string_lossy().into_owned()
}
