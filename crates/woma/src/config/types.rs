//! Types of [`super::Config`]'s fields, and the conversion of values to them.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use woma_core::{Isolation, NetworkRules, PlacedHosts, ReserveSize, Rung};

use super::network::Network;
use super::value::Value;

/// Conversion of a value to a field. `None` means that the setting's kind does not fit the field's
/// type, which a test of the table rules out.
pub(crate) trait Field: Sized {
    fn from_value(value: &Value) -> Option<Self>;
}

/// Secret text, without `Display` and with an empty `Debug`. Its comparison is not constant-time;
/// key checks must use one that is.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    /// The text, for comparing and sending; never for a message.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret")
    }
}

/// Limit of a run's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputLimit {
    Bytes(u64),
    Characters(u64),
}

/// Tools in `tools/list`; all tools and aliases can be called in any case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListedTools {
    /// The canonical names without those that few need.
    Usual,
    Canonical,
    /// Aliases too.
    All,
    Names(Vec<String>),
}

/// Source of a token issuer's keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeySet {
    Url(String),
    File(PathBuf),
}

/// Proxies whose forwarded headers are believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TrustedProxies {
    None,
    /// Every address that connects is one proxy.
    Anyone,
    Listed(Vec<Network>),
}

/// Enumeration with one word per variant: the choices of the setting.
macro_rules! choices {
    ($($(#[$about:meta])* $name:ident {
        $($(#[$each:meta])* $variant:ident = $word:literal $(| $other:literal)*,)+
    })+) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $name {
            $($(#[$each])* $variant,)+
        }

        impl $name {
            pub(crate) const WORDS: &'static [&'static str] = &[$($word, $($other,)*)+];
        }

        impl Field for $name {
            fn from_value(value: &Value) -> Option<Self> {
                let Value::Text(word) = value else { return None };
                match word.as_str() {
                    $($word $(| $other)* => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    )+};
}

choices! {
    /// Replies of tools over MCP.
    ReplyForm {
        /// Only fields that are not empty, variables as changes, ids where they are needed.
        Lean = "lean",
        /// Every field, as over REST.
        Full = "full",
    }
    /// The text block of a full reply.
    TextFormat {
        Json = "json",
        Plain = "plain",
        Streams = "streams",
    }
    /// Session of a call that names no session.
    StateWithoutSession {
        /// A session of the client's own; a new one for a client whose calls nothing connects; the
        /// caller's session `default` over REST.
        Own = "own",
        /// The caller's session `default`.
        Default = "default",
        /// A new session that is kept; its id is in the reply.
        New = "new",
        /// An ephemeral session that ends with the call.
        Ephemeral = "ephemeral",
    }
    LogFormat {
        Human = "human",
        Json = "json",
    }
    LogLevel {
        Trace = "trace",
        Debug = "debug",
        Info = "info",
        Warning = "warning" | "warn",
        Error = "error" | "critical",
    }
    /// Storage of file contents.
    BlobsIn {
        /// In the data folder.
        Folder = "folder",
        /// In the database, for servers without a persistent disk.
        Database = "database",
        /// In an S3 bucket.
        S3 = "s3",
    }
    /// Libraries that a new session finds imported.
    Preload {
        /// The whole scientific stack.
        Full = "full",
        /// Those that nearly every program uses.
        Base = "base",
    }
    /// Runtime of sessions in containers.
    RuntimeName {
        /// The first of the others that is installed and works, in this order.
        Auto = "auto",
        /// gVisor: a kernel of its own for each session.
        Runsc = "runsc",
        Crun = "crun",
        Runc = "runc",
    }
    /// Effect of an import that is not allowed.
    BlockMode {
        /// Raises at its line.
        Raise = "raise",
        /// Adds a note; the program goes on without it.
        Annotate = "annotate",
        /// Rejects the whole program before it runs.
        Reject = "reject",
    }
    /// Minimum isolation for starting sessions.
    MinIsolation {
        /// Every layer of the doctor is enforced.
        Full = "full",
        /// Every wall stands; a limit or a separation may be enforced in part.
        Strong = "strong",
        /// No namespaces and mounts; Landlock, seccomp and the watchdog contain sessions.
        Restricted = "restricted",
        /// The same on a kernel that cannot keep signals inside of a session: it sends none.
        Minimal = "minimal",
    }
    /// The answer to a missing or wrong key.
    AuthFailureStatus {
        Unauthorized = "401",
        Forbidden = "403",
    }
}

impl MinIsolation {
    /// The least isolation to accept.
    pub(crate) fn lowest_rung(self) -> Rung {
        match self {
            Self::Full | Self::Strong => Rung::Rooms,
            Self::Restricted => Rung::Restricted,
            Self::Minimal => Rung::Minimal,
        }
    }

    /// The same as a level of the doctor.
    pub(crate) fn level(self) -> Isolation {
        match self {
            Self::Full => Isolation::Full,
            Self::Strong => Isolation::Strong,
            Self::Restricted => Isolation::Restricted,
            Self::Minimal => Isolation::Minimal,
        }
    }

    /// The value of the setting in the environment, for commands that read no other settings.
    pub(crate) fn of_environment() -> Result<Self, String> {
        let Some(word) = std::env::var_os("MIN_ISOLATION") else { return Ok(Self::Strong) };
        let word = word.to_string_lossy();
        Self::from_value(&Value::Text(word.trim().to_ascii_lowercase()))
            .ok_or_else(|| format!("MIN_ISOLATION is {word:?}; it is one of {:?}", Self::WORDS))
    }
}

impl AuthFailureStatus {
    pub(crate) fn code(self) -> u16 {
        match self {
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
        }
    }
}

impl LogLevel {
    /// The level as the log filter spells it.
    pub(crate) fn directive(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warning => "warn",
            Self::Error => "error",
        }
    }
}

impl<T: Field> Field for Option<T> {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Unset => Some(None),
            value => T::from_value(value).map(Some),
        }
    }
}

impl Field for bool {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Bool(value) = value { Some(*value) } else { None }
    }
}

impl Field for u64 {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Integer(number) | Value::Bytes(number) => Some(*number),
            _ => None,
        }
    }
}

impl Field for u16 {
    fn from_value(value: &Value) -> Option<Self> {
        u64::from_value(value).and_then(|number| number.try_into().ok())
    }
}

impl Field for u32 {
    fn from_value(value: &Value) -> Option<Self> {
        u64::from_value(value).and_then(|number| number.try_into().ok())
    }
}

impl Field for usize {
    fn from_value(value: &Value) -> Option<Self> {
        u64::from_value(value).and_then(|number| number.try_into().ok())
    }
}

impl Field for f64 {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Decimal(value) = value { Some(*value) } else { None }
    }
}

impl Field for Duration {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Time(value) = value { Some(*value) } else { None }
    }
}

impl Field for String {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Text(value) = value { Some(value.clone()) } else { None }
    }
}

impl Field for PathBuf {
    fn from_value(value: &Value) -> Option<Self> {
        String::from_value(value).map(Self::from)
    }
}

impl Field for Secret {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Secret(value) = value { Some(value.clone()) } else { None }
    }
}

impl Field for KeySet {
    fn from_value(value: &Value) -> Option<Self> {
        let text = String::from_value(value)?;
        Some(if text.contains("://") { Self::Url(text) } else { Self::File(text.into()) })
    }
}

impl Field for Vec<String> {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::List(items) => Some(items.clone()),
            Value::Unset => Some(Self::new()),
            _ => None,
        }
    }
}

impl Field for OutputLimit {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Bytes(count) => Some(Self::Bytes(*count)),
            Value::Characters(count) => Some(Self::Characters(*count)),
            _ => None,
        }
    }
}

impl Field for ReserveSize {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Unset => Some(Self::Usual),
            Value::Bytes(bytes) => Some(Self::Bytes(*bytes)),
            Value::Text(part) => part.strip_suffix('%')?.parse().ok().map(Self::Percent),
            _ => None,
        }
    }
}

impl Field for NetworkRules {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Unset => Some(Self::Off),
            value => String::from_value(value)?.parse().ok(),
        }
    }
}

impl Field for PlacedHosts {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Unset => Some(Self::default()),
            value => String::from_value(value)?.parse().ok(),
        }
    }
}

impl Field for TrustedProxies {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Bool(false) => Some(Self::None),
            Value::Bool(true) => Some(Self::Anyone),
            Value::List(items) => items
                .iter()
                .map(|item| Network::parse(item))
                .collect::<Option<_>>()
                .map(Self::Listed),
            _ => None,
        }
    }
}

impl Field for ListedTools {
    fn from_value(value: &Value) -> Option<Self> {
        let names = Vec::<String>::from_value(value)?;
        Some(match names.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            [] | ["usual"] => Self::Usual,
            ["canonical"] => Self::Canonical,
            ["all"] => Self::All,
            _ => Self::Names(names),
        })
    }
}
