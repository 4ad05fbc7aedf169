-- Name of the environment that a session was created in.
ALTER TABLE sessions ADD COLUMN environment TEXT;
