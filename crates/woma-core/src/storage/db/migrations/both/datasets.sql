-- Datasets of callers: one Parquet blob each. Names are compared without case, by `name_key`.
CREATE TABLE datasets (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    name TEXT NOT NULL,
    name_key TEXT NOT NULL,
    digest TEXT NOT NULL,
    size_bytes BIGINT NOT NULL,
    row_count BIGINT NOT NULL,
    column_count BIGINT NOT NULL,
    -- JSON: names and types of the columns, of very wide tables the first ones.
    column_info TEXT NOT NULL,
    format TEXT NOT NULL,
    -- The session and the file in it that it was loaded from; NULL where code registered it.
    session_id TEXT,
    source TEXT,
    created_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX datasets_by_name ON datasets (owner, name_key);
CREATE INDEX datasets_by_digest ON datasets (digest);
