//! The spine: one execution from request to outcome. Start reading here.

mod admitted;
mod kernels;

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use woma_sandbox::{Cell, Event, Exit, Guard, Run, Workspace};

use self::admitted::Admitted;
pub(crate) use self::admitted::check_source;
use crate::caller::Caller;
use crate::files::{Passing, too_full};
use crate::model::{Execute, Execution, ExecutionId, Happening, SessionChoice, SessionId};
use crate::policy::{self, Verdict};
use crate::record::Record;
use crate::session::{Kernel, Place, Session, Slot};
use crate::store::ExecutionRow;
use crate::transcript::Transcript;
use crate::{Error, Service, audit};

const NEVER_STARTED: &str = "never_started";

/// An execution that was admitted. It goes on by itself; dropping this before its end interrupts it.
#[derive(Debug)]
pub struct Running {
    id: ExecutionId,
    happenings: Option<mpsc::UnboundedReceiver<Happening>>,
    end: oneshot::Receiver<Result<Execution, Error>>,
    stop: CancellationToken,
}

impl Running {
    pub fn execution_id(&self) -> &ExecutionId {
        &self.id
    }

    /// What happens next; `None` when nothing more will, or if nobody asked to watch.
    pub async fn next(&mut self) -> Option<Happening> {
        self.happenings.as_mut()?.recv().await
    }

    /// Waits for the end.
    pub async fn finish(&mut self) -> Result<Execution, Error> {
        (&mut self.end).await.unwrap_or(Err(Error::Lost))
    }

    /// Stops the code as its user would; the end is still to be awaited.
    pub fn interrupt(&self) {
        self.stop.cancel();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Service {
    /// Admits a request or refuses it, at once. The code runs on a task of its own, so that a client
    /// that hangs up cannot leave it half done: it interrupts it.
    pub async fn execute(
        &self,
        caller: &Caller,
        request: Execute,
        is_watched: bool,
    ) -> Result<Running, Error> {
        let admitted = self.admit(caller, request).inspect_err(|error| {
            self.shared.metrics.reject(error.code().name());
        });
        let mut admitted = admitted?;
        // Calls that wait until a session is known again keep their order, and so do those behind.
        let waited = match admitted.request.session.named() {
            Some(id) => self.recall_in_turn(caller, &id).await?,
            None => None,
        };
        let chosen = self.shared.sessions.choose(caller, &admitted.request.session)?;
        let (watcher, happenings) = is_watched.then(mpsc::unbounded_channel).unzip();
        admitted.watcher = watcher;
        let (id, stop) = (admitted.id.clone(), admitted.stop.clone());
        let (end_sender, end) = oneshot::channel();
        let service = self.clone();
        let place = match chosen {
            Some((seat, created)) => Some((seat.queue().await, created)),
            None => None,
        };
        drop(waited);
        let session = place.as_ref().map(|(place, _)| Arc::clone(place.session()));
        let run = async move {
            let end = service.conduct(admitted, place).await;
            if let Err(error) = &end {
                service.shared.metrics.reject(error.code().name());
            }
            // A client that has gone is not told; what it had to know, the next one hears.
            if let Err(Ok(unheard)) = end_sender.send(end)
                && let (Some(reason), Some(session)) = (unheard.session_restarted, session)
            {
                session.remember_loss(reason);
            }
        };
        tokio::spawn(run.in_current_span());
        Ok(Running { id, happenings, end, stop })
    }

    /// Judges the program, runs it where it may run, and tells what came of it.
    async fn conduct(
        &self,
        mut admitted: Admitted,
        place: Option<(Place, bool)>,
    ) -> Result<Execution, Error> {
        let session = place.as_ref().map(|(place, _)| Arc::clone(place.session()));
        let own = session.as_ref().and_then(|session| session.rules.clone());
        let rules = own.unwrap_or_else(|| Arc::clone(&admitted.rules));
        let rules = policy::narrowed(rules, admitted.request.allowed_imports.as_deref());
        let verdict = self.judge(rules, &admitted.request.source).await?;
        let session_id = session.as_ref().map(|session| session.id.clone());
        let begun = self.begin(&admitted, session_id.as_ref());
        let running = match (&session, &place) {
            (Some(session), Some((_, true))) => self.remember_soon(&admitted.caller, session),
            _ => None,
        };
        let ran = if verdict.is_rejected() {
            let created = place.is_some_and(|(_, created)| created);
            Ok(Execution { session_created: created, ..rejected(&admitted, session.as_deref()) })
        } else {
            if let Some(mended) = &verdict.review.mended {
                admitted.request.source.clone_from(mended);
            }
            match place {
                Some((place, created)) => {
                    self.run_in_session(&admitted, &verdict, place, created).await
                }
                None => Box::pin(self.run_once(&admitted, &verdict)).await,
            }
        };
        drop(running);
        match (ran, begun) {
            (Ok(execution), begun) => {
                let execution = self.finish(admitted, &verdict, execution);
                Ok(match begun {
                    Some(begun) => self.end(begun, execution),
                    None => execution,
                })
            }
            (Err(error), begun) => {
                if let (Some(vault), Some(begun)) = (&self.shared.vault, begun)
                    && let Err(error) = vault.journal.end(audit::failed(begun, &error))
                {
                    tracing::error!(%error, "A refusal could not be recorded");
                }
                Err(error)
            }
        }
    }

    /// Writes down how it ended, before anybody is told.
    fn end(&self, begun: ExecutionRow, mut execution: Execution) -> Execution {
        let Some(vault) = &self.shared.vault else { return execution };
        if let Err(error) = vault.journal.end(audit::ended(begun, &execution)) {
            tracing::error!(%error, id = %execution.id, "An execution could not be recorded");
            execution.warnings.push(format!("this execution could not be recorded: {error}"));
        }
        execution
    }

    /// Writes down that it begins. A disk that is full does not stop code that needs none.
    fn begin(&self, admitted: &Admitted, session: Option<&SessionId>) -> Option<ExecutionRow> {
        let vault = self.shared.vault.as_ref()?;
        let Admitted { id, caller, request, .. } = admitted;
        let row = vault.begun(id, caller, session, &request.source);
        if let Err(error) = vault.journal.begin(&row) {
            tracing::error!(%error, %id, "The journal could not be written");
        }
        Some(row)
    }

    async fn run_in_session(
        &self,
        admitted: &Admitted,
        verdict: &Verdict,
        mut place: Place,
        created: bool,
    ) -> Result<Execution, Error> {
        let mut slot = self.wait(admitted, place.turn()).await??;
        place.begin(&admitted.stop);
        let ran = self.run_with_turn(admitted, verdict, place.session(), &mut slot).await;
        // However it ended, the session is told before the next one has its turn.
        place.end(slot.kernel.is_some(), ran.is_ok());
        drop(slot);
        drop(place);
        self.shared.sessions.make_room();
        Ok(Execution { session_created: created, ..ran? })
    }

    async fn run_with_turn(
        &self,
        admitted: &Admitted,
        verdict: &Verdict,
        session: &Session,
        slot: &mut Slot,
    ) -> Result<Execution, Error> {
        if session.takes_emptying() {
            // Whoever wants it emptied asked before we began, though our place in the queue is first.
            slot.kernel = None;
            slot.lost = None;
            session.clear_folder(slot).await;
        }
        let mut started = self.ensure_kernel(admitted, verdict, session, slot).await?;
        if let Some(kernel) = &mut slot.kernel {
            session.add_log(&kernel.cell.take_log());
        }
        let mut execution = self.run_in_slot(admitted, verdict, slot).await;
        if execution.outcome == NEVER_STARTED && slot.kernel.is_none() {
            // It died before it had read a line: another one may try, once.
            let again = self.ensure_kernel(admitted, verdict, session, slot).await?;
            started.lost = again.lost.or(started.lost);
            started.revival = again.revival;
            execution = self.run_in_slot(admitted, verdict, slot).await;
        }
        if let ("interrupted", Some(why)) = (execution.outcome, session.end_of_all()) {
            let message =
                format!("Execution was interrupted: {why}; its variables and files are gone.");
            execution.message = Some(message);
            execution.state_kept = false;
        }
        if let (Some(vault), Some(files)) = (&self.shared.vault, &mut slot.files) {
            let cell = slot.kernel.as_mut().map(|kernel| &mut kernel.cell);
            execution.files = vault.look(&admitted.caller, Some(&session.id), files, cell).await;
            execution.notes.extend(too_full(&files.allowance));
            if execution.has_pictures() {
                let caller = &admitted.caller;
                let first = Box::pin(vault.next_chart(caller, &session.id, slot.charts)).await;
                let kept = vault.keep_charts(caller, Some(&session.id), first, &mut execution);
                Box::pin(kept).await;
                slot.charts = Some(first + execution.charts.len() - 1);
            }
        }
        execution.notes.extend(session.tell_refusal());
        execution.session = Some(session.id.clone());
        execution.session_restarted = started.lost.or_else(|| session.recall_loss());
        execution.revival = started.revival;
        // Where there were variables, there being none is a change too.
        let is_bare = execution.variables.is_empty() && execution.revival.is_none();
        if slot.kernel.is_some() && (!is_bare || session.changes() > 0) {
            session.mark_changed();
        }
        if let Some(home) = &session.home {
            let Execute { source, capture_output, .. } = &admitted.request;
            let mut for_once = Transcript::default();
            let kernel = slot.kernel.as_mut();
            let transcript = kernel.map_or(&mut for_once, |kernel| &mut kernel.transcript);
            home.transcribe(transcript, source, &execution, *capture_output);
        }
        Ok(execution)
    }

    async fn run_in_slot(
        &self,
        admitted: &Admitted,
        verdict: &Verdict,
        slot: &mut Slot,
    ) -> Execution {
        let Some(kernel) = &mut slot.kernel else {
            return lost(admitted);
        };
        let counted = self.shared.sessions.count_run();
        let execution = run(kernel, admitted, verdict.guard()).await;
        drop(counted);
        if !execution.state_kept {
            // What became of the variables goes without saying here.
            let message = execution.message.as_deref().unwrap_or("it ended");
            let what = message.split(';').next().unwrap_or(message);
            slot.lost = Some(format!("the run before this one: {what}"));
            slot.kernel = None;
        }
        execution
    }

    /// A session for this run only.
    async fn run_once(&self, admitted: &Admitted, verdict: &Verdict) -> Result<Execution, Error> {
        let vault = self.shared.vault.as_ref();
        let passing = vault.map(|vault| Passing(vault.passing_folder(&admitted.id)));
        let (mut kernel, mut files) = match (&admitted.request.folder, &passing) {
            (None, Some(Passing(path))) => {
                let started = self.start_in(path, None, self.spec(Workspace::Memory));
                let (kernel, files) = self.wait(admitted, started).await??;
                (kernel, Some(files))
            }
            (folder, _) => {
                let workspace = folder.clone().map_or(Workspace::Memory, Workspace::Folder);
                let started = self.start_kernel(self.spec(workspace));
                (self.wait(admitted, started).await??, None)
            }
        };
        let counted = self.shared.sessions.count_run();
        let mut execution = run(&mut kernel, admitted, verdict.guard()).await;
        drop(counted);
        execution.state_kept = false;
        if let Err(error) = kernel.cell.close().await {
            tracing::warn!(%error, "The end of a session could not be awaited");
        }
        drop(kernel.permit);
        self.shared.sessions.make_room();
        if let (Some(vault), Some(files)) = (vault, &mut files) {
            execution.files = vault.look(&admitted.caller, None, files, None).await;
            vault.keep_charts(&admitted.caller, None, 1, &mut execution).await;
        }
        drop(passing);
        Ok(execution)
    }

    /// Keeps what can be asked for later, counts, and logs.
    fn finish(&self, admitted: Admitted, verdict: &Verdict, mut execution: Execution) -> Execution {
        let Admitted { caller, request, warnings, permit, .. } = admitted;
        execution.warnings = warnings;
        verdict.tell(&request.source, &mut execution);
        if !request.capture_output {
            execution.stdout.clear();
            execution.stderr.clear();
        }
        if let Some(chars_max) = self.shared.settings.output_chars_max {
            for text in [&mut execution.stdout, &mut execution.stderr] {
                let end = text.char_indices().nth(chars_max).map_or(text.len(), |(byte, _)| byte);
                execution.output_bytes_dropped += (text.len() - end) as u64;
                text.truncate(end);
            }
        }
        self.shared.kept.keep(&caller.id, &execution);
        self.shared.metrics.record(&execution);
        log(&caller, &execution);
        drop(permit);
        execution
    }
}

fn log(caller: &Caller, execution: &Execution) {
    let wall_seconds = execution.wall.as_secs_f64();
    let session = execution.session.as_ref().map_or("", |session| session.as_str());
    if execution.outcome == "timed_out" {
        let limit = execution.timeout.as_secs_f64();
        tracing::warn!(id = %execution.id, "Execution timeout after {limit}s");
    }
    for event in &execution.events {
        tracing::warn!(
            target: "woma::audit",
            id = %execution.id,
            caller = %caller.id,
            session,
            event = event.event,
            action = event.action.name(),
            subject = event.subject,
            line = event.line,
            "Security event: {}",
            event.message
        );
    }
    tracing::info!(
        target: "woma::audit",
        id = %execution.id,
        caller = %caller.id,
        session,
        outcome = execution.outcome,
        "Execution completed in {wall_seconds:.2}s"
    );
}

async fn run(kernel: &mut Kernel, admitted: &Admitted, guard: Option<Arc<Guard>>) -> Execution {
    let Kernel { cell, cpu_seen, .. } = kernel;
    let is_kept = admitted.request.session != SessionChoice::Ephemeral;
    let Admitted { id, request, timeout, stop, watcher, .. } = admitted;
    let first: String = request.source.chars().take(100).collect();
    tracing::debug!(%id, "Executing code: {first:?}…");
    let run = Run {
        source: request.source.clone(),
        wall: Some(*timeout),
        memory_bytes: request.memory_bytes,
        variables: request.variables.clone(),
        guard,
    };
    let mut record = Record::default();
    let mut on_event = |event: Event| {
        if let Some(happening) = record.add(event, watcher.is_some())
            && let Some(watcher) = watcher
        {
            // A watcher that has gone is no reason to stop: its handle does that.
            watcher.send(happening).unwrap_or_default();
        }
    };
    let mut exit = follow(cell, &run, stop, &mut on_event).await;
    if let Some(usage) = &mut exit.usage {
        let total = usage.cpu;
        usage.cpu = total.saturating_sub(*cpu_seen);
        *cpu_seen = total;
    }
    record.close(id.clone(), exit, *timeout, is_kept)
}

async fn follow(
    cell: &mut Cell,
    run: &Run,
    stop: &CancellationToken,
    on_event: &mut (dyn FnMut(Event) + Send),
) -> Exit {
    let interrupter = cell.interrupter();
    let mut running = std::pin::pin!(cell.run(run, on_event));
    tokio::select! {
        biased;
        exit = &mut running => exit,
        () = stop.cancelled() => {
            interrupter.interrupt();
            running.await
        }
    }
}

/// What a program gets that the rules refuse as a whole; its session has not noticed.
fn rejected(admitted: &Admitted, session: Option<&Session>) -> Execution {
    Execution {
        session: session.map(|session| session.id.clone()),
        outcome: "rejected",
        error_category: Some("security"),
        state_kept: session.is_some(),
        exit_code: 1,
        message: Some("Code contains restricted operations".to_owned()),
        ..lost(admitted)
    }
}

/// What a run gets whose kernel vanished between two lines of ours.
fn lost(admitted: &Admitted) -> Execution {
    let exit = Exit::never_started("its kernel has ended");
    Record::default().close(admitted.id.clone(), exit, admitted.timeout, true)
}
