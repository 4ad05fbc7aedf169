//! The network's door: who may come in, and by which name.

mod auth;
mod guard;
mod jwt;
mod refusal;
