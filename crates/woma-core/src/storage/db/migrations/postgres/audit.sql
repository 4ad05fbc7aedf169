CREATE TABLE audit (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
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

CREATE FUNCTION audit_refuses() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND EXISTS (SELECT 1 FROM audit_purge WHERE OLD.at < before) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'audit rows are never changed, and deleted by retention only';
END
$$;

CREATE TRIGGER audit_is_not_changed BEFORE UPDATE OR DELETE ON audit
    FOR EACH ROW EXECUTE FUNCTION audit_refuses();
CREATE TRIGGER audit_is_not_emptied BEFORE TRUNCATE ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION audit_refuses();
