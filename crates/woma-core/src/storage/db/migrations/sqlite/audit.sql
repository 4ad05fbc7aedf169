CREATE TABLE audit (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at BIGINT NOT NULL,
    owner TEXT NOT NULL,
    action TEXT NOT NULL,
    session_id TEXT,
    execution_id TEXT,
    detail TEXT NOT NULL
);
CREATE INDEX audit_by_owner ON audit (owner, seq);
CREATE INDEX audit_by_time ON audit (at);

-- Rows older than this may be deleted. It is there only within the transaction that purges.
CREATE TABLE audit_purge (before BIGINT NOT NULL);

CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit
BEGIN
    SELECT RAISE(ABORT, 'audit rows are never changed');
END;

-- REPLACE deletes without asking the trigger below.
CREATE TRIGGER audit_is_not_replaced BEFORE INSERT ON audit
WHEN EXISTS (SELECT 1 FROM audit WHERE seq = NEW.seq)
BEGIN
    SELECT RAISE(ABORT, 'audit rows are never changed');
END;

CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit
WHEN NOT EXISTS (SELECT 1 FROM audit_purge WHERE OLD.at < before)
BEGIN
    SELECT RAISE(ABORT, 'audit rows are deleted by retention only');
END;
