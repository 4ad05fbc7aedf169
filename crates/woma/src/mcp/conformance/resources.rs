//! Resource fixtures.

use rmcp::ErrorData;
use rmcp::model::{CacheScope, ReadResourceResult, Resource, ResourceContents, ResourceTemplate};
use serde_json::json;

use super::tools::PNG;

const TEXT: &str = "test://static-text";
const BINARY: &str = "test://static-binary";
const WATCHED: &str = "test://watched-resource";

/// Resources; the suite reads the first one.
pub(super) fn list() -> Vec<Resource> {
    let resource = |uri: &str, name: &str, what: &str, media_type: &str| {
        Resource::new(uri, name).with_description(what).with_mime_type(media_type)
    };
    vec![
        resource(TEXT, "static text", "Text that never changes", "text/plain"),
        resource(BINARY, "static binary", "A picture that never changes", "image/png"),
        resource(WATCHED, "watched resource", "Text that can be watched", "text/plain"),
    ]
}

pub(super) fn template() -> ResourceTemplate {
    ResourceTemplate::new("test://template/{id}/data", "data by id")
        .with_description("Whatever belongs to an id")
        .with_mime_type("application/json")
}

pub(super) fn read(uri: &str) -> Option<ReadResourceResult> {
    let text = |text: &str| ResourceContents::text(text, uri).with_mime_type("text/plain");
    let contents = match uri {
        TEXT => text("This is the content of the static text resource."),
        WATCHED => text("This is the content of the watched resource."),
        BINARY => ResourceContents::blob(PNG, uri).with_mime_type("image/png"),
        other => {
            let id = other.strip_prefix("test://template/")?.strip_suffix("/data")?;
            let data = format!("Data for ID: {id}");
            let data = json!({"id": id, "templateTest": true, "data": data});
            ResourceContents::text(data.to_string(), uri).with_mime_type("application/json")
        }
    };
    let read = ReadResourceResult::new(vec![contents]);
    Some(read.with_ttl_ms(0).with_cache_scope(CacheScope::Private))
}

/// Whether a resource can be watched.
pub(super) fn watched(uri: &str) -> Result<(), ErrorData> {
    let unknown = || ErrorData::resource_not_found("the resource does not exist", None);
    list().iter().any(|resource| resource.uri == uri).then_some(()).ok_or_else(unknown)
}
