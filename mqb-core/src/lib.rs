//! Vocabulary of mqb. No threads, sockets, files, clock or `unsafe`.
#![forbid(unsafe_code)]

mod guid;
mod ids;

pub use guid::Guid;
pub use ids::{PartitionId, QueueId, Sequence, SessionId, SubId, SubscriptionId, WireQueueId};
