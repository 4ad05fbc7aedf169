//! Names in the query of a REST route: each is one that the route knows, and stands there once. A
//! parameter that is misspelled would otherwise do nothing, and nobody would notice.

use std::sync::Arc;

use axum::extract::{Query, Request, State};
use axum::http::Uri;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use woma_core::Code;
use woma_core::text::near;

use super::layers::is_probe;
use super::openapi::query_names;
use super::table::Operation;
use crate::api::error::Envelope;

/// Characters of an unknown name that a message shows.
const NAME_CHARS_MAX: usize = 64;

/// Names that one operation knows.
#[derive(Debug, Clone)]
pub(super) struct Known(Arc<[String]>);

impl Known {
    /// `None` if anything may be in the query: programs that show a link add parameters of their own
    /// to it (`utm_source`, a number against caches), and so do load balancers that probe.
    pub(super) fn of(operation: &Operation) -> Option<Self> {
        let path = operation.path;
        let is_link = path.starts_with("/dl/") || path.starts_with("/charts/");
        let is_page = operation.tag == "documentation" || path == "/";
        let is_health = is_probe(path) || operation.id == "health_v1";
        let is_open = is_link || is_page || is_health;
        (!is_open).then(|| Self(query_names(operation).into()))
    }

    fn check(&self, uri: &Uri) -> Result<(), Envelope> {
        let pairs = Query::<Vec<(String, String)>>::try_from_uri(uri).map_err(|problem| {
            let message = format!("the query cannot be read: {}", problem.body_text());
            Envelope::new(Code::InvalidArgument, message)
        })?;
        let mut seen = Vec::new();
        for (name, _) in &pairs.0 {
            let Some(known) = self.0.iter().find(|known| *known == name) else {
                return Err(self.unknown(name));
            };
            if seen.contains(&known) {
                let message = format!("`{known}` is in the query more than once");
                return Err(Envelope::new(Code::InvalidArgument, message)
                    .with_hint("send each parameter once"));
            }
            seen.push(known);
        }
        Ok(())
    }

    fn unknown(&self, name: &str) -> Envelope {
        let shown: String = name.chars().take(NAME_CHARS_MAX).collect();
        let message = format!("`{shown}` is not a query parameter of this route");
        let envelope = Envelope::new(Code::InvalidArgument, message);
        let list = |names: &[String]| {
            names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        };
        if self.0.is_empty() {
            return envelope.with_hint("it takes none; arguments are in the body or in the path");
        }
        let near = near::paths(name, self.0.iter().map(String::as_str));
        let all = format!("this route takes {}", list(&self.0));
        envelope.with_hint(match near.is_empty() {
            true => all,
            false => format!("did you mean {}? {all}", list(&near)),
        })
    }
}

/// Layer of one route.
pub(super) async fn known_only(
    State(known): State<Known>,
    request: Request,
    next: Next,
) -> Response {
    match known.check(request.uri()) {
        Ok(()) => next.run(request).await,
        Err(envelope) => envelope.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::Known;
    use crate::http::table::operations;

    fn known(id: &str) -> Option<Known> {
        Known::of(operations().find(|operation| operation.id == id).unwrap())
    }

    fn refusal(id: &str, query: &str) -> Option<(String, String)> {
        let refused = known(id).unwrap().check(&format!("/x?{query}").parse().unwrap()).err()?;
        assert_eq!(refused.status, 400);
        Some((refused.message, refused.hint.unwrap()))
    }

    #[test]
    fn names_that_a_route_knows_pass_once() {
        for query in ["", "limit=1", "limit=1&cursor=a%26b&label=x", "&&"] {
            assert_eq!(refusal("list_sessions", query), None, "{query}");
        }
        let (message, _) = refusal("list_sessions", "limit=1&limit=2").unwrap();
        assert_eq!(message, "`limit` is in the query more than once");
    }

    #[test]
    fn an_unknown_name_is_refused_with_near_ones() {
        let (message, hint) = refusal("read_output", "ofset=7").unwrap();
        assert_eq!(message, "`ofset` is not a query parameter of this route");
        assert_eq!(hint, "did you mean `offset`? this route takes `stream`, `offset`, `limit`");
        let (_, hint) = refusal("read_output", "colour").unwrap();
        assert_eq!(hint, "this route takes `stream`, `offset`, `limit`");
        let (_, hint) = refusal("run", "timeout=5").unwrap();
        assert_eq!(hint, "it takes none; arguments are in the body or in the path");
        let (message, _) = refusal("run", &"x".repeat(9_000)).unwrap();
        assert!(message.len() < 200, "{message}");
    }

    #[test]
    fn links_pages_and_probes_take_anything() {
        for id in ["download", "download_by_id", "chart", "health", "health_v1", "docs", "home"] {
            assert!(known(id).is_none(), "{id}");
        }
        let count = operations().filter(|it| Known::of(it).is_none()).count();
        assert_eq!(count, 11, "all others refuse what they do not know");
    }
}
