//! Hosts that code was not allowed to reach or could not reach, until a reply has named them.

use std::sync::Mutex;

use woma_sandbox::sync::lock;

use super::refusal::Refusal;
use crate::model::EventKind;

/// Refusals that one reply tells of.
const TOLD_MAX: usize = 20;

/// Refusals in one room since the last reply.
#[derive(Debug, Default)]
pub(crate) struct Report(Mutex<Vec<Refused>>);

/// One host that was not reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) host: String,
    pub(crate) message: String,
    /// Set if the rules forbid it.
    pub(crate) event: Option<EventKind>,
}

impl Report {
    /// Adds a refusal; false if the same is there already.
    pub(super) fn add(&self, refusal: &Refusal) -> bool {
        let refused = Refused {
            host: refusal.host.clone(),
            message: refusal.to_string(),
            event: refusal.event(),
        };
        let mut all = lock(&self.0);
        if all.len() >= TOLD_MAX || all.contains(&refused) {
            return false;
        }
        all.push(refused);
        true
    }

    pub(crate) fn take(&self) -> Vec<Refused> {
        std::mem::take(&mut lock(&self.0))
    }
}
