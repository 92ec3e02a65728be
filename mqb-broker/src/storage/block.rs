//! Blocks: what one turn appended, built in place and then shared unchanged by cache, writer and senders.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use mqb_core::log::{
    self, ENTRY_HEADER_LEN, EntryHeader, EntryKind, Index, PUT_HEADER_LEN, RecordHeader, Term,
};
use mqb_core::{QueueId, Sequence};
use mqb_queue::{DataFormat, NewMessage, Stored};

/// Payloads above this many bytes stay slices of the buffer they came in; up to it they are copied into the block.
pub const MAX_COPIED: usize = 4096;

const ZEROS: [u8; 8] = [0; 8];

/// Memory that storage may use for the blocks and tables of all partitions together, and what it uses, bytes still held by senders included.
///
/// Buffers of blocks are used again: a megabyte of fresh memory costs more than filling it, and what an allocator keeps of a million
/// buffers of changing sizes would be memory that no budget knows.
#[derive(Debug)]
pub struct MemoryBudget {
    limit: usize,
    used: AtomicUsize,
    /// Of them tables, which cannot leave.
    tables: AtomicUsize,
    /// Buffers that wait to be used again; not counted, few. A lock of its own, held for a push or a pop, once per block.
    spare: Mutex<Vec<Vec<u8>>>,
}

/// **Units**: bytes of a buffer for a full block: 1 MiB and what the record that fills it may exceed it by.
const FULL_BLOCK: usize = (1 << 20) + (64 << 10);
/// Smaller buffers are the allocator's business.
const REUSED_MIN: usize = 128 << 10;
/// Larger ones are rare.
const REUSED_MAX: usize = 4 << 20;
const SPARE_BUFFERS: usize = 8;

impl MemoryBudget {
    /// **Units**: bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        let spare = Mutex::new(Vec::with_capacity(SPARE_BUFFERS));
        Arc::new(MemoryBudget {
            limit,
            used: AtomicUsize::new(0),
            tables: AtomicUsize::new(0),
            spare,
        })
    }

    /// **Units**: bytes of blocks.
    pub fn used(&self) -> usize {
        // A figure to steer by; nothing is published through it.
        self.used.load(Ordering::Relaxed)
    }

    /// Whether blocks should leave memory.
    ///
    /// What the allocator keeps besides is part of the process's memory too: about a quarter of the blocks, measured with a million messages
    /// of 1 KiB waiting.
    pub fn is_over(&self) -> bool {
        let blocks = self.used();
        let tables = self.tables.load(Ordering::Relaxed).min(self.limit / 2);
        blocks + blocks / 4 + tables > self.limit
    }

    pub(crate) fn add(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// A partition's tables have grown or shrunk. **Units**: bytes.
    pub(crate) fn tables_changed(&self, from: usize, to: usize) {
        self.tables.fetch_add(to, Ordering::Relaxed);
        self.tables.fetch_sub(from, Ordering::Relaxed);
    }

    /// An empty buffer for at least that many bytes.
    fn buffer(&self, bytes: usize) -> Vec<u8> {
        if bytes >= REUSED_MIN {
            let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(at) = spare.iter().position(|b| b.capacity() >= bytes) {
                return spare.swap_remove(at);
            }
        }
        Vec::with_capacity(bytes)
    }

    fn give_back(&self, mut buffer: Vec<u8>) {
        if (REUSED_MIN..=REUSED_MAX).contains(&buffer.capacity()) {
            buffer.clear();
            let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
            if spare.len() < SPARE_BUFFERS {
                spare.push(buffer);
            }
        }
    }

    /// Makes shared bytes that are counted until the last reference is gone.
    pub(crate) fn share(self: &Arc<Self>, bytes: Vec<u8>) -> Bytes {
        self.add(bytes.capacity());
        Bytes::from_owner(Counted {
            bytes,
            budget: Arc::clone(self),
        })
    }
}

struct Counted {
    bytes: Vec<u8>,
    budget: Arc<MemoryBudget>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.budget.sub(self.bytes.capacity());
        self.budget.give_back(std::mem::take(&mut self.bytes));
    }
}

/// A payload that was not copied.
#[derive(Clone, Debug)]
struct Large {
    /// Where it goes: this many bytes of `head` come before it.
    at: usize,
    /// Where it starts in the entry.
    offset: usize,
    bytes: Bytes,
}

/// The block being built. Owned by: the partition's processor.
#[derive(Debug)]
pub struct BlockBuilder {
    head: Vec<u8>,
    large: Vec<Large>,
    large_bytes: usize,
    records: u32,
    puts: u32,
}

impl BlockBuilder {
    /// An empty block; `expected` bytes are reserved.
    pub fn new(expected: usize) -> Self {
        Self::with_buffer(Vec::with_capacity(expected.max(ENTRY_HEADER_LEN)))
    }

    /// The same, in a buffer that was used before if there is one. All but small blocks get one for a full block.
    pub(crate) fn reusing(expected: usize, budget: &MemoryBudget) -> Self {
        let bytes = if expected < REUSED_MIN {
            expected.max(ENTRY_HEADER_LEN)
        } else {
            expected.max(FULL_BLOCK)
        };
        Self::with_buffer(budget.buffer(bytes))
    }

    /// Makes room for `bytes` more. Growing from a small block goes straight to a full one: doubling would copy it four times and end beyond.
    fn reserve(&mut self, bytes: usize) {
        let (len, capacity) = (self.head.len(), self.head.capacity());
        if capacity - len < bytes && capacity * 2 >= REUSED_MIN && len + bytes <= FULL_BLOCK {
            self.head.reserve_exact(FULL_BLOCK - len);
        }
    }

    fn with_buffer(mut head: Vec<u8>) -> Self {
        head.resize(ENTRY_HEADER_LEN, 0);
        BlockBuilder {
            head,
            large: Vec::new(),
            large_bytes: 0,
            records: 0,
            puts: 0,
        }
    }

    /// **Units**: bytes of the entry so far; where the next record starts.
    #[inline]
    pub fn len(&self) -> usize {
        self.head.len() + self.large_bytes
    }

    /// Whether there is no record.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Messages in it.
    pub fn puts(&self) -> u32 {
        self.puts
    }

    /// Appends a message.
    pub fn put(&mut self, queue: QueueId, accepted_at_ms: u64, message: &NewMessage<'_>) {
        let len =
            u32::try_from(message.data.len()).expect("messages are limited to 64 MiB on the wire");
        self.reserve(PUT_HEADER_LEN + message.data.len().min(MAX_COPIED) + ZEROS.len());
        self.head.extend_from_slice(&log::put_header(
            queue,
            message.format.0,
            accepted_at_ms,
            &message.guid,
            len,
        ));
        if message.data.len() <= MAX_COPIED {
            self.head.extend_from_slice(message.data);
        } else {
            let bytes = share(message.owner, message.data);
            self.large.push(Large {
                at: self.head.len(),
                offset: self.len(),
                bytes,
            });
            self.large_bytes += message.data.len();
        }
        self.head.extend_from_slice(
            &ZEROS[..message.data.len().next_multiple_of(8) - message.data.len()],
        );
        self.records += 1;
        self.puts += 1;
    }

    /// Appends a settling.
    pub fn settle(&mut self, queue: QueueId, why: u8, message: Sequence) {
        log::push_settle(&mut self.head, queue, why, message);
        self.records += 1;
    }

    /// Appends a queue's creation.
    pub fn queue_created(&mut self, queue: QueueId, uri: &str) {
        log::push_queue_created(&mut self.head, queue, uri);
        self.records += 1;
    }

    /// Appends a queue's removal.
    pub fn queue_removed(&mut self, queue: QueueId) {
        log::push_queue_removed(&mut self.head, queue);
        self.records += 1;
    }

    /// Completes the entry. Its bytes never change again.
    ///
    /// **Cost**: the checksum over all of it.
    pub(crate) fn seal(
        mut self,
        kind: EntryKind,
        term: Term,
        index: Index,
        budget: &Arc<MemoryBudget>,
    ) -> Block {
        let length = u32::try_from(self.len() - ENTRY_HEADER_LEN)
            .expect("a block is sealed at 1 MiB and one message");
        let mut header = EntryHeader {
            kind,
            term,
            index,
            records: self.records,
            length,
            crc: 0,
        };
        let bytes = header.seal(Pieces::new(&self.head, &self.large, ENTRY_HEADER_LEN));
        self.head[..ENTRY_HEADER_LEN].copy_from_slice(&bytes);
        if self.head.capacity() > self.head.len() + self.head.len() / 2 {
            // It may stay for long: in a buffer of its size, and the large one is used again.
            let exact = self.head.as_slice().to_vec();
            budget.give_back(std::mem::replace(&mut self.head, exact));
        }
        let large = (!self.large.is_empty()).then(|| Arc::new(self.large));
        Block {
            header,
            head: budget.share(self.head),
            large,
            large_bytes: self.large_bytes,
            puts: self.puts,
        }
    }
}

/// A reference-counted slice of `owner`, or a copy if `data` is not inside it.
fn share(owner: &Bytes, data: &[u8]) -> Bytes {
    let inside = owner.as_ptr_range().contains(&data.as_ptr())
        && owner.as_ptr_range().end >= data.as_ptr_range().end;
    if inside {
        owner.slice_ref(data)
    } else {
        Bytes::copy_from_slice(data)
    }
}

/// A sealed entry. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Block {
    header: EntryHeader,
    /// All of the entry but large payloads.
    head: Bytes,
    large: Option<Arc<Vec<Large>>>,
    large_bytes: usize,
    puts: u32,
}

impl Block {
    /// An entry read back: contiguous, verified, `puts` messages in it.
    pub(crate) fn from_bytes(header: EntryHeader, entry: Bytes, puts: u32) -> Block {
        Block {
            header,
            head: entry,
            large: None,
            large_bytes: 0,
            puts,
        }
    }

    /// A frame of carried records read back: not an entry, but messages are found in it the same way.
    pub(crate) fn carried(content: Bytes, puts: u32) -> Block {
        let header = EntryHeader {
            kind: EntryKind::Normal,
            term: Term(0),
            index: Index(0),
            records: puts,
            length: 0,
            crc: 0,
        };
        Block {
            header,
            head: content,
            large: None,
            large_bytes: 0,
            puts,
        }
    }

    /// The entry's header.
    pub fn header(&self) -> &EntryHeader {
        &self.header
    }

    /// **Units**: bytes of the entry.
    pub fn len(&self) -> usize {
        self.head.len() + self.large_bytes
    }

    /// Whether there are no bytes; never so.
    pub fn is_empty(&self) -> bool {
        self.head.is_empty()
    }

    /// Messages in it.
    pub fn puts(&self) -> u32 {
        self.puts
    }

    /// **Units**: bytes of payloads held in foreign buffers.
    pub(crate) fn large_bytes(&self) -> usize {
        self.large_bytes
    }

    /// The entry in order, in pieces.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        Pieces::new(&self.head, self.large.as_ref().map_or(&[], |l| l), 0)
    }

    /// The message whose record starts at `offset` of the entry.
    #[inline]
    pub fn message(&self, offset: usize) -> Option<(QueueId, Stored<'_>)> {
        let (at, large) = match &self.large {
            None => (offset, None),
            Some(large) => {
                let before = large.partition_point(|l| l.offset <= offset);
                let skipped: usize = large[..before].iter().map(|l| l.bytes.len()).sum();
                let at = offset.checked_sub(skipped)?;
                (
                    at,
                    large.get(before).filter(|l| l.at == at + PUT_HEADER_LEN),
                )
            }
        };
        let header = RecordHeader::parse_put(self.head.get(at..)?)?;
        let (len, format) = (header.len as usize, DataFormat(header.format));
        let (chunk, start) = match large {
            Some(large) => (&large.bytes, 0),
            None => (&self.head, at + PUT_HEADER_LEN),
        };
        (start + len <= chunk.len()).then_some((
            header.queue,
            Stored {
                chunk,
                start,
                len,
                format,
            },
        ))
    }
}

/// Alternates between the head and the payloads that are not in it.
struct Pieces<'a> {
    head: &'a [u8],
    large: &'a [Large],
    from: usize,
    payload_next: bool,
}

impl<'a> Pieces<'a> {
    fn new(head: &'a [u8], large: &'a [Large], from: usize) -> Self {
        Pieces {
            head,
            large,
            from,
            payload_next: false,
        }
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.payload_next {
            self.payload_next = false;
            let (first, rest) = self.large.split_first()?;
            self.large = rest;
            return Some(&first.bytes);
        }
        if self.from >= self.head.len() && self.large.is_empty() {
            return None;
        }
        let to = self.large.first().map_or(self.head.len(), |l| l.at);
        let piece = &self.head[self.from..to];
        self.from = to;
        self.payload_next = !self.large.is_empty();
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mqb_core::Guid;
    use mqb_core::log::{Record, Records};

    #[test]
    fn small_and_large_payloads_read_the_same_from_the_block_and_from_its_bytes() {
        let budget = MemoryBudget::new(1 << 20);
        let owner = Bytes::from((0..20_000u32).map(|i| i as u8).collect::<Vec<_>>());
        let mut builder = BlockBuilder::new(0);
        let mut offsets = Vec::new();
        for len in [0usize, 1, 4096, 4097, 9999, 7, 5000, 3] {
            offsets.push((builder.len(), len));
            let guid = Guid([len as u8; 16]);
            let m = NewMessage {
                guid,
                format: DataFormat(3),
                accepted_at_ms: 5,
                data: &owner[100..100 + len],
                owner: &owner,
            };
            builder.put(QueueId(9), 5, &m);
            builder.settle(QueueId(9), 1, Sequence(77));
        }
        let block = builder.seal(EntryKind::Normal, Term(1), Index(4), &budget);
        let flat: Vec<u8> = block.pieces().flatten().copied().collect();
        assert_eq!(flat.len(), block.len());
        EntryHeader::parse(&flat).unwrap().verify(&flat).unwrap();
        let puts = Records::new(&flat)
            .map(Result::unwrap)
            .filter(|(_, r)| matches!(r, Record::Put(_)));
        assert_eq!(
            puts.map(|(o, _)| o).collect::<Vec<_>>(),
            offsets.iter().map(|o| o.0).collect::<Vec<_>>()
        );
        for (offset, len) in offsets {
            let (queue, stored) = block.message(offset).unwrap();
            assert_eq!((queue, stored.data()), (QueueId(9), &owner[100..100 + len]));
        }
        assert!(
            block.message(40 + 40).is_none(),
            "a settle record is no message"
        );
        drop(block);
        assert_eq!(budget.used(), 0);
    }
}
