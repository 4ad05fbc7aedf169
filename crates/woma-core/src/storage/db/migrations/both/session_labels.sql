-- Labels of a session, as a JSON object of texts, and the seconds after which it is deleted if no
-- call comes.
ALTER TABLE sessions ADD COLUMN labels TEXT;
ALTER TABLE sessions ADD COLUMN lifetime_s BIGINT;
