-- How the kernels of a session are opened: 'container', or nothing for the sandbox.
ALTER TABLE sessions ADD COLUMN isolation TEXT;
