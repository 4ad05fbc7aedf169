//! Defaults that depend on the machine.

use woma_core::Machine;

use super::layers::Origin;
use super::resolve::Resolution;
use super::value::{MIB, Value};

/// Sessions' memory reserved for each kernel: an idle one takes 4 MiB, one with data many times
/// that.
const KERNEL_BYTES: u64 = 32 * MIB;
const KERNELS_MAX: u64 = 1_000;
/// Descriptors for each kernel: it takes about ten; the others are for connections and files.
const KERNEL_DESCRIPTORS: u64 = 32;
/// An idle kernel has three processes and threads; a busy one starts more.
const KERNEL_TASKS: u64 = 16;

/// Concurrent runs for each processor: more would compete, fewer would queue behind sleeping code.
const RUNNING_PER_PROCESSOR: u64 = 8;
const RUNNING_MIN: u64 = 16;
/// Connections by default. Each has two descriptors, and files and pipes need some too.
const CONNECTIONS_MAX: u64 = 4096;
const CONNECTION_DESCRIPTORS: u64 = 4;

impl Resolution {
    /// Converts percentages to sizes, and fills unset limits from the machine's resources.
    pub(super) fn fill_from(&mut self, machine: &Machine) {
        if let Value::Percent(percent) = self.value("sessions_memory") {
            let bytes = (machine.memory_bytes.saturating_mul(percent) / 100).max(MIB);
            let origin = self.origin("sessions_memory");
            self.set("sessions_memory", Value::Bytes(bytes / MIB * MIB), origin);
        }
        if self.value("max_kernels") == Value::Unset {
            let memory = match self.value("sessions_memory") {
                Value::Bytes(bytes) => bytes / KERNEL_BYTES,
                _ => KERNELS_MAX,
            };
            let sessions = match self.value("max_sessions") {
                Value::Integer(sessions) => sessions / 2,
                _ => KERNELS_MAX,
            };
            let descriptors = machine.descriptors / KERNEL_DESCRIPTORS;
            let tasks = machine.tasks.map_or(KERNELS_MAX, |tasks| tasks / KERNEL_TASKS);
            let kernels = memory.min(sessions).min(descriptors).min(tasks);
            let kernels = Value::Integer(kernels.clamp(1, KERNELS_MAX));
            self.set("max_kernels", kernels, Origin::Default);
        }
        if self.value("max_connections") == Value::Unset {
            let connections = machine.descriptors / CONNECTION_DESCRIPTORS;
            let connections = Value::Integer(connections.clamp(1, CONNECTIONS_MAX));
            self.set("max_connections", connections, Origin::Default);
        }
        if self.value("max_running") == Value::Unset {
            let running = (machine.processors * RUNNING_PER_PROCESSOR).max(RUNNING_MIN);
            self.set("max_running", Value::Integer(running), Origin::Default);
        }
    }
}
