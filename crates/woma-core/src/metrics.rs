//! What is counted. The names are those of docs/reference/metrics.md, some of them promised to users of
//! older systems.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::exemplar::HistogramWithExemplars;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::model::Execution;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OutcomeLabel {
    pub outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct KindLabel {
    pub r#type: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReasonLabel {
    pub reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct SecurityLabel {
    pub event: &'static str,
    pub action: &'static str,
}

/// Names the execution that an observation came from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ExemplarLabel {
    pub execution_id: String,
}

/// Counters are written where things happen; gauges are set when somebody asks.
#[derive(Debug)]
pub struct Metrics {
    pub executions: Family<OutcomeLabel, Counter>,
    pub duration: HistogramWithExemplars<ExemplarLabel>,
    pub errors: Family<KindLabel, Counter>,
    pub package_installs: Counter,
    pub egress_requests: Counter,
    pub rejected: Family<ReasonLabel, Counter>,
    pub security_events: Family<SecurityLabel, Counter>,
    pub kernels_evicted: Counter,
    pub kernels_expired: Counter,
    pub cpu_seconds: Counter<f64, AtomicU64>,
    pub memory_usage: Gauge,
    pub server_memory: Gauge,
    pub sessions: Gauge,
    pub kernels: Gauge,
    pub cells: Gauge,
    pub pooled: Gauge,
    pub running: Gauge,
    pub queued: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let buckets =
            [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0];
        Self {
            executions: Family::default(),
            duration: HistogramWithExemplars::new(buckets.into_iter()),
            errors: Family::default(),
            package_installs: Counter::default(),
            egress_requests: Counter::default(),
            rejected: Family::default(),
            security_events: Family::default(),
            kernels_evicted: Counter::default(),
            kernels_expired: Counter::default(),
            cpu_seconds: Counter::default(),
            memory_usage: Gauge::default(),
            server_memory: Gauge::default(),
            sessions: Gauge::default(),
            kernels: Gauge::default(),
            cells: Gauge::default(),
            pooled: Gauge::default(),
            running: Gauge::default(),
            queued: Gauge::default(),
        }
    }
}

impl Metrics {
    pub fn register(&self, registry: &mut Registry) {
        let r = registry;
        r.register("sandbox_executions", "Executions, by how they ended", self.executions.clone());
        r.register(
            "sandbox_execution_duration_seconds",
            "Time from an execution's first instruction to its end",
            self.duration.clone(),
        );
        r.register("sandbox_errors", "Executions that failed, by kind", self.errors.clone());
        r.register(
            "sandbox_package_installs",
            "Packages installed on demand",
            self.package_installs.clone(),
        );
        r.register(
            "woma_egress_requests",
            "Requests that code in sessions made to the network",
            self.egress_requests.clone(),
        );
        r.register("woma_rejected", "Requests refused, by reason", self.rejected.clone());
        r.register(
            "woma_security_events",
            "What was not allowed, by what it was and what became of it",
            self.security_events.clone(),
        );
        r.register(
            "woma_kernels_evicted",
            "Kernels ended to make room for another",
            self.kernels_evicted.clone(),
        );
        r.register(
            "woma_kernels_expired",
            "Kernels ended because nobody used them",
            self.kernels_expired.clone(),
        );
        r.register(
            "woma_execution_cpu_seconds",
            "Processor time of executions",
            self.cpu_seconds.clone(),
        );
        self.register_gauges(r);
    }

    fn register_gauges(&self, r: &mut Registry) {
        let gauges = [
            ("sandbox_memory_usage_bytes", "Memory of all sessions together", &self.memory_usage),
            ("woma_server_memory_bytes", "Memory of the server itself", &self.server_memory),
            ("woma_sessions", "Sessions that are known", &self.sessions),
            ("woma_kernels", "Sessions with a live kernel", &self.kernels),
            ("woma_cells", "Live cells, pooled ones included", &self.cells),
            ("woma_pool_cells", "Cells that wait for a session", &self.pooled),
            ("woma_running", "Executions that are running", &self.running),
            ("woma_queue", "Executions that wait for their turn", &self.queued),
        ];
        for (name, help, gauge) in gauges {
            r.register(name, help, gauge.clone());
        }
    }

    pub(crate) fn record(&self, execution: &Execution) {
        self.executions.get_or_create(&OutcomeLabel { outcome: execution.outcome }).inc();
        let exemplar = ExemplarLabel { execution_id: execution.id.to_string() };
        self.duration.observe(execution.wall.as_secs_f64(), Some(exemplar), None);
        if let Some(kind) = execution.error_category {
            self.errors.get_or_create(&KindLabel { r#type: kind }).inc();
        }
        for event in &execution.events {
            let label = SecurityLabel { event: event.event, action: event.action.name() };
            self.security_events.get_or_create(&label).inc();
        }
        if let Some(usage) = &execution.usage {
            self.cpu_seconds.inc_by(positive(usage.cpu));
        }
    }

    pub fn reject(&self, reason: &'static str) {
        self.rejected.get_or_create(&ReasonLabel { reason }).inc();
    }
}

fn positive(duration: Duration) -> f64 {
    duration.as_secs_f64()
}
