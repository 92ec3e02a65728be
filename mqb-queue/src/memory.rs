//! A store without a disk: for `memory` domains, for tests, and for services that embed the engines.

use bytes::Bytes;
use hashbrown::HashMap;
use mqb_core::{QueueId, Sequence};

use crate::store::{DataFormat, Fetch, MessageStore, NewMessage, Settled, StoreError, Stored};

/// Messages of at most this size are copied; larger ones keep a slice of the buffer that they came in.
///
/// A slice pins its whole buffer, which may hold many small messages that are long gone.
const COPY_MAX_BYTES: usize = 4096;

/// Keeps messages in memory only. Sequences count from 1.
#[derive(Default)]
pub struct MemoryStore {
    last: u64,
    messages: HashMap<Sequence, (Bytes, DataFormat)>,
    bytes: u64,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// The sequence of the newest message.
    pub fn appended(&self) -> Sequence {
        Sequence(self.last)
    }

    /// Number of messages.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether there are no messages.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Application data of all messages. **Units**: bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl MessageStore for MemoryStore {
    fn put(&mut self, _queue: QueueId, message: &NewMessage<'_>) -> Result<Sequence, StoreError> {
        let data = if message.data.len() <= COPY_MAX_BYTES {
            Bytes::copy_from_slice(message.data)
        } else {
            message.owner.slice_ref(message.data)
        };
        self.last += 1;
        self.bytes += data.len() as u64;
        self.messages
            .insert(Sequence(self.last), (data, message.format));
        Ok(Sequence(self.last))
    }

    fn settle(&mut self, _queue: QueueId, message: Sequence, _why: Settled) {
        if let Some((data, _)) = self.messages.remove(&message) {
            self.bytes -= data.len() as u64;
        }
    }

    fn fetch(&mut self, _queue: QueueId, message: Sequence) -> Fetch<'_> {
        match self.messages.get(&message) {
            Some((data, format)) => Fetch::Ready(Stored {
                chunk: data,
                start: 0,
                len: data.len(),
                format: *format,
            }),
            None => Fetch::Lost,
        }
    }
}
