//! Words after an error.
