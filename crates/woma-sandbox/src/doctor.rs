//! What the machine allows, found out by doing it.
