-- A blob is there when its row is: both tables are written in one transaction.
CREATE TABLE blobs (
    digest TEXT PRIMARY KEY,
    size_bytes BIGINT NOT NULL,
    touched_at BIGINT NOT NULL
);

CREATE TABLE blob_chunks (
    digest TEXT NOT NULL REFERENCES blobs (digest) ON DELETE CASCADE,
    number BIGINT NOT NULL,
    bytes BYTEA NOT NULL,
    PRIMARY KEY (digest, number)
);
