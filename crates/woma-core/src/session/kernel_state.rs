//! The state that belongs to the run that has the turn: the kernel and the folder.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::DropGuard;
use woma_sandbox::{Cell, Sandbox};

use super::notebook::Transcript;
use crate::net::egress::{Gate, SessionNetwork};
use crate::packages::layers::Layer;
use crate::shares::Permit;
use crate::storage::claims::Claim;
use crate::workspace::changes::Files;

/// The state of a session that only the holder of its turn may see.
#[derive(Debug, Default)]
pub(crate) struct SessionState {
    pub(crate) kernel: KernelState,
    /// Its folder, where it has one that outlives the kernel.
    pub(crate) files: Option<Files>,
    /// How many charts have a number, once that is known.
    pub(crate) charts: Option<usize>,
}

/// The kernel of a session.
#[derive(Debug)]
pub(crate) enum KernelState {
    /// No kernel. `lost`: why the previous one ended, until a reply has said so.
    Absent {
        lost: Option<String>,
    },
    Live(Box<Kernel>),
    /// The previous kernel has had its last run; its variables are being saved.
    Stopping {
        lost: String,
        saving: JoinHandle<()>,
    },
}

/// A live cell, and its permit among the kernels that may live at once.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) cell: Cell,
    pub(crate) permit: Permit,
    /// Keeps other processes from the session, if it has a folder.
    pub(crate) claim: Option<Claim>,
    /// Processor time that earlier runs took.
    pub(crate) cpu_seen: Duration,
    pub(crate) transcript: Transcript,
    pub(crate) network: Arc<SessionNetwork>,
    /// The way out of its room, once a run with a network has begun.
    pub(crate) gate: Option<Gate>,
    /// Variables of its environment that have placeholders of secrets.
    pub(crate) environ: serde_json::Map<String, serde_json::Value>,
    /// Serves `pip` in its room.
    pub(crate) pip: Option<DropGuard>,
    /// Packages that it shows, if they are not those of its session.
    pub(crate) layer: Option<Arc<Layer>>,
    /// Keeps the environment running, also when nothing else uses it.
    #[expect(dead_code, reason = "a sandbox ends with its last handle")]
    pub(crate) sandbox: Sandbox,
}

impl Kernel {
    pub(crate) fn new(cell: Cell, permit: Permit, sandbox: Sandbox) -> Self {
        let (claim, cpu_seen, transcript, network, gate) = Default::default();
        let (pip, layer, environ) = Default::default();
        Self {
            cell,
            permit,
            claim,
            cpu_seen,
            transcript,
            network,
            gate,
            environ,
            pip,
            layer,
            sandbox,
        }
    }
}

impl Default for KernelState {
    fn default() -> Self {
        Self::Absent { lost: None }
    }
}

impl KernelState {
    pub(crate) fn lost(why: impl Into<String>) -> Self {
        Self::Absent { lost: Some(why.into()) }
    }

    pub(crate) fn is_live(&self) -> bool {
        matches!(self, Self::Live(_))
    }

    pub(crate) fn live(&self) -> Option<&Kernel> {
        match self {
            Self::Live(kernel) => Some(kernel),
            Self::Absent { .. } | Self::Stopping { .. } => None,
        }
    }

    pub(crate) fn live_mut(&mut self) -> Option<&mut Kernel> {
        match self {
            Self::Live(kernel) => Some(kernel),
            Self::Absent { .. } | Self::Stopping { .. } => None,
        }
    }

    /// Takes a live kernel out; any other state stays.
    pub(crate) fn take_live(&mut self) -> Option<Kernel> {
        match std::mem::take(self) {
            Self::Live(kernel) => Some(*kernel),
            other @ (Self::Absent { .. } | Self::Stopping { .. }) => {
                *self = other;
                None
            }
        }
    }

    /// Why the previous kernel ended, if there was one.
    pub(crate) fn why_lost(&self) -> Option<&str> {
        match self {
            Self::Absent { lost } => lost.as_deref(),
            Self::Stopping { lost, .. } => Some(lost),
            Self::Live(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::KernelState;

    #[tokio::test]
    async fn a_state_without_a_kernel_says_why_and_stays_when_one_is_taken() {
        let saving = tokio::spawn(async {});
        let table = [
            (KernelState::default(), None),
            (KernelState::lost("idle"), Some("idle")),
            (KernelState::Stopping { lost: "evicted".to_owned(), saving }, Some("evicted")),
        ];
        for (mut state, why) in table {
            assert!(!state.is_live() && state.live().is_none() && state.live_mut().is_none());
            assert!(state.take_live().is_none());
            assert_eq!(state.why_lost(), why, "nothing was taken");
        }
    }
}
