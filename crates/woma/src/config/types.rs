//! The types of [`super::Config`]'s fields, and how a value becomes one of them.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::value::Value;

/// A value becomes a field. `None` means that the table gives the setting a kind that the field's
/// type cannot hold; a test of the table rules it out.
pub(crate) trait Field: Sized {
    fn from_value(value: &Value) -> Option<Self>;
}

/// What must not be printed. It has no `Display`, and its `Debug` tells nothing.
/// It does not compare in constant time; whoever checks a key must.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    /// For comparing and sending; never for a message.
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

/// How much of a run's output is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputLimit {
    Bytes(u64),
    Characters(u64),
}

/// What `tools/list` shows; every tool can be called by all of its names all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListedTools {
    Canonical,
    /// Aliases too.
    All,
    Names(Vec<String>),
}

/// Where the keys of an issuer of tokens are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeySet {
    Url(String),
    File(PathBuf),
}

/// An enumeration with one word per variant: the words are the setting's choices.
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
    /// The text block of a reply.
    TextFormat {
        Json = "json",
        Plain = "plain",
    }
    /// The session of a call that names none.
    StateWithoutSession {
        /// The caller's session `default`.
        Default = "default",
        /// A new session that is kept; its id is in the reply.
        New = "new",
        /// A session that ends with the call.
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
    /// Where contents are kept.
    BlobsIn {
        /// In the data folder.
        Folder = "folder",
        /// In the database, for servers without a disk that lasts.
        Database = "database",
        /// In a bucket.
        S3 = "s3",
    }
    /// What an import that is not allowed does.
    BlockMode {
        /// It raises at its line.
        Raise = "raise",
        /// It is noted, and the program goes on without it.
        Annotate = "annotate",
        /// The whole program is refused before it runs.
        Reject = "reject",
    }
    /// The least isolation that sessions are started with.
    MinIsolation {
        Full = "full",
        Restricted = "restricted",
    }
    /// The answer to a missing or wrong key.
    AuthFailureStatus {
        Unauthorized = "401",
        Forbidden = "403",
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
    /// As the log's filter spells it.
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

impl Field for ListedTools {
    fn from_value(value: &Value) -> Option<Self> {
        let names = Vec::<String>::from_value(value)?;
        Some(match names.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            [] | ["canonical"] => Self::Canonical,
            ["all"] => Self::All,
            _ => Self::Names(names),
        })
    }
}
