//! Browsers at `/`: they see a page, where programs get JSON. The page needs no key.

use axum::extract::Request;
use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, Method};

/// Request extension: a browser asks for the page, and these are the facts that it shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PageFacts {
    /// Without a trailing slash.
    pub(crate) base_url: String,
    pub(crate) needs_key: bool,
    /// Issuer of the tokens that are accepted in place of a key.
    pub(crate) issuer: Option<String>,
}

/// Whether the request asks for the page at `/`.
pub(crate) fn asks_for_page(request: &Request) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD)
        && request.uri().path() == "/"
        && prefers_html(request.headers())
}

/// Whether `Accept` names `text/html`, and ranks it above `application/json`. Ranges such as `*/*`
/// do not count: programs send them too.
fn prefers_html(headers: &HeaderMap) -> bool {
    let rank = |wanted: &str| -> f32 {
        let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let of_wanted = values.flat_map(|value| value.split(',')).filter_map(|range| {
            let mut parts = range.split(';').map(str::trim);
            let is_wanted = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case(wanted));
            let quality = parts.find_map(|part| {
                let (name, value) = part.split_once('=')?;
                name.trim().eq_ignore_ascii_case("q").then(|| value.trim().parse().unwrap_or(0.0))
            });
            is_wanted.then(|| quality.unwrap_or(1.0))
        });
        of_wanted.fold(0.0, f32::max)
    };
    rank("text/html") > rank("application/json")
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::extract::Request;

    use super::asks_for_page;

    #[test]
    fn only_browsers_at_the_root_see_the_page() {
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        let table = [
            ("GET", "/", browser, true),
            ("HEAD", "/", browser, true),
            ("GET", "/?utm=1", browser, true),
            ("GET", "/", "Text/HTML", true),
            ("GET", "/", "text/html; charset=utf-8", true),
            ("GET", "/", "application/json;q=0.5, text/html", true),
            ("GET", "/", "", false),
            ("GET", "/", "*/*", false),
            ("GET", "/", "text/*", false),
            ("GET", "/", "application/json", false),
            ("GET", "/", "application/json, text/html", false),
            ("GET", "/", "application/json, text/html;q=0.9", false),
            ("GET", "/", "text/html;q=0", false),
            ("GET", "/", "text/html;q=none", false),
            ("GET", "/", "text/html;q=NaN", false),
            ("GET", "/", "text/htmlx", false),
            ("GET", "/", "application/json, text/event-stream", false),
            ("POST", "/", browser, false),
            ("GET", "/mcp", browser, false),
            ("GET", "//", browser, false),
            ("GET", "/.", browser, false),
            ("GET", "/api/v1/sessions", browser, false),
        ];
        for (method, path, accept, expected) in table {
            let request = Request::builder().method(method).uri(path).header("accept", accept);
            let request = request.body(Body::empty()).unwrap();
            assert_eq!(asks_for_page(&request), expected, "{method} {path} {accept}");
        }
        let mut request = Request::new(Body::empty());
        assert!(!asks_for_page(&request), "no Accept at all");
        for value in ["image/png", "text/html"] {
            request.headers_mut().append("accept", value.parse().unwrap());
        }
        assert!(asks_for_page(&request), "two header lines");
    }
}
