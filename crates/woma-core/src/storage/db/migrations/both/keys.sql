-- Keys of callers, by the digests of their secrets. Nothing of a row changes but its revocation.
CREATE TABLE keys (
    id TEXT PRIMARY KEY,
    sha256 TEXT NOT NULL,
    about TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    revoked_at BIGINT
);
