//! Rows of sessions, which outlive their kernels.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::statement::{Row, Value, change, rows};
use super::{Deletion, Store, StoreError};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRow {
    pub owner: String,
    /// Unique among the sessions of its owner.
    pub id: String,
    pub name: Option<String>,
    pub description: Option<String>,
    pub policy: Option<String>,
    /// Server process that holds the lease or held it last; `None` leaves the stored value.
    pub lease_server: Option<String>,
    pub created_at: Timestamp,
    pub last_used_at: Timestamp,
    /// Counted by [`Store::finish`].
    pub execution_count: u64,
    /// A JSON object of texts.
    #[serde(default)]
    pub labels: Option<String>,
    /// Seconds without a call after which it is deleted, instead of the server's.
    #[serde(default)]
    pub lifetime_s: Option<u64>,
    /// Rules of its network that it chose for itself.
    #[serde(default)]
    pub network: Option<String>,
    /// Names of the secrets that it was given, separated by commas. Values are not stored.
    #[serde(default)]
    pub secrets: Option<String>,
    /// Its packages as JSON, if it has installed any.
    #[serde(default)]
    pub packages: Option<String>,
    /// Name of its environment, if it is not the default one.
    #[serde(default)]
    pub environment: Option<String>,
    /// How its kernels are opened, unless it is the sandbox.
    #[serde(default)]
    pub isolation: Option<String>,
}

const COLUMNS: &str = "owner, id, name, description, policy, lease_server, created_at, \
     last_used_at, execution_count, labels, lifetime_s, network, packages, secrets, environment, \
     isolation";

impl Store {
    /// Creates a session or updates it. An update keeps its counter and creation time; a new row
    /// counts the executions that ended before it was written.
    pub async fn put_session(&self, session: &SessionRow) -> Result<(), StoreError> {
        let sql = format!(
            "INSERT INTO sessions ({COLUMNS}) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9 + (SELECT count(*) \
             FROM executions WHERE owner = $1 AND session_id = $2 AND started_at >= $7 \
             AND status <> 'running'), $10, $11, $12, $13, $14, $15, $16) \
             ON CONFLICT (owner, id) DO UPDATE SET name = excluded.name, \
             description = excluded.description, policy = excluded.policy, \
             labels = excluded.labels, lifetime_s = excluded.lifetime_s, \
             network = excluded.network, \
             packages = excluded.packages, secrets = excluded.secrets, \
             environment = excluded.environment, isolation = excluded.isolation, \
             lease_server = COALESCE(excluded.lease_server, sessions.lease_server), \
             last_used_at = CASE WHEN excluded.last_used_at > sessions.last_used_at \
             THEN excluded.last_used_at ELSE sessions.last_used_at END"
        );
        let values = vec![
            session.owner.as_str().into(),
            session.id.as_str().into(),
            Value::text_maybe(session.name.as_deref()),
            Value::text_maybe(session.description.as_deref()),
            Value::text_maybe(session.policy.as_deref()),
            Value::text_maybe(session.lease_server.as_deref()),
            Value::time(session.created_at),
            Value::time(session.last_used_at),
            Value::count(session.execution_count),
            Value::text_maybe(session.labels.as_deref()),
            Value::count_maybe(session.lifetime_s),
            Value::text_maybe(session.network.as_deref()),
            Value::text_maybe(session.packages.as_deref()),
            Value::text_maybe(session.secrets.as_deref()),
            Value::text_maybe(session.environment.as_deref()),
            Value::text_maybe(session.isolation.as_deref()),
        ];
        self.change(change(sql, values)).await.map(drop)
    }

    pub async fn session(&self, owner: &str, id: &str) -> Result<Option<SessionRow>, StoreError> {
        if self.deletions.has(owner, id, Deletion::Session) {
            return Ok(None);
        }
        let sql = format!("SELECT {COLUMNS} FROM sessions WHERE owner = $1 AND id = $2");
        self.read_one(rows(sql, vec![owner.into(), id.into()]), session_of).await
    }

    /// Sessions of an owner, most recently used first.
    pub async fn sessions(&self, owner: &str) -> Result<Vec<SessionRow>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM sessions WHERE owner = $1 ORDER BY last_used_at DESC, id"
        );
        let mut found = self.read_all(rows(sql, vec![owner.into()]), session_of).await?;
        found.retain(|session| !self.deletions.has(owner, &session.id, Deletion::Session));
        Ok(found)
    }

    /// Deletes sessions not used since `idle_since`, or for longer than their own lifetime, and
    /// returns them; examines the oldest `limit`.
    /// Skips sessions that another server has a lease on, that run code, or that are `kept`.
    pub async fn expire_sessions(
        &self,
        server: &str,
        idle_since: Timestamp,
        limit: u32,
        kept: impl Fn(&SessionRow) -> bool + Send,
    ) -> Result<Vec<SessionRow>, StoreError> {
        let is_idle = format!(
            "last_used_at < COALESCE({now} - lifetime_s * 1000000, $1) AND NOT EXISTS (SELECT 1 FROM servers \
             WHERE servers.id = old.lease_server AND servers.id <> $2 \
             AND servers.alive_until > {now}) AND NOT EXISTS (\
             SELECT 1 FROM executions WHERE executions.owner = old.owner \
             AND executions.session_id = old.id AND executions.status = 'running') \
             AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.owner = old.owner \
             AND jobs.session_id = old.id AND jobs.state IN ('pending', 'running'))",
            now = self.clock()
        );
        let sql = format!(
            "SELECT {COLUMNS} FROM sessions AS old WHERE {is_idle} \
             ORDER BY last_used_at, owner, id LIMIT $3"
        );
        let values = vec![Value::time(idle_since), server.into(), i64::from(limit).into()];
        let idle = self.read_all(rows(sql, values), session_of).await?;
        let one = format!(
            "SELECT owner, id FROM sessions AS old WHERE owner = $3 AND id = $4 AND {is_idle}"
        );
        let mut gone = Vec::new();
        for session in idle.into_iter().filter(|session| !kept(session)) {
            let values = || {
                let (owner, id) = (session.owner.as_str(), session.id.as_str());
                vec![Value::time(idle_since), server.into(), owner.into(), id.into()]
            };
            // The condition again: the session may have been used since.
            let unit = vec![
                change(
                    format!("DELETE FROM checkpoints WHERE (owner, session_id) IN ({one})"),
                    values(),
                ),
                rows(
                    format!(
                        "DELETE FROM sessions WHERE (owner, id) IN ({one}) RETURNING {COLUMNS}"
                    ),
                    values(),
                ),
            ];
            gone.extend(self.write_for_rows(unit, session_of).await?);
        }
        Ok(gone)
    }
}

fn session_of(mut row: Row) -> Result<SessionRow, StoreError> {
    Ok(SessionRow {
        owner: row.text()?,
        id: row.text()?,
        name: row.text_maybe()?,
        description: row.text_maybe()?,
        policy: row.text_maybe()?,
        lease_server: row.text_maybe()?,
        created_at: row.time()?,
        last_used_at: row.time()?,
        execution_count: row.count()?,
        labels: row.text_maybe()?,
        lifetime_s: row.count_maybe()?,
        network: row.text_maybe()?,
        packages: row.text_maybe()?,
        secrets: row.text_maybe()?,
        environment: row.text_maybe()?,
        isolation: row.text_maybe()?,
    })
}
