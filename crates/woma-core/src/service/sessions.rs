//! Creating sessions, changing what is said of them, and ending those whose lifetime is over.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Removal, Service, Shared};
use crate::error::Error;
use crate::execution::Executor;
use crate::model::caller::Caller;
use crate::model::{NewSession, SessionChange, SessionId, SessionInfo};
use crate::net::egress::NetworkRules;
use crate::policy::Rules;
use crate::session::state::Label;
use crate::session::table::Sessions;
use crate::workspace::Workspaces;

/// Longest name or description of a session, in characters.
const NAME_CHARS_MAX: usize = 1_000;
/// Labels of a session; characters of a label's name, and of its value.
const LABELS_MAX: usize = 32;
const LABEL_NAME_CHARS_MAX: usize = 64;
const LABEL_VALUE_CHARS_MAX: usize = 256;
/// Longest lifetime that a session may ask for, ten years; `SESSION_TTL_HOURS` may allow less.
const LIFETIME_MAX: Duration = Duration::from_hours(24 * 3650);

impl Service {
    pub async fn create_session(
        &self,
        caller: &Caller,
        wanted: NewSession,
    ) -> Result<SessionInfo, Error> {
        caller.may_execute()?;
        let NewSession { id, name, description, labels, lifetime, .. } = wanted;
        let NewSession { policy, environment, network, secrets, use_container, .. } = wanted;
        if use_container {
            self.executor.sandbox.check_containers().map_err(|_| Error::NoContainers)?;
        }
        check_texts(name.as_deref(), Some(&description))?;
        check_labels(&labels)?;
        self.check_lifetime(lifetime)?;
        let policies = &self.shared.settings.policies;
        let environment = environment.filter(|name| name != "default");
        if let Some(name) = &environment {
            self.executor.environments.about(name)?;
        }
        let rules = policies.of_session(caller, policy.as_deref(), environment.as_deref())?;
        let network =
            network.map(|text| self.network_of(caller, rules.as_deref(), &text)).transpose()?;
        let secrets = self.check_secrets(caller, rules.as_deref(), network.as_ref(), secrets)?;
        if let Some(id) = &id {
            self.sessions.recall(caller, id).await?;
        }
        let label = Label {
            name,
            description,
            labels,
            lifetime,
            rules,
            environment,
            network,
            in_container: use_container,
            ..Label::default()
        };
        let session = self.sessions.create(caller, id, label)?;
        let names = match self.give_secrets(caller, &session.id, secrets) {
            Ok(names) => names,
            Err(error) => {
                self.remove_session(caller, &session.id, Removal::Deleted).await?;
                return Err(error);
            }
        };
        session.network.set_named(names);
        self.sessions.remember(caller, &session).await;
        self.note(caller, "create_session", Some(&session.id), &json!({}));
        Ok(self.sessions.info(&session))
    }

    /// Changes the name, the description, the labels or the lifetime of a session.
    pub async fn change_session(
        &self,
        caller: &Caller,
        id: &SessionId,
        mut change: SessionChange,
    ) -> Result<SessionInfo, Error> {
        caller.may_execute()?;
        check_texts(change.name.as_deref(), change.description.as_deref())?;
        if let Some(labels) = &change.labels {
            check_labels(labels)?;
        }
        self.check_lifetime(change.lifetime.flatten())?;
        self.sessions.recall(caller, id).await?;
        let session = self.sessions.find(caller, id)?;
        if session.is_deleted() {
            return Err(Error::NoSession(id.clone()));
        }
        if let Some(network) = &change.network {
            let rules = session.rules.as_deref();
            let read = |text: &String| self.network_of(caller, rules, text);
            let network = network.as_ref().map(read).transpose()?;
            let detail = json!({ "network": network.as_ref().map(NetworkRules::to_string) });
            session.network.choose(network);
            self.note(caller, "change_network", Some(id), &detail);
        }
        if let Some(secrets) = change.secrets.take() {
            let network = session.network.own();
            let rules = session.rules.as_deref();
            let secrets = self.check_secrets(caller, rules, network.as_deref(), secrets)?;
            let names = self.give_secrets(caller, id, secrets)?;
            self.note(caller, "change_secrets", Some(id), &json!({ "names": names }));
            session.network.set_named(names);
            // Connections that have the earlier ones end now, not with the next run.
            let current = session.network.secrets();
            let shelf = &self.executor.secrets;
            if let Some(changed) = shelf.changed(caller, Some(id), "", &current) {
                session.network.set_secrets(changed);
            }
        }
        session.relabel(change);
        self.sessions.remember(caller, &session).await;
        self.note(caller, "change_session", Some(id), &json!({}));
        Ok(self.sessions.info(&session))
    }

    /// The rules that a session asks for, which must be within those of its caller and its policy.
    fn network_of(
        &self,
        caller: &Caller,
        own: Option<&Rules>,
        text: &str,
    ) -> Result<NetworkRules, Error> {
        let wanted: NetworkRules = text.parse()?;
        self.within_network(caller, own, &wanted)?;
        Ok(wanted)
    }

    /// Checks that rules are within those of a caller and a policy.
    pub(super) fn within_network(
        &self,
        caller: &Caller,
        own: Option<&Rules>,
        wanted: &NetworkRules,
    ) -> Result<(), Error> {
        let policy = match own {
            Some(_) => None,
            None => Some(self.shared.settings.policies.of(caller)?),
        };
        let policy = own.or(policy.as_deref()).map_or(&[][..], |rules| &rules.network);
        let caller_rules = self.executor.egress.rules_of(caller);
        for outer in policy.iter().chain([&caller_rules]) {
            if let Some(beyond) = wanted.beyond(outer) {
                return Err(Error::NetworkBeyond { wanted: beyond, allowed: outer.told() });
            }
        }
        Ok(())
    }

    fn check_lifetime(&self, lifetime: Option<Duration>) -> Result<(), Error> {
        let Some(lifetime) = lifetime else { return Ok(()) };
        let storage = self.shared.settings.storage.as_ref();
        let most = storage.and_then(|storage| storage.session_ttl).unwrap_or(LIFETIME_MAX);
        let most = most.min(LIFETIME_MAX);
        match (Duration::from_secs(1)..=most).contains(&lifetime) {
            true => Ok(()),
            false => Err(Error::Lifetime { limit_s: most.as_secs() }),
        }
    }

    /// Deletes the sessions at hand whose own lifetime is over.
    async fn end_outlived(&self) {
        for (owner, id) in self.sessions.outlived(Instant::now()) {
            if !self.executor.jobs.of_session(&owner, &id).is_empty() {
                continue;
            }
            let caller = Caller { id: owner, ..Caller::local() };
            match self.remove_session(&caller, &id, Removal::Expired).await {
                Ok(()) | Err(Error::NoSession(_)) => {}
                Err(error) => tracing::warn!(%error, session = %id, "A session outlives its time"),
            }
        }
    }
}

/// The parts of a service, for a task that does not keep it alive.
pub(super) struct WeakService {
    executor: Weak<Executor>,
    sessions: Weak<Sessions>,
    workspaces: Option<Weak<Workspaces>>,
    shared: Weak<Shared>,
}

impl WeakService {
    pub(super) fn of(service: &Service) -> Self {
        Self {
            executor: Arc::downgrade(&service.executor),
            sessions: Arc::downgrade(&service.sessions),
            workspaces: service.workspaces.as_ref().map(Arc::downgrade),
            shared: Arc::downgrade(&service.shared),
        }
    }

    fn upgrade(&self) -> Option<Service> {
        let workspaces = match &self.workspaces {
            Some(workspaces) => Some(workspaces.upgrade()?),
            None => None,
        };
        Some(Service {
            executor: self.executor.upgrade()?,
            sessions: self.sessions.upgrade()?,
            workspaces,
            shared: self.shared.upgrade()?,
        })
    }
}

/// Ends sessions at the end of their lifetimes; ends with the service.
pub(super) async fn keep_lifetimes(service: WeakService, tick: Duration) {
    loop {
        tokio::time::sleep(tick).await;
        let Some(service) = service.upgrade() else { return };
        service.end_outlived().await;
    }
}

fn check_texts(name: Option<&str>, description: Option<&str>) -> Result<(), Error> {
    for (what, text) in [("name", name), ("description", description)] {
        if text.is_some_and(|text| text.chars().count() > NAME_CHARS_MAX) {
            return Err(Error::LabelTooLong { what, limit_chars: NAME_CHARS_MAX });
        }
    }
    Ok(())
}

fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), Error> {
    if labels.len() > LABELS_MAX {
        return Err(Error::TooManyLabels { limit: LABELS_MAX });
    }
    for (name, value) in labels {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
        if name.is_empty() || name.len() > LABEL_NAME_CHARS_MAX || !name.chars().all(is_plain) {
            return Err(Error::BadLabel(name.escape_debug().take(80).collect()));
        }
        if value.chars().count() > LABEL_VALUE_CHARS_MAX {
            let limit_chars = LABEL_VALUE_CHARS_MAX;
            return Err(Error::LabelTooLong { what: "value of a label", limit_chars });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_bounded_names_and_values() {
        let labels =
            |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        let (long, value) = ("n".repeat(64), "é".repeat(256));
        for (name, value) in [("a", ""), ("team/x-1_y.z", "ö"), (&*long, "v"), ("a", &*value)] {
            assert!(check_labels(&labels(name, value)).is_ok(), "{name}");
        }
        let long = "n".repeat(65);
        for name in ["", "a b", "a=b", "é", &*long] {
            let error = check_labels(&labels(name, "v")).unwrap_err();
            assert!(matches!(error, Error::BadLabel(_)), "{name}");
        }
        let error = check_labels(&labels("a", &"é".repeat(257))).unwrap_err();
        assert!(matches!(error, Error::LabelTooLong { limit_chars: 256, .. }));
        let many = |count: usize| (0..count).map(|n| (n.to_string(), String::new())).collect();
        assert!(check_labels(&many(LABELS_MAX)).is_ok());
        let error = check_labels(&many(LABELS_MAX + 1)).unwrap_err();
        assert!(matches!(error, Error::TooManyLabels { limit: 32 }));
    }
}
