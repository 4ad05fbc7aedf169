//! Leases of servers on sessions.
//!
//! A session names the server process that holds its lease, and each server renews one row, so
//! renewal costs one write however many sessions it holds. A lease expires with the server's row,
//! by the database's clock.

use std::time::Duration;

use super::statement::{Statement, Value, change};
use super::{Backend, Store, StoreError};

/// Duration of a lease without renewal.
pub const LEASE: Duration = Duration::from_secs(30);
/// How long the row of a stopped server is kept.
const EXPIRED_KEPT: Duration = Duration::from_hours(24);

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

    /// Gives a server the lease on a session, if the session is in the database, and renews the
    /// server's row: a server without sessions does not renew it.
    pub async fn take_session(
        &self,
        owner: &str,
        id: &str,
        server: &str,
    ) -> Result<(), StoreError> {
        let sql = "UPDATE sessions SET lease_server = $3 WHERE owner = $1 AND id = $2";
        let values = vec![owner.into(), id.into(), server.into()];
        self.write(vec![change(sql, values), self.renewed(server)]).await.map(drop)
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
