//! JSON-RPC messages before they are parsed: what is too costly or no JSON at all goes no further.

use axum::body::Bytes;
use serde::de::IgnoredAny;
use tokio::sync::Semaphore;
use woma_core::Code;

use crate::error::Envelope;

/// Values in one message: parsed, each takes some seventy bytes, whatever it is.
const VALUES_MAX: usize = 200_000;
/// Messages longer than this are looked at where nobody waits.
const QUICK_BYTES_MAX: usize = 256 * 1024;
/// How many long ones are looked at at once.
static LOOKING: Semaphore = Semaphore::const_new(2);

/// What a message is, from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Single,
    Batch,
    /// No JSON: the place and reason are in the text.
    Malformed,
}

/// Looks at a message without building it.
pub(super) async fn examine(bytes: &Bytes) -> Result<(Shape, String), Envelope> {
    if bytes.len() <= QUICK_BYTES_MAX {
        return look(bytes);
    }
    let busy = |_| Envelope::new(Code::Unavailable, "the server is shutting down");
    let permit = LOOKING.acquire().await.map_err(busy)?;
    let bytes = bytes.clone();
    let looked = tokio::task::spawn_blocking(move || look(&bytes)).await;
    drop(permit);
    looked.unwrap_or_else(|_| Err(Envelope::new(Code::Internal, "the message was not read")))
}

fn look(bytes: &[u8]) -> Result<(Shape, String), Envelope> {
    let values = count_values(bytes);
    if values > VALUES_MAX {
        let text = format!("the message has more than {VALUES_MAX} values");
        return Err(Envelope::new(Code::TooLarge, text)
            .with_hint("put data into a file of the session, or send it as one text"));
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

/// One more than the commas, brackets and braces that stand outside of texts.
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
    use super::{Shape, VALUES_MAX, count_values, look};

    #[test]
    fn values_are_counted_outside_of_texts() {
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
    fn messages_are_known_by_their_shape() {
        assert_eq!(look(b" {}").unwrap().0, Shape::Single);
        assert_eq!(look(b" [{}]").unwrap().0, Shape::Batch);
        let (shape, why) = look(b"{").unwrap();
        assert_eq!(shape, Shape::Malformed);
        assert!(why.contains("line 1"), "{why}");
        assert_eq!(look(b"\xff").unwrap().0, Shape::Malformed);
        let bomb = format!("[{}1]", "1,".repeat(VALUES_MAX));
        assert_eq!(look(bomb.as_bytes()).unwrap_err().code, "too_large");
    }
}
