-- Packages of a session, as JSON.
ALTER TABLE sessions ADD COLUMN packages TEXT;
