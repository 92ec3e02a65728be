//! Inbound calls: requests that ask for an answer, their deadlines, and the pool of workers for those that may block.
//!
//! ```text
//! frame --receive(now)--> InboundCall --start(now)--> handled on the processor that owns its target        (the default)
//!                             |
//!                             +--ServicePool::put(now)--> idle worker, else ready queue --> worker --> Reply --> the caller's processor
//! ```
//!
//! The deadline is computed once, by [`InboundCall::receive`], from the time of the loop's turn; everything later compares the stored
//! value. A call is answered exactly once: the methods that answer consume it, and one that is dropped answers that the service
//! failed. A refusal always means that the call was *not started*.
//!
//! Nothing whose order is part of a contract may take the way through the queue: it orders by deadline and refuses. Calls that carry
//! an [`OrderKey`] run one after the other within their session.

mod admission;
mod call;
mod config;
mod exchange;
mod metrics;
mod queue;
mod reply;
mod ring;
mod slot;

#[cfg(not(mqb_loom))]
mod pool;

pub use call::{CallHeader, CallInfo, Class, Frame, InboundCall, OrderKey};
pub use config::{Bound, ClassConfig, ConfigError, OnOverload, PoolConfig, ServeOrder};
pub use exchange::{Admission, Exchange, Turn, Worker};
pub use metrics::{ClassFigures, PoolFigures, Recorder, Refused};
pub use queue::{Entry, Eviction, LaneConfig, QueueConfig, ReadyQueue, Victim};
pub use reply::{Answer, Refusal, Reply};
pub use slot::{Delivery, Slot};

#[cfg(not(mqb_loom))]
pub use {
    pool::{PoolHandle, Service, ServicePool, StuckWorkers},
    reply::PostTo,
};
