//! Fixtures of the MCP conformance suite (tools, prompts, resources), enabled by `--conformance`.
//! They take precedence over the ordinary ones.
#![expect(deprecated, reason = "the older revisions are tested too, with what they still have")]

mod inputs;
mod prompts;
mod resources;
mod tasks;
mod tools;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams,
    CompleteRequestParams, CompleteResult, ContentBlock, GetPromptRequestParams, GetPromptResponse,
    GetTaskParams, GetTaskResult, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams,
    ReadResourceResponse, ServerCapabilities, ServerConfig, SetLevelRequestParams,
    SubscribeRequestParams, SubscriptionFilter, Tool, UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{RequestContext, RoleServer, SubscriptionContext};
use rmcp::{ErrorData, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::broadcast::{self, error::RecvError};

use super::Mcp;
use inputs::{Inputs, Turn};
use tasks::TaskFixtures;

/// Buffered changes for a slow subscriber.
const CHANGES_MAX: usize = 16;

/// The handler with fixtures. Clones share everything.
#[derive(Debug, Clone)]
pub(crate) struct Conformance {
    inner: Mcp,
    inputs: Inputs,
    tasks: TaskFixtures,
    changes: broadcast::Sender<Change>,
}

#[derive(Debug, Clone, Copy)]
enum Change {
    Tools,
    Prompts,
}

impl Conformance {
    pub(crate) fn new(inner: Mcp) -> Self {
        let (changes, _) = broadcast::channel(CHANGES_MAX);
        Self { inner, inputs: Inputs::default(), tasks: TaskFixtures::default(), changes }
    }

    /// Notifies every open stream of `subscriptions/listen`.
    fn announce(&self, change: Change) -> CallToolResult {
        let told = self.changes.send(change).unwrap_or(0);
        text(format!("Told {told} streams."))
    }
}

impl ServerHandler for Conformance {
    fn get_info(&self) -> ServerConfig {
        let mut info = self.inner.get_info();
        info.capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_list_changed()
            .enable_resources_subscribe()
            .enable_completions()
            .enable_logging()
            .enable_tasks()
            .build();
        info
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut listed = self.inner.list_tools(request, context).await?;
        listed.tools.splice(0..0, tools::list());
        Ok(listed)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::find(name).or_else(|| self.inner.get_tool(name))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if tools::find(&request.name).is_none() {
            return self.inner.call_tool(request, context).await;
        }
        match request.name.as_ref() {
            "test_trigger_tool_change" => return Ok(self.announce(Change::Tools).into()),
            "test_trigger_prompt_change" => return Ok(self.announce(Change::Prompts).into()),
            _ => {}
        }
        if tasks::TOOLS.iter().any(|(name, _)| *name == request.name) {
            return self.tasks.call(&self.inputs, request, &context).await;
        }
        let capabilities = context.client_capabilities().unwrap_or_default();
        let answers = request.input_responses.unwrap_or_default();
        let state = request.request_state.as_deref();
        match self.inputs.turn(&request.name, &capabilities, &answers, state)? {
            Some(Turn::Ask(question)) => return Ok(question.into()),
            Some(Turn::Answered(answer)) => return Ok(text(answer).into()),
            None => {}
        }
        let arguments = request.arguments.unwrap_or_default();
        match inputs::question(&request.name, &arguments) {
            Some(question) => inputs::ask(&context.peer, question).await.map(Into::into),
            None => tools::call(&request.name, &arguments, &context).await.map(Into::into),
        }
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        match self.tasks.manager.get_task(&request.task_id) {
            Ok(task) => Ok(GetTaskResult::new(task)),
            Err(_) => self.inner.get_task(request, context).await,
        }
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let answers = request.input_responses.clone();
        match self.tasks.manager.update_task(&request.task_id, answers) {
            Ok(()) => Ok(()),
            Err(_) => self.inner.update_task(request, context).await,
        }
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        match self.tasks.manager.cancel_task(&request.task_id) {
            Ok(()) => Ok(()),
            Err(_) => self.inner.cancel_task(request, context).await,
        }
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let mut listed = self.inner.list_resources(request, context).await?;
        listed.resources.splice(0..0, resources::list());
        Ok(listed)
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let mut listed = self.inner.list_resource_templates(request, context).await?;
        listed.resource_templates.insert(0, resources::template());
        Ok(listed)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        match resources::read(&request.uri) {
            Some(contents) => Ok(contents.into()),
            None => self.inner.read_resource(request, context).await,
        }
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let mut listed = self.inner.list_prompts(request, context).await?;
        listed.prompts.splice(0..0, prompts::list());
        Ok(listed)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let name = request.name.as_str();
        if !prompts::is_known(name) {
            return self.inner.get_prompt(request, context).await;
        }
        let capabilities = context.client_capabilities().unwrap_or_default();
        let answers = request.input_responses.unwrap_or_default();
        let state = request.request_state.as_deref();
        match self.inputs.turn(name, &capabilities, &answers, state)? {
            Some(Turn::Ask(question)) => Ok(question.into()),
            Some(Turn::Answered(answer)) => Ok(prompts::of_text(&answer).into()),
            None => prompts::get(name, &request.arguments.unwrap_or_default()).map(Into::into),
        }
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        self.inner.complete(request, context).await
    }

    /// Ignores the level: fixtures log only where the suite expects it.
    async fn set_level(
        &self,
        _: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    /// Accepts subscriptions; watched resources never change.
    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        resources::watched(&request.uri)
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        resources::watched(&request.uri)
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.changes.subscribe();
        let (accepted, sink) = (context.accepted(), context.sink());
        loop {
            let change = tokio::select! {
                () = context.cancelled() => return Ok(()),
                change = changes.recv() => change,
            };
            let told = match change {
                Ok(Change::Tools) if accepted.tools_list_changed == Some(true) => {
                    sink.notify_tool_list_changed().await
                }
                Ok(Change::Prompts) if accepted.prompts_list_changed == Some(true) => {
                    sink.notify_prompt_list_changed().await
                }
                Ok(_) | Err(RecvError::Lagged(_)) => Ok(()),
                Err(RecvError::Closed) => return Ok(()),
            };
            told.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        }
    }
}

fn text(text: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

/// Parses a fixture from the JSON of the wire.
fn from_json<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    let wrong = |error| ErrorData::internal_error(format!("a fixture is wrong: {error}"), None);
    serde_json::from_value(value).map_err(wrong)
}
