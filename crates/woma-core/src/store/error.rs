//! What can go wrong with the store, by what a caller would do about it.
//!
//! Nothing here holds an address, a name of a user or a password of the database.

use std::io;

use crate::certificates::{found, refusal};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It is not there, or not in time. Another try may work; whether a write was done is unknown.
    #[error("the store does not answer: {0}")]
    Unavailable(String),
    /// Something of that name is there already.
    #[error("it exists already")]
    Conflict,
    #[error("it does not exist")]
    NotFound,
    #[error("there is no space left for the store")]
    NoSpace,
    #[error("the store may only be read")]
    ReadOnly,
    #[error("it is larger than {limit_bytes} bytes")]
    TooLarge { limit_bytes: u64 },
    /// What was stored is not what is read.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    #[error("the store has version {found}, this program knows up to {known}; use a newer program")]
    Newer { found: i64, known: i64 },
    #[error("the address of the database cannot be used: {0}")]
    BadUrl(&'static str),
    #[error("the bucket for files cannot be used: {0}")]
    BadBucket(String),
    /// A mistake of ours.
    #[error("the store failed: {0}")]
    Internal(String),
}

impl StoreError {
    /// Whether the same call may work in a moment.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::NoSpace)
    }

    /// Whether it is worth while to wait: a database that may only be read for now is one that is
    /// away.
    pub(crate) fn is_passing(&self) -> bool {
        self.is_retryable() || *self == Self::ReadOnly
    }

    /// Whether it says something about the store, and not about what was asked of it.
    pub(super) fn is_of_store(&self) -> bool {
        !matches!(self, Self::Conflict | Self::NotFound | Self::TooLarge { .. })
    }

    pub(crate) fn of_io(error: &io::Error) -> Self {
        use io::ErrorKind;
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::NoSpace,
            ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => Self::ReadOnly,
            ErrorKind::NotFound => Self::NotFound,
            kind => Self::Unavailable(kind.to_string()),
        }
    }

    pub(super) fn of_sqlite(error: &rusqlite::Error) -> Self {
        use rusqlite::ErrorCode;
        let rusqlite::Error::SqliteFailure(failure, text) = error else {
            return Self::Internal(error.to_string());
        };
        let text = text.clone().unwrap_or_else(|| failure.to_string());
        match failure.code {
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
                Self::Unavailable("another process holds it".to_owned())
            }
            ErrorCode::DiskFull => Self::NoSpace,
            // The index of the log could not grow.
            ErrorCode::SystemIoFailure
                if failure.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE =>
            {
                Self::NoSpace
            }
            ErrorCode::ReadOnly => Self::ReadOnly,
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => Self::Corrupt(text),
            ErrorCode::ConstraintViolation => match failure.extended_code {
                rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE
                | rusqlite::ffi::SQLITE_CONSTRAINT_PRIMARYKEY => Self::Conflict,
                _ => Self::Internal(text),
            },
            ErrorCode::SystemIoFailure | ErrorCode::CannotOpen => Self::Unavailable(text),
            _ => Self::Internal(text),
        }
    }

    pub(super) fn of_postgres(error: &sqlx::Error) -> Self {
        let database = match error {
            sqlx::Error::Database(database) => database,
            _ if found::<rustls::Error>(error).is_some() => {
                return Self::Unavailable(refusal(error).to_owned());
            }
            sqlx::Error::Io(error) => return Self::Unavailable(error.kind().to_string()),
            sqlx::Error::PoolTimedOut => {
                return Self::Unavailable("no connection in time".to_owned());
            }
            sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed => {
                return Self::Unavailable("the connection is closed".to_owned());
            }
            // Its certificate was not looked at.
            sqlx::Error::Tls(_) => {
                return Self::Unavailable("it does not speak TLS, or not as it should".to_owned());
            }
            sqlx::Error::Protocol(_) => {
                return Self::Unavailable("the connection broke".to_owned());
            }
            other => return Self::Internal(other.to_string()),
        };
        let state = database.code().unwrap_or_default();
        let named = |what: &str| Self::Unavailable(format!("{what} ({state})"));
        match state.as_ref() {
            "23505" => Self::Conflict,
            "53100" => Self::NoSpace,
            "25006" => Self::ReadOnly,
            "XX001" | "XX002" => Self::Corrupt(database.message().to_owned()),
            "57014" => named("it took too long"),
            "3D000" => named("there is no such database"),
            "40001" | "40P01" => named("too many writers at once"),
            code if code.starts_with("28") => named("the database refuses this user"),
            code if code.starts_with("08") || code.starts_with("57P") || code.starts_with("53") => {
                named("the database is not ready")
            }
            _ => Self::Internal(format!("{} ({state})", database.message())),
        }
    }
}
