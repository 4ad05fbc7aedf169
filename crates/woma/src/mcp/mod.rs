//! The MCP door: one handler for every transport and every revision of the protocol.

mod call;
mod conformance;
mod content;
pub(crate) mod direct;
mod files;
mod history;
pub(crate) mod info;
mod prompts;
mod resources;
pub(crate) mod sse;
pub(crate) mod stateless;
pub(crate) mod stdio;
pub(crate) mod streamable;
mod tasks;
mod tools;

use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestParams,
    CompleteResult, CustomRequest, CustomResult, ErrorCode, GetPromptRequestParams,
    GetPromptResponse, GetTaskParams, GetTaskResult, Implementation, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerConfig, Tool,
    UpdateTaskParams,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use woma_core::Caller;

use crate::doors::{BaseUrl, Doors};
use tools::Catalogue;
pub(crate) use tools::unknown_tools;

/// Methods that are answered, if their parameters can be read.
const KNOWN_METHODS: [&str; 5] =
    ["tools/call", "resources/read", "prompts/get", "completion/complete", "tasks/get"];
/// How long a client may keep what does not change while the server runs.
const LIST_TTL_MS: u64 = 60_000;

/// Clones share everything.
#[derive(Debug, Clone)]
pub(crate) struct Mcp {
    doors: Doors,
    catalogue: Arc<Catalogue>,
    tasks: Arc<tasks::Tasks>,
    /// Who is on the other side of a transport that has one client only.
    caller: Option<Caller>,
    /// That client has gone away.
    gone: CancellationToken,
}

/// The client of an HTTP request has hung up.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hangup(pub(crate) CancellationToken);

/// Held while a call is on its way to its session's queue, so that the next one of the same client
/// does not overtake it: the protocol library gives each a task of its own.
#[derive(Debug, Clone)]
pub(crate) struct Arrival(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

impl Arrival {
    /// The call has its place.
    fn arrived(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl Mcp {
    pub(crate) fn new(doors: Doors) -> Self {
        let catalogue = Arc::new(Catalogue::new(&doors));
        let gone = CancellationToken::new();
        Self { doors, catalogue, tasks: Arc::default(), caller: None, gone }
    }

    /// The same for one client of a transport that knows who that is, and when it is gone.
    pub(crate) fn of(&self, caller: Caller, gone: CancellationToken) -> Self {
        Self { caller: Some(caller), gone, ..self.clone() }
    }

    /// The same for a client that reaches us by this address.
    pub(crate) fn reached_by(&self, base: Option<BaseUrl>) -> Self {
        Self { doors: self.doors.reached_by(base), ..self.clone() }
    }

    /// Who asks. HTTP requests were authenticated before they came here; without that, nobody.
    fn caller(&self, context: &RequestContext<RoleServer>) -> Result<Caller, ErrorData> {
        let parts = context.extensions.get::<axum::http::request::Parts>();
        let found = parts.and_then(|parts| parts.extensions.get::<Caller>());
        let found = found.or_else(|| context.extensions.get::<Caller>());
        found.or(self.caller.as_ref()).cloned().ok_or_else(|| {
            tracing::error!("A request came through without having been authenticated");
            ErrorData::internal_error("the request was not authenticated", None)
        })
    }
}

impl ServerHandler for Mcp {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_prompts()
            .enable_completions()
            .enable_tasks()
            .build();
        let mut info = ServerConfig::new(capabilities);
        info.server_info = Implementation::new("woma", env!("CARGO_PKG_VERSION"));
        info.instructions = Some(self.catalogue.instructions.clone());
        info
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let listed = ListToolsResult::with_all_items(self.catalogue.listed());
        Ok(listed.with_ttl_ms(LIST_TTL_MS).with_cache_scope(CacheScope::Public))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.catalogue.find(name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.call(request, context).await
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.tasks.get(&self.caller(&context)?, &request.task_id)
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.get(&self.caller(&context)?, &request.task_id).map(|_| ())
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.cancel(&self.caller(&context)?, &request.task_id)
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(resources::list(&self.doors, &self.caller(&context)?).await)
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let templates = ListResourceTemplatesResult::with_all_items(resources::templates());
        Ok(templates.with_ttl_ms(LIST_TTL_MS).with_cache_scope(CacheScope::Public))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let caller = self.caller(&context)?;
        resources::read(&self.doors, &caller, &request.uri).await.map(Into::into)
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let prompts = ListPromptsResult::with_all_items(prompts::list());
        Ok(prompts.with_ttl_ms(LIST_TTL_MS).with_cache_scope(CacheScope::Public))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        prompts::get(&request.name, &request.arguments.unwrap_or_default()).map(Into::into)
    }

    /// What the protocol library could not make sense of: unknown methods, and known ones whose
    /// parameters have the wrong shape.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method: String = request.method.chars().take(64).collect();
        if KNOWN_METHODS.contains(&method.as_str()) {
            let text = format!(
                "the parameters of `{method}` have the wrong shape; `arguments` is an object"
            );
            return Err(ErrorData::invalid_params(text, None));
        }
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None))
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let caller = self.caller(&context)?;
        let values = match &request.r#ref {
            rmcp::model::Reference::Prompt(prompt) => {
                prompts::complete(&prompt.name, &request.argument.name)
            }
            rmcp::model::Reference::Resource(template) => {
                let name = &request.argument.name;
                resources::complete(&self.doors, &caller, &template.uri, name).await
            }
            _ => Vec::new(),
        };
        let typed = request.argument.value.as_str();
        let fitting = values.into_iter().filter(|value| value.starts_with(typed)).take(100);
        let completion = rmcp::model::CompletionInfo::new(fitting.collect());
        let completion = completion.map_err(|error| ErrorData::internal_error(error, None))?;
        Ok(CompleteResult::new(completion))
    }
}
