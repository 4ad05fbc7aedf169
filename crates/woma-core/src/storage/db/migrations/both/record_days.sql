-- What the records of a caller take, by the day of their writing (UTC, counted from 1970): charged to the
-- caller's storage, and the trail has a limit for each day. What is beyond it is counted here.
CREATE TABLE record_days (
    owner TEXT NOT NULL,
    day BIGINT NOT NULL,
    audit_bytes BIGINT NOT NULL,
    execution_bytes BIGINT NOT NULL,
    left_out_rows BIGINT NOT NULL,
    left_out_bytes BIGINT NOT NULL,
    is_limit_told BIGINT NOT NULL,
    told_rows BIGINT NOT NULL,
    PRIMARY KEY (owner, day)
);
CREATE INDEX record_days_untold ON record_days (day) WHERE left_out_rows > told_rows;
