//! Sessions: what is known of them when no kernel is left.

use jiff::Timestamp;

use super::statement::{Row, Value, change, rows};
use super::{Forgotten, Store, StoreError};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    pub owner: String,
    /// Unique among the sessions of its owner.
    pub id: String,
    pub name: Option<String>,
    pub description: Option<String>,
    pub policy: Option<String>,
    pub folder: Option<String>,
    /// The server that has its kernel, or had it last.
    pub server: String,
    pub state: SessionState,
    pub created_at: Timestamp,
    pub last_used_at: Timestamp,
    /// Counted by [`Store::finish`].
    pub execution_count: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionState {
    /// It has a kernel.
    Live,
    /// Only its name, its files and perhaps a checkpoint are left.
    Dormant,
}

impl SessionState {
    pub fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Dormant => "dormant",
        }
    }

    fn parse(name: &str) -> Result<Self, StoreError> {
        match name {
            "live" => Ok(Self::Live),
            "dormant" => Ok(Self::Dormant),
            other => Err(StoreError::Corrupt(format!("`{other}` is no state of a session"))),
        }
    }
}

const COLUMNS: &str = "owner, id, name, description, policy, folder, server, state, created_at, \
     last_used_at, execution_count";

impl Store {
    /// Makes a session, or changes it. What was counted and when it was made stay as they are; what
    /// has ended in it before it was made here is counted now.
    pub async fn put_session(&self, session: &SessionRow) -> Result<(), StoreError> {
        let sql = format!(
            "INSERT INTO sessions ({COLUMNS}) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11 + (SELECT count(*) \
             FROM executions WHERE owner = $1 AND session_id = $2 AND started_at >= $9 \
             AND status <> 'running')) \
             ON CONFLICT (owner, id) DO UPDATE SET name = excluded.name, \
             description = excluded.description, policy = excluded.policy, \
             folder = excluded.folder, server = excluded.server, state = excluded.state, \
             last_used_at = CASE WHEN excluded.last_used_at > sessions.last_used_at \
             THEN excluded.last_used_at ELSE sessions.last_used_at END"
        );
        let values = vec![
            session.owner.as_str().into(),
            session.id.as_str().into(),
            Value::text_maybe(session.name.as_deref()),
            Value::text_maybe(session.description.as_deref()),
            Value::text_maybe(session.policy.as_deref()),
            Value::text_maybe(session.folder.as_deref()),
            session.server.as_str().into(),
            session.state.name().into(),
            Value::time(session.created_at),
            Value::time(session.last_used_at),
            Value::count(session.execution_count),
        ];
        self.settle(&session.owner, &session.id).await?;
        self.change(change(sql, values)).await.map(drop)
    }

    pub async fn session(&self, owner: &str, id: &str) -> Result<Option<SessionRow>, StoreError> {
        if self.is_forgotten(owner, id, Forgotten::Deleted)? {
            return Ok(None);
        }
        let sql = format!("SELECT {COLUMNS} FROM sessions WHERE owner = $1 AND id = $2");
        self.read_one(rows(sql, vec![owner.into(), id.into()]), session_of).await
    }

    /// Latest used first.
    pub async fn sessions(&self, owner: &str) -> Result<Vec<SessionRow>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM sessions WHERE owner = $1 ORDER BY last_used_at DESC, id"
        );
        let mut found = Vec::new();
        for session in self.read_all(rows(sql, vec![owner.into()]), session_of).await? {
            if !self.is_forgotten(owner, &session.id, Forgotten::Deleted)? {
                found.push(session);
            }
        }
        Ok(found)
    }

    /// Forgets sessions that nobody used since `idle_since`, and returns them; the oldest `limit` are
    /// looked at. Never one with a kernel, nor one in which code runs, nor one that is `kept`.
    pub async fn expire_sessions(
        &self,
        idle_since: Timestamp,
        limit: u32,
        kept: impl Fn(&SessionRow) -> bool + Send,
    ) -> Result<Vec<SessionRow>, StoreError> {
        const IS_IDLE: &str = "last_used_at < $1 AND state = 'dormant' AND NOT EXISTS (\
             SELECT 1 FROM executions WHERE executions.owner = old.owner \
             AND executions.session_id = old.id AND executions.status = 'running')";
        let sql = format!(
            "SELECT {COLUMNS} FROM sessions AS old WHERE {IS_IDLE} \
             ORDER BY last_used_at, owner, id LIMIT $2"
        );
        let values = vec![Value::time(idle_since), i64::from(limit).into()];
        let idle = self.read_all(rows(sql, values), session_of).await?;
        let one = format!(
            "SELECT owner, id FROM sessions AS old WHERE owner = $2 AND id = $3 AND {IS_IDLE}"
        );
        let mut gone = Vec::new();
        for session in idle.into_iter().filter(|session| !kept(session)) {
            let values = || {
                let (owner, id) = (session.owner.as_str(), session.id.as_str());
                vec![Value::time(idle_since), owner.into(), id.into()]
            };
            // Somebody may have used it since.
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
        folder: row.text_maybe()?,
        server: row.text()?,
        state: SessionState::parse(&row.text()?)?,
        created_at: row.time()?,
        last_used_at: row.time()?,
        execution_count: row.count()?,
    })
}
