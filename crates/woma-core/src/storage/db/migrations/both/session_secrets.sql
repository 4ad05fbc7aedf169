-- Names of the secrets that a session was given, separated by commas. Values are not stored.
ALTER TABLE sessions ADD COLUMN secrets TEXT;
