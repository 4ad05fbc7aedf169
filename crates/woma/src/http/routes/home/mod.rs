//! `GET /`: name and links for programs, and a page for browsers with the configuration of clients
//! for this very server. The page is embedded and needs no key, so it tells nothing of the machine
//! and of callers.

mod snippets;

use axum::extract::State;
use axum::http::header::VARY;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::Serialize;

use super::docs;
use crate::api::state::AppState;
use crate::http::layers::browser::PageFacts;
use snippets::Snippet;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const DESCRIPTION: &str = "A Python that AI agents can be trusted with";

/// Reply of `GET /`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HomeBody {
    service: &'static str,
    version: &'static str,
    description: &'static str,
    docs: &'static str,
    openapi: &'static str,
    health: &'static str,
    metrics: &'static str,
    mcp: &'static str,
}

pub(crate) async fn home(
    State(state): State<AppState>,
    facts: Option<Extension<PageFacts>>,
) -> Response {
    let mut response = match facts {
        Some(Extension(facts)) => docs::page(&render(&facts, state.service.health().is_well)),
        None => Json(HomeBody {
            service: "woma",
            version: VERSION,
            description: DESCRIPTION,
            docs: "/docs",
            openapi: "/openapi.json",
            health: "/health",
            metrics: "/metrics",
            mcp: "/mcp",
        })
        .into_response(),
    };
    response.headers_mut().insert(VARY, axum::http::HeaderValue::from_static("Accept"));
    response
}

fn render(facts: &PageFacts, is_well: bool) -> String {
    let (state, status) = match is_well {
        true => ("well", "running"),
        false => ("unwell", "not ready to run code"),
    };
    let access = match (&facts.issuer, facts.needs_key) {
        (Some(issuer), _) => format!("A key is needed, or a token of {issuer}."),
        (None, true) => "A key is needed; the operator of this server makes keys.".to_owned(),
        (None, false) => "No key is needed.".to_owned(),
    };
    let snippets = snippets::of(facts);
    let values = [
        ("{{description}}", escaped(DESCRIPTION)),
        ("{{version}}", escaped(VERSION)),
        ("{{state}}", state.to_owned()),
        ("{{status}}", status.to_owned()),
        ("{{access}}", escaped(&access)),
        ("{{base}}", escaped(&facts.base_url)),
        ("{{key-field}}", if facts.needs_key { "" } else { "hidden" }.to_owned()),
        ("{{snippets}}", snippets.iter().map(article).collect()),
    ];
    // One pass over the template: a value is never searched for placeholders.
    let mut page = String::new();
    let mut rest = include_str!("page.html");
    while let Some(at) = rest.find("{{") {
        let found = values.iter().find(|(name, _)| rest[at..].starts_with(name));
        let (name, value) = found.map_or(("{{", "{{"), |(name, value)| (*name, value.as_str()));
        page.push_str(&rest[..at]);
        page.push_str(value);
        rest = &rest[at + name.len()..];
    }
    page + rest
}

fn article(snippet: &Snippet) -> String {
    let Snippet { id, title, place, text } = snippet;
    format!(
        "<section aria-labelledby=\"{id}-title\"><h3 id=\"{id}-title\">{}</h3><p>{}</p>\
         <div class=\"snippet\"><pre id=\"{id}\" tabindex=\"0\">{}</pre>\
         <button type=\"button\" data-copy=\"{id}\">Copy<span class=\"unseen\"> the configuration of {}\
         </span></button></div></section>\n",
        escaped(title),
        escaped(place),
        escaped(text),
        escaped(title),
    )
}

/// Text for HTML, in and outside of attributes.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // No value makes a placeholder.
            '{' => escaped.push_str("&#123;"),
            plain => escaped.push(plain),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::{PageFacts, render};

    fn facts(base_url: &str) -> PageFacts {
        PageFacts { base_url: base_url.to_owned(), needs_key: true, issuer: None }
    }

    #[test]
    fn text_of_others_stays_text() {
        let hostile = "http://x\"'><script>alert(1)</script>&{{snippets}}{{nonce}}";
        let issuer = Some("https://i.example/<img src=x>".to_owned());
        let page = render(&PageFacts { issuer, ..facts(hostile) }, true);
        let plain = render(&facts("http://localhost:8080"), true);
        for mark in ["<script", "<img", "<section", "<button"] {
            let (found, expected) = (page.matches(mark).count(), plain.matches(mark).count());
            assert_eq!(found, expected, "{mark}");
        }
        assert!(page.contains("&lt;script&gt;alert(1)"), "{page}");
        assert!(page.contains("&lt;img src=x&gt;"));
    }

    #[test]
    fn every_placeholder_has_a_value() {
        let page = render(&facts("http://localhost:8080"), false);
        assert!(!page.replace("{{nonce}}", "").contains("{{"), "{page}");
        assert!(page.contains("not ready to run code"));
    }
}
