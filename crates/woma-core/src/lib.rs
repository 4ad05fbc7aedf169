//! The service: what Woma does, in its own words. It knows no surface.

pub mod environments;
