-- Keep the counts of waiting jobs, whichever statement changes a state.
CREATE FUNCTION count_waiting_jobs() RETURNS trigger AS $$
DECLARE
    was_waiting BOOLEAN := FALSE;
    is_waiting BOOLEAN := FALSE;
BEGIN
    IF TG_OP <> 'INSERT' THEN
        was_waiting := OLD.state = 'pending';
    END IF;
    IF TG_OP <> 'DELETE' THEN
        is_waiting := NEW.state = 'pending';
    END IF;
    IF is_waiting AND NOT was_waiting THEN
        INSERT INTO job_turns (owner, turn, waiting_jobs, waiting_bytes)
        VALUES (NEW.owner, 0, 1, NEW.request_bytes)
        ON CONFLICT (owner) DO UPDATE SET waiting_jobs = job_turns.waiting_jobs + 1,
            waiting_bytes = job_turns.waiting_bytes + excluded.waiting_bytes;
    ELSIF was_waiting AND NOT is_waiting THEN
        UPDATE job_turns SET waiting_jobs = waiting_jobs - 1,
            waiting_bytes = waiting_bytes - OLD.request_bytes WHERE owner = OLD.owner;
    END IF;
    RETURN NULL;
END
$$ LANGUAGE plpgsql;
CREATE TRIGGER jobs_counted AFTER INSERT OR UPDATE OF state OR DELETE ON jobs
FOR EACH ROW EXECUTE FUNCTION count_waiting_jobs();
