//! Python's grammar. The only file that names ruff's parser.
