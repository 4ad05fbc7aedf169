//! One tool call: arguments in, blocks out. Nothing is decided here.

use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, JsonObject, ProgressNotificationParam,
    ProgressToken,
};
use rmcp::service::{Peer, RequestContext, RoleServer};
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};
use woma_core::{Caller, Execution, Happening, NewSession, OutputStream, Running, SessionId};

use super::tools::{Catalogue, Kind};
use super::{Arrival, Hangup, Mcp, content, files, history, info};
use crate::arguments::{Arguments, Problem};
use crate::doors::BaseUrl;
use crate::error::Envelope;
use crate::request::Call;
use crate::wire;

/// How often a client that asked for progress hears that the code still runs.
const HEARTBEAT: Duration = Duration::from_secs(3);
/// A client that can hold a task gets one after this long.
const TASK_AFTER: Duration = Duration::from_secs(5);
/// Characters of the last line of output that go with a heartbeat.
const LAST_LINE_CHARS_MAX: usize = 200;

/// Why a call was refused: the caller can read it and do better.
pub(super) enum Refusal {
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

impl From<ErrorData> for Refusal {
    fn from(error: ErrorData) -> Self {
        Self::Protocol(error)
    }
}

/// What the way that a call came by can do for it. Where nothing is said, nobody waits any more when
/// the call is dropped.
#[derive(Default)]
pub(super) struct Way {
    /// Any of them: nobody waits for the answer any more. The request was taken back, its connection
    /// was closed, the client of the transport has gone.
    gone: Option<[CancellationToken; 3]>,
    /// The client can hold a task.
    may_task: bool,
    /// Where a client that wants to hear of progress hears of it.
    progress: Option<(ProgressToken, Peer<RoleServer>)>,
    arrival: Option<Arrival>,
}

impl Way {
    async fn given_up(&self) {
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
    /// A call that came through the protocol library, whatever the transport.
    pub(super) async fn call(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(kind) = self.catalogue.kind(&request.name) else {
            let name: String = request.name.chars().take(64).collect();
            let text = format!("unknown tool `{name}`; there are: {}", Catalogue::names());
            return Err(ErrorData::invalid_params(text, None));
        };
        let caller = self.caller(&context)?;
        // The protocol library calls us on a task of its own, which knows nothing of the request.
        let parts = context.extensions.get::<axum::http::request::Parts>();
        let told = parts.map(|parts| &parts.extensions);
        let span = told.and_then(|told| told.get::<Span>().cloned());
        let base = told.and_then(|told| told.get::<BaseUrl>().cloned());
        let hangup = told.and_then(|told| told.get::<Hangup>().cloned()).unwrap_or_default();
        let token = context.meta.get_progress_token();
        let way = Way {
            gone: Some([context.ct.clone(), hangup.0, self.gone.clone()]),
            may_task: context.client_capabilities().is_some_and(|known| known.supports_tasks()),
            progress: token.map(|token| (token, context.peer.clone())),
            arrival: context.extensions.get::<Arrival>().cloned(),
        };
        let here = self.reached_by(base);
        let called = here.carry_out(&caller, kind, request.arguments.unwrap_or_default(), way);
        called.instrument(span.unwrap_or_else(Span::current)).await
    }

    /// Does what was asked for; a refusal is an answer too.
    pub(super) async fn carry_out(
        &self,
        caller: &Caller,
        kind: Kind,
        arguments: JsonObject,
        way: Way,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Arguments::new(arguments);
        let answer = match kind {
            Kind::ExecuteCode => self.execute(caller, arguments, way).await,
            // Whoever has gone away needs no file.
            Kind::FetchFile | Kind::FetchFromUrl => {
                tokio::select! {
                    biased;
                    answer = self.answer(caller, kind, arguments) => answer.map(Into::into),
                    () = way.given_up() => Err(cancelled()),
                }
            }
            other => self.answer(caller, other, arguments).await.map(Into::into),
        };
        match answer {
            Ok(response) => Ok(response),
            Err(Refusal::Tool(envelope)) => Ok(content::refusal(&envelope).into()),
            Err(Refusal::Protocol(error)) => Err(error),
        }
    }

    /// Everything that runs no code.
    async fn answer(
        &self,
        caller: &Caller,
        kind: Kind,
        mut given: Arguments,
    ) -> Result<CallToolResult, Refusal> {
        let service = &self.doors.service;
        let answer = match kind {
            Kind::ExecuteCode => Value::Null,
            Kind::GetSandboxInfo => {
                let rules = service.settings().policies.of(caller)?;
                info::sandbox_info(&self.doors, &rules.profile)
            }
            Kind::ValidateCode => {
                let (validation, warnings) =
                    crate::validation::validate(&self.doors, caller, given).await?;
                return Ok(content::plain(to_value(&validation), warnings));
            }
            Kind::ListFiles
            | Kind::UploadFile
            | Kind::FetchFile
            | Kind::DeleteFile
            | Kind::FetchFromUrl => {
                return files::call(&self.doors, caller, kind, given).await;
            }
            Kind::ReadOutput => return self.read_output(caller, given),
            Kind::ListSessions => {
                let listed = service.sessions(caller).await?.into_iter();
                let sessions: Vec<wire::Session> = listed.map(Into::into).collect();
                json!({"total": sessions.len(), "sessions": sessions})
            }
            Kind::CreateSession => {
                let name = given.text(&["name"])?;
                let description = given.text(&["description"])?.unwrap_or_default();
                let id = given.text(&["session_id"])?;
                let id = id.map(|id| SessionId::parse(&id)).transpose()?;
                let policy = given.text(&["policy"])?;
                let wanted = NewSession { id, name, description, policy };
                let session = service.create_session(caller, wanted).await?;
                to_value(&wire::Session::from(session))
            }
            Kind::DeleteSession => {
                let id = given.required(&["session_id"], "the session to end")?;
                let id = SessionId::parse(&id)?;
                service.delete_session(caller, &id).await?;
                done(&id, "The session is gone, with its variables and files.")
            }
            Kind::InterruptSession => {
                let id = session_or_default(&mut given)?;
                let message = match service.interrupt_session(caller, &id)? {
                    true => "The running code is being stopped; variables stay.",
                    false => "No code was running in the session.",
                };
                done(&id, message)
            }
            Kind::CheckpointSession | Kind::RestoreSession | Kind::ExportSession => {
                return history::call(&self.doors, caller, kind, given).await;
            }
            Kind::ResetSession => {
                let id = session_or_default(&mut given)?;
                to_value(&wire::Session::from(service.reset_session(caller, &id).await?))
            }
        };
        Ok(content::plain(answer, given.unknown().collect()))
    }

    fn read_output(
        &self,
        caller: &Caller,
        mut given: Arguments,
    ) -> Result<CallToolResult, Refusal> {
        let id = given.required(&["execution_id"], "the execution_id of an earlier reply")?;
        let stream = given.text(&["stream"])?.unwrap_or_else(|| "stdout".to_owned());
        let Ok(parsed) = serde_json::from_value::<OutputStream>(Value::String(stream.clone()))
        else {
            return Err(Refusal::from(Problem::Wrong {
                name: "stream",
                expected: "stdout, stderr, traceback or result",
                got: format!("{:?}", stream.chars().take(40).collect::<String>()),
            }));
        };
        let offset = given.count(&["offset"])?.unwrap_or(0);
        let limit_max = self.doors.manner.context_chars;
        let limit = given.count(&["limit"])?.and_then(|limit| usize::try_from(limit).ok());
        let limit = limit.unwrap_or(limit_max).clamp(1, limit_max);
        let page = self.doors.service.read_output(caller, &id, parsed, offset, limit)?;
        let mut answer = json!({
            "execution_id": id, "stream": stream, "text": page.text,
            "offset": page.offset, "total_chars": page.total_chars,
        });
        if let (Some(next), Some(fields)) = (page.next_offset, answer.as_object_mut()) {
            fields.insert("next_offset".to_owned(), next.into());
        }
        Ok(content::plain(answer, given.unknown().collect()))
    }

    async fn execute(
        &self,
        caller: &Caller,
        given: Arguments,
        mut way: Way,
    ) -> Result<CallToolResponse, Refusal> {
        let Call { request, warnings } = Call::read(&self.doors, given)?;
        let is_watched = way.progress.is_some();
        let mut running = self.doors.service.execute(caller, request, is_watched).await?;
        if let Some(arrival) = way.arrival.take() {
            arrival.arrived();
        }
        let task_after = if way.may_task { TASK_AFTER } else { Duration::MAX };
        let end = tokio::select! {
            biased;
            end = follow(&mut running, way.progress.as_ref()) => end?,
            () = way.given_up() => {
                // Dropping the handle stops the code; nobody will read an answer.
                drop(running);
                return Err(cancelled());
            }
            () = sleep_unless_never(task_after) => {
                let doors = self.doors.clone();
                let task = self.tasks.adopt(caller, running, async move |execution| {
                    content::execution(&doors, execution, warnings).await
                });
                return Ok(task.into());
            }
        };
        Ok(content::execution(&self.doors, end, warnings).await.into())
    }
}

fn cancelled() -> Refusal {
    ErrorData::internal_error("the request was cancelled", None).into()
}

pub(super) fn session_or_default(given: &mut Arguments) -> Result<SessionId, Refusal> {
    let id = given.text(&["session_id"])?;
    Ok(SessionId::parse(id.as_deref().unwrap_or("default"))?)
}

async fn sleep_unless_never(duration: Duration) {
    if duration == Duration::MAX {
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(duration).await;
}

/// Waits for the end; a client that asked for progress hears at once, and every few seconds.
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
                Some(Happening::Text { text, .. }) => keep_last_line(&mut last_line, &text),
                Some(_) => {}
                None => return running.finish().await,
            },
            _ = beat.tick() => {
                let seconds = started.elapsed().as_secs();
                let message = match last_line.trim() {
                    "" => format!("running for {seconds} s"),
                    line => format!("running for {seconds} s: {line}"),
                };
                let progress = started.elapsed().as_secs_f64();
                let beat = ProgressNotificationParam::new(token.clone(), progress);
                let beat = beat.with_message(message);
                // A client that does not listen is found out by its hanging up.
                if let Err(error) = peer.notify_progress(beat).await {
                    tracing::debug!(%error, "Progress could not be told");
                }
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

fn done(id: &SessionId, message: &str) -> Value {
    json!({"success": true, "session_id": id.as_str(), "message": message})
}

pub(super) fn to_value(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}
