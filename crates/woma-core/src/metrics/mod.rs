//! Prometheus metrics. docs/reference/metrics.md lists their names, some of which are promised to
//! users of older systems.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::exemplar::HistogramWithExemplars;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::model::Execution;
use crate::shares::PoolUse;

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

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PoolLabel {
    pub pool: &'static str,
}

/// Work on datasets (`load`, `query`, …) and how it ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct WorkLabel {
    pub task: &'static str,
    pub outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct TaskLabel {
    pub task: &'static str,
}

/// Direction of bytes, as code in sessions sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct DirectionLabel {
    pub direction: &'static str,
}

/// Execution of an observation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ExemplarLabel {
    pub execution_id: String,
}

/// All metrics. Counters are updated by events; gauges are set when the metrics are read.
#[derive(Debug)]
pub struct Metrics {
    pub executions: Family<OutcomeLabel, Counter>,
    pub duration: HistogramWithExemplars<ExemplarLabel>,
    pub errors: Family<KindLabel, Counter>,
    pub webhooks: Family<OutcomeLabel, Counter>,
    pub datasets: Family<WorkLabel, Counter>,
    pub dataset_seconds: Family<TaskLabel, Counter<f64, AtomicU64>>,
    pub package_installs: Counter,
    pub egress_requests: Counter,
    pub egress_refused: Family<ReasonLabel, Counter>,
    pub egress_bytes: Family<DirectionLabel, Counter>,
    pub rejected: Family<ReasonLabel, Counter>,
    pub security_events: Family<SecurityLabel, Counter>,
    pub kernels_evicted: Family<ReasonLabel, Counter>,
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
    pub disk_free: Gauge,
    pub disk_reserve: Gauge,
    pub disk_is_low: Gauge,
    pub places: Family<PoolLabel, Gauge>,
    pub places_taken: Family<PoolLabel, Gauge>,
    pub places_waiting: Family<PoolLabel, Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        let buckets =
            [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0];
        Self {
            executions: Family::default(),
            duration: HistogramWithExemplars::new(buckets.into_iter()),
            errors: Family::default(),
            webhooks: Family::default(),
            datasets: Family::default(),
            dataset_seconds: Family::default(),
            package_installs: Counter::default(),
            egress_requests: Counter::default(),
            egress_refused: Family::default(),
            egress_bytes: Family::default(),
            rejected: Family::default(),
            security_events: Family::default(),
            kernels_evicted: Family::default(),
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
            disk_free: Gauge::default(),
            disk_reserve: Gauge::default(),
            disk_is_low: Gauge::default(),
            places: Family::default(),
            places_taken: Family::default(),
            places_waiting: Family::default(),
        }
    }
}

impl Metrics {
    pub fn register(&self, registry: &mut Registry) {
        let r = registry;
        r.register("sandbox_executions", "Executions, by outcome", self.executions.clone());
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
            "Connections that were made for code in sessions",
            self.egress_requests.clone(),
        );
        r.register(
            "woma_egress_refused",
            "Connections that code in sessions did not get, by reason",
            self.egress_refused.clone(),
        );
        r.register(
            "woma_egress_bytes",
            "Bytes between code in sessions and the network, when a connection ends",
            self.egress_bytes.clone(),
        );
        r.register("woma_rejected", "Requests refused, by reason", self.rejected.clone());
        r.register(
            "woma_security_events",
            "Violations, by event and action taken",
            self.security_events.clone(),
        );
        r.register(
            "woma_kernels_evicted",
            "Kernels ended to make room, by reason",
            self.kernels_evicted.clone(),
        );
        r.register(
            "woma_kernels_expired",
            "Kernels ended after their idle time",
            self.kernels_expired.clone(),
        );
        r.register(
            "woma_execution_cpu_seconds",
            "Processor time of executions",
            self.cpu_seconds.clone(),
        );
        self.register_work(r);
        self.register_gauges(r);
    }

    fn register_work(&self, r: &mut Registry) {
        r.register("woma_webhooks", "Attempts to deliver webhooks", self.webhooks.clone());
        r.register("woma_dataset_tasks", "Work on datasets, by outcome", self.datasets.clone());
        r.register(
            "woma_dataset_seconds",
            "Time of work on datasets",
            self.dataset_seconds.clone(),
        );
    }

    /// Counts work on a dataset.
    pub(crate) fn record_dataset(&self, task: &'static str, is_done: bool, took: Duration) {
        let outcome = if is_done { "done" } else { "failed" };
        self.datasets.get_or_create(&WorkLabel { task, outcome }).inc();
        self.dataset_seconds.get_or_create(&TaskLabel { task }).inc_by(seconds(took));
    }

    /// Counts a change of packages.
    pub(crate) fn record_packages(&self, is_done: bool) {
        match is_done {
            true => self.package_installs.inc(),
            false => self.errors.get_or_create(&KindLabel { r#type: "package" }).inc(),
        };
    }

    fn register_gauges(&self, r: &mut Registry) {
        let gauges = [
            ("sandbox_memory_usage_bytes", "Memory of all sessions together", &self.memory_usage),
            ("woma_server_memory_bytes", "Memory of the server itself", &self.server_memory),
            ("woma_sessions", "Sessions in memory", &self.sessions),
            ("woma_kernels", "Sessions with a live kernel", &self.kernels),
            ("woma_cells", "Live cells, pooled ones included", &self.cells),
            ("woma_pool_cells", "Cells that wait for a session", &self.pooled),
            ("woma_running", "Executions that are running", &self.running),
            ("woma_queue", "Executions in the queue", &self.queued),
            ("woma_disk_free_bytes", "Free space for sessions and files", &self.disk_free),
            ("woma_disk_reserve_bytes", "Free space that is reserved", &self.disk_reserve),
            ("woma_disk_below_reserve", "1 while writers are stopped", &self.disk_is_low),
        ];
        for (name, help, gauge) in gauges {
            r.register(name, help, gauge.clone());
        }
        let pools = [
            ("woma_places", "Places of a pool that callers share", &self.places),
            ("woma_places_taken", "Places that are taken", &self.places_taken),
            ("woma_places_waiting", "Calls that wait for a place", &self.places_waiting),
        ];
        for (name, help, family) in pools {
            r.register(name, help, family.clone());
        }
    }

    pub(crate) fn record(&self, execution: &Execution) {
        self.executions.get_or_create(&OutcomeLabel { outcome: execution.outcome.name() }).inc();
        let exemplar = ExemplarLabel { execution_id: execution.id.to_string() };
        self.duration.observe(execution.wall.as_secs_f64(), Some(exemplar), None);
        if let Some(kind) = execution.error_category {
            self.errors.get_or_create(&KindLabel { r#type: kind.name() }).inc();
        }
        for event in &execution.events {
            let label = SecurityLabel { event: event.event.name(), action: event.action.name() };
            self.security_events.get_or_create(&label).inc();
        }
        if let Some(usage) = &execution.usage {
            self.cpu_seconds.inc_by(seconds(usage.cpu));
        }
    }

    /// How full a pool is now.
    pub fn record_pool(&self, pool: &'static str, usage: PoolUse) {
        for (family, number) in [
            (&self.places, usage.places),
            (&self.places_taken, usage.taken),
            (&self.places_waiting, usage.waiting),
        ] {
            let number = i64::try_from(number).unwrap_or(i64::MAX);
            family.get_or_create(&PoolLabel { pool }).set(number);
        }
    }

    pub(crate) fn evict(&self, reason: &'static str) {
        self.kernels_evicted.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// Counts a connection that code did not get.
    pub(crate) fn refuse_egress(&self, reason: &'static str) {
        self.egress_refused.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// Counts bytes of a connection that has ended: `sent` or `received`.
    pub(crate) fn move_egress(&self, direction: &'static str, bytes: u64) {
        self.egress_bytes.get_or_create(&DirectionLabel { direction }).inc_by(bytes);
    }

    pub fn reject(&self, reason: &'static str) {
        self.rejected.get_or_create(&ReasonLabel { reason }).inc();
    }
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}
