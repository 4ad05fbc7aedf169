//! Leases of servers on sessions.
//!
//! A session names the server process that holds its lease, and each server renews one row, so
//! renewal costs one write however many sessions it holds. A lease expires with the server's row,
//! by the database's clock.

use std::time::Duration;

use uuid::Uuid;

use super::statement::{Row, Statement, Value, change, rows};
use super::{Backend, Store, StoreError};

/// Duration of a lease without renewal.
pub const LEASE: Duration = Duration::from_secs(30);
/// How long the row of a stopped server is kept.
const EXPIRED_KEPT: Duration = Duration::from_hours(24);

/// Name of a server process as the holder of leases: the id of its data folder, and its own.
///
/// A lease of a process with the same data folder does not keep another one from a session: they
/// share its files, and the earlier process is usually dead.
pub(crate) fn process_name(folder_id: &str) -> String {
    format!("{folder_id}/{}", Uuid::new_v4())
}

/// Whether a lease is, or was, that of a process with the data folder of `server`.
pub(crate) fn shares_folder(server: &str, lease: &str) -> bool {
    folder_of(server) == folder_of(lease)
}

fn folder_of(server: &str) -> &str {
    server.split_once('/').map_or(server, |(folder, _)| folder)
}

/// Pattern of the processes with the same data folder. Ids have neither `%` nor `_`.
pub(super) fn own_pattern(server: &str) -> Value {
    match folder_of(server) {
        folder if folder == server => server.into(),
        folder => format!("{folder}/%").as_str().into(),
    }
}

/// Lease of a live server with another data folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ForeignLease {
    /// By the database's clock; it moves with each renewal.
    pub(crate) ends_at: i64,
    pub(crate) left: Duration,
}

impl Store {
    /// Extends the leases of a server by [`LEASE`].
    pub async fn renew_lease(&self, server: &str) -> Result<(), StoreError> {
        let now = self.clock();
        let expired = format!("DELETE FROM servers WHERE alive_until < {now} - $1");
        let unit = vec![self.renewed(server), change(expired, vec![microseconds(EXPIRED_KEPT)])];
        self.write(unit).await.map(drop)
    }

    fn renewed(&self, server: &str) -> Statement {
        let now = self.clock();
        let sql = format!(
            "INSERT INTO servers (id, alive_until) VALUES ($1, {now} + $2) \
             ON CONFLICT (id) DO UPDATE SET alive_until = excluded.alive_until"
        );
        change(sql, vec![server.into(), microseconds(LEASE)])
    }

    /// Releases the leases of a server that stops.
    pub async fn release_lease(&self, server: &str) -> Result<(), StoreError> {
        self.change(change("DELETE FROM servers WHERE id = $1", vec![server.into()]))
            .await
            .map(drop)
    }

    /// Gives a server the lease on a session, if the session is in the database and no live server
    /// with another data folder has it, and renews the server's row: a server without sessions
    /// need not renew it. `Conflict` if another server has the session.
    pub async fn take_session(
        &self,
        owner: &str,
        id: &str,
        server: &str,
    ) -> Result<(), StoreError> {
        let values = || vec![owner.into(), id.into()];
        // Waits for a server that takes it at this moment: the next statement sees its lease.
        let lock = "UPDATE sessions SET lease_server = lease_server WHERE owner = $1 AND id = $2";
        let sql = format!(
            "UPDATE sessions SET lease_server = $3 WHERE owner = $1 AND id = $2 \
             AND NOT EXISTS ({})",
            self.foreign_lease("$4")
        );
        let mut all = values();
        all.extend([server.into(), own_pattern(server)]);
        let taken = change(sql, all).or_else(StoreError::Conflict);
        self.write(vec![change(lock, values()), taken, self.renewed(server)]).await.map(drop)
    }

    /// End of the lease that a live server with another data folder has on a session, in
    /// microseconds of the database's clock, and how long that is from now.
    pub(crate) async fn foreign_lease_of(
        &self,
        owner: &str,
        id: &str,
        server: &str,
    ) -> Result<Option<ForeignLease>, StoreError> {
        let sql = format!(
            "SELECT alive_until, alive_until - {now} FROM servers, sessions \
             WHERE owner = $1 AND sessions.id = $2 AND servers.id = lease_server \
             AND alive_until > {now} AND lease_server NOT LIKE $3",
            now = self.clock()
        );
        let values = vec![owner.into(), id.into(), own_pattern(server)];
        let lease = |mut row: Row| {
            let (ends_at, left) = (row.number()?, row.number()?);
            let left = Duration::from_micros(u64::try_from(left).unwrap_or(0));
            Ok(ForeignLease { ends_at, left })
        };
        self.read_one(rows(sql, values), lease).await
    }

    /// SQL: rows of live servers with other data folders that have the session at hand.
    fn foreign_lease(&self, own_pattern: &str) -> String {
        format!(
            "SELECT 1 FROM servers WHERE servers.id = sessions.lease_server \
             AND servers.id NOT LIKE {own_pattern} AND servers.alive_until > {}",
            self.clock()
        )
    }

    /// SQL for the database's clock, in microseconds since 1970.
    pub(super) fn clock(&self) -> &'static str {
        match self.backend {
            Backend::Sqlite(_) => "CAST(unixepoch('subsec') * 1000000 AS INTEGER)",
            Backend::Postgres(_) => {
                "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)"
            }
        }
    }
}

fn microseconds(duration: Duration) -> Value {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX).into()
}
