//! Prometheus metrics: OpenMetrics if `Accept` asks for it, else the classic text format.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use woma_core::Code;
use woma_core::metrics::{KindLabel, OutcomeLabel};

use super::health::server_memory_bytes;
use crate::api::error::Envelope;
use crate::api::state::AppState;
use crate::http::extract::CallerOf;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(crate) async fn metrics(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    headers: HeaderMap,
) -> Result<Response, Envelope> {
    // The metrics cover all callers.
    if !caller.scopes.admin {
        return Err(woma_core::Error::from(woma_core::Forbidden { scope: "admin" }).into());
    }
    let text =
        text(&state).map_err(|_| Envelope::new(Code::Internal, "cannot encode the metrics"))?;
    let accept = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let wants_open =
        accept.into_iter().any(|accept| accept.contains("application/openmetrics-text"));
    let (content_type, text) =
        if wants_open { (OPEN_METRICS, text) } else { (CLASSIC, classic(&text)) };
    Ok(([(CONTENT_TYPE, content_type), (CACHE_CONTROL, "no-store")], text).into_response())
}

fn text(state: &AppState) -> Result<String, std::fmt::Error> {
    let health = state.service.health();
    let metrics = state.service.metrics();
    let running = health.running_or_queued.saturating_sub(health.queued);
    metrics.memory_usage.set(signed(health.memory_bytes.unwrap_or(0)));
    metrics.server_memory.set(signed(server_memory_bytes().unwrap_or(0)));
    if let Some(disk) = health.disk {
        metrics.disk_free.set(signed(disk.free_bytes));
        metrics.disk_reserve.set(signed(disk.reserve_bytes));
        metrics.disk_is_low.set(i64::from(disk.is_low()));
    }
    for (gauge, number) in [
        (&metrics.sessions, health.sessions),
        (&metrics.kernels, health.kernels),
        (&metrics.cells, health.cells),
        (&metrics.pooled, health.pooled),
        (&metrics.running, running),
        (&metrics.queued, health.queued),
    ] {
        gauge.set(i64::try_from(number).unwrap_or(i64::MAX));
    }
    for (pool, usage) in state.service.pools().into_iter().chain(state.pools.usage()) {
        metrics.record_pool(pool, usage);
    }
    // Counters exist from the start: alerts need a first value.
    for outcome in ["completed", "raised", "timed_out"] {
        drop(metrics.executions.get_or_create(&OutcomeLabel { outcome }));
    }
    for kind in ["syntax", "runtime", "timeout", "memory", "internal"] {
        drop(metrics.errors.get_or_create(&KindLabel { r#type: kind }));
    }
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts to the classic format: whole counter names, no exemplars, no units, no end mark.
fn classic(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let is_counter = |name: &str| lines.contains(&format!("# TYPE {name} counter").as_str());
    let mut classic = String::with_capacity(text.len());
    for line in &lines {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("EOF" | "UNIT"), ..) => continue,
            (Some("#"), Some(word), Some(name), Some(rest)) if is_counter(name) => {
                classic.extend(["# ", word, " ", name, "_total ", rest]);
            }
            (Some("#"), ..) => classic.push_str(line),
            _ => classic.push_str(line.split(" # ").next().unwrap_or(line)),
        }
        classic.push('\n');
    }
    classic
}

#[cfg(test)]
mod tests {
    use super::classic;

    #[test]
    fn converts_to_the_classic_format() {
        let open = "# HELP woma_a Things.\n# TYPE woma_a counter\nwoma_a_total{x=\"# y\"} 1\n\
                    # TYPE woma_b histogram\nwoma_b_bucket{le=\"1.0\"} 2 # {id=\"z\"} 0.5\n# EOF\n";
        let expected = "# HELP woma_a_total Things.\n# TYPE woma_a_total counter\n\
                        woma_a_total{x=\"# y\"} 1\n# TYPE woma_b histogram\n\
                        woma_b_bucket{le=\"1.0\"} 2\n";
        assert_eq!(classic(open), expected);
    }
}
