//! Fixtures that run as tasks if the client supports tasks.

use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ContentBlock,
    CreateTaskResult, JsonObject,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::task_manager::{TaskContext, TaskExit, TaskManager, TaskOptions};
use serde_json::Value;
use tokio::time::sleep;

use super::inputs::{Inputs, Turn, elicit};
use super::{from_json, text};

/// Upper bound of the delays that the suite asks for.
const SECONDS_MAX: f64 = 60.0;

pub(super) const TOOLS: &[(&str, &str)] = &[
    ("greet", "Answers at once, never as a task"),
    ("slow_compute", "Takes as long as it is told to"),
    ("failing_job", "A task that ends with a failure of the tool"),
    ("protocol_error_job", "A task that ends with an error of the protocol"),
    ("confirm_delete", "A task that asks one thing"),
    ("multi_input", "A task that asks two things at once"),
    ("test_tool_with_task", "Asks for a name before it becomes a task"),
];

#[derive(Clone, Default)]
pub(super) struct TaskFixtures {
    pub(super) manager: TaskManager,
}

impl TaskFixtures {
    pub(super) async fn call(
        &self,
        inputs: &Inputs,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        if request.name == "greet" {
            return Ok(text(format!("Hello, {}!", argument(&arguments, "name"))).into());
        }
        let capabilities = context.client_capabilities().unwrap_or_default();
        let name = request.name.into_owned();
        if !capabilities.supports_tasks() {
            let done = work(&name, &arguments, None, String::new()).await;
            return done.map(Into::into).map_err(|exit| match exit {
                TaskExit::Error(error) => error,
                TaskExit::Cancelled => ErrorData::internal_error("cancelled", None),
            });
        }
        let answers = request.input_responses.unwrap_or_default();
        let state = request.request_state.as_deref();
        let answer = match inputs.turn(&name, &capabilities, &answers, state)? {
            Some(Turn::Ask(question)) => return Ok(question.into()),
            Some(Turn::Answered(answer)) => answer,
            None => String::new(),
        };
        let task = self.manager.spawn(TaskOptions::default(), |task| {
            Box::pin(async move {
                tokio::select! {
                    () = task.cancelled() => Err(TaskExit::Cancelled),
                    done = work(&name, &arguments, Some(&task), answer) => done,
                }
            })
        });
        Ok(CreateTaskResult::new(task).into())
    }
}

impl std::fmt::Debug for TaskFixtures {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("TaskFixtures").finish_non_exhaustive()
    }
}

/// Runs a fixture, as a task or directly.
async fn work(
    name: &str,
    arguments: &JsonObject,
    task: Option<&TaskContext>,
    answer: String,
) -> Result<CallToolResult, TaskExit> {
    let task = || task.ok_or_else(only_as_a_task);
    match name {
        "slow_compute" => {
            let seconds = arguments.get("seconds").and_then(Value::as_f64).unwrap_or(1.0);
            sleep(Duration::from_secs_f64(seconds.clamp(0.0, SECONDS_MAX))).await;
            Ok(text(format!("{} is done", argument(arguments, "label"))))
        }
        "failing_job" => {
            task()?;
            sleep(Duration::from_secs(1)).await;
            Ok(CallToolResult::error(vec![ContentBlock::text("This job always fails")]))
        }
        "protocol_error_job" => {
            Err(ErrorData::internal_error("this job always breaks", None).into())
        }
        "confirm_delete" => {
            let message = format!("Delete {}?", argument(arguments, "filename"));
            let question = from_json(elicit(&message, "confirm", "boolean"))?;
            let answer = task()?.request_input("confirm", question).await?;
            Ok(text(format!("The answer was {answer}")))
        }
        "multi_input" => {
            let task = task()?;
            let question = |what: &str| from_json(elicit(what, "value", "string"));
            let (first, second) = (question("The first value?")?, question("The second value?")?);
            let (first, second) = tokio::try_join!(
                task.request_input("first", first),
                task.request_input("second", second),
            )?;
            Ok(text(format!("The answers were {first} and {second}")))
        }
        _ => task().map(|_| text(answer)),
    }
}

fn only_as_a_task() -> TaskExit {
    let needed = ClientCapabilities::builder().enable_tasks().build();
    ErrorData::missing_required_client_capability(needed).into()
}

fn argument<'a>(arguments: &'a JsonObject, name: &str) -> &'a str {
    arguments.get(name).and_then(Value::as_str).unwrap_or("nobody")
}
