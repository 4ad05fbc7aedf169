//! Checking code without running it.

use super::Service;
use crate::error::Error;
use crate::execution::request::check_source;
use crate::model::SessionId;
use crate::model::caller::Caller;
use crate::policy::{self, Verdict};

impl Service {
    /// Reviews a program under the rules that would hold for it, and does not run it.
    pub async fn validate(
        &self,
        caller: &Caller,
        source: &str,
        session: Option<&SessionId>,
        allowed_imports: Option<&[String]>,
    ) -> Result<Verdict, Error> {
        caller.may_read()?;
        let settings = &self.shared.settings;
        check_source(source, settings.source_bytes_max)?;
        let session = session.and_then(|id| self.sessions.find(caller, id).ok());
        let version = match &session {
            Some(session) => self.executor.facts_of(session)?.version,
            None => settings.environment.version,
        };
        let rules = match session.and_then(|session| session.rules.clone()) {
            Some(rules) => rules,
            None => settings.policies.of(caller)?,
        };
        let rules = policy::narrowed(rules, allowed_imports);
        policy::judge(rules, source, version).await
    }
}
