//! Fast path for the usual tool call of 2026-07-28: one request, one reply. rmcp would create a
//! server, two tasks and three channels for it, a tenth to a quarter of the cost of a short run.
//!
//! Any other message is left to rmcp; nothing is rejected here. A test compares both paths.

use std::fmt::Formatter;

use axum::body::{Body, Bytes};
use axum::http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse as _;
use rmcp::ErrorData;
use rmcp::model::{
    CallToolResponse, JsonObject, JsonRpcError, JsonRpcMessage, JsonRpcResponse, JsonRpcVersion2_0,
    ProtocolVersion, RequestId, RequestMetaObject, ServerJsonRpcMessage,
};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tracing::Instrument as _;
use woma_core::Caller;

use crate::mcp::Mcp;
use crate::mcp::tools::call::CallContext;
use crate::mcp::tools::catalogue::ToolKind;

const METHOD: &str = "tools/call";
const VERSION_HEADER: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD_HEADER: HeaderName = HeaderName::from_static("mcp-method");
const NAME_HEADER: HeaderName = HeaderName::from_static("mcp-name");
const SESSION_HEADER: HeaderName = HeaderName::from_static("mcp-session-id");
const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
/// In `_meta`: the client wants progress notifications, which need a stream.
const PROGRESS_TOKEN: &str = "progressToken";

/// A call that needs no rmcp.
#[derive(Debug)]
pub(crate) struct StatelessCall {
    id: RequestId,
    kind: ToolKind,
    arguments: JsonObject,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Message<'a> {
    #[expect(dead_code, reason = "there is one version, or there is no message")]
    jsonrpc: JsonRpcVersion2_0,
    id: RequestId,
    method: &'a str,
    #[serde(borrow, deserialize_with = "object")]
    params: Params<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params<'a> {
    name: &'a str,
    #[serde(default)]
    arguments: JsonObject,
    #[serde(rename = "_meta")]
    meta: RequestMetaObject,
}

impl Mcp {
    /// Parses a request; `None` if it needs rmcp.
    pub(crate) fn parse_stateless(
        &self,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Option<StatelessCall> {
        let (id, Params { name, arguments, .. }) = read(headers, body)?;
        Some(StatelessCall { id, kind: self.catalogue.kind(name)?, arguments })
    }

    /// Runs the call. Dropping the future interrupts code and downloads; other calls complete.
    pub(crate) async fn answer_stateless(
        &self,
        caller: &Caller,
        call: StatelessCall,
    ) -> Response<Body> {
        let StatelessCall { id, kind, arguments } = call;
        tracing::debug!("the call is plain");
        let answer = match kind {
            ToolKind::ExecuteCode | ToolKind::FetchFile | ToolKind::FetchFromUrl => {
                self.dispatch(caller, kind, arguments, CallContext::default()).await
            }
            _ => {
                let (mcp, caller) = (self.clone(), caller.clone());
                let work = async move {
                    mcp.dispatch(&caller, kind, arguments, CallContext::default()).await
                };
                let lost = |_| Err(ErrorData::internal_error("the call was lost", None));
                tokio::spawn(work.in_current_span()).await.unwrap_or_else(lost)
            }
        };
        let message = message(id, answer);
        match serde_json::to_vec(&message) {
            Ok(text) => (StatusCode::OK, [(CONTENT_TYPE, JSON)], Bytes::from(text)).into_response(),
            Err(error) => {
                tracing::error!(%error, "Cannot encode a reply as JSON");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }
}

fn message(id: RequestId, answer: Result<CallToolResponse, ErrorData>) -> ServerJsonRpcMessage {
    match answer {
        Ok(response) => {
            let (jsonrpc, result) = (JsonRpcVersion2_0, response.into());
            JsonRpcMessage::Response(JsonRpcResponse { jsonrpc, id, result })
        }
        Err(error) => JsonRpcMessage::Error(JsonRpcError::new(Some(id), error)),
    }
}

/// Id and parameters of a request that has every required part and no unknown one.
fn read<'a>(headers: &HeaderMap, body: &'a [u8]) -> Option<(RequestId, Params<'a>)> {
    let revision = ProtocolVersion::V_2026_07_28;
    let (named, accepted) = (only(headers, &NAME_HEADER)?, only(headers, &ACCEPT)?);
    let is_whole = only(headers, &VERSION_HEADER)? == revision.as_str()
        && only(headers, &METHOD_HEADER)? == METHOD
        && only(headers, &CONTENT_TYPE)?.starts_with(JSON)
        && [JSON, EVENTS].iter().all(|kind| accepted.contains(kind))
        && !headers.contains_key(SESSION_HEADER);
    if !is_whole {
        return None;
    }
    let Message { id, method, params, .. } = serde_json::from_slice(body).ok()?;
    let meta = &params.meta;
    let is_plain = method == METHOD
        && named == params.name
        && meta.protocol_version() == Some(revision)
        && meta.client_capabilities().is_some_and(|known| !known.supports_tasks())
        && !meta.contains_key(PROGRESS_TOKEN);
    is_plain.then_some((id, params))
}

/// Parses parameters by name only: the derived code would also accept a list.
fn object<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Params<'de>, D::Error> {
    struct ByName;

    impl<'de> Visitor<'de> for ByName {
        type Value = Params<'de>;

        fn expecting(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Self::Value, A::Error> {
            Params::deserialize(MapAccessDeserializer::new(fields))
        }
    }

    deserializer.deserialize_map(ByName)
}

/// Value of a header that occurs exactly once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then(|| value.to_str().ok())?
}

#[cfg(test)]
mod tests {
    use axum::http::header::{HeaderMap, HeaderName, HeaderValue};
    use serde_json::{Value, json};

    use super::{RequestId, read};

    const REVISION: &str = "2026-07-28";

    fn headers() -> HeaderMap {
        let pairs = [
            ("content-type", "application/json; charset=utf-8"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", REVISION),
            ("mcp-method", "tools/call"),
            ("mcp-name", "execute_code"),
        ];
        let pairs = pairs
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        pairs.into_iter().collect()
    }

    fn body() -> Value {
        json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "execute_code", "arguments": {"code": "1"}, "_meta": {
                "io.modelcontextprotocol/protocolVersion": REVISION,
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
                "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            }},
        })
    }

    fn is_plain(headers: &HeaderMap, body: &Value) -> bool {
        read(headers, body.to_string().as_bytes()).is_some()
    }

    #[test]
    fn accepts_the_usual_call() {
        let text = body().to_string();
        let (id, params) = read(&headers(), text.as_bytes()).unwrap();
        assert_eq!((id, params.name), (RequestId::Number(1), "execute_code"));
        assert_eq!(Value::Object(params.arguments), json!({"code": "1"}));
        let mut bare = body();
        bare["id"] = json!("a");
        bare["params"].as_object_mut().unwrap().remove("arguments");
        assert!(is_plain(&headers(), &bare), "a call without arguments");
    }

    #[test]
    fn leaves_calls_with_other_headers_to_rmcp() {
        for name in headers().keys() {
            let mut fewer = headers();
            fewer.remove(name);
            assert!(!is_plain(&fewer, &body()), "without {name}");
            let mut twice = headers();
            twice.append(name, headers()[name].clone());
            assert!(!is_plain(&twice, &body()), "{name} twice");
        }
        for (name, value) in [
            ("content-type", "text/plain"),
            ("accept", "application/json"),
            ("accept", "text/event-stream"),
            ("mcp-protocol-version", "2025-11-25"),
            ("mcp-protocol-version", "2027-01-01"),
            ("mcp-method", "tools/list"),
            ("mcp-name", "list_sessions"),
            ("mcp-name", "=?base64?ZXhlY3V0ZV9jb2Rl?="),
            ("mcp-session-id", "1"),
        ] {
            let mut other = headers();
            other.insert(name, HeaderValue::from_static(value));
            assert!(!is_plain(&other, &body()), "{name}: {value}");
        }
    }

    #[test]
    fn leaves_other_messages_to_rmcp() {
        const META: &str = "/params/_meta/io.modelcontextprotocol~1";
        let (version, capabilities) =
            (format!("{META}protocolVersion"), format!("{META}clientCapabilities"));
        let named = &body()["params"];
        let by_place = json!([named["name"], named["arguments"], named["_meta"]]);
        let tasks = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
        for (place, value) in [
            ("/jsonrpc", json!("1.0")),
            ("/id", json!(null)),
            ("/id", json!(1.5)),
            ("/method", json!("tools/list")),
            ("/params", json!([])),
            ("/params", by_place),
            ("/params/name", json!("list_sessions")),
            ("/params/name", json!(1)),
            ("/params/arguments", json!(null)),
            ("/params/arguments", json!([1])),
            (version.as_str(), json!("2025-11-25")),
            (&version, json!(null)),
            (&capabilities, json!(null)),
            (&capabilities, json!([])),
            (&capabilities, tasks),
        ] {
            let mut other = body();
            *other.pointer_mut(place).unwrap() = value.clone();
            assert!(!is_plain(&headers(), &other), "{place}: {value}");
        }
        for (place, name) in [
            ("", "trace"),
            ("/params", "task"),
            ("/params", "inputResponses"),
            ("/params/_meta", "progressToken"),
        ] {
            let mut more = body();
            let fields = more.pointer_mut(place).and_then(Value::as_object_mut).unwrap();
            fields.insert(name.to_owned(), json!(1));
            assert!(!is_plain(&headers(), &more), "{place}/{name}");
        }
        for (place, name) in [
            ("", "jsonrpc"),
            ("", "id"),
            ("/params", "name"),
            ("/params", "_meta"),
            ("/params/_meta", "io.modelcontextprotocol/protocolVersion"),
            ("/params/_meta", "io.modelcontextprotocol/clientCapabilities"),
        ] {
            let mut fewer = body();
            let fields = fewer.pointer_mut(place).and_then(Value::as_object_mut).unwrap();
            assert!(fields.remove(name).is_some());
            assert!(!is_plain(&headers(), &fewer), "without {place}/{name}");
        }
        let twice = body().to_string().replacen('{', r#"{"id":2,"#, 1);
        assert!(read(&headers(), twice.as_bytes()).is_none(), "two ids");
    }
}
