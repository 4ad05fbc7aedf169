-- Rows of a server form a chain: each has a position, and a hash over itself and the row before it.
-- Rows from before this step have neither.
ALTER TABLE audit ADD COLUMN chain TEXT;
ALTER TABLE audit ADD COLUMN position BIGINT;
ALTER TABLE audit ADD COLUMN hash TEXT;
CREATE UNIQUE INDEX audit_by_position ON audit (chain, position) WHERE chain IS NOT NULL;

-- The last row of each chain. The row with an empty name has the last seq that is in no chain.
CREATE TABLE audit_heads (
    chain TEXT PRIMARY KEY,
    position BIGINT NOT NULL,
    hash TEXT NOT NULL
);
INSERT INTO audit_heads (chain, position, hash) SELECT '', COALESCE(MAX(seq), 0), '' FROM audit;
