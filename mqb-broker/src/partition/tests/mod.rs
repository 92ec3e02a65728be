//! Partitions and registry together, deterministically.

mod promises;
mod registry;
mod soak;
mod world;
