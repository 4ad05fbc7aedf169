-- Keep the counts of waiting jobs, whichever statement changes a state.
CREATE TRIGGER jobs_added AFTER INSERT ON jobs WHEN NEW.state = 'pending' BEGIN
    INSERT INTO job_turns (owner, turn, waiting_jobs, waiting_bytes)
    VALUES (NEW.owner, 0, 1, NEW.request_bytes)
    ON CONFLICT (owner) DO UPDATE SET waiting_jobs = waiting_jobs + 1,
        waiting_bytes = waiting_bytes + excluded.waiting_bytes;
END;
CREATE TRIGGER jobs_returned AFTER UPDATE OF state ON jobs
WHEN OLD.state <> 'pending' AND NEW.state = 'pending' BEGIN
    INSERT INTO job_turns (owner, turn, waiting_jobs, waiting_bytes)
    VALUES (NEW.owner, 0, 1, NEW.request_bytes)
    ON CONFLICT (owner) DO UPDATE SET waiting_jobs = waiting_jobs + 1,
        waiting_bytes = waiting_bytes + excluded.waiting_bytes;
END;
CREATE TRIGGER jobs_taken AFTER UPDATE OF state ON jobs
WHEN OLD.state = 'pending' AND NEW.state <> 'pending' BEGIN
    UPDATE job_turns SET waiting_jobs = waiting_jobs - 1,
        waiting_bytes = waiting_bytes - OLD.request_bytes WHERE owner = OLD.owner;
END;
CREATE TRIGGER jobs_removed AFTER DELETE ON jobs WHEN OLD.state = 'pending' BEGIN
    UPDATE job_turns SET waiting_jobs = waiting_jobs - 1,
        waiting_bytes = waiting_bytes - OLD.request_bytes WHERE owner = OLD.owner;
END;
