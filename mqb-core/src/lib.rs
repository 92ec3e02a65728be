//! Vocabulary of mqb: identifiers, the BlazingMQ wire protocol from both sides, properties, checksums, configuration.
//!
//! No threads, sockets, files, clock or `unsafe`. Peers' bytes never panic, hang or size an allocation here.
//!
//! * [`wire`]: framing and the binary events; [`control`]: the negotiation, authentication and control documents, BER and JSON.
//! * [`data`]: what is in a message: [`properties`], payload, [`compress`]ion; [`checksum`] of it.
//! * [`uri`], [`features`]: what peers write as text.
//! * [`limits`]: every cap. [`error`]: what can be wrong, by the reaction it calls for.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod ber;
pub mod checksum;
pub mod compress;
pub mod config;
pub mod control;
pub mod data;
pub mod error;
pub mod features;
mod format;
#[doc(hidden)]
pub mod fuzz;
mod guid;
mod ids;
pub mod limits;
pub mod log;
pub mod properties;
pub mod uri;
pub mod wire;

pub use format::{Compression, DataFormat, PropertiesStyle};
pub use guid::{Guid, GuidGenerator, NotAGuid};
pub use ids::{PartitionId, QueueId, Sequence, SessionId, SubId, SubscriptionId, WireQueueId};
