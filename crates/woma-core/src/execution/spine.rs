//! The spine: one execution from request to outcome. Start reading here.

use std::sync::{Arc, PoisonError};

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use woma_sandbox::protocol::Note;
use woma_sandbox::sync::lock;
use woma_sandbox::{Cell, Clock, Event, Exit, Outcome as RunOutcome, Run};

use super::Executor;
use super::jobs::detach::Detach;
use super::network::{Listening, tell_network};
use super::output_cache::Whole;
use super::request::{Admitted, timeout_hint};
use super::running::Running;
use super::secrets::Cover;
use super::{elsewhere, late};
use crate::error::Error;
use crate::execution::audit;
use crate::execution::record::{Record, what_happened};
use crate::model::caller::Caller;
use crate::model::{ErrorCategory, Execute, Execution, Outcome, SessionChoice, SessionId};
use crate::policy::{self, Verdict};
use crate::session::checkpoint::CheckpointTracker;
use crate::session::notebook::Transcript;
use crate::session::state::{Kernel, KernelState, QueueTicket, Session, SessionState};
use crate::shares::Permit;
use crate::storage::db::ExecutionRow;
use crate::workspace::changes::too_full;

impl Executor {
    /// Admits a request or refuses it, at once. The code runs on a task of its own, so that a client
    /// that hangs up cannot leave it half done: it interrupts it.
    pub(crate) async fn execute(
        self: &Arc<Self>,
        caller: &Caller,
        request: Execute,
        is_watched: bool,
    ) -> Result<Running, Error> {
        let admitted = self.admit(caller, request).inspect_err(|error| {
            self.metrics.reject(error.code().name());
        });
        let mut admitted = admitted?;
        // Calls that wait until a session is known again keep their order, and so do those behind.
        let waited = match admitted.request.session.named() {
            Some(id) => self.sessions.recall_in_turn(caller, &id).await?,
            None => None,
        };
        let note = waited.as_ref().and_then(|recalled| recalled.note);
        admitted.warnings.extend(note.map(str::to_owned));
        let use_container = admitted.request.use_container;
        let chosen = self.sessions.choose_in(caller, &admitted.request.session, use_container)?;
        let (watcher, events) = is_watched.then(mpsc::unbounded_channel).unzip();
        admitted.watcher = watcher;
        let (id, stop) = (admitted.id.clone(), admitted.stop.clone());
        let after = self.detach_after(&mut admitted);
        let may_detach = after.is_some() || admitted.request.is_detachable;
        let detach = may_detach.then(|| Detach::of(&mut admitted, after));
        let (detach, handle) = detach.unzip();
        let (end_sender, end) = oneshot::channel();
        let executor = Arc::clone(self);
        let ticket = match chosen {
            Some((session_ref, created)) => Some((session_ref.queue().await, created)),
            None => None,
        };
        drop(waited);
        let session = ticket.as_ref().map(|(ticket, _)| Arc::clone(ticket.session()));
        let run = async move {
            let run = executor.conduct(admitted, ticket);
            let (end, end_sender) = match detach {
                None => (run.await, end_sender),
                Some(mut detach) => {
                    detach.session = session.as_ref().map(|session| session.id.clone());
                    match Box::pin(executor.conduct_or_detach(run, detach, end_sender)).await {
                        Some(ended) => ended,
                        None => return,
                    }
                }
            };
            if let Err(error) = &end {
                executor.metrics.reject(error.code().name());
            }
            // A client that has gone is not told; what it had to know, the next one hears.
            if let Err(Ok(unheard)) = end_sender.send(end)
                && let (Some(reason), Some(session)) = (unheard.session_restarted, session)
            {
                session.remember_loss(reason);
            }
        };
        tokio::spawn(run.in_current_span());
        Ok(Running { id, events, end, stop, detach: handle })
    }

    /// Judges the program, runs it where it may run, and tells what came of it.
    async fn conduct(
        &self,
        mut admitted: Admitted,
        ticket: Option<(QueueTicket, bool)>,
    ) -> Result<Execution, Error> {
        let session = ticket.as_ref().map(|(ticket, _)| Arc::clone(ticket.session()));
        let facts = match &session {
            Some(session) => self.facts_of(session)?,
            None => self.environments.facts(admitted.request.environment.as_deref())?,
        };
        Self::enter(facts, &mut admitted);
        self.read_header(&mut admitted)?;
        let own = session.as_ref().and_then(|session| session.rules.clone());
        let rules = own.unwrap_or_else(|| Arc::clone(&admitted.rules));
        let rules = policy::narrowed(rules, admitted.request.allowed_imports.as_deref());
        let version = admitted.facts.version;
        let verdict = policy::judge(rules, &admitted.request.source, version).await?;
        let session_id = session.as_ref().map(|session| session.id.clone());
        let begun = self.begin(&admitted, session_id.as_ref());
        let running = match (&session, &ticket) {
            (Some(session), Some((_, true))) => {
                self.sessions.remember_soon(&admitted.caller, session)
            }
            _ => None,
        };
        let ran = if verdict.is_rejected() {
            let created = ticket.is_some_and(|(_, created)| created);
            Ok(Execution { session_created: created, ..rejected(&admitted, session.as_deref()) })
        } else {
            if let Some(mended) = &verdict.review.mended {
                admitted.request.source.clone_from(mended);
            }
            match ticket {
                Some((ticket, created)) => {
                    self.run_in_session(&admitted, &verdict, ticket, created).await
                }
                None => Box::pin(self.run_once(&admitted, &verdict)).await,
            }
        };
        drop(running);
        self.close_run(admitted, &verdict, begun, ran)
    }

    /// Completes the reply and the record of a run, or records why there was none.
    pub(super) fn close_run(
        &self,
        admitted: Admitted,
        verdict: &Verdict,
        begun: Option<ExecutionRow>,
        ran: Result<Execution, Error>,
    ) -> Result<Execution, Error> {
        match (ran, begun) {
            (Ok(execution), begun) => {
                let execution = self.finish(admitted, verdict, execution);
                Ok(match begun {
                    Some(begun) => self.end(begun, execution),
                    None => execution,
                })
            }
            (Err(error), begun) => {
                if let (Some(workspaces), Some(begun)) = (&self.workspaces, begun)
                    && let Err(error) = workspaces.storage.outbox.end(audit::failed(begun, &error))
                {
                    tracing::error!(%error, "A refusal could not be recorded");
                }
                Err(error)
            }
        }
    }

    /// Records how it ended, before the reply is sent.
    fn end(&self, begun: ExecutionRow, mut execution: Execution) -> Execution {
        let Some(workspaces) = &self.workspaces else { return execution };
        if let Err(error) = workspaces.storage.outbox.end(audit::ended(begun, &execution)) {
            tracing::error!(%error, id = %execution.id, "An execution could not be recorded");
            execution.warnings.push(format!("this execution could not be recorded: {error}"));
        }
        execution
    }

    /// Writes down that it begins. A disk that is full does not stop code that needs none.
    pub(super) fn begin(
        &self,
        admitted: &Admitted,
        session: Option<&SessionId>,
    ) -> Option<ExecutionRow> {
        let workspaces = self.workspaces.as_ref()?;
        let Admitted { id, caller, request, .. } = admitted;
        let row = audit::begun(&workspaces.storage, id, caller, session, &request.source);
        if let Err(error) = workspaces.storage.outbox.begin(&row) {
            tracing::error!(%error, %id, "The outbox could not be written");
        }
        Some(row)
    }

    async fn run_in_session(
        &self,
        admitted: &Admitted,
        verdict: &Verdict,
        mut ticket: QueueTicket,
        created: bool,
    ) -> Result<Execution, Error> {
        let mut state = self.wait(admitted, ticket.turn()).await??;
        ticket.begin(&admitted.stop);
        let ran = match self.run_permit(admitted).await {
            Ok(permit) => {
                let ran = self.run_provided(admitted, verdict, ticket.session(), &mut state).await;
                drop(permit);
                ran
            }
            Err(error) => Err(error),
        };
        // However it ended, the session is told before the next one has its turn.
        ticket.end(state.kernel.is_live(), ran.is_ok());
        drop(state);
        drop(ticket);
        self.sessions.make_room();
        Ok(Execution { session_created: created, ..ran? })
    }

    pub(super) async fn run_permit(&self, admitted: &Admitted) -> Result<Permit, Error> {
        let permit = self.sessions.run_permit(&admitted.caller.id);
        self.wait(admitted, permit).await?
    }

    pub(super) async fn run_with_turn(
        &self,
        admitted: &Admitted,
        verdict: &Verdict,
        session: &Session,
        state: &mut SessionState,
    ) -> Result<Execution, Error> {
        if session.takes_emptying() {
            // The reset was asked for before this run began, though this ticket is first in the queue.
            session.clear_folder(state).await;
        }
        let mut started = self.ensure_kernel(admitted, verdict, session, state).await?;
        if let Some(kernel) = state.kernel.live_mut() {
            session.add_log(&kernel.cell.take_log());
        }
        let mut execution = self.run_in_kernel(admitted, verdict, session, state).await;
        let is_unstarted =
            matches!(execution.outcome, Outcome::Ran(RunOutcome::NeverStarted { .. }));
        if is_unstarted && !state.kernel.is_live() {
            // It died before it had read a line: another one may try, once.
            let again = self.ensure_kernel(admitted, verdict, session, state).await?;
            started.lost = started.lost.or(again.lost);
            started.revival = again.revival;
            execution = self.run_in_kernel(admitted, verdict, session, state).await;
        }
        if !execution.state_kept && !state.kernel.is_live() {
            self.tell_loss(&admitted.request.source, session, &mut execution).await;
        }
        let end_of_all = session.end_of_all();
        if end_of_all.is_some() {
            // Its output goes with the session.
            drop(std::mem::take(&mut *lock(&admitted.spilled)));
        }
        if let Outcome::Ran(RunOutcome::Interrupted(_)) = execution.outcome
            && let Some(why) = end_of_all
        {
            let message =
                format!("Execution was interrupted: {why}; its variables and files are gone.");
            execution.message = Some(message);
            execution.state_kept = false;
        }
        if let (Some(workspaces), Some(files)) = (&self.workspaces, &mut state.files) {
            let caller = &admitted.caller;
            self.take_datasets(caller, Some(&session.id), files, &mut execution).await;
            let cell = state.kernel.live_mut().map(|kernel| &mut kernel.cell);
            execution.files = workspaces.look(caller, Some(&session.id), files, cell).await;
            execution.notes.extend(too_full(&files.allowance));
            if execution.has_pictures() {
                let first =
                    Box::pin(workspaces.next_chart(caller, &session.id, state.charts)).await;
                let kept = workspaces.keep_charts(caller, Some(&session.id), first, &mut execution);
                Box::pin(kept).await;
                state.charts = Some(first + execution.charts.len() - 1);
            }
        }
        late::tell(session, state, &mut execution);
        elsewhere::remember(session, &execution);
        execution.notes.extend(session.checkpoints(CheckpointTracker::tell_refusal));
        execution.session = Some(session.id.clone());
        execution.session_restarted = started.lost.or_else(|| session.recall_loss());
        execution.revival = started.revival;
        // Where there were variables, there being none is a change too.
        let is_bare = execution.variables.is_empty()
            && execution.variables_left_out == 0
            && execution.names_imported == 0
            && execution.revival.is_none();
        if state.kernel.is_live()
            && (!is_bare || session.checkpoints(|tracker| tracker.changes()) > 0)
        {
            session.checkpoints(|tracker| tracker.mark_changed(&admitted.request.source));
        }
        if let Some(home) = &session.home {
            let Execute { source, capture_output, .. } = &admitted.request;
            let mut for_once = Transcript::default();
            let kernel = state.kernel.live_mut();
            let transcript = kernel.map_or(&mut for_once, |kernel| &mut kernel.transcript);
            home.transcribe(transcript, source, &execution, *capture_output);
        }
        Ok(execution)
    }

    async fn run_in_kernel(
        &self,
        admitted: &Admitted,
        verdict: &Verdict,
        session: &Session,
        state: &mut SessionState,
    ) -> Execution {
        let Some(kernel) = state.kernel.live_mut() else {
            return lost(admitted);
        };
        let counted = self.sessions.count_run();
        let mut execution = self.run_in(kernel, admitted, verdict).await;
        drop(counted);
        execution.notes.extend(session.packages.take_note().map(packages_note));
        if !execution.state_kept {
            let what = match &execution.outcome {
                Outcome::Ran(outcome) => what_happened(outcome),
                Outcome::Rejected | Outcome::Detached => None,
            };
            let what = what.unwrap_or_else(|| "it ended".to_owned());
            state.kernel = KernelState::lost(format!("the run before this one: {what}"));
        }
        execution
    }

    pub(super) async fn run_in(
        &self,
        kernel: &mut Kernel,
        admitted: &Admitted,
        verdict: &Verdict,
    ) -> Execution {
        let (environ, lost) = self.place_secrets(kernel, admitted);
        let closed = self.open_network(kernel, admitted, verdict).await;
        let cover = Cover::of(kernel);
        let Kernel { cell, cpu_seen, .. } = kernel;
        let is_kept = admitted.request.session != SessionChoice::Ephemeral;
        let Admitted { id, request, timeout, stop, watcher, .. } = admitted;
        let first: String = request.source.chars().take(100).collect();
        if self.settings.logs_code {
            tracing::info!(%id, "Executing code: {first:?}…");
        } else {
            tracing::debug!(%id, "Executing code: {first:?}…");
        }
        let run = Run {
            source: request.source.clone(),
            wall: Some(*timeout),
            memory_bytes: request.memory_bytes,
            variables: request.variables.clone(),
            stdin: request.stdin.clone(),
            stdin_pipe: request.stdin_pipe.clone(),
            script: request.script.clone(),
            guard: verdict.guard(),
            environ,
        };
        let listening = Listening::watch(cell.sockets(), *timeout);
        let unshown = self.show_datasets(&admitted.caller.id, cell).await;
        let mut spill = self.spill(cell, admitted);
        let mut record = Record::new(spill.is_planned().then(|| id.clone()));
        let mut on_event = |event: Event| {
            if let Some(live) = &admitted.live {
                live.add(&event);
            }
            if let Event::Middle { stream, bytes } = &event {
                spill.add(*stream, bytes);
            }
            if let Some(happening) = record.add(event, watcher.is_some())
                && let Some(watcher) = watcher
            {
                // A watcher that has gone is no reason to stop: its handle does that.
                watcher.send(happening).unwrap_or_default();
            }
        };
        admitted.began.cancel();
        let mut exit = cover.follow(cell, &run, stop, &mut on_event).await;
        if let Some(usage) = &mut exit.usage {
            let total = usage.cpu;
            usage.cpu = total.saturating_sub(*cpu_seen);
            *cpu_seen = total;
        }
        let note = self.tell_ceiling(&mut exit);
        let (middles, gaps) = (spill.finish().await, record.gaps());
        let mut execution = record.close(id.clone(), exit, *timeout, is_kept);
        execution.notes.extend(closed.into_iter().chain(unshown).chain(note).chain(lost));
        tell_network(kernel, &mut execution);
        let session = admitted.request.session.named();
        listening.tell(session.as_ref(), self.settings.ports, &mut execution);
        execution.notes.extend(middles.notes(id));
        *lock(&admitted.spilled) = (middles, gaps);
        execution
    }

    /// Keeps what can be asked for later, counts, and logs.
    fn finish(&self, admitted: Admitted, verdict: &Verdict, mut execution: Execution) -> Execution {
        let Admitted { caller, request, warnings, permit, spilled, timeout_max, facts, .. } =
            admitted;
        execution.warnings = warnings;
        if !request.inline_displays {
            execution.display_offsets.clear();
        }
        verdict.tell(&request.source, &mut execution);
        if verdict.guard().is_none() {
            self.tell_install(&facts, &mut execution);
        }
        self.tell_elsewhere(&caller.id, &mut execution);
        if let Outcome::Ran(RunOutcome::TimedOut(Clock::Wall { .. })) = execution.outcome {
            execution.hint = Some(timeout_hint(execution.timeout, timeout_max));
        }
        if !request.capture_output {
            execution.stdout.clear();
            execution.stderr.clear();
        }
        let (middles, gaps) = spilled.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.output_cache.keep(&caller.id, &execution, Whole { middles, gaps });
        if let Some(chars_max) = self.settings.output_chars_max {
            for text in [&mut execution.stdout, &mut execution.stderr] {
                let end = text.char_indices().nth(chars_max).map_or(text.len(), |(byte, _)| byte);
                execution.output_bytes_dropped += (text.len() - end) as u64;
                text.truncate(end);
            }
        }
        self.metrics.record(&execution);
        audit::log(&caller, &execution);
        drop(permit);
        execution
    }
}

pub(super) async fn follow(
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

pub(super) fn packages_note(text: String) -> Note {
    Note { code: "packages_lost".to_owned(), text, subject: None, line: None }
}

/// The reply to a program that the rules refuse as a whole; its session is unchanged.
pub(super) fn rejected(admitted: &Admitted, session: Option<&Session>) -> Execution {
    Execution {
        session: session.map(|session| session.id.clone()),
        outcome: Outcome::Rejected,
        error_category: Some(ErrorCategory::Security),
        state_kept: session.is_some(),
        exit_code: 1,
        message: Some("Code contains restricted operations".to_owned()),
        ..lost(admitted)
    }
}

/// The reply to a run whose kernel ended before it began.
fn lost(admitted: &Admitted) -> Execution {
    let exit = Exit::never_started("its kernel has ended");
    Record::default().close(admitted.id.clone(), exit, admitted.timeout, true)
}
