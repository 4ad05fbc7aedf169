"""The sandbox and its parts."""

# Made from _async/__init__.py by scripts/make_sync.py: change that file.
