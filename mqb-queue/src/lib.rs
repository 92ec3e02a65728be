//! Queue engines: delivery rules, consumers, windows, redelivery. No sockets, files or cluster.
#![forbid(unsafe_code)]

mod store;

pub use store::{DataFormat, Fetch, MessageStore, NewMessage, Settled, StoreError, Stored};
