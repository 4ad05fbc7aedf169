//! One tool call: arguments in, content blocks out.

use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, JsonObject, ProgressNotificationParam,
    ProgressToken,
};
use rmcp::service::{Peer, RequestContext, RoleServer};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};
use woma_core::{
    Caller, Code, Execution, NewSession, OutputStream, RefusedRequest, RunEvent, Running,
    SessionId, SessionInfo,
};

use super::catalogue::{Catalogue, ToolKind};
use super::content::Asked;
use super::{content, datasets, files, history, jobs, packages, sessions};
use crate::api::arguments::{Arguments, Problem};
use crate::api::error::{Envelope, refusal_code};
use crate::api::new_session;
use crate::api::request::Call;
use crate::api::state::AppState;
use crate::config::types::{ReplyForm, TextFormat};
use crate::mcp::{Hangup, Mcp, OrderPermit, info, tasks};

/// Interval of progress notifications.
const HEARTBEAT: Duration = Duration::from_secs(3);
/// Time after which an installation is told of, if nothing else was.
const PROGRESS_AFTER: Duration = Duration::from_secs(1);
/// Run time after which a client that supports tasks gets one.
const TASK_AFTER: Duration = Duration::from_secs(5);
/// Characters of the last output line in a progress notification.
const LAST_LINE_CHARS_MAX: usize = 200;

/// Rejected call: as a tool result that the model can act on, or as a protocol error.
pub(crate) enum Refusal {
    Tool(Envelope),
    Protocol(ErrorData),
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self::Tool(problem.into())
    }
}

impl From<Envelope> for Refusal {
    fn from(envelope: Envelope) -> Self {
        Self::Tool(envelope)
    }
}

impl From<woma_core::Error> for Refusal {
    fn from(error: woma_core::Error) -> Self {
        Self::Tool(Envelope::from(error))
    }
}

impl From<woma_core::BadSessionId> for Refusal {
    fn from(error: woma_core::BadSessionId) -> Self {
        Self::from(woma_core::Error::from(error))
    }
}

impl From<ErrorData> for Refusal {
    fn from(error: ErrorData) -> Self {
        Self::Protocol(error)
    }
}

/// Transport features of a call: cancellation, tasks, progress, ordering. By default, dropping the
/// call is the only cancellation.
#[derive(Default)]
pub(crate) struct CallContext {
    /// Cancellation: of the request, by a closed connection, by a client that has left.
    gone: Option<[CancellationToken; 3]>,
    /// Whether the client supports tasks.
    may_task: bool,
    /// Receiver of progress notifications, if the client asked for them.
    progress: Option<(ProgressToken, Peer<RoleServer>)>,
    order_permit: Option<OrderPermit>,
}

impl CallContext {
    async fn abandoned(&self) {
        match &self.gone {
            Some([taken_back, closed, gone]) => tokio::select! {
                () = taken_back.cancelled() => {}
                () = closed.cancelled() => {}
                () = gone.cancelled() => {}
            },
            None => std::future::pending().await,
        }
    }
}

impl Mcp {
    /// Handles a call that rmcp has parsed, from any transport.
    pub(crate) async fn call(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(kind) = self.catalogue.kind(&request.name) else {
            return self.unknown(&request.name);
        };
        let caller = self.caller(&context)?;
        let parts = context.extensions.get::<axum::http::request::Parts>();
        let told = parts.map(|parts| &parts.extensions);
        let span = told.and_then(|told| told.get::<Span>().cloned());
        let hangup = told.and_then(|told| told.get::<Hangup>().cloned()).unwrap_or_default();
        let token = context.meta.get_progress_token();
        let call_context = CallContext {
            gone: Some([context.ct.clone(), hangup.0, self.gone.clone()]),
            may_task: context.client_capabilities().is_some_and(|known| known.supports_tasks()),
            progress: token.map(|token| (token, context.peer.clone())),
            order_permit: context.extensions.get::<OrderPermit>().cloned(),
        };
        let here = self.for_request(&context);
        let called =
            here.dispatch(&caller, kind, request.arguments.unwrap_or_default(), call_context);
        called.instrument(span.unwrap_or_else(Span::current)).await
    }

    /// Reply to the name of no tool: an error of the protocol. Clients of older systems that read
    /// every reply as JSON get it as such.
    fn unknown(&self, name: &str) -> Result<CallToolResponse, ErrorData> {
        let name: String = name.chars().take(64).collect();
        let names = Catalogue::names();
        if content::reads_json(&self.state) {
            let envelope = Envelope::new(Code::NotFound, format!("Unknown tool: {name}"));
            let envelope = envelope.with_hint(format!("there are: {names}"));
            return Ok(content::refusal(&self.state, &envelope).into());
        }
        let text = format!("unknown tool `{name}`; there are: {names}");
        Err(ErrorData::invalid_params(text, None))
    }

    /// Runs the tool; a rejection becomes a tool result.
    pub(crate) async fn dispatch(
        &self,
        caller: &Caller,
        kind: ToolKind,
        arguments: JsonObject,
        context: CallContext,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Arguments::new(arguments);
        let answer = match kind {
            ToolKind::ExecuteCode => self.execute(caller, arguments, context).await,
            // A client that has left needs no file, and waits for no job.
            ToolKind::FetchFile
            | ToolKind::FetchFromUrl
            | ToolKind::GetJobStatus
            | ToolKind::GetJobResult => {
                tokio::select! {
                    biased;
                    answer = self.answer(caller, kind, arguments) => answer.map(Into::into),
                    () = context.abandoned() => Err(cancelled()),
                }
            }
            ToolKind::LoadDataset | ToolKind::QueryDataset | ToolKind::DescribeDataset => {
                tokio::select! {
                    biased;
                    answer = datasets::call(&self.state, caller, kind, arguments) => {
                        answer.map(Into::into)
                    }
                    // Dropping the call stops its cell.
                    () = context.abandoned() => Err(cancelled()),
                    () = tell_progress(context.progress.as_ref()) => Err(cancelled()),
                }
            }
            ToolKind::InstallPackage
            | ToolKind::UninstallPackage
            | ToolKind::ListInstalledPackages => {
                let (progress, told) = mpsc::unbounded_channel();
                tokio::select! {
                    biased;
                    answer = packages::call(&self.state, caller, kind, arguments, Some(progress)) => {
                        answer.map(Into::into)
                    }
                    // Dropping the call stops its cell.
                    () = context.abandoned() => Err(cancelled()),
                    () = tell_lines(context.progress.as_ref(), told) => Err(cancelled()),
                }
            }
            other => self.answer(caller, other, arguments).await.map(Into::into),
        };
        match answer {
            Ok(response) => Ok(response),
            Err(Refusal::Tool(envelope)) => {
                if let Some(reason) = refusal_code(envelope.status) {
                    let (caller, request) = (Some(caller.id.clone()), format!("tool {kind:?}"));
                    let refused = RefusedRequest { caller, request, reason, peer: None };
                    self.state.service.note_refusal(&refused);
                }
                Ok(content::refusal(&self.state, &envelope).into())
            }
            Err(Refusal::Protocol(error)) => Err(error),
        }
    }

    /// Runs the tools that execute no code.
    async fn answer(
        &self,
        caller: &Caller,
        kind: ToolKind,
        mut arguments: Arguments,
    ) -> Result<CallToolResult, Refusal> {
        let service = &self.state.service;
        let (answer, text) = match kind {
            // `dispatch` has answered these.
            ToolKind::ExecuteCode
            | ToolKind::LoadDataset
            | ToolKind::QueryDataset
            | ToolKind::DescribeDataset
            | ToolKind::InstallPackage
            | ToolKind::UninstallPackage
            | ToolKind::ListInstalledPackages => (Value::Null, None),
            ToolKind::GetSandboxInfo => self.describe_sandbox(caller)?,
            ToolKind::ValidateCode => {
                let (validation, warnings) =
                    crate::api::validation::validate(&self.state, caller, arguments).await?;
                return Ok(content::plain(&self.state, to_value(&validation), None, warnings));
            }
            ToolKind::ListFiles
            | ToolKind::UploadFile
            | ToolKind::FetchFile
            | ToolKind::DeleteFile
            | ToolKind::FetchFromUrl => {
                return files::call(&self.state, caller, kind, arguments).await;
            }
            ToolKind::SubmitJob
            | ToolKind::GetJobStatus
            | ToolKind::GetJobResult
            | ToolKind::CancelJob
            | ToolKind::ListJobs => return jobs::call(self, caller, kind, arguments).await,
            ToolKind::ReadOutput => return self.read_output(caller, arguments).await,
            ToolKind::ListSessions | ToolKind::ListActiveSessions => {
                let is_active = kind == ToolKind::ListActiveSessions;
                return sessions::list(&self.state, caller, arguments, is_active).await;
            }
            ToolKind::CreateSession => {
                let created = new_session::create(&self.state, caller, arguments).await?;
                return Ok(sessions::created(&self.state, created));
            }
            ToolKind::ChangeSession => {
                return sessions::change(&self.state, caller, arguments).await;
            }
            ToolKind::DeleteSession => {
                let id = arguments.required(&["session_id"], "the session to end")?;
                let id = SessionId::parse(&id)?;
                service.delete_session(caller, &id).await?;
                done(&id, "The session is deleted, with its variables and files.")
            }
            ToolKind::InterruptSession => {
                let id = session(&self.state, &mut arguments)?;
                let message = match service.interrupt_session(caller, &id)? {
                    true => "The running code is being interrupted; variables are kept.",
                    false => "No code was running in the session.",
                };
                done(&id, message)
            }
            ToolKind::ListDatasets | ToolKind::DropDataset => {
                return datasets::call(&self.state, caller, kind, arguments).await;
            }
            ToolKind::CheckpointSession | ToolKind::RestoreSession | ToolKind::ExportSession => {
                return history::call(&self.state, caller, kind, arguments).await;
            }
            ToolKind::ResetSession => {
                let session = self.reset(caller, &mut arguments).await?;
                sessions::made(&self.state, session, "empty")
            }
        };
        Ok(content::plain(&self.state, answer, text, arguments.unknown().collect()))
    }

    fn describe_sandbox(&self, caller: &Caller) -> Result<(Value, Option<String>), Refusal> {
        let rules = self.state.service.settings().policies.of(caller)?;
        let info = info::sandbox_info(&self.state, &rules.profile);
        let is_text = self.state.presentation.text_format == TextFormat::Streams;
        let text = is_text.then(|| info::summary(&info));
        Ok((info, text))
    }

    /// Empties a session. A call without a name also makes the session that it means.
    async fn reset(
        &self,
        caller: &Caller,
        arguments: &mut Arguments,
    ) -> Result<SessionInfo, Refusal> {
        let service = &self.state.service;
        let is_named = arguments.has("session_id");
        let id = session(&self.state, arguments)?;
        match service.reset_session(caller, &id).await {
            // Nothing has run in it yet.
            Err(woma_core::Error::NoSession(id)) if !is_named => {
                let wanted = NewSession { id: Some(id), ..NewSession::default() };
                Ok(service.create_session(caller, wanted).await?)
            }
            session => Ok(session?),
        }
    }

    async fn read_output(
        &self,
        caller: &Caller,
        mut arguments: Arguments,
    ) -> Result<CallToolResult, Refusal> {
        let id = arguments.required(&["execution_id"], "the execution_id of an earlier reply")?;
        let stream = arguments.text(&["stream"])?.unwrap_or_else(|| "stdout".to_owned());
        let Ok(parsed) = serde_json::from_value::<OutputStream>(Value::String(stream.clone()))
        else {
            return Err(Refusal::from(Problem::Wrong {
                name: "stream",
                expected: "stdout, stderr, traceback, result or late",
                got: format!("{:?}", stream.chars().take(40).collect::<String>()),
            }));
        };
        let offset = arguments.count(&["offset"])?.unwrap_or(0);
        let limit_max = self.state.presentation.context_chars;
        let limit = arguments.count(&["limit"])?.and_then(|limit| usize::try_from(limit).ok());
        let limit = limit.unwrap_or(limit_max).clamp(1, limit_max);
        let page = self.state.service.read_output(caller, &id, parsed, offset, limit).await?;
        let mut answer = json!({
            "execution_id": id, "stream": stream, "text": page.text,
            "offset": page.offset, "total_chars": page.total_chars,
        });
        let mut text = page.text;
        if let (Some(next), Some(fields)) = (page.next_offset, answer.as_object_mut()) {
            fields.insert("next_offset".to_owned(), next.into());
            let total = page.total_chars;
            text = format!("{text}\n[of {total} characters; offset {next} reads on]");
        }
        if let (ReplyForm::Lean, Some(fields)) =
            (self.state.presentation.reply, answer.as_object_mut())
        {
            fields.retain(|name, _| name != "execution_id" && name != "stream");
        }
        Ok(content::plain(&self.state, answer, Some(text), arguments.unknown().collect()))
    }

    async fn execute(
        &self,
        caller: &Caller,
        arguments: Arguments,
        mut context: CallContext,
    ) -> Result<CallToolResponse, Refusal> {
        let Call { mut request, warnings, is_session_minted } = Call::read(&self.state, arguments)?;
        request.inline_displays = self.state.presentation.reply == ReplyForm::Lean;
        request.is_detachable = context.may_task;
        let asked = Asked { caller: caller.id.clone(), warnings, is_session_minted };
        let is_watched = context.progress.is_some();
        let mut running = self.state.service.execute(caller, request, is_watched).await?;
        if let Some(order_permit) = context.order_permit.take() {
            order_permit.release();
        }
        let mut task_after = if context.may_task { TASK_AFTER } else { Duration::MAX };
        let end = loop {
            tokio::select! {
                biased;
                end = follow(&mut running, context.progress.as_ref()) => break end?,
                () = context.abandoned() => {
                    // Dropping the handle interrupts the code.
                    drop(running);
                    return Err(cancelled());
                }
                () = sleep_unless_never(task_after) => {
                    // Without jobs, the call goes on as an ordinary one.
                    if let Some(id) = running.detach().await {
                        return Ok(tasks::created(self, &id).into());
                    }
                    task_after = Duration::MAX;
                }
            }
        };
        Ok(content::execution(self, asked, end).await.into())
    }
}

fn cancelled() -> Refusal {
    ErrorData::internal_error("the request was cancelled", None).into()
}

/// The session that a call about an existing session means.
pub(crate) fn session(state: &AppState, arguments: &mut Arguments) -> Result<SessionId, Refusal> {
    Ok(state.existing_session(arguments.text(&["session_id"])?.as_deref())?)
}

async fn sleep_unless_never(duration: Duration) {
    if duration == Duration::MAX {
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(duration).await;
}

/// Notifies the client of progress at every interval, for ever; without one, only waits.
async fn tell_progress(progress: Option<&(ProgressToken, Peer<RoleServer>)>) {
    let Some((token, peer)) = progress else { return std::future::pending().await };
    let started = Instant::now();
    let mut beat = interval_at(started, HEARTBEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beat.tick().await;
        let message = format!("running for {} s", started.elapsed().as_secs());
        send_progress(token, peer, started, message).await;
    }
}

/// Notifies the client of what happens, and at every interval; for ever.
async fn tell_lines(
    progress: Option<&(ProgressToken, Peer<RoleServer>)>,
    mut lines: mpsc::UnboundedReceiver<String>,
) {
    let Some((token, peer)) = progress else { return std::future::pending().await };
    let started = Instant::now();
    let mut beat = interval_at(started + PROGRESS_AFTER, HEARTBEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let message = tokio::select! {
            Some(line) = lines.recv() => line,
            _ = beat.tick() => format!("installing for {} s", started.elapsed().as_secs()),
        };
        send_progress(token, peer, started, message).await;
    }
}

async fn send_progress(
    token: &ProgressToken,
    peer: &Peer<RoleServer>,
    started: Instant,
    message: String,
) {
    let progress = started.elapsed().as_secs_f64();
    let beat = ProgressNotificationParam::new(token.clone(), progress).with_message(message);
    // A lost client is detected by its disconnect, not here.
    if let Err(error) = peer.notify_progress(beat).await {
        tracing::debug!(%error, "Cannot send a progress notification");
    }
}

/// Waits for the end; notifies progress at once and at every interval.
async fn follow(
    running: &mut Running,
    progress: Option<&(ProgressToken, Peer<RoleServer>)>,
) -> Result<Execution, woma_core::Error> {
    let Some((token, peer)) = progress else { return running.finish().await };
    let started = Instant::now();
    let mut beat = interval_at(started, HEARTBEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last_line = String::new();
    loop {
        tokio::select! {
            biased;
            happening = running.next() => match happening {
                Some(RunEvent::Text { text, .. }) => keep_last_line(&mut last_line, &text),
                Some(_) => {}
                None => return running.finish().await,
            },
            _ = beat.tick() => {
                let seconds = started.elapsed().as_secs();
                let message = match last_line.trim() {
                    "" => format!("running for {seconds} s"),
                    line => format!("running for {seconds} s: {line}"),
                };
                send_progress(token, peer, started, message).await;
            }
        }
    }
}

fn keep_last_line(line: &mut String, text: &str) {
    let latest = text.trim_end().rsplit(['\n', '\r']).next().unwrap_or_default();
    if !latest.trim().is_empty() {
        *line = latest.chars().take(LAST_LINE_CHARS_MAX).collect();
    }
}

fn done(id: &SessionId, message: &str) -> (Value, Option<String>) {
    let answer = json!({"success": true, "session_id": id.as_str(), "message": message});
    (answer, Some(message.to_owned()))
}

pub(crate) fn to_value(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}
