//! Partitions: one log each and the queues in it.
//!
//! ```text
//! client    the dispatcher client: events in, one flush per turn
//! hosted    a queue with its address and its domain
//! puts      messages and confirms from sessions         acks      PUTs that wait for their durability level
//! opens     open, configure, close, end of a session    deferred  answers that wait for it
//! sessions  connections as the partition knows them     outbox    what one turn collects for each
//! queries   what operators ask                          log       what a partition needs of its log
//! start     from a data directory to running partitions
//! ```
//!
//! One turn: events change the engines and append records to the block being built; `flush` hands the block to the log,
//! looks how far the log has come, releases what waited for that, delivers, and sends one batch of each kind per session.

pub mod client;
pub mod log;
pub mod start;

mod acks;
mod deferred;
mod hosted;
mod opens;
mod outbox;
mod puts;
mod queries;
mod sessions;
#[cfg(test)]
mod tests;

pub use client::{Partition, PartitionConfig, PreparedQueue, RecoveredQueue, WallClock};
pub use log::{Level, Log, News};
pub use start::{Started, start, storage_config};
