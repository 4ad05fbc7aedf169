-- Times are microseconds since 1970 in UTC, truths are 0 or 1, JSON is text.

CREATE TABLE sessions (
    owner TEXT NOT NULL,
    id TEXT NOT NULL,
    name TEXT,
    description TEXT,
    policy TEXT,
    folder TEXT,
    server TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('live', 'dormant')),
    created_at BIGINT NOT NULL,
    last_used_at BIGINT NOT NULL,
    execution_count BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (owner, id)
);
CREATE INDEX sessions_by_use ON sessions (last_used_at);

CREATE TABLE executions (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    session_id TEXT,
    server TEXT NOT NULL,
    started_at BIGINT NOT NULL,
    ended_at BIGINT,
    status TEXT NOT NULL CHECK (status IN ('running', 'finished', 'lost')),
    outcome TEXT,
    error_category TEXT,
    code_sha256 TEXT NOT NULL,
    code_text TEXT,
    wall_ms BIGINT,
    cpu_ms BIGINT,
    memory_peak_bytes BIGINT,
    output_bytes BIGINT,
    files_count BIGINT,
    request_id TEXT,
    client TEXT
);
CREATE INDEX executions_by_owner ON executions (owner, started_at, id);
CREATE INDEX executions_by_session ON executions (owner, session_id, started_at, id);
CREATE INDEX executions_running ON executions (server) WHERE status = 'running';
CREATE INDEX executions_by_end ON executions (ended_at) WHERE status <> 'running';

-- The id is a capability: who knows it may download.
CREATE TABLE files (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    session_id TEXT,
    path TEXT NOT NULL,
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    size_bytes BIGINT NOT NULL,
    media_type TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    downloads BIGINT NOT NULL DEFAULT 0,
    is_chart BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX files_by_owner ON files (owner, session_id, created_at, id);
CREATE INDEX files_by_digest ON files (digest);
CREATE INDEX files_by_expiry ON files (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE checkpoints (
    owner TEXT NOT NULL,
    session_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    size_bytes BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    summary TEXT NOT NULL,
    PRIMARY KEY (owner, session_id)
);
CREATE INDEX checkpoints_by_digest ON checkpoints (digest);
