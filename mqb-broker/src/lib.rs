//! The mqb broker: sessions, partitions, storage and administration on top of the dispatcher and the queue engines.

pub mod admin;
pub mod domain;
pub mod event;
pub mod net;
pub mod partition;
pub mod session;
pub mod storage;
