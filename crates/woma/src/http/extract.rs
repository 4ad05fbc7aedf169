//! Extractors: caller, path, query and JSON body of a request, read within limits. A failure is an
//! `Envelope`.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;

use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use woma_core::{Caller, Code};

use super::body;
use crate::api::arguments::Arguments;
use crate::api::error::Envelope;
use crate::api::state::{AppState, BaseUrl};

/// Limit of fields in one body.
const FIELDS_MAX: usize = 64;
/// Limit of all values but text, in bytes: a parsed list of numbers takes 16 times as many, and
/// twice that while it grows.
const VALUES_BYTES_MAX: usize = 3 * 1024 * 1024;

/// The caller, as authenticated by the layer.
#[derive(Debug, Clone)]
pub(crate) struct CallerOf(pub(crate) Caller);

impl<S: Send + Sync> FromRequestParts<S> for CallerOf {
    type Rejection = Envelope;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Envelope> {
        match parts.extensions.get::<Caller>() {
            Some(caller) => Ok(Self(caller.clone())),
            // Public paths have no caller, and this route is not public.
            None => {
                tracing::error!("A route that needs a caller was reached unauthenticated");
                Err(Envelope::new(Code::Internal, "the server failed; its log says why"))
            }
        }
    }
}

/// State with the base URL of this request, for links in the reply.
#[derive(Debug, Clone)]
pub(crate) struct RequestState(pub(crate) AppState);

impl FromRequestParts<AppState> for RequestState {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Infallible> {
        Ok(Self(state.with_base_url(parts.extensions.get::<BaseUrl>().cloned())))
    }
}

/// Parameters in the path.
#[derive(Debug)]
pub(crate) struct PathParams<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for PathParams<T> {
    type Rejection = Envelope;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Envelope> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        path.map(|Path(names)| Self(names)).map_err(|problem| {
            let message = format!("the path cannot be read: {}", problem.body_text());
            Envelope::new(Code::InvalidArgument, message)
                .with_hint("percent-encode names as UTF-8; numbers are plain digits")
        })
    }
}

/// Parameters of the query.
#[derive(Debug)]
pub(crate) struct QueryArguments(pub(crate) Arguments);

impl<S: Send + Sync> FromRequestParts<S> for QueryArguments {
    type Rejection = Envelope;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Envelope> {
        let query = Query::<BTreeMap<String, String>>::from_request_parts(parts, state).await;
        let Query(query) = query.map_err(|problem| {
            let message = format!("the query cannot be read: {}", problem.body_text());
            Envelope::new(Code::InvalidArgument, message)
        })?;
        let values = query.into_iter().map(|(name, text)| (name, Value::String(text)));
        Ok(Self(Arguments::new(values.collect())))
    }
}

/// Fields of a JSON body. The content type is ignored: `curl -d` declares a form.
#[derive(Debug)]
pub(crate) struct BodyArguments(pub(crate) Arguments);

impl FromRequest<AppState> for BodyArguments {
    type Rejection = Envelope;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Envelope> {
        let (_, bytes) = body::whole(request, state.presentation.body_bytes_max).await?;
        parse(&bytes).map(|fields| Self(Arguments::new(fields)))
    }
}

/// Parses an object; the size of each field is checked before the field is parsed.
pub(super) fn parse(bytes: &[u8]) -> Result<Map<String, Value>, Envelope> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = str::from_utf8(bytes).map_err(|error| {
        let message = format!("the body is not valid UTF-8 at byte {}", error.valid_up_to());
        Envelope::new(Code::InvalidArgument, message)
    })?;
    let text = text.trim_ascii();
    if text.is_empty() {
        return Ok(Map::new());
    }
    if !text.starts_with('{') {
        return Err(not_an_object(text));
    }
    let fields: Fields<'_> = serde_json::from_str(text).map_err(|error| {
        Envelope::new(Code::InvalidArgument, format!("the body is not valid JSON: {error}"))
            .with_hint("send one JSON object, such as {\"code\": \"print(1)\"}")
    })?;
    let mut room = VALUES_BYTES_MAX;
    fields.0.into_iter().map(|(name, raw)| value(name, raw, &mut room)).collect()
}

fn value(name: String, raw: &RawValue, room: &mut usize) -> Result<(String, Value), Envelope> {
    let text = raw.get();
    let shown: String = name.chars().take(64).collect();
    if !text.starts_with('"') {
        *room = room.checked_sub(text.len()).ok_or_else(|| {
            let message = format!("`{shown}` is too long: {VALUES_BYTES_MAX} bytes are allowed");
            Envelope::new(Code::TooLarge, message).with_hint("put data into a file of the session")
        })?;
    }
    let value = serde_json::from_str(text).map_err(|error| {
        Envelope::new(Code::InvalidArgument, format!("`{shown}` cannot be read: {error}"))
    })?;
    Ok((name, value))
}

fn not_an_object(text: &str) -> Envelope {
    let got = match text.as_bytes().first() {
        Some(b'[') => "a list",
        Some(b'"') => "a text",
        Some(b'0'..=b'9' | b'-') => "a number",
        _ if ["true", "false"].contains(&text) => "true or false",
        _ if text == "null" => "null",
        _ => "text that is not JSON",
    };
    let message = format!("the body must be a JSON object, not {got}");
    Envelope::new(Code::InvalidArgument, message)
        .with_hint("send one JSON object, such as {\"code\": \"print(1)\"}")
}

struct Fields<'text>(Vec<(String, &'text RawValue)>);

impl<'text> Deserialize<'text> for Fields<'text> {
    fn deserialize<D: Deserializer<'text>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'text> Visitor<'text> for FieldsVisitor {
    type Value = Fields<'text>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'text>>(self, mut map: A) -> Result<Fields<'text>, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry::<String, &RawValue>()? {
            if fields.len() == FIELDS_MAX {
                return Err(A::Error::custom(format!("more than {FIELDS_MAX} fields")));
            }
            fields.push(field);
        }
        Ok(Fields(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::parse;
    use crate::api::arguments::Arguments;
    use crate::api::request::ExecuteBody;

    fn message(body: &[u8]) -> (u16, String) {
        let envelope = parse(body).unwrap_err();
        (envelope.status.as_u16(), envelope.message)
    }

    #[test]
    fn accepts_objects_with_bom_and_blanks() {
        assert_eq!(parse(b"").unwrap().len(), 0);
        assert_eq!(parse(b" \n").unwrap().len(), 0);
        let fields = parse(b"\xef\xbb\xbf {\"code\": \"1\", \"a\": [1, {\"b\": null}]}\n").unwrap();
        assert_eq!(fields.len(), 2);
    }

    #[test]
    fn rejects_bodies_that_are_not_objects() {
        for (body, got) in [
            (&b"[1]"[..], "a list"),
            (b"\"a\"", "a text"),
            (b"-1", "a number"),
            (b"null", "null"),
            (b"code=print(1)", "text that is not JSON"),
        ] {
            let expected = (400, format!("the body must be a JSON object, not {got}"));
            assert_eq!(message(body), expected);
        }
        assert_eq!(
            message(b"\xff\xfe{"),
            (400, "the body is not valid UTF-8 at byte 0".to_owned())
        );
    }

    #[test]
    fn checks_sizes_before_parsing_values() {
        let nested = format!("{{\"code\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        let (status, text) = message(nested.as_bytes());
        assert!(status == 400 && text.contains("`code` cannot be read: recursion"), "{text}");
        let long = |count| format!("[{}1]", "1,".repeat(count));
        let one = format!("{{\"variables\": {}}}", long(2_100_000));
        assert_eq!(message(one.as_bytes()).0, 413);
        let two = format!("{{\"a\": {}, \"b\": {}}}", long(1_100_000), long(1_100_000));
        assert_eq!(message(two.as_bytes()).0, 413);
        let text = format!("{{\"code\": \"{}\"}}", "1".repeat(5_000_000));
        assert_eq!(parse(text.as_bytes()).unwrap().len(), 1);
        let many: Vec<String> = (0..100).map(|n| format!("\"f{n}\": 1")).collect();
        let (status, text) = message(format!("{{{}}}", many.join(",")).as_bytes());
        assert!(status == 400 && text.contains("more than 64 fields"), "{text}");
    }

    #[test]
    fn fuzz_bodies() {
        const WORDS: &[&str] = &[
            "{\"code\":\"print(1)\"",
            "\"session_id\":",
            "\"timeout\":",
            "\"variables\":{",
            "\"stdin\":",
            "\"stateless\":true",
            "\"memory_limit\":",
            "\"allowed_imports\":[",
            "\"on_timeout\":",
            "null",
            "1e999",
            "-0",
            "\\ud800",
            "\\u0000",
            "[",
            "]",
            "{",
            "}",
            ",",
            ":",
            "\"",
        ];
        woma_fuzz::Target { name: "bodies", words: WORDS }.run(|bytes| {
            let read = parse(bytes).and_then(|fields| {
                assert!(fields.len() <= super::FIELDS_MAX);
                ExecuteBody::read(Arguments::new(fields))
            });
            if let Err(refused) = read {
                assert!(refused.status.is_client_error(), "{refused:?}");
                assert!(refused.message.chars().count() < 2_000, "{refused:?}");
            }
        });
    }
}
