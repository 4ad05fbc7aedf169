//! Replies for paths and methods that no route answers.

use axum::http::{Method, StatusCode, Uri};
use woma_core::Code;

use crate::api::error::Envelope;
use crate::api::planned::Planned;

/// Routes of older systems whose feature is absent, with everything below them.
const PLANNED: &[(&str, Planned)] =
    &[("/pip_install", Planned::Packages), ("/pip", Planned::Packages)];

/// Reply for an unknown path.
pub(crate) async fn not_found(uri: Uri) -> Envelope {
    if let Some(feature) = planned(uri.path()) {
        return feature.refusal(uri.path());
    }
    let path: String = uri.path().chars().take(200).collect();
    Envelope::new(Code::NotFound, format!("no route matches {path}"))
        .with_hint("/docs lists the routes; the MCP endpoint is /mcp")
}

/// Reply for a wrong method; the header `Allow` lists the right ones.
pub(crate) async fn method_not_allowed(method: Method, uri: Uri) -> Envelope {
    let path: String = uri.path().chars().take(200).collect();
    let method: String = method.as_str().chars().take(40).collect();
    let message = format!("{path} does not allow {method}");
    let envelope =
        Envelope::new(Code::InvalidArgument, message).with_status(StatusCode::METHOD_NOT_ALLOWED);
    let hint = "the header `Allow` lists the allowed methods";
    Envelope { code: "method_not_allowed", ..envelope.with_hint(hint) }
}

fn planned(path: &str) -> Option<Planned> {
    let is_below = |root: &str| {
        let rest = path.strip_prefix(root);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    PLANNED.iter().find(|(root, _)| is_below(root)).map(|(_, feature)| *feature)
}

#[cfg(test)]
mod tests {
    use super::planned;
    use crate::api::planned::Planned;

    #[test]
    fn finds_the_feature_of_a_route() {
        for (path, feature) in
            [("/pip_install", Planned::Packages), ("/pip/install", Planned::Packages)]
        {
            assert_eq!(planned(path), Some(feature), "{path}");
        }
        for other in ["/api", "/api/jobsearch", "/pipe", "/api/data", "/"] {
            assert_eq!(planned(other), None, "{other}");
        }
    }
}
