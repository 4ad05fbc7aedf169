//! Refused requests in the audit trail: the first of a kind at once, further ones as a number, once a
//! minute. A flood of them takes a few rows, and no room from other records.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, Weak};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::{Service, Shared};
use crate::model::caller::CallerId;
use crate::storage::db::{AuditEntry, bounded};
use crate::workspace::Workspaces;
use woma_sandbox::sync::lock;

/// How often repeated refusals are written.
const TOLD_EVERY: Duration = Duration::from_mins(1);
/// Kinds of refusals that are told apart in that time; further ones are counted together.
const KINDS_MAX: usize = 64;
/// Owner of rows about requests without a valid key.
const ANONYMOUS: &str = "anonymous";
/// Action of these rows.
const REFUSED: &str = "refused";

/// A request that was refused. Equal ones are counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RefusedRequest {
    /// `None` if the request had no valid key.
    pub caller: Option<CallerId>,
    /// Method and route, or tool.
    pub request: String,
    /// Code of the error.
    pub reason: &'static str,
    pub peer: Option<IpAddr>,
}

/// Refusals of the current minute.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    /// How often each kind came again since it was written.
    kinds: BTreeMap<RefusedRequest, u64>,
    /// Refusals of further kinds.
    others: u64,
}

impl Refusals {
    /// Whether this is the first of its kind, which is to be written at once.
    fn is_first(&self, refused: &RefusedRequest) -> bool {
        let mut counted = lock(&self.0);
        if let Some(times) = counted.kinds.get_mut(refused) {
            *times += 1;
            return false;
        }
        if counted.kinds.len() >= KINDS_MAX {
            counted.others += 1;
            return false;
        }
        counted.kinds.insert(refused.clone(), 0);
        true
    }

    /// Entries of the kinds that came again, with how often; the next of each kind is a first one.
    fn take(&self) -> Vec<AuditEntry> {
        let Counted { kinds, others } = std::mem::take(&mut *lock(&self.0));
        let again = kinds.iter().filter(|(_, times)| **times > 0);
        let mut entries: Vec<_> = again.map(|(kind, times)| entry(kind, *times)).collect();
        if others > 0 {
            let (caller, peer, reason) = (None, None, "various");
            let kind = RefusedRequest { caller, request: "others".to_owned(), reason, peer };
            entries.push(entry(&kind, others));
        }
        entries
    }
}

fn entry(refused: &RefusedRequest, times: u64) -> AuditEntry {
    let RefusedRequest { caller, request, reason, peer } = refused;
    let detail = json!({ "request": request, "code": reason, "peer": peer, "times": times });
    AuditEntry {
        at: Timestamp::now(),
        owner: caller.as_ref().map_or(ANONYMOUS, CallerId::as_str).to_owned(),
        action: REFUSED.to_owned(),
        session_id: None,
        execution_id: None,
        detail: bounded(&detail),
    }
}

impl Service {
    /// Records that a request was refused.
    pub fn note_refusal(&self, refused: &RefusedRequest) {
        if self.shared.refusals.is_first(refused) {
            self.record(entry(refused, 1));
        }
    }

    /// Writes the refusals that were counted and not written yet.
    pub(super) fn tell_refusals(&self) {
        if let Some(workspaces) = &self.workspaces {
            tell(&self.shared, workspaces);
        }
    }
}

fn tell(shared: &Shared, workspaces: &Workspaces) {
    for entry in shared.refusals.take() {
        super::records::record(workspaces, entry);
    }
}

/// Ends with the service.
pub(super) async fn keep_telling(shared: Weak<Shared>, workspaces: Weak<Workspaces>) {
    loop {
        tokio::time::sleep(TOLD_EVERY).await;
        let Some((shared, workspaces)) = shared.upgrade().zip(workspaces.upgrade()) else { return };
        tell(&shared, &workspaces);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(request: &str) -> RefusedRequest {
        let request = request.to_owned();
        RefusedRequest { caller: None, request, reason: "unauthenticated", peer: None }
    }

    #[test]
    fn the_first_of_a_kind_is_written_and_the_others_are_counted() {
        let refusals = Refusals::default();
        assert!(refusals.is_first(&kind("a")));
        assert!((0..5).all(|_| !refusals.is_first(&kind("a"))));
        assert!(refusals.is_first(&kind("b")));
        let told = refusals.take();
        assert_eq!(told.len(), 1, "what came once is written already");
        assert!(told[0].detail.contains("\"times\":5") && told[0].owner == ANONYMOUS, "{told:?}");
        assert!(refusals.take().is_empty() && refusals.is_first(&kind("a")));
    }

    #[test]
    fn a_flood_of_kinds_takes_a_bounded_number_of_rows() {
        let refusals = Refusals::default();
        let kinds = (0..KINDS_MAX + 1_000).map(|number| kind(&number.to_string()));
        let written = kinds.filter(|kind| refusals.is_first(kind)).count();
        assert_eq!(written, KINDS_MAX);
        let told = refusals.take();
        assert_eq!(told.len(), 1);
        assert!(told[0].detail.contains("\"times\":1000"), "{told:?}");
    }
}
