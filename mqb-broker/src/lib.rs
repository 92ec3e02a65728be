//! The mqb broker: sessions, partitions, storage and administration on top of the dispatcher and the queue engines.

pub mod admin;
pub mod app;
pub mod cli;
pub mod domain;
pub mod event;
pub mod failure;
pub mod health;
pub mod http;
pub mod logging;
pub mod metrics;
pub mod net;
pub mod partition;
pub mod session;
pub mod signal;
pub mod storage;
