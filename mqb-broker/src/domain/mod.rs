//! Domains: what they promise, which there are, where their queues live.
//!
//! [`settings`] is what the configuration says, [`table`] finds it for a name, [`registry`] is the dispatcher client that
//! every open passes through.

pub mod registry;
pub mod settings;
pub mod table;

pub use registry::{PartitionEntry, Registry, RegistryConfig};
pub use settings::{Domain, DomainSettings, Durability};
pub use table::{DomainRule, DomainTable};
