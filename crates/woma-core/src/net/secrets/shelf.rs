//! Which secrets a session has: the operator's for its caller, and its own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use woma_sandbox::sync::lock;

use super::define::BadSecret;
use super::placeholder::Placeholders;
use super::{Placed, Secret, SessionSecrets};
use crate::model::caller::{Caller, CallerId};
use crate::model::{NewSecret, SessionId};
use crate::shares::{Permit, Shares};

/// Secrets of one session's own.
const OF_SESSION_MAX: usize = 32;
/// Secrets of all sessions that callers have defined, shared among callers.
pub(crate) const OF_CALLERS_MAX: usize = 10_000;
/// Secrets of the operator.
const OF_OPERATOR_MAX: usize = 256;

/// Secrets of the operator, each with the callers that may use it.
#[derive(Debug, Clone, Default)]
pub struct OperatorSecrets(Vec<(Arc<Secret>, Option<Vec<String>>)>);

impl OperatorSecrets {
    /// `callers`: names of keys, or ids such as `local` or `jwt:<subject>@<issuer>`; `None` for all.
    pub fn new(
        defined: impl IntoIterator<Item = (NewSecret, Option<Vec<String>>)>,
    ) -> Result<Self, BadSecret> {
        let mut secrets: Vec<(Arc<Secret>, Option<Vec<String>>)> = Vec::new();
        for (secret, callers) in defined {
            if secrets.len() >= OF_OPERATOR_MAX {
                let reason = format!("there are {OF_OPERATOR_MAX} secrets at most");
                return Err(BadSecret::new(&secret.name, reason));
            }
            secrets.push((secret.check()?, callers));
        }
        Ok(Self(secrets))
    }

    fn of<'a>(&'a self, caller: &'a Caller) -> impl Iterator<Item = &'a Arc<Secret>> {
        let may = |callers: &Option<Vec<String>>| {
            callers.as_ref().is_none_or(|callers| callers.iter().any(|one| is_meant(one, caller)))
        };
        self.0.iter().filter(move |(_, callers)| may(callers)).map(|(secret, _)| secret)
    }
}

/// The name of a token is the issuer's choice, so only a key is known by its name.
fn is_meant(named: &str, caller: &Caller) -> bool {
    let id = caller.id.as_str();
    named == id || (id.starts_with("key:") && named == caller.name)
}

/// Secrets that callers have given to a session.
#[derive(Debug)]
struct Own {
    secrets: Vec<Arc<Secret>>,
    _places: Vec<Permit>,
}

/// All secrets of a server. Nothing of it is written anywhere.
#[derive(Debug)]
pub(crate) struct SecretShelf {
    operator: OperatorSecrets,
    placeholders: Placeholders,
    own: Mutex<BTreeMap<(CallerId, SessionId), Own>>,
    places: Arc<Shares>,
}

/// Why secrets were not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    #[error(transparent)]
    Bad(BadSecret),
    #[error("the secret `{0}` is there twice")]
    Twice(String),
    #[error("a session may have {0} secrets")]
    TooMany(usize),
    /// Those of all sessions of the caller.
    #[error("the sessions of one caller may have {0} secrets in all")]
    NoPlace(usize),
}

impl SecretShelf {
    pub(crate) fn new(
        operator: OperatorSecrets,
        placeholders: Placeholders,
        places: usize,
    ) -> Self {
        let places = Arc::new(Shares::new(places));
        Self { operator, placeholders, own: Mutex::default(), places }
    }

    /// Checks secrets that a session is to have.
    pub(crate) fn check(wanted: Vec<NewSecret>) -> Result<Vec<Arc<Secret>>, NotTaken> {
        if wanted.len() > OF_SESSION_MAX {
            return Err(NotTaken::TooMany(OF_SESSION_MAX));
        }
        let mut secrets: Vec<Arc<Secret>> = Vec::new();
        for one in wanted {
            let secret = one.check().map_err(NotTaken::Bad)?;
            if secrets.iter().any(|other| other.name == secret.name) {
                return Err(NotTaken::Twice(secret.name.clone()));
            }
            secrets.push(secret);
        }
        Ok(secrets)
    }

    /// Gives a session these secrets, in place of those that it had of its own.
    pub(crate) fn put(
        &self,
        owner: &CallerId,
        session: &SessionId,
        secrets: Vec<Arc<Secret>>,
    ) -> Result<(), NotTaken> {
        let mut own = lock(&self.own);
        let key = (owner.clone(), session.clone());
        let earlier = own.remove(&key);
        if secrets.is_empty() {
            return Ok(());
        }
        let mut places = Vec::new();
        for _ in &secrets {
            match self.places.take(owner) {
                Some(place) => places.push(place),
                None => {
                    own.extend(earlier.map(|earlier| (key, earlier)));
                    return Err(NotTaken::NoPlace(self.places.most(owner)));
                }
            }
        }
        own.insert(key, Own { secrets, _places: places });
        Ok(())
    }

    /// Forgets what a deleted session had.
    pub(crate) fn remove(&self, owner: &CallerId, session: &SessionId) {
        lock(&self.own).remove(&(owner.clone(), session.clone()));
    }

    /// Names of a session's own secrets.
    #[cfg(test)]
    fn names(&self, owner: &CallerId, session: &SessionId) -> Vec<String> {
        let own = lock(&self.own);
        let own = own.get(&(owner.clone(), session.clone()));
        own.into_iter().flat_map(|own| &own.secrets).map(|secret| secret.name.clone()).collect()
    }

    /// The secrets of a session, or of one run without a session; `None` if they are the current
    /// ones. A secret of its own takes the place of the operator's of the same name.
    pub(crate) fn changed(
        &self,
        caller: &Caller,
        session: Option<&SessionId>,
        run: &str,
        current: &SessionSecrets,
    ) -> Option<SessionSecrets> {
        let mut secrets: BTreeMap<&str, Arc<Secret>> = self
            .operator
            .of(caller)
            .map(|secret| (secret.name.as_str(), Arc::clone(secret)))
            .collect();
        let own = lock(&self.own);
        let key = session.map(|session| (caller.id.clone(), session.clone()));
        if let Some(own) = key.and_then(|key| own.get(&key)) {
            let own = own.secrets.iter();
            secrets.extend(own.map(|secret| (secret.name.as_str(), Arc::clone(secret))));
        }
        if secrets.is_empty() && current.is_empty() {
            return None;
        }
        let named =
            session.map_or_else(|| format!("/{run}"), |session| session.as_str().to_owned());
        let placed = secrets.into_iter().map(|(name, secret)| Placed {
            placeholder: self.placeholders.of(&caller.id, &named, name),
            secret,
        });
        let placed: Vec<_> = placed.collect();
        (!current.is_of(&placed)).then(|| SessionSecrets::new(placed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(name: &str, value: &str) -> NewSecret {
        let hosts = vec!["a.test".to_owned()];
        NewSecret { name: name.to_owned(), value: value.to_owned(), hosts, places: Vec::new() }
    }

    fn caller(id: &str, name: &str) -> Caller {
        Caller { id: CallerId::new(id), name: name.to_owned(), ..Caller::local() }
    }

    fn shelf(operator: OperatorSecrets, places: usize) -> SecretShelf {
        SecretShelf::new(operator, Placeholders::new([7; 32]), places)
    }

    fn shown(secrets: Option<SessionSecrets>) -> Vec<(String, String)> {
        let placed = secrets.unwrap_or_default().placed;
        let shown = |one: &Placed| (one.secret.name.clone(), one.secret.value.expose().to_owned());
        placed.iter().map(shown).collect()
    }

    #[test]
    fn an_operator_s_secret_is_for_the_callers_that_it_names() {
        let operator = OperatorSecrets::new([
            (secret("ALL", "value-of-all"), None),
            (secret("ONE", "value-of-one"), Some(vec!["team".to_owned(), "local".to_owned()])),
        ]);
        let shelf = shelf(operator.unwrap(), 10);
        let has = |caller: &Caller| {
            shown(shelf.changed(caller, None, "r", &SessionSecrets::default())).len()
        };
        assert_eq!(has(&caller("key:1", "team")), 2);
        assert_eq!(has(&Caller::local()), 2);
        assert_eq!(has(&caller("key:1", "other")), 1);
        // An issuer names its subjects as it likes.
        assert_eq!(has(&caller("jwt:team@issuer", "team")), 1);
    }

    #[test]
    fn a_session_s_own_secret_comes_before_the_operator_s() {
        let operator = OperatorSecrets::new([(secret("KEY", "of-the-operator"), None)]).unwrap();
        let shelf = shelf(operator, 10);
        let (caller, session) = (Caller::local(), SessionId::parse("s").unwrap());
        let none = SessionSecrets::default();
        let before = shelf.changed(&caller, Some(&session), "r", &none).unwrap();
        assert!(shelf.changed(&caller, Some(&session), "r", &before).is_none(), "unchanged");
        let own = SecretShelf::check(vec![secret("KEY", "of-the-session")]).unwrap();
        shelf.put(&caller.id, &session, own).unwrap();
        let after = shelf.changed(&caller, Some(&session), "r", &before);
        assert_eq!(after.as_ref().unwrap().placed[0].placeholder, before.placed[0].placeholder);
        assert_eq!(shown(after), [("KEY".to_owned(), "of-the-session".to_owned())]);
        assert_eq!(shelf.names(&caller.id, &session), ["KEY"]);
        let other = SessionId::parse("t").unwrap();
        let others = shelf.changed(&caller, Some(&other), "r", &none).unwrap();
        assert_ne!(others.placed[0].placeholder, before.placed[0].placeholder);
        shelf.remove(&caller.id, &session);
        assert!(shelf.names(&caller.id, &session).is_empty());
    }

    #[test]
    fn sessions_and_callers_have_a_number_of_secrets() {
        let shelf = shelf(OperatorSecrets::default(), 16);
        let many = |count: usize| {
            (0..count).map(|one| secret(&format!("K{one}"), "12345678")).collect::<Vec<_>>()
        };
        assert_eq!(SecretShelf::check(many(33)).unwrap_err(), NotTaken::TooMany(32));
        let twice = vec![secret("K", "12345678"), secret("K", "12345678")];
        assert_eq!(SecretShelf::check(twice).unwrap_err(), NotTaken::Twice("K".to_owned()));
        let (one, session) = (CallerId::new("one"), SessionId::parse("s").unwrap());
        shelf.put(&one, &session, SecretShelf::check(many(14)).unwrap()).unwrap();
        let refused = shelf.put(&one, &session, SecretShelf::check(many(15)).unwrap());
        assert_eq!(refused.unwrap_err(), NotTaken::NoPlace(14));
        assert_eq!(shelf.names(&one, &session).len(), 14, "what it had stays");
        let other = CallerId::new("other");
        shelf.put(&other, &session, SecretShelf::check(many(2)).unwrap()).unwrap();
        shelf.put(&one, &session, Vec::new()).unwrap();
        assert!(shelf.names(&one, &session).is_empty());
        let of_operator = many(257).into_iter().map(|secret| (secret, None));
        let refused = OperatorSecrets::new(of_operator).unwrap_err().to_string();
        assert!(refused.contains("256 secrets at most"), "{refused}");
    }
}
