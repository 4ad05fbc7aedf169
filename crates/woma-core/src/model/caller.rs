//! Callers: an identity that owns sessions, its scopes and its quota.
//!
//! A surface proves who a caller is (see `access/keys`); from there on this type is believed.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The id of the one caller of a server without keys.
const LOCAL: &str = "local";
const DEFAULT_KEY: &str = "key:default";

/// The part of a limit of the whole server that one caller may take at an entry point: connections,
/// protocol sessions, tasks. The rest is for others.
pub const fn share_of_caller(limit: usize) -> usize {
    limit / 2
}

/// A caller of the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub id: CallerId,
    /// For people: the name of the key, or the subject of the token.
    pub name: String,
    pub scopes: Scopes,
    pub quota: Quota,
    /// The rules for its code, in place of the server's.
    pub policy: Option<Arc<str>>,
    /// The rules of its network, in place of the server's.
    pub network: Option<Arc<str>>,
}

/// A key does not have the scope that a call needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this key lacks the scope `{scope}`")]
pub struct Forbidden {
    pub scope: &'static str,
}

impl Caller {
    pub(crate) fn may_execute(&self) -> Result<(), Forbidden> {
        if self.scopes.execute { Ok(()) } else { Err(Forbidden { scope: "execute" }) }
    }

    /// A caller who may run code may look at what it did.
    pub(crate) fn may_read(&self) -> Result<(), Forbidden> {
        let may = self.scopes.read || self.scopes.execute;
        if may { Ok(()) } else { Err(Forbidden { scope: "read" }) }
    }

    /// Jobs that are due later, or that repeat.
    pub(crate) fn may_schedule(&self) -> Result<(), Forbidden> {
        self.may_execute()?;
        if self.scopes.schedule { Ok(()) } else { Err(Forbidden { scope: "schedule" }) }
    }

    /// Any client of a server without keys, and the user of the command line.
    pub fn local() -> Self {
        Self {
            id: CallerId::new(LOCAL),
            name: "local".to_owned(),
            scopes: Scopes::all(),
            quota: Quota::default(),
            policy: None,
            network: None,
        }
    }
}

/// Owner of sessions, files and limits: `local`, `key:default` for `API_KEY`, `key:<id>`
/// for a named key, `jwt:<subject>@<issuer>` for a token.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallerId(Arc<str>);

impl CallerId {
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self(id.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The caller with the server's `API_KEY`.
    pub fn default_key() -> Self {
        Self::new(DEFAULT_KEY)
    }

    pub fn is_default_key(&self) -> bool {
        self.as_str() == DEFAULT_KEY
    }

    /// Whether it is the only caller that its server has.
    pub(crate) fn is_local(&self) -> bool {
        self.as_str() == LOCAL
    }
}

impl fmt::Display for CallerId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Serialize for CallerId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// One thing that a caller may be allowed to do. None of them contains another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Run code, make and end sessions, write files.
    Execute,
    /// Look at one's own sessions, output and files.
    Read,
    /// See metrics and what belongs to the server as a whole.
    Admin,
    /// Have jobs run later, or repeatedly.
    Schedule,
}

impl Scope {
    pub const ALL: [Self; 4] = [Self::Execute, Self::Read, Self::Admin, Self::Schedule];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Execute => "execute",
            Self::Read => "read",
            Self::Admin => "admin",
            Self::Schedule => "schedule",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no scope: use execute, read, admin or schedule")]
pub struct UnknownScope(String);

impl FromStr for Scope {
    type Err = UnknownScope;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|scope| scope.as_str() == text);
        found.ok_or_else(|| UnknownScope(text.to_owned()))
    }
}

/// Permissions of a caller. Written as a list of words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "a set of four words")]
pub struct Scopes {
    pub execute: bool,
    pub read: bool,
    pub admin: bool,
    pub schedule: bool,
}

impl Scopes {
    pub const fn all() -> Self {
        Self { execute: true, read: true, admin: true, schedule: true }
    }

    pub const fn none() -> Self {
        Self { execute: false, read: false, admin: false, schedule: false }
    }

    /// The default: using the service, but not its inner workings.
    pub const fn usual() -> Self {
        Self { execute: true, read: true, admin: false, schedule: false }
    }

    pub const fn allows(self, scope: Scope) -> bool {
        match scope {
            Scope::Execute => self.execute,
            Scope::Read => self.read,
            Scope::Admin => self.admin,
            Scope::Schedule => self.schedule,
        }
    }

    /// In a fixed order.
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.allows(*scope))
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        scopes.into_iter().fold(Self::none(), |mut all, scope| {
            match scope {
                Scope::Execute => all.execute = true,
                Scope::Read => all.read = true,
                Scope::Admin => all.admin = true,
                Scope::Schedule => all.schedule = true,
            }
            all
        })
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.iter().map(Scope::as_str).collect();
        formatter.write_str(&words.join(","))
    }
}

impl Serialize for Scopes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(Scope::as_str))
    }
}

impl<'de> Deserialize<'de> for Scopes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let words = Vec::<String>::deserialize(deserializer)?;
        words.iter().map(|word| word.parse().map_err(D::Error::custom)).collect()
    }
}

/// How much a caller may use. What is not set here is limited by the server's own settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executions_per_minute: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::{Caller, CallerId, Forbidden, Scope, Scopes};

    #[test]
    fn scopes_are_written_as_words_and_read_back() {
        let table = [
            (Scopes::none(), "[]"),
            (Scopes::usual(), r#"["execute","read"]"#),
            (Scopes::all(), r#"["execute","read","admin","schedule"]"#),
            ([Scope::Admin].into_iter().collect(), r#"["admin"]"#),
        ];
        for (scopes, text) in table {
            assert_eq!(serde_json::to_string(&scopes).unwrap(), text);
            assert_eq!(serde_json::from_str::<Scopes>(text).unwrap(), scopes);
        }
    }

    #[test]
    fn an_unknown_scope_is_an_error_and_never_a_missing_one() {
        let error = serde_json::from_str::<Scopes>(r#"["read","Execute"]"#).unwrap_err();
        assert!(error.to_string().contains("`Execute` is no scope"), "{error}");
    }

    #[test]
    fn no_scope_contains_another() {
        for one in Scope::ALL {
            let scopes: Scopes = [one].into_iter().collect();
            for other in Scope::ALL {
                assert_eq!(scopes.allows(other), one == other, "{one} and {other}");
            }
        }
    }

    #[test]
    fn the_local_caller_may_do_everything() {
        let caller = Caller::local();
        assert_eq!(caller.id.to_string(), "local");
        assert_eq!(caller.scopes, Scopes::all());
        assert_eq!(caller.quota.sessions, None);
    }

    #[test]
    fn a_call_needs_its_scope_and_who_may_run_code_may_read() {
        let caller = |scopes| Caller { scopes, ..Caller::local() };
        let (execute, read) = (Forbidden { scope: "execute" }, Forbidden { scope: "read" });
        let table = [
            (Scopes::none(), Err(execute), Err(read)),
            (Scopes { read: true, ..Scopes::none() }, Err(execute), Ok(())),
            (Scopes { execute: true, ..Scopes::none() }, Ok(()), Ok(())),
            (Scopes { admin: true, ..Scopes::none() }, Err(execute), Err(read)),
        ];
        for (scopes, may_execute, may_read) in table {
            let caller = caller(scopes);
            assert_eq!((caller.may_execute(), caller.may_read()), (may_execute, may_read));
        }
        assert_eq!(execute.to_string(), "this key lacks the scope `execute`");
        let schedule = Err(Forbidden { scope: "schedule" });
        assert_eq!(caller(Scopes::usual()).may_schedule(), schedule);
        let alone = Scopes { schedule: true, ..Scopes::none() };
        assert_eq!(caller(alone).may_schedule(), Err(execute), "code runs then");
        assert_eq!(caller(Scopes::all()).may_schedule(), Ok(()));
    }

    #[test]
    fn ids_tell_the_local_caller_and_the_one_with_the_configured_key() {
        let (default, named) = (CallerId::default_key(), CallerId::new("key:0123"));
        assert_eq!(default.as_str(), "key:default");
        let local = Caller::local().id;
        assert_eq!([&default, &named, &local].map(CallerId::is_default_key), [true, false, false]);
        assert_eq!([&default, &named, &local].map(CallerId::is_local), [false, false, true]);
        assert_eq!(serde_json::to_string(&named).unwrap(), "\"key:0123\"");
    }

    #[test]
    fn scopes_are_displayed_as_words() {
        assert_eq!(Scopes::all().to_string(), "execute,read,admin,schedule");
        assert_eq!(Scopes::none().to_string(), "");
        assert_eq!(Scope::Admin.to_string(), "admin");
    }
}
