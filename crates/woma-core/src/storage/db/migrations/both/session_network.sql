-- Rules of the network that a session chose for itself, as text.
ALTER TABLE sessions ADD COLUMN network TEXT;
