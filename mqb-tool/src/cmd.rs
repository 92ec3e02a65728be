//! One file per command.

pub(crate) mod admin;
pub(crate) mod get;
pub(crate) mod put;
pub(crate) mod queue;
pub(crate) mod storage;
