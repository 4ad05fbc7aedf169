//! The MCP server: one handler for every transport and every revision of the protocol. Calls `api`
//! and the service; knows nothing of routes, layers and the command line.

mod conformance;
mod info;
mod prompts;
mod resources;
mod tasks;
mod tools;
pub(crate) mod transports;

use std::sync::{Arc, Mutex};

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
use woma_core::{Caller, SessionId};
use woma_sandbox::sync::lock;

use crate::api::state::{AppState, BaseUrl, Client};
use tools::catalogue::Catalogue;
pub(crate) use tools::catalogue::unknown_tools;
use tools::changes::SeenVariables;

/// Methods that exist, for a precise error about their parameters.
const KNOWN_METHODS: [&str; 5] =
    ["tools/call", "resources/read", "prompts/get", "completion/complete", "tasks/get"];
/// Cache lifetime of lists that do not change while the server runs.
const LIST_TTL_MS: u64 = 60_000;

/// The handler. Clones share everything.
#[derive(Debug, Clone)]
pub(crate) struct Mcp {
    state: AppState,
    catalogue: Arc<Catalogue>,
    /// The catalogue for clients with a session of their own.
    own_catalogue: Arc<Catalogue>,
    /// Variables that lean replies have listed.
    seen: Arc<SeenVariables>,
    /// The caller, on transports with one client.
    caller: Option<Caller>,
    /// Cancelled when that client disconnects.
    gone: CancellationToken,
}

/// Request extension: cancelled when the HTTP client disconnects.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hangup(pub(crate) CancellationToken);

/// Request extension: default session of the client's MCP session.
#[derive(Debug, Clone)]
pub(crate) struct OwnSession(pub(crate) SessionId);

/// Held until a call is in its session's queue, so that the client's next call does not overtake
/// it: rmcp runs each call on its own task.
#[derive(Debug, Clone)]
pub(crate) struct OrderPermit(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

impl OrderPermit {
    /// Lets the next call proceed.
    fn release(&self) {
        lock(&self.0).take();
    }
}

impl Mcp {
    pub(crate) fn new(state: &AppState) -> Self {
        let state = state.for_client(Client::Stateless);
        let catalogue = Arc::new(Catalogue::new(&state));
        let connected = state.for_client(Client::Connected(SessionId::mint_default()));
        let own_catalogue = Arc::new(Catalogue::new(&connected));
        let gone = CancellationToken::new();
        let seen = Arc::default();
        Self { state, catalogue, own_catalogue, seen, caller: None, gone }
    }

    /// The handler for one client of a transport, cancelled by `gone`.
    pub(crate) fn of(&self, caller: Caller, gone: CancellationToken) -> Self {
        Self { caller: Some(caller), gone, ..self.clone() }
    }

    /// The handler for a client with a default session of its own.
    pub(crate) fn with_own_session(&self, session: SessionId) -> Self {
        let state = self.state.for_client(Client::Connected(session));
        Self { state, catalogue: Arc::clone(&self.own_catalogue), ..self.clone() }
    }

    /// The handler for one request: its base URL, and the session of its client.
    fn for_request(&self, context: &RequestContext<RoleServer>) -> Self {
        // rmcp runs calls on its own task, without the extensions of the HTTP request.
        let parts = context.extensions.get::<axum::http::request::Parts>();
        let told = parts.map(|parts| &parts.extensions);
        let here = self.with_base_url(told.and_then(|told| told.get::<BaseUrl>().cloned()));
        match told.and_then(|told| told.get::<OwnSession>()) {
            Some(OwnSession(session)) => here.with_own_session(session.clone()),
            None => here,
        }
    }

    /// The handler with the base URL of a request.
    pub(crate) fn with_base_url(&self, base: Option<BaseUrl>) -> Self {
        Self { state: self.state.with_base_url(base), ..self.clone() }
    }

    /// The caller: of the HTTP request, which is authenticated already, or of the transport.
    fn caller(&self, context: &RequestContext<RoleServer>) -> Result<Caller, ErrorData> {
        let parts = context.extensions.get::<axum::http::request::Parts>();
        let found = parts.and_then(|parts| parts.extensions.get::<Caller>());
        let found = found.or_else(|| context.extensions.get::<Caller>());
        found.or(self.caller.as_ref()).cloned().ok_or_else(|| {
            tracing::error!("An unauthenticated request reached the MCP handler");
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
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let listed = self.for_request(&context).catalogue.listed();
        let listed = ListToolsResult::with_all_items(listed);
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
        let here = self.for_request(&context);
        tasks::get(&here, &self.caller(&context)?, &request.task_id).await
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        tasks::check(self, &self.caller(&context)?, &request.task_id).await
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        tasks::cancel(self, &self.caller(&context)?, &request.task_id).await
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let cursor = request.as_ref().and_then(|request| request.cursor.as_deref());
        resources::list(&self.state, &self.caller(&context)?, cursor).await
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
        resources::read(&self.state, &caller, &request.uri).await.map(Into::into)
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

    /// Requests that rmcp cannot parse: unknown methods, and known ones with invalid parameters.
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
                resources::complete(&self.state, &caller, &template.uri, name).await
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
