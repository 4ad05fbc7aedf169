-- Webhooks of jobs. `webhook_due_at` is set while a delivery is due or under way, by the database's
-- clock; the secret goes when nothing is left to deliver.
ALTER TABLE jobs ADD COLUMN webhook_url TEXT;
ALTER TABLE jobs ADD COLUMN webhook_secret TEXT;
ALTER TABLE jobs ADD COLUMN webhook_state TEXT;
ALTER TABLE jobs ADD COLUMN webhook_attempts BIGINT NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN webhook_due_at BIGINT;
ALTER TABLE jobs ADD COLUMN webhook_error TEXT;
ALTER TABLE jobs ADD COLUMN webhook_delivered_at BIGINT;
CREATE INDEX jobs_webhooks ON jobs (owner, webhook_due_at) WHERE webhook_due_at IS NOT NULL;

-- What waits, counted for each caller: a submission need not count the queue.
ALTER TABLE job_turns ADD COLUMN waiting_jobs BIGINT NOT NULL DEFAULT 0;
ALTER TABLE job_turns ADD COLUMN waiting_bytes BIGINT NOT NULL DEFAULT 0;
UPDATE job_turns SET
    waiting_jobs = (SELECT count(*) FROM jobs
        WHERE jobs.owner = job_turns.owner AND state = 'pending'),
    waiting_bytes = (SELECT CAST(COALESCE(SUM(request_bytes), 0) AS BIGINT) FROM jobs
        WHERE jobs.owner = job_turns.owner AND state = 'pending');
