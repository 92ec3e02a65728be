//! What operators see and can do.

pub mod command;
