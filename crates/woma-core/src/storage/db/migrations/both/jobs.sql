-- Jobs: code that runs apart from the call that asked for it. `request`, `caller`, `error` and
-- `result` are JSON. `lease_until` is by the database's clock.
CREATE TABLE jobs (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    session_id TEXT,
    kind TEXT NOT NULL,
    state TEXT NOT NULL,
    priority BIGINT NOT NULL,
    retries BIGINT NOT NULL,
    attempts BIGINT NOT NULL,
    request TEXT NOT NULL,
    request_sha256 TEXT NOT NULL,
    request_bytes BIGINT NOT NULL,
    caller TEXT NOT NULL,
    idempotency_key TEXT,
    schedule_id TEXT,
    submitted_at BIGINT NOT NULL,
    due_at BIGINT NOT NULL,
    started_at BIGINT,
    ended_at BIGINT,
    server TEXT,
    lease_until BIGINT,
    cancel_requested BIGINT NOT NULL,
    progress BIGINT,
    progress_message TEXT,
    output_head TEXT NOT NULL,
    output_tail TEXT NOT NULL,
    output_chars BIGINT NOT NULL,
    execution_id TEXT,
    error TEXT,
    result TEXT,
    kept_bytes BIGINT NOT NULL
);
CREATE UNIQUE INDEX jobs_key ON jobs (owner, idempotency_key);
CREATE INDEX jobs_queue ON jobs (state, owner, due_at, request_bytes);
CREATE INDEX jobs_next ON jobs (owner, state, priority DESC, due_at, id);
CREATE INDEX jobs_listed ON jobs (owner, submitted_at, id);
CREATE INDEX jobs_session ON jobs (owner, session_id, state);
CREATE INDEX jobs_ended ON jobs (ended_at);

-- Order in which callers with waiting jobs are served: the lowest turn is next.
CREATE TABLE job_turns (
    owner TEXT PRIMARY KEY,
    turn BIGINT NOT NULL
);

CREATE TABLE schedules (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    name TEXT,
    cron TEXT NOT NULL,
    zone TEXT NOT NULL,
    session_id TEXT,
    priority BIGINT NOT NULL,
    retries BIGINT NOT NULL,
    request TEXT NOT NULL,
    caller TEXT NOT NULL,
    is_paused BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    next_at BIGINT NOT NULL,
    last_at BIGINT,
    last_job TEXT,
    problem TEXT
);
CREATE INDEX schedules_owner ON schedules (owner, created_at, id);
CREATE INDEX schedules_due ON schedules (is_paused, next_at);
