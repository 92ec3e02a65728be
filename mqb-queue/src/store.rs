//! What an engine asks of the log below it, through one trait.
//!
//! The broker's partition log implements it for durable domains; an in-memory store for `memory` domains, for tests and
//! for services that embed this crate.

use std::ops::Range;

use bytes::Bytes;
use mqb_core::{Guid, QueueId, Sequence};

pub use mqb_core::DataFormat;

/// A message to be stored.
pub struct NewMessage<'a> {
    /// Given by the producer, not unset.
    pub guid: Guid,
    /// Encoding of `data`.
    pub format: DataFormat,
    /// Wall clock at acceptance, milliseconds since the Unix epoch. Recorded, because recovery reads no clock.
    pub accepted_at_ms: u64,
    /// Application data as it came over the wire, without padding.
    pub data: &'a [u8],
    /// The buffer that holds `data`; a store may keep a reference-counted slice of it (`Bytes::slice_ref`) instead of a copy.
    pub owner: &'a Bytes,
}

/// Why a message left its queue. **Layout**: the number is written to the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Settled {
    /// A consumer confirmed it.
    Confirmed = 1,
    /// Its time to live passed.
    Expired = 2,
    /// An operator purged the queue.
    Purged = 3,
    /// It used up its delivery attempts.
    Removed = 4,
}

/// A stored message's application data.
#[derive(Clone, Copy)]
pub struct Stored<'a> {
    /// Reference-counted memory that holds the data.
    pub chunk: &'a Bytes,
    /// Where in `chunk`; without padding.
    pub start: usize,
    /// **Units**: bytes.
    pub len: usize,
    /// As given at `put`.
    pub format: DataFormat,
}

impl<'a> Stored<'a> {
    /// The application data.
    pub fn data(&self) -> &'a [u8] {
        &self.chunk[self.range()]
    }

    /// The data's place in `chunk`.
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.len
    }
}

/// Outcome of [`MessageStore::fetch`].
pub enum Fetch<'a> {
    /// In memory.
    Ready(Stored<'a>),
    /// Being read back from disk; the store tells its owner when to try again.
    Later,
    /// Damaged on disk: cannot be delivered. An alarm has been raised by the store.
    Lost,
}

/// Why a message was not stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No space for new messages; settling still works.
    #[error("storage is full")]
    Full,
    /// The store failed and takes nothing more.
    #[error("storage is read-only after an error")]
    ReadOnly,
}

/// Storage of one partition (or of one queue in memory) as an engine sees it. Called on the owner's thread; never blocks.
pub trait MessageStore {
    /// Appends a message and returns its place in the order. It becomes deliverable when the store's owner says so.
    fn put(&mut self, queue: QueueId, message: &NewMessage<'_>) -> Result<Sequence, StoreError>;

    /// Appends the fact that a message is done with. Never refused for want of space.
    fn settle(&mut self, queue: QueueId, message: Sequence, why: Settled);

    /// The data of a message that has not been settled.
    fn fetch(&mut self, queue: QueueId, message: Sequence) -> Fetch<'_>;
}
