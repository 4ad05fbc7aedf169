-- When the file left its session's folder; NULL while the folder has it, or an earlier version of it. A
-- server that takes a session over from the database writes these files back into the session's folder.
ALTER TABLE files ADD COLUMN left_at BIGINT;
