//! Sessions that a process keeps for itself, among those that share a data folder.

use super::Service;
use crate::error::Error;
use crate::model::SessionId;
use crate::model::caller::Caller;
use crate::storage::claims::{Claim, NotClaimed};

impl Service {
    /// Keeps a session from other processes for as long as the claim is held; `None` if another one
    /// has it.
    pub fn claim_session(&self, caller: &Caller, id: &SessionId) -> Result<Option<Claim>, Error> {
        match self.workspaces()?.storage.claim(&caller.id, id) {
            Ok(claim) => Ok(Some(claim)),
            Err(NotClaimed::Held(_)) => Ok(None),
            Err(NotClaimed::Io(error)) => Err(error.into()),
        }
    }
}
