//! Domains: what they promise, which there are, where their queues live.
//!
//! [`settings`] is what the configuration means for queues, [`registry`] is the dispatcher client that every open passes
//! through.

pub mod registry;
pub mod settings;

pub use registry::{PartitionEntry, Registry, RegistryConfig};
pub use settings::Domain;
