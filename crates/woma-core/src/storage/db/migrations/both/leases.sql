-- A session's lease: the server that has it in hand, for as long as that server renews its own row.
-- Times are those of the database's clock. The columns that go were never read.
CREATE TABLE servers (
    id TEXT PRIMARY KEY,
    alive_until BIGINT NOT NULL
);
ALTER TABLE sessions ADD COLUMN lease_server TEXT;
ALTER TABLE sessions DROP COLUMN server;
ALTER TABLE sessions DROP COLUMN folder;
ALTER TABLE sessions DROP COLUMN state;
ALTER TABLE executions DROP COLUMN request_id;
