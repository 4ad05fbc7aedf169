//! Inspection of JSON-RPC messages before parsing: too costly or malformed ones are rejected.

use axum::body::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use woma_core::{CallerId, Code};

use crate::api::error::Envelope;
use crate::api::pools::Pools;

/// Limit of values in one message: each takes about seventy bytes when parsed.
const VALUES_MAX: usize = 200_000;
/// Longer messages are inspected on a blocking thread.
const QUICK_BYTES_MAX: usize = 256 * 1024;

/// Outer shape of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Single,
    Batch,
    /// Not JSON; the text has the position and the reason.
    Malformed,
}

/// Inspects a message without building its values.
pub(super) async fn examine(
    pools: &Pools,
    caller: &CallerId,
    bytes: &Bytes,
) -> Result<(Shape, String), Envelope> {
    if bytes.len() <= QUICK_BYTES_MAX {
        return inspect(bytes);
    }
    let permit = pools.inspected.acquire(caller).await.map_err(woma_core::Error::from)?;
    let bytes = bytes.clone();
    let inspected = tokio::task::spawn_blocking(move || inspect(&bytes)).await;
    drop(permit);
    inspected.unwrap_or_else(|_| {
        Err(Envelope::new(Code::Internal, "the message could not be inspected"))
    })
}

fn inspect(bytes: &[u8]) -> Result<(Shape, String), Envelope> {
    let values = count_values(bytes);
    if values > VALUES_MAX {
        let text = format!("the message has more than {VALUES_MAX} values");
        return Err(Envelope::new(Code::TooLarge, text)
            .with_hint("put the data into a file of the session, or send it as one string"));
    }
    match serde_json::from_slice::<IgnoredAny>(bytes) {
        Ok(IgnoredAny) => {
            let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
            let shape = if first == Some(&b'[') { Shape::Batch } else { Shape::Single };
            Ok((shape, String::new()))
        }
        Err(error) => Ok((Shape::Malformed, format!("not JSON: {error}"))),
    }
}

/// Whether a message must go through the handshake's own handler: it opens a session, or says that
/// it is of the revision without sessions.
pub(super) fn needs_handshake(bytes: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Message {
        method: Option<String>,
        params: Option<Params>,
    }
    #[derive(Deserialize)]
    struct Params {
        #[serde(rename = "_meta")]
        meta: Option<Meta>,
    }
    #[derive(Deserialize)]
    struct Meta {
        #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
        revision: Option<IgnoredAny>,
    }
    let Ok(Message { method, params }) = serde_json::from_slice(bytes) else { return true };
    let meta = params.and_then(|params| params.meta);
    method.is_none_or(|method| method == "initialize")
        || meta.is_some_and(|meta| meta.revision.is_some())
}

/// One more than the commas and opening brackets outside of strings.
fn count_values(bytes: &[u8]) -> usize {
    let (mut values, mut is_text, mut is_escaped) = (1, false, false);
    for byte in bytes {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b',' | b'[' | b'{' if !is_text => values += 1,
            _ => {}
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::{Shape, VALUES_MAX, count_values, inspect, needs_handshake};

    #[test]
    fn counts_values_outside_of_strings() {
        for (json, values) in [
            ("1", 1),
            ("[1,2]", 3),
            (r#"{"a":[1,{"b":2}]}"#, 5),
            (r#"{"a":"[,,,{\",,,"}"#, 2),
            (r#""\\",1"#, 2),
        ] {
            assert_eq!(count_values(json.as_bytes()), values, "{json}");
        }
    }

    #[test]
    fn only_some_messages_need_a_handshake() {
        let meta = r#"{"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
        for message in [r#"{"method":"initialize","params":{}}"#, r#"{"result":{}}"#, "[]", meta] {
            assert!(needs_handshake(message.as_bytes()), "{message}");
        }
        for message in [
            r#"{"method":"tools/list"}"#,
            r#"{"method":"tools/call","params":{"name":"x","arguments":{},"_meta":{"progressToken":1}}}"#,
            r#"{"method":"notifications/initialized"}"#,
        ] {
            assert!(!needs_handshake(message.as_bytes()), "{message}");
        }
    }

    #[test]
    fn recognizes_the_shape_of_messages() {
        assert_eq!(inspect(b" {}").unwrap().0, Shape::Single);
        assert_eq!(inspect(b" [{}]").unwrap().0, Shape::Batch);
        let (shape, why) = inspect(b"{").unwrap();
        assert_eq!(shape, Shape::Malformed);
        assert!(why.contains("line 1"), "{why}");
        assert_eq!(inspect(b"\xff").unwrap().0, Shape::Malformed);
        let bomb = format!("[{}1]", "1,".repeat(VALUES_MAX));
        assert_eq!(inspect(bomb.as_bytes()).unwrap_err().code, "too_large");
    }

    #[test]
    fn fuzz_messages() {
        const WORDS: &[&str] = &[
            "{\"jsonrpc\":\"2.0\",\"id\":1,",
            "\"method\":\"tools/call\"",
            "\"initialize\"",
            "\"params\":{",
            "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\"}",
            "\"name\":",
            "\"arguments\":{",
            "[",
            "]",
            "{",
            "}",
            ",",
            "\\\"",
            "\\u0022",
            "\"",
            "1e999",
            "null",
        ];
        fn values(value: &serde_json::Value) -> usize {
            match value {
                serde_json::Value::Array(items) => 1 + items.iter().map(values).sum::<usize>(),
                serde_json::Value::Object(fields) => 1 + fields.values().map(values).sum::<usize>(),
                _ => 1,
            }
        }
        woma_fuzz::Target { name: "messages", words: WORDS }.run(|bytes| {
            let counted = count_values(bytes);
            let parsed: Result<serde_json::Value, _> = serde_json::from_slice(bytes);
            if let Ok(value) = &parsed {
                // The limit is checked on what is counted: it must not be less than what there is.
                assert!(counted >= values(value), "{counted} counted, {}", values(value));
            }
            let (shape, why) = inspect(bytes).unwrap();
            match (shape, &parsed) {
                (Shape::Malformed, _) => assert!(why.starts_with("not JSON")),
                (Shape::Batch, Ok(value)) => assert!(value.is_array()),
                (Shape::Single, Ok(value)) => assert!(!value.is_array()),
                // Numbers beyond a float, and nesting beyond the parser's limit.
                (Shape::Batch | Shape::Single, Err(_)) => {}
            }
            needs_handshake(bytes);
        });
    }
}
