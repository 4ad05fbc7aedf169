//! Errors of the store; a variant exists where a caller acts differently.
//!
//! No error contains the database's URL, user name or password.

use std::io;

use crate::net::tls::{found, handshake_failure};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Unreachable or timed out. A retry may succeed; whether a write was applied is unknown.
    #[error("the store does not answer: {0}")]
    Unavailable(String),
    /// A row with this name exists.
    #[error("it already exists")]
    Conflict,
    #[error("it does not exist")]
    NotFound,
    #[error("there is no space left for the store")]
    NoSpace,
    /// The remaining space is reserved.
    #[error("the server's disk is below its reserve (MIN_FREE_DISK)")]
    Reserve,
    #[error("the store may only be read")]
    ReadOnly,
    #[error("it is larger than {limit_bytes} bytes")]
    TooLarge { limit_bytes: u64 },
    /// The data read is not the data that was written.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    #[error(
        "the store has version {found}, this program supports up to {known}; use a newer program"
    )]
    Newer { found: i64, known: i64 },
    #[error(
        "the database has a table `{0}` of another program: name another database, or another \
         schema of this one, as `?options=-csearch_path%3Dwoma` at the end of DATABASE_URL does"
    )]
    ForeignTables(String),
    #[error("the URL of the database cannot be used: {0}")]
    BadUrl(&'static str),
    #[error("the bucket for files cannot be used: {0}")]
    BadBucket(String),
    /// Bug in the server.
    #[error("the store failed: {0}")]
    Internal(String),
}

impl StoreError {
    /// Whether a retry of the same call may succeed soon.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::NoSpace | Self::Reserve)
    }

    /// Whether to keep retrying in the background; a read-only database counts as temporarily
    /// unavailable.
    pub(crate) fn is_temporary(&self) -> bool {
        self.is_retryable() || *self == Self::ReadOnly
    }

    /// Whether the store itself failed, not the request.
    pub(super) fn is_of_store(&self) -> bool {
        !matches!(self, Self::Conflict | Self::NotFound | Self::TooLarge { .. } | Self::Reserve)
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
                Self::Unavailable("another process has locked it".to_owned())
            }
            ErrorCode::DiskFull => Self::NoSpace,
            // The index of the write-ahead log could not grow.
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

    pub(super) fn timed_out() -> Self {
        Self::Unavailable("it timed out".to_owned())
    }

    pub(super) fn no_connection() -> Self {
        Self::Unavailable("no connection was available in time".to_owned())
    }

    pub(super) fn of_postgres(error: &sqlx::Error) -> Self {
        let database = match error {
            sqlx::Error::Database(database) => database,
            _ if found::<rustls::Error>(error).is_some() => {
                return Self::Unavailable(handshake_failure(error).to_owned());
            }
            sqlx::Error::Io(error) => return Self::Unavailable(error.kind().to_string()),
            sqlx::Error::PoolTimedOut => return Self::no_connection(),
            sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed => {
                return Self::Unavailable("the connection is closed".to_owned());
            }
            // Failed before a certificate was checked.
            sqlx::Error::Tls(_) => {
                return Self::Unavailable(
                    "it does not speak TLS, or the handshake failed".to_owned(),
                );
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
            "57014" => named("it timed out"),
            "3D000" => named("the database does not exist"),
            "40001" | "40P01" => named("too many concurrent writers"),
            code if code.starts_with("28") => named("the database refuses this user"),
            code if code.starts_with("08") || code.starts_with("57P") || code.starts_with("53") => {
                named("the database is not ready")
            }
            _ => Self::Internal(format!("{} ({state})", database.message())),
        }
    }
}
